"""`Step`, the argument of a phase: the table with its new model, the old records, and methods to rewrite them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from holdfast.base.errors import InvalidArgument
from holdfast.table.errors import ValidationFailed
from holdfast.table.migration.record_rewrite import rewrite
from holdfast.table.model.model import Model
from holdfast.table.model.validation import validate
from holdfast.table.storage.row_codec import Images, decode_row
from holdfast.table.storage.table_state import after

if TYPE_CHECKING:
    from holdfast.table.table import Table

__all__ = ["Cursor", "Found", "Step"]

Cursor = bytes | str | int | None
"""Progress of a phase, in its own terms; keys of records are bytes."""
_BATCH = 500
"""Records that are written in one request."""


@dataclass(frozen=True, slots=True)
class Found:
    """A record to migrate."""

    key: bytes
    old: Any
    """The record read with the old model; values that do not suit it any more are absent."""
    new: Any
    """The record read with the new model; values that do not suit it yet are absent."""
    version: int
    created: int
    deleted: bool


class Step:
    """One call of a phase. Only the thread that calls the phase may use it."""

    def __init__(
        self,
        table: Table[Any],
        old: type[Model],
        old_images: Images,
        *,
        phase: str,
        cursor: Cursor,
        attempt: int,
        since: int,
        writes: Callable[[], None],
    ) -> None:
        """`since` is the version at which the phase began, `writes` is called before the first record is written."""
        self._table = table
        self._old_images = old_images
        self._since = since
        self._writes = writes
        self._puts: list[tuple[bytes, Any]] = []
        self.old = old
        """The model of the old definition."""
        self.phase = phase
        self.cursor = cursor
        """The last cursor that the phase returned, None at its beginning."""
        self.attempt = attempt
        """1 for the first call; counts again from 1 after a `Partial`."""
        self.processed = 0
        """How many records this call has written."""

    @property
    def table(self) -> Table[Any]:
        """Return the table with the new model, for any request; it refuses all other threads.

        Writes what was put first. Using it, even to read, marks the records as changed: the table cannot be opened with
        the old model any more.
        """
        self._writes()
        self.flush()
        return self._table

    def rows(self, cursor: Cursor | object = ..., limit: int = 500) -> list[Found]:
        """Return the records after a key (by default the step's cursor), in the order of keys, with soft-deleted ones.

        Records that changed since the phase began are left out. Writes what was put first.
        """
        where = self.cursor if cursor is ... else cursor
        if where is not None and not isinstance(where, bytes):
            raise InvalidArgument(f"the cursor of rows must be the key of a record, as bytes, not {where!r}")
        if limit < 1:
            raise InvalidArgument(f"limit must be an int from 1 up, not {limit}")
        self.flush()
        found: list[Found] = []
        for row in self._rows(where):
            found.append(row)
            if len(found) == limit:
                break
        return found

    def put(self, key: bytes, record: Any) -> None:
        """Replace or add a record of the new model (or a dict of its fields). It is written at the next `flush`.

        Final fields may change; a soft-deleted record stays soft-deleted. Like any change it goes through the log, up
        to 500 records in a request. An unchanged record is not written. Raises `ValidationFailed` if it is invalid.
        """
        model = self._table.model
        if not isinstance(record, model):
            if not isinstance(record, dict):
                raise InvalidArgument(f"a record of this table must be a {model.__name__} or a dict, not {record!r}")
            record = model.from_dict(record)
        elif violations := validate(record):
            raise ValidationFailed(model.__name__, violations)
        self._table.layout.check(key, record)
        self._puts.append((key, record))
        if len(self._puts) >= _BATCH:
            self.flush()

    def put_all(self, records: Iterable[tuple[bytes, Any]]) -> None:
        """Put keys and records."""
        for key, record in records:
            self.put(key, record)

    def flush(self) -> None:
        """Write the put records. Done automatically after 500 records, before reading, and when the phase returns."""
        if self._puts:
            self._writes()
            puts, self._puts = self._puts, []
            self.processed += rewrite(self._table.engine, self.old, self._old_images, puts)

    def _rows(self, cursor: bytes | None) -> Iterator[Found]:
        view = self._table.engine.state.view
        prefix = view.prefix
        start = prefix if cursor is None else prefix + cursor + b"\0"
        for name, raw in view.state.scan("table", start, after(prefix)):
            row, key = decode_row(raw), name[len(prefix) :]
            if row.version > self._since:
                continue
            yield Found(
                key,
                self._old_images.decode(key, row.image),
                view.images.decode(key, row.image),
                row.version,
                row.created,
                row.deleted,
            )
