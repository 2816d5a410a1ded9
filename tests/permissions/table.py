"""The permission table as it must be, written down once more by hand: docs and code are checked against this one."""

import re
from dataclasses import dataclass, field
from itertools import product

__all__ = ["GUEST", "IN_ITSELF", "TABLE", "USERS", "Row", "User", "allowed"]

Request = tuple[str, str, object]
"""Method, path, body."""

Q = "/api/holdfast/queues/%2F/orders"
RQ = "/api/queues/%2F/orders"
PROGRAM = "/api/holdfast/queues/%2F/program"
"""A queue that a program made, whose dead letters are in `program.dead`."""
LOG = "/api/holdfast/logs/clicks"
TABLE_PATH = "/api/holdfast/tables/Account"
HELD = {"messages": [{"id": 0, "lease": 1}]}


@dataclass(frozen=True, slots=True)
class Row:
    """One operation on one kind of resource, and by which calls of each protocol it is done."""

    operation: str
    resource: str
    needs: tuple[tuple[str, str], ...] = ()
    """Permissions, each with the name that it is needed on. All of these are needed, unless the user has the tag."""
    tag: str | None = None
    http: tuple[Request, ...] = ()
    rabbit: tuple[Request, ...] = ()
    amqp: tuple[str, ...] = ()
    capnp: tuple[str, ...] = ()
    tagged: tuple[str, ...] = field(default=("rabbit",))
    """Protocols whose calls need any tag beside it."""
    not_default: bool = False
    """Whether the default user with its default password may not, whatever its tags and permissions are."""


@dataclass(frozen=True, slots=True)
class User:
    """A user with these permissions in `/`, which are patterns of names, and at most one tag."""

    name: str
    configure: str = ""
    write: str = ""
    read: str = ""
    tag: str | None = None
    is_default: bool = False

    @property
    def patterns(self) -> tuple[str, str, str]:
        return self.configure, self.write, self.read

    def has(self, permission: str, name: str) -> bool:
        """Whether the user has a permission on a name; an empty pattern is found in no name."""
        pattern = dict(zip(_KINDS, self.patterns, strict=True))[permission]
        return bool(pattern) and re.search(pattern, name) is not None


_KINDS = ("configure", "write", "read")
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


def _user(name: str, patterns: dict[str, str], tag: str | None) -> User:
    configure, write, read = (patterns.get(kind, "") for kind in _KINDS)
    return User(name, configure, write, read, tag)


_ON_EVERYTHING = [
    _user("-".join(("u", *(one[0] for one in permissions), tag or "none")), dict.fromkeys(permissions, ".*"), tag)
    for permissions, tag in product(_PERMISSIONS, _INCLUDES)
]
_ON_ONE_NAME = [
    _user(f"only-{name}-{tag}", dict.fromkeys(_KINDS, f"^{re.escape(name)}$"), tag)
    for name, tag in product(("orders", "news", "other", "program", "program.dead"), ("management", "administrator"))
]
"""All permissions, but on one name: an operation that needs two names is not theirs."""
_CROSSED = [
    User(f"w-{write}-r-{read}", "", f"^{re.escape(write)}$", f"^{re.escape(read)}$", "management")
    for one, other in (("orders", "news"), ("other", "news"), ("program", "program.dead"))
    for write, read in ((one, other), (other, one))
]
"""Write on one of two names and read on the other: one way round that is enough, the other way it is not."""
_READS_BOTH = [User("r-program-and-dead", read=r"^program(\.dead)?$", tag="management")]
GUEST = User("guest", ".*", ".*", ".*", "administrator", is_default=True)
USERS = [*_ON_EVERYTHING, *_ON_ONE_NAME, *_CROSSED, *_READS_BOTH, GUEST]


def allowed(user: User, row: Row, protocol: str) -> bool:
    """Whether the table lets this user do this by this protocol."""
    has = _INCLUDES[user.tag]
    if protocol in row.tagged and "management" not in has:
        return False
    if row.not_default and user.is_default:
        return False
    if row.tag is not None and row.tag in has:
        return True
    return bool(row.needs) and all(user.has(permission, name) for permission, name in row.needs)


def _blocks(folder: str) -> Request:
    return "GET", f"/api/holdfast/blocks/{folder}/0/0?start=0&stop=8", None


