"""Routing: which bindings match, how exchanges lead to one another, and that the cache never tells."""

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.broker.amqp_values import LateTime
from holdfast.broker.errors import NoSuch
from holdfast.broker.routing import EXCHANGE_TYPES, Binding, DestinationKind, Router
from tests.broker.internals import routes_cached


def router(kind: str, *keys: str) -> Router:
    """An exchange `x` with one queue for each key, named as the key."""
    made = Router("/", set(keys))
    made.add_exchange("x", kind)
    for key in keys:
        made.bind(Binding("/", "x", "queue", key, key))
    return made


def matches(pattern: str, key: str) -> bool:
    return router("topic", pattern).route("x", key) == (pattern,)


def reference(pattern: list[str], key: list[str]) -> bool:
    """What the words mean, with no thought of speed."""
    if not pattern:
        return not key
    if pattern[0] == "#":
        return any(reference(pattern[1:], key[n:]) for n in range(len(key) + 1))
    return bool(key) and pattern[0] in ("*", key[0]) and reference(pattern[1:], key[1:])


def test_direct_compares_the_whole_key() -> None:
    x = router("direct", "orange", "black", "")
    assert x.route("x", "orange") == ("orange",)
    assert x.route("x", "") == ("",)
    assert x.route("x", "green") == ()


def test_fanout_takes_any_key() -> None:
    assert set(router("fanout", "a", "b").route("x", "whatever")) == {"a", "b"}


@pytest.mark.parametrize(
    ("pattern", "key"),
    [
        ("*.orange.*", "quick.orange.rabbit"),
        ("lazy.#", "lazy.pink.rabbit"),
        ("lazy.#", "lazy"),
        ("#", ""),
        ("#", "a.b.c"),
        ("", ""),
        ("*", "a"),
        ("a.*.c", "a..c"),
        ("*.*", "."),
        ("a.#.b", "a.b"),
        ("#.b.#", "a.b.b.c"),
        ("#.#", "a"),
        ("*.#", "a"),
        ("a.", "a."),
    ],
)
def test_a_topic_matches(pattern: str, key: str) -> None:
    assert matches(pattern, key)


@pytest.mark.parametrize(
    ("pattern", "key"),
    [
        ("*.orange.*", "quick.orange.new.rabbit"),
        ("*.orange.*", "orange"),
        ("lazy.#", "lazier"),
        ("*", ""),
        ("*", "a.b"),
        ("", "a"),
        ("a.*", "a"),
        ("*.#", ""),
        ("a", "a."),
        ("a.b", "*.b"),
    ],
)
def test_a_topic_does_not_match(pattern: str, key: str) -> None:
    assert not matches(pattern, key)


words = st.lists(st.sampled_from(["a", "b", "", "*", "#"]), max_size=6).map(".".join)
plain_words = st.lists(st.sampled_from(["a", "b", ""]), max_size=7).map(".".join)


@given(st.sets(words, min_size=1, max_size=8), st.lists(plain_words, min_size=1, max_size=6), st.data())
def test_topics_match_as_the_words_say_also_after_unbinding(
    patterns: set[str], keys: list[str], data: st.DataObject
) -> None:
    x = router("topic", *sorted(patterns))
    removed = data.draw(st.sets(st.sampled_from(sorted(patterns))))
    for pattern in removed:
        x.unbind(Binding("/", "x", "queue", pattern, pattern))

    def split(text: str) -> list[str]:
        return text.split(".") if text else []

    for key in keys:
        wanted = {one for one in patterns - removed if reference(split(one), split(key))}
        assert set(x.route("x", key)) == wanted


def test_many_hashes_and_a_long_key_do_not_take_for_ever() -> None:
    assert not matches(".".join(["#", "a"] * 20), ".".join(["b"] * 120))


