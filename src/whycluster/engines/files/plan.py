"""What is known of the parts before their rows are read: columns, types, and which parts do not fit."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import PurePosixPath
from typing import Any, NamedTuple

import numpy as np

from whycluster.core.errors import InvalidInputError
from whycluster.data.column_kinds import ColumnKind, kind_of_arrow
from whycluster.data.display import cut
from whycluster.data.settings import setting
from whycluster.engines.files.parts import FilePart, PartError, about, reading
from whycluster.models.network import Network

WHERE = "explain_dataset"
STATES = "_summary"  # the folder of what each part adds to the summary
_WIDTHS = ("float32", "float64")


@dataclass(frozen=True)
class RunPlan:
    """The parts of a run, and what becomes of their columns; made by `make_plan`.

    Attributes
    ----------
    parts : all of them
    columns : that are explained, in the order of the model
    kinds : what each of them holds, by name
    ids : that are copied
    dtype : of the results
    as_text : whether the values of the strongest features are written as text
    schemas, counts, identities : of each part, by name, what `FilePart.look` and `FilePart.identity` said
    failed : why parts cannot be explained, by name; may grow as they are read
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
        """The parts that can be explained, as far as it is known."""
        return [part for part in self.parts if part.name not in self.failed]

    @property
    def settled(self) -> dict[str, Any]:
        """What is the same for all results of a run, whoever goes on with it, as JSON can hold it."""
        return {"dtype": self.dtype.name, "as_text": self.as_text}

    def as_settled(self, settled: Mapping[str, Any]) -> RunPlan:
        """The plan with what the run settled when it began; parts that do not fit that fail."""
        dtype, as_text = settled.get("dtype"), settled.get("as_text")
        if dtype not in _WIDTHS or not isinstance(as_text, bool):
            raise InvalidInputError(
                f"{WHERE}: what an earlier run settled must be left as it was written; it is not. Begin "
                f"anew, with {setting('overwrite=True')}."
            )
        for part in self.to_do:
            types = self._types(part)
            if dtype == "float32" and not all(map(_is_narrow, types)):
                self.failed[part.name] = (
                    "it must hold float32 or less, as all parts did when the run began, so that nothing is "
                    f"rounded; convert it, or begin anew, with {setting('overwrite=True')}"
                )
            elif not (as_text or all(map(_may_be_numbers, types))):
                self.failed[part.name] = (
                    "its columns must hold numbers, as in all parts when the run began; or begin anew, with "
                    f"{setting('overwrite=True')}"
                )
        return replace(self, dtype=np.dtype(dtype), as_text=as_text)

    @contextmanager
    def excusing(self, part: FilePart) -> Iterator[None]:
        """Note that a part cannot be read, and go on."""
        try:
            yield
        except PartError as error:
            self.failed[part.name] = str(error)

    def read_as(self, part: FilePart, names: Sequence[str]) -> list[Any]:
        """Fields of pyarrow: what columns of a part are read as."""
        import pyarrow as pa

        found = []
        for name in names:
            entry = self.schemas[part.name].field(name)
            if name in self.kinds:
                found.append(entry.with_type(as_read(entry.type, part, self.kinds[name])))
            elif part.is_text:
                found.append(pa.field(name, pa.string(), nullable=False))  # as it stands: 007 is no number
            else:
                found.append(entry)
        return found

    def ids_of(self, part: FilePart) -> list[str]:
        """The columns that are copied of a part: not those that its folder, which is kept, says by name.

        They would be there twice for whoever reads the results.
        """
        said = _said(part) & part.placed
        return [name for name in self.ids if name not in said]

    @cached_property
    def taken(self) -> list[str]:
        """Names that stand beside those of the results, in the files or in the names of their folders."""
        return [*dict.fromkeys([*self.ids, *sorted({name for part in self.parts for name in _said(part)})])]

    def n_rows(self, parts: Sequence[FilePart]) -> int | None:
        """How many rows parts have, about; None if that is not known."""
        counts = [self.counts[part.name] for part in parts]
        others = about([part for part, n in zip(parts, counts, strict=True) if n is None])
        return None if others is None else sum(filter(None, counts)) + others

    def check_unchanged(self, part: FilePart) -> None:
        """Raise if the part is not any more what it was."""
        if part.identity != self.identities[part.name]:
            raise PartError("it must not change while it is read; it did")

    def _types(self, part: FilePart) -> list[Any]:
        return [self.schemas[part.name].field(name).type for name in self.columns]


def _said(part: FilePart) -> set[str]:
    """The columns that the names of its folders stand for, such as year=2020."""
    return {key for key, equals, _ in (f.partition("=") for f in part.name.split("/")[:-1]) if equals}


