"""`Step`, the argument of a phase: the table with its new model, the old records, and methods to rewrite them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from holdfast.base.errors import InvalidArgument
from holdfast.table.errors import ValidationFailed
from holdfast.table.migrating.rewriting import rewrite
from holdfast.table.model import Model
from holdfast.table.rows import decode_row
from holdfast.table.validation import validate
from holdfast.table.views import Images, after

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
    """Its values by the old model; what was written anew and no longer suits that is absent."""
    new: Any
    """Its values by the new model; what does not suit that yet is absent."""
    version: int
    created: int
    deleted: bool


class Step:
    """One call of a phase. For the thread in which the phase is called."""

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
        """What the phase returned last, None at its beginning."""
        self.attempt = attempt
        """1 for the first; starts again when the phase gets on."""
        self.processed = 0
        """How many records this call has written."""

    @property
    def table(self) -> Table[Any]:
        """Return the table with the new model, for reading and any other request; it serves nobody else yet."""
        self._writes()
        self.flush()
        return self._table

    def rows(self, cursor: Cursor | object = ..., limit: int = 500) -> list[Found]:
        """The records behind a key (the step's cursor, if none is given), in order of their keys, deleted ones too.

        Those that this phase has written already are left out.
        """
        where = self.cursor if cursor is ... else cursor
        if where is not None and not isinstance(where, bytes):
            raise InvalidArgument(f"rows begin behind the key of a record, which is bytes, not {where!r}")
        if limit < 1:
            raise InvalidArgument(f"limit must be from 1 up, not {limit}")
        self.flush()
        found: list[Found] = []
        for row in self._rows(where):
            found.append(row)
            if len(found) == limit:
                break
        return found

    def put(self, key: bytes, record: Any) -> None:
        """Write a record of the new model (or a dict of its fields), replacing the old one or adding it.

        Final fields may change; a soft-deleted record stays so. Like any change it goes through the log, in requests of
        many. A record that is unchanged is not written.
        """
        model = self._table.model
        if not isinstance(record, model):
            if not isinstance(record, dict):
                raise InvalidArgument(f"a record of this table is a {model.__name__} or a dict, not {record!r}")
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
        """Write what was put; this is done automatically when the phase returns."""
        if self._puts:
            self._writes()
            puts, self._puts = self._puts, []
            self.processed += rewrite(self._table, self.old, self._old_images, puts)

    def _rows(self, cursor: bytes | None) -> Iterator[Found]:
        view = self._table.view
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
