"""`holdfast log verify` and `inspect` distinguish intact from damaged, and show positions."""

import pytest

from tests.cli.terminal import Terminal, damage_segment


def test_verify_says_that_a_whole_log_is_whole(holdfast: Terminal) -> None:
    holdfast.fill("orders", 50, per_segment=10)
    result = holdfast("log verify orders")
    assert result.code == 0
    assert result.lines[1].split()[0] == "orders"
    assert result.lines[1].split()[-1] == "intact"


def test_verify_checks_all_logs_when_none_is_named(holdfast: Terminal) -> None:
    for name in ("orders", "clicks"):
        holdfast.fill(name, 30, per_segment=10)
    result = holdfast("log verify --json").json
    assert result["ok"] is True
    assert [(log["log"], log["segments"], log["records"]) for log in result["logs"]] == [
        ("clicks", 3, 30),
        ("orders", 3, 30),
    ]


def test_verify_shows_where_the_damage_is_and_exits_with_1(holdfast: Terminal) -> None:
    holdfast.fill("orders", 50, per_segment=10)
    path = damage_segment(holdfast.data, "orders", 1, b"record 13")
    result = holdfast("log verify")
    assert result.code == 1
    assert "damaged: 1" in result.out
    row = next(line for line in result.lines if path.name in line)
    assert "1 record from 13" in row and "checksum" in row
    assert result.err == ""


def test_verify_as_json_holds_each_damage(holdfast: Terminal) -> None:
    holdfast.fill("orders", 50, per_segment=10)
    path = damage_segment(holdfast.data, "orders", 1, b"record 13")
    result = holdfast("log verify --json")
    assert result.code == 1
    assert result.json["ok"] is False
    (damage,) = result.json["logs"][0]["damage"]
    assert (damage["path"], damage["first_lost"], damage["lost"]) == (str(path), 13, 1)


def test_verify_of_an_empty_store_is_fine(holdfast: Terminal) -> None:
    holdfast.store().close()
    assert holdfast("log verify").code == 0
    assert holdfast("log verify --json").json["logs"] == []


def test_inspect_finds_the_byte_where_a_record_lies(holdfast: Terminal) -> None:
    holdfast.fill("orders", 50, per_segment=10)
    found = holdfast("log inspect orders --sequence 23 --json").json
    (path,) = holdfast.data.rglob("*-0003.data")
    assert found["path"] == str(path)
    assert path.read_bytes()[found["offset"] :].startswith(b"record 23")
    assert (found["what"], found["record"]["payload"]) == ("payload", "record 23")


def test_inspect_of_a_byte_agrees_with_inspect_of_its_record(holdfast: Terminal) -> None:
    holdfast.fill("orders", 50, per_segment=10)
    by_sequence = holdfast("log inspect orders --sequence 23 --json").json
    by_byte = holdfast(f"log inspect orders --segment 0003 --offset {by_sequence['offset']} --json")
    assert by_byte.code == 1  # a segment is named in full
    name = by_sequence["path"].rpartition("/")[2].removesuffix(".data")
    assert holdfast(f"log inspect orders --segment {name} --offset {by_sequence['offset']} --json").json == by_sequence


def test_inspect_finds_records_that_are_compressed_or_empty(holdfast: Terminal) -> None:
    holdfast("log append packed - --compression zstd", stdin=b"a" * 3000 + b"\n" + b"b" * 3000)
    holdfast("log append empty -", stdin=b"\n\nx\n")
    packed = holdfast("log inspect packed --sequence 1 --json").json
    assert packed["record"]["payload"] == "b" * 3000
    assert packed["details"]["compression"] == "zstd"
    assert holdfast("log inspect empty --sequence 1 --json").json["record"]["payload"] == ""


def test_inspect_shows_what_is_there_to_people(holdfast: Terminal) -> None:
    holdfast("log append orders hello --key k --header a=b")
    assert holdfast("log inspect orders --offset 0").lines[2].split() == ["what", "segment", "header"]
    shown = [line.split() for line in holdfast("log inspect orders --sequence 0").lines]
    for row in (["payload", "hello"], ["key", "k"], ["header", "a", "b"], ["payload", "size", "5", "bytes"]):
        assert row in shown


@pytest.mark.parametrize(
    ("options", "code", "reason"),
    [
        ("", 2, "pass --offset BYTE or --sequence N"),
        ("--offset 1 --sequence 1", 2, "pass --offset BYTE or --sequence N"),
        ("--sequence 1 --segment x", 2, "--segment is for --offset"),
        ("--sequence 99", 1, "there is no record 99: the log 'orders' holds 0 to 4"),
        ("--offset 99999", 1, "the offset 99999 is outside of"),
        ("--offset 1 --segment 19990101-0001", 1, "no segment '19990101-0001'"),
    ],
)
def test_inspect_of_a_place_that_is_not_there_is_refused(
    holdfast: Terminal, options: str, code: int, reason: str
) -> None:
    holdfast.fill("orders", 5)
    result = holdfast(f"log inspect orders {options}")
    assert result.code == code
    assert reason in result.complaint


def test_inspect_of_a_damaged_record_says_what_hit_it(holdfast: Terminal) -> None:
    holdfast.fill("orders", 5)
    damage_segment(holdfast.data, "orders", 0, b"record 3")
    result = holdfast("log inspect orders --sequence 3")
    assert result.code == 1
    assert result.complaint.startswith("the record 3 of the log 'orders' cannot be read: ")
