"""Types of the responses of RabbitMQ's API, from which OpenAPI schemas are generated.

Fields of rows, and of objects in them, are optional: the query parameter `columns` selects some of them.
"""

from typing import Annotated, NotRequired, TypedDict, TypeVar

from msgspec import Meta

from holdfast.web.response_types import Json, Page

__all__ = [
    "AuthSettings",
    "BindingRow",
    "ChannelRow",
    "ClusterName",
    "ConnectionRow",
    "ConsumerRow",
    "CurrentUser",
    "Definitions",
    "Description",
    "ExchangeRow",
    "GotMessage",
    "HealthFailed",
    "HealthOk",
    "ListenerRow",
    "Listing",
    "MemoryTotal",
    "MessageStats",
    "NodeMemory",
    "NodeRow",
    "OverviewRow",
    "PermissionRow",
    "QueueInfo",
    "QueueTotals",
    "Rate",
    "Routed",
    "UserRow",
    "VhostRow",
    "WebContext",
]

T = TypeVar("T")
Listing = list[T] | Page[T]
"""All items; with the query parameter `page`, one page of them."""


class Rate(TypedDict):
    """A rate a second."""

    rate: float


class MessageStats(TypedDict, total=False):
    """Message counts since the start of the server, or of a queue since it was created, and their rates."""

    ack: int
    ack_details: Rate
    deliver: int
    deliver_details: Rate
    deliver_get: int
    deliver_get_details: Rate
    deliver_no_ack: int
    deliver_no_ack_details: Rate
    get: int
    get_details: Rate
    get_empty: int
    get_empty_details: Rate
    get_no_ack: int
    get_no_ack_details: Rate
    publish: int
    publish_details: Rate
    redeliver: int
    redeliver_details: Rate
    publish_in: int
    publish_in_details: Rate
    publish_out: int
    publish_out_details: Rate
    drop_unroutable: int
    drop_unroutable_details: Rate
    return_unroutable: int
    return_unroutable_details: Rate


class QueueTotals(TypedDict, total=False):
    """Messages in queues."""

    messages: int
    messages_details: Rate
    messages_ready: int
    messages_ready_details: Rate
    messages_unacknowledged: int
    messages_unacknowledged_details: Rate
    messages_delayed: int


class Description(TypedDict):
    """An exchange type or an authentication mechanism."""

    name: str
    description: str
    enabled: bool


class ListenerRow(TypedDict):
    """A listener."""

    node: str
    protocol: str
    ip_address: str
    port: int
    socket_opts: dict[str, Json]


class WebContext(TypedDict):
    """An HTTP listener."""

    description: str
    path: str
    port: str
    node: str
    ssl_opts: list[Json]


class ChurnRates(TypedDict, total=False):
    """Connections that were opened and closed."""

    connection_created: int
    connection_created_details: Rate
    connection_closed: int
    connection_closed_details: Rate


class ObjectTotals(TypedDict, total=False):
    """The number of objects of each kind."""

    channels: int
    connections: int
    consumers: int
    exchanges: int
    queues: int


class OverviewRow(TypedDict, total=False):
    """Versions, totals and rates of the broker."""

    management_version: str
    rates_mode: str
    sample_retention_policies: dict[str, list[int]]
    exchange_types: list[Description]
    product_version: str
    product_name: str
    rabbitmq_version: str
    cluster_name: str
    erlang_version: str
    erlang_full_version: str
    release_series_support_status: str
    disable_stats: bool
    enable_queue_totals: bool
    message_stats: MessageStats
    churn_rates: ChurnRates
    queue_totals: QueueTotals
    object_totals: ObjectTotals
    statistics_db_event_queue: int
    node: str
    listeners: list[ListenerRow]
    contexts: list[WebContext]


class Application(TypedDict):
    """A program of a node."""

    name: str
    description: str
    version: str


