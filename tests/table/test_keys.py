"""Keys: UUIDv7 that rise, and keys made of fields that can be read again."""

from datetime import UTC, datetime
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

import holdfast
from holdfast.base.errors import InvalidArgument
from holdfast.table.model.fields import field
from holdfast.table.model.indexes import Reversed, TypeOf
from holdfast.table.model.keys import KeyLayout, KeySource
from holdfast.table.model.model import Model
from holdfast.testing import SimClock
from tests.table.persons import Length, Level, Log, Person, Weight, instant, person


class Measurement(Model, id=103):
    taken: datetime = field(1, final=True)
    size: Weight | Length | int = field(2, final=True)
    __key__ = (Reversed("taken"), TypeOf("size"))


class Place(Model, id=104):
    x: float = field(1, final=True)
    when: datetime = field(2, final=True)
    __key__ = ("x", Reversed("when"))


LOGS = KeyLayout(Log.__spec__)
PLACES = KeyLayout(Place.__spec__)


def log(minute: int = 0, level: Level = Level.INFO, source: str = "web") -> Log:
    return Log(at=instant(minute), level=level, source=source, message="hello")


def test_new_keys_are_uuids_of_version_7_with_the_time_of_the_clock() -> None:
    clock = SimClock()
    key = UUID(bytes=KeySource(clock).new())
    assert (key.version, key.variant) == (7, "specified in RFC 4122")
    assert key.int >> 80 == clock.time_ns() // 1_000_000


def test_new_keys_rise_also_when_the_clock_stands_still_or_goes_back() -> None:
    times = iter([5_000_000_000] * 5000 + [4_000_000_000] * 10 + [9_000_000_000])

    class Jumping:
        def time_ns(self) -> int:
            return next(times)

    source = KeySource(Jumping())
    keys = [source.new() for _ in range(5011)]
    assert keys == sorted(set(keys))
    assert int.from_bytes(keys[-1], "big") >> 80 == 9_000
    assert {UUID(bytes=key).version for key in keys} == {7}


def test_the_same_clock_and_random_bytes_give_the_same_keys() -> None:
    def run() -> list[bytes]:
        source = KeySource(SimClock(), random=lambda size: b"\x05" * size)
        return [source.new() for _ in range(3)]

    assert run() == run()


def test_tables_with_the_machines_clock_share_their_source_so_that_keys_rise_across_them() -> None:
    one, other = KeyLayout(Person.__spec__), KeyLayout(Person.__spec__)
    keys = [layout.new() for _ in range(50) for layout in (one, other)]
    assert keys == sorted(keys)


def test_a_table_without_key_fields_gives_every_object_a_key_of_its_own() -> None:
    layout = KeyLayout(Person.__spec__, SimClock())
    assert (layout.size, layout.composed) == (16, False)
    assert layout.key_of(person()) < layout.key_of(person())
    assert layout.parts(layout.new()) == {}


@given(st.datetimes(timezones=st.just(UTC)), st.sampled_from(Level), st.text())
def test_a_key_of_fields_gives_its_values_back(at: datetime, level: Level, source: str) -> None:
    key = LOGS.key_of(Log(at=at, level=level, source=source, message=""))
    assert LOGS.parts(key) == {"at": at, "level": level, "source": source}
    LOGS.check(key)


LOG_VALUES = st.builds(log, st.integers(0, 3), st.sampled_from(Level), st.text("\0\1ab", max_size=2))


@given(LOG_VALUES, LOG_VALUES)
def test_keys_sort_by_their_parts_and_none_begins_another(one: Log, other: Log) -> None:
    first, second = LOGS.key_of(one), LOGS.key_of(other)

    def rank(log: Log) -> tuple[float, int, str]:
        return (-log.at.timestamp(), log.level.value, log.source)

    assert (first < second) == (rank(one) < rank(other))
    assert first == second or not (first.startswith(second) or second.startswith(first))


def test_keys_of_parts_with_a_fixed_size_have_one() -> None:
    assert PLACES.size == 16
    assert LOGS.size is None
    assert len(PLACES.key_of(Place(x=1.5, when=instant(0)))) == 16


def test_the_type_of_a_union_can_be_in_a_key() -> None:
    layout = KeyLayout(Measurement.__spec__)
    keys = [layout.key_of(Measurement(taken=instant(0), size=size)) for size in (Length(cm=1), Weight(kg=1), 5)]
    assert [layout.parts(key)["type(size)"] for key in keys] == ["Length", "Weight", "int"]
    assert len(set(keys)) == 3


def test_keys_that_cannot_be_are_refused() -> None:
    key = LOGS.key_of(log())
    for wrong in (b"", key[:-1], key + b"\0", b"\xff" * 3, key[:-1] + b"\x01\x07\x00"):
        with pytest.raises(InvalidArgument):
            LOGS.check(wrong)
    with pytest.raises(InvalidArgument, match="16 bytes"):
        KeyLayout(Person.__spec__).check(b"short")
    with pytest.raises(InvalidArgument, match="bytes, not str"):
        LOGS.check("text")  # type: ignore[arg-type]


def test_a_key_given_with_an_object_must_be_the_one_of_its_fields() -> None:
    LOGS.check(LOGS.key_of(log()), log())
    with pytest.raises(InvalidArgument, match="not the key of this Log"):
        LOGS.check(LOGS.key_of(log(minute=1)), log())


def test_a_key_has_a_text_for_all_who_import_holdfast() -> None:
    assert holdfast.key_from_text(holdfast.text_of_key(b"\0key\xff")) == b"\0key\xff"
