"""Help texts: order of the panels, layout at 80 columns, and words that scripts rely on."""

from collections.abc import Iterator
from typing import Any

import pytest

from holdfast.cli.app import root_command
from tests.cli.terminal import Terminal


def commands(group: Any, before: str = "") -> Iterator[str]:
    for name, command in group.commands.items():
        path = f"{before} {name}".strip()
        yield path
        yield from commands(command, path) if getattr(command, "commands", None) else ()


ALL = [path for path in commands(root_command()) if not path.startswith("pipeline ")]


def test_the_panels_are_in_order(holdfast: Terminal) -> None:
    lines = holdfast("--help").lines
    panels = [line.split()[1] for line in lines if line.startswith("╭─ ")]
    assert panels == ["Options", "Queues", "Logs", "Tables", "Broker", "Spark", "More"]


@pytest.mark.parametrize("path", ALL)
def test_help_fits_eighty_columns_and_nothing_is_cut_off(holdfast: Terminal, path: str) -> None:
    text = holdfast(f"{path} --help").out
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= 80


def test_the_lines_of_a_paragraph_are_joined(holdfast: Terminal) -> None:
    lines = [line.strip() for line in holdfast("serve --help").lines]
    start = lines.index("Ctrl-C or SIGTERM stops the server: connections are closed and the store is")
    assert lines[start + 1].startswith("synced. Publisher confirms that are still pending then are not sent; their")


def test_get_documents_its_exit_code(holdfast: Terminal) -> None:
    text = " ".join(holdfast("get --help").out.split())
    assert "If no message is ready, the exit code is 1" in text


def test_serve_says_what_a_stop_does_to_pending_confirms(holdfast: Terminal) -> None:
    text = " ".join(holdfast("serve --help").out.split())
    assert "Publisher confirms that are still pending then are not sent" in text
