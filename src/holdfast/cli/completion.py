"""Shell completion of command lines, including names of queues, logs and tables in the store."""

import contextlib
import os
from collections.abc import Callable
from typing import Any

import typer

import holdfast
from holdfast.base.errors import HoldfastError
from holdfast.cli.target import Target
from holdfast.remote.address import Address
from holdfast.remote.store import RemoteStore

__all__ = ["COMPLETE_VARIABLE", "complete_logs", "complete_queues", "complete_tables", "completes"]

COMPLETE_VARIABLE = "_HOLDFAST_COMPLETE"
"""The environment variable of a completion request; the shell's script comes from `holdfast --show-completion`."""
_TIMEOUT_S = 2
"""How long a completion may wait for a server: the user waits for it after pressing a key."""


def completes(command: Any) -> bool:
    """Answer a shell's completion request; return False if this is not one."""
    if COMPLETE_VARIABLE not in os.environ:
        return False
    with contextlib.suppress(SystemExit):  # raised when the completion is printed
        command.main(args=[], prog_name="holdfast", complete_var=COMPLETE_VARIABLE)
    return True


def complete_queues(context: typer.Context, incomplete: str) -> list[str]:
    """Return the names of queues with this prefix."""
    return _names(context, incomplete, lambda store: store.queues())


def complete_logs(context: typer.Context, incomplete: str) -> list[str]:
    """Return the names of logs with this prefix."""
    return _names(context, incomplete, lambda store: store.logs())


def complete_tables(context: typer.Context, incomplete: str) -> list[str]:
    """Return the names of tables with this prefix."""
    return _names(context, incomplete, lambda store: store.tables())


def _names(context: typer.Context, incomplete: str, names: Callable[[Any], list[str]]) -> list[str]:
    data: Target | None = context.params.get("data")
    if data is None:
        return []
    try:
        if isinstance(data, Address):
            with RemoteStore(data, timeout=_TIMEOUT_S) as remote:
                found = names(remote)
        else:
            with holdfast.open(data, read_only=True) as store:
                found = names(store)
    except (HoldfastError, OSError):  # nothing can be completed, and a message would disturb the prompt
        return []
    return [name for name in found if name.startswith(incomplete) and name.isprintable()]
