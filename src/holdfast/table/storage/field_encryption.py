"""Encryption of sensitive fields at rest: each value is sealed for its record and field with AES-GCM.

In an image the value of a sensitive field is a msgpack extension of type 1: `version u8 (1), length of the key's name
u8, name, nonce (12 bytes), ciphertext and tag (16 bytes)`. The plaintext is the field's own msgpack. The associated
data are the model's id, the field's number and the record's key, so a value that is moved to another field or record
does not open. A field that is None is not in the image: its absence is visible, and so is the approximate length of a
value.

Not protected against: an attacker with write access to the disk who restores an older value of the same field and
record.
"""

import hmac
import os
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec

from holdfast.base.errors import Corrupt, HoldfastError, InvalidArgument
from holdfast.log.log import Log
from holdfast.table.model.fields import FieldSpec
from holdfast.table.model.model import Model, ModelSpec, text_of_key
from holdfast.table.storage.keyring import WITHOUT_KEYS, KeyMissing, Keyring, KeyringNeeded
from holdfast.table.storage.order_preserving_encoding import encode as ordered
from holdfast.table.storage.row_codec import Event, EventKind, Images, Row, decode_event, encode_event, plain_images
from holdfast.table.storage.staging import Step
from holdfast.table.storage.table_state import after

if TYPE_CHECKING:
    from holdfast.table.engine import TableEngine
    from holdfast.table.table import Table

__all__ = [
    "SealBroken",
    "check_sealable",
    "check_tokens",
    "images_of",
    "key_names",
    "keys_used",
    "open_image",
    "reseal",
    "sealed_images",
    "token_mark",
]

_SEAL = 1
"""The type of the extension."""
_VERSION = 1
_NONCE_BYTES = 12
_TAG_BYTES = 16
_FIELD_DOMAIN = b"holdfast field 1\0"
_TOKEN_DOMAIN = b"holdfast unique 1\0"
_MARK_DOMAIN = b"holdfast tokens 1\0"
_TOKENS = b"\0tokens"
_BATCH = 500

_raw_map = msgspec.msgpack.Decoder(dict[str, msgspec.Raw])
_anything = msgspec.msgpack.Decoder()
_encode = msgspec.msgpack.Encoder().encode

M = TypeVar("M", bound=Model)


class SealBroken(Corrupt):
    """A sealed value cannot be opened: it was changed, or belongs to another record or field."""


class _Sealed(NamedTuple):
    """The parts of a sealed value."""

    key_name: str
    nonce: bytes
    ciphertext: bytes


def images_of(model: type[Model], keyring: Keyring | None, unsealed: Collection[int] = ()) -> Images:
    """Return the codec of a model's records: plain if nothing is sensitive, else sealed.

    `unsealed` are the numbers of fields that were not always sensitive. Raises `KeyringNeeded` without a keyring.
    """
    if model.__spec__.plain and keyring in (None, WITHOUT_KEYS):
        return plain_images(model)
    if keyring is WITHOUT_KEYS:
        return replace(plain_images(model), decode=lambda key, image: open_image(model, None, key, image))
    if keyring is None:
        fields = ", ".join(name for name, field in model.__spec__.fields.items() if field.sensitive)
        raise KeyringNeeded(model.__name__, fields)
    return sealed_images(model, keyring, accept_unsealed=unsealed)


