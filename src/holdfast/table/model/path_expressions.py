"""Paths such as `Account.address.city`, by which users name values; comparing a path makes an expression."""

import datetime
import decimal
import re
from collections.abc import Collection, Hashable, Iterable
from typing import TYPE_CHECKING, Any

from holdfast.base.errors import InvalidArgument
from holdfast.table.model.field_path import (
    CLASSES,
    Any_,
    At,
    Follow,
    Normal,
    Step,
    Variant,
    is_sensitive,
    path_text,
    type_at,
    variant_name,
    variant_types,
)
from holdfast.table.model.types import HIDDEN, FieldType, Kind
from holdfast.table.query.expressions import (
    Between,
    Compare,
    Contains,
    Exists,
    Expression,
    IsA,
    IsIn,
    Prefix,
    Regex,
)
from holdfast.table.query.search import normalize

if TYPE_CHECKING:
    from holdfast.table.model.model import Model

__all__ = ["Path", "model_and_steps", "operand"]

_COMPARED: dict[Kind, tuple[type, ...]] = {
    **CLASSES,
    **dict.fromkeys((Kind.INT, Kind.FLOAT, Kind.DECIMAL), (int, float, decimal.Decimal)),
    Kind.SET: (set, frozenset),
}
"""The Python types with which a value of each kind can be compared."""


class Path:
    """The steps from an object to a value in it, such as `Account.name`. Comparing a path returns an expression.

    Names of its own methods hide fields of embedded models: use `Account.address.into("prefix")` for these.
    """

    __slots__ = ("_model", "_steps")

    def __init__(self, model: "type[Model]", parts: Iterable[Step]) -> None:
        self._model = model
        self._steps = tuple(parts)

    def __str__(self) -> str:
        steps = self._steps
        if self.__hidden__:  # a key of a dict reveals the content
            steps = tuple(At(HIDDEN) if isinstance(step, At) else step for step in steps)
        return path_text(steps)

    @property
    def __hidden__(self) -> bool:
        return is_sensitive(self._model.__spec__, self._steps)

    def __repr__(self) -> str:
        return f"{self._model.__name__}.{self}"

    __hash__ = object.__hash__

    def __eq__(self, value: object) -> Expression:  # type: ignore[override]
        return ~Exists(self) if value is None else Compare(self, "==", self._operand(value))

    def __ne__(self, value: object) -> Expression:  # type: ignore[override]
        return ~(self == value)

    def __lt__(self, value: Any) -> Expression:
        return Compare(self, "<", self._ordered(value))

    def __le__(self, value: Any) -> Expression:
        return Compare(self, "<=", self._ordered(value))

    def __gt__(self, value: Any) -> Expression:
        return Compare(self, ">", self._ordered(value))

    def __ge__(self, value: Any) -> Expression:
        return Compare(self, ">=", self._ordered(value))

    def __getitem__(self, key: Any) -> "Path":
        kind = self._type().kind
        if kind not in (Kind.LIST, Kind.DICT):
            raise InvalidArgument(f"{self!r} is a {kind}: only lists and dicts have [...]")
        if kind is Kind.LIST and (type(key) is not int or key < 0):
            raise InvalidArgument(
                f"{self!r} is a list: its items are numbered from 0, and {key!r} is not such a number"
            )
        if kind is Kind.DICT and not isinstance(key, Hashable):
            raise InvalidArgument(f"{self!r} is a dict: its keys are single values, and {key!r} is not")
        return self._step(At(key))

    def __iter__(self) -> Any:
        raise TypeError(f"{self!r} is a path, not a value: use .any_item for any of its items")

    def __contains__(self, item: object) -> bool:
        raise TypeError(f"`in` of {self!r} cannot make an expression: use .contains(item)")

    def __getattr__(self, name: str) -> "Path":
        if name.startswith("_"):
            raise AttributeError(name)
        try:
            return self.into(name)
        except InvalidArgument as error:
            raise AttributeError(str(error)) from None

    def into(self, name: str) -> "Path":
        """Return the path to a field of the embedded or followed object; the same as `.name`."""
        return self._step(name)

    @property
    def any_item(self) -> "Path":
        """Every item of the list or set: an expression is true if it is true of one of them."""
        return self._step(Any_.ITEM)

    @property
    def any_key(self) -> "Path":
        """Every key of the dict: an expression is true if it is true of one of them."""
        return self._step(Any_.KEY)

    @property
    def any_value(self) -> "Path":
        """Every value of the dict: an expression is true if it is true of one of them."""
        return self._step(Any_.VALUE)

    @property
    def normalized(self) -> "Path":
        """The text without case, accents and signs; what it is compared with is normalised too."""
        return self._step(Normal.TEXT)

    def follow(self, model: "type[Model]") -> "Path":
        """Return the path to the object that the reference refers to: `Account.owner.follow(Person).name == "Ada"`."""
        return self._step(Follow(model))

    def as_(self, kind: type) -> "Path":
        """The value of the union, if it has this type."""
        return self._step(Variant(self._variant(kind)))

    def is_a(self, kind: type) -> Expression:
        """True if the value of the union has this type."""
        return IsA(self, self._variant(kind))

    def exists(self) -> Expression:
        """True if the value exists."""
        return Exists(self)

    def prefix(self, value: str | bytes) -> Expression:
        """True if the text or bytes begin with this prefix."""
        kind = self._type().kind
        if kind not in (Kind.STR, Kind.BYTES, Kind.REFERENCE):
            raise InvalidArgument(f"{self!r} is a {kind}: only text and bytes have a prefix")
        return Prefix(self, self._operand(value))

    def between(self, low: Any, high: Any) -> Expression:
        """True if the value lies between these, both included."""
        return Between(self, self._ordered(low), self._ordered(high))

    def regex(self, pattern: str | re.Pattern[str]) -> Expression:
        """True if the whole text matches."""
        if self._type().kind is not Kind.STR:
            raise InvalidArgument(f"{self!r} is a {self._type().kind}: only text matches a regular expression")
        try:
            return Regex(self, re.compile(pattern))
        except (re.error, OverflowError, RecursionError) as error:
            raise InvalidArgument(f"{pattern!r} is not a regular expression: {error}") from error

    def isin(self, values: Collection[Any]) -> Expression:
        """True if the value is one of these."""
        if isinstance(values, str | bytes):
            raise InvalidArgument(f"isin of {self!r} needs a list of values, not one string")
        return IsIn(self, tuple(self._operand(value) for value in values))

    def contains(self, item: Any) -> Expression:
        """True if the list or set has the item, or the dict the key."""
        ftype = self._type()
        if ftype.kind not in (Kind.LIST, Kind.SET, Kind.DICT):
            advice = ": use .prefix or .regex" if ftype.kind is Kind.STR else ""
            raise InvalidArgument(f"{self!r} is a {ftype.kind}: only lists, sets and dicts contain something{advice}")
        inner = ftype.key if ftype.kind is Kind.DICT else ftype.item
        return Contains(self, operand(f"an item of {self!r}", inner, item, hidden=self.__hidden__))

    def _step(self, step: Step) -> "Path":
        path = Path(self._model, (*self._steps, step))
        path._type()  # raises for a step that does not exist
        return path

    def _type(self) -> FieldType:
        return type_at(self._model.__spec__, self._steps)

    def _variant(self, kind: type) -> str:
        ftype = self._type()
        for variant in ftype.variants:
            if kind in variant_types(variant) or (isinstance(kind, type) and kind.__name__ == variant_name(variant)):
                return variant_name(variant)
        raise InvalidArgument(f"{self!r} is {ftype}, and never {getattr(kind, '__name__', kind)}")

    def _operand(self, value: Any) -> Any:
        if self._steps[-1:] == (Normal.TEXT,):
            return normalize(operand(repr(self), self._type(), value, hidden=self.__hidden__))
        return operand(repr(self), self._type(), value, hidden=self.__hidden__)

    def _ordered(self, value: Any) -> Any:
        ftype = self._type()
        if not ftype.scalar and ftype.kind is not Kind.UNION:
            raise InvalidArgument(f"{self!r} is a {ftype.kind}, which has no order: compare a value inside of it")
        return self._operand(value)


