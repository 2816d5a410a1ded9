"""Durable definitions: each change is a record of one log, and the last record of a key is the current state.

A record's key is a JSON list (kind, virtual host, name, ...), its payload JSON, or empty for a deletion. The log is
compacted by writing all current definitions once more: older segments are then unnecessary, and are dropped. A crash in
between leaves duplicates, which mean the same.
"""

import base64
import binascii
import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from holdfast.base.errors import Corrupt, InvalidArgument
from holdfast.broker.amqp_values import LateTime, MalformedField, encode_table, time_at
from holdfast.broker.errors import BrokerError
from holdfast.broker.programs import check_program_queue
from holdfast.broker.queue_arguments import queue_settings
from holdfast.broker.routing import Binding
from holdfast.broker.store_names import check_reserved
from holdfast.broker.topology import ExchangeDefinition, Listener, QueueDefinition, Topology, check_exchange
from holdfast.broker.users import (
    ARGON2,
    SHA256,
    Cost,
    Permission,
    User,
    UserCheck,
    UserListener,
    Users,
    check_user_name,
    imported_hash,
    tags_of,
)
from holdfast.log.log import Log
from holdfast.log.policy import Flush, Retention, Roll
from holdfast.log.record import Message

if TYPE_CHECKING:
    from holdfast.store import Store

__all__ = [
    "LOG_NAME",
    "Definition",
    "Definitions",
    "HostDefinition",
    "InHost",
    "as_fields",
    "check_arguments",
    "check_name",
    "open_definitions",
]

LOG_NAME = "holdfast.definitions"
SEGMENT_BYTES = 1 << 20
"""Small segments, since only whole ones are dropped."""
_STALE_MIN = 1000
_STALE_RATIO = 4
CHUNK = 1000
_TEXTS = frozenset(
    ("name", "vhost", "user", "type", "source", "destination", "routing_key", "configure", "write", "read")
)
"""Fields that must be text in every kind of definition."""


@dataclass(frozen=True, slots=True)
class HostDefinition:
    """A virtual host, with a description and tags that only people read."""

    kind: ClassVar[Literal["vhost"]] = "vhost"
    name: str
    description: str = ""
    tags: tuple[str, ...] = ()


InHost = ExchangeDefinition | QueueDefinition | Binding
"""What the topology of a virtual host consists of."""
Definition = HostDefinition | InHost | User | Permission
"""Any definition; its `kind` is the first part of its key, and names its list in an export."""
Key = tuple[str, ...]
_ORDER = ("vhost", "user", "permission", "exchange", "queue", "binding")


def open_definitions(store: "Store") -> "Definitions":
    """Open the log of definitions in a store, synced at each write, and return the definitions in it."""
    log = store.log(LOG_NAME, flush=Flush.sync(), roll=Roll.size(SEGMENT_BYTES))
    return Definitions(log, lambda queue: check_program_queue(store, queue))


