"""Rows in a SciPy sparse matrix."""

from __future__ import annotations

from typing import Any

import numpy as np

from whycluster.core.arrays import Codes, Floats
from whycluster.data.table import Requirements, Table, as_float64, result_dtype


class SparseTable(Table):
    """A SciPy sparse matrix or array that is converted to dense form one block at a time."""

    @classmethod
    def open(cls, matrix: Any, required: Requirements) -> SparseTable:
        """Check a sparse matrix, convert it to CSR and wrap it."""
        required.check_shape(matrix.shape)
        required.check_dtype(matrix.dtype)
        n_rows, n_features = matrix.shape
        names, dtype = required.array_names(n_features), result_dtype(matrix.dtype)
        return cls(matrix.tocsr(), n_rows, n_features, names, dtype, required.where, required.name)

    def read(self, start: int, stop: int, offset: Floats | None, out: Floats) -> Floats:
        """Convert the block to dense form in ``out``."""
        block = self.native[start:stop]
        if block.dtype == np.float64:
            block.toarray(out=out)
        else:
            out[...] = block.toarray()
        return as_float64(out, offset, out)

    def _select(self, rows: Codes) -> Any:
        return self.native[rows]
