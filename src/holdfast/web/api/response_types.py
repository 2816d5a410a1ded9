"""Types of the responses of /api/holdfast: handlers return them, and OpenAPI schemas are generated from them."""

from dataclasses import dataclass
from typing import Annotated, NotRequired, TypedDict

from msgspec import Meta

from holdfast.doctor import Check
from holdfast.log.log import SegmentStats
from holdfast.log.record import Damage
from holdfast.queue import QueueStats
from holdfast.table.migration.progress import AuditEntry
from holdfast.web.response_types import Json, Listener

__all__ = [
    "AddedRecords",
    "AllDelayed",
    "Appended",
    "Axis",
    "BackupResult",
    "BatchCommitted",
    "BatchTarget",
    "BindingSummary",
    "BodyJson",
    "Changes",
    "Cleared",
    "Compacted",
    "ConsumerSummary",
    "DeadGroup",
    "DeadLetterJson",
    "DeadLetters",
    "DeadQueue",
    "DeadQueues",
    "DelayedJson",
    "DelayedMessages",
    "DelayedQueue",
    "DeletedCount",
    "Doctor",
    "Effect",
    "Inspected",
    "LeasedJson",
    "LeasedMessages",
    "Leases",
    "LogDetail",
    "LogRecordJson",
    "LogStatsJson",
    "LoginResult",
    "MigrationJson",
    "Migrations",
    "NewToken",
    "ObjectName",
    "Overview",
    "Paused",
    "PeekedJson",
    "PeekedMessages",
    "PipelineSummary",
    "Pipelines",
    "Position",
    "Purged",
    "PutResult",
    "QueueDetail",
    "QueueRow",
    "QueueSettingsJson",
    "RecordChangesJson",
    "RecordHistory",
    "RecordJson",
    "RecordOutcome",
    "Records",
    "RecordsRead",
    "RedrivenCount",
    "ReplicaAlarmJson",
    "ReplicaJson",
    "ReplicaReport",
    "RetentionJson",
    "Returned",
    "RunJson",
    "RunOffset",
    "Seeked",
    "SegmentJson",
    "Settled",
    "ShownQueueStats",
    "Span",
    "StartedRun",
    "TableDetail",
    "TableJson",
    "TableSummary",
    "Tables",
    "TokenJson",
    "Tokens",
    "Verified",
    "VersionJson",
    "WhoAmI",
    "Written",
]

Nanoseconds = Annotated[int, Meta(description="Nanoseconds since 1970.")]
Time = Annotated[str, Meta(description="A time in UTC, such as 2026-11-15T12:00:00Z.")]
Seconds = Annotated[float, Meta(description="Seconds.")]
PerSecond = Annotated[float, Meta(description="Messages a second.")]


class Base64(TypedDict):
    """Bytes that are not valid UTF-8."""

    base64: str


Bytes = str | Base64


# Sessions.


class WhoAmI(TypedDict):
    """The current user; the expiry is null if the request has no token."""

    name: str
    tags: list[str]
    expires_at: Nanoseconds | None
    expires_time: Time | None


class LoginResult(WhoAmI):
    """A new session."""

    token: str


class TokenJson(TypedDict):
    """A token, without its text."""

    id: str
    name: str
    user: str
    created_at: Nanoseconds
    created_time: Time | None
    expires_at: Nanoseconds
    expires_time: Time | None


class NewToken(TokenJson):
    """A new token with its text, which is returned only once."""

    token: str


class Tokens(TypedDict):
    """Tokens, oldest first."""

    tokens: list[TokenJson]


# The server.


class MessageTotals(TypedDict):
    """Messages in all queues."""

    ready: int
    delayed: int
    leased: int
    unacked: Annotated[int, Meta(description="Leased messages that were delivered over AMQP.")]
    dead: int
    oldest_age: Seconds


class MessageRates(TypedDict):
    """Messages a second, over the last 15 seconds."""

    put: PerSecond
    deliver: PerSecond
    ack: PerSecond


class ObjectCounts(TypedDict):
    """The number of objects of each kind."""

    queues: int
    exchanges: int
    bindings: int
    connections: int
    channels: int
    consumers: int
    logs: int
    tables: int
    vhosts: int


