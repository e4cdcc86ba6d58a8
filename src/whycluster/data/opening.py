"""Open the rows that a user passes in: check them and pick the `Table` class for their container."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whycluster.core.errors import InvalidInputError
from whycluster.data.arrays import is_sparse
from whycluster.data.column_kinds import non_numeric_columns
from whycluster.data.frame_table import as_frame, match_names, open_frame, shallow_copy
from whycluster.data.mixed_table import MixedTable, RawTable
from whycluster.data.sparse_table import SparseTable
from whycluster.data.table import ArrayTable, Requirements, Table


def open_table(
    X: Any,
    *,
    where: str,
    name: str = "X",
    n_features: int | None = None,
    model_names: Sequence[Hashable] | None = None,
    feature_names: Sequence[Hashable] | None = None,
    categories: Sequence[Sequence[Any] | None] | None = None,
    any_kind: bool = False,
) -> Table:
    """Check the user's data and wrap it; the values themselves are checked when they are read.

    Parameters
    ----------
    X : the user's data
    where, name : the public function and its parameter, for messages
    n_features : the number of columns that the model was fitted on
    model_names : the column names that the model was fitted on, if it stores them; frames are matched by name
    feature_names : the user's names for the columns of an array
    categories : for each column its categories in the order of their codes, or None for a numeric column;
        by default, all columns are numeric
    any_kind : whether columns may hold any values, some of them missing, because a pipeline converts them
    """
    required = Requirements(where, name, n_features, model_names, feature_names, categories, any_kind)
    if type(X) is np.ndarray and X.ndim and X.dtype.kind in "fiub" and categories is None:
        return ArrayTable.open(X, required)
    frame = as_frame(X, where, name)
    if frame is not None:
        return _open_frame(frame, required)
    return _open_sparse(X, required) if is_sparse(X) else _open_array(X, required)


def _open_frame(frame: Any, required: Requirements) -> Table:
    if required.feature_names is not None:
        raise InvalidInputError(
            f"{required.where}: feature_names applies only to arrays; {required.name} is a data frame, which "
            f"already has names. Rename its columns instead."
        )
    frame = match_names(frame, required)
    required.check_shape(frame.shape)
    if required.categories is not None:
        return MixedTable.open(shallow_copy(frame), list(frame.columns), required)
    schema = frame.schema  # slow if there are many columns
    others = non_numeric_columns(schema)
    if required.any_kind and others:
        return RawTable.open(shallow_copy(frame), list(frame.columns), required)
    return open_frame(frame, schema, others, required)


def _open_sparse(X: Any, required: Requirements) -> Table:
    if required.categories is None:
        return SparseTable.open(X, required)
    required.check_shape(X.shape)
    return MixedTable.open(X.toarray(), required.array_names(X.shape[1]), required)


def _open_array(X: Any, required: Requirements) -> Table:
    array = as_array(X, required.where, required.name)
    if required.any_kind and isinstance(X, (list, tuple)) and array.dtype.kind in "US":
        array = np.array(X, dtype=object)  # otherwise numbers would become text
    if array.ndim == 1 and isinstance(array[0] if len(array) else None, str):
        raise required.error(
            f"must be two-dimensional (rows, features); got {len(array)} strings. Documents need a pipeline "
            f"that begins with a vectorizer. To explain labels of documents, use "
            f"make_pipeline(TfidfVectorizer(), TruncatedSVD(100), wc.Surrogate()).fit(documents, labels)."
        )
    any_kind = required.any_kind and array.dtype.kind in "OUS"
    if required.categories is None and not any_kind:
        return ArrayTable.open(array, required)
    required.check_shape(array.shape)
    kind = RawTable if required.categories is None else MixedTable
    return kind.open(array, required.array_names(array.shape[1]), required)


def as_array(X: Any, where: str, name: str) -> NDArray[Any]:
    """Convert data other than frames and sparse matrices to an array; raise an error if it is not a table."""
    if np.ma.is_masked(X):
        raise InvalidInputError(
            f"{where}: {name} must have no missing values; got a masked array with "
            f"{int(np.sum(X.mask))} masked values. Fill or drop them."
        )
    try:
        array = np.asarray(X)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InvalidInputError(
            f"{where}: {name} must be a table of numbers; a {type(X).__name__} could not be read as one "
            f"({error})."
        ) from error
    if array.ndim == 0:
        hint = " The order of the arguments is explain(model, X)." if hasattr(X, "fit") else ""
        raise InvalidInputError(
            f"{where}: {name} must be a table of numbers; got a {type(X).__name__}.{hint}"
        )
    return array


def column_names(X: Any, where: str, name: str) -> list[Hashable] | None:
    """Return the column names of a data frame, or None for anything else."""
    frame = None if type(X) is np.ndarray else as_frame(X, where, name)
    return None if frame is None else list(frame.columns)
