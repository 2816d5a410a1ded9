"""Can messages be put, taken, settled and looked at from afar, with nothing lost and nothing changed on the way?"""

import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import (
    Backoff,
    DeadLetter,
    Delivery,
    InvalidArgument,
    LeaseLost,
    Message,
    MessageTooLarge,
    NotFound,
    QueueFull,
    RemoteStore,
)
from holdfast.remote import Refused, RemoteQueue
from tests.web.serving import Served

NAMES = ["plain", "with/slash", "with space", "100%", "a%2Fb", "üñï-😀", "a?b#c&d=e", "..", ".", "quote\"'", "x" * 200]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A served store with queues that a program made in its folder before."""
    folder = tmp_path_factory.mktemp("queues") / "data"
    with holdfast.open(folder) as store:
        for name in ("failing", "failing2", "failing3", "settled", "deduped", "limited"):
            store.queue(name, max_attempts=1, backoff=Backoff(base=0))
        store.queue("full", max_length=2, overflow="reject")
        store.queue("brief", lease=0.2, max_attempts=None)
    with Served(folder) as one:
        yield one


def put(remote: RemoteStore, name: str, *payloads: bytes) -> RemoteQueue:
    queue = remote.queue(name)
    queue.put_many(payloads)
    return queue


def taken(queue: RemoteQueue) -> Delivery:
    found = queue.get()
    assert found is not None
    return found


@pytest.mark.parametrize("name", NAMES)
def test_a_queue_of_any_name_takes_and_gives(remote: RemoteStore, name: str) -> None:
    queue = put(remote, name, b"one", b"two")
    assert name in remote.queues()
    assert [one.payload for one in queue.peek()] == [b"one", b"two"]
    with taken(queue) as delivery:
        assert delivery.payload == b"one"
    assert remote.queue(name).stats().ready == 1
    remote.delete_queue(name)
    assert name not in remote.queues()


def test_bytes_of_every_value_and_all_that_belongs_to_a_message_come_back(remote: RemoteStore) -> None:
    queue = remote.queue("bytes")
    payload = bytes(range(256)) * 3
    headers: dict[str, str | bytes] = {"text": "ü\x00\n", "raw": b"\xff\xfe", "empty": ""}
    queue.put(payload, key=b"\x00\xff", headers=headers, priority=7)
    queue.put("täxt".encode(), key="ключ".encode())
    first, second = queue.peek()
    assert (first.payload, first.key, dict(first.headers), first.priority) == (payload, b"\x00\xff", headers, 7)
    assert (second.payload, second.key, second.headers) == ("täxt".encode(), "ключ".encode(), {})
    held = queue.lease(2)
    assert [(one.payload, one.key) for one in held] == [(one.payload, one.key) for one in (first, second)]
    assert queue.message(first.id) == first._replace(attempts=0)


def test_a_body_of_eight_megabytes_comes_back_whole(remote: RemoteStore) -> None:
    text, raw = b"a" * (8 << 20), bytes(range(256)) * (4 << 12)
    queue = put(remote, "large", text, raw)
    assert [one.payload for one in queue.peek()] == [text, raw]
    assert [one.payload for one in queue.lease(2)] == [text, raw]


def test_a_message_over_the_limit_is_refused_as_in_a_folder(remote: RemoteStore) -> None:
    queue = remote.queue("limited")
    with pytest.raises(MessageTooLarge, match="max_message"):
        queue.put(b"x" * (11 << 20))
    assert queue.stats().ready == 0


def test_a_delivery_is_acked_nacked_released_and_extended(remote: RemoteStore) -> None:
    queue = put(remote, "settled", b"ack", b"nack", b"release", b"extend")
    ack, nack, release, extend = queue.lease(4)
    assert ack.ack() and nack.nack("no good") and release.release() and extend.extend(100)
    assert not ack.ack()
    assert [one.payload for one in queue.peek()] == [b"release"]
    assert [(one.payload, one.reason) for one in queue.dead_letters()] == [(b"nack", "no good")]
    (lease,) = queue.leases()
    assert lease.count == 1 and lease.ids == (extend.id,) and lease.expires_at - time.time_ns() > 60e9


def test_an_error_inside_a_with_block_is_the_reason(remote: RemoteStore) -> None:
    queue = put(remote, "failing", b"bad")
    with pytest.raises(RuntimeError), taken(queue):
        raise RuntimeError("out of paper")
    (letter,) = queue.dead_letters()
    assert letter.reason == "RuntimeError: out of paper" and letter.queue == "failing"
    assert queue.redrive([letter.id]) == 1
    assert [one.payload for one in queue.peek()] == [b"bad"]


def test_dead_letters_are_dropped_by_id_or_all(remote: RemoteStore) -> None:
    queue = put(remote, "failing2", b"1", b"2", b"3")
    queue.nack(queue.lease(3), "no")
    assert queue.delete_dead_letters([queue.dead_letters()[1].id]) == 1
    assert [one.payload for one in queue.dead_letters()] == [b"1", b"3"]
    assert queue.delete_dead_letters() == 2 and queue.dead_letters() == []


def test_all_dead_letters_are_seen_whole_however_many_and_however_large(
    remote: RemoteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.web.api.dead_letters.LOOKED_AT", 700)
    queue = put(remote, "failing3", *[b"%d" % n for n in range(1500)], b"x" * 100_000)
    queue.nack(queue.lease(1501), "no")
    assert [one.payload for one in queue.dead_letters()] == [*(b"%d" % n for n in range(1500)), b"x" * 100_000]
    assert len(queue.dead_letters(1200)) == 1200


def test_a_lost_lease_is_told_with_its_ids(remote: RemoteStore) -> None:
    queue = put(remote, "brief", b"x")
    held = queue.lease(1)
    deadline = time.monotonic() + 180
    while not queue.peek() and time.monotonic() < deadline:
        time.sleep(0.05)
    with pytest.raises(LeaseLost) as caught:
        queue.ack(held)
    assert caught.value.ids == [held[0].id]
    with pytest.raises(LeaseLost), held[0]:
        pass


def test_one_who_waits_gets_what_is_put_meanwhile(remote: RemoteStore) -> None:
    queue = remote.queue("waited-for")
    found: list[bytes] = []

    def wait() -> None:
        delivery = queue.get(wait=timedelta(seconds=60))
        if delivery is not None:
            found.append(delivery.payload)

    thread = threading.Thread(target=wait)
    thread.start()
    time.sleep(0.2)
    queue.put(b"here")
    thread.join(30)
    assert found == [b"here"]


def test_who_waits_in_vain_gets_nothing(remote: RemoteStore) -> None:
    assert remote.queue("empty").get(wait=0.2) is None


def test_many_threads_consume_each_message_once(remote: RemoteStore) -> None:
    queue = remote.queue("shared")
    queue.put_many([b"%d" % number for number in range(200)])
    seen: list[bytes] = []
    guard, done = threading.Lock(), threading.Event()

    def work() -> None:
        for delivery in queue.consume(batch=7, stop=done):
            assert delivery.ack()
            with guard:
                seen.append(delivery.payload)
                if len(seen) == 200:
                    done.set()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join(60)
    assert sorted(seen, key=int) == [b"%d" % number for number in range(200)]
    assert queue.stats().total_acked == 200


def test_what_is_left_of_a_batch_goes_back_when_the_loop_is_left(remote: RemoteStore) -> None:
    queue = put(remote, "left", b"1", b"2", b"3")
    for delivery in queue.consume(batch=10):
        delivery.ack()
        break
    assert [one.payload for one in queue.peek()] == [b"2", b"3"]


def test_a_second_put_with_an_id_writes_nothing(remote: RemoteStore) -> None:
    queue = remote.queue("deduped")
    assert queue.put(b"x", dedup="a") == queue.put(b"y", dedup="a")
    assert queue.put_counted([Message(b"z", dedup="a")])[1] == 1
    assert [one.payload for one in queue.peek()] == [b"x"]


def test_a_delayed_message_is_listed_until_it_is_due(remote: RemoteStore) -> None:
    queue = remote.queue("delayed")
    queue.put_many([Message(b"later", delay=timedelta(hours=2)), Message(b"soon", delay=3600), b"now"])
    assert [one.payload for one in queue.delayed()] == [b"soon", b"later"]
    assert [one.payload for one in queue.delayed(1)] == [b"soon"]
    assert sum(count for _, _, count in queue.delayed_histogram(4)) == 2
    assert queue.counts().delayed == 2 and queue.waiting() == 3


def test_a_paused_queue_gives_nothing_until_it_is_resumed(remote: RemoteStore) -> None:
    queue = put(remote, "paused", b"x")
    queue.pause()
    assert queue.describe()["state"] == "paused" and queue.get() is None
    queue.resume()
    assert queue.describe()["state"] == "running" and queue.get() is not None


def test_a_queue_is_moved_after_a_look_at_what_that_means(remote: RemoteStore) -> None:
    queue = put(remote, "moved", b"0", b"1", b"2")
    queue.ack(queue.lease(2))
    seen = queue.preview(0)
    assert (seen.position, seen.delivered, seen.waiting_now, seen.dropped) == (0, 3, 1, 0)
    assert [one.payload for one in seen.sample(2)] == [b"0", b"1"]
    assert queue.counts().ready == 1  # nothing was done
    queue.seek(1)
    assert [one.payload for one in queue.peek()] == [b"1", b"2"]
    queue.seek_time(time.time_ns() + 10**12)
    assert queue.peek() == []
    with pytest.raises(InvalidArgument, match="cannot seek to 99"):
        queue.seek(99)


def test_what_waits_is_purged(remote: RemoteStore) -> None:
    assert put(remote, "purged", b"1", b"2").purge() == 2


def test_a_full_queue_refuses(remote: RemoteStore) -> None:
    queue = put(remote, "full", b"1", b"2")
    with pytest.raises(QueueFull):
        queue.put(b"3")


def test_what_is_not_there_is_not_found(remote: RemoteStore, served: Served) -> None:
    with holdfast.RemoteStore(remote.address, read_only=True) as reader, pytest.raises(NotFound, match="no queue 'no'"):
        reader.queue("no")
    assert "no" not in remote.queues()
    queue = put(remote, "gone", b"x")
    queue.delete()
    for ask in (queue.stats, queue.peek, queue.leases, lambda: queue.message(0), lambda: queue.put(b"y")):
        with pytest.raises(NotFound):
            ask()


def test_what_makes_no_sense_is_refused_before_it_is_sent(remote: RemoteStore) -> None:
    queue = remote.queue("checked")
    for ask in (
        lambda: queue.peek(0),
        lambda: queue.dead_letters(0),
        lambda: queue.put("text"),  # type: ignore[arg-type]
        lambda: queue.get(wait=-1),
        lambda: queue.lease(1, lease="long"),  # type: ignore[arg-type]
        queue.preview,
        lambda: next(queue.consume(stop=3)),  # type: ignore[arg-type]
    ):
        with pytest.raises(InvalidArgument):
            ask()


def test_a_user_may_do_what_is_permitted_and_no_more(remote: RemoteStore, served: Served) -> None:
    put(remote, "private", b"x")
    put(remote, "public", b"x")
    remote.authority.add_user("reader", "pw")
    remote.authority.permit("reader", "/", "", "", "public")
    with holdfast.connect(served.url, user="reader", password="pw") as reader:
        assert taken(reader.queue("public")).payload == b"x"
        for ask in (lambda: reader.queue("private").peek(), lambda: reader.queue("public").put(b"y")):
            with pytest.raises(Refused, match="reader"):
                ask()


def test_queues_of_another_virtual_host_are_told_apart(remote: RemoteStore, served: Served) -> None:
    remote.authority.add_vhost("shop/eu")
    remote.authority.permit("guest", "shop/eu", ".*", ".*", ".*")
    put(remote, "twice", b"here")
    with holdfast.connect(served.url, vhost="shop/eu") as other:
        put(other, "twice", b"there")
        assert other.queues() == ["twice"]
        assert [one.payload for one in other.queue("twice").peek()] == [b"there"]
    assert [one.payload for one in remote.queue("twice").peek()] == [b"here"]


def test_what_was_put_from_afar_is_there_when_the_folder_is_opened_again(folder: Path) -> None:
    with Served(folder) as served, holdfast.connect(served.url) as remote:
        put(remote, "kept", b"1", b"2")
        taken(remote.queue("kept")).ack()
    with holdfast.open(folder, read_only=True) as store:
        assert [one.payload for one in store.queue("kept").peek()] == [b"2"]


def test_a_queue_is_created_with_settings_and_the_defaults_of_an_embedded_store(
    remote: RemoteStore, tmp_path: Path
) -> None:
    chosen: dict[str, Any] = {
        "lease": timedelta(minutes=2),
        "backoff": Backoff(base=timedelta(seconds=3), cap=30),
        "ttl": None,
        "max_length": 10,
        "overflow": "reject",
        "history": 60,
    }
    with holdfast.open(tmp_path) as store:
        wanted = store.queue("chosen", **chosen).settings
    assert remote.queue("chosen", **chosen).settings == wanted
    assert remote.queue("chosen").settings == remote.queue("chosen", lease=120, max_length=10).settings == wanted
    with pytest.raises(InvalidArgument, match=r"has overflow='reject', not 'drop-head': leave the setting out"):
        remote.queue("chosen", overflow="drop-head")


def test_the_api_takes_settings_or_arguments(served: Served) -> None:
    for content, reason in (
        ({"settings": {"lease": 3}, "arguments": {"x-max-length": 3}}, "either arguments or settings"),
        ({"settings": {"leese": 3}}, "unknown field 'leese'"),
        ({"settings": {"backoff": {"base": 1, "top": 3}}}, "unknown field 'top'"),
        ({"settings": {"backoff": 3}}, "backoff must be a Backoff"),
        ({"settings": {"dead_letter": 3}}, "dead letter queue name"),
        ({"settings": [3]}, "'settings' in the body"),
    ):
        answer = served.ask("POST", "/api/holdfast/queues", {"name": "by hand", **content})
        assert (answer.status, reason in answer.json["reason"]) == (400, True), answer.body
    assert served.ask("GET", "/api/holdfast/queues/%2F/by%20hand").status == 404


def test_a_setting_of_a_queue_that_a_server_does_not_take_is_refused(remote: RemoteStore) -> None:
    for setting in ({"log": "other"}, {"compression": "zstd"}, {"leese": 3}):
        with pytest.raises(InvalidArgument, match=r"no setting .*; there are: backoff, .* with holdfast.open where"):
            remote.queue("refused", **setting)
    for wrong in (
        {"lease": 0},
        {"lease": "x"},
        {"lease": object()},
        {"overflow": "x"},
        {"dead_letter": "refused"},
        {"max_length": 0},
    ):
        with pytest.raises(InvalidArgument):
            remote.queue("refused", **wrong)
    for reserved in ("holdfast.x", "amqp-dlx:x"):
        with pytest.raises((InvalidArgument, Refused)):
            remote.queue("refused", dead_letter=reserved)
    with pytest.raises(Refused):
        remote.queue("holdfast.refused", lease=3)
    assert "refused" not in remote.queues()


def _moved(queue: RemoteQueue) -> list[DeadLetter]:
    """Return the dead letters when they have come: the server moves them in the background."""
    deadline = time.monotonic() + 60
    while not (found := queue.dead_letters()) and time.monotonic() < deadline:
        time.sleep(0.05)
    return found


def test_dead_letters_go_to_the_chosen_queue_of_the_virtual_host(served: Served, remote: RemoteStore) -> None:
    remote.authority.add_vhost("other")
    remote.authority.permit("guest", "other", ".*", ".*", ".*")
    with holdfast.connect(served.url, vhost="other") as other:
        queue = other.queue("jobs", max_attempts=1, dead_letter="jobs.failed")
        queue.put(b"bad")
        queue.nack(queue.lease(), "no")
        assert [one.payload for one in _moved(queue)] == [b"bad"]
        assert queue.settings.dead_letter == "jobs.failed"
        assert other.queue("jobs.failed").stats().ready == 1 and "jobs.failed" not in remote.queues()


def test_the_settings_of_a_queue_outlast_the_server(folder: Path) -> None:
    for _ in range(2):
        with Served(folder) as served, holdfast.connect(served.url) as remote:
            queue = remote.queue("kept", lease=7, max_attempts=5)
            assert (queue.settings.lease, queue.settings.max_attempts, queue.settings.dead_letter) == (
                7,
                5,
                "kept.dead",
            )


def test_a_dead_letter_queue_needs_the_permission_to_write_to_it(served: Served) -> None:
    served.add_user("bob", tags=("management",), permissions=("mine.*", "mine.*", "mine.*"))
    with holdfast.connect(served.url, user="bob", password="bob") as bob:
        assert bob.queue("mine", lease=3).settings.dead_letter == "mine.dead"
        with pytest.raises(Refused, match="theirs"):
            bob.queue("mine 2", dead_letter="theirs")


def test_a_revoked_lease_has_its_reason(remote: RemoteStore) -> None:
    queue = remote.queue("revoked", max_attempts=1)
    queue.put(b"x")
    queue.lease()
    assert queue.void_lease(queue.leases()[0].id, "worker 3 hangs") == 1
    assert [one.reason for one in _moved(queue)] == ["lease revoked by guest: worker 3 hangs"]


def test_leases_have_all_their_messages(remote: RemoteStore) -> None:
    queue = put(remote, "many held", *[b"x"] * 250)
    queue.lease(250)
    assert [len(one.ids) for one in queue.leases()] == [250]
