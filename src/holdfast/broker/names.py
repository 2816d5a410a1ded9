"""What is a queue called in the store, and which names are not for clients? Both are answered before a name is used."""

from holdfast.base.names import shortened
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
"""Between the name of a virtual host and that of a queue in it, where that is not `/`."""
_VHOST_MAX, _NAME_MAX = 100, 150
NAME_BYTES_MAX = 255


def name_in_store(vhost: str, queue: str) -> str:
    """As in AMQP, where it is of the virtual host `/`; else with the virtual host before a character no queue has."""
    if vhost == "/":
        return queue
    return shortened(vhost, _VHOST_MAX) + PART + shortened(queue, _NAME_MAX)


def check_reserved(name: str) -> None:
    """403 for names that would not be told apart in the store, or are those of the store's own logs."""
    if PART in name or name.startswith("holdfast."):
        raise AccessRefused(f"queue name {name!r} is reserved: 'holdfast.' and the character 0x1f are the broker's own")


def stripped(name: str) -> str:
    """The name without line ends, which RabbitMQ takes away too: before anything is checked."""
    return name.replace("\r", "").replace("\n", "")


def check_not_default(name: str) -> None:
    """403 for the exchange that leads to all queues, and to nothing else."""
    if name == "":
        raise AccessRefused("operation not permitted on the default exchange")


def check_deletable(exchange: str, vhost: str) -> None:
    """403 for what each virtual host has from the start."""
    check_not_default(exchange)
    if exchange.startswith("amq."):
        raise AccessRefused(f"deletion of system {named('exchange', exchange, vhost)} not allowed")


def check_new_name(kind: str, name: str) -> None:
    """Only for what is made: what is there may be declared again under any name."""
    if name.startswith("amq."):
        raise AccessRefused(f"{kind} name '{name}' contains reserved prefix 'amq.*'")
    if len(name.encode("utf-8", "surrogateescape")) > NAME_BYTES_MAX:
        raise PreconditionFailed(f"{kind} name '{name[:40]}...' is longer than {NAME_BYTES_MAX} bytes")
