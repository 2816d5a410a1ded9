"""The model of an open table, with its settings and its schema history."""

from typing import Generic, TypeVar

from holdfast.base.clock import Clock
from holdfast.table.model.keys import KeyLayout
from holdfast.table.model.model import Model
from holdfast.table.settings import TableSettings
from holdfast.table.storage.schema_history import SchemaHistory

__all__ = ["TableSchema"]

M = TypeVar("M", bound=Model)


class TableSchema(Generic[M]):
    """The model of an open table. Its class may be replaced with one that has an equal definition."""

    def __init__(self, model: type[M], settings: TableSettings, past: SchemaHistory, clock: Clock) -> None:
        self.name = model.__spec__.name
        self.settings = settings
        self.past = past
        """What the log may hold that the present definition does not show."""
        self._clock = clock
        self.bind(model)

    def bind(self, model: type[M]) -> None:
        """Use this class for the records."""
        self.model = model
        self.spec = model.__spec__
        self.plannable = self.spec
        """The model, as far as scans may rely on it: without indexes and unique fields that are being filled."""
        self.layout = KeyLayout(self.spec, self._clock)
