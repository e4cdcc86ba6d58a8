"""Rows of a Spark DataFrame, explained where they are.

The model is read on the driver, and sent to the workers as the few arrays it consists of. There, each batch
of Arrow that `mapInArrow` brings is explained as a table of its own. What depends on all rows is measured
before, in a pass of its own that brings one row of sums from each partition. Classic Spark and Spark Connect
are the same here: nothing but DataFrames is used.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from whycluster.core.arrays import Floats
from whycluster.core.attribution import Population
from whycluster.core.errors import InvalidInputError, MissingDependencyError
from whycluster.core.rules import DEFAULT_RULE
from whycluster.data.column_kinds import kind_of_spark
from whycluster.data.frames import unique_name
from whycluster.data.validation import check_whole
from whycluster.engines.request import LAYOUTS, ExplainRequest, population_to_json, read_network
from whycluster.models.network import Network

WHERE = "spark.explain"
_SEVERAL = ("vector", "array<", "map<", "struct<")
_NOT_IN_ARROW = ("interval", "interval year", "interval month", "interval year to month")
_PRECISION: dict[str, Any] = {"dtype": np.float32, "value_dtype": np.float64}  # values are as they were
# Under which names columns are sent: pyspark's mapInArrow does not take the names of some, such as with dots.
_KEPT, _TAKEN = "kept_{}", "whycluster_taken_{}"


def explain(
    model: Any,
    df: Any,
    *,
    columns: Sequence[str] | None = None,
    features_col: str | None = None,
    id_columns: Sequence[str] | None = None,
    target: Any = None,
    against: Any = None,
    beta: float | str = "auto",
    rule: str = DEFAULT_RULE,
    threshold: float | None = None,
    background: Any = None,
    metric: str | None = None,
    layout: str = "array",
    top: int | None = None,
    invalid: str = "error",
    prefix: str = "why_",
    observation: Any = None,
) -> Any:
    """Explain why each row of a Spark DataFrame is in its cluster, on the workers.

    The result is the DataFrame with columns beside its own: ``why_cluster``, ``why_evidence``,
    ``why_competitor`` and ``why_relevance``, an array of one number for each feature. It is lazy as any
    other; only what depends on all rows, such as beta, is measured at once, by a pass over the columns of the
    model.

    Parameters
    ----------
    model : a fitted `KMeansModel`, `BisectingKMeansModel` or `GaussianMixtureModel` of MLlib, a
        `PipelineModel` that ends in one, or anything that `whycluster.neuralize` takes
    df : a DataFrame of classic Spark or of Spark Connect
    columns : the columns that the model takes, in its order; by default those that it was fitted on by name
    features_col : instead, one column of vectors or arrays; by default that of an MLlib model
    id_columns : the columns of df that are kept; by default all
    target, against, beta, rule, threshold, metric : as in `whycluster.explain`; target and against are one
        cluster each
    background : another DataFrame, or any table, on which beta is measured; by default df
    layout : "array", one column of arrays, or "columns", one for each feature
    top : instead, so many features, the strongest first: ``why_feature_1``, ``why_relevance_1``,
        ``why_value_1``, ...
    invalid : "error", or "skip" for nulls where a row has values that are missing or not finite
    prefix : before the names of the columns that are added
    observation : a `pyspark.sql.Observation`, which after an action has ``rows`` and ``invalid``, how many
        there were

    Returns
    -------
    a Spark DataFrame
    """
    _check_frame(df)
    _check_names(df, "df")
    _check_options(layout, top, prefix)
    network, inputs = _read_model(model, metric, df, columns, features_col)
    inputs = [one.taking(invalid) for one in inputs]
    kept = _kept(df, id_columns)
    numbers = not any(one.is_other for one in inputs)
    reader = _Reader(_sent(inputs, kept), numbers)
    request = ExplainRequest.of(
        network,
        WHERE,
        target=target,
        against=against,
        beta=beta,
        rule=rule,
        threshold=threshold,
        feature_names=reader.features if numbers else None,
        invalid=invalid,
    )
    form = _Form.of(request, reader, layout, top, prefix)
    _check_free(kept, form.names, prefix)
    _check_kept(df, kept)
    if request.needs_population:
        request = request.knowing(_population(request, reader, inputs, df, background))
    work = _Explaining(request, reader, kept, form)
    result = _select(df, kept, inputs, reader).mapInArrow(
        work.explain, _schema(df, kept, form, reader.features)
    )
    return result if observation is None else _observed(result, observation, form.names[0])


def _check_frame(df: Any) -> None:
    try:
        import pyspark.sql  # noqa: F401
    except ImportError as error:
        raise MissingDependencyError(f'{WHERE} needs pyspark: pip install "whycluster[spark]"') from error
    told = f"{type(df).__module__.partition('.')[0]}.{type(df).__name__}"
    if not _is_frame(df):
        raise InvalidInputError(f"{WHERE}: df must be a Spark DataFrame; got a {told}.")


def _check_names(df: Any, where: str) -> None:
    names = [name.lower() for name in df.columns]
    twice = next((name for name in df.columns if names.count(name.lower()) > 1), None)
    if twice is not None:
        raise InvalidInputError(
            f"{WHERE}: {where} must have unique column names; {twice!r} is there more than once. Rename one."
        )


def _is_frame(df: Any) -> bool:
    from pyspark.sql import DataFrame

    return isinstance(df, DataFrame)


def _check_options(layout: Any, top: Any, prefix: Any) -> None:
    if layout not in LAYOUTS:
        raise InvalidInputError(f"{WHERE}: layout must be one of {LAYOUTS}; got {layout!r}.")
    if top is not None:
        check_whole(top, 1, WHERE, "top", "None or ")
    if not isinstance(prefix, str):
        raise InvalidInputError(f"{WHERE}: prefix must be text; got {prefix!r}.")


@dataclass(frozen=True)
class _Input:
    """What is sent of one column of the user's.

    Attributes
    ----------
    name : of the column
    features : what the model calls what is in it: one name, or as many as its vectors are long
    kind : the type of the column, as Spark writes it
    width : how long its vectors are; None for single values
    labels, other : the categories of it that are known, and what stands for all others, if they are taken
    """

    name: str
    features: list[str]
    kind: str
    width: int | None = None
    labels: tuple[str, ...] | None = None
    other: str | None = None
    strict: bool = False

    @property
    def is_other(self) -> bool:
        """Whether it holds other things than numbers."""
        return self.width is None and (self.labels is not None or not kind_of_spark(self.kind).is_numeric)

    @property
    def is_sent_as_it_is(self) -> bool:
        """Whether what is sent is the column itself."""
        return self.labels is None and (
            self.kind in ("string", "date", "timestamp_ntz")
            or (kind_of_spark(self.kind).is_numeric and not self.kind.startswith("decimal"))
        )

    def sent(self, place: int, kept: Sequence[str]) -> _Sent:
        """How it comes to the workers: with the columns that are kept, if it is one of these as it is."""
        alike = self.is_sent_as_it_is and self.name in kept
        name = _KEPT.format(kept.index(self.name)) if alike else _TAKEN.format(place)
        return _Sent(name, self.name, self.width, self.features)

    def taking(self, invalid: str) -> _Input:
        """With categories that are not known as missing, if rows that have these are to be left out."""
        return replace(self, strict=invalid == "skip" and self.labels is not None and self.other is None)

    def column(self) -> Any:
        """What Spark sends of it."""
        from pyspark.sql import functions as F  # noqa: N812

        column = _column(self.name)
        if self.kind == "vector":
            from pyspark.ml.functions import vector_to_array

            return F.when(column.isNotNull(), vector_to_array(column))  # which takes no null
        if self.labels is not None:
            text = column.cast("string")
            if self.other is not None:
                return F.coalesce(text, F.lit(self.other))
            return F.when(text.isin(*self.labels), text) if self.strict else text
        if self.kind == "timestamp":  # in the time of the session and without its zone, as toPandas has it
            return column.cast("timestamp_ntz")
        return column.cast("double") if self.kind.startswith("decimal") else column


class _Sent(NamedTuple):
    """The name under which an input is sent, its own, the length of its vectors, its features' names."""

    name: str
    column: str
    width: int | None
    features: list[str]


