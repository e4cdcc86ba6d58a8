"""One run over the parts of a table that lies in files.

Two passes over all parts: one that measures what depends on all rows (left out where there is nothing to
measure), one that explains and writes, each part to a file of its own. A batch is read while the one before
is explained and the one before that is written, so that memory is that of a few batches, whatever the number
of rows.
"""

from __future__ import annotations

import errno
import hashlib
import json
import threading
import warnings
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import numpy as np

from whycluster.core import blocks
from whycluster.core.attribution import Population
from whycluster.core.blocks import InOrder
from whycluster.core.errors import FilesWarning, InvalidInputError, WhyClusterError
from whycluster.data.arrays import is_real
from whycluster.data.display import count
from whycluster.data.files import parse_json
from whycluster.data.frames import as_column, build_frame
from whycluster.data.progress import Progress
from whycluster.data.settings import setting
from whycluster.engines.aggregates import QUANTILES, Aggregate, ReservoirSample
from whycluster.engines.files.parts import FilePart, PartError, reading
from whycluster.engines.files.plan import STATES, WHERE, RunPlan, is_float, result_of, told
from whycluster.engines.files.run_state import RunState
from whycluster.engines.files.stages import ahead
from whycluster.engines.request import ExplainRequest, PartResult, population_to_json
from whycluster.explanations.summary import Summary

SUMMARY = "_summary.csv"  # not Parquet: some tools would read it among the results
_KEY = b"whycluster"
_BATCH_VALUES = 3 << 20  # numbers of a batch: what is read, explained and written at a time is a few of these
_FEWEST_ROWS, _MOST_ROWS = 1 << 10, 1 << 31  # of a batch
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

Found = TypeVar("Found")


@dataclass(frozen=True, repr=False)
class DatasetExplanation:
    """What `explain_dataset` has done.

    Attributes
    ----------
    folder : where the results are
    parts : the files with the explanations of the rows, in the order of the input
    n_rows : how many rows there were
    n_invalid : how many of them could not be explained, with ``invalid="skip"``
    beta : that was used; None where none is needed
    n_done_before : how many parts an earlier run had finished
    measured_without : parts that could not be read when beta was measured, and have been mended since
    summary : what makes each cluster, if it was asked for
    """

    folder: Path
    parts: list[Path]
    n_rows: int
    n_invalid: int
    beta: float | None
    n_done_before: int
    measured_without: list[str]
    summary: Summary | None = None
    _aggregate: Aggregate | None = field(default=None, repr=False)

    def __repr__(self) -> str:
        beta = "" if self.beta is None else f", beta={self.beta:.4g}"
        rows, parts = count(self.n_rows, "row"), count(len(self.parts), "part")
        what = f"{rows} in {parts}" if self.parts else f"a summary of {rows}"
        return f"<DatasetExplanation of {what} in {str(self.folder)!r}{beta}>"

    def quantiles(self, backend: str | None = None) -> Any:
        """Quantiles of the relevance by cluster and feature, as a frame, and how sure they are.

        They are those of a uniform sample of up to 4096 rows of each cluster. ``rank_error`` is the standard
        error of the rank of the median: 0.01 says that it may as well be the quantile 0.49 or 0.51. It is 0
        where the sample holds all rows.
        """
        if self._aggregate is None or self.summary is None:
            raise InvalidInputError(
                f'{WHERE}: quantiles are there only if they were asked for, with output="summary" or "both".'
            )
        summary = self.summary
        columns: dict[Any, Any] = {
            "cluster": np.repeat(summary.clusters, len(summary.feature_names)),
            "feature": np.tile(as_column(summary.feature_names), len(summary.clusters)),
        }
        columns.update({name: values.ravel() for name, values in _quantiles(self._aggregate).items()})
        return build_frame(columns, None, backend, "quantiles")


