"""The way in: explain(model, X)."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from numpy.typing import NDArray

from whycluster import passes
from whycluster.explanation import Explanation
from whycluster.network import Network
from whycluster.neuralize import AwaitingColumns, OnlyLabels, look_into
from whycluster.propagate import DEFAULT_RULE
from whycluster.table import FrameTable, open_table


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
) -> Explanation:
    """Explain why each row is in its cluster.

    Parameters
    ----------
    model : a fitted clustering model, an array of centroids, or a `Network` made before;
        `neuralize` says which models
    X : (n, d) the rows to explain: a NumPy array, a SciPy sparse matrix, or a pandas, polars or pyarrow table
        of numbers and booleans. A frame is matched by name with the columns the model was fitted on.
    target : a cluster, or one per row. Explains why the row is in this cluster or, where it is not,
        why not: its contrast with the cluster that won. By default the cluster of each row.
    against : a cluster, or one per row. Explains why the row is in its cluster rather than in this one.
        A row of that cluster itself has nothing to explain: its evidence and relevance are 0.
    beta : the stiffness of the soft minimum over the competitors; "auto" is 1 / (mean evidence), Eq. 3,
        infinity lets the nearest competitor take all. Contrasts (`against`, "why not") need none.
    rule : "min-take-most" (the paper's), "joint" (one denominator for all competitors) or
        "contrast" (with the strongest competitor only)
    background : (m, d) the population that "auto" is measured on; by default X itself.
        Give it when explaining a few rows of a known table.
    feature_names : (d,) names for the columns of an array

    Returns
    -------
    Explanation

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
    found = look_into(model, metric)
    if isinstance(found, AwaitingColumns):
        found = found.seen(X) if categorical is None else found.told(categorical)
    if isinstance(found, OnlyLabels):
        # Each row is explained for the label it has, whether or not the surrogate would give it that.
        found, given = _fit_surrogate(found.labels, X, feature_names)
        target = given if target is None else target
    return found.explain(
        X,
        target=target,
        against=against,
        beta=beta,
        rule=rule,
        threshold=threshold,
        background=background,
        feature_names=feature_names,
    )


def _fit_surrogate(
    labels: Any, X: Any, feature_names: Sequence[Hashable] | None
) -> tuple[Network, NDArray[Any]]:
    """The network of a surrogate for these labels of these rows, and the labels by its names."""
    from whycluster.surrogate import Surrogate  # loads scikit-learn

    table = open_table(X, where="explain", feature_names=feature_names)
    surrogate = Surrogate().fit_rows(passes.to_finite_array(table), labels, "explain")
    return surrogate.network(table.feature_names if isinstance(table, FrameTable) else None), surrogate.given_
