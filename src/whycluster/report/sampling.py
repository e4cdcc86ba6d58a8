"""Which rows a page shows, when there are more than it has room for."""

from __future__ import annotations

import numpy as np

from whycluster.core.arrays import Codes


def choose_rows(cluster: Codes, wanted: Codes, n_rows: int, random_state: int) -> Codes:
    """Positions of at most ``n_rows`` rows, in order; all of them, if that is enough.

    Parameters
    ----------
    cluster : (n,) the cluster of each row
    wanted : positions of rows that have to be there, the most wanted first
    n_rows : how many at most
    random_state : the seed of the choice

    Wanted rows come first, then some of each cluster, so that none is without rows; all others have the same
    chance.
    """
    n = len(cluster)
    if n <= n_rows:
        return np.arange(n)
    order = np.random.default_rng(random_state).permutation(n)
    rank = np.empty(n, dtype=np.intp)  # of each row among those of its cluster, as they are drawn
    by_cluster = order[np.argsort(cluster[order], kind="stable")]
    sizes = np.bincount(cluster)
    rank[by_cluster] = np.arange(n) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    least = max(1, n_rows // (4 * max(1, int((sizes > 0).sum()))))
    # The first of each cluster before anything else, then what is wanted, then a few of each cluster.
    drawn = rank[order]
    parts = [order[drawn < 1], wanted, order[(drawn >= 1) & (drawn < least)], order]
    first = _first_of_each(np.concatenate(parts))
    return np.sort(first[:n_rows])


def _first_of_each(values: Codes) -> Codes:
    """The different values, in the order in which they come."""
    _, places = np.unique(values, return_index=True)
    return np.asarray(values[np.sort(places)])
