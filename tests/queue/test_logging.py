"""What a queue tells its operators: by the standard logging, with the queue and its log as fields of their own."""

import errno
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import Backoff, DiskFull, Flush, Message, Store, WriterStopped
from holdfast.testing import SimClock, SimFiles
from tests.queue.calls import until

Reopen = Callable[..., Store]


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> Callable[[], list[logging.LogRecord]]:
    """What was logged since last asked, from warnings up."""
    caplog.set_level(logging.DEBUG, "holdfast")

    def since() -> list[logging.LogRecord]:
        records = [record for record in caplog.records if record.levelno >= logging.WARNING]
        caplog.clear()
        return records

    return since


def fields(record: logging.LogRecord) -> dict[str, Any]:
    return vars(record)


def test_a_queue_that_does_its_work_says_nothing(
    store: Store, reopen: Reopen, clock: SimClock, told: Callable[[], list[logging.LogRecord]]
) -> None:
    queue = store.queue("orders", max_attempts=2, backoff=Backoff(base=0, cap=0), lease=10, max_length=50, ttl=100)
    queue.put_many([Message(b"%d" % n, priority=n % 3, delay=n % 5, dedup=f"{n}") for n in range(100)])
    queue.ack(queue.lease(5))
    queue.nack(queue.lease(5), "no")
    queue.nack(queue.lease(5), "no")
    queue.lease(5)
    clock.advance(11)
    store.tick()
    queue.redrive()
    queue.seek(0)
    queue.purge()
    queue.checkpoint()
    clock.advance(200)
    store.tick()
    store.close()
    reopen().queue("orders").peek()
    assert told() == []


def test_a_reader_of_a_young_queue_says_nothing(
    store: Store, reopen: Reopen, told: Callable[[], list[logging.LogRecord]]
) -> None:
    """That there is no checkpoint yet is no reason for a warning."""
    queue = store.queue("orders", max_attempts=1)
    queue.put_many([b"a", b"b"])
    queue.nack(queue.lease(), "no")
    reader = reopen(read_only=True).queue("orders")
    reader.stats()
    reader.dead_letters()
    assert told() == []


def test_messages_that_are_dropped_for_failing_are_told_of(
    store: Store, told: Callable[[], list[logging.LogRecord]]
) -> None:
    queue = store.queue("billing", log="events", max_attempts=1, dead_letter=None)
    queue.put(b"secret payload")
    queue.nack(queue.lease(), "no")
    (record,) = told()
    assert record.name == "holdfast.queue"
    assert (fields(record)["queue"], fields(record)["log"]) == ("billing", "events")
    assert "billing" in record.getMessage()
    assert "secret" not in record.getMessage()


def test_a_move_that_must_wait_is_told_of(
    store: Store, files: SimFiles, told: Callable[[], list[logging.LogRecord]]
) -> None:
    queue = store.queue("orders", max_attempts=1)
    queue.put(b"x")
    files.fail("write", errno.ENOSPC, pattern="*/orders.dead/*", times=1000)
    queue.nack(queue.lease(), "no")
    record = next(record for record in told() if "moved" in record.getMessage())
    assert (fields(record)["queue"], fields(record)["log"]) == ("orders", "orders")


def test_a_journal_that_could_not_be_written_is_told_of(
    store: Store, files: SimFiles, told: Callable[[], list[logging.LogRecord]]
) -> None:
    queue = store.queue("orders")
    queue.put(b"x")
    files.fail("write", errno.ENOSPC, pattern="data/journals/orders/*.data")
    with pytest.raises(DiskFull):
        queue.lease()
    queue.stats()
    assert [fields(record)["queue"] for record in told() if record.name == "holdfast.queue"] == ["orders"]


def test_a_lost_state_is_told_of_and_by_which_queue(
    store: Store, files: SimFiles, reopen: Reopen, caplog: pytest.LogCaptureFixture
) -> None:
    queue = store.queue("orders")
    queue.put(b"x")
    queue.ack(queue.lease())
    store.close()
    files.remove(Path("data/state/state.flat"))
    with caplog.at_level(logging.INFO, "holdfast"):
        reopen().queue("orders")
    (record,) = [record for record in caplog.records if "rebuilding the state" in record.getMessage()]
    assert (record.name, fields(record)["queue"], fields(record)["log"]) == ("holdfast.queue", "orders", "orders")


