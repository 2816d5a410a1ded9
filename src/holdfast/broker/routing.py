"""Routing as in RabbitMQ: from an exchange, routing keys and headers to the names of queues."""

from collections.abc import Container, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Any, ClassVar, Literal, Protocol

from holdfast.broker.amqp_values import LateTime
from holdfast.broker.errors import NoSuch, named

__all__ = ["EXCHANGE_TYPES", "X_MATCHES", "Arguments", "Binding", "DestinationKind", "Router"]

Arguments = Mapping[str, Any]
"""An AMQP table as plain Python values."""
DestinationKind = Literal["queue", "exchange"]
Destination = tuple[DestinationKind, str]

ROUTES_MAX = 100_000
"""Size limit of the route cache; it is cleared when full, since keys that never repeat gain nothing from it."""
X_MATCHES = ("all", "any", "all-with-x", "any-with-x")
_NO_HEADERS: Arguments = {}
_PRESENT, _ABSENT = object(), object()


@dataclass(frozen=True, slots=True)
class Binding:
    """A binding from an exchange to a queue or another exchange; two with equal parts are the same binding."""

    kind: ClassVar[Literal["binding"]] = "binding"
    vhost: str
    source: str
    destination_kind: DestinationKind
    destination: str
    routing_key: str = ""
    arguments: Arguments = field(default_factory=dict, compare=False)
    signature: Hashable = field(init=False, repr=False)
    """The arguments as something that can be compared and hashed: True and 1 differ, the order of a table does not."""

    def __post_init__(self) -> None:
        """Make the arguments comparable."""
        object.__setattr__(self, "signature", _signature(self.arguments))

    @property
    def target(self) -> Destination:
        """The destination."""
        return (self.destination_kind, self.destination)


class Matching(Protocol):
    """The bindings of one exchange, indexed for its type."""

    reads_headers: bool

    def add(self, binding: Binding) -> None:
        """Add a binding that is not there yet."""
        ...

    def remove(self, binding: Binding) -> None:
        """Remove a binding that is there."""
        ...

    def match(self, key: str, headers: Arguments) -> Iterable[Destination]:
        """Return the destinations of the bindings that match; duplicates are allowed."""
        ...


class Direct:
    """Direct exchange: a binding matches if its key equals the routing key."""

    reads_headers = False

    def __init__(self) -> None:
        self._by_key: dict[str, dict[Binding, Destination]] = {}

    def add(self, binding: Binding) -> None:
        self._by_key.setdefault(binding.routing_key, {})[binding] = binding.target

    def remove(self, binding: Binding) -> None:
        held = self._by_key[binding.routing_key]
        del held[binding]
        if not held:
            del self._by_key[binding.routing_key]

    def match(self, key: str, headers: Arguments) -> Iterable[Destination]:
        held = self._by_key.get(key)
        return held.values() if held else ()


class Fanout:
    """Fanout exchange: every binding matches."""

    reads_headers = False

    def __init__(self) -> None:
        self._held: dict[Binding, Destination] = {}

    def add(self, binding: Binding) -> None:
        self._held[binding] = binding.target

    def remove(self, binding: Binding) -> None:
        del self._held[binding]

    def match(self, key: str, headers: Arguments) -> Iterable[Destination]:
        return self._held.values()


class _Word:
    """A node in the trie of a topic exchange: its children, and the bindings that end here."""

    __slots__ = ("ends", "following", "repeats")

    def __init__(self, word: str) -> None:
        self.following: dict[str, _Word] = {}
        self.ends: dict[Binding, Destination] = {}
        self.repeats = word == "#"


