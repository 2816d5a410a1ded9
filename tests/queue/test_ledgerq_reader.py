"""LedgerQ folders, real ones and damaged ones: every message that stands unharmed is read, and none that never was."""

import gzip
import hashlib
import json
import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.base.checksum import crc32c
from holdfast.errors import Corrupt, NotFound, StorageError
from holdfast.importers.ledgerq_reader import (
    Dedup,
    Entry,
    LedgerQFolder,
    Retry,
    gunzip,
    parse_entry,
    read_ledgerq,
    walk,
)
from holdfast.log.compression import DECOMPRESSED_MAX
from holdfast.testing import SimFiles

FIXTURES = Path(__file__).parent / "fixtures" / "ledgerq"
HOURS_87600 = 315_360_000_000_000_000
OF_5000_BYTES = "3fed102f96d368ff09416b8693e626070616d5c3f324a5d93341e9efe661c1e3"


@dataclass(frozen=True)
class Written:
    """What LedgerQ 1.4.1 was told to enqueue."""

    sha256: str
    headers: Mapping[str, str] = field(default_factory=dict)
    priority: int | None = None
    ttl: int | None = None


WRITTEN = {
    1: Written("fda577423eb71791c3eab527f539a06ac949b5344238cea1d674f1d2e400ffa6"),
    2: Written("63e6a7772b3d3d222cb1bee2e71e1bc0f87c13d7e161da108b2435525e12fcc6"),
    3: Written("b63baad777d034cfe5d7ca02e91bf30b6265d8186d55624f1368c53d7eada6f2"),
    4: Written("768566cac7bba7bbb62e864ea9d7127527e458861c57906e0a40b6463fadb95b"),
    5: Written("0bdde1151cdd8228fbd854facbe3ffac7daf5a31933fcd94cc156e61fd93e295"),
    6: Written("e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"),  # of nothing
    7: Written("e4946f28e7c527ba57bce28a2ef215b848201d0a11d8df6ca4a37b1f50e642d8", ttl=HOURS_87600),
    8: Written("a741b07834ea45192f330c84003abbcb7b9325c62633dd5064055a089d0a40ae", ttl=1),
    9: Written("6a0d4c61e5ba9ddd5a4a7f3c58de632de4c519ed815388f4f1ebe7a797a6101a", {"content-type": "text/plain"}),
    10: Written(
        "b345d981281710ffaf4b072164fe4bb278c7c0759ef4b443dc84799957baf86f",
        {"": "empty-key", "k1": "v1", "k2": "", "ünï": "✓"},
    ),
    11: Written("2d12b416dabf286b7c1578d12a045c25fe2ab288267d4a3950d51542cb5f6f0c"),
    12: Written("1d70b946505c7a84db5282b9200f1b94cd48d8005813d7f2a4bcac386297fb91"),  # priority 0, which is not stored
    13: Written("2619a21716e4bdd85d63dd475c6cbb9cbcf1e03d26effc82c51c698ef6c0ef6b", priority=1),
    14: Written("32cc663768e4e31308f5d51f9baf9560d7733c0d6eff8bf97361c30b31eecfe8", priority=2),
    15: Written("f6b19a9751d3b4711bb9c59798668ab8c7296c22ea4de60cb708bd6665e2b8d2"),  # stored as gzip
    16: Written("5122c702555f28d80d10055a820d7569ed8fa39aa3d2c3a166d4c12c4c1c5772"),
    17: Written("31876a00b2dc93e42b610eed168ee3780f9f5df4e27c59303011380dce22101d"),
    18: Written("62f4525d3ad2b9ccd13f4c27fa190ca982be365efdee02ed124d5a6e7787eeb5", {"x": "y"}, 2, HOURS_87600),
    19: Written("a40c684861eaedf0ba93b24850e7153280225e297566a3c62b7b3db0b8cfcea0"),
    20: Written("89a0bfc3407b8257c04c4310c168ad0efe640ee31f71c08efdc6fbab62cfbcd1"),
    21: Written("91d4a220d0f292c224bd7ac260e7ba2de2d650bc91f5a9271c7c73ae7c77e0b9"),
    22: Written("2e90e85de14e9739bc18e17b4123ed7076b8d093b8da79a224ab2f5758aaf68a"),
    23: Written("40aff2e9d2d8922e47afd4648e6967497158785fbd1da870e7110266bf944880"),  # bytes 0 to 255
    **{message_id: Written(OF_5000_BYTES) for message_id in range(24, 30)},
}


