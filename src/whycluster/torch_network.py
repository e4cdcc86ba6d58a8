"""The network as a torch module, so that any other tool for neural networks can be put on it."""

from __future__ import annotations

import numpy as np
import torch

from whycluster.arrays import Codes
from whycluster.energies import Energy, SquaredEnergy
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


def build(energy: Energy, clusters: Codes) -> torch.nn.Module:
    """The layers for the evidence of these clusters, in their order."""
    if not isinstance(energy, SquaredEnergy):
        raise UnsupportedModelError(f"to_torch: {type(energy).__name__} has no torch network yet.")
    own = np.repeat(clusters, energy.n_clusters - 1)
    rival = np.concatenate([np.delete(np.arange(energy.n_clusters), c) for c in clusters])
    centroid, competitor = energy.centroids[own], energy.centroids[rival]
    weight = 2.0 * (centroid - competitor)
    # |mu_k|^2 - |mu_c|^2, written so that no digits are lost where the data lie far from 0
    bias = -0.5 * np.einsum("pd,pd->p", weight, centroid + competitor)
    detection = torch.nn.Linear(energy.n_features, len(own), dtype=torch.float64)
    with torch.no_grad():
        detection.weight.copy_(torch.from_numpy(weight))
        detection.bias.copy_(torch.from_numpy(bias))
    return torch.nn.Sequential(detection, MinPooling(energy.n_clusters - 1))
