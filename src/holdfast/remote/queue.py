"""Remote queues: put, lease, settle and inspect with the interface of `holdfast.Queue`."""

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from holdfast.base.clock import NS, Duration, Instant
from holdfast.base.errors import InvalidArgument, LeaseLost, NotFound
from holdfast.base.json_payload import bytes_of
from holdfast.log import Headers, Message
from holdfast.queue import (
    Counts,
    DeadLetter,
    Delayed,
    Delivery,
    LeaseInfo,
    PeekedMessage,
    Preview,
    QueueSettings,
    QueueStats,
)
from holdfast.queue.messages import listed, make_delivery
from holdfast.queue.settings import from_json
from holdfast.remote.codec import (
    headers_from,
    letter_from,
    made,
    message_json,
    seconds,
    time_text,
    waiting_from,
)
from holdfast.remote.http_client import HttpClient, path_of
from holdfast.remote.log import RemoteLog
from holdfast.remote.settlement import RemoteSettlement

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["RemoteQueue"]

_WAIT_S = 50.0
"""The longest that one request waits for a message; a longer wait is several requests."""
_WHOLE = 1 << 40
"""Most bytes of a payload in a response: in effect no limit."""
_LEASED_MAX = 10_000
"""Most messages of one request."""
_LEASES_MAX = 100_000
_VOID = "the lease was void"
_AT_ONCE = 1000
"""Dead letters that are asked for at a time."""

Stop = threading.Event | Callable[[], bool]


