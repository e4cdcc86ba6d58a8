"""Tables for the benchmarks: the paper's, read from files, others that ship with packages, and two generated.

All tables are standardized. `NOTES` lists the other preprocessing steps.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_iris, load_wine
from sklearn.preprocessing import StandardScaler

Array = NDArray[np.float64]


def data_folder(description: str | None) -> Path:
    """Return the folder given with ``--data``."""
    return parser(description).parse_args().data  # type: ignore[no-any-return]


def parser(description: str | None) -> argparse.ArgumentParser:
    """Return a parser with ``--data``, the option of all benchmarks that read files."""
    result = argparse.ArgumentParser(description=description)
    result.add_argument("--data", type=Path, default=Path("../shared/data"), help="folder of the files")
    return result


def load(name: str, folder: Path) -> Array:
    """Load at most 2,000 rows of a table, standardized, without missing values and constant columns."""
    return np.asarray(StandardScaler().fit_transform(load_unscaled(name, folder)))


def load_unscaled(name: str, folder: Path) -> Array:
    """Load a table as `load` does, in its own units."""
    frame = _LOADERS[name](folder).apply(pd.to_numeric)
    frame = frame.fillna(frame.mean())
    X = frame.to_numpy(dtype=np.float64)
    X = X[:, X.std(axis=0) > 1e-9]
    if len(X) > 2000:
        X = X[np.sort(np.random.default_rng(0).permutation(len(X))[:2000])]
    return np.asarray(X)


def _seeds(folder: Path) -> Any:
    return pd.DataFrame(np.loadtxt(folder / "seeds" / "seeds_dataset.txt")[:, :7])


def _buddy(folder: Path) -> Any:
    return pd.read_csv(folder / "buddy" / "buddymove_holidayiq.csv").iloc[:, 1:]


def _hepac(folder: Path) -> Any:
    return pd.read_csv(folder / "hepac" / "hcvdat0.csv").drop(columns=["Sex", "Category"])


def _trpad(folder: Path) -> Any:
    return pd.read_csv(folder / "trpad" / "tripadvisor_review.csv").iloc[:, 1:]


def _sales(folder: Path) -> Any:
    frame = pd.read_csv(folder / "sales" / "Sales_Transactions_Dataset_Weekly.csv")
    return frame[[f"W{week}" for week in range(52)]]


def _sales_normalized(folder: Path) -> Any:
    frame = pd.read_csv(folder / "sales" / "Sales_Transactions_Dataset_Weekly.csv")
    return frame[[f"Normalized {week}" for week in range(52)]]


def _water(folder: Path) -> Any:
    file = folder / "water" / "water-treatment.data"
    return pd.read_csv(file, header=None, na_values="?").iloc[:, 1:]


def _whlsl(folder: Path) -> Any:
    return pd.read_csv(folder / "whlsl" / "Wholesale_customers_data.csv").iloc[:, 2:]


def _whlsl_log(folder: Path) -> Any:
    return np.log1p(_whlsl(folder))


def _star98(_: Path) -> Any:
    from statsmodels.datasets import star98

    return star98.load_pandas().data.iloc[:, :14]  # the other columns are products of these


def _fair(_: Path) -> Any:
    from statsmodels.datasets import fair

    return fair.load_pandas().data


def _statsmodels(name: str, *dropped: str) -> Callable[[Path], Any]:
    def read(_: Path) -> Any:
        import statsmodels.datasets

        return getattr(statsmodels.datasets, name).load_pandas().data.drop(columns=list(dropped))

    return read


def _weather(_: Path) -> Any:
    from vega_datasets import local_data

    return local_data.seattle_weather().select_dtypes("number")


def _employment(_: Path) -> Any:
    from vega_datasets import local_data

    return local_data.us_employment().select_dtypes("number")


def _factors(_: Path) -> Any:
    """Return 12 features that depend on 3 factors, and 6 groups of unequal size."""
    rng = np.random.default_rng(20261118)
    group = rng.choice(6, 800, p=np.arange(1, 7) / 21)
    factors = 2.0 * rng.normal(size=(6, 3))[group] + rng.normal(size=(800, 3))
    return pd.DataFrame(factors @ rng.normal(size=(3, 12)) + 0.5 * rng.normal(size=(800, 12)))


def _skewed(_: Path) -> Any:
    """Return 8 features, the exponentials of 5 normal groups with different covariances."""
    rng = np.random.default_rng(20261119)
    group = rng.integers(5, size=800)
    spread = rng.normal(size=(5, 8, 8)) / 4
    rows = rng.normal(size=(5, 8))[group] + np.einsum("nij,nj->ni", spread[group], rng.normal(size=(800, 8)))
    return pd.DataFrame(np.exp(rows))


def _penguins(_: Path) -> Any:
    from palmerpenguins import load_penguins

    return load_penguins().drop(columns="year").select_dtypes("number").dropna()


def _cars(_: Path) -> Any:
    from vega_datasets import local_data

    return local_data.cars().drop(columns="Year").select_dtypes("number").dropna()


def _shipped(loader: Callable[[], Any]) -> Callable[[Path], Any]:
    return lambda _: pd.DataFrame(loader().data)


_LOADERS: dict[str, Callable[[Path], Any]] = {
    "buddy": _buddy,
    "hepac": _hepac,
    "seeds": _seeds,
    "winer": _shipped(load_wine),
    "trpad": _trpad,
    "sales": _sales,
    "sales, normalized": _sales_normalized,
    "water": _water,
    "whlsl": _whlsl,
    "whlsl, logarithms": _whlsl_log,
    "iris": _shipped(load_iris),
    "cancer": _shipped(load_breast_cancer),
    "diabetes": _shipped(load_diabetes),
    "digits": _shipped(load_digits),
    "star98": _star98,
    "fair": _fair,
    "penguins": _penguins,
    "cars": _cars,
    "anes96": _statsmodels("anes96", "popul"),
    "randhie": _statsmodels("randhie"),
    "modechoice": _statsmodels("modechoice", "individual"),
    "macrodata": _statsmodels("macrodata", "year", "quarter"),
    "statecrime": _statsmodels("statecrime"),
    "elnino": _statsmodels("elnino", "YEAR"),
    "weather": _weather,
    "employment": _employment,
    "factors": _factors,
    "skewed": _skewed,
}

NOTES = {
    "hepac": "The columns are age and 10 laboratory values; 31 missing values are set to the column mean.",
    "sales": "The columns are the raw counts for weeks W0 to W51.",
    "sales, normalized": "The columns are Normalized 0 to Normalized 51.",
    "water": "We replace 591 missing values with the column mean.",
    "whlsl": "The columns are the six amounts, without Channel and Region.",
    "whlsl, logarithms": "The columns are log(1 + amount) for the same six amounts.",
    "star98": "The data come from statsmodels. We use the 14 columns that are not products of other columns.",
    "fair": "The data come from statsmodels. We use 2,000 of the 6,366 rows.",
    "penguins": "The data come from palmerpenguins. We drop rows with missing values.",
    "cars": "The data come from vega_datasets. We drop rows with missing values.",
    "digits": "We drop constant columns.",
    "anes96": "The data come from statsmodels. We drop popul, since the table contains its logarithm.",
    "randhie": "The data come from statsmodels. We use 2,000 of the 20,190 rows.",
    "modechoice": "The data come from statsmodels. We drop the number of the person.",
    "macrodata": "The data come from statsmodels. We drop the year and the quarter.",
    "statecrime": "The data come from statsmodels.",
    "elnino": "The data come from statsmodels. We drop the year.",
    "weather": "The data come from vega_datasets (Seattle).",
    "employment": "The data come from vega_datasets (US employment).",
    "factors": "Generated: 12 features that depend on 3 factors, with 6 groups of unequal size.",
    "skewed": "Generated: the exponentials of 5 normal groups with different covariances, with 8 features.",
}
