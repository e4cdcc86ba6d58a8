"""The results of a run: the files it writes, and the object that `explain_dataset` returns."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np

from whycluster.core.errors import InvalidInputError, WhyClusterError
from whycluster.data.display import count
from whycluster.data.files import parse_json
from whycluster.data.frames import as_column, build_frame
from whycluster.data.spreadsheets import safe_cell
from whycluster.engines.aggregates import QUANTILES, Aggregate
from whycluster.engines.files.parts import FilePart
from whycluster.engines.files.plan import (
    AGGREGATE_SUFFIX,
    AGGREGATES,
    WHERE,
    ModelColumns,
    RunPlan,
    is_float,
    result_name,
)
from whycluster.engines.files.run_state import RunState
from whycluster.engines.files.stages import ahead
from whycluster.engines.results import ArrowFormat, PartResult
from whycluster.explanations.summaries.summary import Summary

SUMMARY = "_summary.csv"  # CSV, because some tools would read a Parquet file as one of the results
_KEY = b"whycluster"  # the key of our metadata in the footer of a result


@dataclass(frozen=True, repr=False)
class DatasetExplanation:
    """The results of `explain_dataset`.

    Attributes
    ----------
    folder : the folder of the results
    parts : the files with the explanations of the rows, in the order of the input
    n_rows : the number of rows
    n_invalid : the number of rows skipped with ``invalid="skip"``
    beta : the stiffness used, or None if none is needed
    n_done_before : the number of parts that an earlier run had finished
    measured_without : the parts that could not be read when the others were measured but have since been
        repaired
    summary : the summary of each cluster, or None if it was not requested
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
        """Return a frame with quantiles of the relevance by cluster and feature.

        They are estimated from a uniform sample of up to 4096 rows per cluster. ``rank_error`` is the
        standard error of the rank of the median. An error of 0.01 means that the estimate could equally well
        be the 0.49 or the 0.51 quantile. The error is 0 if the sample contains all rows.

        Parameters
        ----------
        backend : "pandas", "polars" or "pyarrow"; by default the first of these that is installed
        """
        if self._aggregate is None or self.summary is None:
            raise InvalidInputError(
                f'{WHERE}: quantiles require a run with output="summary" or "both"; this run wrote only rows.'
            )
        summary = self.summary
        columns: dict[Any, Any] = {
            "cluster": np.repeat(summary.clusters, len(summary.feature_names)),
            "feature": np.tile(as_column(summary.feature_names), len(summary.clusters)),
        }
        columns.update({name: values.ravel() for name, values in _quantiles(self._aggregate).items()})
        return build_frame(columns, None, backend, "quantiles")


def _quantiles(aggregate: Aggregate) -> dict[str, Any]:
    """Return columns with the quantiles and the rank error of the clusters that have rows, (K, d) each."""
    present = aggregate.size > 0
    found = aggregate.quantiles()[present]
    columns = {f"q{100 * q:02.0f}": found[..., i] for i, q in enumerate(QUANTILES)}
    columns["rank_error"] = np.broadcast_to(aggregate.rank_error[present][:, None], found.shape[:2])
    return columns


