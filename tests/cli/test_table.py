"""Table commands that read, also while another process works."""

import re
from datetime import UTC, datetime
from pathlib import Path

import pytest

import holdfast as library
from holdfast.table import Index, Keyring, Model, Reversed, field, text_of_key
from tests.cli.terminal import Terminal


class Account(Model, id=1, version="1.2"):
    """What the commands find in the store."""

    email: str = field(1, unique=True)
    name: str = field(2)
    opened: datetime = field(3, final=True)
    tags: set[str] = field(4, default_factory=set)
    age: int | None = field(5, default=None, min=0)
    limits: dict[str, int] = field(6, default_factory=dict)
    __indexes__ = [Index("name"), Index(Reversed("opened"), "name")]  # noqa: RUF012  (as users write it)


def account(number: int = 0, **fields: object) -> Account:
    given = {
        "email": f"{number}@x",
        "name": ["Ada", "Bob"][number % 2],
        "opened": datetime(2026, 1, 1 + number, tzinfo=UTC),
        **fields,
    }
    return Account(**given)  # type: ignore[arg-type]


@pytest.fixture
def keys(holdfast: Terminal) -> list[str]:
    """The keys of five accounts in a table that keeps its past."""
    with holdfast.store() as store:
        table = store.table(Account, keep_all_versions=True)
        return [text_of_key(table.add(account(number)).key) for number in range(5)]


def emails(holdfast: Terminal, command: str) -> list[str]:
    return [line["value"]["email"] for line in holdfast(f"table scan Account {command} --json").json_lines]


# list


def test_list_shows_each_table_with_its_figures(holdfast: Terminal, keys: list[str]) -> None:
    holdfast(f"table delete Account {keys[0]}")
    header, row = [line.split() for line in holdfast("table list").lines]
    assert header == ["table", "id", "version", "records", "log", "past", "last", "change"]
    assert (row[:4], row[6]) == (["Account", "1", "1.2", "4"], "kept")
    (found,) = holdfast("table list --json").json["tables"]
    assert (found["name"], found["id"], found["records"], found["deleted"]) == ("Account", 1, 4, 1)
    assert found["keep_all_versions"] is True and found["log_bytes"] > 0
    assert found["last_version_time"].endswith("Z")


def test_a_store_without_tables_says_so(holdfast: Terminal) -> None:
    holdfast("put orders x")
    assert holdfast("table list").out == f"no tables in {str(holdfast.data)!r} yet\n"
    assert holdfast("table list --json").json == {"tables": []}


# get


def test_get_shows_a_record_with_its_versions(holdfast: Terminal, keys: list[str]) -> None:
    record = holdfast(f"table get Account {keys[1]} --json").json
    assert record["key"] == keys[1] and record["version"] == record["created"] and record["deleted"] is False
    assert record["value"] == {
        "email": "1@x", "name": "Bob", "opened": "2026-01-02T00:00:00Z", "tags": [], "age": None, "limits": {},
    }  # fmt: skip
    lines = [" ".join(line.split()) for line in holdfast(f"table get Account {keys[1]}").lines]
    assert lines[0] == f"key {keys[1]}"
    assert lines[1].startswith(f"version {record['version']} (20")
    assert "name Bob" in lines and "age -" in lines


def test_get_shows_a_record_as_it_was(holdfast: Terminal, keys: list[str]) -> None:
    before = holdfast(f"table get Account {keys[0]} --json").json
    holdfast(f"table change Account {keys[0]} name=Countess")
    assert holdfast(f"table get Account {keys[0]} --json").json["value"]["name"] == "Countess"
    for point in (before["version"], before["version_time"]):
        then = holdfast(f"table get Account {keys[0]} --as-of {point} --json").json
        assert then["value"]["name"] == "Ada"
    gone = holdfast(f"table get Account {keys[0]} --as-of 1d")
    assert gone.complaint == f"the table 'Account' has no record {keys[0]} as of 1d"


def test_a_deleted_record_is_shown_to_who_asks_for_it(holdfast: Terminal, keys: list[str]) -> None:
    holdfast(f"table delete Account {keys[0]}")
    result = holdfast(f"table get Account {keys[0]}")
    assert result.code == 1
    assert result.complaint == f"the record {keys[0]} of 'Account' is deleted: --include-deleted shows it"
    assert holdfast(f"table get Account {keys[0]} --include-deleted --json").json["deleted"] is True


