"""Mapping of queue names to store names, and checks for reserved names."""

from holdfast.base.names import abbreviate
from holdfast.broker.errors import AccessRefused, PreconditionFailed, named

__all__ = [
    "PART",
    "check_deletable",
    "check_new_name",
    "check_not_default",
    "check_reserved",
    "name_in_store",
    "stripped",
]

PART = "\x1f"
"""Separator between the names of a virtual host other than `/` and of a queue in it."""
_VHOST_MAX, _NAME_MAX = 100, 150
NAME_BYTES_MAX = 255


def name_in_store(vhost: str, queue: str) -> str:
    """Return the name of a queue in the store: in the virtual host `/` its own.

    Elsewhere it is prefixed by the virtual host and a character that no queue name has, and both are shortened if they
    are long.
    """
    if vhost == "/":
        return queue
    return abbreviate(vhost, _VHOST_MAX) + PART + abbreviate(queue, _NAME_MAX)


def check_reserved(name: str) -> None:
    """Raise 403 for names that would be ambiguous in the store, or belong to the store's own logs."""
    if PART in name or name.startswith("holdfast."):
        raise AccessRefused(f"queue name {name!r} is reserved: 'holdfast.' and the character 0x1f are the broker's own")


def stripped(name: str) -> str:
    """Return the name without line ends, which RabbitMQ removes too; call it before any check."""
    return name.replace("\r", "").replace("\n", "")


def check_not_default(name: str) -> None:
    """Raise 403 for the default exchange, which is bound to all queues and nothing else."""
    if name == "":
        raise AccessRefused("operation not permitted on the default exchange")


def check_deletable(exchange: str, vhost: str) -> None:
    """Raise 403 for exchanges that each virtual host has from the start."""
    check_not_default(exchange)
    if exchange.startswith("amq."):
        raise AccessRefused(f"deletion of system {named('exchange', exchange, vhost)} not allowed")


def check_new_name(kind: str, name: str) -> None:
    """Raise 403 for a name with the prefix `amq.`, 406 for one of more than 255 bytes.

    Call it for new objects only: existing ones may be declared again, whatever they are called.
    """
    if name.startswith("amq."):
        raise AccessRefused(f"{kind} name '{name}' contains reserved prefix 'amq.*'")
    if len(name.encode("utf-8", "surrogateescape")) > NAME_BYTES_MAX:
        raise PreconditionFailed(f"{kind} name '{name[:40]}...' is longer than {NAME_BYTES_MAX} bytes")
