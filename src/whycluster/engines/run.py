"""One run over the parts of a table that lies in files.

Two passes over all parts: one that measures what depends on all rows (left out where beta is given), one that
explains and writes, each part to a file of its own. A batch is read while the one before is explained and
the one before that is written, so that memory is that of a few batches, whatever the number of rows.
"""

from __future__ import annotations

import hashlib
import json
import operator
import threading
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import numpy as np

from whycluster import blocks
from whycluster.arrays import is_real
from whycluster.engines.aggregates import QUANTILES, Aggregate
from whycluster.engines.ledger import Ledger
from whycluster.engines.parts import Answer, Asked, told_population
from whycluster.engines.sources import Part, PartError, is_number, reading
from whycluster.engines.stages import ahead
from whycluster.errors import InvalidInputError, WhyClusterError
from whycluster.files import parse_json
from whycluster.frames import as_column, build_frame
from whycluster.passes import Population
from whycluster.progress import Progress
from whycluster.summary import Summary

WHERE = "explain_dataset"
SUMMARY = "_summary.parquet"
_STATES = "_summary"  # the folder of what each part adds to it
_KEY = b"whycluster"
_KEYS = ("cluster", "feature")
_BATCH_VALUES = 3 << 20  # numbers of a batch: what is read, explained and written at a time is a few of these
_FEWEST_ROWS = 1024

Found = TypeVar("Found")


@dataclass(frozen=True)
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
        return build_frame(_told_quantiles(self._aggregate, self.summary), None, backend, "quantiles")


