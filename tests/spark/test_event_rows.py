"""Rows of the life of messages: what numpy makes of whole blocks is what a loop makes of each event."""

import pickle
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import holdfast
from holdfast import Backoff, Flush, Log, Message, Queue, Store
from holdfast.base.errors import Corrupt
from holdfast.queue.events import (
    CAUSES,
    Acked,
    Dropped,
    Event,
    Extended,
    Leased,
    LeasedSpan,
    Purged,
    Requeued,
    SeekTo,
    Snapshot,
    Transferring,
    Truncated,
    decode,
    encode,
    encode_ack_of_one,
    encode_lease_of_one,
)
from holdfast.queue.queue_state import TARGET_QUEUE_HEADER
from holdfast.spark.log_rows import BATCH_ROWS, RecordSpan
from holdfast.spark.queue_events import EVENTS, JournalRows, PutRows, portions, read_spans
from holdfast.spark.schemas import LIFECYCLE, arrow_schema
from holdfast.testing import SimClock, SimFiles
from tests.queue.calls import ALL_MODES
from tests.queue.internals import journal_of, open_sim
from tests.tiers import examples

Row = dict[str, Any]
NO_ROW: Row = dict.fromkeys(LIFECYCLE.names)


# What a loop makes of it.


def moment(ns: int | None) -> datetime | None:
    return None if ns is None else datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=ns // 1000)


def slow_rows(queue: str, position: int, event: Event) -> Iterator[Row]:
    row = {**NO_ROW, "queue": queue, "position": position, "time": moment(event.time)}
    match event:
        case Leased(_, lease, expires, spans):
            for one in each(spans):
                yield row | one | {"event": "leased", "lease": lease, "until": moment(expires)}
        case Acked(_, parts):
            for lease, done in parts:
                for start, stop in done:
                    for message in range(start, stop):
                        yield row | {"event": "acked", "message": message, "lease": lease}
        case Extended(_, lease, expires):
            yield row | {"event": "extended", "lease": lease, "until": moment(expires)}
        case Requeued(_, cause, reason, lease, due, spans):
            why = {"event": cause, "cause": cause, "reason": as_text(reason)}
            for one in each(spans):
                yield row | one | why | {"lease": lease, "until": moment(due)}
        case Transferring(_, cause, reason, target, lease, spans):
            word = "redriven" if cause == "redriven" else "dead-lettered"
            why = {"event": word, "cause": cause, "reason": as_text(reason), "target": as_text(target)}
            for one in each(spans):
                yield row | one | why | {"lease": lease or None}
        case Dropped(_, cause, gone):
            for start, stop in gone:
                for message in range(start, stop):
                    yield row | {
                        "event": "moved" if cause == "moved" else "dropped",
                        "cause": cause,
                        "message": message,
                    }
        case Purged(_, upto):
            yield row | {"event": "purged", "upto": upto}
        case SeekTo(_, upto):
            yield row | {"event": "sought", "upto": upto}
        case Truncated(_, upto):
            yield row | {"event": "cut", "upto": upto}
        case Snapshot():
            pass


def each(spans: list[LeasedSpan]) -> Iterator[Row]:
    for start, stop, priority, attempt in spans:
        for message in range(start, stop):
            yield {"message": message, "priority": priority, "attempt": attempt or None}


def as_text(text: str) -> str | None:
    return text.encode("utf-8", "backslashreplace").decode() or None


def slow_journal(queue: str, journal: Log) -> list[Row]:
    return [
        row
        for record in journal.read()
        for event in decode(record.payload)
        for row in slow_rows(queue, record.sequence, event)
    ]


def slow_puts(queue: str, log: Log) -> list[Row]:
    found = []
    for piece in log.pieces(log.start, log.readable()[1]):
        count = piece.end - piece.first
        dues, levels = piece.numbers("due") or [0] * count, piece.numbers("priority") or [0] * count
        moved, origins = piece.numbers("producer") or [0] * count, piece.numbers("number") or [0] * count
        headers, times = piece.headers(), piece.times()
        for at in range(count):
            if piece.first + at in piece.lost() or (moved[at] and headers[at].get(TARGET_QUEUE_HEADER, queue) != queue):
                continue
            found.append(
                NO_ROW
                | {"queue": queue, "event": "put", "message": piece.first + at, "position": piece.first + at}
                | {"time": moment(times[at]), "priority": levels[at], "until": moment(dues[at] or None)}
                | {"cause": "moved" if moved[at] else None, "source": origins[at] if moved[at] else None}
            )
    return found


# What is tested.


def pieces_of(log: Log) -> list[RecordSpan]:
    start, end = log.readable()
    return [(block, 0, block.count) for block in log.reader.blocks_between(start, end)]


