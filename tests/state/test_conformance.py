"""What every state promises, asked of each kind."""

import threading
from collections.abc import Callable
from itertools import islice

import pytest

from holdfast.base.errors import Closed, Conflict, InvalidArgument, ReadOnly
from holdfast.state import FAMILIES, State, Transaction
from tests.state.places import Place, content, put

LETTERS = {bytes([letter]): bytes([letter]) * 2 for letter in b"abcdefgh"}


def test_each_kind_is_a_state(state: State) -> None:
    assert isinstance(state, State)
    assert isinstance(state.transaction(), Transaction)


def test_an_empty_state_has_nothing(state: State) -> None:
    for family in FAMILIES:
        assert state.get(family, b"key") is None
        assert list(state.scan(family)) == []


def test_what_was_committed_is_read_back(state: State) -> None:
    put(state, "leases", {b"key": b"value"})
    assert state.get("leases", b"key") == b"value"
    assert state.get("leases", b"other") is None


def test_families_are_kept_apart(state: State) -> None:
    for family in FAMILIES:
        put(state, family, {b"key": family.encode()})
    assert [state.get(family, b"key") for family in FAMILIES] == [family.encode() for family in FAMILIES]


@pytest.mark.parametrize(
    "use",
    [
        lambda state: state.get("unheard", b"key"),
        lambda state: state.scan("unheard"),
        lambda state: state.transaction().get("unheard", b"key"),
        lambda state: state.transaction().put("unheard", b"key", b"value"),
        lambda state: state.transaction().delete("unheard", b"key"),
        lambda state: state.transaction().delete_range("unheard", b"a", b"b"),
    ],
    ids=["get", "scan", "read in a transaction", "put", "delete", "delete_range"],
)
def test_an_unknown_family_is_refused_by_name(state: State, use: Callable[[State], object]) -> None:
    with pytest.raises(InvalidArgument, match="unheard"):
        use(state)


def test_empty_keys_and_values_are_like_any_other(state: State) -> None:
    put(state, "dedup", {b"": b"of the empty key", b"empty": b""})
    assert state.get("dedup", b"") == b"of the empty key"
    assert state.get("dedup", b"empty") == b""
    assert list(state.scan("dedup")) == [(b"", b"of the empty key"), (b"empty", b"")]


@pytest.mark.parametrize(("key", "value"), [(b"key", bytearray(b"value")), ("key", b"value"), (b"key", 7)])
def test_only_bytes_are_taken_and_nothing_of_the_rest_is_kept(place: Place, key: bytes, value: bytes) -> None:
    state = place.open()
    transaction = state.transaction()
    transaction.put("dedup", b"a", b"good")
    transaction.put("dedup", key, value)
    with pytest.raises(InvalidArgument, match="bytes"):
        transaction.commit()
    put(state, "dedup", {b"b": b"goes on"})
    assert content(state, "dedup") == {b"b": b"goes on"}


# ------------------------------------------------------------ scanning


def test_a_scan_ascends_by_key_whatever_the_order_of_the_puts(state: State) -> None:
    keys = [b"\xff", b"\x00", b"b", b"a\x00", b"a", b"\xff\xff", b"aa", b""]
    put(state, "available", dict.fromkeys(keys, b"x"))
    assert [key for key, _ in state.scan("available")] == sorted(keys)


@pytest.mark.parametrize(
    ("start", "stop", "found"),
    [
        (b"", None, b"abcdefgh"),
        (b"c", None, b"cdefgh"),
        (b"", b"c", b"ab"),
        (b"c", b"f", b"cde"),
        (b"bb", b"ee", b"cde"),
        (b"c", b"c", b""),
        (b"f", b"c", b""),
        (b"", b"", b""),
        (b"i", None, b""),
        (b"h\x00", b"\xff", b""),
    ],
)
def test_a_scan_returns_nothing_outside_its_range(state: State, start: bytes, stop: bytes | None, found: bytes) -> None:
    put(state, "available", LETTERS)
    assert b"".join(key for key, _ in state.scan("available", start, stop)) == found


def test_a_scan_may_be_left_in_the_middle_and_reads_no_further_than_asked(state: State) -> None:
    put(state, "available", LETTERS)
    assert [key for key, _ in islice(state.scan("available", b"c"), 2)] == [b"c", b"d"]


def test_a_scan_longer_than_one_reading_step_misses_nothing(state: State) -> None:
    records = {number.to_bytes(4, "big"): b"%d" % number for number in range(5000)}
    put(state, "available", records)
    assert list(state.scan("available")) == list(records.items())
    assert len(list(state.scan("available", (17).to_bytes(4, "big"), (4321).to_bytes(4, "big")))) == 4304


