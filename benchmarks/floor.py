"""What can bare Python do? The loops that everything else is measured against."""

import mmap
import os
import struct
import time
from pathlib import Path

from fastcrc import crc32

from benchmarks.harness import timed

__all__ = ["HEADER", "clockless_floor", "read_floor", "sync_floor", "write_floor"]

HEADER = struct.Struct("<IIQq")
"""Length, CRC-32C, sequence and time: what every record of a log has."""
_CLOCKLESS = struct.Struct("<IIQ")
_BUFFER = 64 * 1024


def write_floor(path: Path, payloads: list[bytes]) -> float:
    """Seconds a record to frame, gather and hand to the operating system, 64 KiB at a time."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)

    def write() -> None:
        pack, checksum, now = HEADER.pack, crc32.iscsi, time.time_ns
        buffer = bytearray()
        for sequence, payload in enumerate(payloads):
            buffer += pack(len(payload), checksum(payload), sequence, now())
            buffer += payload
            if len(buffer) >= _BUFFER:
                os.write(fd, buffer)
                buffer.clear()
        os.write(fd, buffer)

    try:
        return timed(write) / len(payloads)
    finally:
        os.close(fd)


def clockless_floor(path: Path, payloads: list[bytes]) -> float:
    """The write floor without a time in each record: less than a log must do, and so only for context.

    The loop is written out again: a floor that calls something it shares with another is no floor.
    """
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)

    def write() -> None:
        pack, checksum = _CLOCKLESS.pack, crc32.iscsi
        buffer = bytearray()
        for sequence, payload in enumerate(payloads):
            buffer += pack(len(payload), checksum(payload), sequence)
            buffer += payload
            if len(buffer) >= _BUFFER:
                os.write(fd, buffer)
                buffer.clear()
        os.write(fd, buffer)

    try:
        return timed(write) / len(payloads)
    finally:
        os.close(fd)


def read_floor(path: Path, count: int) -> float:
    """Seconds a record to map the file of `write_floor` and unpack, slice and check each one."""

    def read() -> None:
        unpack, checksum = HEADER.unpack_from, crc32.iscsi
        size = HEADER.size
        found = 0
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as memory:
            offset, end = 0, len(memory)
            while offset < end:
                length, crc, _sequence, _time = unpack(memory, offset)
                offset += size
                payload = memory[offset : offset + length]
                if checksum(payload) != crc:
                    raise ValueError(f"record {found} is damaged")
                offset += length
                found += 1
        assert found == count

    return timed(read) / count


def sync_floor(path: Path, payloads: list[bytes]) -> float:
    """Seconds a record to write each one and wait for the disk before the next."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)

    def write() -> None:
        for sequence, payload in enumerate(payloads):
            os.write(fd, HEADER.pack(len(payload), crc32.iscsi(payload), sequence, time.time_ns()) + payload)
            os.fdatasync(fd)

    try:
        return timed(write) / len(payloads)
    finally:
        os.close(fd)
