"""One classifier of column kinds: types of every library and plain values agree."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import narwhals as nw
import numpy as np
import pytest

from whycluster.data.column_checks import classify_columns, inspect_column
from whycluster.data.column_kinds import (
    ColumnKind,
    kind_of_arrow,
    kind_of_series,
    kind_of_spark,
    kind_of_values,
)
from whycluster.data.columns import columns_of
from whycluster.data.mixed_table import RawTable
from whycluster.data.opening import open_table

DAY = dt.datetime(2020, 1, 31, 12)
VALUES: dict[ColumnKind, list[Any]] = {
    ColumnKind.NUMBER: [1.5, 2],
    ColumnKind.BOOLEAN: [True, False],
    ColumnKind.DATE: [DAY, DAY + dt.timedelta(days=1)],
    ColumnKind.DURATION: [dt.timedelta(hours=6), dt.timedelta(days=3)],
    ColumnKind.TIME: [dt.time(6), dt.time(18)],
    ColumnKind.TEXT: ["a", "b"],
}
SPARK = {
    "bigint": ColumnKind.NUMBER,
    "double": ColumnKind.NUMBER,
    "decimal(10,2)": ColumnKind.NUMBER,
    "boolean": ColumnKind.BOOLEAN,
    "date": ColumnKind.DATE,
    "timestamp": ColumnKind.DATE,
    "timestamp_ntz": ColumnKind.DATE,
    "interval day to second": ColumnKind.DURATION,
    "interval hour": ColumnKind.DURATION,
    "interval year to month": ColumnKind.OTHER,
    "time(6)": ColumnKind.TIME,
    "string": ColumnKind.TEXT,
    "varchar(3)": ColumnKind.TEXT,
    "void": ColumnKind.EMPTY,
    "binary": ColumnKind.OTHER,
    "array<double>": ColumnKind.OTHER,
    "vector": ColumnKind.OTHER,
}


@pytest.mark.parametrize("kind", VALUES)
def test_every_library_gives_the_same_kind(kind: ColumnKind) -> None:
    pa, pl, pd = (pytest.importorskip(name) for name in ("pyarrow", "polars", "pandas"))
    values = [*VALUES[kind], None]
    arrow = pa.array(values)
    series = [
        pa.chunked_array([arrow]),
        pl.Series(values, strict=False),
        pd.Series(values),
        pd.Series(values, dtype=object),
        pd.Series(values, dtype=pd.ArrowDtype(arrow.type)),
    ]
    assert kind_of_values(values) is kind
    assert kind_of_arrow(arrow.type) is kind
    assert [kind_of_series(nw.from_native(each, series_only=True)) for each in series] == [kind] * 5


@pytest.mark.parametrize("kind", VALUES)
@pytest.mark.parametrize("as_objects", [False, True])
def test_pipelines_and_raw_tables_read_a_kind_alike(kind: ColumnKind, as_objects: bool) -> None:
    """Durations and times of day are days for both; only dates are written as dates."""
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"x": [*VALUES[kind], None]}, dtype=object if as_objects else None)
    (column,) = columns_of(frame, "test")
    reading, _ = inspect_column(column, kept=True)
    table = open_table(frame.assign(text="a"), where="test", any_kind=True)
    assert isinstance(table, RawTable)
    assert table.column_kind(0) is column.kind is kind
    assert (0 in table.categories) == (reading == "categories")
    assert (0 in table.dates) == (kind is ColumnKind.DATE)
    if kind.is_temporal:
        assert reading == "dates"
        expected = {"dates": 18292.5, "durations": 0.25, "times of day": 0.25}[kind.value]
        assert table.to_array()[0, 0] == expected
        assert np.isnan(table.to_array()[2, 0])


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([Decimal(1), 2.5, np.float32(1)], ColumnKind.NUMBER),
        ([np.bool_(True), False], ColumnKind.BOOLEAN),
        ([True, 2], ColumnKind.NUMBER),
        ([dt.date(2020, 1, 1), DAY], ColumnKind.DATE),
        ([dt.timedelta(1), 2.0], ColumnKind.OTHER),
        ([dt.time(6), DAY], ColumnKind.OTHER),
        (["a", 1], ColumnKind.CATEGORY),
        ([None, float("nan")], ColumnKind.EMPTY),
        ([[1]], ColumnKind.OTHER),
        ([b"x"], ColumnKind.OTHER),
    ],
)
def test_kinds_of_values(values: list[Any], kind: ColumnKind) -> None:
    assert kind_of_values(values) is kind


def test_kinds_of_arrow_types() -> None:
    pa = pytest.importorskip("pyarrow")
    kinds = {
        pa.float16(): ColumnKind.NUMBER,
        pa.uint8(): ColumnKind.NUMBER,
        pa.decimal256(5, 2): ColumnKind.NUMBER,
        pa.date64(): ColumnKind.DATE,
        pa.time32("s"): ColumnKind.TIME,
        pa.large_string(): ColumnKind.TEXT,
        pa.string_view(): ColumnKind.TEXT,
        pa.dictionary(pa.int8(), pa.string()): ColumnKind.CATEGORY,
        pa.null(): ColumnKind.EMPTY,
        pa.binary(): ColumnKind.OTHER,
        pa.list_(pa.float64()): ColumnKind.OTHER,
        pa.struct({"x": pa.int8()}): ColumnKind.OTHER,
    }
    assert {dtype: kind_of_arrow(dtype) for dtype in kinds} == kinds


def test_kinds_of_spark_types() -> None:
    assert {name: kind_of_spark(name) for name in SPARK} == SPARK


def test_kinds_of_categorical_and_nested_series() -> None:
    pl = pytest.importorskip("polars")
    series = {
        ColumnKind.CATEGORY: pl.Series(["a"], dtype=pl.Categorical),
        ColumnKind.OTHER: pl.Series([[1.0]]),
        ColumnKind.EMPTY: pl.Series([None]),
    }
    found = {kind: kind_of_series(nw.from_native(each, series_only=True)) for kind, each in series.items()}
    assert found == {kind: kind for kind in series}


def test_the_columns_of_a_frame_are_classified_at_once() -> None:
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(
        {
            "id": range(12),
            "age": np.arange(12) % 5,
            "seen": pd.date_range("2020-01-01", periods=12),
            "city": ["Rome", "Oslo"] * 6,
            "day": [f"2021-03-{day:02}" for day in [*range(1, 11), 1, 2]],
            "us": [f"03/{day:02}/2021" for day in [*range(1, 11), 1, 2]],
        }
    )
    found = classify_columns(frame, "test")
    assert found.frame is frame
    assert found.readings == {"numbers": ["age"], "dates": ["seen", "day"], "categories": ["city", "us"]}
    assert found.left_out == {"id": "like an identifier, whole numbers in a column with such a name"}
    assert found.text_dates == ["us"]
    kept = classify_columns(frame.set_axis(range(6), axis=1), "test", keep=[0])
    assert kept.readings == {"numbers": [0, 1], "dates": [2, 4], "categories": [3, 5]}
    assert kept.left_out == {}
