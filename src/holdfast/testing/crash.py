"""Crash-point tests: stop a scenario at every file operation, with every kind of loss, and check what survived."""

import random
from collections.abc import Callable, Iterable
from typing import Protocol, get_args

from holdfast.testing.files import Crash, CrashMode, SimFiles

__all__ = ["CRASH_MODES", "Scenario", "crash_points"]

CRASH_MODES: tuple[CrashMode, ...] = get_args(CrashMode)


class Scenario(Protocol):
    """Work that may be interrupted at any moment, and the assertions about what survives."""

    def run(self, files: SimFiles) -> None:
        """Do the work, and note what was confirmed, for `check`."""
        ...

    def check(self, files: SimFiles) -> None:
        """Open what survived and assert; called with the disk after the crash."""
        ...


def crash_points(
    scenario: Callable[[], Scenario],
    *,
    files: Callable[[int], SimFiles] = SimFiles,
    modes: Iterable[CrashMode] = CRASH_MODES,
    seeds: Iterable[int] = (0, 1),
    confirms: bool = True,
    every: int = 1,
    sample: int = 0,
) -> int:
    """Stop a fresh scenario at each operation and check it in each mode; returns how many cases there were.

    A case is an operation with a mode and a seed. Modes and seeds that leave the same disk behind at an operation are
    as many cases, of which only the first is checked: the others could not turn out differently. Work that confirms
    nothing, like opening what an earlier crash has left, owes the same after every operation: with `confirms=False` a
    disk that was checked after one operation is not checked again after another.
    With `every=n` the scenario is stopped at one of each n successive operations, chosen by the seed `sample`: a
    sweep of a long scenario takes the square of the number of its operations.
    An exception of `check` gets a note with the operation, mode and seed: with them the case can be replayed.
    """
    cases = 0
    checked: set[object] = set()
    choices = random.Random(sample)
    before = 0
    while True:
        operation = before + 1 + choices.randrange(every)
        before += every
        disk = files(operation)
        disk.crash_at(operation)
        work = scenario()
        try:
            work.run(disk)
        except Crash:
            pass
        else:
            return cases
        if confirms:
            checked.clear()
        for mode in modes:
            for seed in (0,) if mode == "dropped" else seeds:
                cases += 1
                after = disk.after_crash(mode, seed)
                held = (*after.snapshot().items(), *after.folders())
                if held in checked:
                    continue
                checked.add(held)
                try:
                    work.check(after)
                except Exception as error:
                    error.add_note(f"crash at operation {operation} ({disk.trace[-1]}), mode {mode!r}, seed {seed}")
                    raise
