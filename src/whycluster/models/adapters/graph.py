"""Communities of a graph, such as those of Leiden and Louvain: a row is in the one with the best vote."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from whycluster.core.arrays import Codes, Floats
from whycluster.core.errors import InvalidInputError
from whycluster.data.arrays import is_real, is_sparse
from whycluster.data.labels import read_labels
from whycluster.data.validation import check_choice
from whycluster.models.adapters.density import ordered
from whycluster.models.adapters.incomplete import OnlyLabels
from whycluster.models.energies.votes import CommunityEnergy
from whycluster.models.network import Network, TableNetwork

MODULARITY, CPM = QUALITIES = ("modularity", "cpm")
_ROUNDING = 1e-12  # of scores, which are at most about 1
_SYMMETRIC = 1e-6  # the difference of two directions, relative to the largest weight; graphs may be float32


@dataclass(frozen=True, eq=False)
class Graph:
    """A graph of the rows, and the quality that its communities were optimized for.

    Parameters
    ----------
    weights : (n, n) the weights of the edges, symmetric and not negative: a SciPy sparse matrix or an array,
        such as ``adata.obsp["connectivities"]``. Weights of rows with themselves are ignored.
    resolution : the resolution that the communities were found with. By default, 1 if no other value gives
        more rows their label, otherwise the middle of the range of values that does.
    quality : "modularity" (with a resolution, also called Reichardt-Bornholdt) or "cpm", the constant Potts
        model. By default, the one that gives more rows their label.
    """

    weights: Any
    resolution: float | None = None
    quality: str | None = None


class _Community(NamedTuple):
    """A quality with a resolution.

    Attributes
    ----------
    votes : (n, K) the weight of the edges of each row to each community
    penalty : (n, K) the penalty of each vote at a resolution of 1
    of_new : (K,) the same penalty for a new row
    """

    votes: Floats
    penalty: Floats
    of_new: Floats

    def scores(self, resolution: float) -> Floats:
        """Return the votes minus their penalties."""
        return self.votes - resolution * self.penalty

    def best_resolution(self, codes: Codes) -> float:
        """Return the resolution that gives the most rows their label: 1, or the middle of the best range.

        An empty community, with neither votes nor a penalty, competes as well. Without it, a large resolution
        could reproduce arbitrary labels: only the penalties would matter, and that of a row's own community
        is smaller, because it does not count the row itself.
        """
        rows, empty = np.arange(len(codes)), np.zeros((len(codes), 1))
        gain = self.votes[rows, codes][:, None] - np.hstack([self.votes, empty])
        cost = self.penalty[rows, codes][:, None] - np.hstack([self.penalty, empty])
        bound = np.divide(gain, cost, out=np.zeros_like(gain), where=cost != 0.0)
        low = np.maximum(np.where(cost < 0.0, bound, 0.0).max(axis=1), 0.0)
        high = np.where(cost > 0.0, bound, np.inf).min(axis=1)
        possible = (low <= high) & ~((cost == 0.0) & (gain < 0.0)).any(axis=1)
        return _most_covered(low[possible], high[possible])


def labels_on_graph(labels: Any, graph: Any, where: str) -> OnlyLabels:
    """Return labels whose rule is that of communities of a graph."""
    found = graph if isinstance(graph, Graph) else Graph(graph)
    if found.quality is not None:
        check_choice(found.quality, QUALITIES, where, "quality")
    if found.resolution is not None and not (is_real(found.resolution) and found.resolution >= 0.0):
        raise InvalidInputError(
            f"{where}: resolution must be a number of at least 0, or None; got {found.resolution!r}."
        )
    codes, names = read_labels(labels, len(labels), where)
    weights = read_weights(found.weights, len(codes), where)
    rule = partial(_network, weights, codes, names, found)
    return OnlyLabels(
        names[codes],
        "communities of a graph",
        rule,
        takes_any_rows=True,
        advice="Is this the graph that was clustered, with the rows in the same order?",
    )


def read_weights(graph: Any, n_rows: int, where: str) -> Any:
    """Return valid weights of a graph as a CSR array without its diagonal."""
    from scipy import sparse

    given = graph if is_sparse(graph) else np.asarray(graph)
    if given.shape != (n_rows, n_rows):
        raise InvalidInputError(
            f"{where}: graph must have a row and a column for each of the {n_rows} labels; got shape "
            f"{given.shape}. Pass the graph that was clustered, with the rows in the same order."
        )
    if given.dtype.kind not in "biuf":
        raise InvalidInputError(f"{where}: graph must hold numbers; got {given.dtype}.")
    weights = sparse.csr_array(given, dtype=np.float64)
    weights.sum_duplicates()
    if not np.isfinite(weights.data).all() or (weights.data < 0.0).any():
        worst = weights.data[~np.isfinite(weights.data) | (weights.data < 0.0)][0]
        raise InvalidInputError(
            f"{where}: graph must hold finite weights of at least 0; got {worst:g}. Pass affinities, not "
            "distances or correlations."
        )
    weights.setdiag(0.0)
    weights.eliminate_zeros()
    if weights.nnz == 0:
        raise InvalidInputError(f"{where}: graph must have edges; got none between different rows.")
    if abs(weights - weights.T).max() > _SYMMETRIC * weights.max():
        raise InvalidInputError(
            f"{where}: graph must be undirected, that is, symmetric; got a directed one. If the directions "
            "were ignored when it was clustered, pass graph + graph.T."
        )
    return weights


def _network(
    weights: Any, codes: Codes, names: NDArray[Any], graph: Graph, rows: Floats | None
) -> Network | None:
    """Return the network of the quality that gives the most rows their label; modularity wins ties."""
    assert rows is not None
    best, most = None, -1.0
    for quality in QUALITIES if graph.quality is None else (graph.quality,):
        community = _communities(weights, codes, quality)
        resolution = community.best_resolution(codes) if graph.resolution is None else graph.resolution
        scores = community.scores(resolution)
        top = scores.max(axis=1)
        share = float(((scores[np.arange(len(codes)), codes] == top) & (top >= -_ROUNDING)).mean())
        if share > most:
            best, most = (scores, resolution * community.of_new), share
    assert best is not None
    scores, penalty = best
    order, sizes, _ = ordered(codes)
    degree = np.diff(weights.indptr)
    energy = CommunityEnergy(
        rows[order],
        sizes,
        scores[order],
        penalty,
        n_neighbors=max(1, int(np.median(degree[degree > 0]))),
        fades=bool((weights.data != weights.data[0]).any()),
    )
    return TableNetwork(energy, labels=names)


def _communities(weights: Any, codes: Codes, quality: str) -> _Community:
    """Return the votes and penalties of a quality; rows without edges have neither."""
    n, n_clusters = len(codes), int(codes.max()) + 1
    member = np.zeros((n, n_clusters))
    member[np.arange(n), codes] = 1.0
    degree = np.asarray(weights.sum(axis=1)).ravel()
    if quality == MODULARITY:
        scale, size = np.where(degree > 0.0, degree, np.inf)[:, None], degree / degree.sum()
    else:
        scale = np.where(degree > 0.0, degree.mean(), np.inf)[:, None]
        size = np.full(n, 1.0 / degree.mean())
    total = size @ member
    penalty = np.where(np.isfinite(scale), total - size[:, None] * member, 0.0)
    return _Community(np.asarray(weights @ member) / scale, penalty, total)


def _most_covered(low: Floats, high: Floats) -> float:
    """Return 1 if no number is in more intervals, otherwise the middle of the range that is in the most."""
    if not len(low):
        return 1.0
    starts, stops = np.sort(low), np.sort(high)
    edges = np.unique(np.concatenate([[0.0, 1.0], starts, stops[np.isfinite(stops)]]))
    points = np.append((edges[:-1] + edges[1:]) / 2.0, edges[-1] + 1.0)
    count = np.searchsorted(starts, points, "right") - np.searchsorted(stops, points, "left")
    if int(((low <= 1.0) & (high >= 1.0)).sum()) >= count.max():
        return 1.0
    best = np.flatnonzero(count == count.max())
    run = best[: np.argmax(np.append(np.diff(best) > 1, True)) + 1]  # the first range
    return float((points[run[0]] + points[run[-1]]) / 2.0)