class NodeRow(TypedDict, total=False):
    """A node."""

    name: str
    type: str
    running: bool
    os_pid: str
    partitions: list[Json]
    cluster_links: list[Json]
    fd_total: int
    fd_used: int
    fd_used_details: Rate
    sockets_total: int
    sockets_used: int
    sockets_used_details: Rate
    proc_total: int
    proc_used: int
    proc_used_details: Rate
    mem_limit: int | None
    mem_used: int
    mem_used_details: Rate
    mem_alarm: bool
    mem_calculation_strategy: str
    disk_free: int
    disk_free_details: Rate
    disk_free_limit: int | None
    disk_free_alarm: bool
    connection_created: int
    connection_created_details: Rate
    connection_closed: int
    connection_closed_details: Rate
    rates_mode: str
    uptime: Annotated[int, Meta(description="Milliseconds.")]
    run_queue: int
    processors: int | None
    exchange_types: list[Description]
    auth_mechanisms: list[Description]
    applications: list[Application]
    contexts: list[WebContext]
    log_files: list[str]
    db_dir: str
    config_files: list[str]
    enabled_plugins: list[str]
    net_ticktime: int


class MemoryTotal(TypedDict):
    """Bytes of memory, by ways to count it."""

    rss: int
    allocated: int


class MemoryParts(TypedDict):
    """Bytes of memory, by use."""

    queue_procs: int
    other_proc: int
    strategy: str
    total: MemoryTotal


class NodeMemory(TypedDict):
    """Memory of a node."""

    memory: MemoryParts


class CurrentUser(TypedDict):
    """The current user."""

    name: str
    tags: list[str]


class AuthSettings(TypedDict):
    """Settings of OAuth, which is not supported."""

    enable_uaa: bool
    uaa_client_id: str
    uaa_location: str


class ClusterName(TypedDict):
    """The name of the cluster."""

    name: str


class BackingQueueStatus(TypedDict, total=False):
    """Positions of a queue."""

    len: int
    mode: str
    next_deliver_seq_id: int
    next_seq_id: int
    version: int


class PeerName(TypedDict, total=False):
    """A connection and its peer."""

    name: str
    peer_host: str
    peer_port: int


class ChannelName(TypedDict, total=False):
    """A channel and its peer."""

    connection_name: str
    name: str
    node: str
    number: int
    peer_host: str
    peer_port: int
    user: str


class QueueName(TypedDict, total=False):
    """The name of a queue."""

    name: str
    vhost: str


class ConsumerRow(TypedDict, total=False):
    """A consumer."""

    ack_required: bool
    active: bool
    activity_status: str
    arguments: dict[str, Json]
    channel_details: ChannelName
    consumer_tag: str
    exclusive: bool
    prefetch_count: int
    queue: QueueName


class QueueInfo(TypedDict, total=False):
    """A queue of the broker."""

    arguments: dict[str, Json]
    auto_delete: bool
    durable: bool
    exclusive: bool
    name: str
    node: str
    state: str
    type: str
    vhost: str
    backing_queue_status: BackingQueueStatus
    consumer_capacity: float
    consumer_utilisation: float
    consumers: int
    consumer_details: list[ConsumerRow]
    deliveries: list[Json]
    incoming: list[Json]
    effective_policy_definition: dict[str, Json]
    exclusive_consumer_tag: str | None
    head_message_timestamp: int | None
    idle_since: str
    memory: int
    message_bytes: int
    message_bytes_paged_out: int
    message_bytes_persistent: int
    message_bytes_ram: int
    message_bytes_ready: int
    message_bytes_unacknowledged: int
    message_stats: MessageStats
    messages: int
    messages_delayed: int
    messages_details: Rate
    messages_paged_out: int
    messages_persistent: int
    messages_ram: int
    messages_ready: int
    messages_ready_details: Rate
    messages_ready_ram: int
    messages_unacknowledged: int
    messages_unacknowledged_details: Rate
    messages_unacknowledged_ram: int
    operator_policy: str | None
    owner_pid_details: PeerName
    policy: str | None
    recoverable_slaves: Json
    single_active_consumer_tag: str | None


class ExchangeRow(TypedDict, total=False):
    """An exchange."""

    arguments: dict[str, Json]
    auto_delete: bool
    durable: bool
    internal: bool
    name: str
    type: str
    user_who_performed_action: str
    vhost: str
    message_stats: MessageStats
    incoming: list[Json]
    outgoing: list[Json]


class BindingRow(TypedDict, total=False):
    """A binding."""

    source: str
    vhost: str
    destination: str
    destination_type: str
    routing_key: str
    arguments: dict[str, Json]
    properties_key: str


