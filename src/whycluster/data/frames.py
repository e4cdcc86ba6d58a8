"""Results as data frames, in the library of the user's data: pandas, polars or pyarrow."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Container, Hashable, Mapping
from typing import Any

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

from whycluster.core.errors import InvalidInputError, MissingDependencyError
from whycluster.data.missing import is_missing
from whycluster.data.validation import check_choice

BACKENDS = ("pandas", "polars", "pyarrow")


def build_frame(
    columns: Mapping[Hashable, NDArray[Any] | list[str]],
    like: Any,
    backend: str | None,
    where: str,
    *,
    same_rows: bool = True,
) -> Any:
    """Return a data frame.

    Parameters
    ----------
    columns : the columns in order; pass long strings as lists, since arrays pad them to equal length
    like : the user's data; if it is a frame, its library is used
    backend : "pandas", "polars" or "pyarrow"; None selects the library of ``like``
    same_rows : whether the rows are those of ``like``; if so, a pandas index is copied
    """
    if backend is not None:
        check_choice(backend, BACKENDS, where, "backend")
    source = nw.from_native(like, eager_only=True, pass_through=True)
    if not isinstance(source, nw.DataFrame):
        source = None
    columns = {c: v if isinstance(v, list) or v.dtype != object else _plain(v) for c, v in columns.items()}
    chosen: Any = backend or (source.implementation if source is not None else installed(where))
    if chosen not in ("pandas", nw.Implementation.PANDAS):
        columns = _with_text_names(columns)
    try:
        frame = nw.from_dict(dict(columns), backend=chosen)  # type: ignore[arg-type]
    except ModuleNotFoundError as error:
        raise MissingDependencyError(f"{where}: {backend} is not installed: pip install {backend}") from error
    except UnicodeEncodeError as error:
        raise InvalidInputError(
            f"{where}: names and labels must be valid Unicode to be written to a frame; got "
            f"{error.object[:80]!r}. Rename the feature or the cluster."
        ) from error
    native = frame.to_native()
    if same_rows and source is not None and frame.implementation.is_pandas():
        index = nw.maybe_get_index(source)
        native.index = native.index if index is None else index
    return native


def as_column(values: list[Hashable]) -> NDArray[Any]:
    """Return names as a column: whole numbers stay numbers, everything else becomes text."""
    whole = {type(value) for value in values} == {int} and max(map(abs, values)) < 2**63  # type: ignore[arg-type]
    return np.array(values if whole else [str(value) for value in values])


def _plain(values: NDArray[Any]) -> NDArray[Any]:
    """Return objects as a column of one type: numbers if all are numbers, else text."""
    plain = [None if is_missing(value) else value for value in values.tolist()]
    kinds = {type(value) for value in plain} - {type(None)}
    if float in kinds <= {int, float}:
        return np.array([math.nan if value is None else value for value in plain])
    if None not in plain:
        return as_column(plain)
    return np.array([None if value is None else str(value) for value in plain], dtype=object)


def _with_text_names(columns: Mapping[Hashable, Any]) -> dict[Hashable, Any]:
    """Return the columns with unique text names, since only pandas allows other names."""
    result: dict[Hashable, Any] = {}
    for name, values in columns.items():
        result[unique_name(str(name), result)] = values
    return result


def unique_name(wanted: str, taken: Container[Hashable]) -> str:
    """Append underscores to ``wanted`` until the name is not taken, and return it."""
    while wanted in taken:
        wanted += "_"
    return wanted


def installed(where: str) -> str:
    """Return the first data frame library that is installed."""
    for name in BACKENDS:
        if importlib.util.find_spec(name) is not None:
            return name
    raise MissingDependencyError(
        f"{where}: a data frame needs pandas, polars or pyarrow, but none is installed: pip install pandas"
    )
