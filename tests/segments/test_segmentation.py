"""Segmentations: a clustering that is kept and applied to new rows."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.cluster import DBSCAN, HDBSCAN

import whycluster as wc
from whycluster.data.warnings import FewRowsWarning

pd = pytest.importorskip("pandas")
pytest.importorskip("kneed")

N = 120


def customers(seed: int = 0, n: int = N) -> Any:
    rng = np.random.default_rng(seed)
    group = rng.integers(0, 3, n)
    return pd.DataFrame(
        {
            "CustomerID": np.arange(n),
            "age": rng.normal(30 + 15 * group, 4),
            "spend": np.where(rng.random(n) < 0.1, np.nan, rng.lognormal(2 + group, 0.3)),
            "city": rng.choice(["Bern", "Oslo", "Rome"], n),
            "since": pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 900, n), "D"),
        }
    )


@pytest.fixture(scope="module")
def made() -> wc.Segmentation:
    with pytest.warns(wc.ColumnWarning, match="segment: 1 column is left out. 'CustomerID': like an ident"):
        return wc.segment(customers(), 3, {0: "Loyal"}, measure_quality=False)


def test_a_segmentation_knows_what_it_was_made_on(made: wc.Segmentation) -> None:
    assert repr(made) == "<Segmentation of 120 rows into 3 clusters by 4 columns>"
    assert made.labels.tolist() == ["Loyal", 1, 2]
    assert made.feature_names == ["age", "spend", "city", "since"]
    assert made.left_out == {"CustomerID": "like an identifier, whole numbers in a column with such a name"}
    assert made.sizes.tolist() == [(made.assign(customers()) == label).sum() for label in made.labels]
    age, spend, city, since = made.population.columns
    assert age.range is not None
    assert age.range[0] == customers()["age"].min()
    assert age.range[-1] == customers()["age"].max()
    assert spend.n_missing == customers()["spend"].isna().sum()
    assert city.categories == ("Bern", "Oslo", "Rome")
    assert [each.kind.value for each in (age, city, since)] == ["numbers", "text", "dates"]


def test_few_rows_are_explained_as_in_their_table(made: wc.Segmentation) -> None:
    frame = customers()
    whole = made.explain(frame)
    with warnings.catch_warnings():
        warnings.simplefilter("error", FewRowsWarning)
        few = made.explain(frame.iloc[7:9])
    assert few.beta == whole.beta
    np.testing.assert_allclose(few.relevance, whole.relevance[7:9], rtol=1e-12, atol=1e-15)
    assert few.summary().clusters.tolist() == np.unique(whole.cluster[7:9]).tolist()


def test_columns_are_found_by_name(made: wc.Segmentation) -> None:
    frame = customers()
    assert made.assign(frame[frame.columns[::-1]]).tolist() == made.assign(frame).tolist()
    with pytest.raises(wc.InvalidInputError) as error:
        made.assign(frame.rename(columns={"age": "Age"}))
    assert str(error.value) == (
        "assign: new must have the 4 columns that the segmentation was made on; missing: ['age']; unknown: "
        "['CustomerID', 'Age']. Select or rename its columns first."
    )


def test_counts_of_one_are_singular() -> None:
    seg = wc.Segmentation.of(np.array([[0.0], [2.0]]), pd.DataFrame({"a": [0.5]}), measure_quality=False)
    assert repr(seg) == "<Segmentation of 1 row into 2 clusters by 1 column>"


def test_a_name_that_looks_like_another_cluster_is_refused(made: wc.Segmentation) -> None:
    """In SQL and on the screen, the name "1" and cluster 1 would be the same."""
    with pytest.raises(wc.InvalidInputError, match="own name; '1' would name several clusters"):
        made.rename({2: "1"})
    assert made.rename({1: "2", 2: "1"}).labels.tolist() == ["Loyal", "2", "1"]


@pytest.mark.parametrize("model", [DBSCAN(eps=6), HDBSCAN(min_cluster_size=10, copy=True)])
def test_labels_of_a_model_are_kept_as_a_surrogate_or_as_their_rule(model: Any, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(120, 2)) * 4 + 40 * rng.integers(0, 2, (120, 1))
    frame = pd.DataFrame(rows, columns=["age", "spend"])
    model.fit(frame)
    surrogate = wc.Segmentation.of(model, frame, measure_quality=False)
    assert surrogate.network.fidelity is not None
    rule = wc.Segmentation.of(wc.neuralize(model, rows=frame), frame, measure_quality=False)
    assert rule.network.fidelity is None
    exp = wc.explain(model, frame)
    assert (rule.assign(frame) == exp.cluster).all()
    pytest.importorskip("safetensors")
    wc.save(rule, tmp_path / "segments.why")
    one = wc.load(tmp_path / "segments.why").explain(frame.iloc[[5]])
    np.testing.assert_allclose(one.relevance[0], exp.relevance[5], rtol=1e-9)
    with pytest.raises(wc.UnsupportedModelError, match=r"NeighborEnergy .* cannot be written in SQL"):
        rule.to_sql("customers")
