"""``whycluster evaluate FILE``: how faithful explanations of a clustering of this table are."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import narwhals as nw
import numpy as np
from sklearn.cluster import KMeans
from sklearn.preprocessing import StandardScaler

from whycluster import console
from whycluster.arrays import Floats
from whycluster.errors import InvalidInputError
from whycluster.evaluation import checks, compare
from whycluster.frames import installed
from whycluster.labels import as_list
from whycluster.surrogate import Surrogate

LEGEND = """\
AUC: features of a row are added, the most relevant first; the area under the share of draws in which the row
is then in its cluster, from 0 to 100. +-: its standard error. share: of the way from a random order to the
greedy oracle, which is told what is measured. seconds: to explain all rows."""


def evaluate(options: argparse.Namespace) -> str:
    """What the command prints."""
    file = Path(options.file)
    frame = _read(file)
    labels = None if options.labels is None else _labels_of(frame, options.labels)
    rows, said = _numbers(frame, {*options.ignore, options.labels} - {None})
    keep = np.asarray(np.isfinite(rows).all(axis=1))
    if not keep.all():
        said.append(f"{(~keep).sum()} of {len(keep)} rows have missing values and are left out.")
    rows, chosen = rows[keep], None if labels is None else [v for v, k in zip(labels, keep, strict=True) if k]
    if len(rows) < 2:
        raise InvalidInputError(f"evaluate: {file.name} has {len(rows)} rows without missing values.")
    X = StandardScaler().fit_transform(rows)
    if options.rows < 2:
        raise InvalidInputError(f"evaluate: --rows must be at least 2; got {options.rows}.")
    model, what = _cluster(X, chosen, options)
    if len(X) > options.rows:
        said.append(f"{options.rows} of {len(X)} rows are evaluated, chosen at random.")
        X = X[np.random.default_rng(options.seed).permutation(len(X))[: options.rows]]
    comparison = compare(model, X, options.methods, repeats=options.repeats, random_state=options.seed)
    parts = [
        f"{len(rows)} rows, {X.shape[1]} columns, standardised; {what}.",
        *said,
        console.heading("How faithful are explanations?"),
        str(comparison),
        LEGEND,
    ]
    if options.checks:
        found = checks.run(model, X, random_state=options.seed)
        parts += [console.heading("Sanity checks"), str(found)]
    return "\n\n".join(parts)


def _read(file: Path) -> nw.DataFrame[Any]:
    if not file.is_file():
        raise InvalidInputError(f"evaluate: there is no file {file}.")
    kind = file.suffix.lower()
    backend: Any = installed("evaluate")
    try:
        if kind == ".parquet":
            return nw.read_parquet(str(file), backend=backend)
        if kind in (".csv", ".tsv"):
            return nw.read_csv(str(file), backend=backend, separator="\t" if kind == ".tsv" else ",")
    except Exception as error:
        raise InvalidInputError(f"evaluate: {file.name} cannot be read: {error}") from error
    raise InvalidInputError(f"evaluate: the file must be .csv, .tsv or .parquet; got {file.name}.")


def _labels_of(frame: nw.DataFrame[Any], column: str) -> list[Any]:
    _check_columns(frame, [column], "--labels")
    return as_list(frame[column].to_native(), "evaluate")


def _check_columns(frame: nw.DataFrame[Any], columns: list[str], option: str) -> None:
    missing = [name for name in columns if name not in frame.columns]
    if missing:
        raise InvalidInputError(
            f"evaluate: {option} must name columns of the table, {', '.join(frame.columns[:8])}"
            f"{', ...' * (len(frame.columns) > 8)}; got {missing[0]!r}."
        )


def _numbers(frame: nw.DataFrame[Any], ignore: set[str]) -> tuple[Floats, list[str]]:
    """The columns of numbers that vary, and what is to be said of the others."""
    _check_columns(frame, sorted(ignore), "--ignore")
    kept, left_out = [], []
    for name, kind in frame.schema.items():
        if name in ignore:
            continue
        if not (kind.is_numeric() or kind == nw.Boolean):
            left_out.append(f"{name} ({kind})")
            continue
        values = frame[name].cast(nw.Float64()).to_numpy().astype(np.float64)
        if np.nanmin(values, initial=np.inf) >= np.nanmax(values, initial=-np.inf):
            left_out.append(f"{name} (constant)")
            continue
        kept.append(values)
    if not kept:
        raise InvalidInputError("evaluate: the table must have columns of numbers that vary; it has none.")
    said = [f"Left out, since they are no numbers that vary: {', '.join(left_out)}."] if left_out else []
    return np.column_stack(kept), said


def _cluster(X: Floats, labels: list[Any] | None, options: argparse.Namespace) -> tuple[Any, str]:
    """A model of the clusters, and what it is."""
    if labels is not None:
        model = Surrogate().fit(X, labels)
        right = model.fidelity_.cross_validated
        return model, f"a surrogate of {options.labels!r} that foretells {right:.1%} of its labels"
    if not 2 <= options.k <= len(X):
        raise InvalidInputError(
            f"evaluate: --k must be from 2 to the number of rows, {len(X)}; got {options.k}."
        )
    model = KMeans(options.k, n_init=10, random_state=options.seed).fit(X)
    return model, f"k-means with {options.k} clusters"