@pytest.mark.parametrize(
    ("arguments", "headers", "answer"),
    [
        ({"format": "pdf", "type": "report"}, {"format": "pdf", "type": "report", "more": 1}, True),
        ({"format": "pdf", "type": "report"}, {"format": "pdf"}, False),
        ({"x-match": "all"}, {}, True),
        ({"x-match": "any"}, {"a": 1}, False),
        ({"x-match": "any", "a": 1, "b": 2}, {"b": 2}, True),
        ({"x-match": "any", "a": 1, "b": 2}, {"b": 3}, False),
        ({"x-match": "all", "x-secret": 1, "a": 1}, {"a": 1}, True),
        ({"x-match": "any", "x-secret": 1}, {"x-secret": 1}, False),
        ({"x-match": "all-with-x", "x-secret": 1, "a": 1}, {"a": 1}, False),
        ({"x-match": "all-with-x", "x-secret": 1, "a": 1}, {"a": 1, "x-secret": 1}, True),
        ({"x-match": "any-with-x", "x-secret": 1}, {"x-secret": 1}, True),
        ({"a": None}, {"a": "anything"}, True),
        ({"a": None}, {"b": 1}, False),
        ({"a": 1}, {"a": None}, False),
        ({"a": True}, {"a": 1}, False),
        ({"a": 1}, {"a": 1.0}, True),
        ({"a": Decimal(1)}, {"a": 1}, False),
        ({"a": Decimal("1.0")}, {"a": Decimal(1)}, False),
        ({"a": Decimal("1.5")}, {"a": Decimal("1.5")}, True),
        ({"a": "text"}, {"a": b"text"}, True),
        ({"a": [1, True]}, {"a": [1, 1]}, False),
        ({"a": {"b": [1]}}, {"a": {"b": [1]}}, True),
        ({"a": datetime(2020, 1, 1, tzinfo=UTC)}, {"a": datetime(2020, 1, 1, tzinfo=UTC)}, True),
        ({"a": LateTime(10**12)}, {"a": LateTime(10**12)}, True),
        ({"a": LateTime(10**12)}, {"a": 10**12}, True),
        ({"a": LateTime(10**12)}, {"a": LateTime(10**12 + 1)}, False),
        ({"a": {"x-b": "c"}}, {"a": 1}, False),
    ],
)
def test_headers(arguments: dict[str, Any], headers: dict[str, Any], answer: bool) -> None:
    exchange = EXCHANGE_TYPES["headers"]()
    exchange.add(Binding("/", "from", "queue", "to", arguments=arguments))
    assert bool(exchange.match("ignored", headers)) is answer


def test_a_headers_exchange_looks_at_each_message_anew() -> None:
    x = Router("/", {"q"})
    x.add_exchange("h", "headers")
    x.bind(Binding("/", "h", "queue", "q", "", {"a": 1}))
    x.add_exchange("f", "fanout")
    x.bind(Binding("/", "f", "exchange", "h"))
    assert x.route("h", "k", {"a": 1}) == ("q",)
    assert x.route("h", "k", {"a": 2}) == ()
    assert x.route("h", "k") == ()
    assert [x.route("f", "k", {"a": n}) for n in (1, 2, 1)] == [("q",), (), ("q",)]


def test_a_binding_is_the_same_only_in_all_its_parts() -> None:
    one = Binding("/", "x", "queue", "q", "k", {"a": 1, "b": [True]})
    assert one == Binding("/", "x", "queue", "q", "k", {"b": [True], "a": 1})
    assert hash(one) == hash(Binding("/", "x", "queue", "q", "k", {"b": [True], "a": 1}))
    for other in ({"a": 1, "b": [1]}, {"a": True, "b": [True]}, {"a": 1}, {}):
        assert one != Binding("/", "x", "queue", "q", "k", other)


def test_two_bindings_to_one_queue_deliver_once_and_end_apart() -> None:
    x = Router("/", {"q"})
    x.add_exchange("x", "direct")
    first, second = Binding("/", "x", "queue", "q", "k"), Binding("/", "x", "queue", "q", "k", {"n": 2})
    x.bind(first)
    x.bind(second)
    assert x.route("x", "k") == ("q",)
    x.unbind(first)
    assert x.route("x", "k") == ("q",)
    x.unbind(second)
    assert x.route("x", "k") == ()


def test_the_default_exchange_leads_to_the_queue_of_that_name() -> None:
    queues = {"q"}
    x = Router("/", queues)
    x.add_exchange("", "direct")
    assert x.route("", "q") == ("q",)
    assert x.route("", "other") == ()
    queues.add("other")
    x.forget_routes()
    assert x.route("", "other") == ("other",)


def test_an_unknown_exchange_is_404() -> None:
    with pytest.raises(NoSuch, match="NOT_FOUND - no exchange 'nowhere' in vhost '/'"):
        Router("/", ()).route("nowhere", "k")


def chain(kinds: dict[str, str | None]) -> Router:
    """Fanout exchanges with their alternates."""
    x = Router("/", {"q", "r"})
    for name, alternate in kinds.items():
        x.add_exchange(name, "fanout", alternate)
    return x


def test_exchanges_lead_to_exchanges_and_circles_end() -> None:
    x = chain({"a": None, "b": None, "c": None})
    for source, target in (("a", "b"), ("b", "c"), ("c", "a"), ("c", "c")):
        x.bind(Binding("/", source, "exchange", target))
    x.bind(Binding("/", "c", "queue", "q"))
    assert [x.route(name, "k") for name in "abc"] == [("q",)] * 3


