"""The locks of the product: where the source creates them, what docs/locking.md says of them, and who takes which.

`created` reads the source. `documented` reads the tables of the page. `Recorder` replaces the locks of the product with
wrappers, and reports each thread that waits for a lock while it holds one of the same or a lower level.
"""

import ast
import re
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import pytest

import holdfast
from holdfast.base.fair_lock import FairLock, Ticket
from tests.base.internals import lock_of

__all__ = ["PAGE", "Created", "Page", "Recorder", "Violation", "created", "documented", "functions"]

SRC = Path(holdfast.__file__).parent
PAGE = SRC.parent.parent / "docs" / "locking.md"
_OF_MODULES = {
    "threading": ("Lock", "RLock", "Condition", "Semaphore", "BoundedSemaphore", "Barrier"),
    "asyncio": ("Lock", "Condition", "Semaphore", "BoundedSemaphore"),
    "anyio": ("Lock", "Condition", "Semaphore", "CapacityLimiter"),
    "holdfast.base.critical_section": ("Condition", "CriticalSection"),
    "holdfast.base.fair_lock": ("FairLock",),
}
"""By module, what creates a lock."""
_HINT = re.compile(
    r"\b(?:R?Lock|Condition|\w*Semaphore|Barrier|CapacityLimiter|CriticalSection|FairLock|flock|files\.lock)\b"
)
"""What the text of a module has that may create one."""


class Created(NamedTuple):
    """A lock that the source creates."""

    module: str
    """Its path in the package."""
    name: str
    """The attribute with its class, a name of the module, or a function with the name of a local variable in it."""
    kind: str
    """What creates it, from the outside in: `FairLock(Condition(RLock))`; `flock` for the lock of a file."""
    line: int

    @property
    def place(self) -> tuple[str, str]:
        """Where the page lists it."""
        return self.module, self.name


# The source


@cache
def created() -> list[Created]:
    """Return every lock that the source creates, and every function that locks a file."""
    found: list[Created] = []
    for path in sorted(SRC.rglob("*.py")):
        text = path.read_text()
        if not _HINT.search(text):
            continue
        tree = ast.parse(text)
        visitor = _Visitor(path.relative_to(SRC).as_posix(), _names_in(tree))
        visitor.visit(tree)
        found += visitor.found
    return found


def functions() -> set[str]:
    """Return all functions of the source, and all methods with their classes."""
    found: set[str] = set()
    for path in SRC.rglob("*.py"):
        for node in ast.parse(path.read_text()).body:
            within = [node] if isinstance(node, ast.FunctionDef) else getattr(node, "body", ())
            prefix = f"{node.name}." if isinstance(node, ast.ClassDef) else ""
            found |= {prefix + one.name for one in within if isinstance(one, ast.FunctionDef)}
    return found


def _names_in(tree: ast.Module) -> dict[str, str]:
    """Return by text of a call, such as `threading.Lock`, the name of the class that it creates."""
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                for kind in _OF_MODULES.get(alias.name, ()):
                    names[f"{alias.asname or alias.name}.{kind}"] = kind
        elif isinstance(node, ast.ImportFrom):
            kinds = _OF_MODULES.get(node.module or "", ())
            names.update({alias.asname or alias.name: alias.name for alias in node.names if alias.name in kinds})
    return names


