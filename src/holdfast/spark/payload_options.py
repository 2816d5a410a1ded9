"""Options of typed payloads: format, schema, and what is done with payloads that are malformed."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from holdfast.base.errors import InvalidArgument, NotFound
from holdfast.schemas.payload_schema import FORMATS, PayloadSchema, encode_descriptors

__all__ = ["CORRUPT", "KEPT", "MODES", "PAYLOAD", "PAYLOAD_OPTIONS", "PayloadOptions"]

PAYLOAD = "payload"
"""The column with the fields of the payload."""
CORRUPT = "_corrupt_record"
"""The default of `columnNameOfCorruptRecord`, as in Spark."""
KEPT = "kept"
"""The `valueFormat` of the schema that is kept with the log."""
MODES = ("PERMISSIVE", "DROPMALFORMED", "FAILFAST")
PAYLOAD_OPTIONS = ("valueFormat", "valueSchema", "messageName", "keepValue", "mode", "columnNameOfCorruptRecord")


@dataclass(frozen=True, slots=True)
class PayloadOptions:
    """The validated options of typed payloads."""

    schema: PayloadSchema | None
    """None: the newest that is kept with the log when the query is planned."""
    format: str | None = None
    """The format that the kept schema must have; None: any."""
    mode: str = "PERMISSIVE"
    keep_value: bool = False
    corrupt_column: str = CORRUPT
    is_kept: bool = False
    """Whether the schema is kept with the log, so that other versions of it are there, too."""

    @classmethod
    def of(cls, options: Mapping[str, str], applies: str | None) -> "PayloadOptions | None":
        """Validate options, by their names in lower case; None without `valueFormat`.

        `applies` says why there are no payloads to decode; None if there are.
        """
        given = next((name for name in PAYLOAD_OPTIONS if name.lower() in options), None)
        if given is None:
            return None
        if "valueformat" not in options:
            raise InvalidArgument(f"the option {given!r} needs the option 'valueFormat'")
        if applies is not None:
            raise InvalidArgument(f"the option 'valueFormat' does not apply: {applies}")
        format = options["valueformat"].lower()
        if format not in (*FORMATS, KEPT):
            known = ", ".join((*FORMATS, KEPT))
            raise InvalidArgument(f"the option 'valueFormat' must be one of {known}, not {options['valueformat']!r}")
        mode = options.get("mode", "PERMISSIVE").upper()
        if mode not in MODES:
            raise InvalidArgument(f"the option 'mode' must be one of {', '.join(MODES)}, not {options['mode']!r}")
        keep = options.get("keepvalue", "false").lower()
        if keep not in ("true", "false"):
            raise InvalidArgument(f"the option 'keepValue' takes true or false, not {options['keepvalue']!r}")
        column = options.get("columnnameofcorruptrecord", CORRUPT)
        if not column:
            raise InvalidArgument("the option 'columnNameOfCorruptRecord' must not be empty")
        schema = _schema(format, options)
        return cls(schema, None if format == KEPT else format, mode, keep == "true", column, schema is None)

    @property
    def shows_corrupt(self) -> bool:
        """Whether there is a column with malformed payloads."""
        return self.mode == "PERMISSIVE"


def _schema(format: str, options: Mapping[str, str]) -> PayloadSchema | None:
    text, message = options.get("valueschema"), options.get("messagename")
    if text is None:
        if message is not None:
            raise InvalidArgument("the option 'messageName' needs the option 'valueSchema' with a descriptor set")
        return None
    if format == KEPT:
        raise InvalidArgument("give either the option 'valueSchema' or valueFormat=kept, not both")
    if format == "protobuf":
        text = _descriptors(text)
    return PayloadSchema(format, text, message)


def _descriptors(given: str) -> str:
    """Return the descriptor set in a file, or given in base64, as the text of a schema."""
    path = Path(given.removeprefix("file://"))
    try:
        if path.is_file():
            return encode_descriptors(path.read_bytes())
    except OSError:  # a long text in base64 is no name of a file
        return given
    if given.endswith((".desc", ".pb", ".binpb", ".protoset")):
        raise NotFound(f"there is no file {given!r} with a descriptor set, which the option 'valueSchema' names")
    return given