class RemoteQueue:
    """A queue that a server keeps; made by `RemoteStore.queue`. All methods may be called from any thread."""

    def __init__(self, wire: HttpClient, vhost: str, name: str) -> None:
        self.name = name
        self.vhost = vhost
        self._wire = wire
        self._path = path_of("queues", vhost, name)
        self.settler = RemoteSettlement(wire, self._path)
        """What a `Delivery` calls."""
        self._known: Mapping[str, Any] | None = None

    # Description.

    def describe(self) -> dict[str, Any]:
        """Return everything that the server reports about it, as JSON."""
        self._known = answer = self._wire.get(self._path)
        return dict(answer)

    @property
    def settings(self) -> QueueSettings:
        """The settings of the queue, as of the last `describe`."""
        return QueueSettings.of(self.name, from_json(dict(self._facts()["settings"])))

    @property
    def log(self) -> RemoteLog:
        """The log that holds its messages."""
        return RemoteLog(self._wire, self._facts()["log"])

    @property
    def paused(self) -> bool:
        """Whether deliveries are paused."""
        return bool(self.describe()["paused"])

    @property
    def put_total(self) -> int:
        """How many messages were ever put into its log, as of the last `describe` or `stats`."""
        return int(self._facts()["put_total"])

    def stats(self) -> QueueStats:
        """Return counts, ages and rates."""
        return made(QueueStats, self.describe()["stats"], name=self.name)

    def waiting(self) -> int:
        """Return how many messages are ready or delayed."""
        figures = self.stats()
        return figures.ready + figures.delayed

    # Putting.

    def put(
        self,
        payload: bytes,
        key: bytes | None = None,
        headers: Headers | None = None,
        delay: Duration | None = None,
        priority: int = 0,
        ttl: Duration | None = None,
        dedup: str | bytes | None = None,
    ) -> int:
        """Add a message and return its id; durable when this returns.

        After a lost connection it is retried only with a `dedup` id; without one, `OutcomeUnknown` is raised.
        """
        return self.put_many([Message(payload, key, headers, delay, priority, ttl, dedup)])[0]

    def put_many(self, messages: Iterable[bytes | Message]) -> Sequence[int]:
        """Add messages in one write and return their ids; durable when this returns.

        The server adds all of them or none. After `OutcomeUnknown` it is not known which. The request is retried after
        a lost connection only if every message has a `dedup` id.
        """
        return self.put_counted(messages)[0]

    def put_counted(self, messages: Iterable[bytes | Message]) -> tuple[Sequence[int], int]:
        """Add messages as `put_many` does; return their ids, and how many were duplicates."""
        given = list(messages)
        if not given:
            return [], 0
        written = [message_json(one, for_queue=True) for one in given]
        again = all("dedup" in one for one in written)
        answer = self._wire.request("POST", f"{self._path}/messages", {"messages": written}, again=again)
        return answer["ids"], answer.get("duplicates", 0)

    # Leasing.

    def lease(
        self,
        count: int = 1,
        *,
        lease: Duration | None = None,
        wait: Duration | None = 0,
        most_bytes: int | None = None,
    ) -> list[Delivery]:
        """Lease up to `count` messages for `lease` seconds (the queue's default if None).

        Higher priorities come first, then older messages. If there are none, wait up to `wait` seconds for at least
        one; None waits forever. With `most_bytes`, no more are leased once their payloads have so many bytes; it does
        not apply to messages that the call had to wait for.
        """
        _check_count(count, "lease")
        held = None if lease is None else seconds(lease, "lease")
        patience = None if wait is None else seconds(wait, "wait")
        deadline = None if patience is None else time.monotonic() + patience
        while True:
            left = _WAIT_S if deadline is None else min(_WAIT_S, max(0.0, deadline - time.monotonic()))
            found = self._lease(min(count, _LEASED_MAX), held, left, most_bytes)
            if found or (deadline is not None and time.monotonic() >= deadline):
                return found

    def _lease(self, count: int, lease: float | None, wait: float, most_bytes: int | None) -> list[Delivery]:
        body: dict[str, Any] = {"count": count, "wait": round(wait, 3), "lease": lease, "most_bytes": most_bytes}
        body = {name: value for name, value in body.items() if value is not None}
        answer = self._wire.request("POST", f"{self._path}/leases", body, wait=wait)
        return [
            make_delivery(
                (
                    one["id"],
                    bytes_of(one["payload"], "the payload"),
                    None if one.get("key") is None else bytes_of(one["key"], "the key"),
                    headers_from(one.get("headers")),
                    one["attempt"],
                    one["enqueued_at"],
                    one.get("priority", 0),
                    one["lease"],
                    self,
                )
            )
            for one in answer["messages"]
        ]

    def get(self, wait: Duration | None = 0, lease: Duration | None = None) -> Delivery | None:
        """Lease one message; None if there is none within `wait` seconds."""
        deliveries = self.lease(1, lease=lease, wait=wait)
        return deliveries[0] if deliveries else None

    def consume(
        self, batch: int = 100, stop: Stop | None = None, *, lease: Duration | None = None
    ) -> Iterator[Delivery]:
        """Yield messages as they arrive, leased `batch` at a time, until `stop` is set (or returns true). Ack each.

        Messages that are leased but not yet yielded when you leave the loop are released untried.
        """
        said: Callable[[], bool] = stop.is_set if isinstance(stop, threading.Event) else stop or (lambda: False)
        if not callable(said):
            raise InvalidArgument(f"stop must be a threading.Event or a function, not {stop!r}")
        held = seconds(lease, "lease") if lease is not None else (self.settings.nanoseconds("lease") or 0) / NS
        waiting: list[Delivery] = []
        try:
            while not said():
                waiting = self.lease(batch, lease=lease, wait=1.0)[::-1]
                since = time.monotonic()
                while waiting and not said():
                    if time.monotonic() - since > held / 2:  # as with a local store: unseen messages must not expire
                        self.settler.try_release(waiting)
                        waiting = []
                        break
                    yield waiting.pop()
        finally:
            if waiting:
                self.settler.try_release(waiting)

    # Settling.

    def ack(self, deliveries: Iterable[Delivery]) -> None:
        """Acknowledge deliveries: they are never delivered again. Raises `LeaseLost` for those whose lease was lost."""
        self._raise_lost(self.settler.try_ack(listed(deliveries)))

    def nack(self, deliveries: Iterable[Delivery], reason: str = "", delay: Duration | None = None) -> None:
        """Report failed deliveries: retry after `delay` (the queue's backoff if None), or dead-letter them.

        The last of the queue's attempts is dead-lettered. Raises `LeaseLost` for those whose lease was lost.
        """
        self._raise_lost(self.settler.try_nack(listed(deliveries), reason, delay))

    def extend(self, deliveries: Iterable[Delivery], duration: Duration | None = None) -> None:
        """Let the leases of these deliveries, and of all leased with them, end `duration` from now; may shorten them.

        None is the queue's lease time. Raises `LeaseLost` for those whose lease was lost.
        """
        self._raise_lost(self.settler.try_extend(listed(deliveries), duration))

    def release(self, deliveries: Iterable[Delivery]) -> None:
        """Release deliveries untried: they are ready at once, and the attempt does not count.

        Raises `LeaseLost` for those whose lease was lost.
        """
        self._raise_lost(self.settler.try_release(listed(deliveries)))

    def _raise_lost(self, lost: list[int]) -> None:
        if lost:
            raise LeaseLost(
                f"the lease of {len(lost)} messages of {self.name!r} (the first is {lost[0]}) is no longer ours, and "
                "other consumers may have them: lease for longer, or extend in time",
                lost,
            )

    # Inspection.

    def peek(self, count: int = 10) -> list[PeekedMessage]:
        """Return the next messages in delivery order, without leasing them."""
        _check_count(count, "peek")
        answer = self._wire.get(f"{self._path}/messages", count=count, truncate=_WHOLE)
        return [waiting_from(self._whole(one)) for one in answer["messages"]]

    def message(self, id: int) -> PeekedMessage | None:
        """Return a message by its id in any state, also acknowledged; None if the log no longer has it."""
        try:
            return waiting_from(self._wire.get(f"{self._path}/messages/{id}"))
        except NotFound:
            self.describe()  # raises NotFound if the queue itself does not exist
            return None

    def counts(self) -> Counts:
        """Return how many messages are in each state."""
        known = self.describe()
        return Counts(known["ready"], known["delayed"], known["leased"], known["moving"])

    def leases(self, count: int | None = None) -> list[LeaseInfo]:
        """Return the present leases, oldest first: at most `count`, 100,000 if None."""
        answer = self._wire.get(f"{self._path}/leases", count=_LEASES_MAX if count is None else count, ids=0)
        return [
            LeaseInfo(one["lease"], tuple(one["ids"]), one["since_at"], one["expires_at"]) for one in answer["leases"]
        ]

    def void_lease(self, lease_id: int, reason: str = _VOID) -> int:
        """Revoke a lease: its messages return to the queue, and `reason` is kept with them; return how many.

        The server puts the name of the user before the reason.
        """
        query = {"reason": None if reason == _VOID else reason}  # the server says who revoked it, which says more
        answer = self._wire.request("DELETE", f"{self._path}/leases/{lease_id}", query=query)
        return int(answer["returned"])

    def delayed(self, count: int = 200) -> list[Delayed]:
        """Return the delayed messages, the next to become ready first."""
        _check_count(count, "delayed")
        answer = self._wire.get(f"{self._path}/delayed", count=count, buckets=1, truncate=_WHOLE)
        found = []
        for one in answer["messages"]:
            waits = waiting_from(self._whole(one))
            found.append(
                Delayed(
                    waits.id,
                    one["due_at"],
                    waits.payload,
                    waits.key,
                    waits.headers,
                    waits.priority,
                    waits.attempts,
                    waits.enqueued_at,
                )
            )
        return found

    def delayed_histogram(self, buckets: int = 60) -> list[tuple[int, int, int]]:
        """Return buckets of when delayed messages become ready: start, end (not included) and count."""
        answer = self._wire.get(f"{self._path}/delayed", count=1, buckets=buckets)
        return [(one["start_at"], one["end_at"], one["count"]) for one in answer["buckets"]]

    def dead_letters(self, count: int | None = None) -> list[DeadLetter]:
        """Return the dead letters of this queue, oldest first, without moving them."""
        if count is not None:
            _check_count(count, "dead_letters")
        letters: list[DeadLetter] = []
        place: int | None = None
        while count is None or len(letters) < count:
            wanted = _AT_ONCE if count is None else min(_AT_ONCE, count - len(letters))
            answer = self._wire.get(f"{self._path}/dead", count=wanted, truncate=_WHOLE, **{"from": place})
            letters += [letter_from(self._whole(one, "dead")) for one in answer["letters"]]
            place = answer["next"]
            if place is None:
                break
        return letters

    def _whole(self, one: "Mapping[str, Any]", among: str = "messages") -> "Mapping[str, Any]":
        """Return a message with its full payload, which a server may have truncated."""
        if not one.get("truncated"):
            return one
        return {**one, "payload": self._wire.get(f"{self._path}/{among}/{one['id']}")["payload"]}

    # Administration.

    def pause(self) -> None:
        """Stop deliveries until `resume`; the queue still accepts messages."""
        self._wire.request("POST", f"{self._path}/pause")

    def resume(self) -> None:
        """Resume deliveries."""
        self._wire.request("POST", f"{self._path}/resume")

    def purge(self) -> int:
        """Drop every message that is not leased, delayed ones too; return how many."""
        return int(self._wire.request("POST", f"{self._path}/purge")["purged"])

    def seek(self, sequence: int) -> None:
        """Move the queue's position: earlier messages count as acknowledged, later ones are delivered (again)."""
        self._wire.request("POST", f"{self._path}/seek", {"to": sequence, "dry_run": False})

    def seek_time(self, when: Instant) -> None:
        """Move the queue's position to the first message that was not put before `when`."""
        self._wire.request("POST", f"{self._path}/seek", {"time": time_text(when), "dry_run": False})

    def preview(self, position: int | None = None, *, when: Instant | None = None) -> Preview:
        """Return what `seek(position)`, or `seek_time(when)`, would do, without doing it."""
        if (position is None) == (when is None):
            raise InvalidArgument("preview takes either a position or when, not both")
        place = {"to": position} if when is None else {"time": time_text(when)}
        answer = self._wire.request("POST", f"{self._path}/seek", {**place, "dry_run": True}, again=True)
        first = [waiting_from(one) for one in answer["sample"]]
        return made(Preview, answer, _sample=lambda count: first[:count])

    def redrive(self, ids: Iterable[int] | None = None) -> int:
        """Move dead letters (all, or those with these ids) back into this queue, and return how many."""
        wanted = None if ids is None else list(ids)
        body = {"ids": wanted, "reason": None}
        return int(self._wire.request("POST", f"{self._path}/redrive", body)["redriven"])

    def delete_dead_letters(self, ids: Iterable[int] | None = None) -> int:
        """Drop dead letters (all, or those with these ids) for good, and return how many."""
        body = {"ids": None if ids is None else list(ids), "reason": None}
        return int(self._wire.request("POST", f"{self._path}/dead/delete", body)["deleted"])

    def delete(self) -> None:
        """Delete the queue with its messages."""
        self._wire.request("DELETE", self._path)

    def _facts(self) -> "Mapping[str, Any]":
        if self._known is None:
            self.describe()
        assert self._known is not None
        return self._known

    def __repr__(self) -> str:
        return f"RemoteQueue({self.name!r} at {self._wire.address})"


def _check_count(count: int, what: str) -> None:
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise InvalidArgument(f"{what} needs a count from 1 up, not {count!r}")
