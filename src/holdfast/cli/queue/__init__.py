"""The queue commands: `holdfast put`, `get`, `peek`, `queues`, `stats` and others."""

import typer

from holdfast.cli.queue.dead_letters import dlq, redrive
from holdfast.cli.queue.get import get, peek
from holdfast.cli.queue.move import purge, seek
from holdfast.cli.queue.overview import list_queues, stats
from holdfast.cli.queue.pause import delayed, leases, pause, resume
from holdfast.cli.queue.put import put

__all__ = ["add_queue_commands"]

_PANEL = "Queues"


def add_queue_commands(app: typer.Typer) -> None:
    """Add the commands at the top level, without a group: queues are the main use."""
    app.command("put", rich_help_panel=_PANEL)(put)
    app.command("get", rich_help_panel=_PANEL)(get)
    app.command("peek", rich_help_panel=_PANEL)(peek)
    app.command("queues", rich_help_panel=_PANEL)(list_queues)
    app.command("stats", rich_help_panel=_PANEL)(stats)
    app.command("dlq", rich_help_panel=_PANEL)(dlq)
    app.command("redrive", rich_help_panel=_PANEL)(redrive)
    app.command("purge", rich_help_panel=_PANEL)(purge)
    app.command("seek", rich_help_panel=_PANEL)(seek)
    app.command("pause", rich_help_panel=_PANEL)(pause)
    app.command("resume", rich_help_panel=_PANEL)(resume)
    app.command("leases", rich_help_panel=_PANEL)(leases)
    app.command("delayed", rich_help_panel=_PANEL)(delayed)
