"""scikit-learn's SpectralClustering: the nearest center in an embedding, on which neighbors vote."""

from __future__ import annotations

import warnings
from functools import partial
from typing import Any

import numpy as np
from scipy import linalg
from sklearn.cluster import SpectralClustering
from sklearn.manifold import spectral_embedding
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.neighbors import kneighbors_graph

from whycluster.core.arrays import Codes, Floats
from whycluster.data.arrays import evenly_spaced
from whycluster.models.adapters.density import ordered
from whycluster.models.adapters.incomplete import OnlyLabels
from whycluster.models.adapters.registry import adapt, check_fitted, names_of
from whycluster.models.adapters.sklearn_density import without_rule
from whycluster.models.energies.votes import CENTERS, DIRECTIONS, LINES, SpectralEnergy
from whycluster.models.network import Network, TableNetwork

_RBF, _NEIGHBORS = "rbf", "nearest_neighbors"
_CHECKED = 100  # rows whose affinities are compared with those of the model
_ROTATIONS = 30  # how many rotations are tried
_TIES = 0.05  # the share of neighbors that may differ, because of ties


@adapt.register(SpectralClustering)
def _spectral(model: Any) -> OnlyLabels:
    check_fitted(model)
    if model.affinity not in (_RBF, _NEIGHBORS):
        return without_rule(
            model,
            "A rule is known only for the affinities rbf and nearest_neighbors; this SpectralClustering has "
            f"affinity={model.affinity!r}.",
        )
    rule = partial(_network, model)
    return OnlyLabels(model.labels_, "the labels of SpectralClustering", rule, names=names_of(model))


def _network(model: Any, rows: Floats | None) -> Network | None:
    """Return the network of the embedding, or None if the affinities are not those of these rows."""
    assert rows is not None
    if not _has_affinities(model, rows):
        return None
    z, eigenvalues = embedding(model)
    labels = np.unique(model.labels_)  # cluster_qr and discretize may leave clusters without rows
    codes = np.searchsorted(labels, model.labels_)
    head, z, centers = _HEADS[model.assign_labels](z, model.labels_)
    order, sizes, _ = ordered(codes)
    energy = SpectralEnergy(
        rows[order],
        sizes,
        z[order],
        eigenvalues,
        centers[labels],
        head,
        n_neighbors=max(1, min(model.n_neighbors, len(rows)) - 1),
        gamma=float(model.gamma) if model.affinity == _RBF else None,
    )
    return TableNetwork(energy, labels=labels, feature_names=names_of(model))


def _has_affinities(model: Any, rows: Floats) -> bool:
    """Return whether the affinities of some rows are those that the model was fitted on."""
    some = evenly_spaced(len(rows), _CHECKED)
    known = model.affinity_matrix_[some]
    if model.affinity == _RBF:
        return bool(np.allclose(known, rbf_kernel(rows[some], rows, gamma=model.gamma), 1e-4, 1e-6))
    near = kneighbors_graph(rows, min(model.n_neighbors, len(rows)), include_self=True)[some]
    return bool(near.multiply(known > 0).sum() >= (1.0 - _TIES) * near.sum())


def embedding(model: Any) -> tuple[Floats, Floats]:
    """Return the coordinates of the rows, (n, m), computed as in ``fit``, and their eigenvalues, (m,).

    Every coordinate z satisfies z_i = sum_j P_ij z_j / lambda, where P is the affinity to other rows, divided
    by its sum.
    """
    affinity, seed = model.affinity_matrix_, model.random_state
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # fit has already warned about disconnected graphs
        z = spectral_embedding(
            affinity,
            n_components=model.n_clusters if model.n_components is None else model.n_components,
            eigen_solver=model.eigen_solver,
            random_state=np.random.RandomState(seed if isinstance(seed, int) else 0),
            eigen_tol=model.eigen_tol,
            drop_first=False,
        )
    own = affinity.diagonal()
    degree = np.asarray(affinity.sum(axis=1)).ravel() - own
    weighted = np.asarray(affinity @ z) - own[:, None] * z
    squares = np.square(z).T @ degree
    eigenvalues = np.divide(
        np.einsum("nm,nm->m", z, weighted), squares, out=np.ones_like(squares), where=squares > 0.0
    )
    return np.sqrt(degree.sum()) * z, eigenvalues  # the mean square of a coordinate is 1


def _centers(z: Floats, labels: Codes) -> tuple[str, Floats, Floats]:
    """Return the head of k-means: the mean of each cluster, its center once k-means has converged."""
    sums = np.zeros((labels.max() + 1, z.shape[1]))
    np.add.at(sums, labels, z)
    return CENTERS, z, sums / np.maximum(np.bincount(labels), 1)[:, None]


def _lines(z: Floats, _: Codes) -> tuple[str, Floats, Floats]:
    """Return the head of ``cluster_qr``, computed as scikit-learn does."""
    _, _, pivots = linalg.qr(z.T, pivoting=True)
    left, _, right = linalg.svd(z[pivots[: z.shape[1]]].T)
    return LINES, z, np.asarray((left @ right).T)


def _directions(z: Floats, labels: Codes) -> tuple[str, Floats, Floats]:
    """Return the head of ``discretize``: a rotation from which the labels follow.

    When ``discretize`` has converged, it is the rotation nearest to the sums of the members. If it stops
    before, its last rotation is a little different. It is found by counting the rows that differ once more.
    """
    z = z / np.sqrt(np.square(z).mean(axis=0))
    unit = z / np.linalg.norm(z, axis=1, keepdims=True)
    sums = np.zeros((z.shape[1], z.shape[1]))
    np.add.at(sums, labels, unit)
    found, fewest = sums, len(z) + 1
    for _ in range(_ROTATIONS):
        left, _, right = linalg.svd(sums)
        rotation = np.asarray(left @ right)
        assigned = (unit @ rotation.T).argmax(axis=1)
        wrong = np.flatnonzero(assigned != labels)
        if wrong.size < fewest:
            found, fewest = rotation, wrong.size
        if not wrong.size:
            break
        np.add.at(sums, labels[wrong], unit[wrong])
        np.subtract.at(sums, assigned[wrong], unit[wrong])
    return DIRECTIONS, z, found


_HEADS = {"kmeans": _centers, "cluster_qr": _lines, "discretize": _directions}