def _sent(inputs: Sequence[_Input], kept: Sequence[str]) -> list[_Sent]:
    """How all inputs come to the workers, beside the columns that are kept."""
    return [one.sent(place, kept) for place, one in enumerate(inputs)]


def _column(name: str) -> Any:
    from pyspark.sql import functions as F  # noqa: N812

    return F.col(_quoted(name))


def _quoted(name: str) -> str:
    """A name as it stands in SQL."""
    escaped = name.replace("`", "``")
    return f"`{escaped}`"


def _read_model(
    model: Any, metric: str | None, df: Any, columns: Any, features_col: str | None
) -> tuple[Network, list[_Input]]:
    """The network of a model, and the columns of df that it takes."""
    if columns is not None and features_col is not None:
        raise InvalidInputError(f"{WHERE}: columns and features_col say the same; give one of them.")
    if columns is None and features_col is None and metric is None and _knows_columns(model):
        return _read_mllib(model, df)
    network = read_network(model, WHERE, metric)  # which refuses a metric for a model that has its own
    return network, _inputs(network, df, columns, features_col)


def _knows_columns(model: Any) -> bool:
    if not type(model).__module__.startswith("pyspark.ml"):
        return False
    from whycluster.pipelines.spark_models import is_mllib

    return is_mllib(model)