def test_text_of_a_record_cannot_steer_the_terminal(holdfast: Terminal, keys: list[str]) -> None:
    with holdfast.store() as store:
        store.table(Account).add(account(9, name="\x1b[2J\u202e", tags={"\x1b[0m"}))
    for command in ("table scan Account", "table scan Account --where 'name.exists()' --explain"):
        assert "\x1b" not in holdfast(command).out and "\u202e" not in holdfast(command).out


# scan


def test_scan_shows_all_records_or_those_that_fit(holdfast: Terminal, keys: list[str]) -> None:
    assert emails(holdfast, "") == [f"{number}@x" for number in range(5)]
    assert emails(holdfast, "--where 'name == \"Bob\"'") == ["1@x", "3@x"]
    assert emails(holdfast, "--order -opened") == [f"{number}@x" for number in reversed(range(5))]
    ordered = emails(holdfast, "--order name,-opened --allow-table-scan")
    assert ordered == ["4@x", "2@x", "0@x", "3@x", "1@x"]
    header, *rows = [line.split() for line in holdfast("table scan Account --select email,name").lines]
    assert header == ["key", "email", "name"]
    assert rows[0] == [keys[0], "0@x", "Ada"]


def test_scan_gives_pages_that_a_cursor_joins(holdfast: Terminal, keys: list[str]) -> None:
    found, cursor = [], ""
    while True:
        *records, last = [*holdfast(f"table scan Account --order -opened --limit 2 --json {cursor}").json_lines, {}]
        if records and "cursor" in records[-1]:
            last = records.pop()
        found += [record["value"]["email"] for record in records]
        if not last:
            break
        cursor = f"--cursor {last['cursor']}"
    assert found == ["4@x", "3@x", "2@x", "1@x", "0@x"]
    said = holdfast("table scan Account --limit 2").err
    assert said.startswith("holdfast: there are more records: continue with --cursor ")


def test_scan_reads_the_past(holdfast: Terminal, keys: list[str]) -> None:
    version = holdfast("table list --json").json["tables"][0]["last_version"]
    holdfast(f"table change Account {keys[0]} name=Eve")
    holdfast(f"table delete Account {keys[2]} --hard --yes")
    assert emails(holdfast, "--where 'name == \"Ada\"'") == ["4@x"]
    assert emails(holdfast, f"--where 'name == \"Ada\"' --as-of {version}") == ["0@x", "4@x"]


def test_scan_selects_values(holdfast: Terminal, keys: list[str]) -> None:
    (line,) = holdfast("table scan Account --limit 5 --select name --where 'email == \"3@x\"' --json").json_lines
    assert line["value"] == {"name": "Bob"}
    refused = holdfast("table scan Account --select nome")
    assert refused.code == 2 and "Account has no field 'nome'" in refused.complaint


def test_a_scan_of_the_whole_table_must_be_allowed(holdfast: Terminal, keys: list[str]) -> None:
    refused = holdfast("table scan Account --where 'age > 3'")
    assert refused.code == 1
    assert 'add Index("age") to it, or give --allow-table-scan' in refused.complaint
    allowed = holdfast("table scan Account --where 'age > 3' --allow-table-scan")
    assert (allowed.code, allowed.out, allowed.err) == (0, "", "holdfast: no record in 'Account' matches\n")


def test_explain_tells_the_way_and_shows_no_record(holdfast: Terminal, keys: list[str]) -> None:
    assert holdfast("table scan Account --where 'email == \"3@x\"' --explain").out.startswith("get by the unique email")
    plan = holdfast("table scan Account --where 'name == \"Ada\"' --explain --json").json
    assert (plan["kind"], plan["index"]) == ("index", "name")
    plan = holdfast("table scan Account --where 'opened > \"2026-01-02T00:00:00Z\"' --explain --json").json
    assert plan["index"] == "-opened,name"


def test_a_filter_that_is_none_is_a_usage_error_that_says_where(holdfast: Terminal, keys: list[str]) -> None:
    refused = holdfast("table scan Account --where 'name == \"Ada\" and nome == 3'")
    assert refused.code == 2
    assert refused.complaint.startswith("--where: at character 19, nome: Account has no field 'nome'")


