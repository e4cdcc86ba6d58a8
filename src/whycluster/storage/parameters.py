"""What each energy is made of: the arrays and numbers that it is made with, and what these may be.

An energy that is made again of the same parameters computes the same, bit by bit: all else it has, it derives
from them, and it keeps them in C order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from whycluster.core.energies.additive import ManhattanEnergy, MixedEnergy
from whycluster.core.energies.gaussian import DiagonalGaussianEnergy, GaussianEnergy
from whycluster.core.energies.kernel import FloorEnergy, KernelEnergy
from whycluster.core.energies.linear import CosineEnergy, LinearEnergy
from whycluster.core.energies.squared import SquaredEnergy
from whycluster.core.energies.student import StudentEnergy
from whycluster.core.energies.tree import TreeEnergy
from whycluster.core.tree import Tree


class Values(NamedTuple):
    """Which values an array may have: in words, and as a test of each."""

    text: str
    are: Callable[[NDArray[Any]], Any]


ANY = Values("numbers", np.isreal)
FINITE = Values("finite numbers", np.isfinite)
POSITIVE = Values("finite numbers above 0", lambda a: np.isfinite(a) & (a > 0))
NOT_NEGATIVE = Values("finite numbers from 0 on", lambda a: np.isfinite(a) & (a >= 0))
STIFFNESS = Values("above 0", lambda a: a > 0)  # infinite for a hard minimum
SHARE = Values("from 0 to 1", lambda a: (a >= 0) & (a <= 1))
LOGS = Values("logarithms of weights", lambda a: a < np.inf)  # of no weight, -inf
COUNTS = Values("whole numbers from 1 on", lambda a: a >= 1)


@dataclass(frozen=True)
class Parameter:
    """An array, or a number, that is a parameter of an energy.

    Attributes
    ----------
    path : where an energy has it
    axes : a letter for each axis, such as "Kd"; the same letter is the same length. None for a number
    dtype : the one that it is kept in
    values : what these may be
    optional : it may be None
    """

    path: str
    axes: str = ""
    dtype: str = "float64"
    values: Values = FINITE
    optional: bool = False


@dataclass(frozen=True)
class Part:
    """A parameter that is itself made of parameters."""

    path: str
    kind: type


def _all_well(_: dict[str, Any]) -> str | None:
    return None


@dataclass(frozen=True)
class Recipe:
    """The parameters by the names that a class takes them by, and what is wrong between them, if anything."""

    parameters: dict[str, Parameter | Part]
    fault: Callable[[dict[str, Any]], str | None] = _all_well


def _unit_fault(made: dict[str, Any]) -> str | None:
    """Every support vector is of one cluster."""
    n_units = len(made["support"])
    # Each is looked at first: a sum of large numbers may come around to the right one.
    if (made["sizes"] > n_units).any() or made["sizes"].sum() != n_units:
        return f"sizes must add up to the {n_units} support vectors"
    return None


def _root_fault(made: dict[str, Any]) -> str | None:
    """One root for each component, or one for all, with determinants that have logarithms."""
    means, roots = made["means"], made["roots"]
    if len(roots) not in (1, len(means)):
        return f"roots must be 1 or {len(means)}; there are {len(roots)}"
    if made.get("log_det") is None and not (np.einsum("kii->ki", roots) > 0).all():
        return "roots must have diagonals above 0"
    return None


def _tree_fault(made: dict[str, Any]) -> str | None:
    """Each pair but the first is below one node of a pair before it, and each cluster is one leaf."""
    below, leaf = made["below"], made["leaf"]
    inner = np.flatnonzero(leaf < 0)
    n_pairs, odd = divmod(len(below), 2)
    pairs, clusters = np.sort(below[inner]), np.sort(leaf[leaf >= 0])
    if odd or not np.array_equal(clusters, np.arange(n_pairs + 1)):
        return "each cluster must be one leaf of the tree"
    if not np.array_equal(pairs, np.arange(1, n_pairs)) or not (below[inner] > inner // 2).all():
        return "each pair of the tree must be below one node before it"
    return None if (below[leaf >= 0] == -1).all() else "nothing must be below a leaf of the tree"


_PROTOTYPES = Parameter("prototypes", "Kd")
_LOG_WEIGHTS = Parameter("log_weights", "K")

RECIPES: dict[type, Recipe] = {
    SquaredEnergy: Recipe(
        {
            "centroids": _PROTOTYPES,
            "scale": Parameter("scale", "d", values=NOT_NEGATIVE),
            "near": Parameter("near", values=SHARE),
            "groups": Parameter("groups", "K", "int64", ANY, optional=True),
        }
    ),
    ManhattanEnergy: Recipe({"prototypes": _PROTOTYPES}),
    MixedEnergy: Recipe(
        {
            "prototypes": _PROTOTYPES,
            "categorical": Parameter("categorical", "d", "bool", ANY),
            "gamma": Parameter("gamma"),
        }
    ),
    DiagonalGaussianEnergy: Recipe(
        {
            "means": _PROTOTYPES,
            "precisions": Parameter("precisions", "Kd", values=POSITIVE),
            "log_weights": _LOG_WEIGHTS,
        }
    ),
    GaussianEnergy: Recipe(
        {
            "means": Parameter("centers", "Kd"),
            "roots": Parameter("roots", "rdd"),
            "log_weights": _LOG_WEIGHTS,
            "log_det": Parameter("log_det", "K", optional=True),
        },
        _root_fault,
    ),
    LinearEnergy: Recipe({"directions": Parameter("directions", "Kd"), "bias": Parameter("bias", "K")}),
    CosineEnergy: Recipe({"directions": Parameter("centroids", "Kd")}),
    StudentEnergy: Recipe(
        {"centers": Parameter("squares.prototypes", "Kd"), "alpha": Parameter("alpha", values=POSITIVE)}
    ),
    KernelEnergy: Recipe(
        {
            "support": Parameter("units.prototypes", "Pd"),
            "sizes": Parameter("sizes", "K", "int64", COUNTS),
            "gamma": Parameter("gamma", values=STIFFNESS),
            "log_weights": Parameter("log_weights", "P", values=LOGS),
            "scale": Parameter("units.scale", "d", values=NOT_NEGATIVE),
        },
        _unit_fault,
    ),
    FloorEnergy: Recipe(
        {
            "clusters": Part("clusters", KernelEnergy),
            "floor": Parameter("floor"),
            "split": Parameter("split", "d"),
        }
    ),
    TreeEnergy: Recipe({"tree": Part("tree", Tree), "centers": Parameter("nodes.prototypes", "Nd")}),
    Tree: Recipe(
        {"below": Parameter("below", "N", "int64", ANY), "leaf": Parameter("leaf", "N", "int64", ANY)},
        _tree_fault,
    ),
}
"""Of every energy that a model gives by itself, and of what it is made of."""
