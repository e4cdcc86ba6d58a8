"""Two months of customers, and what happened in between."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

import whycluster as wc
from tests.optional import optional

if TYPE_CHECKING:
    import pandas as pd
else:
    pd = optional("pandas")

NAMES = {0: "Loyal", 1: "Rare", 2: "Late"}


def customers(n: int = 240, seed: int = 0, first_id: int = 1000) -> Any:
    """Return customers in three groups, with missing values, categories and ids."""
    rng = np.random.default_rng(seed)
    group = rng.integers(0, 3, n)
    return pd.DataFrame(
        {
            "CustomerID": first_id + np.arange(n),
            "age": rng.normal(30 + 15 * group, 4),
            "spend": np.where(rng.random(n) < 0.1, np.nan, rng.lognormal(2 + group, 0.3)),
            "visits": rng.poisson(3 + 4 * (2 - group)).astype(float),
            "city": rng.choice(["Bern", "Oslo", "Rome"], n),
        }
    )


def next_month(frame: Any, seed: int = 1) -> Any:
    """Return the month after: some noise, a rise in spend for some, a few gone and a few new, shuffled."""
    rng = np.random.default_rng(seed)
    after = frame.copy()
    after["age"] += rng.normal(0, 0.3, len(after))
    risen = rng.random(len(after)) < 0.25
    after.loc[risen, "spend"] *= 6
    some = rng.random(len(after)) < 0.05
    after.loc[some, "city"] = "Oslo"
    after = pd.concat([after.iloc[12:], customers(15, seed + 1, 9000)])
    return after.sample(frac=1.0, random_state=seed)


def segmentation(frame: Any, n_clusters: int = 3, names: Any = None) -> wc.Segmentation:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", wc.ColumnWarning)  # the ids are left out
        return wc.segment(frame, n_clusters, names, measure_quality=False)


def kept(model: Any, X: Any) -> wc.Segmentation:
    return wc.Segmentation.of(model, X, measure_quality=False)
