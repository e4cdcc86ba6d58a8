"""Test whether counterfactuals reach the cluster as printed: ``python -m benchmarks.counterfactual``.

With ``--curved``, measure how many changes across curved boundaries are the smallest ones.

Each try reads the values back from the printed text, puts them into a copy of the row, in the types of the
columns, and asks the model's own ``predict``. This file uses only the public interface of whycluster.
"""

from __future__ import annotations

import contextlib
import io
import sys
import tempfile
import time
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from sklearn.base import clone
from sklearn.cluster import Birch, BisectingKMeans, KMeans
from sklearn.compose import ColumnTransformer
from sklearn.datasets import load_breast_cancer, load_iris, load_wine
from sklearn.decomposition import PCA
from sklearn.mixture import GaussianMixture
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    OneHotEncoder,
    PowerTransformer,
    QuantileTransformer,
    StandardScaler,
)
from threadpoolctl import threadpool_limits

import whycluster as wc
from benchmarks.measure import write

if TYPE_CHECKING:
    import pandas as pd

TABLES = ("wine", "iris, float32", "breast cancer", "customers", "purchases")
TRIES = 100  # per table
N_COMMANDS = 5  # per table, through the command
CURVED_TRIES = 10  # per model and table
OPTIMA = ("global", "certified", "local")


class Line(NamedTuple):
    """One line of a printed table."""

    feature: str
    value: str
    becomes: str
    rest: list[str]


def read_tables(text: str, last: str) -> list[list[Line]]:
    """Return the printed tables of changes whose fourth column is "change" (together) or "size" (alone)."""
    tables: list[list[Line]] = []
    lines = text.splitlines()
    for number, line in enumerate(lines):
        heads = lines[number - 1].split() if number else []
        if not line.startswith("---") or heads != ["feature", "value", "becomes", last]:
            continue
        places = _places(line)
        found = []
        for row in lines[number + 1 :]:
            if not row.strip() or row.startswith("or "):
                break
            cells = [row[start:stop].strip() for start, stop in places]
            found.append(Line(cells[0], cells[1], cells[2], cells[3:]))
        tables.append(found)
    return tables


def changes_in(text: str) -> list[list[Line]]:
    """Return the changes that a text lists: that of several features, if there is one, and single ones."""
    alone = [[line] for lines in read_tables(text, "size") for line in lines]
    return read_tables(text, "change") + alone


def _places(rule: str) -> list[tuple[int, int | None]]:
    """Return where the columns of a table begin and end, from the rule below its head."""
    starts = [i for i, sign in enumerate(rule) if sign == "-" and (i == 0 or rule[i - 1] == " ")]
    stops: list[int | None] = [stop - 2 for stop in starts[1:]]
    return list(zip(starts, [*stops, None], strict=True))


def parse(text: str, column: pd.Series) -> Any:
    """Return a printed value in the type of a column."""
    import pandas as pd

    if pd.api.types.is_bool_dtype(column.dtype):
        return {"True": True, "False": False}[text]
    if pd.api.types.is_integer_dtype(column.dtype):
        return int(text)
    if pd.api.types.is_float_dtype(column.dtype):
        return column.dtype.type(text)
    if pd.api.types.is_datetime64_any_dtype(column.dtype):
        return pd.Timestamp(text)
    return text


def typed(frame: pd.DataFrame, row: int, lines: list[Line]) -> Any:
    """Return a copy of a row with printed values typed in, in the types of the columns."""
    import pandas as pd

    changed = frame.iloc[[row]].copy()
    for line in lines:
        column = frame[line.feature]
        changed[line.feature] = pd.Series([parse(line.becomes, column)], changed.index, column.dtype)
    return changed


@dataclass
class Score:
    """How many printed changes reached their cluster."""

    tries: int = 0
    reached: int = 0
    together: int = 0
    alone: int = 0
    missed: int = 0
    seconds: float = 0.0

    def add(self, text: str, frame: pd.DataFrame, row: int, model: Any, to: Any) -> None:
        """Type in all printed changes of one counterfactual."""
        changes = changes_in(text)
        wrong = sum(model.predict(typed(frame, row, lines))[0] != to for lines in changes)
        alone = sum(map(len, read_tables(text, "size")))
        self.tries += 1
        self.reached += bool(changes) and not wrong
        self.together += len(changes) - alone
        self.alone += alone
        self.missed += wrong


