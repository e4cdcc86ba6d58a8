"""The measures of faithfulness, with any models, rows, relevance and options."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import whycluster as wc
from tests.fuzz.choices import Choices
from tests.fuzz.engine import Target
from whycluster import evaluation

_SIZES = (1.0, 1.0, 0.0, 1e-200, 1e155, 1e300, np.nan, np.inf)


def make(folder: Path) -> Target:
    del folder

    def run(choices: Choices) -> None:
        rng = np.random.default_rng(choices.below(2**32))
        n, d, k = choices.between(2, 9), choices.between(1, 4), choices.between(2, 4)
        n, k = (1 if choices.one_in(12) else n), (1 if choices.one_in(12) else k)
        X = _rows(choices, rng, n, d)
        model: Any = _rows(choices, rng, k, d if not choices.one_in(20) else d + 1)
        if choices.one_in(6):
            model = lambda rows: (np.asarray(rows)[:, 0] > 0).astype(int)  # noqa: E731  # shorter than a function
        options = _options(choices, rng, d)
        kind = choices.below(4)
        if kind < 2:
            _flip(choices, rng, model, X, options)
        elif kind == 2:
            names = choices.pick(
                (None, ["neon"], ["neon", "random"], [], ["zzz"], list(evaluation.METHODS)[:3])
            )
            oracle: Any = choices.pick((True, False, "auto", "x"))
            found = evaluation.compare(model, X, names, oracle=oracle, **options)
            str(found), found.to_frame("pandas")
        else:
            rule = choices.pick(("min-take-most", "joint", "contrast", "sequential", "x"))
            str(evaluation.checks.run(model, X, rule=rule, random_state=options["random_state"]))

    return run


def _rows(choices: Choices, rng: Any, n: int, d: int) -> Any:
    rows = rng.normal(size=(n, d))
    if choices.one_in(4):
        rows = np.round(rows)
    if choices.one_in(4):
        rows[rng.integers(n), rng.integers(d)] *= choices.pick(_SIZES)
    if choices.one_in(8):
        rows *= choices.pick(_SIZES)
    return rows.astype("float32") if choices.one_in(8) else rows


def _options(choices: Choices, rng: Any, d: int) -> dict[str, Any]:
    sampler: Any
    repeats: Any
    seed: Any
    background = _rows(choices, rng, choices.between(1, 5), d) if choices.one_in(3) else None
    sampler, repeats, seed = choices.pick(("kde", "zero")), choices.between(1, 5), choices.below(3)
    if choices.one_in(16):
        sampler = choices.pick(("x", None, 3, ""))
    if choices.one_in(16):
        repeats = choices.pick((0, -1, 1.5, True))
    if choices.one_in(8):
        seed = choices.pick((-1, "a", 2**40, 2**32))
    return {"sampler": sampler, "repeats": repeats, "background": background, "random_state": seed}


def _flip(choices: Choices, rng: Any, model: Any, X: Any, options: dict[str, Any]) -> None:
    relevance: Any = _rows(choices, rng, len(X), X.shape[1])
    if choices.one_in(3):
        relevance = wc.explain(model, X)
    elif choices.one_in(6):
        relevance = choices.value()
    found = evaluation.flipping_auc(model, X, relevance, **options)
    assert ((found.curves >= 0) & (found.curves <= 1)).all()
    assert 0 <= found.auc <= 100
