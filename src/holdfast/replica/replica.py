"""The replica of an open store: claims it, ships about once a second, renews the claim, and says how far it is."""

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, get_args

from holdfast.base.bucket import Bucket
from holdfast.base.clock import NS
from holdfast.base.confirm_gate import Waiter
from holdfast.base.errors import Closed, HoldfastError, ReplicaError, ReplicaFenced
from holdfast.base.files import translate_os_errors
from holdfast.base.metrics import Histogram, Registry
from holdfast.replica.bucket_inbox import BucketInbox
from holdfast.replica.counted_bucket import KINDS, CountedBucket
from holdfast.replica.difference import described, find_unshipped
from holdfast.replica.garbage import KEEP_S, Collector
from holdfast.replica.gathering import Gathering
from holdfast.replica.identity import REPLICA_FILE, identity_of, own_ids, write_ids
from holdfast.replica.manifest import Manifest, Moment, read_newest_manifest
from holdfast.replica.object_check import ObjectCheck
from holdfast.replica.owner import TTL_S, Ownership, Role, read_owner
from holdfast.replica.shipper import Shipped, Shipper
from holdfast.replica.source import ReplicaSource
from holdfast.replica.standbys import StandbyWatch
from holdfast.replica.status import Confirm, ReplicaStatus
from holdfast.replica.tiering import Tiering
from holdfast.replica.troubles import Troubles
from holdfast.replica.uploads import Progress, SegmentDropped
from holdfast.store_context import StoreContext

__all__ = ["CONFIRM_TIMEOUT_S", "Replica"]

logger = logging.getLogger("holdfast.replica")

_INTERVAL_S = 1.0
_MUCH = 8 << 20
"""After a round that shipped so many bytes the next one begins at once."""
BACKOFF_S = 30.0
_CUTS = 10
"""How many cuts a round takes one after the other, if a queue or log is deleted between each cut and its upload."""
_SAMPLE_S = 0.2
_WORKERS = 8
_MAY_PASS = ("refused", "expired", "credentials", "clock", "region", "no-bucket")
"""Reasons of errors that pass when somebody repairs the bucket or the credentials, of a replica that worked before."""
_PRESSED_S = 2.0
"""The longest pause between attempts while calls wait for the bucket."""
CONFIRM_TIMEOUT_S = 60.0
_CLOSING_S = 20.0
"""How long closing a store waits for uploads to begin. What is left is shipped when it is next opened."""


_Asked = tuple[Progress | None, "SimpleQueue[Exception | None]"]
"""A call of `ship`: whom to tell of progress, and where to put the error of the round, None if it succeeded."""


