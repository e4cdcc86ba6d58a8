"""Dask task graphs, which apply functions to blocks and add up the results in a tree."""

from __future__ import annotations

from collections import UserDict
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

_FAN_IN = 16  # the number of results that one task adds up


class NamedGraph(UserDict[Any, Any]):
    """A graph that Dask identifies by name, without hashing all its tasks."""

    def __init__(self, graph: Mapping[Any, Any], name: str) -> None:
        super().__init__(graph)
        self.name = name

    def __dask_tokenize__(self) -> str:
        return self.name


def shared(value: Any) -> Any:
    """Return a `dask.delayed` of a value that all tasks need, so that the graph holds the value only once."""
    from dask.base import tokenize
    from dask.delayed import delayed

    return delayed(value, name=f"partitions-{tokenize(value)}", traverse=False)


def call_later(function: Callable[..., Any], *values: Any) -> Any:
    """Return a `dask.delayed` of a pure function applied to values."""
    from dask.delayed import delayed

    return delayed(function, pure=True)(*values)


def each_block(function: Callable[..., Any], blocks: Any, dtype: Any, **options: Any) -> Any:
    """Apply a function to each block of ``blocks``, (n, d); the result has the same chunks."""
    return blocks.map_blocks(function, dtype=dtype, meta=np.empty((0, 0), dtype), **options)


def by_rows(function: Callable[..., Any], blocks: Any, dtype: Any, **options: Any) -> Any:
    """Apply a function to each block and return a Dask array, (n,).

    The function receives a list whose only element is the block.
    """
    import dask.array as da

    meta = np.empty(0, dtype)
    return da.blockwise(function, "i", blocks, "ij", dtype=dtype, meta=meta, concatenate=False, **options)


def reduce_in_tree(function: Callable[[list[Any]], Any], blocks: Any) -> Any:
    """Return a `dask.delayed` of the sum of all blocks, given a function that adds up a few blocks."""
    import dask.array as da

    total = da.reduction(
        blocks,
        chunk=_unchanged,
        aggregate=partial(_reduce, function),
        axis=tuple(range(blocks.ndim)),
        split_every=dict.fromkeys(range(blocks.ndim), _FAN_IN),
        concatenate=False,
        dtype=object,
        meta=np.empty((), object),
    )
    return total.to_delayed().item()


def _unchanged(block: Any, axis: Any, keepdims: bool) -> Any:  # noqa: ARG001  # the signature of a reduction
    return block


def _reduce(function: Callable[[list[Any]], Any], blocks: list[Any], axis: Any, keepdims: bool) -> Any:  # noqa: ARG001  # the signature of a reduction
    from dask.core import flatten

    return function(list(flatten(blocks)))
