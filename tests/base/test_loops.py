"""A signal at the end of a loop that runs with a lock held must not leave the lock taken.

CPython 3.12 and 3.13 compile the jump back to the start of a loop, where its body ends in an `if`, outside of the
`with` that the loop is in, and look for signals there. Such loops are in functions of their own.
"""

import dis
import sys
from collections.abc import Iterator
from pathlib import Path
from types import CodeType

import pytest

import holdfast

ROOT = Path(holdfast.__file__).parent
CORE = [
    path
    for path in sorted(ROOT.rglob("*.py"))
    if path.relative_to(ROOT).parts[0] in ("base", "log", "queue", "state", "table") or path.parent == ROOT
]
ALLOWED = {
    "Store._close": "ends the store",
    "take_backup": "its with statements hold no lock",
    "backup_table": "its with statements hold no lock",
    "ingest": "its with statements hold no lock",
    "set_aside": "its with statements hold no lock",
    "_kind_of": "its with statements hold no lock",
    "Store.queue": "an `except` that goes on: where a queue is opened anew, which was opened by another one",
    "QueueDeletion.finish": "its with statements hold no lock",
    "TableRegistry._finish_deleting": "its with statements hold no lock",
}
_SUPPRESSED = ["POP_EXCEPT", "POP_TOP", "POP_TOP"]
"""In front of a jump that is taken only where an `__exit__` suppresses an error, which that of a lock never does."""


def codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from codes(constant)


def leaves_a_with(code: CodeType) -> bool:
    """Whether a jump back to a place inside a `with` is itself outside of it."""
    read = dis.Bytecode(code)
    instructions = list(read)
    positions = {instruction.offset: number for number, instruction in enumerate(instructions)}

    def withs(offset: int) -> set[int]:
        """The handlers of the `with` statements that an instruction is in."""
        return {
            entry.target
            for entry in read.exception_entries  # type: ignore[attr-defined]
            if entry.start <= offset < entry.end
            and any(
                one.opname == "WITH_EXCEPT_START"
                for one in instructions[positions[entry.target] : positions[entry.target] + 2]
            )
        }

    for number, instruction in enumerate(instructions):
        if instruction.opname == "JUMP_BACKWARD":
            before = [one.opname for one in instructions[max(0, number - 3) : number]]
            if before != _SUPPRESSED and withs(instruction.argval) - withs(instruction.offset):
                return True
    return False


@pytest.mark.parametrize("path", CORE, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_loop_under_a_lock_looks_for_signals_outside_of_it(path: Path) -> None:
    found = {
        code.co_qualname
        for code in codes(compile(path.read_text(), str(path), "exec"))
        if leaves_a_with(code) and code.co_qualname not in ALLOWED
    }
    assert not found


def test_a_loop_that_leaves_its_lock_is_seen() -> None:
    source = "def loop(lock, items):\n with lock:\n  for item in items:\n   if item:\n    item()\n"
    loop = next(code for code in codes(compile(source, "loop", "exec")) if code.co_name == "loop")
    assert leaves_a_with(loop) == (sys.version_info[:2] in ((3, 12), (3, 13)))
