"""New rows are compared with the rows that a segmentation was made on."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
from sklearn.cluster import KMeans
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris, load_wine
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import whycluster as wc
from tests.segments.test_segmentation import customers

pd = pytest.importorskip("pandas")
pytest.importorskip("kneed")


@cache
def made() -> wc.Segmentation:
    return wc.segment(customers().drop(columns="CustomerID"), 3, measure_quality=False)


def problems(frame: Any, seg: wc.Segmentation | None = None) -> str:
    """Return the error or the warning of assigning new rows, or an empty string."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            (seg or made()).assign(frame)
        except wc.InvalidInputError as error:
            return f"error: {error}"
    assert {warning.category for warning in caught} <= {wc.PopulationWarning}
    return "".join(str(warning.message) for warning in caught)


def median_size(values: Any) -> float:
    """Return the median of the absolute values other than 0, as an element of the list."""
    sizes = sorted(abs(value) for value in values if value == value and value != 0)
    return float(np.quantile(sizes, 0.5, method="nearest"))


@pytest.mark.parametrize("factor", [100.0, 1000.0, 0.01, 0.001])
@pytest.mark.parametrize("column", ["age", "spend"])
def test_another_unit_is_refused_with_the_column_and_the_factor(column: str, factor: float) -> None:
    frame = customers(5)
    frame[column] *= factor
    before, after = median_size(customers()[column]), median_size(frame[column])
    times = after / before if factor > 1 else before / after
    found = problems(frame)
    assert found.startswith(
        "error: assign: new must have the columns and units of the rows that the segmentation was made on; "
        f"column '{column}' holds values about "
    )
    shown = float(found.split("about ")[1].split(" times")[0].replace(",", ""))
    assert shown == pytest.approx(times, rel=0.01)
    assert f" times {'larger' if factor > 1 else 'smaller'} (the median" in found
    assert found.endswith("Convert them first, or pass check=False.")
    assert len(made().assign(frame, check=False)) == len(frame)


def test_another_currency_is_warned_of() -> None:
    frame = customers(5)
    frame["spend"] *= 20.0
    assert problems(frame).startswith("assign: column 'spend' holds values about ")


def test_the_other_sign_is_warned_of() -> None:
    frame = customers(5)
    frame["age"] *= -1.0
    low, high = customers()["age"].min(), customers()["age"].max()
    third = np.quantile(frame["age"], 0.75)
    assert problems(frame) == (
        f"assign: in column 'age', three quarters of the values are at most {third:.3g} instead of from "
        f"{low:.3g} to {high:.3g}."
    )


def test_numbers_that_were_categories_are_compared_as_text() -> None:
    """A column of codes may be read as text in one month and as numbers in the next."""
    frame = customers().assign(city=["1", "2", "3"] * 40)
    with pytest.warns(wc.ColumnWarning):
        seg = wc.segment(frame, 3, measure_quality=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert (seg.assign(frame.assign(city=[1, 2, 3] * 40)) == seg.assign(frame)).all()
    with pytest.warns(wc.PopulationWarning, match=r"column 'city' holds \['4'\] in 40 of 120 rows"):
        seg.assign(frame.assign(city=[1.0, 2.0, 4.0] * 40))


def test_a_single_row_far_outside_is_warned_of() -> None:
    frame = customers(5).iloc[[0]].assign(spend=1e6)
    largest = customers()["spend"].max()
    found = problems(frame)
    assert found.startswith("assign: column 'spend' holds 1000000, which is ")
    assert found.endswith(f"times larger than the largest absolute value other than 0, {largest:.3g}.")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda frame: frame.assign(age=frame["age"].astype(str) + " years"),
            "error: assign: new must have the columns and units of the rows that the segmentation was made "
            "on; "
            "column 'age' must hold numbers, but holds text. Convert them first, or pass check=False.",
        ),
        (
            lambda frame: frame.assign(since=1.0),
            "error: assign: new must have the columns and units of the rows that the segmentation was made "
            "on; "
            "column 'since' must hold dates, but holds numbers. Convert them first, or pass check=False.",
        ),
        (
            lambda frame: frame.assign(age=frame["age"] > 40),
            "error: assign: new must have the columns and units of the rows that the segmentation was made "
            "on; column 'age' must hold numbers, but holds booleans. Convert them first, or pass "
            "check=False.",
        ),
        (
            lambda frame: frame.assign(city="Paris"),
            "assign: column 'city' holds ['Paris'] in 120 of 120 rows, which the segmentation was not made "
            "on.",
        ),
        (
            lambda frame: frame.assign(city=[1, 2] * 60),
            "assign: column 'city' holds ['1', '2'] in 120 of 120 rows, which the segmentation was not made "
            "on.",
        ),
        (
            lambda frame: frame.rename(columns={"age": "\u0430ge"}),  # a Cyrillic letter
            "error: assign: new must have the 4 columns that the segmentation was made on; missing: ['age']; "
            "unknown: ['CustomerID', '\\u0430ge']. Select or rename its columns first.",
        ),
        (
            lambda frame: frame.assign(age=np.nan),
            "assign: column 'age' is missing in 120 of 120 rows, and was missing in 0 of 120 rows.",
        ),
        (
            lambda frame: frame.assign(age=None),  # of pandas' type for objects, as text is
            "assign: column 'age' is missing in 120 of 120 rows, and was missing in 0 of 120 rows.",
        ),
        (
            lambda frame: frame.assign(city=None),
            "assign: column 'city' is missing in 120 of 120 rows, and was missing in 0 of 120 rows.",
        ),
        (
            lambda frame: frame.iloc[:0],
            "error: assign: new must have at least one row and one feature; got shape (0, 4).",
        ),
        (
            lambda frame: pd.concat([frame, frame[["age"]]], axis=1),
            "error: assign: new must have unique column names; 'age' occurs more than once.",
        ),
    ],
)
def test_columns_of_another_kind(change: Callable[[Any], Any], message: str) -> None:
    assert problems(change(customers(5))) == message


