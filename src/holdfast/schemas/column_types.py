"""Types of the columns that a payload has, and their two text forms: Spark's DDL and the JSON of a StructType."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from holdfast.base.errors import InvalidArgument

__all__ = [
    "Column",
    "DataType",
    "DecimalType",
    "ListType",
    "MapType",
    "Scalar",
    "StructType",
    "ddl_of",
    "parse_columns",
    "quoted",
]

DECIMAL_MAX = 38
"""The most digits of a decimal, in Spark and in Arrow's decimal128."""
DEPTH_MAX = 64
_WORDS = {
    "boolean": ("BOOLEAN",),
    "byte": ("TINYINT", "BYTE"),
    "short": ("SMALLINT", "SHORT"),
    "integer": ("INT", "INTEGER"),
    "long": ("BIGINT", "LONG"),
    "float": ("FLOAT", "REAL"),
    "double": ("DOUBLE",),
    "string": ("STRING",),
    "binary": ("BINARY",),
    "date": ("DATE",),
    "timestamp": ("TIMESTAMP", "TIMESTAMP_LTZ"),
    "timestamp_ntz": ("TIMESTAMP_NTZ",),
}
"""The scalar types by their names in Spark's JSON, each with its names in DDL."""
_INTERVAL = "interval day to second"
"""A duration. It has no word in a schema's text: only Protobuf has values of it."""
_BY_WORD = {word: name for name, words in _WORDS.items() for word in words}
_DECIMALS = ("DECIMAL", "DEC", "NUMERIC")
_TOKEN = re.compile(r"\s*(?:(`(?:``|[^`])+`)|([^\W\d]\w*|\d+)|('(?:''|\\.|[^'\\])*'|\"(?:\\.|[^\"\\])*\")|([<>(),:;]))")


@dataclass(frozen=True, slots=True)
class Scalar:
    """A type without parameters, by its name in Spark's JSON."""

    name: str


@dataclass(frozen=True, slots=True)
class DecimalType:
    """Decimals with `precision` digits, `scale` of them after the point."""

    precision: int
    scale: int

    def __post_init__(self) -> None:
        """Reject what Spark has no type for."""
        if not (1 <= self.precision <= DECIMAL_MAX and 0 <= self.scale <= self.precision):
            raise InvalidArgument(
                f"DECIMAL({self.precision}, {self.scale}) is not a type: a decimal has 1 to {DECIMAL_MAX} digits, and "
                "at most as many after the point"
            )


@dataclass(frozen=True, slots=True)
class ListType:
    """Arrays."""

    item: "DataType"
    nullable: bool = True
    """Whether items may be null."""


@dataclass(frozen=True, slots=True)
class MapType:
    """Maps. Keys are never null."""

    key: "DataType"
    value: "DataType"
    nullable: bool = True
    """Whether values may be null."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column, or a field of a struct."""

    name: str
    type: "DataType"
    nullable: bool = True


@dataclass(frozen=True, slots=True)
class StructType:
    """Columns with different names, in their order."""

    columns: tuple[Column, ...]

    def __post_init__(self) -> None:
        """Reject columns with the same name."""
        names = [column.name for column in self.columns]
        if twice := [name for name in names if names.count(name) > 1]:
            raise InvalidArgument(f"a schema has the column {twice[0]!r} twice")


DataType = Scalar | DecimalType | ListType | MapType | StructType


def parse_columns(text: str) -> StructType:
    """Parse columns from DDL (`a INT, b ARRAY<STRING>`) or from the JSON of a StructType."""
    if text.lstrip().startswith("{"):
        try:
            found = _from_json(json.loads(text), 0)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            if isinstance(error, InvalidArgument):
                raise
            raise InvalidArgument(f"a schema in JSON must be that of a Spark StructType: {error!r}") from None
    else:
        found = _Parser(text).whole()
    if not isinstance(found, StructType):
        raise InvalidArgument("a schema must be columns, or one STRUCT<...>")
    return found


def ddl_of(kind: DataType) -> str:
    """Return a type as Spark's DDL; of a struct at the top, its columns."""
    if isinstance(kind, StructType):
        return ", ".join(
            f"{quoted(one.name)} {_ddl(one.type)}{'' if one.nullable else ' NOT NULL'}" for one in kind.columns
        )
    return _ddl(kind)


def quoted(name: str) -> str:
    """Return a name of a column as an identifier of SQL."""
    return f"`{name.replace('`', '``')}`"


def _ddl(kind: DataType) -> str:
    match kind:
        case Scalar(name):
            return _WORDS[name][0] if name in _WORDS else name.upper()
        case DecimalType(precision, scale):
            return f"DECIMAL({precision}, {scale})"
        case ListType(item):
            return f"ARRAY<{_ddl(item)}>"
        case MapType(key, value):
            return f"MAP<{_ddl(key)}, {_ddl(value)}>"
        case StructType(columns):
            inner = [f"{quoted(one.name)}: {_ddl(one.type)}{'' if one.nullable else ' NOT NULL'}" for one in columns]
            return f"STRUCT<{', '.join(inner)}>"


