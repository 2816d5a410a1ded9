"""Where each message stands: the rows say what the queue says, and of what is done what became of it."""

import pickle
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import holdfast
from holdfast import Backoff, Delivery, Flush, Message, Queue, Roll, Store
from holdfast.queue.events import Acked, Dropped, Leased, Purged, Requeued, SeekTo, Transferring, Truncated, decode
from holdfast.queue.queue_state import TARGET_QUEUE_HEADER
from holdfast.queue.transfers import Transfers
from holdfast.spark.log_rows import BATCH_ROWS
from holdfast.spark.message_states import STATES
from holdfast.spark.queue_events import PutRows
from holdfast.spark.queue_messages import MessageRange, MessageRows
from holdfast.spark.queue_moment import moment_of
from holdfast.spark.schemas import LIFECYCLE, MESSAGES, arrow_schema
from holdfast.testing import SimClock, SimFiles
from tests.queue.calls import ALL_MODES, Call
from tests.queue.internals import core_of, journal_of, open_sim, state_of
from tests.spark.test_event_rows import hit, journal_rows, moment, pieces_between, pieces_of, work_hard
from tests.tiers import examples

Reopen = Callable[..., Store]
Row = dict[str, Any]


def at_present(queue: Queue) -> MessageRange:
    """All messages of a queue that is open read-only, at this moment."""
    moment = moment_of(queue.name, queue.log, journal_of(queue).log, core_of(queue).clock)
    queue.stats()
    while core_of(queue).followed < moment.journal_end:  # it may wait for messages that a crash took
        core_of(queue).clock.sleep(0.5)
        queue.stats()
    return MessageRange(queue.name, queue.log.start, moment.end, moment, True)


def rows_of(queue: Queue, over: MessageRange, columns: list[str] = MESSAGES.names) -> list[Row]:
    rows = pickle.loads(pickle.dumps(MessageRows(columns, over)))
    journal = journal_of(queue).log
    rows.use(lambda start, stop: pieces_between(journal, start, stop), fail_on_data_loss=True)
    found = []
    for batch in rows.gather(pieces_of(queue.log)):
        assert batch.schema == rows.schema == arrow_schema(MESSAGES, columns)
        batch.validate(full=True)
        assert 0 < batch.num_rows <= BATCH_ROWS
        found += batch.to_pylist()
    return found


def slow_states(queue: Queue) -> dict[int, tuple[str, int | None, str | None]]:
    """State, attempts and reason of each message, by a loop over the whole journal and what the queue holds."""
    states: dict[int, str] = {}
    attempts: dict[int, int] = {}
    reasons: dict[int, str] = {}
    start, end = queue.log.start, state_of(queue).scanned

    def open_below(position: int, *, leased: bool) -> list[int]:
        wanted = ("open", "leased") if leased else ("open",)
        return [at for at in range(start, min(position, end)) if states.get(at, "open") in wanted]

    for record in journal_of(queue).log.read():
        for event in decode(record.payload):
            match event:
                case Leased(_, _, _, spans):
                    for first, stop, _, attempt in spans:
                        for at in range(first, stop):
                            states[at], attempts[at] = "leased", attempt
                case Acked(_, parts):
                    states |= {at: "acked" for _, done in parts for span in done for at in range(*span)}
                case Requeued(_, cause, reason, _, _, spans):
                    for first, stop, _, attempt in spans:
                        for at in range(first, stop):
                            states[at], attempts[at] = "open", attempt - (cause == "released")
                            if cause != "released":
                                reasons[at] = reason
                case Transferring(_, cause, reason, _, _, spans):
                    for first, stop, _, attempt in spans:
                        for at in range(first, stop):
                            states[at] = "redriven" if cause == "redriven" else "dead"
                            attempts[at] = attempt or attempts.get(at, 0)
                            reasons[at] = reason or reasons.get(at, "") if cause != "attempts" else reason
                case Dropped(_, cause, gone):
                    for at in [at for span in gone for at in range(*span)] if cause != "moved" else ():
                        states[at] = "dead" if cause in ("attempts", "rejected") else "dropped"
                        if cause == "attempts":
                            reasons[at] = ""  # the journal does not say why
                case Purged(_, position):
                    states |= dict.fromkeys(open_below(position, leased=False), "dropped")
                case SeekTo(_, position) | Truncated(_, position):
                    if isinstance(event, SeekTo):
                        states |= dict.fromkeys(open_below(position, leased=True), "dropped")
                    for known in (states, attempts, reasons):
                        for at in [at for at in known if at >= position]:
                            del known[at]
    described: dict[str, Any] = state_of(queue).describe()
    present = dict.fromkeys((at for spans in described["ready"].values() for s in spans for at in range(*s)), "ready")
    present |= {at: "delayed" for at, _, _ in described["delayed"]}
    for _, spans in described["leases"].values():
        present |= {at: "leased" for first, stop, _, _ in spans for at in range(first, stop)}
    foreign = {
        record.sequence
        for record in queue.log.read()
        if record.headers.get(TARGET_QUEUE_HEADER, queue.name) != queue.name and record.sequence not in present
    }
    return {
        at: (present.get(at, states.get(at, "acked")), attempts.get(at, 0), reasons.get(at) or None)
        for at in range(start, end)
        if at not in foreign
    }


