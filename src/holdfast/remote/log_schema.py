"""The schema of a remote log: its versions, `set` and `check`, with the interface of `Log.schema`."""

from typing import Any

from holdfast.base.errors import InvalidArgument
from holdfast.remote.http_client import HttpClient
from holdfast.schemas.payload_schema import PayloadSchema, SchemaVersion

__all__ = ["RemoteLogSchema"]


class RemoteLogSchema:
    """The schema of a log that a server keeps. Each call is a request."""

    def __init__(self, wire: HttpClient, path: str) -> None:
        """Make it for the log at this path."""
        self._wire = wire
        self._path = f"{path}/schema"

    def versions(self) -> list[SchemaVersion]:
        """Return all versions, oldest first; an empty list if the log has no schema."""
        return [_version(one) for one in self._wire.get(self._path)["versions"]]

    def newest(self) -> SchemaVersion | None:
        """Return the newest version; None if the log has no schema."""
        return next(reversed(self.versions()), None)

    def check(self, schema: PayloadSchema) -> None:
        """Raise `InvalidArgument` if `set` would refuse the schema: it is invalid, or not compatible."""
        answer = self._wire.request("POST", f"{self._path}/check", _body(schema), again=True)
        if not answer["ok"]:
            raise InvalidArgument(answer["problem"])

    def set(self, schema: PayloadSchema) -> SchemaVersion:
        """Add the schema as a new version, durably, and return it; one that the log has already adds none.

        The server creates the log if there is none.
        """
        return _version(self._wire.request("PUT", self._path, _body(schema), again=True))


def _body(schema: PayloadSchema) -> dict[str, Any]:
    if not isinstance(schema, PayloadSchema):
        raise InvalidArgument(f"a schema must be a PayloadSchema, not {schema!r}")
    found: dict[str, Any] = {
        "format": schema.format,
        "text": schema.text,
        "compatibility": schema.compatibility,
        "validate": schema.validate,
    }
    return found if schema.message is None else {**found, "message": schema.message}


def _version(one: dict[str, Any]) -> SchemaVersion:
    schema = PayloadSchema(one["format"], one["text"], one["message"], one["compatibility"], one["validate"])
    return SchemaVersion(one["version"], schema, one["created"], one["since"])
