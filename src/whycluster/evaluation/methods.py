"""The registry of methods that explain cluster assignments, including the paper's method and baselines."""

from __future__ import annotations

import difflib
import importlib.util
import reprlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from whycluster.core import outputs
from whycluster.core.arrays import Floats
from whycluster.core.attribution import CodedQuery
from whycluster.core.errors import InvalidInputError, MissingDependencyError
from whycluster.data.table import ArrayTable
from whycluster.data.validation import check_integer
from whycluster.evaluation import samplers, shapley
from whycluster.evaluation.flipping import complete
from whycluster.evaluation.samplers import Sampler
from whycluster.evaluation.subject import Subject

_PERMUTATIONS = 100
_PDA_DRAWS = 10
_IG_STEPS = 10
_TREES = 100


@dataclass(frozen=True)
class Method:
    """An explanation method, where ``method(network, X)`` returns each feature's relevance for each row.

    Attributes
    ----------
    title : a short description
    needs : the part of the clustering that the method uses: "nothing", the "labels" of rows, or the
        "energies"
    relevance_of : returns the relevance of each feature for each row of a subject, given a random seed
    requires : the name of the package that the method needs, which is also the name of the extra that
        installs the package; "" if the method needs no package
    """

    title: str
    needs: str
    relevance_of: Callable[[Subject, int], Floats]
    requires: str = ""

    def __call__(self, network: Any, X: Any, *, background: Any = None, random_state: int = 0) -> Floats:
        """Return the relevance of each feature for each row, (n, d).

        Parameters
        ----------
        network : any model that `neuralize` accepts, or a function that returns the labels of rows
        X : (n, d) rows
        background : (m, d) the population that the method draws or learns from; by default, X
        random_state : random seed
        """
        check_integer(random_state, 0, "evaluation", "random_state")
        return self.explain(Subject(network, X, "evaluation", background), random_state)

    def explain(self, subject: Subject, random_state: int) -> Floats:
        """Return the relevance, given arguments that have been checked.

        Parameters
        ----------
        subject : the model and the rows, which have been checked
        random_state : random seed
        """
        if self.needs == "energies" and subject.network is None:
            raise InvalidInputError(
                f"{subject.where}: model must provide energies; a function of rows provides only labels. "
                "Pass the model itself (for a pipeline, pipeline[-1] with pipeline[:-1].transform(X))."
            )
        if self.requires and importlib.util.find_spec(self.requires) is None:
            raise MissingDependencyError(
                f'{subject.where}: "{self.title}" needs {self.requires}: pip install '
                f'"whycluster[{self.requires}]"'
            )
        return self.relevance_of(subject, random_state)


def named(name: Any, where: str) -> Method:
    """Return the method with this name."""
    if isinstance(name, Method):
        return name
    if isinstance(name, str) and name in METHODS:
        return METHODS[name]
    near = difflib.get_close_matches(str(name), METHODS, 1, 0.5) if isinstance(name, str) else []
    raise InvalidInputError(
        f"{where}: methods must be among {', '.join(map(repr, METHODS))}; got {reprlib.repr(name)}. "
        + (f"Did you mean {near[0]!r}?" if near else "Pass your own method as {name: relevance}.")
    )


def shapley_values(
    model: Any,
    X: Any,
    *,
    permutations: int | str = _PERMUTATIONS,
    background: Any = None,
    random_state: int = 0,
) -> Floats:
    """Compute Shapley values of the cluster assignment.

    The value of a set of features is the probability that the row stays in its cluster if all other features
    come from a random row of the population.

    Parameters
    ----------
    model : any model that `neuralize` accepts, or a function that returns the labels of rows
    X : (n, d) rows
    permutations : number of random orders of the features, half of which reverse the other half; or "exact"
        to use all sets of features (if there are at most 12) and every row of the population
    background : (m, d) the population; by default X
    random_state : random seed

    Returns
    -------
    (n, d) array
    """
    check_integer(random_state, 0, "shapley_values", "random_state")
    subject = Subject(model, X, "shapley_values", background)
    if isinstance(permutations, str) and permutations == "exact":
        return shapley.exact(subject)
    check_integer(permutations, 1, "shapley_values", "permutations", '"exact" or ')
    return shapley.sampled(subject, int(permutations), random_state)


def _random(subject: Subject, random_state: int) -> Floats:
    return np.random.default_rng([random_state, 1]).random(subject.rows.shape)


def _squared_features(subject: Subject, random_state: int) -> Floats:  # noqa: ARG001  # the signature of all methods
    return subject.rows**2


def _pda_zero(subject: Subject, random_state: int) -> Floats:
    return _without_each(subject, samplers.zero, random_state)


