"""Methods side by side: how faithful each is, and what it costs."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from whycluster import console
from whycluster.arrays import Floats
from whycluster.errors import InvalidInputError
from whycluster.estimators import check_whole
from whycluster.evaluation.flipping import Flipping, flip, open_sampler, read_relevance
from whycluster.evaluation.methods import METHODS, Method
from whycluster.evaluation.oracle import greedy
from whycluster.evaluation.subject import Subject
from whycluster.frames import build_frame

ORACLE = "greedy oracle"
RANDOM = "random"
_SMALL = 1 << 28  # rows times features squared: up to here the oracle is asked without being told to


@dataclass(frozen=True, eq=False, repr=False)
class Comparison:
    """Methods and their flipping curves, the best first; `print` it, or `to_frame`.

    Attributes
    ----------
    flipping : of each method its `Flipping`; the greedy oracle, where it was asked, is one of them
    seconds : of each method the time for its relevance
    left_out : methods that were not asked for by name and could not be had, and why
    """

    flipping: dict[str, Flipping]
    seconds: dict[str, float]
    left_out: dict[str, str]
    _random: Flipping
    _like: Any

    @property
    def methods(self) -> list[str]:
        """Their names, the best first."""
        return sorted(self.flipping, key=lambda name: -self.flipping[name].auc)

    def share(self, method: str) -> float:
        """How much of the way from a random order to the greedy oracle a method goes; NaN without one."""
        if ORACLE not in self.flipping:
            return float("nan")
        way = self.flipping[ORACLE].auc - self._random.auc
        return (self.flipping[method].auc - self._random.auc) / way if way > 0 else float("nan")

    def difference(self, method: str, other: str) -> tuple[float, float]:
        """By how much the AUC of one method exceeds another's, and the standard error, row by row."""
        gap = self.flipping[method].per_row - self.flipping[other].per_row
        return float(gap.mean()), float(gap.std(ddof=1) / np.sqrt(len(gap)))

    def to_frame(self, backend: str | None = None) -> Any:
        """One row per method: method, auc, standard_error, share, seconds."""
        names = self.methods
        columns: dict[Any, Any] = {
            "method": np.array(names),
            "auc": np.array([self.flipping[name].auc for name in names]),
            "standard_error": np.array([self.flipping[name].standard_error for name in names]),
            "share": np.array([self.share(name) for name in names]),
            "seconds": np.array([self.seconds[name] for name in names]),
        }
        return build_frame(columns, self._like, backend, "to_frame", same_rows=False)

    def __str__(self) -> str:
        rows = [
            [
                name,
                f"{self.flipping[name].auc:.2f}",
                f"{self.flipping[name].standard_error:.2f}",
                "" if np.isnan(self.share(name)) else f"{self.share(name):.0%}",
                f"{self.seconds[name]:.3g}",
            ]
            for name in self.methods
        ]
        table = console.table(["method", "AUC", "+-", "share", "seconds"], rows, "<>>>>")
        return "\n".join([table, *(f"left out: {name} ({why})" for name, why in self.left_out.items())])

    def __repr__(self) -> str:
        return f"<Comparison of {len(self.flipping)} methods, best: {self.methods[0]}>"


def compare(
    model: Any,
    X: Any,
    methods: Iterable[str] | Mapping[str, Any] | None = None,
    *,
    sampler: Any = "kde",
    repeats: int = 10,
    oracle: bool | str = "auto",
    random_state: int = 0,
) -> Comparison:
    """Compare ways to explain a clustering by the area under their flipping curves.

    Parameters
    ----------
    model : anything that `neuralize` takes, or a function that gives the labels of rows
    X : (n, d) rows
    methods : names from `METHODS`, or names of your own with, for each, a function ``method(model, X)`` or
        its (n, d) relevance; by default all of `METHODS` that the model and the installed packages allow
    sampler, repeats, random_state : as in `flipping_auc`; all methods see the same draws
    oracle : whether to ask the greedy oracle, the practical ceiling, whose cost grows with the square of the
        number of features; "auto" does where the data are small

    Returns
    -------
    Comparison
    """
    check_whole(repeats, 1, "compare", "repeats")
    check_whole(random_state, 0, "compare", "random_state")
    subject = Subject(model, X, "compare")
    chosen, left_out = _choose(methods, subject, model, X)
    drawer = open_sampler(sampler, subject)
    if oracle is True or (
        oracle == "auto" and subject.n_rows * subject.n_features**2 * subject.n_rows < _SMALL
    ):
        chosen[ORACLE] = lambda: greedy(subject, drawer, random_state + 1)
    elif oracle not in (False, "auto"):
        raise InvalidInputError(f'compare: oracle must be True, False or "auto"; got {oracle!r}.')

    def measure(relevance: Floats) -> Flipping:
        return flip(subject, relevance, drawer, repeats, random_state)

    flipping, seconds = {}, {}
    for name, explain in chosen.items():
        start = time.perf_counter()
        relevance = read_relevance(explain(), subject)
        seconds[name] = time.perf_counter() - start
        flipping[name] = measure(relevance)
    random = flipping.get(RANDOM) or measure(METHODS[RANDOM].of(subject, random_state))
    return Comparison(flipping, seconds, left_out, random, subject.table.native)


def _choose(
    methods: Iterable[str] | Mapping[str, Any] | None, subject: Subject, model: Any, X: Any
) -> tuple[dict[str, Callable[[], Any]], dict[str, str]]:
    """Of each method what gives its relevance; and what was left out, and why."""
    if methods is None:
        left_out = {name: why for name in METHODS if (why := _missing(name, METHODS[name], subject))}
        methods = [name for name in METHODS if name not in left_out]
    else:
        left_out = {}
    if isinstance(methods, str):
        methods = [methods]
    given = methods if isinstance(methods, Mapping) else {name: _named(name) for name in methods}
    if not given:
        raise InvalidInputError("compare: methods must have at least one method.")
    return {name: _relevance_of(given[name], subject, model, X) for name in given}, left_out


def _named(name: Any) -> Method:
    if not isinstance(name, str) or name not in METHODS:
        raise InvalidInputError(
            f"compare: methods must be among {', '.join(map(repr, METHODS))}; got {name!r}."
        )
    return METHODS[name]


def _relevance_of(method: Any, subject: Subject, model: Any, X: Any) -> Callable[[], Any]:
    if isinstance(method, Method):
        return lambda: method.of(subject, 0)
    return (lambda: method(model, X)) if callable(method) else (lambda: method)


def _missing(name: str, method: Method, subject: Subject) -> str:
    """Why a method cannot be had, or nothing."""
    if not method.suits(subject):
        return "it needs the energies of a model"
    if name == "forest" and importlib.util.find_spec("shap") is None:
        return 'it needs shap: pip install "whycluster[shap]"'
    return ""
