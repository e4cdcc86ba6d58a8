"""One contract for every pipeline: assigned as it predicts, explained by its columns, added up."""

from __future__ import annotations

import copy
import functools
import pickle
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.special import softmax
from sklearn.base import clone
from sklearn.cluster import DBSCAN, BisectingKMeans, KMeans, MiniBatchKMeans
from sklearn.compose import ColumnTransformer
from sklearn.datasets import load_wine
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.exceptions import DataDimensionalityWarning
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.impute import SimpleImputer
from sklearn.mixture import GaussianMixture
from sklearn.neighbors import NearestCentroid
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline, make_union
from sklearn.preprocessing import (
    MaxAbsScaler,
    MinMaxScaler,
    Normalizer,
    OneHotEncoder,
    OrdinalEncoder,
    PowerTransformer,
    RobustScaler,
    StandardScaler,
)
from sklearn.random_projection import GaussianRandomProjection

import whycluster as wc
from tests.contracts.pipelines import (
    CASES,
    CATEGORIES,
    COLUMNS,
    DATA,
    LASTS,
    NUMBERS,
    Case,
    groups,
    k_means,
    mixed_frame,
    numbers,
    of_columns,
)
from tests.optional import needs_names_of_polars, optional
from tests.reference import models, neon, pipeline
from whycluster.core import attribution
from whycluster.pipelines import affine_map

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa
else:
    pd = optional("pandas")
    pl = optional("polars")
    pa = optional("pyarrow")

Array = NDArray[Any]

RULES = ("path", "min-take-most")

# The soft minimum, determinants and weights of these are no column's.
WITH_RESIDUAL = (wc.KernelKMeans, wc.Surrogate, GaussianMixture)


@functools.cache
def fitted(name: str) -> Pipeline:
    case = CASES[name]
    if name == "encoded, polars inside":
        needs_names_of_polars()
    X = DATA[case.data]()
    return clone(case.pipeline).fit(X, groups(X))


def to_array(values: Any) -> Array:
    dense: Any = values.toarray() if hasattr(values, "toarray") else values
    return np.asarray(dense, dtype=np.float64)


def conserves(model: Any) -> bool:
    return not isinstance(model, WITH_RESIDUAL) and "GaussianMixture" not in type(model).__name__


def assert_adds_up(exp: wc.Explanation) -> None:
    assert np.abs(exp.residual).max() <= 1e-8 * np.abs(exp.evidence).max()


def assert_same(found: Array, expected: Array, exp: wc.Explanation) -> None:
    assert found.shape == expected.shape
    assert np.abs(found - expected).max() <= 1e-8 * np.abs(exp.evidence).max()


@pytest.mark.parametrize("name", CASES)
def test_it_is_assigned_as_it_predicts_and_explained_by_its_columns(name: str) -> None:
    case, model = CASES[name], fitted(name)
    X, before = DATA[case.data](), DATA[case.data]()
    kept = pickle.dumps(model)
    net = wc.neuralize(model)
    exp = wc.explain(model, X)
    assert pickle.dumps(model) == kept  # nothing was changed
    assert_untouched(X, before)
    expected = model.predict(before.copy())  # some work in place
    assert (net.assign(X) == expected).all()
    assert (exp.cluster == expected).all()
    assert (exp.evidence >= 0).all()
    assert (net.labels[net.evidence(X).argmax(axis=1)] == expected).all()
    assert exp.relevance.shape == X.shape
    assert exp.feature_names == (COLUMNS if case.data == "frame" else [f"x{i}" for i in range(X.shape[1])])
    assert_untouched(exp.data, before)
    if conserves(model[-1]):
        assert_adds_up(exp)


def assert_untouched(X: Any, before: Any) -> None:
    if isinstance(X, pd.DataFrame):
        pd.testing.assert_frame_equal(X, before)
    else:
        assert (before != X).sum() == 0


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("name", CASES)
def test_relevance_is_the_reference(name: str, rule: str) -> None:
    case, X = CASES[name], DATA[CASES[name].data]()
    model = fitted(name)
    exp = wc.explain(model, X, rule=rule)
    assert_same(exp.relevance, reference(case, model, X, rule), exp)


@pytest.mark.parametrize("name", CASES)
def test_rows_the_pipeline_never_saw_are_assigned_alike(name: str) -> None:
    case = CASES[name]
    X, rng = DATA[case.data](), np.random.default_rng(5)
    rows = [rng.integers(X.shape[0], size=400) for _ in range(X.shape[1])]
    if case.data == "frame":
        new: Any = pd.DataFrame(
            {c: X[c].iloc[chosen].reset_index(drop=True) for c, chosen in zip(COLUMNS, rows, strict=True)}
        )
    else:
        dense = to_array(X)
        new = np.column_stack([dense[chosen, i] for i, chosen in enumerate(rows)])
        new = sp.csr_array(new) if case.data == "counts" else new
    model = fitted(name)
    exp = wc.explain(model, new, background=X)
    assert (exp.cluster == model.predict(new.copy())).all()
    if conserves(model[-1]):
        assert_adds_up(exp)