# ------------------------------------------------------------ real folders


@pytest.fixture
def queue() -> LedgerQFolder:
    return read_ledgerq(FIXTURES / "queue")


def test_every_message_that_ledgerq_wrote_is_read_as_it_was_written(queue: LedgerQFolder) -> None:
    entries = list(queue.entries)
    assert [entry.id for entry in entries] == list(WRITTEN)
    for entry in entries:
        written = WRITTEN[entry.id]
        assert hashlib.sha256(entry.payload).hexdigest() == written.sha256
        assert entry.headers == written.headers
        assert entry.priority == written.priority
        assert entry.expires == (entry.timestamp + written.ttl if written.ttl else None)
    assert queue.problems == []


def test_messages_keep_their_times_and_a_batch_shares_one(queue: LedgerQFolder) -> None:
    times = [entry.timestamp for entry in queue.entries]
    assert times[0] == 1794773757569134453
    assert times == sorted(times)
    assert times[18] == times[19] == times[20]


def test_the_read_position_and_the_next_id_are_known(queue: LedgerQFolder) -> None:
    assert (queue.read_id, queue.next_id) == (5, 30)


def test_a_failed_message_carries_its_attempts_and_its_reason(queue: LedgerQFolder) -> None:
    retry = Retry(4, 1, failed=1794773757578860254, reason="one failure only")
    assert queue.retries == {4: retry}
    failed = [entry for entry in queue.entries if entry.attempts]
    assert [(entry.id, entry.reason, entry.failed) for entry in failed] == [(4, retry.reason, retry.failed)]


def test_the_deduplication_ids_are_known_by_their_digest(queue: LedgerQFolder) -> None:
    digest = hashlib.sha256(b"order-1").hexdigest()
    assert queue.dedups == [Dedup(digest, 22, enqueued=1794773757571876275, expires=1798373757571876275)]


def test_a_dead_letter_says_where_it_came_from_and_why() -> None:
    dlq = read_ledgerq(FIXTURES / "dlq")
    (letter,) = dlq.entries
    assert letter.payload == b"plain-2"
    assert (letter.id, letter.origin, letter.attempts, letter.reason) == (1, 3, 2, "second failure")
    assert letter.failed == 1794773757577000000
    assert letter.headers == {
        "dlq.original_msg_id": "3",
        "dlq.retry_count": "2",
        "dlq.failure_reason": "second failure",
        "dlq.last_failure": "2026-11-15T20:15:57.577Z",
    }
    assert not letter.still_compressed
    assert (dlq.read_id, dlq.next_id, dlq.retries, dlq.dedups, dlq.problems) == (1, 2, {}, [], [])


def test_progress_runs_from_nothing_to_the_size_of_all_segments(queue: LedgerQFolder) -> None:
    assert (queue.bytes_read, queue.total_bytes) == (0, 378 + 494 + 6237 + 25214)
    steps = [queue.bytes_read for _ in queue.entries]
    assert steps == sorted(set(steps))
    assert queue.bytes_read == queue.total_bytes


def test_reading_leaves_the_folder_as_it_was() -> None:
    def look() -> dict[Path, tuple[int, int, bytes]]:
        paths = [FIXTURES / "queue", *sorted((FIXTURES / "queue").iterdir())]
        return {
            path: (path.stat().st_mtime_ns, path.stat().st_mode, b"" if path.is_dir() else path.read_bytes())
            for path in paths
        }

    before = look()
    assert len(list(read_ledgerq(FIXTURES / "queue").entries)) == len(WRITTEN)
    assert look() == before


# ------------------------------------------------------------ damage to real segments

SEGMENTS = ("00000000000000000001.log", "00000000000000000009.log")


