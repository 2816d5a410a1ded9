"""Shell completion of commands, options and names; and the manual page."""

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import holdfast as library
from holdfast import Model, field
from holdfast.cli.app import root_command
from holdfast.cli.manual import manual
from holdfast.cli.target import FOLDER_ONLY
from tests.cli.terminal import Terminal
from tests.web.serving import Served

MANUAL = Path(__file__).parents[2] / "docs" / "man" / "holdfast.1"


class Person(Model, id=1):
    name: str = field(1)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A folder with names to complete."""
    with library.open(tmp_path / "data") as one:
        for name in ("orders", "orders.dead", "other"):
            one.queue(name)
        one.log("events")
        one.table(Person)
    return tmp_path / "data"


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A search path on which `holdfast` is this one."""
    folder = tmp_path_factory.mktemp("bin")
    command = folder / "holdfast"
    command.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m holdfast "$@"\n')
    command.chmod(0o755)
    return f"{folder}:{os.environ['PATH']}"


def bash(script: str, path: str, **env: str) -> str:
    """What a script of bash prints."""
    found = shutil.which("bash")
    if found is None:
        pytest.skip("there is no bash")
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    done = subprocess.run(
        [found, "--norc", "-c", script], env=kept | {"PATH": path} | env, capture_output=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


@pytest.fixture(scope="module")
def script(path: str) -> str:
    """The script that lets bash complete."""
    return bash("_HOLDFAST_COMPLETE=source_bash holdfast", path)


def completed(line: str, path: str, script: str, **env: str) -> list[str]:
    """What bash offers for the last word of a line."""
    words = line.split(" ")
    script = f"""
        {script}
        COMP_WORDS=({" ".join(map(shlex.quote, words))}) COMP_CWORD={len(words) - 1}
        _holdfast_completion holdfast
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    return bash(script, path, **env).split()


def test_bash_completes_commands_and_options(path: str, script: str) -> None:
    assert completed("holdfast pe", path, script) == ["peek"]
    assert {"append", "cat", "clear", "compact"} <= set(completed("holdfast log ", path, script))
    assert completed("holdfast peek --ur", path, script) == ["--url"]
    assert completed("holdfast peek x --format ", path, script) == ["text", "hex", "raw"]


def test_bash_completes_names_from_the_folder(path: str, script: str, store: Path) -> None:
    assert completed("holdfast peek ord", path, script, HOLDFAST_DATA=str(store)) == ["orders", "orders.dead"]
    assert completed(f"holdfast stats --data {store} oth", path, script) == ["other"]
    assert completed("holdfast log cat e", path, script, HOLDFAST_DATA=str(store)) == ["events"]
    assert completed("holdfast table scan ", path, script, HOLDFAST_DATA=str(store)) == ["Person"]


def test_where_there_is_no_store_nothing_is_completed_and_nothing_is_said(
    path: str, script: str, tmp_path: Path
) -> None:
    assert completed("holdfast peek o", path, script, HOLDFAST_DATA=str(tmp_path / "no")) == []
    assert completed("holdfast peek o", path, script, HOLDFAST_URL="http://127.0.0.1:1") == []
    assert not (tmp_path / "no").exists()


def test_names_of_a_server_are_completed_too(path: str, script: str, store: Path) -> None:
    with Served(store, history_interval=0) as served:
        assert completed("holdfast peek ord", path, script, HOLDFAST_URL=served.url) == ["orders", "orders.dead"]
        assert completed("holdfast table get P", path, script, HOLDFAST_URL=served.url) == ["Person"]


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_a_script_is_there_for_other_shells(shell: str, path: str) -> None:
    told = bash(f"_HOLDFAST_COMPLETE=source_{shell} holdfast", path)
    assert "_HOLDFAST_COMPLETE" in told and f"complete_{shell}" in told


def test_the_script_is_shown_and_installed_for_the_shell_that_asks(path: str, tmp_path: Path) -> None:
    assert "_HOLDFAST_COMPLETE=complete_bash" in bash("holdfast --show-completion; true", path)
    home = tmp_path / "home"
    home.mkdir()
    said = bash("holdfast --install-completion; true", path, HOME=str(home))
    assert "bash completion installed in" in said
    assert "_HOLDFAST_COMPLETE" in (home / ".bash_completions" / "holdfast.sh").read_text()


# The manual page.


def test_the_manual_page_is_what_the_commands_say() -> None:
    assert MANUAL.read_text() == manual(), "write it anew: python -m holdfast.cli.manual > docs/man/holdfast.1"


def test_the_manual_page_has_every_command_and_option() -> None:
    text = manual().replace("\\-", "-").replace("\\&", "")

    def look(group: object, before: str) -> None:
        for name, command in getattr(group, "commands", {}).items():
            if getattr(command, "commands", None):
                look(command, f"{before}{name} ")
                continue
            assert f"\n.SS {before}{name}" in text
            for option in command.params:
                if option.param_type_name == "option" and not option.hidden and option.name != "help":
                    assert all(f"\\fB{spelled}\\fR" in text for spelled in option.opts), (name, option.opts)

    look(root_command(), "")


@pytest.mark.parametrize("formatter", ["groff -man -ww -z -Tutf8", "mandoc -T lint -W warning", "man --warnings -l"])
def test_the_manual_page_is_read_without_a_warning(formatter: str) -> None:
    if shutil.which(formatter.split(maxsplit=1)[0]) is None:
        pytest.skip("it is not installed here")
    env = os.environ | {"LC_ALL": "C.UTF-8", "MANPAGER": "cat"}
    done = subprocess.run([*formatter.split(), str(MANUAL)], capture_output=True, env=env, check=False)
    assert done.stderr == b"" and done.returncode == 0


def test_every_command_that_has_a_folder_can_have_a_url(holdfast: Terminal) -> None:
    def look(group: object, before: str) -> None:
        for name, command in getattr(group, "commands", {}).items():
            names = {one.name for one in command.params}
            if "data" in names:
                assert "url" in names, f"{before}{name}"
                assert ("token_file" in names) == (f"{before}{name}" not in FOLDER_ONLY), f"{before}{name}"
            look(command, f"{before}{name} ")

    look(root_command(), "")