# References


def reference(case: Case, model: Pipeline, X: Any, rule: str) -> Array:
    """Of all rows, by columns."""
    names = wc.neuralize(model[-1]).labels.tolist()
    labels = [names.index(label) for label in model.predict(X.copy()).tolist()]
    mixed = case.cut is not None or case.rest is not None
    z = to_array(model[:-1].transform(X.copy())) if len(model) > 1 else to_array(X)
    relevance = _mixed(case, model, X, labels, rule) if mixed else _unmixed(model[-1], z, labels, rule)
    source = range(X.shape[1]) if case.source is None else case.source
    assert relevance.shape[1] == len(source)
    return pipeline.add_up(relevance, list(source), X.shape[1])


def _unmixed(last: Any, z: Array, labels: list[int], rule: str) -> Array:
    """What is known of the model in the features that it takes."""
    kind = type(last).__name__
    if hasattr(last, "weights_") and hasattr(last, "covariances_"):
        return _split_mixture(last, z, rule)
    if kind in ("KernelKMeans", "Surrogate", "BisectingKMeans", "Birch"):
        return _mixed_model(last, pipeline.expand(lambda t: t, z), z, labels, rule)
    if kind == "NearestCentroid" and last.metric == "manhattan":
        return models.explain(z, models.manhattan(last.centroids_), len(last.centroids_), rule=rule)
    return neon.explain(z, _centroids(last), rule=rule)


def _split_mixture(last: Any, z: Array, rule: str) -> Array:
    weights, means = last.weights_, last.means_
    K, d = means.shape
    if last.covariance_type in ("diag", "spherical"):
        variances = np.broadcast_to(last.covariances_.reshape(K, -1), (K, d))
        return models.explain(z, models.diagonal(weights, means, variances), K, rule=rule, weights=weights)
    if "Bayesian" in type(last).__name__:
        split = models.gaussian(np.ones(K), means, last.covariances_)
        constants = _log_joint(last, z) + np.array([[split(x, k)[0] for k in range(K)] for x in z])

        def shifted(x: Array, k: int) -> tuple[float, Array]:
            energy, parts = split(x, k)
            return energy - float(constants[0, k]), parts

        log_weights = constants[0] - constants[0].max()
        return models.explain(z, shifted, K, rule=rule, weights=np.exp(log_weights))
    split = models.gaussian(weights, means, _covariances(last))
    return models.explain(z, split, K, rule=rule, weights=weights)


def _log_joint(last: Any, z: Array) -> Array:
    """The log of the weighted densities, up to a constant per row."""
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(last.predict_proba(z)))


def _covariances(last: Any) -> Array:
    K, d = last.means_.shape
    kinds: dict[str, Any] = {
        "full": lambda S: S,
        "tied": lambda S: np.broadcast_to(S, (K, d, d)),
        "diag": lambda S: np.array([np.diag(variances) for variances in S]),
        "spherical": lambda S: np.array([variance * np.eye(d) for variance in S]),
    }
    return np.asarray(kinds[last.covariance_type](last.covariances_))


def _centroids(last: Any) -> Array:
    for name in ("cluster_centers_", "centroids_", "subcluster_centers_"):
        if hasattr(last, name):
            return np.asarray(getattr(last, name))
    raise AssertionError(last)


def _front(case: Case, model: Pipeline, X: Any) -> tuple[Array, pipeline.Front]:
    """The atoms, and the map that the rest of the steps is."""
    if case.rest is not None:
        assert case.atoms is not None
        atoms = to_array(case.atoms(model)(X))
        return atoms, pipeline.expand(case.rest(model), atoms)
    cut = case.cut
    assert cut is not None
    atoms = to_array(model[:cut].transform(X)) if cut else to_array(X)
    steps = model[cut:-1]
    return atoms, pipeline.expand(lambda t: to_array(steps.transform(t)), atoms)


def _mixed(case: Case, model: Pipeline, X: Any, labels: list[int], rule: str) -> Array:
    atoms, front = _front(case, model, X)
    last = model[-1]
    if isinstance(last, NearestCentroid) and last.metric == "manhattan":
        z = to_array(model[:-1].transform(X))
        return pipeline.moved_by(_unmixed(last, z, labels, rule), front, atoms)
    return _mixed_model(last, front, atoms, labels, rule)


