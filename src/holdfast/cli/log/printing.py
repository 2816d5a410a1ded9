"""What does a record look like? As text, as a hex dump, as its bare payload, or as a line of JSON."""

from collections.abc import Callable
from typing import BinaryIO

from holdfast.cli.options import FormatChoice
from holdfast.cli.output import json_bytes, json_line, output_console, safe_text, standard_output
from holdfast.cli.units import format_instant, iso_time
from holdfast.log import Record

__all__ = ["RecordPrinter", "record_json"]

_CYAN, _DIM, _GREEN, _RESET = "\x1b[36m", "\x1b[2m", "\x1b[32m", "\x1b[0m"


def record_json(record: Record) -> dict[str, object]:
    """The record as `--json` shows it."""
    return {
        "sequence": record.sequence,
        "timestamp": record.timestamp,
        "time": iso_time(record.timestamp),
        "key": json_bytes(record.key),
        "headers": {
            name: value if isinstance(value, str) else json_bytes(value) for name, value in record.headers.items()
        },
        "payload": json_bytes(record.payload),
    }


class RecordPrinter:
    """Writes records to standard output in one form; a million of them must not take minutes, so rich is not asked."""

    def __init__(self, form: FormatChoice, *, json: bool, newline_between: bool = False) -> None:
        self._stream: BinaryIO = standard_output()
        self._colored = output_console().color_system is not None
        self._forms: dict[FormatChoice, Callable[[Record], bytes]] = {
            FormatChoice.TEXT: self._text,
            FormatChoice.HEX: self._hex,
            FormatChoice.RAW: self._raw,
        }
        self._render = self._json if json else self._forms[form]
        self._between = newline_between and form is FormatChoice.RAW and not json and not output_console().is_terminal
        self._first = True

    def print(self, record: Record) -> None:
        """Write one record."""
        if self._between and not self._first:
            self._stream.write(b"\n")
        self._first = False
        self._stream.write(self._render(record))

    def flush(self) -> None:
        """Hand everything to the operating system; raises if nobody reads any more."""
        self._stream.flush()

    def _json(self, record: Record) -> bytes:
        return json_line(record_json(record))

    def _raw(self, record: Record) -> bytes:
        return record.payload if self._between else record.payload + b"\n"

    def _text(self, record: Record) -> bytes:
        return f"{self._heading(record)}  {safe_text(record.payload)}\n".encode()

    def _hex(self, record: Record) -> bytes:
        lines = [f"{self._heading(record)}  {len(record.payload)} bytes"]
        for start in range(0, len(record.payload), 16):
            row = record.payload[start : start + 16]
            codes = f"{row[:8].hex(' ')}  {row[8:].hex(' ')}"
            shown = "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in row)
            lines.append(f"    {start:08x}  {codes:<48}  {shown}")
        return ("\n".join(lines) + "\n").encode()

    def _heading(self, record: Record) -> str:
        extras = [] if record.key is None else [f"key={safe_text(record.key)}"]
        for name, value in record.headers.items():
            extras.append(f"{safe_text(name)}={safe_text(value)}")
        sequence, time, extra = str(record.sequence), format_instant(record.timestamp), " ".join(extras)
        if self._colored:
            sequence, time = f"{_CYAN}{sequence}{_RESET}", f"{_DIM}{time}{_RESET}"
            extra = f"{_GREEN}{extra}{_RESET}" if extra else ""
        return f"{sequence}  {time}  {extra}" if extra else f"{sequence}  {time}"
