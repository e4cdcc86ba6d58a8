"""Changes across quadrics: mixtures, and clusters whose nearest member decides."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.cluster import DBSCAN, AgglomerativeClustering, Birch
from sklearn.datasets import load_wine, make_blobs
from sklearn.decomposition import PCA
from sklearn.mixture import GaussianMixture
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PowerTransformer, StandardScaler

import whycluster as wc
from tests.reference import counterfactual as slow

Array = NDArray[Any]


def numbers(values: Array) -> Array:
    return np.asarray(values, dtype=float)


def blobs(n: int, d: int, k: int, seed: int) -> Array:
    return np.asarray(make_blobs(n, d, centers=k, cluster_std=[1.0, 2.5, 4.0][:k], random_state=seed)[0])


def covariances(model: GaussianMixture) -> Array:
    d = model.means_.shape[1]
    kind, found = model.covariance_type, model.covariances_
    if kind == "tied":
        return np.array([found] * model.n_components)
    return np.array([c if kind == "full" else np.eye(d) * c for c in found])


def energies_of(model: GaussianMixture) -> slow.Energies:
    return slow.mixture_energies(model.means_, covariances(model), model.weights_)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["full", "tied", "diag", "spherical"])
@pytest.mark.parametrize("seed", range(2))
def test_no_point_of_a_grid_is_nearer_in_a_mixture(kind: str, seed: int) -> None:
    X = blobs(200, 2, 3, seed)
    model = GaussianMixture(3, covariance_type=kind, random_state=seed).fit(X)
    exp, scale, energies = wc.explain(model, X), 1 / X.std(axis=0), energies_of(model)
    for row in range(0, 200, 67):
        for to in np.delete(exp.labels, exp.assigned[row]).tolist():
            found = exp.counterfactual(row, to)
            assert found.found
            assert model.predict(numbers(found.after)[None])[0] == to
            size, gap = slow.least_change_on_grid(X[row], energies, to, scale, 1.01 * found.distance, 121)
            assert size > found.lower_bound
            if found.optimum != "local":
                assert found.lower_bound == pytest.approx(found.distance, rel=2e-3)
                assert found.distance <= size * (1 + 1e-3)
            assert size <= found.distance + gap


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["full", "diag", "spherical"])
def test_many_starts_find_nothing_nearer_in_a_mixture(kind: str) -> None:
    X = np.asarray(load_wine().data[:, [0, 1, 6, 9, 11]])
    Z = StandardScaler().fit_transform(X)
    model = GaussianMixture(5, covariance_type=kind, random_state=0, reg_covar=1e-2).fit(Z)
    exp, energies = wc.explain(model, Z), energies_of(model)
    optimums = []
    for row in range(0, 178, 30):
        to = int(np.delete(exp.labels, exp.assigned[row])[row % 4])
        found = exp.counterfactual(row, to)
        assert model.predict(numbers(found.after)[None])[0] == to
        starts = Z[exp.assigned == to][:5]
        size = slow.least_change_from_many_starts(Z[row], energies, to, 1 / Z.std(axis=0), starts)
        assert found.lower_bound <= size * (1 + 1e-6)
        if found.optimum != "local":
            assert found.distance <= size * (1 + 1e-3)
        optimums.append(found.optimum)
    assert "certified" in optimums or "global" in optimums


HARD: dict[str, Any] = {
    "birch": Birch(threshold=0.6, n_clusters=3),
    "single linkage": AgglomerativeClustering(3, linkage="single"),
    "dbscan": DBSCAN(eps=0.9, min_samples=4),
}


def hard_energies(kind: str, model: Any, X: Array, row: int) -> slow.Energies:
    """The energies of changed versions of a row, which is not its own neighbor."""
    if kind == "birch":
        return slow.nearest_unit_energies(model.subcluster_centers_, model.subcluster_labels_)
    members = np.arange(len(X)) if kind == "single linkage" else model.core_sample_indices_
    members = members[members != row]
    floor = model.eps**2 if kind == "dbscan" else None
    return slow.nearest_unit_energies(X[members], model.labels_[members], floor)


@pytest.mark.slow
@pytest.mark.parametrize("kind", HARD)
def test_no_point_of_a_grid_is_nearer_with_a_hard_minimum(kind: str) -> None:
    X = make_blobs(120, 2, centers=4, cluster_std=1.3, random_state=3)[0]
    model = HARD[kind].fit(X)
    exp = wc.explain(model, X)
    for row in range(0, 120, 30):
        energies = hard_energies(kind, model, X, row)
        for to in [label for label in exp.labels.tolist() if label not in (exp.assigned[row], "noise")]:
            found = exp.counterfactual(row, to)
            assert found.optimum in ("global", "certified")
            assert slow.is_in(energies, numbers(found.after)[None], to).all()
            most = 1.01 * found.distance
            size, gap = slow.least_change_on_grid(X[row], energies, to, np.ones(2), most, 121)
            assert found.distance <= size * (1 + 1e-3)
            assert size <= found.distance + gap
            for column in range(2):
                alone = found.single[column]
                line = X[row] + np.linspace(-20, 20, 4001)[:, None] * np.eye(2)[column]
                steps = np.abs(line - X[row]).sum(axis=1)[slow.is_in(energies, line, to)]
                assert (alone is None) == (not steps.size) or steps.size < 3
                if alone is not None:
                    assert abs(alone - X[row, column]) <= steps.min(initial=np.inf) + 1e-3
                    point = np.where(np.eye(2)[column] == 1, alone, X[row])
                    assert slow.is_in(energies, numbers(point)[None], to).all()


def test_noise_comes_into_the_nearest_cluster() -> None:
    """A row is moved to within eps of the nearest core sample."""
    X = np.concatenate([make_blobs(100, 3, centers=2, random_state=0)[0], [[20.0, 20.0, 20.0]]])
    model = DBSCAN(eps=1.0).fit(X)
    found = wc.explain(model, X).counterfactual(100)
    far = np.linalg.norm(X[model.core_sample_indices_] - X[100], axis=1)
    assert (found.cluster, found.optimum) == ("noise", "global")
    assert found.to == model.labels_[model.core_sample_indices_][np.argmin(far)]
    assert found.lower_bound == pytest.approx(far.min() - 1.0)
    assert found.distance == pytest.approx(far.min() - 1.0, rel=1e-3)
    assert "Row 100 is noise." in str(found)


def test_a_row_becomes_noise() -> None:
    """It is moved out of all balls around core samples; this may be a local optimum."""
    X = make_blobs(150, 2, centers=2, random_state=1)[0]
    model = DBSCAN(eps=0.8).fit(X)
    exp = wc.explain(model, X)
    row = int(np.flatnonzero(model.labels_ == 0)[0])
    found = exp.counterfactual(row, "noise")
    cores = np.setdiff1d(model.core_sample_indices_, row)
    assert np.linalg.norm(X[cores] - numbers(found.after), axis=1).min() > 0.8
    assert found.optimum in ("global", "certified", "local")
    assert 0.0 < found.lower_bound <= found.distance


STEPS: dict[str, Any] = {
    "scaled": make_pipeline(StandardScaler(), GaussianMixture(3, random_state=0)),
    "components": make_pipeline(StandardScaler(), PCA(3), GaussianMixture(3, random_state=0)),
    "powers": make_pipeline(PowerTransformer(), GaussianMixture(3, covariance_type="diag", random_state=0)),
    "birch": make_pipeline(StandardScaler(), PCA(3), Birch(threshold=0.7, n_clusters=3)),
}


@pytest.mark.parametrize("name", STEPS)
def test_behind_a_pipeline_printed_values_reach_the_cluster(name: str) -> None:
    from benchmarks.counterfactual import Score

    frame = load_wine(as_frame=True).data.iloc[:, :7]
    model = STEPS[name].fit(frame)
    exp, score = wc.explain(model, frame), Score()
    for row in range(5, 178, 80):
        to = int(np.delete(exp.labels, exp.assigned[row])[0])
        score.add(str(exp.counterfactual(row, to)), frame, row, model, to)
    assert score.reached == score.tries


def test_without_a_destination_the_nearest_cluster_is_chosen() -> None:
    X = blobs(200, 3, 3, 0)
    exp = wc.explain(GaussianMixture(4, random_state=0).fit(X), X)
    for row in range(0, 200, 50):
        each = [exp.counterfactual(row, to) for to in exp.labels.tolist() if to != exp.assigned[row]]
        found = exp.counterfactual(row)
        assert found.distance == pytest.approx(min(one.distance for one in each))


def test_whole_numbers_are_branched_on() -> None:
    """Changes by whole numbers are compared with all whole numbers nearby."""
    rng = np.random.default_rng(0)
    X = np.round(rng.normal(size=(150, 2)) * [3, 6] + np.repeat([[0, 0], [12, 9], [0, 25]], 50, axis=0))
    model = GaussianMixture(3, random_state=0).fit(X)
    exp, scale = wc.explain(model, X), 1 / X.std(axis=0)
    steps = np.stack(np.meshgrid(np.arange(-60, 61.0), np.arange(-60, 61.0)), axis=-1).reshape(-1, 2)
    for row in range(0, 150, 50):
        found = exp.counterfactual(row)
        assert 0.0 < found.lower_bound <= found.distance
        assert (numbers(found.after) == np.round(numbers(found.after))).all()
        sizes = np.linalg.norm(steps * scale, axis=1)[model.predict(X[row] + steps) == found.to]
        assert found.distance == pytest.approx(sizes.min())
