"""Arrays as text that the page can read: base64 of little-endian numbers, as small as possible."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

LARGEST_HALF = 32768.0  # the largest number of a row becomes this; half precision reaches 65504


def pack(data: Mapping[str, Any]) -> dict[str, Any]:
    """Encode the arrays among the values for JSON; `page.js` turns them into typed arrays."""
    return {key: _packed(value) if isinstance(value, np.ndarray) else value for key, value in data.items()}


def _packed(array: NDArray[Any]) -> dict[str, Any]:
    little = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
    return {
        "type": f"{little.dtype.kind}{little.dtype.itemsize}",
        "shape": list(little.shape),
        "data": base64.b64encode(little.tobytes()).decode("ascii"),
    }


def smallest_codes(values: NDArray[Any]) -> NDArray[Any]:
    """Store non-negative integers in as few bytes as the largest of them needs."""
    return values.astype(np.min_scalar_type(int(values.max(initial=0))))


def smallest_floats(values: NDArray[Any]) -> NDArray[Any]:
    """Store numbers in single precision, unless some are too large or too small for it."""
    with np.errstate(over="ignore", under="ignore"):
        single = values.astype(np.float32)
    subnormal = np.abs(single) < np.finfo(np.float32).tiny  # these lose digits
    fits = np.isfinite(single).all() and not (subnormal & (values != 0)).any()
    return single if fits else values.astype(np.float64)


def scaled_halves(values: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Store numbers in half precision, with one scale for each row.

    Numbers keep three digits, down to a billionth of the largest in their row.

    Returns
    -------
    scale : (n,)
    halves : (n, ...) multiplied by the scale of their row, these are the values
    """
    n = len(values)
    largest = np.abs(values.reshape(n, -1)).max(axis=1, initial=0.0).astype(np.float64)
    scale = smallest_floats(largest / LARGEST_HALF)
    unit = np.where(largest > 0, largest, 1.0).reshape(n, *[1] * (values.ndim - 1))
    return scale, (values / unit * LARGEST_HALF).astype(np.float16)
