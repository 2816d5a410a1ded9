"""Entry point of the `holdfast` command: runs a command, prints each error as one line, returns the exit code."""

import contextlib
import io
import os
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from rich.text import Text
from typer.main import get_command

import holdfast
from holdfast.base.errors import HoldfastError
from holdfast.cli.backup import backup, restore
from holdfast.cli.bench import bench
from holdfast.cli.broker import definitions_commands, user_commands, vhost_commands
from holdfast.cli.completion import completes
from holdfast.cli.demo import demo
from holdfast.cli.doctor import doctor
from holdfast.cli.import_commands import import_commands
from holdfast.cli.log import log_commands
from holdfast.cli.log.read import tail
from holdfast.cli.options import UsageError, help_if_alone, join_help_lines
from holdfast.cli.output import error_console
from holdfast.cli.pipeline.command import pipeline_commands
from holdfast.cli.queue import add_queue_commands
from holdfast.cli.replica import replica_commands
from holdfast.cli.schema import schema_commands
from holdfast.cli.serve import serve
from holdfast.cli.table.command import table_commands
from holdfast.cli.target import add_urls
from holdfast.cli.token import token_commands
from holdfast.cli.verify import verify
from holdfast.cli.warnings import Notices, one_line

__all__ = ["app", "main", "root_command"]

FAILED = 1
USAGE = 2
INTERRUPTED = 130
PIPE_CLOSED = 141
"""The exit code that a shell reports for a program that SIGPIPE ended."""
_PANELS = ("Queues", "Logs", "Tables", "Broker", "Spark", "More")

app = typer.Typer(
    name="holdfast",
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Holdfast: a durable message queue that you embed like SQLite, serve like RabbitMQ and query with Spark.",
)
add_queue_commands(app)
app.command("tail", rich_help_panel="Logs")(tail)
app.add_typer(log_commands, name="log", rich_help_panel="Logs")
app.add_typer(schema_commands, name="schema", rich_help_panel="Logs")
app.add_typer(table_commands, name="table", rich_help_panel="Tables")
app.command("serve", rich_help_panel="Broker")(serve)
app.add_typer(user_commands, name="user", rich_help_panel="Broker")
app.add_typer(vhost_commands, name="vhost", rich_help_panel="Broker")
app.add_typer(token_commands, name="token", rich_help_panel="Broker")
app.add_typer(definitions_commands, name="definitions", rich_help_panel="Broker")
app.add_typer(pipeline_commands, name="pipeline", rich_help_panel="Spark")
app.add_typer(import_commands, name="import", rich_help_panel="More")
app.command("backup", rich_help_panel="More")(backup)
app.command("restore", rich_help_panel="More")(restore)
app.add_typer(replica_commands, name="replica", rich_help_panel="More")
app.command("doctor", rich_help_panel="More")(doctor)
app.command("verify", rich_help_panel="More")(verify)
app.command("bench", rich_help_panel="More")(bench)
app.command("demo", rich_help_panel="More")(demo)


def _show_version(asked: bool) -> None:
    if asked:
        print(f"holdfast {holdfast.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    help_if_alone(context)


def main(args: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code.

    0: success, 1: an error, damage, or no message for `get`, 2: a usage error, 130: Ctrl-C, 141: standard output is a
    closed pipe.
    """
    for stream in (sys.stdout, sys.stderr):
        # A name that the locale cannot encode is escaped; it is not an error.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    with Notices() as notices:
        try:
            code = _run(list(sys.argv[1:] if args is None else args))
            notices.show()
            sys.stdout.flush()
            return code
        except UsageError as error:
            return _complain(_usage_text(error), USAGE)
        except HoldfastError as error:
            return _complain(str(error), FAILED)
        except (KeyboardInterrupt, typer.Abort):
            return INTERRUPTED
        except BrokenPipeError:
            _forget_output()
            return PIPE_CLOSED
        except OSError as error:
            return _complain(f"{error.strerror or error}" + (f": {error.filename!r}" if error.filename else ""), FAILED)


def root_command() -> Any:
    """Return the click command with all its subcommands, in the order of the panels of the help."""
    command: Any = get_command(app)
    # typer lists groups after all commands, which would put the panels of tables and Spark last.
    ordered = sorted(command.commands.items(), key=lambda item: _PANELS.index(item[1].rich_help_panel))
    command.commands = dict(ordered)
    add_urls(command)
    join_help_lines(command)
    return command


def _run(args: list[str]) -> int:
    # Not through typer's main: it prints errors in a box of several lines and ends the process.
    command = root_command()
    if completes(command):
        return 0
    try:
        with command.make_context("holdfast", args) as context:
            code = command.invoke(context)
    except typer.Exit as end:
        return end.exit_code
    except SystemExit as end:  # --show-completion and --install-completion
        return end.code if isinstance(end.code, int) else 0
    return code if isinstance(code, int) else 0


def _usage_text(error: Exception) -> str:
    text = getattr(error, "format_message", error.__str__)()
    context = getattr(error, "ctx", None)
    hint = f" (see {context.command_path} --help)" if context is not None else ""
    return text.rstrip(".") + hint


def _complain(message: str, code: int) -> int:
    # Standard error may be a closed pipe, too; then the message is lost.
    with contextlib.suppress(BrokenPipeError):
        error_console().print(Text.assemble(("holdfast: ", "bold red"), one_line(message)), soft_wrap=True)
    return code


def _forget_output() -> None:
    # Python flushes standard output again at exit, and would report the closed pipe.
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
