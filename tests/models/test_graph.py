"""Communities of a graph, and labels by the votes of the nearest rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import sparse
from sklearn.datasets import load_iris, load_wine
from sklearn.neighbors import KNeighborsClassifier, kneighbors_graph
from sklearn.preprocessing import StandardScaler

import whycluster as wc
from tests.optional import optional
from tests.reference import votes as slow

if TYPE_CHECKING:
    import pandas as pd
else:
    pd = optional("pandas")

Array = NDArray[Any]
WINE = StandardScaler().fit_transform(load_wine().data)
IRIS = StandardScaler().fit_transform(load_iris().data)  # with a duplicate


def affinities(X: Array, n_neighbors: int = 10) -> Any:
    """Return a symmetric graph of the nearest neighbors, weighted by a Gaussian kernel."""
    graph = kneighbors_graph(X, n_neighbors, mode="distance")
    graph.data = np.exp(-np.square(graph.data) / np.median(graph.data) ** 2)
    return sparse.csr_matrix(graph.maximum(graph.T))


def optimum(graph: Any, resolution: float, quality: str) -> Array:
    """Return communities that no move of a single row improves, found by moving rows one by one."""
    dense = graph.toarray()
    labels = np.arange(len(dense)) % 12
    while True:
        before = labels.copy()
        for row in range(len(labels)):
            every = range(labels.max() + 2)  # the last is empty
            gains = [slow.gain(dense, labels, row, k, resolution, quality) for k in every]
            if max(gains) > gains[labels[row]] + 1e-12:
                labels[row] = int(np.argmax(gains))
        if (before == labels).all():
            return np.asarray(np.unique(labels, return_inverse=True)[1])


def test_a_gain_is_the_change_of_the_quality() -> None:
    """What the transcription calls a gain is what the quality of the partition changes by."""
    dense = affinities(WINE[:40], 5).toarray()
    labels = np.arange(40) % 3
    degree = dense.sum(axis=1)
    for kind, scale in (("modularity", degree[7]), ("cpm", degree.mean())):
        moved = [np.where(np.arange(40) == 7, k, labels) for k in range(3)]
        total = [slow.quality(dense, each, 0.7, kind) / 2 for each in moved]
        gains = [slow.gain(dense, labels, 7, k, 0.7, kind) * scale for k in range(3)]
        np.testing.assert_allclose(np.diff(total), np.diff(gains), atol=1e-9)


@pytest.mark.parametrize("resolution", [0.5, 1.5])
@pytest.mark.parametrize("quality", ["modularity", "cpm"])
@pytest.mark.parametrize("X", [WINE, IRIS], ids=["wine", "iris"])
def test_an_optimum_has_full_agreement(X: Array, quality: str, resolution: float) -> None:
    graph = affinities(X)
    resolution *= 1.0 if quality == "modularity" else 0.05
    labels = optimum(graph, resolution, quality)
    assert 3 <= labels.max() + 1 <= 60
    for given in (wc.Graph(graph, resolution, quality), graph):
        exp = wc.explain(labels, X, graph=given)
        assert exp.agreement is not None
        assert exp.agreement.share == 1.0
        np.testing.assert_array_equal(exp.cluster, labels)
        np.testing.assert_allclose(exp.relevance.sum(axis=1), exp.evidence, atol=1e-10)
        assert (exp.evidence >= -1e-12).all()
        assert exp.fidelity is None


@pytest.mark.parametrize("quality", ["modularity", "cpm"])
def test_the_scores_are_the_gains_of_the_definition(quality: str) -> None:
    graph = affinities(WINE)
    labels = np.arange(178) % 4
    energy: Any = wc.neuralize(labels, graph=wc.Graph(graph, 0.8, quality), rows=WINE).energy
    order = np.argsort(labels, kind="stable")
    dense = graph.toarray()
    for place in range(0, 178, 29):
        expected = [slow.gain(dense, labels, order[place], k, 0.8, quality) for k in range(4)]
        np.testing.assert_allclose(energy.known[place], expected, atol=1e-12)


@pytest.mark.filterwarnings("ignore::whycluster.AgreementWarning")
def test_new_rows_and_names() -> None:
    graph = affinities(WINE)
    labels = np.array(list("abcdefghijklmnopq"))[optimum(graph, 1.0, "modularity")]
    frame = pd.DataFrame(WINE, columns=load_wine().feature_names)
    network = wc.neuralize(labels, graph=graph, rows=frame)
    near = network.assign(frame + 1e-3)
    assert (near == labels).mean() > 0.9
    exp = wc.explain(labels, frame, graph=graph)
    assert exp.feature_names == load_wine().feature_names
    assert np.isfinite(exp.counterfactual(int(exp.evidence.argmin())).distance)


def test_rows_without_edges_and_unweighted_graphs() -> None:
    """A row without edges gains nothing anywhere: it ties."""
    graph = (affinities(WINE) > 0).astype(float).tolil()
    labels = optimum(graph.tocsr(), 1.0, "modularity")
    graph[5], graph[:, 5] = 0.0, 0.0
    exp = wc.explain(labels, WINE, graph=graph.tocsr())
    assert exp.agreement is not None
    assert exp.evidence[5] == 0.0
    assert exp.agreement.n_ties <= 1
    assert 5 not in exp.agreement.differing
    assert exp.agreement.share >= 0.97
    dense = wc.explain(labels, WINE, graph=graph.toarray())
    np.testing.assert_allclose(dense.relevance, exp.relevance)


@pytest.mark.filterwarnings("ignore::whycluster.AgreementWarning")
def test_a_community_of_one_row() -> None:
    graph = affinities(WINE)
    labels = np.append(np.zeros(177, dtype=int), 1)
    labels[:60] = 2
    network = wc.neuralize(labels, graph=wc.Graph(graph, 1.0), rows=WINE)
    exp = network.explain(WINE, target=labels)
    assert exp.labels.tolist() == [0, 1, 2]
    assert exp.evidence[-1] < 0.0
    np.testing.assert_allclose(exp.relevance.sum(axis=1) + exp.residual, exp.evidence, atol=1e-10)


GRAPH = affinities(IRIS)
LABELS = load_iris().target
ERRORS: dict[str, tuple[dict[str, Any], str]] = {
    "another size": (
        {"graph": GRAPH[:99, :99]},
        "graph must have a row and a column for each of the 150 labels; got shape (99, 99). Pass the graph "
        "that was clustered, with the rows in the same order.",
    ),
    "directed": (
        {"graph": kneighbors_graph(IRIS, 5)},
        "graph must be undirected, that is, symmetric; got a directed one. If the directions were ignored "
        "when it was clustered, pass graph + graph.T.",
    ),
    "negative": (
        {"graph": -GRAPH},
        "graph must hold finite weights of at least 0; got -",
    ),
    "missing": (
        {"graph": np.full((150, 150), np.nan)},
        "graph must hold finite weights of at least 0; got nan.",
    ),
    "empty": (
        {"graph": np.eye(150)},
        "graph must have edges; got none between different rows.",
    ),
    "text": ({"graph": np.full((150, 150), "a")}, "graph must hold numbers; got <U1."),
    "resolution": (
        {"graph": wc.Graph(GRAPH, -1.0)},
        "resolution must be a number of at least 0, or None; got -1.0.",
    ),
    "quality": ({"graph": wc.Graph(GRAPH, quality="surprise")}, "quality must be one of"),
    "method": ({"method": "magic"}, "method must be one of"),
    "both": (
        {"graph": GRAPH, "method": "neighbors"},
        "graph cannot be combined with method; got method='neighbors'. Leave one of them out.",
    ),
}


@pytest.mark.parametrize("name", ERRORS)
def test_what_is_refused(name: str) -> None:
    options, text = ERRORS[name]
    for where, call in (
        ("explain", lambda: wc.explain(LABELS, IRIS, **options)),
        ("neuralize", lambda: wc.neuralize(LABELS, rows=IRIS, **options)),
    ):
        with pytest.raises(wc.InvalidInputError) as error:
            call()
        assert str(error.value).startswith(f"{where}: {text}")


def test_models_and_missing_rows() -> None:
    with pytest.raises(wc.InvalidInputError) as error:
        wc.explain(IRIS[:3], IRIS, method="neighbors")
    assert str(error.value) == (
        "explain: method applies only to labels and to models that provide only labels; this model "
        "determines its own network. Leave method out."
    )
    with pytest.raises(wc.UnsupportedModelError, match="requires the rows that the model was fitted on"):
        wc.neuralize(LABELS, graph=GRAPH)
    with pytest.raises(wc.InvalidInputError, match="labels must have one value for each of the 99 rows"):
        wc.explain(LABELS, IRIS[:99], graph=GRAPH)


@pytest.mark.filterwarnings("ignore::whycluster.FidelityWarning")
def test_the_wrong_graph() -> None:
    shuffled = np.random.default_rng(0).permutation(150)
    with pytest.warns(wc.AgreementWarning) as found:
        exp = wc.explain(LABELS, IRIS, graph=GRAPH[shuffled][:, shuffled])
    assert exp.fidelity is not None
    assert exp.agreement is None
    text = str(found[0].message)
    assert text.startswith(
        "explain: the rule known for communities of a graph reproduces the labels of only "
    )
    assert text.endswith("Is this the graph that was clustered, with the rows in the same order?")


@pytest.mark.filterwarnings("ignore::whycluster.AgreementWarning")
@pytest.mark.parametrize("X", [WINE, IRIS], ids=["wine", "iris"])
def test_labels_by_the_votes_of_the_nearest_rows(X: Array) -> None:
    labels = load_wine().target if X is WINE else load_iris().target
    exp = wc.explain(labels, X, method="neighbors")
    assert exp.agreement is not None
    assert exp.fidelity is None
    left_out = [
        KNeighborsClassifier(5).fit(np.delete(X, row, axis=0), np.delete(labels, row)).predict(X[[row]])[0]
        for row in range(0, len(X), 13)
    ]
    assert (exp.assigned[::13] == left_out).all()
    np.testing.assert_array_equal(exp.cluster, labels)
    np.testing.assert_allclose(exp.relevance.sum(axis=1), exp.evidence, atol=1e-10)
    assert exp.agreement.share == pytest.approx((exp.assigned == labels).mean(), abs=0.01)


def test_noise_votes_like_a_cluster() -> None:
    labels = np.where(np.abs(WINE).max(axis=1) > 2.5, -1, load_wine().target)
    with pytest.warns(wc.AgreementWarning):
        exp = wc.explain(labels, WINE, method="neighbors")
    assert exp.labels.tolist() == [0, 1, 2, "noise"]
    assert exp.agreement is not None
    assert exp.agreement.labels.tolist() == [0, 1, 2, "noise"]


@pytest.mark.filterwarnings("ignore::whycluster.AgreementWarning")
def test_frames_with_categories() -> None:
    """They are encoded first, as for a surrogate."""
    frame = pd.DataFrame(IRIS, columns=list("abcd"))
    frame["kind"] = np.where(LABELS == 0, "small", "large")
    for options in ({"method": "neighbors"}, {"graph": affinities(IRIS)}):
        labels = LABELS if "method" in options else optimum(GRAPH, 1.0, "modularity")
        exp = wc.explain(labels, frame, **options)
        assert exp.agreement is not None
        assert exp.agreement.share >= 0.94
        assert exp.feature_names == [*"abcd", "kind"]
        np.testing.assert_allclose(exp.relevance.sum(axis=1) + exp.residual, exp.evidence, atol=1e-9)


@pytest.mark.filterwarnings("ignore::whycluster.FidelityWarning")
def test_a_surrogate_in_place_of_a_rule() -> None:
    from sklearn.cluster import DBSCAN

    model = DBSCAN(eps=0.6).fit(IRIS)
    assert wc.explain(model, IRIS, method="surrogate").fidelity is not None
    assert wc.explain(model, IRIS).fidelity is None
