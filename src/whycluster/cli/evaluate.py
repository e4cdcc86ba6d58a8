"""``whycluster evaluate FILE``: how faithful explanations of a clustering of this table are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.preprocessing import StandardScaler

from whycluster.cli.clustering import Asked, check_k, choose, left_out_of, predicted
from whycluster.cli.formatting import to_json
from whycluster.cli.reading import look_at_text, read
from whycluster.cli.screen import show
from whycluster.clustering.surrogate import Surrogate
from whycluster.core.arrays import Floats
from whycluster.core.errors import InvalidInputError
from whycluster.data import display
from whycluster.data.labels import as_list
from whycluster.data.missing import is_missing
from whycluster.evaluation import checks as sanity
from whycluster.evaluation import compare
from whycluster.explanations.fidelity import LOW
from whycluster.models.network import check_rule
from whycluster.pipelines.tabular import pipeline

LEGEND = """\
AUC: features of a row are added, the most relevant first; the area under the share of draws in which the row
is then in its cluster, from 0 to 100. +-: its standard error. share: of the way from a random order to the
greedy oracle, which is told what is measured. seconds: to explain all rows."""


def evaluate(
    *,
    methods: Sequence[str],
    repeats: int,
    rows: int,
    checks: bool,
    rule: str,
    quiet: bool,  # noqa: ARG001  # it has nothing but progress to say
    as_json: bool,
    **options: Any,
) -> None:
    """Cluster the columns of numbers, and compare methods that explain the clusters."""
    check_rule(rule, "--rule")
    asked = Asked.of(options)
    frame = read(asked.source)
    chosen = choose(frame, asked)
    labels = None if asked.labels is None else as_list(frame[asked.labels], "evaluate")
    said = look_at_text(frame[chosen])
    columns, told = _numbers(frame, chosen, labels, keep=bool(asked.columns))
    said += told
    X = StandardScaler().fit_transform(np.column_stack(list(columns.values())))
    table = pl.DataFrame(X, schema=list(columns))
    model, what = _cluster(table, X, labels, asked)
    some = np.sort(np.random.default_rng(asked.seed).permutation(len(X))[:rows])
    if len(some) < len(X):
        said.append(f"{len(some)} of {len(X)} rows are evaluated, chosen at random.")
    comparison = compare(
        model,
        table[some],
        [name for given in methods for name in given.split(",")] or None,
        repeats=repeats,
        background=table,
        random_state=asked.seed,
    )
    found = sanity.run(model, table, rule=rule, random_state=asked.seed) if checks else None
    head = f"{display.count(len(X), 'row')}, {display.count(X.shape[1], 'column')}, standardised; {what}."
    if as_json:
        result: dict[str, Any] = {
            "what": head,
            "notes": said,
            "methods": comparison.to_frame("polars").to_dicts(),
        }
        show(to_json(result | ({} if found is None else {"checks": str(found)})))
        return
    parts = [head, *said, display.heading("How faithful are explanations?"), str(comparison), LEGEND]
    if found is not None:
        parts += [display.heading("Sanity checks"), str(found)]
    show("\n\n".join(parts))


def _numbers(
    frame: pl.DataFrame, chosen: Sequence[str], labels: list[Any] | None, keep: bool
) -> tuple[dict[str, Floats], list[str]]:
    """The columns of numbers that vary, in the rows without gaps, and what is to be said of the rest.

    Of the labels, too, those of these rows are kept, in place.
    """
    kept, left_out = _columns(frame, chosen, keep)
    whole = np.ones(frame.height, dtype=bool)
    for values in kept.values():
        whole &= np.isfinite(values)
    if labels is not None:
        whole &= [not is_missing(label) for label in labels]
        labels[:] = [label for label, keep in zip(labels, whole, strict=True) if keep]
    varying = {name: values[whole] for name, values in kept.items() if _varies(values[whole])}
    left_out += [f"{name} (constant)" for name in kept if name not in varying]
    if not varying or whole.sum() < 2:
        raise InvalidInputError(
            "the table must have columns of numbers that vary in the rows without missing values; "
            f"of {frame.height} rows {whole.sum()} have none missing, and in these {len(varying)} columns "
            "vary."
        )
    said = [f"Left out: {', '.join(left_out)}."] * bool(left_out)
    if not whole.all():
        said.append(f"{(~whole).sum()} of {len(whole)} rows have missing values and are left out.")
    return varying, said


def _columns(frame: pl.DataFrame, chosen: Sequence[str], keep: bool) -> tuple[dict[str, Floats], list[str]]:
    """The columns that hold numbers, and the names and kinds of the others."""
    kept: dict[str, Floats] = {}
    reasons = left_out_of(frame, chosen, keep)
    left_out = [f"{name} ({reason})" for name, reason in reasons.items()]
    for name in chosen:
        kind = frame.schema[name]
        if name in reasons:
            continue
        if not (kind.is_numeric() or kind == pl.Boolean):
            left_out.append(f"{name} ({kind}, no numbers)")
            continue
        kept[name] = frame[name].cast(pl.Float64).to_numpy().astype(np.float64)
    return kept, left_out


def _varies(values: Floats) -> bool:
    return len(values) > 0 and bool(values.min() < values.max())


def _cluster(table: pl.DataFrame, X: NDArray[Any], labels: list[Any] | None, asked: Asked) -> tuple[Any, str]:
    """A model of the clusters, and what it is."""
    if labels is not None:
        surrogate = Surrogate(random_state=asked.seed).fit(X, labels)
        what = predicted(asked.labels, surrogate.fidelity_)
        if surrogate.fidelity_.cross_validated < LOW:
            what += ", too few: what follows is about the surrogate, not about the labels"
        return surrogate, what
    check_k(asked.k, len(X))
    k = asked.k or pipeline(table, keep=table.columns, random_state=asked.seed)[-1].n_clusters
    return KMeans(k, n_init=10, random_state=asked.seed).fit(X), f"k-means with {k} clusters"
