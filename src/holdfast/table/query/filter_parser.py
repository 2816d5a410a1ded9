"""Text form of filters: Python syntax that is parsed strictly and never executed.

    age >= 18 and (name == "Ada" or "vip" in tags) and not address.city.prefix("B")

A filter is one of

- `path OP value` with `== != < <= > >=`, also turned around or in a chain: `18 <= age < 65`;
- `path in [value, ...]`, `value in path` (an item of a list or set, a key of a dict), both with `not in`;
- `path is None`, `path is not None`; a path alone, if it is a bool;
- `path.exists()`, `.prefix(value)`, `.regex("...")`, `.between(low, high)`, `.isin([...])`, `.contains(value)`,
  `.is_a("Type")`;
- `search("words", index="name", prefix=True)`, as `holdfast.table.query.search`;
- `filter and filter`, `filter or filter`, `not filter` and `(filter)`; `& | ~` mean the same.

A path is a field, then `.field` of an embedded object, `[3]` or `["key"]`, `.any_item`, `.any_key`, `.any_value`,
`.normalized`, `.as_("Type")` of a union, `.follow()` of a reference. Values are written in the form of the field's
type: dates, times and UUIDs as text in ISO form, a datetime also as `"15m"` for 15 minutes ago, a timedelta also as
`"1h30m"`, an enum by its value or name, keys and bytes as base64url, Decimals as numbers.
"""

import ast
import datetime
import warnings
from collections.abc import Callable, Sequence
from decimal import Decimal
from enum import Enum
from typing import Any, TypeVar

from holdfast.base.errors import InvalidArgument
from holdfast.base.units import parse_duration, parse_time
from holdfast.table.model.field_path import Variant, type_at, variant_name
from holdfast.table.model.json_codec import bytes_of, python_value
from holdfast.table.model.model import Model
from holdfast.table.model.path_expressions import Path, model_and_steps, operand
from holdfast.table.model.types import FieldType, Kind
from holdfast.table.query.expressions import And, Expression, IsA, Or, Search
from holdfast.table.query.search import search, search_part

__all__ = ["InvalidFilter", "parse_filter", "parse_path", "parse_value"]

T = TypeVar("T")
Find = Callable[[str], type[Model]]
"""Returns the model of a name, for references that are followed."""

_LONGEST = 10_000
_WORDS = {"true": True, "false": False, "null": None}
"""As JSON writes them; Python's own are constants already."""
_FLIPPED = {ast.Lt: ast.Gt, ast.LtE: ast.GtE, ast.Gt: ast.Lt, ast.GtE: ast.LtE, ast.Eq: ast.Eq, ast.NotEq: ast.NotEq}
_STEPS = ("any_item", "any_key", "any_value", "normalized")
_ISO = {
    Kind.DATE: "2026-11-15",
    Kind.TIME: "12:30:00",
    Kind.DATETIME: "2026-11-15T12:30:00Z",
    Kind.UUID: "01890f5e-7d4a-7c3b-9a52-3f2f1c0d4e5b",
    Kind.TIMEDELTA: "1h30m",
}
_NATIVE: dict[type, tuple[Kind, ...]] = {
    bool: (Kind.BOOL,),
    int: (Kind.INT, Kind.FLOAT, Kind.DECIMAL),
    float: (Kind.FLOAT, Kind.DECIMAL),
    str: (Kind.STR,),
    bytes: (Kind.BYTES, Kind.REFERENCE),
}
"""By the type of a written value, the variants of a union that are tried first."""


class InvalidFilter(InvalidArgument):
    """A text is not a filter or path of its model; `position` is the index of the error."""

    def __init__(self, message: str, position: int) -> None:
        super().__init__(message)
        self.position = position


def parse_filter(model: type[Model], text: str, find: Find | None = None) -> Expression:
    """Return the expression of a text; raises `InvalidFilter`, with the position, if it is not a filter."""
    return _guarded(model, text, find, lambda reader, body: reader.test(body))


def parse_path(model: type[Model], text: str, find: Find | None = None) -> Path:
    """Return the path of a text: `address.city`, `limits[EUR]`."""
    return _guarded(model, text, find, lambda reader, body: reader.path(body))


