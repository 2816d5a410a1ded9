"""`PayloadSchema`: the format of a log's payloads, its text, and the rules for its next versions."""

import base64
import binascii
import os
from dataclasses import dataclass
from pathlib import Path

from holdfast.base.errors import InvalidArgument, NotFound

__all__ = ["COMPATIBILITIES", "FORMATS", "PayloadSchema", "SchemaVersion", "encode_descriptors"]

FORMATS = ("json", "avro", "protobuf", "msgpack", "arrow")
COMPATIBILITIES = ("none", "backward", "forward", "full")
TEXT_MAX = 256 << 10
"""The most characters of a schema: every moment of a replica has the schemas of all logs."""


@dataclass(frozen=True, slots=True)
class PayloadSchema:
    """The schema of a log's payloads.

    `text` is DDL or the JSON of a Spark StructType; for `avro` it may be an Avro schema, for `protobuf` it is a
    descriptor set in base64, in which `message` is the full name of the message. `compatibility` is what a new
    version must be with all earlier ones: `backward` (it reads what they wrote), `forward` (they read what it writes),
    `full` (both) or `none`. With `validate`, a payload that does not fit the newest version is refused.
    """

    format: str
    text: str
    message: str | None = None
    compatibility: str = "backward"
    validate: bool = False

    def __post_init__(self) -> None:
        """Reject what no schema can be. The text is parsed when the schema is used."""
        if self.format not in FORMATS:
            raise InvalidArgument(f"the format of a schema must be one of {', '.join(FORMATS)}, not {self.format!r}")
        if self.compatibility not in COMPATIBILITIES:
            known = ", ".join(COMPATIBILITIES)
            raise InvalidArgument(f"the compatibility of a schema must be one of {known}, not {self.compatibility!r}")
        if not isinstance(self.validate, bool):
            raise InvalidArgument(f"validate must be True or False, not {self.validate!r}")
        if not isinstance(self.text, str) or not self.text.strip():
            raise InvalidArgument(f"the text of a schema must be a str that is not empty, not {self.text!r}")
        if len(self.text) > TEXT_MAX:
            raise InvalidArgument(f"the text of a schema has {len(self.text)} characters: at most {TEXT_MAX} are kept")
        if self.message is not None and self.format != "protobuf":
            raise InvalidArgument(f"message is for the format protobuf, not for {self.format!r}")

    @classmethod
    def from_file(
        cls,
        format: str,
        path: str | os.PathLike[str],
        *,
        message: str | None = None,
        compatibility: str = "backward",
        validate: bool = False,
    ) -> "PayloadSchema":
        """Return the schema in a file: DDL, JSON, or the descriptor set that `protoc --include_imports` writes."""
        try:
            raw = Path(path).read_bytes()
            text = encode_descriptors(raw) if format == "protobuf" else raw.decode().strip()
        except (FileNotFoundError, IsADirectoryError):
            raise NotFound(f"there is no file {os.fspath(path)!r} with a schema") from None
        except UnicodeDecodeError:
            raise InvalidArgument(f"the schema in {os.fspath(path)!r} is not text in UTF-8") from None
        return cls(format, text, message, compatibility, validate)


@dataclass(frozen=True, slots=True)
class SchemaVersion:
    """A version of a log's schema. It never changes."""

    number: int
    """1, 2, 3, ..."""
    schema: PayloadSchema
    created: int
    """When it was set, in nanoseconds since 1970."""
    since: int
    """The end of the log at that time: the first sequence of a record that may have been written with it."""


def encode_descriptors(raw: bytes) -> str:
    """Return a descriptor set as the text of a schema; it may be base64 already."""
    try:
        base64.b64decode(raw, validate=True)
    except (binascii.Error, ValueError):
        return base64.b64encode(raw).decode()
    return raw.decode().strip() if raw else ""
