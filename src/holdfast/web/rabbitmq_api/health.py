"""Health checks of RabbitMQ's API: 200 if healthy, 503 if not."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

from holdfast.base.errors import InvalidArgument
from holdfast.broker.basic_properties import Properties, encode_properties
from holdfast.broker.message import Content, instructions_in
from holdfast.broker.permissions import Operation
from holdfast.broker.vhost import VirtualHostRuntime
from holdfast.web.rabbitmq_api.access import host_of, hosts_of, may
from holdfast.web.rabbitmq_api.certificates import not_after
from holdfast.web.rabbitmq_api.overview import listeners_of
from holdfast.web.rabbitmq_api.response_types import HealthFailed, HealthOk
from holdfast.web.rabbitmq_api.serializers import node_name
from holdfast.web.routes import Call, Needs, Reply, Routes

__all__ = ["routes"]

routes = Routes("RabbitMQ: health checks")
Health = HealthOk | Reply[HealthFailed]
_CHECK: dict[str, Any] = {"needs": Needs.LOGIN, "answer": HealthOk, "also": {503: HealthFailed}}
_ALIVE = "aliveness-test"
_UNITS = {"days": 1, "weeks": 7, "months": 30, "years": 365}
_ALIASES = {
    "amqp": "amqp",
    "amqp091": "amqp",
    "amqp0.9.1": "amqp",
    "amqp0-9-1": "amqp",
    "amqps": "amqp/ssl",
    "amqp091s": "amqp/ssl",
    "amqp/ssl": "amqp/ssl",
    "management": "http",
    "http": "http",
    "https": "https",
}


def _failed(reason: str, **more: Any) -> Reply[HealthFailed]:
    return Reply(cast("HealthFailed", {"status": "failed", "reason": reason, **more}), status=503)


def _alarms(call: Call) -> Health:
    blocked = call.site.broker.memory.blocked
    _, of_replica = call.site.replica.look()
    active = [*([blocked] if blocked else []), *(one.kind for one in of_replica)]
    if not active:
        return {"status": "ok"}
    alarms = [{"node": node_name(), "resource": one} for one in active]
    return _failed("There are alarms in effect in the cluster", alarms=alarms)


@routes.get(
    "/api/health/checks/alarms", **_CHECK, says="Check that no alarm is active: memory, disk, or of the replica."
)
def alarms(call: Call) -> Health:
    """Return 503 during an alarm: memory, disk, or of the replica."""
    return _alarms(call)


@routes.get(
    "/api/health/checks/local-alarms",
    **_CHECK,
    says="Check that no alarm is active on this node: the only one.",
)
def local_alarms(call: Call) -> Health:
    """Return 503 during an alarm: memory, disk, or of the replica."""
    return _alarms(call)


@routes.get("/api/health/checks/port-listener/{port}", **_CHECK, says="Check that there is a listener on a port.")
def port_listener(call: Call) -> Health:
    """Return 503 if there is no listener on the port."""
    try:
        port = int(call.path["port"])
    except ValueError:
        raise InvalidArgument(f"{call.path['port']!r} is not a port: use a number") from None
    ports = [one["port"] for one in listeners_of(call)]
    if port in ports:
        return {"status": "ok", "port": port}
    return _failed("No active listener", missing=port, ports=ports)


@routes.get(
    "/api/health/checks/protocol-listener/{protocol}",
    **_CHECK,
    says="Check that there is a listener for a protocol.",
)
def protocol_listener(call: Call) -> Health:
    """Return 503 if there is no listener for the protocol."""
    wanted = _ALIASES.get(call.path["protocol"].lower(), call.path["protocol"])
    protocols = list(dict.fromkeys(one["protocol"] for one in listeners_of(call)))
    if wanted in protocols:
        return {"status": "ok", "protocol": wanted}
    return _failed("No active listener", missing=wanted, protocols=protocols)


@routes.get("/api/health/checks/virtual-hosts", **_CHECK, says="Check that all queues of all virtual hosts are open.")
def virtual_hosts(call: Call) -> Health:
    """Return 503 if queues of a virtual host could not be opened; names only those that the caller sees."""

    def work() -> list[str]:
        hosts = call.site.broker.hosts.values()
        return [host.name for host in hosts if host.topology.queues.keys() - host.broker_queues.keys()]

    if failed := call.site.on_broker(work):
        seen = {host.name for host in hosts_of(call)}
        shown = [name for name in failed if name in seen]
        return _failed("Some virtual hosts have queues that could not be opened", **{"virtual-hosts": shown})
    return {"status": "ok"}


@routes.get("/api/health/checks/node-is-quorum-critical", **_CHECK, says="Always succeeds: there is one node.")
def quorum_critical(call: Call) -> Health:
    """Return 200: there are no quorum replicas to lose."""
    return {"status": "ok", "reason": "single node cluster"}


@routes.get("/api/health/checks/node-is-mirror-sync-critical", **_CHECK, says="Always succeeds: there are no mirrors.")
def mirror_critical(call: Call) -> Health:
    """Return 200: there are no mirrors."""
    return {"status": "ok", "reason": "single node cluster"}


@routes.get(
    "/api/health/checks/certificate-expiration/{within}/{unit}",
    **_CHECK,
    says="Check that the server's certificate does not expire within a time: days, weeks, months or years.",
)
def certificate_expiration(call: Call) -> Health:
    """Return 503 if a certificate in the server's file expires within this time; 200 without TLS."""
    unit = call.path["unit"]
    if unit not in _UNITS:
        raise InvalidArgument("Time unit not recognised. Supported units: days, weeks, months, years.")
    try:
        within = timedelta(days=int(call.path["within"]) * _UNITS[unit])
        limit = datetime.now(UTC) + within
    except (ValueError, OverflowError):
        raise InvalidArgument("Invalid expiration value: it is a whole number.") from None
    file = call.site.settings.tls_certificate
    if file is None or (end := not_after(Path(file))) > limit:
        return {"status": "ok"}
    return _failed(
        "Certificates expiring",
        expired=[{"node": node_name(), "certfile": file, "certfile_expires_on": [end.isoformat()]}],
    )


@routes.get(
    "/api/healthchecks/node",
    **_CHECK,
    says="Check that no alarm is active: the former name of health/checks/alarms.",
)
def node_health(call: Call) -> Health:
    """Return 503 during an alarm: memory, disk, or of the replica."""
    return _alarms(call)


@routes.get("/api/aliveness-test/{vhost}", **_CHECK, says="Check a virtual host by sending a message through a queue.")
def aliveness(call: Call) -> Health:
    """Send a message through the transient queue `aliveness-test`, which is created if necessary and kept.

    The caller needs configure, write and read permission on it. Returns 503 if the message is not delivered.
    """
    host = host_of(call, use=True)
    for operation in (Operation.QUEUE_DECLARE, Operation.QUEUE_PUT, Operation.QUEUE_TAKE):
        may(call, operation, host, _ALIVE)
    if call.site.on_broker(lambda: _goes_through(host)):
        return {"status": "ok"}
    return _failed("the test message was not delivered")


def _goes_through(host: VirtualHostRuntime) -> bool:
    """Put and get a test message. Call it on the broker's thread."""
    broker_queue = host.declare_queue(
        _ALIVE, durable=False, exclusive=False, auto_delete=False, arguments={}, passive=False, owner=None
    )
    directives = instructions_in(encode_properties(Properties()))
    broker_queue.put(Content("", _ALIVE, directives.raw), [b"test_message"], directives)
    delivery = broker_queue.get()
    if delivery is None:
        return False
    broker_queue.ack({delivery.lease: [delivery.id]})
    return True
