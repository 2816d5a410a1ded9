"""The permission table as it must be, written down once more by hand: docs and code are checked against this one."""

from dataclasses import dataclass, field
from itertools import product

__all__ = ["TABLE", "USERS", "Row", "User", "allowed"]

Request = tuple[str, str, object]
"""Method, path, body."""

Q = "/api/holdfast/queues/%2F/orders"
RQ = "/api/queues/%2F/orders"
LOG = "/api/holdfast/logs/clicks"
TABLE_PATH = "/api/holdfast/tables/Account"
HELD = {"messages": [{"id": 0, "lease": 1}]}


@dataclass(frozen=True, slots=True)
class Row:
    """One operation on one kind of resource, and by which calls of each protocol it is done."""

    operation: str
    resource: str
    permissions: tuple[str, ...] = ()
    """All of these are needed, unless the user has the tag."""
    tag: str | None = None
    http: tuple[Request, ...] = ()
    rabbit: tuple[Request, ...] = ()
    amqp: tuple[str, ...] = ()
    capnp: tuple[str, ...] = ()
    tagged: tuple[str, ...] = field(default=("rabbit",))
    """Protocols whose calls need any tag beside it."""


@dataclass(frozen=True, slots=True)
class User:
    """A user with these permissions on everything in `/`, and at most one tag."""

    permissions: tuple[str, ...]
    tag: str | None

    @property
    def name(self) -> str:
        return "-".join(("u", *(one[0] for one in self.permissions), self.tag or "none"))

    @property
    def patterns(self) -> tuple[str, str, str]:
        configure, write, read = (".*" if one in self.permissions else "" for one in ("configure", "write", "read"))
        return configure, write, read


_PERMISSIONS: tuple[tuple[str, ...], ...] = (
    (),
    ("configure",),
    ("write",),
    ("read",),
    ("write", "read"),
    ("configure", "write", "read"),
)
_INCLUDES = {
    None: set[str](),
    "management": {"management"},
    "monitoring": {"monitoring", "management"},
    "administrator": {"administrator", "monitoring", "management"},
}
USERS = [User(permissions, tag) for permissions, tag in product(_PERMISSIONS, _INCLUDES)]


def allowed(user: User, row: Row, protocol: str) -> bool:
    """Whether the table lets this user do this by this protocol."""
    has = _INCLUDES[user.tag]
    if protocol in row.tagged and "management" not in has:
        return False
    if row.tag is not None and row.tag in has:
        return True
    return bool(row.permissions) and set(row.permissions) <= set(user.permissions)


def _binding(kind: str, destination: str) -> tuple[Request, ...]:
    path = f"/api/bindings/%2F/e/news/{kind}/{destination}"
    return (("POST", path, {"routing_key": "k"}), ("DELETE", f"{path}/k", None))


