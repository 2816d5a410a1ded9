"""Models: how an annotated class becomes one, and the methods of its objects.

A model is a msgspec Struct whose fields are renamed to their numbers, so that an object's image is plain msgpack: a map
of number to value. None is left out of an image. A field that is missing in an image has its default when it is read;
it is None without a default, or if the default comes from a function other than list, set and dict. So an old image can
be read after fields were added, even required ones; only writers must provide these.
"""

from __future__ import annotations

import threading
import typing
from collections.abc import Callable, Mapping
from functools import partial
from inspect import currentframe, get_annotations
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self, TypeVar, dataclass_transform

import msgspec

from holdfast.base.errors import InvalidArgument
from holdfast.table.errors import InvalidModel, ValidationFailed
from holdfast.table.model import json_codec
from holdfast.table.model.fields import Declared, FieldSpec, field, read_field
from holdfast.table.model.model_spec import ModelSpec, read_indexes, read_key, reserved_by
from holdfast.table.model.object_access import copiers_of, copy_of, get_at
from holdfast.table.model.types import Hidden, Reference
from holdfast.table.model.validation import key_text, object_check, unknown_field, validate

__all__ = ["Model", "ModelMeta", "ModelSpec", "Ref", "copy_of", "get_at", "key_from_text", "text_of_key"]

T = TypeVar("T")

_ID_MAX = 2**32 - 2
_ENCODE = msgspec.msgpack.Encoder().encode

if TYPE_CHECKING:
    from typing_extensions import TypeAliasType

    Ref = TypeAliasType("Ref", bytes, type_params=(T,))
else:

    class Ref:
        """The key of a record of another model: `owner: Ref[Account]`, or `Ref["Account"]` if that comes later."""

        def __class_getitem__(cls, model: Any) -> Any:
            if isinstance(model, typing.ForwardRef):
                model = model.__forward_arg__
            name = model if isinstance(model, str) else getattr(model, "__name__", None)
            if not isinstance(name, str) or not name.isidentifier():
                raise InvalidModel(f"Ref[{model!r}] does not name a model: write Ref[Account] or Ref['Account']")
            return Annotated[bytes, Reference(name)]


class _Draft(typing.NamedTuple):
    """A model that waits for models which are not defined yet."""

    declared: dict[str, Declared]
    key: Any
    indexes: Any
    names: dict[str, Any]
    """Names that annotations can refer to, in addition to those of their module."""


_blocks_section: dict[ModelMeta, _Draft] = {}
"""Models whose annotations cannot be resolved yet, or which embed such a model. Almost always empty."""


class ModelMeta(msgspec.StructMeta):
    """Metaclass that makes models of annotated classes, and paths of their attributes."""

    def __new__(
        mcs,
        name: str,
        bases: tuple[type, ...],
        namespace: dict[str, Any],
        *,
        id: int | None = None,
        version: str = "1.0",
        tag: int | None = None,
        names: dict[str, Any] | None = None,
    ) -> Any:
        """Create a model; annotations can refer to `names`, including names that are added later."""
        if bases == (msgspec.Struct,):
            return super().__new__(mcs, name, bases, namespace)
        if bases != (Model,):
            raise InvalidModel(f"{name} must derive from Model directly: embed the other model in a field instead")
        _check_options(name, id, version, tag)
        declared = {key: value for key, value in namespace.items() if isinstance(value, Declared)}
        key, indexes = namespace.get("__key__"), namespace.get("__indexes__", ())
        reserved = reserved_by(name, namespace.get("__reserved__", ()))
        _check_declared(name, declared, *reserved)
        if id is None and (key is not None or indexes or any(one.unique for one in declared.values())):
            raise InvalidModel(f"{name} has no id, so it can only be embedded, without __key__, __indexes__ and unique")
        cls = super().__new__(
            mcs,
            name,
            bases,
            {**namespace, **{key: _struct_field(one) for key, one in declared.items()}},
            kw_only=True,
            omit_defaults=True,
            rename={key: str(one.number) for key, one in declared.items()},
            tag=tag,
            tag_field="t" if tag is not None else None,
        )
        _check_annotated(cls, declared)
        local = {**_locals_of_caller(), name: cls} if names is None else names
        spec = ModelSpec(
            typing.cast("type[Model]", cls), name, id, version, tag, {}, {}, *reserved,
            check=lambda obj: None, make=partial(msgspec.StructMeta.__call__, cls),
            encode=_ENCODE, decode=_undecodable, copiers=(),
        )  # fmt: skip
        type.__setattr__(cls, "__spec__", spec)
        _blocks_section[cls] = _Draft(declared, key, indexes, local)
        try:
            _settle(cls, local)
        except BaseException:
            _blocks_section.pop(cls, None)
            raise
        return cls

    def __getattribute__(cls, name: str) -> Any:
        if name[0] != "_":
            paths = type.__getattribute__(cls, "__dict__").get("__paths__")
            if paths is not None and name in paths:
                return paths[name] or _path(cls, name, paths)
        elif name == "__spec__" and cls in _blocks_section:
            _finish_now(cls)
        return type.__getattribute__(cls, name)

    if not TYPE_CHECKING:  # the fields are the arguments; `dataclass_transform` tells type checkers so

        def __call__(cls, *args: Any, **given: Any) -> Any:
            spec = type.__getattribute__(cls, "__spec__")
            if cls in _blocks_section:
                _finish_now(cls)
            try:
                obj = super().__call__(*args, **given)
            except TypeError:
                obj = None
            if obj is None:
                _refuse_arguments(spec, args, given)
            try:
                if spec.check(obj) is not None:
                    raise ValidationFailed(spec.name, validate(obj))
            except RecursionError:
                raise _too_deep(spec.name) from None
            return obj


