"""`compare` measures how faithful several methods are and how long they take."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from whycluster.core.errors import InvalidInputError, WhyClusterError
from whycluster.data import display
from whycluster.data.frames import build_frame
from whycluster.data.validation import check_integer
from whycluster.evaluation.flipping import Flipping, flip, open_sampler, read_relevance, standard_error
from whycluster.evaluation.methods import METHODS, Method, named
from whycluster.evaluation.oracle import greedy
from whycluster.evaluation.samplers import Sampler
from whycluster.evaluation.subject import Subject

ORACLE = "greedy oracle"
RANDOM = "random"
_WELL_ABOVE = 1.05
_SMALL = 1 << 28  # limit of "auto" for rows x rows of the population x features squared


@dataclass(frozen=True, eq=False, repr=False)
class Comparison:
    """The flipping curves of several methods. `print` the comparison, or call `to_frame`.

    Attributes
    ----------
    flipping : the `Flipping` of each method, including the greedy oracle if it ran
    seconds : the time that each method took to compute its relevance
    left_out : the default methods that do not work for this model, each with the reason
    """

    flipping: dict[str, Flipping]
    seconds: dict[str, float]
    left_out: dict[str, str]
    _floor: float | None
    _like: Any

    @property
    def methods(self) -> list[str]:
        """The names of the methods, in order of decreasing AUC."""
        return sorted(self.flipping, key=lambda name: -self.flipping[name].auc)

    def share(self, method: str) -> float:
        """Return a method's AUC on a scale from 0 (random order) to 1 (greedy oracle).

        The result is NaN if the oracle did not run.

        Parameters
        ----------
        method : the name of the method
        """
        if self._floor is None:
            return float("nan")
        range_ = self.flipping[ORACLE].auc - self._floor
        return (self.flipping[method].auc - self._floor) / range_ if range_ > 0 else float("nan")

    def difference(self, method: str, other: str) -> tuple[float, float]:
        """Return the mean difference between two methods' AUC over the rows, and its standard error.

        Parameters
        ----------
        method, other : the names of the methods; the difference is that of ``method`` minus ``other``
        """
        gap = self.flipping[method].per_row - self.flipping[other].per_row
        return float(gap.mean()), standard_error(gap)

    def to_frame(self, backend: str | None = None) -> Any:
        """Return a frame with one row per method: method, auc, standard_error, share and seconds.

        Parameters
        ----------
        backend : "pandas", "polars" or "pyarrow"; by default the library of the data
        """
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
        table = display.table(["method", "AUC", "+-", "share", "seconds"], rows, "<>>>>")
        notes = []
        if any(self.share(name) > _WELL_ABOVE for name in self.methods):
            notes.append(
                "share above 100%: the oracle is greedy and misses features that matter only together."
            )
        for reason in dict.fromkeys(self.left_out.values()):
            names = [name for name, other in self.left_out.items() if other == reason]
            notes.append(f"left out: {', '.join(names)} ({reason})")
        return "\n".join([table, *notes])

    def __repr__(self) -> str:
        return f"<Comparison of {len(self.flipping)} methods, best: {self.methods[0]}>"


def compare(
    model: Any,
    X: Any,
    methods: Iterable[str] | Mapping[str, Any] | None = None,
    *,
    sampler: Any = "kde",
    repeats: int = 10,
    background: Any = None,
    oracle: bool | str = "auto",
    random_state: int = 0,
) -> Comparison:
    """Compare explanation methods for a clustering by the area under their flipping curves.

    Parameters
    ----------
    model : any model that `neuralize` accepts, or a function that returns the labels of rows
    X : (n, d) rows
    methods : names from `METHODS`, or a dict from your own names to (n, d) relevance arrays, functions
        ``method(model, X)`` that return such an array, or names from `METHODS`. By default, all methods in
        `METHODS` that work for this model are compared.
    sampler, repeats, random_state : as in `flipping_auc`; all methods are scored on the same draws
    background : (m, d) the population from which missing features are drawn and from which methods learn; by
        default, X
    oracle : whether to run the greedy oracle, a practical upper bound. Its cost grows with the square of the
        number of features; "auto" runs it only for small data.

    Returns
    -------
    Comparison
    """
    check_integer(repeats, 1, "compare", "repeats")
    check_integer(random_state, 0, "compare", "random_state")
    subject = Subject(model, X, "compare", background)
    drawer = open_sampler(sampler, subject)
    request = _named(methods)
    chosen = {name: _relevance_of(request[name], subject, model, X, random_state) for name in request}
    if _wants_oracle(oracle, subject):
        chosen[ORACLE] = lambda: greedy(subject, drawer, random_state)
    flipping, seconds, left_out = {}, {}, {}
    for name, explain in chosen.items():
        start = time.perf_counter()
        try:
            relevance = read_relevance(explain(), subject)
        except WhyClusterError as error:
            if methods is not None:
                raise
            left_out[name] = str(error).removeprefix("compare: ")
            continue
        seconds[name] = time.perf_counter() - start
        flipping[name] = flip(subject, relevance, drawer, repeats, random_state)
    floor = None
    if ORACLE in flipping:
        floor = _floor(subject, request, flipping, drawer, repeats, random_state)
    return Comparison(flipping, seconds, left_out, floor, subject.table.native)


def _floor(
    subject: Subject,
    request: Mapping[str, Any],
    flipping: Mapping[str, Flipping],
    sampler: Sampler,
    repeats: int,
    random_state: int,
) -> float:
    """Return the AUC of a random order."""
    random = METHODS[RANDOM]
    if request.get(RANDOM) is random:  # users may give this name to their own method
        return flipping[RANDOM].auc
    return flip(subject, random.explain(subject, random_state), sampler, repeats, random_state).auc


def _wants_oracle(oracle: Any, subject: Subject) -> bool:
    if isinstance(oracle, bool):
        return oracle
    if not isinstance(oracle, str) or oracle != "auto":
        raise InvalidInputError(f'compare: oracle must be True, False or "auto"; got {oracle!r}.')
    return bool(subject.n_rows * len(subject.population) * subject.n_features**2 < _SMALL)


def _named(methods: Any) -> dict[str, Any]:
    """Return the requested methods by name."""
    if methods is None:
        return METHODS
    if isinstance(methods, str):
        methods = [methods]
    if not isinstance(methods, Iterable):
        raise InvalidInputError(f"compare: methods must be a list of names or a dict; got {methods!r}.")
    if not isinstance(methods, Mapping):
        methods = {m if isinstance(m, str) else named(m, "compare").title: m for m in methods}
    methods = {name: named(m, "compare") if isinstance(m, str) else m for name, m in methods.items()}
    if not methods or ORACLE in methods or not all(isinstance(name, str) for name in methods):
        raise InvalidInputError(
            "compare: methods must contain at least one name, all names must be strings, and none may be "
            f"{ORACLE!r}; got {list(methods)}."
        )
    return dict(methods)


def _relevance_of(method: Any, subject: Subject, model: Any, X: Any, random_state: int) -> Callable[[], Any]:
    if isinstance(method, Method):
        return lambda: method.explain(subject, random_state)
    return (lambda: method(model, X)) if callable(method) else (lambda: method)