class _Visitor(ast.NodeVisitor):
    def __init__(self, module: str, names: dict[str, str]) -> None:
        self.found: list[Created] = []
        self._module = module
        self._names = names
        self._within: list[str] = []
        self._targets: list[tuple[ast.expr, ast.expr]] = []

    def _visit_scope(self, node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self._within.append(node.name)
        self.generic_visit(node)
        self._within.pop()

    visit_ClassDef = visit_FunctionDef = visit_AsyncFunctionDef = _visit_scope

    def visit_Assign(self, node: ast.Assign) -> None:
        self._visit_assigned(node.targets[0], node.value)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self._visit_assigned(node.target, node.value)

    def _visit_assigned(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
            for one, other in zip(target.elts, value.elts, strict=True):
                self._visit_assigned(one, other)
            return
        self._targets.append((target, value))
        self.visit(value)
        self._targets.pop()

    def visit_Call(self, node: ast.Call) -> None:
        kind = self._kind(node)
        if kind is None:
            if ast.unparse(node.func) == "fcntl.flock":
                self.found.append(Created(self._module, ".".join(self._within), "flock", node.lineno))
            self.generic_visit(node)
            return
        self.found.append(Created(self._module, self._name(node), kind, node.lineno))

    def visit_Attribute(self, node: ast.Attribute) -> None:
        # Not only calls: what takes the lock of a store is handed to C code.
        if node.attr == "lock" and ast.unparse(node.value).rpartition(".")[2] in ("files", "_files"):
            self.found.append(Created(self._module, ".".join(self._within), "flock", node.lineno))
        self.generic_visit(node)

    def _kind(self, node: ast.expr) -> str | None:
        kind = self._names.get(ast.unparse(node.func)) if isinstance(node, ast.Call) else None
        if kind is None or not isinstance(node, ast.Call):
            return None
        inner = next((found for argument in node.args if (found := self._kind(argument))), None)
        return kind if inner is None else f"{kind}({inner})"

    def _name(self, node: ast.Call) -> str:
        scope = ".".join(self._within)
        target = self._targets[-1][0] if self._targets and self._targets[-1][1] is node else None
        match target:
            case ast.Attribute(value=ast.Name(id="self"), attr=attr):
                return f"{self._within[0]}.{attr}"
            case ast.Name(id=name):
                return f"{scope}.{name}" if scope and name not in self._globals() else name
        return scope

    def _globals(self) -> set[str]:
        return {one.name for one in self.found if "." not in one.name}


# The page


class Page(NamedTuple):
    """What docs/locking.md says."""

    levels: dict[str, int]
    """By lock: the higher, the earlier it is taken."""
    places: set[tuple[str, str]]
    """Module and name of each lock, condition, section and file lock, with a level or without."""
    exceptions: set[tuple[str, str, str]]
    """Held, taken, and the function in which that is allowed."""


def documented(text: str) -> Page:
    """Read the tables of the page: by their first column, what is in them."""
    levels: dict[str, int] = {}
    places: set[tuple[str, str]] = set()
    exceptions: set[tuple[str, str, str]] = set()
    for head, *rows in _tables(text):
        for row in rows:
            cells = [cell.replace("`", "") for cell in row]
            if head[0] == "Level":
                lock, _, module = cells[1].partition("<br>")
                assert lock not in levels, f"{lock} is listed twice"
                levels[lock] = int(cells[0])
                if not lock.startswith("claim of "):
                    places.add((module, lock))
            elif head[:2] == ["Held", "Taken"]:
                exceptions.add((cells[0], cells[1], cells[2]))
            elif head[1] == "Module":
                places.add((cells[1], cells[0]))
    assert len(set(levels.values())) == len(levels), "two locks have one level"
    assert list(levels.values()) == sorted(levels.values(), reverse=True), "the table goes from the highest level down"
    return Page(levels, places, exceptions)


def _tables(text: str) -> Iterator[list[list[str]]]:
    for found in re.finditer(r"(?:^\|.*\n)+", text, re.MULTILINE):
        lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in found[0].splitlines()]
        yield [lines[0], *lines[2:]]


# Who takes which


class Violation(NamedTuple):
    """A thread that waited for a lock while it held one which must be taken after it."""

    held: str
    taken: str
    thread: str
    stack: str

    def __str__(self) -> str:
        return f"{self.thread} waited for {self.taken} with {self.held} held:\n{self.stack}"


class Recorder:
    """Wraps the locks that the product creates, and notes in which order each thread takes them.

    A call that does not wait (`acquire(False)`) may take any lock. A lock that is held already, and may be taken
    again, is not looked at.
    """

    def __init__(self, page: Page) -> None:
        self._page = page
        self._lines = _by_line(created())
        self._held: dict[int, list[_Recorded]] = {}
        self._claims: dict[int, list[_Claim]] = {}
        self.pairs: dict[tuple[str, str], str] = {}
        """Which locks were waited for with which held, and the stack of the first time."""
        self.violations: list[Violation] = []

    def install(self, patch: pytest.MonkeyPatch) -> None:
        """Record the locks that are created from now on, and those of modules and of their objects."""
        patch.setattr(threading, "Lock", self._maker(threading.Lock))
        patch.setattr(threading, "RLock", self._maker(threading.RLock))
        self._wrap_globals(patch)
        claim, enter = FairLock.claim, FairLock.enter

        def claimed(lock: FairLock, ticket: Ticket) -> None:
            if not lock.mine:
                self._note_claim(lock, ticket)
            claim(lock, ticket)

        def entered(lock: FairLock) -> None:
            if lock.line and not lock.mine:
                self._check_claim(_owner(lock), mine=lock)
            enter(lock)

        patch.setattr(FairLock, "claim", claimed)
        patch.setattr(FairLock, "enter", entered)

    def _wrap_globals(self, patch: pytest.MonkeyPatch) -> None:
        kinds = (type(threading.Lock.__wrapped__()), type(threading.RLock.__wrapped__()))  # type: ignore[attr-defined]
        for module in [one for name, one in sys.modules.items() if name.partition(".")[0] == "holdfast"]:
            for name, value in list(vars(module).items()):
                if isinstance(value, kinds) and name in self._page.levels:
                    patch.setattr(module, name, _Recorded(value, name, self))
                elif type(value).__module__ == module.__name__ and hasattr(value, "__dict__"):
                    for attribute, inner in list(vars(value).items()):
                        lock = f"{type(value).__name__}.{attribute}"
                        if isinstance(inner, kinds) and lock in self._page.levels:
                            patch.setattr(value, attribute, _Recorded(inner, lock, self))

    def _maker(self, make: Callable[[], Any]) -> Callable[[], Any]:
        def made() -> Any:
            frame: FrameType | None = sys._getframe(1)
            while frame is not None and frame.f_code.co_filename == threading.__file__:
                frame = frame.f_back
            name = None if frame is None else self._lines.get((frame.f_code.co_filename, frame.f_lineno))
            return make() if name is None or name not in self._page.levels else _Recorded(make(), name, self)

        made.__wrapped__ = make  # type: ignore[attr-defined]
        return made

    # Called by the wrappers.

    def wanted(self, lock: "_Recorded") -> None:
        """Note that this thread is about to wait for a lock, if that is taken."""
        mine = self._held.setdefault(threading.get_ident(), [])
        if lock not in mine:
            self._check(lock.name, [one.name for one in mine])

    def taken(self, lock: "_Recorded") -> None:
        """Note that this thread has a lock."""
        self._held.setdefault(threading.get_ident(), []).append(lock)

    def released(self, lock: "_Recorded", times: int = 1) -> None:
        """Note that it has let go of it."""
        mine = self._held.get(threading.get_ident(), [])
        for _ in range(times):
            if lock in mine:
                mine.reverse()
                mine.remove(lock)
                mine.reverse()

    def depth(self, lock: "_Recorded") -> int:
        """Return how often this thread has a lock."""
        return self._held.get(threading.get_ident(), []).count(lock)

    # Claims last from one call to another, and end with their tickets.

    def _note_claim(self, lock: FairLock, ticket: Ticket) -> None:
        owner = _owner(lock)
        mine = self._claims.setdefault(threading.get_ident(), [])
        mine[:] = [one for one in mine if not one.ticket.ended]
        of_transaction = any(one.ticket is ticket for one in mine)
        name = f"claim of {owner} by a transaction" if of_transaction else f"claim of {owner}"
        self._check_claim(owner, name)
        mine.append(_Claim(name, ticket))

    def _check_claim(self, owner: str, name: str = "", mine: FairLock | None = None) -> None:
        # Who waits at the turnstile with its lock held releases that meanwhile.
        free: object = None if mine is None else lock_of(mine)
        held = [one.name for one in self._held.get(threading.get_ident(), []) if one is not free]
        self._check(name or f"claim of {owner}", held)

    def _check(self, taken: str, held: list[str]) -> None:
        claims = self._claims.get(threading.get_ident(), [])
        held = [*(one.name for one in claims if not one.ticket.ended), *held]
        for one in dict.fromkeys(held):
            if (one, taken) not in self.pairs:
                self.pairs[one, taken] = "".join(traceback.format_stack(limit=30)[:-3])
            if self._page.levels[one] <= self._page.levels[taken] and not self._is_allowed(one, taken):
                stack = "".join(traceback.format_stack(limit=30)[:-3])
                self.violations.append(Violation(one, taken, threading.current_thread().name, stack))

    def _is_allowed(self, held: str, taken: str) -> bool:
        where = {function for one, other, function in self._page.exceptions if (one, other) == (held, taken)}
        frame: FrameType | None = sys._getframe(1)
        while where and frame is not None:
            if frame.f_code.co_qualname in where:
                return True
            frame = frame.f_back
        return False


def _by_line(locks: list[Created]) -> dict[tuple[str, int], str]:
    """Return the names by file and line, except where a line creates several: after a fork."""
    names: dict[tuple[str, int], set[str]] = {}
    for one in locks:
        names.setdefault((str(SRC / one.module), one.line), set()).add(one.name)
    return {place: found.pop() for place, found in names.items() if len(found) == 1}


def _owner(lock: FairLock) -> str:
    name: str = getattr(lock_of(lock), "name", "")
    return name if name.endswith("._turnstile") else f"{name.partition('.')[0]}._turnstile"


class _Claim(NamedTuple):
    name: str
    ticket: Ticket


class _Recorded:
    """A lock, with the methods that the product calls."""

    def __init__(self, lock: Any, name: str, recorder: Recorder) -> None:
        self.name = name
        self._lock = lock
        self._recorder = recorder

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        if blocking:
            self._recorder.wanted(self)
        got: bool = self._lock.acquire(blocking, timeout)
        if got:
            self._recorder.taken(self)
        return got

    def release(self) -> None:
        self._lock.release()
        self._recorder.released(self)

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *error: object) -> None:
        self.release()

    def locked(self) -> bool:
        return bool(self._lock.locked())

    def _is_owned(self) -> bool:
        return bool(self._lock._is_owned())

    def _release_save(self) -> tuple[Any, int]:
        depth = self._recorder.depth(self)
        saved = self._lock._release_save()
        self._recorder.released(self, depth)
        return saved, depth

    def _acquire_restore(self, saved: tuple[Any, int]) -> None:
        self._recorder.wanted(self)
        self._lock._acquire_restore(saved[0])
        for _ in range(saved[1]):
            self._recorder.taken(self)
