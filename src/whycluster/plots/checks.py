"""Check the explanations that plots draw, and format the names of clusters in plots."""

from __future__ import annotations

from typing import Any, NoReturn

from numpy.typing import NDArray

from whycluster.core.errors import InvalidInputError
from whycluster.data.labels import Labels, cluster_name
from whycluster.explanations.base import BaseExplanation
from whycluster.explanations.summaries.summary import ClusterSummary
from whycluster.plots.style import cut, cut_all

_BY_FEATURES = "relevance for each feature"


def check(
    exp: Any, where: str, kind: type[BaseExplanation] = BaseExplanation, needs: str = _BY_FEATURES
) -> None:
    """Raise an error unless ``exp`` is an explanation of the kind that a plot can draw.

    Parameters
    ----------
    exp : the argument to check
    where : the plot, for messages
    kind : the class of explanations that the plot can draw
    needs : the property that such explanations share, for messages
    """
    if not isinstance(exp, BaseExplanation):
        raise InvalidInputError(
            f"{where}: exp must be an explanation, such as the result of explain(model, X); "
            f"got {type(exp).__name__}."
        )
    if not isinstance(exp, kind):
        refuse(exp, where, needs)


def refuse(exp: BaseExplanation, where: str, needs: str = _BY_FEATURES) -> NoReturn:
    """Raise an error that names the plots that can draw the explanation, since this plot cannot."""
    raise InvalidInputError(f"{where}: exp must have {needs}; {exp!r} has none. {exp.instead}".rstrip())


def code_of(exp: BaseExplanation, cluster: Any, where: str) -> int:
    """Return the code of a cluster label."""
    code = Labels(exp.labels).encode(cluster, where, "cluster")
    if code.ndim:
        raise InvalidInputError(f"{where}: cluster must be one label; got {cluster!r}.")
    return int(code)


def summary_of(exp: BaseExplanation, where: str) -> ClusterSummary:
    """Return the summary of an explanation; raise an error if no cluster has members."""
    summary = exp.summary()
    check_members(exp, where, "Draw single rows with plot.row(), or explain the rows")
    return summary


def check_members(exp: BaseExplanation, where: str, remedy: str) -> None:
    """Raise an error unless some rows are explained for the cluster they are in."""
    if not exp.is_member.any():
        raise InvalidInputError(
            f"{where}: exp must contain rows that are explained for the cluster they are in; it contains "
            f"none. {remedy} without target= and against=."
        )


def label_names(labels: NDArray[Any]) -> list[str]:
    """Return cluster labels as names along an axis."""
    return cut_all(labels.tolist())


def short_name(label: Any) -> str:
    """Return the name of a cluster as a title, such as "cluster 3" or "noise"."""
    return cluster_name(label, cut(str(label)))
