"""The explanations of one part, and how they become an Arrow table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whycluster.core.arrays import Codes
from whycluster.core.errors import InvalidInputError
from whycluster.data.arrays import is_real, strongest, transposed
from whycluster.data.display import format_value
from whycluster.data.frames import unique_name
from whycluster.data.missing import is_missing
from whycluster.data.settings import setting
from whycluster.data.table import Table

LAYOUTS = ("columns", "array")
SKIP = 'invalid="skip"'


@dataclass(frozen=True)
class PartResult:
    """The explanations of the rows of one part.

    Attributes
    ----------
    cluster, competitor : (n,) codes; 0 for invalid rows
    evidence : (n,) NaN for invalid rows
    relevance : (n, d) NaN for invalid rows
    names : (d,) the names of the features
    valid : (n,) whether each row could be explained, or None if all rows could
    table : the valid rows, or None if there are no valid rows
    """

    cluster: Codes
    competitor: Codes
    evidence: NDArray[Any]
    relevance: NDArray[Any]
    names: list[str]
    valid: NDArray[np.bool_] | None
    table: Table | None

    @classmethod
    def empty(cls, n_features: int, names: list[str], valid: NDArray[np.bool_] | None) -> PartResult:
        """Return the result of a part without valid rows."""
        n = 0 if valid is None else len(valid)
        codes = np.zeros(n, np.intp)
        return cls(codes, codes, np.full(n, np.nan), np.full((n, n_features), np.nan), names, valid, None)

    @property
    def n_invalid(self) -> int:
        """The number of rows that could not be explained."""
        return 0 if self.valid is None else int((~self.valid).sum())

    @property
    def null_mask(self) -> NDArray[np.bool_] | None:
        """(n,) whether each row is invalid, or None if all rows are valid."""
        return None if self.valid is None else ~self.valid

    def expanded(self, valid: NDArray[np.bool_]) -> PartResult:
        """Expand the result from the valid rows to all n rows; ``valid``, (n,), is the mask of valid rows."""

        def at_valid(values: NDArray[Any], fill: float) -> NDArray[Any]:
            expanded = np.full((len(valid), *values.shape[1:]), fill, values.dtype)
            expanded[valid] = values
            return expanded

        return PartResult(
            at_valid(self.cluster, 0),
            at_valid(self.competitor, 0),
            at_valid(self.evidence, np.nan),
            at_valid(self.relevance, np.nan),
            self.names,
            valid,
            self.table,
        )


@dataclass(frozen=True)
class ArrowFormat:
    """How explanations are written to Arrow tables.

    A table contains the columns cluster, evidence and competitor, followed by the relevance. In invalid rows,
    these columns are null.

    Attributes
    ----------
    where : the name of the public function, for messages
    labels : (K,) the labels of the clusters
    skips_invalid : whether invalid rows are skipped, for messages
    layout : "columns" for one column per feature, or "array" for one column of lists
    top : if given, write only the ``top`` strongest features of each row, in decreasing order of strength, to
        the columns feature_1, relevance_1, value_1, ...
    dtype : the dtype of the numbers; by default the dtype of the result
    value_dtype : the dtype of the values of the strongest features; by default ``dtype``
    as_text : whether to write the values of the strongest features as text; by default only if they include
        text
    taken : the names of other columns in the same table; an underscore is appended to the name of an
        explanation column if that name is taken
    """

    where: str
    labels: NDArray[Any]
    skips_invalid: bool = False
    layout: str = "columns"
    top: int | None = None
    dtype: Any = None
    value_dtype: Any = None
    as_text: bool | None = None
    taken: Sequence[str] = ()

    def table(self, result: PartResult) -> Any:
        """Return the explanations as a pyarrow table."""
        import pyarrow as pa

        dtype = np.dtype(result.relevance.dtype if self.dtype is None else self.dtype)
        self._check_fits(result, dtype)
        null = result.null_mask
        features = _renamed(result.names, self.taken)
        reserved = [*self.taken, *(features if self.top is None and self.layout == "columns" else [])]
        columns: dict[str, Any] = {}

        def add(name: str, values: Any) -> None:
            used = [*columns, *reserved]
            columns[unique_name(name, used) if name in used else name] = values

        add("cluster", _lookup(self._label_array, result.cluster, null))
        add("evidence", pa.array(result.evidence.astype(dtype, copy=False), mask=null))
        add("competitor", _lookup(self._label_array, result.competitor, null))
        if self.top is not None:
            for name, column in self._strongest(result, self.top, dtype):
                add(name, column)
        elif self.layout == "array":
            add("relevance", _lists(result.relevance, dtype, null))
        else:
            for name, values in zip(features, transposed(result.relevance, dtype), strict=True):
                columns[name] = pa.array(values, mask=null)
        return pa.table(columns)

    @cached_property
    def _label_array(self) -> Any:
        """The labels as an Arrow array. Objects become text; integers use 32 bits if they fit."""
        import pyarrow as pa

        labels = self.labels
        if labels.dtype == object:
            return pa.array(np.array([str(label) for label in labels.tolist()]))
        if labels.dtype.kind in "iu" and np.array_equal(labels, labels.astype(np.int32)):
            return pa.array(labels.astype(np.int32))
        return pa.array(labels)

    def _check_fits(self, result: PartResult, dtype: np.dtype[Any]) -> None:
        """Raise an error if a row has numbers that are too large for the dtype.

        Such rows are never skipped, because they were measured too.
        """
        if result.relevance.itemsize <= dtype.itemsize:
            return
        largest = np.finfo(dtype).max
        both = (result.relevance, result.evidence[:, None])
        if all(np.nanmax(np.abs(values), initial=0.0) <= largest for values in both):
            return
        assert result.table is not None
        row = int(np.argmax((np.abs(np.hstack(both)) > largest).any(axis=1)))
        feature = int(np.argmax(np.abs(result.relevance[row])))
        skips = f"{setting(SKIP)} applies only to missing and infinite values. " * self.skips_invalid
        raise InvalidInputError(
            f"{self.where}: results must fit into {dtype}, whose largest number is {largest:.3g}; in "
            f"row {result.table.first_row + row}, feature {result.names[feature]!r} has relevance "
            f"{result.relevance[row, feature]:.3g}, and the evidence is {result.evidence[row]:.3g}. "
            f"{skips}Drop such rows, or rescale the data and fit the model again."
        )

    def _strongest(self, result: PartResult, top: int, dtype: Any) -> list[tuple[str, Any]]:
        """Return the columns of the strongest features: names, relevance and values."""
        import pyarrow as pa

        null = result.null_mask
        order = strongest(result.relevance if null is None else np.nan_to_num(result.relevance), top)
        relevance = np.take_along_axis(result.relevance, order, axis=1).astype(dtype, copy=False)
        value_dtype = dtype if self.value_dtype is None else np.dtype(self.value_dtype)
        value, names = _values(result, order, value_dtype, self.as_text), pa.array(result.names)
        kind = pa.string() if value.dtype == object else None
        columns: list[tuple[str, Any]] = []
        for rank in range(order.shape[1]):
            columns += [
                (f"feature_{rank + 1}", _lookup(names, order[:, rank], null)),
                (f"relevance_{rank + 1}", pa.array(np.ascontiguousarray(relevance[:, rank]), mask=null)),
                (f"value_{rank + 1}", pa.array(np.ascontiguousarray(value[:, rank]), kind, mask=null)),
            ]
        return columns


def _renamed(names: list[str], taken: Sequence[str]) -> list[str]:
    """Return the names of the features, with underscores appended to names that are taken."""
    renamed: list[str] = []
    for name in names:
        renamed.append(unique_name(name, [*taken, *names, *renamed]) if name in taken else name)
    return renamed


def _lookup(names: Any, codes: Codes, null: NDArray[np.bool_] | None) -> Any:
    """Return the names that belong to the codes as a column, with nulls for invalid rows."""
    import pyarrow as pa

    return names.take(pa.array(codes, mask=null))


def _lists(relevance: NDArray[Any], dtype: Any, null: NDArray[np.bool_] | None) -> Any:
    """Return an array, (n, d), as a column of lists."""
    import pyarrow as pa

    n, d = relevance.shape
    values = pa.array(np.ascontiguousarray(relevance, dtype).reshape(-1))
    starts = pa.array(np.arange(n + 1, dtype=np.int32) * d)
    mask = None if null is None else pa.array(null)
    return pa.ListArray.from_arrays(starts, values, mask=mask)


def _values(result: PartResult, order: Codes, dtype: Any, as_text: bool | None) -> NDArray[Any]:
    """Return the values in the columns ``order``, (n, k), as numbers or as text in an object array."""
    if result.table is None:
        return np.full(order.shape, "" if as_text else np.nan, object if as_text else dtype)
    picked = result.table.pick(order if result.valid is None else order[result.valid])
    if as_text or (as_text is None and picked.dtype == object):
        texts = [_to_text(value) for value in picked.ravel().tolist()]
        picked = np.array(texts, dtype=object).reshape(picked.shape)
    else:
        picked = picked.astype(dtype, copy=False)
    if result.valid is None:
        return picked
    value = np.full(order.shape, "" if picked.dtype == object else 0, picked.dtype)
    value[result.valid] = picked
    return value


def _to_text(value: Any) -> str:
    """Return a value as text, without rounding it."""
    if type(value) is str:  # most values are text or floats, and there may be millions of them
        return value
    if type(value) is float and value == value:
        return repr(value)
    return repr(float(value)) if is_real(value) and not is_missing(value) else format_value(value)
