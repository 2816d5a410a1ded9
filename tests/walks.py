"""How many calls, files and changes of file one message or record takes: `python -m tests.walks` prints the table.

A call counts if its code is in `holdfast`; a change of file is a call into another file than the call before it. Each
walk is traced after one that is not: what is only done the first time does not count.
"""

import asyncio
import inspect
import itertools
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import NamedTuple

import pika

import holdfast
from holdfast import Delivery, Model, field
from holdfast.amqp.server import Server
from holdfast.amqp.settings import Settings

__all__ = ["Walk", "embedded_walks", "table", "walks"]

_SOURCE = str(Path(holdfast.__file__).parent) + "/"
_READS = {"get_buffer", "buffer_updated", "data_received"}


class Walk(NamedTuple):
    """One step of a message or record through the code."""

    name: str
    calls: int
    files: int
    changes: int


class _Call(NamedTuple):
    """A call, and the name of the function that asyncio or the program called first."""

    file: str
    root: str


class _Recorder:
    """Records the calls of the thread that starts it, while `active`."""

    def __init__(self) -> None:
        self.calls: list[_Call] = []
        self.active = False
        self._root = ""
        self._by_clock = False
        """Whether asyncio called a coroutine: the server's clock, which ticks when it likes."""

    def __enter__(self) -> "_Recorder":
        sys.setprofile(self._note)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _note(self, frame: FrameType, event: str, _: object) -> None:
        if event != "call" or not frame.f_code.co_filename.startswith(_SOURCE):
            return
        if frame.f_back is None or not frame.f_back.f_code.co_filename.startswith(_SOURCE):
            self._root = frame.f_code.co_name
            self._by_clock = bool(frame.f_code.co_flags & inspect.CO_COROUTINE)
        if self.active and not self._by_clock:
            self.calls.append(_Call(frame.f_code.co_filename.removeprefix(_SOURCE), self._root))

    def walk(self, name: str, wanted: Callable[[_Call], bool] = lambda call: True) -> Walk:
        """Return the calls so far as one walk."""
        files = [call.file for call in self.calls if wanted(call)]
        changes = sum(one != other for one, other in itertools.pairwise(files))
        return Walk(name, len(files), len(set(files)), changes)


def _traced(name: str, work: Callable[[], object]) -> Walk:
    with _Recorder() as recorder:
        recorder.active = True
        work()
        recorder.active = False
    return recorder.walk(name)


class _Account(Model, id=1):
    owner: str = field(1)


def embedded_walks(folder: Path) -> list[Walk]:
    """Trace the walks of a queue and of a table in this process."""
    found = []
    with holdfast.open(folder, background=False) as store:
        queue = store.queue("jobs")
        for _ in range(2):
            found = [_traced("put", lambda: queue.put(b"job"))]
            held: list[Delivery | None] = []
            found.append(_traced("get", lambda held=held: held.append(queue.get(lease=60))))  # type: ignore[misc]
            assert held[0] is not None
            found.append(_traced("ack", held[0].ack))
        accounts = store.table(_Account)
        for name in ("Ada", "Bob"):
            record = _Account(owner=name)
            added = _traced("table.add", lambda record=record: accounts.add(record))  # type: ignore[misc]
    return [*found, added]


def _client(port: int, recorder: _Recorder, found: list[Walk], failures: list[BaseException]) -> None:
    try:
        parameters = pika.ConnectionParameters(port=port)
        with pika.BlockingConnection(parameters) as one, pika.BlockingConnection(parameters) as other:
            publisher, consumer = one.channel(), other.channel()
            publisher.confirm_delivery()
            publisher.queue_declare("jobs", durable=True)
            deliveries = consumer.consume("jobs", inactivity_timeout=0.05)
            while next(deliveries)[0] is not None:
                pass
            for _ in range(3):
                recorder.calls.clear()
                recorder.active = True
                publisher.basic_publish("", "jobs", b"job", pika.BasicProperties(delivery_mode=2), mandatory=True)
                method = None
                while method is None:
                    method = next(deliveries)[0]
                while next(deliveries)[0] is not None:
                    pass
                recorder.active = False
                found[:] = [
                    recorder.walk("publish", lambda call: call.root in _READS),
                    recorder.walk("confirm and deliver", lambda call: call.root not in _READS),
                ]
                recorder.calls.clear()
                recorder.active = True
                consumer.basic_ack(method.delivery_tag)
                while next(deliveries)[0] is not None:
                    pass
                recorder.active = False
                found.append(recorder.walk("AMQP ack"))
            consumer.cancel()
    except BaseException as error:  # shown by the thread that waits for this one
        failures.append(error)


def _served(folder: Path) -> list[Walk]:
    found: list[Walk] = []
    failures: list[BaseException] = []

    async def serve(store: holdfast.Store) -> None:
        server = Server(store, Settings(amqp_port=0, http_port=0, rpc_port=None))
        await server.start()
        with _Recorder() as recorder:
            client = threading.Thread(target=_client, args=(server.addresses[0][1], recorder, found, failures))
            client.start()
            await asyncio.get_running_loop().run_in_executor(None, client.join)
        await server.stop()

    with holdfast.open(folder) as store:
        asyncio.run(serve(store))
    if failures:
        raise failures[0]
    return found


def walks() -> list[Walk]:
    """Trace every walk."""
    with tempfile.TemporaryDirectory() as folder:
        return [*embedded_walks(Path(folder) / "embedded"), *_served(Path(folder) / "served")]


def table(found: list[Walk]) -> str:
    """Return the walks as a table in Markdown."""
    rows = [f"| {one.name} | {one.calls} | {one.files} | {one.changes} |" for one in found]
    return "\n".join(["| step | calls | files | changes of file |", "|---|---|---|---|", *rows])


if __name__ == "__main__":
    print(table(walks()))
