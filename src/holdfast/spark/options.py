"""Options of the source and the sink, validated; named as in Spark's Kafka source where they mean the same."""

import base64
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from holdfast.base.errors import InvalidArgument, NotFound
from holdfast.base.hlc import version_before
from holdfast.base.names import check_name
from holdfast.spark.catalog_tables import refuse_catalog_table
from holdfast.spark.kafka_options import KAFKA_READ, KAFKA_WRITE, refuse_kafka
from holdfast.spark.payload_options import PAYLOAD_OPTIONS, PayloadOptions
from holdfast.spark.store_access import StoreAccess, is_server, may_grow

__all__ = ["EARLIEST", "LATEST", "ReadOptions", "WriteOptions", "chosen_names", "few", "matching_names"]

EARLIEST, LATEST = -2, -1
"""Kafka's numbers for the start and the end of a log."""
ZONE_MAX = timedelta(hours=18)
"""The greatest offset from UTC that a time zone of Java has."""

_OF_TABLES = ("asOf", "includeDeleted", "keyring", "decimalAsString")
_OF_PLACES = (
    "startingOffsets",
    "endingOffsets",
    "startingTimestamp",
    "endingTimestamp",
    "startingOffsetsByTimestamp",
    "endingOffsetsByTimestamp",
)
_READ = (
    "path",
    "log",
    "logs",
    "logPattern",
    "queue",
    "queues",
    "queuePattern",
    "table",
    "view",
    *_OF_TABLES,
    *_OF_PLACES,
    "failOnDataLoss",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "maxBytesPerTrigger",
    "minPartitions",
    "maxRecordsPerPartition",
    "includeHeaders",
    "key",
    "onDamage",
    "damageReport",
    "name",
    "live",
    "token",
    *PAYLOAD_OPTIONS,
)
_WRITE = (
    "path",
    "log",
    "queue",
    "compression",
    "txnAppId",
    "txnVersion",
    "blockBytes",
    "wait",
    "token",
    "checkpointLocation",
    "queryName",
)
VIEWS = ("messages", "lifecycle")
TABLE_VIEWS = ("now", "history", "changes", "log")
Places = int | dict[str, int]
"""One for all logs, or one for each: a sequence, `EARLIEST` or `LATEST`."""