class Definitions:
    """The durable definitions, and their log; opened with `Flush.sync()` and closed by the caller.

    Threads: any may call; `record` returns when the change is on disk.
    """

    def __init__(self, log: Log, check_queue: Callable[[QueueDefinition], None] = lambda queue: None) -> None:
        self._log = log
        self._check_queue = check_queue
        """Raises if an imported queue contradicts a queue that a program created."""
        self._lock = threading.RLock()
        self._live: dict[Key, Definition] = {}
        self._records = 0
        """Records that were read at the start or written since; after a compaction, those since it began."""
        self._replay()

    @property
    def is_new(self) -> bool:
        """Whether nothing was ever defined: then `begin` defines a new broker's defaults."""
        return self._log.end == 0

    def begin(self, cost: Cost = Cost()) -> None:  # noqa: B008 - it never changes
        """Define the virtual host `/` and the user guest."""
        guest = Users.with_guest(cost=cost)
        things: list[Definition] = [HostDefinition("/"), *guest.all(), *guest.permissions()]
        self.record([(thing, True) for thing in things])

    def all(self) -> list[Definition]:
        """Return all definitions, in an order in which they can be restored."""
        with self._lock:
            return [thing for _, thing in sorted(self._live.items(), key=lambda one: _ORDER.index(one[0][0]))]

    def vhosts(self) -> dict[str, Topology]:
        """Return the stored virtual hosts; each records its changes here."""
        return self._hosts(self.record)

    def users(self, cost: Cost = Cost()) -> Users:  # noqa: B008
        """Return the stored users and permissions, which record their changes here."""
        return self._users(self.record, cost)

    def vhost(self, name: str) -> HostDefinition:
        """Return the metadata of a virtual host; empty if there is none."""
        with self._lock:
            found = self._live.get(("vhost", name))
        return found if isinstance(found, HostDefinition) else HostDefinition(name)

    def add_vhost(self, name: str) -> Topology:
        """Define a new virtual host, and return it."""
        check_name("a virtual host", name)
        self.record([(HostDefinition(name), True)])
        return Topology(name, self.record)

    def delete_vhost(self, name: str) -> None:
        """Delete a virtual host with all objects and permissions in it."""
        with self._lock:
            doomed = [thing for thing in self.all() if _host_of(thing) == name]
            self.record([(thing, False) for thing in reversed(doomed)])

    def record(self, changes: Sequence[tuple[Definition, bool]]) -> None:
        """Record changes, all or none: each is a definition, and whether it exists from now on.

        The changes are on disk when this returns. If writing fails, nothing has changed.
        """
        if not changes:
            return
        with self._lock:
            self._log.appender.append_many(
                [_message(_key(thing), thing if there else None) for thing, there in changes]
            )
            for thing, there in changes:
                if there:
                    self._live[_key(thing)] = thing
                else:
                    self._live.pop(_key(thing), None)
            self._records += len(changes)
            if self._records > max(_STALE_MIN, _STALE_RATIO * len(self._live)):
                self.compact()

    def compact(self) -> None:
        """Write all definitions once more, and drop the segments before that. A crash in between loses nothing."""
        with self._lock:
            begins = self._log.end
            things = list(self._live.items())
            for first in range(0, len(things), CHUNK):
                self._log.appender.append_many([_message(key, thing) for key, thing in things[first : first + CHUNK]])
            self._records = len(things)
            needed = sum(1 for one in self._log.segments() if one.first + one.records > begins)
            self._log.compact(retention=Retention(max_segments=max(1, needed)))

    def export(self) -> dict[str, Any]:
        """Return the durable definitions, in the form of RabbitMQ's `export_definitions`."""
        document: dict[str, Any] = {
            "product_name": "Holdfast",
            **{f"{kind}s": [] for kind in _ORDER},
            **{name: [] for name in ("topic_permissions", "parameters", "global_parameters", "policies")},
        }
        for thing in self.all():
            document[thing.kind + "s"].append(as_fields(thing))
        return document

    def import_(
        self,
        document: Mapping[str, Any],
        cost: Cost = Cost(),  # noqa: B008
        *,
        check_user: UserCheck = lambda user: None,
    ) -> list[Definition]:
        """Import a document in RabbitMQ's form, all or none; return the definitions that are new or changed.

        Existing virtual hosts, exchanges, queues and bindings stay as they are; users and permissions are replaced. A
        user without a password and a hash keeps the present hash, because exports may lack hashes. A queue that
        contradicts what a program chose for it is rejected, as a declaration is. `check_user` is called for each user
        before and after the change, before anything is recorded. Only durable definitions are recorded. The caller adds
        the returned definitions to the running broker, with `Topology.restore` and `Users.restore`.
        """
        if not isinstance(document, Mapping):
            raise InvalidArgument("definitions must be a JSON object, as RabbitMQ's export_definitions writes it")
        with self._lock:
            # All of it is tried on copies first, by the rules for declarations.
            hosts, users = self._hosts(None), self._users(None, cost)
            added: list[Definition] = []
            kept: list[tuple[Definition, bool]] = []
            for kind in _ORDER:
                for fields in _listed(document, kind + "s"):
                    try:
                        thing = _thing(kind, self._with_hash(fields, users) if kind == "user" else fields)
                    except (KeyError, TypeError, AttributeError, ValueError) as error:
                        raise InvalidArgument(f"a {kind} in the definitions cannot be imported: {error}") from error
                    if isinstance(thing, QueueDefinition):
                        check_reserved(thing.name)
                    before = self._live.get(_key(thing))
                    if before != thing and _tried(thing, hosts, users):
                        for user in (before, thing):
                            if isinstance(user, User):
                                check_user(user)
                        if isinstance(thing, QueueDefinition):
                            self._check_queue(thing)
                        added.append(thing)
                        if not isinstance(thing, InHost) or hosts[thing.vhost].is_kept(thing):
                            kept.append((thing, True))
            self.record(kept)
            return added

    def _with_hash(self, fields: Mapping[str, Any], users: Users) -> Mapping[str, Any]:
        """Return an imported user with a password hash: of its plain password if it has one, else the present hash."""
        if fields.get("password"):
            return {**fields, "password_hash": users.hashed(fields["password"]), "hashing_algorithm": ARGON2}
        known = self._live.get(("user", fields["name"]))
        if isinstance(known, User) and "password_hash" not in fields:
            return {**fields, "password_hash": known.password_hash, "hashing_algorithm": known.algorithm}
        return fields

    def _hosts(self, listener: Listener | None) -> dict[str, Topology]:
        things = self.all()
        hosts = {one.name: Topology(one.name, listener) for one in things if isinstance(one, HostDefinition)}
        for thing in things:
            if isinstance(thing, InHost) and thing.vhost in hosts:
                hosts[thing.vhost].restore([thing])
        return hosts

    def _users(self, listener: UserListener | None, cost: Cost) -> Users:
        things = self.all()
        return Users(
            [one for one in things if isinstance(one, User)],
            [one for one in things if isinstance(one, Permission)],
            listener=listener,
            cost=cost,
        )

    def _replay(self) -> None:
        for record in self._log.read():
            self._records += 1
            try:
                key = tuple(json.loads(record.key or b"null"))
                if record.payload:
                    self._live[key] = _thing(key[0], json.loads(record.payload))
                else:
                    self._live.pop(key, None)
            except (ValueError, TypeError, KeyError, IndexError, BrokerError) as error:
                raise Corrupt(
                    f"record {record.sequence} of the log {self._log.name!r} is not a definition: {error!r}. It was "
                    "written by another program, or a newer Holdfast: open the store with that one"
                ) from error


