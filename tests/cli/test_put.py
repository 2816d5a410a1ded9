"""`holdfast put` stores messages exactly as they were given."""

from pathlib import Path

import pytest

from tests.cli.terminal import Terminal


def payloads(holdfast: Terminal, queue: str = "orders") -> list[object]:
    return [message["payload"] for message in holdfast(f"peek {queue} -n 1000 --json").json_lines]


def test_put_prints_the_id_of_the_message(holdfast: Terminal) -> None:
    assert holdfast("put orders hello").out == "0\n"
    assert holdfast("put orders again").out == "1\n"


def test_several_messages_are_put_at_once(holdfast: Terminal) -> None:
    assert holdfast("put orders a b 'c d'").out == "0-2 (3 messages)\n"
    assert payloads(holdfast) == ["a", "b", "c d"]


def test_put_as_json_says_which_ids_were_given(holdfast: Terminal) -> None:
    result = holdfast("put orders a b --json").json
    assert result == {"queue": "orders", "count": 2, "first": 0, "last": 1, "duplicate": False}


def test_each_line_of_standard_input_is_a_message(holdfast: Terminal) -> None:
    result = holdfast("put orders -", stdin=b"one\n\nthree\r\nlast without a newline")
    assert result.out == "0-3 (4 messages)\n"
    assert payloads(holdfast) == ["one", "", "three\r", "last without a newline"]


def test_a_hundred_thousand_lines_come_in_order(holdfast: Terminal) -> None:
    lines = b"".join(b"line %d\n" % number for number in range(100_000))
    assert holdfast("put orders - --json", stdin=lines).json["count"] == 100_000
    with holdfast.store() as store:
        taken = [delivery.payload for delivery in store.queue("orders").lease(100_000)]
    assert taken == lines.splitlines()


def test_empty_standard_input_puts_nothing(holdfast: Terminal) -> None:
    assert holdfast("put orders -").out == "0 messages\n"
    assert holdfast("put orders - --json").json == {
        "queue": "orders", "count": 0, "first": None, "last": None, "duplicate": False
    }  # fmt: skip


def test_a_file_becomes_one_message_byte_for_byte(holdfast: Terminal, tmp_path: Path) -> None:
    content = bytes(range(256)) * 3
    (tmp_path / "picture").write_bytes(content)
    holdfast(f"put orders --file {tmp_path / 'picture'}")
    assert holdfast("get orders --format raw").raw == content


def test_a_key_and_headers_travel_with_the_message(holdfast: Terminal) -> None:
    holdfast("put orders hello --key user-1 --header source=web --header note=a=b")
    message = holdfast("get orders --json").json
    assert (message["key"], message["headers"]) == ("user-1", {"source": "web", "note": "a=b"})


def test_lines_carry_what_was_given_for_all(holdfast: Terminal) -> None:
    holdfast("put orders - --key k --header a=b --priority 7", stdin=b"one\ntwo\n")
    messages = holdfast("get orders -n 2 --json").json_lines
    assert [(each["key"], each["headers"], each["priority"]) for each in messages] == [("k", {"a": "b"}, 7)] * 2


def test_a_priority_goes_up_to_that_of_queues(holdfast: Terminal) -> None:
    holdfast("put orders nine --priority 9")
    assert holdfast("put orders most --priority 255").code == 0
    assert [each["priority"] for each in holdfast("get orders -n 2 --json").json_lines] == [255, 9]


def test_the_highest_priority_comes_first(holdfast: Terminal) -> None:
    holdfast("put orders low")
    holdfast("put orders high --priority 9")
    assert payloads(holdfast) == ["high", "low"]


def test_a_delayed_message_is_not_ready_yet(holdfast: Terminal) -> None:
    holdfast("put orders later --delay 1h")
    figures = holdfast("stats orders --json").json
    assert (figures["ready"], figures["delayed"]) == (0, 1)
    assert holdfast("get orders").out == ""


def test_a_message_whose_time_to_live_is_over_is_not_delivered(holdfast: Terminal) -> None:
    holdfast("put orders short --ttl 1ms")
    holdfast("put orders long --ttl 1h")
    assert holdfast("get orders -n 5 --format raw").out == "long"


def test_a_duplicate_is_not_written_and_that_is_said(holdfast: Terminal) -> None:
    assert holdfast("put orders once --dedup order-17").out == "0\n"
    assert holdfast("put orders twice --dedup order-17").out == "0 (duplicate: not written again)\n"
    again = holdfast("put orders twice --dedup order-17 --json").json
    assert again == {"queue": "orders", "count": 1, "first": 0, "last": 0, "duplicate": True}
    assert payloads(holdfast) == ["once"]


def test_a_message_over_the_limit_is_refused_and_nothing_is_put(holdfast: Terminal, tmp_path: Path) -> None:
    (tmp_path / "huge").write_bytes(bytes(11 << 20))
    refused = holdfast(f"put orders --file {tmp_path / 'huge'}")
    assert refused.code == 1
    assert "over the limit" in refused.complaint
    assert holdfast("stats orders --json").json["ready"] == 0


def test_an_error_in_the_midst_of_lines_still_tells_which_are_in(holdfast: Terminal) -> None:
    lines = b"short\n" * 200_000 + b"x" * (11 << 20) + b"\n"
    result = holdfast("put orders - --json", stdin=lines)
    assert result.code == 1
    assert 0 < result.json["count"] <= 200_000
    assert holdfast("stats orders --json").json["ready"] == result.json["count"]
    assert "over the limit" in result.err


def test_a_full_queue_that_refuses_says_so(holdfast: Terminal) -> None:
    holdfast.put("orders", b"one", max_length=1, overflow="reject")
    refused = holdfast("put orders two")
    assert refused.code == 1
    assert "holds 1 of at most 1 messages" in refused.complaint


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("put orders", "nothing to put: give a PAYLOAD"),
        ("put orders x --file y", "not both"),
        ("put orders - x", "no other PAYLOAD"),
        ("put orders x --header lonely", "not of the form K=V"),
        ("put orders x --priority 256", "--priority"),
        ("put orders x --priority -1", "--priority"),
        ("put orders x --delay soon", "'soon' is not a duration"),
        ("put orders x --ttl 5x", "'5x' is not a duration"),
        ("put orders a b --dedup x", "the id of one message"),
        ("put orders - --dedup x", "the id of one message"),
    ],
)
def test_a_command_that_makes_no_sense_is_refused_and_makes_no_store(
    holdfast: Terminal, command: str, reason: str
) -> None:
    result = holdfast(command)
    assert result.code == 2
    assert reason in result.complaint
    assert not holdfast.data.exists()


def test_a_time_to_live_of_nothing_is_refused(holdfast: Terminal) -> None:
    result = holdfast("put orders x --ttl 0s")
    assert result.code == 1
    assert result.complaint == "ttl must be more than zero"
