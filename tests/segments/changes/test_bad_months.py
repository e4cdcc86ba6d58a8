"""Months that cannot be compared: every message says where, what was expected, what came and what to do."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from sklearn.cluster import KMeans

import whycluster as wc
from tests.optional import optional
from tests.segments.changes.months import NAMES, customers, kept, segmentation

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
else:
    pd, pl = optional("pandas"), optional("polars")

Change = Callable[[Any], Any]


@pytest.fixture(scope="module")
def seg() -> wc.Segmentation:
    return segmentation(customers(), names=NAMES)


def with_ids(*values: Any) -> Change:
    return lambda frame: frame.assign(CustomerID=[*values, *frame["CustomerID"].iloc[len(values) :]])


BAD: dict[str, tuple[Change, str]] = {
    "repeated ids": (
        with_ids(1005, 1006, 1006),
        "changes: after must contain each id only once; 2 values of column 'CustomerID' occur "
        "more than once: [1005, 1006]. Keep one row per id first.",
    ),
    "one repeated id": (
        with_ids(1005),
        "changes: after must contain each id only once; 1 value of column 'CustomerID' occurs "
        "more than once: [1005]. Keep one row per id first.",
    ),
    "a missing id": (
        with_ids(1000, None, np.nan),
        "changes: after must have an id in each row; column 'CustomerID' is missing in 2 rows: [1, 2]. Drop "
        "such rows first.",
    ),
    "no id column": (
        lambda frame: frame.rename(columns={"CustomerID": "customer"}),
        "changes: after must have the column 'CustomerID', which on names; its columns are ['customer', "
        "'age', 'spend', 'visits', 'city'].",
    ),
    "ids of another type": (
        lambda frame: frame.assign(CustomerID=frame["CustomerID"].map(str)),
        "changes: the ids must have the same type in before and after; column 'CustomerID' holds numbers in "
        "before (1000) and text in after ('1000'). Convert one of them first.",
    ),
    "ids of two types": (
        lambda frame: frame.assign(CustomerID=["x", *frame["CustomerID"].iloc[1:]]),
        "changes: after must have ids of one type, such as numbers or text; column 'CustomerID' holds text "
        "and numbers.",
    ),
    "ids that are lists": (
        lambda frame: frame.assign(CustomerID=[[i] for i in frame["CustomerID"]]),
        "changes: after must have ids of one type, such as numbers or text; column 'CustomerID' holds other "
        "values ([1000]).",
    ),
    "nobody in common": (
        lambda frame: frame.assign(CustomerID=frame["CustomerID"] + 5000),
        "changes: before and after must have rows in common; no id is in both. Column 'CustomerID' holds "
        "[1000, 1001, 1002, ...] in before and [6000, 6001, 6002, ...] in after.",
    ),
    "an empty month": (lambda frame: frame.iloc[:0], "changes: after must have rows; it has none."),
    "a renamed column": (
        lambda frame: frame.rename(columns={"age": "Age"}),
        "changes: after must have the 4 columns that the segmentation was made on; missing: ['age']; "
        "unknown: ['CustomerID', 'Age']. Select or rename its columns first.",
    ),
    "another currency": (
        lambda frame: frame.assign(spend=frame["spend"] * 1000),
        "changes: after must have the columns and units of the rows that the segmentation was made on; "
        "column 'spend' holds values about 1000 times larger (the median of its absolute values other than 0 "
        "is 22075 instead of 22.1). Convert them first, or pass check=False.",
    ),
    "a column of another type": (
        lambda frame: frame.assign(visits=frame["visits"].map("{} times".format)),
        "changes: after must have the columns and units of the rows that the segmentation was made on; "
        "column 'visits' must hold numbers, but holds text. Convert them first, or pass check=False.",
    ),
    "an array": (
        lambda frame: frame.to_numpy(),
        "changes: after must be a pandas or polars DataFrame or a pyarrow Table, with a column of ids; got "
        "ndarray.",
    ),
    "a lazy frame": (
        lambda frame: pl.from_pandas(frame).lazy(),
        "changes: after must be in memory; got a lazy polars LazyFrame. Collect it first.",
    ),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_month_is_refused(kind: str, seg: wc.Segmentation) -> None:
    change, message = BAD[kind]
    frame = customers()
    with pytest.raises(wc.InvalidInputError) as error:
        wc.changes(seg, frame, change(frame), on="CustomerID")
    assert str(error.value) == message
    if kind not in ("ids of another type", "nobody in common"):
        with pytest.raises(wc.InvalidInputError) as error:
            wc.changes(seg, change(frame), frame, on="CustomerID")
        assert str(error.value) == message.replace("after must", "before must")


def test_an_unseen_category_is_a_warning(seg: wc.Segmentation) -> None:
    frame = customers()
    with pytest.warns(wc.PopulationWarning) as caught:
        wc.changes(seg, frame, frame.assign(city="Lima"), on="CustomerID")
    assert [str(warning.message) for warning in caught] == [
        "changes: in after, column 'city' holds ['Lima'] in 240 of 240 rows, which the segmentation was not "
        "made on."
    ]
    wc.changes(seg, frame, frame.assign(city="Lima"), on="CustomerID", check=False)


@pytest.mark.parametrize("factor", [1.1, 0.92, 4.0])
def test_a_currency_close_to_the_old_one_is_a_warning(factor: float, seg: wc.Segmentation) -> None:
    frame = customers()
    converted = frame.sample(frac=1, random_state=0).assign(
        spend=lambda month: (month["spend"] * factor).round(2)
    )
    converted.loc[converted.index[:9], "spend"] += 7
    n_rows = int(((frame["spend"] != 0) & frame["spend"].notna()).sum())
    with pytest.warns(wc.PopulationWarning) as caught:
        wc.changes(seg, frame, converted, on="CustomerID")
    (message,) = [str(warning.message) for warning in caught]
    assert message.startswith(f"changes: column 'spend' was multiplied by {factor:g} in ")
    assert message.endswith(
        f" of {n_rows} common rows with a value other than 0, as if the currency or unit had changed. If "
        "it has, convert the column first."
    )
    wc.changes(seg, frame, converted, on="CustomerID", check=False)


def test_growth_that_differs_between_rows_is_no_change_of_the_unit(seg: wc.Segmentation) -> None:
    frame, rng = customers(), np.random.default_rng(0)
    wc.changes(
        seg, frame, frame.assign(spend=frame["spend"] * rng.normal(1.1, 0.02, len(frame))), on="CustomerID"
    )


def test_missing_values_that_the_model_cannot_take_are_named() -> None:
    frame = customers()[["CustomerID", "age", "visits"]]
    X = frame[["age", "visits"]]
    seg = kept(KMeans(3, n_init=1, random_state=0).fit(X), X)
    after = frame.assign(age=frame["age"].where(frame.index != 17))
    with pytest.raises(wc.InvalidInputError) as error:
        wc.changes(seg, frame, after, on="CustomerID")
    assert str(error.value) == (
        "changes: after must be finite; row 17, feature 'age' holds a missing value (NaN). Drop or fill such "
        "rows first."
    )
    nulls = pl.from_pandas(frame).with_columns(
        age=pl.when(pl.col("CustomerID") == 1017).then(None).otherwise(pl.col("age"))
    )
    with pytest.raises(wc.InvalidInputError) as error:
        wc.changes(seg, nulls, frame, on="CustomerID")
    assert str(error.value) == (
        "changes: before must be finite; row 17, feature 'age' holds a missing value (NaN). Drop or fill "
        "such rows first."
    )


def test_missing_values_that_the_pipeline_fills_are_values(seg: wc.Segmentation) -> None:
    before = customers()
    after = before.assign(spend=np.nan)
    changes = wc.changes(seg, before, after, on="CustomerID", check=False)
    rows = changes.to_frame().set_index("CustomerID")
    moved = rows[rows["status"] == "moved"]
    assert len(moved)
    assert (moved["age"] == 0).all()
    np.testing.assert_allclose(moved["spend"], moved["evidence_after"] - moved["evidence_before"], atol=1e-9)
    assert " missing " in changes.row(moved.index[0]).describe()


def test_both_months_need_the_columns_of_both_segmentations(seg: wc.Segmentation) -> None:
    frame = customers().assign(tenure=np.arange(240.0) % 7)
    new = segmentation(frame)
    with pytest.raises(wc.InvalidInputError) as error:
        wc.changes(seg, new, customers(), frame, on="CustomerID")
    assert str(error.value) == (
        "changes: before must have the columns of both segmentations, so that each can assign it; missing: "
        "['tenure'], which the new segmentation uses. Add the column, or compare the tables under one "
        "segmentation: changes(old, before, after, on=...)."
    )
    with pytest.raises(wc.InvalidInputError) as error:
        wc.changes(new, seg, frame, customers(), on="CustomerID")
    assert str(error.value) == (
        "changes: after must have the columns of both segmentations, so that each can assign it; missing: "
        "['tenure'], which the old segmentation uses. Add the column, or compare the tables under one "
        "segmentation: changes(new, before, after, on=...)."
    )


@pytest.mark.parametrize(
    ("arguments", "listed"),
    [
        (lambda seg, frame: (seg, frame), "Segmentation, DataFrame"),
        (lambda seg, frame: (frame, frame, seg), "DataFrame, DataFrame, Segmentation"),
        (lambda seg, frame: (seg, frame, seg, frame), "Segmentation, DataFrame, Segmentation, DataFrame"),
        (lambda seg, frame: (seg, seg, frame), "Segmentation, Segmentation, DataFrame"),
        (lambda seg, frame: (seg.model, frame, frame), "Pipeline, DataFrame, DataFrame"),
    ],
)
def test_the_arguments_are_segmentations_and_two_tables(
    arguments: Any, listed: str, seg: wc.Segmentation
) -> None:
    with pytest.raises(wc.InvalidInputError) as error:
        wc.changes(*arguments(seg, customers()), on="CustomerID")
    assert str(error.value) == (
        "changes: the arguments must be changes(segmentation, before, after, on=...) or changes(old, new, "
        f"before, after, on=...); got {listed}. wc.Segmentation.of(model, X) makes a segmentation of a "
        "fitted model."
    )


def test_an_unknown_row_is_refused(seg: wc.Segmentation) -> None:
    frame = customers()
    changes = wc.changes(seg, frame, frame, on="CustomerID")
    for name in (7, "1000", None, [1000]):
        with pytest.raises(wc.InvalidInputError) as error:
            changes.row(name)
        assert str(error.value) == (
            f"row: name must be an id from column 'CustomerID', such as 1000; got {name!r}."
        )


def test_options_are_checked(seg: wc.Segmentation, tmp_path: Any) -> None:
    frame = customers()
    changes = wc.changes(seg, frame, frame, on="CustomerID")
    for call, message in (
        (lambda: changes.summary(0), "summary: n_flows must be an integer of at least 1; got 0."),
        (
            lambda: changes.row(1000).describe(0),
            "describe: n_columns must be an integer of at least 1; got 0.",
        ),
        (
            lambda: changes.report(tmp_path / "x.html", n_rows=-1),
            "report: n_rows must be an integer of at least 0; got -1.",
        ),
        (lambda: changes.report(tmp_path / "x.html", title=3), "report: title must be text; got 3."),  # type: ignore[arg-type]
        (
            lambda: changes.flows("excel"),
            "flows: backend must be one of 'pandas', 'polars', 'pyarrow'; got 'excel'.",
        ),
    ):
        with pytest.raises(wc.InvalidInputError) as error:
            call()
        assert str(error.value) == message
    assert not list(tmp_path.iterdir())
