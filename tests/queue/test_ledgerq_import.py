"""Does everything that waits in a LedgerQ folder come over, with all it carries, and never twice?"""

import gzip
import hashlib
import struct
from pathlib import Path

import pytest

import holdfast
from holdfast import Flush, HoldfastError, Log, Queue, Store
from holdfast.base.checksum import crc32c
from holdfast.errors import InvalidArgument
from holdfast.importers import ledgerq
from holdfast.importers.ledgerq import ImportResult, LedgerQImport, find_dlq
from holdfast.testing import SimClock, SimFiles
from tests.queue.test_ledgerq_reader import FIXTURES, WRITTEN, a_segment, an_entry
from tests.tiers import crash_sample

NOW = 1_794_800_000_000_000_000
SECOND = 1_000_000_000


@pytest.fixture
def clock() -> SimClock:
    """Some hours after the fixtures were written."""
    return SimClock(NOW)


class Importing:
    """A store, and what is needed to import into its queue `jobs`."""

    def __init__(self, store: Store) -> None:
        self.queue: Queue = store.queue("jobs")
        self.dead: Queue = store.queue("jobs.dead")
        self.notes: Log = store.log("jobs.imported", flush=Flush.sync())

    def fixtures(self, *, everything: bool = False, source: str | None = None) -> ImportResult:
        return LedgerQImport(
            FIXTURES / "queue",
            self.queue,
            self.notes,
            source=source,
            dead_folder=FIXTURES / "dlq",
            dead_queue=self.dead,
            everything=everything,
        ).run()

    def segments(
        self,
        *entries: bytes,
        letters: tuple[bytes, ...] = (),
        read_id: int = 1,
        retries: bytes = b"",
        everything: bool = False,
    ) -> ImportResult:
        contents = {
            "old/1.log": a_segment(*entries),
            "old/metadata.dat": struct.pack("<IQQ4x", 1, 1000, read_id),
            "dlq/1.log": a_segment(*letters),
            "dlq/metadata.dat": struct.pack("<IQQ4x", 1, 1000, 1),
        }
        if retries:
            contents["old/.retry_state.json"] = retries
        return LedgerQImport(
            Path("old"),
            self.queue,
            self.notes,
            source="old",
            dead_folder=Path("dlq") if letters else None,
            dead_queue=self.dead,
            everything=everything,
            files=SimFiles.holding(contents),
        ).run()

    def payloads(self) -> list[bytes]:
        return [message.payload for message in self.queue.peek(1000)]


@pytest.fixture
def into(store: Store) -> Importing:
    return Importing(store)


def a_letter(message_id: int, origin: int | str, payload: bytes) -> bytes:
    """A dead letter as LedgerQ writes it."""
    facts = {"dlq.original_msg_id": str(origin), "dlq.retry_count": "3", "dlq.failure_reason": "no luck", "own": "kept"}
    headers = struct.pack("<H", len(facts))
    for name, value in facts.items():
        headers += struct.pack("<H", len(name)) + name.encode() + struct.pack("<H", len(value)) + value.encode()
    return an_entry(message_id, headers + payload, flags=8)


def an_expiring_entry(message_id: int, expires: int, payload: bytes = b"payload") -> bytes:
    return an_entry(message_id, struct.pack("<q", expires) + payload, flags=4)


# ------------------------------------------------------------ what LedgerQ itself wrote


def test_what_waits_and_what_failed_comes_over_as_it_was_written(into: Importing) -> None:
    result = into.fixtures()
    assert (result.imported, result.dead, result.expired, result.read_before) == (25, 1, 1, 3)
    assert (result.already, result.problems) == (0, [])
    messages = {int(message.headers["ledgerq-id"]): message for message in into.queue.peek(100)}
    assert set(messages) == {4, *range(5, 30)} - {8}
    for message_id, message in messages.items():
        written = WRITTEN[message_id]
        assert hashlib.sha256(message.payload).hexdigest() == written.sha256
        assert {name: value for name, value in message.headers.items() if not name.startswith("ledgerq-")} == dict(
            written.headers
        )
        assert message.headers["ledgerq-source"] == str((FIXTURES / "queue").resolve())
        assert int(message.headers["ledgerq-timestamp"]) < NOW
        assert message.priority == {None: 0, 1: 4, 2: 9}[written.priority]


