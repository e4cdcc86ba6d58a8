"""The plan of a run, made before any row is read: columns, types, and parts that do not match."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import PurePosixPath
from typing import Any, NamedTuple

import numpy as np

from whycluster.core.errors import InvalidInputError
from whycluster.data.column_kinds import ColumnKind, kind_of_arrow
from whycluster.data.display import cut
from whycluster.data.settings import setting
from whycluster.engines.files.parts import FilePart, PartError, estimate_rows, reading
from whycluster.models.network import Network

WHERE = "explain_dataset"
AGGREGATES, AGGREGATE_SUFFIX = "_summary", ".npz"  # the folder and the suffix of the parts' aggregates
_DTYPES = ("float32", "float64")
_NUMERIC = (ColumnKind.NUMBER, ColumnKind.BOOLEAN)


class ModelColumns(NamedTuple):
    """The columns that a model takes.

    Attributes
    ----------
    n_features, n_clusters : the numbers of columns and clusters
    names : the names of the columns, or None if the model was fitted without column names
    text : the positions of columns that hold text
    only_text : the positions of columns that must hold text, because no step before the model encodes them
    any_kind : whether columns may hold something other than numbers
    network : the network, without its column names unless all of them are strings
    """

    n_features: int
    n_clusters: int
    names: list[str] | None
    text: frozenset[int]
    only_text: frozenset[int]
    any_kind: bool
    network: Network

    @classmethod
    def of(cls, network: Network) -> ModelColumns:
        """Return the columns that a network takes."""
        names = network.feature_names
        if not all(isinstance(name, str) for name in names or []):
            network = copy(network)
            network.feature_names = names = None
        sizes = network.n_features, network.n_clusters
        text, any_kind = network.text_columns, network.takes_any_kind
        only_text = text if network.categories is not None else frozenset()
        known = None if names is None else [str(name) for name in names]
        return cls(*sizes, known, text, only_text, any_kind, network)


@dataclass(frozen=True)
class RunPlan:
    """The parts of a run and how their columns are read; made by `make_plan`.

    Attributes
    ----------
    parts : all parts
    columns : the columns to explain, in the order of the model
    kinds : the kind of values in each of these columns, by name
    ids : the columns to copy
    dtype : the dtype of the results
    as_text : whether the values of the strongest features are written as text
    schemas, counts, identities : the schema, the number of rows and the `FilePart.identity` of each part, by
        name
    failed : the reasons why parts cannot be explained, keyed by the name of the part; reading the parts may
        add more
    """

    parts: list[FilePart]
    columns: list[str]
    kinds: dict[str, Kind]
    ids: list[str]
    dtype: np.dtype[Any]
    as_text: bool
    schemas: dict[str, Any]
    counts: dict[str, int | None]
    identities: dict[str, list[Any]]
    failed: dict[str, str] = field(default_factory=dict)

    @property
    def to_do(self) -> list[FilePart]:
        """The parts that have not failed."""
        return [part for part in self.parts if part.name not in self.failed]

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that stay the same if another call resumes the run, as JSON values."""
        return {"dtype": self.dtype.name, "as_text": self.as_text}

    def with_settings(self, settings: Mapping[str, Any]) -> RunPlan:
        """Return the plan with the settings of a resumed run, and mark parts that conflict as failed."""
        dtype, as_text = settings.get("dtype"), settings.get("as_text")
        if dtype not in _DTYPES or not isinstance(as_text, bool):
            raise InvalidInputError(
                f"{WHERE}: the settings of the earlier run were changed after they were written. Start "
                f"over with {setting('overwrite=True')}."
            )
        for part in self.to_do:
            types = self.types(part)
            if dtype == "float32" and not _are_narrow(types):
                self.failed[part.name] = (
                    "its columns must be float32 or narrower, like the columns of all parts when the run "
                    "began, so that no result is rounded; convert them, or start over with "
                    f"{setting('overwrite=True')}"
                )
            elif not (as_text or all(_may_be_numbers(types))):
                self.failed[part.name] = (
                    "its columns must hold numbers, like the columns of all parts when the run began; "
                    f"convert them, or start over with {setting('overwrite=True')}"
                )
        return replace(self, dtype=np.dtype(dtype), as_text=as_text)

    @contextmanager
    def recording_failure(self, part: FilePart) -> Iterator[None]:
        """Record a part as failed if it cannot be read, instead of raising an error."""
        try:
            yield
        except PartError as error:
            self.failed[part.name] = str(error)

    def read_as(self, part: FilePart, names: Sequence[str]) -> list[Any]:
        """Return pyarrow fields: the columns of a part with the types to read them as."""
        import pyarrow as pa

        found = []
        for name in names:
            entry = self.schemas[part.name].field(name)
            if name in self.kinds:
                found.append(entry.with_type(as_read(entry.type, part, self.kinds[name])))
            elif part.is_text:
                found.append(pa.field(name, pa.string(), nullable=False))  # 007 must not become 7
            else:
                found.append(entry)
        return found

    def ids_of(self, part: FilePart) -> list[str]:
        """Return the columns to copy from a part, except the columns that come from its folder names.

        The results are stored in folders with the same names, so readers would otherwise find these columns
        twice.
        """
        in_folders = _folder_columns(part) & part.partition_columns
        return [name for name in self.ids if name not in in_folders]

    @cached_property
    def taken(self) -> list[str]:
        """The names of other columns in the results: copied columns, and columns from folder names."""
        in_folders = {name for part in self.parts for name in _folder_columns(part)}
        return [*dict.fromkeys([*self.ids, *sorted(in_folders)])]

    def n_rows(self, parts: Sequence[FilePart]) -> int | None:
        """Return the approximate number of rows of some parts, or None if it is unknown."""
        counts = [self.counts[part.name] for part in parts]
        others = estimate_rows([part for part, n in zip(parts, counts, strict=True) if n is None])
        return None if others is None else sum(filter(None, counts)) + others

    def check_unchanged(self, part: FilePart) -> None:
        """Raise an error if the part has changed since the plan was made."""
        if part.identity != self.identities[part.name]:
            raise PartError("it changed while it was being read")

    def types(self, part: FilePart) -> list[Any]:
        """Return the types of the explained columns in a part."""
        return [self.schemas[part.name].field(name).type for name in self.columns]