def _mixed_model(last: Any, front: pipeline.Front, atoms: Array, labels: list[int], rule: str) -> Array:
    kind = type(last).__name__
    if kind == "GaussianMixture":
        return pipeline.gaussian(front, atoms, last.weights_, last.means_, _covariances(last), labels, rule)
    if kind == "BayesianGaussianMixture":
        return _bayesian(last, front, atoms, labels, rule)
    if kind == "KernelKMeans":
        return pipeline.kernel(
            front, atoms, dict(enumerate(_by_cluster(last))), last.gamma_, labels, rule=rule
        )
    if kind == "Surrogate":
        assert last.noise_ is None
        which = [np.flatnonzero(last.support_cluster_ == label) for label in last.classes_]
        support = {k: last.support_vectors_[units] for k, units in enumerate(which)}
        logs = {k: last.log_weights_[units] for k, units in enumerate(which)}
        return pipeline.kernel(front, atoms, support, last.gamma_, labels, logs, last.scale_, rule)
    if kind == "Birch":
        known = np.unique(last.subcluster_labels_)
        support = {
            k: last.subcluster_centers_[last.subcluster_labels_ == label] for k, label in enumerate(known)
        }
        return pipeline.kernel(front, atoms, support, np.inf, labels, rule=rule)
    if kind == "BisectingKMeans":
        return pipeline.tree(front, atoms, _node(last._bisecting_tree, last._X_mean), labels, rule)
    return pipeline.nearest(front, atoms, dict(enumerate(_centroids(last))), labels, rule)


def _by_cluster(last: Any) -> list[Array]:
    return [last.support_vectors_[last.support_cluster_ == k] for k in range(last.n_clusters)]


def _bayesian(last: Any, front: pipeline.Front, atoms: Array, labels: list[int], rule: str) -> Array:
    """A mixture of the weights that its own probabilities tell, up to a factor."""
    z = np.array([front.to_z(t) for t in atoms])
    K = len(last.means_)
    plain = models.gaussian(np.ones(K), last.means_, last.covariances_)
    middle = z[np.argmax(np.sort(last.predict_proba(z), axis=1)[:, 0])]  # where no component is far off
    logs = _log_joint(last, middle[None])[0] + np.array([plain(middle, k)[0] for k in range(K)])
    weights = np.exp(logs - logs.max())
    return pipeline.gaussian(front, atoms, weights, last.means_, last.covariances_, labels, rule)


def _node(node: Any, mean: Array) -> pipeline.Node:
    if node.left is None:
        return pipeline.Node(node.center + mean, frozenset([int(node.label)]), None)
    left, right = _node(node.left, mean), _node(node.right, mean)
    return pipeline.Node(node.center + mean, left.under | right.under, (left, right))


# Steps that need a reference of their own


WINE: Array = load_wine().data
WINE.flags.writeable = False


def scaled_wine() -> Array:
    return np.asarray(StandardScaler().fit_transform(WINE))


@pytest.mark.parametrize(("norm", "order"), [("l2", 2), ("l1", 1), ("max", np.inf)])
@pytest.mark.parametrize("moved", [False, True])
@pytest.mark.parametrize("rule", RULES)
def test_the_length_of_mixed_rows_is_their_own_constant(
    norm: str, order: float, moved: bool, rule: str
) -> None:
    between = [MinMaxScaler()] if moved else []  # which moves the origin away from the mean
    model = make_pipeline(StandardScaler(), PCA(4), *between, Normalizer(norm), k_means()).fit(WINE)
    exp = wc.explain(model, WINE, rule=rule)
    atoms = scaled_wine()
    front = pipeline.expand(model[1:-2].transform, atoms)
    rescaled, linear = pipeline.rescaled(front, atoms, order)
    labels = model.predict(WINE).tolist()
    expected = pipeline.nearest(linear, rescaled, dict(enumerate(model[-1].cluster_centers_)), labels, rule)
    assert_same(exp.relevance, expected, exp)
    assert_adds_up(exp)


@pytest.mark.parametrize("rule", RULES)
def test_a_power_of_components_is_shared_by_what_moved_them(rule: str) -> None:
    model = make_pipeline(StandardScaler(), PCA(4), PowerTransformer(), k_means()).fit(WINE)
    exp = wc.explain(model, WINE, rule=rule)
    of_components = neon.explain(model[:-1].transform(WINE), model[-1].cluster_centers_, rule=rule)
    atoms = scaled_wine()
    expected = pipeline.moved_by(of_components, pipeline.expand(model[1].transform, atoms), atoms)
    assert_same(exp.relevance, expected, exp)
    assert_adds_up(exp)


@pytest.mark.parametrize("rule", RULES)
def test_components_of_powers_of_components(rule: str) -> None:
    model = make_pipeline(StandardScaler(), PCA(5), PowerTransformer(), PCA(3), k_means()).fit(WINE)
    exp = wc.explain(model, WINE, rule=rule)
    atoms, bent = scaled_wine(), model[:3].transform(WINE)
    labels, centroids = model.predict(WINE).tolist(), dict(enumerate(model[-1].cluster_centers_))
    of_components = pipeline.nearest(pipeline.expand(model[3].transform, bent), bent, centroids, labels, rule)
    expected = pipeline.moved_by(of_components, pipeline.expand(model[1].transform, atoms), atoms)
    assert_same(exp.relevance, expected, exp)
    assert_adds_up(exp)


