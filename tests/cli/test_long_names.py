"""Tables with very long names: each name takes one line of a terminal, and no row is longer for it."""

import re

import pytest

from holdfast.cli.output import abbreviate
from tests.cli.terminal import Terminal

LONG = "very-long-queue-name-" * 9 + "last-part-x"
WIDTH = 80


@pytest.fixture
def filled(holdfast: Terminal) -> Terminal:
    """A store with a queue of a short name and one of 200 characters."""
    assert len(LONG) == 200
    for name in ("orders", LONG):
        assert holdfast(f"put {name} hello").code == 0
    return holdfast


@pytest.mark.parametrize("command", ["queues", "log list", "log verify"])
def test_at_a_terminal_a_long_name_is_abbreviated_in_the_middle(filled: Terminal, command: str) -> None:
    lines = filled(command, width=WIDTH).lines
    header, rule, orders, long, *_ = lines
    assert max(map(len, lines)) <= WIDTH
    assert header.split()[0] in ("queue", "log") and set(rule) == {"─"}
    assert orders.startswith("orders ")
    assert re.fullmatch(r"very-long-\S*…\S*-part-x", long.split()[0])


def test_the_full_name_is_in_json(filled: Terminal) -> None:
    assert LONG in [one["name"] for one in filled("queues --json", width=WIDTH).json["queues"]]


@pytest.mark.parametrize("command", ["queues", "log list", "log verify"])
def test_in_a_pipe_a_long_name_is_whole_and_makes_only_its_own_row_longer(filled: Terminal, command: str) -> None:
    header, orders, long, *_ = filled(command).lines
    assert long.startswith(f"{LONG}  ")
    assert len(header) < 120 and len(orders) < 120


def test_the_frame_of_stats_has_both_ends_of_the_name(filled: Terminal) -> None:
    title = filled(f"stats {LONG}", width=WIDTH).lines[0]
    assert len(title) == WIDTH
    assert "very-long-queue" in title and "last-part-x" in title


def test_a_long_name_of_a_tailer_and_of_a_user_are_abbreviated(holdfast: Terminal) -> None:
    holdfast.fill("orders", 1)
    assert holdfast(f"log tail orders --name {LONG}").code == 0
    assert holdfast(f"user add {LONG} --no-password").code == 0
    for command in ("log tailers orders", "user list"):
        lines = holdfast(command, width=WIDTH).lines
        assert max(map(len, lines)) <= WIDTH
        assert sum("…" in line for line in lines) == 1


@pytest.mark.parametrize(
    ("text", "width", "expected"),
    [
        ("orders", 6, "orders"),
        ("abcdefghij", 9, "abcd…ghij"),
        ("abcdefghij", 6, "abc…ij"),
        ("abcdefghij", 2, "a…"),
        ("abcdefghij", 1, "…"),
        ("日本語日本語", 8, "日本…語"),
    ],
)
def test_an_abbreviation_keeps_the_beginning_and_the_end(text: str, width: int, expected: str) -> None:
    assert abbreviate(text, width) == expected