@dataclass(frozen=True)
class ReadOptions:
    """The validated options of a read."""

    path: Path
    url: str = ""
    """The URL of the store, if it is not a local folder; `path` is then its root."""
    live: str = ""
    """The URL of the server whose replica is read, for what the bucket has not yet."""
    token: str = field(default="", repr=False)
    """The token for the server."""
    names: tuple[str, ...] = ()
    """The names of the logs; with a view, of the queues, or of the one table."""
    pattern: str | None = None
    view: str | None = None
    table: str | None = None
    as_of: int | None = None
    """The version up to which a table is read, itself included."""
    local_as_of: datetime | None = None
    """`as_of` as a time without a zone. It is in the session's zone, which tasks know and the planner does not."""
    include_deleted: bool = False
    keyring: str | None = None
    """The keyring file that decrypts sensitive fields."""
    text_decimals: bool = False
    starting: Places | None = None
    ending: Places | None = None
    starting_time: int | dict[str, int] | None = None
    """Nanoseconds."""
    ending_time: int | dict[str, int] | None = None
    local_start: datetime | None = None
    """A starting time without a zone, in the session's zone. `starting_time` is then early enough for every zone."""
    local_end: datetime | None = None
    """The same for `ending_time`, which is then late enough."""
    fail_on_data_loss: bool = True
    max_records: int | None = None
    min_records: int | None = None
    max_delay: float = 15 * 60
    """Seconds after which `min_records` no longer holds a batch back."""
    max_bytes: int | None = None
    min_partitions: int | None = None
    partition_records: int | None = None
    headers: bool = False
    keys: frozenset[bytes] | None = None
    """Only records with one of these keys; None: all."""
    skip_damage: bool = False
    damage_report: str | None = None
    """A folder into which each task writes the damage that it skipped."""
    name: str | None = None
    payload: PayloadOptions | None = None
    """How payloads are decoded; None: they are shown as bytes."""

    @property
    def place(self) -> str:
        """The location of the store, for people."""
        return self.url or str(self.path)

    @property
    def access(self) -> StoreAccess:
        """Where the store is, for those who open it."""
        return StoreAccess(self.path, self.url, self.live, self.token)

    @classmethod
    def of(cls, given: Mapping[str, str], *, streaming: bool = False) -> "ReadOptions":
        """Validate a user's options; an error names the option and its valid values."""
        options = _lower(given)
        refuse_catalog_table(options)
        refuse_kafka(options, KAFKA_READ)
        _refuse_unknown(options, _READ)
        access = _access(options)
        url, path = access.url, access.path
        if streaming:
            _check_stream(options, url)
        view, table = options.get("view"), options.get("table")
        logs, log_pattern = _chosen(options, "log")
        queues, queue_pattern = _chosen(options, "queue")
        if table is not None:
            if logs or queues or log_pattern is not None or queue_pattern is not None:
                raise InvalidArgument("give one of the options 'table', 'log' and 'queue'")
            _checked(table, "table name")
            view = _table_view(options, view, streaming=streaming)
        elif given_one := next((name for name in _OF_TABLES if name.lower() in options), None):
            raise InvalidArgument(f"the option {given_one!r} needs the option 'table'")
        elif queues or queue_pattern is not None:
            if logs or log_pattern is not None:
                raise InvalidArgument("give either the option 'queue' or the option 'log', not both")
            _check_queue_view(view, url, streaming=streaming)
        elif view is not None:
            raise InvalidArgument("the option 'view' needs the option 'queue', 'queues', 'queuePattern' or 'table'")
        elif not logs and log_pattern is None:
            raise InvalidArgument(
                "nothing to read: give the option 'log', 'logs' or 'logPattern'; or 'queue', 'queues' or "
                "'queuePattern' with 'view'; or 'table'"
            )
        _check_name(options, access)
        as_of = _version(options)
        start_time = _times(options, "startingTimestamp", "startingOffsetsByTimestamp")
        end_time = _times(options, "endingTimestamp", "endingOffsetsByTimestamp")
        return cls(
            path=path,
            url=url,
            live=access.live,
            token=access.token,
            names=logs or queues or (() if table is None else (table,)),
            pattern=queue_pattern if view else log_pattern,
            view=view,
            table=table,
            as_of=None if isinstance(as_of, datetime) else as_of,
            local_as_of=as_of if isinstance(as_of, datetime) else None,
            include_deleted=_flag(options, "includeDeleted", default=False),
            keyring=None if "keyring" not in options else str(Path(options["keyring"]).absolute()),
            text_decimals=_flag(options, "decimalAsString", default=False),
            starting=_places(options, "startingOffsets"),
            ending=_places(options, "endingOffsets"),
            starting_time=_ns(start_time, -ZONE_MAX) if isinstance(start_time, datetime) else start_time,
            local_start=start_time if isinstance(start_time, datetime) else None,
            ending_time=_ns(end_time, ZONE_MAX) if isinstance(end_time, datetime) else end_time,
            local_end=end_time if isinstance(end_time, datetime) else None,
            fail_on_data_loss=_flag(options, "failOnDataLoss", default=True),
            max_records=_count(options, "maxOffsetsPerTrigger"),
            min_records=_count(options, "minOffsetsPerTrigger"),
            max_delay=_seconds(options, "maxTriggerDelay", 15 * 60),
            max_bytes=_count(options, "maxBytesPerTrigger"),
            min_partitions=_count(options, "minPartitions"),
            partition_records=_count(options, "maxRecordsPerPartition"),
            headers=_flag(options, "includeHeaders", default=False),
            keys=_keys(options, view) if table is None else _record_keys(options),
            skip_damage=_choice(options, "onDamage", ("fail", "skip")) == "skip",
            damage_report=options.get("damagereport"),
            name=None if (name := options.get("name")) is None else _checked(name, "stream name"),
            payload=PayloadOptions.of(options, _without_payloads(view, table)),
        )


