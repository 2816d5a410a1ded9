"""The table of HTTP routes: path, handler, required permission and schemas; OpenAPI is generated from it.

Paths are matched segment by segment, each percent-decoded separately: a name may contain a slash, and neither dots nor
encoded slashes can turn one route into another.
"""

import contextlib
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar, get_args, get_origin
from urllib.parse import unquote

from holdfast.base.errors import InvalidArgument, NotFound
from holdfast.broker.permissions import Operation

if TYPE_CHECKING:
    from holdfast.web.auth import Caller
    from holdfast.web.context import ServerContext

__all__ = ["Call", "Media", "Needs", "Reply", "Route", "Routes", "Table", "segments_of"]

T = TypeVar("T")
_DIGITS_MAX = 20
_WHOLE_MAX = (1 << 63) - 1


class Needs(IntEnum):
    """The level that the caller must have: each includes those before it."""

    NOTHING = 0
    """No login."""
    USER = 1
    """Any user of the broker; the handler checks permissions."""
    LOGIN = 2
    """A user with one of the tags management, policymaker, monitoring and administrator."""
    MONITORING = 3
    """A user with the tag monitoring or administrator."""
    ADMINISTRATOR = 4
    """A user with the tag administrator."""
    OPERATOR = 5
    """An administrator, but not the default user with its default password. For routes that access files of the
    server's machine, or start Spark."""


@dataclass(frozen=True, slots=True)
class Reply(Generic[T]):
    """A response that is more than JSON with status 200."""

    content: T | None = None
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    media: str = "application/json"
    raw: bytes | None = None
    """The body as bytes, instead of `content`."""


class Media:
    """Content that is not JSON, by its media types: in place of a type in `Route.answers`, or as `Route.takes`."""

    def __init__(self, *types: str) -> None:
        self.types = types


@dataclass(frozen=True, slots=True)
class Call:
    """One request with its caller, who is anonymous on routes that need no login."""

    site: "ServerContext"
    who: "Caller"
    path: Mapping[str, str]
    query: Mapping[str, str]
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)
    queries: tuple[tuple[str, str], ...] = ()
    """All parameters of the query; a name may occur twice."""
    method: str = "GET"

    def may(self, operation: Operation, name: str, *, vhost: str | None = None) -> None:
        """Raise 403 unless the caller may perform the operation on the object of this name.

        Pass `vhost` for a queue or exchange: the caller must then also have permissions in that virtual host.
        """
        if vhost is not None:
            self.site.broker.users.check_vhost(self.who.name, vhost)
        permissions = self.site.broker.permissions
        permissions.check(self.who.name, operation, name, vhost=vhost or "/", tags=self.who.tags)

    @contextlib.contextmanager
    def looking_for(self, what: str, name: str) -> Iterator[None]:
        """Shorten a `NotFound` that the block raises: its text may list all existing objects of this kind.

        Callers with the tag monitoring or administrator get the whole text; others only that this one does not exist.
        """
        try:
            yield
        except NotFound as error:
            if self.who.sees_all:
                raise
            raise NotFound(f"there is no {what} {name!r}") from error

    def field(self, name: str, kind: type | tuple[type, ...], default: Any = ...) -> Any:
        """Return a field of the body; one that is missing or null has the default, and is required without one.

        Raises `InvalidArgument` for a value of another type.
        """
        body = self.body if self.body is not None else {}
        if not isinstance(body, dict):
            raise InvalidArgument("the body must be a JSON object")
        value = body.get(name)
        if value is None:
            if default is ...:
                raise InvalidArgument(f"the body lacks the field {name!r}")
            return default
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise InvalidArgument(f"the field {name!r} in the body cannot be {value!r}")
        return value

    def numbered(self, name: str) -> int:
        """Return a path parameter that is a number, such as the id of a message."""
        text = self.path[name]
        if not (text.isascii() and text.isdigit() and len(text) < _DIGITS_MAX):
            raise InvalidArgument(f"{name} must be a whole number, not {text[:40]!r}")
        return int(text)

    def number(self, name: str, default: int, *, most: int | None = None, least: int = 0) -> int:
        """Return an integer of the query, or the default; raise `InvalidArgument` if it is out of range."""
        text = self.query.get(name, "")
        if not text:
            return default
        try:
            value = int(text)
        except ValueError:
            raise InvalidArgument(f"{name} must be a whole number, not {text!r}") from None
        if value < least or value > (_WHOLE_MAX if most is None else most):
            raise InvalidArgument(
                f"{name} is {value}: it must be at least {least}" + (f" and at most {most}" if most else "")
            )
        return value

    def flag(self, name: str) -> bool:
        """Return a boolean of the query: True for `true`, `yes`, `1` or a name without a value; else False."""
        return self.query.get(name, "false").lower() in ("true", "yes", "1", "")


Work = Callable[[Call], Any]