@pytest.mark.parametrize("rule", RULES)
def test_bent_components_beside_columns(rule: str) -> None:
    bent = make_pipeline(PCA(3), PowerTransformer())
    model = make_pipeline(StandardScaler(), make_union(bent, MinMaxScaler()), k_means()).fit(WINE)
    exp = wc.explain(model, WINE, rule=rule)
    relevance = neon.explain(model[:-1].transform(WINE), model[-1].cluster_centers_, rule=rule)
    atoms = scaled_wine()
    pca = model[1].transformer_list[0][1][0]
    shared = pipeline.moved_by(relevance[:, :3], pipeline.expand(pca.transform, atoms), atoms)
    assert_same(exp.relevance, shared + relevance[:, 3:], exp)
    assert_adds_up(exp)


def test_components_of_which_some_are_bent() -> None:
    steps = [StandardScaler(), PCA(2), FeatureUnion([("a", PowerTransformer()), ("b", MinMaxScaler())])]
    model = make_pipeline(*steps, k_means()).fit(WINE)
    exp = wc.explain(model, WINE)
    assert_adds_up(exp)
    assert (exp.cluster == model.predict(WINE)).all()


def test_all_components_are_the_scaled_columns() -> None:
    X = scaled_wine()
    for whiten in (False, True):
        plain = KMeans(3, n_init=1, random_state=0, tol=0.0).fit(X)
        start = PCA(whiten=whiten).fit(X)
        end = KMeans(3, init=start.transform(plain.cluster_centers_), n_init=1, tol=0.0)
        model = make_pipeline(StandardScaler(), PCA(whiten=whiten), end).fit(WINE)
        exp = wc.explain(model, WINE)
        assert_adds_up(exp)
        if not whiten:  # which would be another clustering
            alone = wc.explain(plain, X)
            assert (exp.cluster == alone.cluster).all()
            assert_same(exp.relevance, alone.relevance, alone)


@pytest.mark.parametrize("last", [KMeans(3, n_init=1, random_state=0), wc.KernelKMeans(3, random_state=0)])
@pytest.mark.parametrize(
    "between", [[], [PCA(4)], [make_union(PCA(3), MinMaxScaler())], [PCA(4), Normalizer()]]
)
def test_the_units_of_columns_do_not_matter_to_what_is_scaled_first(between: list[Any], last: Any) -> None:
    model = make_pipeline(StandardScaler(), *between, last)
    units, start = 10.0 ** (np.arange(13) % 5 - 2), np.arange(13) * 10.0
    here = wc.explain(clone(model).fit(WINE), WINE)
    there = wc.explain(clone(model).fit(WINE * units + start), WINE * units + start)
    assert (here.cluster == there.cluster).all()
    assert_same(there.relevance, here.relevance, here)


@pytest.mark.parametrize("last", [KMeans(3, n_init=1, random_state=0), BisectingKMeans(4, random_state=0)])
def test_the_order_of_columns_is_only_order(last: Any) -> None:
    """Components are the same but for their signs, so the centroids are given."""
    order = np.random.default_rng(0).permutation(13)
    model = make_pipeline(StandardScaler(), PCA(4), last).fit(WINE)
    swapped = copy.deepcopy(model)
    for name in ("mean_", "scale_", "var_"):
        setattr(swapped[0], name, getattr(model[0], name)[order])
    swapped[1].components_, swapped[1].mean_ = model[1].components_[:, order], model[1].mean_[order]
    here, there = wc.explain(model, WINE), wc.explain(swapped, WINE[:, order])
    assert_same(there.relevance, here.relevance[:, order], here)


# Containers


ENCODING = of_columns(
    ("num", numbers(), NUMBERS), ("cat", OneHotEncoder(), CATEGORIES), ("yes", "passthrough", ["member"])
)


FRAMES: dict[str, Any] = {
    "reordered": lambda X: X[X.columns[::-1]],
    "polars": lambda X: pl.DataFrame({c: X[c].tolist() for c in X}).with_columns(
        pl.col("income").fill_nan(None)
    ),
    "pyarrow": lambda X: pa.Table.from_pandas(X, preserve_index=False),
    "objects": lambda X: X.astype(object),
    "array of objects": lambda X: X.to_numpy(dtype=object),
    "nullable": lambda X: X.convert_dtypes(),
    "categorical": lambda X: X.astype({"kind": "category"}),
}


@pytest.mark.parametrize("kind", FRAMES)
def test_frames_of_all_kinds_give_the_same(kind: str) -> None:
    X = mixed_frame().drop(columns="when")
    X["town"] = X["town"].fillna("none")  # of which every library has its own
    model = clone(ENCODING).fit(X)
    given = FRAMES[kind](X)
    expected, exp = wc.explain(model, X), wc.explain(model, given)
    assert_same(exp.relevance, expected.relevance, expected)
    assert exp.feature_names == X.columns.tolist()
    assert (exp.cluster == model.predict(X)).all()


def test_a_pipeline_fitted_on_polars_takes_pandas_and_the_other_way_round() -> None:
    X = mixed_frame().drop(columns="when")
    X["town"] = X["town"].fillna("none")
    P = pl.from_pandas(X)
    needs_names_of_polars()
    of_pandas, of_polars = clone(ENCODING).fit(X), clone(ENCODING).fit(P)
    expected = wc.explain(of_pandas, X)
    for model, rows in ((of_polars, P), (of_polars, X), (of_pandas, P)):
        assert_same(wc.explain(model, rows).relevance, expected.relevance, expected)
    assert wc.explain(of_polars, P).data.equals(P)


