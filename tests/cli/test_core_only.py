"""The command line works where only the packages of `pip install holdfast` are installed, and loads few modules."""

import subprocess
import sys
from pathlib import Path

OPTIONAL = (
    "argon2 capnp cryptography fastavro fsspec google jinja2 matplotlib numpy opentelemetry pandas prometheus_client "
    "pyarrow pyspark starlette uvicorn uvloop"
)
PROGRAM = f"""
import sys
from importlib.machinery import PathFinder


class Core:
    def find_spec(name, path=None, target=None):
        if name.partition(".")[0] not in {OPTIONAL.split()!r}:
            return PathFinder.find_spec(name, path, target)


sys.meta_path = [Core if one is PathFinder else one for one in sys.meta_path]
from holdfast.cli import main
code = main(sys.argv[1:])
assert "holdfast.table" not in sys.modules or sys.argv[1] in ("doctor", "table"), "it loads tables"
sys.exit(code)
"""


def test_commands_run_without_the_optional_packages(tmp_path: Path) -> None:
    for words in (["--version"], ["put", "q", "hello"], ["get", "q"], ["log", "list"], ["table", "list"], ["doctor"]):
        data = ["--data", str(tmp_path / "data")] if len(words) > 1 or words == ["doctor"] else []
        command = [sys.executable, "-c", PROGRAM, *words, *data]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


def test_a_schema_needs_only_the_packages_of_its_format(tmp_path: Path) -> None:
    avro = '{"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}'
    for format, text, missing in (("json", "a INT", ""), ("avro", avro, "fastavro"), ("protobuf", "QQ==", "protobuf")):
        file = tmp_path / format
        file.write_text(text)
        words = ["schema", "set", format, str(file), "--format", format, "--create", "--data", str(tmp_path / "data")]
        command = [sys.executable, "-c", PROGRAM, *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == bool(missing), done.stderr
        assert (
            not missing or f'need {missing}, which is not installed: run pip install "holdfast[schemas]"' in done.stderr
        )
