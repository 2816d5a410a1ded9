"""Output of log records: sequence, time, key, headers and payload."""

from holdfast.base.units import iso_time
from holdfast.cli.printing import Printer, body_json
from holdfast.log import Record

__all__ = ["RecordPrinter", "record_json"]


def record_json(record: Record) -> dict[str, object]:
    """Return the record as `--json` shows it."""
    return {
        "sequence": record.sequence,
        "timestamp": record.timestamp,
        "time": iso_time(record.timestamp),
        **body_json(record),
    }


class RecordPrinter(Printer[Record]):
    """Prints records to standard output."""

    def as_json(self, thing: Record) -> dict[str, object]:
        """Return the record as `--json` shows it."""
        return record_json(thing)

    def place(self, thing: Record) -> tuple[int, int, list[str]]:
        """Return its sequence and its time."""
        return thing.sequence, thing.timestamp, []
