"""Opening of a table of a store: finds or creates it, checks its model and settings, begins its migration."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

from holdfast.base.clock import Duration
from holdfast.base.errors import InvalidArgument
from holdfast.base.names import check_name
from holdfast.log.policy import Flush
from holdfast.log.settings import LogSettings
from holdfast.table.engine import TableEngine
from holdfast.table.migration import Migration
from holdfast.table.migration.admission import Opening
from holdfast.table.migration.lenient_decoder import lenient_images
from holdfast.table.migration.phases import VersionChange
from holdfast.table.model.definition import describe, model_from
from holdfast.table.model.model import Model
from holdfast.table.settings import TableSettings
from holdfast.table.storage.export import check_restored
from holdfast.table.storage.field_encryption import check_tokens, images_of
from holdfast.table.storage.keyring import WITHOUT_KEYS, Keyring
from holdfast.table.storage.schema_history import SchemaHistory
from holdfast.table.table import Table
from holdfast.table_registry import TABLE_FORMAT, TableRegistry

__all__ = ["OpenOptions", "TableOpener"]

M = TypeVar("M", bound=Model)


@dataclass(frozen=True, slots=True)
class OpenOptions:
    """Options of `Store.table`."""

    chosen: dict[str, Any]
    """The table's settings that were given."""
    log_settings: dict[str, Any]
    """The settings of its log that were given."""
    keyring: Keyring | None = None
    migration: Migration | None = None
    migration_budget: Duration | None = None
    on_version_change: VersionChange | None = None


@dataclass(frozen=True, slots=True)
class _Admitted:
    """A table that may be opened."""

    meta: dict[str, Any]
    """Its definition and settings as saved on disk; empty if there is no such table yet."""
    past: SchemaHistory
    """The schema history of its saved definition."""
    opening: Opening