def _read_mllib(model: Any, df: Any) -> tuple[Network, list[_Input]]:
    from whycluster.pipelines.spark_models import behind

    kinds = _kinds(df)
    vectors = {name: _attributes(df, name) for name, kind in kinds.items() if kind == "vector"}
    names = {name: found for name, found in vectors.items() if found}
    network, sources = behind(model, names)
    features = iter(network.feature_names or [])
    inputs = []
    for source in sources:
        name = _found(kinds, source.name)
        _check_there(kinds, [name])
        _check_length(name, source.width, names.get(name))
        other = None if not source.keeps else unique_name("missing", source.labels or ())
        inputs.append(
            _Input(
                name,
                [str(next(features)) for _ in range(source.width or 1)],
                kinds[name],
                source.width,
                source.labels,
                other,
            )
        )
    for one in inputs:
        _check_kind(one, numbers=True)
    return network, inputs


def _found(kinds: Mapping[str, str], name: str) -> str:
    """The column that MLlib finds by a name: in capitals or not, and of a structure before any other."""
    outer, dot, _ = name.partition(".")
    if dot and kinds.get(outer, "").startswith("struct<"):
        raise InvalidInputError(
            f"{WHERE}: df must have each column of the model as a column of its own; {name!r} is within "
            f"another. Select it under a name without a dot, and fit the model on that."
        )
    alike = [other for other in kinds if other.lower() == name.lower()]
    return alike[0] if len(alike) == 1 else name


def _inputs(network: Network, df: Any, columns: Any, features_col: str | None) -> list[_Input]:
    """The columns of a model that need not know them."""
    kinds, d = _kinds(df), network.n_features
    if features_col is not None:
        _check_there(kinds, [features_col])
        names = network.feature_names or _attributes(df, features_col)
        features = list(map(str, names)) if len(names) == d else [f"{features_col}_{i}" for i in range(d)]
        inputs = [_Input(features_col, features, kinds[features_col], d)]
    else:
        named = _named(network, columns)
        _check_there(kinds, named)
        known = list(map(str, network.feature_names or named))
        inputs = [
            _Input(name, [name if columns is None else k], kinds[name])
            for name, k in zip(named, known, strict=True)
        ]
    for one in inputs:
        _check_kind(one, numbers=not network.takes_any_kind)
    return inputs


def _named(network: Network, columns: Any) -> list[str]:
    """The columns that the user says, or that the model knows."""
    if columns is None and network.feature_names is None:
        raise InvalidInputError(
            f"{WHERE}: columns must name the {network.n_features} columns that the model takes, in order; it "
            "has no names of its own. Or features_col must name one column of vectors."
        )
    if columns is None:
        return [str(name) for name in network.feature_names or []]
    named = [columns] if isinstance(columns, str) else list(columns)
    if len(named) != network.n_features or len(set(named)) < len(named):
        raise InvalidInputError(
            f"{WHERE}: columns must name {network.n_features} different columns, as the model was fitted on; "
            f"got {len(named)}, {len(set(named))} of them different."
        )
    return named


def _kinds(df: Any) -> dict[str, str]:
    """Of each column its type; "vector" for MLlib's."""
    return {
        field.name: "vector"
        if type(field.dataType).__name__ == "VectorUDT"
        else field.dataType.simpleString()
        for field in df.schema.fields
    }


def _attributes(df: Any, name: str) -> list[str]:
    """What MLlib's metadata call the features of a column of vectors; empty if they say nothing."""
    from whycluster.pipelines.mllib import unquoted

    found = df.schema[name].metadata.get("ml_attr", {})
    listed = [one for kind in found.get("attrs", {}).values() for one in kind]
    names = {one["idx"]: unquoted(one.get("name", f"{name}_{one['idx']}")) for one in listed}
    ordered = [names.get(i, f"{name}_{i}") for i in range(found.get("num_attrs", 0))]
    return ordered if len(set(ordered)) == len(ordered) else [f"{name}_{i}" for i in range(len(ordered))]