def model_and_steps(path: Path) -> "tuple[type[Model], tuple[Step, ...]]":
    """Return the parts of a path, which are not attributes because these could be names of fields."""
    return path._model, path._steps


def operand(where: str, ftype: FieldType | None, value: Any, *, hidden: bool = False) -> Any:
    """Return a value in a form comparable with values of a type; raises InvalidArgument if it never is."""
    if ftype is None or ftype.kind in (Kind.UNION, Kind.EMBEDDED):
        return value
    shown = HIDDEN if hidden else repr(value)
    if ftype.enum is not None:
        try:
            return ftype.enum(value)
        except ValueError:
            raise InvalidArgument(
                f"{where} is a {ftype.enum.__name__}, and {shown} is not one of its members"
            ) from None
    kinds = _COMPARED[ftype.kind]
    fits = isinstance(value, kinds) and (ftype.kind is not Kind.DATE or not isinstance(value, datetime.datetime))
    if not fits:
        raise InvalidArgument(f"{where} is {ftype}: it cannot be compared with {shown}")
    if ftype.kind is Kind.DATETIME and value.utcoffset() is None:
        raise InvalidArgument(f"{where} is compared with {shown}, which has no time zone: add one, such as tzinfo=UTC")
    if ftype.kind is Kind.TIME and value.tzinfo is not None:
        raise InvalidArgument(f"{where} is compared with {shown}: times of day have no time zone here, leave it out")
    return value
