"""Every bit of a segment flipped, every length it can be cut to: nothing wrong is ever read, nothing is deleted."""

import logging
from collections.abc import Iterable, Iterator
from itertools import product
from pathlib import Path, PurePath

import pytest

import holdfast
from holdfast import Damage, Log, Record
from holdfast.log.block import Block, open_block
from holdfast.log.index import Checkpoint
from holdfast.log.layout import HEADER_SIZE, BlockHeader
from holdfast.log.segment import open_segment, walk
from holdfast.log.segment_files import SegmentName
from holdfast.testing import SimClock, SimFiles
from tests.golden.files import PLAIN, golden_records, golden_store
from tests.tiers import sample

PRISTINE = golden_store()[PLAIN]
EXPECTED = {record.sequence: record for record in golden_records()["plain"]}
SLICES = 16


def blocks() -> list[Block]:
    memory = memoryview(PRISTINE)
    segment_id = int.from_bytes(PRISTINE[16:24], "little")
    headers = walk(memory, PLAIN, Checkpoint(0, HEADER_SIZE, 0), len(PRISTINE), segment_id, None)
    return [open_block(memory, header) for header in headers if isinstance(header, BlockHeader)]


BLOCKS = blocks()
WRITTEN = {block.header.offset: (block, PRISTINE[block.header.offset : block.header.next_offset]) for block in BLOCKS}


def cost_of(byte: int) -> set[int]:
    """The sequences that a hit in this byte may take, and must."""
    for block in BLOCKS:
        header = block.header
        if header.offset <= byte < header.offset + header.length:
            at = byte - (header.offset + HEADER_SIZE + header.columns_length)
            if at < 0:
                return set(range(block.sequence, block.end))
            return {
                block.sequence + position
                for position in range(block.count)
                if block.offsets[position] <= at < block.offsets[position + 1]
            }
    return set()


def read_only(files: SimFiles) -> Log:
    return holdfast.open("store", read_only=True, files=files, clock=SimClock()).log("plain")


def golden_disk(without: Iterable[str] = ()) -> SimFiles:
    return SimFiles.holding({path: raw for path, raw in golden_store().items() if PurePath(path).suffix not in without})


def assert_right(records: Iterable[Record]) -> set[int]:
    seen = set()
    last = -1
    for record in records:
        assert record == EXPECTED[record.sequence]
        assert record.sequence > last, "out of order"
        last = record.sequence
        seen.add(record.sequence)
    return seen


def assert_blocks_right(blocks: Iterable[Block], content: bytearray) -> set[int]:
    """The same for blocks. One whose bytes are as they were written has the records that were read when all was well:
    what is asked of it is only that nobody takes it for damaged."""
    seen: set[int] = set()
    last = -1
    for block in blocks:
        assert block.sequence > last, "out of order"
        last = block.end - 1
        written, raw = WRITTEN.get(block.header.offset, (block, b""))
        if content.startswith(raw, block.header.offset) and block.header == written.header:
            assert not block.bad
            seen.update(range(block.sequence, block.end))
        else:
            seen |= assert_right(block.records())
    return seen


def test_whole_blocks_have_the_records_that_were_written() -> None:
    assert assert_right(record for block in BLOCKS for record in block.records()) == EXPECTED.keys()


def test_the_golden_segment_has_many_blocks() -> None:
    assert len(PRISTINE) == 16 * 1024
    assert len(BLOCKS) > 30
    assert sum(block.count for block in BLOCKS) == len(EXPECTED)


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    """A warning a flip, captured by pytest, would take longer than reading the log."""
    caplog.set_level(logging.CRITICAL)


def assert_reported(damage: list[Damage], byte: int) -> None:
    hit = [d for d in damage if d.offset <= byte < d.offset + d.length]
    assert hit, f"byte {byte} is not reported"
    assert all(d.offset + d.length <= len(PRISTINE) for d in hit), "damage is reported where there is nothing"


@pytest.mark.parametrize("part", range(SLICES))
def test_any_flipped_bit_costs_no_more_than_it_must_and_is_reported(part: int) -> None:
    files = golden_disk()
    content = files.content(PLAIN)
    for byte in sample(range(part, len(PRISTINE), SLICES), every=4):
        cost = cost_of(byte)
        for bit in range(8):
            content[byte] ^= 1 << bit
            damage: list[Damage] = []
            segment = open_segment(files, Path("store/logs/plain"), SegmentName(2026, 1, 1, 1), damage.append)
            assert segment is not None
            segment.extent = (segment.limit, len(EXPECTED))
            seen = assert_blocks_right(segment.all_blocks(damage.append), content)
            assert EXPECTED.keys() - seen == cost, f"byte {byte}, bit {bit}"
            assert_reported(damage, byte)
            content[byte] ^= 1 << bit
    assert content == PRISTINE


