"""What is in a page of the docs? Its blocks, the commands in them, and what can be checked without running them."""

import json
import re
import shlex
import subprocess
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.cli.app import root_command

ROOT = Path(__file__).parent.parent

_COMMENT = re.compile(r"\s*<!-- (.*?) -->\s*")


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block of a page."""

    page: str
    line: int
    """Where its first line stands."""
    language: str
    text: str
    section: str
    not_run: str | None
    after_stop: bool
    """The server is stopped before it."""

    @property
    def place(self) -> str:
        """Where to look for it."""
        return f"{self.page}:{self.line}"


def blocks_of(page: Path) -> list[Block]:
    """The blocks of a page, in order."""
    found: list[Block] = []
    section, said, stop = "", "", False
    lines = enumerate(page.read_text().splitlines(keepends=True), 1)
    for number, line in lines:
        if (fence := re.match(r"( *)```(\w*)", line)) is not None:
            inner = []
            for _, text in lines:
                if text.strip() == "```":
                    break
                inner.append(text.removeprefix(fence[1]))
            else:
                raise AssertionError(f"{page.name}:{number}: the block has no end")
            reason = said.removeprefix("not run:").strip() if said.startswith("not run:") else None
            found.append(Block(page.name, number + 1, fence[2], "".join(inner), section, reason, stop))
            said, stop = "", False
        elif (comment := _COMMENT.fullmatch(line)) is not None:
            said = comment[1]
            stop = stop or said == "the server stops"
        elif line.strip():
            said = ""
            section = line.strip("# \n") if line.startswith("## ") else section
    return found


def leave(block: Block) -> None:
    """Nothing can be said of it but that it is there."""
    assert block.text.strip()


def check_json(block: Block) -> None:
    """It must be JSON, or JSON on each line."""
    try:
        json.loads(block.text)
    except json.JSONDecodeError:
        for line in block.text.splitlines():
            json.loads(line)


def check_text(block: Block) -> None:
    """A list of commands, perhaps in two columns, must be one of commands that there are."""
    if not re.match(r"(\w+=\S+ )*holdfast ", block.text):
        return
    for number, line in enumerate(block.text.splitlines()):
        for command in re.split(r" {2,}(?=holdfast )", line):
            place = f"{block.page}:{block.line + number}"
            check_command(words_of(command, place), place)


def check_command(words: list[str], place: str) -> None:
    """The command must be there, with its options."""
    command: Any = root_command()
    assert words[:1] == ["holdfast"], f"{place}: a list of commands has {words}"
    words = words[1:]
    while hasattr(command, "commands"):
        assert words and words[0] in command.commands, f"{place}: there is no command {' '.join(words)!r}"
        command, words = command.commands[words[0]], words[1:]
    known = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    given = {word.partition("=")[0] for word in words if re.match(r"--[a-z]|-[a-z]$", word)}
    assert not known or given <= known, f"{place}: {command.name} does not know {', '.join(given - known)}"


def check_install(words: list[str], place: str) -> None:
    """The packages and targets must be there."""
    if words[0] == "make":
        targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
        assert set(words[1:]) <= set(targets), f"{place}: there is no such target"
    if words[:2] == ["pip", "install"]:
        extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
        for word in words:
            if (found := re.fullmatch(r"(?:holdfast|\.)\[(.*)\]", word)) is not None:
                assert set(found[1].split(",")) <= extras.keys(), f"{place}: {word!r} has no such extra"


def commands_in(text: str) -> Iterator[tuple[int, str]]:
    """Each command with the line it begins on; one may have several lines."""
    pending, began = "", 0
    for number, line in enumerate(text.splitlines()):
        began = began if pending else number
        pending += line + "\n"
        if line.endswith("\\"):
            continue
        checked = subprocess.run(["bash", "-n", "-c", pending], capture_output=True, text=True, check=False)
        if re.search(r"unexpected (EOF|end of file)|end-of-file", checked.stderr):
            continue
        yield began, pending.strip()
        pending = ""
    assert not pending, f"a command has no end: {pending}"


def words_of(command: str, place: str, *, whole: bool = False) -> list[str]:
    """The words of a command, without the variables that are set before it unless `whole`."""
    try:
        words = shlex.split(command, comments=True)
    except ValueError as error:
        raise AssertionError(f"{place}: {command!r} cannot be read: {error}") from error
    return words if whole else split_assignments(words)[1]


def split_assignments(words: list[str]) -> tuple[dict[str, str], list[str]]:
    """Variables that are set before a command, and the command."""
    count = 0
    while count < len(words) and re.match(r"\w+=", words[count]):
        count += 1
    return dict(word.split("=", 1) for word in words[:count]), words[count:]


def with_free_ports(words: list[str]) -> list[str]:
    """A command that serves, with all ports that it chooses free ones."""
    free = list(words)
    for number, word in enumerate(words):
        if re.fullmatch(r"--\w+-port", word):
            free[number + 1] = "0"
        elif re.fullmatch(r"\w+_port=\d+", word):
            free[number] = word.partition("=")[0] + "=0"
    return free


def fits(said: str, wanted: str) -> bool:
    """Whether this was said, with `...` for anything."""

    def tidy(text: str) -> str:
        return "\n".join(line.rstrip() for line in text.strip().splitlines())

    pattern = ".*?".join(map(re.escape, tidy(wanted).split("...")))
    return re.fullmatch(pattern, tidy(said), re.DOTALL) is not None
