"""How is a page of the docs run? Block after block in one folder, as a reader would who follows it at a terminal.

- Python knows the names of the blocks before, and none of another page.
- Shell commands are run, also one by one where output is shown (`$ command`, and `...` for anything). What installs
  something is only looked at. Variables last.
- `holdfast serve` starts a server that runs until the next one, or until `<!-- the server stops -->`. It takes free
  ports, which stand in for the usual ones from then on. A block that names a port where no server runs gets one.
- Settings must be what they say they are; one whose first line is `# name.toml` is a file of that name from then on.
- What cannot run has `<!-- not run: why -->` before it.
"""

import configparser
import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import tomllib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Self

import yaml  # type: ignore[import-untyped]

from holdfast.amqp.settings import PREFIX, load
from tests.blocks import (
    Block,
    check_install,
    check_json,
    check_text,
    commands_in,
    fits,
    leave,
    split_assignments,
    with_free_ports,
    words_of,
)

PATIENCE_S = 300
SHELLS = ("sh", "bash", "console")
ADVICE = "holdfast: the only administrator is 'guest'"
"""How a server's advice begins on a first start, which is no complaint."""
GONE = "connection lost:"
"""What a server warns about a client that did not close its connection, as processes of Celery do."""
_SECOND_LOOPBACK = re.compile(r" and (?:https?://)?\[::1\]:\d+/?")
"""Servers of the stories listen on one address, wherever IPv6 is."""
PORTS = {"AMQP": "5672", "AMQP over TLS": "5671", "http": "15672", "https": "15671", "Cap'n Proto": "9090"}
"""What a server says that it listens for, and where it does so if nobody chooses."""
INSTALLS = ("pip", "make", "docker", "apt", "sudo", "systemctl")
TOOLS = ("curl", "openssl", "rabbitmqadmin", "promtool")
"""Programs of others: a command that needs one is not run where it is not installed."""

_BIN = Path(sys.executable).parent
_NAMED = re.compile(r"# ([\w.-]+\.\w+)\n")
_PORT = re.compile(r"\b(" + "|".join(PORTS.values()) + r")\b")
_DRIVER = """
import json as _json, os as _os, sys as _sys, traceback as _traceback
_names = globals()
with _os.fdopen(int(_sys.argv[1]), "w") as _answers:
    for _line in _sys.stdin:
        _fresh, _page, _above, _text = _json.loads(_line)
        if _fresh:
            for _name in [one for one in _names if not one.startswith("_")]:
                del _names[_name]
        try:
            exec(compile("\\n" * _above + _text, _page, "exec"), _names)
            print("null", file=_answers, flush=True)
        except BaseException:
            print(_json.dumps(_traceback.format_exc()), file=_answers, flush=True)
"""
_COMPILER = """
import capnp, sys
from holdfast.rpc.schema import SCHEMAS
capnp.load(sys.argv[1], imports=[str(SCHEMAS)])
"""


