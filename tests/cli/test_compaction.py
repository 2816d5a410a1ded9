"""`holdfast log compact` and `clear` drop what is allowed, keep the rest, and report both."""

import pytest

from tests.cli.terminal import Terminal


def test_compact_names_the_segments_that_went_and_what_is_left(holdfast: Terminal) -> None:
    holdfast.fill("orders", 50, per_segment=10)
    lines = holdfast("log compact orders --max-segments 2").lines
    assert [line.split()[1] for line in lines if "-000" in line] == ["0", "10", "20"]
    assert any(line.startswith("dropped 3 segments: 30 records") for line in lines)
    assert holdfast("log stats orders --json").json["start"] == 30


def test_compact_as_json_says_what_went_and_what_is_left(holdfast: Terminal) -> None:
    holdfast.fill("orders", 50, per_segment=10)
    result = holdfast("log compact orders --max-segments 2 --json").json
    assert (result["dropped"]["segments"], result["dropped"]["records"]) == (3, 30)
    assert [segment["first"] for segment in result["dropped"]["segment_files"]] == [0, 10, 20]
    assert (result["left"]["start"], result["left"]["end"], result["left"]["segments"]) == (30, 50, 2)
    assert result["held_back"] == 0


@pytest.mark.parametrize(
    ("options", "start"),
    [
        ("--max-age 0s", 40),
        ("--max-age 1h", 0),
        ("--max-bytes 1", 40),
        ("--max-bytes 1GiB", 0),
        ("--max-segments 1 --min-segments 4", 10),
    ],
)
def test_each_limit_counts(holdfast: Terminal, options: str, start: int) -> None:
    holdfast.fill("orders", 50, per_segment=10)
    assert holdfast(f"log compact orders --json {options}").json["left"]["start"] == start


def test_nothing_to_drop_is_said(holdfast: Terminal) -> None:
    holdfast.fill("orders", 5)
    assert holdfast("log compact orders --max-age 7d").lines[0] == "nothing to drop"


def test_a_tailer_holds_segments_back_until_forced(holdfast: Terminal) -> None:
    holdfast.fill("orders", 50, per_segment=10)
    holdfast("log tail orders --name audit -n 15")
    held = holdfast("log compact orders --max-segments 1").lines[-1]
    assert held.startswith("3 segments more would be dropped, but the tailer 'audit' has not read record 15 yet")
    assert holdfast("log compact orders --max-segments 1 --force --json").json["left"]["start"] == 40


def test_compact_without_a_limit_is_refused(holdfast: Terminal) -> None:
    holdfast.fill("orders", 5)
    result = holdfast("log compact orders")
    assert result.code == 2
    assert result.complaint.startswith("pass a limit: --max-age, --max-bytes or --max-segments")


def test_compacting_a_log_that_is_not_there_does_not_make_it(holdfast: Terminal) -> None:
    assert "there is no store at" in holdfast("log compact orders --max-age 1d").complaint
    assert not holdfast.data.exists()
    holdfast.fill("clicks", 1)
    assert "there is no log 'orders'" in holdfast("log compact orders --max-age 1d").complaint
    assert [log["name"] for log in holdfast("log list --json").json["logs"]] == ["clicks"]


def test_clear_drops_every_record_and_goes_on_with_the_sequences(holdfast: Terminal) -> None:
    holdfast.fill("orders", 50, per_segment=10)
    assert holdfast("log clear orders --json").json == {"log": "orders", "dropped": 50, "start": 50, "end": 50}
    assert holdfast("log append orders next --json").json["first"] == 50


def test_clear_keeps_what_a_tailer_has_yet_to_read_unless_forced(holdfast: Terminal) -> None:
    holdfast.fill("orders", 50, per_segment=10)
    holdfast("log tail orders --name audit -n 25")
    assert "dropped 20 records; 30 left, the next sequence is 50" in holdfast("log clear orders").out
    assert "dropped 30 records; 0 left" in holdfast("log clear orders --force").out
