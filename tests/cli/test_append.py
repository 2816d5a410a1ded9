"""`holdfast log append` stores records exactly as they were given."""

from pathlib import Path

import pytest

from tests.cli.terminal import Terminal


def test_append_prints_the_sequence_of_the_record(holdfast: Terminal) -> None:
    assert holdfast("log append orders hello").out == "0\n"
    assert holdfast("log append orders again").out == "1\n"


def test_append_as_json_says_which_sequences_were_given(holdfast: Terminal) -> None:
    assert holdfast("log append orders hello --json").json == {"log": "orders", "count": 1, "first": 0, "last": 0}


def test_a_key_and_headers_travel_with_the_record(holdfast: Terminal) -> None:
    holdfast("log append orders hello --key user-1 --header source=web --header note=a=b")
    record = holdfast("log cat orders --json").json
    assert record["key"] == "user-1"
    assert record["headers"] == {"source": "web", "note": "a=b"}


def test_each_line_of_standard_input_is_a_record(holdfast: Terminal) -> None:
    result = holdfast("log append orders -", stdin=b"one\n\nthree\r\nlast without a newline")
    assert result.out == "0-3 (4 records)\n"
    payloads = [record["payload"] for record in holdfast("log cat orders --json").json_lines]
    assert payloads == ["one", "", "three\r", "last without a newline"]


def test_lines_carry_the_key_and_headers_that_were_given(holdfast: Terminal) -> None:
    holdfast("log append orders - --key k --header a=b", stdin=b"one\ntwo\n")
    records = holdfast("log cat orders --json").json_lines
    assert [(record["key"], record["headers"]) for record in records] == [("k", {"a": "b"})] * 2


def test_lines_longer_than_one_read_arrive_whole(holdfast: Terminal) -> None:
    lines = [b"x" * size for size in (3_000_000, 10, 1 << 20, 0, (1 << 20) - 1)]
    assert holdfast("log append orders - --json", stdin=b"\n".join(lines) + b"\n").json["count"] == len(lines)
    with holdfast.store() as store:
        assert [record.payload for record in store.log("orders").read()] == lines


def test_empty_standard_input_appends_nothing(holdfast: Terminal) -> None:
    assert holdfast("log append orders -").out == "0 records\n"
    expected = {"log": "orders", "count": 0, "first": None, "last": None}
    assert holdfast("log append orders - --json").json == expected


def test_a_file_becomes_one_record_byte_for_byte(holdfast: Terminal, tmp_path: Path) -> None:
    content = bytes(range(256)) * 3
    (tmp_path / "picture").write_bytes(content)
    holdfast(f"log append orders --file {tmp_path / 'picture'}")
    assert holdfast("log cat orders --format raw").raw == content


@pytest.mark.parametrize("options", ["--flush batch", "--flush async", "--compression zstd", "--compression lz4"])
def test_records_are_there_afterwards_whatever_the_options(holdfast: Terminal, options: str) -> None:
    lines = [b"line %d " % number + b"." * 100 for number in range(500)]
    assert holdfast(f"log append orders - {options}", stdin=b"\n".join(lines)).out == "0-499 (500 records)\n"
    assert holdfast("log cat orders --format raw").raw == b"\n".join(lines)


def test_a_record_over_the_limit_is_refused_and_a_larger_limit_takes_it(holdfast: Terminal) -> None:
    refused = holdfast("log append orders 123456 --max-message 5")
    assert refused.code == 1
    assert "over the limit of 5" in refused.complaint
    assert holdfast("log append orders 123456 --max-message 1KiB").code == 0


def test_an_endless_line_is_refused_before_it_fills_the_memory(holdfast: Terminal) -> None:
    refused = holdfast("log append orders - --max-message 1KiB", stdin=b"x" * (5 << 20))
    assert refused.code == 1
    assert "over the limit of 1024" in refused.complaint


def test_an_error_in_the_midst_of_lines_still_tells_which_are_in(holdfast: Terminal) -> None:
    lines = b"short\n" * 200_000 + b"x" * 2000 + b"\n"  # more than one read, so that the first batches are in
    result = holdfast("log append orders - --max-message 1KiB --json", stdin=lines)
    assert result.code == 1
    assert 0 < result.json["count"] < 200_000
    assert holdfast("log stats orders --json").json["records"] == result.json["count"]
    assert "over the limit" in result.err


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("log append orders", "nothing to append: give a PAYLOAD"),
        ("log append orders x --file y", "not both"),
        ("log append orders x --header lonely", "not of the form K=V"),
        ("log append orders x --header a=1 --header a=2", "given twice"),
        ("log append orders x --max-message lots", "'lots' is not a size"),
        ("log append orders x --compression rar", "not one of"),
        ("log append orders x --flush never", "not one of"),
    ],
)
def test_a_command_that_makes_no_sense_is_refused_and_makes_no_store(
    holdfast: Terminal, command: str, reason: str
) -> None:
    result = holdfast(command)
    assert result.code == 2
    assert reason in result.complaint
    assert not holdfast.data.exists()


def test_a_file_that_is_not_there_is_named_in_the_error(holdfast: Terminal) -> None:
    result = holdfast("log append orders --file no-such-file")
    assert result.code == 1
    assert result.complaint == "reading 'no-such-file' failed: No such file or directory"
