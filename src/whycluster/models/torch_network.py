"""The network as a torch module, for use with other tools for neural networks.

Its tensors are copies, so training the module or loading a state into it does not change the network.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from whycluster.core.arrays import Codes, Floats
from whycluster.core.energies import Energy, KernelEnergy, LinearEnergy, SquaredEnergy
from whycluster.core.errors import UnsupportedModelError
from whycluster.models import energies
from whycluster.models.energies.tree import Turn


class _WithBuffers(torch.nn.Module):
    """A layer whose arrays are moved and saved with the module but are not trained."""

    def __init__(self, **arrays: NDArray[Any]) -> None:
        super().__init__()
        for name, values in arrays.items():
            self.register_buffer(name, torch.tensor(values))


class MinPooling(torch.nn.Module):
    """f_c = min over the competitors of cluster c (Prop. 1, layer 2): (n, C (K - 1)) to (n, C)."""

    def __init__(self, n_competitors: int) -> None:
        super().__init__()
        self.n_competitors = n_competitors

    def forward(self, h: torch.Tensor) -> torch.Tensor:
        """Pool the units of each cluster."""
        n_clusters = h.shape[-1] // self.n_competitors  # -1 would fail for an empty batch
        return h.reshape(*h.shape[:-1], n_clusters, self.n_competitors).amin(dim=-1)

    def extra_repr(self) -> str:
        """Return the parameters to print."""
        return f"n_competitors={self.n_competitors}"


class SoftPooling(_WithBuffers):
    """1/gamma log sum_i v_i exp(gamma h_i) over groups of adjacent units (Prop. 5, layers 2 and 3).

    It is a soft maximum if gamma is positive and a soft minimum if gamma is negative. Infinite values give
    the hard maximum and minimum.
    """

    def __init__(self, sizes: Codes, gamma: float, log_weights: Floats) -> None:
        super().__init__(log_weights=log_weights)
        self.sizes = sizes.tolist()
        self.gamma = gamma

    def forward(self, h: torch.Tensor) -> torch.Tensor:
        """Pool the units of each group."""
        if np.isinf(self.gamma):
            pool = torch.amax if self.gamma > 0 else torch.amin
            return torch.stack([pool(part, dim=-1) for part in torch.split(h, self.sizes, dim=-1)], dim=-1)
        scaled = self.gamma * h + self.get_buffer("log_weights")
        parts = torch.split(scaled, self.sizes, dim=-1)
        return torch.stack([torch.logsumexp(part, dim=-1) for part in parts], dim=-1) / self.gamma

    def extra_repr(self) -> str:
        """Return the parameters to print."""
        return f"{sum(self.sizes)} units to {len(self.sizes)}, gamma={self.gamma:.4g}"


class PathPooling(_WithBuffers):
    """f_c = min over the pairs of nodes on the path to cluster c: (n, K - 1) to (n, C).

    The input is the evidence for the left node of each pair; it is negated if the path goes right.
    """

    def __init__(self, paths: list[list[Turn]]) -> None:
        turns = [turn for path in paths for turn in path]
        signs = np.array([turn.sign for turn in turns], dtype=np.float64)
        super().__init__(pairs=np.array([turn.pair for turn in turns], dtype=np.int64), signs=signs)
        self.sizes = [len(path) for path in paths]

    def forward(self, h: torch.Tensor) -> torch.Tensor:
        """Pool the pairs on each path."""
        signed = h[..., self.get_buffer("pairs")] * self.get_buffer("signs")
        return torch.stack([path.amin(dim=-1) for path in torch.split(signed, self.sizes, dim=-1)], dim=-1)

    def extra_repr(self) -> str:
        """Return the parameters to print."""
        return f"paths of {self.sizes} pairs"


class UnitLength(torch.nn.Module):
    """Scales rows to unit length; rows of zeros stay zero and have gradient 0."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Divide each row by its length."""
        # Dividing by the largest value first keeps squares from overflowing or vanishing. It counts as a
        # constant, because the scale of a row does not change its direction.
        largest = x.detach().abs().amax(dim=-1, keepdim=True)
        scaled = x / torch.where(largest == 0, torch.inf, largest)
        length = torch.linalg.vector_norm(scaled, dim=-1, keepdim=True)
        return scaled / torch.where(length == 0, 1.0, length)