def customers(n: int = 600) -> Any:
    """Return customers with whole numbers, amounts, categories, booleans and dates, in three groups."""
    import pandas as pd

    rng = np.random.default_rng(0)
    group = rng.integers(0, 3, n)
    return pd.DataFrame(
        {
            "age": np.clip(np.round(rng.normal(25 + 15 * group, 8)), 18, 90).astype(int),
            "visits": rng.poisson(3 + 6 * (group == 1)),
            "spent": np.round(rng.lognormal(3 + 0.8 * group, 0.5), 2),
            "kind": np.array(["web", "shop", "phone"])[np.where(rng.random(n) < 0.8, group, 0)],
            "member": rng.random(n) < 0.2 + 0.3 * group,
            "since": pd.Timestamp("2018-01-01")
            + pd.to_timedelta(300 * group + rng.integers(0, 400, n), "D")
            + pd.to_timedelta(rng.integers(0, 1440, n), "min"),
        }
    )


def purchases(n: int = 600) -> Any:
    """Return recency, frequency and money, skewed and in whole numbers and cents."""
    import pandas as pd

    rng = np.random.default_rng(1)
    group = rng.integers(0, 4, n)
    return pd.DataFrame(
        {
            "recency": np.round(rng.lognormal(4 - 0.7 * group, 0.6)).astype(int) + 1,
            "frequency": np.round(rng.lognormal(0.5 + 0.6 * group, 0.5)).astype(int) + 1,
            "money": np.round(rng.lognormal(4 + 0.5 * group, 0.8), 2),
            "returns": rng.poisson(1.0 + group).astype(float),
        }
    )


def kmeans(k: int = 4) -> KMeans:
    """Return k-means with one start."""
    return KMeans(k, n_init=1, random_state=0)


def tables() -> dict[str, tuple[pd.DataFrame, dict[str, Any]]]:
    """Return the five tables, each with models."""
    log = FunctionTransformer(np.log1p)
    some = ColumnTransformer(
        [
            ("log", make_pipeline(log, StandardScaler()), ["recency", "frequency"]),
            ("power", PowerTransformer("box-cox"), ["money"]),
            ("ranks", QuantileTransformer(n_quantiles=50), ["returns"]),
        ]
    )
    numbers = ["age", "visits", "spent"]
    encoded = ColumnTransformer(
        [("numbers", StandardScaler(), numbers), ("kind", OneHotEncoder(sparse_output=False), ["kind"])]
    )
    cancer = load_breast_cancer(as_frame=True).data
    return {
        "wine": (
            load_wine(as_frame=True).data,
            {
                "scaled k-means": make_pipeline(StandardScaler(), kmeans(3)),
                "k-means": kmeans(5),
                "mixture": make_pipeline(StandardScaler(), GaussianMixture(3, random_state=0)),
                "logarithms": make_pipeline(log, StandardScaler(), kmeans(4)),
            },
        ),
        "iris, float32": (
            load_iris(as_frame=True).data.astype(np.float32),
            {
                "k-means": kmeans(3),
                "kernel k-means": wc.KernelKMeans(3, random_state=0),
                "powers": make_pipeline(PowerTransformer(), kmeans(4)),
                "mixture": GaussianMixture(3, random_state=0),
            },
        ),
        "breast cancer": (
            cancer,
            {
                "scaled, components": make_pipeline(StandardScaler(), PCA(5), kmeans(5)),
                "bisecting": make_pipeline(StandardScaler(), BisectingKMeans(6, random_state=0)),
                "ranks": make_pipeline(QuantileTransformer(n_quantiles=100), kmeans(3)),
                "diagonal mixture": make_pipeline(
                    StandardScaler(), GaussianMixture(3, covariance_type="diag", random_state=0)
                ),
            },
        ),
        "customers": (
            customers(),
            {
                "tabular": wc.tabular.pipeline(customers(), 3),
                "one-hot": make_pipeline(encoded, kmeans(4)),
            },
        ),
        "purchases": (
            purchases(),
            {
                "logarithms, powers, ranks": make_pipeline(some, kmeans(4)),
                "scaled k-means": make_pipeline(StandardScaler(), kmeans(5)),
                "kernel k-means": make_pipeline(log, StandardScaler(), wc.KernelKMeans(4, random_state=0)),
            },
        ),
    }


