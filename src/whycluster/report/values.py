"""Encode the numbers, dates and categories in rows as two bytes each."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from whycluster.core.arrays import Codes, Floats
from whycluster.data.missing import is_missing
from whycluster.data.table import Table
from whycluster.report.formatting import clean_names
from whycluster.report.packing import LARGEST_HALF

_MISSING = 65535  # the code of a missing value
_LARGEST_CODE = 65534
_VISIBLE = 5e-4  # relative; a smaller error is not visible in three digits
_NEAR_ZERO = 1e-4  # relative to the spread of the values; a smaller error is not visible next to other values
_TOO_LARGE = 1e300  # sums and differences of larger numbers may overflow


class Encoding(NamedTuple):
    """The encoding of a numeric feature's values as two-byte codes.

    Attributes
    ----------
    low, step : If step is positive, the value is low + code * step, and missing if the code is 65535. If step
        is 0, the two bytes are a half-precision number. The value is then low times that number, and missing
        if the number is NaN.
    exact : whether the codes are exact because the values are integers
    """

    low: float
    step: float
    exact: bool


def choose_encoding(values: Floats) -> Encoding:
    """Choose how to encode the values of a feature, (m,), in which missing values are NaN."""
    known = values[np.isfinite(values)]
    if not known.size:
        return Encoding(0.0, 1.0, exact=True)
    low, high, largest = float(known.min()), float(known.max()), float(np.abs(known).max())
    if high - low <= _LARGEST_CODE and (known == np.round(known)).all():
        return Encoding(low, 1.0, exact=True)
    step = (high - low) / _LARGEST_CODE if largest < _TOO_LARGE else 0.0
    if step > 0:
        spread = float(np.median(np.abs(known - np.median(known))))
        error = np.abs(low + np.round((known - low) / step) * step - known)
        if (error <= _VISIBLE * np.abs(known) + _NEAR_ZERO * spread).all():
            return Encoding(low, step, exact=False)
    return Encoding(largest / LARGEST_HALF, 0.0, exact=False)


def encode(values: Floats, encoding: Encoding) -> NDArray[np.uint16]:
    """Encode the values of a numeric feature."""
    if encoding.step == 0.0:
        numbers = values / encoding.low if encoding.low else np.zeros_like(values)
        return np.asarray(numbers.astype(np.float16).view(np.uint16))
    missing = ~np.isfinite(values)
    known = np.where(missing, encoding.low, values)
    codes = np.where(missing, _MISSING, np.round((known - encoding.low) / encoding.step))
    return codes.astype(np.uint16)


def renumber_features(*columns: Codes) -> tuple[Codes, list[Codes]]:
    """Return the distinct features in some arrays, and the arrays as positions among these features."""
    used, place = np.unique(np.concatenate([c.ravel() for c in columns]), return_inverse=True)
    ends = np.cumsum([c.size for c in columns])[:-1]
    return used, [part.reshape(c.shape) for part, c in zip(np.split(place, ends), columns, strict=True)]


def encode_values(
    table: Table, columns: Codes, places: Codes, used: Codes
) -> tuple[NDArray[np.uint16], list[dict[str, Any]]]:
    """Encode the values of each row's strongest features.

    Parameters
    ----------
    table : n rows
    columns, places : (n, k) the features of each row and their positions in ``used``
    used : the features

    Returns
    -------
    codes : (n, k) the encoded values
    features : for each feature in ``used``, the meaning of its codes
    """
    numbers = Table.pick(table, columns)  # for categories, their codes
    objects = table.pick(columns) if table.categories or table.goes_through_steps else None
    result = np.zeros(columns.shape, dtype=np.uint16)
    features: list[dict[str, Any]] = []
    order = np.argsort(places, axis=None, kind="stable")
    starts = np.searchsorted(places.ravel()[order], np.arange(len(used) + 1))
    for place, column in enumerate(used.tolist()):
        cells = order[starts[place] : starts[place + 1]]
        values = (
            [] if objects is None else [None if is_missing(v) else v for v in objects.ravel()[cells].tolist()]
        )
        if column in table.categories or any(isinstance(v, bool) for v in values):
            result.ravel()[cells], names = _encode_categories(values)
            features.append({"categories": names})
            continue
        encoding = choose_encoding(numbers.ravel()[cells])
        result.ravel()[cells] = encode(numbers.ravel()[cells], encoding)
        features.append({"low": encoding.low, "step": encoding.step, "exact": encoding.exact})
        if column in table.dates:
            features[-1]["date"] = True
    return result, features


def _encode_categories(values: list[Any]) -> tuple[NDArray[np.uint16], list[str]]:
    """Return codes of categories, which may be None, and the category names in the order of their codes."""
    codes: dict[str, int] = {}
    names = iter(clean_names([v for v in values if v is not None]))
    numbers = [
        _MISSING if v is None else min(codes.setdefault(next(names), len(codes)), _LARGEST_CODE)
        for v in values
    ]
    return np.array(numbers, dtype=np.uint16), list(codes)
