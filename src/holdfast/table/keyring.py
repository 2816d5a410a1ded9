"""Which keys seal what is sensitive? A ring of named ones: the current one seals, and all of them open."""

import contextlib
import json
import os
import re
import stat
import threading
from base64 import b64decode, b64encode
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from holdfast.base.errors import Corrupt, HoldfastError, InvalidArgument, NewerFormat, NotFound, StorageError
from holdfast.base.files import errors_as_ours

__all__ = ["KEY_BYTES", "WITHOUT_KEYS", "Cipher", "EncryptionMissing", "KeyMissing", "Keyring"]

KEY_BYTES = 32
"""Of each key: AES-256, and as long for the unique values."""
_FORMAT = 1
_NAME = re.compile(r"[\x21-\x7e]{1,64}")
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


WITHOUT_KEYS: Any = object()
"""In place of a keyring, for a table that is opened read-only: what is sensitive in its records is absent."""


class KeyMissing(HoldfastError):
    """Something was sealed with a key that the keyring does not have."""


class KeyringNeeded(InvalidArgument):
    """A table with sensitive fields was opened without a keyring."""

    def __init__(self, model: str, fields: str) -> None:
        super().__init__(
            f"{model} has sensitive fields ({fields}): open its table with keyring=Keyring.load(path); a new one is "
            "made with Keyring.generate().save(path)"
        )
        self.model = model
        self.fields = fields


class EncryptionMissing(HoldfastError, ImportError):
    """The package that encrypts is not installed."""


class Cipher(Protocol):
    """AES-GCM with one key."""

    def encrypt(self, nonce: bytes, data: bytes, associated_data: bytes | None) -> bytes:
        """The ciphertext and its tag."""
        ...

    def decrypt(self, nonce: bytes, data: bytes, associated_data: bytes | None) -> bytes:
        """What was encrypted; raises if anything of it is not as it was."""
        ...