class MemoryUse(TypedDict):
    """Memory of the process and of message bodies, in bytes."""

    resident: int
    limit: int | None
    bodies: int
    bodies_limit: int | None
    alarm: Annotated[str | None, Meta(description="memory, disk or replica, while that alarm blocks publishers.")]


class DiskUse(TypedDict):
    """The disk of the store, in bytes."""

    free: int
    total: int
    limit: int | None
    used: int


class ReplicaJson(TypedDict):
    """The replica of the store; texts and URL are null without the tag monitoring or administrator."""

    url: str | None
    role: Annotated[str, Meta(description="owner, fenced, standby, or none before an epoch was claimed.")]
    epoch: int
    moment: Annotated[str | None, Meta(description="The last moment in the bucket.")]
    shipped_at: Nanoseconds | None
    shipped_time: Time | None
    lag_seconds: Seconds
    lag_limit: Annotated[float, Meta(description="The setting replica_lag_limit, in seconds.")]
    lag_records: int
    lag_bytes: int
    lost_records: Annotated[int, Meta(description="Records that left a full disk before they were shipped.")]
    repaired: Annotated[int, Meta(description="Objects that somebody had deleted, and that were uploaded again.")]
    error: Annotated[str | None, Meta(description="Why the last attempt failed; null if it did not.")]
    reason: Annotated[str | None, Meta(description="The same in one word, such as unavailable or expired.")]
    failing_since: Nanoseconds | None
    failing_since_time: Time | None
    last_error: Annotated[str | None, Meta(description="The last error, also if it was overcome.")]
    last_error_at: Nanoseconds | None
    last_error_time: Time | None
    requests: Annotated[dict[str, int], Meta(description="Since the start, by kind: get, put, list, delete.")]
    failures: Annotated[dict[str, int], Meta(description="Those of them that failed.")]
    sent_bytes: int


class ReplicaAlarmJson(TypedDict):
    """An alarm of the replica. It blocks no publishers."""

    alarm: Annotated[str, Meta(description="replica-fenced, replica-failing, replica-lag or replica-lost.")]
    since: Nanoseconds
    since_time: Time | None
    text: str


class ReplicaReport(TypedDict):
    """The replica of the store, null without one, and its alarms, the most serious first."""

    replica: ReplicaJson | None
    alarms: list[ReplicaAlarmJson]


class Overview(TypedDict):
    """Totals of the server; `data` is null without the tag monitoring or administrator."""

    version: str
    python: str
    node: str
    data: str | None
    started_at: Nanoseconds
    started_time: Time | None
    uptime: Seconds
    totals: MessageTotals
    rates: MessageRates
    counts: ObjectCounts
    memory: MemoryUse
    disk: DiskUse
    warnings: list[str]
    replica: ReplicaJson | None
    alarms: Annotated[list[ReplicaAlarmJson], Meta(description="Alarms of the replica.")]
    listeners: list[Listener]


class Doctor(TypedDict):
    """The results of all checks."""

    checks: list[Check]


class BackupResult(TypedDict):
    """Content and cost of a backup."""

    path: str
    created_at: Nanoseconds
    base: str | None
    files: int
    bytes: int
    new_bytes: int
    linked_bytes: int
    reused_files: int
    logs: int
    queues: int
    tables: int
    held: Seconds
    took: Seconds
    left_out: list[str]


# Messages.


class BodyJson(TypedDict):
    """Key, headers and payload of a message or record."""

    key: Bytes | None
    headers: dict[str, Json]
    payload: Bytes
    size: NotRequired[Annotated[int, Meta(description="Bytes of the whole payload, which may be truncated here.")]]
    truncated: NotRequired[bool]
    exchange: NotRequired[Annotated[str, Meta(description="Only if it was published over AMQP, as the next two.")]]
    routing_key: NotRequired[str]
    properties: NotRequired[dict[str, Json]]


class PeekedJson(BodyJson):
    """A waiting message."""

    id: int
    priority: int
    enqueued_at: Nanoseconds
    enqueued_time: Time | None
    attempts: int


class DelayedJson(BodyJson):
    """A delayed message."""

    id: int
    priority: int
    enqueued_at: Nanoseconds
    enqueued_time: Time | None
    attempts: int
    due_at: Nanoseconds
    due_time: Time | None


