"""The pipelines of the contract: what they are, the columns of their atoms, and where they mix these."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
import sklearn
from numpy.typing import NDArray
from sklearn.cluster import AffinityPropagation, Birch, BisectingKMeans, KMeans, MeanShift, MiniBatchKMeans
from sklearn.compose import ColumnTransformer, make_column_selector
from sklearn.datasets import load_digits, load_wine
from sklearn.decomposition import PCA, FastICA, IncrementalPCA, TruncatedSVD
from sklearn.feature_selection import SelectFromModel, SelectKBest, VarianceThreshold
from sklearn.impute import MissingIndicator, SimpleImputer
from sklearn.mixture import BayesianGaussianMixture, GaussianMixture
from sklearn.model_selection import StratifiedKFold
from sklearn.neighbors import NearestCentroid
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline, make_union
from sklearn.preprocessing import (
    Binarizer,
    FunctionTransformer,
    KBinsDiscretizer,
    MaxAbsScaler,
    MinMaxScaler,
    Normalizer,
    OneHotEncoder,
    OrdinalEncoder,
    PowerTransformer,
    QuantileTransformer,
    RobustScaler,
    StandardScaler,
    TargetEncoder,
)
from sklearn.random_projection import GaussianRandomProjection, SparseRandomProjection
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils.fixes import parse_version

import whycluster as wc
from tests.optional import optional

if TYPE_CHECKING:
    import kmedoids
    import pandas as pd
else:
    pd = optional("pandas")
    kmedoids = optional("kmedoids")

Array = NDArray[Any]
Rest = Callable[[Any], Any]

COLUMNS = ["income", "age", "far", "tiny", "kind", "town", "member", "when"]
NUMBERS, CATEGORIES = COLUMNS[:4], ["kind", "town"]
N_KINDS, N_TOWNS = 4, 3  # missing is one of the towns

# scikit-learn warns of the defaults of these options from the version on in which it has them.
version = parse_version(sklearn.__version__)
FOLDS: dict[str, Any] = {"cv": StratifiedKFold()} if version >= parse_version("1.9") else {}
QUANTILES: dict[str, Any] = (
    {"quantile_method": "averaged_inverted_cdf"} if version >= parse_version("1.7") else {}
)


def mixed_frame(n_rows: int = 90) -> Any:
    """Three groups of people: numbers of different sizes, missing values, text, booleans, dates."""
    rng = np.random.default_rng(7)
    group = np.arange(n_rows) % 3
    income = np.exp(9 + 0.7 * group + 0.5 * rng.normal(size=n_rows))
    income[rng.random(n_rows) < 0.1] = np.nan
    kind = np.array(["a", "b", "c"], dtype=object)[(group + (rng.random(n_rows) < 0.2)) % 3]
    kind[[4, 40]] = "rare"
    town = np.array(["Oslo", "Rome", None], dtype=object)[(group + (rng.random(n_rows) < 0.3)) % 3]
    index = [f"person {i}" for i in range(n_rows)]
    return pd.DataFrame(
        {
            "income": income,
            "age": 20.0 + 15 * group + 4 * rng.normal(size=n_rows),
            "far": 1e6 + 3 * (group == 1) + rng.normal(size=n_rows),
            "tiny": 1e-3 * (rng.normal(size=n_rows) + 3 * (group == 2)),
            "kind": kind,
            "town": pd.Series(town, index, dtype=object),
            "member": rng.random(n_rows) < 0.2 + 0.3 * group,
            "when": pd.Timestamp("2024-01-01") + pd.to_timedelta(np.arange(n_rows), unit="D"),
        },
        index=index,
    )


def groups(X: Any) -> Array:
    """Something to supervise encoders, selectors and classifiers with."""
    return np.asarray(load_wine().target) if X.shape == (178, 13) else np.arange(X.shape[0]) % 3


def _counts() -> Any:
    rng = np.random.default_rng(3)
    rates = np.where(np.arange(40) % 4 == np.arange(4)[:, None], 1.5, 0.1)
    return sp.csr_array(rng.poisson(rates[np.arange(100) % 4]).astype(float))


DATA: dict[str, Callable[[], Any]] = {
    "frame": mixed_frame,
    "wine": lambda: load_wine().data,
    "digits": lambda: load_digits().data[:150],
    "counts": _counts,
}


@dataclass(frozen=True)
class Case:
    """A pipeline, not yet fitted, and what a reference has to know of it.

    Attributes
    ----------
    source : of each atom its column; None: as many atoms as columns, in their order
    cut : how many steps give the atoms, so that the rest of them mixes these; None: the atoms are what the
        model takes
    atoms, rest : in place of `cut`, for a fitted pipeline: from rows to atoms, and on to what the model takes
    """

    pipeline: Pipeline
    source: Sequence[int] | None = None
    cut: int | None = None
    data: str = "wine"
    atoms: Callable[[Pipeline], Rest] | None = None
    rest: Callable[[Pipeline], Rest] | None = None


def k_means(n_clusters: int = 3) -> KMeans:
    return KMeans(n_clusters, n_init=1, random_state=0)


def converged() -> KMeans:
    """Centroids that are the means of their members to all digits."""
    return KMeans(3, n_init=1, tol=0.0, random_state=0)


def log_shifted(values: Any) -> Any:
    return np.log(values + 1.0)


log_shifted.whycluster_elementwise = True  # type: ignore[attr-defined]


def numbers() -> Pipeline:
    return make_pipeline(SimpleImputer(strategy="median"), StandardScaler())


def of_columns(*branches: Any, last: Any = None, between: Sequence[Any] = (), **options: Any) -> Pipeline:
    """A ColumnTransformer, perhaps some steps, and k-means."""
    return make_pipeline(ColumnTransformer(list(branches), **options), *between, last or k_means())


def _step(pipeline: Pipeline, *path: Any) -> Any:
    found: Any = pipeline
    for name in path:
        found = found.named_transformers_[name] if isinstance(found, ColumnTransformer) else found[name]
    return found


def _mixed_branch(pipeline: Pipeline) -> Rest:
    """Four numbers to two components, the others as they are."""
    pca = _step(pipeline, 0, "num")[-1]
    return lambda t: np.hstack([pca.transform(t[:, :4]), t[:, 4:]])


def _before_mixed_branch(pipeline: Pipeline) -> Rest:
    scale, encode = _step(pipeline, 0, "num")[:-1], _step(pipeline, 0, "cat")
    return lambda X: np.hstack([scale.transform(X[NUMBERS]), encode.transform(X[CATEGORIES])])


def _one_hot(**options: Any) -> OneHotEncoder:
    return OneHotEncoder(sparse_output=False, **options)


CHOSEN = [6, 11, 12]
ENCODED = [0, 1, 2, 3] + [4] * N_KINDS + [5] * N_TOWNS

STEPS: dict[str, Case] = {
    # numbers, one by one
    "no steps": Case(make_pipeline(k_means())),
    "passthrough and None": Case(Pipeline([("a", "passthrough"), ("b", None), ("c", k_means())])),
    "passthrough, then fewer": Case(Pipeline([("a", "passthrough"), ("b", PCA(3)), ("c", k_means())]), cut=1),
    "a union that begins with all columns": Case(
        make_pipeline(FeatureUnion([("all", "passthrough"), ("pca", PCA(2))]), k_means()), cut=0
    ),
    "standard": Case(make_pipeline(StandardScaler(), k_means())),
    "standard, in place": Case(make_pipeline(StandardScaler(copy=False), k_means())),
    "standard, not moved": Case(make_pipeline(StandardScaler(with_mean=False), k_means())),
    "min-max": Case(make_pipeline(MinMaxScaler((-1, 2)), k_means())),
    "min-max, clipped and in place": Case(make_pipeline(MinMaxScaler(clip=True, copy=False), k_means())),
    "max-abs": Case(make_pipeline(MaxAbsScaler(), k_means())),
    "robust": Case(make_pipeline(RobustScaler(), k_means())),
    "robust, neither": Case(make_pipeline(RobustScaler(with_centering=False, with_scaling=False), k_means())),
    "power": Case(make_pipeline(PowerTransformer(), k_means())),
    "box-cox": Case(make_pipeline(PowerTransformer("box-cox", copy=False), k_means())),
    "quantile": Case(make_pipeline(QuantileTransformer(n_quantiles=50), k_means())),
    "bins": Case(
        make_pipeline(KBinsDiscretizer(4, **QUANTILES), k_means()),
        np.repeat(np.arange(13), 4).tolist(),
    ),
    "bins, ordinal": Case(
        make_pipeline(KBinsDiscretizer(4, encode="ordinal", strategy="uniform"), k_means())
    ),
    "binary": Case(make_pipeline(StandardScaler(), Binarizer(), k_means())),
    "ufunc": Case(make_pipeline(FunctionTransformer(np.log1p), StandardScaler(), k_means())),
    "declared": Case(make_pipeline(FunctionTransformer(log_shifted), RobustScaler(), k_means())),
    "no function": Case(make_pipeline(FunctionTransformer(), k_means())),
    "many one after another": Case(
        make_pipeline(
            MinMaxScaler(),
            FunctionTransformer(np.sqrt),
            StandardScaler(),
            PowerTransformer(),
            MaxAbsScaler(),
            k_means(),
        )
    ),
    "normalized": Case(make_pipeline(StandardScaler(), Normalizer(), k_means())),
    "nested": Case(make_pipeline(make_pipeline(MinMaxScaler(), make_pipeline(StandardScaler())), k_means())),
    # selectors
    "variance": Case(
        make_pipeline(VarianceThreshold(0.3), StandardScaler(), k_means()), [0, 1, 3, 4, 5, 6, 8, 9, 11, 12]
    ),
    "k best": Case(make_pipeline(StandardScaler(), SelectKBest(k=4), k_means()), [0, 6, 11, 12]),
    "chosen by a model": Case(
        make_pipeline(
            SelectFromModel(DecisionTreeClassifier(max_depth=2, random_state=0), threshold=0.01),
            StandardScaler(),
            PCA(2),
            k_means(),
        ),
        CHOSEN,
        cut=2,
    ),
    # linear maps
    "pca": Case(make_pipeline(PCA(4), k_means()), cut=0),
    "scaled pca": Case(make_pipeline(StandardScaler(), PCA(4), k_means(5)), cut=1),
    "all of pca": Case(make_pipeline(StandardScaler(), PCA(), k_means()), cut=1),
    "whitened": Case(make_pipeline(StandardScaler(), PCA(5, whiten=True), k_means()), cut=1),
    "pca in parts": Case(make_pipeline(RobustScaler(), IncrementalPCA(4, batch_size=60), k_means()), cut=1),
    "svd": Case(make_pipeline(MinMaxScaler((1, 2)), TruncatedSVD(5, random_state=0), k_means()), cut=1),
    "ica": Case(make_pipeline(StandardScaler(), FastICA(4, random_state=0, tol=0.01), k_means()), cut=1),
    "ica, not whitened": Case(
        make_pipeline(
            StandardScaler(), PCA(5, whiten=True), FastICA(whiten=False, random_state=0, tol=0.1), k_means()
        ),
        cut=1,
    ),
    "gaussian projection": Case(
        make_pipeline(StandardScaler(), GaussianRandomProjection(6, random_state=0), k_means()), cut=1
    ),
    "sparse projection": Case(
        make_pipeline(StandardScaler(), SparseRandomProjection(6, random_state=0), k_means()), cut=1
    ),
    "mixed to more": Case(
        make_pipeline(StandardScaler(), make_union(PCA(9), TruncatedSVD(9, random_state=0)), converged()),
        cut=1,
    ),
    "branches of the same columns": Case(
        make_pipeline(
            StandardScaler(),
            make_union(PCA(6), FunctionTransformer()),
            MiniBatchKMeans(3, n_init=1, max_iter=2, random_state=0),
        ),
        cut=1,
    ),
    "power, then pca": Case(make_pipeline(PowerTransformer(), PCA(3), k_means()), cut=1),
    "pca of bins": Case(
        make_pipeline(
            KBinsDiscretizer(3, encode="onehot-dense", strategy="uniform"),
            PCA(5),
            StandardScaler(),
            k_means(),
        ),
        np.repeat(np.arange(13), 3).tolist(),
        cut=1,
    ),
    "pca, scaled, chosen, mixed again": Case(
        make_pipeline(
            StandardScaler(),
            PCA(8),
            MinMaxScaler(),
            VarianceThreshold(0.02),
            TruncatedSVD(3, random_state=0),
            RobustScaler(),
            k_means(),
        ),
        cut=1,
    ),
    "digits": Case(make_pipeline(PCA(10), k_means(8)), cut=0, data="digits"),
    "digits, variance": Case(
        make_pipeline(VarianceThreshold(), StandardScaler(), PCA(10), k_means(8)),
        np.flatnonzero(load_digits().data[:150].std(axis=0) > 0).tolist(),
        cut=2,
        data="digits",
    ),
    # side by side
    "union of components and columns": Case(
        make_pipeline(StandardScaler(), FeatureUnion([("pca", PCA(3)), ("all", "passthrough")]), k_means()),
        cut=1,
    ),
    "union with weights": Case(
        make_pipeline(
            StandardScaler(),
            FeatureUnion(
                [
                    ("pca", PCA(3)),
                    ("svd", TruncatedSVD(2, random_state=0)),
                    ("gone", "drop"),
                    ("all", MinMaxScaler()),
                ],
                transformer_weights={"pca": 2.0, "all": 0.5},
            ),
            k_means(),
        ),
        cut=1,
    ),
    "union of scaled columns": Case(
        make_pipeline(make_union(StandardScaler(), PowerTransformer(), MaxAbsScaler()), k_means()),
        list(range(13)) * 3,
    ),
    "columns by position": Case(
        of_columns(
            ("a", StandardScaler(), [3, 1]),
            ("b", MinMaxScaler(), slice(5, 7)),
            ("none", StandardScaler(), []),
            ("c", "passthrough", np.arange(13) == 9),
            ("d", RobustScaler(), [-1]),
        ),
        [3, 1, 5, 6, 9, 12],
    ),
    "columns, then components": Case(
        of_columns(("a", StandardScaler(), [12, 0, 5]), remainder=PowerTransformer(), between=[PCA(4)]),
        [12, 0, 5, 1, 2, 3, 4, 6, 7, 8, 9, 10, 11],
        cut=1,
    ),
    "columns of components": Case(
        make_pipeline(
            StandardScaler(),
            PCA(6),
            ColumnTransformer([("a", MinMaxScaler(), [4, 0])], remainder="passthrough"),
            k_means(),
        ),
        cut=1,
    ),
    # frames
    "encoded": Case(
        of_columns(("num", numbers(), NUMBERS), ("cat", OneHotEncoder(), CATEGORIES)), ENCODED, data="frame"
    ),
    "encoded, pandas inside": Case(
        of_columns(("num", numbers(), NUMBERS), ("cat", _one_hot(), CATEGORIES)).set_output(
            transform="pandas"
        ),
        ENCODED,
        data="frame",
    ),
    "encoded, polars inside": Case(
        of_columns(("num", numbers(), NUMBERS), ("cat", _one_hot(), CATEGORIES)).set_output(
            transform="polars"
        ),
        ENCODED,
        data="frame",
    ),
    "weights": Case(
        of_columns(
            ("num", numbers(), NUMBERS),
            ("cat", OneHotEncoder(), CATEGORIES),
            transformer_weights={"cat": 0.5, "num": 2.0},
        ),
        ENCODED,
        data="frame",
    ),
    "the rest as it is": Case(
        of_columns(
            ("num", numbers(), NUMBERS),
            ("cat", OneHotEncoder(drop="first"), CATEGORIES),
            ("gone", "drop", ["when"]),
            remainder="passthrough",
        ),
        [0, 1, 2, 3] + [4] * (N_KINDS - 1) + [5] * (N_TOWNS - 1) + [6],
        data="frame",
    ),
    "the rest is transformed": Case(
        of_columns(
            ("cat", OneHotEncoder(min_frequency=5), ["kind"]),
            ("gone", "drop", ["town", "when"]),
            remainder=make_pipeline(SimpleImputer(add_indicator=True), MinMaxScaler()),
        ),
        [4] * N_KINDS + [0, 1, 2, 3, 6, 0],
        data="frame",
    ),
    "binary categories": Case(
        of_columns(("num", numbers(), NUMBERS), ("cat", OneHotEncoder(drop="if_binary"), ["member", "kind"])),
        [0, 1, 2, 3, 6] + [4] * N_KINDS,
        data="frame",
    ),
    "columns by mask and function": Case(
        of_columns(
            ("num", numbers(), make_column_selector(dtype_include="float")),
            ("cat", OneHotEncoder(max_categories=3), [name == "kind" for name in COLUMNS]),
            ("no", StandardScaler(), make_column_selector(pattern="nothing")),
        ),
        [0, 1, 2, 3, 4, 4, 4],
        data="frame",
    ),
    "columns by slice of names": Case(
        of_columns(("num", numbers(), slice("income", "tiny")), ("yes", "passthrough", ["member"])),
        [0, 1, 2, 3, 6],
        data="frame",
    ),
    "ordinal": Case(
        of_columns(
            ("num", numbers(), ["tiny", "age"]),
            ("cat", OrdinalEncoder(encoded_missing_value=-2), ["town", "kind"]),
        ),
        [3, 1, 5, 4],
        data="frame",
    ),
    "target": Case(
        of_columns(
            ("num", numbers(), NUMBERS),
            ("cat", TargetEncoder(**FOLDS), CATEGORIES),
            between=[StandardScaler()],
        ),
        [0, 1, 2, 3, 4, 4, 4, 5, 5, 5],
        data="frame",
    ),
    "missing or not": Case(
        of_columns(("is", MissingIndicator(), ["age", "income"]), ("num", numbers(), ["far", "age"])),
        [0, 2, 1],
        data="frame",
    ),
    "indicator of all": Case(
        of_columns(("is", MissingIndicator(features="all"), ["age", "income"]), ("num", numbers(), ["far"])),
        [1, 0, 2],
        data="frame",
    ),
    "imputed text": Case(
        of_columns(
            (
                "cat",
                make_pipeline(SimpleImputer(missing_values=None, strategy="most_frequent"), OneHotEncoder()),
                ["town"],
            ),
            ("num", numbers(), NUMBERS),
        ),
        [5, 5, 0, 1, 2, 3],
        data="frame",
    ),
    "components of numbers beside categories": Case(
        of_columns(("num", make_pipeline(*numbers(), PCA(2)), NUMBERS), ("cat", _one_hot(), CATEGORIES)),
        ENCODED,
        data="frame",
        atoms=_before_mixed_branch,
        rest=_mixed_branch,
    ),
    "components of all": Case(
        of_columns(("num", numbers(), NUMBERS), ("cat", _one_hot(), CATEGORIES), between=[PCA(4)]),
        ENCODED,
        cut=1,
        data="frame",
    ),
    "a selector between": Case(
        of_columns(
            ("num", numbers(), NUMBERS),
            ("cat", _one_hot(), CATEGORIES),
            between=[VarianceThreshold(0.1), PCA(3)],
        ),
        [0, 1, 2, 3, 4, 4, 4, 5, 5, 5],
        cut=2,
        data="frame",
    ),
    # sparse
    "counts": Case(make_pipeline(MaxAbsScaler(), k_means(4)), data="counts"),
    "counts, svd": Case(
        make_pipeline(StandardScaler(with_mean=False), TruncatedSVD(5, random_state=0), k_means(4)),
        cut=1,
        data="counts",
    ),
    "counts, normalized": Case(
        make_pipeline(Normalizer(), TruncatedSVD(5, random_state=0), k_means(4)), cut=1, data="counts"
    ),
    "counts, projected": Case(
        make_pipeline(SparseRandomProjection(8, random_state=0, dense_output=True), k_means(4)),
        cut=0,
        data="counts",
    ),
}


def _mixture(kind: Any, covariance: str) -> Any:
    return kind(
        n_components=3, covariance_type=covariance, reg_covar=0.1, max_iter=500, tol=0.01, random_state=0
    )


LASTS: dict[str, Callable[[], Any]] = {
    "MiniBatchKMeans": lambda: MiniBatchKMeans(4, n_init=1, batch_size=40, max_iter=3, random_state=0),
    "BisectingKMeans": lambda: BisectingKMeans(5, random_state=0),
    "MeanShift": lambda: MeanShift(bandwidth=2.5),
    "AffinityPropagation": lambda: AffinityPropagation(damping=0.9, preference=-150, max_iter=1000),
    "Birch": lambda: Birch(n_clusters=3, threshold=1.5),
    "Birch, subclusters": lambda: Birch(n_clusters=None, threshold=2.0),
    "NearestCentroid": NearestCentroid,
    "NearestCentroid, manhattan": lambda: NearestCentroid(metric="manhattan"),
    "KMedoids": lambda: kmedoids.KMedoids(3, metric="euclidean", random_state=0),
    "KernelKMeans": lambda: wc.KernelKMeans(3, n_support=3, random_state=0),
    "Surrogate": lambda: wc.Surrogate(2),
    **{
        f"GaussianMixture, {kind}": lambda kind=kind: _mixture(GaussianMixture, kind)  # type: ignore[misc]
        for kind in ("full", "tied", "diag", "spherical")
    },
    "BayesianGaussianMixture, full": lambda: _mixture(BayesianGaussianMixture, "full"),
}

ENDS: dict[str, Case] = {
    **{f"scaled {name}": Case(make_pipeline(StandardScaler(), make())) for name, make in LASTS.items()},
    **{
        f"mixed {name}": Case(make_pipeline(StandardScaler(), PCA(4), make()), cut=1)
        for name, make in LASTS.items()
    },
}

CASES = {**STEPS, **ENDS}
