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
from holdfast.cli.queue.printing import MessagePrinter
from holdfast.cli.warnings import DamageNotices, notify
from holdfast.queue import Delivery, Queue

__all__ = ["get", "peek", "why_nothing"]

_BATCH = 50

FormOption = Annotated[
    FormatChoice,
    typer.Option("--format", help="text escapes what is not printable; raw is the bytes, a newline between messages."),
]


def get(
    name: QueueArgument,
    data: DataOption = Path("data"),
    count: Annotated[int, typer.Option("-n", "--count", min=1, metavar="N", help="At most so many messages.")] = 1,
    wait: Annotated[
        timedelta | None,
        typer.Option(
            "--wait", parser=patience_option, metavar="TIME", help="If there is none, wait so long for one; or forever."
        ),
    ] = None,
    lease: Annotated[
        timedelta | None,
        typer.Option(
            "--lease",
            parser=duration_option,
            metavar="TIME",
            show_default="the queue's own",
            help="How long they are held.",
        ),
    ] = None,
    ack: Annotated[
        bool | None,
        typer.Option(
            "--ack/--no-ack",
            show_default="--ack",
            help="Done when they are printed; or only held, so that they come again when the lease has run out.",
        ),
    ] = None,
    nack: Annotated[
        str | None,
        typer.Option("--nack", metavar="REASON", help="They failed: they come again later, or are dead letters now."),
    ] = None,
    form: FormOption = FormatChoice.TEXT,
    as_json: JsonOption = False,
) -> None:
    """Take messages from a queue, print them, and ack what was printed.

    The oldest in the highest priority come first.

    What could not be printed goes back as if it had never been taken.
    """
    if nack is not None and ack is not None:
        raise UsageError("choose one: --ack, --no-ack or --nack REASON")
    taken: list[Delivery] = []
    with queue_to_change(data, name) as queue:
        printer = MessagePrinter(form, json=as_json, newline_between=True)
        patience = None if wait == timedelta.max else wait or timedelta()
        while (left := count - len(taken)) and (held := queue.lease(min(left, _BATCH), lease=lease, wait=patience)):
            patience = timedelta()
            _print(printer, held)
            if nack is not None:
                queue.nack(held, nack)
            elif ack is not False:
                queue.ack(held)
            taken += held
        if not as_json:
            _say_what_became(queue, taken, ack=ack, nack=nack)
        DamageNotices(queue.log).show()


def peek(
    name: QueueArgument,
    data: DataOption = Path("data"),
    count: Annotated[int, typer.Option("-n", "--count", min=1, metavar="N", help="At most so many messages.")] = 10,
    form: FormOption = FormatChoice.TEXT,
    as_json: JsonOption = False,
) -> None:
    """Print the next messages of a queue, without taking them.

    Works while another process has the store open.
    """
    with queue_to_read(data, name) as queue:
        printer = MessagePrinter(form, json=as_json, newline_between=True)
        found = queue.peek(count)
        for message in found:
            printer.print(message)
        printer.flush()
        if not found and not as_json:
            notify(why_nothing(queue))
        DamageNotices(queue.log).show()


def why_nothing(queue: Queue) -> str:
    """Return why no message is available."""
    figures = queue.stats()
    if figures.ready and queue.paused:
        return f"{queue.name!r} is paused, with {format_count(figures.ready)} ready: see holdfast resume"
    elsewhere = []
    if figures.delayed:
        left = (figures.next_due or 0) - queue.log.clock.time_ns()
        elsewhere.append(f"{format_count(figures.delayed)} delayed, the next for {format_duration(max(0, left) / NS)}")
    if figures.leased:
        elsewhere.append(f"{format_count(figures.leased)} leased")
    if figures.dead:
        elsewhere.append(f"{plural(figures.dead, 'dead letter')}")
    return f"no message of {queue.name!r} is ready" + (f" ({'; '.join(elsewhere)})" if elsewhere else "")


def _print(printer: MessagePrinter, held: list[Delivery]) -> None:
    try:
        for delivery in held:
            printer.print(delivery)
        printer.flush()
    except BaseException:
        with contextlib.suppress(HoldfastError):  # that the printing failed is what the user must know
            held[0].queue.release(held)
        raise


def _say_what_became(queue: Queue, taken: list[Delivery], *, ack: bool | None, nack: str | None) -> None:
    """Report on standard error if nothing was printed, or printed messages were not acknowledged."""
    if not taken:
        notify(why_nothing(queue))
    elif nack is not None:
        most = queue.settings.max_attempts
        dead = 0 if most is None else sum(delivery.attempt >= most for delivery in taken)
        fate = "dropped" if queue.settings.dead_letter is None else f"in {queue.settings.dead_letter!r}"
        again = [f"{plural(len(taken) - dead, 'message')} to come again"] if len(taken) > dead else []
        notify("failed: " + ", ".join([*again, *([f"{plural(dead, 'message')} {fate}"] if dead else [])]))
    elif ack is False:
        notify(f"held until the lease runs out, and then delivered again: {plural(len(taken), 'message')}")