def pieces_between(log: Log, start: int, stop: int) -> Iterator[RecordSpan]:
    blocks = log.reader.blocks_between(start, stop)
    return ((block, max(start - block.sequence, 0), min(stop - block.sequence, block.count)) for block in blocks)


def rows_of(rows: JournalRows | PutRows, pieces: list[RecordSpan]) -> list[Row]:
    found = []
    for batch in rows.gather(pieces):
        assert batch.schema == rows.schema
        batch.validate(full=True)
        assert 0 < batch.num_rows <= BATCH_ROWS
        found += batch.to_pylist()
    return found


def journal_rows(queue: Queue) -> list[Row]:
    return rows_of(JournalRows(queue.name, LIFECYCLE.names), pieces_of(journal_of(queue).log))


def put_rows(queue: Queue) -> list[Row]:
    return rows_of(PutRows(queue.name, LIFECYCLE.names), pieces_of(queue.log))


NUMBERS = st.integers(0, 2**62)
STARTS = st.integers(0, 10**12)
SIZES = st.one_of(st.just(1), st.integers(1, 50))
SPANS = st.lists(st.builds(lambda start, size: (start, start + size), STARTS, SIZES), max_size=3)
LEASED = st.lists(
    st.builds(
        lambda start, size, priority, attempt: LeasedSpan(start, start + size, priority, attempt),
        STARTS,
        SIZES,
        st.integers(0, 9),
        st.integers(1, 2**31 - 1),
    ),
    max_size=3,
)
UNTRIED = LEASED.map(lambda spans: [span._replace(attempt=0) for span in spans])
TEXTS = st.text(st.characters(), max_size=6)
"""With lone surrogates too: the text of an exception may hold anything."""
EVENT_BYTES = st.one_of(
    st.builds(encode_lease_of_one, NUMBERS, NUMBERS, NUMBERS, STARTS),
    st.builds(encode_ack_of_one, NUMBERS, NUMBERS, STARTS),
    st.one_of(
        st.builds(Leased, NUMBERS, NUMBERS, NUMBERS, LEASED),
        st.builds(Acked, NUMBERS, st.lists(st.tuples(NUMBERS, SPANS), max_size=3)),
        st.builds(Extended, NUMBERS, NUMBERS, NUMBERS),
        st.builds(Requeued, NUMBERS, st.sampled_from(CAUSES[:3]), TEXTS, NUMBERS, NUMBERS, LEASED),
        st.builds(Transferring, NUMBERS, st.sampled_from(CAUSES[3:7]), TEXTS, TEXTS, NUMBERS, LEASED),
        st.builds(Transferring, NUMBERS, st.just("ttl"), TEXTS, TEXTS, st.just(0), UNTRIED),
        st.builds(Dropped, NUMBERS, st.sampled_from(CAUSES[3:]), SPANS),
        st.builds(Purged, NUMBERS, NUMBERS),
        st.builds(SeekTo, NUMBERS, NUMBERS),
        st.builds(Truncated, NUMBERS, NUMBERS),
        st.builds(Snapshot, NUMBERS, st.integers(0, 9), st.booleans(), st.binary(max_size=9)),
    ).map(encode),
)


@given(
    st.lists(st.lists(st.lists(EVENT_BYTES, max_size=5).map(b"".join), min_size=1, max_size=5), min_size=1, max_size=4),
    st.data(),
)
def test_whatever_a_journal_says_the_rows_are_those_of_a_loop(blocks: list[list[bytes]], data: st.DataObject) -> None:
    store = holdfast.open("data", files=SimFiles(), clock=SimClock(), background=False)
    log = store.log("journal")
    for records in blocks:
        log.append_many(records)
    pieces = pieces_of(log)
    assert rows_of(JournalRows("q", LIFECYCLE.names), pieces) == slow_journal("q", log)
    # And any part of it, block by block.
    start = data.draw(st.integers(0, log.end))
    stop = data.draw(st.integers(start, log.end))
    rows = JournalRows("q", LIFECYCLE.names)
    parts = [
        row
        for block, _, _ in pieces
        for batch in rows.gather([(block, start - block.sequence, stop - block.sequence)])
        for row in batch.to_pylist()
    ]
    assert parts == [row for row in slow_journal("q", log) if start <= row["position"] < stop]


@given(st.lists(EVENT_BYTES, min_size=1, max_size=12), st.integers(1, 20))
def test_spans_are_cut_into_as_many_rows_as_asked_for(events: list[bytes], rows: int) -> None:
    store = holdfast.open("data", files=SimFiles(), clock=SimClock(), background=False)
    log = store.log("journal")
    log.append_many(events)
    spans = read_spans(pieces_of(log))
    windows = [(spans.position[which].tolist(), messages.tolist()) for which, messages in spans.expanded(rows)]
    assert all(len(messages) == rows for _, messages in windows[:-1])
    assert [
        (position, None if message < 0 else message)
        for positions, messages in windows
        for position, message in zip(positions, messages, strict=True)
    ] == [(row["position"], row["message"]) for row in slow_journal("q", log)]


