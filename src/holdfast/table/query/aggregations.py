"""Aggregations over records: counts, sums, averages, extremes and histograms, in total or grouped by fields."""

from collections.abc import Callable
from datetime import UTC, date, datetime
from enum import Enum
from typing import TYPE_CHECKING, Any

from holdfast.base.errors import InvalidArgument
from holdfast.table.model.field_path import parse_path, type_at
from holdfast.table.model.indexes import getter
from holdfast.table.model.types import Kind, is_nan, one_nan
from holdfast.table.storage.order_preserving_encoding import encoder

if TYPE_CHECKING:
    from holdfast.table.model.model import ModelSpec

__all__ = ["UNITS", "Aggregation"]

UNITS = ("minute", "hour", "day", "month", "year")
"""The units of a histogram; weeks are left out, because they do not fit into months."""
_SUMMED = (Kind.INT, Kind.FLOAT, Kind.DECIMAL, Kind.TIMEDELTA)


class _Tally:
    """Aggregates of one field in one group."""

    __slots__ = ("count", "high", "low", "total")

    def __init__(self) -> None:
        self.count = 0
        self.total: Any = None
        self.low: Any = None
        self.high: Any = None

    def add(self, value: Any) -> None:
        """Add a value that has an order."""
        self.count += 1
        if self.low is None:
            self.low = self.high = value
        elif value < self.low:
            self.low = value
        elif value > self.high:
            self.high = value

    def add_number(self, value: Any) -> None:
        """Add a value that can be summed."""
        self.total = value if self.total is None else self.total + value
        self.add(value)

    def add_float(self, value: Any) -> None:
        """Add a number that may be NaN, which is the greatest, as in every order of a table."""
        self.count += 1
        self.total = value if self.total is None else self.total + value
        if self.low is None or (is_nan(self.low) and not is_nan(value)):
            self.low = value
        if is_nan(value) or self.high is None:
            self.high = value
        elif value < self.low:
            self.low = value
        elif not is_nan(self.high) and value > self.high:
            self.high = value

    def add_any(self, value: Any) -> None:
        """Add a value that can only be counted."""
        self.count += 1

    def show(self, what: str) -> Any:
        match what:
            case "count":
                return self.count
            case "sum":
                return self.total if self.count else 0
            case "average":
                return self.total / self.count if self.count else None
            case "min":
                return self.low
            case "max":
                return self.high
        return {one: self.show(one) for one in ("count", "sum", "average", "min", "max")}


class _Group:
    """Aggregates of the objects with one grouping value."""

    __slots__ = ("buckets", "objects", "tallies")

    def __init__(self, fields: int) -> None:
        self.objects = 0
        self.tallies = [_Tally() for _ in range(fields)]
        self.buckets: dict[date, int] = {}


class Aggregation:
    """Computes aggregates of objects that are fed one by one.

    Fields are paths or their texts. `count` is True for the number of objects, or a field to count those that have it.
    `stats` gives count, sum, average, min and max. Each takes a field, and gives its value, or a list of fields, and
    gives a dict by field. `histogram` is a field and a unit: how many objects there are in each minute, hour, day,
    month or year, in UTC. With `by` all this is computed for each value of a field, or each tuple of values of several.

    Absent values are not counted; objects without a value to group by are grouped under None.
    """

    def __init__(
        self,
        *,
        count: Any = None,
        sum: Any = None,
        average: Any = None,
        min: Any = None,
        max: Any = None,
        stats: Any = None,
        histogram: tuple[Any, str] | None = None,
        by: Any = None,
        spec: "ModelSpec | None" = None,
    ) -> None:
        given = {"count": count, "sum": sum, "average": average, "min": min, "max": max, "stats": stats}
        self._asked = {what: fields for what, fields in given.items() if fields is not None and fields is not False}
        self._fields = list(
            dict.fromkeys(name for fields in self._asked.values() if fields is not True for name in _names(fields))
        )
        self._histogram = histogram
        self._by = by
        if not self._asked and histogram is None:
            raise InvalidArgument(
                "no aggregate was requested: give count=True, sum=, average=, min=, max=, stats= or histogram="
            )
        if any(self._asked.get(what) is True for what in given if what != "count"):
            raise InvalidArgument("only count can be True: name the field of the others")
        self._groups: dict[Any, _Group] = {}
        self._sorted_by: Callable[[Any], bytes] | None = None
        self._feed: Callable[[Any], None] | None = None
        if spec is not None:
            self._feed = self._prepare(spec)

    def feed(self, record: Any) -> None:
        """Add an object."""
        if self._feed is None:
            self._feed = self._prepare(type(record).__spec__)
        self._feed(record)

    def result(self) -> dict[Any, Any]:
        """Return the aggregates of all objects so far; with `by`, such a dict for each value in their order."""
        if self._by is None:
            return self._show(self._groups.get(None) or _Group(len(self._fields)))
        return {value: self._show(self._groups[value]) for value in sorted(self._groups, key=self._sorted_by)}

    def _show(self, group: _Group) -> dict[str, Any]:
        shown: dict[str, Any] = {}
        for what, fields in self._asked.items():
            if fields is True:
                shown[what] = group.objects
            elif isinstance(fields, list | tuple):
                shown[what] = {str(name): self._tally(group, name).show(what) for name in fields}
            else:
                shown[what] = self._tally(group, fields).show(what)
        if self._histogram is not None:
            shown["histogram"] = dict(sorted(group.buckets.items()))
        return shown

    def _tally(self, group: _Group, field: Any) -> _Tally:
        return group.tallies[self._fields.index(str(field))]

    def _prepare(self, spec: "ModelSpec") -> Callable[[Any], None]:
        """Resolve the fields in a model; return the function that adds an object of it."""
        for what, fields in self._asked.items():
            for name in _names(fields) if fields is not True else ():
                _check(spec, name, what)
        columns = [_column(spec, name) for name in self._fields]
        group_of = self._grouping(spec)
        bucket_of = _bucketing(spec, self._histogram)
        groups = self._groups

        def feed(record: Any) -> None:
            value = group_of(record)
            group = groups.get(value)
            if group is None:
                group = groups[value] = _Group(len(columns))
            group.objects += 1
            for tally, (get, add) in zip(group.tallies, columns, strict=True):
                found = get(record)
                if found is not None:
                    add(tally, found)
            bucket = bucket_of(record)
            if bucket is not None:
                group.buckets[bucket] = group.buckets.get(bucket, 0) + 1

        return feed

    def _grouping(self, spec: "ModelSpec") -> Callable[[Any], Any]:
        if self._by is None:
            return lambda record: None
        names = _names(self._by)
        for name in names:
            _check(spec, name, "by")
        gets = [_grouped(spec, name) for name in names]
        codes = [encoder(type_at(spec, parse_path(name))) for name in names]
        if not isinstance(self._by, list | tuple):
            (only,) = gets
            self._sorted_by = lambda value: _code(codes[0], value)
            return only
        self._sorted_by = lambda values: b"".join(map(_code, codes, values))
        return lambda record: tuple([get(record) for get in gets])


