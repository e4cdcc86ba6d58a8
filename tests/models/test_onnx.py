"""ONNX models, run in onnxruntime and compared with the network on every row."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.feature_selection import VarianceThreshold
from sklearn.impute import SimpleImputer
from sklearn.mixture import GaussianMixture
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, RobustScaler, StandardScaler

import whycluster as wc
from tests.optional import optional
from tests.reference import neon

if TYPE_CHECKING:
    import onnx
    import onnxruntime
    import pandas as pd
else:
    onnx, onnxruntime, pd = optional("onnx"), optional("onnxruntime"), optional("pandas")

Array = NDArray[Any]
RULES = ["path", "min-take-most", "joint", "contrast"]
SUPPORTED = (
    " cannot be converted to ONNX. The supported models assign each row to the nearest centroid by "
    "Euclidean distance, such as KMeans, alone or after StandardScaler, RobustScaler, MinMaxScaler or "
    "MaxAbsScaler (without clip)."
)

STEPS = "the steps of the pipeline"


def rows(n_features: int = 3, n_rows: int = 120, n_clusters: int = 4, seed: int = 0) -> Array:
    """Rows of unequal groups."""
    rng = np.random.default_rng(seed)
    group = np.minimum(rng.geometric(0.4, n_rows) - 1, n_clusters - 1)
    return np.asarray(
        rng.normal(size=(n_rows, n_features)) + rng.normal(0, 4, (n_clusters, n_features))[group]
    )


def run(model: Any, X: Array) -> dict[str, Array]:
    """What onnxruntime returns, by name."""
    onnx.checker.check_model(model, full_check=True)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return dict(zip([each.name for each in session.get_outputs()], session.run(None, {"X": X}), strict=True))


def check(network: Any, X: Array, background: Any = None, rule: str | None = None, tol: float = 1e-9) -> None:
    """Compare all outputs with the network, on every row."""
    background = X if background is None else background
    found = run(network.to_onnx(background, rule=rule), X)
    exp = network.explain(X, background=background, rule=rule)
    cluster = found["cluster"]
    assert (network.labels[cluster] == network.assign(X)).all()
    assert (network.labels[found["competitor"]] == exp.competitor).all()
    scale = np.abs(exp.evidence).max()
    own = network.evidence(X)[np.arange(len(X)), cluster]
    assert_allclose(found["evidence"], own, rtol=tol, atol=tol * scale)
    assert_allclose(found["relevance"], exp.relevance, rtol=tol, atol=tol * np.abs(exp.relevance).max())
    assert_allclose(found["relevance"].sum(axis=1), found["evidence"], rtol=tol, atol=tol * scale)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(("n_clusters", "n_features"), [(2, 1), (2, 3), (4, 1), (5, 3), (3, 17)])
def test_all_outputs_equal_those_of_the_network(n_clusters: int, n_features: int, rule: str) -> None:
    X = rows(n_features)
    network = wc.neuralize(KMeans(n_clusters, n_init=1, random_state=0).fit(X))
    check(network, X, rule=rule)
    check(network, X[7:8], background=X, rule=rule)


@pytest.mark.parametrize("rule", ["min-take-most", "joint"])
def test_relevance_equals_the_transcription_of_the_paper(rule: str) -> None:
    X = rows()
    centroids = KMeans(4, n_init=1, random_state=0).fit(X).cluster_centers_
    found = run(wc.neuralize(centroids).to_onnx(X, rule=rule), X)
    beta, formula = neon.stiffness(X, centroids), {"joint": neon.joint, "min-take-most": neon.min_take_most}
    for x, c, f, relevance in zip(X, found["cluster"], found["evidence"], found["relevance"], strict=True):
        assert c == neon.assign(x, centroids)
        assert_allclose(f, neon.evidence(x, centroids, c), rtol=1e-9, atol=1e-9)
        assert_allclose(relevance, formula[rule](x, centroids, c, beta), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("offset", [1e4, -1e7])
def test_data_far_from_zero(offset: float) -> None:
    X = rows() + offset
    check(wc.neuralize(KMeans(4, n_init=1, random_state=0).fit(X)), X)


def test_groups_of_centroids_far_apart() -> None:
    """Expanding the squares would lose precision, so they are computed one centroid at a time."""
    X = np.vstack([rows(seed=1)[:40], rows(seed=2)[:40] + 1e6])
    network = wc.neuralize(np.vstack([X[:3], X[40:43]]))
    assert network.energy.linear is None  # type: ignore[attr-defined]  # a SquaredEnergy
    for rule in RULES:
        check(network, X, rule=rule)


@pytest.mark.parametrize("rule", RULES)
def test_ties_give_the_first_cluster_and_no_nan(rule: str) -> None:
    """Whole numbers: every tie is exact. Two centroids are equal, and one row is on a centroid."""
    centroids = np.array([[0.0, 0.0], [4.0, 0.0], [4.0, 0.0], [0.0, 4.0], [4.0, 4.0]])
    X = np.array([[2.0, 2.0], [2.0, 0.0], [4.0, 0.0], [0.0, 0.0], [5.0, 1.0], [2.0, 9.0]])
    found = run(wc.neuralize(centroids).to_onnx(X, rule=rule), X)
    assert found["cluster"].tolist() == [0, 0, 1, 0, 1, 3]
    assert (found["evidence"][[0, 1, 2, 4, 5]] == 0.0).all()
    assert all(np.isfinite(values).all() for values in found.values())
    check(wc.neuralize(centroids), X, rule=rule)


@pytest.mark.parametrize("rule", RULES)
def test_features_cancel_where_all_clusters_tie(rule: str) -> None:
    """The row is at distance 5 from all centroids, but not in the same features."""
    network = wc.neuralize([[0.0, 0.0], [5.0, 5.0], [8.0, 4.0]])
    X, background = np.array([[5.0, 0.0]]), rows(2)
    check(network, X, background, rule)
    found = run(network.to_onnx(background, rule=rule), X)
    assert found["evidence"] == 0.0
    assert found["relevance"][0, 0] < -15.0
    assert found["relevance"].sum() == 0.0


@pytest.mark.parametrize("n_features", [1, 7, 33])
def test_equal_centroids_tie(n_features: int) -> None:
    X = rows(n_features, 60)
    centroids = np.vstack([X[:9], X[:9], X[3:5]])
    network = wc.neuralize(centroids)
    # The copies share one product, since a runtime may sum equal columns in different orders.
    originals = [*range(9), *range(9), 3, 4]
    constants = [onnx.numpy_helper.to_array(each) for each in network.to_onnx(X).graph.initializer]
    assert originals in [each.tolist() for each in constants]
    for part in (X, X[:1]):
        found = run(network.to_onnx(X), part)
        assert found["cluster"].max() < 9
        assert (centroids[found["competitor"]] == centroids[found["cluster"]]).all()
        assert (found["evidence"] == 0.0).all()


@pytest.mark.parametrize("rule", RULES)
def test_evidence_of_zero_everywhere(rule: str) -> None:
    """Beta is infinite, since the mean evidence is 0."""
    X = np.array([[2.0], [2.0]])
    found = run(wc.neuralize([[0.0], [4.0], [8.0]]).to_onnx(X, rule=rule), X)
    assert found["evidence"].tolist() == [0.0, 0.0]
    assert found["relevance"].tolist() == [[0.0], [0.0]]


@pytest.mark.parametrize("beta", [1e-9, 1.0, 1e9, np.inf])
def test_extreme_stiffness(beta: float) -> None:
    X = rows()
    network = wc.neuralize(KMeans(4, n_init=1, random_state=0).fit(X))
    found = run(network.to_onnx(X, beta=beta), X)
    exp = network.explain(X, beta=beta)
    assert_allclose(found["relevance"], exp.relevance, rtol=1e-9, atol=1e-9 * np.abs(exp.relevance).max())


SCALERS = [StandardScaler(), MinMaxScaler((-1, 2)), MaxAbsScaler(), RobustScaler()]


@pytest.mark.parametrize("scaler", SCALERS, ids=lambda scaler: type(scaler).__name__)
@pytest.mark.parametrize("offset", [0.0, 1e4])
def test_pipelines_of_scalers_take_the_columns_as_they_are(scaler: Any, offset: float) -> None:
    X = rows() * [1.0, 100.0, 0.01] + [offset, 0.0, 3.0]
    network = wc.neuralize(make_pipeline(scaler, KMeans(4, n_init=1, random_state=0)).fit(X))
    check(network, X)
    check(network, X[:1], background=X)


def test_two_scalers_and_a_selection_of_columns() -> None:
    X = rows(4) * [1.0, 0.0, 30.0, 1.0] + [1e5, 0.0, 0.0, 2.0]  # the second column is constant
    steps = MinMaxScaler(), VarianceThreshold(), StandardScaler()
    network = wc.neuralize(make_pipeline(*steps, KMeans(3, n_init=1, random_state=0)).fit(X))
    check(network, X)
    assert (run(network.to_onnx(X), X)["relevance"][:, 1] == 0.0).all()


@pytest.mark.parametrize("pipeline", [False, True])
def test_float32_rows(pipeline: bool) -> None:
    X = rows().astype(np.float32)
    model: Any = KMeans(4, n_init=1, random_state=0)
    network = wc.neuralize((make_pipeline(StandardScaler(), model) if pipeline else model).fit(X))
    found, exp = run(network.to_onnx(X, dtype="float32"), X), network.explain(X)
    assert found["evidence"].dtype == found["relevance"].dtype == np.float32
    assert (found["cluster"] == network.assign(X)).all()
    assert_allclose(found["evidence"], exp.evidence, rtol=1e-5, atol=1e-5 * exp.evidence.max())
    assert_allclose(found["relevance"], exp.relevance, rtol=1e-5, atol=1e-5 * np.abs(exp.relevance).max())


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e308])
def test_rows_that_explain_refuses_have_no_cluster(value: float) -> None:
    X = rows()
    network = wc.neuralize(KMeans(4, n_init=1, random_state=0).fit(X))
    model = network.to_onnx(X)
    bad = X.copy()
    bad[3, 1] = value
    with pytest.raises(wc.InvalidInputError):
        network.explain(bad)
    found, expected = run(model, bad), run(model, X)
    assert found["cluster"][3] == found["competitor"][3] == -1
    assert np.isnan(found["evidence"][3])
    assert np.isnan(found["relevance"][3]).all()
    others = np.arange(len(X)) != 3
    assert all((found[name][others] == expected[name][others]).all() for name in found)


def test_no_rows() -> None:
    found = run(wc.neuralize([[0.0, 1.0], [1.0, 3.0]]).to_onnx(rule="contrast"), np.empty((0, 2)))
    assert [values.shape for values in found.values()] == [(0,), (0,), (0,), (0, 2)]


def test_no_tensor_has_rows_clusters_and_features() -> None:
    X = rows(5)
    for centroids in (X[:3], np.vstack([X[:2], X[2:4] + 1e7])):
        model = onnx.shape_inference.infer_shapes(wc.neuralize(centroids).to_onnx(X))
        assert max(len(each.type.tensor_type.shape.dim) for each in model.graph.value_info) == 2
        assert len(model.graph.value_info) > 50


def test_metadata_hold_names_labels_rule_and_beta() -> None:
    frame = pd.DataFrame(rows(2), columns=["age", 'the "spend"'])
    model = make_pipeline(StandardScaler(), KMeans(3, n_init=1, random_state=0)).fit(frame)
    network = wc.neuralize(model).rename({1: "Käufer"})
    made = network.to_onnx(frame)
    found = {each.key: json.loads(each.value) for each in made.metadata_props}
    beta = network.explain(frame).beta
    labels, names = [0, "Käufer", 2], ["age", 'the "spend"']
    assert found == {"labels": labels, "feature_names": names, "rule": "path", "beta": beta}
    assert (made.opset_import[0].version, made.ir_version) == (13, 7)
    cluster = run(made, frame.to_numpy())["cluster"]
    assert [labels[code] for code in cluster] == network.assign(frame).tolist()


def test_columns_of_the_background_give_the_names_of_an_array_model() -> None:
    frame = pd.DataFrame(rows(2), columns=["age", "spend"])
    made = wc.neuralize(frame.to_numpy()[:3]).to_onnx(frame)
    assert {each.key: each.value for each in made.metadata_props}["feature_names"] == '["age", "spend"]'


def test_a_segmentation_has_the_population() -> None:
    X = rows()
    seg = wc.Segmentation.of(KMeans(4, n_init=1, random_state=0).fit(X), X, measure_quality=False)
    found = run(seg.network.to_onnx(seg.population.measured), X[:5])
    assert_allclose(found["relevance"], seg.explain(X[:5]).relevance, rtol=1e-9, atol=1e-9)


def refuses(message: str, error: Any = wc.InvalidInputError) -> Any:
    return pytest.raises(error, match=f"^{re.escape(message)}$")


def test_options_are_checked() -> None:
    network, X = wc.neuralize([[0.0], [1.0], [2.0]]), [[0.2]]
    pytest.importorskip("onnx")
    background = (
        "to_onnx: background must be the rows on which to measure {}, usually those that the model was "
        'fitted on; got None. Only rule="contrast" needs none.'
    )
    with refuses(background.format("beta and the cluster sizes")):
        network.to_onnx()
    with refuses(background.format("beta")):
        network.to_onnx(rule="joint")
    with refuses("to_onnx: dtype must be one of 'float64', 'float32'; got 'float16'."):
        network.to_onnx(X, dtype="float16")
    rules = "'path', 'min-take-most', 'joint', 'contrast'"
    with refuses(f"to_onnx: rule must be one of {rules}; got 'sequential'."):
        network.to_onnx(X, rule="sequential")
    with refuses(
        "to_onnx: background must have 1 features, the number that the model was fitted on; got shape (1, 2)."
    ):
        network.to_onnx([[0.0, 1.0]])


@pytest.mark.parametrize(
    ("model", "what"),
    [
        (GaussianMixture(2), "GaussianEnergy (a mixture of Gaussians)"),
        (make_pipeline(StandardScaler(), GaussianMixture(2)), "GaussianEnergy (a mixture of Gaussians)"),
        (
            make_pipeline(SimpleImputer(), StandardScaler(), KMeans(2)),
            f"{STEPS} (SimpleImputer, StandardScaler)",
        ),
        (make_pipeline(PCA(2), KMeans(2)), f"{STEPS} (PCA)"),
        (make_pipeline(MinMaxScaler(clip=True), KMeans(2)), f"{STEPS} (MinMaxScaler)"),
    ],
)
def test_other_models_and_steps_are_refused_by_name(model: Any, what: str) -> None:
    pytest.importorskip("onnx")
    X = rows()
    network = wc.neuralize(model.fit(X))
    with refuses(f"to_onnx: {what}{SUPPORTED}", wc.UnsupportedModelError):
        network.to_onnx(X)


@pytest.mark.parametrize("metric", ["manhattan", "cosine", "dot", "student"])
def test_other_metrics_are_refused_by_name(metric: str) -> None:
    pytest.importorskip("onnx")
    network = wc.neuralize([[0.0, 1.0], [1.0, 0.0]], metric=metric)
    name = f"{type(network.energy).__name__} ({network.energy.title})"
    with refuses(f"to_onnx: {name}{SUPPORTED}", wc.UnsupportedModelError):
        network.to_onnx(rule="contrast")


def test_documents_are_refused() -> None:
    pytest.importorskip("onnx")
    texts = ["red wine", "white wine", "blue sky", "gray sky"]
    network = wc.neuralize(make_pipeline(TfidfVectorizer(), KMeans(2, n_init=1, random_state=0)).fit(texts))
    name = f"TextNetwork ({network.energy.title})"
    with refuses(f"to_onnx: {name}{SUPPORTED}", wc.UnsupportedModelError):
        network.to_onnx(rule="contrast")
