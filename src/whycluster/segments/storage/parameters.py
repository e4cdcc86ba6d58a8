"""The parameters of each energy that are stored in files, and the values that they may have.

An energy that is reconstructed from these parameters computes bit-identical results, since it derives all its
other attributes from them and stores its arrays in C order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from whycluster.core.energies.kernel import KernelEnergy
from whycluster.core.energies.linear import LinearEnergy
from whycluster.core.energies.squared import SquaredEnergy
from whycluster.models.energies import (
    AlignmentEnergy,
    BernoulliEnergy,
    CommunityEnergy,
    CosineEnergy,
    DiagonalGaussianEnergy,
    DirichletTopicsEnergy,
    FactorEnergy,
    FloorEnergy,
    GaussianEnergy,
    ManhattanEnergy,
    MixedEnergy,
    NeighborEnergy,
    PredictionEnergy,
    SpectralEnergy,
    StudentEnergy,
    Tree,
    TreeEnergy,
    ZeroReferenceEnergy,
)
from whycluster.models.energies.search import METRICS
from whycluster.models.energies.votes import HEADS


class Values(NamedTuple):
    """The values that an array may have, as a description and as a test that each value must pass."""

    text: str
    are: Callable[[NDArray[Any]], Any]


ANY = Values("numbers", np.isreal)
FINITE = Values("finite numbers", np.isfinite)
POSITIVE = Values("finite numbers above 0", lambda a: np.isfinite(a) & (a > 0))
NOT_NEGATIVE = Values("finite numbers of at least 0", lambda a: np.isfinite(a) & (a >= 0))
NOT_ZERO = Values("finite numbers other than 0", lambda a: np.isfinite(a) & (a != 0))
STIFFNESS = Values("above 0", lambda a: a > 0)  # infinity stands for a hard minimum
SHARE = Values("from 0 to 1", lambda a: (a >= 0) & (a <= 1))
LOGS = Values("logarithms of weights", lambda a: a < np.inf)  # -inf stands for weight 0
COUNTS = Values("integers of at least 1", lambda a: a >= 1)


@dataclass(frozen=True)
class Parameter:
    """A parameter of an energy, which is an array or a number.

    Attributes
    ----------
    path : the attribute of the energy, possibly dotted
    axes : a letter for each axis, such as "Kd", where equal letters mean equal lengths; empty for a number
    dtype : the dtype in the file
    values : the values that the parameter may have
    optional : whether it may be None
    choices : for text, the possible values; the file contains the position in this list. Empty for numbers.
    """

    path: str
    axes: str = ""
    dtype: str = "float64"
    values: Values = FINITE
    optional: bool = False
    choices: tuple[str, ...] = ()


@dataclass(frozen=True)
class NestedParameter:
    """A parameter that has parameters itself.

    Attributes
    ----------
    path : the attribute of the energy
    kind : the class of the attribute's value
    """

    path: str
    kind: type


def _no_error(_: dict[str, Any]) -> str | None:
    return None


@dataclass(frozen=True)
class ParameterSet:
    """The parameters of a class.

    Attributes
    ----------
    parameters : the parameters by the names of the constructor's arguments
    error : a function that describes the problem with a combination of values, or returns None if there is no
        problem
    """

    parameters: dict[str, Parameter | NestedParameter]
    error: Callable[[dict[str, Any]], str | None] = _no_error


def _unit_error(values: dict[str, Any]) -> str | None:
    """Check that every support vector belongs to one cluster."""
    n_units = len(values["support"])
    # Check each size first, since a sum of huge sizes may overflow to the right number.
    if (values["sizes"] > n_units).any() or values["sizes"].sum() != n_units:
        return f"sizes must add up to {n_units}, the number of support vectors"
    return None


def _member_error(values: dict[str, Any]) -> str | None:
    """Check that every member belongs to one cluster."""
    n_members = len(values["members"])
    if (values["sizes"] > n_members).any() or values["sizes"].sum() != n_members:
        return f"sizes must add up to {n_members}, the number of members"
    return None


def _core_error(values: dict[str, Any]) -> str | None:
    """Check that every training row has a core distance, and that there is noise."""
    n_rows = len(values["trained"].everyone)
    if len(values["cores"]) != n_rows or values["trained"].floor is None:
        return f"there must be noise and {n_rows} core distances, one per training row"
    return None


def _root_error(values: dict[str, Any]) -> str | None:
    """Check that there is one root per component or one for all, with deviations and a determinant."""
    means, roots = values["means"], values["roots"]
    if len(roots) not in (1, len(means)):
        return f"there must be 1 or {len(means)} roots; got {len(roots)}"
    if len(values["deviations"]) != len(roots):
        return f"there must be {len(roots)} rows of deviations, one per root; got {len(values['deviations'])}"
    if values.get("log_det") is None and not (np.einsum("kii->ki", roots) > 0).all():
        return "roots must have diagonals above 0"
    return None


def _tree_error(values: dict[str, Any]) -> str | None:
    """Check that each pair except the first is below an earlier pair's node, and each cluster is a leaf."""
    below, leaf = values["below"], values["leaf"]
    inner = np.flatnonzero(leaf < 0)
    n_pairs, odd = divmod(len(below), 2)
    pairs, clusters = np.sort(below[inner]), np.sort(leaf[leaf >= 0])
    if odd or not np.array_equal(clusters, np.arange(n_pairs + 1)):
        return "each cluster must be one leaf of the tree"
    if not np.array_equal(pairs, np.arange(1, n_pairs)) or not (below[inner] > inner // 2).all():
        return "each pair of the tree must be below one node of an earlier pair"
    return None if (below[leaf >= 0] == -1).all() else "a leaf of the tree must have nothing below it"


def _choice(choices: tuple[str, ...]) -> Values:
    return Values(f"from 0 to {len(choices) - 1}", lambda a: (a >= 0) & (a < len(choices)))


_PROTOTYPES = Parameter("prototypes", "Kd")
_LOG_WEIGHTS = Parameter("log_weights", "K")

PARAMETERS: dict[type, ParameterSet] = {
    SquaredEnergy: ParameterSet(
        {
            "centroids": _PROTOTYPES,
            "scale": Parameter("scale", "d", values=NOT_NEGATIVE),
            "near": Parameter("near", values=SHARE),
            "groups": Parameter("groups", "K", "int64", ANY, optional=True),
        }
    ),
    ZeroReferenceEnergy: ParameterSet(
        {
            "centroids": Parameter("squares.prototypes", "Kd"),
            "scale": Parameter("squares.scale", "d", values=NOT_NEGATIVE),
        }
    ),
    ManhattanEnergy: ParameterSet({"prototypes": _PROTOTYPES}),
    MixedEnergy: ParameterSet(
        {
            "prototypes": _PROTOTYPES,
            "categorical": Parameter("categorical", "d", "bool", ANY),
            "gamma": Parameter("gamma"),
        }
    ),
    DiagonalGaussianEnergy: ParameterSet(
        {
            "means": _PROTOTYPES,
            "precisions": Parameter("precisions", "Kd", values=POSITIVE),
            "log_weights": _LOG_WEIGHTS,
        }
    ),
    AlignmentEnergy: ParameterSet(
        {
            "centers": Parameter("centers", "Ksc"),
            "n_steps": Parameter("n_steps", "", "int64", COUNTS),
            "gamma": Parameter("gamma", values=NOT_NEGATIVE),
        }
    ),
    DirichletTopicsEnergy: ParameterSet(
        {
            "topics": Parameter("topics", "Kd", values=NOT_NEGATIVE),
            "prior": Parameter("prior", values=NOT_NEGATIVE),
            "n_iterations": Parameter("n_iterations", "", "int64", COUNTS),
            "tolerance": Parameter("tolerance", values=NOT_NEGATIVE),
        }
    ),
    FactorEnergy: ParameterSet({"components": Parameter("components", "Kd")}),
    BernoulliEnergy: ParameterSet(
        {"probabilities": Parameter("prototypes", "Kd", values=SHARE), "log_weights": _LOG_WEIGHTS}
    ),
    GaussianEnergy: ParameterSet(
        {
            "means": Parameter("centers", "Kd"),
            "roots": Parameter("roots", "rdd"),
            "log_weights": _LOG_WEIGHTS,
            "log_det": Parameter("log_det", "K", optional=True),  # half the log determinant, log det(S_k) / 2
            "deviations": Parameter("deviations", "sd", values=NOT_NEGATIVE),
        },
        _root_error,
    ),
    LinearEnergy: ParameterSet(
        {
            "directions": Parameter("directions", "Kd"),
            "bias": Parameter("bias", "K"),
            "gives_probabilities": Parameter("gives_probabilities", "", "bool", ANY, optional=True),
        }
    ),
    CosineEnergy: ParameterSet({"directions": Parameter("centroids", "Kd")}),
    StudentEnergy: ParameterSet(
        {
            "centers": Parameter("squares.prototypes", "Kd"),
            "alpha": Parameter("alpha", values=POSITIVE),
            "power": Parameter("power", values=POSITIVE),
        }
    ),
    KernelEnergy: ParameterSet(
        {
            "support": Parameter("units.prototypes", "Pd"),
            "sizes": Parameter("sizes", "K", "int64", COUNTS),
            "gamma": Parameter("gamma", values=STIFFNESS),
            "log_weights": Parameter("log_weights", "P", values=LOGS),
            "scale": Parameter("units.scale", "d", values=NOT_NEGATIVE),
        },
        _unit_error,
    ),
    FloorEnergy: ParameterSet(
        {
            "clusters": NestedParameter("clusters", KernelEnergy),
            "floor": Parameter("floor"),
            "split": Parameter("split", "d"),
        }
    ),
    NeighborEnergy: ParameterSet(
        {
            "members": Parameter("members", "Pd"),
            "sizes": Parameter("sizes", "C", "int64", COUNTS),
            "metric": Parameter("metric", "", "int64", _choice(tuple(METRICS)), choices=tuple(METRICS)),
            "n_neighbors": Parameter("n_neighbors", "", "int64", NOT_NEGATIVE),
            "bias": Parameter("bias", "C"),
            "floor": Parameter("floor", optional=True),
            "cores": Parameter("cores", "P", values=NOT_NEGATIVE, optional=True),
            "others": Parameter("others", "Od", optional=True),
            "votes": Parameter("votes", "", "bool", ANY),
            "leaves_out": Parameter("leaves_out", "", "bool", ANY),
            "shares": Parameter("shares", "d", values=NOT_NEGATIVE, optional=True),
        },
        _member_error,
    ),
    PredictionEnergy: ParameterSet(
        {
            "trained": NestedParameter("trained", NeighborEnergy),
            "cores": Parameter("cores", "T", values=NOT_NEGATIVE),
            "n_neighbors": Parameter("n_neighbors", "", "int64", COUNTS),
        },
        _core_error,
    ),
    CommunityEnergy: ParameterSet(
        {
            "members": Parameter("members", "Pd"),
            "sizes": Parameter("sizes", "C", "int64", COUNTS),
            "known": Parameter("known", "PC"),
            "penalty": Parameter("penalty", "C"),
            "n_neighbors": Parameter("n_neighbors", "", "int64", COUNTS),
            "fades": Parameter("fades", "", "bool", ANY),
        },
        _member_error,
    ),
    SpectralEnergy: ParameterSet(
        {
            "members": Parameter("members", "Pd"),
            "sizes": Parameter("sizes", "C", "int64", COUNTS),
            "known": Parameter("known", "Pm"),
            "eigenvalues": Parameter("eigenvalues", "m", values=NOT_ZERO),
            "centers": Parameter("centers", "Cm"),
            "head": Parameter("head", "", "int64", _choice(HEADS), choices=HEADS),
            "n_neighbors": Parameter("n_neighbors", "", "int64", COUNTS),
            "gamma": Parameter("gamma", values=POSITIVE, optional=True),
        },
        _member_error,
    ),
    TreeEnergy: ParameterSet(
        {"tree": NestedParameter("contest", Tree), "centers": Parameter("nodes.prototypes", "Nd")}
    ),
    Tree: ParameterSet(
        {"below": Parameter("below", "N", "int64", ANY), "leaf": Parameter("leaf", "N", "int64", ANY)},
        _tree_error,
    ),
}
"""The parameters of all energies that can be saved, and of their nested parameters."""