def test_a_scan_sees_the_state_as_it_was_when_it_was_called(state: State) -> None:
    put(state, "available", LETTERS)
    scan = state.scan("available")
    put(state, "available", {b"a": b"changed", b"z": b"new"})
    first = next(scan)
    transaction = state.transaction()
    transaction.delete_range("available", b"", b"\xff")
    transaction.commit()
    assert dict([first, *scan]) == LETTERS
    assert content(state, "available") == {}


def test_a_state_may_be_read_and_changed_while_it_is_scanned(state: State) -> None:
    put(state, "available", LETTERS)
    for key, value in state.scan("available"):
        assert state.get("available", key) == value
        put(state, "leases", {key: value})
    assert content(state, "leases") == LETTERS


def test_a_scan_does_not_return_what_was_deleted(state: State) -> None:
    put(state, "available", {number.to_bytes(4, "big"): b"x" for number in range(1000)})
    transaction = state.transaction()
    for number in range(900):
        transaction.delete("available", number.to_bytes(4, "big"))
    transaction.delete_range("available", (950).to_bytes(4, "big"), (999).to_bytes(4, "big"))
    transaction.commit()
    assert [int.from_bytes(key, "big") for key, _ in state.scan("available")] == [*range(900, 950), 999]


# ------------------------------------------------------------ transactions


def test_nothing_is_changed_before_the_commit(state: State) -> None:
    transaction = state.transaction()
    transaction.put("leases", b"key", b"value")
    assert state.get("leases", b"key") is None
    transaction.commit()
    assert state.get("leases", b"key") == b"value"


def test_a_transaction_that_is_never_committed_changes_nothing(place: Place) -> None:
    state = place.open()
    state.transaction().put("leases", b"key", b"value")
    state.close()
    assert place.open().get("leases", b"key") is None


def test_a_transaction_sees_its_own_changes(state: State) -> None:
    put(state, "leases", LETTERS)
    transaction = state.transaction()
    assert transaction.get("leases", b"a") == b"aa"
    transaction.put("leases", b"a", b"mine")
    assert transaction.get("leases", b"a") == b"mine"
    transaction.delete("leases", b"a")
    assert transaction.get("leases", b"a") is None
    transaction.delete_range("leases", b"b", b"d")
    assert [transaction.get("leases", key) for key in (b"b", b"c", b"d")] == [None, None, b"dd"]
    transaction.put("leases", b"c", b"back")
    assert transaction.get("leases", b"c") == b"back"
    assert transaction.get("dedup", b"b") is None


def test_a_read_does_not_go_through_the_deleted_ranges_of_other_families(state: State) -> None:
    transaction = state.transaction()
    for number in range(100):
        transaction.delete_range("leases", b"%03d" % number, b"%03d\xff" % number)
    family, ComparedFamily.compared = ComparedFamily("dedup"), 0
    assert transaction.get(family, b"050x") is None
    assert ComparedFamily.compared < 10


class ComparedFamily(str):
    """A family that counts with how many others it was compared."""

    __slots__ = ()
    compared = 0
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        ComparedFamily.compared += 1
        return str.__eq__(self, other)


def test_the_order_of_changes_counts(state: State) -> None:
    put(state, "leases", LETTERS)
    transaction = state.transaction()
    transaction.put("leases", b"c", b"lost")
    transaction.put("dedup", b"c", b"of another family")
    transaction.delete_range("leases", b"b", b"e")
    transaction.put("leases", b"d", b"kept")
    transaction.delete("leases", b"a")
    transaction.put("leases", b"a", b"again")
    transaction.delete_range("leases", b"g", b"z")
    transaction.put("leases", b"f", b"first")
    transaction.put("leases", b"f", b"second")
    transaction.delete("leases", b"e")
    transaction.commit()
    assert content(state, "leases") == {b"a": b"again", b"d": b"kept", b"f": b"second"}
    assert content(state, "dedup") == {b"c": b"of another family"}


@pytest.mark.parametrize(("start", "stop"), [(b"f", b"c"), (b"c", b"c"), (b"", b"")])
def test_deleting_an_empty_range_deletes_nothing_and_harms_nothing(place: Place, start: bytes, stop: bytes) -> None:
    state = place.open()
    put(state, "leases", LETTERS)
    transaction = state.transaction()
    transaction.delete_range("leases", start, stop)
    assert transaction.get("leases", b"d") == b"dd"
    transaction.put("leases", b"z", b"zz")
    transaction.commit()
    state.close()
    assert content(place.open(), "leases") == LETTERS | {b"z": b"zz"}