def _key(thing: Definition) -> Key:
    match thing:
        case HostDefinition() | User():
            return (thing.kind, thing.name)
        case Permission():
            return (thing.kind, thing.vhost, thing.user)
        case ExchangeDefinition() | QueueDefinition():
            return (thing.kind, thing.vhost, thing.name)
        case Binding():
            destination = (thing.destination_kind, thing.destination)
            arguments = json.dumps(_plain(thing.arguments), sort_keys=True)
            return (thing.kind, thing.vhost, thing.source, *destination, thing.routing_key, arguments)


def check_arguments(arguments: Mapping[str, Any]) -> None:
    """Raise `InvalidArgument` for arguments that AMQP cannot encode, such as numbers of more than 64 bits."""
    try:
        encode_table(arguments)
    except MalformedField as error:
        raise InvalidArgument(f"AMQP cannot encode these arguments: {error}") from error


def check_name(whose: str, name: str) -> None:
    """Raise `InvalidArgument` for a name that AMQP cannot encode, or that is empty."""
    try:
        size = len(name.encode())
    except UnicodeEncodeError:  # from bytes that are not UTF-8
        size = 0
    if not 1 <= size <= 255:
        raise InvalidArgument(f"{whose}'s name must have 1 to 255 bytes in UTF-8")


def _tried(thing: Definition, hosts: dict[str, Topology], users: Users) -> bool:
    """Apply an imported definition to copies of the present ones; return whether it adds or replaces anything."""
    if isinstance(thing, HostDefinition):
        if thing.name in hosts:  # its metadata may differ: the existing one stays as it is
            return False
        check_name("a virtual host", thing.name)
        hosts[thing.name] = Topology(thing.name)
        return True
    if isinstance(thing, User):
        check_user_name(thing.name)
        users.restore([thing])
        return True
    host = hosts.get(thing.vhost)
    if host is None:
        raise InvalidArgument(f"the definitions use the virtual host {thing.vhost!r}, but do not define it")
    if isinstance(thing, Permission):
        users.permit(thing.user, thing.vhost, thing.configure, thing.write, thing.read)
        return True
    check_arguments(thing.arguments)
    if isinstance(thing, Binding):
        if thing.source == "" or host.is_bound(thing):  # bindings of the default exchange are implicit
            return False
        host.bind(thing.source, thing.destination_kind, thing.destination, thing.routing_key, thing.arguments)
        return True
    if thing.name in (host.queues if isinstance(thing, QueueDefinition) else host.exchanges):
        return False
    check_name("an exchange" if isinstance(thing, ExchangeDefinition) else "a queue", thing.name)
    if isinstance(thing, ExchangeDefinition):
        check_exchange(thing)
    host.restore([thing])
    return True


def _host_of(thing: Definition) -> str | None:
    if isinstance(thing, HostDefinition):
        return thing.name
    return None if isinstance(thing, User) else thing.vhost


def _message(key: Key, thing: Definition | None) -> Message:
    payload = b"" if thing is None else json.dumps(as_fields(thing)).encode()
    return Message(payload, key=json.dumps(key).encode())


