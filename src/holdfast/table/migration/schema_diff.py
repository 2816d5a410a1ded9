"""Comparison of two models field by field, embedded ones included; the findings are sentences that name the field."""

from collections.abc import Iterable
from enum import Enum

from holdfast.table.model.fields import FieldSpec
from holdfast.table.model.model_spec import ModelSpec
from holdfast.table.model.types import FieldType, Kind, Limits

__all__ = ["TypeChanges", "same_type"]

_LOWEST = ("min", "min_length")
_HIGHEST = ("max", "max_length")
_ONCE = "it must be called once for each record, and its result stored"


def same_type(old: FieldType, new: FieldType) -> bool:
    """Return whether values of both are stored as the same bytes, whatever their limits."""
    changes = TypeChanges()
    changes.compare_types("", old, new)
    changes.compare_types("", new, old)
    return not changes.retyped


class TypeChanges:
    """Findings of a comparison."""

    def __init__(self) -> None:
        self.reasons: list[str] = []
        """Sentences that say why records may not suit the new model."""
        self.adds: list[str] = []
        """Sentences that say what is new, and safe for existing records."""
        self.retyped = False
        """Whether stored values may not be readable as their new type."""
        self._seen: set[tuple[str, str]] = set()

    def compare(self, old: ModelSpec, new: ModelSpec, path: str = "") -> None:
        """Compare two models, the second of which is to replace the first."""
        if (old.name, new.name) in self._seen:
            return
        self._seen.add((old.name, new.name))
        for number, field in old.numbers.items():
            if number in new.numbers:
                self._field(path, field, new.numbers[number])
            elif number in new.reserved_numbers:
                self._add(f"field {path + field.name!r} is gone, and its number {number} is reserved")
            else:
                self._reason(
                    f"field {path + field.name!r} (number {number}) is gone: add {number} to __reserved__, so that no "
                    "other field reads its values"
                )
        for number, field in new.numbers.items():
            if number not in old.numbers:
                self._new_field(path, field, old)
        for number in sorted(old.reserved_numbers - new.reserved_numbers - new.numbers.keys()):
            self._reason(f"number {number} of {path or 'the model'} is no longer reserved: keep it in __reserved__")
        for number in sorted(new.reserved_numbers - old.reserved_numbers - old.numbers.keys()):
            self._add(f"number {number} is reserved")

    def compare_types(self, where: str, old: FieldType, new: FieldType) -> None:
        """Compare the old and the new type of one value."""
        if old.kind is not new.kind:
            self._retyped(f"field {where!r} was {old} and is {new}: its values must be written again")
            return
        if old.target != new.target:
            self._reason(f"field {where!r} referred to {old.target} and refers to {new.target}")
        if old.item is not None and new.item is not None:
            self.compare_types(f"{where}[]", old.item, new.item)
        if old.key is not None and new.key is not None:
            self.compare_types(f"{where}<>", old.key, new.key)
        if old.model is not None and new.model is not None:
            if old.model.__spec__.tag != new.model.__spec__.tag:
                self._retyped(f"field {where!r}: the tag of {new} was {old.model.__spec__.tag}, and has changed")
            self.compare(old.model.__spec__, new.model.__spec__, f"{where}.")
        if old.enum is not None and new.enum is not None:
            self._enums(where, old.enum, new.enum)
        if old.kind is Kind.UNION:
            self._variants(where, old.variants, new.variants)
        self._limits(where, old.limits, new.limits)

    def _field(self, path: str, old: FieldSpec, new: FieldSpec) -> None:
        where = path + new.name
        if old.name != new.name:
            if old.type.kind is not new.type.kind and old.name not in new.alternatives:
                self._retyped(
                    f"number {new.number} is that of {path + old.name!r}, which was {old.type}, and is given to "
                    f"{where!r}, which is {new.type}: give {where!r} a number of its own"
                )
                return
            self._add(f"field {path + old.name!r} is called {where!r}")
        self.compare_types(where, old.type, new.type)
        required = new.required and not old.required
        if new.makes_default and old.has_default and (required or not old.makes_default):
            self._reason(f"field {where!r} has a default from a function, and records may lack it: {_ONCE}")
        elif required:
            if new.has_default:
                self._add(f"field {where!r} is required, and its default is used where it was absent")
            else:
                self._reason(f"field {where!r} is required now, and records may lack it: give it a default")
        if new.unique and not old.unique:
            self._reason(f"field {where!r} is unique now, and several records may have the same value")
        if new.sensitive != old.sensitive:
            how = (
                "sensitive now, and was stored as plaintext" if new.sensitive else "no longer sensitive, and was sealed"
            )
            self._reason(f"field {where!r} is {how}: its values must be written again")
        for name in sorted({*new.alternatives} - {*old.alternatives, old.name}):
            self._add(f"field {where!r} is also called {name!r}")

    def _new_field(self, path: str, field: FieldSpec, old: ModelSpec) -> None:
        where = path + field.name
        if field.number in old.reserved_numbers:
            self._reason(
                f"field {where!r} has the number {field.number}, which was reserved: records may hold values of "
                "another field there. Give it a number of its own"
            )
        elif field.name in old.reserved_names:
            self._reason(f"field {where!r} has a name that was reserved: choose another")
        elif field.required and not field.has_default:
            self._reason(f"field {where!r} is new and required, and no record has it: give it a default, or `| None`")
        elif field.makes_default:
            self._reason(f"field {where!r} is new, and has a default from a function: {_ONCE}")
        elif field.unique and field.has_default and field.required:
            self._reason(f"field {where!r} is new and unique, and every record would have its default")
        else:
            self._add(f"field {where!r} is new")

    def _enums(self, where: str, old: type[Enum], new: type[Enum]) -> None:
        members = {member.value: member.name for member in new}
        for member in old:
            if member.value not in members:
                self._retyped(f"field {where!r}: {new.__name__} has no {member.name} ({member.value!r}) any more")
        values = {member.value for member in old}
        self.adds += [f"field {where!r} can be {name}" for value, name in members.items() if value not in values]

    def _variants(self, where: str, old: Iterable[FieldType], new: Iterable[FieldType]) -> None:
        left = {_variant(variant): variant for variant in new}
        for variant in old:
            known = left.pop(_variant(variant), None)
            if known is None:
                self._retyped(f"field {where!r} can no longer be {variant}")
            else:
                self.compare_types(f"{where}:{variant}", variant, known)
        self.adds += [f"field {where!r} can be {variant}" for variant in left.values()]

    def _limits(self, where: str, old: Limits, new: Limits) -> None:
        for name in _LOWEST + _HIGHEST:
            was, now = getattr(old, name), getattr(new, name)
            if was == now:
                continue
            looser = now is None or (was is not None and (now < was if name in _LOWEST else now > was))
            text = f"field {where!r}: {name} was {was}, and is {now}"
            if looser:
                self._add(text)
            else:
                self._reason(f"{text}: records may break it")
        if old.pattern != new.pattern:
            text = f"field {where!r}: its pattern was {old.pattern!r}, and is {new.pattern!r}"
            if new.pattern is None:
                self._add(text)
            else:
                self._reason(f"{text}: records may break it")

    def _add(self, text: str) -> None:
        self.adds.append(text)

    def _reason(self, text: str) -> None:
        self.reasons.append(text)

    def _retyped(self, text: str) -> None:
        self.retyped = True
        self.reasons.append(text)


def _variant(ftype: FieldType) -> object:
    """Return what distinguishes the types of a union in stored bytes."""
    return ftype.kind, ftype.model.__spec__.tag if ftype.model is not None else None
