"""Convert between torch tensors and the user's arrays and data frames."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from whycluster.core.errors import InvalidInputError
from whycluster.data.opening import column_names, open_table


def read_tensor(X: Any, where: str, name: str) -> torch.Tensor:
    """Return the user's data as a tensor of real numbers, without a copy if possible.

    Parameters
    ----------
    X : a tensor, an array, a data frame or nested lists
    where : the public function that was called, for messages
    name : the name of that function's parameter, for messages
    """
    tensor = X.detach() if isinstance(X, torch.Tensor) else _read_array(X, where, name)
    if not is_dense(tensor):
        raise InvalidInputError(
            f"{where}: {name} must be a dense tensor, not nested, quantized or on the meta device; got a "
            f"tensor with dtype {tensor.dtype} and layout {tensor.layout} on the device {tensor.device}. "
            f"Convert a sparse tensor with {name}.to_dense()."
        )
    if tensor.is_complex() or tensor.dtype == torch.bool:
        raise InvalidInputError(f"{where}: {name} must hold real numbers; got {tensor.dtype}.")
    return tensor


def is_dense(tensor: torch.Tensor) -> bool:
    """Return whether a tensor is dense and not nested, quantized or on the meta device."""
    return tensor.layout == torch.strided and not (tensor.is_nested or tensor.is_meta or tensor.is_quantized)


def _read_array(X: Any, where: str, name: str) -> torch.Tensor:
    table = None if column_names(X, where, name) is None else open_table(X, where=where, name=name)
    try:
        array = np.asarray(None if np.ma.is_masked(X) else X)
        if table is not None and array.dtype.kind == "O":  # columns with different dtypes
            array = table.to_array()
        return from_numpy(array)
    except (TypeError, ValueError):
        raise InvalidInputError(
            f"{where}: {name} must be a tensor or a numeric array; got {type(X).__name__}."
        ) from None


def from_numpy(array: NDArray[Any]) -> torch.Tensor:
    """Return an array as a tensor that shares the array's memory.

    Torch cannot share the memory of arrays that have negative strides, use a non-native byte order or are
    read-only. Such arrays are copied.
    """
    shared = array.flags.writeable and array.dtype.isnative and all(step >= 0 for step in array.strides)
    return torch.from_numpy(array if shared else array.astype(array.dtype.newbyteorder("="), order="C"))


def to_numpy(tensor: torch.Tensor) -> NDArray[Any]:
    """Return a copy of a tensor as an array, in float64 if the tensor is float64, else in float32."""
    tensor = tensor.detach().cpu()
    array: NDArray[Any] = (tensor if tensor.dtype == torch.float64 else tensor.float()).numpy()
    return np.array(array)
