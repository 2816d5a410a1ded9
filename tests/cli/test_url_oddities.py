"""Commands with --url in unusual cases: odd names, paused queues, options and passwords."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.broker.users import User
from tests.cli.test_url import run
from tests.web.serving import Served


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with Served(tmp_path_factory.mktemp("review") / "data") as one:
        assert one.ask("PUT", "/api/vhosts/%1B%5B2Jevil", {}).status == 201
        # As an earlier version let it be made.
        one.site.on_broker(lambda: one.site.broker.definitions.record([(User("\udcffno-text"), True)]))
        one.site.on_broker(lambda: one.site.broker.users.restore([User("\udcffno-text")]))
        yield one


def test_an_error_that_names_what_others_made_cannot_steer_the_terminal(served: Served) -> None:
    result = run(["vhost", "delete", "nix", "--url", served.url])
    assert result.code == 1
    assert "\x1b" not in result.err
    assert r"\x1b[2Jevil" in result.err


@pytest.mark.parametrize("command", [["definitions", "export"], ["user", "list", "--json"]])
def test_a_user_whose_name_is_no_text_is_written_as_json(served: Served, command: list[str]) -> None:
    result = run([*command, "--url", served.url])
    assert result.code == 0, result.err
    names = []
    if command[0] == "user":
        names = [json.loads(line).get("user") for line in result.raw.splitlines()]
    else:
        names = [user["name"] for user in json.loads(result.raw)["users"]]
    assert "\udcffno-text" in names


@pytest.mark.parametrize("where", ["--url", "--data"])
def test_a_queue_that_is_paused_says_so_to_who_gets_nothing(served: Served, tmp_path: Path, where: str) -> None:
    at = [where, served.url if where == "--url" else str(tmp_path / "data")]
    for command in (["put", "held", "a"], ["pause", "held"]):
        assert run([*command, *at]).code == 0
    assert "'held' is paused, with 1 message ready: run holdfast resume" in run(["get", "held", *at]).err
    assert "paused: delivers nothing until holdfast resume held" in run(["stats", "held", *at]).raw.decode()
    assert run(["resume", "held", *at]).code == 0
    assert "paused" not in run(["stats", "held", *at]).raw.decode()


@pytest.mark.parametrize("option", [["--full"], ["--base", "/nowhere"]])
def test_a_backup_of_a_server_refuses_what_the_server_does_not_heed(
    served: Served, tmp_path: Path, option: list[str]
) -> None:
    result = run(["backup", str(tmp_path / "backups"), *option, "--url", served.url])
    assert result.code == 2
    assert "--full and --base do not work with --url" in result.err
    assert not (tmp_path / "backups").exists()


@pytest.mark.parametrize("url", ["http://ann:12/s3cret@127.0.0.1:1", "http://ann:12/x/s3cret@host"])
def test_a_password_with_a_slash_is_not_told_as_part_of_a_path(url: str) -> None:
    result = run(["queues", "--url", url])
    assert result.code == 2
    assert "s3cret" not in result.err


def test_the_queues_of_a_virtual_host_that_is_not_there_are_an_error(served: Served) -> None:
    result = run(["queues", "--url", f"{served.url}/?vhost=nix"])
    assert result.code == 1
    assert "there is no virtual host 'nix'" in result.err


@pytest.mark.parametrize("option", ["--amqp-port", "--http-port", "--rpc-port"])
@pytest.mark.parametrize("port", ["65536", "99999", "-1"])
def test_a_port_that_cannot_be_is_refused_and_no_other_one_opened(tmp_path: Path, option: str, port: str) -> None:
    result = run(["serve", "--data", str(tmp_path / "data"), f"{option}={port}"])
    assert result.code == 1
    assert f"is {port}: it must be from 0 to 65535" in result.err


def test_the_list_of_a_server_marks_a_paused_queue(served: Served) -> None:
    for command in (["put", "working", "a"], ["put", "resting", "a"], ["pause", "resting"]):
        assert run([*command, "--url", served.url]).code == 0
    rows = {line.split()[0]: line.split()[-1] for line in run(["queues", "--url", served.url]).lines}
    assert (rows["queue"], rows["resting"], rows["working"]) == ("state", "paused", "-")
    assert run(["resume", "resting", "--url", served.url]).code == 0


def test_a_queue_without_dead_letters_is_told_in_the_same_words_everywhere(served: Served, tmp_path: Path) -> None:
    for at in (["--url", served.url], ["--data", str(tmp_path / "data")]):
        assert run(["put", "lucky", "a", *at]).code == 0
        assert run(["dlq", "lucky", *at]).out == "'lucky' has no dead letters\n"


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("log list --data data", ["log", "clicks", "holdfast.definitions", "records", "first record", "tailers"]),
        ("user list --data data", ["user", "ann", "guest", "administrator", "argon2id", "configure", "read"]),
        ("backup backups --list", ["backup", "taken", "files", "state", "intact"]),
    ],
)
def test_a_narrow_terminal_shows_all_that_a_table_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, words: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for before in ("user add ann --no-password", "put clicks a", "backup backups"):
        assert run([*before.split(), "--data", "data"]).code == 0
    result = run(command.split(), FORCE_COLOR="1", TERM="xterm-256color", COLUMNS="40")
    plain = re.sub(r"\x1b\[[0-9;]*m", "", result.out)
    assert max(map(len, plain.splitlines())) <= 40
    assert [word for word in words if word not in plain] == []


def test_a_narrow_terminal_shows_the_names_of_queues(served: Served) -> None:
    assert run(["put", "to-be-seen", "a", "--url", served.url]).code == 0
    result = run(["queues", "--url", served.url], FORCE_COLOR="1", TERM="xterm-256color", COLUMNS="40")
    assert "to-be-seen" in result.out
