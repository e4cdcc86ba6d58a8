"""Drift within clusters: the test agrees with a slow one, is silent without a change, and finds a shift."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from sklearn.cluster import KMeans

import whycluster as wc
from tests.optional import optional
from tests.reference import changes as slow
from tests.segments.changes.months import customers, kept, next_month, segmentation
from whycluster.segments.changes.drift import holm
from whycluster.segments.changes.sentences import drift_sentence

if TYPE_CHECKING:
    import pandas as pd
else:
    pd = optional("pandas")

COLUMNS = ["a", "b", "c", "d"]


def column_of(frame: Any, column: str, measure: str) -> dict[int, float]:
    """Return the numbers that are compared, by id."""
    values = frame.set_index("CustomerID")[column]
    if measure == "missing":
        return {i: float(pd.isna(v)) for i, v in values.items()}
    if measure == "mean":
        return {i: float(v) for i, v in values.items() if not pd.isna(v)}
    return {i: float(v == measure) for i, v in values.items()}


def test_every_comparison_is_that_of_the_reference() -> None:
    before = customers()
    after = next_month(before)
    after.loc[after["CustomerID"] % 7 == 0, "visits"] = np.nan
    seg = segmentation(before)
    found = wc.changes(seg, before, after, on="CustomerID", check=False).drift()
    raw = []
    months = [month.assign(cluster=seg.assign(month, check=False)) for month in (before, after)]
    for line in found.itertuples():
        old, new = (
            column_of(month[month["cluster"] == line.cluster], line.column, line.measure) for month in months
        )
        assert (line.n_before, line.n_after) == (len(old), len(new))
        assert line.before == pytest.approx(np.mean([*old.values()]))
        assert line.after == pytest.approx(np.mean([*new.values()]))
        z, shift = slow.drift_test(old, new)
        assert line.shift == pytest.approx(shift)
        raw.append(slow.two_sided(z))
    order, least = np.argsort(raw, kind="stable"), 0.0
    for rank, place in enumerate(order.tolist()):  # Holm: the smallest p-value times n, the next times n - 1
        least = max(least, min(1.0, raw[place] * (len(raw) - rank)))
        assert found["p_value"][place] == pytest.approx(least, rel=1e-6, abs=1e-12)
    assert (found["alarm"] == ((found["p_value"] <= 0.01) & (found["shift"].abs() >= 0.1))).all()
    assert set(found["measure"]) == {"mean", "missing", "Bern", "Oslo", "Rome"}
    # Comparisons without any variation, such as missing ages, are left out.
    assert not ((found["column"] == "age") & (found["measure"] == "missing")).any()


def test_holm_of_nothing() -> None:
    assert holm(np.empty(0)).shape == (0,)


def months(seed: int, n: int = 300, fresh: bool = False) -> tuple[Any, Any]:
    """Customers whose months are draws around their own means; nothing changes."""
    rng = np.random.default_rng(seed)
    center = 3 * rng.integers(0, 3, (n, 1)) * np.array([1.0, -1.0, 0.5, 0.0]) + rng.normal(size=(n, 4))
    frames = [pd.DataFrame(center + rng.normal(scale=0.5, size=(n, 4)), columns=COLUMNS) for _ in range(2)]
    if fresh:
        frames[1] = frames[1] - center + rng.permutation(center)
    return frames[0].assign(id=np.arange(n)), frames[1].assign(id=np.arange(n))


def silent(before: Any, after: Any) -> bool:
    model = KMeans(3, n_init=1, random_state=0).fit(before[COLUMNS])
    return not wc.changes(kept(model, before[COLUMNS]), before, after, on="id").drifted


@pytest.mark.slow
@pytest.mark.parametrize("fresh", [False, True])
def test_noise_alone_raises_no_alarm(fresh: bool) -> None:
    assert sum(silent(*months(seed, fresh=fresh)) for seed in range(30)) >= 29


def test_the_same_month_raises_no_alarm() -> None:
    before, _ = months(0)
    assert silent(before, before.sample(frac=1.0, random_state=0))


@pytest.mark.parametrize("column", COLUMNS)
def test_a_shifted_column_is_found(column: str) -> None:
    before, after = months(1)
    after[column] += 0.5
    model = KMeans(3, n_init=1, random_state=0).fit(before[COLUMNS])
    drifted = wc.changes(kept(model, before[COLUMNS]), before, after, on="id").drifted
    assert drifted
    assert drifted[0].column == column
    assert (
        len({test.cluster for test in drifted if test.column == column}) >= 2
    )  # rows of the middle one move on
    assert all(test.shift > 0 for test in drifted if test.column == column)


def test_a_small_shift_of_every_row_is_found_although_rows_differ() -> None:
    """Pairs are compared: the shift is a fifth of the spread, and without pairs it would be missed."""
    rng = np.random.default_rng(0)
    before = pd.DataFrame({"a": np.repeat([0.0, 100.0], 60) + 3 * rng.normal(size=120), "id": range(120)})
    after = before.assign(a=before["a"] + 0.6 + 0.1 * rng.normal(size=120))
    seg = kept(np.array([[0.0], [100.0]]), before[["a"]])
    assert len(wc.changes(seg, before, after, on="id").drifted) == 2
    others = after.assign(id=after["id"] + 119)
    assert not wc.changes(seg, before, others, on="id").drifted


def test_categories_and_missing_values_drift() -> None:
    before = customers(600)
    after = before.copy()
    rng = np.random.default_rng(0)
    after.loc[rng.random(600) < 0.4, "city"] = "Oslo"
    after.loc[rng.random(600) < 0.4, "visits"] = np.nan
    before["visits"] = before["visits"].where(np.arange(600) % 50 != 0)
    drifted = wc.changes(segmentation(before), before, after, on="CustomerID", check=False).drifted
    assert {(test.column, test.is_missing) for test in drifted} >= {("city", False), ("visits", True)}
    assert {test.category for test in drifted if test.column == "city" and test.shift > 0} == {"Oslo"}


def test_a_category_called_missing_is_in_quotes() -> None:
    before = customers()
    before.loc[::5, "city"] = None
    before["city"] = before["city"].replace("Rome", "missing")
    after = before.assign(city=np.where(np.arange(240) % 2, "missing", before["city"]))
    changes = wc.changes(segmentation(before), before, after, on="CustomerID", check=False)
    found = changes.drift()
    measures = set(found.loc[found["column"] == "city", "measure"])
    assert measures == {"Bern", "Oslo", '"missing"', "missing"}
    for test in changes.drifted:
        text = f' "missing" in {test.before:.0%} of the rows before' if test.category == "missing" else ": "
        assert text in drift_sentence(changes.record, test)


def test_a_column_without_values_is_missing() -> None:
    before = customers()
    after = before.assign(city=None)
    seg = segmentation(before)
    found = wc.changes(seg, before, after, on="CustomerID", check=False).drift()
    city = found[(found["column"] == "city") & (found["measure"] == "missing")]
    assert (city["after"] == 1.0).all()
    assert city["alarm"].all()
