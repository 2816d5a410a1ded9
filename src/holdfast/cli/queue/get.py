"""The `holdfast get` and `peek` commands: get prints and settles messages, peek only prints them."""

import contextlib
from datetime import timedelta
from pathlib import Path
from typing import Annotated

import typer

from holdfast.base.clock import NS
from holdfast.base.errors import HoldfastError
from holdfast.base.units import format_count, format_duration, plural
from holdfast.cli.open_store import queue_to_change, queue_to_read
from holdfast.cli.options import (
    DataOption,
    FormatChoice,
    JsonOption,
    QueueArgument,
    UsageError,
    duration_option,
    patience_option,
)
from holdfast.cli.printing import Printer
from holdfast.cli.queue.printing import message_printer
from holdfast.cli.warnings import DamageNotices, notify
from holdfast.queue import Delivery, PeekedMessage, Queue

__all__ = ["get", "peek", "why_nothing"]

_BATCH = 50
_NO_MESSAGE = 1
"""The exit code of `get` if it has no message to print."""

FormOption = Annotated[
    FormatChoice,
    typer.Option(
        "--format", help="text: unprintable characters escaped; raw: the bytes, with a newline between messages."
    ),
]


def get(
    name: QueueArgument,
    data: DataOption = Path("data"),
    count: Annotated[int, typer.Option("-n", "--count", min=1, metavar="N", help="Get at most N messages.")] = 1,
    wait: Annotated[
        timedelta | None,
        typer.Option(
            "--wait",
            parser=patience_option,
            metavar="TIME",
            help="If no message is ready, wait this long for one: 60, 5m or forever.",
        ),
    ] = None,
    lease: Annotated[
        timedelta | None,
        typer.Option(
            "--lease",
            parser=duration_option,
            metavar="TIME",
            show_default="the queue's setting",
            help="Lease the messages for this long: 30, 5m.",
        ),
    ] = None,
    ack: Annotated[
        bool | None,
        typer.Option(
            "--ack/--no-ack",
            show_default="--ack",
            help="Acknowledge the printed messages; or keep them leased, to be redelivered when the lease expires.",
        ),
    ] = None,
    nack: Annotated[
        str | None,
        typer.Option(
            "--nack",
            metavar="REASON",
            help="Report the messages as failed: they are redelivered after their backoff or, after the last attempt, "
            "dead-lettered.",
        ),
    ] = None,
    form: FormOption = FormatChoice.TEXT,
    as_json: JsonOption = False,
) -> int:
    """Get messages from a queue, print them and acknowledge them.

    The highest priority comes first and, within a priority, the oldest message.

    If no message is ready, the exit code is 1 and a line on standard error says why.

    If printing fails, the messages are released, and the attempt does not count.
    """
    if nack is not None and ack is not None:
        raise UsageError("choose one: --ack, --no-ack or --nack REASON")
    taken: list[Delivery] = []
    with queue_to_change(data, name) as queue:
        printer = message_printer(form, json=as_json, newline_between=True)
        timeout = None if wait == timedelta.max else wait or timedelta()
        while (left := count - len(taken)) and (held := queue.lease(min(left, _BATCH), lease=lease, wait=timeout)):
            timeout = timedelta()
            _print(printer, held)
            _settle(queue, held, ack=ack, nack=nack)
            taken += held
        if not taken:
            notify(why_nothing(queue))
        elif not as_json:
            _report_unacknowledged(queue, taken, ack=ack, nack=nack)
        DamageNotices(queue.log).show()
    return 0 if taken else _NO_MESSAGE


def peek(
    name: QueueArgument,
    data: DataOption = Path("data"),
    count: Annotated[int, typer.Option("-n", "--count", min=1, metavar="N", help="Print at most N messages.")] = 10,
    form: FormOption = FormatChoice.TEXT,
    as_json: JsonOption = False,
) -> None:
    """Print the next messages of a queue without leasing them.

    If no message is ready, a line on standard error says why; the exit code is 0.

    Works while another process has the store open.
    """
    with queue_to_read(data, name) as queue:
        printer = message_printer(form, json=as_json, newline_between=True)
        found = queue.peek(count)
        for message in found:
            printer.print(message)
        printer.flush()
        if not found:
            notify(why_nothing(queue))
        DamageNotices(queue.log).show()


def why_nothing(queue: Queue) -> str:
    """Return why no message is available."""
    figures = queue.stats()
    if figures.ready and queue.paused:
        return f"{queue.name!r} is paused, with {plural(figures.ready, 'message')} ready: run holdfast resume"
    others = []
    if figures.delayed:
        left = max(0, (figures.next_due or 0) - queue.log.clock.time_ns()) / NS
        others.append(f"{format_count(figures.delayed)} delayed, the next due in {format_duration(left)}")
    if figures.leased:
        others.append(f"{format_count(figures.leased)} leased")
    if figures.dead:
        others.append(f"{plural(figures.dead, 'dead letter')}")
    return f"no message is ready in {queue.name!r}" + (f" ({'; '.join(others)})" if others else "")


def _settle(queue: Queue, held: list[Delivery], *, ack: bool | None, nack: str | None) -> None:
    if nack is not None:
        queue.nack(held, nack)
    elif ack is not False:
        queue.ack(held)


def _print(printer: Printer[Delivery | PeekedMessage], held: list[Delivery]) -> None:
    try:
        for delivery in held:
            printer.print(delivery)
        printer.flush()
    except BaseException:
        with contextlib.suppress(HoldfastError):  # the user must see the error of the printing
            held[0].queue.release(held)
        raise


def _report_unacknowledged(queue: Queue, taken: list[Delivery], *, ack: bool | None, nack: str | None) -> None:
    """Report on standard error what happens to printed messages that were not acknowledged."""
    if nack is not None:
        most = queue.settings.max_attempts
        dead = 0 if most is None else sum(delivery.attempt >= most for delivery in taken)
        fate = "dropped" if queue.settings.dead_letter is None else f"dead-lettered to {queue.settings.dead_letter!r}"
        again = [f"{plural(len(taken) - dead, 'message')} to be redelivered"] if len(taken) > dead else []
        notify("failed: " + ", ".join([*again, *([f"{plural(dead, 'message')} {fate}"] if dead else [])]))
    elif ack is False:
        notify(f"not acknowledged, redelivered when the lease expires: {plural(len(taken), 'message')}")
