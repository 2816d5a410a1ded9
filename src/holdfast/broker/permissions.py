"""The permission model: the permission that each operation on a queue, exchange, log or table needs, in all protocols.

`RULES` is the whole model, and docs/permissions.md describes it in words. HTTP, AMQP and Cap'n Proto check it here.
"""

from dataclasses import dataclass
from enum import Enum, auto
from typing import Literal

from holdfast.broker.errors import AccessRefused, NotAllowed
from holdfast.broker.store_names import PART
from holdfast.broker.users import Kind, Users

__all__ = ["OWN", "RULES", "Operation", "Permissions", "Rule"]

OWN = "holdfast."
"""Names of the server's own logs and tables begin with this."""


class Operation(Enum):
    """An operation on one queue, exchange, log or table."""

    QUEUE_DECLARE = auto()
    QUEUE_DELETE = auto()
    QUEUE_STEER = auto()
    """Pause and resume, seek, revoke another client's lease."""
    QUEUE_BIND = auto()
    QUEUE_PURGE = auto()
    QUEUE_PUT = auto()
    QUEUE_TAKE = auto()
    """Get, consume, lease; ack, nack, release and extend."""
    QUEUE_LOOK = auto()
    """Statistics, peeking at messages, leases, dead letters."""
    QUEUE_DISCARD = auto()
    """Delete dead letters."""
    QUEUE_REDRIVE = auto()
    """Requeue dead letters in this queue."""
    EXCHANGE_DECLARE = auto()
    EXCHANGE_DELETE = auto()
    EXCHANGE_BIND_FROM = auto()
    EXCHANGE_BIND_TO = auto()
    EXCHANGE_PUBLISH = auto()
    LOG_LOOK = auto()
    """Statistics, segments, tailers; which record was written when."""
    LOG_READ = auto()
    LOG_APPEND = auto()
    LOG_SHORTEN = auto()
    """Compact and clear."""
    LOG_TAILER = auto()
    """Create, move or remove a named position: it holds retention back."""
    LOG_SCHEMA = auto()
    """Set the schema of the payloads: producers may be refused."""
    TABLE_LOOK = auto()
    TABLE_READ = auto()
    TABLE_WRITE = auto()
    """Add, change, delete softly, undelete."""
    TABLE_ERASE = auto()
    """Delete a record with its history."""


@dataclass(frozen=True, slots=True)
class Rule:
    """The requirements of an operation."""

    resource: Literal["queue", "exchange", "log", "table"]
    permission: Kind | None
    """The permission on the resource; None: no permission is enough, only the tag."""
    tag: str | None = None
    """For logs and tables: the tag that is enough without a permission. Administrators have every tag."""
    changes: bool = True
    """For logs and tables: whether it changes anything. The server's own logs and tables cannot be changed."""


RULES: dict[Operation, Rule] = {
    Operation.QUEUE_DECLARE: Rule("queue", "configure"),
    Operation.QUEUE_DELETE: Rule("queue", "configure"),
    Operation.QUEUE_STEER: Rule("queue", "configure"),
    Operation.QUEUE_BIND: Rule("queue", "write"),
    Operation.QUEUE_PURGE: Rule("queue", "read"),
    Operation.QUEUE_PUT: Rule("queue", "write"),
    Operation.QUEUE_TAKE: Rule("queue", "read"),
    Operation.QUEUE_LOOK: Rule("queue", "read"),
    Operation.QUEUE_DISCARD: Rule("queue", "read"),
    Operation.QUEUE_REDRIVE: Rule("queue", "write"),
    Operation.EXCHANGE_DECLARE: Rule("exchange", "configure"),
    Operation.EXCHANGE_DELETE: Rule("exchange", "configure"),
    Operation.EXCHANGE_BIND_FROM: Rule("exchange", "read"),
    Operation.EXCHANGE_BIND_TO: Rule("exchange", "write"),
    Operation.EXCHANGE_PUBLISH: Rule("exchange", "write"),
    Operation.LOG_LOOK: Rule("log", "read", "monitoring", changes=False),
    Operation.LOG_READ: Rule("log", "read", "administrator", changes=False),
    Operation.LOG_APPEND: Rule("log", "write", "administrator"),
    Operation.LOG_SHORTEN: Rule("log", "configure", "administrator"),
    Operation.LOG_TAILER: Rule("log", "configure", "administrator"),
    Operation.LOG_SCHEMA: Rule("log", "configure", "administrator"),
    Operation.TABLE_LOOK: Rule("table", "read", "monitoring", changes=False),
    Operation.TABLE_READ: Rule("table", "read", "administrator", changes=False),
    Operation.TABLE_WRITE: Rule("table", "write", "administrator"),
    Operation.TABLE_ERASE: Rule("table", None, "administrator"),
}


class Permissions:
    """Checks users against `RULES`. Threads: any."""

    def __init__(self, users: Users) -> None:
        self._users = users

    def check(
        self, user: str, operation: Operation, name: str, *, vhost: str = "/", tags: tuple[str, ...] = ()
    ) -> None:
        """Raise 403 unless the user may perform the operation on the queue, exchange, log or table of that name.

        The permission for a log or a table is that for a queue of its name, in the virtual host that the name contains,
        else in `/`; if the user has no permission at all in that virtual host, this raises 530. Nobody changes the
        server's own logs and tables. Only administrators read them, except the default user with its default password;
        with the tag monitoring a user sees their statistics.
        """
        rule = RULES[operation]
        if rule.resource == "queue" or rule.resource == "exchange":  # noqa: PLR1714 - as mypy understands it
            assert rule.permission is not None
            self._users.check(user, vhost, rule.permission, rule.resource, name)
            return
        own = name.startswith(OWN)
        if own and rule.changes:
            raise AccessRefused(f"the {rule.resource} {name!r} belongs to the server and cannot be changed")
        if own and rule.tag == "administrator" and self._users.is_default(user):
            raise AccessRefused(
                f"the {rule.resource} {name!r} belongs to the server and may hold password hashes or other secrets: "
                f"'{user}' cannot read it while it has its default password"
            )
        if "administrator" in tags or rule.tag in tags:
            return
        if own:
            raise AccessRefused(f"the {rule.resource} {name!r} belongs to the server: only administrators can read it")
        if rule.permission is None:
            raise AccessRefused(
                f"the user '{user}' lacks the tag {rule.tag}, which this needs for the {rule.resource} {name!r}"
            )
        host, part, rest = name.partition(PART)
        vhost, name = (host, rest) if part else ("/", name)
        self._users.check_vhost(user, vhost)
        self._users.check(user, vhost, rule.permission, "queue", name)

    def allows(
        self, user: str, operation: Operation, name: str, *, vhost: str = "/", tags: tuple[str, ...] = ()
    ) -> bool:
        """Whether `check` passes."""
        try:
            self.check(user, operation, name, vhost=vhost, tags=tags)
        except (AccessRefused, NotAllowed):
            return False
        return True
