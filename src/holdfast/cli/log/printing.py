"""Output of log records: sequence, time, key, headers and payload."""

from holdfast.base.units import iso_time
from holdfast.cli.options import FormatChoice
from holdfast.cli.printing import Printer, body_json
from holdfast.log import Record

__all__ = ["record_json", "record_printer"]


def record_json(record: Record) -> dict[str, object]:
    """Return the record as `--json` shows it."""
    return {
        "sequence": record.sequence,
        "timestamp": record.timestamp,
        "time": iso_time(record.timestamp),
        **body_json(record),
    }


def record_printer(form: FormatChoice, *, json: bool, newline_between: bool = False) -> Printer[Record]:
    """Return a printer of records to standard output."""
    return Printer(record_json, _heading, form, json=json, newline_between=newline_between)


def _heading(record: Record) -> tuple[int, int, list[str]]:
    return record.sequence, record.timestamp, []