@dataclass_transform(kw_only_default=True, field_specifiers=(field,))
class Model(msgspec.Struct, metaclass=ModelMeta):
    """Base class of all models.

    `class Account(Model, id=1, version="1.0")` is a model with a table; without an id it can be embedded in others.
    With `tag=1` it can be one of several models in a union.
    """

    __holdfast_model__: ClassVar[bool] = True
    __spec__: ClassVar[ModelSpec]
    __key__: ClassVar[Any] = None
    """None for UUIDv7, or a tuple of final fields: `("opened", Reversed("email"))`."""
    __indexes__: ClassVar[Any] = ()
    """A list of `Index(...)`."""
    __reserved__: ClassVar[Any] = ()
    """Numbers and names of removed fields, which must not be used again."""

    @classmethod
    def decode(cls, image: bytes) -> Self:
        """Return the object of an image, not validated: it may have been stored under older rules."""
        return cls.__spec__.decode(image)  # type: ignore[no-any-return]

    def encode(self) -> bytes:
        """Return the image: msgpack, a map of field number to value. Sensitive fields are not sealed here."""
        return _ENCODE(self)

    def to_dict(self) -> dict[str, Any]:
        """Return names and Python values, also of embedded models; absent values are None."""
        return json_codec.to_dict(self)

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> Self:
        """Return an object from names and Python values; raises `ValidationFailed` with all violations.

        Raises `InvalidArgument` if `given` is not a mapping.
        """
        try:
            return json_codec.from_dict(cls, given)
        except RecursionError:
            raise _too_deep(cls.__name__) from None

    def to_json(self) -> str:
        """Return JSON with names; keys and bytes as base64url, times as ISO 8601. Sensitive values are included."""
        return json_codec.to_json(self)

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Return an object from JSON with names; raises `ValidationFailed` with all violations.

        Raises `InvalidArgument` if the text is not a JSON object.
        """
        try:
            return json_codec.from_json(cls, text)
        except RecursionError:
            raise _too_deep(cls.__name__) from None

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in self.__rich_repr__())
        return f"{type(self).__name__}({shown})"

    def __rich_repr__(self) -> Any:
        for spec in self.__spec__.fields.values():
            value = getattr(self, spec.name)
            yield spec.name, Hidden() if spec.sensitive and value is not None else value

    def __reduce__(self) -> Any:
        return _from_image, (type(self), self.encode())


def _too_deep(name: str) -> InvalidArgument:
    return InvalidArgument(f"this {name} has models nested too deeply: give those a table of their own")


def text_of_key(key: bytes) -> str:
    """Return a record's key as text: base64url without padding."""
    return key_text(key)


def key_from_text(text: str) -> bytes:
    """Return a record's key from its text; raises `InvalidArgument` if it is not base64url."""
    return json_codec.bytes_of(text)


def _from_image(model: type[Model], image: bytes) -> Model:
    return model.decode(image)


def _undecodable(image: bytes) -> Any:
    raise AssertionError("a model's decoder is prepared before its first object exists")


def _path(cls: Any, name: str, paths: dict[str, Any]) -> Any:
    from holdfast.table.model.path_expressions import Path  # noqa: PLC0415 (paths import models, and are rarely needed)

    spec = cls.__spec__.find(name)
    paths[name] = path = Path(cls, (spec.name if spec is not None else name,))
    return path


