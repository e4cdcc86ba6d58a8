"""The way in: explain(model, X)."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whycluster.core.errors import InvalidInputError
from whycluster.core.rules import DEFAULT_RULE
from whycluster.data.arrays import is_dask, to_finite_array
from whycluster.data.mixed_table import RawTable
from whycluster.data.opening import column_names, open_table
from whycluster.data.table import Table
from whycluster.explanations.explanation import Explanation
from whycluster.models.adapters.registry import OnlyLabels, look_into
from whycluster.models.network import Network


def explain(
    model: Any,
    X: Any,
    *,
    target: Any = None,
    against: Any = None,
    beta: float | str = "auto",
    rule: str = DEFAULT_RULE,
    threshold: float | None = None,
    background: Any = None,
    feature_names: Sequence[Hashable] | None = None,
    metric: str | None = None,
    categorical: Sequence[int] | None = None,
    at: str | None = None,
    units: str | None = None,
) -> Explanation:
    """Explain why each row is in its cluster.

    Parameters
    ----------
    model : a fitted clustering model, the labels of a clustering (one for each row of X, -1 for noise), an
        array of centroids, or a `Network` made before; `neuralize` says which models. A pipeline is explained
        in the columns that it was given. Labels, and models that have only labels, are explained through a
        `Surrogate`, each row for the label it has.
    X : (n, d) the rows to explain: a NumPy array, a SciPy sparse matrix, or a pandas, polars or pyarrow table
        of numbers and booleans; for pipelines whatever these take, for labels frames with categories, dates
        and missing values too. A frame is matched by name with the columns the model was fitted on. For a
        pipeline that begins with a vectorizer, n documents: a list or a column of text. For a
        `whycluster.deep.DeepClustering` n inputs of its encoder, such as images: an array or a tensor. A
        Dask array or DataFrame is explained lazily, partition by partition.
    target : a cluster, or one per row. Explains why the row is in this cluster or, where it is not,
        why not: its contrast with the cluster that won (in a tree, with the pair that speaks most against
        it). By default the cluster of each row.
    against : a cluster, or one per row. Explains why the row is in its cluster rather than in this one.
        A row of that cluster itself has nothing to explain: its evidence and relevance are 0.
    beta : the stiffness of the soft minimum over the competitors; "auto" is 1 / (mean evidence), Eq. 3; for
        the sequential rule that of the model's own probabilities, or else four times as much; infinity lets
        the nearest competitor take all. Contrasts (`against`, "why not") need none.
    rule : "min-take-most" (the paper's), "joint" (one denominator for all competitors), "sequential"
        (features one after another, each by what it adds to those before it: the most faithful order, with
        fewer features, but it may jump where the order changes) or "contrast" (with the strongest competitor
        only)
    threshold : for models that give probabilities, such as mixtures: explains why the probability of the
        cluster exceeds this, or why it does not (Prop. 7), instead of why it is the largest
    background : (m, d) the population that "auto", and the sizes of clusters for the sequential rule, are
        measured on; by default X itself.
        Give it when explaining a few rows of a known table.
    feature_names : (d,) names for the columns of an array
    metric : for centroids, how near a row is to them: "euclidean", "manhattan", "cosine", "dot" or
        "student"; see `neuralize`
    categorical : for KPrototypes, the columns that it was fitted on as categories, in the order of its fit;
        by default those of X that hold no numbers
    at : for a `whycluster.deep.DeepClustering`, the name of a layer of its encoder: relevance is that of what
        the layer gives, in place of the encoder's inputs
    units : for a `whycluster.deep.DeepClustering`: "channels" sums relevance over all locations,
        "locations" over all channels

    Returns
    -------
    Explanation; for documents a `whycluster.text.TextExplanation`, for deep clusterings a
    `whycluster.deep.DeepExplanation`, or a `whycluster.deep.SpatialExplanation` if spatial; for Dask arrays
    and DataFrames a `whycluster.engines.dask.LazyExplanation`, of which nothing is computed yet

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
    options: dict[str, Any] = {
        "target": target,
        "against": against,
        "beta": beta,
        "rule": rule,
        "threshold": threshold,
        "background": background,
        "feature_names": feature_names,
        "at": at,
        "units": units,
    }
    if is_dask(X):
        from whycluster.engines.dask import explain_lazily

        lazily: Any = explain_lazily(model, X, metric=metric, categorical=categorical, **options)
        return lazily  # type: ignore[no-any-return]  # a LazyExplanation
    _check_labels(model, X)
    found = look_into(model, metric, categorical, X)
    if isinstance(found, OnlyLabels):
        if background is not None:
            raise InvalidInputError(
                "explain: background is for models; labels are explained through a surrogate that is "
                "fitted to all rows of X. For a few rows, explain(labels, X)[rows]; for new ones, "
                "wc.Surrogate().fit(X, labels)."
            )
        # Each row is explained for the label it has, whether or not the surrogate would give it that.
        found, given = fit_surrogate(found.labels, X, feature_names)
        options["target"] = given if target is None else target
    return found.explain(X, **options)


def fit_surrogate(
    labels: Any, X: Any, feature_names: Sequence[Hashable] | None = None
) -> tuple[Network, NDArray[Any]]:
    """The network of a surrogate for these labels of these rows, and the labels by its names."""
    from whycluster.clustering.surrogate import Surrogate  # loads scikit-learn

    names = column_names(X, "explain", "X")
    table = open_table(X, where="explain", feature_names=feature_names, any_kind=names is not None)
    if isinstance(table, RawTable) or (names is not None and table.has_missing()):
        return _fit_behind_encoder(labels, table)
    surrogate = Surrogate().fit_rows(to_finite_array(table), labels, "explain")
    return surrogate.network(names), surrogate.given_


def _fit_behind_encoder(labels: Any, table: Table) -> tuple[Network, NDArray[Any]]:
    """The same for a frame with categories, dates or missing values, which are encoded first."""
    from whycluster.clustering.surrogate import Surrogate
    from whycluster.pipelines.network import network_behind
    from whycluster.pipelines.tabular import encode

    columns, rows = encode(table.native, "explain")
    surrogate = Surrogate().fit_rows(np.ascontiguousarray(rows), labels, "explain")
    names = table.feature_names if all(isinstance(name, str) for name in table.feature_names) else None
    network = network_behind([("columns", columns)], surrogate.network(None), table.n_features, names)
    return network, surrogate.given_


def _check_labels(model: Any, X: Any) -> None:
    """Raise for labels that would be misread: as centroids, or in another order than the rows."""
    shape, of_rows = list(getattr(model, "shape", ())), list(getattr(X, "shape", ()))
    if len(of_rows) == 2 and shape == [of_rows[0], 1] and of_rows[1] > 1:
        raise InvalidInputError(
            f"explain: model must be a model or centroids; got shape {tuple(shape)}, one column with a "
            f"value for each row of X. If these are labels, give the column itself, one-dimensional."
        )
    given: Any = getattr(model, "index", None)
    rows: Any = getattr(X, "index", None)
    if not (hasattr(given, "equals") and hasattr(rows, "equals")) or given.equals(rows):
        return
    if len(given) == len(rows) and set(given) == set(rows):
        raise InvalidInputError(
            "explain: labels and X must be in the same order; their indexes are the same in another order. "
            "Give labels.loc[X.index]."
        )
