"""Accept loop for the listeners of all protocols: it counts each connection before anything is read from it."""

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import Callable

from holdfast.amqp.admission import Admission, Admitted

__all__ = ["Acceptor"]

logger = logging.getLogger("holdfast.listener")

_BATCH = 8
"""Connections accepted in one turn of the loop. Connections closed to make space free their files in the next turn."""
_PAUSE_S = 0.5
"""Seconds without accepting after a failed accept, for example without free file descriptors."""


class Acceptor:
    """Accepts the clients of one listening socket, which it owns. Used by the event loop that creates it."""

    def __init__(
        self,
        listening: socket.socket,
        admission: Admission,
        make: Callable[[Admitted], asyncio.BaseProtocol],
        *,
        tls: ssl.SSLContext | None = None,
        handshake_timeout_s: float,
        refusal: bytes = b"",
    ) -> None:
        self._listening = listening
        self._admission = admission
        self._make = make
        self._tls = tls
        self._handshake_timeout_s = handshake_timeout_s
        self._refusal = refusal
        """Sent to a client for which there is no space, unless the listener uses TLS."""
        self._loop = asyncio.get_running_loop()
        self._arrived: dict[asyncio.Task[None], socket.socket] = {}
        """Sockets without a transport yet, by the task that will create it."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._paused: asyncio.TimerHandle | None = None
        self._resume()

    @property
    def accepts(self) -> bool:
        """Whether clients are accepted, apart from short pauses."""
        return self._listening.fileno() >= 0

    def close(self) -> None:
        """Accept no more clients, and drop those whose handshake is not done. Idempotent."""
        if not self.accepts:
            return
        if self._paused is not None:
            self._paused.cancel()
        self._loop.remove_reader(self._listening.fileno())
        self._listening.close()
        for task in list(self._tasks):
            task.cancel()

    def _resume(self) -> None:
        self._loop.add_reader(self._listening.fileno(), self._accept)

    def _pause(self) -> None:
        self._loop.remove_reader(self._listening.fileno())
        self._paused = self._loop.call_later(_PAUSE_S, self._resume)

    def _accept(self) -> None:
        for _ in range(_BATCH):
            try:
                client, peer = self._listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._admission.log("not accepted", "?", f"{error.strerror or error}".lower().replace(" ", "-"))
                self._pause()
                return
            client.setblocking(False)
            admitted = self._admission.admit(str(peer[0]), int(peer[1]))
            if admitted is None:
                self._refuse(client)
                continue
            task = self._loop.create_task(self._connect(admitted))
            self._arrived[task] = client
            self._tasks.add(task)
            task.add_done_callback(self._connected)
            admitted.attach(task.cancel)

    async def _connect(self, admitted: Admitted) -> None:
        task = asyncio.current_task()
        assert task is not None
        timeout_s = self._handshake_timeout_s if self._tls is not None else None
        try:
            await self._loop.connect_accepted_socket(
                lambda: self._make(admitted),
                self._arrived.pop(task),
                ssl=self._tls,
                ssl_handshake_timeout=timeout_s,
                ssl_shutdown_timeout=timeout_s,
            )
        except OSError as error:
            admitted.release()
            protocol = self._admission.protocol
            logger.info("handshake failed: protocol=%s peer=%s error=%s", protocol, admitted.peer, error)
        except BaseException:
            admitted.release()
            raise

    def _connected(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if (client := self._arrived.pop(task, None)) is not None:  # cancelled before it began
            client.close()

    def _refuse(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError):
            if self._refusal and self._tls is None:
                client.send(self._refusal)
                client.shutdown(socket.SHUT_WR)
                client.recv(1 << 16)  # unread bytes would turn the response into a reset
