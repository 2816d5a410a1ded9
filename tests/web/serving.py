"""Server within a test: the broker on one thread, the web on another, as in `holdfast serve`."""

import asyncio
import base64
import json
import threading
import urllib.error
import urllib.request
from collections.abc import Mapping
from email.message import Message
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self
from urllib.parse import quote

import holdfast
from holdfast.amqp.server import Server
from holdfast.amqp.settings import Settings
from holdfast.broker.users import Cost
from holdfast.web.web_server import WebServer
from tests.web.described import check_described

__all__ = ["Answer", "Served", "q"]


class Answer(NamedTuple):
    """A response."""

    status: int
    headers: Message
    body: bytes

    @property
    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)


def q(name: str) -> str:
    """Return a name as one segment of a path."""
    return quote(name, safe="")


class Served:
    """A served store; `url` is that of the web, `amqp` the port of the broker."""

    def __init__(self, data: Path, **settings: Any) -> None:
        chosen = {"amqp_port": 0, "http_port": 0, "rpc_port": None, "login_delay": 0.0, **settings}
        self.settings = Settings(**chosen)
        self.store = holdfast.open(data)
        self._ready = threading.Event()
        self._problems: list[BaseException] = []
        self._thread = threading.Thread(target=lambda: asyncio.run(self._main()), name="broker")
        self._thread.start()
        self._ready.wait(60)
        if self._problems:
            self._thread.join()
            self.store.close()
            raise self._problems[0]

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stopped = asyncio.Event()
        try:
            self.server = Server(self.store, self.settings)
            await self.server.start()
            self.web = WebServer(self.server)
            await asyncio.to_thread(self.web.start)
        except BaseException as error:
            self._problems.append(error)
            self._ready.set()
            return
        self.site = self.web.site
        self.amqp = self.server.addresses[0][1]
        host, port, _ = self.web.addresses[0]
        self.url = f"http://{host}:{port}"
        self._ready.set()
        await self._stopped.wait()
        await asyncio.to_thread(self.web.stop)
        await self.server.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._stopped.set)
        self._thread.join(60)
        self.store.close()

    def ask(
        self,
        method: str,
        path: str,
        content: object = None,
        *,
        user: str | None = "guest",
        password: str | None = None,
        token: str | None = None,
        headers: Mapping[str, str] | None = None,
        raw: bytes | None = None,
        check: bool = True,
    ) -> Answer:
        """Send a request; return the response, also if it is an error. It must be as OpenAPI describes it."""
        sent = dict(headers or {})
        if token is not None:
            sent.setdefault("Authorization", f"Bearer {token}")
        elif user is not None:
            secret = base64.b64encode(f"{user}:{user if password is None else password}".encode()).decode()
            sent.setdefault("Authorization", f"Basic {secret}")
        body = raw
        if content is not None:
            body = json.dumps(content).encode()
            sent.setdefault("Content-Type", "application/json")
        request = urllib.request.Request(self.url + path, body, sent, method=method)
        try:
            with urllib.request.urlopen(request, timeout=120) as reply:
                answer = Answer(reply.status, reply.headers, reply.read())
        except urllib.error.HTTPError as error:
            with error:
                answer = Answer(error.code, error.headers, error.read())
        if check:
            check_described(method, path, answer.status, answer.headers, answer.body)
        return answer

    def get(self, path: str, **how: Any) -> Any:
        """Return the JSON at a path; fail unless the request succeeds."""
        return self._good("GET", path, None, **how)

    def post(self, path: str, content: object = None, **how: Any) -> Any:
        """Return the response to a POST; fail unless the request succeeds."""
        return self._good("POST", path, content, **how)

    def add_user(
        self, name: str, *, tags: tuple[str, ...] = (), permissions: tuple[str, str, str] | None = None
    ) -> None:
        """Add a user whose password is the name, perhaps with configure, write and read permissions in `/`."""
        users = self.site.broker.users
        self.site.on_broker(lambda: users.add(name, name, tags=tags))
        if permissions is not None:
            self.site.on_broker(lambda: users.permit(name, "/", *permissions))

    def _good(self, method: str, path: str, content: object, **how: Any) -> Any:
        answer = self.ask(method, path, content, **how)
        assert answer.status < 300, (method, path, answer.status, answer.body)
        return answer.json if answer.body else None


CHEAP = Cost(memory_kib=8, passes=1)
"""The cost of hashing for users that a test adds."""