def sealed_images(model: type[Model], keyring: Keyring, *, accept_unsealed: bool | Collection[int] = False) -> Images:
    """Return the codec of images whose sensitive fields are sealed.

    With `accept_unsealed`, of all fields or of those with these numbers, a value that was stored before its field
    became sensitive is read as it is, otherwise it is refused. A value that was sealed before its field was no longer
    sensitive is opened in any case.
    """
    spec = model.__spec__
    legible = spec.numbers.keys() if accept_unsealed is True else frozenset(accept_unsealed or ())
    check_sealable(spec)
    keyring.cipher(keyring.current)  # raises now, and not at the first record, if a key or the package is missing
    sealed = {str(field.number): field for field in spec.fields.values() if field.sensitive}
    context = {name: _context(spec, field.number) for name, field in sealed.items()}
    decode_plain = model.decode
    # The present key: all unique values of a table use one key, which changes with a rebuild.
    token_key = keyring.token_key
    token_context = {number: _TOKEN_DOMAIN + _context(spec, number) for number in spec.numbers}

    def encode(key: bytes, record: Any) -> bytes:
        image: bytes = record.encode()
        if not sealed:
            return image
        values: dict[str, Any] = _raw_map.decode(image)
        for name in sealed:
            value = values.get(name)
            if value is not None:
                values[name] = _seal(keyring, bytes(value), context[name] + key)
        return _encode(values)

    def decode(key: bytes, image: bytes) -> Any:
        try:
            if not sealed:
                return decode_plain(image)
            values: dict[str, Any] = _raw_map.decode(image)
            for name, field in sealed.items():
                value = values.get(name)
                if value is None:
                    continue
                extension = _anything.decode(value)
                if type(extension) is msgspec.msgpack.Ext and extension.code == _SEAL:
                    values[name] = _open(keyring, bytes(extension.data), context[name] + key, spec, field, key)
                elif field.number not in legible:
                    raise SealBroken(
                        f"{_where(spec, field.name, key)} is sensitive, but not sealed: if it was stored before the "
                        "field became sensitive, migrate the table; otherwise it was tampered with"
                    )
            return decode_plain(_encode(values))
        except msgspec.DecodeError as error:
            # Sealed values of fields that are no longer sensitive are looked for only after an error, to save time.
            opened = _opened_all(keyring, spec, key, image)
            if opened is None:
                raise Corrupt(f"the record {text_of_key(key)} of {spec.name} cannot be decoded: {error}") from error
            return decode_plain(opened)

    def unique(field: FieldSpec, value: Any) -> bytes:
        plain = ordered(field.type, value)
        if not field.sensitive:
            return plain
        return hmac.digest(token_key, token_context[field.number] + plain, "sha256")

    return Images(encode, decode, unique)


def open_image(model: type[M], keyring: Keyring | None, key: bytes, image: bytes) -> M:
    """Return the record of an image, as for readers of a table's log; without a keyring, sensitive fields are None."""
    if keyring is not None:
        return sealed_images(model, keyring).decode(key, image)  # type: ignore[no-any-return]
    if model.__spec__.plain:
        return model.decode(image)
    values: dict[str, Any] = _raw_map.decode(image)
    for field in model.__spec__.fields.values():
        if field.sensitive:
            values.pop(str(field.number), None)
    record = model.decode(_encode(values))
    for field in model.__spec__.fields.values():
        if field.sensitive:  # not even its default
            setattr(record, field.name, None)
    return record


def check_sealable(spec: ModelSpec) -> None:
    """Refuse a model whose sensitive fields cannot be sealed: those in embedded models that are not sealed as a whole.

    That none is indexed, or a part of the key, is checked when the class is defined.
    """
    for field in spec.fields.values():
        if field.sensitive:
            continue
        inner = next((text for model in field.type.embedded() if (text := _sensitive_in(model, set()))), None)
        if inner is not None:
            raise InvalidArgument(
                f"{spec.name}.{field.name} embeds {inner}, which is sensitive: a field is sealed as a whole, so set "
                f"sensitive=True for {spec.name}.{field.name} itself"
            )


def _sensitive_in(model: type[Model], seen: set[type[Model]]) -> str | None:
    """Return the first sensitive field of an embedded model, at any depth."""
    if model in seen:
        return None
    seen.add(model)
    for field in model.__spec__.fields.values():
        if field.sensitive:
            return f"{model.__name__}.{field.name}"
        for inner in field.type.embedded():
            if found := _sensitive_in(inner, seen):
                return found
    return None


# Unique values


def token_mark(spec: ModelSpec, keyring: Keyring | None) -> bytes:
    """Return a mark of the key that hides the table's unique values; empty if none of them is sensitive."""
    if keyring is None or not any(field.unique and field.sensitive for field in spec.fields.values()):
        return b""
    return hmac.digest(keyring.token_key, _MARK_DOMAIN + _model_of(spec), "sha256")


