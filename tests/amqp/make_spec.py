"""Generator of `holdfast/amqp/spec.py` from `spec.txt`: `python -m tests.amqp.make_spec` writes it."""

import re
from pathlib import Path
from typing import NamedTuple

import holdfast

__all__ = ["FILE", "generated"]

FACTS = Path(__file__).parent / "spec.txt"
FILE = Path(holdfast.__file__).parent / "amqp" / "spec.py"
_TYPES = {
    "octet": ("B", "int", "0"),
    "short": ("H", "int", "0"),
    "long": ("I", "int", "0"),
    "longlong": ("Q", "int", "0"),
    "bit": ("?", "bool", "False"),
    "shortstr": ("s", "str", '""'),
    "longstr": ("S", "bytes", 'b""'),
    "table": ("T", "Table", "NO_FIELDS"),
}
"""For each type of the protocol: its letter in `METHODS`, its Python type and its default."""
_HEAD = '''\
"""AMQP 0-9-1 as data: its methods with RabbitMQ's extensions, and its reply codes.

Generated from `tests/amqp/spec.txt` by `python -m tests.amqp.make_spec`: do not edit.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

from holdfast.broker.amqp_values import FieldValue

__all__ = [
%s]

Method: TypeAlias = tuple[Any, ...]
"""Any of the NamedTuples of this module: creating one takes a third of the time of a frozen dataclass."""
Table: TypeAlias = Mapping[str, FieldValue]

NO_FIELDS: Table = MappingProxyType({})
"""The empty table, shared by all methods."""

REPLY_CODES = {
%s}
"""Names of the reply codes, with which RabbitMQ's reply texts begin: `NOT_FOUND - no queue ...`."""
'''
_TAIL = '''

METHODS: dict[type, tuple[int, int, str]] = {
%s}
"""Class number, method number and types of the arguments: `B`, `H`, `I` and `Q` as in `struct`, `?` for a bit, `s` and
`S` for short and long strings, `T` for a table."""
'''


class _Method(NamedTuple):
    class_id: int
    method_id: int
    name: str
    summary: str
    arguments: list[tuple[str, str, str]]
    """Type, name and default of each."""

    def code(self) -> str:
        fields = [f"    {name}: {_TYPES[kind][1]} = {default}\n" for kind, name, default in self.arguments]
        between = "\n" if fields else ""
        return f'\n\nclass {self.name}(NamedTuple):\n    """{self.summary}"""\n{between}{"".join(fields)}'

    def row(self) -> str:
        kinds = "".join(_TYPES[kind][0] for kind, _, _ in self.arguments)
        return f'    {self.name}: ({self.class_id}, {self.method_id}, "{kinds}"),\n'


def _argument(text: str) -> tuple[str, str, str]:
    kind, _, rest = text.partition(" ")
    name, _, given = rest.partition("=")
    default = _TYPES[kind][2]
    if given:
        default = {"bit": "True", "shortstr": f'"{given}"'}.get(kind, given)
    return kind, name, default


def _read(facts: str) -> tuple[list[_Method], dict[str, str]]:
    methods: list[_Method] = []
    replies: dict[str, str] = {}
    heading, number, name = "", "", ""
    lines = [line for line in facts.splitlines() if line and not line.startswith("#")]
    for line, summary in zip(lines, [*lines[1:], ""], strict=True):
        if line.startswith(("class", "replies")):
            heading, number, name = [*line.split(), "", ""][:3]
        elif heading == "replies":
            code, text = line.split()
            replies[code] = text
        elif found := re.fullmatch(r"(\d+) (\w+)\((.*)\)", line):
            arguments = [_argument(one) for one in found[3].split(", ") if one]
            methods.append(_Method(int(number), int(found[1]), name + found[2], summary.strip(), arguments))
    return methods, replies


def generated() -> str:
    """Return the text of the module."""
    methods, replies = _read(FACTS.read_text())
    names = ["METHODS", "REPLY_CODES", *sorted(["Method", *(method.name for method in methods)])]
    exported = "".join(f'    "{name}",\n' for name in names)
    codes = "".join(f'    {code}: "{name}",\n' for code, name in replies.items())
    head, tail = _HEAD % (exported, codes), _TAIL % "".join(method.row() for method in methods)
    return head + "".join(method.code() for method in methods) + tail


if __name__ == "__main__":
    FILE.write_text(generated())