def _check_there(kinds: Mapping[str, str], names: Sequence[str], where: str = "df") -> None:
    missing = [name for name in names if name not in kinds]
    if missing:
        raise InvalidInputError(
            f"{WHERE}: {where} must have the columns that the model takes; {missing[0]!r} is not there"
            f"{f', nor are {len(missing) - 1} more' if len(missing) > 1 else ''}. It has "
            f"{', '.join(map(repr, list(kinds)[:8]))}{', ...' if len(kinds) > 8 else ''}."
        )


def _check_length(name: str, width: int | None, names: Sequence[str] | None) -> None:
    """Raise for vectors that are said to be of another length than the model takes."""
    if width is not None and names is not None and len(names) != width:
        raise InvalidInputError(
            f"{WHERE}: column {name!r} must hold vectors of length {width}, as the model takes; its metadata "
            f"say {len(names)}."
        )


def _check_kind(one: _Input, numbers: bool, where: str = "") -> None:
    """Raise for a column of another type than the model takes."""
    numbers = numbers and one.labels is None
    if one.width is not None:
        fits = one.kind == "vector" or (
            one.kind.startswith("array<") and kind_of_spark(one.kind[6:-1]).is_numeric
        )
        wanted = f"vectors or arrays of {one.width} numbers"
    elif numbers:
        fits, wanted = kind_of_spark(one.kind).is_numeric, "numbers, one in each row"
    else:
        fits = not one.kind.startswith(_SEVERAL) and one.kind not in _NOT_IN_ARROW
        wanted = "numbers, text or moments, one in each row"
    if not fits:
        raise InvalidInputError(
            f"{WHERE}: column {one.name!r}{where} must hold {wanted}; it is of type {one.kind}."
        )


def _kept(df: Any, id_columns: Any) -> list[str]:
    """The columns of df that are in the result."""
    if id_columns is None:
        return list(df.columns)
    kept = [id_columns] if isinstance(id_columns, str) else list(id_columns)
    missing = [name for name in kept if name not in df.columns]
    if missing:
        raise InvalidInputError(f"{WHERE}: id_columns must be columns of df; {missing[0]!r} is none.")
    twice = next((name for name in kept if kept.count(name) > 1), None)
    if twice is not None:
        raise InvalidInputError(
            f"{WHERE}: id_columns must be different columns; {twice!r} is there more than once. Name it once."
        )
    return kept


def _check_kept(df: Any, kept: Sequence[str]) -> None:
    """Raise for columns that cannot go to Python and back."""
    for field in df.schema.fields:
        if field.name in kept and not _is_in_arrow(field.dataType):
            raise InvalidInputError(
                f"{WHERE}: columns that are kept must be of types that Arrow has; {field.name!r} is of type "
                f"{field.dataType.simpleString()}. Name the others with id_columns=[...]."
            )


def _is_in_arrow(kind: Any) -> bool:
    """Whether Arrow has a type, and all that are within it."""
    within = [getattr(kind, part) for part in ("elementType", "keyType", "valueType") if hasattr(kind, part)]
    within += [field.dataType for field in getattr(kind, "fields", ())]
    return kind.simpleString() not in _NOT_IN_ARROW and all(map(_is_in_arrow, within))


def _check_free(kept: Sequence[str], added: Sequence[str], prefix: str) -> None:
    alike = {name.lower(): name for name in added}  # which Spark takes for the same
    other = next((name for name in added if alike[name.lower()] != name), None)
    if other is not None:
        raise InvalidInputError(
            f"{WHERE}: names of columns must differ in more than case; the result would have {other!r} and "
            f'{alike[other.lower()]!r}. Rename a column, or give layout="array".'
        )
    lower = {name.lower() for name in kept}
    taken = next((name for name in added if name.lower() in lower), None)
    if taken is not None:
        raise InvalidInputError(
            f"{WHERE}: df has a column {taken!r} already. Drop it, or give another prefix than {prefix!r}."
        )


def _select(df: Any, kept: Sequence[str], inputs: Sequence[_Input], reader: _Reader) -> Any:
    """What is sent: the columns that are kept, and beside them what else the model takes.

    Columns are chosen by text, all in one call: in classic Spark, each `Column` takes milliseconds.
    """
    names = {_KEPT.format(i): _quoted(name) for i, name in enumerate(kept)}
    there = {name.lower() for name in df.columns}
    made = []
    for one, sent in zip(inputs, reader.inputs, strict=True):
        if one.is_sent_as_it_is:
            names[sent.name] = _quoted(one.name)
        else:
            names[sent.name] = unique_name(sent.name, there)
            made.append(one.column().alias(names[sent.name]))
    wider = df.select("*", *made) if made else df
    return wider.selectExpr(*(f"{given} AS {name}" for name, given in names.items()))