class Keyring:
    """The keys of sensitive fields.

    Lose a key, and what it sealed is lost: keep a copy of the file apart from the store and its backups. A key can seal
    about four thousand million values safely, so rotate long before that. May be used from any thread.
    """

    def __init__(self, *, keys: Mapping[str, bytes], current: str, token_key: bytes) -> None:
        """`keys` by name, of 32 bytes each; `current` seals. `token_key` hides unique values in the state."""
        for name, key in keys.items():
            _check_name(name)
            _check_key(key, f"the key {name!r}")
        _check_key(token_key, "token_key")
        if current not in keys:
            raise InvalidArgument(f"the current key {current!r} is not one of the keyring; there are: {_few(keys)}")
        self._keys = dict(keys)
        self._current = current
        self._token_key = bytes(token_key)
        self._ciphers: dict[str, Cipher] = {}
        self._guard = threading.Lock()
        self._path: Path | None = None

    @classmethod
    def generate(cls, name: str | None = None) -> "Keyring":
        """A keyring of new keys; `save` it before anything is sealed with it."""
        name = name or _today()
        return cls(keys={name: os.urandom(KEY_BYTES)}, current=name, token_key=os.urandom(KEY_BYTES))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Keyring":
        """Read a keyring that was saved. What is changed in it later is saved there too, before it is used."""
        file = Path(path)
        try:
            with errors_as_ours("reading the keyring", file), file.open("rb") as opened:
                mode = os.fstat(opened.fileno()).st_mode  # of what was opened, not of what stands there a moment later
                if mode & _OTHERS:
                    raise StorageError(
                        f"others than its owner can use the keyring {str(file)!r} (mode {stat.S_IMODE(mode):o}): "
                        f"say chmod 600 {str(file)!r}, and rotate its keys if somebody may have read it"
                    )
                raw = opened.read()
        except StorageError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                raise NotFound(
                    f"there is no keyring {str(file)!r}: check the path, or make one with Keyring.generate().save(path)"
                ) from error
            raise
        ring = _read(raw, file)
        ring._path = file
        return ring

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write all keys to a file that only this user can read; durable when this returns."""
        with self._guard:
            self._path = Path(path)
            self._write(self._keys, self._current, self._token_key)

    @property
    def current(self) -> str:
        """The name of the key that seals."""
        return self._current

    @property
    def names(self) -> tuple[str, ...]:
        """Of all keys, the oldest first."""
        return tuple(self._keys)

    @property
    def token_key(self) -> bytes:
        """What hides unique values in the state."""
        return self._token_key

    def rotate(self, name: str | None = None, key: bytes | None = None) -> str:
        """Seal with a new key from here on; the old ones still open what they sealed. The name of the new one."""
        with self._guard:
            name = name or _today(self._keys)
            _check_name(name)
            if name in self._keys:
                raise InvalidArgument(f"the keyring has a key {name!r} already: give the new one another name")
            key = os.urandom(KEY_BYTES) if key is None else key
            _check_key(key, f"the key {name!r}")
            keys = {**self._keys, name: bytes(key)}
            self._write(keys, name, self._token_key)  # first: what is sealed with a key that was lost is lost
            self._keys, self._current = keys, name
            return name

    def rotate_tokens(self) -> None:
        """Hide unique values with another key: when a table is next opened, they are all made anew."""
        with self._guard:
            token_key = os.urandom(KEY_BYTES)
            self._write(self._keys, self._current, token_key)
            self._token_key = token_key

    def drop(self, name: str) -> None:
        """Forget a key, and with it all that it sealed; `keys_used` tells whether that is anything."""
        with self._guard:
            if name == self._current:
                raise InvalidArgument(f"the key {name!r} is the current one: rotate first")
            if name not in self._keys:
                raise InvalidArgument(f"the keyring has no key {name!r}; there are: {_few(self._keys)}")
            keys = {other: key for other, key in self._keys.items() if other != name}
            self._write(keys, self._current, self._token_key)
            self._keys = keys
            self._ciphers.pop(name, None)

    def cipher(self, name: str) -> Cipher:
        """What seals and opens with a key."""
        found = self._ciphers.get(name)
        if found is None:
            key = self._keys.get(name)
            if key is None:
                raise KeyMissing(
                    f"this was sealed with the key {name!r}, which the keyring does not have; it has: "
                    f"{_few(self._keys)}. Put it back from a copy of the keyring: there is no other way to read this"
                )
            found = _aes_gcm()(key)
            self._ciphers[name] = found
        return found

    def __contains__(self, name: object) -> bool:
        return name in self._keys

    def __repr__(self) -> str:
        return f"<Keyring of {', '.join(self._keys)}; current {self._current}>"

    def __reduce__(self) -> Any:
        raise TypeError("a keyring is not pickled, lest its keys lie about: load it where it is needed")

    def _write(self, keys: Mapping[str, bytes], current: str, token_key: bytes) -> None:
        if self._path is None:
            return
        content = {
            "format": _FORMAT,
            "current": current,
            "keys": {name: b64encode(key).decode() for name, key in keys.items()},
            "token_key": b64encode(token_key).decode(),
        }
        with errors_as_ours("writing the keyring", self._path):
            _replace_private(self._path, json.dumps(content, indent=2).encode() + b"\n")


def _read(raw: bytes, file: Path) -> Keyring:
    try:
        content = json.loads(raw)
        version = content["format"]
        if version == _FORMAT:
            return Keyring(
                keys={name: b64decode(key, validate=True) for name, key in content["keys"].items()},
                current=content["current"],
                token_key=b64decode(content["token_key"], validate=True),
            )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        # Without the text of the error: it may quote a key.
        raise Corrupt(f"{str(file)!r} is no keyring: put it back from a copy", str(file)) from (
            error if isinstance(error, InvalidArgument) else None
        )
    raise NewerFormat(f"the keyring {str(file)!r} has the format {version!r}: open it with a newer Holdfast")


def _replace_private(path: Path, data: bytes) -> None:
    """Put a file in place that only its owner can read, wholly or not at all."""
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


def _aes_gcm() -> Any:
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415  # only for who seals
    except ImportError as error:
        raise EncryptionMissing(
            "sensitive fields are sealed by the package cryptography, which is not here: "
            "say pip install 'holdfast[encryption]'"
        ) from error
    return AESGCM


def _check_name(name: object) -> None:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidArgument(f"the name of a key is {name!r}: it must be 1 to 64 visible ASCII characters, as '2026a'")


def _check_key(key: object, what: str) -> None:
    if not isinstance(key, bytes) or len(key) != KEY_BYTES:
        raise InvalidArgument(f"{what} must be {KEY_BYTES} random bytes, as os.urandom({KEY_BYTES}) gives")


def _today(taken: Mapping[str, bytes] | None = None) -> str:
    """A name that no key has: the day, and a letter if need be."""
    day = datetime.now(UTC).strftime("%Y-%m-%d")
    name, count = day, 1
    while taken and name in taken:
        count += 1
        name = f"{day}.{count}"
    return name


def _few(names: Mapping[str, bytes]) -> str:
    return ", ".join(map(repr, names)) or "none"