class _Parser:
    """A parser of DDL with one token ahead."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = self._split()
        self._depth = 0
        self._next()

    def whole(self) -> DataType:
        """Return the columns, or the one type without a name."""
        if self._token.upper() == "STRUCT" and self._text.lstrip()[6:].lstrip().startswith("<"):
            found = self._type()
        else:
            found = StructType(tuple(self._columns("")))
        if self._token:
            raise self._wrong("the end")
        return found

    def _split(self) -> Iterator[str]:
        at = 0
        text = self._text.rstrip()
        while at < len(text):
            match = _TOKEN.match(text, at)
            if match is None:
                raise InvalidArgument(f"the schema {self._text!r} is not DDL: {text[at:].strip()[:20]!r} is not a word")
            at = match.end()
            yield match[0].strip()

    def _next(self) -> str:
        taken = getattr(self, "_token", "")
        self._token = next(self._tokens, "")
        return taken

    def _expect(self, token: str) -> None:
        if self._token != token:
            raise self._wrong(repr(token))
        self._next()

    def _wrong(self, wanted: str) -> InvalidArgument:
        found = repr(self._token) if self._token else "the end"
        return InvalidArgument(f"the schema {self._text!r} is not DDL: expected {wanted}, found {found}")

    def _columns(self, end: str) -> Iterator[Column]:
        while self._token != end:
            yield self._column()
            if self._token != ",":
                return
            self._next()

    def _column(self) -> Column:
        name = self._next()
        if name.startswith("`"):
            name = name[1:-1].replace("``", "`")
        elif not re.fullmatch(r"\w+", name):
            self._token = name
            raise self._wrong("the name of a column")
        if self._token == ":":
            self._next()
        kind, nullable = self._type(), True
        if self._token.upper() == "NOT":
            self._next()
            if self._next().upper() != "NULL":
                raise self._wrong("NULL after NOT")
            nullable = False
        if self._token.upper() == "COMMENT":
            self._next()
            if not self._next().startswith(("'", '"')):
                raise self._wrong("a text after COMMENT")
        return Column(name, kind, nullable)

    def _type(self) -> DataType:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise InvalidArgument(f"a schema may be nested {DEPTH_MAX} times at most")
        word = self._next().upper()
        found: DataType
        if word in _BY_WORD:
            found = Scalar(_BY_WORD[word])
        elif word in _DECIMALS:
            found = self._decimal()
        elif word == "ARRAY":
            self._expect("<")
            found = ListType(self._type())
            self._expect(">")
        elif word == "MAP":
            self._expect("<")
            key = self._type()
            self._expect(",")
            found = MapType(key, self._type())
            self._expect(">")
        elif word == "STRUCT":
            self._expect("<")
            found = StructType(tuple(self._columns(">")))
            self._expect(">")
        else:
            known = ", ".join([*(words[0] for words in _WORDS.values()), "DECIMAL, ARRAY, MAP, STRUCT"])
            raise InvalidArgument(f"the schema {self._text!r} has an unknown type {word!r}; there are: {known}")
        self._depth -= 1
        return found

    def _decimal(self) -> DecimalType:
        if self._token != "(":
            return DecimalType(10, 0)
        self._next()
        precision, scale = self._number(), 0
        if self._token == ",":
            self._next()
            scale = self._number()
        self._expect(")")
        return DecimalType(precision, scale)

    def _number(self) -> int:
        if not self._token.isdigit():
            raise self._wrong("a number")
        return int(self._next())


def _from_json(given: Any, depth: int) -> DataType:
    if depth > DEPTH_MAX:
        raise InvalidArgument(f"a schema may be nested {DEPTH_MAX} times at most")
    if isinstance(given, str):
        if given in _WORDS:
            return Scalar(given)
        if match := re.fullmatch(r"decimal(?:\((\d+),\s*(-?\d+)\))?", given):
            return DecimalType(int(match[1] or 10), int(match[2] or 0))
        raise InvalidArgument(f"a schema has an unknown type {given!r}")
    match given["type"]:
        case "struct":
            return StructType(
                tuple(
                    Column(str(one["name"]), _from_json(one["type"], depth + 1), bool(one.get("nullable", True)))
                    for one in given["fields"]
                )
            )
        case "array":
            return ListType(_from_json(given["elementType"], depth + 1), bool(given.get("containsNull", True)))
        case "map":
            key, value = _from_json(given["keyType"], depth + 1), _from_json(given["valueType"], depth + 1)
            return MapType(key, value, bool(given.get("valueContainsNull", True)))
        case kind:
            raise InvalidArgument(f"a schema has an unknown type {kind!r}")