@dataclass(frozen=True)
class _Reader:
    """Makes a part of a batch, as `Asked` takes it.

    Attributes
    ----------
    inputs : what is sent of the user's columns
    numbers : whether all are numbers
    """

    inputs: list[_Sent]
    numbers: bool

    @property
    def features(self) -> list[str]:
        """The names of all features."""
        return [name for one in self.inputs for name in one.features]

    def __call__(self, batch: Any) -> Any:
        """An array if all are numbers, else a table."""
        if not self.numbers:
            return self._table(batch)
        blocks = [_block(batch.column(one.name), one) for one in self.inputs]
        if len(blocks) == 1:
            return blocks[0]
        rows = np.empty((batch.num_rows, sum(block.shape[1] for block in blocks)))
        stop = 0
        for block in blocks:
            start, stop = stop, stop + block.shape[1]
            rows[:, start:stop] = block
        return rows

    def _table(self, batch: Any) -> Any:
        import pyarrow as pa

        columns: dict[str, Any] = {}
        for one in self.inputs:
            column = batch.column(one.name)
            if one.width is None:
                columns[one.features[0]] = column
            else:
                columns.update(zip(one.features, _block(column, one).T, strict=True))
        return pa.table(columns)


def _block(column: Any, sent: _Sent) -> Floats:
    """A column of a batch as numbers, (n, width); what is missing is NaN."""
    width = sent.width
    if width is None:
        return np.asarray(column.to_numpy(zero_copy_only=False), np.float64)[:, None]
    lengths = np.diff(column.offsets.to_numpy())
    there = np.asarray(column.is_valid().to_numpy(zero_copy_only=False))
    wrong = there & (lengths != width)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise InvalidInputError(
            f"{WHERE}: column {sent.column!r} must hold vectors of length {width}, as the model takes; row "
            f"{row} has one of length {lengths[row]}."
        )
    values = np.asarray(column.flatten().to_numpy(zero_copy_only=False), np.float64).reshape(-1, width)
    if there.all():
        return values
    block = np.full((len(column), width), np.nan)
    block[there] = values
    return block


@dataclass(frozen=True)
class _Form:
    """How results are written.

    Attributes
    ----------
    layout, top : as they were asked for
    as_text : whether the values of the strongest features are text
    names : of the columns that are added
    types : their types in Arrow
    """

    layout: str
    top: int | None
    as_text: bool
    names: list[str]
    types: list[Any]

    @property
    def is_array(self) -> bool:
        """Whether the last column has the relevance of all features."""
        return self.layout == "array" and self.top is None

    @classmethod
    def of(cls, request: ExplainRequest, reader: _Reader, layout: str, top: int | None, prefix: str) -> _Form:
        """As an answer of no rows says."""
        request = replace(request, feature_names=reader.features)
        nothing = request.explain(np.empty((0, request.network.n_features)))
        as_text = not reader.numbers or request.network.categories is not None
        empty = request.to_arrow(nothing, layout=layout, top=top, as_text=as_text, **_PRECISION)
        names = [prefix + name for name in empty.column_names]
        return cls(layout, top, as_text, names, list(empty.schema.types))


@dataclass(frozen=True)
class _Explaining:
    """What a worker does."""

    request: ExplainRequest
    reader: _Reader
    kept: list[str]
    form: _Form

    def explain(self, batches: Iterator[Any]) -> Iterator[Any]:
        """The columns that are kept of each batch, and the explanations beside them."""
        import pyarrow as pa

        for batch, added in _each(batches, self._added):
            columns = [batch.column(_KEPT.format(i)) for i in range(len(self.kept))]
            yield pa.RecordBatch.from_arrays([*columns, *added], names=[*self.kept, *self.form.names])

    def _added(self, batch: Any) -> list[Any]:
        """The explanations of a batch, column by column."""
        form, answer = self.form, self.request.explain(self.reader(batch))
        found = self.request.to_arrow(
            answer, layout=form.layout, top=form.top, as_text=form.as_text, **_PRECISION
        )
        return [_whole(one, kind) for one, kind in zip(found.columns, form.types, strict=True)]