def test_many_records_are_all_shown(holdfast: Terminal) -> None:
    with holdfast.store() as store:
        store.table(Account).add_many([account(0, email=f"{number}@x") for number in range(450)])
    assert len(holdfast("table scan Account --json").lines) == 450
    rows = [line for line in holdfast("table scan Account --select email").lines if "@x" in line]
    assert [row.split()[1] for row in rows] == [f"{number}@x" for number in range(450)]


@pytest.mark.parametrize("select", ["email", "email,name,opened", "email,name,opened,tags,age,limits"])
def test_no_line_is_wider_than_the_terminal(
    holdfast: Terminal, keys: list[str], select: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    holdfast(f"table change Account {keys[0]} 'name={'long name ' * 30}' limits[EUR]=1000000")
    commands = ["table list", f"table scan Account --select {select}", f"table get Account {keys[0]}"]
    for command in [*commands, f"table changes Account {keys[0]}"]:
        for width in ("60", "100"):
            monkeypatch.setattr("tests.cli.terminal._COLORS", {"COLUMNS": width, "FORCE_COLOR": "1", "NO_COLOR": "1"})
            lines = holdfast(command, colors=True).lines
            assert lines and max(len(_bare(line)) for line in lines) <= int(width), command


def _bare(line: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", line)


# changes


def test_changes_tell_each_version_and_its_values(holdfast: Terminal, keys: list[str]) -> None:
    holdfast(f"table change Account {keys[0]} age=5")
    holdfast(f"table change Account {keys[0]} --unset age name=Eve")
    holdfast(f"table delete Account {keys[0]}")
    found = holdfast(f"table changes Account {keys[0]} --max-versions 10 --json").json
    assert (found["key"], found["created"]) == (keys[0], found["versions"][0]["version"])
    assert [one["kind"] for one in found["versions"]] == ["add", "change", "change", "delete"]
    assert found["versions"][2]["values"] == {"name": "Eve", "age": None}
    since = found["versions"][2]["version"]
    later = holdfast(f"table changes Account {keys[0]} --from {since} --json").json
    assert [one["kind"] for one in later["versions"]] == ["change", "delete"]
    text = holdfast(f"table changes Account {keys[0]} --max-versions 10").out
    assert "removed" in text and "Eve" in text and "delete" in text


def test_changes_of_all_records_that_fit(holdfast: Terminal, keys: list[str]) -> None:
    lines = holdfast("table changes Account --where 'name == \"Bob\"' --select name --json").json_lines
    assert [line["key"] for line in lines] == [keys[1], keys[3]]
    assert [one["values"] for line in lines for one in line["versions"]] == [{"name": "Bob"}] * 2
    assert (
        holdfast("table changes Account --from 2100-01-01T00:00:00Z").err
        == "holdfast: no change in 'Account' matches\n"
    )


# While another process works


def test_reading_works_while_another_process_writes(holdfast: Terminal, keys: list[str]) -> None:
    with holdfast.store() as store:
        table = store.table(Account)
        added = text_of_key(table.add(account(7)).key)
        assert holdfast(f"table get Account {added} --json").json["value"]["email"] == "7@x"
        assert emails(holdfast, "--where 'email == \"7@x\"'") == ["7@x"]
        assert holdfast("table list --json").json["tables"][0]["records"] == 6


def test_writing_does_not_while_another_process_does(holdfast: Terminal, keys: list[str]) -> None:
    with holdfast.spawn("put orders -") as other:
        assert other.stdin is not None
        other.stdin.write(b"x\n")
        other.stdin.flush()
        with library.open(holdfast.data, read_only=True) as store:
            while "orders" not in store.logs():
                pass
        for command in WRITING:
            result = holdfast(command.format(key=keys[0]))
            assert result.code == 1
            assert f"is being written by process {other.pid}" in result.complaint


READING = ["table get Account {key}", "table scan Account", "table changes Account"]
WRITING = [
    "table add Account '{{}}'",
    "table change Account {key} name=x",
    "table delete Account {key}",
    "table undelete Account {key}",
]


@pytest.mark.parametrize("command", [*READING, *WRITING, "table list"])
@pytest.mark.parametrize("form", ["", " --json"])
def test_a_missing_store_is_one_line_and_is_not_made(holdfast: Terminal, command: str, form: str) -> None:
    result = holdfast(command.format(key="AAAA") + form)
    assert result.code == 1
    assert result.complaint.startswith(f"there is no store at {str(holdfast.data)!r}: check --data")
    assert not holdfast.data.exists()


@pytest.mark.parametrize("command", [*READING, *WRITING])
def test_an_unknown_table_is_one_line_that_names_those_there_are(
    holdfast: Terminal, keys: list[str], command: str
) -> None:
    result = holdfast(command.format(key="AAAA").replace("Account", "Acount"))
    assert result.code == 1
    assert result.complaint == f"there is no table 'Acount' in {str(holdfast.data)!r}; there are: 'Account'"
    assert [table["name"] for table in holdfast("table list --json").json["tables"]] == ["Account"]


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("table get Account", "KEY"),
        ("table get Account a?b", "is not a key"),
        ("table get Account AAAA --as-of yesterday", "neither a version nor a time"),
        ("table scan Account --limit -1", "--limit"),
        ("table add Account", "nothing to add"),
        ("table add Account - '{}'", "no other record"),
        ("table add Account - --key AAAA", "the key of one record"),
        ("table change Account AAAA", "nothing to change"),
        ("table delete Account AAAA BBBB --if-version 1", "the version of one record"),
        ("table delete Account AAAA --hard", "pass --yes"),
    ],
)
def test_a_command_that_makes_no_sense_is_refused(
    holdfast: Terminal, keys: list[str], command: str, reason: str
) -> None:
    result = holdfast(command)
    assert result.code == 2
    assert reason in result.complaint