def _locals_of_caller() -> dict[str, Any]:
    """Return the names of the function in which a class is defined, so that its annotations can refer to them."""
    frame = currentframe()
    assert frame is not None, "CPython has frames"
    while frame.f_back is not None and frame.f_globals.get("__name__") == __name__:
        frame = frame.f_back
    return dict(frame.f_locals) if frame.f_code.co_name != "<module>" else {}


def _check_options(name: str, id: Any, version: Any, tag: Any) -> None:
    if id is not None and (type(id) is not int or not 1 <= id <= _ID_MAX):
        raise InvalidModel(f"the id of {name} is {id!r}: it must be an int from 1 to {_ID_MAX}")
    if type(version) is not str or not version:
        raise InvalidModel(f'the version of {name} is {version!r}: it must be a string, as "1.0"')
    if tag is not None and type(tag) is not int:
        raise InvalidModel(f"the tag of {name} is {tag!r}: it must be an int")


def _check_declared(model: str, declared: dict[str, Declared], numbers: frozenset[int], names: frozenset[str]) -> None:
    """Reject numbers and names that are invalid, used twice, or reserved."""
    taken: dict[int, str] = {}
    called: dict[str, str] = {}
    for name, one in declared.items():
        where = f"field {name!r} of {model}"
        if name.startswith("_"):
            raise InvalidModel(f"{where} begins with an underscore: give it another name")
        if one.number in taken:
            raise InvalidModel(f"{where} has the number {one.number} of {taken[one.number]!r}: give it one of its own")
        if one.number in numbers:
            raise InvalidModel(f"{where} has the number {one.number}, which is reserved: give it another")
        taken[one.number] = name
        for word in (name, *one.names):
            if word in called:
                raise InvalidModel(f"{where} has the name {word!r}, which {called[word]!r} has too: choose another")
            if word in names:
                raise InvalidModel(f"{where} has the name {word!r}, which is reserved: choose another")
            if hasattr(msgspec.Struct, word) or word in Model.__dict__:
                raise InvalidModel(f"{where} has the name {word!r}, which every model has: choose another")
            called[word] = name


def _struct_field(declared: Declared) -> Any:
    """Return the field as msgspec knows it.

    Its default is None, which is then left out of images, or a function of ours: if a constant or an empty list were
    left out too, changing a default would change existing records.
    """
    if declared.default_factory is not None:
        make = declared.default_factory
        return msgspec.field(default_factory=partial(_called if make in (list, set, dict) else _called_for_new, make))
    default = declared.default
    if default is msgspec.NODEFAULT or default is None:
        return msgspec.field(default=None)
    return msgspec.field(default_factory=lambda: default)


def _called(make: Callable[[], Any]) -> Any:
    return make()


def _called_for_new(make: Callable[[], Any]) -> Any:
    return None if _decoding.now else make()


class _Decoding(threading.local):
    """Whether this thread is decoding an image.

    A field that is missing in an image had no value: a default function could return another value at each read, and
    an index would hold a value that no later read returns.
    """

    now = False


_decoding = _Decoding()


def _decoder(cls: Any) -> Callable[[bytes], Any]:
    decode = msgspec.msgpack.Decoder(cls).decode
    if not any(one.makes_default for model in _reach(cls) for one in _spec_of(model).fields.values()):
        return decode

    def decode_stored(image: bytes) -> Any:
        _decoding.now = True
        try:
            return decode(image)
        finally:
            _decoding.now = False

    return decode_stored


def _check_annotated(cls: Any, declared: dict[str, Declared]) -> None:
    annotated = cls.__struct_fields__
    for name in annotated:
        if name not in declared:
            raise InvalidModel(f"field {name!r} of {cls.__name__} has no number: write `{name}: ... = field(1)`")
    for name in declared:
        if name not in annotated:
            raise InvalidModel(f"field {name!r} of {cls.__name__} has no type: write `{name}: str = field(...)`")


def _settle(cls: ModelMeta, local: dict[str, Any]) -> None:
    """Read this model and others that waited for it, and finish those that have all they need."""
    scope = cls.__module__, cls.__qualname__.rpartition(".")[0]
    for one, pending_block in list(_blocks_section.items()):
        if one is cls or (one.__module__, one.__qualname__.rpartition(".")[0]) == scope:
            _read(one, {**local, **pending_block.names})
    for one in list(_blocks_section):
        if _complete(one):
            _finish(one)


def _finish_now(cls: ModelMeta) -> None:
    """Finish a model that is used; all that it refers to must exist by now."""
    missing: NameError | None = None
    for one in [cls, *_blocks_section]:
        error = _read(one, _blocks_section[one].names) if one in _blocks_section else None
        missing = missing or error
    if not _complete(cls):
        raise InvalidModel(f"{cls.__name__} cannot be used yet: {missing}. Define that first") from missing
    for one in list(_blocks_section):
        if _complete(one):
            _finish(one)