def spans(segment: bytes) -> list[tuple[int, int]]:
    """Where each entry starts and ends, by the lengths alone."""
    found, offset = [], 64
    while offset < len(segment):
        (length,) = struct.unpack_from("<I", segment, offset)
        found.append((offset, offset + length))
        offset += length + 4
    return found


METADATA = (FIXTURES / "queue" / "metadata.dat").read_bytes()


def read_segment(segment: bytes) -> LedgerQFolder:
    contents = {"queue/00000000000000000001.log": segment, "queue/metadata.dat": METADATA}
    return read_ledgerq(Path("queue"), SimFiles.holding(contents))


@pytest.mark.parametrize("name", SEGMENTS)
def test_a_segment_cut_at_any_byte_gives_every_message_before_the_cut(name: str) -> None:
    segment = (FIXTURES / "queue" / name).read_bytes()
    originals = list(read_segment(segment).entries)
    ends = [end for _, end in spans(segment)]
    starts = [64, *(end + pad for end in ends for pad in range(5))]
    for cut in range(len(segment)):
        folder = read_segment(segment[:cut])
        assert list(folder.entries) == originals[: sum(end <= cut for end in ends)], f"cut at {cut}"
        assert bool(folder.problems) == (cut not in starts), f"cut at {cut}"


@pytest.mark.parametrize("name", SEGMENTS)
@pytest.mark.parametrize("flip", [0x01, 0x10, 0x80, 0xFF])
def test_a_flipped_byte_costs_the_message_it_hit_and_no_other(name: str, flip: int) -> None:
    segment = bytearray((FIXTURES / "queue" / name).read_bytes())
    originals = list(read_segment(bytes(segment)).entries)
    entries = list(zip(spans(bytes(segment)), originals, strict=True))
    for at in range(len(segment)):
        segment[at] ^= flip
        folder = read_segment(bytes(segment))
        unharmed = [entry for (start, end), entry in entries if not start <= at < end]
        assert list(folder.entries) == unharmed, f"byte {at}"
        assert bool(folder.problems) == (at < 64 or len(unharmed) < len(originals)), f"byte {at}"
        segment[at] ^= flip


@given(data=st.data(), name=st.sampled_from(SEGMENTS))
def test_any_damage_leaves_only_messages_that_were_written(data: st.DataObject, name: str) -> None:
    segment = bytearray((FIXTURES / "queue" / name).read_bytes())
    originals = list(read_segment(bytes(segment)).entries)
    for _ in range(data.draw(st.integers(1, 5))):
        at = data.draw(st.integers(0, len(segment) - 1))
        noise = data.draw(st.binary(max_size=40))
        segment[at : at + data.draw(st.integers(0, 40))] = noise
    for entry in read_segment(bytes(segment)).entries:
        assert entry in originals


def test_zeros_behind_the_last_entry_are_a_torn_tail() -> None:
    segment = (FIXTURES / "queue" / SEGMENTS[0]).read_bytes()
    folder = read_segment(segment + bytes(4096))
    assert len(list(folder.entries)) == 8
    assert folder.problems == [
        "00000000000000000001.log: the last 4096 bytes, from byte 378 on, are a torn tail and were skipped"
    ]


def test_a_segment_whose_header_is_damaged_is_read_all_the_same() -> None:
    segment = (FIXTURES / "queue" / SEGMENTS[0]).read_bytes()
    folder = read_segment(bytes(64) + segment[64:])
    assert [entry.id for entry in folder.entries] == list(range(1, 9))
    assert folder.problems == ["00000000000000000001.log: its header is damaged; its entries were still read"]


# ------------------------------------------------------------ segments made by hand


def an_entry(message_id: int, rest: bytes = b"payload", *, kind: int = 1, flags: int = 0) -> bytes:
    """An entry with its pad; `rest` is all that stands between the timestamp and the checksum."""
    entry = struct.pack("<IBBQq", 26 + len(rest), kind, flags, message_id, 1_000 + message_id) + rest
    return entry + struct.pack("<I4x", crc32c(entry))


def a_segment(*entries: bytes, version: int = 1, ids: tuple[int, int] = (0, 0)) -> bytes:
    header = struct.pack("<IHHQqQQ20x", 0x4C445151, version, 0, 1, 1_000, *ids)
    return b"".join([header, struct.pack("<I", crc32c(header)), *entries])