def test_messages_of_one_priority_keep_their_order(into: Importing) -> None:
    into.fixtures()
    ids = [int(message.headers["ledgerq-id"]) for message in into.queue.peek(100) if message.priority == 0]
    assert ids == sorted(ids)


def test_one_that_failed_and_was_never_delivered_again_says_how_often_and_why(into: Importing) -> None:
    into.fixtures()
    (failed,) = [message for message in into.queue.peek(100) if "ledgerq-attempts" in message.headers]
    assert (failed.headers["ledgerq-id"], failed.headers["ledgerq-attempts"]) == ("4", "1")
    assert failed.headers["ledgerq-reason"] == "one failure only"


def test_a_dead_letter_is_one_here_too_and_can_be_redriven(into: Importing) -> None:
    into.fixtures()
    (letter,) = into.queue.dead_letters()
    assert (letter.payload, letter.queue, letter.original_id) == (b"plain-2", "jobs", 3)
    assert (letter.cause, letter.reason, letter.attempts) == ("attempts", "second failure", 2)
    assert (letter.first_failed_at, letter.last_failed_at) == (None, 1794773757577000000)
    assert letter.enqueued_at < 1794773757577000000 < letter.died_at
    assert set(letter.headers) == {"ledgerq-source", "ledgerq-id", "ledgerq-timestamp"}
    assert into.queue.redrive() == 1
    assert into.queue.dead_letters() == []
    assert b"plain-2" in into.payloads()


def test_the_source_is_left_as_it_was(into: Importing) -> None:
    def look() -> dict[Path, tuple[int, bytes]]:
        paths = sorted(path for path in FIXTURES.rglob("*") if path.is_file())
        return {path: (path.stat().st_mtime_ns, hashlib.sha256(path.read_bytes()).digest()) for path in paths}

    before = look()
    into.fixtures(everything=True)
    assert look() == before


def test_all_takes_what_was_read_too_but_not_twice_what_is_dead(into: Importing) -> None:
    result = into.fixtures(everything=True)
    assert (result.imported, result.dead, result.read_before) == (27, 1, 1)
    ids = {int(message.headers["ledgerq-id"]) for message in into.queue.peek(100)}
    assert ids == {*range(1, 30)} - {3, 8}


def test_what_cannot_be_taken_along_is_said(into: Importing) -> None:
    assert into.fixtures().notes == [
        "the deduplication ids that LedgerQ still remembers (1): it keeps only their digests"
    ]


def test_progress_runs_to_the_size_of_both_folders(into: Importing) -> None:
    steps: list[tuple[int, int]] = []
    work = LedgerQImport(FIXTURES / "queue", into.queue, into.notes, dead_folder=FIXTURES / "dlq", dead_queue=into.dead)
    work.run(lambda done, total: steps.append((done, total)))
    total = sum(path.stat().st_size for path in FIXTURES.rglob("*.log"))
    assert steps[-1] == (total, total)
    assert [done for done, _ in steps] == sorted(done for done, _ in steps)


# ------------------------------------------------------------ once, whatever happens


def test_running_it_again_brings_nothing_twice(into: Importing) -> None:
    into.fixtures()
    again = into.fixtures()
    assert (again.imported, again.dead, again.already) == (0, 0, 26)
    assert len(into.payloads()) == 25 and len(into.queue.dead_letters()) == 1


def test_a_later_import_brings_what_came_since(into: Importing) -> None:
    into.segments(an_entry(1, b"a"), an_entry(2, b"b"))
    result = into.segments(*(an_entry(number, bytes([96 + number])) for number in range(1, 5)))
    assert (result.imported, result.already) == (2, 2)
    assert into.payloads() == [b"a", b"b", b"c", b"d"]


def test_all_after_a_plain_import_brings_only_the_rest(into: Importing) -> None:
    entries = [an_entry(number, b"%d" % number) for number in range(1, 5)]
    into.segments(*entries, read_id=3)
    result = into.segments(*entries, read_id=3, everything=True)
    assert (result.imported, result.already) == (2, 2)
    assert sorted(into.payloads()) == [b"1", b"2", b"3", b"4"]