class Run:
    """One call of `explain_dataset`.

    Attributes
    ----------
    failed : why parts cannot be explained, by name
    """

    def __init__(
        self, asked: Asked, parts: list[Part], ledger: Ledger, workers: int, top: int | None, output: str
    ) -> None:
        self.asked, self.parts, self.ledger, self.workers = asked, parts, ledger, workers
        self.top, self.output = top, output
        self.failed: dict[str, str] = {}
        self.columns: list[str] = []
        self.ids: list[str] = []
        self.n_done_before = 0
        self.dtype: np.dtype[Any] = np.dtype(np.float64)
        self.as_text = False
        self.batch_rows = 0
        self._counts: dict[str, int | None] = {}
        self._schemas: dict[str, Any] = {}
        self._identities: dict[str, list[Any]] = {}

    # What there is to do

    def look(self, columns: Any, ids: Any, batch_rows: int | str) -> None:
        """Choose the columns by the first part that can be read, and find the parts that do not fit them."""
        self.ids = _as_names(ids, "id_columns")
        self._check_results()
        for part in self.parts:
            with self._excusing(part):
                with reading():
                    self._identities[part.name] = part.identity
                    schema, self._counts[part.name] = part.look()
                self.columns = self.columns or self._choose(columns, schema)
                self._check_names(schema)
                self._schemas[part.name] = schema
        self._settle_types()
        if len(self.failed) == len(self.parts):
            raise InvalidInputError(f"{WHERE}: no part can be explained. {_told(self.failed)}")
        width = len(self.columns) + self.asked.network.n_clusters
        size = max(_FEWEST_ROWS, _BATCH_VALUES // width)
        self.batch_rows = size if batch_rows == "auto" else int(batch_rows)

    def _check_results(self) -> None:
        """Raise if two parts would become one file."""
        seen: dict[str, str] = {}
        for part in self.parts:
            if part.name.startswith(("_whycluster", _STATES)):
                raise InvalidInputError(
                    f"{WHERE}: names of parts must not begin as those of our own files; got {part.name!r}. "
                    "Rename it."
                )
            other = seen.setdefault(_result(part), part.name)
            if other != part.name:
                raise InvalidInputError(
                    f"{WHERE}: each part must become a file of its own; {part.name!r} and {other!r} would "
                    f"both be {_result(part)!r}. Rename one of them."
                )

    def _choose(self, columns: Any, schema: Any) -> list[str]:
        """The columns that are explained."""
        known = self.asked.network.feature_names
        if columns is not None:
            chosen = _as_names(columns, "columns")
        elif known is not None and all(isinstance(name, str) for name in known):
            chosen = [str(name) for name in known]
        else:
            chosen = [entry.name for entry in schema if entry.name not in self.ids and is_number(entry.type)]
        wanted = self.asked.network.n_features
        if len(chosen) != wanted or len(set(chosen)) != wanted:
            raise InvalidInputError(
                f"{WHERE}: columns must be the {wanted} that the model was fitted on; got {len(chosen)}: "
                f"{chosen[:5]}{' ...' * (len(chosen) > 5)}. Say which with columns=[...]; those that only "
                "name rows are id_columns."
            )
        if {*chosen} & {*self.ids} and self.top is None and self.output != "summary":
            raise InvalidInputError(
                f"{WHERE}: id_columns must be others than the columns that are explained, whose names the "
                f"relevance gets; {min({*chosen} & {*self.ids})!r} is both."
            )
        return chosen

    def _check_names(self, schema: Any) -> None:
        for name in [*self.columns, *self.ids]:
            if schema.get_field_index(name) < 0:
                raise PartError(f"there must be one column {name!r}; there are {schema.names[:8]}")

    def _settle_types(self) -> None:
        """What results are of: float32 only if all columns are in all parts, so that none is rounded.

        A column that holds numbers in the first part has to in all others.
        """
        first = next(iter(self._schemas.values()), None)
        for name, schema in list(self._schemas.items()):
            for column in self.columns:
                kind = schema.field(column).type
                if not is_number(kind) and first is not None and is_number(first.field(column).type):
                    self.failed[name] = (
                        f"column {column!r} must hold numbers, as in the other parts; it is of type {kind}"
                    )
                    self._schemas.pop(name, None)
        types = [schema.field(name).type for schema in self._schemas.values() for name in self.columns]
        self.dtype = np.dtype(np.float32 if types and all(map(_is_narrow, types)) else np.float64)
        self.as_text = not all(map(is_number, types))

    def asked_for(self, metric: str | None) -> dict[str, Any]:
        """What the results depend on besides the model, as JSON can hold it."""
        options = {name: _plainly(value) for name, value in self.asked.options.items()}
        if self.asked.population is not None:  # that of a background
            told = json.dumps(told_population(self.asked.population))
            options["background"] = hashlib.sha256(told.encode()).hexdigest()[:32]
        return {
            **options,
            "metric": metric,
            "columns": self.columns,
            "id_columns": self.ids,
            "top": self.top,
            "output": self.output,
            "dtype": self.dtype.name,
        }

    # The first pass

    def measure(self) -> None:
        """Measure what depends on all rows, unless an earlier run has; raise if that had other parts."""
        if not self.asked.needs_population:
            return
        known = self.ledger.facts["known"]
        if "population" in known:
            self._check_same(known["inputs"], self._identities, known["without"])
            self.asked = self.asked.knowing(self._read_population(known["population"]))
            return
        found = self._each("measuring", self._to_do(), self._measure_part)
        total = [found[part.name] for part in self._to_do()]
        if not total:
            raise InvalidInputError(f"{WHERE}: no part can be explained. {_told(self.failed)}")
        self.asked = self.asked.knowing(reduce(operator.add, total))
        assert self.asked.population is not None
        self.ledger.facts["measured"] = {}
        self.ledger.keep(
            population=told_population(self.asked.population),
            inputs=self._identities,
            without=sorted(self.failed),
            finite=self.asked.invalid == "error",
        )

    def _check_same(self, before: dict[str, Any], now: dict[str, Any], without: list[str]) -> None:
        """Parts that could not be read when beta was measured may have been repaired since."""
        changed = sorted(
            name for name in {*before, *now} if before.get(name) != now.get(name) and name not in without
        )
        if changed:
            raise InvalidInputError(
                f"{WHERE}: the parts must be those that beta was measured on; {changed[0]!r} "
                f"{'and others ' * (len(changed) > 1)}came, went or changed since. Give beta=... to explain "
                "parts as they come, or overwrite=True to begin anew."
            )

    def _measure_part(self, part: Part, tick: Callable[[int], None]) -> Population:
        noted = self.ledger.facts["measured"].get(part.name)
        if noted is not None and noted[0] == self._identities[part.name]:  # by a run that was stopped
            return self._read_population(noted[1])
        found, n_rows = Population.none(self.asked.network.energy), 0
        for batch in ahead(self._read(part, self.columns)):
            found = found + self._explained(part, self.asked.measure, batch, n_rows)
            n_rows += batch.num_rows
            tick(batch.num_rows)
        self._check_unchanged(part)
        self.ledger.note(part.name, [self._identities[part.name], told_population(found)])
        return found

    def _check_unchanged(self, part: Part) -> None:
        if part.identity != self._identities[part.name]:
            raise PartError("it must not change while it is read; it did")

    def _read_population(self, told: Any) -> Population:
        """What an earlier run has measured."""
        found = self.asked.read_population(told)
        if found is None:
            raise InvalidInputError(
                f"{WHERE}: what was measured by an earlier run must be left as it was written; it is not. "
                "Begin anew, with overwrite=True."
            )
        return found

    # The second pass

    def explain(self) -> None:
        """Explain the parts that no earlier run has finished."""
        todo = [part for part in self._to_do() if not self._is_done(part)]
        self.n_done_before = len(self._to_do()) - len(todo)
        self.ledger.expect([SUMMARY, *(name for part in self._to_do() for name in self._results(part))])
        try:
            self._each("explaining", todo, self._explain_part)
        except OSError as error:
            raise OSError(
                error.errno,
                f"{WHERE}: writing to {str(self.ledger.folder)!r} failed ({error}). Parts that were finished "
                "are whole; make room, and start it again: it goes on from there",
            ) from error

    def _explain_part(self, part: Part, tick: Callable[[int], None]) -> None:
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
        self._check_unchanged(part)
        with self.ledger.writing(_state(part)) as path:
            total.save(path, run)

    def _answers(self, part: Part, tick: Callable[[int], None]) -> Generator[tuple[Any, Answer]]:
        """The batches of a part, and their explanations."""
        wanted, n_rows = [*self.ids, *(name for name in self.columns if name not in self.ids)], 0
        for batch in ahead(self._read(part, wanted)):
            yield batch, self._explained(part, self.asked.explain, batch.select(self.columns), n_rows)
            n_rows += batch.num_rows
            tick(batch.num_rows)

    def _counting(
        self, part: Part, answers: Iterator[tuple[Any, Answer]], total: Aggregate
    ) -> Iterator[tuple[Any, Answer]]:
        """The same, added up on the way; what is drawn depends on the part only, not on who works on it."""
        rng = np.random.default_rng(list(hashlib.sha256(part.name.encode()).digest()[:16]))
        for batch, answer in answers:
            total.add(answer, rng)
            yield batch, answer

    def _write_rows(self, part: Part, run: str, answers: Iterator[tuple[Any, Answer]]) -> None:
        import pyarrow.parquet as pq

        n_invalid, schema = 0, self._schema(part)
        repeating = [entry.name for entry in schema if not _is_float(entry.type)]
        told = [name for name in schema.names if name not in self.columns]  # nobody looks for a relevance
        tables = ((self._tabulate(batch, answer, schema), answer.n_invalid) for batch, answer in answers)
        with (
            self.ledger.writing(_result(part)) as path,
            pq.ParquetWriter(path, schema, use_dictionary=repeating, write_statistics=told) as writer,
        ):
            for table, n in ahead(tables):
                writer.write_table(table)
                n_invalid += n
            self._check_unchanged(part)
            facts = {"run": run, "invalid": n_invalid}
            writer.add_key_value_metadata({_KEY: json.dumps(facts).encode()})

    def _tabulate(self, batch: Any, answer: Answer, schema: Any) -> Any:
        """The results of a batch, behind the columns that name its rows."""
        import pyarrow as pa

        columns = [*batch.select(self.ids).columns, *self._results_of(answer).columns]
        return pa.Table.from_arrays(columns, schema=schema)

    def _results_of(self, answer: Answer) -> Any:
        return self.asked.to_arrow(
            answer, top=self.top, dtype=self.dtype, as_text=self.as_text, taken=self.ids
        )

    def _schema(self, part: Part) -> Any:
        """That of the results of a part; without nulls, where there can be none, they are written faster.

        There can be none if all rows were measured, and what is not finite was an error. What is asked now
        does not matter, so that results of one run are alike, whoever went on with it.
        """
        import pyarrow as pa

        source = self._schemas[part.name]
        empty = pa.Table.from_batches([], schema=pa.schema([source.field(name) for name in self.columns]))
        none = self.asked.explain(empty)
        known = self.ledger.facts["known"]
        finite = known.get("finite") is True and part.name not in known["without"]
        results = [entry.with_nullable(not finite) for entry in self._results_of(none).schema]
        return pa.schema([*(source.field(name) for name in self.ids), *results])

    # How parts are worked on

    def _to_do(self) -> list[Part]:
        return [part for part in self.parts if part.name not in self.failed]

    def _each(
        self, title: str, parts: list[Part], work: Callable[[Part, Callable[[int], None]], Found]
    ) -> dict[str, Found]:
        """Call ``work`` for each part, some at a time; a part that cannot be read is noted as failed.

        Any other error, or Ctrl-C, stops all at their next batch.
        """
        counts = [self._counts[part.name] for part in parts]
        total = None if None in counts else sum(filter(None, counts))
        stopped = threading.Event()
        found: dict[str, Found] = {}
        with blocks.unspread(), Progress(title, total, "rows") as bar:

            def tick(n_rows: int) -> None:
                if stopped.is_set():
                    raise _StoppedError
                bar.step(n_rows)

            def one(part: Part) -> None:
                if stopped.is_set():
                    return
                try:
                    with self._excusing(part):
                        found[part.name] = work(part, tick)
                except BaseException:
                    stopped.set()
                    raise

            with ThreadPoolExecutor(self.workers, "whycluster-part") as pool:
                futures = [pool.submit(one, part) for part in parts]
                try:
                    for future in futures:
                        _raise(future.exception())
                finally:
                    stopped.set()
        return found

    @contextmanager
    def _excusing(self, part: Part) -> Iterator[None]:
        """Note that a part cannot be read, and go on."""
        try:
            yield
        except PartError as error:
            self.failed[part.name] = str(error)

    def _read(self, part: Part, columns: list[str]) -> Iterator[Any]:
        """The batches of a part."""
        schema = self._schemas[part.name]
        numbers = [name for name in self.columns if is_number(schema.field(name).type)]
        with reading():
            yield from part.batches(columns, self.batch_rows, numbers)

    def _explained(self, part: Part, work: Callable[[Any, int], Found], batch: Any, n_before: int) -> Found:
        """What ``work`` makes of a batch; an error says in which part, and counts its rows."""
        try:
            return work(batch, n_before)
        except WhyClusterError as error:
            told = str(error).removeprefix(f"{WHERE}: ")
            raise type(error)(f"{WHERE}: part {part.name!r}: {told}") from error

    # What is finished

    def _results(self, part: Part) -> list[str]:
        """The files that a part becomes."""
        return [_result(part)] * (self.output != "summary") + [_state(part)] * (self.output != "rows")

    def _run_of(self, part: Part) -> str:
        return f"{self.ledger.run} {self._identities[part.name]}"

    def _is_done(self, part: Part) -> bool:
        run = self._run_of(part)
        folder, strict = self.ledger.folder, self.asked.invalid == "error"
        if self.output != "rows":
            state = Aggregate.load(folder / _state(part), run)
            if state is None or not state.fits(*self._shape) or (strict and state.n_invalid):
                return False
        if self.output == "summary":
            return True
        n_rows, facts = _footer(folder / _result(part)) or (0, {"run": ""})
        complete = self._counts[part.name] in (None, n_rows)
        return complete and facts["run"] == run and not (strict and facts["invalid"])

    @property
    def _shape(self) -> tuple[int, int]:
        """(K, d)."""
        return self.asked.network.n_clusters, len(self.columns)

    def finish(self) -> DatasetExplanation:
        """Say what was done; raise if a part could not be."""
        done = self._to_do()
        aggregate, summary, n_rows, n_invalid = None, None, 0, 0
        if self.output != "rows":
            aggregate = self._added_up(done)
            summary = aggregate.summary(self.asked.labels, self.columns)
            n_rows, n_invalid = int(aggregate.size.sum()) + aggregate.n_invalid, aggregate.n_invalid
            self._write_summary(summary, aggregate)
        else:
            for part in done:
                rows, facts = _footer(self.ledger.folder / _result(part)) or self._gone(part)
                n_rows, n_invalid = n_rows + rows, n_invalid + facts["invalid"]
        if self.failed:
            n, n_parts = len(self.failed), len(self.parts)
            done_too = ", the others are done" * (n < n_parts)
            raise InvalidInputError(
                f"{WHERE}: {n} of {n_parts} parts could not be explained{done_too}. {_told(self.failed)}"
            )
        paths = [self.ledger.folder / _result(part) for part in done if self.output != "summary"]
        return DatasetExplanation(
            self.ledger.folder,
            paths,
            n_rows,
            n_invalid,
            self.asked.beta,
            self.n_done_before,
            self.ledger.facts["known"].get("without", []),
            summary,
            aggregate,
        )

    def _added_up(self, parts: list[Part]) -> Aggregate:
        total = Aggregate.empty(*self._shape)
        for part in parts:
            found = Aggregate.load(self.ledger.folder / _state(part), self._run_of(part))
            total.merge(found or self._gone(part))
        return total

    def _gone(self, part: Part) -> NoReturn:
        raise InvalidInputError(
            f"{WHERE}: part {part.name!r} and its results must be left alone meanwhile; one of them is gone "
            "or has changed. Start again."
        )

    def _write_summary(self, summary: Summary, aggregate: Aggregate) -> None:
        import pyarrow.parquet as pq

        table = summary.to_frame("pyarrow")
        found = _told_quantiles(aggregate, summary)
        places = {key: i for i, key in enumerate(zip(found["cluster"], found["feature"], strict=True))}
        order = [places[key] for key in zip(*(table[name].to_pylist() for name in _KEYS), strict=True)]
        for name in found.keys() - _KEYS:
            table = table.append_column(name, [found[name][order]])
        with self.ledger.writing(SUMMARY) as path:
            pq.write_table(table, path)


class _StoppedError(Exception):
    """Another part went wrong."""


def _raise(error: BaseException | None) -> None:
    if error is not None and not isinstance(error, _StoppedError):
        raise error


def _result(part: Part) -> str:
    return part.name if part.name.endswith(".parquet") else f"{part.name}.parquet"


def _state(part: Part) -> str:
    return f"{_STATES}/{part.name}.npz"


def _footer(path: Path) -> tuple[int, dict[str, Any]] | None:
    """Of a result, its number of rows and what we wrote there; None if it is not a whole one of ours."""
    import pyarrow.parquet as pq

    try:
        facts = pq.read_metadata(path)
        told = parse_json(facts.metadata[_KEY].decode())
        return int(facts.num_rows), {"run": told["run"], "invalid": int(told["invalid"])}
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _is_float(kind: Any) -> bool:
    import pyarrow.types as kinds

    return bool(kinds.is_floating(kind))


def _is_narrow(kind: Any) -> bool:
    return _is_float(kind) and kind.bit_width <= 32


def _told_quantiles(aggregate: Aggregate, summary: Summary) -> dict[Any, Any]:
    present = aggregate.size > 0
    found, d = aggregate.quantiles()[present], len(summary.feature_names)
    names = as_column(summary.feature_names)
    columns: dict[Any, Any] = {
        "cluster": np.repeat(summary.clusters, d),
        "feature": np.tile(names, len(summary.clusters)),
    }
    for i, q in enumerate(QUANTILES):
        columns[f"q{100 * q:02.0f}"] = found[..., i].ravel()
    columns["rank_error"] = np.repeat(aggregate.rank_error[present], d)
    return columns


def _told(failed: dict[str, str]) -> str:
    shown = [f"{name!r}: {why}" for name, why in list(failed.items())[:5]]
    return "; ".join(shown) + f"; and {len(failed) - 5} more" * (len(failed) > 5) + "."


def _plainly(value: Any) -> str | None:
    """An option as text, in which 1 and 1.0 are the same."""
    return None if value is None else repr(float(value)) if is_real(value) else str(value)


def _as_names(given: Any, name: str) -> list[str]:
    names = None if isinstance(given, str) or not hasattr(given, "__iter__") else list(given)
    if names is None or not all(isinstance(each, str) for each in names) or len({*names}) < len(names):
        raise InvalidInputError(
            f"{WHERE}: {name} must be a list of different names of columns; got {given!r}."
        )
    return names
