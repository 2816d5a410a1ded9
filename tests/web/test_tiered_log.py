"""A log of a server that reaches back further than its disk: its figures, its records, and the metrics of the cache."""

from pathlib import Path

import pytest

from holdfast import Retention, Roll
from holdfast.amqp.settings import load
from holdfast.base.errors import InvalidArgument
from holdfast.replica import open_bucket
from tests.web.serving import Served

LOG = "/api/holdfast/logs/clicks"


def test_a_server_shows_and_reads_what_is_only_in_the_replica(served: Served, tmp_path: Path) -> None:
    served.store.ship_to(open_bucket((tmp_path / "bucket").as_uri()))
    policy = Retention(max_segments=2)
    log = served.store.log("clicks", roll=Roll.count(5), local_retention=policy)
    for number in range(40):
        log.append(b"%d" % number)
    log.sync()
    served.store.replica.ship()
    found = served.get(LOG)
    assert found["stats"]["remote_segments"] == 6
    assert found["stats"]["remote_bytes"] == sum(one["bytes"] for one in found["segments"] if one["remote"])
    assert found["settings"]["local_retention"]["max_segments"] == 2
    records = served.get(f"{LOG}/records?start=3&count=4")["records"]
    assert [one["sequence"] for one in records] == [3, 4, 5, 6]
    metrics = served.ask("GET", "/metrics").body.decode()
    assert f"holdfast_replica_remote_bytes {float(found['stats']['remote_bytes'])}" in metrics
    assert "holdfast_replica_cache_misses_total" in metrics


def test_the_settings_of_a_server_bound_its_logs() -> None:
    settings = load(None, {"HOLDFAST_LOCAL_RETENTION_BYTES": "10GiB", "HOLDFAST_REMOTE_CACHE": "64MiB"}, {})
    assert settings.local_retention == Retention(max_bytes=10 << 30)
    assert settings.remote_cache == 64 << 20
    assert load(None, {}, {}, {"local_retention_age": "2d"}).local_retention == Retention(max_age=2 * 86_400.0)
    assert load(None, {}, {}).local_retention is None
    for name, wrong in (("local_retention_age", "-1"), ("remote_cache", "1000"), ("local_retention_bytes", "much")):
        with pytest.raises(InvalidArgument, match=name):
            load(None, {}, {}, {name: wrong})