def assert_as_the_queue_says(queue: Queue, over: MessageRange) -> list[Row]:
    """The rows agree with the slow way, and with all that the queue itself tells."""
    rows = rows_of(queue, over)
    assert {row["message"]: (row["state"], row["attempts"], row["reason"]) for row in rows} == slow_states(queue)
    by_state: dict[str, list[Row]] = {state: [row for row in rows if row["state"] == state] for state in STATES}
    stats = queue.stats()
    assert len(by_state["ready"]) == stats.ready
    assert len(by_state["delayed"]) == stats.delayed
    assert len(by_state["leased"]) == stats.leased
    assert len({row["lease"] for row in by_state["leased"]}) == stats.leases
    peeked = {waiting.id: waiting for waiting in queue.peek(10_000)}
    for row in by_state["ready"]:
        if waiting := peeked.get(row["message"]):  # what is overdue is not shown by a peek
            assert (row["value"], row["key"], row["attempts"], row["priority"], row["time"]) == (
                waiting.payload,
                waiting.key,
                waiting.attempts,
                waiting.priority,
                moment(waiting.enqueued_at),
            )
            assert {one["key"]: one["value"] for one in row["headers"] or ()} == {
                name: value.encode() if isinstance(value, str) else value for name, value in waiting.headers.items()
            }
    assert peeked.keys() <= {row["message"] for row in by_state["ready"]}
    if by_state["delayed"]:
        assert min(row["due"] for row in by_state["delayed"]) == moment(stats.next_due)
    for row in rows:
        assert (row["due"] is not None) == (row["state"] == "delayed")
        assert (row["lease"] is not None) == (row["expires"] is not None) == (row["state"] == "leased")
    return rows


def test_everything_that_can_happen_to_a_message(tmp_path: Path) -> None:
    for flush in ALL_MODES:
        clock = SimClock()
        folder = tmp_path / str(flush.mode)
        with holdfast.open(folder, clock=clock, background=False) as store:
            seen: set[str] = set()
            queues = work_hard(store, clock, flush)
            with holdfast.open(folder, clock=clock, background=False, read_only=True) as reader:
                for queue in queues:
                    view = reader.queue(queue.name)
                    rows = assert_as_the_queue_says(view, at_present(view))
                    counts = Counter(row["state"] for row in rows)
                    stats = queue.stats()
                    assert (counts["ready"], counts["delayed"], counts["leased"]) == (
                        stats.ready,
                        stats.delayed,
                        stats.leased,
                    )
                    assert counts["redriven"] == stats.total_redriven
                    if queue.name != "b":  # which was sought back: its messages began again
                        assert counts["acked"] == stats.total_acked
                        assert counts["dead"] == stats.total_dead
                        assert counts["dropped"] == stats.total_dropped
                    letters = {letter.original_id: letter for letter in queue.dead_letters()}
                    for row in rows:
                        if row["message"] in letters:
                            letter = letters[row["message"]]
                            assert (row["state"], row["reason"], row["attempts"]) == (
                                "dead",
                                letter.reason,
                                letter.attempts,
                            )
                    seen |= counts.keys()
            assert seen == set(STATES)


