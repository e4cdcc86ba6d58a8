"""``whycluster evaluate FILE`` measures how faithful the explanations of a clustering are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.preprocessing import StandardScaler

from whycluster.cli.clustering import (
    CommandOptions,
    check_k,
    choose_columns,
    cluster,
    describe_surrogate,
)
from whycluster.cli.formatting import to_json
from whycluster.cli.output import print_result
from whycluster.cli.reading import check_text
from whycluster.cli.tables import read_table
from whycluster.clustering.surrogate import Surrogate
from whycluster.core.arrays import Floats
from whycluster.core.errors import InvalidInputError
from whycluster.data import display
from whycluster.data.column_checks import ClassifiedColumns, classify_columns
from whycluster.data.labels import as_list
from whycluster.data.missing import is_missing
from whycluster.evaluation import checks as sanity
from whycluster.evaluation import compare
from whycluster.explanations.fidelity import LOW
from whycluster.models.network import check_rule
from whycluster.pipelines.affine_form import to_floats
from whycluster.pipelines.network import PipelineNetwork
from whycluster.pipelines.tabular import pipeline

LEGEND = """\
AUC: features are added to a row, starting with the most relevant; the AUC is the area under the curve
of how often the row is then in its cluster, from 0 to 100. +-: standard error of the AUC. share: where
the AUC lies between a random order (0%) and the greedy oracle (100%), which picks features by the AUC itself.
seconds: time to explain all rows."""


def evaluate(
    *,
    methods: Sequence[str],
    repeats: int,
    rows: int,
    checks: bool,
    rule: str,
    quiet: bool,  # noqa: ARG001  # only hides progress bars
    as_json: bool,
    **given: Any,
) -> None:
    """Cluster the numeric columns and compare methods that explain the clusters."""
    check_rule(rule, "--rule")
    options = CommandOptions.of(given)
    asked = _Evaluation(methods, repeats, rows, checks, rule, options.seed)
    if options.model is not None:
        _evaluate_segmentation(options, asked, as_json)
        return
    frame, notes = read_table(options.file)
    chosen = choose_columns(frame, options)
    labels = None if options.labels is None else as_list(frame[options.labels], "evaluate")
    notes += check_text(frame[chosen])
    classified = classify_columns(frame[chosen], "evaluate", chosen if options.columns else ())
    columns, more_notes = _complete_numbers(classified, labels)
    notes += more_notes
    _check_distinct(np.column_stack(list(columns.values())))
    X = StandardScaler().fit_transform(np.column_stack(list(columns.values())))
    table = pl.DataFrame(X, schema=list(columns))
    model, description = _cluster(table, X, labels, options)
    size = f"{display.count(len(X), 'row')}, {display.count(X.shape[1], 'column')}"
    head = f"{size}, standardized; {description}."
    print_result((_as_json if as_json else _as_text)(head, *asked.run(model, table, len(X), notes)))


@dataclass(frozen=True)
class _Evaluation:
    """The options of an evaluation, as given to the command."""

    methods: Sequence[str]
    repeats: int
    rows: int
    checks: bool
    rule: str
    seed: int

    def run(self, model: Any, table: Any, n_rows: int, notes: list[str]) -> tuple[list[str], Any, Any]:
        """Compare the methods on some rows of a table; return the notes, the comparison and the checks."""
        positions = np.sort(np.random.default_rng(self.seed).permutation(n_rows)[: self.rows])
        if len(positions) < n_rows:
            notes = [*notes, f"Only {len(positions)} of {n_rows} rows are evaluated, chosen at random."]
        comparison = compare(
            model,
            table[positions],
            [name for text in self.methods for name in text.split(",")] or None,
            repeats=self.repeats,
            background=table,
            random_state=self.seed,
        )
        found = sanity.run(model, table, rule=self.rule, random_state=self.seed) if self.checks else None
        return notes, comparison, found


def _evaluate_segmentation(options: CommandOptions, asked: _Evaluation, as_json: bool) -> None:
    """Compare methods that explain the clusters of a segmentation."""
    clustered = cluster(options)
    network, rows_of, notes = clustered.network, clustered.rows, list(clustered.notes)
    found = np.unique(np.asarray(network.assign(rows_of)).astype(str))
    if len(found) < 2:
        raise InvalidInputError(
            "the table must contain rows of at least two clusters, so that a row whose values are replaced "
            f"can change its cluster; all rows ({rows_of.height:,}) are in cluster {found[0]}."
        )
    table: Any = rows_of
    if isinstance(network, PipelineNetwork):  # methods are compared in terms of the numbers that models take
        opened, network = network.open(rows_of, "evaluate"), network.stages.last
        table = to_floats(opened.transformed(0, rows_of.height, opened.stages.form.run))
        n_features = display.count(table.shape[1], "feature")
        notes.append(f"Evaluated on {n_features} that the steps of the segmentation compute.")
        _check_distinct(table)
    n_rows = rows_of.height
    size = f"{display.count(n_rows, 'row')}, {display.count(rows_of.width, 'column')}"
    head = f"{size}; {clustered.description}."
    print_result((_as_json if as_json else _as_text)(head, *asked.run(network, table, n_rows, notes)))


def _as_json(head: str, notes: list[str], comparison: Any, checks: Any) -> str:
    result = {"description": head, "notes": notes, "methods": comparison.to_frame("polars").to_dicts()}
    return to_json(result if checks is None else {**result, "checks": str(checks)})


def _as_text(head: str, notes: list[str], comparison: Any, checks: Any) -> str:
    parts = [head, *notes, display.heading("How faithful are explanations?"), str(comparison), LEGEND]
    if checks is not None:
        parts += [display.heading("Sanity checks"), str(checks)]
    return "\n\n".join(parts)


def _complete_numbers(
    classified: ClassifiedColumns, labels: list[Any] | None
) -> tuple[dict[str, Floats], list[str]]:
    """Return the numeric columns that vary, without incomplete rows, and notes on omitted data.

    Labels of incomplete rows are removed from ``labels`` in place.
    """
    frame: pl.DataFrame = classified.frame
    columns = {
        name: frame[name].cast(pl.Float64).to_numpy().astype(np.float64)
        for name in classified.readings.get("numbers", [])
    }
    left_out = [f"{name} ({reason})" for name, reason in classified.left_out.items()]
    left_out += [
        f"{name} ({dtype}, not numeric)"
        for name, dtype in frame.schema.items()
        if name not in columns and name not in classified.left_out
    ]
    complete = np.ones(frame.height, dtype=bool)
    for values in columns.values():
        complete &= np.isfinite(values)
    if labels is not None:
        complete &= [not is_missing(label) for label in labels]
        labels[:] = [label for label, is_complete in zip(labels, complete, strict=True) if is_complete]
    varying = {name: values[complete] for name, values in columns.items() if _varies(values[complete])}
    left_out += [f"{name} (constant)" for name in columns if name not in varying]
    if not varying or complete.sum() < 2:
        raise InvalidInputError(
            "the table must have numeric columns that vary among the rows without missing values; "
            f"{complete.sum()} of {frame.height} rows have no missing values, and {len(varying)} columns "
            "vary among these rows."
        )
    notes = [f"Left out: {', '.join(left_out)}."] * bool(left_out)
    if not complete.all():
        notes.append(f"Left out because of missing values: {(~complete).sum()} of {len(complete)} rows.")
    return varying, notes


def _check_distinct(table: Floats) -> None:
    """Raise an error if every row has a duplicate, since no density can be estimated then."""
    _, size = np.unique(table, axis=0, return_counts=True)
    if size.min() > 1:
        raise InvalidInputError(
            "the table must contain rows without duplicates, since values are drawn from their estimated "
            f"density; each of the {size.sum():,} rows has a duplicate in the columns that are used. "
            "Remove the duplicates."
        )


def _varies(values: Floats) -> bool:
    return len(values) > 0 and bool(values.min() < values.max())


def _cluster(
    table: pl.DataFrame, X: NDArray[Any], labels: list[Any] | None, options: CommandOptions
) -> tuple[Any, str]:
    """Return a model of the clusters and its description."""
    if labels is not None:
        surrogate = Surrogate(random_state=options.seed).fit(X, labels)
        description = describe_surrogate(options.labels, surrogate.fidelity_)
        if surrogate.fidelity_.cross_validated < LOW:
            description += ", which is low: the results describe the surrogate, not the labels"
        return surrogate, description
    check_k(options.k, len(X))
    k = options.k or pipeline(table, keep=table.columns, random_state=options.seed)[-1].n_clusters
    return KMeans(k, n_init=10, random_state=options.seed).fit(X), f"k-means with {k} clusters"
