"""The network as a torch module, so that any other tool for neural networks can be put on it."""

from __future__ import annotations

import functools

import numpy as np
import torch

from whycluster.arrays import Codes, Floats
from whycluster.energies import Energy, KernelEnergy, LinearEnergy, SquaredEnergy
from whycluster.energies.linear import CosineEnergy
from whycluster.errors import UnsupportedModelError


class MinPooling(torch.nn.Module):
    """f_c = min over the competitors of cluster c (Prop. 1, layer 2): (n, C (K - 1)) to (n, C)."""

    def __init__(self, n_competitors: int) -> None:
        super().__init__()
        self.n_competitors = n_competitors

    def forward(self, h: torch.Tensor) -> torch.Tensor:
        """Pool the units of each cluster."""
        return h.reshape(*h.shape[:-1], -1, self.n_competitors).amin(dim=-1)

    def extra_repr(self) -> str:
        """Shown by print."""
        return f"n_competitors={self.n_competitors}"


class SoftPooling(torch.nn.Module):
    """1/gamma log sum_i v_i exp(gamma h_i) over units that lie side by side (Prop. 5, layers 2 and 3).

    A soft maximum for a positive gamma, a soft minimum for a negative one; infinite, a hard one.
    """

    def __init__(self, sizes: Codes, gamma: float, log_weights: Floats) -> None:
        super().__init__()
        self.sizes = sizes.tolist()
        self.gamma = gamma
        self.register_buffer("log_weights", torch.from_numpy(log_weights))

    def forward(self, h: torch.Tensor) -> torch.Tensor:
        """Pool the units of each group."""
        if np.isinf(self.gamma):
            pool = torch.amax if self.gamma > 0 else torch.amin
            return torch.stack([pool(part, dim=-1) for part in torch.split(h, self.sizes, dim=-1)], dim=-1)
        scaled = self.gamma * h + self.get_buffer("log_weights")
        parts = torch.split(scaled, self.sizes, dim=-1)
        return torch.stack([torch.logsumexp(part, dim=-1) for part in parts], dim=-1) / self.gamma

    def extra_repr(self) -> str:
        """Shown by print."""
        return f"{sum(self.sizes)} units to {len(self.sizes)}, gamma={self.gamma:.4g}"


@functools.singledispatch
def build(energy: Energy, clusters: Codes) -> torch.nn.Module:  # noqa: ARG001  # for those that have one
    """The layers for the evidence of these clusters, in their order."""
    raise UnsupportedModelError(f"to_torch: {type(energy).__name__} has no torch network yet.")


@build.register
def _squared(energy: SquaredEnergy, clusters: Codes) -> torch.nn.Module:
    """Prop. 1: a linear layer, then a minimum."""
    own, rival = _pairs(clusters, energy.n_clusters)
    return torch.nn.Sequential(_distances(energy, own, rival), MinPooling(energy.n_clusters - 1))


@build.register
def _linear(energy: LinearEnergy, clusters: Codes) -> torch.nn.Module:
    """Prop. 6: a linear layer, then a minimum; the cosine has rows of unit length before it."""
    own, rival = _pairs(clusters, energy.n_clusters)
    detection = _detection(
        energy.directions[own] - energy.directions[rival], energy.bias[own] - energy.bias[rival]
    )
    layers = [detection, MinPooling(energy.n_clusters - 1)]
    return torch.nn.Sequential(*([UnitLength()] if isinstance(energy, CosineEnergy) else []), *layers)


@build.register
def _kernel(energy: KernelEnergy, clusters: Codes) -> torch.nn.Module:
    """Prop. 5: one unit for each pair of support vectors, a soft maximum, a soft minimum, a minimum."""
    of = [np.flatnonzero(energy.unit_cluster == k) for k in range(energy.n_clusters)]
    pairs = list(zip(*_pairs(clusters, energy.n_clusters), strict=True))
    own = np.concatenate([np.tile(of[c], len(of[k])) for c, k in pairs])
    rival = np.concatenate([np.repeat(of[k], len(of[c])) for c, k in pairs])
    within = np.concatenate([np.full(len(of[k]), len(of[c])) for c, k in pairs])
    rivals = np.concatenate([of[k] for _, k in pairs])
    return torch.nn.Sequential(
        _distances(energy.units, own, rival),
        SoftPooling(within, energy.gamma, energy.log_weights[own]),
        SoftPooling(np.array([len(of[k]) for _, k in pairs]), -energy.gamma, energy.log_weights[rivals]),
        MinPooling(energy.n_clusters - 1),
    )


class UnitLength(torch.nn.Module):
    """Rows of unit length; a row of zeros stays."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Divide each row by its length."""
        return torch.nn.functional.normalize(x, dim=-1)


def _pairs(clusters: Codes, n_clusters: int) -> tuple[Codes, Codes]:
    """Each of the clusters with each of its competitors."""
    own = np.repeat(clusters, n_clusters - 1)
    return own, np.concatenate([np.delete(np.arange(n_clusters), c) for c in clusters])


def _distances(energy: SquaredEnergy, own: Codes, rival: Codes) -> torch.nn.Linear:
    """|x - rival|^2 - |x - own|^2, linear in x."""
    centroid, competitor = energy.prototypes[own], energy.prototypes[rival]
    weight = 2.0 * (centroid - competitor) * energy.scale
    # |mu_k|^2 - |mu_c|^2, written so that no digits are lost where the data lie far from 0
    return _detection(weight, -0.5 * np.einsum("pd,pd->p", weight, centroid + competitor))


def _detection(weight: Floats, bias: Floats) -> torch.nn.Linear:
    layer = torch.nn.Linear(weight.shape[1], len(weight), dtype=torch.float64)
    with torch.no_grad():
        layer.weight.copy_(torch.from_numpy(weight))
        layer.bias.copy_(torch.from_numpy(bias))
    return layer
