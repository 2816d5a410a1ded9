"""Reading a store through its server, alone and as the live tail of a bucket: the rows of the folder, no secrets."""

import json
import os
import pickle
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import holdfast
from holdfast import Flush, InvalidArgument, Message, NotFound, Roll
from holdfast.remote.errors import Refused, Unreachable
from holdfast.replica.bucket import open_bucket
from tests.spark.test_replica_source import VIEWS, Account, batches, read, reader, rows, stream
from tests.web.serving import Served

OWN = [{**options, "logPattern": "[ew]*"} if "logPattern" in options else options for options in VIEWS]
"""Without the logs of the server itself, which the default user may not read."""


def fill(store: holdfast.Store) -> None:
    log = store.log("events", roll=Roll.count(50), flush=Flush.sync())
    for number in range(12):
        log.append_many([Message(b"%d.%d" % (number, n), key=b"k%d" % (n % 3)) for n in range(10)])
    queue = store.queue("work", max_attempts=2, dead_letter="work.dead")
    queue.put_many([b"%d" % number for number in range(20)])
    queue.ack(queue.lease(8))
    for message in queue.lease(3):
        message.nack("no such customer")
    accounts = store.table(Account)
    for number in range(20):
        accounts.add(Account(name=f"n{number}", balance=number))


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with Served(tmp_path / "data") as served:
        fill(served.store)
        yield served


@pytest.fixture
def token(served: Served) -> str:
    """A token of an administrator."""
    answer = served.ask("POST", "/api/holdfast/tokens", {"name": "spark"})
    return str(answer.json["token"])


@pytest.mark.parametrize("options", OWN, ids=lambda options: "-".join(options.values())[:40])
def test_a_server_has_the_rows_of_the_folder(
    served: Served, token: str, tmp_path: Path, options: dict[str, str]
) -> None:
    expected = read(tmp_path / "data", **options)
    assert expected.num_rows
    assert read(served.url, token=token, **options).equals(expected)


def test_a_stream_follows_a_server_record_by_record(served: Served, token: str) -> None:
    made = stream(served.url, token=token)
    found, at = batches(made, made.initialOffset())
    log = served.store.log("events")
    for number in range(30):
        log.append(b"%d" % number)
        more, at = batches(made, at)
        found += more
    log.append_many([b"many"] * 100)
    found += batches(made, at)[0]
    assert found == list(range(250))


def test_a_stream_moves_from_folder_to_bucket_to_server_with_one_checkpoint(tmp_path: Path) -> None:
    url = (tmp_path / "replica").as_uri()
    with Served(tmp_path / "data") as served:
        served.store.ship_to(open_bucket(url))
        log = served.store.log("events", flush=Flush.sync(), roll=Roll.count(40))
        token = served.ask("POST", "/api/holdfast/tokens", {"name": "spark"}).json["token"]
        log.append_many([b"first"] * 10)
        served.store.replica.ship()
        made = stream(tmp_path / "data")
        found, at = batches(made, made.initialOffset())
        places: list[tuple[object, dict[str, str]]] = [
            (url, {}),
            (served.url, {"token": token}),
            (url, {"live": served.url, "token": token}),
            (tmp_path / "data", {}),
            (served.url, {"token": token}),
        ]
        for number, (place, more) in enumerate(places):
            log.append_many([b"%d" % number] * 25)
            if place == url and not more:
                served.store.replica.ship()
            made.stop()
            made = stream(place, **more)
            new, at = batches(made, at)
            found += new
    assert found == list(range(10 + 25 * len(places)))