def _pda_kde(subject: Subject, random_state: int) -> Floats:
    return _without_each(subject, subject.density, random_state)


def _without_each(subject: Subject, sampler: Sampler, random_state: int) -> Floats:
    """Return, for each feature, the share of draws that move the row out of its cluster."""
    result = np.empty_like(subject.rows)

    def work(rows: slice, rng: np.random.Generator, step: Callable[[], None]) -> None:
        z = subject.rows[rows]
        for i in range(subject.n_features):
            known = np.ones(z.shape, dtype=bool)
            known[:, i] = False
            completed = complete(sampler, z, known, _PDA_DRAWS, rng)
            result[rows, i] = 1.0 - subject.stays(completed, subject.cluster[rows]).mean(axis=0)
            step()

    subject.in_blocks(work, "PDA", subject.n_features, _PDA_DRAWS, random_state)
    return result


def _gradient(subject: Subject, rows: Floats) -> Floats:
    """Return the gradient of f_c at each row; c is the cluster of the subject's row at the same position."""
    assert subject.network is not None
    query = CodedQuery(subject.cluster)
    return outputs.slopes(subject.network.energy, ArrayTable.of(rows), query)[1]


def _squared_gradient(subject: Subject, random_state: int) -> Floats:  # noqa: ARG001  # the signature of all methods
    return _gradient(subject, subject.rows) ** 2


def _integrated_gradients(subject: Subject, random_state: int) -> Floats:  # noqa: ARG001  # the signature of all methods
    """Return x times the mean gradient at the midpoints of ten equal steps from the origin to x."""
    total = np.zeros_like(subject.rows)
    for step in range(_IG_STEPS):
        total += _gradient(subject, subject.rows * ((step + 0.5) / _IG_STEPS))
    return total * subject.rows / _IG_STEPS


def _by_rule(subject: Subject, random_state: int, rule: str) -> Floats:  # noqa: ARG001  # the signature of all methods
    return subject.explain(rule).relevance


def _rule(rule: str) -> Callable[[Subject, int], Floats]:
    return partial(_by_rule, rule=rule)  # unlike a lambda, a partial can be pickled


def _shapley(subject: Subject, random_state: int) -> Floats:
    return shapley.sampled(subject, _PERMUTATIONS, random_state)


def _forest(subject: Subject, random_state: int) -> Floats:
    """Fit a random forest to the clusters and explain it with TreeSHAP."""
    import shap
    from sklearn.ensemble import RandomForestClassifier

    learned = subject.assign(subject.population)
    names = np.unique(learned)
    if len(names) < 2 or not np.isin(subject.cluster, names).all():
        raise InvalidInputError(
            f"{subject.where}: the population must contain rows of at least 2 clusters and of every cluster "
            "in X, so that a forest can learn the clusters. Pass background=all_rows."
        )
    largest = np.abs(subject.population).max()
    if largest > np.finfo(np.float32).max:
        raise InvalidInputError(
            f"{subject.where}: the population must have values that float32 can hold, so that a forest can "
            f"learn from them; the largest is {largest:.3g}. Scale the features."
        )
    seed = random_state % 2**32  # scikit-learn accepts no larger seeds
    forest = RandomForestClassifier(_TREES, random_state=seed).fit(subject.population, learned)
    values = shap.TreeExplainer(forest).shap_values(subject.rows)  # (n, d, clusters)
    column = np.searchsorted(names, subject.cluster)
    return np.asarray(np.asarray(values)[np.arange(subject.n_rows), :, column])


METHODS: dict[str, Method] = {
    "random": Method("random order", "nothing", _random),
    "squared features": Method("x^2", "nothing", _squared_features),
    "pda-zero": Method("prediction difference, zeros", "labels", _pda_zero),
    "pda-kde": Method("prediction difference, KDE", "labels", _pda_kde),
    "squared gradient": Method("squared gradient of the evidence", "energies", _squared_gradient),
    "ig-10": Method("integrated gradients from the origin, 10 steps", "energies", _integrated_gradients),
    "nearest centroid": Method("contrast with the nearest competitor (NCA)", "energies", _rule("contrast")),
    "neon path": Method("NEON, path rule (the default)", "energies", _rule("path")),
    "neon": Method("NEON, the paper's rule", "energies", _rule("min-take-most")),
    "neon joint": Method("NEON, joint rule", "energies", _rule("joint")),
    "neon sequential": Method("NEON, sequential rule", "energies", _rule("sequential")),
    "shapley": Method("Shapley values of the assignment, 100 permutations", "labels", _shapley),
    "forest": Method("random forest with TreeSHAP", "labels", _forest, requires="shap"),
}
"""All methods by name, from the simplest baseline to the most expensive."""
