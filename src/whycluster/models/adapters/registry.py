"""From a fitted model to its network: one function, and one file in ``adapters`` per library."""

from __future__ import annotations

import functools
import importlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from whycluster.core.errors import InvalidInputError, UnsupportedModelError
from whycluster.data.arrays import is_dask
from whycluster.data.labels import BY_LABELS
from whycluster.data.opening import column_names, text_columns
from whycluster.models.nearest_centroid import nearest_centroid
from whycluster.models.network import Network

# The module that knows the models of a package. The rest of ClustPy needs no torch, and no adapter.
_ADAPTERS = {
    "clustpy.deep": "deep.clustpy",
    "dask_ml": "models.adapters.dask_ml",
    "faiss": "models.adapters.faiss",
    "kmedoids": "models.adapters.kmedoids",
    "kmodes": "models.adapters.kmodes",
    "pyspark.ml": "pipelines.spark_models",
    "sklearn": "models.adapters.sklearn",
    "sklearn.feature_extraction.text": "text.network",
    "sklearn.pipeline": "pipelines.adapter",
    "whycluster": "clustering.adapter",
    "whycluster.text": "text.network",
}

SUPPORTED = (
    "whycluster.KernelKMeans, Surrogate",
    "sklearn.cluster.KMeans, MiniBatchKMeans, BisectingKMeans, Birch, MeanShift, AffinityPropagation",
    "sklearn.mixture.GaussianMixture, BayesianGaussianMixture",
    "sklearn.neighbors.NearestCentroid",
    "faiss.Kmeans",
    "kmedoids.KMedoids",
    "kmodes.kmodes.KModes, kmodes.kprototypes.KPrototypes",
    "dask_ml.cluster.KMeans; dask_ml.wrappers.ParallelPostFit of one of these",
    "clustpy.deep.DEC, IDEC, DCN, DKM, AEC",
    "pyspark.ml.clustering.KMeansModel, BisectingKMeansModel, GaussianMixtureModel; PipelineModel of these",
    "any fitted model with cluster_centers_ that predicts the nearest of them (checked on your data)",
    "an array of centroids, one row each",
    "sklearn.pipeline.Pipeline that ends in one of these, or in a model of labels",
)


@dataclass(frozen=True)
class OnlyLabels:
    """What is known of a clustering that cannot be neuralized: a label for each row it was fitted on."""

    labels: Any  # (n,)
    kind: str  # what gave them, for messages


@dataclass(frozen=True)
class AwaitingColumns:
    """A model that has forgotten which of its columns are categories, and how to go on when that is said."""

    kind: str
    n_features: int
    n_categorical: int
    place: Callable[[list[int]], Network]  # called with the columns in the order they were fitted in
    transform: Callable[[Any], Any] | None = None  # what comes before the model, in a pipeline

    def told(self, categorical: Sequence[int]) -> Network:
        """The network, with the columns that the user said."""
        given = np.asarray(categorical)
        if given.dtype.kind in "iu" and given.shape == (self.n_categorical,):
            columns = [range(self.n_features)[i] for i in given if -self.n_features <= i < self.n_features]
            if len(set(columns)) == self.n_categorical:
                return self.place(columns)
        raise InvalidInputError(
            f"neuralize: categorical must be the positions of the {self.n_categorical} columns, of "
            f"{self.n_features}, that {self.kind} was fitted on as categories; got {categorical!r}."
        )

    def seen(self, X: Any) -> Network:
        """The network, if the columns of X that hold no numbers are as many as the categories."""
        text = text_columns(X if self.transform is None else self.transform(X), "explain", "X")
        if len(text) != self.n_categorical:
            raise InvalidInputError(
                f"explain: {self.kind} was fitted on {self.n_categorical} columns of categories and does not "
                f"know which; X has {len(text)} columns that hold no numbers. "
                f"Say which they are: categorical=[...], as in its fit."
            )
        return self.told(text)


def neuralize(model: Any, *, metric: str | None = None, categorical: Sequence[int] | None = None) -> Network:
    """The neural network that assigns as the model does, without retraining.

    Parameters
    ----------
    model : a fitted clustering model, or its centroids as an array or data frame of shape (K, d), which
        are then the clusters 0..K-1
    metric : for centroids, and models of no known class that have some, how near a row is to them:
        "euclidean" (the default), "manhattan", "cosine" (spherical k-means), "dot" (a soft head, whose
        probabilities are the softmax of the products) or "student" (the head of DEC and IDEC, whose
        probabilities are those of Student's t-distribution)
    categorical : for KPrototypes, the columns that it was fitted on as categories, as in its fit

    Returns
    -------
    Network

    Examples
    --------
    >>> import whycluster as wc
    >>> net = wc.neuralize([[0.0, 0.0], [4.0, 0.0]])
    >>> net.assign([[1.0, 5.0], [3.0, 5.0]])
    array([0, 1])
    >>> net.evidence([[1.0, 5.0]])
    array([[ 8., -8.]])
    """
    found = look_into(model, metric, () if categorical is None else categorical)
    if isinstance(found, OnlyLabels):
        raise UnsupportedModelError(
            f"neuralize: {found.kind} say which cluster each row is in, but not why another row would be. "
            "wc.explain(labels, X) explains them through a surrogate; "
            "wc.Surrogate().fit(X, labels) is that surrogate, and can be neuralized."
        )
    return found


