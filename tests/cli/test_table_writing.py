"""Table commands that change records, and what they print."""

import json
from pathlib import Path
from typing import Any

import pytest

from holdfast.table import key_from_text, text_of_key
from tests.cli.terminal import Terminal
from tests.cli.test_table import Account, account
from tests.table.persons import Address, Length, Level, Person, instant, person

ADA = '{"email": "ada@x", "name": "Ada", "opened": "2026-01-01T00:00:00Z"}'


@pytest.fixture
def key(holdfast: Terminal) -> str:
    """The key of the one account there is."""
    with holdfast.store() as store:
        return text_of_key(store.table(Account, keep_all_versions=True).add(account(0, tags={"new"}, age=5)).key)


def value(holdfast: Terminal, key: str) -> dict[str, Any]:
    found: dict[str, Any] = holdfast(f"table get Account {key} --json").json["value"]
    return found


def line(number: int, **fields: object) -> bytes:
    content = {"email": f"line{number}@x", "name": "L", "opened": "2026-01-01T00:00:00Z", **fields}
    return json.dumps(content).encode() + b"\n"


# add


def test_add_prints_the_key_of_the_new_record(holdfast: Terminal, key: str) -> None:
    added = holdfast(f"table add Account '{ADA}'").out.strip()
    assert value(holdfast, added)["name"] == "Ada"
    again = holdfast(f"table add Account '{ADA.replace('ada@x', 'eve@x')}' --json").json
    assert again["changed"] is True and again["version"] > 0 and again["version_time"].endswith("Z")


def test_add_takes_a_key(holdfast: Terminal, key: str) -> None:
    wanted = "AaHkHih5e_SAhRm4Xjjc0w"
    assert holdfast(f"table add Account '{ADA}' --key {wanted}").out == f"{wanted}\n"
    again = holdfast(f"table add Account '{ADA.replace('ada@x', 'eve@x')}' --key {wanted}")
    assert again.code == 1 and again.complaint


def test_add_tells_all_that_is_wrong_in_one_line(holdfast: Terminal, key: str) -> None:
    refused = holdfast('table add Account \'{"name": 5, "age": -1, "nome": 1}\'')
    assert refused.code == 1
    assert all(word in refused.complaint for word in ("email", "name", "age", "nome", "opened"))
    assert "unique" in holdfast(f"table add Account '{ADA.replace('ada@x', '0@x')}'").complaint
    assert "not JSON" in holdfast("table add Account '{'").complaint
    assert "nested too deeply" in holdfast("table add Account -", stdin=b"[" * 200_000).err


def test_each_line_of_standard_input_is_a_record(holdfast: Terminal, key: str) -> None:
    lines = b"".join(line(number) for number in range(2500))
    assert holdfast("table add Account -", stdin=lines + b"\n").out == "added: 2,500 records\n"
    assert holdfast("table list --json").json["tables"][0]["records"] == 2501


def test_a_line_that_breaks_a_rule_leaves_the_others_alone(holdfast: Terminal, key: str) -> None:
    lines = line(1) + b"{\n" + line(2, age=-1) + line(1) + line(3)
    result = holdfast("table add Account -", stdin=lines)
    assert (result.code, result.out) == (1, "added: 2 records of 5\n")
    assert [text.split(":")[1].strip() for text in result.err.splitlines()] == ["record 2", "record 3", "record 4"]
    result = holdfast("table add Account - --json", stdin=line(4) + line(4))
    first, second = result.json_lines
    assert result.code == 1 and value(holdfast, first["key"])["email"] == "line4@x"
    assert second["number"] == 2 and "unique" in second["error"]


def test_only_some_of_many_failures_are_told_one_by_one(holdfast: Terminal, key: str) -> None:
    result = holdfast("table add Account -", stdin=b"{}\n" * 50)
    assert result.out == "added: 0 records of 50\n"
    assert result.err.splitlines()[-1] == "holdfast: and 30 more failed" and result.err.count("\n") == 21


@pytest.mark.parametrize("form", ["lines", "list", "one"])
def test_a_file_has_a_record_a_line_or_a_list_or_one(holdfast: Terminal, key: str, tmp_path: Path, form: str) -> None:
    records = [json.loads(line(number)) for number in range(3)]
    content = {
        "lines": b"".join(line(number) for number in range(3)),
        "list": json.dumps(records, indent=2).encode(),
        "one": json.dumps(records[0], indent=2).encode(),
    }
    (tmp_path / "records").write_bytes(content[form])
    count = 1 if form == "one" else 3
    said = holdfast(f"table add Account @{tmp_path / 'records'}").out
    assert said == ("added: 1 record\n" if form == "one" else "added: 3 records\n")
    assert holdfast("table list --json").json["tables"][0]["records"] == 1 + count


def test_several_records_print_their_keys(holdfast: Terminal, key: str) -> None:
    keys = holdfast(f"table add Account '{line(1).decode()}' '{line(2).decode()}'").lines
    assert [value(holdfast, each)["email"] for each in keys] == ["line1@x", "line2@x"]


