"""Does Spark show what a table says? Now, as of any version, each change, the whole past, and fields of every type."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import holdfast
from holdfast import Roll
from holdfast.base.hlc import time_of
from holdfast.spark.options import ReadOptions
from holdfast.spark.pipelines import backfill
from holdfast.spark.sources import view_schema
from holdfast.table import Change, Done, Each, Index, Model, Record, Ref, Reversed, text_of_key
from holdfast.table import field as number
from holdfast.table.migration import Migration
from holdfast.table.storage.keyring import Keyring
from holdfast.table.storage.row_codec import decode_event
from holdfast.testing import SimClock
from tests.table.internals import registry_of

FEW = 40
"""Records, each of which is changed many times."""


class Address(Model):
    city: str = number(1)
    zip: str | None = number(2, default=None)


class Account(Model, id=1):
    name: str = number(1)
    balance: int = number(2, default=0)
    tags: set[str] = number(3, default_factory=set)
    limits: dict[str, int] = number(4, default_factory=dict)
    address: Address | None = number(5, default=None)
    version: str | None = number(6, default=None)


@dataclass
class Story:
    """A table that much happened to, and what it said of itself."""

    path: Path
    now: list[Record[Account]]
    with_deleted: list[Record[Account]]
    then: dict[int, list[Record[Account]]] = field(default_factory=dict)
    """By version all records, those that were deleted too."""
    at: dict[datetime, list[Record[Account]]] = field(default_factory=dict)
    """By time the records."""
    events: list[tuple[bytes, Any]] = field(default_factory=list)


def load(spark: SparkSession, path: Path, /, **options: object) -> DataFrame:
    reader = spark.read.format("holdfast").option("path", str(path))
    for name, value in options.items():
        reader = reader.option(name, str(value))
    return reader.load()


def rows(frame: DataFrame) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = frame.toArrow().to_pylist()
    return found


def by_key(found: list[dict[str, Any]]) -> dict[bytes, dict[str, Any]]:
    keyed = {row["key"]: row for row in found}
    assert len(keyed) == len(found)
    return keyed


def values(record: Account | None) -> dict[str, Any]:
    if record is None:
        return dict.fromkeys(Account.__spec__.fields)
    return {
        "name": record.name,
        "balance": record.balance,
        "tags": sorted(record.tags),
        "limits": list(record.limits.items()),
        "address": None if record.address is None else {"city": record.address.city, "zip": record.address.zip},
        "version": record.version,
    }


def as_row(record: Record[Account]) -> dict[str, Any]:
    return {
        "key": record.key,
        "_version": record.version,
        "changed_at": record.changed_at,
        "created_at": record.created_at,
        "deleted": record.deleted,
        **values(record.value),
    }


def fill(store: holdfast.Store, clock: SimClock, rng: random.Random) -> list[int]:
    """Random changes of few records; the versions at which something happened."""
    table = store.table(Account, keep_all_versions=True, roll=Roll.count(200))
    keys = [rng.randbytes(16) for _ in range(FEW)]
    versions = []
    for step in range(600):
        clock.advance(rng.choice([0, 0.5, 90]))
        key = rng.choice(keys)
        record = table.get(key, include_deleted=True)
        if record is None:
            tags = set(rng.sample(["a", "b", "c"], rng.randint(0, 3)))
            new = Account(name=f"name {step}", tags=tags, limits={"EUR": step}, version=rng.choice([None, "x"]))
            versions.append(table.add(new, key=key).version)
        elif record.deleted:
            versions.append((table.undelete(key) if rng.random() < 0.7 else table.delete(key, hard=True)).version)
        elif rng.random() < 0.15:
            versions.append(table.delete(key, hard=rng.random() < 0.4).version)
        else:
            changes: dict[str, Any] = {"balance": step, "address": rng.choice([None, Address(city=f"city {step}")])}
            # Of what one request does to a record, only the end is a version of it.
            versions.append(table.change(key, changes).version)
            done = table.write([Change(key, {"balance": -step}), Change(key, {"name": f"renamed {step}"})])
            assert all(isinstance(one, Done) and one.changed for one in done)
    return versions


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Story:
    path = tmp_path_factory.mktemp("story")
    clock, rng = SimClock(), random.Random(4)
    with holdfast.open(path, clock=clock, background=False) as store:
        versions = fill(store, clock, rng)
        table = store.table(Account)
        story = Story(path, list(table.scan()), list(table.scan(include_deleted=True)))
        for version in [versions[0] - 1, versions[0], versions[-1], *rng.sample(versions, 6)]:
            story.then[version] = list(table.scan(as_of=version, include_deleted=True))
        for moment in [time_of(versions[0]), time_of(versions[300])]:
            story.at[moment] = list(table.scan(as_of=moment))
        story.events = [(record.key or b"", decode_event(record.payload)) for record in table.log.read()]
    assert any(record.deleted for record in story.with_deleted)
    return story


def test_now_is_what_the_table_says(spark: SparkSession, story: Story) -> None:
    for parts in (1, 3):
        frame = load(spark, story.path, table="Account", minPartitions=parts)
        assert frame.columns == ["key", "_version", "changed_at", "created_at", "deleted", *Account.__spec__.fields]
        found = by_key(rows(frame))
        assert found == {record.key: as_row(record) for record in story.now}
    found = by_key(rows(load(spark, story.path, table="Account", includeDeleted="true")))
    assert found == {record.key: as_row(record) for record in story.with_deleted}


def test_as_of_a_version_or_time_is_what_the_table_said_then(spark: SparkSession, story: Story) -> None:
    for version, records in story.then.items():
        found = by_key(rows(load(spark, story.path, table="Account", asOf=version, includeDeleted="true")))
        assert found == {record.key: as_row(record) for record in records}
    for moment, records in story.at.items():
        found = by_key(rows(load(spark, story.path, table="Account", asOf=moment.isoformat())))
        assert found == {record.key: as_row(record) for record in records}


def test_changes_are_the_events_of_the_log(spark: SparkSession, story: Story) -> None:
    frame = load(spark, story.path, table="Account", view="changes", minPartitions=3)
    found = sorted(rows(frame), key=lambda row: row["position"])
    assert len(found) == len(story.events)
    for position, (row, (key, event)) in enumerate(zip(found, story.events, strict=True)):
        record = Account.decode(event.image) if event.image else None
        assert row == {
            "key": key,
            "_version": event.version,
            "changed_at": time_of(event.version),
            "kind": event.kind.name.lower().replace("_", "-"),
            "deleted": event.deleted,
            "changed": [Account.__spec__.numbers[one].name for one in event.fields],
            "position": position,
            **values(record),
        }
    assert {row["kind"] for row in found} == {"add", "change", "delete", "undelete", "hard-delete"}


def test_history_holds_at_every_version_what_was_so_then(spark: SparkSession, story: Story) -> None:
    frame = load(spark, story.path, table="Account", view="history")
    found = rows(frame)
    for row in found:
        assert row["valid_from"] == time_of(row["from_version"])
        assert row["valid_to"] == (None if row["to_version"] is None else time_of(row["to_version"]))
        assert row["is_current"] == (row["to_version"] is None)
    for version, records in [*story.then.items(), (1 << 62, story.with_deleted)]:
        then = [row for row in found if row["from_version"] <= version < (row["to_version"] or version + 1)]
        assert {
            row["key"]: (row["from_version"], row["deleted"], {name: row[name] for name in Account.__spec__.fields})
            for row in then
        } == {record.key: (record.version, record.deleted, values(record.value)) for record in records}
        assert len(then) == len(records)


def test_keys_and_columns_narrow_what_is_read(spark: SparkSession, story: Story) -> None:
    one, other = story.now[0], story.now[1]
    text = f'["{text_of_key(one.key)}", "{text_of_key(other.key)}"]'
    for view in ("now", "history", "changes"):
        frame = load(spark, story.path, table="Account", view=view, key=text).select("key", "name").distinct()
        assert {row["key"] for row in rows(frame)} == {one.key, other.key}
    reader = spark.read.format("holdfast").option("path", str(story.path)).option("table", "Account")
    frame = reader.schema("balance LONG, key BINARY").load()
    assert {(row["key"], row["balance"]) for row in rows(frame)} == {(one.key, one.balance) for one in story.now}
    assert reader.schema("deleted BOOLEAN").load().count() == len(story.now)


def test_a_stream_of_changes_goes_on_where_it_was(spark: SparkSession, tmp_path: Path) -> None:
    def follow() -> None:
        reader = spark.readStream.format("holdfast").option("path", str(tmp_path / "data")).option("table", "Account")
        stream = reader.option("view", "changes").option("startingOffsets", "earliest").load().select("kind", "name")
        writer = stream.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.option("path", str(tmp_path / "out")).trigger(availableNow=True).start()
        assert query.awaitTermination(120)

    with holdfast.open(tmp_path / "data") as store:
        table = store.table(Account)
        key = table.add(Account(name="Ann")).key
        follow()
        table.change(key, {"name": "Anna"})
        table.delete(key)
        follow()
    seen = sorted((row["kind"], row["name"]) for row in rows(spark.read.parquet(str(tmp_path / "out"))))
    assert seen == [("add", "Ann"), ("change", "Anna"), ("delete", "Anna")]


class Colour(Enum):
    RED = 1
    BLUE = 2


class Weight(Model, tag=1):
    grams: int = number(1)


class Length(Model, tag=2):
    cm: float = number(1)
    exact: bool | None = number(2, default=None)


class Node(Model):
    name: str = number(1)
    children: list["Node"] = number(2, default_factory=list)


class Everything(Model, id=2):
    flag: bool | None = number(1, default=None)
    whole: int | None = number(2, default=None)
    huge: int | None = number(3, default=None, max=2**64 - 1)
    real: float | None = number(4, default=None)
    price: Decimal | None = number(5, default=None)
    text: str | None = number(6, default=None)
    raw: bytes | None = number(7, default=None)
    colour: Colour | None = number(8, default=None)
    day: date | None = number(9, default=None)
    clock: time | None = number(10, default=None)
    moment: datetime | None = number(11, default=None)
    uuid: UUID | None = number(12, default=None)
    span: timedelta | None = number(13, default=None)
    account: Ref[Account] | None = number(14, default=None)
    address: Address | None = number(15, default=None)
    days: list[date] | None = number(16, default=None)
    colours: set[Colour] | None = number(17, default=None)
    rates: dict[str, Decimal] | None = number(18, default=None)
    places: dict[int, Address] | None = number(19, default=None)
    size: Weight | Length | int | None = number(20, default=None)
    tree: Node | None = number(21, default=None)


MOMENT = datetime(2026, 1, 31, 12, 30, 15, 123456, UTC)
FULL = Everything(
    flag=True,
    whole=-(2**63),
    huge=2**64 - 1,
    real=1.5,
    price=Decimal("12345678901234567890.123456789012345678"),
    text="\u00fcber",
    raw=b"\0\xff",
    colour=Colour.BLUE,
    day=date(1815, 12, 10),
    clock=time(12, 30, 15, 5),
    moment=MOMENT.astimezone(),
    uuid=UUID(int=7),
    span=timedelta(days=-3, microseconds=1),
    account=b"\1\2",
    address=Address(city="Utrecht"),
    days=[date(2026, 1, 1), date(2025, 1, 1)],
    colours={Colour.RED, Colour.BLUE},
    rates={"EUR": Decimal("1.5")},
    places={3: Address(city="Z", zip="8000")},
    size=Length(cm=2.5),
    tree=Node(name="root", children=[Node(name="leaf")]),
)


def test_fields_of_every_type_have_a_type_in_spark(spark: SparkSession, tmp_path: Path) -> None:
    with holdfast.open(tmp_path) as store:
        table = store.table(Everything)
        full, empty, whole = (table.add(one).key for one in (FULL, Everything(), Everything(size=5)))
    frame = load(spark, tmp_path, table="Everything")
    names = list(Everything.__spec__.fields)
    address = "struct<city:string,zip:string>"
    assert [kind for name, kind in frame.dtypes if name in names] == [
        *("boolean", "bigint", "decimal(20,0)", "double", "decimal(38,18)", "string", "binary", "string"),
        *("date", "string", "timestamp", "string", "interval day to second", "binary", address, "array<date>"),
        *("array<string>", "map<string,decimal(38,18)>", f"map<bigint,{address}>"),
        "struct<Weight:struct<grams:bigint>,Length:struct<cm:double,exact:boolean>,int:bigint>",
        "struct<name:string,children:array<string>>",
    ]
    found = by_key(rows(frame))
    assert {name: found[full][name] for name in names} == {
        **{name: getattr(FULL, name) for name in names},
        "huge": Decimal(2**64 - 1),
        "colour": "BLUE",
        "clock": "12:30:15.000005",
        "moment": MOMENT,
        "uuid": str(FULL.uuid),
        "address": {"city": "Utrecht", "zip": None},
        "colours": ["BLUE", "RED"],
        "rates": [("EUR", Decimal("1.5"))],
        "places": [(3, {"city": "Z", "zip": "8000"})],
        "size": {"Weight": None, "Length": {"cm": 2.5, "exact": None}, "int": None},
        "tree": {"name": "root", "children": ['{"name": "leaf", "children": []}']},
    }
    assert {name: found[empty][name] for name in names} == dict.fromkeys(names)
    assert found[whole]["size"] == {"Weight": None, "Length": None, "int": 5}
    called = spark.sql(f"SELECT * FROM holdfast_table('{tmp_path}', 'Everything')")
    assert called.dtypes == frame.dtypes
    assert by_key(rows(called)) == found


def test_a_value_that_fits_no_column_is_named_and_can_be_read_as_text(spark: SparkSession, tmp_path: Path) -> None:
    with holdfast.open(tmp_path) as store:
        store.table(Everything).add(Everything(price=Decimal("1E-30")))
    with pytest.raises(PySparkException, match=r"'price' of Everything .*decimalAsString=true"):
        load(spark, tmp_path, table="Everything").collect()
    (row,) = rows(load(spark, tmp_path, table="Everything", decimalAsString="true").select("price"))
    assert row == {"price": "1E-30"}


class Patient(Model, id=3):
    name: str = number(1)
    diagnosis: str | None = number(2, sensitive=True, default=None)
    visits: list[date] | None = number(3, sensitive=True, default=None)


def test_what_is_sensitive_is_ciphertext_without_the_keyring(spark: SparkSession, tmp_path: Path) -> None:
    ring = Keyring.generate()
    ring.save(tmp_path / "keys")
    visits = [date(2026, 1, 1)]
    with holdfast.open(tmp_path / "data") as store:
        table = store.table(Patient, keyring=ring)
        key = table.add(Patient(name="Ann", diagnosis="gout", visits=visits)).key
        table.add(Patient(name="Bob"))
        table.delete(key, hard=True)
        table.add(Patient(name="Ann", diagnosis="flu", visits=visits), key=key)
    for view, count in (("now", 2), ("history", 2), ("changes", 4)):
        sealed = rows(load(spark, tmp_path / "data", table="Patient", view=view))
        assert len(sealed) == count
        for row in sealed:
            secret = row["key"] == key and row["name"] is not None
            assert (type(row["diagnosis"]), type(row["visits"])) == ((bytes, bytes) if secret else (type(None),) * 2)
            assert not secret or b"flu" not in row["diagnosis"]
    opened = load(spark, tmp_path / "data", table="Patient", keyring=tmp_path / "keys")
    found = sorted((row["name"], row["diagnosis"], row["visits"]) for row in rows(opened))
    assert found == [("Ann", "flu", visits), ("Bob", None, None)]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"table": "Acount"}, "there is no table 'Acount' in .*; there are: 'Account'"),
        ({"table": "Account", "log": "x"}, "give one of the options 'table', 'log' and 'queue'"),
        (
            {"table": "Account", "view": "lifecycle"},
            "the option 'view' of a table must be one of now, history, changes, log",
        ),
        ({"table": "Account", "view": "history", "asOf": "1"}, "the option 'asOf' is for the view 'now'"),
        ({"table": "Account", "asOf": "yesterday"}, "the option 'asOf' takes a version, or a time like"),
        ({"table": "Account", "startingOffsets": "latest"}, "'startingOffsets' is for the view 'changes'"),
        ({"log": "x", "asOf": "1"}, "the option 'asOf' needs the option 'table'"),
    ],
)
def test_what_cannot_be_read_is_told(story: Story, options: dict[str, str], says: str) -> None:
    with pytest.raises(holdfast.HoldfastError, match=says):
        view_schema(ReadOptions.of({"path": str(story.path), **options}))


# Backfill


def indexed_later() -> Callable[..., Any]:
    """The same model before and after it got indexes and a unique field."""

    def make(indexes: list[Index], *, unique: bool) -> Any:
        class Thing(Model, id=4):
            code: int = number(1, unique=unique)
            name: str = number(2)
            tags: set[str] = number(3, default_factory=set)
            __indexes__ = indexes

        return Thing

    return make


FAMILIES = ("index", "historic_index", "unique", "historic_unique")


def happen(path: Path, clock: SimClock, model: Any) -> None:
    """The same random changes each time."""
    rng = random.Random(5)
    with holdfast.open(path, clock=clock, background=False) as store:
        table = store.table(model, keep_all_versions=True)
        new = [model(code=code, name=f"name {code % 7}", tags=set(rng.sample("abc", 2))) for code in range(60)]
        keys = [table.add(one, key=b"%016d" % one.code).key for one in new]
        for step in range(200):
            clock.advance(1)
            key, kind = rng.choice(keys), rng.random()
            if table.get(key) is None:
                continue
            if kind < 0.1:
                table.delete(key, hard=kind < 0.05)
            else:
                table.change(key, {"code": 1000 + step, "name": f"name {step % 7}"})


def entries(store: holdfast.Store) -> list[tuple[str, bytes, bytes]]:
    state = registry_of(store).state()
    return [(family, key, value) for family in FAMILIES for key, value in state.scan(family)]


def test_indexes_that_spark_built_are_those_that_a_migration_builds(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backfill, "EVENTS_A_TASK", 50)  # several files for each family
    make, found = indexed_later(), []
    after = make([Index("name"), Index(Each("tags"), Reversed("code"))], unique=True)
    for path in (tmp_path / "ordinary", tmp_path / "spark"):
        clock = SimClock()
        happen(path, clock, make([], unique=False))
        with holdfast.open(path, clock=clock, background=False) as store:
            if path.name == "spark":
                _, files = backfill.migrate(spark, store, str(path), after, str(tmp_path / "files"))
                assert set(files) == set(FAMILIES) - {"historic_unique"}  # nothing was unique before
                assert max(map(len, files.values())) > 1
            else:
                store.table(after, migration=Migration())
            found.append(entries(store))
    assert found[0] == found[1]
    assert len(found[0]) > 500


def test_the_pipeline_adds_an_index_to_a_table_that_nobody_has_open(spark: SparkSession, tmp_path: Path) -> None:
    make = indexed_later()
    happen(tmp_path, SimClock(), make([], unique=False))
    with holdfast.open(tmp_path) as store, pytest.raises(holdfast.Locked):
        backfill.run(spark, str(store.path), table="Thing", index="name")
    result = backfill.run(spark, str(tmp_path), table="Thing", index="name")
    assert result.ok
    assert [row[0] for row in result.rows] == ["historic_index", "index"]
    model = make([Index("name")], unique=False)
    with holdfast.open(tmp_path) as store:
        table = store.table(model)
        scan = table.scan(model.name == "name 3")
        assert scan.plan.kind == "index"
        assert {one.key for one in scan} == {one.key for one in table.scan() if one.name == "name 3"}
    with pytest.raises(holdfast.HoldfastError, match="already has the index 'name'"):
        backfill.run(spark, str(tmp_path), table="Thing", index="name")
