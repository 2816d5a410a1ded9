"""HTTP requests over a pool of persistent connections, with retries of requests that may be repeated."""

import base64
import contextlib
import http.client
import json
import socket
import ssl
import threading
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode

from holdfast.base.errors import Closed, InvalidArgument
from holdfast.remote.address import Address
from holdfast.remote.errors import TOKEN, OutcomeUnknown, ServerFailed, Unreachable, error_of

__all__ = ["HttpClient", "path_of"]

_LOST = (http.client.HTTPException, OSError, UnicodeError)
"""Errors of a connection. An invalid host name raises UnicodeError."""
_OWN = "/api/holdfast"
_NOT_MODIFIED = 304


def path_of(*parts: str | int, root: str = _OWN) -> str:
    """Return a path with each part fully percent-encoded, since names may contain slashes."""
    return root + "".join(f"/{_quoted(str(part))}" for part in parts)


class HttpClient:
    """HTTP client of one server. Threads: any; during a request, a connection belongs to one thread."""

    def __init__(self, address: Address, timeout: float, context: ssl.SSLContext | None = None) -> None:
        self.address = address
        self._timeout = timeout
        self._context = context if context is not None or not address.is_secure else ssl.create_default_context()
        self._idle: list[http.client.HTTPConnection] = []
        self._busy: set[http.client.HTTPConnection] = set()
        self._guard = threading.Lock()
        self._closed = False
        if address.token is not None:
            self._login, self._who = f"Bearer {address.token}", TOKEN
        else:
            pair = f"{address.user}:{address.password}".encode()
            self._login = f"Basic {base64.b64encode(pair).decode('ascii')}"
            self._who = f"the user {address.user!r}"

    def get(self, path: str, **query: Any) -> Any:
        """Return the decoded response to a GET; sent again once if there is no response."""
        return self.request("GET", path, query=query, again=True)

    def request(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        query: Mapping[str, Any] | None = None,
        again: bool = False,
        wait: float = 0,
    ) -> Any:
        """Send a request and return the decoded response; None if it is empty.

        If there is no response, a request with `again` is sent once more; without it `OutcomeUnknown` is raised. `wait`
        is how much longer than the timeout the server may take, because it was asked to wait for something.
        """
        asked = {name: _text(value) for name, value in (query or {}).items() if value is not None}
        target = f"{path}?{urlencode(asked, quote_via=quote)}" if asked else path
        headers = {"Authorization": self._login, "Accept": "application/json"}
        content: bytes | None = None
        if method != "GET":
            content = b"" if body is None and method == "DELETE" else _encoded({} if body is None else body)
            headers["Content-Type"] = "application/json"
        status, answer = self._exchange(method, target, content, headers, again=again, wait=wait)
        return self._understood(status, answer, f"{method} {path}")

    def content(self, path: str, *, etag: str | None = None, **query: Any) -> bytes | None:
        """Return the body of the response to a GET as it is; None if it is still that of this etag.

        Sent again once if there is no response.
        """
        target = f"{path}?{urlencode(query, quote_via=quote)}" if query else path
        headers = {"Authorization": self._login, "Accept": "*/*"}
        if etag is not None:
            headers["If-None-Match"] = f'"{etag}"'
        status, answer = self._exchange("GET", target, None, headers, again=True, wait=0)
        if 200 <= status < 300:
            return answer
        if status == _NOT_MODIFIED:
            return None
        self._understood(status, answer, f"GET {path}")
        raise AssertionError("an error was raised")

    def send_content(self, path: str, content: bytes, **query: Any) -> None:
        """Send bytes as they are with a PUT. Raises `OutcomeUnknown` if there is no response."""
        target = f"{path}?{urlencode(query, quote_via=quote)}" if query else path
        headers = {
            "Authorization": self._login,
            "Accept": "application/json",
            "Content-Type": "application/octet-stream",
        }
        status, answer = self._exchange("PUT", target, content, headers, again=False, wait=0)
        self._understood(status, answer, f"PUT {path}")

    def close(self) -> None:
        """Close all connections; calls that wait for a response, and later calls, raise `Closed`. Idempotent."""
        with self._guard:
            self._closed = True
            idle, busy = self._idle, list(self._busy)
            self._idle = []
        for connection in idle:
            connection.close()
        for connection in busy:  # the thread that reads from it wakes up, and closes it
            with contextlib.suppress(OSError, AttributeError):
                connection.sock.shutdown(socket.SHUT_RDWR)

    def _exchange(
        self, method: str, target: str, content: bytes | None, headers: Mapping[str, str], *, again: bool, wait: float
    ) -> tuple[int, bytes]:
        tries = 2 if again else 1
        while True:
            tries -= 1
            connection, fresh = self._connection()
            sent = False
            try:
                if fresh:
                    connection.timeout = self._timeout
                    connection.connect()
                    # Requests are small and each waits for its response: Nagle's algorithm would only delay them.
                    connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                elif _hung_up(connection):
                    # The server closes idle connections after a while: nothing is lost.
                    self._drop(connection)
                    tries += 1
                    continue
                connection.sock.settimeout(self._timeout + wait)
                sent = True
                connection.request(method, self.address.path + target, content, dict(headers))
                response = connection.getresponse()
                answer = response.read()
                (self._drop if response.will_close else self._put_back)(connection)
                return response.status, answer
            except _LOST as error:
                self._drop(connection)
                if self._closed:
                    raise Closed("the remote store was closed before this call ended") from error
                if not sent:
                    raise self._unreachable(error) from error
                if tries:
                    continue
                raise self._lost(method, target, error, again=again) from error
            except BaseException:  # Ctrl-C during a response: the rest of it must not be read as the next response
                self._drop(connection)
                raise

    def _connection(self) -> tuple[http.client.HTTPConnection, bool]:
        """Return a connection, the caller's until it is put back or dropped, and whether it has yet to connect."""
        with self._guard:
            if self._closed:
                raise Closed("the remote store was closed: connect again")
            if self._idle:
                connection = self._idle.pop()  # the last used: surplus ones stay idle, and the server closes them
                self._busy.add(connection)
                return connection, False
        address = self.address
        if address.is_secure:
            connection = http.client.HTTPSConnection(address.host, address.port, context=self._context)
        else:
            connection = http.client.HTTPConnection(address.host, address.port)
        with self._guard:
            self._busy.add(connection)
        return connection, True

    def _put_back(self, connection: http.client.HTTPConnection) -> None:
        with self._guard:
            self._busy.discard(connection)
            if not self._closed:
                self._idle.append(connection)
                return
        connection.close()

    def _drop(self, connection: http.client.HTTPConnection) -> None:
        with self._guard:
            self._busy.discard(connection)
        connection.close()

    def _unreachable(self, error: BaseException) -> Unreachable:
        where = f"cannot reach {self.address}"
        if isinstance(error, ssl.SSLCertVerificationError):
            return Unreachable(
                f"{where}: its certificate is not trusted ({error.verify_message}): use the host name in the "
                "certificate, or set SSL_CERT_FILE to the file of the CA that signed it"
            )
        if isinstance(error, ssl.SSLError):
            return Unreachable(f"{where} by TLS ({error.reason or error}): if the port has no TLS, use http://")
        if isinstance(error, socket.gaierror):
            return Unreachable(f"{where}: unknown host name {self.address.host!r}")
        if isinstance(error, TimeoutError):
            return Unreachable(f"{where}: no response within {self._timeout:g} s. Check the address and firewalls")
        reason = getattr(error, "strerror", None) or str(error)
        return Unreachable(f"{where}: {reason}. Check that holdfast serve is running there")

    def _lost(self, method: str, target: str, error: BaseException, *, again: bool) -> Unreachable:
        what = f"{method} {target.partition('?')[0]}"
        how = "the response timed out" if isinstance(error, TimeoutError) else "the connection was lost"
        if isinstance(error, http.client.BadStatusLine) and not isinstance(error, http.client.RemoteDisconnected):
            return Unreachable(
                f"{self.address} does not speak HTTP: check the port (AMQP has another), or use https://"
            )
        if again:
            return Unreachable(f"{how} twice during {what} at {self.address}: check that holdfast serve is running")
        return OutcomeUnknown(
            f"{how} during {what} at {self.address}: the request may have been carried out; check before you retry"
        )

    def _understood(self, status: int, answer: bytes, what: str) -> Any:
        content: Any = None
        if answer:
            try:
                content = json.loads(answer)
            except ValueError as error:
                if 200 <= status < 300:
                    raise ServerFailed(
                        f"the response of {self.address} to {what} is not JSON: check that it is a Holdfast server"
                    ) from error
        if 200 <= status < 300:
            return content
        if 300 <= status < 400:
            raise ServerFailed(f"{self.address} redirects {what} (status {status}): use the URL of the redirect")
        raise error_of(status, content, self._who, what)


def _encoded(body: object) -> bytes:
    try:
        return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()
    except (TypeError, ValueError) as error:  # an unpaired surrogate in a name, or a value that JSON cannot represent
        raise InvalidArgument(f"this cannot be sent as JSON: {error}") from error


def _quoted(part: str) -> str:
    # Proxies would resolve a part of only dots as this folder or its parent.
    return part.replace(".", "%2E") if part in (".", "..") else quote(part, safe="")


def _text(value: object) -> str:
    return ("true" if value else "false") if isinstance(value, bool) else str(value)


def _hung_up(connection: http.client.HTTPConnection) -> bool:
    """Whether the server closed an idle connection: no response is due, so readable bytes mean its end."""
    try:
        connection.sock.settimeout(0)
        connection.sock.recv(1)
        return True
    except (BlockingIOError, ssl.SSLWantReadError):
        return False
    except OSError:
        return True
