"""Keyring file: private to its owner, replaced atomically, and changed by one process at a time."""

import contextlib
import fcntl
import json
import os
import stat
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from holdfast.base.errors import Corrupt, NewerFormat, NotFound, StorageError
from holdfast.base.files import SystemLock, translate_os_errors

__all__ = ["Kept", "changing", "no_keyring", "put_keys", "read_keys"]

_FORMAT = 1
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


@dataclass(frozen=True, slots=True)
class Kept:
    """Content of a keyring file."""

    keys: Mapping[str, bytes]
    current: str
    token_key: bytes


@contextlib.contextmanager
def changing(path: Path) -> Iterator[None]:
    """Hold the lock that excludes changes of the file by other keyrings, in this process or another.

    Files: `<name>.lock` next to it, which stays. Rejected: a lock on the file itself, as each change replaces the file,
    and one on the folder, which NFS does not grant.
    """
    with translate_os_errors("locking the keyring", path):
        fd = os.open(path.with_name(f"{path.name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        lock = SystemLock(fd)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
        except BaseException:
            lock.release()
            raise
    try:
        yield
    finally:
        lock.release()


def read_keys(path: Path, *, private: bool = True) -> Kept:
    """Return the content of a file; with `private` only if no other user can access it."""
    try:
        with translate_os_errors("reading the keyring", path), path.open("rb") as opened:
            mode = os.fstat(opened.fileno()).st_mode  # of the opened file, not of one that may replace it
            if private and mode & _OTHERS:
                raise StorageError(
                    f"other users can access the keyring {str(path)!r} (mode {stat.S_IMODE(mode):o}): "
                    f"run chmod 600 {str(path)!r}, and rotate its keys if another user may have read it"
                )
            raw = opened.read()
    except StorageError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            raise NotFound(
                f"there is no keyring {str(path)!r}: check the path, or make one with Keyring.generate().save(path)"
            ) from error
        raise
    return _parsed(raw, path)


def put_keys(path: Path, kept: Kept) -> None:
    """Replace the file atomically with one that only its owner can read; durable when this returns."""
    content = {
        "format": _FORMAT,
        "current": kept.current,
        "keys": {name: b64encode(key).decode() for name, key in kept.keys.items()},
        "token_key": b64encode(kept.token_key).decode(),
    }
    with translate_os_errors("writing the keyring", path):
        _replace_private(path, json.dumps(content, indent=2).encode() + b"\n")


def _parsed(raw: bytes, path: Path) -> Kept:
    try:
        content = json.loads(raw)
        version = content["format"]
        if version == _FORMAT:
            keys = {name: b64decode(key, validate=True) for name, key in content["keys"].items()}
            return Kept(keys, content["current"], b64decode(content["token_key"], validate=True))
    except (ValueError, KeyError, TypeError, AttributeError):
        # Without the text of the error: it may quote a key.
        raise no_keyring(path) from None
    raise NewerFormat(f"the format {version!r} of the keyring {str(path)!r} is unknown: open it with a newer Holdfast")


def no_keyring(path: Path) -> Corrupt:
    """Return the error for a file that is not a keyring."""
    return Corrupt(f"{str(path)!r} is not a keyring: restore it from a copy", str(path))


def _replace_private(path: Path, data: bytes) -> None:
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    with contextlib.suppress(FileNotFoundError):  # left by a crash
        temporary.unlink()
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with open(fd, "wb") as file:  # noqa: PTH123  # made with its mode: at no time can others read it
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