def test_each_state_with_what_belongs_to_it(store: Store, reopen: Reopen, clock: SimClock) -> None:
    queue = store.queue("q", max_attempts=2, backoff=Backoff(100, 100), lease=50)
    queue.put_many([Message(b"%d" % n, key=b"k%d" % n, headers={"n": str(n)}, priority=9 - n) for n in range(6)])
    queue.put(b"6", delay=70)
    first, second, third, fourth = queue.lease(4)
    first.ack()
    queue.nack([second], "once")
    queue.nack([third], "twice", delay=0)
    (again,) = queue.lease(1)
    assert again.id == 2
    queue.nack([again], "thrice")
    queue.extend([fourth], 80)
    view = reopen(read_only=True).queue("q")
    rows = assert_as_the_queue_says(view, at_present(view))
    assert [(row["message"], row["state"], row["attempts"], row["reason"]) for row in rows] == [
        (0, "acked", 1, None),
        (1, "delayed", 1, "once"),
        (2, "dead", 2, "thrice"),
        (3, "leased", 1, None),
        (4, "ready", 0, None),
        (5, "ready", 0, None),
        (6, "delayed", 0, None),
    ]
    assert rows[3]["lease"] == fourth.lease
    (lease,) = state_of(queue).leases.by_id.values()
    assert rows[3]["expires"] == moment(lease.expires)
    assert [row["priority"] for row in rows] == [9, 8, 7, 6, 5, 4, 0]
    assert rows[5]["headers"] == [{"key": "n", "value": b"5"}]
    assert rows[6]["headers"] is None


def test_the_priority_is_the_one_that_was_put(store: Store, reopen: Reopen) -> None:
    put = [0, 9, 10, 100, 255]
    queue = store.queue("q")
    queue.put_many([Message(b"x", priority=priority) for priority in put])
    queue.put_many([Message(b"x", priority=priority, delay=60) for priority in put])
    view = reopen(read_only=True).queue("q")
    assert [row["priority"] for row in assert_as_the_queue_says(view, at_present(view))] == put * 2
    events = [row for batch in PutRows("q", LIFECYCLE.names).gather(pieces_of(view.log)) for row in batch.to_pylist()]
    assert [event["priority"] for event in events] == put * 2


def test_purged_and_passed_over_messages_are_dropped(store: Store, reopen: Reopen) -> None:
    queue = store.queue("q")
    queue.put_many([b"x"] * 6)
    queue.ack(queue.lease(1))
    held = queue.lease(1)
    queue.purge()
    queue.put_many([b"y"] * 4)
    view = reopen(read_only=True).queue("q")

    def states() -> list[str]:
        return [row["state"] for row in assert_as_the_queue_says(view, at_present(view))]

    assert states() == ["acked", "leased", *["dropped"] * 4, *["ready"] * 4]
    queue.ack(held)
    queue.ack(queue.lease(1))
    queue.seek(8)
    assert states() == ["acked", "acked", *["dropped"] * 4, "acked", "dropped", "ready", "ready"]
    queue.seek(1)
    assert states() == ["acked", *["ready"] * 9]


def test_a_delivery_that_was_given_back_untried_does_not_count(store: Store, reopen: Reopen) -> None:
    queue = store.queue("q")
    queue.put_many([b"x", b"y"])
    queue.nack(queue.lease(1), "no", delay=0)
    queue.release(queue.lease(2))
    queue.purge()
    view = reopen(read_only=True).queue("q")
    rows = assert_as_the_queue_says(view, at_present(view))
    assert [(row["state"], row["attempts"], row["reason"]) for row in rows] == [
        ("dropped", 1, "no"),
        ("dropped", 0, None),
    ]


def test_the_reason_is_that_of_the_last_failure_even_if_it_gave_none(store: Store, reopen: Reopen) -> None:
    queue = store.queue("q", max_attempts=None)
    queue.put(b"x")
    queue.nack(queue.lease(1), "no", delay=0)
    queue.nack(queue.lease(1), delay=0)
    view = reopen(read_only=True).queue("q")
    (waiting,) = assert_as_the_queue_says(view, at_present(view))
    queue.ack(queue.lease(1))
    (done,) = assert_as_the_queue_says(view, at_present(view))
    assert (waiting["state"], waiting["attempts"], waiting["reason"]) == ("ready", 2, None)
    assert (done["state"], done["attempts"], done["reason"]) == ("acked", 3, None)


def test_why_a_message_was_given_up_without_dead_letters_is_not_known(store: Store, reopen: Reopen) -> None:
    queue = store.queue("q", max_attempts=2, dead_letter=None)
    queue.put(b"x")
    queue.nack(queue.lease(1), "no", delay=0)
    queue.nack(queue.lease(1), "not again")
    view = reopen(read_only=True).queue("q")
    (row,) = assert_as_the_queue_says(view, at_present(view))
    assert (row["state"], row["attempts"], row["reason"]) == ("dead", 2, None)


