"""Names and values in SQL: checked in DuckDB, which must read back what was written."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal

import numpy as np
import pytest

from whycluster.core.errors import InvalidInputError
from whycluster.data.sql_quoting import check_dialect, quote_name, quote_table, quote_value

HOSTILE = [
    "it's",
    "'; DROP TABLE t; --",
    '"',
    '"" or 1=1',
    "\\",
    "\\' OR 1=1 --",
    "line\nbreak",
    "`tick`",
    "ü€𝄞",
    "select",
    " ",
    "$$x$$",
    "/* */",
]
VALUES = [
    0.1,
    -1e-300,
    1.7976931348623157e308,
    5e-324,
    123456789.12345678,
    math.inf,
    -math.inf,
    7,
    -(2**62),
    np.int64(3),
    np.float64(0.5),
    True,
    False,
    Decimal("12.30"),
    dt.date(2020, 2, 29),
    dt.datetime(2020, 2, 29, 12, 30, 1, 5),
    dt.time(23, 59, 1),
    dt.timedelta(days=-3, microseconds=7),
    None,
]


@pytest.mark.parametrize("value", [*HOSTILE, *VALUES], ids=repr)
def test_duckdb_reads_back_a_value(value: object) -> None:
    duckdb = pytest.importorskip("duckdb")
    ((found,),) = duckdb.sql(f"SELECT {quote_value(value, 'duckdb', 'f')}").fetchall()
    assert found == value


@pytest.mark.parametrize("name", HOSTILE, ids=repr)
def test_duckdb_reads_back_a_name(name: str) -> None:
    duckdb = pytest.importorskip("duckdb")
    relation = duckdb.sql(f"SELECT 1 AS {quote_name(name, 'duckdb', 'f')}")
    assert relation.columns == [name]


def test_dates_with_a_zone_are_written_in_utc() -> None:
    zone = dt.timezone(dt.timedelta(hours=2))
    value = dt.datetime(2020, 1, 1, 1, 30, tzinfo=zone)
    assert quote_value(value, "postgres", "f") == "TIMESTAMP WITH TIME ZONE '2019-12-31 23:30:00+00:00'"
    assert quote_value(value, "spark", "f") == "TIMESTAMP '2019-12-31 23:30:00+00:00'"


def test_spark_has_its_own_marks() -> None:
    assert quote_name("a`b", "spark", "f") == "`a``b`"
    assert quote_value("it's \\", "spark", "f") == "CAST(X'69742773205C' AS STRING)"
    assert quote_value("${x}", "spark", "f") == "CAST(X'247B787D' AS STRING)"
    assert quote_value("Zürich, 1-2", "spark", "f") == "'Zürich, 1-2'"
    assert quote_value(0.5, "spark", "f") == "0.5e0"
    assert quote_value(-math.inf, "spark", "f") == "CAST('-Infinity' AS DOUBLE)"


def test_a_dot_separates_schema_and_table() -> None:
    assert quote_table("main.my table", "duckdb", "f") == '"main"."my table"'


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: check_dialect("oracle", "to_sql"),
            "to_sql: dialect must be one of 'duckdb', 'postgres', 'spark'; got 'oracle'.",
        ),
        (
            lambda: quote_name("", "duckdb", "to_sql"),
            "to_sql: a name in SQL must not be empty or contain the character NUL; got ''. Rename it.",
        ),
        (
            lambda: quote_name("a" * 64, "postgres", "to_sql"),
            f"to_sql: a name in PostgreSQL must have at most 63 bytes; {'a' * 64!r} has 64. Rename it.",
        ),
        (
            lambda: quote_value("a\0b", "duckdb", "to_sql"),
            "to_sql: text in SQL must not contain the character NUL; got 'a\\x00b'.",
        ),
        (
            lambda: quote_value("\ud800", "duckdb", "to_sql"),
            "to_sql: names and text in SQL must be valid Unicode; got '\\ud800'.",
        ),
        (
            lambda: quote_value([1], "duckdb", "to_sql"),
            "to_sql: a value in SQL must be text, a number, a boolean, a date, a time or a duration; got [1] "
            "of type list.",
        ),
        (
            lambda: quote_value(dt.timedelta(days=1), "spark", "to_sql"),
            "to_sql: durations such as 1 day, 0:00:00 cannot be written in Spark SQL. Convert the column to "
            "a number first, such as days.",
        ),
        (
            lambda: quote_value(dt.time(1), "spark", "to_sql"),
            "to_sql: times of day such as 01:00:00 cannot be written in Spark SQL. Convert the column to a "
            "number first, such as hours.",
        ),
        (
            lambda: quote_table(3, "duckdb", "to_sql"),  # type: ignore[arg-type]  # what is tested
            "to_sql: table must be the name of a table; got 3.",
        ),
    ],
)
def test_errors(call: object, message: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        call()  # type: ignore[operator]  # a function
    assert str(caught.value) == message