class TableOpener:
    """Opens tables of a registry. Needs the store's guard."""

    def __init__(self, tables: TableRegistry) -> None:
        self._tables = tables

    def open(self, model: type[M] | str, options: OpenOptions) -> Table[M]:
        """Open a table. See `TableRegistry.table`."""
        tables = self._tables
        if isinstance(model, str):
            known = tables.open_tables.get(model)
            if known is not None:
                _check_same(known, options)
                return known
            model = model_from(tables.meta(model)["definition"])  # type: ignore[assignment]
        _check_model(model)
        assert isinstance(model, type)
        table = self.find_open(model, options)
        if table is None:
            admitted = self.check_definition(model, options)
            table = self.build(model, admitted, options)
            if not tables.read_only:
                self.begin_migration(table, admitted, options)
            tables.include(table)
        return table

    def find_open(self, model: type[M], options: OpenOptions) -> Table[M] | None:
        """Return the table if it is open, and let it use this class; None if it is not open.

        Raises `InvalidArgument` if it is open with another definition or other settings.
        """
        known = self._tables.open_tables.get(model.__spec__.name)
        if known is None or known.model is model:
            if known is not None:
                _check_same(known, options)
            return known
        if describe(known.model) != describe(model):
            raise InvalidArgument(f"the table {known.name!r} is open with another model: close the store to change it")
        _check_same(known, options)
        engine = known.engine
        if engine.access.gate is None:
            past = engine.schema.past
            images = images_of(model, options.keyring, past.unsealed)
            engine.bind(model, lenient_images(images, model) if past.retyped else images)
        return known

    def check_definition(self, model: type[Model], options: OpenOptions) -> _Admitted:
        """Decide whether a table can be opened with this model, and what must be done first. Changes no table."""
        tables, spec = self._tables, model.__spec__
        if not tables.read_only:
            assert options.keyring is not WITHOUT_KEYS, "a writable table needs the keys of its sealed fields"
            tables.finish_deleting()
        if options.log_settings.get("retention") is not None:
            raise InvalidArgument(
                f"the table {spec.name!r} cannot have a retention: its records and their history are built from its "
                "log. Delete records with hard=True instead"
            )
        if options.log_settings.get("local_retention") is not None:
            raise InvalidArgument(
                f"the table {spec.name!r} cannot have a local_retention: its records are built from its log, which "
                "stays on the local disk"
            )
        meta = tables.meta(spec.name) if tables.read_only else tables.stored(spec.name)
        assert spec.id is not None, "_check_model has checked it"
        tables.check_id(spec.name, spec.id)
        past = check_restored(tables.files, tables.folder(spec.name)) or SchemaHistory.of(meta)
        opening = tables.migrations.decide(
            spec.name,
            meta.get("definition"),
            describe(model),
            options.migration,
            past=past,
            read_only=tables.read_only,
        )
        return _Admitted(meta, past, opening)

    def build(self, model: type[M], admitted: _Admitted, options: OpenOptions) -> Table[M]:
        """Open the log of a table, and bring its state to the end of the log."""
        tables, opening, keyring = self._tables, admitted.opening, options.keyring
        settings = TableSettings(**{**admitted.meta.get("settings", {}), **options.chosen})
        log_settings = LogSettings.of({"flush": Flush.sync(), **options.log_settings})
        log = tables.open_log(model.__spec__.name, log_settings)
        try:
            engine = TableEngine(
                model,
                settings,
                log,
                tables.state(),
                tables.versions,
                clock=tables.clock,
                images=opening.images(images_of(model, keyring, opening.past.unsealed), model),
                tables=tables.open_tables.get,
                read_only=tables.read_only,
                past=opening.past,
            )
            if keyring is not None and not tables.read_only:
                check_tokens(engine, keyring, migrates=opening.runs)
            return Table(engine)
        except BaseException:
            log.appender.detach_after_fork()
            raise

    def begin_migration(self, table: Table[Any], admitted: _Admitted, options: OpenOptions) -> None:
        """Begin the migration that was decided on, if any; save the definition when the records suit it."""
        engine = table.engine
        try:
            self._tables.migrations.begin(
                admitted.opening,
                table,
                self._definition_keeper(engine, admitted.meta, options.keyring),
                budget=options.migration_budget,
                on_version_change=options.on_version_change,
                images_for=lambda old: images_of(old, options.keyring, admitted.past.unsealed),
            )
        except BaseException:
            engine.close()
            engine.log.close()
            raise

    def _definition_keeper(
        self, engine: TableEngine[Any], meta: dict[str, Any], keyring: Keyring | None
    ) -> Callable[[], None]:
        spec, settings, definition = engine.schema.spec, engine.schema.settings, describe(engine.schema.model)

        def keep_definition() -> None:
            if keyring is not None:
                check_tokens(engine, keyring)
            kept = {
                "format": TABLE_FORMAT,
                "name": spec.name,
                "id": spec.id,
                "settings": asdict(settings),
                "definition": definition,
                **engine.schema.past.to_dict(),
            }
            if meta != kept:
                self._tables.keep_meta(spec.name, kept)

        return keep_definition


def _check_model(model: Any) -> None:
    """Raise `InvalidArgument`, unless this is a model that can have a table."""
    if not isinstance(model, type) or not issubclass(model, Model):
        raise InvalidArgument(f"table() needs a Model class or the name of a table, not {model!r}")
    spec = model.__spec__
    check_name(spec.name, "table name")
    if spec.id is None:
        raise InvalidArgument(
            f"{spec.name} has no id, so it can only be embedded: for a table write class {spec.name}(Model, id=1)"
        )


def _check_same(table: Table[Any], options: OpenOptions) -> None:
    """Raise `InvalidArgument` if an open table has other settings than those that are given."""
    if TableSettings(**{**asdict(table.settings), **options.chosen}) != table.settings:
        raise InvalidArgument(f"the table {table.name!r} is open with other settings: close the store to change them")
    for setting, value in options.log_settings.items():
        if getattr(table.engine.log.settings, setting) != value:
            raise InvalidArgument(
                f"the table {table.name!r} is open with another {setting}: close the store to change it"
            )
