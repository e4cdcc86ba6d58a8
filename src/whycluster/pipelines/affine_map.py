"""The map from features x to their mixtures z = A x + o."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from whycluster.core.arrays import Floats, product, product_by_columns
from whycluster.core.energies.squared import HARMLESS_OFFSET
from whycluster.core.errors import InvalidInputError

_LARGE = 1 << 22  # number of values up to which a sparse matrix is decomposed
_LARGEST = 1e150  # squares of larger numbers overflow
_RANK = 1e-10  # relative; in directions with smaller singular values, steps are only rounding errors


@dataclass(frozen=True)
class AffineMap:
    """z = A x + o.

    Attributes
    ----------
    matrix, shift : (m, D) A, as a dense or sparse array, and (m,) o
    offset : (D,) the values subtracted from rows to give x
    unit : (D,) the size of a unit step in each feature of x; 1 by default
    """

    matrix: Any
    shift: Floats
    offset: Floats | None = None
    unit: Floats | None = None

    def without_offset(self) -> AffineMap:
        """Return an equivalent map without an offset, unless removing the offset would lose precision.

        Without an offset, blocks of rows need not be copied.
        """
        if self.offset is None or self.unit is None:
            return self
        if (np.abs(self.offset) > HARMLESS_OFFSET * self.unit).any():
            return self
        return AffineMap(self.matrix, self.shift - self.matrix @ self.offset, None, self.unit)

    def apply(self, x: Floats, shift: Floats, z: Floats) -> None:
        """Write A x + shift into ``z`` of shape (b, m)."""
        if self._is_dense:
            product(x, self.matrix.T, out=z)
        else:
            z[...] = (self.matrix @ x.T).T
        z += shift

    def pull(self, slope: Floats, out: Floats) -> None:
        """Write A^T w for each row w of ``slope`` into ``out`` of shape (b, D)."""
        if self._is_dense:
            product(slope, self.matrix, out=out)
        else:
            out[...] = (self.matrix.T @ slope.T).T

    def lift(self, target: Floats) -> Floats:
        """Return the shortest x that minimizes |A x - target|: (m,) to (D,), or (k, m) to (k, D).

        Lengths are measured in ``unit``, not in the original units of the columns.
        """
        unit = np.ones(self.matrix.shape[1]) if self.unit is None else self.unit
        if self._is_dense:
            dense = self.matrix * unit
        else:
            scaled = self.matrix.multiply(unit).tocsr()
            if scaled.shape[0] * scaled.shape[1] > _LARGE:
                from scipy.sparse.linalg import lsqr

                found = [lsqr(scaled, row, atol=1e-15, btol=1e-15)[0] for row in np.atleast_2d(target)]
                return np.asarray(found * unit).reshape(*target.shape[:-1], len(unit))
            dense = scaled.toarray()
        _check_ordinary(dense, target)
        return np.asarray(np.linalg.lstsq(dense, target.T, rcond=_RANK)[0].T * unit)

    @property
    def is_invertible(self) -> bool:
        """Whether x can be computed from z; False if the matrix is too large to find out."""
        m, d = self.matrix.shape
        if m != d or m * d > _LARGE:
            return False
        dense = self.matrix if self._is_dense else self.matrix.toarray()
        dense = dense if self.unit is None else dense * self.unit
        _check_ordinary(dense)
        values = np.linalg.svd(dense, compute_uv=False)
        return bool(values[-1] > _RANK * values[0])

    @property
    def _is_dense(self) -> bool:
        return isinstance(self.matrix, np.ndarray)


def _check_ordinary(*arrays: Floats) -> None:
    """Raise an error for numbers that may keep LAPACK from ever finishing."""
    for array in arrays:
        if not (np.abs(array) <= _LARGEST).all():
            raise InvalidInputError(
                "neuralize: the steps of the pipeline must multiply only by finite numbers of at most "
                f"{_LARGEST:g}; they use other factors. Rescale the data and fit the pipeline again."
            )


def map_each(matrix: Any, rows: Any) -> Any:
    """Return the product of a matrix, (p, m), and each row, (b, m), as (b, p); both may be sparse."""
    if not isinstance(matrix, np.ndarray) or not isinstance(rows, np.ndarray):
        return (matrix @ rows.T).T
    result = np.empty((len(matrix), len(rows)))
    product_by_columns(matrix, rows, result)
    return result.T
