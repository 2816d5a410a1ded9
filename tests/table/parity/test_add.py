"""The suite's cases of adding."""

from datetime import UTC, datetime, timedelta

import pytest

from holdfast import AlreadyExists
from holdfast.base.hlc import time_of
from holdfast.table import Done
from holdfast.testing import SimClock
from tests.table.parity.asking import Open
from tests.table.parity.models import Log, Simple, logs


def test_four_records_of_one_request_are_added_at_a_version_of_now(open_table: Open, clock: SimClock) -> None:
    table = open_table(Log)
    outcomes = table.add_many(logs())
    assert all(isinstance(one, Done) and one.changed and not one.given for one in outcomes)
    now = datetime.fromtimestamp(clock.time_ns() / 1e9, UTC)
    assert all(abs(time_of(one.version) - now) < timedelta(seconds=7) for one in outcomes)
    keys = [one.key for one in outcomes]
    assert len({len(key) for key in keys}) == 1
    assert [record.value for record in table.get_many(sorted(keys))] == list(reversed(logs()))


def test_a_record_is_added_under_the_key_that_is_given(open_table: Open) -> None:
    table = open_table(Simple)
    key = bytes(range(16))
    assert table.add(Simple(value="haha1"), key=key).key == key
    assert [record.value for record in table.get_many([key])] == [Simple(value="haha1")]


def test_a_record_whose_fields_make_its_key_is_added_once(open_table: Open) -> None:
    table = open_table(Log)
    key = table.add(logs()[0]).key
    with pytest.raises(AlreadyExists) as error:
        table.add(logs()[0])
    assert error.value.key == key
