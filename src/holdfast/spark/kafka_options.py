"""Options of Spark's Kafka source and sink that this source does not have, and what to use in their place."""

from collections.abc import Mapping

from holdfast.base.errors import InvalidArgument

__all__ = ["KAFKA_READ", "KAFKA_WRITE", "refuse_kafka"]

_ADDRESS = "give the store with the option 'path'"
_CLIENT = "there is no client to configure: leave it out"

KAFKA_READ = {
    "assign": "name the logs with the option 'log' or 'logs'; a log has one partition",
    "subscribe": "name the logs with the option 'log' or 'logs'",
    "subscribePattern": "use the option 'logPattern', a pattern like click*, not a regular expression",
    "groupIdPrefix": "a query has no consumer group; the option 'name' stores its position",
    "startingOffsetsByTimestampStrategy": "a starting time after the last record always starts at the end of the log, "
    "as the strategy latest does: leave it out",
    "fetchOffset.numRetries": _CLIENT,
    "fetchOffset.retryIntervalMs": _CLIENT,
    "kafkaConsumer.pollTimeoutMs": _CLIENT,
    "kafka.bootstrap.servers": _ADDRESS,
    "kafka.group.id": "a query has no consumer group; the option 'name' stores its position",
}
KAFKA_WRITE = {
    "topic": "name the target with the option 'log' or 'queue'",
    "includeHeaders": "the column 'headers' is always written: leave it out",
    "kafka.bootstrap.servers": _ADDRESS,
}
_PREFIXES = ("kafka.", "kafkaconsumer.", "fetchoffset.")


def refuse_kafka(options: Mapping[str, str], instead: Mapping[str, str]) -> None:
    """Raise `InvalidArgument` if one of the options, in lower case, is one of Kafka's."""
    known = {name.lower(): (name, use) for name, use in instead.items()}
    kind = "source" if instead is KAFKA_READ else "sink"
    for option in options:
        name, use = known.get(option, (option, _CLIENT if option.startswith(_PREFIXES) else ""))
        if use:
            raise InvalidArgument(f"the option {name!r} is one of Spark's Kafka {kind}: here, {use}")
