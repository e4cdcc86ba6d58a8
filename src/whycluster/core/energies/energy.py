"""What every family of models must be able to compute."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from whycluster.core.arrays import Codes, Floats
from whycluster.core.compiled.loops import CompiledKMeans, ExpandedSquares
from whycluster.core.tree import Tree


class Parts(NamedTuple):
    """What clusters are made of: of each part its cluster, and the log of its weight.

    The weights of a model that gives probabilities are those that it gives before any feature is known; of
    others, the parts that make up a cluster have weights in it.
    """

    cluster: Codes
    log_weight: Floats


class Energy(ABC):
    """One energy per cluster and its split over the features.

    Everything works on blocks: ``x`` is (b, n_inputs), mostly (b, d), rows minus `offset`; results go into
    arrays given by the caller, so that a pass over millions of rows allocates nothing.
    """

    n_clusters: int
    n_features: int
    offset: Floats | None
    """Subtracted from every row before anything else, or None where that is not needed."""
    gives_probabilities = False
    """Whether softmax(-s) are the probabilities that the model gives to the clusters."""
    tree: Tree | None = None
    """The tree of clusters, where the columns of `energies` are pairs of its nodes."""
    stiffness: float | None = None
    """The beta at which exp(-beta s) are densities or probabilities, where the model has one."""
    adds_up: bool = True
    """Whether all of every energy is some feature's, so that relevance adds up to evidence."""
    rounds = False
    """Whether `combine` may be given float32 to write to; it computes in float64 all the same."""
    takes_columns = False
    """Whether it is as fast on rows that lie column by column."""
    needs_means = False
    """Whether its split depends on the means of the clusters' members; see `with_means`."""
    title = "a custom dissimilarity"
    """The family of models, in words, for reports."""
    categorical: NDArray[np.bool_] | None = None
    """(d,) which features are categories; None if the energy knows of none."""
    scratch_width: int
    """How many numbers per row the methods need to work in: ``scratch`` is (b, scratch_width)."""

    expanded: ExpandedSquares | None = None
    """The parameters for the compiled loops, if there are any for this energy."""

    @property
    def loops(self) -> CompiledKMeans | None:
        """The compiled loops, if there are any for this energy on this machine."""
        return None if self.expanded is None else self.expanded.loops

    @cached_property
    def n_inputs(self) -> int:
        """The number of values per row, if they are not the features."""
        return self.n_features

    def with_means(self, means: Floats, sizes: Codes) -> Energy:  # noqa: ARG002  # for those that need them
        """The same energies, with a split that knows the mean of the members of each cluster, as x.

        ``means`` is (K, n_inputs), of clusters without members anything; ``sizes`` is (K,).
        """
        return self

    @abstractmethod
    def energies(self, x: Floats, out: Floats, scratch: Floats) -> None:
        """Write s_k(x), up to one constant per row, into ``out`` of shape (b, K)."""

    @abstractmethod
    def combine(self, x: Floats, weights: Floats, out: Floats, scratch: Floats) -> None:
        """Write sum_k weights_k e_k(x) into ``out`` of shape (b, d).

        ``weights`` is (b, K) and each of its rows sums to zero, since only differences of energies
        carry evidence.
        """

    @abstractmethod
    def differentiate(self, x: Floats, weights: Floats, out: Floats, scratch: Floats) -> None:
        """Write sum_k weights_k grad s_k(x) into ``out`` of shape (b, d); ``weights`` as in `combine`."""

    @property
    def by_input(self) -> Energy:
        """The same energies, split over the inputs instead of the features."""
        return self

    @property
    def feature_of_input(self) -> Codes:
        """(n_inputs,) the feature that each input belongs to; negative if it belongs to none."""
        return np.arange(self.n_features)

    def linearized(self) -> Energy | None:
        """Return an energy with the same boundaries whose differences are linear; None if there is none."""
        return None

    def step_scale(self) -> Floats:
        """Return how much a step of 1 in each input counts, of shape (n_inputs,)."""
        return np.ones(self.n_features)

    def compared(self, x: Floats) -> Floats:
        """Return the rows as the model compares them: transformed and scaled."""
        return x

    @property
    def parts(self) -> Parts:
        """What `terms` are of: the clusters themselves, unless these are made of several parts."""
        return Parts(np.arange(self.n_clusters), np.zeros(self.n_clusters))

    def terms(self, x: Floats, cluster: Codes, out: Floats, scratch: Floats) -> None:
        """Write the split of every part into ``out`` of shape (b, P, d), up to a term that all of them share.

        ``cluster`` is (b,), the cluster of each row: here what is written is e_k - e_c.
        """
        rows = np.arange(len(x))
        weights = np.zeros((len(x), self.n_clusters))
        split = np.empty((len(x), self.n_features))
        for k in range(self.n_clusters):
            weights[:, k] = 1.0
            weights[rows, cluster] -= 1.0
            self.combine(x, weights, split, scratch)
            out[:, k] = split
            weights[...] = 0.0


def carve(scratch: Floats, *widths: int) -> list[Floats]:
    """Contiguous arrays of shape (b, width), one for each width, laid side by side into a scratch."""
    b, room = len(scratch), scratch.reshape(-1)
    stops = np.cumsum([0, *widths]) * b
    return [room[start:stop].reshape(b, -1) for start, stop in itertools.pairwise(stops.tolist())]
