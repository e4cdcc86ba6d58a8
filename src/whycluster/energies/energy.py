"""What every family of models must be able to compute."""

from __future__ import annotations

from abc import ABC, abstractmethod

from whycluster.arrays import Floats


class Energy(ABC):
    """One energy per cluster and its split over the features.

    Everything works on blocks: ``x`` is (b, d), rows minus `offset`; results go into arrays given by the
    caller, so that a pass over millions of rows allocates nothing.
    """

    n_clusters: int
    n_features: int
    offset: Floats | None
    """Subtracted from every row before anything else, or None where that is not needed."""
    scratch_width: int
    """How many numbers per row both methods need to work in: ``scratch`` is (b, scratch_width)."""

    @abstractmethod
    def energies(self, x: Floats, out: Floats, scratch: Floats) -> None:
        """Write s_k(x), up to one constant per row, into ``out`` of shape (b, K)."""

    @abstractmethod
    def combine(self, x: Floats, weights: Floats, out: Floats, scratch: Floats) -> None:
        """Write sum_k weights_k e_k(x) into ``out`` of shape (b, d).

        ``weights`` is (b, K) and each of its rows sums to zero, since only differences of energies
        carry evidence.
        """