def test_a_message_that_was_refused_is_dead_with_the_delivery_that_it_had(store: Store, reopen: Reopen) -> None:
    queue = store.queue("q", dead_letter=None)
    queue.put(b"refused")
    (delivery,) = queue.lease(1)
    assert queue.reject_ids({delivery.lease: [delivery.id]}, "no such customer") == []
    view = reopen(read_only=True).queue("q")
    (row,) = assert_as_the_queue_says(view, at_present(view))
    assert (row["state"], row["attempts"]) == ("dead", 1)


def test_a_second_delivery_is_counted_while_it_is_held(store: Store, reopen: Reopen) -> None:
    queue = store.queue("q")
    queue.put(b"x")
    queue.nack(queue.lease(1), "no", delay=0)
    queue.lease(1)
    view = reopen(read_only=True).queue("q")
    (row,) = assert_as_the_queue_says(view, at_present(view))
    assert (row["state"], row["attempts"], row["reason"]) == ("leased", 2, "no")


def test_what_is_on_its_way_has_left(store: Store, reopen: Reopen) -> None:
    queue = store.queue("q", max_attempts=1)
    queue.put_many([b"x", b"y"])
    with patch.object(Transfers, "carry"):
        queue.nack(queue.lease(1), "no")
        view = reopen(read_only=True).queue("q")
        assert view.stats().moving == 1
        rows = rows_of(view, at_present(view))
    assert [(row["state"], row["attempts"], row["reason"]) for row in rows] == [("dead", 1, "no"), ("ready", 0, None)]


def test_what_ended_before_the_journal_begins_was_acked(files: SimFiles, clock: SimClock) -> None:
    with patch.object(holdfast.queue_registry, "JOURNAL_ROLL", Roll.count(4)):
        store = open_sim(files, clock)
        queue = store.queue("q", history=100, max_attempts=1, dead_letter=None, retention=None)
        queue.put_many([b"%d" % n for n in range(10)])
        queue.nack(queue.lease(2), "no")
        queue.ack(queue.lease(2))
        view = open_sim(files, clock, read_only=True).queue("q")
        assert [row["state"] for row in rows_of(view, at_present(view))] == ["dead"] * 2 + ["acked"] * 2 + ["ready"] * 6
        for _ in range(4):
            clock.advance(60)
            queue.release(queue.lease(1))
            queue.checkpoint()
        assert journal_of(queue).log.start > 4
        queue.put_many([b"new"] * 3)
        queue.ack(queue.lease(1))
        queue.purge()
        queue.put(b"last")
        for reader in (view, open_sim(files, clock, read_only=True).queue("q")):
            rows = rows_of(reader, at_present(reader))
            assert [(row["state"], row["attempts"]) for row in rows] == [
                *[("acked", None)] * 4,  # in truth two of them were given up: nobody knows any more
                ("acked", 1),
                *[("acked", None)] * 5,  # purged; but that they were not done before is not in the journal
                *[("dropped", 0)] * 3,
                ("ready", 0),
            ]


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(1, 4), st.sampled_from([None, 3]), st.sampled_from([0, 1, 255])),
        st.tuples(st.just("short"), st.integers(1, 2)),
        st.tuples(st.just("lease"), st.integers(1, 4)),
        st.tuples(st.just("get")),
        st.tuples(st.sampled_from(["ack", "nack", "release", "extend", "ack_one"]), st.integers(0, 20)),
        st.tuples(st.just("advance"), st.integers(1, 12)),
        st.tuples(st.sampled_from(["purge", "redrive", "checkpoint", "overlay"])),
        st.tuples(st.just("seek"), st.integers(0, 20)),
    ),
    min_size=1,
    max_size=25,
)


