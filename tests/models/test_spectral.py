"""SpectralClustering: k-means in an embedding that is a vote of neighbors, so no surrogate is needed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.cluster import SpectralClustering
from sklearn.datasets import load_diabetes, load_iris, load_wine, make_moons
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import whycluster as wc
from tests.reference import votes as slow
from whycluster.models.adapters.sklearn_spectral import embedding
from whycluster.models.energies.votes import SpectralEnergy

Array = NDArray[Any]
DATA = {
    "wine": StandardScaler().fit_transform(load_wine().data),
    "iris": StandardScaler().fit_transform(load_iris().data),  # with a duplicate
    "moons": make_moons(200, noise=0.08, random_state=0)[0],
}
pytestmark = pytest.mark.filterwarnings("ignore:Graph is not fully connected")  # of scikit-learn, in fit


def fitted(name: str, affinity: str, assign: str, k: int = 4) -> tuple[Any, Array]:
    X = DATA[name]
    gamma = 20.0 if name == "moons" else 1.0 / X.shape[1]
    model = SpectralClustering(k, affinity=affinity, gamma=gamma, assign_labels=assign, random_state=0)
    return model.fit(X), X


@pytest.mark.parametrize("assign", ["kmeans", "cluster_qr", "discretize"])
@pytest.mark.parametrize("affinity", ["rbf", "nearest_neighbors"])
@pytest.mark.parametrize("name", DATA)
def test_every_row_has_its_label(name: str, affinity: str, assign: str) -> None:
    model, X = fitted(name, affinity, assign)
    exp = wc.explain(model, X)
    assert exp.fidelity is None
    assert exp.agreement is not None
    assert exp.agreement.share == 1.0
    np.testing.assert_array_equal(exp.cluster, model.labels_)
    np.testing.assert_allclose(exp.relevance.sum(axis=1), exp.evidence, atol=1e-10)
    assert (exp.evidence >= 0.0).all()


def test_discretize_may_stop_before_its_rotation_settles() -> None:
    X = StandardScaler().fit_transform(load_diabetes().data)
    model = SpectralClustering(12, gamma=0.1, assign_labels="discretize", random_state=0).fit(X)
    network = wc.neuralize(model, rows=X)
    assert network.agreement is not None
    assert network.agreement.share == 1.0
    energy: Any = network.energy
    np.testing.assert_allclose(energy.centers @ energy.centers.T, np.eye(12), atol=1e-12)


def test_the_embedding_is_a_vote_of_all_other_rows() -> None:
    """A row that is left out has the coordinates that it had, so its energies stay the same."""
    model, X = fitted("wine", "rbf", "kmeans")
    energy: Any = wc.neuralize(model, rows=X).energy
    assert isinstance(energy, SpectralEnergy)
    z, eigenvalues = embedding(model)
    for row in range(0, len(X), 31):
        rest = np.delete(np.arange(len(X)), row)
        voted = slow.kernel_vote(X[row], X[rest], z[rest] / eigenvalues, model.gamma)
        np.testing.assert_allclose(voted, z[row], rtol=1e-6, atol=1e-8)
        x = X[[row]]
        own, apart = (e.find(x).energies for e in (energy, energy.apart_from(x)))
        np.testing.assert_allclose(apart, own, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("affinity", ["rbf", "nearest_neighbors"])
def test_new_rows(affinity: str) -> None:
    """Rows next to training rows are assigned like them."""
    model, X = fitted("moons", affinity, "kmeans", 2)
    network = wc.neuralize(model, rows=X)
    new = X + 1e-4 * np.random.default_rng(0).normal(size=X.shape)
    assert (network.assign(new) == model.labels_).mean() >= 0.99
    exp = network.explain(new, background=X)
    np.testing.assert_allclose(exp.relevance.sum(axis=1), exp.evidence, atol=1e-10)


def test_clusters_that_got_no_rows() -> None:
    model, X = fitted("iris", "rbf", "cluster_qr")
    model.labels_ = np.where(model.labels_ == 1, 0, model.labels_)
    network = wc.neuralize(model, rows=X)
    assert network.labels.tolist() == [0, 2, 3]


def test_a_pipeline() -> None:
    X = load_wine().data
    model = make_pipeline(StandardScaler(), SpectralClustering(3, gamma=0.1, random_state=0)).fit(X)
    exp = wc.explain(model, X)
    assert exp.agreement is not None
    assert exp.agreement.share == 1.0
    inner = wc.explain(model[-1], DATA["wine"])
    np.testing.assert_allclose(exp.relevance, inner.relevance, atol=1e-9)


def test_a_random_state_does_not_matter() -> None:
    X = DATA["wine"]
    model = SpectralClustering(3, gamma=0.1, random_state=None, eigen_solver="lobpcg").fit(X)
    assert wc.neuralize(model, rows=X).agreement.share >= 0.99  # type: ignore[union-attr]


def test_what_would_move_a_row() -> None:
    model, X = fitted("moons", "rbf", "kmeans", 2)
    exp = wc.explain(model, X)
    row = int(exp.evidence.argmin())
    found = exp.counterfactual(row)
    assert np.isfinite(found.distance)
    assert found.to == 1 - exp.cluster[row]
    apart: Any = exp.energy.apart_from(X[[row]])
    moved = apart.find(found.after[None].astype(float)).energies
    assert moved.argmin() == found.to


@pytest.mark.filterwarnings("ignore::whycluster.FidelityWarning")
@pytest.mark.parametrize("affinity", ["rbf", "nearest_neighbors"])
def test_other_rows_than_those_of_the_fit(affinity: str) -> None:
    model, _ = fitted("wine", affinity, "kmeans")
    raw = load_wine().data
    with pytest.raises(wc.InvalidInputError) as error:
        wc.neuralize(model, rows=raw)
    assert str(error.value) == (
        "neuralize: rows must be the 178 rows that the model was fitted on; got other rows."
    )
    exp = wc.explain(model, raw)
    assert exp.agreement is None
    assert exp.fidelity is not None


def test_other_affinities_are_refused_by_name() -> None:
    X = DATA["iris"]
    for affinity in ("precomputed", "laplacian"):
        rows = np.exp(-np.abs(X[:, None] - X).sum(axis=2)) if affinity == "precomputed" else X
        model = SpectralClustering(3, affinity=affinity, random_state=0).fit(rows)
        with pytest.raises(wc.UnsupportedModelError) as error:
            wc.neuralize(model)
        assert (
            "A rule is known only for the affinities rbf and nearest_neighbors; this SpectralClustering has "
            f"affinity='{affinity}'. Explain them through a surrogate"
        ) in str(error.value)
