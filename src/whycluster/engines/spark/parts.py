"""The rows of Spark DataFrames: the columns that a model takes, how they are sent, and how they are read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from whycluster.core.arrays import Floats
from whycluster.core.errors import InvalidInputError, MissingDependencyError
from whycluster.data.column_kinds import kind_of_spark
from whycluster.data.frames import unique_name
from whycluster.engines.request import read_network
from whycluster.models.network import Network

WHERE = "spark.explain"
_NESTED = ("vector", "array<", "map<", "struct<")
_NOT_IN_ARROW = ("interval", "interval year", "interval month", "interval year to month")
# Columns are sent under these names, because mapInArrow rejects some names, such as those with dots.
_KEPT, _SENT = "kept_{}", "whycluster_taken_{}"


def check_frame(df: Any) -> None:
    """Raise an error unless ``df`` is a Spark DataFrame with unique column names."""
    try:
        import pyspark.sql  # noqa: F401  # to see whether pyspark is installed
    except ImportError as error:
        raise MissingDependencyError(f'{WHERE} needs pyspark: pip install "whycluster[spark]"') from error
    if not is_frame(df):
        kind = f"{type(df).__module__.partition('.')[0]}.{type(df).__name__}"
        raise InvalidInputError(f"{WHERE}: df must be a Spark DataFrame; got a {kind}.")
    _check_names(df, "df")


def _check_names(df: Any, where: str) -> None:
    names = [name.lower() for name in df.columns]
    twice = next((name for name in df.columns if names.count(name.lower()) > 1), None)
    if twice is not None:
        raise InvalidInputError(
            f"{WHERE}: {where} must have unique column names; {twice!r} occurs more than once. Rename one "
            "of the columns."
        )


def is_frame(df: Any) -> bool:
    """Return whether ``df`` is a DataFrame of classic Spark or Spark Connect."""
    from pyspark.sql import DataFrame

    return isinstance(df, DataFrame)


@dataclass(frozen=True)
class ModelInput:
    """One column of the DataFrame that the model takes.

    Attributes
    ----------
    name : the name of the column
    features : the names of its features in the model: one name, or one for each element of its vectors
    kind : the type of the column, in Spark's notation
    width : the length of its vectors, or None if it holds single values
    labels : the categories that the model was fitted on, or None if the column is not categorical
    other : the name for all other categories, or None if the model does not accept other categories
    strict : whether unknown categories are sent as missing
    """

    name: str
    features: list[str]
    kind: str
    width: int | None = None
    labels: tuple[str, ...] | None = None
    other: str | None = None
    strict: bool = False

    @property
    def is_not_numeric(self) -> bool:
        """Whether the column holds something other than numbers."""
        return self.width is None and (self.labels is not None or not kind_of_spark(self.kind).is_numeric)

    @property
    def is_sent_unchanged(self) -> bool:
        """Whether the column is sent without conversion."""
        return self.labels is None and (
            self.kind in ("string", "date", "timestamp_ntz")
            or (kind_of_spark(self.kind).is_numeric and not self.kind.startswith("decimal"))
        )

    def sent(self, place: int, kept: Sequence[str]) -> SentColumn:
        """Return how the column is sent to the workers.

        A column that is also kept in the result and needs no conversion is sent only once.
        """
        same = self.is_sent_unchanged and self.name in kept
        name = _KEPT.format(kept.index(self.name)) if same else _SENT.format(place)
        return SentColumn(name, self.name, self.width, self.features)

    def for_invalid(self, invalid: str) -> ModelInput:
        """Return the input under this option for invalid rows; "skip" also skips unknown categories."""
        return replace(self, strict=invalid == "skip" and self.labels is not None and self.other is None)

    def column(self) -> Any:
        """Return the Spark column to send."""
        from pyspark.sql import functions as F  # noqa: N812  # Spark's convention

        column = spark_column(self.name)
        if self.kind == "vector":
            from pyspark.ml.functions import vector_to_array

            return F.when(column.isNotNull(), vector_to_array(column))  # vector_to_array does not accept null
        if self.labels is not None:
            text = column.cast("string")
            if self.other is not None:
                return F.coalesce(text, F.lit(self.other))
            return F.when(text.isin(*self.labels), text) if self.strict else text
        if self.kind == "timestamp":  # in the session's time zone, which is dropped, as in toPandas
            return column.cast("timestamp_ntz")
        return column.cast("double") if self.kind.startswith("decimal") else column


class SentColumn(NamedTuple):
    """A model input in the form that is sent to the workers."""

    name: str  # the name under which it is sent
    column: str  # its name in the DataFrame
    width: int | None  # the length of its vectors
    features: list[str]


def sent_columns(inputs: Sequence[ModelInput], kept: Sequence[str]) -> list[SentColumn]:
    """Return how all inputs are sent to the workers, together with the kept columns."""
    return [one.sent(place, kept) for place, one in enumerate(inputs)]


def spark_column(name: str) -> Any:
    """Return a Spark column by its exact name."""
    from pyspark.sql import functions as F  # noqa: N812  # Spark's convention

    return F.col(_quoted(name))


def _quoted(name: str) -> str:
    """Return a name in SQL notation."""
    escaped = name.replace("`", "``")
    return f"`{escaped}`"


def read_model(
    model: Any, metric: str | None, df: Any, columns: Any, features_col: str | None
) -> tuple[Network, list[ModelInput]]:
    """Return the network of a model, and the columns of df that it takes."""
    if columns is not None and features_col is not None:
        raise InvalidInputError(
            f"{WHERE}: either columns or features_col must name the columns of the model; got both. Leave "
            "one out."
        )
    if columns is None and features_col is None and metric is None and _knows_columns(model):
        return _read_mllib(model, df)
    network = read_network(model, WHERE, metric)  # raises an error if the model has its own metric
    return network, _inputs(network, df, columns, features_col)


def _knows_columns(model: Any) -> bool:
    if not type(model).__module__.startswith("pyspark.ml"):
        return False
    from whycluster.pipelines.spark_models import is_mllib

    return is_mllib(model)


def _read_mllib(model: Any, df: Any) -> tuple[Network, list[ModelInput]]:
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
            ModelInput(
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
    """Return the column that MLlib finds for a name. MLlib ignores case and looks into structs first."""
    outer, dot, _ = name.partition(".")
    if dot and kinds.get(outer, "").startswith("struct<"):
        raise InvalidInputError(
            f"{WHERE}: the columns of the model must be top-level columns of df; {name!r} is a field of a "
            "struct. Select it under a name without a dot, and fit the model on that column."
        )
    alike = [other for other in kinds if other.lower() == name.lower()]
    return alike[0] if len(alike) == 1 else name


def _inputs(network: Network, df: Any, columns: Any, features_col: str | None) -> list[ModelInput]:
    """Return the inputs of a model that is not from MLlib."""
    kinds, d = _kinds(df), network.n_features
    if features_col is not None:
        _check_there(kinds, [features_col])
        names = network.feature_names or _attributes(df, features_col)
        features = list(map(str, names)) if len(names) == d else [f"{features_col}_{i}" for i in range(d)]
        inputs = [ModelInput(features_col, features, kinds[features_col], d)]
    else:
        named = _named(network, columns)
        _check_there(kinds, named)
        known = list(map(str, network.feature_names or named))
        inputs = [
            ModelInput(name, [name if columns is None else k], kinds[name])
            for name, k in zip(named, known, strict=True)
        ]
    for one in inputs:
        _check_kind(one, numbers=not network.takes_any_kind)
    return inputs


def _named(network: Network, columns: Any) -> list[str]:
    """Return the columns that the user named or, by default, the columns that the model was fitted on."""
    if columns is None and network.feature_names is None:
        raise InvalidInputError(
            f"{WHERE}: columns must name the {network.n_features} columns that the model takes, in order, "
            "because it was fitted without column names; columns is None. Alternatively, pass one column of "
            "vectors as features_col."
        )
    if columns is None:
        return [str(name) for name in network.feature_names or []]
    named = [columns] if isinstance(columns, str) else list(columns)
    if len(named) != network.n_features or len(set(named)) < len(named):
        raise InvalidInputError(
            f"{WHERE}: columns must name {network.n_features} distinct columns, the number that the model "
            f"was fitted on; got {len(named)}, {len(set(named))} of them distinct."
        )
    return named


def _kinds(df: Any) -> dict[str, str]:
    """Return the type of each column, which is "vector" for MLlib's vectors."""
    return {
        field.name: "vector"
        if type(field.dataType).__name__ == "VectorUDT"
        else field.dataType.simpleString()
        for field in df.schema.fields
    }


