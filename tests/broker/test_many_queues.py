"""Half as many durable queues as a process may open files: what is open, what is watched, and every single message.

Ten thousand queues where twenty thousand files may be open is what a server must bear, and each queue has two logs of
three files each. Here it is a tenth of both, because to declare ten thousand takes minutes; HOLDFAST_TEST_QUEUES=10000
asks for all of them.
"""

import os
import resource
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import holdfast
from holdfast.base.files import UnsyncedFiles
from holdfast.base.open_files import OPEN_FILES
from holdfast.broker.broker import Broker
from holdfast.broker.memory_alarm import Limits, resident_bytes
from holdfast.broker.queue_dispatcher import BrokerQueue
from holdfast.broker.users import Cost
from holdfast.broker.vhost import VirtualHostRuntime

MANY = int(os.environ.get("HOLDFAST_TEST_QUEUES", "1000"))
EVERY = MANY // 40
"""A server's clock ticks ten times a second; here it does after so many calls."""
Open = Callable[..., Broker]


@pytest.fixture
def open_broker(tmp_path: Path) -> Iterator[Open]:
    """Opens a broker over the same folder, after the one before was closed.

    Its files are not synced: what is asked here is what is open and what is found again, not what a power cut leaves,
    and fsyncs would take most of the time. Nothing runs in the background: the tests do what the clock would.
    """
    OPEN_FILES.forget()
    opened: list[Broker] = []

    def close() -> None:
        if opened:
            broker = opened.pop()
            broker.close()
            broker.store.close()
            broker.transient.close()

    def again(limits: Limits | None = None) -> Broker:
        close()
        stores = [
            holdfast.open(tmp_path / name, files=UnsyncedFiles(), background=False) for name in ("data", "transient")
        ]
        broker = Broker(*stores, post=lambda call: call(), soon=lambda call: call(), limits=limits, cost=Cost(8, 1))
        opened.append(broker)
        return broker

    yield again
    close()


def declared(host: VirtualHostRuntime, name: str, **arguments: object) -> BrokerQueue:
    return host.declare_queue(
        name, durable=True, exclusive=False, auto_delete=False, arguments=arguments, passive=False, owner=None
    )


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.fixture
def most_files() -> Iterator[int]:
    """The limit of open files, made twice the number of queues for the time of a test."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 2 * MANY:
        pytest.skip(f"the process may open only {hard} files: ulimit -n {2 * MANY}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (2 * MANY, hard))
    yield 2 * MANY
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def fastest(call: Callable[[], object]) -> float:
    times = []
    for _ in range(20):
        begin = time.thread_time()  # of this thread alone, as others share the machine
        call()
        times.append(time.thread_time() - begin)
    return min(times)


@pytest.mark.slow
def test_many_durable_queues_work_with_two_thirds_of_the_files_that_a_process_may_open(
    most_files: int, open_broker: Open
) -> None:
    others = open_files()  # what other tests left open in this process is not the broker's
    limit = most_files * 2 // 3 + others
    peak = 0

    def each(broker: Broker, call: Callable[[BrokerQueue], None]) -> None:
        nonlocal peak
        for number, broker_queue in enumerate(broker.host("/").broker_queues.values()):
            call(broker_queue)
            if not number % EVERY:
                broker.tick()
                broker.memory.page_out()
                peak = max(peak, open_files())

    def put_two(broker_queue: BrokerQueue) -> None:
        broker_queue.queue.put_many([broker_queue.name.encode(), b"second"])
        broker_queue.queue.log.appender.write_out()  # as the ticker would

    def take_first(broker_queue: BrokerQueue) -> None:
        delivery = broker_queue.get()
        assert delivery is not None and delivery.payload == broker_queue.name.encode()
        broker_queue.ack({delivery.lease: [delivery.id]})

    def take_second(broker_queue: BrokerQueue) -> None:
        delivery = broker_queue.get()
        assert delivery is not None and delivery.payload == b"second"
        assert broker_queue.get() is None
        broker_queue.ack({delivery.lease: [delivery.id]})

    broker = open_broker()
    host = broker.host("/")
    before = resident_bytes()
    for n in range(MANY):
        declared(host, f"queue{n}")
    assert open_files() < limit
    assert resident_bytes() - before < MANY * (256 << 10)
    each(broker, put_two)
    each(broker, take_first)
    assert peak < limit

    broker = open_broker()
    assert open_files() - others < (limit - others) // 4  # what nobody wrote to yet has no file open
    assert len(broker.host("/").broker_queues) == MANY
    assert sum(broker_queue.ready() for broker_queue in broker.host("/").broker_queues.values()) == MANY
    each(broker, take_second)
    each(broker, put_two)
    assert peak < limit
    assert sum(broker_queue.ready() for broker_queue in broker.host("/").broker_queues.values()) == 2 * MANY
    # What idles is not walked through each time.
    for _ in range(20):
        broker.memory.page_out()
    assert fastest(broker.memory.page_out) < 3 * fastest(broker.memory.cached)


def test_queues_that_were_idle_are_looked_at_as_soon_as_they_are_written(open_broker: Open) -> None:
    broker = open_broker(Limits(bodies=1 << 20))
    all_of_them = [declared(broker.host("/"), f"queue{n}") for n in range(50)]
    for _ in range(25):
        broker.memory.page_out()
    first = all_of_them[:3]  # the others are looked at before these
    for broker_queue in first:
        broker_queue.queue.put(bytes(400_000))
        broker_queue.queue.log.appender.write_out()
    assert broker.memory.cached() > 1 << 20
    broker.memory.page_out()
    assert broker.memory.cached() < 1 << 20
    assert "paging" in {broker.memory.state(broker_queue.queue) for broker_queue in first}


def test_what_is_read_again_by_queues_that_were_idle_is_found_within_a_turn(open_broker: Open) -> None:
    broker = open_broker(Limits(bodies=1 << 20))
    first = [declared(broker.host("/"), f"queue{n}") for n in range(50)][:3]
    for broker_queue in first:
        broker_queue.queue.put_many([bytes(100_000)] * 9)
        broker_queue.queue.log.appender.write_out()
        broker_queue.queue.page_out()
    for _ in range(25):
        broker.memory.page_out()
    for broker_queue in first:
        while broker_queue.get() is not None:
            pass
    assert broker.memory.cached() > 1 << 20
    for _ in range(11):
        broker.memory.page_out()
    assert broker.memory.cached() < 1 << 20


def test_a_queue_that_is_gone_is_not_counted_any_more(open_broker: Open) -> None:
    broker = open_broker(Limits(bodies=1 << 20))
    host = broker.host("/")
    kept, gone = declared(host, "kept"), declared(host, "gone")
    for _ in range(2):
        gone.queue.put(bytes(400_000))
        gone.queue.log.appender.write_out()
        broker.memory.page_out()
    host.delete_queue("gone", None)
    kept.queue.put(bytes(400_000))
    kept.queue.log.appender.write_out()
    broker.memory.page_out()
    assert broker.memory.state(kept.queue) == "normal"


def test_of_many_queues_that_expire_each_goes_in_its_time(open_broker: Open) -> None:
    broker = open_broker()
    host = broker.host("/")
    for n in range(20):
        declared(host, f"long{n}", **{"x-expires": 3_600_000})
    broker.tick()
    declared(host, "short", **{"x-expires": 1})
    declared(host, "middle", **{"x-expires": 3000})
    time.sleep(0.01)
    broker.tick()
    assert "short" not in host.broker_queues and "middle" in host.broker_queues
    while "middle" in host.broker_queues:
        time.sleep(0.01)
        broker.tick()
    assert len(host.broker_queues) == 20