class Run:
    """One call of `explain_dataset`."""

    def __init__(
        self,
        request: ExplainRequest,
        plan: RunPlan,
        run_state: RunState,
        *,
        workers: int,
        batch_rows: int | str,
        top: int | None,
        output: str,
    ) -> None:
        self.request, self.plan, self.run_state, self.workers = request, plan, run_state, workers
        self.top, self.output = top, output
        self.n_done_before = 0
        self.drawn = ReservoirSample(*self._shape)
        self.batch_rows = None if batch_rows == "auto" else min(int(batch_rows), _MOST_ROWS)

    @contextmanager
    def saying_what_is_whole(self) -> Iterator[None]:
        """What cannot be written is told with what there is by then, and what to do."""
        try:
            yield
        except OSError as error:
            mend = "make room" if error.errno in _NO_ROOM else "mend that"
            raise OSError(
                error.errno,
                f"{WHERE}: writing to {str(self.run_state.folder)!r} failed ({error}). Parts that were "
                f"finished are whole; {mend}, and start it again: it goes on from there",
            ) from error

    def begin(self, model: str, metric: str | None, overwrite: bool) -> None:
        """Take up the run that is in the folder, or begin one; ``model`` is its fingerprint."""
        self.run_state.begin({"model": model, **self._asked_for(metric)}, self.plan.settled, overwrite)
        self.plan = self.plan.as_settled(self.run_state.facts["settled"])

    def _asked_for(self, metric: str | None) -> dict[str, Any]:
        """What the results depend on besides the model, as JSON can hold it."""
        options = {name: _plainly(value) for name, value in self.request.options.items()}
        if self.request.population is not None:  # that of a background
            told = json.dumps(population_to_json(self.request.population))
            options["background"] = hashlib.sha256(told.encode()).hexdigest()[:32]
        return {
            **options,
            "metric": metric,
            "columns": self.plan.columns,
            "id_columns": self.plan.ids,
            "top": self.top,
            "output": self.output,
        }

    # The first pass

    def measure(self) -> None:
        """Measure what depends on all rows, unless an earlier run has; raise if that had other parts."""
        if not self.request.needs_population:
            return
        known, plan = self.run_state.facts["known"], self.plan
        if "population" in known:
            self._check_same(known["inputs"], known["without"])
            self.request = self.request.knowing(self._read_population(known["population"]))
            return
        measured = self._measure_all()
        if not plan.to_do:
            raise InvalidInputError(f"{WHERE}: no part can be explained. {told(plan.failed)}")
        self.request = self.request.knowing(measured)
        self.run_state.facts["measured"] = {}
        self.run_state.keep(
            population=population_to_json(measured),
            inputs=plan.identities,
            without=sorted(plan.failed),
            finite=self.request.invalid == "error",
        )

    def _check_same(self, before: dict[str, Any], without: list[str]) -> None:
        """Parts that could not be read when the others were measured may have been repaired since."""
        now = self.plan.identities
        changed = sorted(
            name for name in {*before, *now} if before.get(name) != now.get(name) and name not in without
        )
        if changed:
            only_beta, beta = self.request.only_needs_beta, setting("beta=...")
            instead = f"Give {beta} to explain parts as they come, or " if only_beta and beta else "Give "
            raise InvalidInputError(
                f"{WHERE}: the parts must be those that {'beta was' if only_beta else 'the clusters were'} "
                f"measured on; {changed[0]!r} "
                f"{'and others ' * (len(changed) > 1)}came, went or changed since. "
                f"{instead}{setting('overwrite=True')} to begin anew."
            )

    def _measure_all(self) -> Population:
        """The sum over all parts, in their order; what a run that was stopped has of it is taken from it."""
        before, noted = self._noted()
        parts = [part for part in self.plan.to_do if part.name not in before]
        total = InOrder(noted)

        numbers, measured = {part.name: number for number, part in enumerate(parts)}, {*before}

        def measure(part: FilePart, tick: Callable[[int], None]) -> None:
            number = numbers[part.name]
            try:
                found = self._measure_part(part, tick)
            except PartError:  # the sum goes without it
                total.add(number, number + 1, None)
                raise
            measured.add(part.name)
            total.add(number, number + 1, found)
            self.run_state.note(lambda: note(*total.so_far))

        def note(n: int, population: Population) -> dict[str, Any]:
            names = [*before, *(part.name for part in parts[:n] if part.name in measured)]
            inputs = {name: self.plan.identities[name] for name in names}
            return {
                "inputs": inputs,
                "population": population_to_json(population),
                "invalid": self.request.invalid,
            }

        self._each("measuring", parts, measure)
        return total.so_far[1]

    def _noted(self) -> tuple[list[str], Population]:
        """Which parts a run that was stopped has measured, if they are as they were, and their sum."""
        noted = self.run_state.facts["measured"]
        names, inputs = {part.name for part in self.plan.to_do}, noted.get("inputs", {})
        changed = any(name not in names or self.plan.identities[name] != i for name, i in inputs.items())
        if not noted or changed or noted["invalid"] != self.request.invalid:  # as rows were left out, or not
            return [], Population.none(self.request.network.energy)
        return list(noted["inputs"]), self._read_population(noted["population"])

    def _measure_part(self, part: FilePart, tick: Callable[[int], None]) -> Population:
        found, n_rows = Population.none(self.request.network.energy), 0
        with closing(ahead(self._read(part, self.plan.columns))) as batches:
            for batch in batches:
                found = found + self._explained(part, self.request.measure, batch, n_rows)
                n_rows += batch.num_rows
                tick(batch.num_rows)
        self.plan.check_unchanged(part)
        return found

    def _read_population(self, told: Any) -> Population:
        """What an earlier run has measured."""
        found = self.request.read_population(told)
        if found is None:
            raise InvalidInputError(
                f"{WHERE}: what was measured by an earlier run must be left as it was written; it is not. "
                f"Begin anew, with {setting('overwrite=True')}."
            )
        return found

    # The second pass

    def explain(self) -> None:
        """Explain the parts that no earlier run has finished."""
        parts = self.plan.to_do
        self._check_others()
        todo = [part for part in parts if not self._is_done(part)]
        self.n_done_before = len(parts) - len(todo)
        self.run_state.expect([SUMMARY, *(name for part in parts for name in self._results(part))])
        self._each("explaining", todo, self._explain_part)

    def _check_others(self) -> None:
        """Say that there are results of other parts, of earlier calls; raise if they are of the same files.

        What a part is called depends on where all that are given lie.
        """
        others = self._others()
        if not others:
            return
        now = {self._run_of(part): result_of(part) for part in self.plan.to_do}
        twice = next((name for name, run in others.items() if run in now), None)
        if twice is not None:
            raise InvalidInputError(
                f"{WHERE}: parts must be called as they were; what became {twice!r} would now be "
                f"{now[others[twice]]!r}. Give the folder that all of them lie in, the same each time, or "
                f"{setting('overwrite=True')} to begin anew."
            )
        n, is_one = count(len(others), "other part"), len(others) == 1
        warnings.warn(
            f"{WHERE}: {str(self.run_state.folder)!r} holds the results of {n}, such as {min(others)!r}, "
            f"which {'is' if is_one else 'are'} not among the data now. They are left as they are.",
            FilesWarning,
            stacklevel=4,
        )

    def _others(self) -> dict[str, str]:
        """The results of earlier calls that are of no part of this one, and what each is of."""
        now = {result_of(part) for part in self.plan.parts}
        names = [
            name for name in self.run_state.facts["parts"] if name.endswith(".parquet") and name not in now
        ]
        found = {name: _footer(self.run_state.folder / name) for name in names}
        return {name: footer[1]["run"] for name, footer in found.items() if footer is not None}

    def _explain_part(self, part: FilePart, tick: Callable[[int], None]) -> None:
        run = self._run_of(part)
        with closing(self._answers(part, tick)) as answers:  # its thread ends, whatever goes wrong here
            if self.output == "rows":
                self._write_rows(part, run, answers)
                return
            total = Aggregate.empty(*self._shape)
            counted = self._counting(part, answers, total)
            if self.output == "both":
                self._write_rows(part, run, counted)
            for _ in counted:  # all of them, where no rows are written
                pass
        self.plan.check_unchanged(part)
        with self.run_state.writing(_state(part)) as path:
            total.save(path, run)
        self.drawn.add(total)

    def _answers(self, part: FilePart, tick: Callable[[int], None]) -> Generator[tuple[Any, PartResult]]:
        """The batches of a part, and their explanations."""
        columns, ids, n_rows = self.plan.columns, self.plan.ids_of(part), 0
        wanted = [*ids, *(name for name in columns if name not in ids)]
        with closing(ahead(self._read(part, wanted))) as batches:
            for batch in batches:
                yield batch, self._explained(part, self.request.explain, batch.select(columns), n_rows)
                n_rows += batch.num_rows
                tick(batch.num_rows)

    def _counting(
        self, part: FilePart, answers: Iterator[tuple[Any, PartResult]], total: Aggregate
    ) -> Iterator[tuple[Any, PartResult]]:
        """The same, added up on the way; what is drawn depends on the part only, not on who works on it."""
        rng = np.random.default_rng(list(hashlib.sha256(part.name.encode()).digest()[:16]))
        for batch, answer in answers:
            total.add(answer, rng, self.drawn)
            yield batch, answer

    def _write_rows(self, part: FilePart, run: str, answers: Iterator[tuple[Any, PartResult]]) -> None:
        import pyarrow.parquet as pq

        n_invalid, schema = 0, self._schema(part)
        repeating = [entry.name for entry in schema if not is_float(entry.type)]
        looked_for = [name for name in schema.names if name not in self.plan.kinds]  # not a relevance

        def tabulate(each: tuple[Any, PartResult]) -> tuple[Any, int]:
            return self._tabulate(part, *each, schema), each[1].n_invalid

        tables = map(tabulate, answers)  # which lets go of an answer before the next is made
        with (
            self.run_state.writing(result_of(part)) as path,
            pq.ParquetWriter(path, schema, use_dictionary=repeating, write_statistics=looked_for) as writer,
            closing(ahead(tables)) as made,
        ):
            for table, n in made:
                writer.write_table(table)
                n_invalid += n
            self.plan.check_unchanged(part)
            facts = {"run": run, "invalid": n_invalid}
            writer.add_key_value_metadata({_KEY: json.dumps(facts).encode()})

    def _tabulate(self, part: FilePart, batch: Any, answer: PartResult, schema: Any) -> Any:
        """The results of a batch, behind the columns that name its rows."""
        import pyarrow as pa

        with _naming(part):
            columns = [*batch.select(self.plan.ids_of(part)).columns, *self._results_of(answer).columns]
        return pa.Table.from_arrays(columns, schema=schema)

    def _results_of(self, answer: PartResult) -> Any:
        plan = self.plan
        return self.request.to_arrow(
            answer, top=self.top, dtype=plan.dtype, as_text=plan.as_text, taken=plan.taken
        )

    def _schema(self, part: FilePart) -> Any:
        """That of the results of a part; without nulls, where there can be none, they are written faster.

        There can be none if all rows were measured, and what is not finite was an error. That is a matter of
        how the run began, not of the call that goes on with it: all its results are alike.
        """
        import pyarrow as pa

        source, plan = self.plan.schemas[part.name], self.plan
        empty = pa.Table.from_batches([], schema=pa.schema([source.field(name) for name in plan.columns]))
        none = self.request.explain(empty)
        known = self.run_state.facts["known"]
        finite = known.get("finite") is True and part.name not in known["without"]
        results = [entry.with_nullable(not finite) for entry in self._results_of(none).schema]
        return pa.schema([*plan.read_as(part, plan.ids_of(part)), *results])

    # How parts are worked on

    def _each(
        self, title: str, parts: list[FilePart], work: Callable[[FilePart, Callable[[int], None]], None]
    ) -> None:
        """Call ``work`` for each part, some at a time; a part that cannot be read is noted as failed.

        Any other error, or Ctrl-C, stops all at their next batch.
        """
        stopped = threading.Event()
        with blocks.single_threaded(), Progress(title, self.plan.n_rows(parts), "rows") as bar:

            def tick(n_rows: int) -> None:
                if stopped.is_set():
                    raise _StoppedError
                bar.step(n_rows)

            def one(part: FilePart) -> None:
                if stopped.is_set():
                    return
                try:
                    with self.plan.excusing(part):
                        work(part, tick)
                except BaseException:
                    stopped.set()
                    raise

            with ThreadPoolExecutor(self.workers, "whycluster-part") as pool:
                futures = [pool.submit(one, part) for part in parts]
                try:
                    for future in futures:
                        _raise(blocks.error_of(future))
                finally:
                    stopped.set()

    def _read(self, part: FilePart, columns: list[str]) -> Iterator[Any]:
        """The batches of a part."""
        fields = self.plan.read_as(part, columns)
        with reading():
            yield from part.batches(fields, self._rows_at_a_time(part, fields))

    def _rows_at_a_time(self, part: FilePart, fields: list[Any]) -> int:
        """How many rows are read at a time; fewer, if names of rows are long by what the first few are."""
        if self.batch_rows is not None:
            return self.batch_rows
        n_values = len(self.plan.columns) + self.request.network.n_clusters
        usual = max(_FEWEST_ROWS, _BATCH_VALUES // n_values)
        long = [each for each in fields if not _is_short(each.type)]
        if not long:
            return usual
        with closing(part.batches(long, _FEWEST_ROWS)) as batches:
            first = next(batches, None)
        if first is None or not first.num_rows:
            return usual
        width = 8 * n_values + first.nbytes / first.num_rows
        return max(1, min(usual, int(8 * _BATCH_VALUES / width)))

    def _explained(
        self, part: FilePart, work: Callable[[Any, int], Found], batch: Any, n_before: int
    ) -> Found:
        """What ``work`` makes of a batch; an error says in which part, and counts its rows."""
        with _naming(part):
            return work(batch, n_before)

    # What is finished

    def _results(self, part: FilePart) -> list[str]:
        """The files that a part becomes."""
        return [result_of(part)] * (self.output != "summary") + [_state(part)] * (self.output != "rows")

    def _run_of(self, part: FilePart) -> str:
        return f"{self.run_state.run} {self.plan.identities[part.name]}"

    def _is_done(self, part: FilePart) -> bool:
        if self.output == "rows":
            return self._is_written(part)
        state = Aggregate.load(self.run_state.folder / _state(part), self._run_of(part))
        strict = self.request.invalid == "error"
        if state is None or not state.fits(*self._shape) or (strict and state.n_invalid):
            return False
        if self.output == "both" and not self._is_written(part):
            return False
        self.drawn.add(state)
        return True

    def _is_written(self, part: FilePart) -> bool:
        n_rows, facts = _footer(self.run_state.folder / result_of(part)) or (0, {"run": ""})
        complete = self.plan.counts[part.name] in (None, n_rows) and facts["run"] == self._run_of(part)
        return complete and not (self.request.invalid == "error" and facts["invalid"])

    @property
    def _shape(self) -> tuple[int, int]:
        """(K, d)."""
        return self.request.network.n_clusters, len(self.plan.columns)

    def finish(self) -> DatasetExplanation:
        """Say what was done; raise if a part could not be."""
        done, failed = self.plan.to_do, self.plan.failed
        aggregate, summary, n_rows, n_invalid = None, None, 0, 0
        if self.output != "rows":
            aggregate = self._added_up(done)
            summary = aggregate.summary(self.request.labels, self.plan.columns)
            n_rows, n_invalid = int(aggregate.size.sum()) + aggregate.n_invalid, aggregate.n_invalid
            self._write_summary(summary, aggregate)
        else:
            for part in done:
                rows, facts = _footer(self.run_state.folder / result_of(part)) or self._gone(part)
                n_rows, n_invalid = n_rows + rows, n_invalid + facts["invalid"]
        if failed:
            n, n_parts = len(failed), len(self.plan.parts)
            done_too = ", the others are done" * (n < n_parts)
            raise InvalidInputError(
                f"{WHERE}: {n} of {n_parts} parts could not be explained{done_too}. {told(failed)}"
            )
        paths = [self.run_state.folder / result_of(part) for part in done if self.output != "summary"]
        without = {*self.run_state.facts["known"].get("without", [])} & {part.name for part in done}
        return DatasetExplanation(
            self.run_state.folder,
            paths,
            n_rows,
            n_invalid,
            self.request.beta,
            self.n_done_before,
            sorted(without),
            summary,
            aggregate,
        )

    def _added_up(self, parts: list[FilePart]) -> Aggregate:
        total = Aggregate.empty(*self._shape)
        for part in parts:
            found = Aggregate.load(self.run_state.folder / _state(part), self._run_of(part))
            total.merge(found or self._gone(part))
        return total

    def _gone(self, part: FilePart) -> NoReturn:
        raise InvalidInputError(
            f"{WHERE}: part {part.name!r} and its results must be left alone meanwhile; one of them is gone "
            "or has changed. Start again."
        )

    def _write_summary(self, summary: Summary, aggregate: Aggregate) -> None:
        import pyarrow.csv

        table = summary.to_frame("pyarrow")
        for name, values in _quantiles(aggregate).items():
            table = table.append_column(name, [summary.sorted(values)])
        with self.run_state.writing(SUMMARY) as path:
            pyarrow.csv.write_csv(table, path)


@contextmanager
def _naming(part: FilePart) -> Iterator[None]:
    """An error that comes up meanwhile says of which part it is."""
    try:
        yield
    except WhyClusterError as error:
        why = str(error).removeprefix(f"{WHERE}: ")
        raise type(error)(f"{WHERE}: part {part.name!r}: {why}") from error


class _StoppedError(Exception):
    """Another part went wrong."""


def _raise(error: BaseException | None) -> None:
    if error is not None and not isinstance(error, _StoppedError):
        raise error


def _is_short(kind: Any) -> bool:
    """Whether all values of a type are of one length, and short."""
    import pyarrow.types as kinds

    return bool(kinds.is_primitive(kind) or kinds.is_decimal(kind) or kinds.is_null(kind))


def _state(part: FilePart) -> str:
    return f"{STATES}/{part.name}.npz"


def _footer(path: Path) -> tuple[int, dict[str, Any]] | None:
    """Of a result, its number of rows and what we wrote there; None if it is not a whole one of ours."""
    import pyarrow.parquet as pq

    try:
        facts = pq.read_metadata(path)
        told = parse_json(facts.metadata[_KEY].decode())
        return int(facts.num_rows), {"run": told["run"], "invalid": int(told["invalid"])}
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _quantiles(aggregate: Aggregate) -> dict[str, Any]:
    """(K, d) each, of the clusters that are there, and how sure they are."""
    present = aggregate.size > 0
    found = aggregate.quantiles()[present]
    columns = {f"q{100 * q:02.0f}": found[..., i] for i, q in enumerate(QUANTILES)}
    columns["rank_error"] = np.broadcast_to(aggregate.rank_error[present][:, None], found.shape[:2])
    return columns


def _plainly(value: Any) -> str | None:
    """An option as text, in which 1 and 1.0 are the same."""
    return None if value is None else repr(float(value)) if is_real(value) else str(value)
