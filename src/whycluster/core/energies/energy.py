"""The interface of all energies."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from whycluster.core.arrays import Codes, Floats
from whycluster.core.compiled.loops import CompiledKMeans
from whycluster.core.evidence import FLAT, Contest


class Parts(NamedTuple):
    """The parts of the clusters, such as support vectors: the cluster and the log weight of each part, (P,).

    If the model gives probabilities, the weights are its prior weights. Otherwise, they are the weights of
    the parts within their cluster.
    """

    cluster: Codes
    log_weight: Floats


class Quadratics(NamedTuple):
    """Energies that are minima of quadratic functions: s_k = min_p |R_p^T (A x + shift - u_p)|^2 + b_p.

    Attributes
    ----------
    cluster : (P,) the cluster of each piece p; every cluster has at least one piece
    centers : (P, m) u_p
    roots : (M, m, r) the different matrices R
    root : (P,) the position of each piece's matrix in ``roots``
    bias : (P,) b_p
    matrix : (m, n_inputs) A, or None if it is the identity
    shift : (m,)
    is_distance : whether s_k is the squared distance in which models measure rows
    """

    cluster: Codes
    centers: Floats
    roots: Floats
    root: Codes
    bias: Floats
    matrix: Floats | None = None
    shift: Floats | float = 0.0
    is_distance: bool = False


class Energy(ABC):
    """One energy s_k per cluster, and its split e_k over the features.

    Methods take blocks of rows minus `offset`: ``x`` is (b, n_inputs), usually (b, d). They write results to
    ``out`` and intermediate values to ``scratch``, (b, scratch_width), so that a pass allocates nothing.
    """

    n_clusters: int
    n_features: int
    offset: Floats | None  # subtracted from every row first; None if nothing is subtracted
    scratch_width: int
    title = "a custom dissimilarity"  # the family of models, for reports
    # "euclidean", "cosine" or "manhattan" if the nearest center wins by this distance, else None
    distance: str | None = None
    gives_probabilities = False  # whether softmax(-s) are the cluster probabilities of the model
    stiffness: float | None = None  # the beta for which exp(-beta s) are densities or probabilities, or None
    adds_up: bool = True  # whether relevance sums to the evidence, that is, nothing is left over
    unattributed = ""  # the parts of the evidence that belong to no single feature, for messages
    rest = ""  # their name in a list of features, instead of "no single feature"
    rounds = False  # whether `combine` may write float32; it still computes in float64
    takes_columns = False  # whether computing is equally fast on rows stored column by column
    needs_means = False  # whether its split depends on the cluster means; see `with_means`
    contest: Contest = FLAT  # which clusters compete
    # (d,) which features are categorical, or None if all are numeric
    categorical: NDArray[np.bool_] | None = None
    landmarks: Floats | None = None  # (m, d) points among the rows that the model was fitted on, if known
    compiled: CompiledKMeans | None = None  # loops for the same energies; see `loops` for their availability

    @property
    def loops(self) -> CompiledKMeans | None:
        """The compiled loops for this energy, or None if this machine has none."""
        return self.compiled if self.compiled is not None and self.compiled.is_available else None

    @cached_property
    def n_inputs(self) -> int:
        """The number of values per row; after pipeline steps, it may differ from the number of features."""
        return self.n_features

    def with_means(self, means: Floats, sizes: Codes) -> Energy:  # noqa: ARG002  # for those that need them
        """Return the same energies with a split that uses the mean of each cluster's members.

        The result needs no further means. ``means`` is (K, n_inputs), with arbitrary values for empty
        clusters; ``sizes`` is (K,).
        """
        return self

    @abstractmethod
    def energies(self, x: Floats, out: Floats, scratch: Floats) -> None:
        """Write s_k(x), up to one constant per row, into ``out`` of shape (b, K)."""

    @abstractmethod
    def combine(self, x: Floats, weights: Floats, out: Floats, scratch: Floats) -> None:
        """Write sum_k weights_k e_k(x) into ``out`` of shape (b, d).

        ``weights`` is (b, K), and each row sums to zero, since only differences of energies carry evidence.
        """

    @abstractmethod
    def differentiate(self, x: Floats, weights: Floats, out: Floats, scratch: Floats) -> None:
        """Write sum_k weights_k grad s_k(x) into ``out`` of shape (b, d); ``weights`` is as in `combine`."""

    @property
    def by_input(self) -> Energy:
        """The same energies, split over the inputs instead of the features."""
        return self

    @property
    def feature_of_input(self) -> Codes:
        """(n_inputs,) the feature that each input belongs to, or a negative number if it belongs to none."""
        return np.arange(self.n_features)

    @property
    def without_noise(self) -> Energy | None:
        """The energies of the clusters alone if the last energy is that of noise, else None."""
        return None

    def apart_from(self, x: Floats) -> Energy:  # noqa: ARG002  # for those that contain rows
        """Return the energies of changed versions of a row, (1, n_inputs), without the row as a neighbor."""
        return self

    def linearized(self) -> Energy | None:
        """Return an energy with the same boundaries and linear differences, or None if there is none."""
        return None

    def quadratics(self) -> Quadratics | None:
        """Return the energies as minima of quadratic functions, up to a term common to all, or None."""
        return None

    def step_scale(self) -> Floats:
        """Return how much a step of 1 in each input counts in the model's distances, (n_inputs,)."""
        return np.ones(self.n_inputs)

    def compared(self, x: Floats) -> Floats:
        """Return the rows as the model compares them: transformed and, by default, scaled by `step_scale`."""
        return np.asarray(x * self.step_scale())

    @property
    def squared_terms(self) -> tuple[Floats, Floats] | None:
        """(P, d) centers and (d,) scale if `terms` are scale * (x - center)^2, else None."""
        return None

    @property
    def parts(self) -> Parts:
        """The parts that `terms` describes: by default, the clusters."""
        return Parts(np.arange(self.n_clusters), np.zeros(self.n_clusters))

    def terms(self, x: Floats, cluster: Codes, out: Floats, scratch: Floats) -> None:
        """Write the split of every part into ``out`` of shape (b, P, d), up to a term common to all parts.

        ``cluster`` is (b,), the cluster c of each row. By default, e_k - e_c is written.
        """
        split = np.empty((len(x), self.n_features))
        for k in range(self.n_clusters):
            weights = np.zeros((len(x), self.n_clusters))
            weights[:, k] = 1.0
            weights[np.arange(len(x)), cluster] -= 1.0
            self.combine(x, weights, split, scratch)
            out[:, k] = split


def carve(scratch: Floats, *widths: int) -> list[Floats]:
    """Return contiguous parts of a scratch array, of shape (b, width) for each width."""
    b, room = len(scratch), scratch.reshape(-1)
    stops = np.cumsum([0, *widths]) * b
    return [room[start:stop].reshape(b, -1) for start, stop in itertools.pairwise(stops.tolist())]