class Replica:
    """Ships a store to a bucket. `store.replica` of a store that was opened with `replica=`.

    Threads: `holdfast-replica` ships, `holdfast-replica-owner` renews the claim, and up to 8 upload; without
    `background` there are none, and `tick` does their work. `_turn` is held during a round, `_ids_guard` while
    `replica.json` is written.
    """

    name = "replica"

    def __init__(
        self,
        bucket: Bucket,
        shared: StoreContext,
        source: ReplicaSource,
        *,
        confirm: Confirm = "local",
        confirm_timeout: float | None = CONFIRM_TIMEOUT_S,
        keep: float = KEEP_S,
        ttl: float = TTL_S,
    ) -> None:
        """Ship to this bucket after `start`. With `confirm="replica"` calls wait for it, so many seconds at most."""
        from holdfast import __version__  # noqa: PLC0415 - a circular import

        files, clock, path = shared.files, shared.clock, shared.path
        background = shared.background.enabled
        self.url = bucket.url
        self._bucket = CountedBucket(bucket)
        self._source, self._clock, self._files = source, clock, files
        self._background = background
        self._path = path
        self._ids_guard = threading.Lock()
        self._ids = own_ids(files, path)
        self._confirm: Confirm = confirm
        self._ownership = self._make_ownership(ttl)
        self._collector = Collector(
            self._bucket, clock, self._ownership, keep=keep, pending=self._pending, start=self._start
        )
        self._shipper = Shipper(
            self._bucket,
            files,
            clock,
            source,
            self._ownership,
            self._collector,
            store=self._ids.store,
            version=__version__,
            workers=_WORKERS if background else 0,
        )
        self._inspector = ObjectCheck(self._bucket, files, clock, path, self._ownership)
        self._inbox = BucketInbox(self._bucket, files, clock, source.inbox, self._ownership)
        self._polling: Future[None] | None = None
        self._tiering = Tiering(self.url, source, self._ownership)
        self._turn = threading.Lock()
        self._shipped: Shipped | None = None
        self._moment: Moment | None = None
        self._began = clock.monotonic()
        self._troubles = Troubles(clock)
        self._resumed = False
        self._due_at = clock.monotonic()
        self._pause = _INTERVAL_S
        self._stopping = threading.Event()
        self._ended = threading.Event()
        """Set when the claim need not be renewed any more: after the last round."""
        self._shipping: threading.Thread | None = None
        self._renewing: threading.Thread | None = None
        self._asked: SimpleQueue[_Asked | None] = SimpleQueue()
        """Calls of `ship` that wait for a round of the thread; None wakes it."""
        self._gate = shared.gate
        self._gathering = Gathering(clock, lambda: shared.gate.count)
        self._confirm_timeout = confirm_timeout
        self._is_failing = False
        """Whether the last round failed: then the next one is not begun before it is due."""
        self._is_woken = False
        """Whether the thread was woken for calls that wait, and has not begun a round since."""
        self._confirm_seconds = _confirm_seconds(shared.metrics)
        self._sampled, self._sampled_until = self.status(), float("-inf")
        self._register(shared.metrics)

    def _make_ownership(self, ttl: float) -> Ownership:
        watch = StandbyWatch(self._bucket, self._clock)
        return Ownership(
            self._bucket,
            self._clock,
            identity_of(self._files, self._path, self._ids),
            ttl=ttl,
            bound=self._ids.yields,
            # Who waits for the bucket confirms nothing without a valid claim: any standby may take over at its end.
            has_standby=watch.look if self._confirm == "local" else lambda: True,
            note_bound=self._note_bound,
        )

    @property
    def bucket(self) -> Bucket:
        """The bucket, for readers of what is not on the local disk any more."""
        return self._bucket

    @property
    def may_confirm(self) -> bool:
        """Whether this process may confirm messages now: see `Ownership`. Takes no lock."""
        return self._ownership.may_confirm

    @property
    def lost(self) -> str | None:
        """Why this process has lost the replica to another one; None if it has not, as far as is known."""
        if self._ownership.role != "fenced":
            return None
        try:
            self._ownership.check()
        except ReplicaFenced as error:
            return str(error)
        return None

    @property
    def ownership(self) -> Ownership:
        """The claim of this process, for what confirms messages."""
        return self._ownership

    @property
    def fields(self) -> dict[str, str]:
        """The `extra` of log messages about it."""
        return {"url": self.url}

    def start(self) -> None:
        """Claim the replica and find where to continue. If the bucket does not answer, that is tried again later.

        Raises `ReplicaFenced` if another process owns it, and `ReplicaError` if it is of another store or has records
        that this one lacks. A bucket that refuses is an error only if it was never used: a server that is started again
        while its credentials have expired must serve.
        """
        try:
            self._begin()
        except ReplicaError as error:  # the store must open without it: records wait on the local disk
            if not self._may_wait(error):
                raise
            self._note_error(error)
        if self._background:
            self._shipping = threading.Thread(target=self._run, name="holdfast-replica", daemon=True)
            self._renewing = threading.Thread(target=self._keep_claim, name="holdfast-replica-owner", daemon=True)
            self._shipping.start()
            self._renewing.start()
        if self._confirm == "local":
            self._gate.begin(check=self._ownership.check_confirm, waits=False)
        else:
            self._gate.begin(
                check=self._check_not_fenced,
                waits=True,
                timeout=self._confirm_timeout,
                wake=self._wake,
                serve=None if self._background else self._serve,
                is_served=self._is_shipping,
                why=self._why,
            )

    def ship(self, progress: Progress | None = None) -> str:
        """Return when all that was written before is in the bucket: the name of the moment that has it.

        Raises `ReplicaError` if that is not possible now.
        """
        if self._stopping.is_set():
            raise Closed("the store is closed: open it again")
        if self._shipping is None:
            with self._turn, self._noted():
                self._round(progress)
        else:
            # By the thread: a signal handler that raises in this one must not cut off a sync or a request.
            answer: SimpleQueue[Exception | None] = SimpleQueue()
            self._asked.put((progress, answer))
            if (problem := _answered(answer, self._shipping)) is not None:
                raise problem
        assert self._moment is not None
        return self._moment.name

    def status(self) -> ReplicaStatus:
        """Return how far the bucket is behind, and what is wrong."""
        records, size = self._source.unshipped(self._shipper.known)
        shipped = self._shipped
        since = self._began if shipped is None else shipped.monotonic
        trouble, last = self._troubles.first, self._troubles.last
        return ReplicaStatus(
            url=self.url,
            role=self._ownership.role,
            epoch=self._ownership.epoch,
            moment=None if self._moment is None else self._moment.name,
            shipped_at=None if shipped is None else shipped.time,
            lag_seconds=max(0.0, self._clock.monotonic() - since) if records or shipped is None else 0.0,
            lag_records=records,
            lag_bytes=size,
            lost_records=self._shipper.lost_records,
            error=None if trouble is None else trouble.text,
            failing_since=self._troubles.since,
            confirm=self._confirm,
            waiting=self._gate.count,
            waiting_seconds=self._gate.longest_s,
            puts=self._bucket.requests["put"],
            sent_bytes=self._bucket.sent,
            reason=None if trouble is None else trouble.reason,
            last_error=None if last is None else last.text,
            last_error_at=None if last is None else last.at,
            requests={kind: self._bucket.requests[kind] for kind in KINDS},
            failures={kind: self._bucket.failures[kind] for kind in KINDS},
            repaired=self._inspector.repaired,
        )

    def tick(self) -> float | None:
        """Do what is due, for a store without background threads; return in how many seconds to call again."""
        self._renew()
        if self._clock.monotonic() >= self._due_at and self._turn.acquire(blocking=False):
            try:
                self._attempt()
            finally:
                self._turn.release()
        return max(0.0, self._due_at - self._clock.monotonic())

    def close(self) -> None:
        """Ship what was written last, release the replica, and end the threads. Errors are logged."""
        if self._stopping.is_set():
            return
        self._shipper.uploader.deadline = self._clock.monotonic() + _CLOSING_S
        self._stopping.set()
        if self._shipping is None:
            with self._turn:
                self._ship_last()
        else:
            self._asked.put(None)
            self._shipping.join(2 * _CLOSING_S)
        self._ended.set()
        if self._renewing is not None:
            self._renewing.join(_CLOSING_S)
        if self._confirm == "replica":
            self._gate.end(
                "the store was closed before the bucket had this. It is on the local disk and is not confirmed; it is "
                "shipped when the store is opened again"
            )
        # A thread that still waits for the bucket could put a moment, or holds the claim.
        is_stuck = any(one is not None and one.is_alive() for one in (self._shipping, self._renewing))
        try:
            if not is_stuck and not self._troubles.fails("claim"):
                self._ownership.release()
        except HoldfastError as error:  # the next owner waits until the claim has run out
            logger.warning("replica not released: url=%s error=%s", self.url, error, extra=self.fields)
        self._source.hold(None)
        self._shipper.uploader.close(wait=not is_stuck)

    def detach_after_fork(self) -> None:
        """End in a forked child, where the threads are the parent's."""
        self._turn = threading.Lock()
        self._stopping, self._ended = threading.Event(), threading.Event()
        self._stopping.set()

    def _start(self, work: Callable[[], None]) -> "Future[None]":
        return self._shipper.uploader.start(work)

    def _pending(self) -> set[str]:
        return self._shipper.uploader.pending()

    def _begin(self) -> None:
        # Checked before the claim, too: an old copy of the store must not take the replica from an owner that is only
        # slow, and then find out that it lacks what is there.
        before = self._last_manifest()
        self._check(before)
        self._ownership.claim(is_stopped=self._stopping.is_set, check=lambda: self._check(self._last_manifest()))
        last = self._last_manifest()
        if before is None or (last is not None and last.moment != before.moment):
            self._check(last)
        if self._ids.epoch != self._ownership.epoch:  # before anything of this epoch is shipped
            self._save_ids(epoch=self._ownership.epoch)
        self._shipper.resume(last)
        self._ownership.is_checked = True
        self._resumed = True

    def _check(self, last: Manifest | None) -> None:
        """Raise `ReplicaFenced` if another folder has shipped since this one, `ReplicaError` if this lacks records."""
        if last is not None and last.store == self._ids.store and last.moment.epoch > self._ids.epoch:
            self._ownership.lose(read_owner(self._bucket))
            raise ReplicaFenced(
                f"{self.url} has moments of epoch {last.moment.epoch}, and this folder has seen none after epoch "
                f"{self._ids.epoch}: another process has taken the replica since, and what it wrote is not here. "
                f"{described(find_unshipped(self._files, self._path, self._bucket, last))}. Nothing is merged. Follow "
                "the owner with holdfast serve --standby and another folder, or restore the newest moment into one; "
                f"or ship this store to another prefix, without its file {REPLICA_FILE}"
            )
        self._shipper.check(last)

    def _last_manifest(self) -> Manifest | None:
        return read_newest_manifest(self._bucket, self._ownership.last, self._ids.counts)

    def _note_bound(self, bound: bool) -> None:
        self._save_ids(yields=bound)

    def _save_ids(self, **changes: Any) -> None:
        with self._ids_guard, translate_os_errors("writing the ids of the replica of", self._path):
            ids = replace(self._ids, **changes)
            write_ids(self._files, self._path, ids)
            self._ids = ids

    def _check_not_fenced(self) -> None:
        """Raise `ReplicaFenced` if another process has the replica. A claim that has only run out may be renewed."""
        if self._ownership.role == "fenced" or self._ownership.deposed:
            self._ownership.check_confirm()

    def _why(self) -> str | None:
        trouble = self._troubles.first
        return None if trouble is None else trouble.text

    def _is_shipping(self) -> bool:
        return self._shipping is not None and self._shipping.is_alive()

    def _wake(self) -> None:
        """Begin a round for a call that waits. While attempts fail, their pauses count."""
        if not self._is_woken and (not self._is_failing or self._ownership.role == "fenced"):
            self._is_woken = True
            self._asked.put(None)

    def _serve(self) -> None:
        """Run a round for a call that waits, without threads."""
        with self._turn:
            if (problem := self._attempt()) is not None:
                raise problem

    def _release(self, waiters: list[Waiter]) -> None:
        """Confirm what a round has shipped, if this process still owns the replica by its own clock."""
        self._ownership.check()
        now = self._clock.monotonic()
        self._gate.release(waiters)
        for waiter in waiters:
            self._confirm_seconds.observe(now - waiter.since)

    def _round(self, progress: Progress | None) -> None:
        began = self._clock.monotonic()
        waiters = self._gate.waiting()  # before the cut, which has all that they have written
        if not waiters:
            self._source.look()
        self._source.hold(
            None if self._ownership.role == "fenced" else self._shipper.known
        )  # then it ships nothing more
        if not self._resumed:
            self._begin()
        if not self._background:
            self._ownership.renew_if_due()
        settled = self._settled_batches()
        shipped = self._ship(progress, is_urgent=bool(waiters))
        self._shipped, self._moment = shipped, shipped.moment or self._moment
        if waiters:
            self._gathering.note(self._clock.monotonic() - began)
            self._release(waiters)
        self._shipper.spill()
        self._receive(settled)
        self._tiering.apply(self._shipper.known)
        self._clean()
        self._inspect()

    def _ship(self, progress: Progress | None, *, is_urgent: bool) -> Shipped:
        for _ in range(_CUTS - 1):
            with contextlib.suppress(SegmentDropped):
                return self._shipper.ship(progress, is_urgent=is_urgent)
        return self._shipper.ship(progress, is_urgent=is_urgent)

    def _settled_batches(self) -> list[str]:
        """Return the batches from the bucket that the next cut has; none while more are being fetched."""
        return [] if self._polling is not None and not self._polling.done() else self._inbox.settled()

    def _receive(self, settled: list[str]) -> None:
        """Delete batches that are shipped now, and fetch new ones on another thread."""
        try:
            if self._polling is not None:
                if not self._polling.done():
                    return
                ended, self._polling = self._polling, None
                ended.result()
            self._inbox.shipped(settled)
            if not self._stopping.is_set():
                with contextlib.suppress(RuntimeError):  # the store is being closed
                    self._polling = self._start(self._inbox.poll)
            self._troubles.clear("batches")
        except (HoldfastError, OSError) as error:
            if self._troubles.note("batches", error):
                logger.warning("batches not received, will retry: url=%s error=%s", self.url, error, extra=self.fields)

    def _clean(self) -> None:
        """Collect garbage if it is due. That this fails is an error of its own: the moment is in the bucket."""
        try:
            self._collector.tick()
            self._troubles.clear("cleaning")
        except HoldfastError as error:
            if self._troubles.note("cleaning", error):
                logger.warning("cleaning failed, will retry: url=%s error=%s", self.url, error, extra=self.fields)

    def _inspect(self) -> None:
        """Look whether somebody has deleted objects, if that is due, and upload them again."""
        try:
            if self._inspector.tick(self._shipper.known, self._moment):
                self._shipper.publish_again()
            self._troubles.clear("repair")
        except HoldfastError as error:
            if self._troubles.note("repair", error):
                logger.error("objects cannot be repaired: url=%s error=%s", self.url, error, extra=self.fields)

    def _attempt(self, progress: Progress | None = None) -> Exception | None:
        """Run a round, and decide when the next one is due; return its error. Called with `_turn` held."""
        problem: Exception
        try:
            with self._noted():
                self._round(progress)
            self._pause, self._is_failing = _INTERVAL_S, False
            is_much = self._shipped is not None and self._shipped.bytes >= _MUCH
            self._due_at = self._clock.monotonic() + (0 if is_much else self._pause)
            return None
        except HoldfastError as error:
            problem = error
        except Exception as error:
            logger.exception("replica failed, will retry: url=%s", self.url, extra=self.fields)
            problem = error
        self._is_failing = True
        if self._ownership.role == "fenced":
            self._gate.release(self._gate.waiting(), self._lost(problem))
        if self._confirm == "replica":
            self._pause = min(self._pause, _PRESSED_S)
        self._due_at = self._clock.monotonic() + self._pause
        self._pause = min(self._pause * 2, BACKOFF_S)
        return problem

    def _lost(self, problem: Exception) -> HoldfastError:
        try:
            self._ownership.check()
        except ReplicaFenced as error:
            return error
        return ReplicaFenced(str(problem))

    def _run(self) -> None:
        is_last = False
        while not is_last:
            asked = self._await_asked()
            self._gathering.wait()
            with self._turn:
                if is_last := self._stopping.is_set():  # it may have been set during a round: then there is one more
                    self._ship_last()
                    problem: Exception | None = Closed("the store was closed: open it again") if asked else None
                else:
                    problem = self._attempt(next((progress for progress, _ in asked if progress is not None), None))
            for _, answer in asked:
                answer.put(problem)
            if self._ownership.role == "fenced":
                self._source.hold(None)

    def _await_asked(self) -> "list[_Asked]":
        """Return the calls of `ship` that the next round answers, when that is due or somebody asks for it."""
        is_fenced = self._ownership.role == "fenced"  # it ships nothing more, but answers
        found: list[_Asked | None] = []
        with contextlib.suppress(Empty):
            due_in = None if is_fenced else max(0.0, self._due_at - self._clock.monotonic())
            if self._gate.count and not self._is_failing:  # they came during the last round
                due_in = 0.0
            found.append(self._asked.get(timeout=due_in) if due_in != 0.0 else self._asked.get_nowait())
            while True:
                found.append(self._asked.get_nowait())
        self._is_woken = False  # who waits from here on wakes it again, and others are in the round that begins
        return [one for one in found if one is not None]

    def _ship_last(self) -> None:
        """Ship what was written before the store was closed. Called with `_turn` held."""
        try:
            if self._ownership.role == "owner" and not self._troubles.fails("shipping"):
                self._round(None)
        except Exception as error:
            logger.warning("last moment not shipped: url=%s error=%s", self.url, error, extra=self.fields)

    def _keep_claim(self) -> None:
        while not self._ended.wait(_INTERVAL_S):
            self._gate.expire()
            try:
                self._renew()
            except Exception:
                logger.exception("renewal failed, will retry: url=%s", self.url, extra=self.fields)

    def _renew(self) -> None:
        try:
            self._ownership.renew_if_due()
            self._troubles.clear("claim")
            if self._ownership.deposed and self._ownership.role == "owner":
                self._hand_over()
        except HoldfastError as error:
            if self._troubles.note("claim", error):
                logger.warning("renewal failed, will retry: url=%s error=%s", self.url, error, extra=self.fields)

    def _hand_over(self) -> None:
        """Ship what was confirmed, and let the standby take over that has asked for it."""
        if not self._stopping.is_set():
            self.ship()
            self._ownership.release()
            logger.warning("replica handed over: url=%s epoch=%d", self.url, self._ownership.epoch, extra=self.fields)

    @contextlib.contextmanager
    def _noted(self) -> Iterator[None]:
        """Note the error of an attempt, or that it succeeded."""
        try:
            yield
        except HoldfastError as error:
            self._note_error(error)
            raise
        if self._troubles.clear("shipping"):
            logger.warning("replica works again: url=%s", self.url, extra=self.fields)

    def _note_error(self, error: HoldfastError) -> None:
        if self._troubles.note("shipping", error):
            logger.warning("shipping failed, will retry: url=%s error=%s", self.url, error, extra=self.fields)

    def _may_wait(self, error: ReplicaError) -> bool:
        """Return whether the store opens in spite of this error, which is tried again later."""
        return error.reason == "unavailable" or (self._ids.epoch > 0 and error.reason in _MAY_PASS)

    def _register(self, metrics: Registry) -> None:
        gauges: dict[str, tuple[str, Callable[[ReplicaStatus], float]]] = {
            "lag_seconds": ("Age of the oldest record that is not in the bucket.", lambda now: now.lag_seconds),
            "lag_records": ("Records that are not in the bucket.", lambda now: now.lag_records),
            "lag_bytes": ("Bytes that are not in the bucket.", lambda now: now.lag_bytes),
            "epoch": ("Epoch of this process; 0 before it has claimed one.", lambda now: now.epoch),
            "failing_seconds": (
                "Seconds since attempts began to fail; 0 while they succeed.",
                lambda now: self._age(now.failing_since),
            ),
            "last_error_age_seconds": (
                "Seconds since the last error; 0 if there was none.",
                lambda now: self._age(now.last_error_at),
            ),
            "up": ("1 if this process owns the replica, and its last attempt succeeded.", lambda now: now.ok),
            "waiting": ("Calls and publishers that wait for the bucket.", lambda now: now.waiting),
            "waiting_seconds": ("For how long the first of them has waited.", lambda now: now.waiting_seconds),
        }
        for name, (help, read) in gauges.items():
            metrics.gauge(f"holdfast_replica_{name}", help, {}, partial(self._gauge, read))
        for role in get_args(Role):
            help = "1 for the role that this process has, 0 for the others."
            metrics.gauge("holdfast_replica_role", help, {"role": role}, partial(self._gauge, partial(_has, role)))
        for name, help, count in (
            ("sent_bytes", "Bytes of objects that were written.", lambda: self._bucket.sent),
            ("lost_records", "Records dropped from a full disk, never shipped.", lambda: self._shipper.lost_records),
            ("repaired_objects", "Deleted objects that were uploaded again.", lambda: self._inspector.repaired),
        ):
            metrics.reading(f"holdfast_replica_{name}_total", help, {}, count)
        bucket = self._bucket
        for kind in KINDS:
            labels = {"kind": kind}
            metrics.reading(
                "holdfast_replica_requests_total", "Requests.", labels, partial(bucket.requests.__getitem__, kind)
            )
            metrics.reading(
                "holdfast_replica_request_failures_total",
                "Requests that failed.",
                labels,
                partial(bucket.failures.__getitem__, kind),
            )

    def _age(self, time: int | None) -> float:
        """Return the seconds since a time; 0 if there is none."""
        return 0.0 if time is None else max(0.0, (self._clock.time_ns() - time) / NS)

    def _gauge(self, read: Callable[[ReplicaStatus], float]) -> float:
        now = self._clock.monotonic()
        if now >= self._sampled_until:  # one look for all gauges of a scrape
            self._sampled, self._sampled_until = self.status(), now + _SAMPLE_S
        return read(self._sampled)


def _has(role: str, status: ReplicaStatus) -> float:
    return float(status.role == role)


def _confirm_seconds(metrics: Registry) -> Histogram:
    return metrics.histogram("holdfast_replica_confirm_seconds", "Time that calls waited for the bucket.")


def _answered(answer: "SimpleQueue[Exception | None]", thread: threading.Thread) -> Exception | None:
    """Return the result of a round, when the thread has put it there."""
    while True:
        with contextlib.suppress(Empty):
            return answer.get(timeout=_INTERVAL_S)
        if not thread.is_alive() and answer.empty():
            return Closed("the store was closed: open it again")