def test_missing_categories_of_polars() -> None:
    X = mixed_frame()
    P = pl.DataFrame({c: X[c].tolist() for c in X}).with_columns(pl.col("income").fill_nan(None))
    needs_names_of_polars()
    model = clone(ENCODING).fit(P)
    exp = wc.explain(model, P)
    assert (exp.cluster == model.predict(P)).all()
    assert_adds_up(exp)


@pytest.mark.parametrize("name", ["scaled pca", "standard", "variance", "union with weights", "normalized"])
def test_arrays_frames_and_sparse_rows_give_the_same(name: str) -> None:
    model, names = fitted(name), [f"c{i}" for i in range(13)]
    expected = wc.explain(model, WINE)
    frame = pd.DataFrame(WINE, columns=names)
    known = clone(CASES[name].pipeline).fit(frame, groups(WINE))
    given: list[tuple[Any, Any]] = [
        (model, frame),
        (model, pl.DataFrame(frame)),
        (model, np.asfortranarray(WINE)),
        (model, WINE.tolist()),
        (model, WINE.astype(object)),
        (known, frame),
        (known, frame[names[::-1]]),
        (known, pl.DataFrame(frame)),
        (known, pa.Table.from_pandas(frame)),
        (known, WINE),
    ]
    for pipe, rows in given:
        exp = wc.explain(pipe, rows)
        assert_same(exp.relevance, expected.relevance, expected)
        assert (exp.cluster == expected.cluster).all()


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.data == "counts"])
def test_sparse_rows_give_what_dense_ones_give(name: str) -> None:
    X, model = DATA["counts"](), fitted(name)
    exp = wc.explain(model, X)
    for rows in (X.toarray(), X.tocsc(), sp.csr_matrix(X)):
        assert_same(wc.explain(model, rows).relevance, exp.relevance, exp)
    assert sp.issparse(exp.data)


@pytest.mark.parametrize("name", ["standard", "scaled pca", "power", "union of components and columns"])
def test_single_precision(name: str) -> None:
    X = WINE.astype("f4")
    model = clone(CASES[name].pipeline).fit(X)
    exp, double = wc.explain(model, X), wc.explain(model, X.astype("f8"))
    assert exp.relevance.dtype == np.float32
    assert (exp.cluster == model.predict(X)).all()
    assert np.abs(exp.relevance - double.relevance).max() <= 1e-4 * np.abs(double.evidence).max()
    assert np.abs(exp.residual).max() <= 1e-5 * np.abs(exp.evidence).max()


def test_whole_numbers_and_booleans() -> None:
    X = (WINE * 10).astype(np.int64)
    model = make_pipeline(StandardScaler(), PCA(3), k_means()).fit(X)
    expected = wc.explain(model, X.astype(float))
    assert_same(wc.explain(model, X).relevance, expected.relevance, expected)
    yes = WINE.mean(axis=0) < WINE
    model = make_pipeline(TruncatedSVD(3, random_state=0), k_means()).fit(yes)
    assert (wc.explain(model, yes).cluster == model.predict(yes)).all()


# Questions


QUESTIONS: dict[str, dict[str, Any]] = {
    "target": {"target": 1},
    "against": {"against": 0},
    "target against": {"target": 1, "against": 2},
    "paper": {"rule": "min-take-most"},
    "joint": {"rule": "joint"},
    "sequential": {"rule": "sequential"},
    "contrast": {"rule": "contrast"},
    "beta": {"beta": 0.3},
    "stiff": {"beta": np.inf},
}
ASKED = [
    "scaled pca",
    "encoded",
    "union with weights",
    "components of numbers beside categories",
    "counts, svd",
]


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize(
    "name", [*ASKED, "mixed BisectingKMeans", "mixed Birch", "mixed NearestCentroid, manhattan"]
)
def test_whatever_is_asked_adds_up(name: str, question: str) -> None:
    X, model = DATA[CASES[name].data](), fitted(name)
    exp = wc.explain(model, X, **QUESTIONS[question])
    assert_adds_up(exp)
    assert np.abs(exp.competition.sum(axis=1) - exp.evidence).max() <= 1e-8 * np.abs(exp.evidence).max()
    assert (exp.assigned == model.predict(X)).all()


