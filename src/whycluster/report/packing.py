"""Arrays as text that a page can read: base64 of little-endian numbers, as small as they can be."""

from __future__ import annotations

import base64
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from whycluster.core.arrays import Floats

_LARGEST_HALF = 32768.0  # what the largest number of a row becomes; half precision goes to 65504
_MISSING = 65535  # the code of a value that is not there
_LARGEST_CODE = 65534
_VISIBLE = 5e-4  # of a value; a smaller error cannot be seen in three digits
_TOO_LARGE = 1e300  # sums and differences of larger numbers may overflow
_NEAR_ZERO = 1e-4  # of the spread of the values; nor can this, beside other values


def packed(array: NDArray[Any]) -> dict[str, Any]:
    """An array as what JSON has; `page.js` makes a typed array of it."""
    little = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
    return {
        "type": f"{little.dtype.kind}{little.dtype.itemsize}",
        "shape": list(little.shape),
        "data": base64.b64encode(little.tobytes()).decode("ascii"),
    }


def codes(values: NDArray[Any]) -> NDArray[Any]:
    """Whole numbers from 0 on, in as few bytes as the largest of them needs."""
    return values.astype(np.min_scalar_type(int(values.max(initial=0))))


def floats(values: NDArray[Any]) -> NDArray[Any]:
    """Numbers in single precision, unless some are too large or too small for it."""
    with np.errstate(over="ignore", under="ignore"):
        single = values.astype(np.float32)
    small = np.abs(single) < np.finfo(np.float32).tiny  # and so of few digits
    fits = np.isfinite(single).all() and not (small & (values != 0)).any()
    return single if fits else values.astype(np.float64)


def halves(values: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Scales (n,) and half-precision numbers (n, ...), which times their row's scale are the values.

    Each keeps three digits, down to a billionth of the largest in its row.
    """
    n = len(values)
    largest = np.abs(values.reshape(n, -1)).max(axis=1, initial=0.0).astype(np.float64)
    scale = floats(largest / _LARGEST_HALF)
    unit = np.where(largest > 0, largest, 1.0).reshape(n, *[1] * (values.ndim - 1))
    return scale, (values / unit * _LARGEST_HALF).astype(np.float16)


class Coding(NamedTuple):
    """How the values of a feature become codes of two bytes.

    Attributes
    ----------
    low, step : the value is low + code * step, and missing where the code is 65535; or, if step is 0, it is
        low times the half-precision number with these two bytes, missing where that is NaN
    exact : whether nothing is lost, since the values are whole numbers
    """

    low: float
    step: float
    exact: bool


def coding_of(values: Floats) -> Coding:
    """How to code the values, (m,), of a feature; NaN where they are missing."""
    there = values[np.isfinite(values)]
    if not there.size:
        return Coding(0.0, 1.0, exact=True)
    low, high, largest = float(there.min()), float(there.max()), float(np.abs(there).max())
    if high - low <= _LARGEST_CODE and (there == np.round(there)).all():
        return Coding(low, 1.0, exact=True)
    step = (high - low) / _LARGEST_CODE if largest < _TOO_LARGE else 0.0
    if step > 0:
        spread = float(np.median(np.abs(there - np.median(there))))
        error = np.abs(low + np.round((there - low) / step) * step - there)
        if (error <= _VISIBLE * np.abs(there) + _NEAR_ZERO * spread).all():
            return Coding(low, step, exact=False)
    return Coding(largest / _LARGEST_HALF, 0.0, exact=False)


def encode(values: Floats, coding: Coding) -> NDArray[np.uint16]:
    """The values as codes."""
    if coding.step == 0.0:
        numbers = values / coding.low if coding.low else np.zeros_like(values)
        return np.asarray(numbers.astype(np.float16).view(np.uint16))
    missing = ~np.isfinite(values)
    code = np.where(
        missing, _MISSING, np.round((np.where(missing, coding.low, values) - coding.low) / coding.step)
    )
    return code.astype(np.uint16)


def number_categories(values: list[Any]) -> tuple[NDArray[np.uint16], list[str]]:
    """Codes of texts, None where there is none, and the texts in the order of their codes."""
    names: dict[str, int] = {}
    numbers = [_MISSING if v is None else min(names.setdefault(v, len(names)), _LARGEST_CODE) for v in values]
    return np.array(numbers, dtype=np.uint16), list(names)
