"""Clusterings by density: DBSCAN and OPTICS (core samples), HDBSCAN (mutual reachability)."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whycluster.core.arrays import Codes, Floats
from whycluster.data.labels import NOISE, as_labels
from whycluster.models.energies.neighbors import NeighborEnergy
from whycluster.models.energies.search import METRICS, Points
from whycluster.models.network import Network, TableNetwork

_NAMES = {"cityblock": "manhattan", "l1": "manhattan", "l2": "euclidean"}
_ROUNDING = 1e-12  # relative tolerance of distances that equal eps
_MIXED = -9  # a node of the tree whose rows have several labels


def known_metric(metric: Any, p: float | None = None) -> str | None:
    """Return the name of a metric for which there are energies, or None."""
    if metric == "minkowski":
        return "euclidean" if p is None or p == 2 else "manhattan" if p == 1 else None
    name = _NAMES.get(metric, metric) if isinstance(metric, str) else None
    return name if name in METRICS else None


def ordered(labels: Codes) -> tuple[Codes, Codes, Codes]:
    """Return the positions of all members, by cluster, the sizes, (K,), and the positions of noise."""
    order = np.argsort(labels, kind="stable")
    n_noise = int((labels < 0).sum())
    return order[n_noise:], np.bincount(labels[labels >= 0]), order[:n_noise]


def with_noise(n_clusters: int) -> NDArray[Any]:
    """Return the labels 0..K-1, and noise."""
    return as_labels([*range(n_clusters), NOISE])


def spread_shares(rows: Floats, metric: str) -> Floats:
    """Return the share of each feature in the spread of the rows, (d,).

    Constants of the energies, such as eps, are divided among the features by these shares. A column that
    hardly varies cannot move a row out of reach, so it gets hardly any part of eps.
    """
    spread = METRICS[metric].terms(rows, rows.mean(axis=0)).mean(axis=0)
    total = spread.sum()
    return np.asarray(spread / total) if total > 0.0 else np.full(len(spread), 1.0 / len(spread))


def core_network(
    cores: Floats,
    labels: Codes,
    eps: float,
    metric: str,
    names: Sequence[Hashable] | None,
    rows: Floats | None = None,
) -> Network:
    """Return the network of DBSCAN: the nearest core sample of each cluster, and noise beyond eps.

    Parameters
    ----------
    cores, labels : the core samples, (P, d), and their clusters, (P,)
    rows : all rows, (n, d), whose spread determines how eps is split; if unknown, that of the core samples
    """
    order, sizes, _ = ordered(labels)
    shares = spread_shares(np.asarray(cores if rows is None else rows), metric)
    floor = float(METRICS[metric].energy(np.array(eps * (1.0 + _ROUNDING))))
    energy = NeighborEnergy(cores[order], sizes, metric, floor=floor, shares=shares)
    return TableNetwork(energy, labels=with_noise(len(sizes)), feature_names=names)


@dataclass(frozen=True)
class LinkageTree:
    """The single-linkage tree of n rows: the nodes that are merged and the heights, (n - 1,) each."""

    left: Codes
    right: Codes
    height: Floats

    def births(self, labels: Codes) -> Floats | None:
        """Return the height at which each cluster merges with other rows, (K,).

        Return None if the rows of a cluster are not those below one node of the tree.
        """
        n, n_clusters = len(labels), int(labels.max()) + 1
        label, count = [*labels.tolist(), *[_MIXED] * (n - 1)], [1] * n + [0] * (n - 1)
        size = np.bincount(labels[labels >= 0])
        births = np.full(n_clusters, np.nan)
        merges = zip(self.left.tolist(), self.right.tolist(), self.height.tolist(), strict=True)
        for node, (a, b, height) in enumerate(merges, start=n):
            count[node] = count[a] + count[b]
            if label[a] == label[b]:
                label[node] = label[a]
                continue
            for child in (a, b):
                k = label[child]
                if k >= 0 and count[child] == size[k]:
                    births[k] = height
        return None if np.isnan(births).any() else births


def reachability_network(
    rows: Floats,
    labels: Codes,
    births: Floats,
    n_neighbors: int,
    metric: str,
    names: Sequence[Hashable] | None,
) -> Network:
    """Return the network of HDBSCAN: the smallest mutual reachability, compared with the cluster's birth.

    Parameters
    ----------
    rows, labels : the rows, (n, d), and their labels, (n,)
    births : (K,) the height at which each cluster merges with others
    n_neighbors : the rank of the neighbor at the core distance, not counting the row itself
    """
    members, sizes, noise = ordered(labels)
    order = np.concatenate([members, noise])
    distance, _ = Points(rows, METRICS[metric]).nearest(rows, n_neighbors + 1)
    energy = NeighborEnergy(
        rows[members],
        sizes,
        metric,
        n_neighbors=n_neighbors,
        bias=-METRICS[metric].energy(births),
        floor=0.0,
        cores=distance[members, -1],
        others=rows[order[len(members) :]],
        shares=spread_shares(rows, metric),
    )
    return TableNetwork(energy, labels=with_noise(len(sizes)), feature_names=names)
