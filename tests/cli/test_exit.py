"""Exit codes of commands on logs, and the one line that an error prints."""

import re
import signal
import subprocess
import sys

import pytest

import holdfast as library
from tests.cli.terminal import Terminal

READING = ["cat orders", "tail orders", "list", "stats orders", "tailers orders", "verify", "inspect orders --offset 0"]
NAMED = [command for command in READING if "orders" in command] + ["verify orders", "compact orders --max-age 1d"]


@pytest.mark.parametrize("command", READING)
@pytest.mark.parametrize("form", ["", " --json"])
def test_a_missing_store_is_one_line_and_is_not_made(holdfast: Terminal, command: str, form: str) -> None:
    result = holdfast(f"log {command}{form}")
    assert result.code == 1
    assert result.complaint.startswith(f"there is no store at {str(holdfast.data)!r}: check --data")
    assert not holdfast.data.exists()


@pytest.mark.parametrize("command", NAMED)
def test_an_unknown_log_is_one_line_that_names_those_there_are(holdfast: Terminal, command: str) -> None:
    holdfast.fill("clicks", 1)
    result = holdfast(f"log {command}")
    assert result.code == 1
    assert result.complaint == f"there is no log 'orders' in {str(holdfast.data)!r}; there are: 'clicks'"


def test_a_locked_store_is_one_line_that_names_the_process(holdfast: Terminal) -> None:
    holdfast.fill("orders", 1)
    with holdfast.spawn("log append orders -") as other:
        assert other.stdin is not None
        other.stdin.write(b"line\n")
        other.stdin.flush()
        with library.open(holdfast.data, read_only=True) as store:
            assert store.log("orders").wait_for(1, 10)
        for command in ("append orders x", "append orders -", "compact orders --max-age 1d"):
            result = holdfast(f"log {command}")
            assert result.code == 1
            assert f"is being written by process {other.pid}: stop it first" in result.complaint


@pytest.mark.parametrize("command", [*READING, "append orders x", "compact orders --max-age 1d"])
def test_a_file_in_place_of_the_store_is_one_line(holdfast: Terminal, command: str) -> None:
    holdfast.data.write_text("not a folder")
    result = holdfast(f"log {command}")
    assert result.code == 1
    assert "Not a directory" in result.complaint


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("log cat", "NAME"),
        ("log cat orders --tsart 1", "--tsart"),
        ("lgo", "'lgo'"),
        ("log cat a b", "b"),
        ("log compact orders --max-age 7y", "'7y' is not a duration"),
    ],
)
def test_a_usage_error_is_one_line_and_exit_code_2(holdfast: Terminal, command: str, reason: str) -> None:
    result = holdfast(command)
    assert result.code == 2
    assert reason in result.complaint


@pytest.mark.parametrize("name", ["''", "x" * 300])
def test_a_name_that_no_log_can_have_is_one_line(holdfast: Terminal, name: str) -> None:
    result = holdfast(f"log append {name} payload")
    assert result.code == 1
    assert result.complaint.startswith("log name")


def test_an_error_is_one_line_even_if_the_name_holds_a_line_break(holdfast: Terminal) -> None:
    holdfast.fill("clicks", 1)
    assert "there is no log" in holdfast("log cat 'two\nlines'").complaint


@pytest.mark.parametrize("command", ["", "log"])
def test_a_group_alone_shows_its_help(holdfast: Terminal, command: str) -> None:
    result = holdfast(command)
    assert result.code == 0
    assert "Usage: holdfast" in result.out
    assert result.err == ""


@pytest.mark.parametrize(
    "command",
    ["demo", *(f"log {each.split()[0]}" for each in [*READING, "append", "compact"])],
)
def test_every_command_has_help_that_explains_json(holdfast: Terminal, command: str) -> None:
    result = holdfast(f"{command} --help")
    assert result.code == 0
    assert "--json" in result.out and "base64" in result.out


def test_the_version_is_that_of_the_library(holdfast: Terminal) -> None:
    assert holdfast("--version").out == f"holdfast {library.__version__}\n"


def test_a_torn_tail_that_was_cut_is_told(holdfast: Terminal) -> None:
    holdfast.fill("orders", 3)
    (path,) = holdfast.data.rglob("*.data")
    with path.open("ab") as file:
        file.write(b"half a block")
    result = holdfast("log append orders next")
    assert result.out == "3\n"
    assert re.fullmatch(r"holdfast: torn tail cut off: segment=.* bytes=12\n", result.err)


def test_ctrl_c_exits_with_130_and_says_nothing(holdfast: Terminal) -> None:
    holdfast.fill("orders", 1)
    with holdfast.spawn("log tail orders -f --format raw") as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline() == b"record 0\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
        assert process.stderr.read() == b""


def test_ctrl_c_while_appending_lines_tells_which_are_in(holdfast: Terminal) -> None:
    holdfast.fill("orders", 1)
    with holdfast.spawn("log append orders -") as process:
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        process.stdin.write(b"one\ntwo\n")
        process.stdin.flush()
        with library.open(holdfast.data, read_only=True) as store:
            assert store.log("orders").wait_for(2, 60)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
        assert process.stdout.read() == b"1-2 (2 records)\n"
        assert process.stderr.read() == b""


@pytest.mark.parametrize("command", ["log cat orders --json", "log tail orders -n 50000"])
def test_a_closed_pipe_ends_the_command_quietly(holdfast: Terminal, command: str) -> None:
    holdfast.fill("orders", 50_000, per_segment=100_000)
    with holdfast.spawn(command) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(60) == 141
        assert process.stderr.read() == b""


def test_a_name_that_the_locale_cannot_show_is_escaped(holdfast: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    holdfast.fill("grün", 1)
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    with holdfast.spawn("log list") as process:
        out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, b"")
    assert rb"gr\xfcn" in out


def test_python_m_holdfast_is_holdfast() -> None:
    done = subprocess.run([sys.executable, "-m", "holdfast", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"holdfast {library.__version__}\n"
