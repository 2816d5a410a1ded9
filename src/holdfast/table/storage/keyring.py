"""Keyring for sensitive fields: the current key encrypts, and all of its named keys decrypt."""

import contextlib
import os
import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from holdfast.base.errors import Corrupt, HoldfastError, InvalidArgument, NotFound
from holdfast.base.paths import local_path
from holdfast.table.storage.keyring_file import Kept, changing, no_keyring, put_keys, read_keys

__all__ = ["KEY_BYTES", "WITHOUT_KEYS", "Cipher", "EncryptionMissing", "KeyMissing", "Keyring"]

KEY_BYTES = 32
"""Bytes of each key: of AES-256, and of the key that hides unique values."""
_NAME = re.compile(r"[\x21-\x7e]{1,64}")


WITHOUT_KEYS: Any = object()
"""Instead of a keyring, for a table that is opened read-only: sensitive values in its records are absent."""


class KeyMissing(HoldfastError):
    """A value was sealed with a key that the keyring does not have."""


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
    """The package `cryptography` is not installed."""


class Cipher(Protocol):
    """AES-GCM with one key."""

    def encrypt(self, nonce: bytes, data: bytes, associated_data: bytes | None) -> bytes:
        """Return the ciphertext followed by its tag."""
        ...

    def decrypt(self, nonce: bytes, data: bytes, associated_data: bytes | None) -> bytes:
        """Return the plaintext; raises if the nonce, the data or the associated data were changed."""
        ...


