"""`explain_dataset`: tables larger than memory, from files to files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from whycluster.core.errors import InvalidInputError
from whycluster.core.rules import DEFAULT_RULE
from whycluster.data.files import as_path
from whycluster.data.settings import setting
from whycluster.data.validation import check_whole
from whycluster.engines.files.fingerprint import fingerprint
from whycluster.engines.files.parts import FilePart, find_parts, takes_in
from whycluster.engines.files.plan import WHERE, make_plan
from whycluster.engines.files.run import DatasetExplanation, Run
from whycluster.engines.files.run_state import RunState
from whycluster.engines.request import ExplainRequest

_MOST_WORKERS = 8  # each has some 150 MB
OUTPUTS = ("rows", "summary", "both")


def explain_dataset(
    model: Any,
    data: Any,
    out: str | os.PathLike[str],
    *,
    columns: Sequence[str] | None = None,
    id_columns: Sequence[str] = (),
    top: int | None = None,
    output: str = "rows",
    target: Any = None,
    against: Any = None,
    beta: float | str = "auto",
    rule: str = DEFAULT_RULE,
    threshold: float | None = None,
    background: Any = None,
    metric: str | None = None,
    invalid: str = "error",
    batch_rows: int | str = "auto",
    workers: int | str = "auto",
    overwrite: bool = False,
) -> DatasetExplanation:
    """Explain a table that lies in files, however large, and write the results to files.

    Each part of the input (a Parquet or CSV file) becomes a Parquet file of the same name, with as many rows
    in the same order. A part is there when it is finished: a run that was stopped, or killed, goes on where
    it was when it is started again. Needs pyarrow: ``pip install "whycluster[files]"``.

    Parameters
    ----------
    model : as in `explain`; but labels need a model, such as a `Surrogate` of some rows
    data : a file, a folder, a pattern such as "in/*.parquet", a list of these, or a pyarrow Dataset
    out : a folder, new or of an earlier run
    columns : the columns that the model takes, in its order; by default those it knows, or else all columns
        of numbers that are no ``id_columns``
    id_columns : columns that are copied to the results; of one that is explained too, the relevance gets an
        underscore behind its name
    top : write only the ``top`` strongest features of each row, as names, relevance and values; by default
        the relevance of all of them, a column each
    output : "rows", or "summary" for what makes each cluster only (mean relevance, share, quantiles), or
        "both"
    target, against, rule, threshold, metric : as in `explain`, the same for all rows
    beta : "auto" measures it on all rows, in a first pass over the files; a number saves that pass, unless
        there is more to measure, as behind a PCA and for the sequential rule
    background : rows to measure it on instead, as in `explain`
    invalid : "error" for rows with values that are missing or not finite; "skip" writes nulls for them
    batch_rows : how many rows each stage (reading, explaining, writing) of each worker has in memory;
        "auto": some 12 to 24 MB of them
    workers : how many parts are worked on at a time; "auto": as many as there are processors, up to 8
    overwrite : replace the results of an earlier run, be it with another model, other options or the same

    Returns
    -------
    DatasetExplanation

    Raises
    ------
    InvalidInputError
        Also, after all others are done, if a part could not be read or has other columns.
    """
    request = ExplainRequest.of(
        model,
        WHERE,
        target=target,
        against=against,
        beta=beta,
        rule=rule,
        threshold=threshold,
        metric=metric,
        invalid=invalid,
    )
    request = replace(request, network=request.network.by_names)
    _check_options(top, output, batch_rows, workers)
    if output != "rows" and not (target is None and against is None):
        raise InvalidInputError(
            f"{WHERE}: a summary is of rows that are explained for their own clusters, against all others. "
            'Leave out target and against, or give output="rows".'
        )
    folder = as_path(out, WHERE, setting("out"), "a folder").expanduser()
    parts = find_parts(data, WHERE)
    check_apart(folder, data, parts)
    n_top = None if top is None else int(top)
    plan = make_plan(request.network, parts, columns, id_columns)
    if output == "summary" and (plan.ids or n_top is not None):
        raise InvalidInputError(
            f'{WHERE}: id_columns and top are of rows, and output="summary" writes none. Leave them out, or '
            'give output="both".'
        )
    if background is not None:
        request = request.measured_on(background, plan.columns)
    told, n_workers = fingerprint(model, request.network, WHERE), _n_workers(workers, len(parts))
    run_state = RunState(folder, WHERE)
    run = Run(request, plan, run_state, workers=n_workers, batch_rows=batch_rows, top=n_top, output=output)
    with run_state.opened(), run.saying_what_is_whole():
        run.begin(told, metric, overwrite)
        run.measure()
        run.explain()
        return run.finish()


def _check_options(top: Any, output: Any, batch_rows: Any, workers: Any) -> None:
    if output not in OUTPUTS:
        raise InvalidInputError(f"{WHERE}: output must be one of {OUTPUTS}; got {output!r}.")
    if top is not None:
        check_whole(top, 1, WHERE, "top", "None or ")
    for name, value in (("batch_rows", batch_rows), ("workers", workers)):
        if not (isinstance(value, str) and value == "auto"):
            check_whole(value, 1, WHERE, name, "'auto' or ")


def _n_workers(workers: int | str, n_parts: int) -> int:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    wanted = min(cores, _MOST_WORKERS) if workers == "auto" else int(workers)
    return min(wanted, n_parts)


def check_apart(folder: Path, data: Any, parts: list[FilePart]) -> None:
    """Raise if results would be written among the data: they would be read as such the next time."""
    place = folder.resolve()
    around = any(part.path is not None and place in part.path.resolve().parents for part in parts)
    if around or takes_in(data, folder):
        raise InvalidInputError(
            f"{WHERE}: {setting('out')} must be a folder apart from the data; {str(folder)!r} lies among "
            "them or around them."
        )