def as_fields(thing: Definition) -> dict[str, Any]:
    """Return a definition as a JSON object with RabbitMQ's field names, for the log and for exports."""
    match thing:
        case HostDefinition() as host:
            about = {"description": host.description, "tags": list(host.tags)}
            return {"name": host.name, **{name: value for name, value in about.items() if value}}
        case User() as user:
            return {
                "name": user.name,
                "password_hash": user.password_hash,
                "hashing_algorithm": user.algorithm,
                "tags": list(user.tags),
            }
        case Permission() as one:
            return {
                "user": one.user,
                "vhost": one.vhost,
                "configure": one.configure,
                "write": one.write,
                "read": one.read,
            }
        case ExchangeDefinition() as exchange:
            return {
                "name": exchange.name,
                "vhost": exchange.vhost,
                "type": exchange.type,
                "durable": exchange.durable,
                "auto_delete": exchange.auto_delete,
                "internal": exchange.internal,
                "arguments": _plain(exchange.arguments),
            }
        case QueueDefinition() as queue:
            return {
                "name": queue.name,
                "vhost": queue.vhost,
                "durable": queue.durable,
                "auto_delete": queue.auto_delete,
                "arguments": _plain(queue.arguments),
            }
        case Binding() as binding:
            return {
                "source": binding.source,
                "vhost": binding.vhost,
                "destination": binding.destination,
                "destination_type": binding.destination_kind,
                "routing_key": binding.routing_key,
                "arguments": _plain(binding.arguments),
            }


def _thing(kind: str, fields: Mapping[str, Any]) -> Definition:
    """Return the definition that `as_fields` or RabbitMQ wrote."""
    for name, value in fields.items():
        if name in _TEXTS and not isinstance(value, str):
            raise InvalidArgument(f"the {name} of a {kind} must be a string, not {value!r}")
    arguments = _table(fields.get("arguments") or {})
    if not isinstance(arguments, dict):
        raise InvalidArgument(f"the arguments of a {kind} must be an object, not {arguments!r}")
    match kind:
        case "vhost":
            about = fields.get("metadata") or fields
            return HostDefinition(fields["name"], str(about.get("description") or ""), tags_of(about.get("tags")))
        case "user":
            password_hash = fields.get("password_hash") or ""
            algorithm = fields.get("hashing_algorithm") or (SHA256 if password_hash else ARGON2)
            return User(fields["name"], *imported_hash(password_hash, algorithm), tags_of(fields.get("tags")))
        case "permission":
            return Permission(fields["user"], fields["vhost"], fields["configure"], fields["write"], fields["read"])
        case "exchange":
            return ExchangeDefinition(
                fields["vhost"],
                fields["name"],
                fields["type"],
                _flag("durable", fields["durable"]),
                _flag("auto_delete", fields.get("auto_delete")),
                _flag("internal", fields.get("internal")),
                arguments,
            )
        case "queue":
            settings = queue_settings(arguments, fields["name"], fields["vhost"])
            return QueueDefinition(
                fields["vhost"],
                fields["name"],
                _flag("durable", fields["durable"]),
                _flag("auto_delete", fields.get("auto_delete")),
                arguments,
                settings=settings,
            )
        case "binding":
            target = fields["destination_type"]
            if target not in ("queue", "exchange"):
                raise InvalidArgument(f"the destination_type of a binding must be queue or exchange, not {target!r}")
            return Binding(
                fields["vhost"], fields["source"], target, fields["destination"], fields["routing_key"], arguments
            )
        case _:
            raise KeyError(kind)


def _flag(name: str, value: Any) -> bool:
    if value is not None and not isinstance(value, bool):
        raise InvalidArgument(f"{name} must be true or false, not {value!r}")
    return bool(value)


def _listed(document: Mapping[str, Any], name: str) -> list[Any]:
    """Return the objects of one kind in a document to be imported."""
    found = document.get(name) or []
    if not isinstance(found, list):
        raise InvalidArgument(f"the {name} in the definitions must be a list of objects, not {found!r}")
    return found


def _plain(value: Any) -> Any:
    """Return a table's value as JSON; a type that JSON lacks becomes an object with one name that begins with `$`."""
    if isinstance(value, Mapping):
        table = {name: _plain(inner) for name, inner in value.items()}
        return {"$table": table} if len(table) == 1 and next(iter(table)).startswith("$") else table
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    if isinstance(value, bytes | bytearray):
        return {"$bytes": base64.b64encode(value).decode()}
    if isinstance(value, Decimal):
        return {"$decimal": str(value)}
    if isinstance(value, datetime):
        return {"$time": value.isoformat()}
    if isinstance(value, LateTime):
        return {"$time": value.seconds}
    return value


def _table(value: Any) -> Any:
    """Return the table's value that `_plain` encoded."""
    if isinstance(value, list):
        return [_table(inner) for inner in value]
    if not isinstance(value, Mapping):
        return value
    if len(value) == 1:
        [(name, inner)] = value.items()
        try:
            match name:
                case "$bytes":
                    return base64.b64decode(inner, validate=True)
                case "$decimal":
                    return Decimal(inner)
                case "$time":
                    return time_at(inner) if type(inner) is int else datetime.fromisoformat(inner)
                case "$table":
                    return {key: _table(one) for key, one in inner.items()}
        except (binascii.Error, ArithmeticError, TypeError, AttributeError) as error:
            raise InvalidArgument(f"{inner!r} is not a valid value for {name}") from error
    return {key: _table(inner) for key, inner in value.items()}
