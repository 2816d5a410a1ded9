"""One bit flipped in any small file of a store: repaired from what else is known, or an error that says what to do."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import holdfast
from holdfast import Corrupt, Flush
from holdfast.base.checked_json import decode_checked, encode_checked, has_checksum
from holdfast.table import Model, field


class Order(Model, id=7):
    """A record of the table that the store has."""

    number: int = field(1)


def make_store(path: Path) -> None:
    """A log with a tailer at 50 of 100, a queue with 20 of 35 messages acknowledged, a table with a record."""
    with holdfast.open(path) as store:
        log = store.log("clicks", flush=Flush.sync())
        log.append_many([b"%d" % n for n in range(100)])
        tailer = log.tailer("audit")
        tailer.read_many(50)
        tailer.commit()
        queue = store.queue("orders", max_attempts=5, lease=60)
        queue.put_many([b"%d" % n for n in range(35)])
        queue.ack(queue.lease(20))
        store.table(Order).add(Order(number=1))


SMALL = [
    "logs/clicks/log.json",
    "logs/clicks/tailers/audit.json",
    "logs/clicks/tailers/audit.known",
    "logs/orders/log.json",
    "logs/orders/tailers/queue%3Aorders.json",
    "journals/orders/log.json",
    "journals/orders/queue.json",
    "tables/Order/log.json",
    "tables/Order/table.json",
]


def assert_as_it_was(path: Path) -> None:
    """Open everything: what is acknowledged stays so, and nothing that is not is passed over."""
    with holdfast.open(path) as store:
        audit = store.log("clicks").tailer("audit")
        assert audit.position in (50, 0)  # from the beginning, where the position is lost: it never skips
        queue = store.queue("orders")
        assert queue.settings.max_attempts == 5
        assert [one.payload for one in queue.peek(100)] == [b"%d" % n for n in range(20, 35)]
        assert [record.value.number for record in store.table(Order).scan()] == [1]


def test_all_small_files_have_a_checksum(tmp_path: Path) -> None:
    make_store(tmp_path)
    found = [path for path in tmp_path.rglob("*") if path.suffix in (".json", ".known") and "state" not in str(path)]
    assert sorted(path.relative_to(tmp_path).as_posix() for path in found) == sorted(SMALL)
    for path in found:
        assert has_checksum(path.read_bytes()), path
        assert json.loads(path.read_bytes())["crc32c"]


def test_any_flipped_bit_of_a_small_file_is_noticed() -> None:
    raw = encode_checked({"format": 1, "id": "0f" * 16, "name": "Grüße", "start": 0})
    for byte in range(len(raw)):
        for bit in range(8):
            hit = bytearray(raw)
            hit[byte] ^= 1 << bit
            with pytest.raises(ValueError):
                decode_checked(bytes(hit))
    for length in range(len(raw)):
        with pytest.raises(ValueError):
            decode_checked(raw[:length])


@pytest.mark.parametrize("content", [{}, {"a": 1}, {"nested": {"crc": "12345678"}, "text": '\n"}'}])
def test_a_checked_object_comes_back_as_it_was(content: dict[str, object]) -> None:
    assert decode_checked(encode_checked(content)) == content
    assert decode_checked(json.dumps(content).encode()) == content


@pytest.mark.parametrize("legible", [True, False], ids=["in a value", "in a brace"])
@pytest.mark.parametrize("name", SMALL)
def test_a_flipped_bit_in_a_small_file_redelivers_and_skips_nothing(tmp_path: Path, name: str, legible: bool) -> None:
    make_store(tmp_path)
    path = tmp_path / name
    hit = bytearray(path.read_bytes())
    # A digit in the middle of a value, where the file stays legible JSON, or a brace, where it does not.
    digits = [n for n, byte in enumerate(hit) if chr(byte) in "0123456789"]
    hit[next(n for n in digits if n >= len(hit) // 2 or n == digits[-1]) if legible else 0] ^= 1
    path.write_bytes(hit)
    if name.endswith(("queue.json", "table.json")):
        with pytest.raises(Corrupt, match="restore it from a backup"):
            assert_as_it_was(tmp_path)
    else:
        assert_as_it_was(tmp_path)


def without_checksum(path: Path, change: Callable[[dict[str, object]], None] = lambda content: None) -> None:
    content = decode_checked(path.read_bytes())
    change(content)
    path.write_text(json.dumps(content) + "\n")


def test_small_files_without_a_checksum_are_read(tmp_path: Path) -> None:
    make_store(tmp_path)
    for name in SMALL:
        without_checksum(tmp_path / name, lambda content: content.pop("start", None))  # type: ignore[arg-type]
    assert_as_it_was(tmp_path)


def test_the_segments_confirm_the_id_of_a_log_that_has_no_checksum(tmp_path: Path) -> None:
    make_store(tmp_path)
    for folder in ("logs/orders", "logs/clicks", "journals/orders"):
        without_checksum(tmp_path / folder / "log.json", lambda content: content.update(id="ab" * 16))
    assert_as_it_was(tmp_path)
    with holdfast.open(tmp_path, read_only=True) as store:
        assert store.log("clicks").id != bytes.fromhex("ab" * 16)


def test_a_queue_that_says_another_log_and_has_no_checksum_keeps_what_was_acknowledged(tmp_path: Path) -> None:
    make_store(tmp_path)
    without_checksum(tmp_path / "journals/orders/queue.json", lambda content: content.update(log="ab" * 16))
    assert_as_it_was(tmp_path)


def test_a_log_whose_id_nothing_knows_is_an_error(tmp_path: Path) -> None:
    with holdfast.open(tmp_path) as store:
        store.log("clicks", flush=Flush.sync()).append(b"x")
    folder = tmp_path / "logs" / "clicks"
    (folder / "log.json").write_bytes(b"{")
    for segment in folder.rglob("*.data"):
        hit = bytearray(segment.read_bytes())
        hit[30] ^= 1
        segment.write_bytes(hit)
        segment.with_suffix(".index").unlink()
    with holdfast.open(tmp_path) as store, pytest.raises(Corrupt, match=r"Restore log\.json from a backup"):
        store.log("clicks")


def test_the_settings_of_a_queue_that_are_gone_leave_its_messages(tmp_path: Path) -> None:
    make_store(tmp_path)
    with holdfast.open(tmp_path) as store:
        store.queue("copy", log="orders", lease=60).ack(store.queue("copy").lease(30))
    for queue in ("orders", "copy"):
        (tmp_path / "journals" / queue / "queue.json").unlink()
    with holdfast.open(tmp_path) as store:
        assert store.queues() == ["copy", "orders"]
        assert [one.payload for one in store.queue("orders").peek(100)] == [b"%d" % n for n in range(20, 35)]
        assert [one.payload for one in store.queue("copy").peek(100)] == [b"%d" % n for n in range(30, 35)]


def test_a_damaged_table_leaves_the_others(tmp_path: Path) -> None:
    class Other(Model, id=8):
        number: int = field(1)

    make_store(tmp_path)
    with holdfast.open(tmp_path) as store:
        store.table(Other).add(Other(number=2))
    (tmp_path / "tables" / "Order" / "table.json").write_bytes(b"{")
    with holdfast.open(tmp_path) as store:
        assert store.tables() == ["Order", "Other"]
        assert len(list(store.table(Other).scan())) == 1
        with pytest.raises(Corrupt, match=r"table\.json"):
            store.table(Order)
