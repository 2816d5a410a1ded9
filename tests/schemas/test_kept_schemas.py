"""The schema that is kept with a log: its versions, what is refused, and that it is in every copy of a store."""

import json
import threading
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import (
    Corrupt,
    Flush,
    InvalidArgument,
    Message,
    MessageTooLarge,
    NewerFormat,
    NotFound,
    PayloadSchema,
    ReadOnly,
)
from holdfast.amqp import methods as m
from holdfast.backup.backup import verify_backup
from holdfast.backup.restore import restore_backup
from holdfast.base.checked_json import decode_checked, encode_checked
from holdfast.replica import restore
from holdfast.table import Model, field
from holdfast.testing import SimBucket, SimClock, SimFiles, crash_points
from tests.amqp.serving import Closed, Served, eventually

PATH = Path("/s")
ORDER = PayloadSchema("json", "id BIGINT NOT NULL, name STRING")
WIDER = PayloadSchema("json", "id BIGINT NOT NULL, name STRING, note STRING")


def texts(log: Any) -> list[str]:
    return [version.schema.text for version in log.schema.versions()]


def test_versions_are_numbered_and_never_change(tmp_path: Path) -> None:
    with holdfast.open(tmp_path) as store:
        log = store.log("orders", schema=ORDER)
        assert log.schema.newest() == log.schema.versions()[0]
        log.append_many([b"{}"] * 3)
        second = log.schema.set(WIDER)
        assert (second.number, second.since, second.schema) == (2, 3, WIDER)
        first = log.schema.versions()[0]
        assert (first.number, first.since, first.schema.text) == (1, 0, ORDER.text)
    with holdfast.open(tmp_path, read_only=True) as store:
        assert store.log("orders").schema.versions() == [first, second]
        with pytest.raises(ReadOnly):
            store.log("orders").schema.set(ORDER)


def test_a_schema_that_the_log_has_adds_no_version(tmp_path: Path) -> None:
    """So a program of an earlier release, which passes its own schema, changes nothing."""
    with holdfast.open(tmp_path) as store:
        log = store.log("orders", schema=ORDER)
        log.schema.set(WIDER)
        assert log.schema.set(ORDER).number == 1
        assert store.log("orders", schema=ORDER) is log
        assert texts(log) == [ORDER.text, WIDER.text]
        spaced = json.dumps({"type": "record", "name": "R", "fields": []}, indent=2)
        other = store.log("avro", schema=PayloadSchema("avro", with_field(spaced)))
        assert other.schema.set(PayloadSchema("avro", json.dumps(json.loads(with_field(spaced))))).number == 1


def with_field(text: str) -> str:
    return text.replace('"fields": []', '"fields": [{"name": "a", "type": "int"}]')


def test_the_rules_of_the_newest_version_can_change(tmp_path: Path) -> None:
    with holdfast.open(tmp_path) as store:
        log = store.log("orders", schema=ORDER)
        changed = log.schema.set(PayloadSchema("json", ORDER.text, compatibility="none", validate=True))
        assert (changed.number, changed.schema.validate) == (1, True)
        with pytest.raises(InvalidArgument):
            log.append(b"[]")
        log.schema.set(ORDER)
        log.append(b"[]")


def test_a_schema_that_is_not_compatible_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    with holdfast.open(tmp_path) as store:
        log = store.log("orders", schema=ORDER)
        before = (tmp_path / "logs/orders/schema.json").read_bytes()
        for text in ("id STRING", "id BIGINT, more INT NOT NULL", "id"):
            with pytest.raises(InvalidArgument):
                log.schema.check(PayloadSchema("json", text))
            with pytest.raises(InvalidArgument):
                store.log("orders", schema=PayloadSchema("json", text))
        log.schema.check(WIDER)
        assert (tmp_path / "logs/orders/schema.json").read_bytes() == before


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("xml", "a INT"), "json, avro, protobuf, msgpack, arrow"),
        (("json", ""), "not empty"),
        (("json", b"a INT"), "must be a str"),
        (("json", "a INT", "M"), "for the format protobuf"),
        (("json", "a INT", None, "sideways"), "none, backward, forward, full"),
        (("json", "a INT", None, "full", 1), "True or False"),
        (("json", "a" * 300_000), "at most"),
    ],
)
def test_schemas_that_cannot_be_are_refused(arguments: Any, why: str) -> None:
    with pytest.raises(InvalidArgument, match=why):
        PayloadSchema(*arguments)


def test_a_schema_comes_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "order.ddl").write_text("a INT\n")
    assert PayloadSchema.from_file("json", tmp_path / "order.ddl").text == "a INT"
    with pytest.raises(NotFound):
        PayloadSchema.from_file("json", tmp_path / "other")
    (tmp_path / "binary").write_bytes(b"\xff")
    with pytest.raises(InvalidArgument, match="UTF-8"):
        PayloadSchema.from_file("json", tmp_path / "binary")