def parse_value(where: str, ftype: FieldType, given: Any) -> Any:
    """Return a text, number, bool or bytes as a value of a scalar type; InvalidArgument if there is none."""
    value = given
    if type(given) is str:
        match ftype.kind:
            case Kind.ENUM:
                value = _member(ftype, given)
            case Kind.BYTES | Kind.REFERENCE:
                value = bytes_of(given)
            case Kind.DATETIME:
                try:
                    value = parse_time(given).astimezone(datetime.UTC)
                except OverflowError:
                    raise InvalidArgument(f"{given!r} is out of range: write it in UTC") from None
            case Kind.TIMEDELTA:
                value = python_value(ftype, given)
                value = parse_duration(given) if value is given else value
            case _:
                value = python_value(ftype, given)
    if ftype.enum is not None and not isinstance(value, ftype.enum) and given not in [one.value for one in ftype.enum]:
        raise InvalidArgument(f"{where} is one of {', '.join(ftype.enum.__members__)}, and never {given!r}")
    if type(given) is bool and ftype.kind is not Kind.BOOL:
        raise InvalidArgument(f"{where} is {ftype}: it cannot be compared with {given}")
    if value is given and ftype.kind in _ISO:
        raise InvalidArgument(f"{where} is a {ftype.kind}: write it as text like {_ISO[ftype.kind]!r}")
    return operand(where, ftype, value)


def _guarded(model: type[Model], text: str, find: Find | None, read: "Callable[[_Reader, ast.expr], T]") -> T:
    if len(text) > _LONGEST:
        raise InvalidFilter(f"the text has {len(text):,} characters: at most {_LONGEST:,} are allowed", _LONGEST)
    # Offsets are those of one line, so that they can be shown.
    line = text.replace("\n", " ").replace("\r", " ")
    start = len(line) - len(line.lstrip())
    reader = _Reader(model, line[start:], start, find)
    try:
        with warnings.catch_warnings():  # of escapes such as "\d", which a regular expression may well have
            warnings.simplefilter("ignore")
            return read(reader, reader.parsed())
    except (RecursionError, MemoryError):
        raise InvalidFilter("it is nested too deeply: write it with fewer parentheses", 0) from None


