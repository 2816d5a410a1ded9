"""Conditions that come over HTTP: what the grammar takes, and that it takes nothing that runs code. Without Spark."""

import pytest

from holdfast import InvalidArgument
from holdfast.spark.condition_parser import safe_condition


@pytest.mark.parametrize(
    ("given", "made"),
    [
        ("key = 'ann'", "(`key` = 'ann')"),
        ('KEY == "ann" AND not offset<10', "((`KEY` == 'ann') AND (NOT (`offset` < 10)))"),
        ("a or b and c", "(`a` OR (`b` AND `c`))"),
        ("not not a", "`a`"),
        ("a+b*-c || 'x' > 1.5e3", "((`a` + (`b` * (- `c`)) || 'x') > 1.5e3)"),
        ("value like '50\\%%' ", "(`value` LIKE '50\\\\%%')"),
        ("value not ilike 'x'", "(`value` NOT ILIKE 'x')"),
        ("offset not between 1 and 2 and a", "((`offset` NOT BETWEEN 1 AND 2) AND `a`)"),
        ("key in ('a', b, 3)", "(`key` IN ('a', `b`, 3))"),
        ("key is not null or key is null", "((`key` IS NOT NULL) OR (`key` IS NULL))"),
        ("'it''s' = 'it\\'s'", "('it\\'s' = 'it\\'s')"),
        ("'a\\\\' = `odd``name`", "('a\\\\' = `odd``name`)"),
        ("lower(cast(key as string)) <=> x.y", "(lower(CAST(`key` AS string)) <=> `x`.`y`)"),
        ("headers['x'][0] = X'00ff'", "(`headers`['x'][0] = X'00ff')"),
        ("timestamp >= TIMESTAMP '2026-11-01' ", "(`timestamp` >= TIMESTAMP '2026-11-01')"),
        ("timestamp > 1", "(`timestamp` > 1)"),
        ("select", "`select`"),
        ("true and null", "(TRUE AND NULL)"),
        (
            "get_json_object(cast(value as string), '$.a') = '1'",
            "(get_json_object(CAST(`value` AS string), '$.a') = '1')",
        ),
    ],
)
def test_a_condition_is_written_anew_with_every_name_quoted(given: str, made: str) -> None:
    assert safe_condition(given) == made


@pytest.mark.parametrize(
    "given",
    [
        "reflect('java.lang.System', 'getenv', 'HOME') = 'x'",
        "REFLECT('java.lang.System', 'exit', 1)",
        "java_method('java.lang.Runtime', 'getRuntime') is null",
        "try_reflect('java.lang.System', 'exit', 1)",
        "`reflect`('java.lang.System', 'exit', 1)",
        "system.builtin.reflect('a', 'b')",
        "reflect/**/('a', 'b')",
        "my_udf(key)",
        "key = (select 1)",
        "key in (select path from x)",
        "exists (select 1)",
        "key = 'a' ; drop table x",
        "key = 'a' -- comment",
        "key = 'a' /* comment */",
        "transform(headers, x -> x)",
        "identifier('reflect')('a', 'b')",
        "input_file_name() = ''",
        "current_user() = 'x'",
        "repeat('x', 1000000000) = ''",
        "key = :parameter",
        "key rlike '(a+)+$'",
        "cast(key as array<string>)",
        "cast(key as string",
        "case when a then b end",
        "from_json(value, 'a int')",
        "`" + "x",
        "'unfinished",
        "'bad \\q escape' = key",
        "key = '\0'",
        "",
        "key =",
        "key not",
        "a b",
        "1x = 2",
        "(" * 100 + "a" + ")" * 100,
        "a[" * 2000 + "a" + "]" * 2000,
        "- " * 10 + "(" * 60 + "a" + ")" * 60,
        "a" * 9000,
        "äöü = 1",
    ],
)
def test_what_the_grammar_does_not_know_is_refused(given: str) -> None:
    with pytest.raises(InvalidArgument):
        safe_condition(given)
