"""A URL where a path is taken is refused, everywhere, and leaves no folder behind."""

from collections.abc import Callable
from pathlib import Path

import pytest

import holdfast
from holdfast import InvalidArgument, Keyring, Model, Store, field
from holdfast.backup.backup import list_backups, verify_backup
from holdfast.base.paths import local_path
from holdfast.cli.app import main
from holdfast.table.storage.export import backup_table

URL = "s3://bucket/x"


class Person(Model, id=3):
    """A record."""

    name: str = field(1)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is made by mistake is made here."""
    monkeypatch.chdir(tmp_path)


def opened(use: Callable[[Store], object]) -> Callable[[], None]:
    def call() -> None:
        with holdfast.open("data") as store:
            use(store)

    return call


CALLS: dict[str, Callable[[], object]] = {
    "open": lambda: holdfast.open(URL),
    "open a Path": lambda: holdfast.open(Path(URL)),
    "open read-only": lambda: holdfast.open(URL, read_only=True),
    "backup": opened(lambda store: store.backup(URL)),
    "backup on a base": opened(lambda store: store.backup("backups", base=URL)),
    "restore": lambda: holdfast.restore_backup(Path(URL), Path("data")),
    "restore to": lambda: holdfast.restore_backup(Path("backups"), Path(URL)),
    "list backups": lambda: list_backups(Path(URL)),
    "verify a backup": lambda: verify_backup(Path(URL)),
    "verify": lambda: holdfast.verify(URL),
    "backup a table": opened(lambda store: backup_table(store.table(Person), URL)),
    "save keys": lambda: Keyring.generate().save(URL),
    "load keys": lambda: Keyring.load(URL),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_url_in_place_of_a_path_is_refused_with_what_is_possible(call: Callable[[], object]) -> None:
    with pytest.raises(InvalidArgument, match=r"'s3:/.*is a URL, and .* must be on a disk of this machine"):
        call()
    assert not [path for path in Path().iterdir() if path.name.startswith("s3")]


COMMANDS = [
    ["put", "orders", "x", "--data", URL],
    ["queues", "--data", URL],
    ["log", "list", "--data", URL],
    ["verify", "--data", URL],
    ["doctor", "--data", URL],
    ["serve", "--data", URL],
    ["backup", URL, "--data", "data"],
    ["backup", URL, "--list"],
    ["backup", URL, "--verify"],
    ["restore", "backups", "--data", URL],
    ["restore", "hdfs://host:9000/x", "--data", "new"],  # the URL of a replica is none of these
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_command_refuses_a_url_in_place_of_a_path(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    holdfast.open("data").close()
    assert main(command) in (1, 2)
    assert "is a URL" in capsys.readouterr().err
    assert [path.name for path in Path().iterdir()] == ["data"]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("file:///srv/data", "give the path of a store itself, '/srv/data'"),
        ("file:/srv/my%20data", "'/srv/my data'"),
        ("https://user@host/data", r"holdfast\.connect\(URL\), or --url"),
        ("hdfs://host:9000/data", "Use a folder here"),
        ("S3A://bucket/data", "Use a folder here"),
    ],
)
def test_the_error_says_what_to_do_in_place_of_it(given: str, said: str) -> None:
    with pytest.raises(InvalidArgument, match=said):
        local_path(given)


@pytest.mark.parametrize("given", ["data", "/srv/data", "./s3:/x", "a:b", "c:/data", "x/http://y", ""])
def test_paths_are_taken_as_they_are(given: str) -> None:
    assert local_path(given) == Path(given)