def _batches(what: str, name: str) -> tuple[Request, ...]:
    """Requests about a batch of finished blocks; without parts, nothing is added."""
    part = f"/api/holdfast/batches/{'0' * 24}-0-0-00.part?{what}={name}"
    return (
        ("GET", f"/api/holdfast/batches?{what}={name}", None),
        ("PUT", part, None),
        ("DELETE", part, None),
        ("POST", "/api/holdfast/batches", {what: name, "query": "q", "batch": 0, "parts": []}),
    )


def _binding(kind: str, destination: str) -> tuple[Request, ...]:
    path = f"/api/bindings/%2F/e/news/{kind}/{destination}"
    return (("POST", path, {"routing_key": "k"}), ("DELETE", f"{path}/k", None))


TABLE = [
    Row(
        "declare",
        "queue",
        (("configure", "orders"),),
        http=(("POST", "/api/holdfast/queues", {"name": "orders"}),),
        rabbit=(("PUT", RQ, {"durable": True}),),
        amqp=("queue.declare",),
        tagged=("http", "rabbit"),
    ),
    Row(
        "delete",
        "queue",
        (("configure", "orders"),),
        http=(("DELETE", Q, None),),
        rabbit=(("DELETE", RQ, None),),
        amqp=("queue.delete",),
    ),
    Row(
        "pause, resume",
        "queue",
        (("configure", "orders"),),
        http=(("POST", f"{Q}/pause", None), ("POST", f"{Q}/resume", None)),
    ),
    Row("seek", "queue", (("configure", "orders"),), http=(("POST", f"{Q}/seek", {"to": "start"}),)),
    Row("revoke a lease", "queue", (("configure", "orders"),), http=(("DELETE", f"{Q}/leases/1", None),)),
    Row(
        "bind, unbind",
        "queue",
        (("write", "orders"), ("read", "news")),
        rabbit=_binding("q", "orders"),
        amqp=("queue.bind", "queue.unbind"),
    ),
    Row(
        "purge",
        "queue",
        (("read", "orders"),),
        http=(("POST", f"{Q}/purge", None),),
        rabbit=(("DELETE", f"{RQ}/contents", None),),
        amqp=("queue.purge",),
    ),
    Row(
        "put",
        "queue",
        (("write", "orders"),),
        http=(("POST", f"{Q}/messages", {"messages": [{"payload": "x"}]}), *_batches("queue", "orders")),
        capnp=("put",),
    ),
    Row(
        "consume and settle",
        "queue",
        (("read", "orders"),),
        http=(
            ("POST", f"{Q}/leases", {}),
            *(("POST", f"{Q}/{what}", HELD) for what in ("ack", "nack", "release", "extend")),
        ),
        rabbit=(("POST", f"{RQ}/get", {"count": 1, "ackmode": "ack_requeue_true", "encoding": "auto"}),),
        amqp=("basic.get", "basic.consume"),
        capnp=("lease", "ack", "nack", "extend", "release"),
    ),
    Row("read statistics", "queue", (("read", "orders"),), "monitoring", http=(("GET", Q, None),)),
    Row(
        "peek; list leases and delayed messages",
        "queue",
        (("read", "orders"),),
        http=(
            *(("GET", Q + what, None) for what in ("/messages", "/messages/0", "/leases", "/delayed")),
            _blocks("journals/orders"),
        ),
        capnp=("peek", "stats"),
    ),
    Row(
        "list dead letters",
        "queue",
        (("read", "program"), ("read", "program.dead")),
        http=(("GET", f"{PROGRAM}/dead", None), ("GET", f"{PROGRAM}/dead/0", None)),
    ),
    Row(
        "delete dead letters",
        "queue",
        (("read", "program"), ("read", "program.dead")),
        http=(("POST", f"{PROGRAM}/dead/delete", {}),),
    ),
    Row(
        "redrive",
        "queue",
        (("write", "program"), ("read", "program.dead")),
        http=(("POST", f"{PROGRAM}/redrive", {}),),
    ),
    Row(
        "declare",
        "exchange",
        (("configure", "news"),),
        rabbit=(("PUT", "/api/exchanges/%2F/news", {"type": "topic", "durable": True}),),
        amqp=("exchange.declare",),
    ),
    Row(
        "delete",
        "exchange",
        (("configure", "news"),),
        rabbit=(("DELETE", "/api/exchanges/%2F/news", None),),
        amqp=("exchange.delete",),
    ),
    Row(
        "bind, unbind",
        "exchange",
        (("write", "other"), ("read", "news")),
        rabbit=_binding("e", "other"),
        amqp=("exchange.bind", "exchange.unbind"),
    ),
    Row(
        "publish",
        "exchange",
        (("write", "news"),),
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
        "read statistics",
        "log",
        (("read", "clicks"),),
        "monitoring",
        http=(
            ("GET", LOG, None),
            ("GET", f"{LOG}/sequence_at?time=0", None),
            ("GET", f"{LOG}/schema", None),
            ("POST", f"{LOG}/schema/check", {"format": "json", "text": "a INT"}),
        ),
    ),
    Row("verify", "log", (), "monitoring", http=(("POST", f"{LOG}/verify", None),)),
    Row(
        "read",
        "log",
        (("read", "clicks"),),
        "administrator",
        http=(("GET", f"{LOG}/records", None), ("GET", f"{LOG}/inspect", None), _blocks("logs/clicks")),
    ),
    Row(
        "read a log of the server",
        "log",
        (),
        "administrator",
        http=(
            ("GET", "/api/holdfast/logs/holdfast.definitions/records", None),
            ("GET", "/api/holdfast/logs/holdfast.definitions/inspect", None),
            _blocks("logs/holdfast.definitions"),
        ),
        not_default=True,
    ),
    Row(
        "append",
        "log",
        (("write", "clicks"),),
        "administrator",
        http=(("POST", f"{LOG}/records", {"records": [{"payload": "x"}]}), *_batches("log", "clicks")),
    ),
    Row(
        "compact, clear",
        "log",
        (("configure", "clicks"),),
        "administrator",
        http=(("POST", f"{LOG}/compact", {"max_segments": 1000}), ("POST", f"{LOG}/clear", {"force": True})),
    ),
    Row(
        "set a schema",
        "log",
        (("configure", "clicks"),),
        "administrator",
        http=(("PUT", f"{LOG}/schema", {"format": "json", "text": "a INT"}),),
    ),
    Row(
        "create, move or delete a tailer",
        "log",
        (("configure", "clicks"),),
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
        "read statistics",
        "table",
        (("read", "Account"),),
        "monitoring",
        http=(("GET", TABLE_PATH, None), ("GET", f"{TABLE_PATH}/span", None)),
    ),
    Row(
        "read",
        "table",
        (("read", "Account"),),
        "administrator",
        http=(
            *(
                ("GET", TABLE_PATH + what, None)
                for what in ("/records", "/records/{key}", "/records/{key}/history", "/changes")
            ),
            _blocks("tables/Account"),
        ),
    ),
    Row(
        "add, change, delete softly, undelete",
        "table",
        (("write", "Account"),),
        "administrator",
        http=(
            ("POST", f"{TABLE_PATH}/records", {"records": [{"secret": "x"}]}),
            ("PATCH", TABLE_PATH + "/records/{key}", {"changes": {"secret": "y"}}),
            ("DELETE", TABLE_PATH + "/records/{key}", None),
            ("POST", TABLE_PATH + "/records/{key}/undelete", None),
        ),
    ),
    Row(
        "delete permanently",
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
        not_default=True,
    ),
    Row(
        "create, change or delete an administrator",
        "user",
        (),
        "administrator",
        rabbit=(
            ("PUT", "/api/users/boss", {"password_hash": "", "tags": "administrator"}),
            ("POST", "/api/definitions", {"users": [{"name": "boss", "tags": "administrator, management"}]}),
            ("DELETE", "/api/users/boss", None),
        ),
        not_default=True,
    ),
]

IN_ITSELF = [
    Row("list dead letters", "queue", (("read", "orders"),), http=(("GET", f"{Q}/dead", None),)),
    Row("delete dead letters", "queue", (("read", "orders"),), http=(("POST", f"{Q}/dead/delete", {}),)),
    Row("redrive", "queue", (("write", "orders"), ("read", "orders")), http=(("POST", f"{Q}/redrive", {}),)),
]
"""The same rows for a queue whose dead letters are in itself: there is one name only."""
