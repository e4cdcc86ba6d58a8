"""From a fitted model to its network: the registry of adapters.

An adapter is a function from a fitted model to a `Network`, registered for the class of the model with
``@adapt.register``. This folder has one or more modules per library. Adapters that need pipelines, documents,
encoders or our own estimators are in the folders for those. Adapters are imported when a model from their
library is passed.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from whycluster.core.errors import InvalidInputError, NotFittedError, UnsupportedModelError
from whycluster.data.arrays import DASK
from whycluster.data.opening import column_names
from whycluster.models.adapters.incomplete import AwaitingColumns, OnlyLabels
from whycluster.models.adapters.unsupported import unsupported
from whycluster.models.agreement import with_agreement
from whycluster.models.nearest_centroid import from_centroids, has_value, n_dimensions
from whycluster.models.network import Network

# Package -> module with its adapters. ClustPy's other models need none, because they have cluster_centers_ or
# labels_.
_ADAPTERS = {
    "bertopic": "text.topics",
    "clustpy.deep": "deep.clustpy",
    "dask_ml": "models.adapters.dask_ml",
    "faiss": "models.adapters.faiss",
    "hdbscan": "models.adapters.hdbscan",
    "hmmlearn": "models.adapters.hmmlearn",
    "kmedoids": "models.adapters.kmedoids",
    "kmodes": "models.adapters.kmodes",
    "minisom": "models.adapters.minisom",
    "pyspark.ml": "pipelines.spark_models",
    "sklearn": "models.adapters.sklearn",
    "sklearn.cluster": "models.adapters.sklearn_density",
    "sklearn.cluster._agglomerative": "models.adapters.sklearn_hierarchy",
    "sklearn.cluster._birch": "models.adapters.sklearn_trees",
    "sklearn.cluster._bisect_k_means": "models.adapters.sklearn_trees",
    "sklearn.cluster._spectral": "models.adapters.sklearn_spectral",
    "sklearn.decomposition": "models.adapters.sklearn_topics",
    "sklearn.feature_extraction.text": "text.network",
    "sklearn.neighbors._classification": "models.adapters.sklearn_neighbors",
    "sklearn.mixture": "models.adapters.sklearn_mixture",
    "sklearn.pipeline": "pipelines.adapter",
    "stepmix": "models.adapters.stepmix",
    "tslearn": "models.adapters.tslearn",
    "whycluster": "clustering.adapter",
    "whycluster.text": "text.network",
}


def to_network(
    model: Any,
    metric: str | None = None,
    categorical: Sequence[int] | None = None,
    where: str = "neuralize",
    rows: Any = None,
) -> Network:
    """Return the network of a model; raise an error if the model provides only labels.

    ``rows`` are the rows that the model was fitted on, for models that keep only labels.
    """
    found = find_network(model, metric, () if categorical is None else categorical, where=where)
    if isinstance(found, OnlyLabels):
        return network_of_rule(found, rows, where)
    if rows is not None:
        raise InvalidInputError(
            f"{where}: rows applies only to models that give labels by a rule and do not keep their rows, "
            f"such as HDBSCAN; got {type(model).__name__}. Leave rows out."
        )
    return found


def network_of_rule(found: OnlyLabels, rows: Any, where: str) -> Network:
    """Return the network of a clustering that gives only labels; raise an error if no rule is known."""
    if found.rule is None:
        raise UnsupportedModelError(
            f"{where}: {found.kind} give the cluster of each row but no rule for other rows, so there is no "
            f"network. {found.obstacle}{' ' * bool(found.obstacle)}Explain them through a surrogate with "
            "wc.explain(labels, X), or neuralize the surrogate wc.Surrogate().fit(X, labels)."
        )
    if rows is None:
        network = found.network()
        if network is not None:
            return network
        raise UnsupportedModelError(
            f"{where}: the rule of {found.kind} requires the rows that the model was fitted on, which the "
            "model does not keep. Pass them: wc.neuralize(model, rows=X)."
        )
    fitted = found.fitted_rows(rows, where)
    network = None if fitted is None else found.network(fitted)
    if network is None:
        raise InvalidInputError(
            f"{where}: rows must be the {len(found.labels)} rows that the model was fitted on; got other "
            "rows."
        )
    return with_agreement(network, rows, found.labels, where)


def find_network(
    model: Any, metric: str | None, categorical: Sequence[int] | None, X: Any = None, *, where: str
) -> Network | OnlyLabels:
    """Return the network of a model, or its labels if it has no network.

    If the model does not record its categorical columns, they are those that the user passes or, by default,
    the non-numeric columns of X. ``where`` is the function that the user called, for messages.
    """
    found = adapt_model(model, metric, where)
    if isinstance(found, AwaitingColumns):
        return found.with_columns_of(X) if categorical is None else found.with_columns(categorical, where)
    if categorical:
        raise InvalidInputError(
            f"{where}: categorical applies only to KPrototypes, which does not record which columns are "
            f"categorical; got a model of type {type(model).__name__}. Leave categorical out."
        )
    return found


def adapt_model(
    model: Any, metric: str | None = None, where: str = "neuralize"
) -> Network | OnlyLabels | AwaitingColumns:
    """Return the result of a model's adapter: a network, labels, or a model that awaits its columns."""
    if isinstance(model, Network):
        if metric is not None:
            raise InvalidInputError(
                f"{where}: metric applies only to centroids, not to a Network. Leave it out."
            )
        return model
    if hasattr(model, "detach") and hasattr(model, "cpu"):  # a torch tensor
        model = model.detach().cpu().numpy()
    if type(model).__module__.startswith(DASK):  # centroids or labels that are not computed yet
        model = model.compute()
    load_adapters(model)
    found = adapt(model) if metric is None else from_centroids(model, metric, where)
    if isinstance(found, Network):
        found.model = model
    return found