def _names(fields: Any) -> list[str]:
    return [str(field) for field in fields] if isinstance(fields, list | tuple) else [str(fields)]


def _check(spec: "ModelSpec", name: str, what: str) -> None:
    ftype = type_at(spec, parse_path(name))
    if what in ("sum", "average", "stats") and ftype.kind not in _SUMMED:
        raise InvalidArgument(f"{what} of {name}: {spec.name}.{name} is {ftype}, which cannot be summed")
    if what in ("min", "max", "by") and not ftype.scalar:
        raise InvalidArgument(f"{what} of {name}: {spec.name}.{name} is {ftype}; use a single value inside it")


def _column(spec: "ModelSpec", name: str) -> tuple[Callable[[Any], Any], Callable[[_Tally, Any], None]]:
    """Return the functions that get a field's value and that count it."""
    ftype, get = type_at(spec, parse_path(name)), getter(spec, parse_path(name))
    if ftype.kind is Kind.FLOAT:
        return get, _Tally.add_float
    if ftype.kind in _SUMMED:
        return get, _Tally.add_number
    if ftype.enum is not None:
        return get, _add_member
    return get, _Tally.add if ftype.scalar else _Tally.add_any


def _grouped(spec: "ModelSpec", name: str) -> Callable[[Any], Any]:
    """Return the function that gets a grouping value: every NaN is one value."""
    get = getter(spec, parse_path(name))
    if type_at(spec, parse_path(name)).kind in (Kind.FLOAT, Kind.UNION):
        return lambda record: one_nan(get(record))
    return get


def _add_member(tally: _Tally, member: Enum) -> None:
    """Add a member of an enum: these have no order, but their values do."""
    tally.count += 1
    if tally.low is None or member.value < tally.low.value:
        tally.low = member
    if tally.high is None or member.value > tally.high.value:
        tally.high = member


def _code(code: Callable[[Any], bytes], value: Any) -> bytes:
    return b"\x01" if value is None else b"\x00" + code(value)  # objects without a value come last


def _bucketing(spec: "ModelSpec", histogram: tuple[Any, str] | None) -> Callable[[Any], date | None]:
    """Return the function that maps an object to its column of a histogram."""
    if histogram is None:
        return lambda record: None
    path, unit = histogram
    name = str(path)
    kind = type_at(spec, parse_path(name)).kind
    units = UNITS if kind is Kind.DATETIME else UNITS[2:]
    if kind not in (Kind.DATETIME, Kind.DATE) or unit not in units:
        can = f"use one of {', '.join(units)}" if kind in (Kind.DATETIME, Kind.DATE) else "it needs a datetime or date"
        raise InvalidArgument(f"a histogram of {spec.name}.{name} ({kind}) by {unit!r} is not possible: {can}")
    get, width = getter(spec, parse_path(name)), UNITS.index(unit)

    def bucket_of(record: Any) -> date | None:
        value = get(record)
        return None if value is None else _floor(value, width)

    return bucket_of


def _floor(value: date, width: int) -> date:
    """Return the beginning of the column: an aware datetime in UTC, or a date."""
    if isinstance(value, datetime):
        value = value.astimezone(UTC)
    month = 1 if width > 3 else value.month
    day = 1 if width > 2 else value.day
    if not isinstance(value, datetime):
        return date(value.year, month, day)
    hour = 0 if width > 1 else value.hour
    minute = 0 if width > 0 else value.minute
    return datetime(value.year, month, day, hour, minute, tzinfo=UTC)