class Interpreter:
    """A Python that runs blocks in a folder, one page after the other: who has started Spark need not do it again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "here"
        self.folder.mkdir()
        self._errors = folder / "errors"
        self._errors.touch()
        self._process: subprocess.Popen[str] | None = None
        self._answers = -1
        self._fresh = False

    def clear(self) -> None:
        """Begin with another page: nothing is in the folder, and no name is known."""
        self._fresh = True
        for path in self.folder.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    def run(self, block: Block, text: str, environment: dict[str, str]) -> None:
        """Run a block."""
        if self._process is None:
            self._answers, answering = os.pipe()
            with self._errors.open("w") as errors:
                self._process = subprocess.Popen(
                    [sys.executable, "-c", _DRIVER, str(answering)],
                    cwd=self.folder,
                    env=environment,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    stderr=errors,
                    text=True,
                    pass_fds=[answering],
                    start_new_session=True,
                )
            os.close(answering)
        assert self._process.stdin is not None
        print(json.dumps([self._fresh, block.page, block.line - 1, text]), file=self._process.stdin, flush=True)
        self._fresh = False
        assert select.select([self._answers], [], [], PATIENCE_S)[0], f"{block.place} does not come to an end"
        answer = b""
        while not answer.endswith(b"\n"):
            more = os.read(self._answers, 1 << 16)
            assert more, f"{block.place} ended Python: {self._errors.read_text()}"
            answer += more
        error = json.loads(answer)
        assert error is None, f"{block.place} failed\n{error}"
        assert self._errors.read_text() == "", f"{block.place} complained\n{self._errors.read_text()}"

    def end(self, *, quietly: bool = False) -> None:
        """End it: it must end well and without complaint. It begins again when it is needed."""
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None
        with suppress(BrokenPipeError):
            process.stdin.close()
        try:
            code = process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            code = process.wait()
        os.close(self._answers)
        assert quietly or (code, self._errors.read_text()) == (0, "")


class Story:
    """A folder in which blocks are run."""

    def __init__(self, folder: Path, python: Interpreter | None = None) -> None:
        self._is_own = python is None
        self._python = python or Interpreter(folder)
        self._folder = self._python.folder
        self._home = folder / "home"
        self._home.mkdir()
        self._variables = folder / "variables"
        self._variables.touch()
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(PREFIX)}
        self._environment = {
            **inherited,
            **dict.fromkeys((f"{PREFIX}AMQP_PORT", f"{PREFIX}HTTP_PORT", f"{PREFIX}RPC_PORT"), "0"),
            f"{PREFIX}HOST": "127.0.0.1",
            "HOME": str(self._home),
            "PATH": f"{_BIN}:{os.environ['PATH']}",
            "COLUMNS": "120",
            "SPARK_MASTER": "local[2]",
        }
        self._ports: dict[str, str] = {}
        self._server: subprocess.Popen[str] | None = None
        self._ways: dict[str, Callable[[Block], None]] = {
            "python": self._run_python,
            "sh": self._run_shell,
            "bash": self._run_shell,
            "console": self._run_console,
            "json": check_json,
            "yaml": self._check_yaml,
            "toml": self._check_toml,
            "ini": self._check_ini,
            "capnp": self._check_capnp,
            "text": check_text,
            "nginx": leave,
            "promql": leave,
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        try:
            self.stop_server(quietly=kind is not None)
        finally:
            if self._is_own or kind is not None:
                self._python.end(quietly=kind is not None)

    def run(self, block: Block) -> None:
        """Run a block; an AssertionError says where it fails."""
        way = self._ways.get(block.language)
        assert way is not None, f"{block.place}: say what the block is: one of {', '.join(self._ways)}"
        if block.after_stop:
            self.stop_server()
        if block.not_run is not None:
            if block.language in ("sh", "bash"):
                check_text(block)
            return
        if self._server is None and block.language in ("python", *SHELLS) and self._names_a_port(block):
            self._serve("holdfast serve --data data", block.place)
            way(block)
            self.stop_server()
        else:
            way(block)

    @staticmethod
    def _names_a_port(block: Block) -> bool:
        return _PORT.search(block.text) is not None and "holdfast serve" not in block.text

    def _run_python(self, block: Block) -> None:
        environment = {**self._environment, "HOME": os.environ.get("HOME", "")}
        self._python.run(block, self._at_our_ports(block.text), environment)

    # The shell.

    def _run_shell(self, block: Block) -> None:
        for line, command in commands_in(block.text):
            self._run_command(command, f"{block.page}:{block.line + line}")

    def _run_console(self, block: Block) -> None:
        for found in re.finditer(r"^\$ (.*\n(?:> .*\n)*)((?:(?!\$ ).*\n)*)", block.text, re.MULTILINE):
            place = f"{block.page}:{block.line + block.text[: found.start()].count(chr(10))}"
            said = self._run_command(re.sub(r"^> ", "", found[1], flags=re.MULTILINE).strip(), place, wants=found[2])
            if found[2].strip() and said is not None:
                wanted = _SECOND_LOOPBACK.sub("", self._at_our_ports(found[2]))
                assert fits(said, wanted), f"{place} printed\n{said}\nin place of\n{wanted}"

    def _run_command(self, command: str, place: str, wants: str = "") -> str | None:
        """What a command printed; None where it was only looked at."""
        if not words_of(command, place, whole=True):  # a comment
            return None
        words = words_of(command, place) or [""]
        if words[0] in INSTALLS:
            check_install(words, place)
            return None
        if words[:2] == ["holdfast", "serve"]:
            return self._serve(command, place)
        if any(tool in words for tool in TOOLS if shutil.which(tool) is None):
            return None
        if words[0] == "holdfast" and {"-f", "--follow"} & set(words):  # it would follow for ever
            command = f"timeout --signal INT 3 {command} || test $? = 124"
        kept = self._variables
        script = f"set -ao pipefail\n. {kept}\nset -e\n{self._at_our_ports(command)}\nexport -p >{kept}"
        result = subprocess.run(
            ["bash", "-c", script],
            cwd=self._folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=PATIENCE_S,
        )
        failing = wants.startswith("holdfast: ")
        assert failing or result.returncode == 0, f"{place} ended with {result.returncode}\n{result.stdout}"
        return result.stdout

    # The server.

    def _serve(self, command: str, place: str) -> str:
        self.stop_server()
        assignments, words = split_assignments(words_of(command, place, whole=True))
        words = with_free_ports([word for word in words if word != "&"])
        environment = {**self._environment, **assignments}
        config = None
        if "--config" in words:
            config = self._folder / words[words.index("--config") + 1]
            for name, value in tomllib.loads(config.read_text()).items():
                if name.endswith("_port"):  # the environment goes before the file
                    environment[PREFIX + name.upper()] = "none" if value == "none" else "0"
        chosen = dict(re.findall(r"(?:--|--set )(\w+)[_-]port[= ](\w+)", " ".join(words)))
        settings = load(
            config, {**environment, **{f"{PREFIX}{name.upper()}_PORT": chosen[name] for name in chosen}}, {}
        )
        doors = sum(getattr(settings, f"{name}_port") is not None for name in ("amqp", "amqps", "http", "https", "rpc"))
        self._server = subprocess.Popen(
            words,
            cwd=self._folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            bufsize=1,
            start_new_session=True,
        )
        assert self._server.stdout is not None
        said = ""
        for _ in range(doors):
            line = self._server.stdout.readline()
            if not line:
                errors = self._server.communicate()[1]
                self._server = None
                raise AssertionError(f"{place}: the server does not listen\n{errors}")
            said += line
            listening = re.fullmatch(r"(?:the page and the API on )?(.+?)(?: on |://)[\w.:]+:(\d+)/?\n", line)
            assert listening is not None, f"{place}: what is {line!r}?"
            self._ports[PORTS[listening[1]]] = listening[2]
        return said

    def stop_server(self, *, quietly: bool = False) -> None:
        """Stop the server, if one runs: it must end well and without complaint."""
        server, self._server = self._server, None
        if server is not None:
            server.terminate()
            try:
                _, errors = server.communicate(timeout=60)
            except subprocess.TimeoutExpired:
                server.kill()
                _, errors = server.communicate()
            complaints = [line for line in errors.splitlines() if not (line.startswith(ADVICE) or GONE in line)]
            assert quietly or (server.returncode, complaints) == (0, []), errors

    def _at_our_ports(self, text: str) -> str:
        return _PORT.sub(lambda found: self._ports.get(found[0], found[0]), text)

    # What is only read.

    def _kept(self, block: Block) -> Path:
        """The file that a block is, if it has a name."""
        named = _NAMED.match(block.text)
        file = self._folder / (named[1] if named is not None else f"block-{block.line}")
        file.write_text(self._at_our_ports(block.text))
        return file

    def _check_yaml(self, block: Block) -> None:
        assert list(yaml.safe_load_all(self._kept(block).read_text()))

    def _check_toml(self, block: Block) -> None:
        file = self._kept(block)
        if not {"tool", "project"} & tomllib.loads(block.text).keys():
            load(file, {}, {})

    def _check_ini(self, block: Block) -> None:
        parser = configparser.ConfigParser(strict=False, interpolation=None)
        parser.read_string(self._kept(block).read_text())
        assert parser.sections(), f"{block.place} has no section"

    def _check_capnp(self, block: Block) -> None:
        if not re.search(r"\b(struct|interface) \w+.*\{", block.text):
            return
        file = self._kept(block).rename(self._folder / f"block{block.line}.capnp")
        if "@0x" not in block.text:
            file.write_text("@0xbf5147cbbecf40c1;\n" + block.text)
        command = [sys.executable, "-c", _COMPILER, str(file)]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        assert result.returncode == 0, f"{block.place}\n{result.stderr}"