@pytest.mark.parametrize("kind", ["full", "tied", "diag", "spherical"])
@pytest.mark.parametrize("between", [[], [PCA(4)]])
@pytest.mark.parametrize("target", [None, 1])
def test_a_threshold_adds_up_with_what_is_no_feature(
    kind: str, between: list[Any], target: int | None
) -> None:
    """The residual of the model alone, which has its own tests; behind a PCA, all but the quadratic forms."""
    model = make_pipeline(
        StandardScaler(), *between, GaussianMixture(3, covariance_type=kind, random_state=0)
    )
    model.fit(WINE)
    exp = wc.explain(model, WINE, threshold=0.8, target=target)
    chances = model.predict_proba(WINE)
    cluster = model.predict(WINE) if target is None else np.full(len(WINE), target)
    p = np.clip(chances[np.arange(len(WINE)), cluster], 1e-12, 1 - 1e-12)
    certain = (p > 1e-6) & (p < 1 - 1e-6)
    expected = np.log(p / (1 - p)) - np.log(0.8 / 0.2)
    assert np.abs(exp.evidence - expected)[certain].max() <= 1e-6 * np.abs(expected).max()
    z, rows = model[:-1].transform(WINE), np.arange(len(WINE))
    residual = wc.explain(model[-1], z, threshold=0.8, target=target).residual
    if between:
        away, covariances = z[:, None] - model[-1].means_, _covariances(model[-1])
        forms = np.einsum("nki,kij,nkj->nk", away, np.linalg.inv(covariances), away) / 2
        s = forms + np.linalg.slogdet(covariances)[1] / 2 - np.log(model[-1].weights_)
        s[rows, cluster] = np.inf
        shares = softmax(-s, axis=1)
        residual = exp.evidence - ((shares * forms).sum(axis=1) - forms[rows, cluster])
    assert np.abs(exp.residual - residual).max() <= 1e-8 * np.abs(exp.evidence).max()


@pytest.mark.parametrize("kind", ["full", "tied", "diag"])
@pytest.mark.parametrize("rule", ["min-take-most", "joint", "sequential", "contrast"])
def test_a_mixture_of_all_components_is_one_of_the_columns(kind: str, rule: str) -> None:
    """A PCA that keeps all components can be undone, also in the mixture."""
    X = scaled_wine()
    model = make_pipeline(PCA(whiten=True), LASTS[f"GaussianMixture, {kind}"]()).fit(X)
    back = np.linalg.inv((model[0].components_.T / np.sqrt(model[0].explained_variance_)).T)
    same = GaussianMixture(3, covariance_type="full")
    same.weights_, same.means_ = model[-1].weights_, model[0].inverse_transform(model[-1].means_)
    same.covariances_ = np.array([back @ S @ back.T for S in _covariances(model[-1])])
    same.precisions_cholesky_ = np.array([np.linalg.inv(np.linalg.cholesky(S)).T for S in same.covariances_])
    found, expected = wc.explain(model, X, rule=rule), wc.explain(same, X, rule=rule)
    assert (found.cluster == model.predict(X)).all()
    assert_same(found.relevance, expected.relevance, expected)
    assert_same(found.evidence, expected.evidence, expected)
    if rule == "min-take-most":
        split = models.gaussian(same.weights_, same.means_, same.covariances_)
        assert_same(found.relevance, models.explain(X, split, 3), expected)