def test_threads_that_set_schemas_get_a_version_each(tmp_path: Path) -> None:
    with holdfast.open(tmp_path) as store:
        log = store.log("orders")
        schemas = [PayloadSchema("json", f"a{number} INT") for number in range(8)]
        threads = [threading.Thread(target=log.schema.set, args=(one,)) for one in schemas]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(texts(log)) == sorted(one.text for one in schemas)
        assert [version.number for version in log.schema.versions()] == list(range(1, 9))


# Producers are checked


VALID = b'{"id": 1, "name": "x"}'
CHECKED = PayloadSchema("json", ORDER.text, validate=True)


@pytest.mark.parametrize("flush", [Flush.sync(), Flush.async_()], ids=["sync", "async"])
def test_an_invalid_payload_is_refused_and_says_why(tmp_path: Path, flush: Flush) -> None:
    with holdfast.open(tmp_path) as store:
        log = store.log("orders", flush=flush, schema=CHECKED)
        log.append(VALID)
        log.append(VALID, key=b"k")
        with pytest.raises(InvalidArgument, match=r"version 1 of the schema of the log 'orders', in json: .*`id`"):
            log.append(b"{}")
        with pytest.raises(InvalidArgument, match="Nothing was written"):
            log.append(b"{}", key=b"k")
        with pytest.raises(InvalidArgument):
            log.append_many([VALID, Message(b'{"id": "x"}', key=b"k")])
        assert [record.payload for record in log.read()] == [VALID, VALID]


def test_payloads_are_checked_after_the_log_is_opened_again(tmp_path: Path) -> None:
    with holdfast.open(tmp_path) as store:
        store.log("orders", schema=CHECKED)
    with holdfast.open(tmp_path) as store:
        with pytest.raises(InvalidArgument):
            store.log("orders").append(b"{}")
        with pytest.raises(InvalidArgument):
            store.queue("view", log="orders").put(b"{}")


def test_a_log_that_is_checked_still_has_its_limit(tmp_path: Path) -> None:
    with holdfast.open(tmp_path) as store:
        log = store.log("orders", max_message=30, schema=CHECKED)
        for call in (lambda: log.append(b" " * 31), lambda: log.append_many([b" " * 31])):
            with pytest.raises(MessageTooLarge, match="limit of 30 bytes"):
                call()
        log.append(VALID)


class Account(Model, id=3):
    name: str = field(1)


def test_every_way_into_a_queue_is_checked(tmp_path: Path) -> None:
    with holdfast.open(tmp_path) as store:
        queue = store.queue("orders", dedup_window=60)
        queue.log.schema.set(CHECKED)
        for call in (
            lambda: queue.put(b"{}"),
            lambda: queue.put(b"{}", delay=5, priority=2),
            lambda: queue.put(b"{}", dedup="x"),
            lambda: queue.put_many([VALID, b"{}"]),
            lambda: queue.intake.put_similar([b"{}"], Message(b"", key=b"k")),
        ):
            with pytest.raises(InvalidArgument, match="does not fit"):
                call()
        with pytest.raises(InvalidArgument, match="does not fit"), store.transaction():
            store.table(Account).add(Account(name="ann"))
            queue.put(b"{}")
        assert list(store.table(Account).scan()) == []
        queue.put(VALID, dedup="x")
        assert queue.counts().ready == 1


def test_messages_that_move_to_another_queue_are_not_checked_again(tmp_path: Path) -> None:
    with holdfast.open(tmp_path) as store:
        store.queue("dead").log.schema.set(CHECKED)
        queue = store.queue("orders", max_attempts=1, dead_letter="dead")
        queue.put(b"{}")
        (message,) = queue.lease()
        message.nack("broken")
        store.tick()
        assert [one.payload for one in store.queue("dead").peek()] == [b"{}"]


# The file


def test_a_damaged_file_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    with holdfast.open(tmp_path) as store:
        store.log("orders", flush=Flush.sync(), schema=ORDER).append(VALID)
    file = tmp_path / "logs/orders/schema.json"
    raw = file.read_bytes()
    assert decode_checked(raw)["format"] == 1
    file.write_bytes(raw.replace(b"BIGINT", b"BIGINS"))
    assert [problem.path for problem in holdfast.verify(tmp_path).problems] == [str(file)]
    with holdfast.open(tmp_path) as store:
        log = store.log("orders")
        with pytest.raises(Corrupt, match="restore it from a backup"):
            log.schema.versions()
        with pytest.raises(Corrupt, match="restore it from a backup"):
            log.append(VALID)
        assert [record.payload for record in log.read()] == [VALID]
    file.unlink()
    with holdfast.open(tmp_path) as store:
        store.log("orders", schema=ORDER).append(VALID)
    assert holdfast.verify(tmp_path).ok


