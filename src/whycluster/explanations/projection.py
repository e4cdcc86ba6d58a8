"""Where rows lie on the map: the first two principal components of what the model compares."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from whycluster.core import attribution
from whycluster.core.arrays import Floats
from whycluster.core.energies import (
    DiagonalGaussianEnergy,
    Energy,
    GaussianEnergy,
    MixedEnergy,
    SquaredEnergy,
)
from whycluster.data.table import Table
from whycluster.pipelines.mixing import BentEnergy, MixingEnergy

_MOST_VALUES = 1 << 25  # 256 MB


class Projection(NamedTuple):
    """A map.

    Attributes
    ----------
    points : (n, 2)
    explained : the parts of the variance that the two axes show
    of : what it is a map of, in words
    """

    points: Floats
    explained: tuple[float, float]
    of: str


def project(energy: Energy, table: Table) -> Projection:
    """The map of some rows, as the model sees them."""
    coded = bool(table.categories) and not table.goes_through_steps
    if isinstance(energy, MixedEnergy) or coded or table.n_rows * energy.n_inputs > _MOST_VALUES:
        # Categories have no place, but how they fit each cluster has; and it is less than very many features.
        fit = attribution.evidence_of_every_cluster(energy, table).astype(np.float64)
        return _principal(_standard(fit), "how well the rows fit each cluster")
    out = np.empty((table.n_rows, energy.n_inputs))
    x = np.array(table.inputs(0, table.n_rows, energy.offset, out))
    return _principal(_compared(energy, x), "what the model compares")


def _compared(energy: Energy, x: Floats) -> Floats:
    """What is compared, of what comes in: behind columns and maps, with the scales of features."""
    if isinstance(energy, BentEnergy):
        return _compared(energy.energy, x[:, : energy.energy.n_inputs])
    if isinstance(energy, MixingEnergy):
        z = np.empty((len(x), energy.n_outputs))
        energy.map(x, z)
        return _compared(energy.energy, z)
    if isinstance(energy, SquaredEnergy):
        return x * np.sqrt(energy.scale)
    if isinstance(energy, (GaussianEnergy, DiagonalGaussianEnergy)):
        return _standard(x)
    for name in ("energy", "clusters", "units", "nodes"):
        inner = getattr(energy, name, None)
        if isinstance(inner, Energy):
            return _compared(inner, x)
    return x


def _standard(x: Floats) -> Floats:
    spread = x.std(axis=0)
    return np.asarray((x - x.mean(axis=0)) / np.where(spread > 0, spread, 1.0))


def _principal(x: Floats, of: str) -> Projection:
    n, d = x.shape
    points, explained = np.zeros((n, 2)), np.zeros(2)
    x = x - x.mean(axis=0)
    total = float(np.square(x).sum())
    if total > 0 and np.isfinite(total):
        from sklearn.decomposition import PCA

        m = min(n, d, 2)
        pca = PCA(m, random_state=0).fit(x)
        axes = pca.components_ * np.where(pca.components_.sum(axis=1, keepdims=True) < 0, -1.0, 1.0)
        points[:, :m] = x @ axes.T
        explained[:m] = np.nan_to_num(pca.explained_variance_ratio_)
    return Projection(points, (float(explained[0]), float(explained[1])), of)
