"""The tables that the golden files of the command are about."""

from __future__ import annotations

from datetime import date, timedelta
from pathlib import Path

import numpy as np
import polars as pl
from sklearn.datasets import load_wine


def write_wine(folder: Path) -> Path:
    """Wine with an identifier and the kinds, as a CSV file."""
    wine = load_wine()
    frame = pl.DataFrame(wine.data, schema=list(wine.feature_names))
    frame.insert_column(0, pl.Series("wine_id", np.arange(1000, 1178)))
    kinds = pl.Series("kind", [f"cultivar {target}" for target in wine.target])
    frame.with_columns(kinds).write_csv(folder / "wine.csv")
    return folder / "wine.csv"


def write_passengers(folder: Path) -> Path:
    """Names, numbers with gaps, a category, dates, and groups, as a CSV file."""
    rng = np.random.default_rng(0)
    n, old = 60, np.arange(60) % 2 == 1
    age = np.where(old, rng.normal(60, 5, n), rng.normal(25, 5, n)).round()
    fare = np.where(old, rng.normal(80, 10, n), rng.normal(20, 5, n)).round(2)
    frame = pl.DataFrame(
        {
            "name": [f"Passenger {i}" for i in range(n)],
            "age": [None if i % 10 == 4 else float(value) for i, value in enumerate(age)],
            "fare": fare,
            "port": ["south" if each else "north" for each in old],
            "boarded": [date(1912, 4, 1) + timedelta(days=int(day)) for day in rng.integers(10, size=n)],
            "group": ["rich" if each else "young" for each in old],
        }
    )
    frame.write_csv(folder / "passengers.csv")
    return folder / "passengers.csv"