def _spec_of(cls: Any) -> ModelSpec:
    return type.__getattribute__(cls, "__spec__")  # type: ignore[no-any-return]


def _is_read(cls: Any) -> bool:
    return cls not in _blocks_section or bool(_spec_of(cls).fields) or not _blocks_section[cls].declared


def _complete(cls: Any) -> bool:
    """Return whether the annotations of it and of all models that it embeds are resolved."""
    seen: set[Any] = set()
    ahead = [cls]
    while ahead:
        one = ahead.pop()
        if one in seen:
            continue
        if not _is_read(one):
            return False
        seen.add(one)
        ahead += _spec_of(one).embedded()
    return True


def _read(cls: Any, names: dict[str, Any]) -> NameError | None:
    """Read a model's annotations into its fields, unless they refer to something that does not exist yet."""
    if _is_read(cls):
        return None
    pending_block, spec = _blocks_section[cls], _spec_of(cls)
    for name, annotation in get_annotations(cls).items():
        if isinstance(annotation, Declared):
            raise InvalidModel(
                f"the type of {cls.__name__}.{name} has the name of the field: import it under another name"
            )
    try:
        hints = typing.get_type_hints(cls, localns=names, include_extras=True)
    except NameError as error:
        return error
    fields = {
        name: read_field(name, pending_block.declared[name], hints[name], f"{cls.__name__}.{name}")
        for name in pending_block.declared
    }
    cls.__annotations__ = {**hints}  # so that msgspec need not resolve these names
    spec.fields.update(fields)
    spec.numbers.update({one.number: one for one in fields.values()})
    return None


def _finish(cls: Any) -> None:
    """Prepare a model whose fields and embedded models are all known."""
    pending_block, spec = _blocks_section[cls], _spec_of(cls)
    try:
        spec.decode = _decoder(cls)
    except TypeError as error:
        _blocks_section.pop(cls, None)
        raise InvalidModel(f"{cls.__name__} cannot be stored: {_in_our_words(str(error))}") from error
    spec.check = object_check(spec.fields.values())
    spec.copiers = copiers_of(spec.fields.values())
    spec.plain = not any(one.sensitive for model in _reach(cls) for one in _spec_of(model).fields.values())
    del _blocks_section[cls]
    for one in spec.fields.values():
        _check_default(spec, one)
        for model in one.type.embedded():
            unique = next((inner.name for inner in _spec_of(model).fields.values() if inner.unique), None)
            if unique is not None:
                raise InvalidModel(
                    f"{spec.name}.{one.name} embeds {model.__name__}, whose {unique} is unique in its own table only: "
                    "embed a model without unique fields, or refer to it with Ref"
                )
    spec.key = read_key(spec, pending_block.key)
    spec.indexes = read_indexes(spec, pending_block.indexes)
    type.__setattr__(
        cls, "__paths__", {word: None for one in spec.fields.values() for word in (one.name, *one.alternatives)}
    )
    type.__setattr__(cls, "decode", spec.decode)  # the same, without an extra call


def _reach(cls: Any) -> set[Any]:
    """Return it and all models that it embeds, at any depth."""
    seen: set[Any] = set()
    ahead = [cls]
    while ahead:
        one = ahead.pop()
        if one not in seen:
            seen.add(one)
            ahead += _spec_of(one).embedded()
    return seen


def _check_default(spec: ModelSpec, one: FieldSpec) -> None:
    default = one.default
    if isinstance(one.default_factory, type):  # as list or dict; a function may need something that does not exist yet
        default = one.default_factory()
    found = one.check(default) if default is not msgspec.NODEFAULT else None
    if found:
        raise InvalidModel(f"the default of {spec.name}.{one.name} breaks its own rules: {found[0].message}")


def _in_our_words(text: str) -> str:
    if "more than one" in text and "Struct" in text and "dict-like" not in text:
        return f"models in a union need tags of their own: class ...(Model, tag=1). {text}"
    return text


def _refuse_arguments(spec: ModelSpec, args: tuple[Any, ...], given: dict[str, Any]) -> None:
    """Raise an error with all that is wrong with the arguments of a new object."""
    if args:
        raise TypeError(
            f"{spec.name} takes its fields by name: {spec.name}({', '.join(f'{n}=...' for n in spec.fields)})"
        )
    known = {name: value for name, value in given.items() if name in spec.fields}
    strangers = [unknown_field(name, value, spec.fields) for name, value in given.items() if name not in known]
    raise ValidationFailed(spec.name, [*strangers, *validate(spec.make(**known))])