def load_adapters(*models: Any) -> None:
    """Import the adapters for the classes of these models, or of the steps of a pipeline."""
    for cls in dict.fromkeys(cls for model in models for cls in type(model).__mro__):
        for package, module in _ADAPTERS.items():
            if f"{cls.__module__}.".startswith(f"{package}."):
                importlib.import_module(f"whycluster.{module}")


@functools.singledispatch
def adapt(model: Any) -> Network | OnlyLabels | AwaitingColumns:
    """Return the network of a model; adapters register the classes that they handle.

    A class without an adapter is treated as a nearest-centroid model if it has ``cluster_centers_`` and
    ``predict``; its predictions are checked on all data. If it has only ``labels_``, these are returned.

    Parameters
    ----------
    model : the fitted model
    """
    if isinstance(model, type):
        raise unsupported(model)
    if column_names(model, "neuralize", "centroids") is not None:
        return from_centroids(model)
    if has_value(model, "predict") and has_value(model, "cluster_centers_"):
        return from_centroids(model)
    if len(getattr(model, "shape", ())) == 1 or hasattr(model, "to_pylist"):
        return OnlyLabels(model, "labels")  # a series, a pyarrow column
    if has_value(model, "labels_"):
        return OnlyLabels(model.labels_, f"the labels of {type(model).__name__}")
    raise unsupported(model)


@adapt.register(np.ndarray)
@adapt.register(list)
@adapt.register(tuple)
@adapt.register(range)
def _array(model: Any) -> Network | OnlyLabels:
    return OnlyLabels(model, "labels") if n_dimensions(model) == 1 else from_centroids(model)


def check_fitted(*models: Any) -> None:
    """Raise an error unless all of these scikit-learn estimators have been fitted."""
    from sklearn import exceptions
    from sklearn.utils import validation

    model = None
    try:
        for model in models:
            validation.check_is_fitted(model)
    except exceptions.NotFittedError:
        raise NotFittedError(
            f"neuralize: the {type(model).__name__} must be fitted first. Call its fit method."
        ) from None


def names_of(model: Any) -> Any:
    """Return the column names that an estimator was fitted on, or None if it does not store them."""
    return getattr(model, "feature_names_in_", None)
