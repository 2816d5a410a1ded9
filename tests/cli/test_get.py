"""`holdfast get` prints and settles messages; `peek` only prints them."""

import base64
import signal
import time

import pytest

from holdfast.base.files import SystemFiles
from tests.cli.terminal import Terminal


def test_get_prints_the_oldest_message_and_acks_it(holdfast: Terminal) -> None:
    holdfast("put orders first second")
    assert holdfast("get orders --format raw").out == "first"
    assert holdfast("get orders --format raw").out == "second"
    figures = holdfast("stats orders --json").json
    assert (figures["ready"], figures["leased"], figures["total_acked"]) == (0, 0, 2)


def test_get_as_text_shows_id_time_attempt_priority_and_headers(holdfast: Terminal) -> None:
    holdfast("put orders hello --key k --header a=b --priority 3")
    holdfast("get orders --no-ack --lease 1ms")
    number, date, _clock, *rest = holdfast("get orders --wait 5s").out.split()
    assert (number, rest) == ("0", ["attempt=2", "priority=3", "key=k", "a=b", "hello"])
    assert len(date) == len("2026-11-15")


def test_get_as_json_gives_one_object_a_line(holdfast: Terminal) -> None:
    holdfast("put orders one two --header a=b --priority 2")
    first, second = holdfast("get orders -n 5 --json").json_lines
    assert (first["id"], first["attempt"], first["priority"], first["payload"]) == (0, 1, 2, "one")
    assert (first["key"], first["headers"]) == (None, {"a": "b"})
    assert int(first["enqueued_time"][20:29]) == first["enqueued_at"] % 1_000_000_000
    assert second["payload"] == "two"


def test_bytes_that_are_no_text_are_base64_in_json_and_bare_in_raw(holdfast: Terminal) -> None:
    holdfast("put orders -", stdin=b"\xff\xfe\x00\n")
    assert base64.b64decode(holdfast("peek orders --json").json["payload"]["base64"]) == b"\xff\xfe\x00"
    assert holdfast("peek orders --format hex").out.splitlines()[1].split()[1:4] == ["ff", "fe", "00"]
    assert holdfast("get orders --format raw").raw == b"\xff\xfe\x00"


def test_text_cannot_steer_the_terminal(holdfast: Terminal) -> None:
    holdfast("put orders -", stdin=b"\x1b[2J\xff\n")
    assert holdfast("get orders").out.endswith("\\x1b[2J\\xff\n")


def test_many_messages_are_taken_in_order(holdfast: Terminal) -> None:
    holdfast("put orders -", stdin=b"".join(b"%d\n" % number for number in range(500)))
    assert [message["id"] for message in holdfast("get orders -n 400 --json").json_lines] == [*range(400)]
    assert holdfast("stats orders --json").json["ready"] == 100


@pytest.mark.parametrize("options", ["", " --json", " -n 5", " --no-ack", " --nack no", " --format raw", " --wait 0"])
def test_get_from_an_empty_queue_says_so_and_exits_with_1(holdfast: Terminal, options: str) -> None:
    holdfast("put orders only")
    assert holdfast("get orders").code == 0
    result = holdfast(f"get orders{options}")
    assert (result.code, result.out, result.err) == (1, "", "holdfast: no message is ready in 'orders'\n")


@pytest.mark.parametrize("options", ["", " --json"])
def test_peek_into_an_empty_queue_says_so_and_is_no_error(holdfast: Terminal, options: str) -> None:
    holdfast("put orders -")
    result = holdfast(f"peek orders{options}")
    assert (result.code, result.out, result.err) == (0, "", "holdfast: no message is ready in 'orders'\n")


def test_fewer_messages_than_asked_for_are_no_error(holdfast: Terminal) -> None:
    holdfast("put orders one two")
    assert holdfast("get orders -n 5 --format raw").code == 0


def test_a_duration_may_be_a_number_of_seconds(holdfast: Terminal) -> None:
    began = time.time_ns()
    assert holdfast("put orders held").code == 0
    assert holdfast("put orders later --delay 3600").code == 0
    assert holdfast("get orders --wait 60 --lease 3600 --no-ack --format raw").out == "held"
    (lease,), (delayed,) = (holdfast(f"{what} orders --json").json_lines for what in ("leases", "delayed"))
    for end in (lease["expires_at"], delayed["due_at"]):
        assert 3600 <= (end - began) / 1e9 < 4200


