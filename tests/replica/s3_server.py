"""A small HTTP server on loopback that answers as S3 does, and fails as S3 does when a test asks for it.

SeaweedFS shows that the requests are right; this one gives the answers that no server gives on demand.
"""

import contextlib
import hashlib
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar
from urllib.parse import parse_qs, quote, unquote, urlsplit
from xml.sax.saxutils import escape

__all__ = ["FAULTS", "Fault", "S3Server", "running_s3"]

BUCKET = "tests"


@dataclass(frozen=True)
class Fault:
    """An answer to every request: a status with the code of an error, or something that is no answer."""

    status: int = 0
    code: str = ""
    header: tuple[str, str] | None = None
    behaviour: str = ""
    """`hang`, `reset` or `truncate` instead of a status."""


FAULTS: dict[str, Fault] = {
    "refused": Fault(403, "AccessDenied"),
    "wrong-key": Fault(403, "InvalidAccessKeyId"),
    "wrong-signature": Fault(403, "SignatureDoesNotMatch"),
    "expired": Fault(400, "ExpiredToken"),
    "wrong-region": Fault(301, "PermanentRedirect", ("x-amz-bucket-region", "eu-west-1")),
    "region-in-signature": Fault(400, "AuthorizationHeaderMalformed"),
    "clock": Fault(403, "RequestTimeTooSkewed"),
    "no-bucket": Fault(404, "NoSuchBucket"),
    "slow-down": Fault(503, "SlowDown"),
    "internal": Fault(500, "InternalError"),
    "hang": Fault(behaviour="hang"),
    "reset": Fault(behaviour="reset"),
    "truncate": Fault(behaviour="truncate"),
}


class S3Server:
    """Objects in memory, and the fault that all requests meet. Threads: any."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.fault: Fault | None = None
        self.requests: list[str] = []
        self.headers: dict[str, str] = {}
        """Those of the last request, by their names in lower case."""
        self.guard = threading.Lock()
        self.healed = threading.Event()
        """Ends requests that hang."""
        self.ignores_conditions = False
        self.skew_s = 0.0
        """How much the clock of the bucket is ahead."""
        self._http = _Server(("127.0.0.1", 0), _Handler)
        self._http.s3 = self
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.05}, name="s3")
        self._thread.start()
        self.endpoint = f"http://127.0.0.1:{self._http.server_address[1]}"

    def fail(self, name: str) -> None:
        """Let every request fail from now on."""
        self.healed.clear()
        self.fault = FAULTS[name]

    def heal(self) -> None:
        """Answer properly again."""
        self.fault = None
        self.healed.set()

    def stop(self) -> None:
        self.heal()
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()

    def etag(self, key: str) -> str:
        return f'"{hashlib.md5(self.objects[key], usedforsecurity=False).hexdigest()}"'


class _Server(ThreadingHTTPServer):
    s3: S3Server
    daemon_threads = False
    block_on_close = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: clients that time out close their connections."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server
    timeout = 2  # an idle connection must not keep the test waiting
    disable_nagle_algorithm: ClassVar[bool] = True

    def log_message(self, format: str, *arguments: Any) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        self._serve()

    do_HEAD = do_PUT = do_POST = do_DELETE = do_GET

    def _serve(self) -> None:
        s3 = self.server.s3
        parts = urlsplit(self.path)
        key = unquote(parts.path).removeprefix(f"/{BUCKET}").lstrip("/")
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        s3.requests.append(f"{self.command} {key}")
        s3.headers = {name.lower(): value for name, value in self.headers.items()}
        fault = s3.fault
        if fault is not None and fault.behaviour in ("hang", "reset"):
            if fault.behaviour == "hang":
                s3.healed.wait(60)
            self.close_connection = True
            with contextlib.suppress(OSError):
                self.connection.shutdown(socket.SHUT_RDWR)
            return
        if fault is not None and fault.status:
            self._answer(fault.status, _error(fault.code), fault.header)
            return
        query = parse_qs(parts.query, keep_blank_values=True)
        with s3.guard:
            status, content, headers = self._work(key, body, query)
        self._answer(status, content, *headers.items(), truncated=fault is not None)

    def _work(self, key: str, body: bytes, query: dict[str, list[str]]) -> tuple[int, bytes, dict[str, str]]:
        s3 = self.server.s3
        if self.command == "GET" and not key:
            return 200, self._listing(query), {"content-type": "application/xml"}
        if self.command == "POST":
            keys = [part.split("</Key>")[0] for part in body.decode().split("<Key>")[1:]]
            for one in keys:
                s3.objects.pop(one, None)
            deleted = "".join(f"<Deleted><Key>{one}</Key></Deleted>" for one in keys)
            return 200, f"<DeleteResult>{deleted}</DeleteResult>".encode(), {"content-type": "application/xml"}
        if self.command == "PUT":
            is_there = key in s3.objects
            is_refused = (self.headers.get("if-none-match") == "*" and is_there) or (
                "if-match" in self.headers and (not is_there or self.headers["if-match"] != s3.etag(key))
            )
            if is_refused and not s3.ignores_conditions:
                return 412, _error("PreconditionFailed"), {}
            s3.objects[key] = body
            return 200, b"", {"etag": s3.etag(key)}
        if self.command == "DELETE":
            s3.objects.pop(key, None)
            return 204, b"", {}
        if key not in s3.objects:
            return 404, _error("NoSuchKey"), {}
        content = s3.objects[key]
        headers = {"etag": s3.etag(key), "last-modified": formatdate(_now() + s3.skew_s, usegmt=True)}
        if (wanted := self.headers.get("range")) is not None:
            start, stop = (int(one) for one in wanted.removeprefix("bytes=").split("-"))
            found = content[start : stop + 1]
            headers["content-range"] = f"bytes {start}-{start + len(found) - 1}/{len(content)}"
            return 206, found, headers
        return 200, content, headers

    def _listing(self, query: dict[str, list[str]]) -> bytes:
        s3 = self.server.s3
        prefix = query.get("prefix", [""])[0]
        entries = "".join(
            f"<Contents><Key>{escape(key)}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified>"
            f"<ETag>{escape(s3.etag(key))}</ETag><Size>{len(content)}</Size></Contents>"
            for key, content in sorted(s3.objects.items())
            if key.startswith(prefix)
        )
        return (
            f"<ListBucketResult><Name>{BUCKET}</Name><Prefix>{quote(prefix)}</Prefix><IsTruncated>false</IsTruncated>"
            f"{entries}</ListBucketResult>"
        ).encode()

    def _answer(self, status: int, content: bytes, *headers: tuple[str, str] | None, truncated: bool = False) -> None:
        self.send_response(status)
        for header in headers:
            if header is not None:
                self.send_header(*header)
        self.send_header("date", formatdate(_now() + self.server.s3.skew_s, usegmt=True))
        # A HEAD has the length of what a GET would return.
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content[: len(content) // 2] if truncated else content)
        if truncated and content:
            self.close_connection = True


def _error(code: str) -> bytes:
    return f"<Error><Code>{code}</Code><Message>as the test wants it</Message></Error>".encode()


def _now() -> float:
    import time

    return time.time()


@contextlib.contextmanager
def running_s3() -> Iterator[S3Server]:
    """Run a server."""
    server = S3Server()
    try:
        yield server
    finally:
        server.stop()
