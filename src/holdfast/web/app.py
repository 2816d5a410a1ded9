"""The ASGI application: finds the route, authenticates the caller, runs the handler and writes JSON."""

import asyncio
import contextlib
import functools
import inspect
import json
import logging
from collections.abc import Callable, Coroutine
from typing import Any

import anyio.to_thread
import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from holdfast.base.errors import Closed, HoldfastError
from holdfast.broker.users import log_failed_login
from holdfast.web.auth import (
    Caller,
    caller_of,
    check_host,
    check_needs,
    check_same_site,
    is_loopback,
    is_remembered,
)
from holdfast.web.context import ServerContext
from holdfast.web.request_schema import check_body, check_query
from holdfast.web.responses import SECURITY, NotAuthenticated, Refused, refusal, response
from holdfast.web.routes import Call, Media, Needs, Route, Routes, Table, segments_of

__all__ = ["BODY_MAX", "make_app"]

logger = logging.getLogger("holdfast.web")

BODY_MAX = 192 << 20
"""Bytes of a request body: the largest message in base64, and some more."""
ANONYMOUS_BODY_MAX = 64 << 10
"""Bytes of a request body on routes that need no login."""


def make_app(site: ServerContext, parts: list[Routes]) -> ASGIApp:
    """Return the ASGI application over these routes."""
    return _Application(site, Table(parts))


