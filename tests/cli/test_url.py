"""Each command does and prints the same on a server as in a folder."""

import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import holdfast
from holdfast import Backoff, Model, Roll, field
from holdfast.cli import main
from holdfast.table import text_of_key
from tests.cli.terminal import Result, Terminal
from tests.web.serving import Served

_UNSET = dict.fromkeys(
    ("FORCE_COLOR", "NO_COLOR", "COLUMNS", "TTY_COMPATIBLE", "HOLDFAST_DATA", "HOLDFAST_URL", "HOLDFAST_TOKEN")
)


class Person(Model, id=1):
    name: str = field(1, unique=True)
    age: int = field(2)
    tags: list[str] = field(3, default_factory=list)


def run(arguments: list[str], stdin: bytes = b"", **env: str) -> Result:
    """Run a command in this process, with these variables and no others of ours."""
    with CliRunner().isolation(input=stdin, env=_UNSET | env) as (out, err, _):
        code = main(arguments)
        sys.stdout.flush()
        sys.stderr.flush()
        return Result(code, out.getvalue(), err.getvalue().decode())


class Both:
    """Types each command twice: on a folder, and on a server that has a copy of it."""

    def __init__(self, folder: Path, served: Served) -> None:
        self.folder = folder
        self.served = served

    def __call__(self, command: str, stdin: bytes = b"") -> tuple[Result, Result]:
        """What was left behind here and there; the paths of their folders are made the same."""
        arguments = shlex.split(command)
        here = run(arguments, stdin, HOLDFAST_DATA=str(self.folder))
        there = run(arguments, stdin, HOLDFAST_URL=self.served.url)
        told = [(str(self.served.store.path), str(self.folder)), (self.served.url, str(self.folder))]
        for given, wanted in told:
            raw = there.raw.replace(given.encode(), wanted.encode())
            there = Result(there.code, raw, there.err.replace(given, wanted))
        return here, there

    def same(self, command: str, stdin: bytes = b"") -> Result:
        """What was left behind, which must be the same in both places."""
        here, there = self(command, stdin)
        assert (there.code, there.raw, there.err) == (here.code, here.raw, here.err), command
        return here

    def same_json(self, command: str, *volatile: str) -> list[Any]:
        """What was printed as JSON, which must be the same but for what depends on the moment."""
        here, there = self(command)
        assert there.code == here.code == 0, (command, here, there)
        ours, theirs = ([_without(line, volatile) for line in one.json_lines] for one in (here, there))
        assert theirs == ours, command
        return ours


def _without(content: Any, names: tuple[str, ...]) -> Any:
    if isinstance(content, dict):
        return {name: _without(value, names) for name, value in content.items() if name not in names}
    return [_without(one, names) for one in content] if isinstance(content, list) else content


