"""`whycluster.engines.spark.explain`: explain the rows of a Spark DataFrame on the workers.

The driver reads the model and sends it to the workers as a few arrays. On the workers, each Arrow batch from
`mapInArrow` is explained as a table. If any quantities depend on all rows, a first pass measures them and
returns one row of sums per partition. Only DataFrames are used, so classic Spark and Spark Connect work the
same way.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from whycluster.core.attribution import Population
from whycluster.core.errors import InvalidInputError
from whycluster.data.settings import setting
from whycluster.data.validation import check_choice, check_integer
from whycluster.engines.engine import Engine
from whycluster.engines.request import FIDELITY_EXPRESSION, ExplainRequest, population_to_json
from whycluster.engines.results import LAYOUTS
from whycluster.engines.spark.parts import (
    WHERE,
    ModelInput,
    RowReader,
    check_frame,
    check_kept,
    each_batch,
    is_frame,
    kept_arrays,
    kept_columns,
    match_background,
    read_model,
    select,
    sent_columns,
)
from whycluster.engines.spark.results import OutputColumns
from whycluster.models.network import Query, QueryOptions

if TYPE_CHECKING:
    from typing_extensions import Unpack


def explain(
    model: Any,
    df: Any,
    *,
    columns: Sequence[str] | None = None,
    features_col: str | None = None,
    id_columns: Sequence[str] | None = None,
    metric: str | None = None,
    layout: str = "array",
    top: int | None = None,
    invalid: str = "error",
    prefix: str = "why_",
    observation: Any = None,
    **query: Unpack[QueryOptions],
) -> Any:
    """Explain, on the workers, why each row of a Spark DataFrame is in its cluster.

    The result is the DataFrame with additional columns: ``why_cluster``, ``why_evidence``, ``why_competitor``
    and ``why_relevance``, an array with one number per feature. The result is lazy, like any DataFrame. Only
    the quantities that depend on all rows, such as beta, are measured immediately, in one pass over the
    columns that the model takes.

    Parameters
    ----------
    model : a fitted `KMeansModel`, `BisectingKMeansModel` or `GaussianMixtureModel` from MLlib, a
        `PipelineModel` that ends in one of these, or any model that `whycluster.neuralize` takes
    df : a DataFrame of classic Spark or Spark Connect
    columns : the columns that the model takes, in the model's order; by default the columns it was fitted on
    features_col : instead of ``columns``, one column of vectors or arrays; not needed for an MLlib model,
        which records its own columns
    id_columns : the columns of df to keep; by default all columns
    metric : as in `whycluster.explain`
    layout : "array" for one column of arrays, or "columns" for one column per feature
    top : if given, add only the ``top`` strongest features of each row, in decreasing order of strength:
        ``why_feature_1``, ``why_relevance_1``, ``why_value_1``, ...
    invalid : "error" raises an error for rows with missing or infinite values; "skip" adds nulls for such
        rows
    prefix : the prefix of the names of added columns
    observation : a `pyspark.sql.Observation`; after an action, it contains the number of ``rows`` and how
        many of them are ``invalid``
    query : the options of `whycluster.Query`, as keywords. ``target`` and ``against`` are one cluster for all
        rows. ``background`` is another DataFrame, or any table

    Returns
    -------
    a Spark DataFrame
    """
    check_frame(df)
    _check_options(layout, top, prefix)
    network, inputs = read_model(model, metric, df, columns, features_col)
    inputs = [one.for_invalid(invalid) for one in inputs]
    kept = kept_columns(df, id_columns)
    numeric = not any(one.is_not_numeric for one in inputs)
    reader = RowReader(sent_columns(inputs, kept), numeric)
    asked, names = Query(**query), reader.features if numeric else None
    request = ExplainRequest.of(
        network,
        WHERE,
        asked,
        feature_names=names,
        invalid=invalid,
        name="df",
        fidelity_expression=FIDELITY_EXPRESSION,
    )
    output = OutputColumns.of(request, reader, layout, top, prefix)
    output.check_free(kept, prefix)
    check_kept(df, kept)
    other, background = None, asked.background
    if background is not None and request.needs_population:
        if is_frame(background):
            other = SparkParts(background, match_background(inputs, background), "background")
        else:
            request = request.measure_background(background, reader.features)
    result = SparkEngine(request, reader, kept, output).run(SparkParts(df, inputs), other)
    return result if observation is None else output.observe(result, observation)


def _check_options(layout: Any, top: Any, prefix: Any) -> None:
    check_choice(layout, LAYOUTS, WHERE, "layout")
    if top is not None:
        check_integer(top, 1, WHERE, "top", "None or ")
    if not isinstance(prefix, str):
        raise InvalidInputError(f"{WHERE}: prefix must be a string; got {prefix!r}.")


class SparkParts(NamedTuple):
    """A DataFrame, the columns that the model takes, and the parameter that holds the DataFrame."""

    df: Any
    inputs: Sequence[ModelInput]
    name: str = "df"


@dataclass(frozen=True)
class SparkEngine(Engine[SparkParts, Any, list[Any], Any]):
    """Explains Arrow batches on Spark's workers; the engine is sent to the workers.

    Attributes
    ----------
    request : the request to answer
    reader : turns batches into tables
    kept : the columns that the result keeps
    output : the columns that the result adds
    """

    request: ExplainRequest
    reader: RowReader
    kept: list[str]
    output: OutputColumns

    # On the driver

    def measure_all(self, parts: SparkParts) -> Population:
        """Measure all rows of a DataFrame."""
        if parts.df.isStreaming:
            beta = f"{setting('beta=...')} or " * self.request.only_needs_beta
            raise InvalidInputError(
                f"{WHERE}: a stream requires a background to measure, because the stream itself never ends; "
                f"got none. Pass {beta}{setting('background=...')}, such as a sample of earlier rows."
            )
        reader = replace(self.reader, inputs=sent_columns(parts.inputs, []))
        engine = replace(self, reader=reader, request=replace(self.request, name=parts.name))
        found = select(parts.df, [], parts.inputs, reader).mapInArrow(
            engine.measure_batches, "population string"
        )
        if self.request.network.energy.needs_means:  # the means of all partitions may not fit on the driver
            found = found.repartition(1).mapInArrow(engine.add_up, "population string")
        return engine.total(row.population for row in found.collect())

    def explain_all(self, parts: SparkParts, population: Population | None) -> Any:
        """Return the DataFrame with the explanations; Spark computes it when it is needed."""
        engine = replace(self, request=self.request.with_population(population))
        sent = select(parts.df, self.kept, parts.inputs, self.reader)
        return sent.mapInArrow(engine.explain_batches, self.output.schema(parts.df, self.kept))

    # On the workers

    def measure(self, part: Any) -> Population:
        """Measure the rows of a batch."""
        return self.request.measure(self.reader(part))

    def explain(self, part: Any) -> list[Any]:
        """Explain the rows of a batch and return the columns to add."""
        return self.output.arrays(self.request.explain(self.reader(part)))

    def measure_batches(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Yield one row per partition: the sum over its batches, as text."""
        measured = each_batch(batches, self.measure, self.request.name)
        yield self._row(sum((found for _, found in measured), self._no_rows))

    def add_up(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Yield one row: the sum over the rows from `measure_batches`."""
        yield self._row(self.total(text for batch in batches for text in batch.column(0).to_pylist()))

    def total(self, texts: Iterable[str]) -> Population:
        """Add up populations in JSON format."""
        total = self._no_rows
        for text in texts:
            found = self.request.population_from_json(json.loads(text))
            assert found is not None
            total = total + found
        return total

    def explain_batches(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Yield, for each batch, its kept columns followed by the explanations."""
        import pyarrow as pa

        for batch, added in each_batch(batches, self.explain, self.request.name):
            columns = kept_arrays(batch, len(self.kept))
            yield pa.RecordBatch.from_arrays([*columns, *added], names=[*self.kept, *self.output.names])

    @property
    def _no_rows(self) -> Population:
        return Population.none(self.request.network.energy)

    def _row(self, population: Population) -> Any:
        import pyarrow as pa

        return pa.RecordBatch.from_pydict({"population": [json.dumps(population_to_json(population))]})
