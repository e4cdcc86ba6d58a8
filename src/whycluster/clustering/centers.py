"""Centers inside a cluster, from which its support vectors start."""

from __future__ import annotations

from typing import Any

import numpy as np

from whycluster.core.arrays import Floats


def centers_inside(members: Floats, n_centers: int, max_iter: int, random_state: Any) -> Floats:
    """Return initial support vectors for a cluster: k-means centers, or all members if there are few.

    K-means never has to find more centers than there are distinct rows. Otherwise, it would issue a warning,
    and a warning cannot be suppressed in one thread only.
    """
    if n_centers >= len(members):
        return members
    if n_centers == 1:
        return np.asarray(members.mean(axis=0, keepdims=True))
    from sklearn.cluster import KMeans

    distinct = np.unique(members, axis=0)
    if len(distinct) <= n_centers:
        return distinct
    model = KMeans(n_centers, n_init=1, max_iter=max_iter, random_state=random_state)
    return np.asarray(model.fit(members).cluster_centers_)