class _Application:
    """Dispatches requests to routes. Used by the web's event loop alone."""

    def __init__(self, site: ServerContext, table: Table) -> None:
        self._site = site
        self._table = table
        self._hosts = frozenset(
            name.strip().lower() for name in (site.settings.http_hosts or "").split(",") if name.strip()
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request. Starlette's router is not used: its patterns do not match a path with a line feed."""
        request = Request(scope, receive, send)
        await (await self.answer(request))(scope, receive, send)

    async def answer(self, request: Request) -> Response:
        """Return the response to a request, also to one that fails."""
        try:
            return await self._answered(request)
        except HoldfastError as error:
            path = request.scope["path"]
            return refusal(error, as_rabbitmq=path.startswith("/api/") and not path.startswith("/api/holdfast/"))
        except ClientDisconnect:
            return Response(status_code=499)
        except Exception:
            logger.exception("request failed: method=%s path=%s", request.method, request.scope["path"])
            return refusal(HoldfastError("internal error: see the server's log"))

    async def _answered(self, request: Request) -> Response:
        headers = request.headers
        check_host(headers, self._hosts)
        method = "GET" if request.method == "HEAD" else request.method
        path = request.scope["path"]
        segments = segments_of(request.scope.get("raw_path") or path.encode())
        route, names, methods = self._table.find(method, segments)
        if route is None:
            if not methods:
                raise Refused(404, "not_found", f"there is no route {path!r}: see /api/openapi.json")
            allow = {"Allow": ", ".join([*methods, "OPTIONS"])}
            if method == "OPTIONS":
                return Response(status_code=204, headers={**SECURITY, **allow})
            raise Refused(405, "method_not_allowed", f"{path!r} does not support {method}: use {allow['Allow']}", allow)
        check_same_site(method, headers)
        who = await self._who(request, route)
        most = ANONYMOUS_BODY_MAX if route.needs is Needs.NOTHING else BODY_MAX
        body = None
        if method in ("POST", "PUT", "PATCH", "DELETE"):
            patience = self._site.settings.http_header_timeout if route.needs is Needs.NOTHING else None
            try:
                async with asyncio.timeout(patience):  # an anonymous client cannot hold a connection by sending slowly
                    body = await _body(request, most, route.takes)
            except TimeoutError:
                raise Refused(408, "late", f"the request body did not arrive within {patience:g} seconds") from None
        pairs = tuple(request.query_params.multi_items())
        if route.fills:
            self._site.check_space()
        call = Call(self._site, who, names, dict(pairs), body, headers, pairs, method)
        if route.is_own:  # RabbitMQ's API ignores unknown fields, and its tools rely on that
            check_query(route.query, call.query)
            if not isinstance(route.takes, Media):
                check_body(route.takes, body)
        work: Callable[[Call], Any] = route.work
        if inspect.iscoroutinefunction(work):
            result = await _unless_gone(request, work(call))
        else:
            result = await run_in_threadpool(functools.partial(_read, work) if method == "GET" else work, call)
        return response(result)

    async def _who(self, request: Request, route: Route) -> Caller:
        try:
            return await self._found(request, route)
        except NotAuthenticated as error:
            if error.login is not None:
                log_failed_login(error, peer=_peer(request), protocol="http")
            raise

    async def _found(self, request: Request, route: Route) -> Caller:
        loopback = _is_from_here(request)
        if route.needs is Needs.NOTHING:
            return Caller("", (), loopback, peer=_peer(request))
        users, tokens = self._site.broker.users, self._site.tokens
        if not request.headers.get("authorization", "").lower().startswith("basic "):
            who = caller_of(request.headers, users, tokens, loopback=loopback)  # takes no time
        else:
            work = functools.partial(caller_of, request.headers, users, tokens, loopback=loopback)
            try:
                if is_remembered(request.headers, users):  # known credentials do not wait behind unknown ones
                    who = work()
                else:
                    who = await anyio.to_thread.run_sync(work, limiter=self._site.logins)
            except NotAuthenticated:
                await asyncio.sleep(self._site.settings.login_delay)
                raise
        check_needs(who, route.needs)
        return who


def _peer(request: Request) -> str:
    """Return the address and port of the client; behind a proxy, those of the proxy."""
    return "" if request.client is None else f"{request.client.host}:{request.client.port}"


def _is_from_here(request: Request) -> bool:
    """Whether the client is on this machine, and not a proxy that forwards for others."""
    if "forwarded" in request.headers or "x-forwarded-for" in request.headers:
        return False
    return request.client is not None and is_loopback(request.client.host)


def _read(work: Callable[[Call], Any], call: Call) -> Any:
    """Run a handler that only reads. If what it had found was closed meanwhile, it looks again.

    A queue is closed when it is deleted, then there is none, or when it is opened with other settings.
    """
    try:
        return work(call)
    except Closed:
        return work(call)


async def _unless_gone(request: Request, work: Coroutine[Any, Any, Any]) -> Any:
    """Await `work`, but cancel it if the client disconnects, so that it leases nothing."""

    async def gone() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    working, watching = asyncio.ensure_future(work), asyncio.ensure_future(gone())
    try:
        await asyncio.wait((working, watching), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientDisconnect
        return working.result()
    finally:
        for task in (working, watching):
            if not task.done():
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task


async def _body(request: Request, most: int, takes: object = None) -> Any:
    """Return the JSON body of a request, None if it has none; bytes for a route that takes them."""
    received = bytearray()
    async for chunk in request.stream():
        received += chunk
        if len(received) > most:
            raise Refused(413, "too_large", f"the request body exceeds {most >> 10} KiB: send it in parts")
    if not received:
        return None
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if isinstance(takes, Media) and kind in takes.types:
        return bytes(received)
    if kind != "application/json" or isinstance(takes, Media):
        # A form on another site could send any other content type without a preflight request.
        wanted = takes.types[0] if isinstance(takes, Media) else "application/json"
        what = "bytes" if isinstance(takes, Media) else "JSON"
        raise Refused(415, "unsupported_media_type", f"the body must be {what}: send Content-Type: {wanted}")
    try:
        return msgspec.json.decode(bytes(received))
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        why = "the body has a string with an unpaired surrogate: send such bytes as base64"
        raise Refused(
            400, "bad_request", why if _is_json(received) else f"the body is not valid JSON: {error}"
        ) from error


def _is_json(body: bytearray) -> bool:
    """Whether a more lenient parser accepts it: one that allows unpaired surrogates."""
    try:
        json.loads(body)
    except (ValueError, RecursionError):
        return False
    return True