def test_live_adds_only_the_tail_and_the_bucket_gives_the_rest(tmp_path: Path) -> None:
    url = (tmp_path / "replica").as_uri()
    with Served(tmp_path / "data") as served:
        served.store.ship_to(open_bucket(url), ttl=600)
        log = served.store.log("events", flush=Flush.sync())
        token = served.ask("POST", "/api/holdfast/tokens", {"name": "spark"}).json["token"]
        log.append_many([b"x" * 1000] * 1000)
        served.store.replica.ship()
        (tmp_path / "replica").rename(tmp_path / "shipped")  # what is written from now on is not in the bucket
        log.append_many([b"tail"] * 10)
        made = reader((tmp_path / "shipped").as_uri(), log="events", live=served.url, token=token)
        shares = made.partitions()
        asked: list[int] = []
        read_bytes = served.site.present.read

        def counted(root: str, name: str, log_id: str, segment_id: str, start: int, stop: int) -> bytes:
            asked.append(stop - start)
            return read_bytes(root, name, log_id, segment_id, start, stop)

        served.site.present.read = counted  # type: ignore[method-assign]
        found = [one for share in shares for batch in made.read(share) for one in batch["offset"].to_pylist()]
        assert found == list(range(1010))
        assert 0 < sum(asked) < 10_000, "the bucket gives the rest"


def test_live_that_is_cut_off_and_back_neither_loses_nor_repeats(tmp_path: Path) -> None:
    url = (tmp_path / "replica").as_uri()
    with Served(tmp_path / "data") as served:
        served.store.ship_to(open_bucket(url))
        log = served.store.log("events", flush=Flush.sync())
        token = served.ask("POST", "/api/holdfast/tokens", {"name": "spark"}).json["token"]
        log.append_many([b"shipped"] * 10)
        served.store.replica.ship()
        port = int(served.url.rpartition(":")[2])
        made = stream(url, live=served.url, token=token)
        log.append_many([b"tail"] * 10)
        found, at = batches(made, made.initialOffset())
        assert found == list(range(20))
    # The server is gone. The store is closed, so all was shipped; and the stream goes on with the bucket.
    with holdfast.open(tmp_path / "data", replica=url, background=False) as store:
        store.log("events").append_many([b"alone"] * 10)
        store.replica.ship()
        found += batches(made, at)[0]
        at = made.latestOffset(at, made.getDefaultReadLimit())
        assert found == list(range(30))
    with Served(tmp_path / "data", http_port=port) as served:
        served.store.log("events").append_many([b"again"] * 10)
        made.stop()
        made = stream(url, live=served.url, token=token)
        found = []
        while len(found) < 10:  # the server is asked again after some seconds
            more, at = batches(made, at)
            found += more
            time.sleep(0.05)
        assert found == list(range(30, 40))


def test_a_query_that_has_read_the_tail_waits_while_the_server_is_away(tmp_path: Path) -> None:
    url = (tmp_path / "replica").as_uri()
    with Served(tmp_path / "data") as served:
        log = served.store.log("events", flush=Flush.sync())
        token = served.ask("POST", "/api/holdfast/tokens", {"name": "spark"}).json["token"]
        served.store.ship_to(open_bucket(url), ttl=600)
        log.append_many([b"shipped"] * 10)
        served.store.replica.ship()
        (tmp_path / "replica").rename(tmp_path / "shipped")
        log.append_many([b"tail"] * 10)
        place = (tmp_path / "shipped").as_uri()
        made = stream(place, live=served.url, token=token)
        start = made.initialOffset()
        end = made.latestOffset(start, made.getDefaultReadLimit())
        assert rows(made, start, end) == list(range(20))
        live = served.url
    code = f"""
from holdfast import ReplicaUnavailable
from tests.spark.test_replica_source import stream
made = stream({place!r}, live={live!r})
assert made.latestOffset({end!r}, made.getDefaultReadLimit()) == {end!r}
try:
    made.partitions({start!r}, {end!r})
except ReplicaUnavailable as error:
    print(error)
"""
    environment = {**os.environ, "HOLDFAST_TOKEN": token}
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False)
    assert re.match(r"records of 'events' before 20 are not in file:.* yet, and http.* does not answer", run.stdout), (
        run
    )


# Permissions and secrets