def make_plan(network: Network, parts: list[FilePart], columns: Any, ids: Any) -> RunPlan:
    """Choose the columns, and find the parts that do not have them as the others do."""
    names = as_names(ids, "id_columns")
    _check_results(parts)
    plan = RunPlan(parts, [], {}, names, np.dtype(np.float64), False, {}, {}, {})
    for part in parts:
        with plan.excusing(part), reading():
            plan.identities[part.name] = part.identity
            plan.schemas[part.name], plan.counts[part.name] = part.look()
    if plan.schemas:
        plan.columns.extend(_choose(network, columns, names, plan.schemas))
    text = {plan.columns[i] for i in network.text_columns if plan.columns}
    for part in plan.to_do:
        with plan.excusing(part):
            _check_names([*plan.columns, *names], plan.schemas[part.name], part)
        if part.is_text:
            plan.schemas[part.name] = with_text(plan.schemas[part.name], text)
    plan.kinds.update(_kinds(plan, network))
    _check_kinds(plan, network)
    if not plan.to_do:
        raise InvalidInputError(f"{WHERE}: no part can be explained. {told(plan.failed)}")
    types = [kind for part in plan.to_do for kind in plan._types(part)]
    dtype = np.dtype(np.float32 if all(map(_is_narrow, types)) else np.float64)
    return replace(plan, dtype=dtype, as_text=not all(kind.is_number for kind in plan.kinds.values()))


def result_of(part: FilePart) -> str:
    """The name of the file that a part becomes."""
    return part.name if part.name.endswith(".parquet") else f"{part.name}.parquet"


def told(failed: Mapping[str, str]) -> str:
    """Why parts cannot be explained, of the first few."""
    shown = [f"{name!r}: {why}" for name, why in list(failed.items())[:5]]
    return "; ".join(shown) + f"; and {len(failed) - 5} more" * (len(failed) > 5) + "."


def as_names(given: Any, name: str) -> list[str]:
    """A list of names of columns, or one."""
    names = [given] if isinstance(given, str) else list(given) if hasattr(given, "__iter__") else None
    if names is None or not all(isinstance(each, str) for each in names) or len({*names}) < len(names):
        raise InvalidInputError(
            f"{WHERE}: {setting(name)} must be a list of different names of columns; got {given!r}."
        )
    return names


class Kind(NamedTuple):
    """What a column holds in all parts: whether numbers; if not, as what files of text are read."""

    is_number: bool
    in_text: Any


def kinds_of(looks: Sequence[tuple[FilePart, Any]]) -> dict[str, Kind]:
    """What columns hold, by name, by the schemas of parts.

    They hold numbers if they do in most parts; of as many, as the first has it. What does not, and looks
    different in several files of text, is text.
    """
    types: dict[str, list[Any]] = {}
    guessed: dict[str, list[Any]] = {}
    for part, schema in looks:
        for entry in schema:
            types.setdefault(entry.name, []).append(entry.type)
            if part.is_text:
                guessed.setdefault(entry.name, []).append(entry.type)
    return {name: _kind_of(found, guessed.get(name, [])) for name, found in types.items()}


def _kind_of(types: Sequence[Any], guessed: Sequence[Any]) -> Kind:
    """By the types of a column in all parts, and those of them that are guesses of files of text."""
    import pyarrow as pa

    numbers = [kind_of_arrow(kind).is_numeric for kind in types if not _is_null(kind)]
    mostly = 2 * sum(numbers) + (not numbers or numbers[0]) > len(numbers)
    looks = {str(kind): kind for kind in guessed if not _is_null(kind)}
    return Kind(mostly, _both(list(looks.values())) if looks else pa.string())


def _both(kinds: Sequence[Any]) -> Any:
    """What columns that look like these are read as: days and moments as moments; all else as text."""
    import pyarrow as pa
    import pyarrow.types as types

    if len(kinds) == 1:
        return kinds[0]
    moments = [kind for kind in kinds if types.is_timestamp(kind)]
    if len({kind.tz for kind in moments}) != 1 or not all(k in moments or types.is_date(k) for k in kinds):
        return pa.string()
    if moments[0].tz is not None and len(moments) < len(kinds):
        return pa.string()
    return pa.timestamp("ns", moments[0].tz)


def as_read(found: Any, part: FilePart, kind: Kind) -> Any:
    """The type that a column of a part is read as, which has this one, or was guessed to have it.

    Numbers are floats where they may turn out so further on, or are decimals.
    """
    import pyarrow as pa
    import pyarrow.types as kinds

    if not kind.is_number:
        return kind.in_text if part.is_text else _held(found)
    open_to_fractions = part.is_text and not kinds.is_boolean(found)
    return pa.float64() if open_to_fractions or _is_null(found) or kinds.is_decimal(found) else found


def _held(found: Any) -> Any:
    """The type of a column that holds no numbers; of views, pyarrow cannot take some rows."""
    import pyarrow as pa

    others = {"null": pa.string(), "string_view": pa.large_string(), "binary_view": pa.large_binary()}
    return others.get(str(found), found)


