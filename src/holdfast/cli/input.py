"""Payloads, keys and headers from the command line, a file, or the lines of standard input."""

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

__all__ = ["STANDARD_INPUT", "given_payloads", "key_of", "parse_headers", "read_file_payload", "standard_input_lines"]

STANDARD_INPUT = "-"
"""The argument that means standard input."""
_CHUNK = 1 << 20


def key_of(argument: str | None) -> bytes | None:
    """Return the bytes of the typed key, in any locale; None without one."""
    return None if argument is None else os.fsencode(argument)


def parse_headers(given: list[str] | None) -> Headers:
    """Parse headers from repeated `K=V`."""
    headers: dict[str, str] = {}
    for item in given or ():
        name, separator, value = item.partition("=")
        if not separator or not name:
            raise UsageError(f"--header {item!r} is not of the form K=V")
        if name in headers:
            raise UsageError(f"the header {name!r} is given twice")
        headers[name] = value
    return headers


def given_payloads(payloads: list[str], file: Path | None, action: str) -> list[bytes] | None:
    """Return the payloads that were given as arguments or as a file; None if lines are to be read."""
    if file is not None:
        if payloads:
            raise UsageError("give a PAYLOAD or --file PATH, not both")
        return [read_file_payload(file)]
    if not payloads:
        raise UsageError(f"nothing to {action}: give a PAYLOAD, --file PATH, or - for lines from standard input")
    if STANDARD_INPUT not in payloads:
        return list(map(os.fsencode, payloads))
    if len(payloads) > 1:
        raise UsageError("- means all lines of standard input: give no other PAYLOAD")
    return None


def read_file_payload(file: Path) -> bytes:
    """Return the content of a file."""
    try:
        return file.read_bytes()
    except OSError as error:
        raise storage_error(error, "reading", file) from error


def standard_input_lines(doing: str, longest: int, *, shown: bool) -> Iterator[list[bytes]]:
    """Yield the lines of standard input as they arrive, many at a time, with a progress bar.

    A line that is longer than `longest` is yielded before it is complete, so that it is rejected.
    """
    source = sys.stdin.buffer
    with byte_progress(shown=shown) as progress:
        bar = progress.add_task(doing, total=_size_of(source))
        for lines, size in _batches(source, longest):
            yield lines
            progress.update(bar, advance=size)


def _batches(source: BinaryIO, longest: int) -> Iterator[tuple[list[bytes], int]]:
    """Yield lines as they arrive, and their size: few at a time from a slow source, many at a time from a fast one."""
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
            if len(rest) > longest:  # the log rejects it, before it fills the memory
                break
    if rest:
        yield [bytes(rest)], len(rest)


def _size_of(source: BinaryIO) -> int | None:
    """Return the size of the source in bytes if it is a file, else None."""
    with contextlib.suppress(OSError, ValueError):
        status = os.fstat(source.fileno())
        if stat.S_ISREG(status.st_mode):
            return status.st_size
    return None