def check_tokens(engine: "TableEngine[Any]", keyring: Keyring | None, *, migrates: bool = False) -> bool:
    """Rebuild a table if its unique values were hidden with another key; return whether the key's mark was replaced.

    Call it after a table is opened and before anyone writes to it: old tokens would find nothing, and accept a value
    twice. After it, nothing in the state was made with the old key. If the table `migrates` and has no hidden values
    yet, they are left to the migration, at whose end this is called again. Raises `KeyMissing` before it rebuilds.
    """
    mark = token_mark(engine.schema.spec, keyring)
    state, name = engine.state.store, engine.state.view.prefix + _TOKENS
    known = state.get("model", name) or b""
    if known == mark or (migrates and not known):
        return False
    if known or engine.log.readable()[1] > engine.log.start:
        _check_keys(engine, keyring)
        engine.commits.rebuild()
    batch = state.transaction()
    if mark:
        batch.put("model", name, mark)
    else:
        batch.delete("model", name)
    batch.commit()
    return True


def _check_keys(engine: "TableEngine[Any]", keyring: Keyring | None) -> None:
    """Raise if the keyring is wrong, before anything is rebuilt, so that nothing is lost."""
    missing = [name for name in _keys_in(engine.log) if keyring is None or name not in keyring]
    if missing:
        raise KeyMissing(
            f"the table {engine.name!r} has values that were sealed with {', '.join(map(repr, missing))}, which the "
            "keyring does not have: open it with the keyring that it was written with"
        )


# Rotation


def reseal(
    table: "Table[Any]", keyring: Keyring, *, progress: Callable[[int], None] | None = None, batch: int = _BATCH
) -> int:
    """Seal all present records again that are not sealed with the current key; return how many there were.

    Each is written to the log again, unchanged and with its version: readers see no change. The log is append-only, so
    values sealed with old keys stay in it, and with `keep_all_versions` in the history: `keys_used` returns the keys
    that are still needed. Other requests wait while a batch is staged.
    """
    if batch < 1:
        raise InvalidArgument(f"batch must be an int from 1 up, not {batch}")
    count = 0
    keys = _to_reseal(table.engine, keyring)
    while chunk := list(islice(keys, batch)):
        count += _write_again(table.engine, keyring, chunk)
        if progress is not None:
            progress(count)
    return count


def keys_used(table: "Table[Any]") -> dict[str, int]:
    """Return, by key name, how many values in the table's log it has sealed: without it they cannot be read."""
    return _keys_in(table.engine.log)


def _keys_in(log: Log) -> dict[str, int]:
    used: Counter[str] = Counter()
    for record in log.read():
        event = decode_event(record.payload)
        used.update(key_names(event.image))
    return dict(used)


def key_names(image: bytes) -> list[str]:
    """Return the names of the keys that sealed the fields of an image."""
    if not image:
        return []
    return [_apart(bytes(extension.data)).key_name for _, extension in _extensions(image)]


def _to_reseal(engine: "TableEngine[Any]", keyring: Keyring) -> Iterator[bytes]:
    view = engine.state.view
    prefix = view.prefix
    for name, _ in view.state.scan("table", prefix, after(prefix)):
        key = name[len(prefix) :]
        row = view.row(key)
        if row is not None and _is_old(engine.schema.spec, row, keyring):
            yield key


def _is_old(spec: ModelSpec, row: Row, keyring: Keyring) -> bool:
    """Return whether resealing would change a row: another key, a missing seal, or one that is not needed any more."""
    sealed = dict(_extensions(row.image))
    if any(_apart(bytes(extension.data)).key_name != keyring.current for extension in sealed.values()):
        return True
    sensitive = {str(field.number) for field in spec.fields.values() if field.sensitive}
    return sealed.keys() != sensitive.intersection(_raw_map.decode(row.image))


def _write_again(engine: "TableEngine[Any]", keyring: Keyring, keys: list[bytes]) -> int:
    """Write records once more; those that were changed meanwhile are sealed with the current key already."""
    view = engine.state.view

    def steps() -> list[Step]:
        found = []
        for key in keys:
            row = view.row(key)
            if row is None or not _is_old(engine.schema.spec, row, keyring):
                continue
            record = view.images.decode(key, row.image)
            image = view.images.encode(key, record)
            event = Event(EventKind.SNAPSHOT, row.version, row.created, row.deleted, (), image)
            found.append(Step(key, event, encode_event(event), row, record, record))
        return found

    return engine.commits.write_again(steps)


