"""Versions that are given while a transaction holds its own."""

import pytest

from holdfast.base.errors import InvalidArgument
from holdfast.base.fair_lock import Ticket
from holdfast.base.hlc import Fenced, HybridLogicalClock
from holdfast.testing import SimClock
from tests.table.trouble import Running


def test_versions_given_beside_a_transaction_rise_and_lie_below_its_own_whatever_the_time(clock: SimClock) -> None:
    versions = HybridLogicalClock(clock)
    before = versions.next()
    owner = Ticket()
    fence = versions.begin_fence(owner)
    given = [versions.next() for _ in range(100)]
    clock.advance(3600)
    given += [versions.next() for _ in range(100)]
    assert sorted({before, *given, fence}) == [before, *given, fence]
    owner.over = True
    assert versions.next() > fence


def test_who_finds_no_version_below_a_transaction_waits_for_its_end(clock: SimClock) -> None:
    versions = HybridLogicalClock(clock)
    first, second = Ticket(), Ticket()
    versions.begin_fence(first)
    first.over = True
    fence = versions.begin_fence(second)  # in the same millisecond: there is the least room
    count = 0
    with pytest.raises(Fenced):
        while True:
            versions.next()
            count += 1
    assert count > 10_000
    with pytest.raises(Fenced):
        versions.admit(fence)
    with pytest.raises(InvalidArgument, match="end it first"):
        versions.wait_for_end()  # would be for ever
    waiting = Running(versions.wait_for_end)
    assert waiting.is_waiting()
    second.over = True
    waiting.result()
    assert versions.next() > fence


def test_many_transactions_do_not_move_versions_ahead_of_the_clock(clock: SimClock) -> None:
    versions = HybridLogicalClock(clock)
    for _ in range(1000):
        for _ in range(30):
            owner = Ticket()
            versions.begin_fence(owner)
            owner.over = True
        clock.advance(0.001)
    assert (versions.next() >> 20) - clock.time_ns() // 1_000_000 <= 1