class _Reader:
    """Parser of one text; every error has its position."""

    def __init__(self, model: type[Model], text: str, start: int, find: Find | None) -> None:
        self._model = model
        self._spec = model.__spec__
        self._text = text
        self._start = start
        self._find = find
        self._fields = f"it has {', '.join(self._spec.fields)}"

    def parsed(self) -> ast.expr:
        """Return the syntax tree of Python's own parser."""
        if not self._text:
            raise InvalidFilter("it is empty: write a comparison such as name == 'Ada'", 0)
        try:
            body = ast.parse(self._text, mode="eval").body
        except SyntaxError as error:
            at = min(max((error.offset or 1) - 1, 0), len(self._text))
            raise self._refusal_at(at, self._text[at:].strip(), _reason(error, self._text[at:])) from None
        except ValueError as error:  # a NUL, or an unpaired surrogate
            raise InvalidFilter(f"this text cannot be read: {error}", 0) from None
        end = self._offset(body.end_lineno, body.end_col_offset)
        rest = self._text[end:].lstrip(" \t\f\\)")
        if rest:  # it would be ignored silently
            raise self._refusal_at(self._text.index(rest, end), rest, "comments are not allowed: leave it out")
        return body

    # Filters

    def test(self, node: ast.expr) -> Expression:
        """Return the condition of a node."""
        match node:
            case ast.BoolOp(op=op, values=values):
                return _joined(And if isinstance(op, ast.And) else Or, [self.test(value) for value in values])
            case ast.BinOp(op=ast.BitAnd() | ast.BitOr() as op, left=left, right=right):
                return _joined(And if isinstance(op, ast.BitAnd) else Or, [self.test(left), self.test(right)])
            case ast.UnaryOp(op=ast.Not() | ast.Invert(), operand=inner):
                return ~self.test(inner)
            case ast.Compare(left=left, ops=ops, comparators=others):
                pairs = zip([left, *others], ops, others, strict=False)
                return _joined(And, [self._compared(one, op, two) for one, op, two in pairs])
            case ast.Call(func=ast.Name(id="search")):
                return self._search(node)
            case ast.Call(func=ast.Attribute(value=inner, attr=name)) if name not in ("as_", "follow"):
                return self._asked(node, self.path(inner), name)
        if not self._is_path(node):
            raise self._refusal(node, "this is not a comparison: write one such as name == 'Ada' or age > 30")
        path = self.path(node)
        if self._type(path).kind is not Kind.BOOL:
            raise self._refusal(node, f"{path} is {self._type(path)}: compare it, or write {path}.exists()")
        return path == True  # noqa: E712 (it makes an expression)

    def _compared(self, one: ast.expr, op: ast.cmpop, two: ast.expr) -> Expression:
        match op:
            case ast.In():
                return self._is_in(one, two)
            case ast.NotIn():
                return ~self._is_in(one, two)
            case ast.Is() | ast.IsNot():
                if not (isinstance(two, ast.Constant) and two.value is None) or not self._is_path(one):
                    raise self._refusal(two, "`is` is for None alone: write ==")
                there = self.path(one).exists()
                return there if isinstance(op, ast.IsNot) else ~there
        kind: type[ast.cmpop] = type(op)
        if not self._is_path(one) and self._is_path(two):
            one, two, kind = two, one, _FLIPPED[kind]
        path = self.path(one)
        if kind in (ast.Eq, ast.NotEq):
            same = ~path.exists() if self._is_none(two) else self._make(one, path.__eq__, self.value(two, path))
            return same if kind is ast.Eq else ~same
        methods = {ast.Lt: path.__lt__, ast.LtE: path.__le__, ast.Gt: path.__gt__, ast.GtE: path.__ge__}
        return self._make(one, methods[kind], self.value(two, path))

    def _is_in(self, one: ast.expr, two: ast.expr) -> Expression:
        if isinstance(two, ast.List | ast.Tuple | ast.Set):
            path = self.path(one)
            return self._make(one, path.isin, [self.value(item, path) for item in two.elts])
        return self._contains(two, self.path(two), one)

    def _contains(self, node: ast.expr, path: Path, item: ast.expr) -> Expression:
        ftype = self._type(path)
        inner = ftype.key if ftype.kind is Kind.DICT else ftype.item
        if inner is None:  # the path raises the error
            return self._make(node, path.contains, None)
        return self._make(node, path.contains, self._typed(item, inner, f"an item of {path}"))

    def _asked(self, node: ast.Call, path: Path, name: str) -> Expression:
        """Return the condition of a method call: `.prefix("A")`."""
        match name, node.args:
            case _ if node.keywords:
                raise self._refusal(node.keywords[0].value, f".{name} takes values without names")
            case "exists", []:
                return path.exists()
            case "prefix", [value]:
                return self._make(node, path.prefix, self.value(value, path))
            case "regex", [value]:
                return self._make(value, path.regex, self._text_of(value))
            case "between", [low, high]:
                return self._make(node, path.between, self.value(low, path), self.value(high, path))
            case "isin", [ast.List() | ast.Tuple() | ast.Set() as values]:
                return self._make(node, path.isin, [self.value(value, path) for value in values.elts])
            case "contains", [item]:
                return self._contains(node, path, item)
            case "is_a", [value]:
                return IsA(path, self._variant(value, path))
        wants = {
            "exists": "()", "prefix": "(value)", "regex": '("...")', "between": "(low, high)", "isin": "([value, ...])",
            "contains": "(value)", "is_a": '("Type")',
        }  # fmt: skip
        if name in wants:
            raise self._refusal(node, f"write .{name}{wants[name]}")
        raise self._refusal(node, f"there is no .{name}(...): there are {', '.join(f'.{one}' for one in wants)}")

    def _search(self, node: ast.Call) -> Expression:
        if len(node.args) != 1:
            raise self._refusal(
                node, 'write search("words"), with index="name" and prefix=True or regex=True if wanted'
            )
        options: dict[str, Any] = {}
        for keyword in node.keywords:
            wanted: type = str if keyword.arg == "index" else bool
            if keyword.arg not in ("index", "prefix", "regex"):
                raise self._refusal(keyword.value, f"search takes index, prefix and regex, not {keyword.arg}")
            if not isinstance(keyword.value, ast.Constant) or type(keyword.value.value) is not wanted:
                raise self._refusal(
                    keyword.value, f"{keyword.arg} is {'text in quotes' if wanted is str else 'True or False'}"
                )
            options[keyword.arg] = keyword.value.value
        made = self._make(node.args[0], lambda text: search(text, **options), self._text_of(node.args[0]))
        assert isinstance(made, Search)
        self._make(node, search_part, self._spec, made)
        return made

    # Paths

    def path(self, node: ast.expr) -> Path:
        """Return the path of a node."""
        match node:
            case ast.Name(id=name):
                field = self._spec.find(name)
                if field is None:
                    raise self._refusal(node, f"{self._spec.name} has no field {name!r}: {self._fields}")
                return Path(self._model, (field.name,))
            case ast.Attribute(value=inner, attr=name):
                path = self.path(inner)
                if name in _STEPS and self._type(path).kind is not Kind.EMBEDDED:
                    step: Path = self._make(node, Path.__getattribute__, path, name)
                    return step
                return self._make(node, path.into, name)
            case ast.Subscript(value=inner, slice=key):
                path = self.path(inner)
                return self._make(node, path.__getitem__, self._key(key, self._type(path), path))
            case ast.Call(func=ast.Attribute(value=inner, attr="as_"), args=[value], keywords=[]):
                path = self.path(inner)
                name = self._variant(value, path)
                model, steps = model_and_steps(path)
                return Path(model, (*steps, Variant(name)))
            case ast.Call(func=ast.Attribute(value=inner, attr="follow"), args=[], keywords=[]):
                path = self.path(inner)
                target = self._type(path).target
                if target is None:
                    raise self._refusal(node, f"{path} is {self._type(path)}, not a reference")
                return self._make(node, path.follow, self._model_of(node, target))
            case ast.Call(func=ast.Attribute(attr="as_" | "follow" as name)):
                raise self._refusal(node, 'write .as_("Type")' if name == "as_" else "write .follow()")
        raise self._refusal(node, f"this is not a field of {self._spec.name}: {self._fields}")

    def _key(self, node: ast.expr, ftype: FieldType, path: Path) -> Any:
        if ftype.kind is Kind.DICT and ftype.key is not None:
            if isinstance(node, ast.Name) and ftype.key.kind is Kind.STR:
                return node.id  # limits[EUR], if a shell has removed the quotes
            return self._typed(node, ftype.key, f"a key of {path}")
        return self._constant(node)

    def _variant(self, node: ast.expr, path: Path) -> str:
        wanted = node.id if isinstance(node, ast.Name) else self._text_of(node)
        names = [variant_name(variant) for variant in self._type(path).variants]
        if wanted not in names:
            there = f"it can be {', '.join(names)}" if names else f"it is always {self._type(path)}"
            raise self._refusal(node, f"{path} is never {wanted}: {there}")
        return wanted

    def _model_of(self, node: ast.expr, target: str) -> type[Model]:
        if target == self._spec.name:
            return self._model
        if self._find is None:
            raise self._refusal(node, f"{target} is not known here, so references to it cannot be followed")
        return self._make(node, self._find, target)

    def _is_path(self, node: ast.expr) -> bool:
        """Whether this begins with a field; any other bare word may be the name of an enum's member."""
        while not isinstance(node, ast.Name):
            match node:
                case ast.Attribute(value=inner) | ast.Subscript(value=inner) | ast.Call(func=inner):
                    node = inner
                case _:
                    return False
        return self._spec.find(node.id) is not None

    def _type(self, path: Path) -> FieldType:
        model, steps = model_and_steps(path)
        return type_at(model.__spec__, steps)

    # Values

    def value(self, node: ast.expr, path: Path) -> Any:
        """Return the value that a path is compared with."""
        return self._typed(node, self._type(path), str(path))

    def _typed(self, node: ast.expr, ftype: FieldType, where: str) -> Any:
        match ftype.kind:
            case Kind.EMBEDDED:
                raise self._refusal(node, f"{where} is a whole {ftype}: compare a field of it")
            case Kind.UNION:
                return self._of_union(node, ftype, where)
            case Kind.LIST | Kind.SET if isinstance(node, ast.List | ast.Tuple | ast.Set) and ftype.item is not None:
                items = [self._typed(item, ftype.item, f"an item of {where}") for item in node.elts]
                return items if ftype.kind is Kind.LIST else set(items)
            case Kind.DICT if isinstance(node, ast.Dict) and ftype.item is not None and ftype.key is not None:
                entries = {}
                for key, item in zip(node.keys, node.values, strict=True):
                    if key is None:
                        raise self._refusal(item, "write keys and values")
                    entries[self._typed(key, ftype.key, f"a key of {where}")] = self._typed(item, ftype.item, where)
                return entries
        if ftype.enum is not None and isinstance(node, ast.Name) and node.id in ftype.enum.__members__:
            return ftype.enum[node.id]
        if ftype.enum is not None and isinstance(node, ast.Name):
            raise self._refusal(node, f"{where} is one of {', '.join(ftype.enum.__members__)}")
        given: Any = self._constant(node)
        if type(given) is float and ftype.kind is Kind.DECIMAL:
            given = Decimal(self._source(node).replace("_", "").replace(" ", ""))
        return self._make(node, lambda: parse_value(where, ftype, given))

    def _of_union(self, node: ast.expr, ftype: FieldType, where: str) -> Any:
        given = self._constant(node)
        native = _NATIVE[type(given)]
        for variant in sorted(ftype.variants, key=lambda one: one.kind not in native):
            if variant.scalar:
                try:
                    return self._typed(node, variant, where)
                except InvalidArgument:
                    continue
        raise self._refusal(node, f"{where} is {ftype}: it is never {given!r}")

    def _constant(self, node: ast.expr) -> bool | int | float | str | bytes:
        match node:
            case ast.Constant(value=bool() | int() | float() | str() | bytes() as value):
                return value
            case ast.Name(id="true" | "false" as word):
                return bool(_WORDS[word])
            case ast.UnaryOp(op=ast.USub() | ast.UAdd() as sign, operand=ast.Constant(value=int() | float() as value)):
                if type(value) is not bool:
                    return -value if isinstance(sign, ast.USub) else value
            case _ if self._is_none(node):
                raise self._refusal(
                    node, "None cannot be ordered or be in a list: write `is None`, `== None` or .exists()"
                )
            case ast.Name(id=name) if self._spec.find(name) is None:
                raise self._refusal(node, f"{name} is not a value: put text in quotes")
            case _ if self._is_path(node):
                raise self._refusal(node, "a field is compared with a value, not with another field")
        raise self._refusal(node, "this is not a value: write text in quotes, a number, True or False")

    def _text_of(self, node: ast.expr) -> str:
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
            raise self._refusal(node, "this must be text in quotes")
        return node.value

    def _is_none(self, node: ast.expr) -> bool:
        match node:
            case ast.Constant(value=None):
                return True
            case ast.Name(id="null"):
                return self._spec.find("null") is None
        return False

    # Positions

    def _make(self, node: ast.expr, make: Callable[..., T], *args: Any) -> T:
        """Call a function of ours; an error of it gets the position."""
        try:
            return make(*args)
        except InvalidFilter:
            raise
        except (InvalidArgument, OverflowError) as error:  # a regular expression can ask for too much
            raise self._refusal(node, str(error)) from error

    def _refusal(self, node: ast.expr, reason: str) -> InvalidFilter:
        return self._refusal_at(self._offset(node.lineno, node.col_offset), self._source(node), reason)

    def _refusal_at(self, at: int, what: str, reason: str) -> InvalidFilter:
        shown = what if len(what) <= 40 else f"{what[:39]}…"
        place = f"at character {self._start + at + 1}, {shown}" if shown else "at the end"
        return InvalidFilter(f"{place}: {reason}", self._start + at)

    def _source(self, node: ast.expr) -> str:
        return self._text[
            self._offset(node.lineno, node.col_offset) : self._offset(node.end_lineno, node.end_col_offset)
        ]

    def _offset(self, line: int | None, column: int | None) -> int:
        """Return the index of a character from the parser's column, which counts bytes."""
        return len(self._text.encode()[: column or 0].decode(errors="ignore"))


def _joined(kind: type[And] | type[Or], parts: Sequence[Expression]) -> Expression:
    first, *rest = parts
    for part in rest:
        first = first & part if kind is And else first | part
    return first


def _member(ftype: FieldType, text: str) -> Enum | str:
    """Return an enum's member by its value or else its name; values come first, as JSON writes them."""
    assert ftype.enum is not None
    for member in ftype.enum:
        if member.value == text:
            return member
    return ftype.enum[text] if text in ftype.enum.__members__ else text


def _reason(error: SyntaxError, rest: str) -> str:
    what = error.msg.partition(" (")[0]
    if rest.startswith("=") and not rest.startswith("=="):
        return "write == to compare"
    if "unterminated" in what or "never closed" in what:
        return what
    return "this cannot be read as a filter; put text in quotes, and join with and, or, not"
