"""Does a queue stay fast, quick to open and small when millions of messages wait in it?"""

import os
import shutil
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import holdfast
from benchmarks.harness import Line, Workshop, measure_pairs, timed
from benchmarks.queue_child import QUEUE, crash_while_filling, in_child
from holdfast import Flush, Queue

__all__ = ["make_backlog", "measure_backlog", "measure_open_queue", "measure_queue_memory"]

_BATCH = 100
_SHORT = "short"
_WINDOW = 2_000
"""Messages taken between two looks at the clock: as many as a queue keeps at hand, so that none is met again."""
_FEW = 5_000
_TINY = 2_000


def make_backlog(workshop: Workshop, count: int, kind: str = "plain") -> Path:
    """A store with a queue in which so many messages are ready, closed cleanly."""
    store = workshop.place()
    found = in_child("fill", store, count, kind)
    assert found["ready"] == count
    return store


def measure_backlog(stores: dict[str, Path], count: int, rounds: int, windows: int) -> list[Line]:
    """Taking and acking with millions ready, against five thousand: plain messages, then those of mixed priorities."""
    against = f"{_short(count)} ready against {_short(_FEW)}"
    plain = [
        Line("backlog_lease", f"lease({_BATCH}) and ack, {against}", "at most", 1.3),
        Line("backlog_get", f"get and ack, {against}", "at most", 1.3),
    ]
    mixed = [
        Line("backlog_lease_mixed", f"  lease({_BATCH}) and ack, random priorities 0-9", "at most"),
        Line("backlog_get_mixed", "  get and ack, random priorities 0-9", "at most"),
    ]
    _measure_backlog(stores["plain"], count, rounds, windows, plain)
    _measure_backlog(stores["mixed"], count, rounds, windows, mixed)
    return plain + mixed


def _measure_backlog(store: Path, count: int, rounds: int, windows: int, lines: list[Line]) -> None:
    """Both queues are views of the same log, so that bodies come from the same files in the page cache.

    The large one stands at its beginning, the small one near its end. What is ready there is 7,000 before, and 3,000
    after, two windows; then it is set back, to messages that have left its pages since. A sample is some windows.
    """
    works: Sequence[Callable[[Queue], None]] = (_take_batches, _take_singles)
    with holdfast.open(store) as hf:
        large = hf.queue(QUEUE, flush=Flush.async_())
        small = hf.queue(_SHORT, log=QUEUE)
        end = large.log.end
        small.seek(end)
        turns = 0

        def sample_small(work: Callable[[Queue], None]) -> float:
            nonlocal turns
            seconds = 0.0
            for _ in range(windows):
                if turns % 2 == 0:
                    small.seek(end - _FEW - _WINDOW)
                turns += 1
                assert 0 <= small.waiting() - _FEW <= _WINDOW
                seconds += timed(partial(work, small))
            return seconds / (windows * _WINDOW)

        def sample_large(work: Callable[[Queue], None]) -> float:
            assert large.waiting() > 0.7 * count
            return sum(timed(partial(work, large)) for _ in range(windows)) / (windows * _WINDOW)

        for line, work in zip(lines, works, strict=True):
            measure_pairs(line, partial(sample_small, work), partial(sample_large, work), rounds)


def measure_open_queue(workshop: Workshop, stores: dict[str, Path], count: int, rounds: int) -> list[Line]:
    """From nothing to the first lease in a fresh process: after a clean close, after SIGKILL, without `state/`."""
    lines: list[Line] = []
    for kind, clean in stores.items():
        if kind == "plain":
            first, indent, clean_s, killed_s = f"open {_short(count)} ready and lease", "  ", 1.0, 5.0
        else:
            first, indent, clean_s, killed_s = "  with random priorities 0-9", "    ", None, None
        opened = Line(f"open_clean_{kind}", f"{first}, after a clean close", "at most", clean_s, "s")
        killed = Line(f"open_killed_{kind}", f"{indent}after SIGKILL of who put and worked", "at most", killed_s, "s")
        without = Line(f"open_stateless_{kind}", f"{indent}with state/ deleted", "at most", None, "s")
        for _ in range(rounds):
            _add_opening(opened, clean, count)
        crashed = workshop.place()
        crash_while_filling(crashed, count, kind)
        for line, source, stateless in ((killed, crashed, False), (without, clean, True)):
            for _ in range(max(1, rounds // 2)):
                with workshop.borrowed() as copy:
                    shutil.copytree(source, copy)
                    if stateless:
                        shutil.rmtree(copy / "state")
                    os.sync()  # else the first fsync of the opening would wait for the copy to reach the disk
                    _add_opening(line, copy, count)
        shutil.rmtree(crashed)
        lines += [opened, killed, without]
    return lines


def measure_queue_memory(workshop: Workshop, stores: dict[str, Path], count: int) -> list[Line]:
    """Private memory of a process with so many ready beyond that of one with an all but empty queue, a message."""
    empty = in_child("weigh", make_backlog(workshop, _TINY))
    lines: list[Line] = []
    for kind, store in stores.items():
        full = in_child("weigh", store)
        what = "of one priority" if kind == "plain" else "of random priorities 0-9"
        measured = {f"full_{name}": value for name, value in full.items()}
        measured |= {f"empty_{name}": value for name, value in empty.items()}
        own, private = ((full[name] - empty[name]) / full["ready"] for name in ("own_bytes", "private_bytes"))
        lines += [
            Line(
                f"memory_{kind}",
                f"private memory a message, {_short(count)} ready {what}",
                "at most",
                16.0,
                "B",
                rounds=[measured],
                values=[own],
            ),
            Line(
                f"memory_{kind}_mapped",
                "  the same with the mapped segment's pages",
                "at most",
                None,
                "B",
                rounds=[measured],
                values=[private],
            ),
        ]
    return lines


def _take_batches(queue: Queue) -> None:
    for _ in range(_WINDOW // _BATCH):
        deliveries = queue.lease(_BATCH)
        queue.ack(deliveries)
    assert len(deliveries) == _BATCH


def _take_singles(queue: Queue) -> None:
    for _ in range(_WINDOW):
        delivery = queue.get()
        assert delivery is not None
        delivery.ack()


def _add_opening(line: Line, store: Path, count: int) -> None:
    found = in_child("open", store)
    # After SIGKILL a few more or less: under `async` the last 20 ms of puts and of leases are lost.
    assert abs(count - found["ready"]) < 0.05 * count, f"{found['ready']} of {count} are ready"
    line.rounds.append(found)
    line.values.append(found["whole_s"])


def _short(count: int) -> str:
    return f"{count / 1e6:g} M" if count >= 1e6 else f"{count / 1e3:g} k"