def test_table_alone_shows_its_help(holdfast: Terminal) -> None:
    result = holdfast("table")
    assert (result.code, result.err) == (0, "")
    assert all(word in result.out for word in ("list", "get", "scan", "changes", "add", "change", "delete", "undelete"))


@pytest.mark.parametrize("command", ["list", "get", "scan", "changes", "add", "change", "delete", "undelete"])
def test_every_command_has_help_that_explains_json(holdfast: Terminal, command: str) -> None:
    result = holdfast(f"table {command} --help")
    assert result.code == 0 and "--json" in result.out


# migrations


def test_migrations_tells_where_each_table_stands(holdfast: Terminal, keys: list[str]) -> None:
    header, row = [line.split() for line in holdfast("table migrations").lines]
    assert header[:3] == ["table", "state", "phase"]
    assert row[:3] == ["Account", "idle", "-"]
    (found,) = holdfast("table migrations --json").json["migrations"]
    assert (found["table"], found["state"], found["phase"]) == ("Account", "idle", None)


# Sensitive fields


class Patient(Model, id=2):
    """Whose number is sealed."""

    name: str = field(1)
    number: str = field(2, sensitive=True, unique=True)


@pytest.fixture
def patient(holdfast: Terminal, tmp_path: Path) -> str:
    """The key of a patient; the keyring lies in keys.json."""
    keyring = Keyring.generate("a")
    keyring.save(tmp_path / "keys.json")
    with holdfast.store() as store:
        return text_of_key(store.table(Patient, keyring=keyring).add(Patient(name="Eve", number="078")).key)


def test_list_needs_no_keys(holdfast: Terminal, keys: list[str], patient: str) -> None:
    found = holdfast("table list --json").json["tables"]
    assert [(one["name"], one["records"]) for one in found] == [("Account", 5), ("Patient", 1)]
    assert len(holdfast("table list").lines) == 3


def test_a_table_with_sensitive_fields_is_opened_with_its_keyring(
    holdfast: Terminal, patient: str, tmp_path: Path
) -> None:
    ring = f"--keyring {tmp_path / 'keys.json'}"
    assert holdfast(f"table get Patient {patient} {ring} --json").json["value"]["number"] == "078"
    assert holdfast(f"table change Patient {patient} number=079 {ring}").code == 0
    (found,) = holdfast(f"table scan Patient --where 'number == \"079\"' {ring} --json").json_lines
    assert found["value"] == {"name": "Eve", "number": "079"}
    assert holdfast(f"table changes Patient {patient} {ring} --json").code == 0
    assert holdfast(f"table delete Patient {patient} {ring}").code == 0
    assert holdfast(f"table undelete Patient {patient} {ring}").code == 0
    for command in (f"get Patient {patient}", "scan Patient", f"delete Patient {patient}"):
        refused = holdfast(f"table {command}")
        assert refused.code == 2
        assert "Patient has sensitive fields (number): pass --keyring FILE" in refused.complaint