@pytest.mark.parametrize("fatal", [1, 2, 4])
def test_an_import_that_is_stopped_before_its_note_brings_nothing_twice(
    into: Importing, monkeypatch: pytest.MonkeyPatch, fatal: int
) -> None:
    monkeypatch.setattr(ledgerq, "BATCH", 7)
    append = into.notes.append
    calls = 0

    def dying(*args: object) -> int:
        nonlocal calls
        calls += 1
        if calls == fatal:
            raise HoldfastError("the power is gone")
        return append(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(into.notes, "append", dying)
    with pytest.raises(HoldfastError, match="power"):
        into.fixtures()
    into.fixtures()
    assert sorted(int(message.headers["ledgerq-id"]) for message in into.queue.peek(100)) == sorted(
        {4, *range(5, 30)} - {8}
    )
    assert len(into.queue.dead_letters()) == 1


class ImportWork:
    """An import of eight messages and two dead letters, stopped anywhere and run again."""

    def run(self, files: SimFiles) -> None:
        self.import_into(files)

    def check(self, files: SimFiles) -> None:
        into = self.import_into(files)
        assert [int(message.headers["ledgerq-id"]) for message in into.queue.peek(100)] == [*range(1, 9)]
        assert [letter.original_id for letter in into.queue.dead_letters()] == [91, 92]

    def import_into(self, files: SimFiles) -> Importing:
        into = Importing(holdfast.open("data", files=files, clock=SimClock(NOW), background=False))
        into.segments(
            *(an_entry(number) for number in range(1, 9)), letters=(a_letter(1, 91, b"x"), a_letter(2, 92, b"y"))
        )
        return into


def test_stopped_at_any_operation_and_run_again_it_brings_everything_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledgerq, "BATCH", 3)
    assert crash_sample(ImportWork, seeds=(0,), every=5) > 200


def test_what_is_done_and_no_longer_kept_does_not_come_again(into: Importing) -> None:
    into.segments(an_entry(1, b"a"), an_entry(2, b"b"))
    into.queue.ack(into.queue.lease(2))
    into.queue.log.clear(force=True)
    result = into.segments(an_entry(1, b"a"), an_entry(2, b"b"), an_entry(3, b"c"))
    assert (result.imported, result.already) == (1, 2)


def test_a_redriven_letter_does_not_come_again(into: Importing) -> None:
    into.fixtures()
    into.queue.redrive()
    assert into.fixtures().dead == 0
    assert into.queue.dead_letters() == []


def test_another_source_with_the_same_ids_is_not_mistaken_for_the_first(into: Importing) -> None:
    into.fixtures(source="here")
    assert into.fixtures(source="there").imported == 25
    assert into.fixtures(source="here").imported == 0


def test_a_folder_that_was_begun_anew_is_not_mistaken_for_the_old_one(into: Importing) -> None:
    into.segments(an_entry(1, b"old"))
    entry = bytearray(an_entry(1, b"new"))
    struct.pack_into("<q", entry, 14, 5_000)
    body = bytes(entry[:-8])
    into.segments(body + struct.pack("<I4x", crc32c(body)))
    assert into.payloads() == [b"old", b"new"]


def test_ids_that_ledgerq_used_twice_all_come(into: Importing) -> None:
    entries = []
    for number, message_id in enumerate((1, 2, 2, 1)):
        head = struct.pack("<IBBQq", 26 + 1, 1, 0, message_id, 1_000 + number) + b"%d" % number
        entries.append(head + struct.pack("<I4x", crc32c(head)))
    result = into.segments(*entries)
    assert into.payloads() == [b"0", b"1", b"2", b"3"]
    assert "ids that were used before" in result.problems[0]


# ------------------------------------------------------------ time to live


def test_a_message_keeps_the_time_it_has_left_to_live(into: Importing, clock: SimClock) -> None:
    into.segments(an_expiring_entry(1, NOW + 60 * SECOND))
    clock.advance(59)
    assert into.payloads() == [b"payload"]
    clock.advance(2)
    assert into.queue.get() is None


def test_what_has_expired_stays_behind_and_is_counted(into: Importing) -> None:
    result = into.segments(an_expiring_entry(1, NOW), an_expiring_entry(2, NOW - 1), an_expiring_entry(3, NOW + SECOND))
    assert (result.imported, result.expired) == (1, 2)


def test_a_message_that_lives_to_the_end_of_time_is_taken(into: Importing) -> None:
    assert into.segments(an_expiring_entry(1, (1 << 63) - 1)).imported == 1


def test_what_was_read_and_expired_counts_as_read(into: Importing) -> None:
    result = into.segments(an_expiring_entry(1, NOW - 1), read_id=2)
    assert (result.read_before, result.expired) == (1, 0)


