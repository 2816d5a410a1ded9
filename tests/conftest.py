"""What tests share: a simulated store, and names that print the seed."""

import gc
import os
import signal
import sys
import tracemalloc
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

import holdfast
from holdfast import Store
from holdfast.testing import SimClock, SimFiles
from tests import class_archive, tiers

settings.register_profile(
    "holdfast",
    deadline=None,
    max_examples=tiers.examples(100),
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("holdfast")

# Servers that tests start in processes of their own take any ports that are free.
os.environ.update(HOLDFAST_HTTP_PORT="0", HOLDFAST_RPC_PORT="0")

# Who starts the tests in the background lets them ignore Ctrl-C or the end of the terminal, and so would every process
# that they start.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

# A Java that lives for a test is mostly busy with compiling what it runs a few times: it does so in the quick way.
if "JDK_JAVA_OPTIONS" not in os.environ:
    os.environ["JDK_JAVA_OPTIONS"] = " ".join(["-XX:TieredStopAtLevel=1 -XX:+UseSerialGC", *class_archive.options()])


def pytest_report_header() -> str:
    """Name the tier and the seed of its samples."""
    return tiers.described()


class _NoLock:
    """In place of the lock of a log handler."""

    def acquire(self) -> None: ...

    def release(self) -> None: ...

    def _at_fork_reinit(self) -> None: ...


@pytest.hookimpl(trylast=True)  # when the plugin of logging is there
def pytest_sessionstart(session: pytest.Session) -> None:
    """Take the locks from pytest's log handlers, which only append to lists and write to the null device.

    Tests interrupt the main thread anywhere. In `logging` that can leave the lock of a handler taken: then every other
    thread that logs would wait forever, also in later tests.
    """
    plugin = session.config.pluginmanager.get_plugin("logging-plugin")
    assert plugin is not None
    for handler in (plugin.caplog_handler, plugin.report_handler, plugin.log_file_handler):
        handler.lock = _NoLock()


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Let hypothesis draw a sample that its seed alone decides, except where the exhaustive tests look for new ones."""
    if not tiers.ALL and config.getoption("--hypothesis-seed") is None:
        config.option.hypothesis_seed = str(tiers.SEED)


@pytest.hookimpl(tryfirst=True)  # before `-m` selects by marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that start a JVM, a browser or a server."""
    for item in items:
        if tiers.is_heavy(item.path, getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.heavy)


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Keep the garbage collection after each test short: what is there by now need not be searched each time."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None]:
    """Charge a file or socket left open to the test that left it.

    A `ResourceWarning` comes when the garbage is collected. Without this that is the fault of whichever test runs then.
    """
    yield
    if isinstance(item, pytest.Function):
        item.funcargs.clear()  # pytest keeps them until the next test begins
    left: list[str] = []

    def note(unraisable: "sys.UnraisableHookArgs") -> None:
        opened = tracemalloc.get_object_traceback(unraisable.object) if tracemalloc.is_tracing() else None
        where = "\n".join(opened.format()) if opened else "run with python -X tracemalloc=25 to see where it was opened"
        left.append(f"{unraisable.exc_value!r} of {unraisable.object!r}: {where}")

    before, sys.unraisablehook = sys.unraisablehook, note
    try:
        gc.collect()
    finally:
        sys.unraisablehook = before
    if nextitem is None or nextitem.path != item.path:
        gc.freeze()
    if left:
        pytest.fail("this test left something behind:\n" + "\n".join(left), pytrace=False)


@pytest.fixture
def files() -> SimFiles:
    return SimFiles()


@pytest.fixture
def clock() -> SimClock:
    return SimClock()


@pytest.fixture
def reopen(files: SimFiles, clock: SimClock) -> Callable[..., Store]:
    """Open the simulated store, as often as needed."""

    def opener(*, read_only: bool = False) -> Store:
        return holdfast.open("data", files=files, clock=clock, background=False, read_only=read_only)

    return opener


@pytest.fixture
def store(reopen: Callable[..., Store]) -> Store:
    """A simulated store; not closed at the end, as a crash would not either."""
    return reopen()


@pytest.fixture
def disk_store(tmp_path: Path) -> Iterator[Store]:
    """A store on the real disk."""
    with holdfast.open(tmp_path / "data") as store:
        yield store


@pytest.fixture
def without_gc_callbacks() -> Iterator[None]:
    """Take off Hypothesis's callbacks of garbage collection: what a signal's handler raises in them reaches nobody."""
    others, gc.callbacks[:] = gc.callbacks[:], []
    yield
    gc.callbacks[:] = others