class LeasedJson(BodyJson):
    """A leased message."""

    id: int
    priority: int
    enqueued_at: Nanoseconds
    enqueued_time: Time | None
    attempt: int
    lease: int


class PeekedMessages(TypedDict):
    """The next messages of a queue."""

    messages: list[PeekedJson]


class LeasedMessages(TypedDict):
    """Messages that this request has leased."""

    messages: list[LeasedJson]


class PutResult(TypedDict):
    """The ids of the messages, in their order; of a duplicate, that of the first message."""

    ids: list[int]
    duplicates: int


class Settled(TypedDict):
    """How many messages were settled, and the ids of those whose lease was lost."""

    done: int
    lost: list[int]


# Queues.


class QueueRow(TypedDict):
    """A queue in a list; of a queue that is being closed, some fields are missing."""

    vhost: str
    name: str
    state: str
    ready: int
    delayed: int
    leased: int
    moving: Annotated[int, Meta(description="Messages that are being moved to another queue.")]
    oldest_age: Seconds | None
    lag: Annotated[int, Meta(description="Records from the oldest unacknowledged message to the end of the log.")]
    dead: Annotated[int, Meta(description="Messages in its dead-letter queue.")]
    died: Annotated[int, Meta(description="Messages that became dead letters.")]
    log: NotRequired[str]
    put_rate: NotRequired[PerSecond]
    lease_rate: NotRequired[PerSecond]
    ack_rate: NotRequired[PerSecond]
    consumers: NotRequired[int]
    dead_letters_dropped: NotRequired[int]
    memory: NotRequired[Annotated[int, Meta(description="Bytes of message bodies in memory.")]]
    durable: NotRequired[bool]
    exclusive: NotRequired[bool]
    auto_delete: NotRequired[bool]
    in_broker: NotRequired[Annotated[bool, Meta(description="Whether it is declared in the broker.")]]
    arguments: NotRequired[dict[str, Json]]


@dataclass(frozen=True, slots=True)
class ShownQueueStats(QueueStats):
    """Counts, ages, rates and latencies of a queue, with times also as text."""

    next_due_at: int | None = None
    next_due_time: str | None = None
    checkpoint_failing_since_at: int | None = None
    checkpoint_failing_since_time: str | None = None


class BackoffJson(TypedDict):
    """The delay before a failed message is redelivered."""

    base: Seconds
    cap: Seconds
    factor: float


class QueueSettingsJson(TypedDict):
    """Settings of a queue; durations in seconds."""

    log: str
    lease: Seconds
    max_attempts: int | None
    backoff: BackoffJson
    dead_letter: str | None
    dedup_window: Seconds
    dedup_limit: int
    starvation: Seconds | None
    ttl: Seconds | None
    expired: str
    max_length: int | None
    max_bytes: int | None
    overflow: str
    history: Seconds
    shorten_history: bool


class ObjectPermissions(TypedDict):
    """The caller's permissions on an object."""

    configure: bool
    write: bool
    read: bool


class ObjectName(TypedDict):
    """The name of a queue."""

    vhost: str
    name: str


class DeadLetterExchange(TypedDict):
    """Where a queue sends its dead letters."""

    exchange: str
    routing_key: str | None


class DeadLetterQueue(TypedDict):
    """A queue to which a dead-letter exchange routes."""

    vhost: str
    name: str
    ready: int


class ConsumerSummary(TypedDict):
    """An AMQP consumer of a queue."""

    tag: str
    connection: str
    channel: int
    user: str
    prefetch: int
    no_ack: bool
    unacked: int
    priority: int
    active: bool


class BindingSummary(TypedDict):
    """A binding of a queue."""

    source: str
    routing_key: str
    arguments: dict[str, Json]


class QueueDetail(QueueRow):
    """One queue."""

    paused: bool
    may: ObjectPermissions
    stats: ShownQueueStats
    put_total: int
    settings: QueueSettingsJson
    dead_letter: ObjectName | None
    dead_letter_exchange: NotRequired[DeadLetterExchange | None]
    dead_letter_queues: list[DeadLetterQueue]
    consumers_detail: list[ConsumerSummary]
    bindings: list[BindingSummary]


class Purged(TypedDict):
    """The number of messages that were removed."""

    purged: int


class Paused(TypedDict):
    """Whether the queue is paused."""

    paused: bool


