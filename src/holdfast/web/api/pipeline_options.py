"""Options of pipelines that a request may set, each validated by its kind.

An unlisted option is rejected: a new option of a pipeline is open to requests only once it is listed here.
"""

import re
from collections.abc import Iterator, Mapping
from enum import Enum, auto
from typing import Any

from holdfast.base.errors import InvalidArgument
from holdfast.broker.permissions import OWN
from holdfast.spark.condition_parser import safe_condition
from holdfast.web.allowed_paths import AllowedPaths
from holdfast.web.responses import Refused

__all__ = ["OPTIONS", "OptionKind", "checked_master", "checked_options"]


class OptionKind(Enum):
    """What an option names."""

    PLAIN = auto()
    """Names, numbers, times, words: the pipeline checks them."""
    PATH = auto()
    """A folder or file that is written, or read as a whole."""
    SOURCE = auto()
    """Files that are read, perhaps by a pattern."""
    CONDITION = auto()
    """A condition in SQL."""
    TARGET = auto()
    """A log, queue or table that is written."""


_LOCAL = re.compile(r"local(\[(\*|[0-9]{1,4})(,[0-9]{1,3})?\])?")


def _options(plain: str, **others: OptionKind) -> dict[str, OptionKind]:
    return {**dict.fromkeys(plain.split(), OptionKind.PLAIN), **others}


_PATH, _TARGET = OptionKind.PATH, OptionKind.TARGET
OPTIONS: dict[str, dict[str, OptionKind]] = {
    "archive": _options("logs queues records lifecycle format compression batch_mb on_damage allow_gaps", lake=_PATH),
    "replay": _options(
        "log queue since until first last name examples execute",
        to_queue=_TARGET,
        to_log=_TARGET,
        lake=_PATH,
        where=OptionKind.CONDITION,
    ),
    "lifecycle": _options("queues report", out=_PATH),
    "deadletters": _options("queues report payload", out=_PATH),
    "report": _options("queues", out=_PATH),
    "load": _options("format value key headers again", log=_TARGET, queue=_TARGET, source=OptionKind.SOURCE),
    "verify": _options("log"),
    "stream": _options("log window late every available_now", queue=_TARGET, checkpoint=_PATH, out=_PATH),
}
"""The pipelines that a server can run, with their options. Not `backfill`: it opens the store for writing."""


def checked_options(pipeline: str, given: Mapping[str, Any], paths: AllowedPaths) -> Iterator[tuple[str, str]]:
    """Yield the options for the pipeline's process: paths resolved, conditions rewritten.

    Raises `InvalidArgument` for an unknown option, 403 for a path or a target that requests may not use.
    """
    known = OPTIONS.get(pipeline, {})
    for name, value in given.items():
        kind = known.get(name.replace("-", "_"))
        if kind is None:
            raise InvalidArgument(f"{pipeline} has no option {name!r}; there are: {', '.join(known) or 'none'}")
        for one in value if isinstance(value, list) else [value]:
            if one is None or isinstance(one, dict | list):
                raise InvalidArgument(f"the option {name!r} cannot be {one!r}")
            text = str(one).lower() if isinstance(one, bool) else str(one)
            if "\0" in text:
                raise InvalidArgument(f"the option {name!r} has a zero byte, which cannot be passed to a process")
            yield name, _checked(kind, name, text, paths)


def _checked(kind: OptionKind, name: str, text: str, paths: AllowedPaths) -> str:
    match kind:
        case OptionKind.PATH:
            return str(paths.check(text, f"the option {name!r}"))
        case OptionKind.SOURCE:
            return paths.check_source(text, f"the option {name!r}")
        case OptionKind.CONDITION:
            return safe_condition(text)
        case OptionKind.TARGET:
            return _checked_target(name, text)
    return text


def _checked_target(name: str, text: str) -> str:
    """Return the name of a log, queue or table to write; raise 403 for the server's own."""
    if text.strip().startswith(OWN):
        raise Refused(
            403,
            "access_refused",
            f"the option {name!r} is {text!r}: only the server writes to names that begin with {OWN!r}",
        )
    return text


def checked_master(text: str) -> str:
    """Return the Spark master; raise 403 unless it is local. Only the operator may choose a cluster."""
    if text and not _LOCAL.fullmatch(text):
        raise Refused(
            403,
            "access_refused",
            f"the master {text[:80]!r} is not allowed over HTTP: use local, local[4] or local[*]; for a cluster set "
            "SPARK_MASTER in the server's environment",
        )
    return text