@pytest.mark.parametrize("part", range(4))
def test_a_store_with_any_flipped_byte_is_read_past_it(part: int) -> None:
    """The same through everything a user calls, with one bit of each byte."""
    files = golden_disk()
    content = files.content(PLAIN)
    for byte in sample(range(part, len(PRISTINE), 4), every=4):
        content[byte] ^= 1 << byte % 8
        log = read_only(files)
        assert EXPECTED.keys() - assert_right(log.read()) == cost_of(byte)
        assert_reported(log.damage, byte)
        content[byte] ^= 1 << byte % 8


def sampled_flips() -> Iterator[tuple[int, int]]:
    for byte in sample(range(0, len(PRISTINE), 23), every=4):
        yield byte, byte % 8


@pytest.mark.parametrize("without", [(), (".index", "")], ids=["whole store", "without index and watermark"])
def test_a_writer_keeps_every_damaged_byte_and_goes_on(without: tuple[str, ...]) -> None:
    last = BLOCKS[-1]
    for byte, bit in sampled_flips():
        files = golden_disk(without)
        content = files.content(PLAIN)
        content[byte] ^= 1 << bit
        hit = bytes(content)
        with holdfast.open("store", files=files, clock=SimClock(), background=False) as store:
            log = store.log("plain")
            new = log.append(b"new")
            log.sync()
            *old, added = log.read()
            assert (added.sequence, added.payload) == (new, b"new")
            seen = assert_right(old)
            assert EXPECTED.keys() - seen == cost_of(byte)
        # Without index and watermark a hit in the last block looks like a torn write: it is cut, and kept aside.
        torn = b"".join(raw for path, raw in files.snapshot().items() if ".torn-" in path)
        assert (bytes(files.content(PLAIN)) + torn).startswith(hit) or (
            files.content(PLAIN)[: last.header.offset] + torn == hit
        )
        if not without:
            assert not torn
            assert new == len(EXPECTED)


@pytest.mark.parametrize("part", range(4))
def test_any_truncation_leaves_what_is_whole_and_is_reported(part: int) -> None:
    files = golden_disk()
    content = files.content(PLAIN)
    for length in sample(range(part, len(PRISTINE), 4), every=4):
        content[:] = PRISTINE[:length]
        log = read_only(files)
        seen = assert_right(log.read())
        whole = {n for b in BLOCKS if b.header.next_offset <= length for n in range(b.sequence, b.end)}
        assert seen == whole
        assert log.end == len(EXPECTED), "the log forgot what it had confirmed"
        assert sum(damage.lost or 0 for damage in log.damage) == len(EXPECTED) - len(whole)


def test_a_truncated_segment_is_not_written_upon() -> None:
    for length in sample(range(0, len(PRISTINE), 61), every=4):
        files = golden_disk()
        del files.content(PLAIN)[length:]
        with holdfast.open("store", files=files, clock=SimClock(), background=False) as store:
            assert store.log("plain").append(b"new") == len(EXPECTED)
        assert files.content(PLAIN) == PRISTINE[:length]


@pytest.mark.parametrize("name", ["gzip", "zstd", "lz4"])
def test_a_hit_in_a_compressed_block_costs_that_block(name: str) -> None:
    path = f"store/logs/{name}/2026/01/01/20260101-0002.data"
    expected = {record.sequence: record for record in golden_records()[name]}
    files = SimFiles.holding(golden_store())
    content = files.content(path)
    for byte, bit in sample(product(range(HEADER_SIZE, len(content)), range(8)), every=4):
        content[byte] ^= 1 << bit
        log = holdfast.open("store", read_only=True, files=files, clock=SimClock()).log(name)
        records = list(log.read())
        assert all(record == expected[record.sequence] for record in records)
        assert expected.keys() - {record.sequence for record in records} <= {3, 4, 5}
        assert log.damage
        content[byte] ^= 1 << bit


def test_a_copy_of_a_segment_inside_a_payload_is_never_taken_for_blocks() -> None:
    files = SimFiles()
    with holdfast.open("data", files=files, clock=SimClock(), background=False) as store:
        log = store.log("nested", index_interval=1)
        log.append_many([b"outer-%d" % n for n in range(10)])
        log.sync()
        segment = next(path for path in files.snapshot() if path.endswith(".data"))
        copy = bytes(files.content(segment))
        for shift in range(8):
            log.append(b"." * shift + copy)
        log.append(b"last")
    # With the header of the first large block gone, the reader has to search through the copy.
    content = files.content(segment)
    content[len(copy)] ^= 1
    log = holdfast.open("data", read_only=True, files=files, clock=SimClock()).log("nested")
    sequences = [record.sequence for record in log.read()]
    assert sequences == list(range(10))
    assert log.damage[0].lost == 9