def _folder_columns(part: FilePart) -> set[str]:
    """Return the columns that come from the folder names of a part, such as "year" from year=2020."""
    return {key for key, equals, _ in (f.partition("=") for f in part.name.split("/")[:-1]) if equals}


def make_plan(model: ModelColumns, parts: list[FilePart], columns: Any, ids: Any) -> RunPlan:
    """Choose the columns, and find the parts whose columns do not match."""
    names = as_names(ids, "id_columns")
    _check_results(parts)
    plan = RunPlan(parts, [], {}, names, np.dtype(np.float64), False, {}, {}, {})
    for part in parts:
        with plan.recording_failure(part), reading():
            plan.identities[part.name] = part.identity
            plan.schemas[part.name], plan.counts[part.name] = part.look()
    if plan.schemas:
        plan.columns.extend(_choose(model, columns, names, plan.schemas))
    text = {plan.columns[i] for i in model.text if plan.columns}
    for part in plan.to_do:
        with plan.recording_failure(part):
            _check_names([*plan.columns, *names], plan.schemas[part.name], part)
        if part.is_text:
            plan.schemas[part.name] = with_text(plan.schemas[part.name], text)
    plan.kinds.update(_kinds(plan, model))
    _check_kinds(plan, model)
    check_any_left(plan)
    types = [kind for part in plan.to_do for kind in plan.types(part)]
    dtype = np.dtype(np.float32 if _are_narrow(types) else np.float64)
    return replace(plan, dtype=dtype, as_text=not all(kind.is_number for kind in plan.kinds.values()))


def check_any_left(plan: RunPlan) -> None:
    """Raise an error if all parts have failed."""
    if not plan.to_do:
        raise InvalidInputError(f"{WHERE}: no part can be explained. {describe_failures(plan.failed)}")


def result_name(part: FilePart) -> str:
    """Return the name of the file with the results of a part."""
    return part.name if part.name.endswith(".parquet") else f"{part.name}.parquet"


def describe_failures(failed: Mapping[str, str]) -> str:
    """Describe why parts failed, naming the first five."""
    first = [f"{name!r}: {why}" for name, why in list(failed.items())[:5]]
    return "; ".join(first) + f"; and {len(failed) - 5} more" * (len(failed) > 5) + "."


