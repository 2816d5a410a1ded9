"""Empty results with --json: an object with an empty list, or no line and a note on standard error."""

from pathlib import Path

import pytest

from holdfast import Model, field
from tests.cli.terminal import Terminal


class Person(Model, id=1):
    name: str = field(1)


@pytest.fixture
def empty(holdfast: Terminal, tmp_path: Path) -> Terminal:
    """A store with an empty queue, an empty table and nothing else."""
    with holdfast.store() as store:
        store.queue("orders")
        store.table(Person)
    (tmp_path / "backups").mkdir()
    return holdfast


@pytest.mark.parametrize(
    ("command", "note"),
    [
        ("peek orders", "no message is ready in 'orders'"),
        ("dlq orders", "'orders' has no dead letters"),
        ("leases orders", "'orders' has no leases"),
        ("delayed orders", "'orders' has no delayed messages"),
        ("table scan Person", "the table 'Person' is empty"),
        ("table scan Person --where 'name == \"x\"' --allow-table-scan", "no record in 'Person' matches"),
        ("table changes Person --allow-table-scan", "no change in 'Person' matches"),
    ],
)
def test_a_command_with_a_line_per_record_prints_no_line_and_a_note(empty: Terminal, command: str, note: str) -> None:
    result = empty(f"{command} --json")
    assert (result.code, result.out, result.err) == (0, "", f"holdfast: {note}\n")


def test_an_empty_list_of_backups_is_noted(empty: Terminal, tmp_path: Path) -> None:
    folder = tmp_path / "backups"
    result = empty(f"backup {folder} --list --json")
    assert (result.code, result.out, result.err) == (0, "", f"holdfast: no backups in {str(folder)!r}\n")


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("queues", "queues"),
        ("stats", "queues"),
        ("log list", "logs"),
        ("log verify", "logs"),
        ("table list", "tables"),
        ("table migrations", "migrations"),
    ],
)
def test_a_command_with_one_object_prints_an_empty_list(holdfast: Terminal, command: str, name: str) -> None:
    holdfast.store().close()
    result = holdfast(f"{command} --json")
    assert (result.code, result.json[name]) == (0, [])
