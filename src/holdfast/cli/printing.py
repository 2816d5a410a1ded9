"""Output of payloads with their metadata: as text, as a hex dump, raw, or as a line of JSON."""

from collections.abc import Callable, Mapping
from typing import BinaryIO, Generic, TypeVar

from holdfast.base.json_payload import Body, body_json
from holdfast.base.units import format_instant
from holdfast.cli.options import FormatChoice
from holdfast.cli.output import json_line, output_console, safe_text, standard_output

__all__ = ["Printer", "body_json"]

_CYAN, _DIM, _GREEN, _RESET = "\x1b[36m", "\x1b[2m", "\x1b[32m", "\x1b[0m"


T = TypeVar("T", bound=Body)


class Printer(Generic[T]):
    """Prints items to standard output in one form; without rich, which takes minutes for a million items."""

    def __init__(
        self,
        as_json: Callable[[T], Mapping[str, object]],
        heading: Callable[[T], tuple[int, int, list[str]]],
        form: FormatChoice,
        *,
        json: bool,
        newline_between: bool = False,
    ) -> None:
        """Make a printer of items that `as_json` shows with `--json`.

        `heading` returns an item's number, its time, and facts that are printed before the key and the headers.
        """
        self._as_json = as_json
        self._heading_of = heading
        self._stream: BinaryIO = standard_output()
        self._colored = output_console().color_system is not None
        self._forms: dict[FormatChoice, Callable[[T], bytes]] = {
            FormatChoice.TEXT: self._text,
            FormatChoice.HEX: self._hex,
            FormatChoice.RAW: self._raw,
        }
        self._render = self._json if json else self._forms[form]
        self._between = newline_between and form is FormatChoice.RAW and not json and not output_console().is_terminal
        self._first = True

    def print(self, thing: T) -> None:
        """Print one item."""
        if self._between and not self._first:
            self._stream.write(b"\n")
        self._first = False
        self._stream.write(self._render(thing))

    def flush(self) -> None:
        """Pass everything to the operating system; raises if the reader is gone."""
        self._stream.flush()

    def _json(self, thing: T) -> bytes:
        return json_line(self._as_json(thing))

    def _raw(self, thing: T) -> bytes:
        return thing.payload if self._between else thing.payload + b"\n"

    def _text(self, thing: T) -> bytes:
        return f"{self._heading(thing)}  {safe_text(thing.payload)}\n".encode()

    def _hex(self, thing: T) -> bytes:
        lines = [f"{self._heading(thing)}  {len(thing.payload)} bytes"]
        for start in range(0, len(thing.payload), 16):
            row = thing.payload[start : start + 16]
            codes = f"{row[:8].hex(' ')}  {row[8:].hex(' ')}"
            shown = "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in row)
            lines.append(f"    {start:08x}  {codes:<48}  {shown}")
        return ("\n".join(lines) + "\n").encode()

    def _heading(self, thing: T) -> str:
        number, timestamp, facts = self._heading_of(thing)
        extras = facts if thing.key is None else [*facts, f"key={safe_text(thing.key)}"]
        for name, value in thing.headers.items():
            extras.append(f"{safe_text(name)}={safe_text(value)}")
        sequence, time, extra = str(number), format_instant(timestamp), " ".join(extras)
        if self._colored:
            sequence, time = f"{_CYAN}{sequence}{_RESET}", f"{_DIM}{time}{_RESET}"
            extra = f"{_GREEN}{extra}{_RESET}" if extra else ""
        return f"{sequence}  {time}  {extra}" if extra else f"{sequence}  {time}"
