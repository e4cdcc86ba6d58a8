"""DBSCAN and HDBSCAN: their labels follow from the nearest members, so no surrogate is needed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import sparse
from sklearn.cluster import DBSCAN, HDBSCAN, OPTICS, AgglomerativeClustering, SpectralClustering
from sklearn.datasets import load_iris, load_wine, make_moons
from sklearn.decomposition import PCA
from sklearn.neighbors import kneighbors_graph
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import whycluster as wc
from tests.optional import optional
from tests.reference import neighbors as slow

if TYPE_CHECKING:
    import hdbscan
    import pandas as pd
else:
    hdbscan = optional("hdbscan")
    pd = optional("pandas")

Array = NDArray[Any]
WINE = StandardScaler().fit_transform(load_wine().data)
IRIS = StandardScaler().fit_transform(load_iris().data)
MOONS = make_moons(400, noise=0.08, random_state=0)[0]
PLACES = np.radians(
    np.random.default_rng(0).normal(size=(200, 2)) * 3 + np.repeat([[10, 20], [25, 40]], 100, axis=0)
)


def codes(exp: wc.Explanation) -> Array:
    """The labels as the model has them."""
    return np.array([-1 if label == "noise" else label for label in exp.labels.tolist()])


DBSCANS = {
    "wine": (DBSCAN(eps=2.4, min_samples=4), WINE),
    "iris": (DBSCAN(eps=0.4), IRIS),
    "moons": (DBSCAN(eps=0.15), MOONS),
    "iris, manhattan": (DBSCAN(eps=0.7, metric="manhattan"), IRIS),
    "iris, minkowski": (DBSCAN(eps=0.7, metric="minkowski", p=1), IRIS),
    "places": (DBSCAN(eps=0.03, metric="haversine", algorithm="ball_tree"), PLACES),
}


@pytest.mark.parametrize("name", DBSCANS)
def test_dbscan(name: str) -> None:
    """Core samples and noise always agree; a border row may be near the cores of two clusters."""
    model, X = DBSCANS[name]
    model.fit(X)
    exp = wc.explain(model, X)
    assert exp.fidelity is None
    assert exp.agreement is not None
    assert exp.agreement.share >= 0.98
    core = np.isin(np.arange(len(X)), model.core_sample_indices_)
    sure = core | (model.labels_ == -1)
    np.testing.assert_array_equal(codes(exp)[exp.assigned_codes][sure], model.labels_[sure])
    np.testing.assert_array_equal(codes(exp)[exp.cluster_codes], model.labels_)  # each row for its label
    np.testing.assert_allclose(exp.relevance.sum(axis=1), exp.evidence, atol=1e-12)
    assert exp.rule == "path"


@pytest.mark.parametrize("name", DBSCANS)
def test_dbscan_assigns_new_rows_to_the_nearest_core_within_eps(name: str) -> None:
    model, X = DBSCANS[name]
    model.fit(X)
    new = X[:60] + np.random.default_rng(1).normal(size=(60, X.shape[1])) * 0.5 * model.eps
    metric = {"minkowski": "manhattan"}.get(model.metric, model.metric)
    labels = model.labels_[model.core_sample_indices_]
    expected = []
    for row in new:
        distance = [slow.distance(row, core, metric) for core in model.components_]
        near = int(np.argmin(distance))
        expected.append(labels[near] if distance[near] <= model.eps else "noise")
    found = wc.neuralize(model).assign(new)
    assert [str(label) for label in found] == [str(label) for label in expected]
    assert len(set(expected)) > 1


def test_dbscan_with_weights_and_duplicates() -> None:
    """Weights decide which rows are core samples; that is all the rule has to know."""
    X = np.concatenate([MOONS, MOONS[:50]])
    weights = np.where(np.arange(len(X)) % 3 == 0, 4.0, 0.5)
    model = DBSCAN(eps=0.15).fit(X, sample_weight=weights)
    exp = wc.explain(model, X)
    assert exp.agreement is not None
    assert exp.agreement.share >= 0.99
    np.testing.assert_allclose(exp.relevance.sum(axis=1), exp.evidence, atol=1e-12)


def test_a_core_sample_does_not_vouch_for_itself() -> None:
    """Its evidence is that of its nearest other core sample, unless its cluster has no other."""
    X = np.array([[0.0, 0.0], [0.0, 1.0], [0.0, 2.0], [9.0, 0.0], [9.0, 1.0], [9.0, -1.0]])
    model = DBSCAN(eps=1.0, min_samples=3).fit(X)
    assert model.core_sample_indices_.tolist() == [1, 3]
    X = np.concatenate([X, [[0.0, 3.0]]])
    model = DBSCAN(eps=1.0, min_samples=3).fit(X)
    assert model.core_sample_indices_.tolist() == [1, 2, 3]
    exp = wc.explain(model, X, against="noise")
    np.testing.assert_allclose(exp.evidence[[1, 2, 3]], [0.0, 0.0, 1.0], atol=1e-9)  # eps^2 - d^2


def hdbscans() -> dict[str, tuple[Any, Array]]:
    return {
        "wine": (HDBSCAN(min_cluster_size=8, copy=True), WINE),
        "iris": (HDBSCAN(min_cluster_size=5, min_samples=3, copy=True), IRIS),
        "moons, leaves": (HDBSCAN(min_cluster_size=8, cluster_selection_method="leaf", copy=True), MOONS),
        "wine, manhattan": (HDBSCAN(min_cluster_size=8, metric="manhattan", copy=True), WINE),
        "wine, hdbscan": (hdbscan.HDBSCAN(min_cluster_size=8), WINE),
        "iris, hdbscan": (hdbscan.HDBSCAN(min_cluster_size=5, min_samples=3), IRIS),
        "moons, hdbscan": (hdbscan.HDBSCAN(min_cluster_size=8, cluster_selection_method="leaf"), MOONS),
        "single": (hdbscan.HDBSCAN(min_cluster_size=8, cluster_selection_epsilon=0.1), MOONS),
    }


@pytest.mark.parametrize("name", hdbscans())
def test_hdbscan(name: str) -> None:
    model, X = hdbscans()[name]
    model.fit(X.copy())
    exp = wc.explain(model, X)
    assert exp.agreement is not None
    assert exp.agreement.share == 1.0
    assert exp.agreement.n_ties <= 0.02 * len(X)
    assert exp.agreement.differing.size == 0
    np.testing.assert_array_equal(codes(exp)[exp.cluster_codes], model.labels_)
    np.testing.assert_allclose(exp.relevance.sum(axis=1), exp.evidence, atol=1e-11)


def test_the_rule_of_hdbscan_is_that_of_its_definition() -> None:
    """Mutual reachability, counted row by row, against the height at which the cluster merges."""
    model = HDBSCAN(min_cluster_size=8, copy=True).fit(WINE)
    exp = wc.explain(model, WINE)
    tree = [
        (int(t["left_node"]), int(t["right_node"]), float(t["value"])) for t in model._single_linkage_tree_
    ]
    rows, m = list(WINE), model._min_samples - 1
    cores = [slow.core_distance(row, rows, m, "euclidean") for row in rows]
    for i in range(0, len(rows), 29):
        energies = []
        for k in range(model.labels_.max() + 1):
            own = np.flatnonzero(model.labels_ == k)
            reach = slow.reachability(
                rows[i], [rows[j] for j in own], [cores[j] for j in own], rows, m, "euclidean"
            )
            energies.append(reach**2 - slow.merge_height(tree, len(rows), set(own.tolist())) ** 2)
        energies.append(0.0)
        c = int(exp.cluster_codes[i])
        rival = min(energy for k, energy in enumerate(energies) if k != c)
        assert exp.evidence[i] == pytest.approx(rival - energies[c], abs=1e-9)


@pytest.mark.parametrize("name", ["wine", "iris", "moons"])
@pytest.mark.parametrize("size", [5, 12])
def test_new_rows_are_assigned_as_hdbscan_predicts_them(name: str, size: int) -> None:
    X = {"wine": WINE, "iris": IRIS, "moons": MOONS}[name]
    model = hdbscan.HDBSCAN(min_cluster_size=size, prediction_data=True, approx_min_span_tree=False).fit(X)
    rng = np.random.default_rng(0)
    new = X[rng.integers(len(X), size=300)] + 0.3 * X.std(axis=0) * rng.normal(size=(300, X.shape[1]))
    expected, _ = hdbscan.approximate_predict(model, new)
    network = wc.neuralize(model)
    np.testing.assert_array_equal(
        [-1 if label == "noise" else label for label in network.assign(new).tolist()], expected
    )
    assert len(set(expected.tolist())) > 1
    exp = network.explain(new, background=X)
    np.testing.assert_allclose(exp.relevance.sum(axis=1), exp.evidence, atol=1e-10)
    fitted = wc.explain(model, X)
    assert fitted.agreement is not None
    assert fitted.agreement.share == 1.0


def test_networks_of_models_that_keep_no_rows() -> None:
    model = HDBSCAN(min_cluster_size=8, copy=True).fit(WINE)
    with pytest.raises(wc.UnsupportedModelError) as error:
        wc.neuralize(model)
    assert str(error.value) == (
        "neuralize: the rule of the labels of HDBSCAN requires the rows that the model was fitted on, which "
        "the model does not keep. Pass them: wc.neuralize(model, rows=X)."
    )
    network = wc.neuralize(model, rows=WINE)
    assert network.agreement is not None
    assert network.agreement.share == 1.0
    assert set(network.assign(WINE + 0.01).tolist()) <= {0, 1, "noise"}
    with pytest.raises(wc.InvalidInputError) as other:
        wc.neuralize(model, rows=WINE[:9])
    assert str(other.value) == (
        "neuralize: rows must be the 178 rows that the model was fitted on; got other rows."
    )
    with pytest.raises(wc.InvalidInputError) as useless:
        wc.neuralize(WINE[:3], rows=WINE)
    assert str(useless.value) == (
        "neuralize: rows applies only to models that give labels by a rule and do not keep their rows, such "
        "as HDBSCAN; got ndarray. Leave rows out."
    )


PIPELINES = {
    "DBSCAN": lambda: make_pipeline(StandardScaler(), DBSCAN(eps=2.4, min_samples=4)),
    "HDBSCAN": lambda: make_pipeline(StandardScaler(), HDBSCAN(min_cluster_size=8, copy=True)),
    "hdbscan": lambda: make_pipeline(StandardScaler(), hdbscan.HDBSCAN(min_cluster_size=8)),
    "PCA": lambda: make_pipeline(StandardScaler(), PCA(5), DBSCAN(eps=1.5, min_samples=4)),
}


@pytest.mark.parametrize("name", PIPELINES)
def test_pipelines(name: str) -> None:
    X = pd.DataFrame(load_wine().data, columns=load_wine().feature_names)
    model = PIPELINES[name]().fit(X)
    exp = wc.explain(model, X[X.columns[::-1]] if name == "DBSCAN" else X)
    assert exp.agreement is not None
    assert exp.agreement.share == 1.0
    assert exp.feature_names == list(X.columns)
    np.testing.assert_allclose(exp.relevance.sum(axis=1), exp.evidence, atol=1e-9)
    inner = wc.explain(model[-1], model[:-1].transform(X))
    np.testing.assert_allclose(exp.evidence, inner.evidence, atol=1e-9)
    if name != "PCA":
        np.testing.assert_allclose(exp.relevance, inner.relevance, atol=1e-9)


@pytest.mark.filterwarnings("ignore::whycluster.FidelityWarning")
def test_steps_that_cannot_be_followed_leave_the_surrogate() -> None:
    from sklearn.decomposition import KernelPCA

    model = make_pipeline(KernelPCA(3, kernel="rbf"), DBSCAN(eps=0.1)).fit(IRIS)
    exp = wc.explain(model, IRIS)
    assert exp.agreement is None
    assert exp.fidelity is not None


@pytest.mark.filterwarnings("ignore::whycluster.FidelityWarning")
def test_the_same_rows_in_other_units_are_explained_by_their_labels() -> None:
    """The rule of the scaled rows does not hold for unscaled ones."""
    model = DBSCAN(eps=2.4, min_samples=4).fit(WINE)
    exp = wc.explain(model, load_wine().data)
    assert exp.agreement is None
    assert exp.fidelity is not None
    model = HDBSCAN(min_cluster_size=8, copy=True).fit(WINE)
    with pytest.warns(wc.AgreementWarning) as found:
        exp = wc.explain(model, load_wine().data)
    assert exp.fidelity is not None
    text = str(found[0].message)
    assert text.startswith("explain: the rule known for the labels of HDBSCAN reproduces the labels of only ")
    assert ", less than 90%, so the labels are explained through a surrogate. Differences: " in text
    assert text.endswith("Were the rows given as they were clustered, in the same units?")


def test_what_has_no_rule_is_refused_by_name() -> None:
    square = np.abs(IRIS[:, None] - IRIS).sum(axis=2)
    metrics = {
        "'cosine'": DBSCAN(eps=0.1, metric="cosine"),
        "'minkowski' with {'p': 3}": DBSCAN(eps=0.5, metric="minkowski", p=3),
        "'minkowski' with {'w': [1, 1, 1, 9]}": (
            OPTICS(min_samples=8, metric="minkowski", metric_params={"w": [1, 1, 1, 9]})
        ),
        "'chebyshev'": HDBSCAN(min_cluster_size=8, metric="chebyshev", copy=True),
        "'canberra'": hdbscan.HDBSCAN(min_cluster_size=8, metric="canberra"),
        "'precomputed'": DBSCAN(eps=0.5, metric="precomputed"),
    }
    cases = {
        "A rule is known only for the metrics euclidean, manhattan and haversine; this "
        f"{type(model).__name__} has metric={name}.": model.fit(square if "computed" in name else IRIS)
        for name, model in metrics.items()
    }
    cases |= {
        "A rule is known only for dense rows; this DBSCAN was fitted on a sparse matrix.": (
            DBSCAN(eps=0.5).fit(sparse.csr_matrix(IRIS))
        ),
        "This DBSCAN found no clusters: all rows are noise.": DBSCAN(eps=1e-9).fit(IRIS),
        "A rule is known only for alpha=1; this one has alpha=0.5.": (
            HDBSCAN(min_cluster_size=8, alpha=0.5, copy=True).fit(IRIS)
        ),
    }
    for obstacle, model in cases.items():
        with pytest.raises(wc.UnsupportedModelError) as error:
            wc.neuralize(model)
        assert str(error.value) == (
            f"neuralize: the labels of {type(model).__name__} give the cluster of each row but no rule for "
            f"other rows, so there is no network. {obstacle} Explain them through a surrogate with "
            "wc.explain(labels, X), or neuralize the surrogate wc.Surrogate().fit(X, labels)."
        )
    exp = wc.explain(DBSCAN(eps=0.9, metric="precomputed").fit(square), IRIS)
    assert exp.fidelity is not None


@pytest.mark.filterwarnings("ignore::whycluster.FidelityWarning")
def test_distances_are_no_rows() -> None:
    square = np.linalg.norm(WINE[:, None] - WINE, axis=2)
    graph = kneighbors_graph(WINE, 9, mode="distance")
    models = [
        (DBSCAN(eps=2.4, min_samples=4, metric="precomputed"), square),
        (HDBSCAN(min_cluster_size=8, metric="precomputed", copy=True), square),
        (hdbscan.HDBSCAN(min_cluster_size=8, metric="precomputed"), square),
        (AgglomerativeClustering(3, metric="precomputed", linkage="average"), square),
        (SpectralClustering(3, affinity="precomputed", random_state=0), np.exp(-square)),
        (SpectralClustering(3, affinity="precomputed_nearest_neighbors", n_neighbors=9), graph),
    ]
    for model, given in models:
        model.fit(given)
        with pytest.raises(wc.InvalidInputError) as error:
            wc.explain(model, square)
        assert str(error.value) == (
            "explain: X must be the rows whose distances or affinities the model was fitted on; got a "
            "symmetric table of shape (178, 178), which has no features. Pass the table that it was computed "
            "from."
        )


DUPLICATED = np.repeat(WINE[:60], 3, axis=0)
TWO_POINTS = np.repeat([[0.0, 0.0], [5.0, 5.0]], 30, axis=0)


@pytest.mark.filterwarnings("ignore::whycluster.AgreementWarning")
@pytest.mark.parametrize(
    "make",
    [
        lambda: DBSCAN(eps=2.4, min_samples=4),
        lambda: HDBSCAN(min_cluster_size=8, copy=True),
        lambda: hdbscan.HDBSCAN(min_cluster_size=8),
        lambda: AgglomerativeClustering(2, linkage="single"),
        lambda: AgglomerativeClustering(2),
        lambda: SpectralClustering(2, gamma=0.1, random_state=0),
    ],
)
@pytest.mark.parametrize("X", [DUPLICATED, TWO_POINTS], ids=["rows three times", "two points"])
def test_rows_that_occur_several_times(X: Array, make: Any) -> None:
    model = make().fit(X)
    exp = wc.explain(model, X)
    assert exp.agreement is not None
    assert exp.agreement.share == 1.0
    assert np.isfinite(exp.relevance).all()
    np.testing.assert_allclose(exp.relevance.sum(axis=1), exp.evidence, atol=1e-9)
    first = np.arange(len(X)) // (3 if X is DUPLICATED else 30) * (3 if X is DUPLICATED else 30)
    same = model.labels_ == model.labels_[first]  # HDBSCAN may cut between equal rows
    assert same.mean() >= 0.98
    np.testing.assert_allclose(exp.relevance[same], exp.relevance[first[same]], atol=1e-9)


@pytest.mark.filterwarnings("ignore::whycluster.FewRowsWarning")
@pytest.mark.parametrize(
    "make",
    [
        lambda: DBSCAN(eps=2.4, min_samples=1),
        lambda: AgglomerativeClustering(2, linkage="single"),
        lambda: AgglomerativeClustering(2),
        lambda: AgglomerativeClustering(2, linkage="average"),
    ],
)
def test_a_cluster_of_one_row(make: Any) -> None:
    """The row is far from all others, so its evidence is that of its own cluster."""
    X = np.concatenate([WINE[:60], WINE[:1] + 40.0])
    model = make().fit(X)
    assert (model.labels_ == model.labels_[-1]).sum() == 1
    exp = wc.explain(model, X)
    assert exp.cluster[-1] == model.labels_[-1]
    assert exp.evidence[-1] > 0.0
    assert np.isfinite(exp.relevance).all()
    assert exp.describe(60).startswith(f"Row 60 is in cluster {model.labels_[-1]}: evidence ")


@pytest.mark.filterwarnings("ignore::whycluster.FidelityWarning")
def test_trees_that_were_not_kept() -> None:
    """What hdbscan keeps by default is enough; without a tree, the labels are explained."""
    model = hdbscan.HDBSCAN(min_cluster_size=8, gen_min_span_tree=False, prediction_data=False).fit(WINE)
    assert wc.explain(model, WINE).agreement is not None
    assert len(wc.neuralize(model).assign(WINE[:3] + 0.1)) == 3
    model._single_linkage_tree = None
    own = HDBSCAN(min_cluster_size=8, copy=True).fit(WINE)
    del own._single_linkage_tree_
    for each, obstacle in (
        (model, "A rule of HDBSCAN is known only for dense, finite rows, with its tree."),
        (own, "A rule of HDBSCAN is known only if the model kept its tree."),
    ):
        with pytest.raises(wc.UnsupportedModelError, match=obstacle):
            wc.neuralize(each, rows=WINE)
    hierarchy = AgglomerativeClustering(3, compute_full_tree=False, compute_distances=False).fit(WINE)
    assert wc.explain(hierarchy, WINE).agreement is not None


@pytest.mark.filterwarnings("ignore::whycluster.AgreementWarning")
@pytest.mark.parametrize("name", ["DBSCAN", "HDBSCAN", "hdbscan", "OPTICS", "OPTICS, dbscan"])
def test_columns_that_hardly_vary_have_hardly_any_relevance(name: str) -> None:
    """Constants are split like the variances of the columns among all rows, noise included."""
    X = np.column_stack([MOONS, 1e-4 * MOONS[:, :1], np.full(len(MOONS), 7.0)])
    model = {
        "DBSCAN": lambda: DBSCAN(eps=0.13, min_samples=8),
        "HDBSCAN": lambda: HDBSCAN(min_cluster_size=8, copy=True),
        "hdbscan": lambda: hdbscan.HDBSCAN(min_cluster_size=8),
        "OPTICS": lambda: OPTICS(min_samples=8),
        "OPTICS, dbscan": lambda: OPTICS(min_samples=8, eps=0.13, cluster_method="dbscan"),
    }[name]().fit(X)
    exp = wc.explain(model, X)
    energy: Any = exp.energy
    np.testing.assert_allclose(energy.shares, X.var(axis=0) / X.var(axis=0).sum(), rtol=1e-9)
    np.testing.assert_array_equal(exp.relevance[:, 3], 0.0)
    assert np.abs(exp.relevance[:, 2]).max() <= 1e-6 * np.abs(exp.relevance).max()
    np.testing.assert_allclose(exp.relevance.sum(axis=1), exp.evidence, atol=1e-12)
    again = wc.neuralize(model, rows=X).explain(X, target=model.labels_)
    np.testing.assert_array_equal(again.relevance, exp.relevance)


def test_all_noise() -> None:
    with pytest.raises(wc.InvalidInputError) as error:
        wc.explain(DBSCAN(eps=1e-9).fit(IRIS), IRIS)
    assert str(error.value) == (
        "explain: labels must contain at least 2 clusters, since a cluster is explained against its "
        "competitors; all rows are noise."
    )


def test_a_single_cluster_competes_with_noise() -> None:
    model = DBSCAN(eps=0.9).fit(IRIS[:50])
    assert model.labels_.max() == 0
    exp = wc.explain(model, IRIS[:50])
    assert exp.labels.tolist() == [0, "noise"]
    with pytest.raises(wc.UnsupportedModelError) as error:
        wc.explain(model, IRIS[:50], noise=False)
    assert str(error.value) == (
        "without_noise: the network must treat rows far from all clusters as noise, as that of DBSCAN does, "
        "and have at least 2 other clusters. Compare two clusters with against= instead."
    )


def test_clusters_compete_without_noise() -> None:
    model = DBSCAN(eps=2.4, min_samples=4).fit(WINE)
    exp = wc.explain(model, WINE, noise=False)
    assert exp.labels.tolist() == [0, 1]
    known = model.labels_ >= 0
    np.testing.assert_array_equal(exp.cluster[known], model.labels_[known])
    nearest = [
        min((0, 1), key=lambda k: min(slow.distance(row, u, "euclidean") for u in _cores(model, k)))
        for row in WINE[~known]
    ]
    np.testing.assert_array_equal(exp.cluster[~known], nearest)
    against = wc.explain(model, WINE, target=0, against=1)
    here = exp.cluster == 0
    np.testing.assert_allclose(exp.relevance[here], against.relevance[here])


def _cores(model: Any, k: int) -> Array:
    return np.asarray(model.components_[model.labels_[model.core_sample_indices_] == k])


@pytest.mark.parametrize("name", ["DBSCAN", "HDBSCAN", "hdbscan"])
def test_what_would_bring_noise_into_a_cluster(name: str) -> None:
    """The changed row is in the cluster; for DBSCAN, no step is shorter than d - eps to a core sample."""
    model = {
        "DBSCAN": lambda: DBSCAN(eps=2.4, min_samples=4),
        "HDBSCAN": lambda: HDBSCAN(min_cluster_size=8, copy=True),
        "hdbscan": lambda: hdbscan.HDBSCAN(min_cluster_size=8),
    }[name]().fit(WINE)
    exp = wc.explain(model, WINE)
    for row in np.flatnonzero(model.labels_ == -1)[:3].tolist():
        found = exp.counterfactual(row)
        assert found.cluster == "noise"
        assert found.to in (0, 1, 2)
        moved = found.after.astype(np.float64)
        apart: Any = exp.energy.apart_from(WINE[[row]])
        assert exp.labels[apart.find(moved[None]).energies.argmin()] == found.to
        step = float(np.linalg.norm(moved - WINE[row]))
        assert step > 0.0
        assert step == pytest.approx(found.distance, rel=1e-6)
        if name == "DBSCAN":
            distances = [slow.distance(WINE[row], u, "euclidean") for u in model.components_]
            needed = min(distances) - model.eps
            assert needed - 1e-9 <= step <= 1.1 * needed


@pytest.mark.parametrize("name", ["HDBSCAN", "hdbscan"])
def test_hdbscan_without_noise(name: str) -> None:
    """Noise goes to the cluster whose smallest mutual reachability, less its birth, is the least."""
    own = HDBSCAN(min_cluster_size=8, copy=True)
    model = (own if name == "HDBSCAN" else hdbscan.HDBSCAN(min_cluster_size=8)).fit(WINE)
    both, exp = wc.explain(model, WINE), wc.explain(model, WINE, noise=False)
    known = model.labels_ >= 0
    assert "noise" not in exp.labels.tolist()
    np.testing.assert_array_equal(exp.cluster[known], model.labels_[known])
    np.testing.assert_allclose(exp.relevance.sum(axis=1), exp.evidence, atol=1e-10)
    energies: Any = both.energy
    energies = energies.find(WINE[~known]).energies[:, :-1]
    np.testing.assert_array_equal(exp.labels[energies.argmin(axis=1)], exp.cluster[~known])
    assert (exp.evidence[~known] >= 0.0).all()


def test_agreement_reads_as_a_table() -> None:
    given, assigned = np.array([0, 0, 0, 1, 1, 2]), np.array([0, 0, 1, 1, 0, 2])
    from whycluster.explanations.agreement import Agreement

    tied = np.array([False, False, False, False, True, False])
    found = Agreement.of(np.array(["a", "b", "c"]), given, assigned, tied)
    assert (found.share, found.n_ties, found.differing.tolist()) == (0.8, 1, [2])
    assert found.clusters.tolist() == ["a"]
    assert str(found) == (
        "cluster  rows  agreement\n"
        "-------  ----  ---------\n"
        "a           3     66.67%\n"
        "b           2    100.00%\n"
        "c           1    100.00%\n"
        "all         6     80.00%\n"
        "1 row that ties not counted"
    )
    assert found.to_frame("pandas")["share"].tolist() == pytest.approx([2 / 3, 1.0, 1.0])
    with pytest.warns(wc.AgreementWarning) as warned:
        found.warn_if_low()
    assert str(warned[0].message) == (
        "explain: the rule that is explained reproduces the labels of 80.0% of the rows. Differences: a "
        "(66.7% of 3 rows). Each row is explained for its own label; the evidence of the rows that differ is "
        "negative. See exp.agreement for details."
    )


def test_saving(tmp_path: Any) -> None:
    pytest.importorskip("safetensors")
    model = hdbscan.HDBSCAN(min_cluster_size=8).fit(WINE)
    exp = wc.explain(model, WINE)
    wc.save(exp, tmp_path / "exp")
    loaded = wc.load(tmp_path / "exp")
    assert isinstance(loaded, wc.Explanation)
    assert str(loaded.agreement) == str(exp.agreement)
    np.testing.assert_array_equal(loaded.competition, exp.competition)
    renamed = exp.rename({0: "first"})
    assert renamed.agreement is not None
    assert renamed.agreement.labels.tolist() == ["first", 1, "noise"]
