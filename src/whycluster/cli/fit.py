"""``whycluster fit FILE --out segments.why`` saves a segmentation, and ``show`` describes it."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from pathlib import Path
from textwrap import fill
from typing import Any

from whycluster.cli.clustering import CommandOptions, load_segmentation
from whycluster.cli.formatting import WIDTH, cluster_and_note, quality_facts, to_json
from whycluster.cli.output import print_result
from whycluster.cli.writing import check_target
from whycluster.core.errors import InvalidInputError
from whycluster.data import display
from whycluster.data.column_kinds import ColumnKind
from whycluster.segments.population import KnownColumn
from whycluster.segments.segmentation import Segmentation
from whycluster.segments.storage.saving import save

_SHOWN = 5  # number of categories to list
_SUFFIXES = (".why",)


def fit(*, out: Path, force: bool, quiet: bool, as_json: bool, **given: Any) -> None:
    """Cluster the table and save the segmentation."""
    options = CommandOptions.of(given)
    check_target(out, "--out", _SUFFIXES, options.file.path, force)
    clustered = cluster_and_note(options, quiet)
    seg = Segmentation.of(clustered.network, clustered.rows)
    left_out: dict[Hashable, str] = dict(clustered.left_out.items())
    seg = replace(seg, left_out=left_out)
    save(seg, out)
    if as_json:
        print_result(to_json({**_facts(seg), "out": out}))
    elif not quiet:
        print_result(f"{_as_text(seg)}\n\nSegmentation written to {out}.")


def show(file: Path, as_json: bool) -> None:
    """Describe the segmentation in a file."""
    try:
        seg = load_segmentation(file, "FILE")
    except InvalidInputError as error:
        raise InvalidInputError(str(error).removeprefix("FILE: ")) from error
    print_result(to_json(_facts(seg)) if as_json else _as_text(seg))


def _as_text(seg: Segmentation) -> str:
    quality = "The quality of the clusters was not measured." if seg.quality is None else seg.quality.text
    n_rows = seg.population.n_rows
    labels = display.clean_all(map(str, seg.labels.tolist()))
    shares = [f"{size / n_rows:.1%}" for size in seg.sizes.tolist()]
    sizes = [f"{size:,}" for size in seg.sizes.tolist()]
    listed = list(zip(labels, sizes, shares, strict=True))
    clusters = display.table(["cluster", "rows", "share"], listed, "<>>")
    columns = seg.population.columns
    described = display.table(
        ["column", "type", "missing", "values"],
        [
            [str(column.name), column.kind.value, f"{column.n_missing:,}", _values(column)]
            for column in columns
        ],
        "<<><",
    )
    parts = [
        f"{display.count(len(labels), 'cluster')} of {display.count(n_rows, 'row')} and "
        f"{display.count(len(columns), 'column')}.",
        fill(quality, WIDTH),
        display.heading("Clusters"),
        clusters,
        display.heading("Columns"),
        described,
    ]
    return "\n\n".join(parts)


def _values(column: KnownColumn) -> str:
    """Return the range or the first categories of a column."""
    if column.range is not None:
        low, high = column.range[0], column.range[-1]
        if column.kind is ColumnKind.BOOLEAN:
            return " and ".join(str(bool(value)).lower() for value in sorted({low, high}))
        shown = display.format_dates if column.kind is ColumnKind.DATE else display.numbers
        first, last = shown([low, high])
        return f"{first} to {last}"
    if column.categories is None:
        return "many categories" if column.kind.is_categorical else ""
    names = display.clean_all(map(str, column.categories[:_SHOWN]))
    more = len(column.categories) - _SHOWN
    return ", ".join(names) + f" and {more:,} more" * (more > 0)


def _facts(seg: Segmentation) -> dict[str, Any]:
    return {
        "rows": seg.population.n_rows,
        "clusters": [
            {"cluster": label, "rows": size}
            for label, size in zip(seg.labels.tolist(), seg.sizes.tolist(), strict=True)
        ],
        "columns": [
            {
                "column": column.name,
                "type": column.kind.value,
                "missing": column.n_missing,
                "range": None if column.range is None else [column.range[0], column.range[-1]],
                "categories": column.categories,
            }
            for column in seg.population.columns
        ],
        "left_out": dict(seg.left_out or {}),
        "quality": None if seg.quality is None else quality_facts(seg.quality),
    }
