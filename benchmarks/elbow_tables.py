"""Tables on which the choice of the number of clusters is measured; see `benchmarks.elbow`.

`TUNING` was used to choose the settings of the search and `REPORTING` was not. They share no table, and
generated tables have different seeds, shapes and numbers of clusters.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from sklearn.datasets import make_blobs

from benchmarks.datasets import load

Make: TypeAlias = Callable[[Path], Any]


def _frame(X: Any) -> Any:
    return pd.DataFrame(X, columns=[f"x{i}" for i in range(X.shape[1])])


def real(name: str) -> Make:
    """Return a table of `benchmarks.datasets`."""
    return lambda folder: _frame(load(name, folder))


def blobs(n_rows: int, n_columns: int, n_clusters: int, spread: float, seed: int) -> Make:
    """Return Gaussian clusters of equal size."""
    return lambda _: _frame(
        make_blobs(n_rows, n_columns, centers=n_clusters, cluster_std=spread, random_state=seed)[0]
    )


def noise(n_rows: int, n_columns: int, seed: int) -> Make:
    """Return one Gaussian, without clusters."""
    return lambda _: _frame(np.random.default_rng(seed).normal(size=(n_rows, n_columns)))


def customers(n_rows: int, seed: int) -> Make:
    """Return recency, frequency, money and others, log-normal and correlated, of a few kinds of customers."""

    def make(_: Path) -> Any:
        rng = np.random.default_rng(seed)
        kind = rng.choice(4, n_rows, p=[0.5, 0.3, 0.15, 0.05])
        loyal = np.array([-1.0, 0.0, 1.0, 2.5])[kind] + 0.7 * rng.normal(size=n_rows)
        recency = rng.exponential(60 * np.exp(-0.5 * loyal))
        frequency = rng.poisson(np.exp(0.8 + 0.7 * loyal)) + 1
        money = frequency * np.exp(3 + 0.3 * loyal + 0.8 * rng.normal(size=n_rows))
        basket = money / frequency
        items = 1 + rng.poisson(2 * frequency)
        return pd.DataFrame(
            {"recency": recency, "frequency": frequency, "money": money, "basket": basket, "items": items}
        )

    return make


def beans(n_rows: int, n_columns: int, n_clusters: int, seed: int) -> Make:
    """Return correlated columns from four hidden ones, a third of them skewed; clusters differ in size."""

    def make(_: Path) -> Any:
        rng = np.random.default_rng(seed)
        kind = rng.choice(n_clusters, n_rows, p=rng.dirichlet(np.full(n_clusters, 3.0)))
        hidden = 2 * rng.normal(size=(n_clusters, 4))[kind] + rng.normal(size=(n_rows, 4))
        X = hidden @ rng.normal(size=(4, n_columns)) + 0.3 * rng.normal(size=(n_rows, n_columns))
        skewed = n_columns // 3
        X[:, :skewed] = np.exp(0.5 * X[:, :skewed] / X[:, :skewed].std(axis=0))
        return _frame(X)

    return make


def mixed(n_rows: int, n_clusters: int, seed: int) -> Make:
    """Return numbers with gaps and text columns whose categories depend on the cluster."""

    def make(_: Path) -> Any:
        rng = np.random.default_rng(seed)
        kind = rng.integers(n_clusters, size=n_rows)
        numbers = 2 * rng.normal(size=(n_clusters, 4))[kind] + rng.normal(size=(n_rows, 4))
        numbers[rng.random(numbers.shape) < 0.03] = np.nan
        frame = _frame(numbers)
        for column, n_categories in (("region", 5), ("plan", 3), ("channel", 8)):
            usual = rng.integers(n_categories, size=n_clusters)[kind]
            random = rng.integers(n_categories, size=n_rows)
            frame[column] = [f"{column} {i}" for i in np.where(rng.random(n_rows) < 0.7, usual, random)]
        return frame

    return make


TUNING: dict[str, Make] = {
    "iris": real("iris"),
    "winer": real("winer"),
    "seeds": real("seeds"),
    "whlsl": real("whlsl"),
    "sales, normalized": real("sales, normalized"),
    "blobs, 4 clusters": blobs(6_000, 5, 4, 1.5, 100),
    "blobs, 10 clusters": blobs(12_000, 12, 10, 3.0, 101),
    "blobs, 7 clusters, overlapping": blobs(15_000, 17, 7, 6.0, 102),
    "normal noise": noise(8_000, 6, 103),
    "customers": customers(10_000, 104),
    "beans": beans(15_000, 17, 6, 105),
    "mixed": mixed(8_000, 5, 106),
    "beans, wide": beans(20_000, 120, 6, 107),
    "blobs, wide": blobs(12_000, 150, 5, 25.0, 108),
}

REPORTING: dict[str, Make] = {
    "cancer": real("cancer"),
    "digits": real("digits"),
    "diabetes": real("diabetes"),
    "buddy": real("buddy"),
    "hepac": real("hepac"),
    "trpad": real("trpad"),
    "sales": real("sales"),
    "water": real("water"),
    "whlsl, logarithms": real("whlsl, logarithms"),
    "blobs, 3 clusters": blobs(5_000, 4, 3, 2.0, 0),
    "blobs, 6 clusters": blobs(15_000, 17, 6, 4.0, 1),
    "blobs, 9 clusters, overlapping": blobs(20_000, 10, 9, 5.0, 2),
    "blobs, 15 clusters": blobs(30_000, 8, 15, 1.5, 3),
    "normal noise": noise(15_000, 17, 4),
    "customers": customers(15_000, 5),
    "customers, more": customers(40_000, 6),
    "beans": beans(15_000, 17, 7, 7),
    "beans, wider": beans(13_000, 40, 5, 8),
    "mixed": mixed(15_000, 4, 9),
    "mixed, more": mixed(30_000, 8, 10),
    "beans, wide": beans(18_000, 100, 8, 11),
    "blobs, wide": blobs(15_000, 200, 7, 25.0, 12),
}
