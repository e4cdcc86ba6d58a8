"""Choose the rows that a page shows if there are too many to show all of them."""

from __future__ import annotations

import numpy as np

from whycluster.core.arrays import Codes


def choose_rows(cluster: Codes, wanted: Codes, n_rows: int, random_state: int) -> Codes:
    """Choose at most ``n_rows`` rows and return their positions in ascending order.

    One row of each cluster is chosen first, then the wanted rows, then a few more rows of each cluster. All
    other rows are equally likely to be chosen.

    Parameters
    ----------
    cluster : (n,) the cluster of each row
    wanted : positions of rows to include, in order of decreasing priority
    n_rows : the number of rows to choose
    random_state : random seed
    """
    n = len(cluster)
    if n <= n_rows:
        return np.arange(n)
    order = np.random.default_rng(random_state).permutation(n)
    rank = np.empty(n, dtype=np.intp)  # rank of each row within its cluster, in random order
    by_cluster = order[np.argsort(cluster[order], kind="stable")]
    sizes = np.bincount(cluster)
    rank[by_cluster] = np.arange(n) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    least = max(1, n_rows // (4 * max(1, int((sizes > 0).sum()))))
    drawn = rank[order]
    parts = [order[drawn < 1], wanted, order[(drawn >= 1) & (drawn < least)], order]
    first = _first_of_each(np.concatenate(parts))
    return np.sort(first[:n_rows])


def _first_of_each(values: Codes) -> Codes:
    """Return the distinct values in the order of their first occurrence."""
    _, places = np.unique(values, return_index=True)
    return np.asarray(values[np.sort(places)])