def do(queue: Queue, store: Store, clock: SimClock, held: list[Delivery], step: tuple[Any, ...]) -> None:
    match step:
        case ("put", count, delay, priority):
            queue.put_many([Message(b"x", key=b"k", delay=delay, priority=priority)] * count)
        case ("short", count):
            queue.put_many([Message(b"short", ttl=2, headers={"a": "b"})] * count)
        case ("lease", count):
            held += queue.lease(count, lease=10)
        case ("get",):
            held += filter(None, [queue.get()])
        case (("ack" | "nack" | "release" | "extend" | "ack_one") as what, choice) if held:
            chosen = held[choice % len(held) :][:2]
            for one in chosen:
                held.remove(one)
            match what:
                case "nack":
                    queue.settler.try_nack(chosen, ["", "no", "never"][choice % 3], [None, 0][choice % 2])
                case "release":
                    queue.settler.try_release(chosen)
                case "extend":
                    queue.settler.try_extend(chosen, 5 + choice)
                    held += chosen
                case "ack_one":
                    queue.settler.ack_one(chosen[0])
                case _:
                    still = [one for one in chosen if one.id in leased_of(queue, one.lease)]
                    queue.ack(still)
        case ("advance", seconds):
            clock.advance(seconds)
            store.tick()
        case ("purge",):
            queue.purge()
        case ("redrive",):
            queue.redrive()
        case ("checkpoint",):
            queue.checkpoint()
        case ("seek", position):
            queue.seek(min(position, queue.log.reader.visible_end))


def leased_of(queue: Queue, lease_id: int) -> set[int]:
    lease = state_of(queue).leases.by_id.get(lease_id)
    return set() if lease is None or core_of(queue).now() + 10_000 >= lease.expires else lease.left


@settings(max_examples=examples(120))
@given(STEPS, st.sampled_from(ALL_MODES), st.sampled_from(["drop-head", "dead-letter"]), st.booleans())
def test_whatever_happens_the_rows_say_what_the_queue_says(
    steps: list[tuple[Any, ...]], flush: Flush, overflow: str, shared: bool
) -> None:
    files, clock = SimFiles(), SimClock()
    store = open_sim(files, clock)
    queue = store.queue(
        "q", log="events", flush=flush, max_attempts=2, backoff=Backoff(2, 2), max_length=9, overflow=overflow
    )
    other = store.queue("other", log="events", flush=flush, max_attempts=1, dead_letter=None) if shared else None
    reader = open_sim(files, clock, read_only=True)
    view = reader.queue("q")
    held: list[Delivery] = []

    def compare() -> None:
        store.tick()
        for one in (queue, other, store.find_queue("q.dead")):
            if one is not None:
                one.sync()
                follower = view if one is queue else reader.queue(one.name)
                over = at_present(follower)
                assert_as_the_queue_says(follower, over)
                mine = one.stats()
                assert (mine.ready, mine.delayed, mine.leased) == tuple(
                    sum(row["state"] == state for row in rows_of(follower, over))
                    for state in ("ready", "delayed", "leased")
                )

    for step in steps:
        do(queue, store, clock, held, step)
        if other is not None:
            other.settler.try_nack(other.lease(1, lease=4), "no", None)
        if step == ("overlay",):
            compare()
    compare()