def score(frame: pd.DataFrame, models: dict[str, Any], tries: int, seed: int = 0) -> Score:
    """Try random rows and clusters, the same number for each model."""
    found, rng = Score(), np.random.default_rng(seed)
    for number, model in enumerate(models.values()):
        model = model if hasattr(model, "inertias_") else model.fit(frame)
        exp = wc.explain(model, frame)
        start = time.perf_counter()
        for _ in range(tries // len(models) + (number < tries % len(models))):
            row = int(rng.integers(len(frame)))
            to = rng.choice([label for label in exp.labels if label != exp.assigned[row]])
            found.add(str(exp.counterfactual(row, to)), frame, row, model, to)
        found.seconds += time.perf_counter() - start
    return found


def score_command(frame: pd.DataFrame, tries: int) -> Score:
    """Do the same through the command, whose model is that of `whycluster.tabular.pipeline`."""
    import polars as pl

    from whycluster.cli.commands import run

    found, rng = Score(), np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table.csv"
        frame.to_csv(path, index=False)
        read = pl.read_csv(path, try_parse_dates=True)
        model = wc.tabular.pipeline(read, 3)
        labels = model.predict(read)
        start = time.perf_counter()
        for row in rng.choice(len(frame), tries, replace=False).tolist():
            to = (int(labels[row]) + 1) % 3
            options = ["row", str(path), "--id", str(row), "--k", "3", "--to", str(to), "--quiet"]
            with contextlib.redirect_stdout(io.StringIO()) as out:
                assert run(options) == 0
            text = "Row " + out.getvalue().split("\n\nRow ", 1)[1]
            found.add(text, read.to_pandas(), row, _AsPolars(model), to)
        found.seconds = time.perf_counter() - start
    return found


@dataclass
class _AsPolars:
    """A model fitted to a polars frame that predicts rows of a pandas frame."""

    model: Any

    def predict(self, frame: pd.DataFrame) -> Any:
        import polars as pl

        return self.model.predict(pl.from_pandas(frame))


@dataclass
class Optima:
    """What is known of the changes across curved boundaries, and how long they take."""

    tries: int = 0
    reached: int = 0
    printed: int = 0
    known: dict[str, int] = field(default_factory=lambda: dict.fromkeys(OPTIMA, 0))
    seconds: list[float] = field(default_factory=list)

    def line(self, *names: str) -> str:
        """Return one line of the table."""
        sure = (self.known["global"] + self.known["certified"]) / self.tries
        times = [f"{1e3 * np.quantile(self.seconds, q):.0f}" for q in (0.5, 0.9, 1.0)]
        cells = [self.tries, self.reached, self.printed, *self.known.values(), f"{sure:.1%}", *times]
        return f"| {' | '.join([*names, *map(str, cells)])} |"

    def add(self, exp: Any, frame: pd.DataFrame, row: int, model: Any, to: Any) -> None:
        """Try one change: as found, and as printed. Only finding it is timed, in processor time."""
        start = time.process_time()
        found = exp.counterfactual(row, to)
        self.seconds.append(time.process_time() - start)
        self.tries += 1
        if found.found:
            self.known[found.optimum] += 1
            after = frame.iloc[[row]].copy()
            for name, value in zip(found.feature_names, found.after, strict=True):
                after[name] = value
            self.reached += bool(model.predict(after)[0] == to)
        score = Score()
        score.add(str(found), frame, row, model, to)
        self.printed += score.reached


def curved_tables() -> dict[str, pd.DataFrame]:
    """Return the tables for curved boundaries. Noise makes the whole numbers of the second wine real."""
    wine = load_wine(as_frame=True).data
    real = wine + 1e-3 * np.random.default_rng(0).normal(size=wine.shape)
    return {
        "iris": load_iris(as_frame=True).data,
        "wine, no whole numbers": real,
        "wine, two columns of whole numbers": wine,
        "breast cancer": load_breast_cancer(as_frame=True).data,
    }


def curved_models() -> dict[str, list[Any]]:
    """Return mixtures and hard minima, as the last steps of pipelines."""
    kinds = ("full", "tied", "diag", "spherical")
    found: dict[str, list[Any]] = {
        f"mixtures, {kind}": [
            [GaussianMixture(k, covariance_type=kind, random_state=0, reg_covar=1e-3)] for k in (3, 6)
        ]
        for kind in kinds
    }
    found["mixture of components"] = [[PCA(3), GaussianMixture(k, random_state=0)] for k in (3, 6)]
    found["Birch"] = [[Birch(threshold=0.7, n_clusters=k)] for k in (3, 6)]
    return found


def curved_lines(tries: int) -> list[str]:
    """Return the table of changes across curved boundaries; ``tries`` is the number for each model."""
    heads = ["model", "table", "tries", "reached", "as printed", *OPTIMA, "global or certified"]
    heads += ["ms, median", "90 %", "most"]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    sums: dict[str, Optima] = {"mixtures": Optima(), "mixtures, no whole numbers": Optima()}
    for name, models in curved_models().items():
        for table, frame in curved_tables().items():
            found, rng = Optima(), np.random.default_rng(0)
            into = [found, sums["mixtures"]] * name.startswith("mixture") or [found]
            if name.startswith("mixture") and "two columns" not in table:
                into.append(sums["mixtures, no whole numbers"])
            for model in models:
                pipe = make_pipeline(StandardScaler(), *map(clone, model)).fit(frame)
                exp = wc.explain(pipe, frame)
                for _ in range(tries):
                    row = int(rng.integers(len(frame)))
                    to = rng.choice([label for label in exp.labels if label != exp.assigned[row]])
                    one = Optima()
                    one.add(exp, frame, row, pipe, to)
                    for each in into:
                        _pour(one, each)
            lines.append(found.line(name, table))
    return [*lines, *(each.line(f"**all {name}**", "") for name, each in sums.items())]


def _pour(one: Optima, total: Optima) -> None:
    total.tries, total.reached = total.tries + one.tries, total.reached + one.reached
    total.printed += one.printed
    total.seconds += one.seconds
    for name, n in one.known.items():
        total.known[name] += n


def main() -> None:
    """Try all tables and write results/counterfactual.md."""
    warnings.simplefilter("ignore")
    lines = [
        "# Counterfactuals as printed",
        "",
        "Each try prints a counterfactual of a random row to a random cluster. The printed values are typed",
        "into a copy of the row, and the model's own `predict` is asked. A try reaches its cluster if every",
        "change that the text lists does: that of several features, and each of one feature alone.",
        "",
        "| table | models | tries | reached | changes of several | of one | missed | s per try |",
        "|---|---|---|---|---|---|---|---|",
    ]
    found = {name: score(frame, models, TRIES) for name, (frame, models) in tables().items()}
    for name, (_, models) in tables().items():
        lines.append(_line(name, ", ".join(models), found[name]))
    for name, (frame, _) in tables().items():
        lines.append(_line(name, "the command `row --to`", score_command(frame, N_COMMANDS)))
    reached, tries = sum(each.reached for each in found.values()), sum(each.tries for each in found.values())
    lines += ["", f"**{reached} of {tries}** tries of the first five lines reach their cluster."]
    write("counterfactual", "python -m benchmarks.counterfactual", lines)


def main_curved() -> None:
    """Try curved boundaries and write results/counterfactual_curved.md."""
    warnings.simplefilter("ignore")
    lines = [
        "# Counterfactuals across curved boundaries",
        "",
        "Changes of random rows to random clusters after scaling, for 3 and 6 clusters. *Reached*: the",
        "model's own `predict` gives the cluster for the values in `after`. *As printed*: every change in",
        "the text is enough if it is typed in. *Global* changes are the smallest by design, *certified*",
        "ones by a certificate, and *local* ones may not be. Times are processor times of",
        "`exp.counterfactual(row, to)` with one thread, without printing.",
        "",
        *curved_lines(CURVED_TRIES),
    ]
    write("counterfactual_curved", "python -m benchmarks.counterfactual --curved", lines)


def _line(name: str, models: str, found: Score) -> str:
    seconds = f"{found.seconds / found.tries:.2f}"
    cells = [name, models, found.tries, found.reached, found.together, found.alone, found.missed, seconds]
    return f"| {' | '.join(map(str, cells))} |"


if __name__ == "__main__":
    if "--curved" in sys.argv[1:]:
        with threadpool_limits(1):
            main_curved()
    else:
        main()