def as_names(given: Any, name: str) -> list[str]:
    """Return a list of column names from a list or a single name."""
    names = [given] if isinstance(given, str) else list(given) if hasattr(given, "__iter__") else None
    if names is None or not all(isinstance(each, str) for each in names) or len({*names}) < len(names):
        raise InvalidInputError(
            f"{WHERE}: {setting(name)} must be a list of distinct column names; got {given!r}."
        )
    return names


class Kind(NamedTuple):
    """The kind of values that a column holds in all parts."""

    is_number: bool
    in_text: Any  # the pyarrow type to read text files as, if the column is not numeric


def kinds_of(looks: Sequence[tuple[FilePart, Any]]) -> dict[str, Kind]:
    """Return the kind of each column, by name, given the schemas of all parts.

    A column is numeric if it is numeric in most parts; in case of a tie, the first part decides. Any other
    column is read as text if its type differs between text files.
    """
    types: dict[str, list[Any]] = {}
    inferred: dict[str, list[Any]] = {}
    for part, schema in looks:
        for entry in schema:
            types.setdefault(entry.name, []).append(entry.type)
            if part.is_text:
                inferred.setdefault(entry.name, []).append(entry.type)
    return {name: _kind_of(found, inferred.get(name, [])) for name, found in types.items()}


def _kind_of(types: Sequence[Any], inferred: Sequence[Any]) -> Kind:
    """Return the kind of a column, given its types in all parts and the types inferred from text files."""
    import pyarrow as pa

    numbers = [kind in _NUMERIC for kind in map(kind_of_arrow, types) if kind is not ColumnKind.EMPTY]
    mostly = 2 * sum(numbers) + (not numbers or numbers[0]) > len(numbers)
    different = {str(kind): kind for kind in inferred if kind_of_arrow(kind) is not ColumnKind.EMPTY}
    return Kind(mostly, _common_type(list(different.values())) if different else pa.string())


def _common_type(kinds: Sequence[Any]) -> Any:
    """Return a common type: timestamps for dates and timestamps without a zone, text for other mixtures."""
    import pyarrow as pa
    import pyarrow.types as types

    if len(kinds) == 1:
        return kinds[0]
    timestamps = [kind for kind in kinds if types.is_timestamp(kind)]
    zones = {kind.tz for kind in timestamps}
    if len(zones) != 1 or not all(k in timestamps or types.is_date(k) for k in kinds):
        return pa.string()
    if timestamps[0].tz is not None and len(timestamps) < len(kinds):
        return pa.string()
    return pa.timestamp("ns", timestamps[0].tz)


def as_read(found: Any, part: FilePart, kind: Kind) -> Any:
    """Return the type to read a column of a part as, given its stored or inferred type.

    Decimals become floats, and so do integers in text files, where later rows may have fractions.
    """
    import pyarrow as pa
    import pyarrow.types as kinds

    if not kind.is_number:
        return kind.in_text if part.is_text else _supported(found)
    may_have_fractions = part.is_text and not kinds.is_boolean(found)
    to_float = may_have_fractions or kinds.is_decimal(found) or kind_of_arrow(found) is ColumnKind.EMPTY
    return pa.float64() if to_float else found


def _supported(found: Any) -> Any:
    """Return the type to read a non-numeric column as. String views are replaced by supported types."""
    import pyarrow as pa

    others = {"null": pa.string(), "string_view": pa.large_string(), "binary_view": pa.large_binary()}
    return others.get(str(found), found)


def is_float(kind: Any) -> bool:
    """Return whether a pyarrow type holds floating-point numbers."""
    import pyarrow.types as kinds

    return bool(kinds.is_floating(kind))


def _are_narrow(types: Sequence[Any]) -> bool:
    """Return whether each type is a float of at most 32 bits or the type of an empty column."""
    kinds = list(map(kind_of_arrow, types))
    narrow = (is_float(type_) and type_.bit_width <= 32 for type_ in types)
    return all(kind is ColumnKind.EMPTY or ok for kind, ok in zip(kinds, narrow, strict=True))


def _may_be_numbers(types: Sequence[Any]) -> list[bool]:
    """Return, for each type, whether it is numeric or belongs to a column with only missing values."""
    return [kind in (*_NUMERIC, ColumnKind.EMPTY) for kind in map(kind_of_arrow, types)]


