"""Encoders of categories in SQL. The encodings are computed by the fitted encoder itself.

It transforms a small table of all its categories and one unknown value per column. Dropped categories, merged
rare categories and missing values therefore need no code of their own.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whycluster.core.arrays import Floats
from whycluster.core.errors import UnsupportedModelError
from whycluster.data.column_kinds import ColumnKind, kind_of_values
from whycluster.data.missing import is_missing
from whycluster.pipelines.affine_form import to_floats
from whycluster.pipelines.steps import Step
from whycluster.segments.sql import reading
from whycluster.segments.sql.query import Column, Query, Value


@dataclass(frozen=True)
class _Coding:
    """How a column of categories is encoded.

    Attributes
    ----------
    kind : the kind of the categories
    categories : the categories, and None if missing values are one of them
    outputs : (n_categories, n_outputs)
    unknown : (n_outputs,) the outputs of any other value, or None if the encoder refuses it
    """

    kind: ColumnKind
    categories: list[Any]
    outputs: Floats
    unknown: Floats | None


def encode(encoder: Any, step: Step, query: Query, inputs: Sequence[Column | Value]) -> list[Value]:
    """Return the outputs of a OneHotEncoder, an OrdinalEncoder or a TargetEncoder."""
    found: list[Value] = []
    for coding, source in zip(_codings(encoder, step), inputs, strict=True):
        value = query.bind(_read(source, coding.kind, query, step))
        if coding.unknown is None:
            known = _is_one_of(query, value, coding.categories)
            query.refused.append(query.write("(NOT COALESCE({}, FALSE))", known))
        n_outputs = coding.outputs.shape[1]
        found += [_output(query, value, coding, position) for position in range(n_outputs)]
    return found


def _read(source: Column | Value, kind: ColumnKind, query: Query, step: Step) -> Value:
    if kind is ColumnKind.TEXT:
        return reading.text(source, query, step)
    if kind is ColumnKind.BOOLEAN and isinstance(source, Column):
        source = replace(source, kind=kind)
    return reading.number(source, query, step)


def _output(query: Query, value: Value, coding: _Coding, position: int) -> Value:
    """Return one output as a CASE with a branch for each different number."""
    numbers = coding.outputs[:, position]
    other = numbers[0] if coding.unknown is None else coding.unknown[position]
    branches = []
    for number in np.unique(numbers[~_same(numbers, other)]):
        some = [c for c, same in zip(coding.categories, _same(numbers, number), strict=True) if same]
        branches.append(
            query.write("WHEN {} THEN {}", _is_one_of(query, value, some), _literal(query, float(number)))
        )
    otherwise = _literal(query, float(other))
    if not branches:
        return query.write("{}", otherwise)
    return query.write(f"CASE {'{} ' * len(branches)}ELSE {{}} END", *branches, otherwise)


def _same(numbers: Floats, number: float) -> NDArray[np.bool_]:
    return np.asarray((numbers == number) | (np.isnan(numbers) & np.isnan(number)))


def _literal(query: Query, number: float) -> str:
    return f"CAST(NULL AS {query.dialect.double})" if np.isnan(number) else query.dialect.number(number)


def _is_one_of(query: Query, value: Value, categories: list[Any]) -> Value:
    known = [c for c in categories if c is not None]
    literals = [query.dialect.string(c) if isinstance(c, str) else query.dialect.number(c) for c in known]
    parts = ["{} IS NULL"] if len(known) < len(categories) else []
    if len(known) == 1:
        parts.append(f"{{}} = {_escaped(literals[0])}")
    elif known:
        parts.append(f"{{}} IN ({_escaped(', '.join(literals))})")
    return query.write(f"({' OR '.join(parts)})", *[value] * len(parts))


def _escaped(text: str) -> str:
    """Return text that `Query.write` does not change."""
    return text.replace("{", "{{").replace("}", "}}")


def _codings(encoder: Any, step: Step) -> list[_Coding]:
    """Return how the encoder encodes each column."""
    columns = [_known(values, step) for values in encoder.categories_]
    kinds = [_kind(values, step) for values in columns]
    n_rows = max(map(len, columns))
    probe = [[_cell(values[row % len(values)]) for values in columns] for row in range(n_rows)]
    outputs = _transform(encoder, probe, kinds)
    widths = _widths(encoder, len(columns))
    stops = np.cumsum(widths)
    unknown = _unknown(encoder, columns, kinds)
    return [
        _Coding(
            kind,
            values,
            outputs[: len(values), stop - width : stop],
            None if unknown is None else unknown[stop - width : stop],
        )
        for kind, values, width, stop in zip(kinds, columns, widths, stops, strict=True)
    ]


def _known(values: NDArray[Any], step: Step) -> list[Any]:
    """Return the categories of a column, with None for missing values."""
    found = [None if is_missing(value) else value for value in values.tolist()]
    if found.count(None) > 1:
        raise UnsupportedModelError(
            f"to_sql: {step} is not supported, because it treats None and NaN as different categories; both "
            "are NULL in SQL."
        )
    return found


def _kind(values: list[Any], step: Step) -> ColumnKind:
    kind = kind_of_values(values)
    if kind not in (ColumnKind.TEXT, ColumnKind.NUMBER, ColumnKind.BOOLEAN, ColumnKind.EMPTY):
        raise UnsupportedModelError(
            f"to_sql: {step} is not supported, because some of its categories are neither text nor numbers: "
            f"{kind.value}."
        )
    return ColumnKind.NUMBER if kind is ColumnKind.EMPTY else kind


def _cell(value: Any) -> Any:
    return np.nan if value is None else value


def _widths(encoder: Any, n_columns: int) -> list[int]:
    """Return the number of outputs of each column."""
    if hasattr(encoder, "_n_features_outs"):
        return [int(width) for width in encoder._n_features_outs]
    multiclass = getattr(encoder, "target_type_", "") == "multiclass"
    return [len(encoder.classes_) if multiclass else 1] * n_columns


def _unknown(encoder: Any, columns: list[list[Any]], kinds: list[ColumnKind]) -> Floats | None:
    """Return the outputs of values that are no category, or None if the encoder refuses them."""
    if getattr(encoder, "handle_unknown", "") == "error":
        return None
    pairs = zip(columns, kinds, strict=True)
    row = [_new_text(values) if kind is ColumnKind.TEXT else _new_number(values) for values, kind in pairs]
    return np.asarray(_transform(encoder, [row], kinds)[0])


def _new_text(values: list[Any]) -> str:
    return "x" * (1 + max(len(value) for value in values if value is not None))


def _new_number(values: list[Any]) -> float:
    return 1.0 + 2.0 * max((abs(float(value)) for value in values if value is not None), default=0.0)


def _transform(encoder: Any, rows: list[list[Any]], kinds: list[ColumnKind]) -> Floats:
    """Return the outputs of the encoder; without its column names, it takes arrays without a warning."""
    nameless = copy.copy(encoder)
    vars(nameless).pop("feature_names_in_", None)
    vars(nameless).pop("_sklearn_output_config", None)
    dtype = object if ColumnKind.TEXT in kinds else np.float64
    with warnings.catch_warnings():  # encoders warn about unknown categories
        warnings.simplefilter("ignore")
        return to_floats(nameless.transform(np.array(rows, dtype=dtype)))