def damaged(entry: bytes) -> bytes:
    """The same with a wrong checksum."""
    return entry[:-8] + bytes(byte ^ 0xFF for byte in entry[-8:-4]) + entry[-4:]


def ids(folder: LedgerQFolder) -> list[int]:
    return [entry.id for entry in folder.entries]


def sole_problem(folder: LedgerQFolder) -> str:
    assert list(folder.entries) == []
    (problem,) = folder.problems
    return problem


def test_tombstones_and_checkpoints_are_no_messages() -> None:
    folder = read_segment(a_segment(an_entry(1), an_entry(1, b"", kind=2), an_entry(2, b"x", kind=3), an_entry(3)))
    assert ids(folder) == [1, 3]
    assert folder.problems == []


def test_an_entry_of_an_unknown_type_is_named_and_passed() -> None:
    folder = read_segment(a_segment(an_entry(1, kind=9), an_entry(2)))
    assert ids(folder) == [2]
    assert folder.problems == [
        "00000000000000000001.log: the entry at byte 64 is of the unknown type 9 and was skipped"
    ]


@pytest.mark.parametrize(
    ("flags", "rest", "reason"),
    [
        (2, b"secret", "encrypted"),
        (32, b"", "newer format"),
        (1, b"\x07payload", "compression 7 is unknown"),
        (1, b"\x01payload\0\0\0\0", "gzip cannot decompress it"),
        (1, b"\x01payload", "decompressed size would be"),
        (1, b"\x01" + gzip.compress(b"payload", mtime=0)[:-1], "cannot decompress|decompressed"),
        (1, b"", "longer than the entry"),
        (4, b"\0" * 7, "longer than the entry"),
        (16, b"", "longer than the entry"),
        (8, b"\x01", "longer than the entry"),
        (8, b"\x01\0\xff\xffname", "longer than the entry"),
        (8, b"\x01\0\x04\0name\xff\xffvalue", "longer than the entry"),
        (8, b"\xff\xff" + b"\x01\0n\x01\0v" * 3, "longer than the entry"),
    ],
)
def test_a_message_that_cannot_be_understood_is_named_and_passed(flags: int, rest: bytes, reason: str) -> None:
    entry = an_entry(7, rest, flags=flags)
    with pytest.raises(Corrupt, match=reason):
        parse_entry(entry[:-4])
    folder = read_segment(a_segment(entry, an_entry(8)))
    assert ids(folder) == [8]
    (problem,) = folder.problems
    assert "message 7 at byte 64 cannot be read" in problem


def test_all_optional_fields_stand_in_their_order() -> None:
    rest = (
        b"\x02" + struct.pack("<q", 5_000) + b"\x01\0\x01\0n\x02\0\xff\xfe" + b"\x01" + gzip.compress(b"plain", mtime=0)
    )
    (entry,) = read_segment(a_segment(an_entry(1, rest, flags=1 | 4 | 8 | 16))).entries
    assert entry == Entry(1, 1_001, b"plain", {"n": b"\xff\xfe"}, priority=2, expires=5_000)


def test_a_header_name_that_is_no_text_is_written_out() -> None:
    (entry,) = read_segment(a_segment(an_entry(1, b"\x01\0\x02\0n\xff\x01\0v", flags=8))).entries
    assert entry.headers == {"n\\xff": "v"}


def test_a_bomb_is_not_unpacked() -> None:
    bomb = gzip.compress(bytes(DECOMPRESSED_MAX + 1), 9)
    with pytest.raises(Corrupt, match="the limit is"):
        gunzip(bomb)
    lying = bomb[:-4] + struct.pack("<I", 5)
    with pytest.raises(Corrupt):
        gunzip(lying)
    assert "message 1" in sole_problem(read_segment(a_segment(an_entry(1, b"\x01" + bomb, flags=1))))