class Topic:
    """Topic exchange: words between dots; `*` matches one word, `#` any number of words, including none.

    The trie is walked with the set of all nodes that the words so far can have reached: the work is at most words times
    nodes, whatever the patterns are. (Recursion would visit the same node again for each path to it:
    `#.#.#.#` and a long key would block the broker.)
    """

    reads_headers = False

    def __init__(self) -> None:
        self._root = _Word("")

    def add(self, binding: Binding) -> None:
        place = self._root
        for word in _words(binding.routing_key):
            if word not in place.following:
                place.following[word] = _Word(word)
            place = place.following[word]
        place.ends[binding] = binding.target

    def remove(self, binding: Binding) -> None:
        words = _words(binding.routing_key)
        path = [self._root]
        for word in words:
            path.append(path[-1].following[word])
        del path[-1].ends[binding]
        for before, word, place in zip(reversed(path[:-1]), reversed(words), reversed(path[1:]), strict=True):
            if place.ends or place.following:
                break
            del before.following[word]

    def match(self, key: str, headers: Arguments) -> Iterable[Destination]:
        places: dict[_Word, None] = {}
        _enter(places, self._root)
        for word in _words(key):
            reached: dict[_Word, None] = {}
            for place in places:
                if place.repeats:
                    _enter(reached, place)
                following = place.following
                if following:
                    if (literal := following.get(word)) is not None:
                        _enter(reached, literal)
                    if (any_word := following.get("*")) is not None:
                        _enter(reached, any_word)
            places = reached
        return [target for place in places for target in place.ends.values()]


class ByHeaders:
    """Headers exchange: a binding's arguments are compared with the message's headers; the routing key is ignored."""

    reads_headers = True

    def __init__(self) -> None:
        self._held: dict[Binding, _Wanted] = {}

    def add(self, binding: Binding) -> None:
        self._held[binding] = _Wanted(binding.arguments)

    def remove(self, binding: Binding) -> None:
        del self._held[binding]

    def match(self, key: str, headers: Arguments) -> Iterable[Destination]:
        values = _comparable_headers(headers)
        return [binding.target for binding, wanted in self._held.items() if wanted.in_(values)]


EXCHANGE_TYPES: dict[str, type[Direct] | type[Fanout] | type[Topic] | type[ByHeaders]] = {
    "direct": Direct,
    "fanout": Fanout,
    "topic": Topic,
    "headers": ByHeaders,
}


class _Wanted:
    """The conditions of a binding on headers.

    `x-match` says how many must match: all of them (also if it is missing) or any. Arguments that begin with x- are
    ignored, unless it says all-with-x or any-with-x. An argument without a value requires only that the header exists.
    """

    __slots__ = ("_one_is_enough", "_values")

    def __init__(self, arguments: Arguments) -> None:
        kind = arguments.get("x-match", "all")
        with_x = kind in ("all-with-x", "any-with-x")
        self._one_is_enough = kind in ("any", "any-with-x")
        self._values = [
            (name, _PRESENT if value is None else _comparable(value))
            for name, value in arguments.items()
            if name != "x-match" and (with_x or not name.startswith("x-"))
        ]

    def in_(self, headers: Mapping[str, Hashable]) -> bool:
        one_is_enough = self._one_is_enough
        for name, value in self._values:
            found = headers.get(name, _ABSENT)
            if (found == value or (value is _PRESENT and found is not _ABSENT)) is one_is_enough:
                return one_is_enough
        return not one_is_enough


@dataclass(slots=True)
class _Exchange:
    matching: Matching
    alternate: str | None