# Bytes


def _context(spec: ModelSpec, number: int) -> bytes:
    """Return the associated data of a sealed value without the record's key, which completes it."""
    return _FIELD_DOMAIN + _model_of(spec) + number.to_bytes(2, "big")


def _model_of(spec: ModelSpec) -> bytes:
    if spec.id is None:
        raise InvalidArgument(
            f"{spec.name} has no id, so it can only be embedded: for a table write class {spec.name}(Model, id=1)"
        )
    return spec.id.to_bytes(4, "big")


def _seal(keyring: Keyring, plain: bytes, context: bytes) -> msgspec.msgpack.Ext:
    name = keyring.current
    nonce = os.urandom(_NONCE_BYTES)
    ciphertext = keyring.cipher(name).encrypt(nonce, plain, context)
    return msgspec.msgpack.Ext(_SEAL, b"".join((bytes((_VERSION, len(name))), name.encode(), nonce, ciphertext)))


def _apart(data: bytes) -> _Sealed:
    if not data or data[0] != _VERSION:
        raise SealBroken(f"a sealed value has the unknown version {data[0] if data else None}: use a newer Holdfast")
    start = 2 + (data[1] if len(data) > 1 else 0)
    if len(data) < start + _NONCE_BYTES + _TAG_BYTES:
        raise SealBroken("a sealed value is too short")
    name = data[2:start].decode("ascii", "replace")
    return _Sealed(name, data[start : start + _NONCE_BYTES], data[start + _NONCE_BYTES :])


def _open(keyring: Keyring, data: bytes, context: bytes, spec: ModelSpec, field: FieldSpec, key: bytes) -> msgspec.Raw:
    from cryptography.exceptions import InvalidTag  # noqa: PLC0415  # only for who opens

    try:
        name, nonce, ciphertext = _apart(data)
        return msgspec.Raw(keyring.cipher(name).decrypt(nonce, ciphertext, context))
    except InvalidTag:
        raise SealBroken(
            f"{_where(spec, field.name, key)} cannot be decrypted: it was changed on disk, or belongs to another "
            "record or field. Restore the table from a backup"
        ) from None
    except KeyMissing as error:
        raise KeyMissing(f"{_where(spec, field.name, key)} cannot be read: {error}") from None
    except SealBroken as error:
        raise SealBroken(f"{_where(spec, field.name, key)} cannot be decrypted: {error}") from None


def _opened_all(keyring: Keyring, spec: ModelSpec, key: bytes, image: bytes) -> bytes | None:
    """Return an image with all sealed values opened, whether their fields are sensitive now or not; None if none is."""
    try:
        values: dict[str, Any] = _raw_map.decode(image)
        found = _extensions(image)
        for name, extension in found:
            field = spec.numbers.get(int(name))
            if field is None:  # the model no longer has the field, and it is not read
                del values[name]
            else:
                values[name] = _open(
                    keyring, bytes(extension.data), _context(spec, field.number) + key, spec, field, key
                )
        return _encode(values) if found else None
    except HoldfastError:
        raise
    except (msgspec.DecodeError, ValueError):
        return None


def _extensions(image: bytes) -> list[tuple[str, msgspec.msgpack.Ext]]:
    """Return the sealed values of an image, by the field's number as in the image."""
    found = []
    for name, raw in _raw_map.decode(image).items():
        if memoryview(raw)[0] in _EXTENSIONS:
            value = _anything.decode(raw)
            if type(value) is msgspec.msgpack.Ext and value.code == _SEAL:
                found.append((name, value))
    return found


_EXTENSIONS = frozenset((0xC7, 0xC8, 0xC9, 0xD4, 0xD5, 0xD6, 0xD7, 0xD8))
"""The possible first bytes of a msgpack extension: testing them is cheaper than decoding every value."""


def _where(spec: ModelSpec, field: str, key: bytes) -> str:
    return f"the field {field!r} of {spec.name} {text_of_key(key)}"
