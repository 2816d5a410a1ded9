"""Positions of streaming queries, stored as those of named tailers in a store's folder or at its server."""

import contextlib
import logging
import threading
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

import holdfast
from holdfast.base.errors import InvalidArgument
from holdfast.base.names import abbreviate
from holdfast.log.consumer_offsets import Position
from holdfast.spark.lag import LogLag, without_credentials
from holdfast.spark.remote import is_url
from holdfast.spark.stream import PLACE

if TYPE_CHECKING:
    from holdfast.remote import RemoteStore

__all__ = ["PositionExport"]

logger = logging.getLogger("holdfast.spark")

_TIMEOUT_S = 10
_CLOSE_S = 30.0


class PositionExport:
    """Stores positions in a thread of its own, so that a slow server holds up neither Spark nor a query.

    Of the positions that wait, only the newest of each query and log is stored. `_changed` is a condition whose lock
    protects `_waiting` and `_closed`. Threads: any; `_stored` and `_failed` belong to the thread.
    """

    def __init__(self, path: str, *, token: str | None = None) -> None:
        self._path = path
        self._token = token
        if self._is_server:
            self._open().close()  # the address is checked now; the server may come later
        elif is_url(path):
            raise InvalidArgument(
                f"positions cannot be stored at {without_credentials(path)!r}: give the folder of the store, or the "
                "URL of its server (http or https)"
            )
        elif token is not None:
            raise InvalidArgument(f"a token is for a server, and {path!r} is a folder: give the URL of the server")
        self._changed = threading.Condition()
        self._waiting: dict[tuple[str, str], LogLag] = {}
        """By the name of the query and of the log."""
        self._closed = False
        self._thread: threading.Thread | None = None
        self._stored: dict[tuple[str, str], int] = {}
        self._failed: set[tuple[str, str]] = set()

    def submit(self, query: str, logs: Iterable[LogLag]) -> None:
        """Store these positions soon. Tables and journals have none that could be stored here."""
        with self._changed:
            if self._closed:
                return
            self._waiting |= {(query, one.log): one for one in logs if one.log is not None}
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, daemon=True, name="holdfast-positions")
                self._thread.start()
            self._changed.notify()

    def close(self) -> None:
        """Store what waits, and end the thread. Waits for half a minute at most."""
        with self._changed:
            self._closed = True
            self._changed.notify()
            thread = self._thread
        if thread is not None:
            thread.join(_CLOSE_S)

    @property
    def _is_server(self) -> bool:
        return self._path.startswith(("http://", "https://"))

    def _open(self) -> "holdfast.Store | RemoteStore":
        if self._is_server:
            return holdfast.connect(self._path, token=self._token, timeout=_TIMEOUT_S)
        return holdfast.open(self._path, read_only=True)

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._waiting and not self._closed:
                    self._changed.wait()
                if not self._waiting:
                    return
                work, self._waiting = self._waiting, {}
            self._store(work)

    def _store(self, work: dict[tuple[str, str], LogLag]) -> None:
        moved = {key: one for key, one in work.items() if self._stored.get(key) != one.position}
        if not moved:
            return
        with contextlib.ExitStack() as stack:
            store: holdfast.Store | RemoteStore | None = None
            for key, one in moved.items():
                try:
                    if store is None:
                        store = self._open()
                        stack.callback(store.close)
                    self._set(store, key, one)
                except Exception as error:
                    # Not the text of an address with a password in it: errors of the client name only host and port.
                    if key not in self._failed:
                        self._failed.add(key)
                        logger.warning("position of a stream was not stored: query=%s log=%s error=%s", *key, error)
                else:
                    self._failed.discard(key)
                    self._stored[key] = one.position

    def _set(self, store: "holdfast.Store | RemoteStore", key: tuple[str, str], one: LogLag) -> None:
        query, name = key
        log = store.log(name)
        # An older server does not tell the id.
        found = log.id.hex() if isinstance(log, holdfast.Log) else log.describe().get("id", one.log_id)
        if found != one.log_id:
            raise InvalidArgument(
                f"the log {name!r} that the query reads, in {one.store!r}, is not the one in "
                f"{without_credentials(self._path)!r}: give the listener the store of the query"
            )
        log.positions.set(Position(PLACE + abbreviate(query, 200), one.position, time.time_ns()))