class LeaseJson(TypedDict):
    """A lease; `ids` has the first messages of it, `count` is the number of all."""

    lease: int
    count: int
    ids: list[int]
    since_at: Nanoseconds
    since_time: Time | None
    expires_at: Nanoseconds
    expires_time: Time | None
    held_by: Annotated[str | None, Meta(description="consumer, if an AMQP consumer holds it: it has no expiry.")]


class Leases(TypedDict):
    """The leases of a queue, oldest first."""

    leases: list[LeaseJson]


class Returned(TypedDict):
    """The number of messages that are ready again."""

    returned: int


class Bucket(TypedDict):
    """Delayed messages that are due within a time."""

    start_at: Nanoseconds
    end_at: Nanoseconds
    count: int


class Axis(TypedDict):
    """Due times of delayed messages: the first, the last, and a histogram."""

    first_due: Nanoseconds | None
    last_due: Nanoseconds | None
    buckets: list[Bucket]


class DelayedQueue(Axis):
    """A queue with delayed messages."""

    vhost: str
    name: str
    total: int


class AllDelayed(TypedDict):
    """The queues with the most delayed messages, and totals of all queues."""

    total: int
    total_queues: int
    queues: list[DelayedQueue]


class DelayedMessages(Axis):
    """The next delayed messages of a queue."""

    total: int
    messages: list[DelayedJson]


class Seeked(TypedDict):
    """The effect of a seek."""

    position: int
    log_start: int
    log_end: int
    delivered: int
    waiting_now: int
    dropped: int
    sample: Annotated[list[PeekedJson], Meta(description="The first messages that are delivered from there.")]
    dry_run: bool


# Dead letters.


class DeadGroup(TypedDict):
    """Dead letters with the same origin, reason and cause."""

    reason: str
    cause: str
    origin: str
    count: int
    first_died_at: Nanoseconds
    last_died_at: Nanoseconds


class DeadQueue(TypedDict):
    """A queue with dead letters."""

    vhost: str
    name: str
    count: int
    more: Annotated[bool, Meta(description="Whether there are messages that were not examined.")]
    groups: list[DeadGroup]


class DeadQueues(TypedDict):
    """The queues with dead letters."""

    queues: list[DeadQueue]


class DeadLetterJson(BodyJson):
    """A dead letter."""

    id: int
    reason: str
    cause: str
    attempts: int
    queue: str
    original_id: int
    redriven: int
    enqueued_at: Nanoseconds | None
    enqueued_time: Time | None
    died_at: Nanoseconds
    died_time: Time | None
    first_failed_at: Nanoseconds | None
    first_failed_time: Time | None
    last_failed_at: Nanoseconds | None
    last_failed_time: Time | None


class DeadLetters(TypedDict):
    """Dead letters of a queue; `total` and `groups` are null in a continuation."""

    total: int | None
    more: bool
    groups: list[DeadGroup] | None
    letters: list[DeadLetterJson]
    next: Annotated[int | None, Meta(description="Pass it as `from` to continue; null at the end.")]


class RedrivenCount(TypedDict):
    """The number of dead letters that were returned to their queues."""

    redriven: int


class DeletedCount(TypedDict):
    """The number of dead letters that were deleted."""

    deleted: int


# Logs.


class TailerJson(TypedDict):
    """A named tailer, or the position of a queue."""

    name: str
    position: int
    lag: int
    committed_at: Nanoseconds
    committed_time: Time | None
    owner: str | None
    queue: NotRequired[ObjectName | None]


class LogStatsJson(TypedDict):
    """Statistics of a log; `vhost` and `label` are the names that users know."""

    name: str
    start: int
    end: int
    records: int
    bytes: int
    segments: int
    first_timestamp: Nanoseconds | None
    last_timestamp: Nanoseconds | None
    damage: int
    tailers: list[TailerJson]
    remote_bytes: int
    remote_segments: int
    vhost: str
    label: str
    first_time: Time | None
    last_time: Time | None


class SegmentJson(TypedDict):
    """A segment of a log."""

    name: str
    first: int
    records: int
    bytes: int
    created: Nanoseconds
    remote: bool
    created_time: Time | None


class RetentionJson(TypedDict):
    """Limits above which old segments are dropped."""

    max_age: Seconds | None
    max_bytes: int | None
    max_segments: int | None
    min_segments: int


