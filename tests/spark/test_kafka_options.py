"""Is the page's comparison with Spark's Kafka source true, option by option?"""

import re
from pathlib import Path

import pytest

from holdfast.base.errors import InvalidArgument
from holdfast.spark.kafka_options import KAFKA_READ, KAFKA_WRITE
from holdfast.spark.options import ReadOptions, WriteOptions

PAGE = (Path(__file__).parents[2] / "docs" / "spark.md").read_text()
VALUES = {
    "startingOffsets": '{"x": {"0": 5}}',
    "endingOffsets": '{"x": {"0": -1}}',
    "startingOffsetsByTimestamp": '{"x": {"0": 1770000000000}}',
    "endingOffsetsByTimestamp": '{"x": {"0": 1770000000000}}',
    "startingTimestamp": "1770000000000",
    "endingTimestamp": "1770000000000",
    "failOnDataLoss": "false",
    "includeHeaders": "true",
    "maxTriggerDelay": "15m",
}
"""Values as the Kafka source takes them; a number for the others."""
Option = tuple[str, str, str]


def options_of(heading: str) -> list[Option]:
    """The options in a table of the page: the name, what the table says of it, and the details."""
    section = PAGE.partition(f"### {heading}\n")[2].partition("\n#")[0]
    rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("| `")]
    return [
        (name, row[1].strip(" |"), row[2] if len(row) > 2 else "")
        for row in rows
        for name in re.findall(r"`([\w.]+\w)`", row[0])
    ]


def known(of: type[ReadOptions] | type[WriteOptions]) -> set[str]:
    """All options that there are, as an error lists them."""
    with pytest.raises(InvalidArgument) as error:
        of.of({"path": "/", "log": "x", "nothing": "1"})
    return set(str(error.value).partition("there are: ")[2].split(", "))


READ, WRITE = options_of("Options of the Kafka source"), options_of("Options of the Kafka sink")


def test_the_tables_have_the_options_of_the_guide() -> None:
    assert {"assign", "subscribe", "subscribePattern", "startingOffsetsByTimestampStrategy", "minPartitions"} <= {
        name for name, _, _ in READ
    }
    assert len(READ) >= 24
    assert {name for name, said, _ in READ if said == "missing"} >= KAFKA_READ.keys()
    assert {name for name, said, _ in WRITE if said == "missing"} >= KAFKA_WRITE.keys()
    assert {said for _, said, _ in READ + WRITE} == {"same", "differs", "missing"}


@pytest.mark.parametrize(("name", "said"), [(name, said) for name, said, _ in READ if said != "missing"])
def test_an_option_that_is_there_takes_the_values_of_kafka(name: str, said: str) -> None:
    assert name in known(ReadOptions)
    ReadOptions.of({"path": "/", "log": "x", name: VALUES.get(name, "7")})


@pytest.mark.parametrize("of", [ReadOptions, WriteOptions])
def test_an_option_that_is_missing_is_refused_with_what_to_use(of: type[ReadOptions] | type[WriteOptions]) -> None:
    for name, said, details in READ if of is ReadOptions else WRITE:
        if said != "missing":
            continue
        with pytest.raises(InvalidArgument, match=r"of Spark's Kafka (source|sink): here, ") as error:
            of.of({"path": "/", "log": "x", name: "5"})
        text = str(error.value)
        assert name in text or name.lower() in text
        named = set(re.findall(r"'(\w+)'", text.partition("here, ")[2]))
        assert named <= known(of) | {"headers"}
        for option in named & known(of):
            assert f"`{option}`" in details, f"{name}: the page does not name {option}"


def test_each_option_that_the_tables_name_is_there() -> None:
    others = {"latest", "error", "false", "topic", "headers", "textHeaders"}
    for name, _, details in READ + WRITE:
        named = set(re.findall(r"`(\w+)`", details)) - others
        assert named <= known(ReadOptions) | known(WriteOptions), name


def test_an_option_of_spark_itself_is_not_taken_for_one_of_kafka() -> None:
    ReadOptions.of({"path": "/", "log": "x", "spark.some.setting": "1"})