def test_a_dead_letter_that_is_still_compressed_is_pointed_out_and_left_as_it_is() -> None:
    packed = gzip.compress(b"plain", mtime=0)
    header = b"\x01\0" + struct.pack("<H", 19) + b"dlq.original_msg_id" + b"\x01\0" + b"3"
    dead, sent = read_segment(a_segment(an_entry(1, header + packed, flags=8), an_entry(2, packed))).entries
    assert dead.still_compressed
    assert gunzip(dead.payload) == b"plain"
    assert not sent.still_compressed


def test_a_corrupt_length_hides_nothing_and_takes_no_memory() -> None:
    first = an_entry(1)
    for length in (0, 25, 27, 70, 2**31, 2**32 - 1):
        folder = read_segment(a_segment(struct.pack("<I", length) + first[4:], an_entry(2), an_entry(3)))
        assert ids(folder) == [2, 3], length


def test_a_corrupt_length_that_points_at_a_later_entry_does_not_hide_those_between() -> None:
    whole = an_entry(1)
    skipping = struct.pack("<I", 3 * len(whole) - 4) + whole[4:]
    assert ids(read_segment(a_segment(skipping, *map(an_entry, (2, 3, 4, 5))))) == [2, 3, 4, 5]


def test_an_entry_inside_a_damaged_payload_is_no_message() -> None:
    inner = b"".join(an_entry(message_id, b"never sent") for message_id in range(2, 5))
    folder = read_segment(a_segment(an_entry(1), damaged(an_entry(2, b"x" + inner + b"y")), an_entry(3)))
    assert [(entry.id, entry.payload) for entry in folder.entries] == [(1, b"payload"), (3, b"payload")]


def test_after_damage_only_ids_that_fit_are_believed() -> None:
    torn = an_entry(5, b"x" + an_entry(9, b"beyond") + an_entry(3, b"before") + b"y")
    lost_length = struct.pack("<I", 2**31) + torn[4:]
    folder = read_segment(a_segment(an_entry(4), lost_length, an_entry(6), ids=(4, 6)))
    assert ids(folder) == [4, 6]


def test_ids_that_were_used_twice_are_all_read_and_pointed_out() -> None:
    folder = read_segment(a_segment(*map(an_entry, (1, 2, 2, 1, 3))))
    assert ids(folder) == [1, 2, 2, 1, 3]
    assert "2 messages have ids that were used before" in folder.problems[0]


def test_a_segment_of_a_newer_version_is_not_guessed_at() -> None:
    assert "not a segment of version 1" in sole_problem(read_segment(a_segment(an_entry(1), version=2)))


def test_an_empty_segment_file_is_pointed_out() -> None:
    assert "ends inside its header" in sole_problem(read_segment(b""))


def test_segments_are_read_by_number_and_other_files_are_let_be() -> None:
    names = {"9.log": 1, "00000000000000000010.log": 2, "100.log": 3}
    contents = {f"queue/{name}": a_segment(an_entry(message_id)) for name, message_id in names.items()}
    contents |= {"queue/app.log": b"text", "queue/00000000000000000009.log.tmp": b"", "queue/metadata.dat": METADATA}
    folder = read_ledgerq(Path("queue"), SimFiles.holding(contents))
    assert ids(folder) == [1, 2, 3]
    assert folder.problems == []


def test_a_search_through_much_payload_is_quick() -> None:
    noise = os.urandom(1 << 20) + b"\x01\0" * (1 << 19) + bytes(8 << 20)
    segment = a_segment(struct.pack("<I", 2**31) + an_entry(1, noise)[4:], an_entry(2))
    (found,) = walk(memoryview(segment), lambda _: None)
    assert found == (len(segment) - len(an_entry(2)), len(an_entry(2)) - 4)


# ------------------------------------------------------------ the other files


@pytest.mark.parametrize(
    "metadata",
    [
        b"",
        METADATA[:23],
        bytes(24),
        struct.pack("<IQQ4x", 2, 30, 5),
        struct.pack("<IQQ4x", 1, 0, 0),
        struct.pack("<IQQ4x", 1, 5, 30),
    ],
)
def test_reading_starts_at_the_first_message_where_the_metadata_cannot_be_believed(metadata: bytes) -> None:
    files = SimFiles.holding({"queue/1.log": a_segment(an_entry(7)), "queue/metadata.dat": metadata})
    folder = read_ledgerq(Path("queue"), files)
    assert folder.read_id == 1
    assert ids(folder) == [7]
    assert folder.next_id == 8
    assert any("metadata.dat" in problem for problem in folder.problems)