class SchemaVersionJson(TypedDict):
    """A version of the schema of a log."""

    version: int
    format: str
    text: str
    message: str | None
    compatibility: str
    validate: bool
    created: Nanoseconds
    created_time: Time | None
    since: Annotated[int, Meta(description="The sequence at which the log ended when the version was set.")]


class SchemaVersionsJson(TypedDict):
    """All versions, oldest first; none if the log has no schema."""

    versions: list[SchemaVersionJson]


class SchemaVerdict(TypedDict):
    """Whether a schema could be set, and why not."""

    ok: bool
    problem: str | None


class LogSettingsJson(TypedDict):
    """Settings of an open log."""

    flush: str
    flush_bytes: int
    flush_interval: Seconds
    roll_bytes: int | None
    roll_interval: Seconds | None
    roll_records: int | None
    index_interval: int
    verify_on_open: bool
    max_message: int
    compression: str | None
    retention: RetentionJson | None
    local_retention: RetentionJson | None


class LogDetail(TypedDict):
    """One log; `settings` is null if it is not open."""

    id: Annotated[str, Meta(description="Another log of the same name, made after this one was deleted, has another.")]
    stats: LogStatsJson
    readable: Annotated[list[int], Meta(description="The first readable sequence, and the end.")]
    segments: list[SegmentJson]
    tailers: list[TailerJson]
    settings: LogSettingsJson | None
    queues: list[ObjectName]
    damage: list[Damage]


class LogRecordJson(TypedDict):
    """A record of a log."""

    sequence: int
    timestamp: Nanoseconds
    time: Time | None
    key: Bytes | None
    headers: dict[str, Bytes]
    payload: Bytes


class RecordsRead(TypedDict):
    """Records of a log, and its readable range."""

    records: list[LogRecordJson]
    start: int
    end: int
    damage: list[Damage]


class Appended(TypedDict):
    """The first sequence and the number of the records; the sequence is null without records."""

    first: int | None
    count: int


class BatchTarget(TypedDict):
    """The log of a target, and the number of the last batch of a query that was added; -1 if there is none."""

    log: str
    last: int


class BatchCommitted(TypedDict):
    """What became of a batch: `adopted`, `waiting` or `refused`; `repeated` if it was committed before."""

    outcome: str
    repeated: bool


class Position(TypedDict):
    """A sequence of a log."""

    sequence: int


class LogRange(TypedDict):
    """Range and size of a log."""

    start: int
    end: int
    bytes: int
    segments: int


class Compacted(TypedDict):
    """Segments that were dropped, or would be; `held_back` are kept because queues or tailers need them."""

    dry_run: bool
    removed: int
    segments: list[SegmentStats]
    records: int
    bytes: int
    held_back: int
    left: LogRange


class Cleared(TypedDict):
    """The number of records that were dropped, and the range of the log."""

    removed: int
    start: int
    end: int


class Verified(TypedDict):
    """The result of reading the whole log."""

    segments: int
    blocks: int
    records: int
    bytes: int
    damage: list[Damage]
    ok: bool


class Inspected(TypedDict):
    """What is stored at a byte of a segment."""

    path: str
    offset: int
    what: str
    details: dict[str, Json]
    record: LogRecordJson | None


# Tables.


class FieldJson(TypedDict):
    """A field of a table."""

    name: str
    number: int
    type: str
    unique: bool
    final: bool
    required: bool


class TableJson(TypedDict):
    """Statistics and fields of a table."""

    name: str
    id: int | None
    version: str
    count: int
    deleted: int
    log_bytes: int
    keep_all_versions: bool
    update_history: bool
    first_time: Time | None
    last_version: int | None
    last_version_time: Time | None
    fields: list[FieldJson]
    indexes: list[str]
    key: list[str] | None


class TableSummary(TypedDict):
    """A table in a list; of one that cannot be opened, only its name and the error."""

    name: str
    error: NotRequired[str]
    id: NotRequired[int | None]
    version: NotRequired[str]
    count: NotRequired[int]
    deleted: NotRequired[int]
    log_bytes: NotRequired[int]
    keep_all_versions: NotRequired[bool]
    update_history: NotRequired[bool]
    first_time: NotRequired[Time | None]
    last_version: NotRequired[int | None]
    last_version_time: NotRequired[Time | None]
    fields: NotRequired[list[FieldJson]]
    indexes: NotRequired[list[str]]
    key: NotRequired[list[str] | None]