@dataclass(frozen=True)
class WriteOptions:
    """The validated options of a write."""

    path: Path
    log: str | None
    queue: str | None
    url: str = ""
    """The URL of the replica or of the server, if it is not a local folder."""
    token: str = field(default="", repr=False)
    """The token for the server."""
    compression: str | None = None
    app: str | None = None
    """With `version`, the key under which a batch is written at most once."""
    version: int | None = None
    block_bytes: int = 1 << 20
    wait: float = 60.0
    """Seconds to wait until the process that owns the store has adopted a committed batch."""

    @property
    def access(self) -> StoreAccess:
        """Where the store is, for those who write to it."""
        return StoreAccess(self.path, self.url, token=self.token)

    @classmethod
    def of(cls, given: Mapping[str, str]) -> "WriteOptions":
        """Validate a user's options."""
        options = _lower(given)
        refuse_catalog_table(options)
        refuse_kafka(options, KAFKA_WRITE)
        _refuse_unknown(options, _WRITE)
        access = _access(options)
        if access.url and not may_grow(access.url):
            raise InvalidArgument(
                f"{access.url!r} is a copy of a store, which can only be read: to write, give the folder of a store, "
                "the URL of its replica or that of its server"
            )
        log, queue = options.get("log"), options.get("queue")
        if (log is None) == (queue is None):
            raise InvalidArgument("no target: give either the option 'log' or the option 'queue'")
        _checked(queue if log is None else log, "queue name" if log is None else "log name")
        app, version = options.get("txnappid"), _count(options, "txnVersion", least=0)
        if app == "":
            raise InvalidArgument("the option 'txnAppId' must not be empty")
        if (app is None) != (version is None):
            raise InvalidArgument("the options 'txnAppId' and 'txnVersion' must be given together")
        return cls(
            path=access.path,
            url=access.url,
            token=access.token,
            log=log,
            queue=queue,
            compression=_choice(options, "compression", ("none", "gzip", "zstd", "lz4")),
            app=app,
            version=version,
            block_bytes=min(_count(options, "blockBytes") or 1 << 20, 256 << 20),
            wait=_seconds(options, "wait", 60.0),
        )


def chosen_names(options: ReadOptions, known: list[str]) -> list[str]:
    """Return the logs (or queues) that were asked for; an error if one does not exist."""
    what = "table" if options.table else "queue" if options.view else "log"
    if options.pattern is not None:
        return matching_names(f"{what} in {options.place!r}", known, [options.pattern])
    for name in options.names:
        if name not in known:
            served = " that this token may read" if is_server(options.url) else ""
            raise NotFound(f"there is no {what} {name!r} in {options.place!r}{served}; there are: {few(known)}")
    return list(options.names)


def matching_names(what: str, known: list[str], words: Iterable[str]) -> list[str]:
    """Return the names that are among the words or match one as a pattern; a word that matches none is an error."""
    found: set[str] = set()
    for word in words:
        fitting = [word] if word in known else [name for name in known if fnmatchcase(name, word)]
        if not fitting:
            raise NotFound(f"no {what} matches {word!r}; there are: {few(known)}")
        found.update(fitting)
    return sorted(found)


def few(names: list[str]) -> str:
    """Return some of the names that there are, for an error."""
    return ", ".join(map(repr, names[:10])) or "none"


def _check_queue_view(view: str | None, url: str, *, streaming: bool) -> None:
    if view is None:
        raise InvalidArgument(f"the option 'queue' needs the option 'view': one of {', '.join(VIEWS)}")
    if view not in VIEWS:
        raise InvalidArgument(f"the option 'view' must be one of {', '.join(VIEWS)}, not {view!r}")
    if view == "messages" and streaming:
        raise InvalidArgument("the view 'messages' is a snapshot and cannot be streamed: stream the view 'lifecycle'")


def _check_stream(options: Mapping[str, str], url: str) -> None:
    for ending in ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"):
        if ending.lower() in options:
            raise InvalidArgument(f"the option {ending!r} is for batches: a stream has no end")
    if url and not may_grow(url):
        raise InvalidArgument(
            "a store at a URL is a copy that does not grow: a stream needs the store's folder, its replica or its "
            "server"
        )


def _check_name(options: Mapping[str, str], access: StoreAccess) -> None:
    if "name" not in options or not access.url:
        return
    if not access.server:
        raise InvalidArgument(
            f"the option 'name' keeps a position in the store, so that retention waits for it, and {access.url!r} can "
            "only be read: leave it out, read from the store's folder, or give its server in the option 'live'"
        )
    if "queue" in options or "queues" in options or "queuepattern" in options or "table" in options:
        raise InvalidArgument(
            "through a server, the option 'name' is for logs: leave it out, or read from the store's folder"
        )


