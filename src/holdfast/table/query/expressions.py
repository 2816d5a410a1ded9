"""Filter expressions, which users build by comparing paths."""

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from holdfast.base.errors import InvalidArgument
from holdfast.table.model.types import HIDDEN

if TYPE_CHECKING:
    from holdfast.table.model.path_expressions import Path

__all__ = [
    "And",
    "Between",
    "Compare",
    "Contains",
    "Exists",
    "Expression",
    "IsA",
    "IsIn",
    "NoneOf",
    "Not",
    "Or",
    "Prefix",
    "Regex",
    "Search",
    "none_of",
]


class Expression:
    """A condition on an object; combined with `&`, `|` and `~`."""

    __slots__ = ()

    def __and__(self, other: "Expression") -> "Expression":
        return And((*_flat(And, self), *_flat(And, other)))

    def __or__(self, other: "Expression") -> "Expression":
        return Or((*_flat(Or, self), *_flat(Or, other)))

    def __invert__(self) -> "Expression":
        return self.part if isinstance(self, Not) else Not(self)

    def __repr__(self) -> str:
        return f"<{self}>"

    def __bool__(self) -> bool:
        raise TypeError(
            f"({self}) is an expression and has no truth value: "
            "use & | ~ instead of `and`, `or`, `not`, with (...) around comparisons; .between(a, b) for a <= x <= b"
        )


def _flat(kind: type, part: object) -> tuple[Expression, ...]:
    if not isinstance(part, Expression):
        raise InvalidArgument(
            f"{part!r} is not an expression: put parentheses around each comparison, (a == 1) & (b == 2)"
        )
    return part.parts if isinstance(part, kind) else (part,)  # type: ignore[attr-defined]


def _shown(path: "Path", value: Any) -> str:
    return HIDDEN if path.__hidden__ else repr(value)


# Equality of paths makes expressions, so expressions are compared by identity (eq=False).
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Compare(Expression):
    """The value exists and compares so with another one; `op` is one of == < <= > >=."""

    path: "Path"
    op: str
    value: Any

    def __str__(self) -> str:
        return f"{self.path} {self.op} {_shown(self.path, self.value)}"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Exists(Expression):
    """The value exists."""

    path: "Path"

    def __str__(self) -> str:
        return f"{self.path} exists"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Prefix(Expression):
    """The text or bytes begin with this prefix."""

    path: "Path"
    value: Any

    def __str__(self) -> str:
        return f"{self.path} begins with {_shown(self.path, self.value)}"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Between(Expression):
    """The value is between two others, inclusive."""

    path: "Path"
    low: Any
    high: Any

    def __str__(self) -> str:
        return f"{self.path} between {_shown(self.path, self.low)} and {_shown(self.path, self.high)}"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Regex(Expression):
    """The whole text matches."""

    path: "Path"
    pattern: re.Pattern[str]

    def __str__(self) -> str:
        return f"{self.path} matches {_shown(self.path, self.pattern.pattern)}"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class IsIn(Expression):
    """The value is one of these."""

    path: "Path"
    values: tuple[Any, ...]

    def __str__(self) -> str:
        return f"{self.path} in {_shown(self.path, list(self.values))}"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Contains(Expression):
    """The list or set has the item, or the dict the key."""

    path: "Path"
    item: Any

    def __str__(self) -> str:
        return f"{self.path} contains {_shown(self.path, self.item)}"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class IsA(Expression):
    """The value of a union has this type."""

    path: "Path"
    name: str

    def __str__(self) -> str:
        return f"{self.path} is a {self.name}"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Search(Expression):
    """All terms are words of the fields that a search index covers; made by `holdfast.table.query.search.search`."""

    text: str
    index: str | None
    prefix: bool
    regex: bool

    def __str__(self) -> str:
        how = " by regular expression" if self.regex else " by prefix" if self.prefix else ""
        return f"search{how} for {self.text!r}" + (f" in {self.index}" if self.index else "")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class And(Expression):
    """All of these are true."""

    parts: tuple[Expression, ...]

    def __str__(self) -> str:
        return " & ".join(f"({part})" for part in self.parts)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Or(Expression):
    """At least one of these is true."""

    parts: tuple[Expression, ...]

    def __str__(self) -> str:
        return " | ".join(f"({part})" for part in self.parts)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Not(Expression):
    """The part is not true. So this is also true of objects in which the compared value is absent."""

    part: Expression

    def __str__(self) -> str:
        return f"~({self.part})"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class NoneOf(Expression):
    """None of these is true."""

    parts: tuple[Expression, ...]

    def __str__(self) -> str:
        return f"none of {', '.join(f'({part})' for part in self.parts)}"


def none_of(*parts: Expression) -> Expression:
    """True of objects for which none of these is true."""
    if not parts:
        raise InvalidArgument("none_of needs at least one expression, such as none_of(Account.name == 'Ada')")
    for part in parts:
        _flat(NoneOf, part)
    return NoneOf(parts)
