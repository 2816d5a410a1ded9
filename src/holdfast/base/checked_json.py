"""Small JSON files with a checksum of their own bytes as the last member.

`{"name": "orders", "crc32c": "6f1c3a52"}`: the checksum is the CRC-32C of the object without that member, here of
`{"name": "orders"}`, byte for byte. Files without one were written by earlier versions and are read as they are.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from holdfast.base.checksum import crc32c
from holdfast.base.files import Files, read_file, replace_file

__all__ = ["MEMBER", "decode_checked", "encode_checked", "has_checksum", "read_checked", "replace_checked"]

MEMBER = "crc32c"
_TAIL = re.compile(rb'(?:, )?"crc32c": "([0-9a-f]{8})"\}\n\Z')
_DIGITS = 8


def encode_checked(content: Mapping[str, Any]) -> bytes:
    """Return the object as one line of JSON with its checksum."""
    assert MEMBER not in content, f"{MEMBER!r} is the checksum's own name"
    plain = json.dumps(content, ensure_ascii=False).encode()
    comma = b", " if content else b""
    return b'%s%s"crc32c": "%08x"}\n' % (plain[:-1], comma, crc32c(plain))


def decode_checked(raw: bytes) -> dict[str, Any]:
    """Return the object without its checksum. Raises ValueError if the bytes are not those that were written."""
    tail = _TAIL.search(raw)
    if tail is not None:
        plain = raw[: tail.start()] + b"}"
        if f"{crc32c(plain):08x}".encode() != tail[1]:
            raise ValueError("its checksum does not match")
        return dict(json.loads(plain))
    content = json.loads(raw)
    if not isinstance(content, dict):
        raise ValueError("it does not hold an object")
    name, value = next(reversed(content.items()), ("", None))
    # If the name of the checksum itself was damaged, the file must not be read as one that never had a checksum. No
    # file of an earlier version ends like this.
    if MEMBER in content or (len(name) == len(MEMBER) and isinstance(value, str) and len(value) == _DIGITS):
        raise ValueError("its checksum cannot be read")
    return content


def has_checksum(raw: bytes) -> bool:
    """Return whether the file was written with a checksum."""
    return _TAIL.search(raw) is not None


def read_checked(files: Files, path: Path) -> dict[str, Any]:
    """Read a file. Raises ValueError if it is damaged, and OSError as `read_file` does."""
    return decode_checked(read_file(files, path))


def replace_checked(files: Files, path: Path, content: Mapping[str, Any]) -> None:
    """Replace a file as `replace_file` does, and add a checksum."""
    replace_file(files, path, encode_checked(content))