def test_why_there_is_nothing_is_said(holdfast: Terminal) -> None:
    holdfast.fail("orders", b"bad")
    holdfast("put orders later --delay 1h")
    holdfast("put orders held")
    holdfast("get orders --no-ack")
    said = holdfast("get orders").err
    assert said.startswith("holdfast: no message is ready in 'orders' (1 delayed, the next due in 59 min")
    assert said.endswith("1 leased; 1 dead letter)\n")


def test_without_ack_a_message_comes_again_when_its_lease_has_run_out(holdfast: Terminal) -> None:
    holdfast("put orders hello")
    first = holdfast("get orders --no-ack --lease 50ms")
    assert "not acknowledged, redelivered when the lease expires: 1 message" in first.err
    again = holdfast("get orders --wait 5s --json").json
    assert (again["id"], again["attempt"]) == (0, 2)


def test_a_nacked_message_comes_again_and_then_is_a_dead_letter(holdfast: Terminal) -> None:
    with holdfast.store() as store:
        from holdfast import Backoff

        store.queue("orders", max_attempts=2, backoff=Backoff(base=0)).put(b"bad")
    assert holdfast("get orders --nack 'out of stock'").err == "holdfast: failed: 1 message to be redelivered\n"
    assert (
        holdfast("get orders --nack 'still none'").err == "holdfast: failed: 1 message dead-lettered to 'orders.dead'\n"
    )
    letter = holdfast("dlq orders --json").json
    assert (letter["payload"], letter["reason"], letter["attempts"]) == ("bad", "still none", 2)


def test_get_waits_for_a_message_that_is_due_soon(holdfast: Terminal) -> None:
    holdfast("put orders soon --delay 300ms")
    assert holdfast("get orders --wait forever --format raw").out == "soon"


def test_get_gives_up_when_its_time_is_over(holdfast: Terminal) -> None:
    holdfast("put orders later --delay 1h")
    began = time.monotonic()
    assert holdfast("get orders --wait 300ms --json").out == ""
    assert 0.3 <= time.monotonic() - began < 600


def test_peek_takes_nothing(holdfast: Terminal) -> None:
    holdfast("put orders one two three")
    assert [message["id"] for message in holdfast("peek orders -n 2 --json").json_lines] == [0, 1]
    assert holdfast("peek orders --format raw").out == "one\ntwo\nthree"
    figures = holdfast("stats orders --json").json
    assert (figures["ready"], figures["leased"]) == (3, 0)


def test_peek_tells_how_often_a_message_failed(holdfast: Terminal) -> None:
    holdfast("put orders shaky")
    holdfast("get orders --nack no")
    time.sleep(1.1)  # the default backoff
    assert holdfast("peek orders --json").json["attempts"] == 1
    assert "attempts=1" in holdfast("peek orders").out


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ("--nack x --ack", "choose one"),
        ("--nack x --no-ack", "choose one"),
        ("-n 0", "'-n'"),
        ("--wait long", "'long' is not a duration"),
        ("--lease 7y", "'7y' is not a duration"),
    ],
)
def test_get_refuses_what_it_cannot_understand(holdfast: Terminal, options: str, reason: str) -> None:
    holdfast("put orders x")
    result = holdfast(f"get orders {options}")
    assert result.code == 2
    assert reason in result.complaint
    assert holdfast("stats orders --json").json["total_leased"] == 0


def test_a_lease_of_nothing_is_refused(holdfast: Terminal) -> None:
    holdfast("put orders x")
    assert holdfast("get orders --lease 0s").complaint == "lease must be more than zero"


def test_what_goes_into_a_closed_pipe_is_not_acked(holdfast: Terminal) -> None:
    with holdfast.store() as store:
        store.queue("orders").put_many([b"x" * 10_000] * 1000)
    with holdfast.spawn("get orders -n 1000 --json") as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(60) == 141
        assert process.stderr.read() == b""
    figures = holdfast("stats orders --json").json
    assert figures["leased"] == 0
    assert figures["ready"] + figures["total_acked"] == 1000
    assert figures["ready"] > 500


def test_ctrl_c_while_waiting_takes_nothing(holdfast: Terminal) -> None:
    holdfast("put orders later --delay 1h")
    with holdfast.spawn("get orders --wait forever") as process:
        assert process.stderr is not None
        deadline = time.monotonic() + 180
        # Asked of the lock itself: a command that wanted to write could come first, and keep it from opening the store.
        while not SystemFiles().is_locked(holdfast.data / "LOCK"):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
        assert process.stderr.read() == b""
