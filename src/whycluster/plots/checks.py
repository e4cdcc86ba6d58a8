"""Checks of the explanations that plots draw, and the names of clusters in plots."""

from __future__ import annotations

from typing import Any, NoReturn

from numpy.typing import NDArray

from whycluster.core.errors import InvalidInputError
from whycluster.data.labels import Labels, cluster_name
from whycluster.explanations.base import BaseExplanation
from whycluster.explanations.summary import ClusterSummary
from whycluster.plots.style import cut, cut_all

_BY_FEATURES = "relevance by features"


def check(
    exp: Any, where: str, kind: type[BaseExplanation] = BaseExplanation, needs: str = _BY_FEATURES
) -> None:
    """Raise unless ``exp`` is an explanation of the kind that a plot draws.

    Parameters
    ----------
    exp : the argument to check
    where : the plot, for messages
    kind : the class of explanations that the plot can draw
    needs : the property that such explanations have, for messages
    """
    if not isinstance(exp, BaseExplanation):
        raise InvalidInputError(
            f"{where}: exp must be an explanation, such as the result of explain(model, X); "
            f"got {type(exp).__name__}."
        )
    if not isinstance(exp, kind):
        refuse(exp, where, needs)


def refuse(exp: BaseExplanation, where: str, needs: str = _BY_FEATURES) -> NoReturn:
    """Raise because this plot cannot draw the explanation, and name plots that can."""
    raise InvalidInputError(f"{where}: exp must have {needs}; {exp!r} has none. {exp.instead}".rstrip())


def code_of(exp: BaseExplanation, cluster: Any, where: str) -> int:
    """Return the code of a cluster label."""
    code = Labels(exp.labels).encode(cluster, where, "cluster")
    if code.ndim:
        raise InvalidInputError(f"{where}: cluster must be one label; got {cluster!r}.")
    return int(code)


def summary_of(exp: BaseExplanation, where: str) -> ClusterSummary:
    """Return the summary of an explanation; raise if no cluster has members."""
    summary = exp.summary()
    if not len(summary.clusters):
        raise InvalidInputError(
            f"{where}: exp must have rows that are explained for the cluster they are in; it has none. "
            f"Draw single rows with plot.row(), or explain without target and against."
        )
    return summary


def label_names(labels: NDArray[Any]) -> list[str]:
    """Return cluster labels as names along an axis."""
    return cut_all(labels.tolist())


def short_name(label: Any) -> str:
    """Return a cluster as a title: "cluster 3" or "noise"."""
    return cluster_name(label, cut(str(label)))
