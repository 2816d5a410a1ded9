"""A server that is a standby: follows the replica on a thread, answers health checks, and returns at the takeover."""

import asyncio
import json
import logging
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from holdfast.amqp.listeners import shown
from holdfast.amqp.settings import Settings
from holdfast.base.errors import HoldfastError, InvalidArgument, ReplicaUnavailable
from holdfast.base.units import plural
from holdfast.cli.output import byte_progress
from holdfast.replica.bucket import open_bucket
from holdfast.replica.standby import Standby, is_owner

__all__ = ["follow", "owns_replica"]

logger = logging.getLogger("holdfast.replica")

_RETRY_S = 5.0


def owns_replica(data: Path, url: str) -> bool:
    """Return whether this folder still owns the replica. While the bucket does not answer, that is asked again."""
    while True:
        try:
            return is_owner(url, data)
        except ReplicaUnavailable as error:
            logger.warning("cannot tell who owns the replica, will retry: url=%s error=%s", url, error)
            time.sleep(_RETRY_S)


async def follow(data: Path, settings: Settings, *, as_json: bool, discard: bool) -> bool:
    """Follow until the standby has taken over (True), or a signal stops the server (False)."""
    from holdfast.web.standby_app import make_standby_app  # noqa: PLC0415 - needs the packages of holdfast[server]
    from holdfast.web.uvicorn_thread import UvicornThread  # noqa: PLC0415

    if settings.replica is None:
        raise InvalidArgument("a standby needs the URL of the replica that it follows: use --replica")
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    with byte_progress(shown=not as_json) as progress:
        bar = progress.add_task("copying", total=None, visible=False)
        standby = Standby(
            open_bucket(settings.replica),
            data,
            group_readable=settings.group_readable,
            ttl=settings.replica_ttl,
            discard=discard,
            progress=lambda done, total: progress.update(bar, completed=done, total=total, visible=done < total),
        )
        follower = _Follower(standby, lambda: loop.call_soon_threadsafe(ended.set))
        web = UvicornThread(make_standby_app(standby.status, follower.is_alive), settings)
        try:
            for name in (signal.SIGINT, signal.SIGTERM):
                loop.add_signal_handler(name, ended.set)
            follower.start()
            await asyncio.to_thread(web.start)
            _say(standby, web.addresses, as_json=as_json)
            await ended.wait()
        finally:
            standby.stop()
            await asyncio.to_thread(web.stop)
            await asyncio.to_thread(follower.join)
            standby.close()
    if follower.problem is not None:
        raise follower.problem
    if follower.has_taken_over:
        now = standby.status()
        if as_json:
            print(json.dumps({"role": "owner", "epoch": now.epoch, "moment": now.moment}), flush=True)
        else:
            print(f"taken over as epoch {now.epoch}, with the moment {now.moment}", flush=True)
    return follower.has_taken_over


class _Follower(threading.Thread):
    """The thread that follows; calls `tell` at its end."""

    def __init__(self, standby: Standby, tell: Callable[[], object]) -> None:
        super().__init__(name="holdfast-standby", daemon=True)
        self.has_taken_over = False
        self.problem: BaseException | None = None
        self._standby = standby
        self._tell = tell

    def run(self) -> None:
        try:
            self.has_taken_over = self._standby.follow()
        except HoldfastError as error:
            self.problem = error
        except BaseException as error:
            logger.exception("standby ended: url=%s", self._standby.url)
            self.problem = error
        finally:
            with suppress(RuntimeError):  # the loop is closed: nobody waits
                self._tell()


def _say(standby: Standby, addresses: list[tuple[str, int, bool]], *, as_json: bool) -> None:
    if as_json:
        listeners = [
            {"protocol": "https" if tls else "http", "host": host, "port": port} for host, port, tls in addresses
        ]
        print(json.dumps({"role": "standby", "url": standby.url, "listeners": listeners}), flush=True)
        return
    print(f"standby of {standby.url}, with {plural(len(addresses), 'listener')} for health checks", flush=True)
    for host, port, tls in addresses:
        print(f"health checks on {'https' if tls else 'http'}://{shown(host, port)}/health/standby", flush=True)
