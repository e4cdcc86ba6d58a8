"""The two functions most people need: `explain` and `neuralize`."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from whycluster.core.errors import InvalidInputError
from whycluster.data.arrays import DASK
from whycluster.explanations.explanation import Explanation
from whycluster.models.adapters.incomplete import OnlyLabels
from whycluster.models.adapters.labels import with_chosen_rule
from whycluster.models.adapters.registry import find_network, network_of_rule, to_network
from whycluster.models.network import Network, Query, QueryOptions

if TYPE_CHECKING:
    from typing_extensions import Unpack


def explain(
    model: Any,
    X: Any,
    *,
    feature_names: Sequence[Hashable] | None = None,
    metric: str | None = None,
    categorical: Sequence[int] | None = None,
    encoder: Any = None,
    at: str | None = None,
    units: str | None = None,
    noise: bool = True,
    graph: Any = None,
    method: str | None = None,
    **query: Unpack[QueryOptions],
) -> Explanation:
    """Explain why each row is in its cluster.

    Parameters
    ----------
    model : a fitted clustering model, the labels of a clustering (one for each row of X, -1 for noise), an
        array of centroids, or a `Network`. The command ``whycluster models`` lists the supported models. A
        pipeline is explained in terms of the columns it was fitted on. Labels, and models that provide only
        labels, are explained through a `Surrogate`; each row is explained for its own label.
    X : (n, d) the rows to explain: a NumPy array, a SciPy sparse matrix, or a pandas, polars or pyarrow table
        of numbers and booleans. Pipelines take whatever they were fitted on; with labels, frames may also
        hold categories, dates and missing values. The columns of a frame are matched by name with those the
        model was fitted on. For a pipeline that begins with a vectorizer, X holds n documents: a list or a
        column of text. For a `whycluster.deep.DeepClustering`, X holds n inputs of the encoder, such as
        images: an array or a tensor. A Dask array or DataFrame is explained lazily, one partition at a time.
    feature_names : (d,) names for the columns of an array
    metric : for centroids, the distance to them: "euclidean", "manhattan", "cosine", "dot", "student" or
        "fuzzy"; see `neuralize`
    categorical : for KPrototypes, the columns that were fitted as categories, in the order in which they were
        passed to ``fit``; by default the non-numeric columns of X
    encoder : if X holds documents, but ``model`` is labels or a model of their embeddings, the
        `whycluster.text.Sentences` that made these embeddings
    at : for a `whycluster.deep.DeepClustering`, the name of a layer of the encoder whose outputs are
        explained instead of the inputs
    units : for a `whycluster.deep.DeepClustering`: "channels" sums relevance over all locations,
        "locations" over all channels
    noise : for clusterings with noise, such as DBSCAN, whether noise competes with the clusters. If not,
        clusters compete only with each other, and a row that is noise is explained for its nearest cluster.
    graph : for labels that are communities of a graph of the rows, such as those of Leiden and Louvain, the
        weights of this graph, (n, n), or a `whycluster.Graph`, which also holds the resolution. Rows are then
        explained by the votes of their neighbors in the graph.
    method : for labels, and for models that provide only labels: "surrogate" fits a `Surrogate` even if
        the labels follow a known rule, and "neighbors" lets the five nearest other rows vote. By default, the
        rule is used if one is known, otherwise a surrogate.
    query : the options of `whycluster.Query`, which describes them in full: ``target``, the cluster to
        explain (by default the row's own); ``against``, a single competitor (by default all); ``rule`` and
        ``beta``, how the evidence is shared among the competitors; ``threshold``, to explain a probability;
        and ``background``, the rows on which beta and the cluster sizes are measured

    Returns
    -------
    Explanation, or for documents a `whycluster.text.TextExplanation`, for deep clusterings a
    `whycluster.deep.DeepExplanation` or a `whycluster.deep.SpatialExplanation`, and for Dask collections a
    `whycluster.engines.dask.LazyExplanation`, which computes nothing until results are requested

    Examples
    --------
    >>> import whycluster as wc
    >>> exp = wc.explain([[0.0, 0.0], [4.0, 0.0]], [[1.0, 5.0], [3.5, 5.0]])
    >>> exp.cluster
    array([0, 1])
    >>> exp.relevance
    array([[ 8.,  0.],
           [12.,  0.]])
    >>> exp.evidence
    array([ 8., 12.])
    """
    if type(X).__module__.startswith(DASK):
        from whycluster.engines.dask.engine import check_options, explain_lazily

        check_options(encoder, at, units, graph, method)
        lazy: Any = explain_lazily(
            model if noise else to_network(model).without_noise(),
            X,
            Query(**query),
            feature_names=feature_names,
            metric=metric,
            categorical=categorical,
        )
        return lazy  # type: ignore[no-any-return]  # a LazyExplanation
    _check_labels(model, X)
    found = find_network(model, metric, categorical, X, where="explain")
    if encoder is not None and not isinstance(found, OnlyLabels):
        from whycluster.text.labels import network_of_documents

        found = network_of_documents(encoder, found)
    if graph is not None or method is not None:
        found = with_chosen_rule(found, graph, method, "explain")
    if isinstance(found, OnlyLabels):
        _check_no_background(query.get("background"))
        # Each row is explained for its own label, even if the network would assign another.
        found, given = _fit(found, X, encoder, feature_names)
        if query.get("target") is None and given is not None:
            query["target"] = given if noise else _without_noise(found.without_noise(), X, given)
    if not noise:
        found = found.without_noise()
    return found.explain(X, feature_names=feature_names, at=at, units=units, **query)


def neuralize(
    model: Any,
    *,
    metric: str | None = None,
    categorical: Sequence[int] | None = None,
    rows: Any = None,
    graph: Any = None,
    method: str | None = None,
) -> Network:
    """Rewrite a fitted clustering model as a neural network that assigns every row as the model does.

    Parameters
    ----------
    model : a fitted clustering model, or its centroids as an array or data frame of shape (K, d), which
        become the clusters 0..K-1. The command ``whycluster models`` lists the supported models.
    metric : for centroids, and for models of unknown classes that have centroids, the distance to them:
        "euclidean" (the default), "manhattan", "cosine" (spherical k-means), "dot" (a soft head, whose
        probabilities are the softmax of the products), "student" (the head of DEC and IDEC, whose
        probabilities are those of Student's t-distribution) or "fuzzy" (fuzzy c-means with m = 2, whose
        probabilities are the memberships)
    categorical : for KPrototypes, the columns that were fitted as categories, in the order in which they were
        passed to ``fit``
    rows : for models that give labels by a rule but keep no rows, such as scikit-learn's HDBSCAN, the rows
        that the model was fitted on
    graph, method : for labels, how they follow from the rows, as for `explain`. Pass the rows as well:
        ``neuralize(labels, graph=graph, rows=X)``.

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
    if graph is None and method is None:
        return to_network(model, metric, categorical, rows=rows)
    found = find_network(model, metric, () if categorical is None else categorical, where="neuralize")
    return network_of_rule(with_chosen_rule(found, graph, method, "neuralize"), rows, "neuralize")


def _without_noise(network: Network, X: Any, labels: NDArray[Any]) -> NDArray[Any]:
    """Return the label of each row, or its nearest cluster if it is noise."""
    return np.where(network.codes.find(labels) >= 0, labels, network.assign(X))


def _check_no_background(background: Any) -> None:
    if background is not None:
        raise InvalidInputError(
            "explain: background applies only to models; labels are explained through a surrogate that "
            "is fitted to all rows of X. To explain a few rows, use explain(labels, X)[rows]; to explain "
            "new rows, use wc.Surrogate().fit(X, labels)."
        )


def _fit(
    found: OnlyLabels, X: Any, encoder: Any, feature_names: Sequence[Hashable] | None
) -> tuple[Network, Any]:
    """Fit a surrogate to labels of rows, or of documents if there is an encoder."""
    encoder = found.encoder if encoder is None else encoder
    if encoder is None:
        from whycluster.clustering.labels import network_of_labels  # loads scikit-learn

        return network_of_labels(found, X, feature_names)
    from whycluster.text.labels import fit_to_documents

    return fit_to_documents(found.labels, X, encoder)


def _check_labels(model: Any, X: Any) -> None:
    """Raise an error for labels that would be misread as centroids or are not in the order of the rows."""
    shape, of_rows = list(getattr(model, "shape", ())), list(getattr(X, "shape", ()))
    if len(of_rows) == 2 and shape == [of_rows[0], 1] and of_rows[1] > 1:
        raise InvalidInputError(
            f"explain: model must be a model or centroids; got an array of shape {tuple(shape)}, with "
            f"one value for each row of X. If these are labels, pass them as a one-dimensional column."
        )
    given: Any = getattr(model, "index", None)
    rows: Any = getattr(X, "index", None)
    if not (hasattr(given, "equals") and hasattr(rows, "equals")) or given.equals(rows):
        return
    if len(given) == len(rows) and set(given) == set(rows):
        raise InvalidInputError(
            "explain: labels and X must be in the same order; their indexes hold the same values in a "
            "different order. Pass labels.loc[X.index]."
        )