def look_into(
    model: Any, metric: str | None, categorical: Sequence[int] | None, X: Any = None
) -> Network | OnlyLabels:
    """The network of a model, or its labels where it has none.

    The columns that a model has forgotten are those that are said, or else those that X shows.
    """
    found = first_look(model, metric)
    if isinstance(found, AwaitingColumns):
        return found.seen(X) if categorical is None else found.told(categorical)
    if categorical:
        raise InvalidInputError(
            f"neuralize: categorical is for KPrototypes, which forgets its columns; {type(model).__name__} "
            f"does not."
        )
    return found


def first_look(model: Any, metric: str | None = None) -> Network | OnlyLabels | AwaitingColumns:
    """What is known of a model before anything is said of its columns."""
    if isinstance(model, Network):
        if metric is not None:
            raise InvalidInputError("neuralize: metric is for centroids; a Network has its energies already.")
        return model
    if hasattr(model, "detach") and hasattr(model, "cpu"):  # a tensor of torch
        model = model.detach().cpu().numpy()
    if is_dask(model):  # centroids or labels, which are no model before they are there
        model = model.compute()
    load_adapters(model)
    return adapt(model) if metric is None else _centroids_of(model, metric)


def load_adapters(model: Any) -> None:
    """Import the modules that know the class of a model, or of a step of a pipeline."""
    for cls in type(model).__mro__:
        for package, module in _ADAPTERS.items():
            if f"{cls.__module__}.".startswith(f"{package}."):
                importlib.import_module(f"whycluster.{module}")


@functools.singledispatch
def adapt(model: Any) -> Network | OnlyLabels | AwaitingColumns:
    """The network of a model; adapters register their classes here.

    A class that none has registered is taken for a nearest-centroid model if it has ``cluster_centers_``
    and ``predict``, and checked on all data that comes. One that has ``labels_`` can be explained from these.
    """
    if isinstance(model, type):
        raise UnsupportedModelError(
            f"neuralize: model must be a fitted model; got the class {model.__name__}."
        )
    if column_names(model, "neuralize", "centroids") is not None:
        return _centroids_of(model, "euclidean")
    if _has(model, "predict") and _has(model, "cluster_centers_"):
        return _centroids_of(model, "euclidean")
    if len(getattr(model, "shape", ())) == 1 or hasattr(model, "to_pylist"):
        return OnlyLabels(model, "labels")  # a series, a column of pyarrow
    if _has(model, "labels_"):
        return OnlyLabels(model.labels_, f"the labels of {type(model).__name__}")
    if isinstance(model, (str, os.PathLike)):
        raise UnsupportedModelError(
            f"neuralize: model must be a fitted model; got {str(model)!r}. A network that was saved is read "
            "by wc.load(path)."
        )
    if hasattr(model, "obsm"):
        raise UnsupportedModelError(
            "neuralize: model must be a fitted model; got an AnnData. Its groups of cells are explained by "
            "wc.explain_anndata(adata, groups)."
        )
    listed = "".join(f"\n  - {line}" for line in SUPPORTED)
    raise UnsupportedModelError(
        f"neuralize: no exact network is known for {type(model).__name__}. Supported, once fitted, are:"
        f"{listed}\n{BY_LABELS}"
    )


@adapt.register(np.ndarray)
@adapt.register(list)
@adapt.register(tuple)
@adapt.register(range)
def _array(model: Any) -> Network | OnlyLabels:
    return OnlyLabels(model, "labels") if _n_dimensions(model) == 1 else _centroids_of(model, "euclidean")


def _centroids_of(model: Any, metric: str) -> Network:
    """The network of centroids, or of a model that has some and may predict the nearest."""
    names = column_names(model, "neuralize", "centroids")
    if names is not None:
        return nearest_centroid(model, metric=metric, feature_names=names)
    if isinstance(model, (np.ndarray, list, tuple)) and _n_dimensions(model) != 1:
        return nearest_centroid(model, metric=metric)
    if not (_has(model, "predict") and _has(model, "cluster_centers_")):
        raise InvalidInputError(
            "neuralize: metric is for centroids, or a fitted model with cluster_centers_ and predict; "
            f"got {type(model).__name__}."
        )
    return nearest_centroid(
        model.cluster_centers_,
        metric=metric,
        feature_names=getattr(model, "feature_names_in_", None),
        predict=model.predict,
        kind=type(model).__name__,
    )


def _has(model: Any, name: str) -> bool:
    return getattr(model, name, None) is not None


def _n_dimensions(model: Any) -> int:
    try:
        return np.ndim(model)
    except ValueError:  # lists of different lengths: refused with the centroids
        return 2
