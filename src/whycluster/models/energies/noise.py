"""Noise: a constant energy, which is the lowest one for rows far from all clusters."""

from __future__ import annotations

import numpy as np

from whycluster.core.arrays import Codes, Floats, row_sums
from whycluster.core.energies import Energy, KernelEnergy
from whycluster.core.energies.energy import Parts, carve


class FloorEnergy(Energy):
    """The energies of K clusters, and a constant energy for noise, that is, for rows far from all clusters.

    The surrogate splits the constant over the features like the spread of the scaled rows. A feature is
    therefore evidence for noise if the row differs from the clusters in this feature more than its share.

    Parameters
    ----------
    clusters : the energies of the K clusters
    floor : the constant energy of noise
    split : (d,) the split of the constant over the features; the remainder belongs to no feature
    """

    adds_up = False
    unattributed = "the loss in soft minima"
    title = "several support vectors for each cluster, and noise far from all of them"

    def __init__(self, clusters: KernelEnergy, floor: float, split: Floats) -> None:
        self.clusters = clusters
        self.floor = float(floor)
        self.split = np.array(split, dtype=np.float64)
        self.n_clusters, self.n_features = clusters.n_clusters + 1, clusters.n_features
        self.offset, self.stiffness = clusters.offset, clusters.stiffness
        self.landmarks = clusters.landmarks
        self.scratch_width = max(clusters.scratch_width, self.n_features)

    @property
    def without_noise(self) -> KernelEnergy:
        """The energies of the clusters."""
        return self.clusters

    @property
    def parts(self) -> Parts:
        """The parts of the clusters, then the floor."""
        cluster, log_weight = self.clusters.parts
        return Parts(np.append(cluster, self.n_clusters - 1), np.append(log_weight, 0.0))

    def terms(self, x: Floats, cluster: Codes, out: Floats, scratch: Floats) -> None:
        """Write the terms of the clusters, then the split of the floor, whose remainder is shared equally."""
        self.clusters.terms(x, cluster, out[:, :-1], *carve(scratch, self.clusters.scratch_width))
        out[:, -1] = self.split + (self.floor - self.split.sum()) / self.n_features

    def compared(self, x: Floats) -> Floats:
        """Return the scaled rows."""
        return self.clusters.compared(x)

    def energies(self, x: Floats, out: Floats, scratch: Floats) -> None:
        """Write the energies of the clusters, then the floor, with |x|^2 subtracted from all of them."""
        self.clusters.energies(x, out[:, :-1], *carve(scratch, self.clusters.scratch_width))
        out[:, -1] = self.floor - left_out(self.clusters, x, *carve(scratch, self.n_features))

    def combine(self, x: Floats, weights: Floats, out: Floats, scratch: Floats) -> None:
        """Write the weighted splits of the clusters and the floor; here, |x|^2 does not cancel."""
        floor = weights[:, -1, None]
        self.clusters.combine(x, weights[:, :-1], out, *carve(scratch, self.clusters.scratch_width))
        (common,) = carve(scratch, self.n_features)
        left_out(self.clusters, x, common)
        common *= floor
        out -= common
        out += floor * self.split

    def differentiate(self, x: Floats, weights: Floats, out: Floats, scratch: Floats) -> None:
        """Write the weighted gradients of the clusters; here, 2 x does not cancel."""
        self.clusters.differentiate(x, weights[:, :-1], out, *carve(scratch, self.clusters.scratch_width))
        (common,) = carve(scratch, self.n_features)
        np.multiply(x, 2.0 * self.clusters.units.scale, out=common)
        common *= weights[:, -1, None]
        out -= common


def left_out(energy: KernelEnergy, x: Floats, scratch: Floats) -> Floats:
    """Return the term that `KernelEnergy.energies` leaves out, (b,): |x|^2 if squares are expanded, else 0.

    The split of this term over the features is written to ``scratch``, (b, d).
    """
    if energy.units.linear is None:
        scratch[...] = 0.0
    else:
        np.square(x, out=scratch)
        scratch *= energy.units.scale
    return row_sums(scratch)
