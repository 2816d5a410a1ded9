"""A queue's arguments: what they come to, and which are refused in RabbitMQ's words."""

import re
from typing import Any

import pytest

from holdfast.broker.amqp_values import LateTime
from holdfast.broker.errors import PreconditionFailed
from holdfast.broker.queue_arguments import TIME_MAX_MS, QueueArguments, queue_settings


def test_nothing_asked_is_a_classic_queue_without_limits() -> None:
    assert queue_settings({}) == QueueArguments()
    assert not QueueArguments().limited


def test_everything_asked() -> None:
    assert queue_settings(
        {
            "x-message-ttl": 0,
            "x-expires": 1000,
            "x-max-length": 10,
            "x-max-length-bytes": 4096,
            "x-overflow": "reject-publish-dlx",
            "x-dead-letter-exchange": "",
            "x-dead-letter-routing-key": "dead",
            "x-max-priority": 10,
            "x-delivery-limit": 5,
            "x-single-active-consumer": True,
            "x-message-deduplication": True,
            "x-queue-type": "quorum",
            "x-queue-mode": "lazy",
            "x-queue-version": 2,
        }
    ) == QueueArguments(
        message_ttl_ms=0,
        expires_ms=1000,
        max_length=10,
        max_length_bytes=4096,
        overflow="reject-publish-dlx",
        dead_letter_exchange="",
        dead_letter_routing_key="dead",
        max_priority=10,
        delivery_limit=5,
        single_active_consumer=True,
        deduplicates=True,
        queue_type="quorum",
        lazy=True,
    )


def test_unknown_arguments_are_left_alone() -> None:
    assert queue_settings({"x-ha-policy": "all", "anything": object()}) == QueueArguments()


def test_a_delivery_limit_of_minus_one_is_none() -> None:
    assert queue_settings({"x-delivery-limit": -1}).delivery_limit is None


@pytest.mark.parametrize(
    ("arguments", "limited", "rejects"),
    [
        ({"x-max-length": 0}, True, False),
        ({"x-max-length-bytes": 1, "x-overflow": "reject-publish"}, True, True),
        ({"x-overflow": "reject-publish"}, False, False),
    ],
)
def test_only_a_limited_queue_can_reject(arguments: dict[str, Any], limited: bool, rejects: bool) -> None:
    settings = queue_settings(arguments)
    assert (settings.limited, settings.rejects) == (limited, rejects)


@pytest.mark.parametrize(
    ("argument", "value", "reason"),
    [
        ("x-message-ttl", -1, "{value_negative,-1}"),
        ("x-message-ttl", "60000", '"expected integer, got longstr"'),
        ("x-message-ttl", 2.5, '"expected integer, got double"'),
        ("x-message-ttl", True, '"expected integer, got bool"'),
        ("x-message-ttl", LateTime(10**12), '"expected integer, got timestamp"'),
        ("x-message-ttl", 1 << 40, "{value_too_large,1099511627776}"),
        ("x-expires", 0, "{value_zero,0}"),
        ("x-expires", -5, "{value_negative,-5}"),
        ("x-max-length", -1, "{value_negative,-1}"),
        ("x-max-length-bytes", None, '"expected integer, got void"'),
        ("x-max-priority", 256, "{max_value_exceeded,256}"),
        ("x-overflow", "explode", "invalid_overflow"),
        ("x-overflow", 1, "{unacceptable_type,signedint}"),
        ("x-dead-letter-routing-key", "k", "routing_key_but_no_dlx_defined"),
        ("x-single-active-consumer", "true", "{unacceptable_type,longstr}"),
        ("x-delivery-limit", -2, "{value_negative,-2}"),
        ("x-queue-mode", "busy", "unsupported queue mode 'busy'"),
        ("x-queue-version", 3, "unsupported queue version '3'"),
        ("x-queue-type", "stream", "stream queues are not supported"),
        ("x-queue-type", "paper", "unsupported queue type 'paper'"),
    ],
)
def test_a_wrong_value_is_406_and_says_which(argument: str, value: object, reason: str) -> None:
    with pytest.raises(PreconditionFailed, match=re.escape(reason)) as caught:
        queue_settings({argument: value}, "q", "/")
    assert caught.value.text.startswith(f"PRECONDITION_FAILED - invalid arg '{argument}' for queue 'q' in vhost '/': ")
    assert (caught.value.code, caught.value.closes_connection) == (406, False)


def test_a_dead_letter_exchange_must_be_a_name() -> None:
    with pytest.raises(PreconditionFailed) as caught:
        queue_settings({"x-dead-letter-exchange": 7}, "q", "/")
    assert caught.value.text == (
        "PRECONDITION_FAILED - invalid type 'signedint' for arg 'x-dead-letter-exchange' in queue 'q' in vhost '/'"
    )


def test_ten_years_are_the_longest_time_to_live() -> None:
    assert queue_settings({"x-message-ttl": TIME_MAX_MS}).message_ttl_ms == TIME_MAX_MS
    with pytest.raises(PreconditionFailed, match="value_too_large"):
        queue_settings({"x-message-ttl": TIME_MAX_MS + 1})


@pytest.mark.parametrize("version", [1, 2])
def test_both_versions_of_a_classic_queue_are_taken(version: int) -> None:
    assert queue_settings({"x-queue-version": version}) == QueueArguments()