def test_booleans_may_be_0_and_1_but_no_other_numbers() -> None:
    frame = customers().assign(told=customers()["age"] > 45)[["age", "told"]]
    seg = wc.segment(frame, 3, measure_quality=False)
    labels = seg.assign(frame)
    assert (seg.assign(frame.assign(told=frame["told"].astype(int))) == labels).all()
    assert problems(frame.assign(told=frame["told"] + 1), seg) == (
        "error: assign: new must have the columns and units of the rows that the segmentation was made on; "
        "column 'told' must hold booleans, but holds numbers. Convert them first, or pass check=False."
    )
    coded = frame.assign(told=frame["told"].astype(int))
    assert (wc.segment(coded, 3, measure_quality=False).assign(frame) == labels).all()


def test_dates_far_away_are_warned_of() -> None:
    frame = customers(5)
    frame["since"] = pd.to_datetime(frame["since"].astype("int64") // 10**9, unit="us")
    first, last = customers()["since"].min(), customers()["since"].max()
    assert problems(frame).startswith("assign: column 'since' holds dates around 1970-01-01")
    assert problems(frame).endswith(f"instead of from {first.date()} to {last.date()}.")


def test_raw_rows_for_a_model_of_scaled_columns_are_refused() -> None:
    raw = load_wine(as_frame=True).data
    scaled = StandardScaler().set_output(transform="pandas").fit_transform(raw)
    model = KMeans(3, n_init=1, random_state=0).fit(scaled)
    seg = wc.Segmentation.of(model, scaled, measure_quality=False)
    assert problems(raw, seg).startswith("error: assign: new must have the columns and units")
    pipeline = make_pipeline(StandardScaler(), model).fit(raw)
    assert problems(raw, wc.Segmentation.of(pipeline, raw, measure_quality=False)) == ""


@pytest.mark.parametrize("load", [load_wine, load_iris, load_breast_cancer, load_diabetes])
def test_ordinary_months_never_warn(load: Any) -> None:
    """A hundred resampled halves; those of the other half stand for a new month."""
    frame = load(as_frame=True).data
    rng = np.random.default_rng(0)
    model = make_pipeline(StandardScaler(), KMeans(3, n_init=1, random_state=0))
    for _ in range(25):
        order = rng.permutation(len(frame))
        one, other = frame.iloc[order[::2]], frame.iloc[order[1::2]]
        seg = wc.Segmentation.of(model.fit(one), one, measure_quality=False)
        for rows in (one.sample(frac=1.0, replace=True, random_state=1), other):
            assert problems(rows, seg) == ""


def test_a_mixed_table_in_ordinary_months() -> None:
    for seed in range(1, 21):
        assert problems(customers(seed)) == ""
    for row in range(40):
        assert problems(customers(1).iloc[[row]]) == ""