@given(st.integers(0, 30), st.integers(0, 30), st.data())
def test_a_slice_says_the_same_of_its_part(start: int, stop: int, data: st.DataObject) -> None:
    files, clock = SimFiles(), SimClock()
    queue = open_sim(files, clock).queue("q", max_attempts=None)
    for _ in range(5):
        queue.put_many(
            [Message(b"x", delay=delay) for delay in data.draw(st.lists(st.sampled_from([None, 9]), max_size=5))]
        )
    held = queue.lease(data.draw(st.integers(1, 20)))
    for one in held:
        if reason := data.draw(st.sampled_from(["", "a", "b", "held"])):
            queue.settler.try_nack([one] if reason != "held" else [], reason, 5)
        else:
            one.ack()
    view = open_sim(files, clock, read_only=True).queue("q")
    over = at_present(view)
    stop = max(start, stop)
    part = replace(over, start=start, stop=stop)
    assert rows_of(view, part) == [row for row in rows_of(view, over) if start <= row["message"] < stop]
    middle = min((start + stop) // 2, over.stop)
    assert rows_of(view, replace(over, stop=middle)) + rows_of(view, replace(over, start=middle)) == rows_of(view, over)


def test_a_queue_without_messages_has_no_rows(store: Store, reopen: Reopen) -> None:
    queue = store.queue("q")
    view = reopen(read_only=True).queue("q")
    over = at_present(view)
    assert (over.start, over.stop, rows_of(view, over)) == (0, 0, [])
    queue.put(b"later")
    assert rows_of(view, over) == []  # it came after that moment


def test_messages_that_cannot_be_read_are_left_out(tmp_path: Path) -> None:
    with holdfast.open(tmp_path / "data") as store:
        store.queue("q").put_many([b"first-payload", b"second-payload", b"third-payload"])
    hit(tmp_path / "data", b"second-payload")
    with holdfast.open(tmp_path / "data", read_only=True) as store:
        view = store.queue("q")
        assert [(row["message"], row["value"]) for row in rows_of(view, at_present(view))] == [
            (0, b"first-payload"),
            (2, b"third-payload"),
        ]


def test_a_large_queue_is_a_small_plan_and_its_payloads_are_not_copied(tmp_path: Path) -> None:
    count = 200_000
    with holdfast.open(tmp_path / "data") as store:
        queue = store.queue("q", flush=Flush.async_())
        queue.put_many([b"%06d" % n for n in range(count)])
        queue.ack(queue.lease(50_000))
        queue.lease(1000)
    with holdfast.open(tmp_path / "data", read_only=True) as store:
        view = store.queue("q")
        over = at_present(view)
        assert len(pickle.dumps(over)) < 2000
        (block,) = view.log.blocks()
        (where,) = {np.frombuffer(block.data, np.uint8).__array_interface__["data"][0]}
        rows = MessageRows(["value", "state"], over)
        journal = journal_of(view).log
        rows.use(lambda start, stop: pieces_between(journal, start, stop), fail_on_data_loss=True)
        batches = list(rows.gather([(block, 0, block.count)]))
        states = Counter(state for batch in batches for state in batch.column(1).to_pylist())
        assert states == {"acked": 50_000, "leased": 1000, "ready": count - 51_000}
        assert {batch.column(0).buffers()[2].address for batch in batches} == {where}
        assert batches[-1].column(0)[-1].as_py() == b"%06d" % (count - 1)


@pytest.mark.parametrize("flush", ALL_MODES, ids=lambda flush: str(flush.mode))
def test_what_is_seen_while_someone_works_is_of_one_moment(tmp_path: Path, flush: Flush) -> None:
    """Ten at a time are leased and acked, in order: whatever the moment, that is how the messages must stand."""
    with holdfast.open(tmp_path / "data") as store:
        queue = store.queue("q", flush=flush)
        queue.put_many([b"x"] * 100)
        queue.sync()

        def work() -> None:
            for _ in range(60):
                queue.put_many([b"y"] * 10)
                queue.ack(queue.lease(10))

        with holdfast.open(tmp_path / "data", read_only=True) as reader:
            view = reader.queue("q")
            call = Call(work)
            looks = 0
            while call.runs or not looks:
                over = at_present(view)
                rows = rows_of(view, over)
                looks += 1
                states = [row["state"] for row in rows]
                acked, leased, ready = (states.count(state) for state in ("acked", "leased", "ready"))
                assert states == ["acked"] * acked + ["leased"] * leased + ["ready"] * ready
                assert len(states) == over.stop
                assert (acked % 10, leased in (0, 10)) == (0, True)
                assert len({row["lease"] for row in rows if row["lease"]}) == leased / 10
            call.result()
            queue.sync()
            assert Counter(row["state"] for row in rows_of(view, at_present(view))) == {"acked": 600, "ready": 100}


def test_messages_that_a_power_cut_took_are_forgotten(files: SimFiles, clock: SimClock) -> None:
    queue = open_sim(files, clock).queue("q", flush=Flush.async_(), max_attempts=1, dead_letter=None)
    queue.put_many([b"kept"] * 2)
    queue.ack(queue.lease(1))
    queue.sync()
    queue.put_many([b"lost"] * 3)
    queue.nack(queue.lease(4), "no")
    journal_of(queue).sync()  # and not the log
    rest = files.after_crash("dropped")
    queue = open_sim(rest, clock).queue("q", flush=Flush.async_())
    queue.put_many([b"new"] * 2)
    queue.sync()
    assert "cut" in {row["event"] for row in journal_rows(queue)}
    view = open_sim(rest, clock, read_only=True).queue("q")
    rows = assert_as_the_queue_says(view, at_present(view))
    assert [(row["state"], row["attempts"], row["value"]) for row in rows] == [
        ("acked", 1, b"kept"),
        ("dead", 1, b"kept"),
        ("ready", 0, b"new"),
        ("ready", 0, b"new"),
    ]
