"""Escaping of users' names into portable folder names: no name can act as a path, and no two names share a folder."""

import hashlib
import string

from holdfast.base.errors import InvalidName

__all__ = ["NAME_BYTES_MAX", "abbreviate", "check_name", "escape_name", "name_of"]

NAME_BYTES_MAX = 255
"""The longest name in UTF-8 bytes: the same limit as AMQP's short strings."""

_PLAIN = frozenset((string.ascii_letters + string.digits + "-_.").encode())
_FOLDER_MAX = 180  # leaves space below the file system's 255 for suffixes
_HASHED = "~"  # never produced by escaping, so it marks a folder whose name had to be shortened


def check_name(name: str, what: str = "name") -> bytes:
    """Return the name in UTF-8; raise `InvalidName` if it is not a valid name. `what` names it in the error."""
    if not isinstance(name, str):
        raise InvalidName(f"{what} must be a str, not {type(name).__name__}")
    try:
        raw = name.encode()
    except UnicodeEncodeError as error:
        raise InvalidName(f"{what} {name[:40]!r} cannot be encoded as UTF-8: {error.reason}") from error
    if not raw:
        raise InvalidName(f"{what} must not be empty")
    if len(raw) > NAME_BYTES_MAX:
        raise InvalidName(f"{what} has {len(raw)} bytes in UTF-8; the limit is {NAME_BYTES_MAX}: {name[:20]!r}...")
    return raw


def abbreviate(name: str, most: int) -> str:
    """Return the name or, if it has more bytes than `most`, its beginning and a digest: two names never collide."""
    raw = name.encode()
    if len(raw) <= most:
        return name
    digest = hashlib.blake2b(raw, digest_size=8).hexdigest()
    return f"{raw[: most - 17].decode('utf-8', 'ignore')}~{digest}"


def escape_name(name: str, what: str = "name") -> str:
    """Return a single, portable path component for the name; two names never share one."""
    raw = check_name(name, what)
    # A leading dot is escaped too, so that `.` and `..` have no special meaning and no folder is hidden.
    escaped = "".join(
        chr(byte) if byte in _PLAIN and not (position == 0 and byte == 0x2E) else f"%{byte:02X}"
        for position, byte in enumerate(raw)
    )
    if len(escaped) <= _FOLDER_MAX:
        return escaped
    # Cut before an escape, never inside one, so that the readable part stays readable.
    kept = escaped[: _FOLDER_MAX - 33]
    kept = kept[: kept.rfind("%")] if "%" in kept[-2:] else kept
    return f"{kept}{_HASHED}{hashlib.blake2b(raw, digest_size=16).hexdigest()}"


def name_of(folder: str) -> str | None:
    """Return the name that a folder was made from; None if it was shortened, or is not an escaped name."""
    if _HASHED in folder:
        return None
    raw = bytearray()
    parts = folder.split("%")
    try:
        raw += parts[0].encode("ascii")
        for part in parts[1:]:
            raw.append(int(part[:2], 16))
            raw += part[2:].encode("ascii")
        name = raw.decode()
        return name if escape_name(name) == folder else None
    except (ValueError, UnicodeDecodeError, InvalidName):
        return None
