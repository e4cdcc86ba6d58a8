"""What must hold for every chain of steps before k-means."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA, FastICA, IncrementalPCA, TruncatedSVD
from sklearn.feature_selection import VarianceThreshold
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline
from sklearn.preprocessing import (
    Binarizer,
    FunctionTransformer,
    KBinsDiscretizer,
    MaxAbsScaler,
    MinMaxScaler,
    Normalizer,
    PowerTransformer,
    QuantileTransformer,
    RobustScaler,
    StandardScaler,
)
from sklearn.random_projection import GaussianRandomProjection, SparseRandomProjection

import whycluster as wc

Array = NDArray[np.float64]

LINEAR: dict[str, Any] = {
    "standard": lambda _: StandardScaler(),
    "deviation": lambda _: StandardScaler(with_mean=False),
    "min-max": lambda _: MinMaxScaler((-1, 3)),
    "max-abs": lambda _: MaxAbsScaler(),
    "robust": lambda _: RobustScaler(),
    "variance": lambda _: VarianceThreshold(),
    "passthrough": lambda _: "passthrough",
    "pca": lambda m: PCA(m),
    "whitened": lambda m: PCA(m, whiten=True),
    "pca in parts": lambda m: IncrementalPCA(m),
    "svd": lambda m: TruncatedSVD(m, random_state=0),
    "ica": lambda m: FastICA(m, random_state=0, max_iter=5),
    "projection": lambda m: GaussianRandomProjection(m, random_state=0),
    "sparse projection": lambda m: SparseRandomProjection(m, density=0.5, random_state=0),
}
BENT: dict[str, Any] = {
    "power": lambda _: PowerTransformer(),
    "quantile": lambda _: QuantileTransformer(n_quantiles=5),
    "bins": lambda _: KBinsDiscretizer(3, encode="onehot-dense", strategy="uniform"),
    "ordinal bins": lambda _: KBinsDiscretizer(3, encode="ordinal", strategy="uniform"),
    "binary": lambda _: Binarizer(),
    "clipped": lambda _: MinMaxScaler(clip=True),
    "ufunc": lambda _: FunctionTransformer(np.arctan),
    "length": lambda _: Normalizer(),
    "sum": lambda _: Normalizer("l1"),
}
ALL = {**LINEAR, **BENT}


@dataclass(frozen=True)
class Chain:
    """Steps, and rows to fit them on."""

    steps: list[Any]
    X: Array

    def fit(self) -> Pipeline:
        """Skips what scikit-learn itself cannot take."""
        model = make_pipeline(*self.steps, KMeans(3, n_init=1, random_state=0))
        try:
            model.fit(self.X)
            z, again = to_z(model, self.X), to_z(model, self.X * (1 + 1e-15))
        except (ValueError, FloatingPointError, np.linalg.LinAlgError, RuntimeError):
            assume(False)  # such as more components than features
            raise
        assume(np.isfinite(z).all())
        # Components without variance, divided by it, are what rounding left of them.
        assume(is_sound(model[:-1]))
        assume(np.abs(z - again).max() <= 1e-9 * np.ptp(z, axis=0).max())
        return model


@st.composite
def tables(draw: st.DrawFn) -> Array:
    """Few rows in groups; columns of different sizes, far from 0, alike, or constant."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n, d = draw(st.integers(6, 25)), draw(st.integers(2, 7))
    X = rng.normal(size=(n, d)) + 4 * rng.normal(size=(3, d))[rng.integers(3, size=n)]
    X = X @ np.where(rng.random((d, d)) < 0.3, rng.normal(size=(d, d)), np.eye(d))  # some are correlated
    X = X * 10.0 ** rng.uniform(-3, 3, size=d)
    X += np.abs(X).max(axis=0) * rng.choice([0.0, 1.0, -30.0, 1e3], size=d)
    if draw(st.booleans()):
        X[:, draw(st.integers(0, d - 1))] = rng.choice([0.0, 1.0, 1e6])
    if draw(st.booleans()):
        X[:, 0] = X[:, -1]
    if draw(st.booleans()):
        X[: n // 2] = X[n // 2 : 2 * (n // 2)]
    return np.clip(X, -1e6, 1e6)


@st.composite
def steps(draw: st.DrawFn, names: dict[str, Any], most: int = 5, depth: int = 1) -> list[Any]:
    """A chain, with chains side by side in it."""
    found: list[Any] = []
    for _ in range(draw(st.integers(1, most))):
        kind = draw(st.sampled_from([*names, *(["union", "columns"] if depth else [])]))
        if kind in names:
            found.append(names[kind](draw(st.integers(1, 3))))
            continue
        told = {name: make for name, make in names.items() if name != "passthrough"}  # it knows no columns
        inside = [make_pipeline(*draw(steps(told, 2, depth - 1))) for _ in range(draw(st.integers(1, 3)))]
        weights = draw(st.sampled_from([None, {"0": 2.0}, {"0": 0.0, "1": 3.0}]))
        if kind == "union":
            branches = [(str(i), branch) for i, branch in enumerate(inside)]
            found.append(FeatureUnion(branches, transformer_weights=weights))
        else:
            rest = draw(st.sampled_from(["drop", "passthrough"]))
            parts = [(str(i), branch, [i % 2, -1][: i + 1]) for i, branch in enumerate(inside)]
            found.append(ColumnTransformer(parts, remainder=rest, transformer_weights=weights))
    return found


@st.composite
def chains(draw: st.DrawFn, names: dict[str, Any] = ALL) -> Chain:
    return Chain(draw(steps(names)), draw(tables()))


def is_sound(step: Any) -> bool:
    """Whether nothing inside divides by a deviation that is rounding."""
    inside = [*getattr(step, "steps", ()), *getattr(step, "transformer_list", ())]
    inside += [part[:2] for part in getattr(step, "transformers_", ())]
    if hasattr(step, "explained_variance_"):
        size = np.square(getattr(step, "mean_", 0.0)).max() + step.explained_variance_.max()
        return bool((step.explained_variance_ > 1e-12 * size).all())
    if isinstance(step, FastICA):
        return bool(np.linalg.cond(step.components_) < 1e6 and np.abs(step.components_).max() < 1e8)
    return all(is_sound(part) for _, part in inside)


def to_z(model: Pipeline, X: Array) -> Array:
    return np.asarray(model[:-1].transform(X), dtype=np.float64)


def explain(model: Pipeline, X: Array) -> wc.Explanation | None:
    """None where it is refused, as it says."""
    try:
        return wc.explain(model, X)
    except wc.UnsupportedModelError as error:
        if "have already mixed, transformed and mixed again" in str(error):
            return None
        raise


quiet = pytest.mark.filterwarnings("ignore")  # few and constant rows are what scikit-learn warns of


def rounding(z: Array, centroids: Array) -> float:
    """What scikit-learn's |mu|^2 - 2 z mu, and the steps before it, know the energies to."""
    size = max(float(np.abs(z).max()), float(np.abs(centroids).max()))
    return 1e-13 * size * size * len(centroids[0])


@pytest.mark.slow
@quiet
@given(chains())
def test_it_is_assigned_as_it_predicts_and_adds_up(chain: Chain) -> None:
    model = chain.fit()
    exp = explain(model, chain.X)
    if exp is None:
        return
    z = to_z(model, chain.X)
    unsure = rounding(z, model[-1].cluster_centers_)
    wrong = exp.cluster != model.predict(chain.X)
    assert (exp.evidence[wrong] <= unsure).all()
    assert exp.relevance.shape == chain.X.shape
    assert np.isfinite(exp.relevance).all()
    assert np.abs(exp.residual).max() <= 1e-8 * np.abs(exp.evidence).max() + unsure


@pytest.mark.slow
@quiet
@given(chains(LINEAR), st.sampled_from(["joint", "sequential", "contrast"]), st.integers(0, 2))
def test_linear_chains_add_up_whatever_is_asked(chain: Chain, rule: str, target: int) -> None:
    model = chain.fit()
    unsure = rounding(to_z(model, chain.X), model[-1].cluster_centers_)
    for question in ({"rule": rule}, {"target": target}, {"background": chain.X[::-1]}):
        exp = wc.explain(model, chain.X, **question)
        assert np.abs(exp.residual).max() <= 1e-8 * np.abs(exp.evidence).max() + unsure


@pytest.mark.slow
@quiet
@given(chains(LINEAR), st.data())
def test_the_order_of_rows_is_only_order(chain: Chain, data: st.DataObject) -> None:
    model = chain.fit()
    rows = np.array(data.draw(st.permutations(range(len(chain.X)))))
    here, there = wc.explain(model, chain.X), wc.explain(model, chain.X[rows])
    unsure = rounding(to_z(model, chain.X), model[-1].cluster_centers_)
    clear = (here.evidence > unsure)[rows]
    limit = 1e-8 * np.abs(here.evidence).max() + unsure
    assert (there.cluster == here.cluster[rows])[clear].all()
    assume((here.evidence > unsure).all())  # a row on a boundary moves the means of two clusters
    assert np.abs(there.relevance - here.relevance[rows]).max() <= 10 * limit


@pytest.mark.slow
@quiet
@given(tables(), st.integers(1, 3), st.data())
def test_the_units_of_what_is_scaled_first_do_not_matter(X: Array, m: int, data: st.DataObject) -> None:
    """Powers of two, so that the scaled columns are the same to the last digit."""
    X = X[:, X.std(axis=0) > 1e-9 * np.abs(X).max(axis=0)]
    assume(X.shape[1] > m)
    units = 2.0 ** np.array(
        data.draw(st.lists(st.integers(-20, 20), min_size=X.shape[1], max_size=X.shape[1]))
    )
    model = make_pipeline(StandardScaler(), PCA(m), KMeans(3, n_init=1, max_iter=2, random_state=0))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        here = wc.explain(model.fit(X), X).relevance
        there = wc.explain(model.fit(X * units), X * units).relevance
    assert np.abs(there - here).max() <= 1e-8 * np.abs(here).max()