@pytest.mark.parametrize(
    "name", [*ASKED, "mixed KernelKMeans", "mixed GaussianMixture, full", "mixed BisectingKMeans"]
)
def test_a_row_with_a_background_is_explained_as_among_all(name: str) -> None:
    X, model = DATA[CASES[name].data](), fitted(name)
    whole = wc.explain(model, X)
    for row in (0, 7):
        one = X.iloc[[row]] if isinstance(X, pd.DataFrame) else X[[row]]
        exp = wc.explain(model, one, background=X)
        assert_same(exp.relevance[0], whole.relevance[row], whole)
    alone = wc.explain(model, one)  # its means are then its own
    if conserves(model[-1]):
        assert_adds_up(alone)


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize(
    "name", [*ASKED, "mixed KernelKMeans", "mixed GaussianMixture, tied", "mixed BisectingKMeans"]
)
@pytest.mark.parametrize("rule", ["path", "min-take-most", "sequential"])
def test_blocks_do_not_matter(name: str, rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    X, model = DATA[CASES[name].data](), fitted(name)
    whole = wc.explain(model, X, rule=rule)
    monkeypatch.setattr(attribution, "_THREAD_BYTES", 1 << 13)
    exp = wc.explain(model, X, rule=rule)
    assert_same(exp.relevance, whole.relevance, whole)
    assert (wc.neuralize(model).assign(X) == whole.cluster).all()


def test_a_cluster_without_rows() -> None:
    model = fitted("scaled pca")
    X = WINE[model.predict(WINE) != 2]
    assert_adds_up(wc.explain(model, X))
    assert_adds_up(wc.explain(model, X, target=2))


# Results


@pytest.mark.parametrize("name", ["encoded", "components of numbers beside categories", "the rest as it is"])
@pytest.mark.parametrize("make", [lambda X: X, lambda X: pl.DataFrame({c: X[c].tolist() for c in X})])
def test_results_on_a_mixed_frame(name: str, make: Any) -> None:
    X = mixed_frame()
    model = fitted(name)
    X["town"] = X["town"].astype(object)
    given = make(X)
    if isinstance(given, pl.DataFrame):
        needs_names_of_polars()
        model = clone(CASES[name].pipeline).fit(given)
    exp = wc.explain(model, given)
    part = exp[3:7]
    assert (part.relevance == exp.relevance[3:7]).all()
    assert part.data.shape == (4, 8)
    top = exp.top(8)
    for row in (0, 4, 11):
        for feature, value in zip(top.feature[row], top.value[row], strict=True):
            expected = given[feature][row] if isinstance(given, pl.DataFrame) else X[feature].iloc[row]
            assert value == expected or (pd.isna(value) and pd.isna(expected))
    text = exp.describe(4, n_features=8)
    assert "rare" in text
    assert text.startswith("Row person 4 (position 4) is" if given is X else "Row 4 is")
    assert repr(exp) == str(exp).splitlines()[0]
    frame = exp.to_frame()
    assert list(frame.columns) == ["cluster", "competitor", "evidence", *COLUMNS]
    assert type(frame) is type(given)
    assert type(top.to_frame()) is type(given)
    assert (exp.relevance[:, COLUMNS.index("when")] == 0).all()


def test_the_summary_of_a_mixed_frame() -> None:
    X, model = mixed_frame(), fitted("encoded")
    exp = wc.explain(model, X)
    summary = exp.summary()
    assert summary.relevance.shape == (3, 8)
    labels = model.predict(X)
    for g, cluster in enumerate(summary.clusters):
        members = X[labels == cluster]
        for column in ("age", "far", "tiny", "income"):  # of those that are there
            inside = summary.inside[g, COLUMNS.index(column)]
            assert inside == pytest.approx(members[column].mean(), rel=1e-9)
            outside = summary.outside[g, COLUMNS.index(column)]
            assert outside == pytest.approx(X[labels != cluster][column].mean(), rel=1e-9)
            statement = summary.statement(g, COLUMNS.index(column))
            means = [X[labels == k][column].mean() for k in statement.against]
            assert statement.values == pytest.approx(means, rel=1e-9)
            above = [inside > mean for mean in means]
            expected = "higher" if all(above) else "between" if any(above) else "lower"
            assert summary.direction[g, COLUMNS.index(column)] == statement.direction == expected
        kind = COLUMNS.index("kind")
        relevance = pd.Series(exp.relevance[labels == cluster, kind], members.index)
        best = relevance.groupby(members["kind"].astype(object)).sum().idxmax()
        assert summary.direction[g, kind] == best
        assert summary.inside[g, kind] == pytest.approx((members["kind"] == best).mean())
        assert summary.outside[g, kind] == pytest.approx((X[labels != cluster]["kind"] == best).mean())
    assert "kind" in str(summary)
    assert len(summary.to_frame()) == 3 * 8


def test_a_column_that_is_dropped_has_no_relevance() -> None:
    exp = wc.explain(fitted("columns by position"), WINE)
    used = [3, 1, 5, 6, 9, 12]
    assert (np.delete(exp.relevance, used, axis=1) == 0).all()
    assert (np.abs(exp.relevance[:, used]).max(axis=0) > 0).all()


def test_unknown_categories_are_explained_where_the_encoder_takes_them() -> None:
    X = mixed_frame()
    for handle in ("ignore", "infrequent_if_exist"):
        encoder = OneHotEncoder(handle_unknown=handle, min_frequency=5)
        model = of_columns(("num", numbers(), NUMBERS), ("cat", encoder, CATEGORIES)).fit(X)
        new = X.assign(kind="never seen")
        exp = wc.explain(model, new, background=X)
        assert (exp.cluster == model.predict(new)).all()
        assert_adds_up(exp)
        assert exp.top(8).value[0].tolist().count("never seen") == 1
    encoder = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1)
    model = of_columns(("num", numbers(), NUMBERS), ("cat", encoder, CATEGORIES)).fit(X)
    assert (wc.explain(model, new).cluster == model.predict(new)).all()


@pytest.mark.filterwarnings("ignore:Skipping features without any observed values")
@pytest.mark.filterwarnings("ignore:Currently, when `keep_empty_feature=False`")  # scikit-learn 1.6 and 1.7
@pytest.mark.parametrize(
    "options",
    [{}, {"keep_empty_features": True}, {"strategy": "constant", "fill_value": 3.0}, {"add_indicator": True}],
)
def test_an_empty_column_is_left_out_or_kept(options: dict[str, Any]) -> None:
    X = mixed_frame().assign(income=np.nan)
    model = of_columns(("num", make_pipeline(SimpleImputer(**options), StandardScaler()), NUMBERS)).fit(X)
    exp = wc.explain(model, X)
    assert (exp.cluster == model.predict(X)).all()
    assert_adds_up(exp)
    assert (exp.relevance[:, [0, 4, 5, 6, 7]] == 0).all()
    assert (np.abs(exp.relevance[:, 1:4]).max(axis=0) > 0).all()
    assert np.isnan(exp.summary().inside[:, 0]).all()


def test_one_column_of_text_as_it_is() -> None:
    X = mixed_frame().assign(told=[f"{'red blue'[4 * (i % 2) :]} {i % 3} green" for i in range(90)])
    model = of_columns(("words", TfidfVectorizer(), "told"), ("num", numbers(), NUMBERS)).fit(X)
    exp = wc.explain(model, X)
    assert (exp.cluster == model.predict(X)).all()
    assert_adds_up(exp)
    assert np.abs(exp.relevance[:, 8]).max() > 0
    assert (exp.relevance[:, 4:8] == 0).all()