def test_a_window_that_shortens_is_told_of_once_and_by_which_queue(
    store: Store, clock: SimClock, told: Callable[[], list[logging.LogRecord]]
) -> None:
    queue = store.queue("orders", dedup_limit=10)
    for n in range(50):
        queue.put(b"x", dedup=f"{n}")
        clock.advance(0.1)
    (record,) = told()
    assert fields(record)["queue"] == "orders"
    assert fields(record)["limit"] == 10


def test_a_message_that_cannot_be_read_is_an_error_with_its_queue(
    store: Store, files: SimFiles, reopen: Reopen, told: Callable[[], list[logging.LogRecord]]
) -> None:
    queue = store.queue("orders")
    for n in range(3):
        queue.put(b"payload number %d" % n * 10)
    queue.lease(1)
    store.close()
    content = files.content(next(path for path in files.snapshot() if path.startswith("data/logs/orders/2")))
    place = content.index(b"payload number 1")
    content[place] ^= 0xFF
    queue = reopen().queue("orders")
    queue.lease(9)
    records = [record for record in told() if record.name == "holdfast.queue"]
    assert [(record.levelno, fields(record)["queue"]) for record in records] == [(logging.ERROR, "orders")]


def test_a_checkpoint_that_fails_while_closing_is_told_of(
    store: Store, files: SimFiles, told: Callable[[], list[logging.LogRecord]]
) -> None:
    queue = store.queue("orders")
    queue.put(b"x")
    queue.lease()
    files.fail("write", errno.ENOSPC, pattern="data/state/*", times=100)
    store.close()
    records = [record for record in told() if record.name == "holdfast.queue"]
    assert {fields(record)["queue"] for record in records} == {"orders"}
    assert "last checkpoint failed: queue=orders" in " ".join(record.getMessage() for record in records)


def test_background_work_that_fails_is_told_of_with_its_queue(
    tmp_path: Path, told: Callable[[], list[logging.LogRecord]], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[logging.LogRecord] = []
    with holdfast.open(tmp_path) as store:
        queue = store.queue("orders")

        def fail() -> float | None:
            raise WriterStopped("as if")

        monkeypatch.setattr(queue, "tick", fail)
        queue.put(b"x")
        queue.lease(lease=0.05)

        def told_of() -> bool:
            seen.extend(record for record in told() if "background" in record.getMessage())
            return bool(seen)

        until(told_of)
    assert "orders" in seen[0].getMessage()
    assert fields(seen[0])["queue"] == "orders"


def test_what_is_dropped_by_retention_is_told_of_quietly(
    store: Store, clock: SimClock, caplog: pytest.LogCaptureFixture
) -> None:
    queue = store.queue("orders", history=3600, roll=holdfast.Roll.count(2))
    for _ in range(6):
        queue.put(b"x")
        queue.ack(queue.lease())
        clock.advance(7200)
    queue.checkpoint()
    with caplog.at_level(logging.INFO, "holdfast"):
        queue.log.compact()
    (record,) = [record for record in caplog.records if "dropped" in record.getMessage()]
    assert (record.levelno, fields(record)["log"], fields(record)["segments"]) == (logging.INFO, "orders", 2)


@pytest.mark.parametrize("flush", [Flush.sync(), Flush.async_()], ids=lambda flush: flush.mode)
def test_no_log_line_ever_holds_a_payload(
    store: Store, files: SimFiles, clock: SimClock, caplog: pytest.LogCaptureFixture, flush: Flush
) -> None:
    caplog.set_level(logging.DEBUG)
    queue = store.queue("orders", flush=flush, max_attempts=1, max_length=3, overflow="dead-letter", ttl=60)
    for n in range(8):
        queue.put(b"secret-%d" % n, key=b"secret", headers={"h": "secret"}, dedup=f"secret-{n}")
    files.fail("write", errno.ENOSPC, pattern="*/orders.dead/*", times=3)
    queue.nack(queue.lease(2), "reason")
    clock.advance(61)
    store.tick()
    store.close()
    assert "secret" not in caplog.text
    assert not any("secret" in str(value) for record in caplog.records for value in vars(record).values())