def test_a_newer_format_is_refused(tmp_path: Path) -> None:
    with holdfast.open(tmp_path) as store:
        store.log("orders", schema=ORDER)
    (tmp_path / "logs/orders/schema.json").write_bytes(encode_checked({"format": 2}))
    with holdfast.open(tmp_path, read_only=True) as store, pytest.raises(NewerFormat):
        store.log("orders").schema.newest()


class TwoVersions:
    """A scenario: two versions are set, one after the other."""

    def __init__(self) -> None:
        self.done = 0

    def run(self, files: SimFiles) -> None:
        with holdfast.open(PATH, files=files, clock=SimClock(), background=False) as store:
            store.log("orders", schema=ORDER)
            self.done = 1
            store.log("orders").schema.set(WIDER)
            self.done = 2

    def check(self, files: SimFiles) -> None:
        with holdfast.open(PATH, files=files, clock=SimClock(), background=False) as store:
            found = texts(store.log("orders"))
            assert len(found) >= self.done
            assert found == [ORDER.text, WIDER.text][: len(found)]


def test_a_crash_while_a_version_is_added_leaves_the_old_ones_or_all() -> None:
    assert crash_points(TwoVersions) > 10


def test_a_backup_has_the_schemas(tmp_path: Path) -> None:
    for is_open in (True, False):
        path = tmp_path / f"data{is_open}"
        with holdfast.open(path) as store:
            store.log("orders", schema=ORDER).schema.set(WIDER)
            if is_open:
                report = store.backup(tmp_path / "backups" / str(is_open))
        if not is_open:
            with holdfast.open(path) as store:
                report = store.backup(tmp_path / "backups" / str(is_open))
        assert verify_backup(report.path) == []
        restore_backup(report.path, tmp_path / f"restored{is_open}")
        with holdfast.open(tmp_path / f"restored{is_open}", read_only=True) as store:
            assert texts(store.log("orders")) == [ORDER.text, WIDER.text]


def test_a_replica_has_the_schemas_also_those_of_a_log_that_does_not_move() -> None:
    bucket, files, clock = SimBucket(), SimFiles(), SimClock()
    with holdfast.open(PATH, files=files, clock=clock, background=False, replica=bucket) as store:
        log = store.log("orders", schema=ORDER)
        log.append(VALID)
        store.replica.ship()
        log.schema.set(WIDER)
        store.replica.ship()
    copy = SimFiles()
    restore(bucket, PATH, files=copy)
    with holdfast.open(PATH, files=copy, clock=clock, background=False) as store:
        assert texts(store.log("orders")) == [ORDER.text, WIDER.text]


def test_a_deleted_queue_takes_the_schema_of_its_log_with_it(tmp_path: Path) -> None:
    with holdfast.open(tmp_path) as store:
        store.queue("orders").log.schema.set(CHECKED)
        store.delete_queue("orders")
        store.queue("orders").put(b"anything")
        assert store.queue("orders").log.schema.newest() is None


def test_a_publisher_that_does_not_fit_the_schema_loses_its_channel(tmp_path: Path) -> None:
    """And what it published before is in the queue, also in a queue that checks nothing."""
    data = tmp_path / "data"
    with holdfast.open(data) as store:
        store.queue("orders").log.schema.set(CHECKED)
    with Served(data) as broker:
        for bodies in ([VALID, b"{}", VALID], [b"{}"]):
            with broker.client() as client:
                client.declare("orders")
                client.publish("orders", bodies)
                with pytest.raises(Closed, match=r"PRECONDITION_FAILED - a payload does not fit version 1") as error:
                    client.declare("orders")
                assert error.value.code == 406
        with broker.client() as client:
            assert client.declare("orders") == 1
            client.call(m.ConfirmSelect(), m.ConfirmSelectOk)
            client.publish_confirmed("orders", [VALID] * 3)
            assert client.declare("orders") == 4


def test_dead_letters_of_the_broker_are_not_checked_again(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with holdfast.open(data) as store:
        store.queue("dead").log.schema.set(CHECKED)
    with Served(data) as broker, broker.client() as client:
        client.declare("dead")
        client.declare("work", x_max_length=1, x_dead_letter_exchange="", x_dead_letter_routing_key="dead")
        client.publish("work", [b"1", b"2", b"3"])
        eventually(lambda: client.declare("dead") == 2)
        with pytest.raises(Closed, match="does not fit"):
            client.publish("dead", [b"4"])
            client.declare("dead")