def _attributes(df: Any, name: str) -> list[str]:
    """Return the feature names of a vector column from MLlib's metadata, or an empty list if it has none."""
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
            f"{WHERE}: {where} must have the columns that the model takes; {missing[0]!r} "
            f"{f'and {len(missing) - 1} more are' if len(missing) > 1 else 'is'} missing. The columns "
            f"of {where} are {', '.join(map(repr, list(kinds)[:8]))}{', ...' if len(kinds) > 8 else ''}."
        )


def _check_length(name: str, width: int | None, names: Sequence[str] | None) -> None:
    """Raise an error if the metadata of a column declares vectors of the wrong length."""
    if width is not None and names is not None and len(names) != width:
        raise InvalidInputError(
            f"{WHERE}: column {name!r} must hold vectors of length {width}, as the model expects; its "
            f"metadata declares length {len(names)}."
        )


def _check_kind(one: ModelInput, numbers: bool, where: str = "") -> None:
    """Raise an error if the model does not accept a column of this type."""
    numbers = numbers and one.labels is None
    if one.width is not None:
        fits = one.kind == "vector" or (
            one.kind.startswith("array<") and kind_of_spark(one.kind[6:-1]).is_numeric
        )
        wanted = f"vectors or arrays of {one.width} numbers"
    elif numbers:
        fits, wanted = kind_of_spark(one.kind).is_numeric, "numbers, one in each row"
    else:
        fits = not one.kind.startswith(_NESTED) and one.kind not in _NOT_IN_ARROW
        wanted = "numbers, text, dates or timestamps, one in each row"
    if not fits:
        raise InvalidInputError(
            f"{WHERE}: column {one.name!r}{where} must hold {wanted}; it has type {one.kind}."
        )