@pytest.mark.parametrize("before", [b"old", None], ids=["a value", "nothing"])
@pytest.mark.parametrize("after", [b"new", None], ids=["changed", "deleted"])
def test_what_was_read_must_be_so_at_the_commit(state: State, before: bytes | None, after: bytes | None) -> None:
    if before is not None:
        put(state, "leases", {b"key": before})
    transaction = state.transaction()
    assert transaction.get("leases", b"key") == before
    transaction.put("dedup", b"made", b"of it")
    other = state.transaction()
    if after is None:
        other.delete("leases", b"key")
    else:
        other.put("leases", b"key", after)
    other.commit()
    if before == after:
        transaction.commit()
        assert state.get("dedup", b"made") == b"of it"
    else:
        with pytest.raises(Conflict, match="leases"):
            transaction.commit()
        assert state.get("dedup", b"made") is None


def test_a_range_deleted_by_another_is_a_conflict_too(state: State) -> None:
    put(state, "leases", LETTERS)
    transaction = state.transaction()
    transaction.get("leases", b"c")
    other = state.transaction()
    other.delete_range("leases", b"a", b"z")
    other.commit()
    with pytest.raises(Conflict):
        transaction.commit()


def test_changes_to_what_was_not_read_are_no_conflict(state: State) -> None:
    first, second = state.transaction(), state.transaction()
    first.get("leases", b"a")
    first.put("leases", b"key", b"first")
    assert first.get("leases", b"key") == b"first"  # its own: not read from the state
    second.put("leases", b"key", b"second")
    second.put("dedup", b"a", b"another family")
    second.commit()
    first.commit()
    assert state.get("leases", b"key") == b"first"


def test_a_transaction_reads_the_same_twice(state: State) -> None:
    transaction = state.transaction()
    assert transaction.get("leases", b"key") is None
    put(state, "leases", {b"key": b"value"})
    assert transaction.get("leases", b"key") is None
    with pytest.raises(Conflict):
        transaction.commit()


@pytest.mark.parametrize("refused", [False, True])
def test_a_transaction_serves_once(state: State, refused: bool) -> None:
    transaction = state.transaction()
    transaction.get("leases", b"key")
    transaction.put("leases", b"other", b"value")
    if refused:
        put(state, "leases", {b"key": b"value"})
        with pytest.raises(Conflict):
            transaction.commit()
    else:
        transaction.commit()
    with pytest.raises(Closed):
        transaction.commit()
    with pytest.raises(Closed):
        transaction.get("leases", b"key")
    with pytest.raises(Closed):
        transaction.put("leases", b"other", b"again")
    with pytest.raises(Closed):
        transaction.delete("leases", b"other")
    with pytest.raises(Closed):
        transaction.delete_range("leases", b"a", b"b")


