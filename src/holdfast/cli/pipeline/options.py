"""Options of a pipeline: derived from the annotations of its `run`, and validated by them."""

import inspect
import types
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from holdfast.base.errors import InvalidArgument
from holdfast.base.units import parse_duration, parse_time
from holdfast.cli.options import UsageError

__all__ = ["REQUIRED", "PipelineOption", "options_of", "parse_pairs"]

REQUIRED = inspect.Parameter.empty
"""The default of an option that must be given."""

_OURS = ("spark", "data")
_YES, _NO = ("true", "yes", "on", "1"), ("false", "no", "off", "0")


def _flag(text: str) -> bool:
    if text.lower() not in (*_YES, *_NO):
        raise ValueError
    return text.lower() in _YES


_KINDS: dict[Any, tuple[Callable[[str], Any], str, str]] = {
    str: (str, "TEXT", "text"),
    int: (int, "N", "a whole number"),
    float: (float, "X", "a number"),
    bool: (_flag, "true|false", "true or false"),
    Path: (Path, "PATH", "a path"),
    datetime: (parse_time, "TIME", "a time"),
    timedelta: (parse_duration, "DURATION", "a duration"),
}


@dataclass(frozen=True, slots=True)
class PipelineOption:
    """One option of a pipeline."""

    name: str
    kind: Any
    words: tuple[str, ...]
    """The allowed values, if there is a fixed set."""
    many: bool
    default: Any
    help: str

    @property
    def spelled(self) -> str:
        """The option as it is typed."""
        return "--" + self.name.replace("_", "-")

    @property
    def metavar(self) -> str:
        """The placeholder of its value."""
        return "|".join(self.words) or _KINDS[self.kind][1]

    def parse(self, text: str) -> Any:
        """Return the typed value; an invalid one is a usage error that says what is valid."""
        convert, _, takes = _KINDS[self.kind]
        try:
            value = convert(text)
        except InvalidArgument as error:  # its message explains it
            raise UsageError(f"{self.spelled}: {error}") from error
        except ValueError as error:
            raise UsageError(f"{self.spelled} takes {takes}, not {text!r}") from error
        if self.words and value not in self.words:
            raise UsageError(f"{self.spelled} takes {' or '.join(self.words)}, not {text!r}")
        return value


def options_of(run: Callable[..., object]) -> dict[str, PipelineOption]:
    """Return the options of a pipeline, in the order of its arguments."""
    return {
        name: _option(run, parameter)
        for name, parameter in inspect.signature(run).parameters.items()
        if name not in _OURS and parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
    }


def parse_pairs(pipeline: str, options: Mapping[str, PipelineOption], pairs: Iterable[str]) -> dict[str, Any]:
    """Return the arguments for `run` from `key=value` pairs; repeat a key for a `list`."""
    found: dict[str, Any] = {}
    there = ", ".join(options) or "none"
    for pair in pairs:
        key, equals, text = pair.partition("=")
        name = key.strip().replace("-", "_")
        if not equals:
            raise UsageError(f"an option is written key=value, not {pair!r}; {pipeline} takes: {there}")
        if name not in options:
            raise UsageError(f"{pipeline} has no option {key.strip()!r}; its options are: {there}")
        value = options[name].parse(text)
        if options[name].many:
            found.setdefault(name, []).append(value)
        elif name in found:
            raise UsageError(f"the option {name!r} is given twice")
        else:
            found[name] = value
    for name, option in options.items():
        if option.default is REQUIRED and name not in found:
            raise UsageError(f"{pipeline} needs the option {name!r}; its options are: {there}")
    return found


def _option(run: Callable[..., object], parameter: inspect.Parameter) -> PipelineOption:
    wanted = parameter.annotation
    if isinstance(wanted, str):  # the module postpones its annotations
        wanted = eval(wanted, getattr(run, "__globals__", {}))
    text = ""
    if get_origin(wanted) is Annotated:
        wanted, *notes = get_args(wanted)
        text = next((note for note in notes if isinstance(note, str)), "")
    wanted = _without_none(wanted)
    many = get_origin(wanted) is list
    if many:
        (wanted,) = get_args(wanted)
    words: tuple[str, ...] = ()
    if get_origin(wanted) is Literal:
        words, wanted = get_args(wanted), str
    if wanted not in _KINDS:
        raise TypeError(f"the option {parameter.name!r} of {run.__module__} has the unsupported type {wanted!r}")
    return PipelineOption(parameter.name, wanted, words, many, parameter.default, text)


def _without_none(wanted: Any) -> Any:
    if get_origin(wanted) in (Union, types.UnionType):
        rest = [each for each in get_args(wanted) if each is not type(None)]
        # The last of several types accepts every text: int | str is parsed as text.
        return rest[-1]
    return wanted