def kept_columns(df: Any, id_columns: Any) -> list[str]:
    """Return the columns of df that the result keeps."""
    if id_columns is None:
        return list(df.columns)
    kept = [id_columns] if isinstance(id_columns, str) else list(id_columns)
    missing = [name for name in kept if name not in df.columns]
    if missing:
        raise InvalidInputError(
            f"{WHERE}: id_columns must be columns of df; df has no column {missing[0]!r}."
        )
    twice = next((name for name in kept if kept.count(name) > 1), None)
    if twice is not None:
        raise InvalidInputError(
            f"{WHERE}: id_columns must be distinct; {twice!r} occurs more than once. List it only once."
        )
    return kept


def check_kept(df: Any, kept: Sequence[str]) -> None:
    """Raise an error if a kept column cannot be sent to Python and back."""
    for field in df.schema.fields:
        if field.name in kept and not _is_in_arrow(field.dataType):
            raise InvalidInputError(
                f"{WHERE}: kept columns must have types that Arrow supports; {field.name!r} has type "
                f"{field.dataType.simpleString()}. List the columns to keep, without this one, in "
                "id_columns=[...]."
            )


def _is_in_arrow(kind: Any) -> bool:
    """Return whether Arrow supports a type and all types inside it."""
    within = [getattr(kind, part) for part in ("elementType", "keyType", "valueType") if hasattr(kind, part)]
    within += [field.dataType for field in getattr(kind, "fields", ())]
    return kind.simpleString() not in _NOT_IN_ARROW and all(map(_is_in_arrow, within))


