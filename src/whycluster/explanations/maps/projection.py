"""A map of the rows: the first two principal components of the model's features."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from whycluster.core import outputs
from whycluster.core.arrays import Floats
from whycluster.core.energies import Energy
from whycluster.data.arrays import standardized
from whycluster.data.table import Table

_MOST_VALUES = 1 << 25  # 256 MB


class Projection(NamedTuple):
    """A map of rows.

    Attributes
    ----------
    points : (n, 2) the coordinates
    explained : the share of the variance that each axis shows
    of : a description of the values that the map shows
    """

    points: Floats
    explained: tuple[float, float]
    of: str


def project(energy: Energy, table: Table) -> Projection:
    """Return a map of the rows as the model sees them."""
    is_coded = bool(table.categories) and not table.goes_through_steps
    too_large = table.n_rows * energy.n_inputs > _MOST_VALUES
    if energy.categorical is not None or is_coded or too_large:
        # Categories have no coordinates, but the evidence for each cluster does. It also takes less memory
        # than very many features.
        evidence = outputs.evidence_of_every_cluster(energy, table).astype(np.float64)
        return _principal_components(standardized(evidence), "the evidence for each cluster")
    out = np.empty((table.n_rows, energy.n_inputs))
    x = np.array(table.inputs(0, table.n_rows, energy.offset, out))
    return _principal_components(energy.compared(x), "the model's features")


def _principal_components(x: Floats, of: str) -> Projection:
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