def is_float(kind: Any) -> bool:
    """Whether a type of pyarrow is one of floating-point numbers."""
    import pyarrow.types as kinds

    return bool(kinds.is_floating(kind))


def _is_narrow(kind: Any) -> bool:
    return _is_null(kind) or (is_float(kind) and kind.bit_width <= 32)


def _may_be_numbers(kind: Any) -> bool:
    """Whether a column is of numbers, or of nothing, as one is called of which all values are missing."""
    return kind_of_arrow(kind).is_numeric or _is_null(kind)


def _is_null(kind: Any) -> bool:
    return kind_of_arrow(kind) is ColumnKind.EMPTY


def _check_results(parts: list[FilePart]) -> None:
    """Raise if two parts would become one file."""
    seen: dict[str, str] = {}
    for part in parts:
        if part.name.startswith(("_whycluster", STATES)):
            raise InvalidInputError(
                f"{WHERE}: names of parts must not begin as those of our own files; got {part.name!r}. "
                "Rename it."
            )
        other = seen.setdefault(result_of(part), part.name)
        if other != part.name:
            raise InvalidInputError(
                f"{WHERE}: each part must become a file of its own; {part.name!r} and {other!r} would "
                f"both be {result_of(part)!r}. Rename one of them."
            )
    for part in parts:
        for folder in PurePosixPath(part.name).parents:
            if str(folder) in seen:
                raise InvalidInputError(
                    f"{WHERE}: each part must become a file of its own; {seen[str(folder)]!r} would be "
                    f"{str(folder)!r}, which is the folder of {part.name!r}. Rename one of them."
                )


def _choose(network: Network, columns: Any, ids: list[str], schemas: Mapping[str, Any]) -> list[str]:
    """The columns that are explained, in the order of the model where it knows them."""
    wanted, known = network.n_features, network.feature_names
    model = None if known is None else [str(name) for name in known]
    if columns is None:
        chosen = _fitting(wanted, ids, schemas) if model is None else model
    else:
        given = as_names(columns, "columns")
        chosen = model if model is not None and {*given} == {*model} else given  # rows are matched by name
    if len(chosen) != wanted or len(set(chosen)) != wanted:
        raise InvalidInputError(
            f"{WHERE}: columns must be the {wanted} that the model was fitted on; got {len(chosen)}: "
            f"{cut(chosen)}. Say which with {setting('columns=[...]')}; those that only "
            f"name rows are {setting('id_columns')}."
        )
    return chosen


def _fitting(wanted: int, ids: list[str], schemas: Mapping[str, Any]) -> list[str]:
    """The columns of numbers of the first part that has as many as are wanted; if none has, of the first."""
    found = [
        [entry.name for entry in schema if entry.name not in ids and kind_of_arrow(entry.type).is_numeric]
        for schema in schemas.values()
    ]
    return next((names for names in found if len(names) == wanted), found[0])


def _check_names(names: list[str], schema: Any, part: FilePart) -> None:
    for name in names:
        if schema.get_field_index(name) < 0:
            hive = "; folders stand for it: give pyarrow.dataset.dataset(path, partitioning='hive')"
            raise PartError(
                f"there must be one column {name!r}; there are {cut(schema.names, 12)}"
                f"{hive if name in _said(part) else ''}"
            )


def _kinds(plan: RunPlan, network: Network) -> dict[str, Kind]:
    """What the columns hold: numbers, if the model takes nothing else; as it knows them; or as most parts."""
    import pyarrow as pa

    if not network.takes_any_kind:
        return dict.fromkeys(plan.columns, Kind(True, None))
    found = kinds_of([(part, plan.schemas[part.name]) for part in plan.to_do])
    text = {plan.columns[i]: Kind(False, pa.string()) for i in _only_text(network)}
    return {name: text.get(name, found[name]) for name in plan.columns if name in found}


def _only_text(network: Network) -> frozenset[int]:
    """The features of which a model without steps knows nothing but text."""
    return network.text_columns if network.categories is not None else frozenset()


def with_text(schema: Any, names: Container[str]) -> Any:
    """A schema that was guessed of a file of text, with text in columns that are known as such."""
    import pyarrow as pa

    return pa.schema([entry.with_type(pa.string()) if entry.name in names else entry for entry in schema])


def _check_kinds(plan: RunPlan, network: Network) -> None:
    """Parts fail that hold something else where there are to be numbers, or numbers in place of text."""
    text = _only_text(network)
    for part in plan.to_do:
        for i, (column, kind) in enumerate(zip(plan.columns, plan._types(part), strict=True)):
            if plan.kinds[column].is_number and not _may_be_numbers(kind):
                plan.failed[part.name] = f"column {column!r} must hold numbers; it is of type {kind}"
            if i in text and kind_of_arrow(kind).is_numeric:
                plan.failed[part.name] = (
                    f"column {column!r} must hold text, as the model knows it; it is of type {kind}"
                )