class Footer(NamedTuple):
    """The number of rows, the owner and the number of invalid rows, as stored in the footer of a result."""

    n_rows: int
    run: str  # the run and the part that the result belongs to
    n_invalid: int

    @classmethod
    def read(cls, path: Path) -> Footer | None:
        """Read the footer; return None if the file is not a complete result of whycluster."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            metadata = pq.read_metadata(path)
            facts = parse_json(metadata.metadata[_KEY].decode())
            return cls(int(metadata.num_rows), facts["run"], int(facts["invalid"]))
        except (OSError, ValueError, KeyError, TypeError, pa.ArrowException):
            return None


@dataclass(frozen=True)
class ResultFiles:
    """Writes the results of parts, and finds the results of an earlier run.

    Attributes
    ----------
    plan : the plan of the run
    state : the folder of the results
    format : the format of the explanations
    output : "rows", "summary" or "both"
    model : the columns that the model takes
    strict : whether invalid rows are errors
    safe_cells : whether to quote text in the summary that a spreadsheet would run as a formula
    """

    plan: RunPlan
    state: RunState
    format: ArrowFormat
    output: str
    model: ModelColumns
    strict: bool
    safe_cells: bool

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of clusters and features, (K, d)."""
        return self.model.n_clusters, len(self.plan.columns)

    def path(self, part: FilePart) -> Path:
        """Return the path of the explanations of a part."""
        return self.state.folder / result_name(part)

    def files_of(self, part: FilePart) -> list[str]:
        """Return the names of all result files of a part."""
        rows, aggregate = [result_name(part)], [_aggregate_name(part)]
        return rows * (self.output != "summary") + aggregate * (self.output != "rows")

    def owner(self, part: FilePart) -> str:
        """Return the text that marks results as belonging to this run and this version of a part."""
        return f"{self.state.run_id} {self.plan.identities[part.name]}"

    # Writing

    def write_rows(
        self, part: FilePart, explained: Iterable[tuple[Any, PartResult]], n_ahead: int = 1
    ) -> None:
        """Write the explanations of a part, given its batches and their results.

        Another thread formats up to ``n_ahead`` batches in advance.
        """
        import pyarrow.parquet as pq

        schema, n_rows, n_invalid = self._schema(part), 0, 0
        repetitive = [entry.name for entry in schema if not is_float(entry.type)]
        searched = [name for name in schema.names if name not in self.plan.kinds]  # all but relevance

        def tabulate(each: tuple[Any, PartResult]) -> tuple[Any, int]:
            return self._tabulate(part, *each, schema)

        tables = map(tabulate, explained)  # releases each result before the next is made
        options = {"use_dictionary": repetitive, "write_statistics": searched}
        with self.state.temporary(result_name(part)) as path:
            with pq.ParquetWriter(path, schema, **options) as writer, closing(ahead(tables, n_ahead)) as made:
                for table, n in made:
                    writer.write_table(table)
                    n_rows, n_invalid = n_rows + table.num_rows, n_invalid + n
                self.plan.check_unchanged(part)
                facts = {"run": self.owner(part), "invalid": n_invalid}
                writer.add_key_value_metadata({_KEY: json.dumps(facts).encode()})
            self.state.add(result_name(part), n_rows)

    def _tabulate(self, part: FilePart, batch: Any, result: PartResult, schema: Any) -> tuple[Any, int]:
        """Return a table of the copied columns and the results of a batch, and the number of invalid rows."""
        import pyarrow as pa

        copied = batch.select(self.plan.ids_of(part)).columns
        with naming(part):
            n_invalid, columns = result.n_invalid, [*copied, *self.format.table(result).columns]
        return pa.Table.from_arrays(columns, schema=schema), n_invalid

    def _schema(self, part: FilePart) -> Any:
        """Return the schema of the results of a part.

        Columns are declared as not null where possible, because such columns are written faster. This is
        possible if all rows were measured and invalid rows raised errors. It depends on how the run began,
        not on the call that resumes it, so all results of a run have the same schema.
        """
        import pyarrow as pa

        figures = self.state.figures
        finite = figures.get("finite") is True and part.name not in figures["without"]
        results = [entry.with_nullable(not finite) for entry in self._result_schema]
        return pa.schema([*self.plan.read_as(part, self.plan.ids_of(part)), *results])

    @cached_property
    def _result_schema(self) -> Any:
        """The schema of the explanations, without the copied columns."""
        names = self.model.names or self.plan.columns
        return self.format.table(PartResult.empty(len(names), names, None)).schema

    def write_aggregate(self, part: FilePart, total: Aggregate) -> None:
        """Write the aggregate of a part."""
        name = _aggregate_name(part)
        with self.state.temporary(name) as path:
            total.save(path, self.owner(part))
            self.state.add(name)

    def write_summary(self, summary: Summary, aggregate: Aggregate) -> None:
        """Write the summary of all parts."""
        import pyarrow.csv

        table = summary.to_frame("pyarrow")
        if self.safe_cells:
            table = _with_safe_cells(table)
        for name, values in _quantiles(aggregate).items():
            table = table.append_column(name, [summary.sorted(values)])
        with self.state.committing(), self.state.temporary(SUMMARY) as path:
            pyarrow.csv.write_csv(table, path)
            self.state.add(SUMMARY)

    # Reading

    def is_listed(self, part: FilePart) -> bool:
        """Return whether an earlier run has finished all results of a part."""
        return all(map(self.state.is_listed, self.files_of(part)))

    def is_written(self, part: FilePart) -> bool:
        """Return whether this run has already written the explanations of a part."""
        footer = Footer.read(self.path(part))
        if footer is None or footer.run != self.owner(part):
            return False
        complete = self.plan.counts[part.name] in (None, footer.n_rows)
        valid = complete and not (self.strict and footer.n_invalid)
        return valid and self.state.is_unchanged(result_name(part))

    def finished_aggregate(self, part: FilePart) -> Aggregate | None:
        """Return the aggregate of a part if this run has already written all results of the part."""
        name = _aggregate_name(part)
        found = self._load_aggregate(part) if self.state.is_unchanged(name) else None
        if found is None or not found.fits(*self.shape) or (self.strict and found.n_invalid):
            return None
        return found if self.output == "summary" or self.is_written(part) else None

    def _load_aggregate(self, part: FilePart) -> Aggregate | None:
        return Aggregate.load(self.state.folder / _aggregate_name(part), self.owner(part))

    def total_aggregate(self, parts: list[FilePart]) -> Aggregate:
        """Add up the aggregates of all parts."""
        total = Aggregate.empty(*self.shape)
        for part in parts:
            total.merge(self._load_aggregate(part) or _changed(part))
        return total

    def count_rows(self, parts: list[FilePart]) -> tuple[int, int]:
        """Return the number of rows in the results of all parts, and how many of them are invalid."""
        footers = [Footer.read(self.path(part)) or _changed(part) for part in parts]
        return sum(each.n_rows for each in footers), sum(each.n_invalid for each in footers)

    def others(self) -> dict[str, str]:
        """Return the names and owners of earlier results that belong to no part of this call."""
        now = {result_name(part) for part in self.plan.parts}
        names = [name for name in self.state.parts if name.endswith(".parquet") and name not in now]
        footers = {name: Footer.read(self.state.folder / name) for name in names}
        return {name: footer.run for name, footer in footers.items() if footer is not None}


def _with_safe_cells(table: Any) -> Any:
    import pyarrow as pa

    for place, name in enumerate(table.column_names):
        if pa.types.is_string(table.schema.types[place]):
            table = table.set_column(place, name, [[safe_cell(text) for text in table[name].to_pylist()]])
    return table


def _aggregate_name(part: FilePart) -> str:
    return f"{AGGREGATES}/{part.name}{AGGREGATE_SUFFIX}"


def _changed(part: FilePart) -> NoReturn:
    raise InvalidInputError(
        f"{WHERE}: part {part.name!r} and its results must not change during a run; one of them changed, "
        "was removed or could not be read. Start the run again."
    )


@contextmanager
def naming(part: FilePart) -> Iterator[None]:
    """Name the part in error messages."""
    try:
        yield
    except WhyClusterError as error:
        why = str(error).removeprefix(f"{WHERE}: ")
        raise type(error)(f"{WHERE}: part {part.name!r}: {why}") from error