def select(df: Any, kept: Sequence[str], inputs: Sequence[ModelInput], reader: RowReader) -> Any:
    """Return the DataFrame to send: the kept columns, then the other inputs of the model.

    Columns are selected with SQL expressions in one call, because classic Spark takes milliseconds to create
    a `Column`.
    """
    names = {_KEPT.format(i): _quoted(name) for i, name in enumerate(kept)}
    existing = {name.lower() for name in df.columns}
    made = []
    for one, sent in zip(inputs, reader.inputs, strict=True):
        if one.is_sent_unchanged:
            names[sent.name] = _quoted(one.name)
        else:
            names[sent.name] = unique_name(sent.name, existing)
            made.append(one.column().alias(names[sent.name]))
    wider = df.select("*", *made) if made else df
    return wider.selectExpr(*(f"{given} AS {name}" for name, given in names.items()))


def kept_arrays(batch: Any, n_kept: int) -> list[Any]:
    """Return the kept columns of a batch."""
    return [batch.column(_KEPT.format(i)) for i in range(n_kept)]


@dataclass(frozen=True)
class RowReader:
    """Turns Arrow batches into tables that an `ExplainRequest` accepts.

    Attributes
    ----------
    inputs : the columns of the model, in the form that is sent to the workers
    numeric : whether all of these columns hold numbers
    """

    inputs: list[SentColumn]
    numeric: bool

    @property
    def features(self) -> list[str]:
        """The names of all features."""
        return [name for one in self.inputs for name in one.features]

    def __call__(self, batch: Any) -> Any:
        """Return an array if all columns are numeric, otherwise an Arrow table."""
        if not self.numeric:
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


def _block(column: Any, sent: SentColumn) -> Floats:
    """Return a column of a batch as numbers, (n, width), with NaN for missing values."""
    width = sent.width
    if width is None:
        return np.asarray(column.to_numpy(zero_copy_only=False), np.float64)[:, None]
    lengths = np.diff(column.offsets.to_numpy())
    present = np.asarray(column.is_valid().to_numpy(zero_copy_only=False))
    wrong = present & (lengths != width)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise InvalidInputError(
            f"{WHERE}: column {sent.column!r} must hold vectors of length {width}, as the model expects; "
            f"row {row} has one of length {lengths[row]}."
        )
    values = np.asarray(column.flatten().to_numpy(zero_copy_only=False), np.float64).reshape(-1, width)
    if present.all():
        return values
    block = np.full((len(column), width), np.nan)
    block[present] = values
    return block


def each_batch(batches: Iterator[Any], work: Callable[[Any], Any], name: str) -> Iterator[tuple[Any, Any]]:
    """Yield each batch and the result of ``work``; errors name the partition and where the batch begins.

    ``name`` is the parameter that holds the DataFrame.
    """
    start = 0
    for batch in batches:
        try:
            yield batch, work(batch)
        except InvalidInputError as error:
            raise InvalidInputError(f"{error} {_where(start, name)}") from None
        start += batch.num_rows


def _where(start: int, name: str) -> str:
    from pyspark import TaskContext

    task = TaskContext.get()
    partition = "a partition" if task is None else f"partition {task.partitionId()}"
    return f"(Rows are counted from row {start} of {partition} of {name}.)"


def match_background(inputs: Sequence[ModelInput], background: Any) -> list[ModelInput]:
    """Return the same columns of another DataFrame; numeric columns must be numeric there, too."""
    _check_names(background, "background")
    kinds = _kinds(background)
    _check_there(kinds, [one.name for one in inputs], "background")
    found = [replace(one, kind=kinds[one.name]) for one in inputs]
    for one, other in zip(inputs, found, strict=True):
        _check_kind(other, not one.is_not_numeric, " of background")
    return found
