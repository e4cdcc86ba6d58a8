"""One row at a time: a segmentation compared with the pipeline's own ``predict``.

python -m benchmarks.one_row
"""

from __future__ import annotations

import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl

import whycluster as wc

N_ROWS, REPEATS = 200, 9


def customers(n: int = 600) -> pd.DataFrame:
    """Return a table with numbers, missing values, categories and dates."""
    rng = np.random.default_rng(0)
    frame: pd.DataFrame = pd.DataFrame(
        {
            "age": rng.normal(40, 10, n),
            "spend": rng.lognormal(3, 1, n),
            "city": rng.choice(["Rome", "Oslo", "Bern"], n),
            "since": pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 900, n), "D"),
        }
    )
    frame.loc[3, "age"] = np.nan
    return frame


def seconds(function: Any, rows: list[Any]) -> float:
    """Return the CPU time for all rows, one at a time."""
    start = time.process_time()
    for row in rows:
        function(row)
    return time.process_time() - start


def main() -> None:
    """Print and write a table of ratios."""
    frame = customers()
    cases: dict[str, Any] = {
        "pandas, mixed columns": frame,
        "pandas, two numbers": frame[["age", "spend"]].fillna(40.0),
        "polars, mixed columns": pl.from_pandas(frame),
    }
    lines = ["| table | predict, ms per row | assign / predict | explain / predict |", "|---|---:|---:|---:|"]
    for name, table in cases.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            seg = wc.segment(table, 5, measure_quality=False)
        rows = [table[i : i + 1] for i in range(N_ROWS)]
        functions = (seg.model.predict, seg.assign, seg.explain)
        found = np.median([[seconds(each, rows) for each in functions] for _ in range(REPEATS)], axis=0)
        predict, assign, explain = found.tolist()
        lines.append(
            f"| {name} | {1e3 * predict / N_ROWS:.1f} | {assign / predict:.2f} | {explain / predict:.2f} |"
        )
    text = "\n".join(lines)
    print(text)
    head = (
        "# Segmentations, one row at a time\n\n`python -m benchmarks.one_row`: CPU time of "
        f"{N_ROWS} calls with one row each, the median of {REPEATS} repetitions in one process. New rows are "
        "compared with the rows that the segmentation was made on.\n\n"
    )
    (Path(__file__).parent / "results" / "one_row.md").write_text(f"{head}{text}\n")


if __name__ == "__main__":
    main()
