"""``whycluster evaluate FILE``: how faithful explanations of a clustering of this table are."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import narwhals as nw
import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.preprocessing import StandardScaler

from whycluster import console
from whycluster.arrays import Floats
from whycluster.errors import InvalidInputError
from whycluster.evaluation import checks, compare
from whycluster.fidelity import LOW
from whycluster.frames import build_frame, installed
from whycluster.labels import as_list
from whycluster.surrogate import Surrogate
from whycluster.table import is_missing

LEGEND = """\
AUC: features of a row are added, the most relevant first; the area under the share of draws in which the row
is then in its cluster, from 0 to 100. +-: its standard error. share: of the way from a random order to the
greedy oracle, which is told what is measured. seconds: to explain all rows."""

_LARGEST = 1e150
_MOST_SEED = 2**32 - 1  # that scikit-learn takes


def evaluate(options: argparse.Namespace) -> str:
    """What the command prints."""
    _check_options(options)
    file = Path(options.file)
    frame = _read(file)
    labels = None if options.labels is None else _labels_of(frame, options.labels)
    columns, said = _numbers(frame, {*options.ignore, options.labels} - {None}, labels)
    for name, values in columns.items():
        if np.abs(values).max() > _LARGEST:
            raise InvalidInputError(
                f"evaluate: column {name!r} has values too large to be squared. Rescale it."
            )
    X = StandardScaler().fit_transform(np.column_stack(list(columns.values())))
    named = {name: X[:, i] for i, name in enumerate(columns)}
    table = build_frame(named, frame.to_native(), None, "evaluate", same_rows=False)  # type: ignore[arg-type]
    model, what = _cluster(X, labels, options)
    some = np.sort(np.random.default_rng(options.seed).permutation(len(X))[: options.rows])
    if len(some) < len(X):
        said.append(f"{len(some)} of {len(X)} rows are evaluated, chosen at random.")
    rows = nw.from_native(table, eager_only=True)[some.tolist()].to_native()
    comparison = compare(
        model, rows, options.methods, repeats=options.repeats, background=table, random_state=options.seed
    )
    parts = [
        f"{len(X)} rows, {X.shape[1]} columns, standardised; {what}.",
        *said,
        console.heading("How faithful are explanations?"),
        str(comparison),
        LEGEND,
    ]
    if options.checks:
        found = checks.run(model, table, rule=options.rule, random_state=options.seed)
        parts += [console.heading("Sanity checks"), str(found)]
    return "\n\n".join(parts)


def _check_options(options: argparse.Namespace) -> None:
    if options.rows < 2:
        raise InvalidInputError(f"evaluate: --rows must be at least 2; got {options.rows}.")
    if not 0 <= options.seed <= _MOST_SEED:
        raise InvalidInputError(f"evaluate: --seed must be from 0 to {_MOST_SEED}; got {options.seed}.")


def _read(file: Path) -> nw.DataFrame[Any]:
    if not file.is_file():
        kind = "a folder" if file.is_dir() else "not there"
        raise InvalidInputError(f"evaluate: the file must be a table; {file} is {kind}.")
    kind = file.suffix.lower()
    backend: Any = installed("evaluate")
    try:
        if kind == ".parquet":
            return nw.read_parquet(str(file), backend=backend)
        if kind in (".csv", ".tsv"):
            frame = _read_separated(file, backend, "\t" if kind == ".tsv" else ",")
            _check_separated(frame, file)
            return frame
    except InvalidInputError:
        raise
    except Exception as error:
        raise InvalidInputError(f"evaluate: {file.name} cannot be read: {error}") from error
    raise InvalidInputError(f"evaluate: the file must be .csv, .tsv or .parquet; got {file.name}.")


def _read_separated(file: Path, backend: Any, separator: str) -> nw.DataFrame[Any]:
    if separator == ",":
        return nw.read_csv(str(file), backend=backend)
    try:
        return nw.read_csv(str(file), backend=backend, separator=separator)
    except TypeError:  # early versions of narwhals hand options on, and pandas has another name for this one
        return nw.read_csv(str(file), backend=backend, sep=separator)


def _check_separated(frame: nw.DataFrame[Any], file: Path) -> None:
    """Raise if the columns were not told apart: their names would hold what separates them."""
    joined = [name for name in frame.columns if ";" in str(name) or "\t" in str(name)]
    if joined:
        raise InvalidInputError(
            f"evaluate: the columns of {file.name} must be separated by commas (.csv) or tabs (.tsv); one is "
            f"called {joined[0]!r}. Save it again with commas, and points in numbers."
        )


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


def _numbers(
    frame: nw.DataFrame[Any], ignore: set[str], labels: list[Any] | None
) -> tuple[dict[str, Floats], list[str]]:
    """The columns of numbers that vary, in the rows without gaps, and what is to be said of the rest.

    Of the labels, too, those of these rows are kept, in place.
    """
    _check_columns(frame, sorted(ignore), "--ignore")
    kept, left_out = _columns(frame, ignore)
    whole = np.ones(len(frame), dtype=bool)
    for values in kept.values():
        whole &= np.isfinite(values)
    if labels is not None:
        whole &= [not is_missing(label) for label in labels]
        labels[:] = [label for label, keep in zip(labels, whole, strict=True) if keep]
    varying = {name: values[whole] for name, values in kept.items() if _varies(values[whole])}
    left_out += [f"{name} (constant)" for name in kept if name not in varying]
    if not varying or whole.sum() < 2:
        raise InvalidInputError(
            "evaluate: the table must have columns of numbers that vary in the rows without missing values; "
            f"of {len(frame)} rows {whole.sum()} have none missing, and in these {len(varying)} columns vary."
        )
    said = [f"Left out, since they are no numbers that vary: {', '.join(left_out)}."] * bool(left_out)
    if not whole.all():
        said.append(f"{(~whole).sum()} of {len(whole)} rows have missing values and are left out.")
    return varying, said


def _columns(frame: nw.DataFrame[Any], ignore: set[str]) -> tuple[dict[str, Floats], list[str]]:
    """The columns that hold numbers, and the names and kinds of the others."""
    kept: dict[str, Floats] = {}
    left_out = []
    for name, kind in frame.schema.items():
        if name in ignore:
            continue
        if not (kind.is_numeric() or kind == nw.Boolean):
            left_out.append(f"{name} ({kind})")
            continue
        values = frame[name].cast(nw.Float64()).to_numpy().astype(np.float64)
        if np.isfinite(values).any():
            kept[name] = values
        else:
            left_out.append(f"{name} (empty)")
    return kept, left_out


def _varies(values: Floats) -> bool:
    return len(values) > 0 and bool(values.min() < values.max())


def _cluster(X: NDArray[Any], labels: list[Any] | None, options: argparse.Namespace) -> tuple[Any, str]:
    """A model of the clusters, and what it is."""
    if labels is not None:
        surrogate = Surrogate(random_state=options.seed).fit(X, labels)
        right = surrogate.fidelity_.cross_validated
        what = f"a surrogate of {options.labels!r} that foretells {right:.1%} of its labels"
        if right < LOW:
            what += ", too few: what follows is about the surrogate, not about the labels"
        return surrogate, what
    if not 2 <= options.k <= len(X):
        raise InvalidInputError(
            f"evaluate: --k must be from 2 to the number of rows, {len(X)}; got {options.k}."
        )
    model = KMeans(options.k, n_init=10, random_state=options.seed).fit(X)
    return model, f"k-means with {options.k} clusters"
