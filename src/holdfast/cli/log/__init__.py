"""The `holdfast log` commands."""

import typer

from holdfast.cli.log.append import append
from holdfast.cli.log.check import inspect, verify
from holdfast.cli.log.compaction import clear, compact
from holdfast.cli.log.overview import list_logs, list_tailers, stats
from holdfast.cli.log.read import cat, tail
from holdfast.cli.options import help_if_alone

__all__ = ["log_commands"]

log_commands = typer.Typer(
    invoke_without_command=True, callback=help_if_alone, help="Append to logs, read and maintain them."
)
log_commands.command("append")(append)
log_commands.command("cat")(cat)
log_commands.command("tail")(tail)
log_commands.command("list")(list_logs)
log_commands.command("stats")(stats)
log_commands.command("tailers")(list_tailers)
log_commands.command("compact")(compact)
log_commands.command("clear")(clear)
log_commands.command("verify")(verify)
log_commands.command("inspect")(inspect)
