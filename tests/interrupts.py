"""Signals at chosen moments: a handler that raises at the N-th place where the interpreter looks for signals.

CPython runs a signal's handler in the main thread, at the start of a function, at a backward jump and after a call of C
code (and inside C code that waits). `Interrupts` counts these places with a trace function and makes a signal pending
right before one of them, so that the interpreter itself delivers it, exactly where a real one would be delivered.
"""

import _thread
import dis
import errno
import gc
import logging
import os
import signal
import sys
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NoReturn

from holdfast.base.files import File, Mode, SystemFile, SystemFiles
from tests.base.internals import descriptor_of

__all__ = ["HANDLERS", "BlockedFiles", "Handler", "Interrupted", "Interrupts", "LimitExceeded", "handled_by"]

SIGNAL = signal.SIGALRM
_TESTS = str(Path(__file__).parent)
_CALLBACKS = {weakref.WeakSet.__init__.__code__.co_filename, weakref.WeakValueDictionary.__init__.__code__.co_filename}
_LOGGING = logging.Logger.warning.__code__.co_filename
_CHECKS = {dis.opmap[name] for name in ("CALL", "CALL_KW", "CALL_FUNCTION_EX", "JUMP_BACKWARD") if name in dis.opmap}


class Interrupted(BaseException):
    """What the handler raises, as Ctrl-C does."""


class LimitExceeded(Exception):
    """What Celery's handler for a soft time limit raises: an ordinary exception."""


Handler = Callable[[int, FrameType | None], object]


def _raise(error: BaseException) -> NoReturn:
    raise error


def _plain(signum: int, frame: FrameType | None) -> None:
    raise LimitExceeded


class _Task:
    def on_alarm(self, signum: int, frame: FrameType | None) -> None:
        self._end(TimeoutError("the task took too long"))

    def _end(self, error: BaseException) -> None:
        raise error


def _by_name(error: BaseException, signum: int, frame: FrameType | None) -> None:
    raise error


HANDLERS: dict[str, Callable[[], Handler]] = {
    "an exception": lambda: _plain,
    "a timeout": lambda: _Task().on_alarm,
    "a timeout with a number": lambda: lambda *_: _raise(TimeoutError(errno.ETIMEDOUT, "too long")),
    "what a disk would report": lambda: partial(_by_name, OSError(errno.EIO, os.strerror(errno.EIO))),
    "Ctrl-C": lambda: signal.default_int_handler,
}
"""Handlers as programs write them, by what they raise."""


class _Wire(int):
    # An attribute, not a call: after a call the interpreter would deliver the signal at once, inside the tracer.
    trip = property(_thread.interrupt_main)


_WIRE = _Wire(SIGNAL)


class Interrupts:
    """Raise from a signal handler at place number `at`, and `times - 1` times more at the very next places.

    Places in the tests' own code are not counted, and there the handler does not raise; nor in the callbacks of weak
    references, where the interpreter drops what is raised.
    """

    def __init__(self, at: int, times: int = 1, error: Callable[[], BaseException] = Interrupted) -> None:
        self.count = 0
        """Places that were passed."""
        self.where = ""
        """Where the handler has raised."""
        self._at, self._left, self._error = at, times, error
        self._offsets: dict[CodeType, frozenset[int]] = {}
        self._logs = False
        self._tracer = self._trace  # kept: the interpreter goes on using a trace function that ends itself

    @property
    def raised(self) -> bool:
        """Whether the handler has raised at all: otherwise there were fewer places than `at`."""
        return bool(self.where)

    def run(self, function: Callable[[], object]) -> None:
        """Call the function, which handles what the handler raises."""
        before = signal.signal(SIGNAL, self._handle)
        others, gc.callbacks[:] = gc.callbacks[:], []  # those of Hypothesis: what is raised in them reaches nobody
        try:
            sys.settrace(self._tracer)
            function()
        finally:
            self._left = 0
            sys.settrace(None)
            gc.callbacks[:] = others
            signal.signal(SIGNAL, before)

    def _handle(self, _: int, frame: FrameType | None) -> None:
        if self._left <= 0 or frame is None or _is_left_out(frame.f_code):
            return
        self._left -= 1
        self.where += f" {frame.f_code.co_filename.rpartition('/')[2]}:{frame.f_lineno} ({frame.f_code.co_name})"
        error = self._error()
        if self._left:
            _WIRE.trip  # noqa: B018
        raise error

    def _trace(self, frame: FrameType, event: str, _: Any) -> Callable[..., Any] | None:
        if event == "call":
            if self._logs or _is_left_out(frame.f_code):
                return None
            if frame.f_code.co_filename == _LOGGING:
                self._logs, frame.f_trace_lines = True, False
                return self._leave_logging
            frame.f_trace_opcodes, frame.f_trace_lines = True, False
        elif event != "opcode" or frame.f_lasti not in self._checks_of(frame.f_code):
            return self._tracer
        self.count += 1
        if self.count > self._at:
            sys.settrace(None)
            _WIRE.trip  # noqa: B018
            return None
        return self._tracer

    def _leave_logging(self, frame: FrameType, event: str, _: Any) -> Callable[..., Any]:
        """Count no places in `logging`: what is raised there can leave a handler's lock taken for all other tests."""
        if event == "return":
            self._logs = False
        return self._leave_logging

    def _checks_of(self, code: CodeType) -> frozenset[int]:
        found = self._offsets.get(code)
        if found is None:
            found = frozenset(2 * at for at, opcode in enumerate(code.co_code[::2]) if opcode in _CHECKS)
            self._offsets[code] = found
        return found


def _is_left_out(code: CodeType) -> bool:
    return code.co_filename.startswith(_TESTS) or code.co_filename in _CALLBACKS


class _BlockedFile(SystemFile):
    __slots__ = ("_disk",)

    def __init__(self, fd: int, disk: "BlockedFiles") -> None:
        super().__init__(fd)
        self._disk = disk

    def sync(self) -> None:
        if self._disk.blocked:
            self._disk.blocked = False
            signal.setitimer(signal.ITIMER_REAL, 0.001)
            signal.sigtimedwait([], 60)
            raise AssertionError("the handler did not raise")
        super().sync()


class BlockedFiles(SystemFiles):
    """Real files. Once `blocked` is set, the next sync of a segment lasts until the handler of an alarm raises."""

    def __init__(self) -> None:
        self.blocked = False

    def open(self, path: Path, mode: Mode) -> File:
        found = super().open(path, mode)
        if path.suffix != ".data":
            return found
        other = _BlockedFile(os.dup(descriptor_of(found)), self)
        found.close()
        return other


@contextmanager
def handled_by(handler: Handler) -> Iterator[None]:
    """Inside, an alarm is handled so."""
    before = signal.signal(SIGNAL, handler)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(SIGNAL, before)