def _without_payloads(view: str | None, table: str | None) -> str | None:
    """Return why a view has no payloads to decode; None if it has."""
    if table is not None:
        return "the columns of a table are those of its model"
    return "events have no payload: read the view 'messages', or the log" if view == "lifecycle" else None


def _checked(name: str | None, what: str) -> str:
    check_name(name or "", what)
    return name or ""


def _lower(given: Mapping[str, str]) -> dict[str, str]:
    return {key.lower(): value for key, value in given.items()}


def _refuse_unknown(options: Mapping[str, str], known: tuple[str, ...]) -> None:
    # Spark sometimes passes options of its own, which are not checked here.
    lower = {name.lower() for name in known}
    for key in options:
        if key not in lower and "." not in key and not key.startswith("__"):
            raise InvalidArgument(f"there is no option {key!r}; there are: {', '.join(known)}")


def _access(options: Mapping[str, str]) -> StoreAccess:
    """Return where the store is: its folder, or a URL."""
    path = options.get("path")
    if not path:
        raise InvalidArgument("the option 'path' is missing: give the folder of the store")
    return StoreAccess.of(path, options.get("live", ""), options.get("token", ""))


def _chosen(options: Mapping[str, str], what: str) -> tuple[tuple[str, ...], str | None]:
    """Return the names that were given in either form, or the pattern."""
    one, many, pattern = what, f"{what}s", f"{what}Pattern"
    given = [name for name in (one, many, pattern) if name.lower() in options]
    if len(given) > 1:
        raise InvalidArgument(f"give one of the options {one!r}, {many!r} and {pattern!r}")
    if one in options:
        return (_checked(options[one], f"{what} name"),), None
    if many in options:
        names = [name.strip() for name in options[many].split(",")]
        if len(set(names)) < len(names):
            raise InvalidArgument(f"the option {many!r} has a name twice: {options[many]!r}")
        return tuple(_checked(name, f"{what} name") for name in names), None
    return (), options.get(pattern.lower())


def _keys(options: Mapping[str, str], view: str | None) -> frozenset[bytes] | None:
    """Parse one key, or several as a JSON list: texts, and bytes as `{"base64": "AQI="}`."""
    value = options.get("key")
    if value is None:
        return None
    if view == "lifecycle":
        raise InvalidArgument("the option 'key' selects records of a log, or messages: events have no key")
    if not value.startswith("["):
        return frozenset([value.encode()])
    try:
        found: list[Any] = json.loads(value)
        return frozenset(
            base64.b64decode(key["base64"], validate=True) if isinstance(key, dict) else key.encode() for key in found
        )
    except (ValueError, AttributeError, TypeError, KeyError):
        raise _wrong("key", 'a key, or several as JSON like ["a", {"base64": "AQI="}]', value) from None


def _record_keys(options: Mapping[str, str]) -> frozenset[bytes] | None:
    """Parse keys of records as text: one, or several as a JSON list."""
    value = options.get("key")
    if value is None:
        return None
    from holdfast.table.model.model import key_from_text  # noqa: PLC0415 - only tables need it

    try:
        texts: list[str] = json.loads(value) if value.startswith("[") else [value]
        return frozenset(map(key_from_text, texts))
    except (ValueError, AttributeError, TypeError, InvalidArgument):
        raise _wrong("key", "a record's key as base64url text, or several as JSON", value) from None


def _table_view(options: Mapping[str, str], view: str | None, *, streaming: bool) -> str:
    """Return the view of a table, after checking that the other options apply to it."""
    view = "now" if view is None else view
    if view not in TABLE_VIEWS:
        raise InvalidArgument(f"the option 'view' of a table must be one of {', '.join(TABLE_VIEWS)}, not {view!r}")
    if streaming and view not in ("changes", "log"):
        raise InvalidArgument(f"the view {view!r} is a snapshot and cannot be streamed: stream the view 'changes'")
    if view != "now":
        for name in ("asOf", "includeDeleted"):
            if name.lower() in options:
                raise InvalidArgument(f"the option {name!r} is for the view 'now', not for {view!r}")
    if view not in ("changes", "log"):
        for name in _OF_PLACES:
            if name.lower() in options:
                raise InvalidArgument(f"the option {name!r} is for the view 'changes': others need the whole log")
    return view