class SquaredDistances(_WithBuffers):
    """s_k = sum_i w_ki (x_i - mu_ki)^2 + b_k: (n, d) to (n, K)."""

    def __init__(self, prototypes: Floats, scale: Floats, bias: Floats) -> None:
        super().__init__(prototypes=prototypes, scale=scale, bias=bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the energies; squares are not expanded, so no precision is lost."""
        squares = (x.unsqueeze(-2) - self.get_buffer("prototypes")).square() * self.get_buffer("scale")
        return squares.sum(dim=-1) + self.get_buffer("bias")


class StudentLayer(torch.nn.Module):
    """s_k = power * log(1 + d_k^2 / alpha), computed from squared distances: (n, K) to (n, K)."""

    def __init__(self, alpha: float, power: float) -> None:
        super().__init__()
        self.alpha, self.power = alpha, power

    def forward(self, squares: torch.Tensor) -> torch.Tensor:
        """Return the negative log of Student's t, without the constant that all clusters share."""
        return self.power * torch.log1p(squares / self.alpha)

    def extra_repr(self) -> str:
        """Return the parameters to print."""
        return f"alpha={self.alpha:.4g}"


class ManhattanDistances(_WithBuffers):
    """s_k = sum_i |x_i - mu_ki|: (n, d) to (n, K)."""

    def __init__(self, prototypes: Floats) -> None:
        super().__init__(prototypes=prototypes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the sums of the absolute differences."""
        return (x.unsqueeze(-2) - self.get_buffer("prototypes")).abs().sum(dim=-1)


class MixedDistances(_WithBuffers):
    """s_k = sum of squared differences + gamma * number of differing categories: (n, d) to (n, K)."""

    def __init__(self, prototypes: Floats, categorical: NDArray[np.bool_], gamma: float) -> None:
        super().__init__(prototypes=prototypes, categorical=categorical)
        self.gamma = gamma

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the energies; mismatches have no gradient."""
        difference = x.unsqueeze(-2) - self.get_buffer("prototypes")
        mismatch = self.gamma * (difference != 0).to(difference.dtype)
        parts = torch.where(self.get_buffer("categorical"), mismatch, difference.square())
        return parts.sum(dim=-1)

    def extra_repr(self) -> str:
        """Return the parameters to print."""
        return f"gamma={self.gamma:.4g}"


class QuadraticForms(_WithBuffers):
    """s_k = |P_k^T (x - mu_k)|^2 / 2 + b_k: (n, d) to (n, K); one P for all clusters, or one for each."""

    def __init__(self, means: Floats, roots: Floats, bias: Floats) -> None:
        super().__init__(means=means, roots=roots, bias=bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return half the squared lengths of the whitened differences, plus the bias."""
        moved = x.unsqueeze(-2) - self.get_buffer("means")
        whitened = torch.einsum("...ki,kij->...kj", moved, self.get_buffer("roots"))
        return whitened.square().sum(dim=-1) / 2 + self.get_buffer("bias")


class Floor(torch.nn.Module):
    """An additional energy that is the same for all rows: (n, K) to (n, K + 1)."""

    def __init__(self, floor: float) -> None:
        super().__init__()
        self.floor = floor

    def forward(self, s: torch.Tensor) -> torch.Tensor:
        """Append the constant."""
        return torch.nn.functional.pad(s, (0, 1), value=self.floor)

    def extra_repr(self) -> str:
        """Return the parameters to print."""
        return f"{self.floor:.4g}"


class Differences(_WithBuffers):
    """h_k = s_k - s_c, the evidence for cluster c against competitor k: (n, K) to (n, C (K - 1))."""

    def __init__(self, own: Codes, competitor: Codes) -> None:
        super().__init__(own=own, competitor=competitor)

    def forward(self, s: torch.Tensor) -> torch.Tensor:
        """Return the difference of each pair."""
        return s[..., self.get_buffer("competitor")] - s[..., self.get_buffer("own")]


@functools.singledispatch
def build(energy: Energy, clusters: Codes) -> torch.nn.Module:  # noqa: ARG001  # for the energies below
    """Return the layers that compute the evidence of these clusters, in this order."""
    raise UnsupportedModelError(
        f"to_torch: {type(energy).__name__} cannot be converted to a torch network yet."
    )


@build.register
def _squared(energy: SquaredEnergy, clusters: Codes) -> torch.nn.Module:
    """Return the network of Prop. 1: a linear layer, then a minimum."""
    own, competitor = _pairs(clusters, energy.n_clusters)
    return torch.nn.Sequential(_distances(energy, own, competitor), MinPooling(energy.n_clusters - 1))


@build.register
def _zero_reference(energy: energies.ZeroReferenceEnergy, clusters: Codes) -> torch.nn.Module:
    """Return the network of the squared distances, since the reference does not change the evidence."""
    return build(energy.squares, clusters)


@build.register
def _linear(energy: LinearEnergy, clusters: Codes) -> torch.nn.Module:
    """Return the network of Prop. 6: a linear layer, then a minimum; cosines need normalized rows."""
    own, competitor = _pairs(clusters, energy.n_clusters)
    detection = _detection(
        energy.directions[own] - energy.directions[competitor], energy.bias[own] - energy.bias[competitor]
    )
    layers = [detection, MinPooling(energy.n_clusters - 1)]
    return torch.nn.Sequential(
        *([UnitLength()] if isinstance(energy, energies.CosineEnergy) else []), *layers
    )


@build.register
def _bernoulli(energy: energies.BernoulliEnergy, clusters: Codes) -> torch.nn.Module:
    return build(energy.linearized(), clusters)


@build.register
def _kernel(energy: KernelEnergy, clusters: Codes) -> torch.nn.Module:
    """Return the network of Prop. 5: a unit per pair of support vectors, soft pooling, then a minimum."""
    of = [np.flatnonzero(energy.unit_cluster == k) for k in range(energy.n_clusters)]
    pairs = list(zip(*_pairs(clusters, energy.n_clusters), strict=True))
    own = np.concatenate([np.tile(of[c], len(of[k])) for c, k in pairs])
    competitor = np.concatenate([np.repeat(of[k], len(of[c])) for c, k in pairs])
    within = np.concatenate([np.full(len(of[k]), len(of[c])) for c, k in pairs])
    competitors = np.concatenate([of[k] for _, k in pairs])
    return torch.nn.Sequential(
        _distances(energy.units, own, competitor),
        SoftPooling(within, energy.gamma, energy.log_weights[own]),
        SoftPooling(np.array([len(of[k]) for _, k in pairs]), -energy.gamma, energy.log_weights[competitors]),
        MinPooling(energy.n_clusters - 1),
    )


@build.register
def _floor(energy: energies.FloorEnergy, clusters: Codes) -> torch.nn.Module:
    """Return layers for all terms of Eq. 6, since no term cancels in a comparison with a constant."""
    kernel, n_units = energy.clusters, len(energy.clusters.log_weights)
    return _compare(
        energy,
        clusters,
        SquaredDistances(kernel.units.prototypes, kernel.units.scale, np.zeros(n_units)),
        SoftPooling(kernel.sizes, -kernel.gamma, kernel.log_weights),
        Floor(energy.floor),
    )


@build.register
def _tree(energy: energies.TreeEnergy, clusters: Codes) -> torch.nn.Module:
    """Return a linear layer for the pairs of nodes, then a minimum over each path."""
    left = np.arange(0, energy.nodes.n_clusters, 2)
    return torch.nn.Sequential(
        _distances(energy.nodes, left, left + 1), PathPooling([energy.contest.paths[c] for c in clusters])
    )


@build.register
def _student(energy: energies.StudentEnergy, clusters: Codes) -> torch.nn.Module:
    squares = energy.squares
    distances = SquaredDistances(squares.prototypes, squares.scale, np.zeros(energy.n_clusters))
    return _compare(energy, clusters, distances, StudentLayer(energy.alpha, energy.power))


@build.register
def _manhattan(energy: energies.ManhattanEnergy, clusters: Codes) -> torch.nn.Module:
    return _compare(energy, clusters, ManhattanDistances(energy.prototypes))


@build.register
def _mixed(energy: energies.MixedEnergy, clusters: Codes) -> torch.nn.Module:
    return _compare(energy, clusters, MixedDistances(energy.prototypes, energy.categorical, energy.gamma))


@build.register
def _diagonal_gaussian(energy: energies.DiagonalGaussianEnergy, clusters: Codes) -> torch.nn.Module:
    bias = -np.log(energy.precisions).sum(axis=1) / 2 - energy.log_weights
    return _compare(energy, clusters, SquaredDistances(energy.prototypes, energy.precisions / 2, bias))


@build.register
def _gaussian(energy: energies.GaussianEnergy, clusters: Codes) -> torch.nn.Module:
    return _compare(energy, clusters, QuadraticForms(energy.centers, energy.roots, energy.bias))


def _compare(energy: Energy, clusters: Codes, *layers: torch.nn.Module) -> torch.nn.Module:
    """Return layers for the energies, then their differences and a minimum."""
    differences = Differences(*_pairs(clusters, energy.n_clusters))
    return torch.nn.Sequential(*layers, differences, MinPooling(energy.n_clusters - 1))


def _pairs(clusters: Codes, n_clusters: int) -> tuple[Codes, Codes]:
    """Return all pairs of a cluster in ``clusters`` and one of its competitors."""
    own = np.repeat(clusters, n_clusters - 1)
    return own, np.concatenate([np.delete(np.arange(n_clusters), c) for c in clusters])


def _distances(energy: SquaredEnergy, own: Codes, competitor: Codes) -> torch.nn.Linear:
    """Return |x - competitor|^2 - |x - own|^2 as a linear layer."""
    centroid, other = energy.prototypes[own], energy.prototypes[competitor]
    weight = 2.0 * (centroid - other) * energy.scale
    # |mu_k|^2 - |mu_c|^2, in a form that loses no precision if the data are far from 0
    return _detection(weight, -0.5 * np.einsum("pd,pd->p", weight, centroid + other))


def _detection(weight: Floats, bias: Floats) -> torch.nn.Linear:
    layer = torch.nn.Linear(weight.shape[1], len(weight), dtype=torch.float64)
    with torch.no_grad():
        layer.weight.copy_(torch.from_numpy(weight))
        layer.bias.copy_(torch.from_numpy(bias))
    return layer