class ConnectionRow(TypedDict, total=False):
    """A connection."""

    auth_mechanism: str
    channel_max: int
    channels: int
    client_properties: dict[str, Json]
    connected_at: Annotated[int, Meta(description="Milliseconds since 1970.")]
    frame_max: int
    host: str
    name: str
    node: str
    peer_cert_issuer: str | None
    peer_cert_subject: str | None
    peer_cert_validity: str | None
    peer_host: str
    peer_port: int
    port: int
    protocol: str
    recv_oct: int
    recv_oct_details: Rate
    send_oct: int
    send_oct_details: Rate
    send_pend: int
    ssl: bool
    ssl_cipher: str | None
    ssl_hash: str | None
    ssl_key_exchange: str | None
    ssl_protocol: str | None
    state: str
    timeout: int
    type: str
    user: str
    user_provided_name: Json
    user_who_performed_action: str
    vhost: str | None


class ChannelRow(TypedDict, total=False):
    """A channel."""

    acks_uncommitted: int
    confirm: bool
    connection_details: PeerName
    consumer_count: int
    consumer_details: list[ConsumerRow]
    deliveries: list[Json]
    publishes: list[Json]
    global_prefetch_count: int
    message_stats: MessageStats
    messages_unacknowledged: int
    messages_uncommitted: int
    messages_unconfirmed: int
    name: str
    node: str
    number: int
    prefetch_count: int
    state: str
    transactional: bool
    user: str
    user_who_performed_action: str
    vhost: str


class VhostMetadata(TypedDict, total=False):
    """Description and tags of a virtual host."""

    description: str
    tags: list[str]


class VhostRow(QueueTotals, total=False):
    """A virtual host."""

    cluster_state: dict[str, str]
    default_queue_type: str
    description: str
    metadata: VhostMetadata
    name: str
    tags: list[str]
    tracing: bool
    recv_oct: int
    recv_oct_details: Rate
    send_oct: int
    send_oct_details: Rate
    message_stats: MessageStats


class UserRow(TypedDict, total=False):
    """A user; the default user with its default password gets no hashes."""

    name: str
    password_hash: str
    hashing_algorithm: str | None
    tags: list[str]
    limits: dict[str, Json]


class PermissionRow(TypedDict, total=False):
    """Permissions of a user in a virtual host: regular expressions for names."""

    user: str
    vhost: str
    configure: str
    write: str
    read: str


class Definitions(TypedDict):
    """Definitions of the broker, or of one virtual host."""

    rabbit_version: str
    rabbitmq_version: NotRequired[str]
    product_name: NotRequired[str]
    product_version: NotRequired[str]
    users: NotRequired[list[dict[str, Json]]]
    vhosts: NotRequired[list[dict[str, Json]]]
    permissions: NotRequired[list[dict[str, Json]]]
    topic_permissions: NotRequired[list[Json]]
    global_parameters: NotRequired[list[Json]]
    parameters: list[Json]
    policies: list[Json]
    queues: list[dict[str, Json]]
    exchanges: list[dict[str, Json]]
    bindings: list[dict[str, Json]]


class Routed(TypedDict):
    """Whether the message was routed to a queue."""

    routed: bool


class GotMessage(TypedDict):
    """A message of a queue."""

    payload_bytes: int
    redelivered: bool
    exchange: str
    routing_key: str
    message_count: int
    properties: dict[str, Json]
    payload: str
    payload_encoding: str


class HealthOk(TypedDict):
    """A check that passed."""

    status: str
    reason: NotRequired[str]
    port: NotRequired[int]
    protocol: NotRequired[str]


class Alarm(TypedDict):
    """An active alarm."""

    node: str
    resource: str


class ExpiringCertificate(TypedDict):
    """A certificate that expires."""

    node: str
    certfile: str
    certfile_expires_on: list[str]


HealthFailed = TypedDict(
    "HealthFailed",
    {
        "status": str,
        "reason": str,
        "alarms": NotRequired[list[Alarm]],
        "missing": NotRequired[Json],
        "ports": NotRequired[list[int]],
        "protocols": NotRequired[list[str]],
        "virtual-hosts": NotRequired[list[str]],
        "expired": NotRequired[list[ExpiringCertificate]],
    },
)
HealthFailed.__doc__ = "A check that failed."