@dataclass(frozen=True, slots=True)
class Route:
    """One method of one path, and its handler."""

    method: str
    template: str
    work: Work
    needs: Needs
    says: str
    tag: str
    takes: "Mapping[str, Any] | Media | None"
    """The schema of the body; with `Media` it is bytes."""
    query: Mapping[str, str]
    answers: Mapping[int, Any]
    """By status, the type of the content, or None for no content. Errors that have the common form are left out."""
    parts: tuple[str, ...]
    fills: bool
    """Whether it adds data: then it is rejected with 503 while publishers are blocked."""

    @property
    def is_own(self) -> bool:
        """Whether it belongs to our own API, whose routes describe all that they accept."""
        return self.template.startswith("/api/holdfast/")

    @property
    def is_rabbitmqs(self) -> bool:
        """Whether it belongs to RabbitMQ's API, which answers 401 to missing permissions."""
        return self.template.startswith("/api/") and not self.is_own

    def match(self, segments: tuple[str, ...]) -> dict[str, str] | None:
        """Return the path parameters, or None if the path does not match."""
        found = {}
        for part, segment in zip(self.parts, segments, strict=True):
            if part.startswith("{"):
                found[part[1:-1]] = segment
            elif part != segment:
                return None
        return found


class Routes:
    """The routes of one module: its functions are decorated with `get`, `put`, `post`, `patch` or `delete`."""

    def __init__(self, tag: str) -> None:
        self.tag = tag
        self.all: list[Route] = []

    def _add(
        self,
        method: str,
        template: str,
        *,
        needs: Needs,
        says: str,
        takes: Mapping[str, Any] | Media | None = None,
        query: Mapping[str, str] | None = None,
        answer: Any = ...,
        status: int | None = None,
        also: Mapping[int, Any] | None = None,
        fills: bool = False,
    ) -> Callable[[Work], Work]:
        """Return a decorator that adds a route.

        The content of its response is of the type that the handler's annotation names, unless `answer` is given. `also`
        are responses with other statuses.
        """
        parts = tuple(template.strip("/").split("/"))

        def added(work: Work) -> Work:
            answers = {**_answers_of(work, answer, status), **(also or {})}
            described = (needs, says, self.tag, takes, query or {}, answers)
            self.all.append(Route(method, template, work, *described, parts, fills))
            return work

        return added

    def get(self, template: str, **about: Any) -> Callable[[Work], Work]:
        """Add a route that only reads."""
        return self._add("GET", template, **about)

    def put(self, template: str, **about: Any) -> Callable[[Work], Work]:
        """Add a route that sets something to what the body says; it is idempotent."""
        return self._add("PUT", template, **about)

    def post(self, template: str, **about: Any) -> Callable[[Work], Work]:
        """Add a route that performs an action."""
        return self._add("POST", template, **about)

    def patch(self, template: str, **about: Any) -> Callable[[Work], Work]:
        """Add a route that changes a part."""
        return self._add("PATCH", template, **about)

    def delete(self, template: str, **about: Any) -> Callable[[Work], Work]:
        """Add a route that removes something."""
        return self._add("DELETE", template, **about)


def _answers_of(work: Work, answer: Any, status: int | None) -> dict[int, Any]:
    """Return the successful response of a handler: its status and the type of its content."""
    if answer is ...:
        answer = inspect.get_annotations(work, eval_str=True)["return"]
    if get_origin(answer) is Reply:
        (answer,) = get_args(answer)
    if answer is NoReturn:
        return {}
    has_content = answer not in (None, type(None))
    return {status or (200 if has_content else 204): answer if has_content else None}


class Table:
    """All routes together."""

    def __init__(self, parts: Iterable[Routes]) -> None:
        self.all = [route for part in parts for route in part.all]
        self._by_length: dict[int, list[Route]] = {}
        for route in self.all:
            self._by_length.setdefault(len(route.parts), []).append(route)
        for routes in self._by_length.values():  # literal segments take precedence over parameters, from the left
            routes.sort(key=lambda route: tuple(part.startswith("{") for part in route.parts))

    def find(self, method: str, segments: tuple[str, ...]) -> tuple[Route | None, dict[str, str], list[str]]:
        """Return the route and its path parameters; or None, and the methods that the path does support."""
        methods: list[str] = []
        for route in self._by_length.get(len(segments), ()):
            names = route.match(segments)
            if names is not None:
                if route.method == method:
                    return route, names, [method]
                methods.append(route.method)
        return None, {}, methods


def segments_of(raw_path: bytes) -> tuple[str, ...]:
    """Split a path as it was sent. In the APIs a slash at the end is ignored, as in RabbitMQ."""
    path = raw_path.split(b"?", 1)[0].decode("latin-1")
    if path.startswith("/api/"):
        path = path.removesuffix("/")
    return tuple(unquote(part, errors="surrogateescape") for part in path.removeprefix("/").split("/"))