def test_the_alternate_gets_what_matches_nothing() -> None:
    x = Router("/", {"q", "rest"})
    x.add_exchange("x", "direct", "rest")
    x.add_exchange("rest", "fanout")
    x.bind(Binding("/", "x", "queue", "q", "known"))
    x.bind(Binding("/", "rest", "queue", "rest"))
    assert x.route("x", "known") == ("q",)
    assert x.route("x", "unknown") == ("rest",)


def test_an_exchange_that_leads_to_an_empty_one_does_not_use_its_own_alternate() -> None:
    x = chain({"a": "rest", "empty": None, "rest": None})
    x.bind(Binding("/", "rest", "queue", "q"))
    x.bind(Binding("/", "a", "exchange", "empty"))
    assert x.route("a", "k") == ()


def test_alternates_of_bound_exchanges_count_and_circles_of_alternates_end() -> None:
    x = chain({"a": None, "b": "c", "c": "b"})
    x.bind(Binding("/", "a", "exchange", "b"))
    assert x.route("a", "k") == ()
    x.bind(Binding("/", "c", "queue", "q"))
    assert x.route("a", "k") == ("q",)


def test_an_alternate_that_is_not_there_is_no_error() -> None:
    assert chain({"a": "nowhere"}).route("a", "k") == ()


def test_several_keys_are_routed_as_one_message() -> None:
    x = router("direct", "a", "b", "c")
    assert set(x.route_all("x", ["a", "b", "a"])) == {"a", "b"}
    assert x.route_all("x", ["c"]) == ("c",)


def test_a_route_is_fixed_where_no_headers_are_read() -> None:
    x = router("direct", "a")
    x.add_exchange("h", "headers")
    assert x.fixed_route("x", "a") == ("a",)
    assert x.fixed_route("x", "b") == ()
    assert x.fixed_route("h", "a") is None
    x.bind(Binding("/", "x", "exchange", "h", "a"))
    assert x.fixed_route("x", "a") is None


def test_the_cache_is_bounded() -> None:
    x = Router("/", (), routes_max=10)
    x.add_exchange("x", "direct")
    for n in range(1000):
        x.route("x", str(n))
        assert routes_cached(x) <= 10


NAMES = ["a", "b", "c"]
QUEUES = ["p", "q"]
KEYS = ["", "k", "k.l"]
bindings = st.builds(
    lambda source, target, key, arguments: Binding("/", source, target[0], target[1], key, arguments),
    st.sampled_from(NAMES),
    st.sampled_from([("queue", name) for name in QUEUES] + [("exchange", name) for name in NAMES]),
    st.sampled_from([*KEYS, "#", "k.*"]),
    st.sampled_from([{}, {"h": 1}, {"x-match": "any", "h": None}]),
)
kinds = st.sampled_from(sorted(EXCHANGE_TYPES))
alternates = st.sampled_from([None, *NAMES])


@given(
    st.tuples(*[st.tuples(kinds, alternates)] * len(NAMES)),
    st.lists(st.one_of(bindings, st.sampled_from(NAMES)), max_size=25),
)
def test_with_a_cache_the_answers_are_those_without(
    exchanges: tuple[tuple[str, str | None], ...], steps: list[Binding | str]
) -> None:
    """Each step binds or, a second time, unbinds; or takes an exchange away and puts it back without its bindings."""
    cached, fresh = Router("/", set(QUEUES)), Router("/", set(QUEUES), routes_max=0)
    described = dict(zip(NAMES, exchanges, strict=True))
    bound: set[Binding] = set()
    for name, (kind, alternate) in described.items():
        cached.add_exchange(name, kind, alternate)
        fresh.add_exchange(name, kind, alternate)
    for step in steps:
        for one in (cached, fresh):
            if isinstance(step, str):
                one.remove_exchange(step)
                one.add_exchange(step, *described[step])
            elif step in bound:
                one.unbind(step)
            else:
                one.bind(step)
        bound = {one for one in bound if one.source != step} if isinstance(step, str) else bound ^ {step}
        for name in NAMES:
            for key in KEYS:
                for headers in ({}, {"h": 1}, {"h": 2}):
                    fresh.forget_routes()
                    assert cached.route(name, key, headers) == fresh.route(name, key, headers)


def test_a_destination_is_a_queue_or_an_exchange_of_that_name() -> None:
    x = chain({"a": None, "q": None})
    kind: DestinationKind = "exchange"
    x.bind(Binding("/", "a", kind, "q"))
    assert x.route("a", "k") == ()
    x.bind(Binding("/", "a", "queue", "q"))
    assert x.route("a", "k") == ("q",)
