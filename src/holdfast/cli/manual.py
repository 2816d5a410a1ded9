"""Generates the manual page from the help texts of the commands:

python -m holdfast.cli.manual > docs/man/holdfast.1
"""

import inspect
import sys
import textwrap
from collections.abc import Collection, Iterator, Mapping
from enum import Enum
from typing import Any

import holdfast
from holdfast.cli.app import root_command

__all__ = ["manual"]

_STARTS = ".'"
"""What a line of text must not begin with: it would be taken for a request."""
_ABOUT = """
Holdfast keeps messages in logs on disk, and makes queues, tables and reports of them. A command works on a store in a
folder, which --data names, or with --url on one that holdfast serve has at that address. Commands that only read work
while another process has the folder open; those that change something need it to themselves, or a URL.
"""
_COMMON = ("data", "url", "token_file", "as_json")
_COMMON_ABOUT = "Commands that work on a store take these besides, and all take --help; serve and import take no URL."
_ENVIRONMENT = {
    "HOLDFAST_DATA": "The folder of the store, in place of --data.",
    "HOLDFAST_URL": "The URL of a server, in place of --url; a folder that is given as --data goes before it.",
    "HOLDFAST_TOKEN": "The token to come in with at a URL, in place of --token-file or of a user in the URL.",
    "SPARK_MASTER": "Where pipelines run, in place of --master.",
    "NO_COLOR, FORCE_COLOR": "No colours even on a terminal, or colours even in a pipe.",
}
_CODES = {
    "0": "All went well.",
    "1": "Something went wrong, or is damaged: one line on standard error says what, and what to do.",
    "2": "The command line makes no sense.",
    "130": "Ctrl-C.",
    "141": "Nobody reads the output any more.",
}
_EXAMPLES = {
    "holdfast put orders hello": "Put a message into the queue orders of the folder data.",
    "holdfast get orders --wait forever": "Take the next message, as soon as there is one.",
    "holdfast serve --data data": "Serve the folder by AMQP, with the page and the API on port 15672.",
    "holdfast queues --url http://guest:guest@localhost:15672": "Show the queues of that server.",
    "holdfast dlq orders; holdfast redrive orders --all": "See why messages died, and let them be tried again.",
}


def manual() -> str:
    """Return the page in the format of man(1)."""
    root = root_command()
    lines = [
        '.\\" Written by python -m holdfast.cli.manual: change the commands, not this.',
        f'.TH HOLDFAST 1 "" "Holdfast {_text(holdfast.__version__)}" "Holdfast"',
        ".SH NAME",
        "holdfast \\- a durable message queue on disk",
        ".SH SYNOPSIS",
        ".B holdfast",
        ".I COMMAND",
        "[\\fIARGUMENTS\\fR] [\\fIOPTIONS\\fR]",
        ".SH DESCRIPTION",
        *_paragraphs(_ABOUT),
        ".SH COMMANDS",
    ]
    for path, command in _commands(root):
        lines += _command(path, command)
    lines += [".SH OPTIONS", *_paragraphs(_COMMON_ABOUT)]
    lines += [line for one in _options(root.commands["put"], _COMMON) for line in one]
    lines += [".PP", "Without a command:", *(line for one in _options(root) for line in one)]
    lines += [".SH ENVIRONMENT", *_terms(_ENVIRONMENT), ".SH EXIT STATUS", *_terms(_CODES), ".SH EXAMPLES"]
    for typed, what in _EXAMPLES.items():
        lines += [".PP", _text(what), ".PP", ".nf", ".RS", _text(typed), ".RE", ".fi"]
    lines += [".SH SEE ALSO", "The documents in docs/, and holdfast COMMAND \\-\\-help."]
    return "\n".join(lines) + "\n"


def _commands(group: Any, before: str = "") -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        path = f"{before} {name}".strip()
        if getattr(command, "hidden", False):
            continue
        if getattr(command, "commands", None):
            yield from _commands(command, path)
        else:
            yield path, command


def _command(path: str, command: Any) -> list[str]:
    shown = [one for one in command.params if not getattr(one, "hidden", False)]
    arguments = [one for one in shown if one.param_type_name == "argument"]
    spelled = " ".join(_argument(one) for one in arguments)
    lines = [f".SS {_text(path)} {_text(spelled)}".rstrip(), *_paragraphs(command.help or "")]
    for one in arguments:
        if getattr(one, "help", None):
            lines += [".TP", f"\\fI{_text(_metavar(one))}\\fR", _text(one.help)]
    own = {one.name for one in command.params} - set(_COMMON)
    return [*lines, *(line for option in _options(command, own) for line in option)]


def _argument(one: Any) -> str:
    name = _metavar(one)
    dots = "..." if one.nargs == -1 and "..." not in name else ""
    return f"{name}{dots}" if one.required or name.startswith("[") else f"[{name}{dots}]"


def _metavar(one: Any) -> str:
    return str(one.metavar or one.name.upper()).strip("{}")


def _options(command: Any, wanted: Collection[str] | None = None) -> Iterator[list[str]]:
    for one in command.params:
        if one.param_type_name == "argument" or getattr(one, "hidden", False) or one.name == "help":
            continue
        if wanted is not None and one.name not in wanted:
            continue
        names = ", ".join(f"\\fB{_text(name)}\\fR" for name in [*one.opts, *one.secondary_opts])
        value = "" if one.is_flag or one.count else f" \\fI{_text(_value(one))}\\fR"
        yield [".TP", f"{names}{value}", _text(" ".join(filter(None, [one.help, _default(one)])))]


def _value(one: Any) -> str:
    return str(one.metavar or "|".join(_choices(one)) or one.name.upper().replace("_", "-"))


def _choices(one: Any) -> list[str]:
    # Where typer keeps it has changed between versions.
    kind = getattr(getattr(one, "type_descriptor", None), "annotation", None)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return [str(each.value) for each in kind]
    return [str(getattr(each, "value", each)) for each in getattr(getattr(one, "type", None), "choices", None) or ()]


def _default(one: Any) -> str:
    if isinstance(one.show_default, str):
        return f"Default: {one.show_default}."
    default = getattr(one.default, "value", one.default)
    if one.is_flag or default is None or callable(default) or default in ("", (), []):
        return ""
    return f"Default: {default}." if type(default).__module__.partition(".")[0] in ("builtins", "pathlib") else ""


def _terms(terms: Mapping[str, str]) -> list[str]:
    return [line for term, text in terms.items() for line in (".TP", f"\\fB{_text(term)}\\fR", _text(text))]


def _paragraphs(text: str) -> list[str]:
    lines: list[str] = []
    for paragraph in inspect.cleandoc(text).split("\n\n"):
        if paragraph.strip():
            lines += [".PP", *textwrap.wrap(_text(" ".join(paragraph.split())), 110, break_on_hyphens=False)]
    return [f"\\&{line}" if line[0] in _STARTS and line != ".PP" else line for line in lines]


def _text(text: str) -> str:
    """Return plain text with troff requests escaped; - stays an ASCII hyphen."""
    safe = " ".join(text.split()).replace("\\", "\\e").replace("-", "\\-").replace("`", "").replace("'", "\\(aq")
    return f"\\&{safe}" if safe[:1] in _STARTS and safe else safe


if __name__ == "__main__":
    sys.stdout.write(manual())