def test_counters_raised_by_several_threads_lose_no_step(state: State) -> None:
    def raise_it() -> None:
        done = 0
        while done < 25:
            transaction = state.transaction()
            count = int(transaction.get("attempts", b"count") or b"0")
            transaction.put("attempts", b"count", b"%d" % (count + 1))
            try:
                transaction.commit()
                done += 1
            except Conflict:
                continue

    threads = [threading.Thread(target=raise_it) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert state.get("attempts", b"count") == b"100"


# ------------------------------------------------------------ opening and closing


def test_what_was_committed_is_there_after_reopening(place: Place) -> None:
    state = place.open()
    put(state, "leases", LETTERS)
    put(state, "positions", {b"log": b"7"})
    state.close()
    again = place.open()
    assert content(again, "leases") == LETTERS
    assert again.get("positions", b"log") == b"7"
    put(again, "positions", {b"log": b"8"})
    again.close()
    assert place.open().get("positions", b"log") == b"8"


def test_closing_twice_is_closing_once(state: State) -> None:
    state.close()
    state.close()


def test_any_use_after_closing_is_refused(state: State) -> None:
    put(state, "leases", LETTERS)
    begun = state.transaction()
    begun.put("leases", b"key", b"value")
    scan = state.scan("leases")
    next(scan)
    state.close()
    for use in (
        lambda: state.get("leases", b"a"),
        lambda: state.scan("leases"),
        state.transaction,
        begun.commit,
        lambda: next(scan),
    ):
        with pytest.raises(Closed):
            use()


def test_a_state_can_be_opened_again_at_once_though_scans_and_errors_of_the_old_one_live(place: Place) -> None:
    state = place.open()
    put(state, "leases", {number.to_bytes(4, "big"): b"x" for number in range(100)})
    begun, untouched, ended = state.scan("leases"), state.scan("leases"), list(state.scan("leases"))
    next(begun)
    transaction = state.transaction()
    transaction.get("leases", b"key")
    with pytest.raises(InvalidArgument) as kept:
        state.get("unheard", b"key")
    state.close()
    assert len(content(place.open(), "leases")) == len(ended)
    assert kept.value.__traceback__ is not None
    with pytest.raises(Closed):
        next(untouched)


def test_a_reader_sees_what_was_committed_and_can_change_nothing(place: Place) -> None:
    writer = place.open()
    put(writer, "leases", LETTERS)
    reader = place.open(read_only=True)
    assert content(reader, "leases") == LETTERS
    assert reader.get("leases", b"a") == b"aa"
    assert content(reader, "dedup") == {}
    transaction = reader.transaction()
    transaction.put("leases", b"a", b"changed")
    with pytest.raises(ReadOnly):
        transaction.commit()
    looking = reader.transaction()
    assert looking.get("leases", b"a") == b"aa"
    looking.commit()
    assert writer.get("leases", b"a") == b"aa"


def test_a_reader_keeps_what_it_opened_while_the_writer_goes_on(place: Place) -> None:
    writer = place.open()
    put(writer, "leases", LETTERS)
    reader = place.open(read_only=True)
    transaction = writer.transaction()
    transaction.delete_range("leases", b"a", b"z")
    transaction.commit()
    writer.close()
    assert content(reader, "leases") == LETTERS


def test_a_reversed_scan_gives_the_same_records_descending(state: State) -> None:
    put(state, "available", {f"{number:03}".encode(): b"" for number in range(100)})
    for start, stop in [(b"", None), (b"010", b"020"), (b"010x", b"019x"), (b"", b"000"), (b"099", None), (b"5", b"5")]:
        forwards = list(state.scan("available", start, stop))
        assert list(state.scan("available", start, stop, reverse=True)) == forwards[::-1]


def test_the_first_record_of_a_range_is_found(state: State) -> None:
    put(state, "available", {b"b": b"b", b"d": b"d"})
    assert state.first("available", b"a", b"c", since=state.commits) == (b"b", b"b")
    assert state.first("available", b"c", b"d", since=state.commits) is None
    assert state.first("available", b"c", b"e") == (b"d", b"d")
    assert state.first("available", b"e", b"f") is None


def test_the_first_record_is_as_new_as_is_asked_for(state: State) -> None:
    put(state, "available", {b"b": b"b"})
    assert state.first("available", b"a", b"c") == (b"b", b"b")
    put(state, "available", {b"a": b"a"})
    assert state.first("available", b"a", b"c", since=state.commits) == (b"a", b"a")


def test_each_commit_counts(state: State) -> None:
    for number in range(3):
        before = state.commits
        put(state, "available", {b"%d" % number: b""})
        assert state.commits > before


def test_a_commit_without_a_sync_is_there_at_once_and_after_closing(state: State, place: Place) -> None:
    transaction = state.transaction()
    transaction.put("available", b"key", b"value")
    transaction.commit(sync=False)
    assert state.get("available", b"key") == b"value"
    state.close()
    with_it = place.open()
    assert with_it.get("available", b"key") == b"value"
    with_it.close()


def test_a_transaction_that_takes_over_another_commits_both_and_uses_the_other_up(state: State) -> None:
    put(state, "leases", {b"read": b"1", b"gone": b"1"})
    first, second = state.transaction(), state.transaction()
    first.put("leases", b"both", b"first")
    second.get("leases", b"read")
    second.put("leases", b"both", b"second")
    second.delete("leases", b"gone")
    first.absorb(second)
    with pytest.raises(Closed):
        second.put("leases", b"late", b"x")
    with pytest.raises(Closed):
        second.commit()
    first.put("leases", b"own", b"x")
    first.commit()
    assert content(state, "leases") == {b"read": b"1", b"both": b"second", b"own": b"x"}


def test_what_an_absorbed_transaction_read_is_checked_when_both_commit(state: State) -> None:
    put(state, "leases", {b"read": b"1"})
    first, second = state.transaction(), state.transaction()
    second.get("leases", b"read")
    second.put("leases", b"late", b"x")
    first.absorb(second)
    put(state, "leases", {b"read": b"2"})
    with pytest.raises(Conflict):
        first.commit()
    assert content(state, "leases") == {b"read": b"2"}
