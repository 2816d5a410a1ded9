"""`holdfast log cat` and `tail` print the chosen records in the chosen form."""

import base64
import time

import pytest

from tests.cli.terminal import Result, Terminal, damage_segment


def sequences(result: Result) -> list[int]:
    return [record["sequence"] for record in result.json_lines]


def test_cat_prints_sequence_time_key_headers_and_payload(holdfast: Terminal) -> None:
    holdfast("log append orders hello --key k --header a=b")
    sequence, date, _clock, *rest = holdfast("log cat orders").out.split()
    assert (sequence, rest) == ("0", ["key=k", "a=b", "hello"])
    assert len(date) == len("2026-11-15")


def test_cat_as_json_gives_one_line_a_record(holdfast: Terminal) -> None:
    holdfast("log append orders hello")
    record = holdfast("log cat orders --json").json
    assert record["sequence"] == 0
    assert (record["key"], record["headers"], record["payload"]) == (None, {}, "hello")
    assert record["time"].startswith("20") and record["time"].endswith("Z")
    assert int(record["time"][20:29]) == record["timestamp"] % 1_000_000_000


def test_bytes_that_are_no_text_are_base64_in_json(holdfast: Terminal) -> None:
    holdfast("log append orders -", stdin=b"\xff\xfe\x00\n" + "grün\n".encode())
    binary, text = (record["payload"] for record in holdfast("log cat orders --json").json_lines)
    assert base64.b64decode(binary["base64"]) == b"\xff\xfe\x00"
    assert text == "grün"


def test_text_cannot_steer_the_terminal(holdfast: Terminal) -> None:
    holdfast("log append orders -", stdin=b"\x1b[2J\xff tab\there \xe2\x80\xaeabc\n")
    assert holdfast("log cat orders").out.endswith("\\x1b[2J\\xff tab\\there \\u202eabc\n")


def test_raw_is_the_bytes_with_a_newline_between_records(holdfast: Terminal) -> None:
    holdfast("log append orders -", stdin=b"\x00\xff\nsecond\n")
    assert holdfast("log cat orders --format raw").raw == b"\x00\xff\nsecond"


def test_hex_shows_offsets_codes_and_characters(holdfast: Terminal) -> None:
    holdfast("log append orders abcdefghijklmnopqr")
    _, first, second = holdfast("log cat orders --format hex").lines
    assert first == "    00000000  61 62 63 64 65 66 67 68  69 6a 6b 6c 6d 6e 6f 70  abcdefghijklmnop"
    assert " ".join(second.split()) == "00000010 71 72 qr"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("", [*range(50)]),
        ("--start 47", [47, 48, 49]),
        ("--stop 3", [0, 1, 2]),
        ("--start 10 --stop 13", [10, 11, 12]),
        ("--start 10 --stop 13 --reverse", [12, 11, 10]),
        ("--reverse --limit 2", [49, 48]),
        ("--limit 0", []),
        ("--start 60", []),
        ("--grep '^record 4'", [4, *range(40, 50)]),
        ("--grep 9$ --limit 2", [9, 19]),
        ("--since 1h", [*range(50)]),
        ("--until 1h", []),
        ("--since 2001-01-01T00:00:00+02:00 --limit 1", [0]),
    ],
)
def test_cat_prints_the_stretch_that_was_asked_for(holdfast: Terminal, options: str, expected: list[int]) -> None:
    holdfast.fill("orders", 50, per_segment=20)
    assert sequences(holdfast(f"log cat orders --json {options}")) == expected


def test_cat_between_two_times_prints_what_was_appended_between_them(holdfast: Terminal) -> None:
    for word in ("before", "within", "after"):
        holdfast(f"log append orders {word}")
        time.sleep(0.002)
    _, within, after = (record["time"] for record in holdfast("log cat orders --json").json_lines)
    assert holdfast(f"log cat orders --format raw --since {within} --until {after}").out == "within"


def test_grep_reaches_payloads_that_are_no_text(holdfast: Terminal) -> None:
    holdfast("log append orders -", stdin=b"\xff\xfe needle\nhay\n")
    assert sequences(holdfast("log cat orders --json --grep needle")) == [0]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ("--grep '('", "'(' is not a regular expression"),
        ("--since yesterday", "'yesterday' is not a time"),
        ("--until 2026-11-15T12:00:00", "has no time zone"),
        ("--start=-1", "--start"),
        ("--format xml", "not one of"),
    ],
)
def test_cat_refuses_what_it_cannot_understand(holdfast: Terminal, options: str, reason: str) -> None:
    holdfast.fill("orders", 1)
    result = holdfast(f"log cat orders {options}")
    assert result.code == 2
    assert reason in result.complaint


def test_records_are_coloured_on_a_terminal_and_plain_elsewhere(holdfast: Terminal) -> None:
    holdfast("log append orders hello")
    assert "\x1b[36m0\x1b[0m" in holdfast("log cat orders", colors=True).out
    assert "\x1b" not in holdfast("log cat orders").out


def test_damage_is_told_in_yellow_at_the_end_and_by_the_exit_code(holdfast: Terminal) -> None:
    holdfast.fill("orders", 5)
    damage_segment(holdfast.data, "orders", 0, b"record 3")
    result = holdfast("log cat orders --json", colors=True)
    assert sequences(result) == [0, 1, 2, 4]
    assert result.code == 1
    assert result.err.startswith("\x1b[33mholdfast: damage: ")
    assert "record 3 lost" in result.err


def test_tail_prints_the_last_ten_records(holdfast: Terminal) -> None:
    holdfast.fill("orders", 25)
    assert sequences(holdfast("log tail orders --json")) == [*range(15, 25)]
    assert [line.split()[0] for line in holdfast("log tail orders").lines] == [str(n) for n in range(15, 25)]


@pytest.mark.parametrize(("options", "expected"), [("-n 2", [3, 4]), ("-n 0", []), ("-n 99", [0, 1, 2, 3, 4])])
def test_tail_prints_as_many_as_asked(holdfast: Terminal, options: str, expected: list[int]) -> None:
    holdfast.fill("orders", 5)
    assert sequences(holdfast(f"log tail orders --json {options}")) == expected


def test_a_named_tail_starts_where_it_stopped(holdfast: Terminal) -> None:
    holdfast.fill("orders", 5)
    assert sequences(holdfast("log tail orders --json --name audit -n 2")) == [0, 1]
    assert sequences(holdfast("log tail orders --json --name audit")) == [2, 3, 4]
    assert sequences(holdfast("log tail orders --json --name audit")) == []


def test_reading_works_while_another_opening_writes(holdfast: Terminal) -> None:
    with holdfast.store() as store:
        store.log("orders").append(b"hello")
        store.log("orders").sync()
        assert holdfast("log cat orders --format raw").out == "hello"
        assert holdfast("log tail orders --format raw").out == "hello\n"


def test_tail_follows_what_another_process_appends_and_keeps_its_place(holdfast: Terminal) -> None:
    holdfast.fill("orders", 2)
    with holdfast.spawn("log tail orders --follow --name audit --format raw") as process:
        assert process.stdout is not None
        assert [process.stdout.readline() for _ in range(2)] == [b"record 0\n", b"record 1\n"]
        holdfast("log append orders late")
        assert process.stdout.readline() == b"late\n"
        deadline = time.monotonic() + 180
        while holdfast("log tailers orders --json").json["tailers"][0]["position"] < 3:
            assert time.monotonic() < deadline
