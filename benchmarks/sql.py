"""Segmentations in SQL: ``python -m benchmarks.sql --data DIR``.

It compares the clusters and the evidence of real tables with `assign`, in DuckDB and PostgreSQL, and the time
for a million rows in DuckDB with SQL written by hand. It needs PostgreSQL (``make postgres``).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import whycluster as wc
from benchmarks.datasets import data_folder
from benchmarks.measure import side_by_side, write
from tests.segments.sql.databases import ROW, Database, DuckDB, Postgres, nan_for_null
from tests.segments.sql.postgres import server

TABLES: dict[str, Callable[[Path], Any]] = {
    "wholesale customers": lambda data: pd.read_csv(data / "whlsl" / "Wholesale_customers_data.csv"),
    "hepatitis C (text, missing values)": lambda data: pd.read_csv(data / "hepac" / "hcvdat0.csv"),
    "water treatment (missing values)": lambda data: _water(data),
    "weekly sales": lambda data: pd.read_csv(data / "sales" / "Sales_Transactions_Dataset_Weekly.csv"),
    "travel reviews": lambda data: pd.read_csv(data / "trpad" / "tripadvisor_review.csv"),
    "holiday interests": lambda data: pd.read_csv(data / "buddy" / "buddymove_holidayiq.csv"),
    "seeds": lambda data: pd.read_csv(data / "seeds" / "seeds_dataset.txt", sep=r"\s+", header=None),
}
CLUSTERS = (3, 8)
TIE = 1e-9  # rows with less evidence, relative to the median, may go either way
N_ROWS, REPEATS = 1_000_000, 7
COMMAND = "python -m benchmarks.sql --data DIR"


def _water(data: Path) -> Any:
    names = ["day", *(f"sensor {i}" for i in range(38))]
    return pd.read_csv(data / "water" / "water-treatment.data", names=names, na_values="?")


def compare(database: Database, frame: pd.DataFrame, seg: wc.Segmentation) -> tuple[int, int, float]:
    """Return the rows far from ties, those of them that agree, and the largest error of the evidence."""
    with database.holding(frame, "customers"):
        found = database.score(seg.to_sql("customers", database.dialect, [ROW]))
    exp = seg.explain(frame)
    far = exp.evidence > TIE * np.median(exp.evidence)
    same = found["cluster"].to_numpy() == seg.assign(frame)
    error = np.abs(nan_for_null(found["evidence"]) - exp.evidence) / exp.evidence
    return int(far.sum()), int(same[far].sum()), float(error[far].max())


def agreement(databases: list[Database], data: Path) -> list[str]:
    """Return a table of all tables and databases."""
    lines = ["| table | rows | clusters | database | agree | largest relative error of the evidence |"]
    lines.append("|---|---|---|---|---|---|")
    for name, read in TABLES.items():
        frame = read(data).rename(columns=str)
        for n_clusters in CLUSTERS:
            seg = wc.segment(frame, n_clusters, measure_quality=False)
            for database in databases:
                n, n_same, error = compare(database, frame, seg)
                lines.append(
                    f"| {name} | {len(frame):,} | {n_clusters} | {database.dialect} | {n_same:,} of {n:,} "
                    f"| {error:.1e} |"
                )
    return lines


def million() -> pd.DataFrame:
    """Return a million rows: six numbers, one of them with missing values, two categories and a date."""
    rng, n = np.random.default_rng(0), N_ROWS
    group = rng.integers(0, 5, n)
    frame: pd.DataFrame = pd.DataFrame({f"x{i}": rng.normal(group * (i + 1), 2.0) for i in range(6)})
    frame.loc[rng.random(n) < 0.1, "x0"] = np.nan
    frame["city"] = np.array(["Bern", "Oslo", "Rome", "Wien"])[(group + rng.integers(0, 2, n)) % 4]
    frame["plan"] = np.array(["free", "plus", "pro"])[rng.integers(0, 3, n)]
    frame["since"] = pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 1000, n), "D")
    return frame


def by_hand(seg: wc.Segmentation, only_sums: bool) -> str:
    """Return SQL that a person would write: scaled features, squared distances, and the least of them."""
    features, centers = _features(seg.model["columns"]), seg.model["clusters"].cluster_centers_.tolist()
    assert len(features) == len(centers[0])
    named = ", ".join(f"{sql} AS f{i}" for i, sql in enumerate(features))
    squares = [
        [f"(f{i} - {_double(c)}) * (f{i} - {_double(c)})" for i, c in enumerate(row)] for row in centers
    ]
    sums = ", ".join(f"{' + '.join(row)} AS d{k}" for k, row in enumerate(squares))
    distances = f"SELECT {sums} FROM (SELECT {named} FROM customers)"
    if only_sums:
        return distances
    d = [f"d{k}" for k in range(len(centers))]
    cluster = " ".join(f"WHEN {each} = best THEN {k}" for k, each in enumerate(d))
    others = ", ".join(f"CASE WHEN cluster <> {k} THEN {each} END" for k, each in enumerate(d))
    nearest = f"SELECT *, least({', '.join(d)}) AS best FROM ({distances})"
    found = f"SELECT *, CASE {cluster} END AS cluster FROM ({nearest})"
    return f"SELECT cluster, least({others}) - best AS evidence FROM ({found})"


def _features(encoder: Any) -> list[str]:
    """Return the features of the table of `million`, in the order of the encoder."""
    features = []
    for branch, columns in (("numbers", [f"x{i}" for i in range(6)]), ("dates", ["since"])):
        steps = encoder.named_transformers_[branch]
        fill, scaler = steps["fill"], steps["scale"]
        template = (
            "coalesce(({} - {}) / {}, {})"
            if branch == "numbers"
            else "coalesce((epoch({}) / 86400 - {}) / {}, {})"
        )
        for column, *numbers in zip(columns, scaler.mean_, scaler.scale_, fill.statistics_, strict=True):
            features.append(template.format(column, *map(_double, numbers)))
        flagged = [columns[i] for i in fill.indicator_.features_]
        features += [f"CASE WHEN {c} IS NULL THEN 1e0 ELSE 0e0 END" for c in flagged]
    known = encoder.named_transformers_["categories"]["encode"].categories_
    for column, names in zip(("city", "plan"), known, strict=True):
        features += [f"CASE WHEN {column} = '{c}' THEN {_double(0.5**0.5)} ELSE 0e0 END" for c in names]
    return features


def _double(number: float) -> str:
    return f"({float(number)!r}::DOUBLE)"


def speed(database: DuckDB) -> list[str]:
    """Return the time for a million rows, as a multiple of SQL written by hand."""
    frame = million()
    seg = wc.Segmentation.of(wc.tabular.pipeline(frame, 5), frame, measure_quality=False)
    run = database.connection.execute
    database.connection.register("given", frame)
    run("CREATE TABLE customers AS SELECT *, row_number() OVER () AS id FROM given")
    queries = {
        "to_sql, cluster, competitor and evidence": seg.to_sql("customers", columns=[]),
        "to_sql, with all columns of the table": seg.to_sql("customers"),
        "by hand, cluster and evidence": by_hand(seg, False),
        "by hand, the squared distances only": by_hand(seg, True),
    }
    ours, theirs = (run(queries[name]).fetchnumpy() for name in list(queries)[::2])
    assert np.mean(ours["cluster"] == theirs["cluster"]) > 1 - 1e-6
    assert np.allclose(ours["evidence"], theirs["evidence"], rtol=1e-6, atol=1e-9)
    # The result goes into a table, so that all columns are computed and none is converted to Python.
    calls = {name: _storing(run, query) for name, query in queries.items()}
    seconds = side_by_side(calls, REPEATS)
    base, alone = (seconds[name] for name in list(queries)[2:])
    lines = ["| query | times the query by hand | times the distances only |", "|---|---|---|"]
    return lines + [f"| {name} | {s / base:.2f} | {s / alone:.2f} |" for name, s in seconds.items()]


def _storing(run: Callable[[str], Any], query: str) -> Callable[[], Any]:
    return lambda: run(f"CREATE OR REPLACE TEMP TABLE scored AS {query}")


def main() -> None:
    """Compare and measure, and write the page of results."""
    data = data_folder(__doc__)
    warnings.simplefilter("ignore", wc.ColumnWarning)
    duck = DuckDB()
    with server() as address:
        postgres = Postgres(address)
        agreed = agreement([duck, postgres], data)
        postgres.connection.close()
    write(
        "sql",
        COMMAND,
        [
            "# Segmentations in SQL",
            "",
            "Segmentations of real tables by `wc.segment`, scored by `seg.to_sql` in real databases. Rows",
            f"whose evidence is under {TIE:g} of the median count as ties; all others are compared with",
            "`seg.assign`.",
            "",
            *agreed,
            "",
            f"Time for {N_ROWS:,} rows in DuckDB: six numbers (one with missing values), two categories and",
            f"a date in five clusters. The queries take turns; medians of {REPEATS} runs.",
            "",
            *speed(duck),
        ],
    )


if __name__ == "__main__":
    main()
