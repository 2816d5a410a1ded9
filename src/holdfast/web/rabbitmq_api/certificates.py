"""Expiry of a certificate, parsed from its PEM file without a cryptography library."""

import base64
import binascii
import re
from datetime import UTC, datetime
from pathlib import Path

from holdfast.base.errors import InvalidArgument

__all__ = ["not_after"]

_PEM = re.compile(rb"-----BEGIN CERTIFICATE-----(.+?)-----END CERTIFICATE-----", re.DOTALL)
_SEQUENCE, _UTC_TIME, _VERSION = 0x30, 0x17, 0xA0


def not_after(file: Path) -> datetime:
    """Return the earliest expiry of the certificates in a PEM file; raise `InvalidArgument` if there is none."""
    try:
        found = _PEM.findall(file.read_bytes())
        ends = [_end(base64.b64decode(b"".join(text.split()), validate=True)) for text in found]
    except (OSError, binascii.Error, ValueError, IndexError) as error:
        raise InvalidArgument(f"the certificate {str(file)!r} cannot be read: {error}") from error
    if not ends:
        raise InvalidArgument(f"there is no certificate in {str(file)!r}")
    return min(ends)


def _end(der: bytes) -> datetime:
    """Return the second time of the validity, which follows serial number, algorithm and issuer."""
    _, at, _ = _element(der, 0)
    _, at, _ = _element(der, at)
    tag, _, following = _element(der, at)
    fields = 3 if tag == _VERSION else 2
    at = following
    for _ in range(fields):
        _, _, at = _element(der, at)
    tag, at, _ = _element(der, at)
    if tag != _SEQUENCE:
        raise ValueError("its validity is missing")
    _, _, at = _element(der, at)
    tag, start, stop = _element(der, at)
    text = der[start:stop].decode("ascii").rstrip("Z")
    if tag == _UTC_TIME:  # a year of two digits: up to 49 it is in this century
        text = ("20" if int(text[:2]) < 50 else "19") + text
    return datetime.strptime(text, "%Y%m%d%H%M%S").replace(tzinfo=UTC)


def _element(der: bytes, at: int) -> tuple[int, int, int]:
    """Return the tag of an element, and where its content begins and ends."""
    tag, length, at = der[at], der[at + 1], at + 2
    if length & 0x80:
        size = length & 0x7F
        length = int.from_bytes(der[at : at + size], "big")
        at += size
    return tag, at, at + length