@given(st.lists(st.integers(1, 9), min_size=1, max_size=6), st.integers(1, 12))
def test_portions_have_every_record_once_and_no_more_than_asked_for(sizes: list[int], rows: int) -> None:
    store = holdfast.open("data", files=SimFiles(), clock=SimClock(), background=False)
    log = store.log("log")
    for size in sizes:
        log.append_many([b"x"] * size)
        log.sync()
    found = list(portions(pieces_of(log), rows))
    counts = [sum(stop - start for _, start, stop in portion) for portion in found]
    assert all(count == rows for count in counts[:-1])
    assert [
        block.sequence + position
        for portion in found
        for block, start, stop in portion
        for position in range(start, stop)
    ] == list(range(log.end))


def test_a_large_lease_is_divided_into_batches(disk_store: Store) -> None:
    log = disk_store.log("journal")
    log.append(encode(Leased(5_000, 7, 9_000, [LeasedSpan(10, 100_010, 2, 1), LeasedSpan(300_000, 300_001, 0, 3)])))
    batches = list(JournalRows("q", ["message", "attempt"]).gather(pieces_of(log)))
    assert len(batches) == 100_001 // BATCH_ROWS + 1
    table = pa.Table.from_batches(batches)
    assert table["message"].to_pylist() == [*range(10, 100_010), 300_000]
    assert table["attempt"].to_pylist() == [1] * 100_000 + [3]


def test_an_event_of_a_newer_version_is_refused_and_so_is_half_an_event(disk_store: Store) -> None:
    for name, record in (("newer", b"\xff" + bytes(20)), ("half", encode_ack_of_one(1, 2, 3)[:-1])):
        log = disk_store.log(name)
        log.append(record)
        with pytest.raises(Corrupt):
            list(JournalRows("q", LIFECYCLE.names).gather(pieces_of(log)))


def work_hard(store: Store, clock: SimClock, flush: Flush) -> list[Queue]:
    """Everything that can happen to a message, in queues that say so."""
    a = store.queue("a", log="shared", flush=flush, max_attempts=2, backoff=Backoff(1, 1), dead_letter="a.dead")
    b = store.queue("b", log="shared", flush=flush, max_attempts=1, dead_letter=None)
    a.put_many([Message(b"%d" % n, priority=n % 3, key=b"k") for n in range(20)])
    a.put(b"later", delay=60)
    a.put(b"short", ttl=5)
    for _ in range(3):
        one = a.get()
        assert one is not None
        one.ack()
    a.ack(a.lease(4))
    held = a.lease(6)
    a.extend(held[:1], 40)
    a.nack(held[:2], "no good")
    a.release(held[2:3])
    clock.advance(41)  # the others run out
    a.nack(a.lease(3), "not again")
    b.nack(b.lease(2), "dropped after one attempt")
    clock.advance(30)
    store.tick()
    a.redrive()
    a.ack(a.lease(30))
    b.lease(3)
    b.purge()
    b.seek(4)
    b.ack(b.lease(2))
    short = store.queue("short", flush=flush, max_length=3)
    short.put_many([b"%d" % n for n in range(5)])
    full = store.queue("full", flush=flush, max_length=1, overflow="dead-letter", ttl=5, expired="dead-letter")
    full.put_many([b"one", b"two"])
    clock.advance(6)
    store.tick()
    short.lease(1)
    short.put(b"much later", delay=1000)
    queues = [a, b, short, full, store.queue("a.dead"), store.queue("full.dead")]
    for queue in queues:
        queue.sync()
    return queues


@pytest.mark.parametrize("flush", ALL_MODES, ids=lambda flush: str(flush.mode))
def test_a_queues_life_is_in_the_rows(tmp_path: Path, flush: Flush) -> None:
    clock = SimClock()
    with holdfast.open(tmp_path / "data", clock=clock, background=False) as store:
        queues = work_hard(store, clock, flush)
        seen: set[str] = set()
        causes: set[tuple[str, str]] = set()
        for queue in queues:
            rows = journal_rows(queue)
            assert rows == slow_journal(queue.name, journal_of(queue).log)
            assert put_rows(queue) == slow_puts(queue.name, queue.log)
            counts = Counter(row["event"] for row in rows)
            stats = queue.stats()
            assert counts["leased"] == stats.total_leased
            assert counts["acked"] == stats.total_acked
            assert counts["nacked"] == stats.total_nacked
            assert counts["expired"] == stats.total_expired
            assert counts["moved"] == stats.total_dead + stats.total_redriven
            assert counts["dead-lettered"] == stats.total_dead
            assert counts["redriven"] == stats.total_redriven
            seen |= counts.keys()
            causes |= {(row["event"], row["cause"]) for row in rows if row["event"] in ("dead-lettered", "dropped")}
        assert seen == set(EVENTS) - {"put", "cut"}  # a cut takes a crash
        assert causes == {
            ("dead-lettered", "attempts"),
            ("dead-lettered", "overflow"),
            ("dead-lettered", "ttl"),
            ("dropped", "attempts"),
            ("dropped", "overflow"),
            ("dropped", "ttl"),
        }
        letters = {letter.original_id: letter for letter in queues[3].dead_letters()}
        for row in put_rows(queues[5]):
            assert row["cause"] == "moved"
            assert row["source"] in letters


