"""Segmentations applied to files."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.cluster import KMeans

import whycluster as wc
from tests.segments.test_segmentation import customers

pd = pytest.importorskip("pandas")
pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")
pytest.importorskip("kneed")

pytestmark = pytest.mark.slow


def made() -> wc.Segmentation:
    return wc.segment(customers().drop(columns="CustomerID"), 3, measure_quality=False)


def write(folder: Path, months: dict[str, Any], suffix: str = "parquet") -> Path:
    folder.mkdir()
    for name, month in months.items():
        if suffix == "csv":
            month.to_csv(folder / f"{name}.csv", index=False)
        else:
            pq.write_table(pa.Table.from_pandas(month, preserve_index=False), folder / f"{name}.parquet")
    return folder


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
@pytest.mark.parametrize("output", ["rows", "summary", "both"])
def test_ordinary_files_are_explained_as_tables(suffix: str, output: str, tmp_path: Path) -> None:
    months = {f"m{seed}": customers(seed) for seed in (1, 2, 3)}
    data, seg = write(tmp_path / "in", months, suffix), made()
    done = wc.explain_dataset(seg, data, tmp_path / "out", output=output, batch_rows=50)
    assert done.n_rows == 360
    assert done.beta == seg.explain(months["m1"]).beta
    for path, month in zip(done.parts, months.values(), strict=False):
        whole, found = seg.explain(month), pq.read_table(path)
        assert found["cluster"].to_pylist() == whole.cluster.tolist()
        np.testing.assert_allclose(found["evidence"].to_numpy(), whole.evidence, rtol=1e-9)


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_the_summary_knows_dates_booleans_and_categories(suffix: str, tmp_path: Path) -> None:
    frame = customers(1).assign(told=lambda month: month["age"] > 45)
    seg = wc.segment(frame.drop(columns="CustomerID"), 3, measure_quality=False)
    data = write(tmp_path / "in", {"a": frame[:50], "b": frame[50:]}, suffix)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", wc.PopulationWarning)  # half of a month is a small sample
        found = wc.explain_dataset(seg, data, tmp_path / "out", output="summary").summary
    assert found is not None
    whole = seg.explain(frame).summary()
    age, spend, city, since, told = range(5)
    numbers = [age, spend, since, told]
    np.testing.assert_allclose(found.inside[:, numbers], whole.inside[:, numbers])
    np.testing.assert_allclose(found.outside[:, numbers], whole.outside[:, numbers])
    for group in range(3):
        statements = [found.statement(group, column) for column in range(5)]
        assert [each.is_date for each in statements] == [False, False, False, True, False]
        assert [each.is_boolean for each in statements] == [False, False, False, False, True]
        assert statements[since].texts[0] == whole.statement(group, since).texts[0]
        assert statements[city].text == "city has categories, which are not compared"


@pytest.mark.parametrize("output", ["rows", "summary"])
def test_a_part_in_another_unit_is_refused_and_the_others_are_done(output: str, tmp_path: Path) -> None:
    cents = customers(2).assign(spend=lambda month: 100.0 * month["spend"])
    data, seg = write(tmp_path / "in", {"jan": customers(1), "feb": cents}), made()
    with pytest.raises(wc.InvalidInputError) as caught:
        wc.explain_dataset(seg, data, tmp_path / "out", output=output)
    with pytest.raises(wc.InvalidInputError) as single:
        seg.assign(cents)
    what = str(single.value).removeprefix("assign: new ")
    assert str(caught.value) == (
        f"explain_dataset: 1 of 2 parts could not be explained; the others are done. 'feb.parquet': it {what}"
    )
    assert not (tmp_path / "out" / "feb.parquet").exists()
    assert (tmp_path / "out" / "jan.parquet").exists() == (output == "rows")
    done = wc.explain_dataset(seg, data, tmp_path / "out", output=output, check=False)
    assert (done.n_rows, done.n_done_before) == (240, 1)


def test_other_differences_are_warned_of_once(tmp_path: Path) -> None:
    months = {f"m{seed}": customers(seed).assign(city="Paris") for seed in range(1, 6)}
    data, seg = write(tmp_path / "in", months), made()
    with pytest.warns(wc.PopulationWarning) as caught:
        done = wc.explain_dataset(seg, data, tmp_path / "out")
    assert done.n_rows == 600
    paris = "column 'city' holds ['Paris'] in 120 of 120 rows, which the segmentation was not made on"
    assert [str(each.message) for each in caught] == [
        "explain_dataset: "
        + "; ".join(f"in 'm{seed}.parquet', {paris}" for seed in (1, 2, 3))
        + "; and 2 more parts."
    ]
    assert caught[0].filename == __file__


def test_rows_are_spread_over_a_long_part(tmp_path: Path) -> None:
    """Only the last tenth is in another unit, and the quartiles are those of all rows."""
    rng = np.random.default_rng(0)
    rows = pd.DataFrame(rng.normal(50.0, 10.0, (60_000, 2)), columns=["a", "b"])
    seg = wc.Segmentation.of(KMeans(2, n_init=1, random_state=0).fit(rows), rows, measure_quality=False)
    last = rows.copy()
    last.iloc[-6000:] *= 1000.0
    rising = rows.sort_values("a")
    data = write(tmp_path / "in", {"last": last, "rising": rising})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        done = wc.explain_dataset(seg, data, tmp_path / "out", batch_rows=2500)
    assert done.n_rows == 120_000
    most = pd.concat([rows.iloc[:6000], 1000.0 * rows])
    data = write(tmp_path / "in2", {"most": most})
    with pytest.raises(wc.InvalidInputError, match="column 'a' holds values about "):
        wc.explain_dataset(seg, data, tmp_path / "out2", batch_rows=2500)


def test_rows_that_are_skipped_are_warned_of(tmp_path: Path) -> None:
    rows = pd.DataFrame(np.random.default_rng(0).normal(50.0, 10.0, (300, 2)), columns=["a", "b"])
    seg = wc.Segmentation.of(KMeans(2, n_init=1, random_state=0).fit(rows), rows, measure_quality=False)
    holes, none = rows.copy(), rows * np.nan
    holes.loc[::2, "a"] = np.nan
    data = write(tmp_path / "in", {"holes": holes, "none": none, "empty": rows.iloc[:0]})
    with pytest.warns(wc.PopulationWarning) as caught:
        done = wc.explain_dataset(seg, data, tmp_path / "out", invalid="skip")
    assert (done.n_rows, done.n_invalid) == (600, 450)
    assert str(caught[0].message) == (
        "explain_dataset: in 'holes.parquet', column 'a' is missing in 150 of 300 rows, and was missing in 0 "
        "of 300 rows; in 'none.parquet', column 'a' is missing in 300 of 300 rows, and was missing in 0 of "
        "300 rows; column 'b' is missing in 300 of 300 rows, and was missing in 0 of 300 rows."
    )