class Router:
    """The exchanges of a virtual host and their bindings, for routing only; declarations are validated elsewhere.

    Threads: changes are made on the broker's thread with the broker's `guard` held. That thread routes without the
    lock; other threads route with it.
    """

    def __init__(self, vhost: str, queues: Container[str], *, routes_max: int = ROUTES_MAX) -> None:
        self._vhost = vhost
        self._queues = queues
        self._routes_max = routes_max
        self._exchanges: dict[str, _Exchange] = {}
        self._routes: dict[tuple[str, str], tuple[str, ...]] = {}

    def add_exchange(self, name: str, kind: str, alternate: str | None = None) -> None:
        """Add an exchange of one of `EXCHANGE_TYPES`; `alternate` gets messages that it cannot route."""
        self._exchanges[name] = _Exchange(EXCHANGE_TYPES[kind](), alternate)
        self.forget_routes()

    def remove_exchange(self, name: str) -> None:
        """Remove an exchange with its bindings; the caller removes the bindings whose destination it is."""
        del self._exchanges[name]
        self.forget_routes()

    def bind(self, binding: Binding) -> None:
        """Add a binding that is not there yet."""
        self._exchanges[binding.source].matching.add(binding)
        self.forget_routes()

    def unbind(self, binding: Binding) -> None:
        """Remove a binding that is there."""
        self._exchanges[binding.source].matching.remove(binding)
        self.forget_routes()

    def forget_routes(self) -> None:
        """Clear the cache of routes; call it also when a queue is created or deleted."""
        self._routes.clear()

    def route(self, exchange: str, key: str, headers: Arguments | None = None) -> tuple[str, ...]:
        """Return the queues for a message, each once; none if nothing matches. Raises 404 for an unknown exchange."""
        known = self._routes.get((exchange, key))
        if known is not None:
            return known
        found, cacheable = self._walk(exchange, (key,), headers or _NO_HEADERS)
        if cacheable:
            if len(self._routes) >= self._routes_max:
                self._routes.clear()
            self._routes[exchange, key] = found
        return found

    def fixed_route(self, exchange: str, key: str) -> tuple[str, ...] | None:
        """Return the queues for all messages with this key; None if routing depends on the headers."""
        self.route(exchange, key)
        return self._routes.get((exchange, key))

    def route_all(self, exchange: str, keys: Sequence[str], headers: Arguments | None = None) -> tuple[str, ...]:
        """Return the queues for a message with several routing keys (its own and those of its CC and BCC headers)."""
        if len(keys) == 1:
            return self.route(exchange, keys[0], headers)
        return self._walk(exchange, keys, headers or _NO_HEADERS)[0]

    def _walk(self, exchange: str, keys: Sequence[str], headers: Arguments) -> tuple[tuple[str, ...], bool]:
        """Return the queues for a message, each once, and whether the result may be cached for its keys.

        It may not if a headers exchange was reached, because then the headers decide. Bindings between exchanges are
        followed, and the alternate exchange of each exchange that matches nothing. Raises 404 for an unknown exchange.
        """
        if exchange not in self._exchanges:
            raise NoSuch("no " + named("exchange", exchange, self._vhost))
        cacheable = True
        queues: dict[str, None] = {}
        seen = {exchange}
        waiting = [exchange]
        while waiting:
            name = waiting.pop()
            here = self._exchanges[name]
            targets: Iterable[Destination]
            if name == "":
                targets = [("queue", key) for key in keys if key in self._queues]
            elif len(keys) == 1:
                targets = here.matching.match(keys[0], headers)
            else:
                targets = [target for key in keys for target in here.matching.match(key, headers)]
            cacheable = cacheable and not here.matching.reads_headers
            if not targets and here.alternate:  # an empty name does not mean the default exchange
                targets = [("exchange", here.alternate)]
            for kind, destination in targets:
                if kind == "queue":
                    queues[destination] = None
                # An alternate exchange may be named before it is declared, or after it was deleted.
                elif destination not in seen and destination in self._exchanges:
                    seen.add(destination)
                    waiting.append(destination)
        return tuple(queues), cacheable


def _words(key: str) -> list[str]:
    """Split a key into words. The empty key has none; in any other, words between dots may be empty."""
    return key.split(".") if key else []


def _enter(places: dict[_Word, None], place: _Word) -> None:
    """Add a node, and each `#` node behind it, since `#` may match no word at all."""
    while place not in places:
        places[place] = None
        behind = place.following.get("#")
        if behind is None:
            return
        place = behind


def _comparable_headers(headers: Arguments) -> dict[str, Hashable]:
    return {name: _comparable(value) for name, value in headers.items()}


def _comparable(value: Any) -> Hashable:
    """Return a header's value so that equality means what RabbitMQ means.

    Text equals its bytes and a time its seconds. True is not 1, and a decimal equals only decimals of the same scale.
    """
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape")
    if isinstance(value, bool):
        return ("bool", value)
    if isinstance(value, datetime):
        return int(value.timestamp())
    if isinstance(value, LateTime):
        return value.seconds
    if isinstance(value, Decimal):
        return ("decimal", value.as_tuple())
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    if isinstance(value, Mapping):
        return ("table", tuple(sorted((name, _comparable(inner)) for name, inner in value.items())))
    if isinstance(value, list | tuple):
        return ("array", tuple(map(_comparable, value)))
    return value  # type: ignore[no-any-return]


def _signature(value: Any) -> Hashable:
    """Return a value in a hashable form that includes its type."""
    if isinstance(value, Mapping):
        return ("table", tuple((name, _signature(value[name])) for name in sorted(value)))
    if isinstance(value, list | tuple):
        return ("array", tuple(map(_signature, value)))
    if isinstance(value, bytearray | memoryview):
        value = bytes(value)
    return (type(value).__name__, value)