class Keyring:
    """The keys of sensitive fields.

    If a key is lost, the values that it sealed are lost: keep a copy of the file apart from the store and its backups.
    A key can seal about four thousand million values safely, so rotate long before that. May be used from any thread.
    Several keyrings, in several processes too, may share one file: each change begins with the present content of it.
    """

    def __init__(self, *, keys: Mapping[str, bytes], current: str, token_key: bytes) -> None:
        """`keys` by name, of 32 bytes each; `current` seals. `token_key` hides unique values in the state."""
        for name, key in keys.items():
            _check_name(name)
            _check_key(key, f"the key {name!r}")
        _check_key(token_key, "token_key")
        if current not in keys:
            raise InvalidArgument(f"the current key {current!r} is not in the keyring; there are: {_few(keys)}")
        self._keys = dict(keys)
        self._current = current
        self._token_key = bytes(token_key)
        self._ciphers: dict[str, Cipher] = {}
        self._guard = threading.Lock()
        self._path: Path | None = None

    @classmethod
    def generate(cls, name: str | None = None) -> "Keyring":
        """Return a keyring of new keys; `save` it before anything is sealed with it."""
        name = name or _today()
        return cls(keys={name: os.urandom(KEY_BYTES)}, current=name, token_key=os.urandom(KEY_BYTES))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Keyring":
        """Load a saved keyring. Later changes of it are saved to the same file before they are used."""
        file = local_path(path, "a keyring")
        kept = read_keys(file)
        try:
            ring = cls(keys=kept.keys, current=kept.current, token_key=kept.token_key)
        except (InvalidArgument, TypeError) as error:
            raise no_keyring(file) from (error if isinstance(error, InvalidArgument) else None)
        ring._path = file
        return ring

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write all keys to a file that only this user can read; durable when this returns.

        A file with keys that this keyring lacks is not replaced, as the values that they sealed would be lost; with
        `overwrite` it is.
        """
        file = local_path(path, "a keyring")
        with self._guard, changing(file):
            if not overwrite:
                self._check_replaceable(file)
            put_keys(file, Kept(self._keys, self._current, self._token_key))
            self._path = file

    @property
    def current(self) -> str:
        """Return the name of the key that seals."""
        return self._current

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of all keys, the oldest first."""
        return tuple(self._keys)

    @property
    def token_key(self) -> bytes:
        """Return the key that hides unique values in the state."""
        return self._token_key

    def rotate(self, name: str | None = None, key: bytes | None = None) -> str:
        """Seal with a new key from now on, and return its name; the old keys still decrypt."""

        def change(kept: Kept) -> Kept:
            new = name or _today(kept.keys)
            _check_name(new)
            if new in kept.keys:
                raise InvalidArgument(f"the keyring already has a key {new!r}: give the new one another name")
            added = os.urandom(KEY_BYTES) if key is None else key
            _check_key(added, f"the key {new!r}")
            return Kept({**kept.keys, new: bytes(added)}, new, kept.token_key)

        return self._change(change).current

    def rotate_tokens(self) -> None:
        """Hide unique values with a new key. Each table with such values is rebuilt when it is next opened."""
        self._change(lambda kept: replace(kept, token_key=os.urandom(KEY_BYTES)))

    def drop(self, name: str) -> None:
        """Delete a key that is not the current one. Values that it sealed cannot be read any more: see `keys_used`."""

        def change(kept: Kept) -> Kept:
            if name == kept.current:
                raise InvalidArgument(f"the key {name!r} is the current one: rotate first")
            if name not in kept.keys:
                raise InvalidArgument(f"the keyring has no key {name!r}; there are: {_few(kept.keys)}")
            return replace(kept, keys={other: key for other, key in kept.keys.items() if other != name})

        self._change(change)

    def cipher(self, name: str) -> Cipher:
        """Return the cipher of a key. Raises `KeyMissing`, or `EncryptionMissing` without the package."""
        found = self._ciphers.get(name)
        if found is None:
            key = self._keys.get(name)
            if key is None:
                raise KeyMissing(
                    f"this was sealed with the key {name!r}, which the keyring does not have; it has: "
                    f"{_few(self._keys)}. Restore the key from a copy of the keyring: nothing else can read this"
                )
            found = _aes_gcm()(key)
            self._ciphers[name] = found
        return found

    def __contains__(self, name: object) -> bool:
        return name in self._keys

    def __repr__(self) -> str:
        return f"<Keyring of {', '.join(self._keys)}; current {self._current}>"

    def __reduce__(self) -> Any:
        raise TypeError("a keyring cannot be pickled, to protect its keys: load it where it is needed")

    def _change(self, change: Callable[[Kept], Kept]) -> Kept:
        """Change the keys, first on disk: values sealed with an unsaved key would be lost."""
        with self._guard, contextlib.ExitStack() as stack:
            kept = Kept(self._keys, self._current, self._token_key)
            if self._path is not None:
                stack.enter_context(changing(self._path))
                kept = self._kept_now(self._path, kept)
            kept = change(kept)
            if self._path is not None:
                put_keys(self._path, kept)
            self._keys, self._current, self._token_key = dict(kept.keys), kept.current, kept.token_key
            self._ciphers = {name: cipher for name, cipher in self._ciphers.items() if name in kept.keys}
            return kept

    def _kept_now(self, file: Path, mine: Kept) -> Kept:
        """Return the keys in the file: another keyring, here or in another process, may have changed it since."""
        try:
            kept = read_keys(file)
        except NotFound:
            return mine  # there is no file, so no key can be lost
        known = mine.keys.items() & kept.keys.items()
        if len(known) < len(mine.keys.keys() & kept.keys.keys()) or mine.current not in kept.keys:
            raise InvalidArgument(
                f"the keyring {str(file)!r} was replaced since it was read, and no longer has the key "
                f"{mine.current!r} of this one: load it again, or save this one to another file"
            )
        return kept

    def _check_replaceable(self, file: Path) -> None:
        try:
            kept = read_keys(file, private=False)
        except NotFound:
            return
        except Corrupt as error:
            raise InvalidArgument(
                f"{str(file)!r} exists and is not a keyring: save to another file, or give overwrite=True"
            ) from error
        lost = [repr(name) for name, key in kept.keys.items() if self._keys.get(name) != key]
        if kept.token_key != self._token_key:
            lost.append("its token_key")
        if lost:
            raise InvalidArgument(
                f"the keyring {str(file)!r} has keys that this one lacks ({', '.join(lost)}), and the values they "
                "sealed would be lost: load it and rotate, save to another file, or give overwrite=True"
            )


def _aes_gcm() -> Any:
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415  # only for who seals
    except ImportError as error:
        raise EncryptionMissing(
            "sensitive fields need the package cryptography, which is not installed: "
            "run pip install 'holdfast[encryption]'"
        ) from error
    return AESGCM


def _check_name(name: object) -> None:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidArgument(f"the name of a key is {name!r}: it must be 1 to 64 visible ASCII characters, as '2026a'")


def _check_key(key: object, what: str) -> None:
    if not isinstance(key, bytes) or len(key) != KEY_BYTES:
        raise InvalidArgument(f"{what} must be {KEY_BYTES} random bytes, as os.urandom({KEY_BYTES}) gives")


def _today(taken: Mapping[str, bytes] | None = None) -> str:
    """Return an unused key name: the date in UTC, with a number from 2 on if that is taken."""
    day = datetime.now(UTC).strftime("%Y-%m-%d")
    name, count = day, 1
    while taken and name in taken:
        count += 1
        name = f"{day}.{count}"
    return name


def _few(names: Mapping[str, bytes]) -> str:
    return ", ".join(map(repr, names)) or "none"