def test_missing_metadata_is_only_a_problem() -> None:
    folder = read_ledgerq(Path("queue"), SimFiles.holding({"queue/1.log": a_segment(an_entry(1))}))
    assert (folder.read_id, ids(folder)) == (1, [1])
    assert folder.problems == ["metadata.dat: it is missing or damaged, so reading begins with the first message"]


def test_the_next_id_keeps_up_where_the_metadata_lags_behind() -> None:
    folder = read_segment(a_segment(an_entry(29), an_entry(40)))
    assert folder.next_id == 30
    assert ids(folder) == [29, 40]
    assert folder.next_id == 41


def read_states(retries: bytes, dedups: bytes) -> LedgerQFolder:
    contents = {
        "queue/1.log": a_segment(an_entry(1)),
        "queue/metadata.dat": METADATA,
        "queue/.retry_state.json": retries,
        "queue/.dedup_state.json": dedups,
    }
    return read_ledgerq(Path("queue"), SimFiles.holding(contents))


@pytest.mark.parametrize(
    "broken",
    [b"", b"{", b"\xff\xfe", b"[]", b"7", b"null", b'{"version": 2, "entries": []}', b'{"version": 1}', b"[" * 100_000],
)
def test_a_broken_state_is_only_a_problem(broken: bytes) -> None:
    folder = read_states(broken, broken)
    assert (folder.retries, folder.dedups, ids(folder)) == ({}, [], [1])
    assert [problem.split(":")[0] for problem in folder.problems] == [".retry_state.json", ".dedup_state.json"]


def test_one_broken_item_of_a_state_does_not_cost_the_others() -> None:
    bad: list[object] = [None, 5, {}, {"msg_id": "4", "retry_count": 1}, {"dedup_id": 1}]
    retries = [*bad, {"msg_id": 1, "retry_count": 2, "last_failure": "not a time"}]
    dedups = [*bad, {"dedup_id": "d", "message_id": 1, "enqueued_at": 2, "expires_at": 3}]
    folder = read_states(
        json.dumps({"version": 1, "max_retries": 2, "entries": retries}).encode(),
        json.dumps({"version": 1, "entries": dedups}).encode(),
    )
    assert folder.retries == {1: Retry(1, 2)}
    assert folder.dedups == [Dedup("d", 1, 2, 3)]
    assert len(folder.problems) == 2 * len(bad)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1970-01-01T00:00:01Z", 1_000_000_000),
        ("1970-01-01T00:00:01.5Z", 1_500_000_000),
        ("1970-01-01T05:30:00.000000001+05:30", 1),
        ("1970-01-01T00:00:00", None),
        ("1970-13-01T00:00:00Z", None),
        (17, None),
    ],
)
def test_the_time_of_a_failure_is_exact_or_left_out(text: object, expected: int | None) -> None:
    entries = [{"msg_id": 1, "retry_count": 1, "last_failure": text}]
    folder = read_states(json.dumps({"version": 1, "entries": entries}).encode(), b'{"version": 1, "entries": []}')
    assert folder.retries[1].failed == expected


def test_a_folder_that_is_not_of_ledgerq_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="not a LedgerQ folder"):
        read_ledgerq(tmp_path)
    with pytest.raises(NotFound, match="not a LedgerQ folder"):
        read_ledgerq(tmp_path / "missing")
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="failed"):
        read_ledgerq(tmp_path / "file")


def test_a_segment_that_vanishes_is_pointed_out(tmp_path: Path) -> None:
    for number in (1, 2):
        (tmp_path / f"{number}.log").write_bytes(a_segment(an_entry(number)))
    (tmp_path / "metadata.dat").write_bytes(METADATA)
    folder = read_ledgerq(tmp_path)
    (tmp_path / "1.log").unlink()
    assert ids(folder) == [2]
    assert folder.problems == ["1.log: it was removed before it was read: stop LedgerQ, and import again"]
    assert folder.bytes_read == folder.total_bytes
