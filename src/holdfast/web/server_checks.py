"""What `holdfast doctor` checks of a server: the default user, listeners without TLS, and certificates."""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

from holdfast.broker.users import DEFAULT, Users
from holdfast.doctor import BAD, OK, WARN, Check, Port
from holdfast.web.auth import is_loopback
from holdfast.web.rabbitmq_api.certificates import not_after

__all__ = ["check_certificate", "check_encryption", "check_users"]

_SOON = timedelta(days=30)


def check_users(users: Users) -> Iterator[Check]:
    """Check whether everybody on this machine can log in as an administrator."""
    if users.is_default(DEFAULT) and "administrator" in users.get(DEFAULT).tags:
        yield Check(
            "default user",
            WARN,
            f"{DEFAULT!r} is an administrator and has its default password: every user of this machine can log in",
            "Add an administrator (holdfast user add NAME --tag administrator), then run holdfast user delete "
            f"{DEFAULT}.",
        )
    else:
        yield Check("default user", OK, f"nobody can log in as {DEFAULT!r} with the default password")


def check_encryption(ports: Iterable[Port]) -> Iterator[Check]:
    """Check whether passwords and messages cross a network in plain text."""
    plain = [one for one in ports if not one.tls and not _is_local(one.host)]
    if plain:
        yield Check(
            "encryption",
            WARN,
            "listeners without TLS that other machines can reach: "
            + ", ".join(f"{one.name} on {one.host}" for one in plain),
            "Passwords and messages can be read on the network. Use amqps_port and https_port with tls_certificate, "
            "set amqp_port, http_port and rpc_port to none, or listen on 127.0.0.1.",
        )
    else:
        yield Check("encryption", OK, "listeners without TLS are reachable only from this machine")


def check_certificate(certificate: str | None, now: datetime | None = None) -> Iterator[Check]:
    """Check whether the server's certificate is still valid; yield nothing without one."""
    if certificate is None:
        return
    left = not_after(Path(certificate)) - (now or datetime.now(UTC))
    file = repr(certificate)
    if left <= timedelta(0):
        yield Check("certificate", BAD, f"{file} has expired", "Renew it, and restart the server: clients refuse it.")
    elif left < _SOON:
        yield Check("certificate", WARN, f"{file} expires in {left.days} days", "Renew it, and restart the server.")
    else:
        yield Check("certificate", OK, f"{file} is valid for {left.days} more days")


def _is_local(host: str) -> bool:
    return host == "localhost" or is_loopback(host)
