"""The schema of one log: its versions in `schema.json`, and the check of payloads that are appended."""

import json
import logging
import threading
from collections.abc import Callable
from pathlib import Path

from holdfast.base.errors import Corrupt, HoldfastError, InvalidArgument, ReadOnly
from holdfast.base.files import Files, translate_os_errors
from holdfast.log.appender import Appender
from holdfast.schemas.payload_schema import PayloadSchema, SchemaVersion
from holdfast.schemas.schema_file import SCHEMA_FILE, keep_schemas, read_schemas

__all__ = ["LogSchema"]

logger = logging.getLogger("holdfast.log")

_guard = threading.Lock()
"""Held while a version is added, to any log: that is rare."""


class LogSchema:
    """The schema of a log; created by `Log.schema`.

    Files: `schema.json`, replaced with `_guard` held. It has no state but that file and the appender's check.
    """

    __slots__ = ("_appender", "_files", "_folder")

    def __init__(self, files: Files, folder: Path, appender: Appender) -> None:
        self._files = files
        self._folder = folder
        self._appender = appender

    def versions(self) -> list[SchemaVersion]:
        """Return all versions, oldest first; an empty list if the log has no schema."""
        with translate_os_errors("reading the schema of the log in", self._folder):
            return read_schemas(self._files, self._folder)

    def newest(self) -> SchemaVersion | None:
        """Return the newest version; None if the log has no schema."""
        return next(reversed(self.versions()), None)

    def check(self, schema: PayloadSchema) -> None:
        """Raise `InvalidArgument` if `set` would refuse the schema: it is invalid, or not compatible."""
        self._fitting(schema, self.versions())

    def set(self, schema: PayloadSchema) -> SchemaVersion:
        """Add the schema as a new version, durably, and return it.

        A schema that the log has already, as any version, adds none. That of the newest version may come with another
        `compatibility` or `validate`, which are saved.
        """
        if self._appender.is_read_only:
            raise ReadOnly(
                f"the log {self._appender.name!r} was opened read-only: open the store without read_only=True to set "
                "its schema"
            )
        with _guard, translate_os_errors("saving the schema of the log in", self._folder):
            self._appender.check_open()
            versions = self.versions()
            known = self._fitting(schema, versions)
            if known is not None and known is not versions[-1]:
                return known
            if known is None:
                since, number = self._appender.pending_block.end, len(versions) + 1
                versions.append(SchemaVersion(number, schema, self._appender.clock.time_ns(), since))
            elif known.schema == schema:
                return known
            else:
                versions[-1] = SchemaVersion(known.number, schema, known.created, known.since)
            keep_schemas(self._files, self._folder, versions)
            self._appender.check_payloads_with(_checks(self._appender.name, versions))
            return versions[-1]

    def enforce(self) -> None:
        """Check payloads from now on, if the schema says so: when a log is opened for writing."""
        if self._files.exists(self._folder / SCHEMA_FILE):
            try:
                check = _checks(self._appender.name, self.versions())
            except Corrupt as error:
                logger.error("%s", error, extra=self._appender.fields)
                check = _refusing(error)
            self._appender.check_payloads_with(check)

    def _fitting(self, schema: PayloadSchema, versions: list[SchemaVersion]) -> SchemaVersion | None:
        """Return the version that the schema is already; None if it can be added."""
        from holdfast.schemas.formats import check_compatible, payload_columns  # noqa: PLC0415 - loaded when needed

        if not isinstance(schema, PayloadSchema):
            raise InvalidArgument(f"a schema must be a PayloadSchema, not {schema!r}")
        for version in reversed(versions):
            if _is_same(version.schema, schema):
                return version
        payload_columns(schema)
        check_compatible(schema, versions)
        return None


def _is_same(one: PayloadSchema, other: PayloadSchema) -> bool:
    if (one.format, one.message) != (other.format, other.message):
        return False
    return one.text.strip() == other.text.strip() or _content(one.text) == _content(other.text)


def _content(text: str) -> object:
    """Return the content of a text in JSON, so that its spaces do not count."""
    try:
        return json.loads(text) if text.lstrip().startswith(("{", "[")) else text.strip()
    except ValueError:
        return text


def _checks(log: str, versions: list[SchemaVersion]) -> Callable[[bytes], None] | None:
    """Return a function that raises `InvalidArgument` for a payload that is not of the schema; None: not checked."""
    if not versions or not versions[-1].schema.validate:
        return None
    newest = versions[-1]
    read: Callable[[bytes, int], object] | None = None

    def check(payload: bytes) -> None:
        nonlocal read
        if read is None:
            from holdfast.schemas.formats import payload_reader  # noqa: PLC0415 - loaded when needed

            read = payload_reader(versions, newest, strict=True)
        try:
            read(payload, 0)
        except HoldfastError:
            raise
        except ValueError as error:
            raise InvalidArgument(
                f"a payload does not fit version {newest.number} of the schema of the log {log!r}, in "
                f"{newest.schema.format}: {error}. Nothing was written"
            ) from error

    return check


def _refusing(problem: Corrupt) -> Callable[[bytes], None]:
    def refuse(payload: bytes) -> None:
        raise Corrupt(str(problem), problem.path)

    return refuse
