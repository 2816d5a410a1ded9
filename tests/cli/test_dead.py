"""`holdfast dlq` and `redrive` show, delete and move back dead letters."""

import pytest

from tests.cli.terminal import Terminal


def test_dlq_shows_what_died_and_why(holdfast: Terminal) -> None:
    holdfast.fail("orders", b'{"order": 17}', reason="ValueError: no such customer")
    header, row = holdfast("dlq orders").lines
    assert header.split("  ")[0] == "id"
    for column in ("old id", "attempts", "first failure", "last failure", "cause", "reason", "payload"):
        assert column in header
    assert row.split()[:3] == ["0", "0", "2"]
    assert row.endswith('attempts  ValueError: no such customer  {"order": 17}')


def test_dlq_as_json_gives_one_object_a_line(holdfast: Terminal) -> None:
    holdfast.put("orders", b"good")
    holdfast("get orders")
    holdfast.fail("orders", b"bad", b"\xff\x00", reason="no")
    first, second = holdfast("dlq orders --json").json_lines
    assert (first["id"], first["queue"], first["original_id"], first["cause"]) == (0, "orders", 1, "attempts")
    assert (first["reason"], first["attempts"], first["payload"], first["headers"]) == ("no", 2, "bad", {})
    assert first["first_failed_at"] <= first["last_failed_at"] <= first["died_at"]
    assert first["last_failed_time"].endswith("Z")
    assert second["payload"] == {"base64": "/wA="}


def test_one_dead_letter_is_shown_in_full(holdfast: Terminal) -> None:
    holdfast.fail("orders", b"x" * 500 + b" the end", reason="no")
    shown = holdfast("dlq orders 0").out
    assert "the end" in shown and "0 in orders" in shown and "508 bytes" in shown
    assert holdfast("dlq orders 0 --json").json["id"] == 0


def test_a_payload_is_only_previewed_in_the_table_and_cannot_steer_the_terminal(holdfast: Terminal) -> None:
    holdfast.fail("orders", b"\x1b[2J" + b"x" * 500, reason="two\nlines")
    (_, row) = holdfast("dlq orders").lines
    assert "\\x1b[2J" in row and "two\\nlines" in row
    assert len(row) < 500


def test_the_oldest_are_shown_first_and_whether_there_are_more(holdfast: Terminal) -> None:
    holdfast.fail("orders", *(b"%d" % number for number in range(5)))
    lines = holdfast("dlq orders -n 2").lines
    assert [line.split()[0] for line in lines[1:3]] == ["0", "1"]
    assert lines[-1] == "These are the first 2; -n shows more."
    assert [letter["id"] for letter in holdfast("dlq orders -n 2 --json").json_lines] == [0, 1]
    assert "more" not in holdfast("dlq orders -n 5").out


def test_on_a_narrow_terminal_every_line_fits(holdfast: Terminal) -> None:
    holdfast.fail("orders", b"x" * 300, reason="a reason that is longer than the column it has to stand in")
    code, said = holdfast.converse("dlq orders", "")
    assert code == 0
    assert max(map(len, said.splitlines())) <= 80


def test_no_dead_letters_is_said(holdfast: Terminal) -> None:
    holdfast("put orders fine")
    assert holdfast("dlq orders").out == "'orders' has no dead letters\n"
    assert holdfast("dlq orders --json").out == ""


def test_a_queue_without_dead_letters_says_so(holdfast: Terminal) -> None:
    holdfast.fail("orders", b"bad")
    for command in ("dlq orders.dead", "redrive orders.dead --all"):
        result = holdfast(command)
        assert result.code == 1
        assert result.complaint.startswith("the queue 'orders.dead' has no dead-letter queue")


def test_redrive_moves_those_that_were_named(holdfast: Terminal) -> None:
    holdfast.fail("orders", b"a", b"b", b"c")
    assert holdfast("redrive orders 0 2").out == "moved 2 messages from 'orders.dead' back into 'orders'\n"
    assert [letter["payload"] for letter in holdfast("dlq orders --json").json_lines] == ["b"]
    messages = holdfast("get orders -n 5 --json").json_lines
    assert [(each["payload"], each["attempt"]) for each in messages] == [("a", 1), ("c", 1)]
    assert messages[0]["headers"]["holdfast-redriven"] == "1"


def test_redrive_moves_all_where_nobody_can_be_asked(holdfast: Terminal) -> None:
    holdfast.fail("orders", b"a", b"b")
    expected = {"queue": "orders", "from": "orders.dead", "redriven": 2}
    assert holdfast("redrive orders --all --json").json == expected
    assert holdfast("redrive orders --all").out == "'orders' has no dead letters\n"


def test_one_unknown_id_keeps_all_from_being_moved(holdfast: Terminal) -> None:
    holdfast.fail("orders", b"a", b"b")
    result = holdfast("redrive orders 0 7 8")
    assert result.code == 1
    assert result.complaint == "'orders' has no dead letter 7, 8: see holdfast dlq orders"
    assert len(holdfast("dlq orders --json").json_lines) == 2
    assert holdfast("dlq orders 9").complaint == "'orders' has no dead letter 9: see holdfast dlq orders"


@pytest.mark.parametrize("command", ["redrive orders", "redrive orders 1 --all"])
def test_redrive_wants_to_know_which(holdfast: Terminal, command: str) -> None:
    holdfast.fail("orders", b"a")
    result = holdfast(command)
    assert result.code == 2
    assert result.complaint.startswith("pass the IDs of dead letters, or --all")


@pytest.mark.parametrize(("answer", "moved"), [("y\n", 2), ("n\n", 0), ("\n", 0), ("\x04", 0)])
def test_at_a_terminal_redrive_of_all_asks_first(holdfast: Terminal, answer: str, moved: int) -> None:
    holdfast.fail("orders", b"a", b"b")
    code, said = holdfast.converse("redrive orders --all", answer)
    assert "Move 2 dead letters from 'orders.dead' back into 'orders'? [y/N]" in said
    assert code == (0 if moved else 1)
    assert ("nothing was changed" in said) == (not moved)
    assert holdfast("stats orders --json").json["ready"] == moved


def test_at_a_terminal_yes_is_not_asked(holdfast: Terminal) -> None:
    holdfast.fail("orders", b"a")
    code, said = holdfast.converse("redrive orders --all --yes", "")
    assert (code, "[y/N]" in said) == (0, False)
