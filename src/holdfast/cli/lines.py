"""What is to be written? Payloads and headers from the command line, a file, or the lines of standard input."""

import contextlib
import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from holdfast.base.errors import storage_error
from holdfast.cli.options import UsageError
from holdfast.cli.output import byte_progress
from holdfast.log import Headers

__all__ = ["STANDARD_INPUT", "key_of", "parse_headers", "payload_of", "read_file_payload", "standard_input_lines"]

STANDARD_INPUT = "-"
"""In place of a payload: one a line from standard input."""
_CHUNK = 1 << 20


def payload_of(argument: str) -> bytes:
    """The bytes that were typed, whatever the locale."""
    return os.fsencode(argument)


def key_of(argument: str | None) -> bytes | None:
    """The key that was typed, if any."""
    return None if argument is None else os.fsencode(argument)


def parse_headers(given: list[str] | None) -> Headers:
    """Headers from `K=V`, as often as that was given."""
    headers: dict[str, str] = {}
    for item in given or ():
        name, separator, value = item.partition("=")
        if not separator or not name:
            raise UsageError(f"--header {item!r} is not of the form K=V")
        if name in headers:
            raise UsageError(f"the header {name!r} is given twice")
        headers[name] = value
    return headers


def read_file_payload(file: Path) -> bytes:
    """The content of a file."""
    try:
        return file.read_bytes()
    except OSError as error:
        raise storage_error(error, "reading", file) from error


def standard_input_lines(doing: str, longest: int, *, shown: bool) -> Iterator[list[bytes]]:
    """The lines of standard input as they arrive, many at a time, with a bar of how much was taken.

    A line that is longer than `longest` is handed out before it is whole, to be refused.
    """
    source = sys.stdin.buffer
    with byte_progress(shown=shown) as progress:
        bar = progress.add_task(doing, total=_size_of(source))
        for lines, size in _batches(source, longest):
            yield lines
            progress.update(bar, advance=size)


def _batches(source: BinaryIO, longest: int) -> Iterator[tuple[list[bytes], int]]:
    """Lines as they arrive, and their bytes: a slow source is not waited for, a fast one comes in large parts."""
    rest = bytearray()
    while chunk := source.read1(_CHUNK):  # type: ignore[attr-defined]
        cut = chunk.rfind(b"\n") + 1
        if cut:
            rest += chunk[:cut]
            lines = bytes(rest).split(b"\n")
            yield lines[:-1], len(rest)
            rest = bytearray(chunk[cut:])
        else:
            rest += chunk
            if len(rest) > longest:  # the log refuses it, and says why, before it fills the memory
                break
    if rest:
        yield [bytes(rest)], len(rest)


def _size_of(source: BinaryIO) -> int | None:
    """How many bytes will come, where that is known."""
    with contextlib.suppress(OSError, ValueError):
        status = os.fstat(source.fileno())
        if stat.S_ISREG(status.st_mode):
            return status.st_size
    return None
