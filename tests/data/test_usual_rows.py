"""Rows far outside the clusters of a network, such as raw rows for a model of scaled columns."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.cluster import DBSCAN, Birch, BisectingKMeans, KMeans, MiniBatchKMeans
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_iris, load_wine
from sklearn.mixture import GaussianMixture
from sklearn.neighbors import NearestCentroid
from sklearn.preprocessing import MinMaxScaler, RobustScaler, StandardScaler

import whycluster as wc
from whycluster.data.usual_rows import unusual_columns

Made = Callable[[], Any]
MODELS: dict[str, Made] = {
    "KMeans": lambda: KMeans(3, n_init=1, random_state=0),
    "MiniBatchKMeans": lambda: MiniBatchKMeans(3, n_init=1, random_state=0),
    "BisectingKMeans": lambda: BisectingKMeans(4, random_state=0),
    "Birch": lambda: Birch(n_clusters=3, threshold=0.2),
    "full": lambda: GaussianMixture(3, reg_covar=1e-3, random_state=0),
    "diag": lambda: GaussianMixture(3, covariance_type="diag", reg_covar=1e-3, random_state=0),
    "KernelKMeans": lambda: wc.KernelKMeans(3, random_state=0),
}


def is_unusual(model: Any, rows: Any) -> bool:
    network = wc.neuralize(model)
    return unusual_columns(network.landmarks, network.open(rows, "explain")) != ""


@pytest.mark.parametrize("scaler", [StandardScaler, MinMaxScaler, RobustScaler])
@pytest.mark.parametrize("load", [load_wine, load_breast_cancer])
@pytest.mark.parametrize("name", MODELS)
def test_raw_rows_are_found(name: str, load: Any, scaler: Any) -> None:
    raw = load().data
    model = MODELS[name]().fit(scaler().fit_transform(raw))
    assert is_unusual(model, raw)
    assert is_unusual(model, raw[:1])
    assert is_unusual(model, raw[:7])


@pytest.mark.parametrize("name", MODELS)
def test_raw_rows_of_nearly_the_same_scale_are_found(name: str) -> None:
    """The raw columns of iris are between 0 and 8, and the scaled ones between -3 and 3."""
    raw = load_iris().data
    assert is_unusual(MODELS[name]().fit(StandardScaler().fit_transform(raw)), raw)


def test_one_small_value_hides_no_raw_rows() -> None:
    """Most of a few rows must be far away, not all."""
    model = KMeans(2, n_init=1, random_state=0).fit(StandardScaler().fit_transform(load_wine().data))
    raw = load_wine().data[:5]
    raw[0] = 0.0
    assert is_unusual(model, raw)


@pytest.mark.parametrize("rate", [0.03, 0.05, 0.2])
@pytest.mark.parametrize("scaler", [StandardScaler, MinMaxScaler])
def test_columns_of_mostly_zeros_are_usual(rate: float, scaler: Any) -> None:
    """Their quartiles are equal, and their medians are not between the centroids."""
    X = np.random.default_rng(0).poisson(rate, (2000, 8)).astype(float)
    scaled = scaler().fit(X[::2])
    for name in MODELS:
        model = MODELS[name]().fit(scaled.transform(X[::2]))
        assert not is_unusual(model, scaled.transform(X[1::2])), name


@pytest.mark.parametrize("scaler", [StandardScaler, MinMaxScaler, RobustScaler])
@pytest.mark.parametrize("load", [load_wine, load_breast_cancer, load_iris, load_diabetes, load_digits])
@pytest.mark.parametrize("name", MODELS)
def test_rows_of_another_month_are_not_found(name: str, load: Any, scaler: Any) -> None:
    """One half of the rows is fitted, and the other half stands for another month."""
    raw = load().data
    order = np.random.default_rng(0).permutation(len(raw))
    fitted, other = raw[order[::2]], raw[order[1::2]]
    scaled = scaler().fit(fitted)
    model = MODELS[name]().fit(scaled.transform(fitted))
    new = scaled.transform(other)
    assert not is_unusual(model, new)
    assert not any(is_unusual(model, new[[i]]) for i in range(20))


def test_classes_that_hardly_differ_are_usual() -> None:
    """The centroids of classes can be much closer to each other than the rows are."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20_000, 3)) ** 3
    assert not is_unusual(NearestCentroid().fit(X, rng.integers(2, size=len(X))), X)


def test_the_warning_names_the_column_and_the_factor(tmp_path: Path) -> None:
    pytest.importorskip("pandas")
    raw = load_wine(as_frame=True).data
    model = KMeans(3, n_init=1, random_state=0).fit(StandardScaler().fit_transform(raw))
    network = wc.neuralize(model)
    pytest.importorskip("safetensors")
    wc.save(network, tmp_path / "network")
    median, centers = raw["proline"].median(), model.cluster_centers_[:, -1]
    times = median / np.abs(centers).max()
    for net in (network, wc.load(tmp_path / "network")):
        with pytest.warns(
            wc.PopulationWarning, match="column 'proline', the value is 1065, and the clusters"
        ):
            net.assign(raw.iloc[:1])
        for name in ("explain", "assign", "evidence"):
            with pytest.warns(wc.PopulationWarning) as caught:
                getattr(net, name)(raw)
            assert len(caught) == 1
            assert caught[0].filename == __file__
            text = str(caught[0].message)
            low, high = f"{centers.min():.3g}", f"{centers.max():.3g}"
            assert text.startswith(
                f"{name}: 10 of 13 columns hold values far outside the clusters of the model; "
            )
            assert f"in column 'proline', the median is {median:.0f}, and the clusters lie between " in text
            assert f"between {low} and {high} (a factor of {times:.0f}). If the model was fitted on" in text


def test_distances_that_no_scale_changes_are_not_compared() -> None:
    X = np.abs(np.random.default_rng(0).normal(size=(50, 3)))
    network = wc.neuralize(X[:2], metric="cosine")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        network.assign(1000.0 * X)


def test_a_segmentation_of_rows_that_the_model_was_not_fitted_on() -> None:
    raw = load_wine().data
    model = KMeans(3, n_init=1, random_state=0).fit(StandardScaler().fit_transform(raw))
    with pytest.warns(wc.PopulationWarning, match="^Segmentation: 10 of 13 columns hold values far outside"):
        wc.Segmentation.of(model, raw, measure_quality=False)


def test_density_based_clusters_are_compared() -> None:
    raw = load_wine().data
    scaled = StandardScaler().fit_transform(raw)
    network = wc.neuralize(DBSCAN(eps=2.3, min_samples=5).fit(scaled), rows=scaled)
    assert unusual_columns(network.landmarks, network.open(scaled, "explain")) == ""
    assert unusual_columns(network.landmarks, network.open(raw, "explain")) != ""


def test_raw_files_are_warned_of(tmp_path: Path) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    raw = load_wine().data
    model = KMeans(3, n_init=1, random_state=0).fit(StandardScaler().fit_transform(raw))
    (tmp_path / "in").mkdir()
    pq.write_table(pa.table({f"x{i}": raw[:, i] for i in range(13)}), tmp_path / "in" / "raw.parquet")
    with pytest.warns(
        wc.PopulationWarning, match="^explain_dataset: in 'raw.parquet', 10 of 13 columns hold"
    ):
        wc.explain_dataset(model, tmp_path / "in", tmp_path / "out")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        wc.explain_dataset(model, tmp_path / "in", tmp_path / "out2", check=False)