def _whole(column: Any, kind: Any) -> Any:
    """A column of a table as one array of this type."""
    import pyarrow as pa

    column = column if column.type == kind else column.cast(kind)
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)


def _each(batches: Iterator[Any], work: Callable[[Any], Any], whose: str = "") -> Iterator[tuple[Any, Any]]:
    """Every batch with what the work gives of it; an error says where in the data it came up."""
    start = 0
    for batch in batches:
        try:
            yield batch, work(batch)
        except InvalidInputError as error:
            raise InvalidInputError(f"{error} {_where(start, whose)}") from None
        start += batch.num_rows


def _where(start: int, whose: str) -> str:
    from pyspark import TaskContext

    task = TaskContext.get()
    partition = "its partition" if task is None else f"partition {task.partitionId()}"
    return f"(Rows are counted from row {start} of {partition}{whose}.)"


def _population(
    request: ExplainRequest, reader: _Reader, inputs: Sequence[_Input], df: Any, background: Any
) -> Population:
    """What depends on all rows, measured on df, another DataFrame, or a table that is here."""
    if background is None:
        return _measure(request, reader, inputs, df)
    if _is_frame(background):
        return _measure(request, reader, _in_background(inputs, background), background, " of background")
    found = request.measured_on(background, reader.features).population
    assert found is not None
    return found


def _in_background(inputs: Sequence[_Input], background: Any) -> list[_Input]:
    """The same columns of another DataFrame, where they may be of other types; but numbers stay numbers."""
    _check_names(background, "background")
    kinds = _kinds(background)
    _check_there(kinds, [one.name for one in inputs], "background")
    found = [replace(one, kind=kinds[one.name]) for one in inputs]
    for one, there in zip(inputs, found, strict=True):
        _check_kind(there, not one.is_other, " of background")
    return found


def _measure(
    request: ExplainRequest, reader: _Reader, inputs: Sequence[_Input], df: Any, whose: str = ""
) -> Population:
    """The sum of what the partitions give."""
    if df.isStreaming:
        raise InvalidInputError(
            f"{WHERE}: beta must be given for a stream, or a background to measure it on; it has no end."
        )
    reader = replace(reader, inputs=_sent(inputs, []))
    work = _Measuring(request, reader, whose)
    found = _select(df, [], inputs, reader).mapInArrow(work.measure, "population string")
    if request.network.energy.needs_means:  # of all partitions, these may be too large for the driver
        found = found.repartition(1).mapInArrow(work.add_up, "population string")
    return work.total(row.population for row in found.collect())


@dataclass(frozen=True)
class _Measuring:
    """What a worker does first, if need be; ``whose`` partitions these are, for messages."""

    request: ExplainRequest
    reader: _Reader
    whose: str

    def measure(self, batches: Iterator[Any]) -> Iterator[Any]:
        """One row of a partition: what its batches add up to, as text."""
        measured = _each(batches, lambda batch: self.request.measure(self.reader(batch)), self.whose)
        yield self._row(sum((found for _, found in measured), self._none))

    def add_up(self, batches: Iterator[Any]) -> Iterator[Any]:
        """One row of such rows."""
        yield self._row(self.total(text for batch in batches for text in batch.column(0).to_pylist()))

    def total(self, texts: Iterable[str]) -> Population:
        """What rows of partitions add up to."""
        total = self._none
        for text in texts:
            found = self.request.read_population(json.loads(text))
            assert found is not None
            total = total + found
        return total

    @property
    def _none(self) -> Population:
        return Population.none(self.request.network.energy)

    def _row(self, population: Population) -> Any:
        import pyarrow as pa

        return pa.RecordBatch.from_pydict({"population": [json.dumps(population_to_json(population))]})


def _schema(df: Any, kept: Sequence[str], form: _Form, features: list[str]) -> Any:
    """Of the result, for Spark; the metadata of a column of arrays say which features these are of."""
    from pyspark.sql.pandas.types import from_arrow_type
    from pyspark.sql.types import StructField, StructType

    fields = [df.schema[name] for name in kept]
    for name, kind in zip(form.names, form.types, strict=True):
        about = {"features": features} if form.is_array and name == form.names[-1] else None
        fields.append(StructField(name, from_arrow_type(kind), metadata=about))
    return StructType(fields)


def _observed(df: Any, observation: Any, cluster: str) -> Any:
    from pyspark.sql import functions as F  # noqa: N812

    invalid = F.count_if(_column(cluster).isNull()).alias("invalid")
    return df.observe(observation, F.count(F.lit(1)).alias("rows"), invalid)
