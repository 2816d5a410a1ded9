"""`holdfast purge` and `seek` show the consequences, ask, and act."""

import time

import pytest

from tests.cli.terminal import Terminal


def test_purge_drops_what_waits_and_leaves_what_is_held(holdfast: Terminal) -> None:
    holdfast("put orders held a b")
    holdfast("put orders later --delay 1h")
    holdfast("get orders --no-ack")
    assert holdfast("purge orders --yes").out == "dropped 3 messages of 'orders'\n"
    figures = holdfast("stats orders --json").json
    assert (figures["ready"], figures["delayed"], figures["leased"]) == (0, 0, 1)


def test_purge_as_json_says_how_many(holdfast: Terminal) -> None:
    holdfast("put orders a b")
    assert holdfast("purge orders --yes --json").json == {"queue": "orders", "purged": 2}
    assert holdfast("purge orders --json").json == {"queue": "orders", "purged": 0}  # nothing to ask about


def test_purge_and_seek_do_nothing_where_nobody_can_be_asked(holdfast: Terminal) -> None:
    holdfast("put orders a b")
    for command in ("purge orders", "seek orders --end", "seek orders --start"):
        result = holdfast(command)
        assert result.code == 2
        assert result.complaint.startswith("refusing to")
    assert holdfast("stats orders --json").json["ready"] == 2


@pytest.mark.parametrize(("answer", "left"), [("y\n", 0), ("yes\n", 0), ("n\n", 2), ("\n", 2), ("what?\n", 2)])
def test_at_a_terminal_purge_asks_first(holdfast: Terminal, answer: str, left: int) -> None:
    holdfast("put orders a b")
    code, said = holdfast.converse("purge orders", answer)
    assert "Drop 2 messages of 'orders' (2 ready, 0 delayed)? [y/N]" in said
    assert code == (1 if left else 0)
    assert holdfast("stats orders --json").json["ready"] == left


def test_seek_to_the_start_delivers_all_again(holdfast: Terminal) -> None:
    holdfast("put orders a b c")
    holdfast("get orders -n 2")
    result = holdfast("seek orders --start --yes --json").json
    assert result == {"queue": "orders", "position": 0, "to_deliver": 3, "again": 2, "given_up": 0}
    assert [each["payload"] for each in holdfast("get orders -n 9 --json").json_lines] == ["a", "b", "c"]


def test_seek_to_the_end_gives_up_what_waits(holdfast: Terminal) -> None:
    holdfast("put orders a b c")
    holdfast("get orders")
    result = holdfast("seek orders --end --yes --json").json
    assert result == {"queue": "orders", "position": 3, "to_deliver": 0, "again": 0, "given_up": 2}
    assert holdfast("get orders").out == ""


def test_seek_to_an_id(holdfast: Terminal) -> None:
    holdfast("put orders a b c d")
    holdfast("get orders -n 2")
    assert holdfast("seek orders --to 1 --yes").out == "moved 'orders' to 1: 3 messages to deliver\n"
    assert holdfast("get orders -n 9 --format raw").out == "b\nc\nd"
    assert holdfast("seek orders --to 4 --yes --json").json["to_deliver"] == 0


def test_seek_to_a_time(holdfast: Terminal) -> None:
    holdfast("put orders before")
    time.sleep(0.01)
    holdfast("put orders after")
    _, after = holdfast("peek orders --json").json_lines
    holdfast("get orders -n 2")
    assert holdfast(f"seek orders --time {after['enqueued_time']} --yes --json").json["position"] == 1
    assert holdfast("seek orders --time 2h --yes --json").json["position"] == 0
    assert holdfast("seek orders --time 0s --yes --json").json["position"] == 2


def test_where_it_cannot_be_known_what_is_given_up_that_is_said(holdfast: Terminal) -> None:
    holdfast("put orders a b c d")
    result = holdfast("seek orders --to 2 --yes --json").json
    assert result == {"queue": "orders", "position": 2, "to_deliver": 2, "again": None, "given_up": None}


def test_at_a_terminal_seek_says_what_it_means_and_asks(holdfast: Terminal) -> None:
    holdfast("put orders a b c")
    holdfast("get orders")
    holdfast("get orders --no-ack")
    code, said = holdfast.converse("seek orders --start", "n\n")
    assert code == 1
    said = " ".join(said.split())
    assert "Move 'orders' to 0: 3 messages to deliver, 1 of them again; 1 lease void. Continue? [y/N]" in said
    code, said = holdfast.converse("seek orders --end", "y\n")
    assert code == 0
    assert "0 messages to deliver; 2 messages dropped; 1 lease void." in " ".join(said.split())
    assert "moved 'orders' to 3: 0 messages to deliver" in said


@pytest.mark.parametrize("options", ["", "--start --end", "--to 1 --time 1h"])
def test_seek_wants_one_place(holdfast: Terminal, options: str) -> None:
    holdfast("put orders a")
    result = holdfast(f"seek orders {options} --yes")
    assert result.code == 2
    assert result.complaint.startswith("pass one of --to ID, --time TIME, --start or --end")


def test_seek_beyond_the_log_is_refused(holdfast: Terminal) -> None:
    holdfast("put orders a b")
    assert holdfast("seek orders --to 3 --yes").complaint == "cannot seek to 3: the log 'orders' holds 0 to 1"
    assert holdfast("stats orders --json").json["ready"] == 2
    holdfast("put empty -")
    assert holdfast("seek empty --to 1 --yes").complaint == "cannot seek to 1: the log 'empty' is empty"
