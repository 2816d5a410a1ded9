"""Pipelines as requests may start them: every option is known, and conditions mean what they meant."""

import re

import pytest
from pyspark.sql import SparkSession

from holdfast.cli.pipeline.options import options_of
from holdfast.spark.condition_parser import FUNCTIONS, safe_condition
from holdfast.spark.pipelines import PIPELINES, load_pipeline
from holdfast.web.api.pipeline_options import OPTIONS, OptionKind


@pytest.mark.parametrize("name", [name for name in PIPELINES if name != "backfill"])  # which no server can run
def test_each_option_of_a_pipeline_is_known_to_the_server_by_what_it_names(name: str) -> None:
    options = options_of(load_pipeline(name))
    assert OPTIONS[name].keys() == options.keys()
    for option in options.values():
        said = option.help.partition("; default:")[0].lower()
        names_files = re.search(r"\b(folder|file|files|path|lake|keyring)\b", said)
        if names_files and option.kind is str and option.name not in ("format", "compression"):
            assert OPTIONS[name][option.name] in (OptionKind.PATH, OptionKind.SOURCE), option
        if "SQL" in option.help:
            assert OPTIONS[name][option.name] is OptionKind.CONDITION


def test_a_condition_means_to_spark_what_it_meant_before_it_was_written_anew(spark: SparkSession) -> None:
    rows = [(n, f"k{n % 7}".encode(), f"50% of {n}'s \\ {n * n}", n % 3 or None) for n in range(200)]
    frame = spark.createDataFrame(rows, "offset long, key binary, value string, part int").cache()
    for condition in (
        "key = 'k3'",
        "offset between 10 and 20 or part is null and not offset > 50",
        "offset % 5 = 0 and offset * 2 - 1 > 30 or -offset > -3",
        "value like '50\\% of 1%'",
        "value like '%\\'s%' and value not like \"%9%\"",
        "part in (1, 2 - 1) and upper(value) <> 'X'",
        "cast(offset as string) || 'x' = '17x' or value = '50% of 4''s \\\\ 16'",
        "coalesce(part, 0) <=> 0",
        "hex(key) = '6B31' and key = X'6b31'",
        "length(value) >= 15 and `offset` != 100",
        "date_trunc('DAY', timestamp_seconds(offset)) = TIMESTAMP '1970-01-01 00:00:00' and offset < 9",
        "if(part = 1, true, false)",
    ):
        found = {row.offset for row in frame.where(safe_condition(condition)).collect()}
        assert found == {row.offset for row in frame.where(condition).collect()}
        assert 0 < len(found) < 200, condition


def test_every_function_that_a_condition_may_call_is_one_of_sparks_own(spark: SparkSession) -> None:
    known = {row.function for row in spark.sql("SHOW SYSTEM FUNCTIONS").collect()}
    assert known >= FUNCTIONS