class Tables(TypedDict):
    """All tables."""

    tables: list[TableSummary]


class TableDetail(TableJson):
    """One table with its model."""

    definition: dict[str, Json]


class RecordJson(TypedDict):
    """A record; its values by field name."""

    key: str
    version: int
    version_time: Time
    created: int
    created_time: Time
    deleted: bool
    values: Json


class Records(TypedDict):
    """Records that match a filter; with `explain`, only the plan of the query."""

    explain: str
    records: NotRequired[list[RecordJson]]
    next: NotRequired[Annotated[str | None, Meta(description="Pass it as `cursor` to continue; null at the end.")]]
    plan: NotRequired[dict[str, Json]]


class ChangedPath(TypedDict):
    """A change of one value."""

    path: str
    old: Json
    new: Json


class VersionJson(TypedDict):
    """A version of a record; `deleted` and `values` are null unless the table keeps all versions."""

    version: int
    version_time: Time
    kind: str
    deleted: bool | None
    values: Json
    changes: list[ChangedPath]


class RecordHistory(TypedDict):
    """The versions of a record, newest last."""

    key: str
    created: int
    versions: list[VersionJson]


class ChangedVersion(TypedDict):
    """A version of a record, with the values that it changed, by path."""

    version: int
    version_time: Time
    kind: str
    values: dict[str, Json]


class RecordChangesJson(TypedDict):
    """Changes of a record."""

    key: str
    created: int
    created_time: Time
    versions: list[ChangedVersion]


class Changes(TypedDict):
    """Changes of records."""

    records: list[RecordChangesJson]


class Span(TypedDict):
    """The times of the first and the last version of a table."""

    first_at: Nanoseconds | None
    first_time: Time | None
    last_version: int | None
    last_at: Nanoseconds | None
    last_time: Time | None
    keeps_versions: bool


class Written(TypedDict):
    """A record that was written."""

    key: str
    version: int
    version_time: Time
    changed: bool


class RecordOutcome(TypedDict):
    """The outcome for one record: either key and version, or an error."""

    status: Annotated[str, Meta(description="done or failed.")]
    key: NotRequired[str]
    version: NotRequired[int]
    version_time: NotRequired[Time]
    changed: NotRequired[bool]
    error: NotRequired[str]
    reason: NotRequired[str]


class AddedRecords(TypedDict):
    """The outcome of each record, in their order."""

    outcomes: list[RecordOutcome]


class MigrationJson(TypedDict):
    """The migration of a table, with its events."""

    table: str
    state: str
    phase: str | None
    cursor: Json
    attempts: int
    processed: int
    total: int | None
    started: Nanoseconds | None
    error: str
    started_time: Time | None
    audit: list[AuditEntry]


class Migrations(TypedDict):
    """The migrations of all tables."""

    migrations: list[MigrationJson]


class Effect(TypedDict):
    """Whether anything changed."""

    done: bool


# Pipelines.


class PipelineOption(TypedDict):
    """An option of a pipeline."""

    name: str
    help: str
    kind: str
    words: list[str]
    default: str | None
    required: bool
    many: bool


class PipelineSummary(TypedDict):
    """A pipeline."""

    name: str
    description: str
    options: list[PipelineOption]


class RunOffset(TypedDict):
    """The offset of a stream in a log."""

    query: str
    log: str
    batch: int
    offset: Json
    end: int | None
    lag: int | None


class RunJson(TypedDict):
    """A run of a pipeline."""

    id: str
    pipeline: str
    started_at: Nanoseconds
    process: int
    options: dict[str, Json]
    ended_at: Nanoseconds | None
    ok: bool | None
    title: str
    rows: list[dict[str, Json]]
    facts: dict[str, Json]
    error: str
    state: str
    started_time: Time | None
    ended_time: Time | None
    offsets: list[RunOffset]


class Pipelines(TypedDict):
    """The pipelines and their last runs; `options_pending` while options are being loaded."""

    pipelines: list[PipelineSummary]
    options_pending: bool
    runs: list[RunJson]


class StartedRun(TypedDict):
    """A run that was started."""

    id: str
    pipeline: str
    state: str
    started_at: Nanoseconds