def fill(folder: Path) -> str:
    """A store with something of everything; the key of a record."""
    with holdfast.open(folder) as store:
        orders = store.queue("orders", max_attempts=2, backoff=Backoff(base=0), starvation=None)
        orders.put_many([b"one", "twö".encode(), b"\xff\x00"])
        failing = store.queue("failing", max_attempts=1)
        failing.put_many([b"bad", b"worse"])
        failing.nack(failing.lease(2), "no good")
        waiting = store.queue("waiting", lease=3600)
        waiting.put(b"later", delay=36000, key=b"k", headers={"h": "v"})
        waiting.put_many([b"held", b"ready"])
        waiting.lease(1)
        store.queue("a/b c%25 ü😀").put(b"odd")
        log = store.log("events", roll=Roll.count(10))
        for number in range(35):
            log.append(b"record %d" % number, key=b"%d" % number, headers={"n": str(number)})
        with log.tailer("slow") as tailer:
            tailer.read_many(12)
            tailer.commit()
        table = store.table(Person, keep_all_versions=True)
        key = table.add(Person(name="Ada", age=36, tags=["x"])).key
        table.change(key, {"age": 37})
        table.add_many([Person(name=f"P{number}", age=number) for number in range(5)])
    return text_of_key(key)


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A folder to make copies of."""
    folder = tmp_path_factory.mktemp("filled") / "data"
    return folder, fill(folder)


@pytest.fixture
def both(filled: tuple[Path, str], tmp_path: Path) -> Iterator[Both]:
    """The same store in a folder and at a server."""
    for name in ("near", "far"):
        shutil.copytree(filled[0], tmp_path / name)
    with Served(tmp_path / "far", history_interval=0) as served:
        yield Both(tmp_path / "near", served)


def test_what_only_looks_shows_the_same(both: Both, filled: tuple[Path, str]) -> None:
    key = filled[1]
    for command in (
        "peek orders", "peek orders --json", "peek orders -n 1 --format raw", "peek orders --format hex",
        "peek 'a/b c%25 ü😀'", "peek waiting", "dlq failing", "dlq failing 1", "dlq failing --json", "dlq orders",
        "leases orders", "leases waiting --json", "delayed orders", "delayed waiting --json",
        "log cat events", "log cat events --json --start 3 --stop 5", "log cat events --reverse --limit 2",
        "log cat events --grep 'record 2.'", "log cat events --since 2h --until 1h", "log tail events -n 3",
        "tail events --json", "log stats events", "log stats events --json", "log tailers events",
        "log inspect events --offset 0", "log inspect events --offset 70 --json", "log inspect events --sequence 17",
        "table list", "table list --json", f"table get Person {key}", f"table get Person {key} --json",
        "table scan Person", "table scan Person --json", "table scan Person --where 'age > 3' --allow-table-scan",
        "table scan Person --order -age --limit 2 --json --allow-table-scan", "table scan Person --select name --json",
        "table scan Person --where 'name == \"Ada\"' --explain", f"table changes Person {key} --max-versions 5",
        "table changes Person --json", "table migrations", "table migrations --json",
    ):  # fmt: skip
        assert both.same(command).code == 0, command


def test_figures_are_the_same_but_for_the_moment(both: Both) -> None:
    moment = ("oldest_age", "put_rate", "lease_rate", "ack_rate", "dedup_window", "wait_p50", "wait_p99", "hold_p50",
              "hold_p99", "seconds", "total_expired")  # fmt: skip
    for command in ("queues --json", "stats waiting --json", "stats --json", "log verify events --json"):
        both.same_json(command, *moment)
    here, there = both("queues")
    assert [line.split("  ")[0] for line in here.lines] == [line.split("  ")[0] for line in there.lines]
    assert "lease 60 min" in both("stats waiting")[1].out


def test_messages_are_put_and_taken(both: Both) -> None:
    assert both.same("put orders four five").out == "3-4 (2 messages)\n"
    assert both.same("put orders -", b"six\nseven\n\xfe\n").out == "5-7 (3 messages)\n"
    assert both.same("put orders x --priority 9 --key k --header a=b --json").json["count"] == 1
    both.same("put orders once --dedup id1")
    assert "duplicate: not written again" in both.same("put orders once --dedup id1").out
    assert "duplicate: not written again" not in both.same("put orders more").out
    (taken,) = both.same_json("get orders --json", "enqueued_at", "enqueued_time")
    assert taken["payload"] == "x" and taken["headers"] == {"a": "b"}
    assert both.same("get orders -n 3 --format raw").raw == b"one\ntw\xc3\xb6\n\xff\x00"
    both.same("get orders --no-ack --format raw")
    assert "failed: 1 message to be redelivered" in both.same("get orders --nack 'out of paper' --format raw").err
    assert both.same("get orders -n 100 --format raw").code == 0
    assert "no message is ready in 'orders' (1 leased)" in both.same("get orders").err


def test_large_bodies_go_through_files(both: Both, tmp_path: Path) -> None:
    (tmp_path / "body").write_bytes(bytes(range(256)) * 4096 * 8)
    both.same(f"put orders --file {tmp_path / 'body'}")
    both.same("get orders -n 3 --format raw")
    assert both.same("get orders --format raw").raw == (tmp_path / "body").read_bytes()


def test_a_queue_of_an_odd_name_is_worked_on(both: Both) -> None:
    name = shlex.quote("a/b c%25 ü😀")
    for command in (f"put {name} x", f"get {name} --format raw", f"purge {name} --yes", f"pause {name}"):
        assert both.same(command).code == 0


def test_dead_letters_are_put_back_or_dropped(both: Both) -> None:
    assert "moved 1 message" in both.same("redrive failing 0").out
    assert "no dead letter 7" in both.same("redrive failing 1 7").complaint
    assert both.same("dlq failing 1 --delete --yes --json").json == {
        "queue": "failing",
        "from": "failing.dead",
        "deleted": 1,
    }
    assert "no dead letters" in both.same("dlq failing --delete").out
    assert "refusing to purge 'failing' without confirmation" in both.same("purge failing").complaint
    assert both.same("purge failing --yes").out == "dropped 1 message of 'failing'\n"


def test_a_queue_is_moved_and_paused(both: Both) -> None:
    both.same("get orders -n 2 --format raw")
    assert both.same("seek orders --start --yes --json").json["again"] == 2
    assert "cannot seek to 77" in both.same("seek orders --to 77 --yes").complaint
    both.same("seek orders --end --yes")
    both.same("seek orders --to 1 --yes")
    assert both.same("pause orders").out == "'orders' is paused: it delivers nothing until it is resumed\n"
    assert both.same("pause orders --json").json == {"queue": "orders", "paused": True, "was_paused": True}
    assert both.same("get orders").out == ""
    assert both.same("resume orders").out == "'orders' is resumed\n"
    assert both.same("get orders --format raw").raw == "twö".encode()


def test_logs_are_written_and_looked_after(both: Both) -> None:
    assert both.same("log append events more --key k --header a=b").out == "35\n"
    assert both.same("log append events -", b"1\n2\n").out == "36-37 (2 records)\n"
    assert both.same("log append 'new log/ü' x --json").json["first"] == 0
    assert both.same("tail events --name slow -n 2").lines[0].startswith("12  ")
    assert both.same("tail events --name slow -n 1").lines[0].startswith("14  ")
    held = both.same("log compact events --max-segments 2").out
    assert "the tailer 'slow' has not read record 15 yet" in held
    assert "deleted the tailer 'slow'" in both.same("log tailers events --forget slow").out
    assert "no tailer 'slow'" in both.same("log tailers events --forget slow").complaint
    both.same("log compact events --max-segments 2 --json")
    assert both.same("log clear events --json").json["end"] == 38
    for result in both("log clear no"):
        assert result.code == 1 and "there is no log 'no'" in result.complaint


def test_records_are_changed(both: Both, filled: tuple[Path, str]) -> None:
    key = filled[1]
    volatile = ("version", "version_time", "key")
    both.same_json('table add Person \'{"name": "Eve", "age": 3}\' --json', *volatile)
    for command in (
        f"table change Person {key} age=40 'tags+=two words'",
        f'table change Person {key} \'{{"name": "Ada L", "age": 41}}\' --check age=40',
        f"table delete Person {key}", f"table undelete Person {key}", f"table delete Person {key} --hard --yes",
    ):  # fmt: skip
        here, there = both(command)
        numbers = re.compile(r"version \d+ at .*")
        assert numbers.sub("", there.out) == numbers.sub("", here.out) and there.code == here.code == 0, (here, there)
    for command in (
        f"table get Person {key}", f"table change Person {key} age=3", f"table change Person {key} ages=3",
        "table add Person '{\"name\": \"P1\", \"age\": 3}'", "table add Person '{\"name\": 5}'",
        "table scan Person --where 'age > 3'", "table scan Person --where 'ages > 3'", "table get Nobody x",
        "table get Person '?'", "table change Person x",
    ):  # fmt: skip
        result = both.same(command)
        assert result.code in (1, 2) and result.complaint, command


def test_many_records_are_added_from_lines(both: Both) -> None:
    lines = b"".join(b'{"name": "L%d", "age": %d}\n' % (number, number) for number in range(1500))
    assert (
        both.same("table add Person -", lines + b'{"name": "L1", "age": 2}\n').out == "added: 1,500 records of 1,501\n"
    )
    for result in both("table scan Person --where 'name == \"L77\"' --json --select age"):
        assert result.json["value"] == {"age": 77}


def test_users_hosts_and_definitions_are_managed(both: Both, tmp_path: Path) -> None:
    both("user delete nobody")  # the first change of a folder tells of guest
    for command, stdin in (
        ("user add ann --tag monitoring", b"s3cret\n"), ("user add ann", b"again\n"),
        ("user add bob --no-password", b""),
        ("user password ann", b"other\n"), ("user password nobody", b"x\n"), ("vhost add shop/eu", b""),
        ("vhost add shop/eu", b""), ("user permit ann --vhost shop/eu --configure '' --write 'x.*' --read '.*'", b""),
        ("user forbid bob --vhost shop/eu --json", b""), ("user forbid ann --vhost shop/eu", b""),
        ("user delete bob --json", b""), ("vhost delete shop/eu --yes --json", b""),
    ):  # fmt: skip
        here, there = both(command, stdin)
        assert (there.code, there.out) == (here.code, here.out), (command, here, there)
        assert there.code == 0 or there.complaint
    (ours, theirs) = both("user list --json")
    assert [one["user"] for one in theirs.json_lines] == [one["user"] for one in ours.json_lines] == ["ann", "guest"]
    assert {one["password"] for one in theirs.json_lines} == {"argon2id"}
    both.same("vhost list --json")
    file = tmp_path / "definitions.json"
    assert run(["definitions", "export", str(file)], HOLDFAST_URL=both.served.url).code == 0
    text = file.read_text().replace('"ann"', '"ann2"')
    both.served.add_user("root", tags=("administrator",))
    url = both.served.url.replace("http://", "http://root:root@")  # guest makes no administrators
    imported = run(["definitions", "import", "-"], text.encode(), HOLDFAST_URL=url)
    assert imported.code == 0 and "imported the definitions" in imported.out
    assert "ann2" in run(["user", "list"], HOLDFAST_URL=both.served.url).out
    with holdfast.connect(both.served.url, user="ann", password="other") as ann:
        assert ann.whoami()["tags"] == ["monitoring"]


def test_tokens_let_programs_in(both: Both, tmp_path: Path) -> None:
    url = both.served.url
    made = run(["token", "create", "nightly", "--lifetime", "1h"], HOLDFAST_URL=url)
    token = made.out.strip()
    assert token.startswith("hf_") and made.err == ""
    (tmp_path / "token").write_text(f"{token}\n")
    nobody = url.replace("//", "//nobody:wrong@")
    assert run(["queues", "--url", nobody], HOLDFAST_TOKEN=token).code == 0
    assert run(["queues", "--url", nobody, "--token-file", str(tmp_path / "token")]).code == 0
    assert "did not accept the user 'nobody'" in run(["queues", "--url", nobody]).complaint
    (listed,) = run(["token", "list", "--json", "--url", url]).json["tokens"]
    assert listed["name"] == "nightly" and token not in str(listed)
    assert run(["token", "delete", listed["id"], "--url", url]).code == 0
    refused = run(["queues", "--url", nobody], HOLDFAST_TOKEN=token).complaint
    assert "create another one with holdfast token create" in refused
    assert "pass --url" in run(["token", "list", "--data", str(tmp_path)]).complaint


def test_dead_letters_of_amqp_are_seen_from_both_ends(both: Both) -> None:
    url = both.served.url
    with holdfast.connect(url) as remote:
        died = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "grave", "x-max-length": 1}
        remote.queue("grave")
        remote.declare_queue("short", died).put_many([b"one", b"two", b"three"])
        deadline = time.monotonic() + 180
        while remote.queue("grave").counts().ready < 2 and time.monotonic() < deadline:
            time.sleep(0.05)
        remote.queue("short").purge()
    for queue in ("short", "grave"):
        letters = run(["dlq", queue, "--json"], HOLDFAST_URL=url).json_lines
        assert [(one["payload"], one["queue"], one["cause"]) for one in letters] == [
            ("one", "short", "maxlen"),
            ("two", "short", "maxlen"),
        ]
    moved = run(["redrive", "grave", str(letters[1]["id"])], HOLDFAST_URL=url)
    assert moved.out == "moved 1 message from 'grave' back into their original queues\n"
    assert run(["get", "short", "--format", "raw"], HOLDFAST_URL=url).raw == b"two"
    assert run(["dlq", "short", "--delete", "--yes"], HOLDFAST_URL=url).out == "deleted 1 dead letter of 'short'\n"


def test_who_may_only_use_a_queue_can_use_it_from_a_terminal(both: Both) -> None:
    url = both.served.url
    run(["user", "add", "worker", "--url", url], b"pw\n")
    run(["user", "permit", "worker", "--configure", "", "--write", "orders", "--read", "orders", "--url", url])
    worker = url.replace("//", "//worker:pw@")
    assert run(["put", "orders", "-", "--url", worker], b"a\nb\n").out == "3-4 (2 messages)\n"
    assert run(["get", "orders", "--format", "raw", "--url", worker]).raw == b"one"
    assert run(["stats", "orders", "--url", worker]).lines[0] == "orders"
    assert "worker" in run(["purge", "waiting", "--yes", "--url", worker]).complaint
    assert "the tag" in run(["log", "list", "--url", worker]).complaint


# Choosing.


def test_a_folder_and_a_url_are_not_both_typed(both: Both) -> None:
    result = run(["queues", "--data", "x", "--url", both.served.url])
    assert result.code == 2 and "choose one: --data DIR for a folder, or --url URL for a server" in result.complaint


def test_a_typed_folder_goes_before_a_url_of_the_environment(both: Both) -> None:
    run(["put", "only-there", "x"], HOLDFAST_URL=both.served.url)
    near = run(["queues", "--data", str(both.folder)], HOLDFAST_URL=both.served.url)
    far = run(["queues", "--url", both.served.url], HOLDFAST_DATA=str(both.folder))
    environment = run(["queues"], HOLDFAST_URL=both.served.url, HOLDFAST_DATA=str(both.folder))
    assert "only-there" not in near.out and "only-there" in far.out and "only-there" in environment.out


def test_the_virtual_host_stands_in_the_url(both: Both) -> None:
    url = both.served.url
    run(["vhost", "add", "shop/eu", "--url", url])
    run(["user", "permit", "guest", "--vhost", "shop/eu", "--configure", ".*", "--write", ".*", "--read", ".*"],
        HOLDFAST_URL=url)  # fmt: skip
    assert run(["put", "there", "x", "--url", f"{url}/?vhost=shop%2Feu"]).code == 0
    assert run(["queues", "--json", "--url", f"{url}?vhost=shop%2Feu"]).json["queues"][0]["name"] == "there"
    assert "'there'" in run(["peek", "there", "--url", url]).complaint


@pytest.mark.parametrize("url", ["localhost:15672", "http://", "ftp://x"])
def test_what_is_no_url_is_a_usage_error(url: str) -> None:
    result = run(["queues", "--url", url])
    assert result.code == 2 and "is not the URL of a server" in result.complaint


def test_what_works_on_a_folder_only_says_what_to_do_instead(tmp_path: Path) -> None:
    for command, instead in (
        ("serve", "with --data DIR"),
        ("demo", "does not accept --url"),
        ("restore x", "with --data DIR"),
        ("import ledgerq x y", "stop the server and import into its folder with --data DIR"),
        ("import rabbitmq amqp://x", "stop the server"),
    ):
        result = run([*command.split(), "--url", "http://localhost:1"])
        assert result.code == 2 and instead in result.complaint, command


def test_what_the_server_decides_is_refused(both: Both) -> None:
    result = run(["log", "append", "events", "x", "--compression", "zstd", "--url", both.served.url])
    assert result.code == 2 and "do not work with --url" in result.complaint


def test_nobody_there_is_one_line() -> None:
    result = run(["put", "x", "y", "--url", "http://ann:s3cret@127.0.0.1:1"])
    assert result.code == 1 and "cannot reach http://127.0.0.1:1: Connection refused" in result.complaint
    assert "s3cret" not in result.err


def test_a_locked_folder_says_that_there_is_a_url(both: Both) -> None:
    for command in ("put orders x", "user add ann --no-password", "vhost add x", "definitions import -"):
        stdin = b"{}" if "import" in command else b""
        result = run(command.split(), stdin, HOLDFAST_DATA=str(both.served.store.path))
        assert result.code == 1 and "use --url with the address that it printed" in result.complaint


def test_it_works_with_a_server_of_its_own_process(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path / "data")
    with ExitStack() as stack:
        server = stack.enter_context(terminal.spawn("serve --amqp-port 0 --http-port 0 --json --set rpc_port=0"))
        assert server.stdout is not None
        url = ""
        deadline = time.monotonic() + 180
        while not url and time.monotonic() < deadline:
            line = server.stdout.readline().decode()
            if found := re.search(r'"protocol": ?"http".*"port": ?(\d+)', line):
                url = f"http://127.0.0.1:{found[1]}"
        command = [sys.executable, "-m", "holdfast"]
        put = subprocess.run([*command, "put", "q", "hello", "--url", url], capture_output=True, check=True)
        assert put.stdout == b"0\n"
        got = subprocess.run([*command, "get", "q", "--format", "raw", "--url", url], capture_output=True, check=True)
        assert got.stdout == b"hello"
