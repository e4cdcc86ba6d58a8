"""The gains of the sequential rule in compiled loops; `whycluster.models.sequential` calls them.

The loops are in ``sequential.c``; `whycluster.core.compiled.loops` loads them. A call does not hold the GIL,
so blocks run on several threads. Each row is computed on its own, so a result does not depend on its block.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from whycluster.core.arrays import Codes, Floats
from whycluster.core.compiled import loops

_LANES = 8  # features are padded to a multiple of this, as in sequential.c
_MOST_VALUES = 1 << 18  # parts times features; then a row takes 6 MB, and larger ones do not fit in the cache


class Parts(ctypes.Structure):
    """The structure ``Parts`` in sequential.c."""

    _fields_ = [
        *loops.fields("P d K", ctypes.c_int64),
        *loops.fields("log_weight begins", ctypes.c_void_p),
        ("beta", ctypes.c_double),
        *loops.fields("centers scale", ctypes.c_void_p),
    ]


@dataclass(frozen=True, eq=False)
class CompiledGains:
    """Compiled loops for the gains of the features.

    Parameters
    ----------
    cluster, log_weight : (P,) the cluster and the log weight of each part
    beta : the stiffness
    n_features : d
    squares : (P, d) centers and (d,) scale if the terms are scale * (x - center)^2, else None
    """

    cluster: Codes
    log_weight: Floats
    beta: float
    n_features: int
    squares: tuple[Floats, Floats] | None

    @property
    def is_available(self) -> bool:
        """Whether this machine has compiled loops, and they take these parts, which must be in order."""
        is_ordered = bool((np.diff(self.cluster) >= 0).all())
        return (
            is_ordered and self.cluster.size * self.n_features <= _MOST_VALUES and loops.library() is not None
        )

    @cached_property
    def _begins(self) -> Codes:
        """(K + 1,) the first part of each cluster, then P."""
        return np.searchsorted(self.cluster, np.arange(self.cluster[-1] + 2)).astype(np.intp)

    @cached_property
    def _padded(self) -> tuple[Floats, Floats] | None:
        """The centers and the scale, with zeros after the last feature."""
        if self.squares is None:
            return None
        n_parts, d = self.squares[0].shape
        width = -(-(d + 1) // _LANES) * _LANES
        padded = np.zeros((n_parts + 1, width))
        padded[:n_parts, :d], padded[n_parts, :d] = self.squares
        return padded[:n_parts], padded[n_parts]

    def run(self, given: Floats, cluster: Codes) -> tuple[Floats, Codes]:
        """Return the gains, (b, d), and the rows that the loops cannot compute, for which NumPy is needed.

        ``given`` are the rows x, (b, d), if the terms are squares, or else the terms, (b, P, d).
        """
        loaded = loops.library()
        assert loaded is not None
        library, width = loaded
        log_weight, given = np.ascontiguousarray(self.log_weight), np.ascontiguousarray(given)
        cluster = np.ascontiguousarray(cluster, dtype=np.intp)
        beta = min(self.beta, np.finfo(np.float64).max)
        squares = [None, None] if self._padded is None else [loops.at(array) for array in self._padded]
        sizes = len(self.cluster), self.n_features, len(self._begins) - 1
        parts = Parts(*sizes, loops.at(log_weight), loops.at(self._begins), beta, *squares)
        gain, space = np.empty((len(given), sizes[1])), np.empty(library.gains_room(ctypes.byref(parts)))
        arrays = [ctypes.c_void_p(loops.at(array)) for array in (cluster, given, gain, space)]
        library.gains(width, ctypes.byref(parts), ctypes.c_int64(len(given)), *arrays)
        return gain, np.flatnonzero(np.isnan(gain[:, 0]))