def test_what_is_redriven_is_put_into_one_queue_of_those_on_a_log(disk_store: Store) -> None:
    a = disk_store.queue("a", log="shared", max_attempts=1, dead_letter="a.dead")
    b = disk_store.queue("b", log="shared", max_attempts=1)
    a.put(b"x")
    a.nack(a.lease(1), "no")
    a.redrive()
    a.put(b"y", headers={TARGET_QUEUE_HEADER: "b"})  # a user's own header of that name means nothing
    assert [(row["message"], row["cause"], row["source"]) for row in put_rows(a)] == [
        (0, None, None),
        (1, "moved", 0),
        (2, None, None),
    ]
    assert [row["message"] for row in put_rows(b)] == [0, 2]
    assert [waiting.id for waiting in b.peek()] == [0, 2]


MESSAGES = st.builds(Message, st.binary(max_size=9), delay=st.sampled_from([None, 0, 5]), priority=st.integers(0, 255))


@settings(max_examples=examples(40))
@given(st.lists(st.lists(MESSAGES, min_size=1, max_size=6), min_size=1, max_size=5))
def test_each_put_is_a_row(batches: list[list[Message]]) -> None:
    clock = SimClock()
    queue = open_sim(SimFiles(), clock).queue("q")
    for batch in batches:
        queue.put_many(batch)
        clock.advance(1)
    assert put_rows(queue) == slow_puts("q", queue.log)


def test_a_large_batch_of_puts_is_divided(disk_store: Store) -> None:
    queue = disk_store.queue("q", flush=Flush.async_())
    queue.put_many([b"x"] * (BATCH_ROWS + 5))
    queue.sync()
    batches = list(PutRows("q", ["message"]).gather(pieces_of(queue.log)))
    assert [batch.num_rows for batch in batches] == [BATCH_ROWS, 5]
    assert pa.Table.from_batches(batches)["message"].to_pylist() == list(range(BATCH_ROWS + 5))


def hit(folder: Path, payload: bytes) -> None:
    """Change one byte of a payload where it lies on disk."""
    (path,) = [path for path in folder.rglob("*.data") if payload in path.read_bytes()]
    raw = bytearray(path.read_bytes())
    raw[raw.index(payload)] ^= 0xFF
    path.write_bytes(raw)


def test_records_that_were_hit_are_left_out(tmp_path: Path) -> None:
    with holdfast.open(tmp_path / "data") as store:
        queue = store.queue("q")
        queue.put_many([b"first-payload", b"second-payload", b"third-payload"])
        journal = store.log("journal")
        journal.append_many([encode(Purged(7, number)) for number in (11, 12, 13)])
    hit(tmp_path / "data", b"second-payload")
    hit(tmp_path / "data", encode(Purged(7, 12)))
    with holdfast.open(tmp_path / "data", read_only=True) as store:
        rows = rows_of(PutRows("q", LIFECYCLE.names), pieces_of(store.log("q")))
        assert [row["message"] for row in rows] == [0, 2]
        rows = rows_of(JournalRows("q", LIFECYCLE.names), pieces_of(store.log("journal")))
        assert [row["upto"] for row in rows] == [11, 13]


@pytest.mark.parametrize("kind", [PutRows, JournalRows])
def test_only_what_was_asked_for_is_made_in_that_order_also_after_a_trip_to_a_task(
    disk_store: Store, kind: type[PutRows] | type[JournalRows]
) -> None:
    queue = disk_store.queue("q")
    queue.put(b"x")
    queue.ack(queue.lease(1))
    log = queue.log if kind is PutRows else journal_of(queue).log
    every = rows_of(kind("q", LIFECYCLE.names), pieces_of(log))
    for columns in (["time", "message"], ["event"], LIFECYCLE.names[::-1]):
        rows = pickle.loads(pickle.dumps(kind("q", columns)))
        assert rows.schema == arrow_schema(LIFECYCLE, columns)
        assert [list(row) for row in rows_of(rows, pieces_of(log))] == [columns] * len(every)
        assert rows_of(rows, pieces_of(log)) == [{name: row[name] for name in columns} for row in every]