def _version(options: Mapping[str, str]) -> int | datetime | None:
    """Return the version that `asOf` means; a time without a zone is returned unchanged."""
    value = options.get("asof")
    if value is None:
        return None
    try:
        if value.isdigit():
            return version_before(int(value), "asOf")
        moment = datetime.fromisoformat(value)
        return version_before(moment, "asOf") if moment.tzinfo else moment
    except (ValueError, InvalidArgument):
        raise _wrong("asOf", "a version, or a time like 2026-01-31T12:00:00Z", value) from None


def _wrong(name: str, takes: str, value: str) -> InvalidArgument:
    return InvalidArgument(f"the option {name!r} takes {takes}, not {value!r}")


def _flag(options: Mapping[str, str], name: str, *, default: bool) -> bool:
    value = options.get(name.lower())
    if value is None:
        return default
    if value.lower() not in ("true", "false"):
        raise _wrong(name, "true or false", value)
    return value.lower() == "true"


def _choice(options: Mapping[str, str], name: str, choices: tuple[str, ...]) -> str | None:
    value = options.get(name.lower())
    if value is not None and value.lower() not in choices:
        raise _wrong(name, " or ".join(choices), value)
    return None if value is None or value.lower() == "none" else value.lower()


def _count(options: Mapping[str, str], name: str, least: int = 1) -> int | None:
    value = options.get(name.lower())
    if value is None:
        return None
    try:
        number = int(value)
    except ValueError:
        number = least - 1
    if not least <= number < 1 << 63:
        raise _wrong(name, f"a whole number from {least} up", value)
    return number


_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


def _seconds(options: Mapping[str, str], name: str, default: float) -> float:
    value = options.get(name.lower())
    if value is None:
        return default
    match = re.fullmatch(r"\s*(\d+(?:\.\d*)?)\s*(ms|s|m|h)?\s*", value.lower())
    if match is None:
        raise _wrong(name, "seconds, or a number with ms, s, m or h", value)
    return float(match[1]) * _UNITS[match[2] or "s"]


def _places(options: Mapping[str, str], name: str) -> Places | None:
    value = options.get(name.lower())
    if value is None:
        return None
    takes = '"earliest", "latest" or JSON like {"orders": {"0": 23}} (-2 is earliest, -1 is latest)'
    if value.lower() in ("earliest", "latest"):
        return EARLIEST if value.lower() == "earliest" else LATEST
    found = _by_log(name, takes, value)
    for place in found.values():
        if place < EARLIEST:
            raise _wrong(name, takes, value)
    return found


def _times(options: Mapping[str, str], name: str, by_log: str) -> int | dict[str, int] | datetime | None:
    """Return nanoseconds, for all logs or for each; a time without a zone is returned unchanged."""
    value = options.get(name.lower())
    if value is not None:
        try:
            return int(value) * 1_000_000  # Kafka's milliseconds
        except ValueError:
            pass
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            raise _wrong(name, "milliseconds since 1970, or a time like 2026-01-31T12:00:00Z", value) from None
        return _ns(moment, timedelta(0)) if moment.tzinfo else moment
    if (text := options.get(by_log.lower())) is not None:
        found = _by_log(by_log, 'JSON like {"orders": {"0": 1770000000000}}', text)
        return {log: millis * 1_000_000 for log, millis in found.items()}
    return None


def _ns(moment: datetime, shift: timedelta) -> int:
    """Return a time, in UTC unless it has a zone, in nanoseconds since 1970, shifted by `shift`."""
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return (aware - datetime(1970, 1, 1, tzinfo=UTC) + shift) // timedelta(microseconds=1) * 1000


def _by_log(name: str, takes: str, value: str) -> dict[str, int]:
    try:
        content: Any = json.loads(value)
        return {str(log): _one(place) for log, place in content.items()}
    except (ValueError, AttributeError, TypeError, KeyError):
        raise _wrong(name, takes, value) from None


def _one(place: Any) -> int:
    """Return the offset of partition 0, the only one of a log: `{"0": 5}`, or just a number."""
    number = place if isinstance(place, int) else place["0"]
    if isinstance(number, bool) or not isinstance(number, int) or (isinstance(place, dict) and len(place) > 1):
        raise ValueError(place)
    return number
