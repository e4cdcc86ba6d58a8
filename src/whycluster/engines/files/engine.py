"""`explain_dataset`: explain tables larger than memory, reading from files and writing results to files.

A run makes two passes over all parts. The first pass measures the quantities that depend on all rows; it is
skipped if there are no such quantities. The second pass explains the parts and writes each part's results to
its own file. While one batch is being explained, the next batch is read and the previous batch is written,
so memory use does not depend on the number of rows.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from whycluster.core.attribution import Population
from whycluster.core.blocks import InOrder, single_threaded
from whycluster.core.errors import InvalidInputError
from whycluster.data.arrays import is_real
from whycluster.data.display import count, cut, join_words
from whycluster.data.files import as_path
from whycluster.data.settings import setting
from whycluster.data.validation import check_choice, check_integer
from whycluster.data.warnings import FilesWarning, PopulationWarning, level_of_the_caller
from whycluster.engines.aggregates import Aggregate, ReservoirSample
from whycluster.engines.engine import Engine
from whycluster.engines.files.batches import MOST_ROWS, BatchReader
from whycluster.engines.files.fingerprint import fingerprint
from whycluster.engines.files.new_rows import PartComparison, SpacedRows
from whycluster.engines.files.parts import FilePart, PartError, find_parts, would_read
from whycluster.engines.files.plan import (
    WHERE,
    ModelColumns,
    RunPlan,
    check_any_left,
    describe_failures,
    make_plan,
    result_name,
)
from whycluster.engines.files.pool import PartPool
from whycluster.engines.files.results import SUMMARY, DatasetExplanation, ResultFiles, naming
from whycluster.engines.files.run_state import RunState
from whycluster.engines.files.stages import ahead
from whycluster.engines.request import FIDELITY_EXPRESSION, ExplainRequest, population_to_json
from whycluster.engines.results import PartResult
from whycluster.models.network import Query, QueryOptions
from whycluster.segments.segmentation import Segmentation

if TYPE_CHECKING:
    from typing_extensions import Unpack

OUTPUTS = ("rows", "summary", "both")
_MOST_WORKERS = 8  # each needs about 150 MB
Found = TypeVar("Found")
_DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def explain_dataset(
    model: Any,
    data: Any,
    out: str | os.PathLike[str],
    *,
    columns: Sequence[str] | None = None,
    id_columns: Sequence[str] = (),
    top: int | None = None,
    output: str = "rows",
    metric: str | None = None,
    invalid: str = "error",
    batch_rows: int | str = "auto",
    workers: int | str = "auto",
    overwrite: bool = False,
    durable: bool = True,
    safe_cells: bool = False,
    check: bool = True,
    **query: Unpack[QueryOptions],
) -> DatasetExplanation:
    """Explain a table of any size that is stored in files, and write the results to files.

    Each part of the input (a Parquet or CSV file) becomes a Parquet file of the same name, with the same rows
    in the same order. Result files get their final names only once they are complete. If a run is stopped or
    killed, or if the power fails, the same call resumes it. ``_whycluster.json`` lists the finished files and
    their checksums, for `verify_dataset`. Requires pyarrow: ``pip install "whycluster[files]"``.

    Parameters
    ----------
    model : as in `explain`, or a `Segmentation`, whose beta and sizes of the clusters are used. Labels are
        not accepted; fit a `Surrogate` to some rows instead
    data : a file, a folder, a pattern such as ``"in/*.parquet"``, a list of these, or a pyarrow Dataset
    out : the folder for the results: a new folder, or the folder of an earlier run
    columns : the columns that the model takes, in the model's order. By default, the columns that the model
        was fitted on or, if it was fitted without column names, all numeric columns except ``id_columns``
    id_columns : columns to copy to the results. If such a column is also explained, an underscore is appended
        to the name of its relevance column
    top : write only the ``top`` strongest features of each row: their names, relevance and values. By
        default, write the relevance of all features, one column per feature
    output : "rows" for the explanation of each row, "summary" for only a summary of each cluster (mean
        relevance, share, quantiles), or "both"
    metric : as in `explain`
    invalid : "error" raises an error for rows with missing or infinite values; "skip" writes nulls for such
        rows
    batch_rows : how many rows each stage (reading, explaining, writing) of each worker holds in memory;
        "auto" means 12 to 24 MB of rows
    workers : how many parts to process at a time; "auto" means one per processor, up to 8
    overwrite : whether to replace the results of an earlier run, even one with a different model or options
    durable : sync files to disk before they get their final names, so that no finished result is lost if the
        power fails. Without this option, a resumed run recognizes damaged results and writes them again
    safe_cells : in the summary file ``_summary.csv``, put ' before text that a spreadsheet would run as a
        formula
    check : whether to compare the rows of each part with those that a segmentation was made on. Parts with
        columns of another type, or values on another scale, are not explained. Other large differences issue
        a `PopulationWarning`, and so do rows far outside the clusters of a model without a segmentation
    query : the options of `whycluster.Query`, as keywords. ``target`` and ``against`` are one cluster for all
        rows. A first pass over the files measures beta and the cluster sizes. A background makes that pass
        unnecessary. So does a number for beta with the rules "min-take-most" and "joint", which need no
        sizes, except after a PCA. Mixtures and contrasts need no measurement

    Returns
    -------
    DatasetExplanation

    Raises
    ------
    InvalidInputError
        If an argument is invalid, or if a part cannot be read or has the wrong columns. If parts fail, all
        other parts are finished before the error is raised.
    """
    known = None
    if isinstance(model, Segmentation):
        known, columns = model.population, _columns_of(model) if columns is None else columns
        model = model.network
        query.setdefault("background", known.measured)
    asked = Query(**query)
    _check_summary(output, asked)
    _check_options(top, output, batch_rows, workers)
    folder = as_path(out, WHERE, setting("out"), "a folder").expanduser()
    request = ExplainRequest.of(
        model,
        WHERE,
        asked,
        metric=metric,
        invalid=invalid,
        name="data",
        fidelity_expression=FIDELITY_EXPRESSION,
    )
    parts = find_parts(data, WHERE)
    check_out(folder, data, parts)
    model_columns = ModelColumns.of(request.network)
    request = replace(request, network=model_columns.network)
    plan = make_plan(model_columns, parts, columns, id_columns)
    _check_writes_rows(output, plan, top)
    if asked.background is not None:
        request = request.measure_background(asked.background, plan.columns)
    state = RunState(folder, WHERE, durable)
    top = None if top is None else int(top)
    facts = _facts(model, request, plan, metric, top, output)
    # Each part is explained on one thread, since several parts are explained in parallel.
    with single_threaded(), state.opened(), _explaining_write_errors(folder):
        state.begin(facts, plan.settings, overwrite)
        plan = plan.with_settings(state.settings)
        output_options: dict[str, Any] = {"top": top, "output": output, "safe_cells": safe_cells}
        engine = FilesEngine.of(
            request, plan, state, model_columns, batch_rows=batch_rows, workers=workers, **output_options
        )
        if check:
            engine = replace(engine, comparison=PartComparison(known, request))
        return engine.run(plan.parts)


def _columns_of(seg: Segmentation) -> list[str]:
    """Return the columns that a segmentation takes."""
    return [str(name) for name in seg.feature_names]


def _facts(
    model: Any, request: ExplainRequest, plan: RunPlan, metric: str | None, top: int | None, output: str
) -> dict[str, Any]:
    """Return what determines the results of a run; a run can be resumed only if this is unchanged."""
    return {
        "model": fingerprint(model, request.network, WHERE),
        **_options_to_json(request),
        "metric": metric,
        "columns": plan.columns,
        "id_columns": plan.ids,
        "top": top,
        "output": output,
    }


def _check_summary(output: str, asked: Query) -> None:
    if output != "rows" and not (asked.target is None and asked.against is None):
        raise InvalidInputError(
            f"{WHERE}: for a summary, rows must be explained for their own clusters, against all others. "
            'Leave out target and against, or pass output="rows".'
        )


def _check_writes_rows(output: str, plan: RunPlan, top: int | None) -> None:
    if output == "summary" and (plan.ids or top is not None):
        raise InvalidInputError(
            f'{WHERE}: id_columns and top apply only to rows; output="summary" writes no rows. Leave them '
            'out, or pass output="both".'
        )


def _check_options(top: Any, output: Any, batch_rows: Any, workers: Any) -> None:
    check_choice(output, OUTPUTS, WHERE, "output")
    if top is not None:
        check_integer(top, 1, WHERE, "top", "None or ")
    for name, value in (("batch_rows", batch_rows), ("workers", workers)):
        if not (isinstance(value, str) and value == "auto"):
            check_integer(value, 1, WHERE, name, "'auto' or ")


def check_out(folder: Path, data: Any, parts: list[FilePart]) -> None:
    """Raise an error if results would be written among the data, where the next run would read them.

    pyarrow requires that the path is valid UTF-8.
    """
    place = folder.resolve()
    try:
        str(place).encode()
    except UnicodeEncodeError:
        raise InvalidInputError(
            f"{WHERE}: {setting('out')} must be valid UTF-8, including the folders above it; got "
            f"{str(folder)!r}. Use another name."
        ) from None
    around = any(part.path is not None and place in part.path.resolve().parents for part in parts)
    if around or would_read(data, folder):
        raise InvalidInputError(
            f"{WHERE}: {setting('out')} must be a folder separate from the data; {str(folder)!r} contains "
            "the data or is inside the data folder."
        )


def _options_to_json(request: ExplainRequest) -> dict[str, Any]:
    """Return the query as JSON values. A population measured on a background is included as a hash."""
    names = ("target", "against", "beta", "threshold")
    options = {name: _option_to_json(getattr(request.query, name)) for name in names}
    options["rule"] = request.query.rule or request.network.default_rule
    if request.population is not None:
        text = json.dumps(population_to_json(request.population))
        options["background"] = hashlib.sha256(text.encode()).hexdigest()[:32]
    return options


def _option_to_json(value: Any) -> str | None:
    """Return an option as text; 1 and 1.0 give the same text."""
    if value is None or type(value) is str:
        return value
    return repr(float(value)) if is_real(value) else str(value)


@contextmanager
def _explaining_write_errors(folder: Path) -> Iterator[None]:
    """Add to the messages of write errors that finished parts are complete, and how to resume."""
    try:
        yield
    except OSError as error:
        fix = "free some space" if error.errno in _DISK_FULL else "fix the cause"
        raise OSError(
            error.errno,
            f"{WHERE}: writing to {str(folder)!r} failed ({error}). The finished parts are complete. To "
            f"resume, {fix} and start the run again.",
        ) from error


@dataclass(frozen=True)
class FilesEngine(Engine[list[FilePart], FilePart, None, DatasetExplanation]):
    """Explains files on threads; `explain` writes results to files and returns nothing.

    Attributes
    ----------
    request : the request to answer
    plan : how parts are read
    results : where results are written
    pool : the threads
    reader : reads the batches of parts
    reservoir : the priorities of the rows sampled for the summary, over all parts
    comparison : compares parts with the rows of a segmentation, or with the clusters; None for no checks
    """

    request: ExplainRequest
    plan: RunPlan
    results: ResultFiles
    pool: PartPool
    reader: BatchReader
    reservoir: ReservoirSample
    comparison: PartComparison | None = None

    @classmethod
    def of(
        cls,
        request: ExplainRequest,
        plan: RunPlan,
        state: RunState,
        model: ModelColumns,
        *,
        top: int | None,
        output: str,
        safe_cells: bool,
        batch_rows: int | str,
        workers: int | str,
    ) -> FilesEngine:
        """Create the engine for one run."""
        pool, taken = PartPool(plan, _n_workers(workers, len(plan.parts))), plan.taken
        n_rows = None if batch_rows == "auto" else min(int(batch_rows), MOST_ROWS)
        reader = BatchReader(plan, model.n_clusters, n_rows)
        arrow = request.arrow_format(top=top, dtype=plan.dtype, as_text=plan.as_text, taken=taken)
        strict = request.invalid == "error"
        results = ResultFiles(plan, state, arrow, output, model, strict, safe_cells)
        reservoir = ReservoirSample(model.n_clusters, len(plan.columns))
        return cls(request, plan, results, pool, reader, reservoir)

    # The first pass

    def measure_all(self, parts: list[FilePart]) -> Population:
        """Measure all parts unless an earlier run did; raise an error if parts have changed since then."""
        state = self.results.state
        figures = state.figures
        if "population" in figures:
            self._check_same_parts(figures["inputs"], figures["without"])
            return self._population_from_json(figures["population"])
        total = self._measure_rest([part for part in parts if part.name not in self.plan.failed])
        check_any_left(self.plan)
        state.forget_progress()
        if total.sizes.any():  # otherwise `explain_all` raises an error
            state.record(
                population=population_to_json(total),
                inputs=self.plan.identities,
                without=sorted(self.plan.failed),
                finite=self.results.strict,
            )
        return total

    def measure(self, part: FilePart) -> Population:
        """Measure the rows of one file."""
        total: Population | None = None
        with closing(self._batches(part, self.plan.columns)) as batches:
            for first_row, batch in batches:
                found = _named(part, self.request.measure, batch, first_row)
                total = found if total is None else total + found
        self.plan.check_unchanged(part)
        return Population.none(self.request.network.energy) if total is None else total

    def _measure_rest(self, parts: list[FilePart]) -> Population:
        """Measure the parts that no stopped run has measured, and return the sum over all parts."""
        before, stored = self._measured_before(parts)
        rest = [part for part in parts if part.name not in before]
        numbers, measured = {part.name: number for number, part in enumerate(rest)}, {*before}
        start = None if stored is None else self._population_from_json(stored)
        total = InOrder(Population.none(self.request.network.energy) if start is None else start)

        def measure(part: FilePart) -> None:
            number = numbers[part.name]
            try:
                found = self.measure(part)
            except PartError:  # the sum does not include this part
                total.add(number, number + 1, None)
                raise
            measured.add(part.name)
            total.add(number, number + 1, found)
            sum_so_far = total.so_far
            if sum_so_far[0] < len(rest):  # the complete sum is saved by the caller
                self.results.state.save_progress(lambda: progress(*sum_so_far))

        def progress(n: int, population: Population) -> dict[str, Any]:
            names = [*before, *(part.name for part in rest[:n] if part.name in measured)]
            return {
                "inputs": {name: self.plan.identities[name] for name in names},
                "population": population_to_json(population),
                "invalid": self.request.invalid,
            }

        self.pool.each("measuring", rest, measure)
        return total.so_far[1]

    def _measured_before(self, parts: list[FilePart]) -> tuple[list[str], Any]:
        """Return the parts that a stopped run measured, and their sum; [] and None if parts have changed."""
        stored = self.results.state.measured
        names, inputs = {part.name for part in parts}, stored.get("inputs", {})
        changed = any(name not in names or self.plan.identities[name] != i for name, i in inputs.items())
        if not stored or changed or stored["invalid"] != self.request.invalid:  # other rows were skipped
            return [], None
        return list(inputs), stored["population"]

    def _check_same_parts(self, before: dict[str, Any], without: list[str]) -> None:
        """Raise an error if parts changed since they were measured; parts that failed then may change."""
        now = self.plan.identities
        changed = sorted(
            name for name in {*before, *now} if before.get(name) != now.get(name) and name not in without
        )
        if changed:
            what = self.request.to_measure
            remedy = setting("beta=..." if self.request.only_needs_beta else "background=...")
            arriving = f"{remedy} to explain parts as they arrive, or " * bool(remedy)
            raise InvalidInputError(
                f"{WHERE}: the parts must be those that {join_words(what)} "
                f"{'was' if self.request.only_needs_beta else 'were'} measured on; {changed[0]!r} "
                f"{'and others have' if len(changed) > 1 else 'has'} been added, removed or changed since "
                f"then. Pass {arriving}{setting('overwrite=True')} to start over."
            )

    def _population_from_json(self, stored: Any) -> Population:
        """Read the population that an earlier run measured."""
        found = self.request.population_from_json(stored)
        if found is None:
            raise InvalidInputError(
                f"{WHERE}: the measurements of the earlier run were changed after they were written. Start "
                f"over with {setting('overwrite=True')}."
            )
        return found

    # The second pass

    def explain_all(self, parts: list[FilePart], population: Population | None) -> DatasetExplanation:
        """Explain the parts that no earlier run has finished."""
        engine = replace(self, request=self.request.with_population(population))
        beta = engine.request.beta
        parts = [part for part in parts if part.name not in self.plan.failed]
        self._check_others()
        done = self._find_done(parts)
        to_do = [part for part in parts if part.name not in done]
        names = [name for part in parts for name in self.results.files_of(part)]
        self.results.state.expect([SUMMARY, *names], len(to_do))
        try:
            with self.results.state.committing():
                self.pool.each("explaining", to_do, engine.explain)
        finally:
            self._warn_of_differences()  # even if the run is interrupted: finished parts are not read again
        return self._finish(beta, len(parts) - len(to_do))

    def explain(self, part: FilePart) -> None:
        """Explain the rows of one file, and write the results."""
        n_ahead = 0 if self.reader.is_one_batch(part) else 1
        with closing(self._explained(part)) as explained:  # ends its threads even if an error occurs
            if self.results.output == "rows":
                self.results.write_rows(part, explained, n_ahead)
                return
            total = Aggregate.empty(*self.results.shape)
            counted = self._counted(part, explained, total)
            if self.results.output == "both":
                self.results.write_rows(part, counted, n_ahead)
            for _ in counted:  # the remaining batches, or all batches if no rows are written
                pass
        self.plan.check_unchanged(part)
        self.results.write_aggregate(part, total)
        self.reservoir.add(total)

    def _explained(self, part: FilePart) -> Generator[tuple[Any, PartResult]]:
        """Yield the batches of a part and their explanations."""
        columns, ids = self.plan.columns, self.plan.ids_of(part)
        wanted, rows = [*ids, *(name for name in columns if name not in ids)], SpacedRows()
        with closing(self._batches(part, wanted)) as batches:
            for first_row, batch in batches:
                explained = batch.select(columns)
                if self.comparison is not None:
                    rows.add(explained)
                yield batch, _named(part, self.request.explain, explained, first_row)
        if self.comparison is not None:
            self.comparison.check(part, rows)  # an error here discards the results of the part

    def _counted(
        self, part: FilePart, explained: Iterator[tuple[Any, PartResult]], total: Aggregate
    ) -> Iterator[tuple[Any, PartResult]]:
        """Yield the items unchanged after adding them to ``total``; the part's name seeds the priorities."""
        rng = np.random.default_rng(list(hashlib.sha256(part.name.encode()).digest()[:16]))
        for batch, result in explained:
            total.add(result, rng, self.reservoir)
            yield batch, result

    def _batches(self, part: FilePart, columns: list[str]) -> Generator[tuple[int, Any]]:
        """Yield, for each batch, the number of its first row and the batch; the next batch is read ahead."""
        first_row = 0
        n_ahead = 0 if self.reader.is_one_batch(part) else 1
        with closing(ahead(self.reader.read(part, columns), n_ahead)) as batches:
            for batch in batches:
                yield first_row, batch
                first_row += batch.num_rows
                self.pool.tick(batch.num_rows)

    def _find_done(self, parts: list[FilePart]) -> set[str]:
        """Return the names of the parts that an earlier run has finished, after reading their results."""
        done = set()

        def check(part: FilePart) -> None:
            if self._is_done(part):
                done.add(part.name)
            self.pool.tick(self.plan.counts[part.name] or 0)

        listed = [part for part in parts if self.results.is_listed(part)]
        if listed:
            self.pool.each("checking", listed, check)
        return done

    def _is_done(self, part: FilePart) -> bool:
        """Return whether an earlier run has finished a part; if so, add its sample to the reservoir."""
        if self.results.output == "rows":
            return self.results.is_written(part)
        found = self.results.finished_aggregate(part)
        if found is not None:
            self.reservoir.add(found)
        return found is not None

    def _check_others(self) -> None:
        """Warn about earlier results of parts that are not in this call, or raise an error.

        An error is raised if such results belong to a file that has another part name in this call. The part
        name of a file can differ between calls, because it depends on the common folder of all files.
        """
        others = self.results.others()
        if not others:
            return
        now = {self.results.owner(part): result_name(part) for part in self.plan.to_do}
        twice = next((name for name, owner in others.items() if owner in now), None)
        if twice is not None:
            raise InvalidInputError(
                f"{WHERE}: each part must keep its name between calls; the part whose results are in "
                f"{twice!r} would now be written to {now[others[twice]]!r}. Always pass the same folder, the "
                f"one that contains all parts, or pass {setting('overwrite=True')} to start over."
            )
        n, are = count(len(others), "part"), "is" if len(others) == 1 else "are"
        warnings.warn(
            f"{WHERE}: {str(self.results.state.folder)!r} also holds the results of {n} that {are} no longer "
            f"in the data: {cut(sorted(others))}. These results are kept.",
            FilesWarning,
            stacklevel=5,
        )

    def _warn_of_differences(self) -> None:
        text = "" if self.comparison is None else self.comparison.warning
        if text:
            warnings.warn(f"{WHERE}: {text}.", PopulationWarning, stacklevel=level_of_the_caller())

    def _finish(self, beta: float | None, n_done_before: int) -> DatasetExplanation:
        """Write the summary and return the results; raise an error if a part failed."""
        done, failed, results = self.plan.to_do, self.plan.failed, self.results
        aggregate, summary = None, None
        if results.output == "rows":
            n_rows, n_invalid = results.count_rows(done)
        else:
            aggregate = results.total_aggregate(done)
            summary = aggregate.summary(self.request.labels, self.plan.columns)
            n_rows, n_invalid = int(aggregate.size.sum()) + aggregate.n_invalid, aggregate.n_invalid
            results.write_summary(summary, aggregate)
        results.state.finish(complete=not failed)
        if failed:
            n, n_parts = len(failed), len(self.plan.parts)
            others = "; the others are done" * (n < n_parts)
            raise InvalidInputError(
                f"{WHERE}: {n} of {n_parts} parts could not be explained{others}. {describe_failures(failed)}"
            )
        without = {*results.state.figures.get("without", [])} & {part.name for part in done}
        return DatasetExplanation(
            results.state.folder,
            [results.path(part) for part in done if results.output != "summary"],
            n_rows,
            n_invalid,
            beta,
            n_done_before,
            sorted(without),
            summary,
            aggregate,
        )


def _named(part: FilePart, work: Callable[[Any, int], Found], batch: Any, first_row: int) -> Found:
    """Apply ``work`` to a batch; error messages name the part."""
    with naming(part):
        return work(batch, first_row)


def _n_workers(workers: int | str, n_parts: int) -> int:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    wanted = min(cores, _MOST_WORKERS) if workers == "auto" else int(workers)
    return min(wanted, n_parts)