def test_only_what_a_user_may_read_is_listed_and_served(served: Served) -> None:
    served.add_user("reports", permissions=("", "", "^events$"))
    token = served.ask("POST", "/api/holdfast/tokens", {"name": "t"}, user="reports").json["token"]
    assert read(served.url, log="events", token=token).num_rows == 120
    with pytest.raises(NotFound, match=r"there is no log 'work' in .*that this token may read"):
        read(served.url, log="work", token=token)
    with pytest.raises(NotFound, match="there is no table 'Account'"):
        read(served.url, table="Account", token=token)
    with holdfast.open(served.store.path, read_only=True) as store:
        log = store.log("work")
        segment = f"{log.reader.segments()[0].segment_id:016x}"
        path = f"/api/holdfast/blocks/logs/work/{log.id.hex()}/{segment}?start=0&stop=64"
    assert served.ask("GET", path, token=token).status == 403
    assert served.ask("GET", path).body[:8] == b"HOLDFAST"


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/api/holdfast/blocks/logs/..%2F..%2Fetc/0/0?start=0&stop=8", 404),
        ("/api/holdfast/blocks/state/events/0/0?start=0&stop=8", 404),
        ("/api/holdfast/blocks/logs/events/0/0?start=0&stop=8", 404),
        ("/api/holdfast/blocks/logs/events/0/0?start=8&stop=8", 400),
        ("/api/holdfast/blocks/logs/events/0/0?start=0&stop=99999999999", 400),
    ],
)
def test_wrong_ranges_and_places_are_refused(served: Served, path: str, status: int) -> None:
    assert served.ask("GET", path).status == status


def test_a_manifest_is_sent_again_only_if_something_has_changed(served: Served) -> None:
    first = served.ask("GET", "/api/holdfast/blocks")
    etag = first.headers["ETag"]
    same = served.ask("GET", "/api/holdfast/blocks", headers={"If-None-Match": etag})
    assert same.status in (200, 304)  # the server writes samples of its own
    assert served.ask("GET", "/api/holdfast/blocks", user=None, check=False).status == 401


def test_the_token_is_in_no_plan_and_no_text(served: Served, token: str) -> None:
    made = reader(served.url, log="events", token=token)
    shares = made.partitions()
    assert token.encode() not in pickle.dumps(shares)
    assert token not in repr(made.options) + str(made.options.access) + repr(shares)


def test_errors_say_what_to_do_in_one_line(served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOLDFAST_TOKEN", raising=False)
    with pytest.raises(InvalidArgument, match="needs a token: set HOLDFAST_TOKEN"):
        read(served.url, log="events")
    with pytest.raises(Refused, match="the server did not accept the token") as refused:
        read(served.url, log="events", token="hf_secret_secret")
    assert "hf_secret" not in str(refused.value)
    with pytest.raises(Unreachable, match=r"cannot reach http://127\.0\.0\.1:1"):
        read("http://127.0.0.1:1", log="events", token="hf_x")
    with pytest.raises(InvalidArgument, match="must not contain credentials"):
        read("http://me:secret@host:1", log="events")
    with pytest.raises(InvalidArgument, match="the option 'live' is the URL of the server"):
        read(tmp_path / "data", log="events", live=served.url)


def test_the_token_of_the_environment_is_used(
    served: Served, token: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_TOKEN", token)
    expected: pa.Table = read(tmp_path / "data", log="events")
    assert read(served.url, log="events").equals(expected)
    assert json.loads(json.dumps(served.url)) in str(reader(served.url, log="events").options)


def test_a_named_stream_commits_its_position_through_the_server(served: Served, token: str) -> None:
    made = stream(served.url, token=token, name="scoring")
    batches(made, made.initialOffset())
    log = served.store.log("events")
    (kept,) = [one for one in log.stats().tailers if one.name == "spark:scoring"]
    assert (kept.position, kept.lag) == (120, 0)
    with pytest.raises(InvalidArgument, match="through a server, the option 'name' is for logs"):
        reader(served.url, token=token, name="x", queue="work", view="lifecycle")