def test_what_get_prints_can_be_added_again(holdfast: Terminal) -> None:
    with holdfast.store() as store:
        table = store.table(Person)
        full = person(age=3, level=Level.ERROR, size=Length(cm=4), tags={"b", "a"}, scores=[2, 1], limits={"EUR": 5})
        full.seen, full.address, full.boss = instant(3), Address(city="Bonn"), b"\x01\xff"
        key = text_of_key(table.add(full).key)
    written = holdfast(f"table get Person {key} --json").json["value"]
    holdfast(f"table delete Person {key} --hard --yes")
    added = holdfast("table add Person - --json", stdin=json.dumps(written).encode()).json
    with holdfast.store() as store:
        found = store.table(Person).get(key_from_text(added["key"]))
    assert found is not None and found.value == full
    selected = holdfast("table scan Person --select size --json").json
    assert selected["value"] == {"size": {"$type": "Length", "cm": 4}}


# change


def test_change_sets_values_by_name(holdfast: Terminal, key: str) -> None:
    result = holdfast(f"table change Account {key} 'name=Ada = L.' age=31 tags+=vip limits[EUR]=5")
    assert result.out.startswith("changed: version ")
    assert value(holdfast, key) | {"opened": ""} == {
        "email": "0@x", "name": "Ada = L.", "opened": "", "tags": ["new", "vip"], "age": 31, "limits": {"EUR": 5},
    }  # fmt: skip
    holdfast(f"table change Account {key} tags-=new limits-=EUR --unset age name=5")
    found = value(holdfast, key)
    assert (found["tags"], found["limits"], found["age"], found["name"]) == (["vip"], {}, None, "5")


def test_change_takes_json_too(holdfast: Terminal, key: str) -> None:
    done = holdfast(f'table change Account {key} \'{{"name": "Eve", "tags": ["a"], "age": null}}\' --json').json
    assert (done["key"], done["changed"]) == (key, True)
    found = value(holdfast, key)
    assert (found["name"], found["tags"], found["age"]) == ("Eve", ["a"], None)


def test_values_that_are_there_already_change_nothing(holdfast: Terminal, key: str) -> None:
    assert holdfast(f"table change Account {key} name=Ada").out.startswith("nothing changed")
    assert holdfast(f"table change Account {key} name=Ada --json").json["changed"] is False


def test_change_only_if_the_version_and_the_values_are_as_expected(holdfast: Terminal, key: str) -> None:
    version = holdfast(f"table get Account {key} --json").json["version"]
    assert holdfast(f"table change Account {key} age=6 --if-version {version} --check age=5").code == 0
    assert holdfast(f"table change Account {key} age=7 --if-version {version}").code == 1
    assert "age" in holdfast(f"table change Account {key} age=7 --check age=5").complaint
    assert value(holdfast, key)["age"] == 6


@pytest.mark.parametrize(
    ("values", "code", "reason"),
    [
        ("name", 2, "not of the form name=value"),
        ("nome=5", 2, "no field 'nome'"),
        ("age=old", 1, "'old'"),
        ("age=-1", 1, "age"),
        ("opened=2026-01-05T00:00:00Z", 1, "final"),
        ("name=a name=b", 2, "given twice"),
        ("name+=b", 2, "only lists and sets"),
        ("'{'", 2, "not JSON"),
        ("name=a --unset email", 1, "email"),
    ],
)
def test_a_change_that_cannot_be_is_refused(holdfast: Terminal, key: str, values: str, code: int, reason: str) -> None:
    before = value(holdfast, key)
    refused = holdfast(f"table change Account {key} {values}")
    assert refused.code == code
    assert reason in refused.complaint
    assert value(holdfast, key) == before


def test_a_record_that_is_not_there_cannot_be_changed(holdfast: Terminal, key: str) -> None:
    for command in ("change Account AAAA name=x", "delete Account AAAA", "undelete Account AAAA"):
        result = holdfast(f"table {command}")
        assert result.code == 1 and result.complaint


# delete


def test_a_deleted_record_can_be_brought_back(holdfast: Terminal, key: str) -> None:
    assert holdfast(f"table delete Account {key}").out == "deleted: 1 record\n"
    assert holdfast(f"table get Account {key}").code == 1
    assert holdfast(f"table undelete Account {key}").out == "restored: 1 record\n"
    assert value(holdfast, key)["email"] == "0@x"


def test_a_hard_delete_forgets_the_record_and_its_past(holdfast: Terminal, key: str) -> None:
    version = holdfast(f"table get Account {key} --json").json["version"]
    assert holdfast(f"table delete Account {key} --hard --yes").out == "permanently deleted: 1 record\n"
    assert holdfast(f"table get Account {key} --include-deleted").code == 1
    assert holdfast(f"table get Account {key} --as-of {version}").code == 1
    assert holdfast(f"table undelete Account {key}").code == 1


@pytest.mark.parametrize(("answer", "code", "left"), [("y\n", 0, 0), ("n\n", 1, 1)])
def test_a_hard_delete_asks_first(holdfast: Terminal, key: str, answer: str, code: int, left: int) -> None:
    ended, said = holdfast.converse(f"table delete Account {key} --hard", answer)
    assert ended == code
    assert "with all versions? [y/N]" in said
    assert holdfast("table list --json").json["tables"][0]["records"] == left


def test_several_are_deleted_and_what_failed_is_told(holdfast: Terminal, key: str) -> None:
    result = holdfast(f"table delete Account {key} AAAA")
    assert (result.code, result.out) == (1, "deleted: 1 record of 2\n")
    assert result.err.startswith("holdfast: record 2: ")
