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
        """Do the work, and record what was confirmed, for `check`."""
        ...

    def check(self, files: SimFiles) -> None:
        """Open the store on the disk after the crash, and assert that confirmed work survived."""
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
    """Stop a new scenario at each operation and check it in each mode; return how many cases there were.

    A case is an operation with a mode and a seed. If several modes and seeds give the same disk at an operation, only
    the first case is checked: the others would have the same result. Work that confirms nothing, such as opening a
    store after a crash, must satisfy the same assertions after every operation: with `confirms=False` a disk that was
    checked after one operation is not checked again after another.
    With `every=n` the scenario is stopped at one of each n successive operations, chosen by the seed `sample`: a full
    run over a long scenario takes the square of the number of its operations.
    An exception of `check` gets a note with the operation, mode and seed, to replay the case.
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