@pytest.mark.parametrize("rule", RULES)
def test_columns_of_a_single_feature_are_not_mixed_by_components(rule: str) -> None:
    """Components of one column are that column's, and what comes after them may bend."""
    model = make_pipeline(
        ColumnTransformer(
            [("a", make_pipeline(PCA(1), PowerTransformer(), PCA(1)), [2])], remainder=MaxAbsScaler()
        ),
        k_means(),
    ).fit(WINE)
    exp = wc.explain(model, WINE, rule=rule)
    source = [2, *(i for i in range(13) if i != 2)]
    relevance = neon.explain(model[0].transform(WINE), model[-1].cluster_centers_, rule=rule)
    assert_same(exp.relevance, pipeline.add_up(relevance, source, 13), exp)


def test_the_gradient_is_asked_of_the_last_step() -> None:
    with pytest.raises(wc.UnsupportedModelError) as error:
        wc.neuralize(fitted("scaled pca")).gradient(WINE)
    assert str(error.value) == (
        "gradient: a pipeline has no gradient, since its steps need not be differentiable. Take the gradient "
        "of its last step with respect to the features that the steps compute: "
        "wc.neuralize(pipeline[-1]).gradient(pipeline[:-1].transform(X))."
    )


def test_labels_at_the_end_are_explained_in_the_columns_as_they_are() -> None:
    model = make_pipeline(StandardScaler(), DBSCAN(eps=2.3)).fit(WINE)
    exp = wc.explain(model, WINE)
    assert exp.agreement is not None
    assert [str(label) for label in exp.cluster[:5]] == [
        "noise" if label == -1 else str(label) for label in model[-1].labels_[:5]
    ]


def test_an_offset_that_no_column_can_make_up_for_is_shared() -> None:
    """Three projections of two columns, moved off the plane that these span before rows get unit length."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2)) * [2.0, 20.0] - [230.0, -30.0]
    steps = (GaussianRandomProjection(3, random_state=0), MinMaxScaler((-1, 3)), Normalizer())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataDimensionalityWarning)
        model = make_pipeline(*steps, KMeans(3, n_init=1, random_state=0)).fit(X)
    exp = wc.explain(model, X)
    assert (exp.cluster == model.predict(X)).all()
    assert np.abs(exp.residual).max() <= 1e-8 * exp.evidence.max()


def test_maps_too_large_to_decompose_are_lifted_step_by_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """A union is sparse; centroids of mini-batches are no means, so that references have to be moved."""
    X = load_wine().data
    union = make_union(PCA(3), StandardScaler())
    model = make_pipeline(union, MiniBatchKMeans(3, n_init=1, max_iter=2, random_state=0)).fit(X)
    at_once = wc.explain(model, X)
    monkeypatch.setattr(affine_map, "_LARGE", 0)
    step_by_step = wc.explain(model, X)
    assert np.abs(at_once.relevance - step_by_step.relevance).max() <= 1e-8 * at_once.evidence.max()


@pytest.mark.parametrize(
    ("offset", "spread", "scaler"),
    [
        (1e9, 1e-5, StandardScaler()),
        (1.7e18, 1e4, StandardScaler()),
        (5.0, 1e-12, StandardScaler()),
        (1e9, 1e-4, RobustScaler()),
        (0.0, 1e160, MaxAbsScaler()),
        (3.0, 1.0, MinMaxScaler((-1, 1))),
        (-50.0, 1.0, StandardScaler()),
    ],
)
def test_scalers_are_followed_to_all_digits(offset: float, spread: float, scaler: Any) -> None:
    rng = np.random.default_rng(0)
    X = offset + spread * (4 * rng.normal(size=(3, 4))[np.arange(150) % 3] + rng.normal(size=(150, 4)))
    model = make_pipeline(scaler, KMeans(3, n_init=1, random_state=0)).fit(X)
    exp = wc.explain(model, X)
    direct = wc.explain(model[-1], model[:-1].transform(X))
    assert (exp.cluster == model.predict(X)).all()
    assert np.abs(exp.relevance - direct.relevance).max() <= 1e-9 * direct.evidence.max()


@pytest.mark.parametrize("dtype", ["f2", "f4"])
def test_scalers_of_coarse_numbers_are_no_cause_for_alarm(dtype: str) -> None:
    rng = np.random.default_rng(0)
    X = 4 * rng.normal(size=(3, 4))[np.arange(150) % 3] + rng.normal(size=(150, 4))
    X[:, 3] = 1.7e9 * (dtype == "f4") + 1e4 * X[:, 3]
    X = X.astype(dtype)
    model = make_pipeline(StandardScaler(), MinMaxScaler((-1, 1)), KMeans(3, n_init=1, random_state=0)).fit(X)
    assert (wc.neuralize(model).assign(X) == model.predict(X)).mean() > 0.98
