"""What a signal's handler raises while small files, checkpoints or settings are read is not taken for damage."""

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import holdfast
from holdfast import Model, Store, field
from holdfast.base import checked_json, clock
from holdfast.base.checksum import crc32c
from holdfast.queue.dedup import Dedup


class Account(Model, id=5):
    """A record of the table."""

    number: int = field(1)


@pytest.fixture
def interrupted() -> Iterator[Callable[[Any], Any]]:
    """Give a function that is interrupted before each call, by a handler that raises a ValueError."""

    def handle(signum: int, frame: FrameType | None) -> None:
        raise ValueError("soft")

    def wrap(function: Any) -> Any:
        def call(*given: Any, **named: Any) -> Any:
            signal.raise_signal(signal.SIGUSR1)
            return function(*given, **named)

        return call

    before = signal.signal(signal.SIGUSR1, handle)
    yield wrap
    signal.signal(signal.SIGUSR1, before)


def make(path: Path) -> None:
    with holdfast.open(path, background=False) as store:
        queue = store.queue("orders")
        queue.put(b"x", dedup="id")
        queue.checkpoint()
        log = store.log("clicks")
        log.append_many([b"x"] * 9)
        tailer = log.tailer("audit")
        tailer.read_many(5)
        tailer.commit()
        store.table(Account).add(Account(number=1))


SMALL_FILES: dict[str, Callable[[Store], object]] = {
    "log": lambda store: store.log("clicks"),
    "tailer": lambda store: store.log("clicks").tailer("audit").position,
    "queue": lambda store: store.queue("orders"),
    "table": lambda store: store.table(Account),
}


@pytest.mark.parametrize("what", SMALL_FILES)
def test_a_handler_that_raises_while_a_small_file_is_read_is_not_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, interrupted: Callable[[Any], Any], what: str
) -> None:
    make(tmp_path)
    with holdfast.open(tmp_path, background=False) as store:
        if what == "tailer":
            store.log("clicks")
        with monkeypatch.context() as patch, pytest.raises(ValueError, match=r"^soft$") as raised:
            patch.setattr(checked_json, "crc32c", interrupted(crc32c))
            SMALL_FILES[what](store)
        assert not isinstance(raised.value, holdfast.HoldfastError)
        assert store.log("clicks").tailer("audit").position == 5
        assert store.queue("orders").stats().ready == 1
        assert store.table(Account).count() == 1


def test_a_handler_that_raises_while_a_checkpoint_is_read_is_not_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, interrupted: Callable[[Any], Any]
) -> None:
    make(tmp_path)
    with holdfast.open(tmp_path, background=False) as store:
        with monkeypatch.context() as patch, pytest.raises(ValueError, match=r"^soft$") as raised:
            patch.setattr(Dedup, "restore", interrupted(Dedup.restore))
            store.queue("orders")
        assert not isinstance(raised.value, holdfast.HoldfastError)
        assert store.queue("orders").stats().ready == 1


def test_a_handler_that_raises_while_a_duration_is_read_is_not_a_wrong_argument(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, interrupted: Callable[[Any], Any]
) -> None:
    monkeypatch.setattr(clock, "round", interrupted(round), raising=False)
    with pytest.raises(ValueError, match=r"^soft$") as raised:
        clock.duration_ns(5, "dedup_window")
    assert not isinstance(raised.value, holdfast.HoldfastError)
