"""Exit codes of commands on queues, and the one line that an error prints."""

import json
from pathlib import Path

import pytest

import holdfast as library
from tests.cli.terminal import Terminal

LEDGERQ = Path(__file__).parent.parent / "queue" / "fixtures" / "ledgerq" / "queue"
READING = ["peek orders", "queues", "stats orders", "stats", "dlq orders"]
WRITING = [
    "get orders",
    "redrive orders --all",
    "redrive orders 0",
    "purge orders --yes",
    "seek orders --start --yes",
]
NAMED = [command for command in [*READING, *WRITING] if "orders" in command]


@pytest.mark.parametrize("command", [*READING, *WRITING, "tail orders"])
@pytest.mark.parametrize("form", ["", " --json"])
def test_a_missing_store_is_one_line_and_is_not_made(holdfast: Terminal, command: str, form: str) -> None:
    result = holdfast(f"{command}{form}")
    assert result.code == 1
    assert result.complaint.startswith(f"there is no store at {str(holdfast.data)!r}: check --data")
    assert not holdfast.data.exists()


@pytest.mark.parametrize("command", NAMED)
def test_an_unknown_queue_is_one_line_that_names_those_there_are_and_is_not_made(
    holdfast: Terminal, command: str
) -> None:
    holdfast("put mails x")
    result = holdfast(command)
    assert result.code == 1
    assert result.complaint == f"there is no queue 'orders' in {str(holdfast.data)!r}; there are: 'mails'"
    assert [queue["name"] for queue in holdfast("queues --json").json["queues"]] == ["mails"]


@pytest.mark.parametrize("command", [*READING, *WRITING, "put orders x"])
def test_a_file_in_place_of_the_store_is_one_line(holdfast: Terminal, command: str) -> None:
    holdfast.data.write_text("not a folder")
    result = holdfast(command)
    assert result.code == 1
    assert "Not a directory" in result.complaint


def test_while_another_process_has_the_store_one_can_look_and_not_touch(holdfast: Terminal) -> None:
    holdfast.fail("orders", b"bad")
    with holdfast.spawn("put orders -") as other:
        assert other.stdin is not None
        other.stdin.write(b"from the other process\n")
        other.stdin.flush()
        with library.open(holdfast.data, read_only=True) as store:
            assert store.log("orders").wait_for(1, 60)
        for command in [*WRITING, "put orders x", f"import ledgerq {LEDGERQ} orders"]:
            result = holdfast(command)
            assert result.code == 1
            assert f"is being written by process {other.pid}: stop it first" in result.complaint
        for command in READING:
            assert holdfast(command).code == 0
        assert holdfast("peek orders --json").json["payload"] == "from the other process"
        assert holdfast("stats orders --json").json["ready"] == 1
        assert holdfast("dlq orders --json").json["payload"] == "bad"
        assert holdfast("tail orders -n 1 --format raw").out == "from the other process\n"


def test_what_another_process_takes_is_seen_at_once(holdfast: Terminal) -> None:
    with holdfast.store() as store:
        queue = store.queue("orders")
        queue.put_many([b"a", b"b", b"c"])
        taken = queue.lease(2)
        assert json.loads(holdfast("stats orders --json").out)["leased"] == 2
        assert [each["payload"] for each in holdfast("peek orders --json").json_lines] == ["c"]
        queue.ack(taken)
        figures = holdfast("stats orders --json").json
        assert (figures["ready"], figures["leased"], figures["total_acked"]) == (1, 0, 2)


@pytest.mark.parametrize("name", ["''", "x" * 300])
def test_a_name_that_no_queue_can_have_is_one_line(holdfast: Terminal, name: str) -> None:
    result = holdfast(f"put {name} payload")
    assert result.code == 1
    assert result.complaint.startswith("queue name")


def test_an_error_is_one_line_even_if_the_name_holds_a_line_break(holdfast: Terminal) -> None:
    holdfast("put mails x")
    assert "there is no queue" in holdfast("get 'two\nlines'").complaint


@pytest.mark.parametrize(
    "command",
    ["put", "get", "peek", "queues", "stats", "dlq", "redrive", "purge", "seek", "tail", "import ledgerq"],
)
def test_every_command_has_help_that_explains_json(holdfast: Terminal, command: str) -> None:
    result = holdfast(f"{command} --help")
    assert result.code == 0
    assert "--json" in result.out and "base64" in result.out


def test_import_alone_shows_its_help(holdfast: Terminal) -> None:
    result = holdfast("import")
    assert (result.code, result.err) == (0, "")
    assert "ledgerq" in result.out


@pytest.mark.parametrize("command", ["put orders", "get", "dlq orders x", "redrive orders x", "stats a b"])
def test_a_usage_error_is_one_line_and_exit_code_2(holdfast: Terminal, command: str) -> None:
    result = holdfast(command)
    assert result.code == 2
    assert result.complaint


def test_damage_that_is_met_is_told(holdfast: Terminal) -> None:
    from tests.cli.terminal import damage_segment

    holdfast("put orders one")
    holdfast("put orders two")
    holdfast("put orders three")
    damage_segment(holdfast.data, "orders", 0, b"two")
    result = holdfast("peek orders --format raw")
    assert result.out == "one\nthree"
    assert "damage" in result.err
