"""Shuffle partitions sized by the input.

Spark's default of 200 partitions makes 200 tasks of each shuffle, whatever there is to shuffle: on a cluster a report
over 2,000 messages took 331 s.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

__all__ = ["ROWS", "cores_of", "partitions_for", "sized_shuffles"]

ROWS = 250_000
"""Rows for each partition: some tens of megabytes of events or messages."""
_MOST = 10_000
_CHOSEN = {
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.adaptive.coalescePartitions.enabled": "true",
}
_PARTITIONS = "spark.sql.shuffle.partitions"
_lock = threading.Lock()
_users: dict[int, tuple[int, dict[str, str | None]]] = {}
"""By the id of a session: how many sized blocks it is in, and the settings that it had before the first of them."""


def partitions_for(rows: int, each: int = ROWS) -> int:
    """Return the number of partitions for this many rows."""
    return max(1, min(_MOST, -(-rows // each)))


def cores_of(spark: SparkSession) -> int:
    """Return about how many tasks run at once: Spark's default parallelism."""
    try:
        return max(1, int(spark.sparkContext.defaultParallelism))
    except Exception:  # Spark Connect has no context, but a range has a partition for each core
        return spark.range(1 << 16).select(F.spark_partition_id().alias("at")).distinct().count()


@contextmanager
def sized_shuffles(spark: SparkSession, partitions: int) -> Iterator[None]:
    """Within the block, shuffles of the session have about this many partitions; its settings are restored afterwards.

    Other queries of the same session that start meanwhile are planned so, too. Where such blocks overlap, in threads,
    the last of them to end restores what the first of them found.
    """
    settings = {**_CHOSEN, _PARTITIONS: str(partitions)}
    with _lock:
        depth, before = _users.get(id(spark), (0, {}))
        if not depth:
            before = {name: spark.conf.get(name, None) for name in settings}
        _users[id(spark)] = (depth + 1, before)
        for name, value in settings.items():
            spark.conf.set(name, value)
    try:
        yield
    finally:
        with _lock:
            depth, before = _users.pop(id(spark))
            if depth > 1:
                _users[id(spark)] = (depth - 1, before)
            else:
                for name, old in before.items():
                    spark.conf.unset(name) if old is None else spark.conf.set(name, old)
