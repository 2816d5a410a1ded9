"""Users, virtual hosts and definitions are changed from a terminal while no server runs."""

import json
import os
import pty
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.broker.definitions import open_definitions
from holdfast.broker.errors import AccessRefused
from tests.cli.terminal import Terminal


def allowed(terminal: Terminal, name: str, password: str) -> bool:
    """Whether a user would be let in."""
    with terminal.store() as store:
        try:
            open_definitions(store).users().authenticate(name, password, remote_is_loopback=True)
        except AccessRefused:
            return False
        return True


def typed(terminal: Terminal, command: list[str], *answers: str) -> tuple[int, str]:
    """Run a command at a terminal of its own, and type an answer to each question; its exit code and all it said."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "holdfast", *command],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=os.environ | {"HOLDFAST_DATA": str(terminal.data), "TERM": "dumb"},
        start_new_session=True,
    )
    os.close(theirs)
    said = b""
    left = list(answers)
    try:
        while True:
            try:
                part = os.read(ours, 4096)
            except OSError:  # the other side has hung up
                part = b""
            if not part:
                return process.wait(60), said.decode()
            said += part
            if left and said.rstrip(b" ").endswith((b"':", b"password:")):
                os.write(ours, left.pop(0).encode() + b"\n")
    finally:
        process.kill()
        process.wait()
        os.close(ours)


# Users.


def test_a_user_is_added_with_a_password_from_standard_input(holdfast: Terminal) -> None:
    result = holdfast("user add ann --tag administrator --tag monitoring --json", b"s3cret\n")
    assert result.json == {"user": "ann", "tags": ["administrator", "monitoring"]}
    assert allowed(holdfast, "ann", "s3cret")
    assert not allowed(holdfast, "ann", "other")


def test_the_first_change_says_that_guest_is_there(holdfast: Terminal) -> None:
    assert "holdfast user delete guest" in holdfast("user add ann", b"s3cret\n").err
    assert holdfast("user add bob", b"s3cret\n").err == ""


def test_a_password_comes_from_the_first_line_of_a_file(holdfast: Terminal, tmp_path: Path) -> None:
    (tmp_path / "password").write_text("pass word\nmore\n")
    assert holdfast(f"user add ann --password-file {tmp_path / 'password'}").code == 0
    assert allowed(holdfast, "ann", "pass word")


def test_a_password_is_typed_twice_and_not_shown(holdfast: Terminal) -> None:
    code, said = typed(holdfast, ["user", "add", "ann"], "s3cret", "s3cret")
    assert (code, "s3cret" in said) == (0, False)
    assert allowed(holdfast, "ann", "s3cret")
    code, said = typed(holdfast, ["user", "password", "ann"], "one", "two")
    assert (code, "differ" in said) == (1, True)
    assert allowed(holdfast, "ann", "s3cret")


@pytest.mark.parametrize("given", [b"", b"\n"])
def test_without_a_password_nothing_is_made(holdfast: Terminal, given: bytes) -> None:
    assert "password" in holdfast("user add ann", given).complaint
    assert not holdfast.data.exists()


def test_a_user_without_a_password_comes_by_certificate_only(holdfast: Terminal) -> None:
    holdfast("user add ann --no-password")
    assert not allowed(holdfast, "ann", "")
    assert {"user": "ann", "tags": [], "password": None, "permissions": []} in holdfast("user list --json").json_lines


def test_a_password_is_changed(holdfast: Terminal) -> None:
    holdfast("user add ann", b"old\n")
    assert holdfast("user password ann", b"new\n").out == "changed the password of 'ann'\n"
    assert not allowed(holdfast, "ann", "old")
    assert allowed(holdfast, "ann", "new")
    assert "there is no user 'bob'; there are: ann, guest" in holdfast("user password bob", b"new\n").complaint


def test_a_deleted_user_is_gone_with_all_rights(holdfast: Terminal) -> None:
    holdfast("user add ann", b"s3cret\n")
    assert holdfast("user delete guest").out == "deleted the user 'guest'\n"
    assert [line["user"] for line in holdfast("user list --json").json_lines] == ["ann"]
    assert holdfast("vhost list --json").json == {"vhost": "/", "exchanges": 0, "queues": 0, "users": []}
    assert "there is no user 'guest'" in holdfast("user delete guest").complaint


def test_what_a_user_may_do_is_said_and_taken_back(holdfast: Terminal) -> None:
    holdfast("user add ann", b"s3cret\n")
    holdfast("vhost add shop")
    permitted = holdfast("user permit ann --vhost shop --configure ^mine --write .* --read '' --json").json
    assert permitted == {"user": "ann", "vhost": "shop", "configure": "^mine", "write": ".*", "read": ""}
    assert holdfast("user list --json").json_lines[0]["permissions"] == [
        {"vhost": "shop", "configure": "^mine", "write": ".*", "read": ""}
    ]
    rows = [line.split() for line in holdfast("user list").lines]
    assert rows[1] == ["ann", "argon2id", "shop", "^mine", ".*"]
    assert rows[2] == ["guest", "administrator", "argon2id", "/", ".*", ".*", ".*"]
    assert holdfast("user forbid ann --vhost shop --json").json["had"] is True
    assert "nothing to revoke" in holdfast("user forbid ann --vhost shop").out


def test_rights_that_make_no_sense_are_refused(holdfast: Terminal) -> None:
    holdfast("user add ann", b"s3cret\n")
    rest = "--write .* --read .*"
    assert "no virtual host 'nowhere'" in holdfast(f"user permit ann --vhost nowhere --configure .* {rest}").complaint
    assert "there is no user 'bob'" in holdfast(f"user permit bob --configure .* {rest}").complaint
    assert holdfast(f"user permit ann --configure '(' {rest}").code == 1
    assert holdfast("user permit ann --configure .*").code == 2


# Virtual hosts.


def test_a_virtual_host_is_added_once(holdfast: Terminal) -> None:
    assert holdfast("vhost add shop --json").json == {"vhost": "shop"}
    assert "already" in holdfast("vhost add shop").complaint
    assert [line["vhost"] for line in holdfast("vhost list --json").json_lines] == ["/", "shop"]


def test_a_deleted_virtual_host_takes_its_messages_along(holdfast: Terminal, tmp_path: Path) -> None:
    queue = {"name": "jobs", "durable": True, "arguments": {}}
    document = {"vhosts": [{"name": "shop"}], "queues": [queue | {"vhost": "shop"}, queue | {"vhost": "/"}]}
    (tmp_path / "d.json").write_text(json.dumps(document))
    holdfast(f"definitions import {tmp_path / 'd.json'}")
    holdfast.put("shop\x1fjobs", b"one", b"two")
    holdfast.put("jobs", b"three")
    assert "pass --yes" in holdfast("vhost delete shop").complaint
    assert holdfast("vhost delete shop --yes").out == "deleted the virtual host 'shop' with 1 queue\n"
    assert [line["vhost"] for line in holdfast("vhost list --json").json_lines] == ["/"]
    with holdfast.store() as store:
        assert store.queues() == ["jobs"]
    assert "no virtual host 'shop'" in holdfast("vhost delete shop --yes").complaint


# Definitions.


def test_definitions_can_be_carried_to_another_store(holdfast: Terminal, tmp_path: Path) -> None:
    holdfast("user add ann", b"s3cret\n")
    holdfast("vhost add shop")
    file = tmp_path / "out.json"
    assert holdfast(f"definitions export {file}").out == ""
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert json.loads(file.read_text()) == holdfast("definitions export").json
    other = Terminal(tmp_path / "other")
    assert other("definitions import - --json", file.read_bytes()).json["left_out"] == []
    assert allowed(other, "ann", "s3cret")
    assert other("definitions export").json == holdfast("definitions export").json


def test_what_cannot_be_imported_is_told(holdfast: Terminal, tmp_path: Path) -> None:
    (tmp_path / "d.json").write_text(json.dumps({"vhosts": [{"name": "/"}], "policies": [{"vhost": "/", "name": "p"}]}))
    assert "skipped: policies: p" in holdfast(f"definitions import {tmp_path / 'd.json'}").err
    (tmp_path / "d.json").write_text("[]")
    assert "is not a JSON object" in holdfast(f"definitions import {tmp_path / 'd.json'}").complaint


# Stores.


def test_commands_that_read_need_a_store_with_definitions(holdfast: Terminal) -> None:
    assert "there is no store" in holdfast("user list").complaint
    holdfast.put("jobs", b"one")
    for command in ("user list", "vhost list", "definitions export"):
        assert "no users, virtual hosts or queues are defined" in holdfast(command).complaint


@pytest.mark.parametrize("command", ["user delete guest", "user forbid guest", "vhost delete / --yes"])
def test_commands_that_change_make_no_store(holdfast: Terminal, command: str) -> None:
    assert "there is no store" in holdfast(command).complaint
    assert not holdfast.data.exists()


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ("--set memory_limit=abc", "--set memory_limit: 'abc' is not a size (use 1048576, 64KiB or 10GiB)"),
        ("--amqp-port abc", "--amqp-port: 'abc' is not a port (use a number from 0 to 65535, or none)"),
        ("--set memory_limit", "is not NAME=VALUE"),
    ],
)
def test_a_wrong_setting_is_named_as_it_was_given(holdfast: Terminal, given: str, named: str) -> None:
    assert named in holdfast(f"serve {given}").complaint
    assert not holdfast.data.exists()


def test_a_store_that_is_served_is_only_read(holdfast: Terminal) -> None:
    with holdfast.spawn("serve --amqp-port 0") as server:
        assert server.stdout is not None
        server.stdout.readline()
        assert [line["user"] for line in holdfast("user list --json").json_lines] == ["guest"]
        for command in ("user add ann", "user delete guest", "vhost add shop"):
            result = holdfast(command, b"s3cret\n")
            assert (result.code, "is being written by process" in result.complaint) == (1, True)


def test_definitions_that_contradict_a_program_are_refused(holdfast: Terminal, tmp_path: Path) -> None:
    with holdfast.store() as store:
        store.queue("orders", max_length=5)
    queue = {"name": "orders", "vhost": "/", "durable": True, "arguments": {"x-max-length": 99}}
    (tmp_path / "d.json").write_text(json.dumps({"vhosts": [{"name": "/"}, {"name": "side"}], "queues": [queue]}))
    holdfast("vhost add other")  # or the import would also say what a new broker begins with
    assert "a program chose max_length '5'" in holdfast(f"definitions import {tmp_path / 'd.json'}").complaint
    assert [line["vhost"] for line in holdfast("vhost list --json").json_lines] == ["/", "other"]