# ------------------------------------------------------------ dead letters

PLAIN = b"to be compressed " * 100
PACKED = gzip.compress(PLAIN)


def letter_payload(into: Importing) -> bytes:
    (letter,) = into.queue.dead_letters()
    return letter.payload


def test_a_letter_that_ledgerq_left_compressed_is_unpacked(into: Importing) -> None:
    original = an_entry(3, b"\x01" + PACKED, flags=1)
    result = into.segments(original, letters=(a_letter(1, 3, PACKED),), read_id=9)
    assert letter_payload(into) == PLAIN
    assert result.problems == []


def test_a_letter_that_its_sender_compressed_stays_as_it_was_sent(into: Importing) -> None:
    result = into.segments(an_entry(3, PACKED), letters=(a_letter(1, 3, PACKED),), read_id=9)
    assert letter_payload(into) == PACKED
    assert result.problems == []


def test_where_the_message_it_was_is_gone_a_letter_stays_as_it_is_and_that_is_said(into: Importing) -> None:
    result = into.segments(an_entry(9), letters=(a_letter(1, 3, PACKED),))
    assert letter_payload(into) == PACKED
    assert result.problems == [
        "dlq: the dead letter 1 looks compressed, and its original message is missing: it was imported without "
        "decompression"
    ]


def test_a_letter_that_only_looks_compressed_is_let_be(into: Importing) -> None:
    into.segments(an_entry(3), letters=(a_letter(1, 3, b"\x1f\x8b\x08 not really"),), read_id=9)
    assert letter_payload(into) == b"\x1f\x8b\x08 not really"


def test_a_letter_keeps_its_own_headers_and_the_time_it_was_put(into: Importing) -> None:
    into.segments(an_entry(3), letters=(a_letter(1, 3, b"x"),), read_id=9)
    (letter,) = into.queue.dead_letters()
    assert letter.headers["own"] == "kept" and "dlq.retry_count" not in letter.headers
    assert (letter.original_id, letter.attempts, letter.reason) == (3, 3, "no luck")
    assert letter.enqueued_at == 1_003


@pytest.mark.parametrize("origin", [str(1 << 64), "9" * 20, "none"])
def test_a_letter_whose_origin_makes_no_sense_is_imported_all_the_same(into: Importing, origin: str) -> None:
    assert into.segments(an_entry(3), letters=(a_letter(7, origin, b"x"),)).dead == 1
    assert letter_payload(into) == b"x"


def test_a_queue_without_dead_letters_refuses_them(into: Importing) -> None:
    with pytest.raises(InvalidArgument, match=r"'jobs\.dead' has no dead letter queue"):
        LedgerQImport(FIXTURES / "queue", into.dead, into.notes, dead_folder=FIXTURES / "dlq")


# ------------------------------------------------------------ damage, and where things are


def test_damage_costs_what_it_hit_and_is_told(into: Importing) -> None:
    hit = bytearray(an_entry(2, b"b"))
    hit[-9] ^= 1
    result = into.segments(an_entry(1, b"a"), bytes(hit), an_entry(3, b"c"))
    assert into.payloads() == [b"a", b"c"]
    assert len(result.problems) == 1 and result.problems[0].startswith("old/1.log: ")


def test_a_damaged_note_does_not_bring_anything_twice(into: Importing, monkeypatch: pytest.MonkeyPatch) -> None:
    into.segments(an_entry(1, b"a"))
    into.segments(an_entry(1, b"a"), an_entry(2, b"b"))
    into.notes.damage.append(object())  # type: ignore[arg-type]
    monkeypatch.setattr(into.notes, "read", lambda: iter(()))
    assert into.segments(an_entry(1, b"a"), an_entry(2, b"b")).already == 2


def test_the_dead_letters_are_looked_for_beside_the_folder_and_in_it(tmp_path: Path) -> None:
    queue = tmp_path / "queue"
    queue.mkdir()
    (tmp_path / "dlq").mkdir()
    assert find_dlq(queue) is None  # nothing of LedgerQ is in it
    (queue / "dlq").mkdir()
    (queue / "dlq" / "1.log").write_bytes(a_segment())
    assert find_dlq(queue) == queue / "dlq"
    (tmp_path / "dlq" / "1.log").write_bytes(a_segment())
    assert find_dlq(queue) == tmp_path / "dlq"
    assert find_dlq(tmp_path / "dlq") is None