def _check_results(parts: list[FilePart]) -> None:
    """Raise an error if a part has a reserved name or two parts would have the same result file."""
    seen: dict[str, str] = {}
    for part in parts:
        if part.name.startswith(("_whycluster", AGGREGATES)):
            raise InvalidInputError(
                f"{WHERE}: names of parts must not begin with '_whycluster' or {AGGREGATES!r}; got "
                f"{part.name!r}. Rename the part."
            )
        other = seen.setdefault(result_name(part), part.name)
        if other != part.name:
            raise InvalidInputError(
                f"{WHERE}: each part must have its own result file; {part.name!r} and {other!r} would both "
                f"be written to {result_name(part)!r}. Rename one of them."
            )
    seen |= {f"{part.name}{AGGREGATE_SUFFIX}": part.name for part in parts}
    for part in parts:
        for folder in PurePosixPath(part.name).parents:
            if str(folder) in seen:
                raise InvalidInputError(
                    f"{WHERE}: each part must have its own result file; the result of {seen[str(folder)]!r} "
                    f"would be the file {str(folder)!r}, but the result of {part.name!r} needs a folder of "
                    "that name. Rename one of them."
                )


def _choose(model: ModelColumns, columns: Any, ids: list[str], schemas: Mapping[str, Any]) -> list[str]:
    """Return the columns to explain, in the order of the model if it has names."""
    wanted, known = model.n_features, model.names
    if columns is None:
        chosen = _numeric_columns(wanted, ids, schemas) if known is None else known
    else:
        given = as_names(columns, "columns")
        chosen = known if known is not None and {*given} == {*known} else given  # columns are matched by name
    if len(chosen) != wanted or len(set(chosen)) != wanted:
        raise InvalidInputError(
            f"{WHERE}: columns must be the {wanted} columns that the model was fitted on; got "
            f"{len(chosen)}: {cut(chosen)}. Pass {setting('columns=[...]')}, and pass columns that only "
            f"identify rows as {setting('id_columns')}."
        )
    return chosen


def _numeric_columns(wanted: int, ids: list[str], schemas: Mapping[str, Any]) -> list[str]:
    """Return the numeric columns of the first part with ``wanted`` such columns, else of the first part."""
    found = [
        [entry.name for entry in schema if entry.name not in ids and kind_of_arrow(entry.type) in _NUMERIC]
        for schema in schemas.values()
    ]
    return next((names for names in found if len(names) == wanted), found[0])


def _check_names(names: list[str], schema: Any, part: FilePart) -> None:
    for name in names:
        if schema.get_field_index(name) < 0:
            hive = (
                "; to read the column from the folder names, pass pyarrow.dataset.dataset(path, "
                "partitioning='hive')"
            )
            raise PartError(
                f"it must have exactly one column named {name!r}; it has {cut(schema.names, 12)}"
                f"{hive if name in _folder_columns(part) else ''}"
            )


def _kinds(plan: RunPlan, model: ModelColumns) -> dict[str, Kind]:
    """Return the kind of each column: numeric if the model takes only numbers, otherwise as in most parts."""
    import pyarrow as pa

    if not model.any_kind:
        return dict.fromkeys(plan.columns, Kind(True, None))
    found = kinds_of([(part, plan.schemas[part.name]) for part in plan.to_do])
    text = {plan.columns[i]: Kind(False, pa.string()) for i in model.only_text}
    return {name: text.get(name, found[name]) for name in plan.columns if name in found}


def with_text(schema: Any, names: Container[str]) -> Any:
    """Return the schema inferred from a text file, with type string for these columns."""
    import pyarrow as pa

    return pa.schema([entry.with_type(pa.string()) if entry.name in names else entry for entry in schema])


def _check_kinds(plan: RunPlan, model: ModelColumns) -> None:
    """Record parts as failed if a column does not hold the numbers, or the text, that the model needs."""
    for part in plan.to_do:
        types = plan.types(part)
        fits = _may_be_numbers(types)
        for i, (column, kind, may_be_number) in enumerate(zip(plan.columns, types, fits, strict=True)):
            if plan.kinds[column].is_number and not may_be_number:
                plan.failed[part.name] = f"column {column!r} must hold numbers; it has type {kind}"
            if i in model.only_text and kind_of_arrow(kind) in _NUMERIC:
                plan.failed[part.name] = (
                    f"column {column!r} must hold text, because the model was fitted on text; it has type "
                    f"{kind}"
                )
