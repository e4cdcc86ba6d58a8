"""Encode arrays for the page as base64 text of little-endian numbers, as small as possible."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

LARGEST_HALF = 32768.0  # the largest number in a row is scaled to this value; half precision reaches 65504


def pack(data: Mapping[str, Any]) -> dict[str, Any]:
    """Encode the arrays among the values as JSON values, from which `page.js` creates typed arrays."""
    return {key: _packed(value) if isinstance(value, np.ndarray) else value for key, value in data.items()}


def _packed(array: NDArray[Any]) -> dict[str, Any]:
    little = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
    return {
        "type": f"{little.dtype.kind}{little.dtype.itemsize}",
        "shape": list(little.shape),
        "data": base64.b64encode(little.tobytes()).decode("ascii"),
    }


def smallest_codes(values: NDArray[Any]) -> NDArray[Any]:
    """Store nonnegative integers in as few bytes as the largest integer needs."""
    return values.astype(np.min_scalar_type(int(values.max(initial=0))))


def smallest_floats(values: NDArray[Any]) -> NDArray[Any]:
    """Store numbers in single precision, or in double precision if some are too large or too small."""
    with np.errstate(over="ignore", under="ignore"):
        single = values.astype(np.float32)
    subnormal = np.abs(single) < np.finfo(np.float32).tiny  # these numbers would lose digits
    fits = np.isfinite(single).all() and not (subnormal & (values != 0)).any()
    return single if fits else values.astype(np.float64)


def scaled_halves(values: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Store numbers in half precision, with one scale for each row.

    Numbers keep three digits, down to a billionth of the largest number in their row.

    Returns
    -------
    scale : (n,) the scale of each row
    halves : (n, ...) numbers that equal the values when multiplied by the scale of their row
    """
    n = len(values)
    largest = np.abs(values.reshape(n, -1)).max(axis=1, initial=0.0).astype(np.float64)
    scale = smallest_floats(largest / LARGEST_HALF)
    unit = np.where(largest > 0, largest, 1.0).reshape(n, *[1] * (values.ndim - 1))
    return scale, (values / unit * LARGEST_HALF).astype(np.float16)


def scaled_together(*arrays: NDArray[Any]) -> tuple[NDArray[Any], list[NDArray[Any]]]:
    """Store several arrays with the same n rows in half precision, with one scale for each row."""
    n = len(arrays[0])
    scale, halves = scaled_halves(np.hstack([array.reshape(n, -1) for array in arrays]))
    ends = np.cumsum([array[0].size if n else 0 for array in arrays])[:-1]
    parts = np.split(halves, ends, axis=1)
    return scale, [part.reshape(array.shape) for part, array in zip(parts, arrays, strict=True)]