TABLE = [
    Row(
        "declare",
        "queue",
        ("configure",),
        http=(("POST", "/api/holdfast/queues", {"name": "orders"}),),
        rabbit=(("PUT", RQ, {"durable": True}),),
        amqp=("queue.declare",),
        tagged=("http", "rabbit"),
    ),
    Row(
        "delete",
        "queue",
        ("configure",),
        http=(("DELETE", Q, None),),
        rabbit=(("DELETE", RQ, None),),
        amqp=("queue.delete",),
    ),
    Row("pause, resume", "queue", ("configure",), http=(("POST", f"{Q}/pause", None), ("POST", f"{Q}/resume", None))),
    Row("seek", "queue", ("configure",), http=(("POST", f"{Q}/seek", {"to": "start"}),)),
    Row("end a lease of others", "queue", ("configure",), http=(("DELETE", f"{Q}/leases/1", None),)),
    Row(
        "bind, unbind",
        "queue",
        ("write", "read"),
        rabbit=_binding("q", "orders"),
        amqp=("queue.bind", "queue.unbind"),
    ),
    Row(
        "purge",
        "queue",
        ("read",),
        http=(("POST", f"{Q}/purge", None),),
        rabbit=(("DELETE", f"{RQ}/contents", None),),
        amqp=("queue.purge",),
    ),
    Row(
        "put",
        "queue",
        ("write",),
        http=(("POST", f"{Q}/messages", {"messages": [{"payload": "x"}]}),),
        capnp=("put",),
    ),
    Row(
        "take and settle",
        "queue",
        ("read",),
        http=(
            ("POST", f"{Q}/leases", {}),
            *(("POST", f"{Q}/{what}", HELD) for what in ("ack", "nack", "release", "extend")),
        ),
        rabbit=(("POST", f"{RQ}/get", {"count": 1, "ackmode": "ack_requeue_true", "encoding": "auto"}),),
        amqp=("basic.get", "basic.consume"),
        capnp=("lease", "ack", "nack", "extend", "release"),
    ),
    Row("see the figures", "queue", ("read",), "monitoring", http=(("GET", Q, None),)),
    Row(
        "look",
        "queue",
        ("read",),
        http=tuple(
            ("GET", Q + what, None) for what in ("/messages", "/messages/0", "/leases", "/delayed", "/dead", "/dead/0")
        ),
        capnp=("peek", "stats"),
    ),
    Row("delete dead letters", "queue", ("read",), http=(("POST", f"{Q}/dead/delete", {}),)),
    Row("redrive", "queue", ("write", "read"), http=(("POST", f"{Q}/redrive", {}),)),
    Row(
        "declare",
        "exchange",
        ("configure",),
        rabbit=(("PUT", "/api/exchanges/%2F/news", {"type": "topic", "durable": True}),),
        amqp=("exchange.declare",),
    ),
    Row(
        "delete",
        "exchange",
        ("configure",),
        rabbit=(("DELETE", "/api/exchanges/%2F/news", None),),
        amqp=("exchange.delete",),
    ),
    Row(
        "bind, unbind",
        "exchange",
        ("write", "read"),
        rabbit=_binding("e", "other"),
        amqp=("exchange.bind", "exchange.unbind"),
    ),
    Row(
        "publish",
        "exchange",
        ("write",),
        rabbit=(
            (
                "POST",
                "/api/exchanges/%2F/news/publish",
                {"routing_key": "k", "payload": "x", "payload_encoding": "string", "properties": {}},
            ),
        ),
        amqp=("basic.publish",),
    ),
    Row("list", "log", (), "monitoring", http=(("GET", "/api/holdfast/logs", None),)),
    Row(
        "look",
        "log",
        ("read",),
        "monitoring",
        http=(("GET", LOG, None), ("GET", f"{LOG}/sequence_at?time=0", None)),
    ),
    Row("verify", "log", (), "monitoring", http=(("POST", f"{LOG}/verify", None),)),
    Row(
        "read",
        "log",
        ("read",),
        "administrator",
        http=(("GET", f"{LOG}/records", None), ("GET", f"{LOG}/inspect", None)),
    ),
    Row(
        "append",
        "log",
        ("write",),
        "administrator",
        http=(("POST", f"{LOG}/records", {"records": [{"payload": "x"}]}),),
    ),
    Row(
        "compact, clear",
        "log",
        ("configure",),
        "administrator",
        http=(("POST", f"{LOG}/compact", {"max_segments": 1000}), ("POST", f"{LOG}/clear", {"force": True})),
    ),
    Row(
        "make, move or remove a tailer",
        "log",
        ("configure",),
        "administrator",
        http=(("PUT", f"{LOG}/tailers/audit", {"position": 0}), ("DELETE", f"{LOG}/tailers/audit", None)),
    ),
    Row(
        "list",
        "table",
        (),
        "monitoring",
        http=(("GET", "/api/holdfast/tables", None), ("GET", "/api/holdfast/migrations", None)),
    ),
    Row(
        "look", "table", ("read",), "monitoring", http=(("GET", TABLE_PATH, None), ("GET", f"{TABLE_PATH}/span", None))
    ),
    Row(
        "read",
        "table",
        ("read",),
        "administrator",
        http=tuple(
            ("GET", TABLE_PATH + what, None)
            for what in ("/records", "/records/{key}", "/records/{key}/history", "/changes")
        ),
    ),
    Row(
        "add, change, delete softly, undelete",
        "table",
        ("write",),
        "administrator",
        http=(
            ("POST", f"{TABLE_PATH}/records", {"records": [{"secret": "x"}]}),
            ("PATCH", TABLE_PATH + "/records/{key}", {"changes": {"secret": "y"}}),
            ("DELETE", TABLE_PATH + "/records/{key}", None),
            ("POST", TABLE_PATH + "/records/{key}/undelete", None),
        ),
    ),
    Row(
        "delete for good",
        "table",
        (),
        "administrator",
        http=(("DELETE", TABLE_PATH + "/records/{key}?hard=true", None),),
    ),
    Row(
        "pause, resume, cancel a migration",
        "table",
        (),
        "administrator",
        http=(("POST", "/api/holdfast/migrations/Account/pause", None),),
    ),
    Row(
        "back up, run a pipeline",
        "server",
        (),
        "administrator",
        http=(
            ("POST", "/api/holdfast/backup", {"to": "{folder}/backup"}),
            ("POST", "/api/holdfast/pipelines/verify/runs", {"options": {"log": ["too", "many"]}}),
        ),
    ),
]
