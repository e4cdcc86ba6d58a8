"""``whycluster demo``: from a table to an explanation, on data that every installation has."""

from __future__ import annotations

import numpy as np
from sklearn.cluster import KMeans
from sklearn.datasets import load_wine
from sklearn.preprocessing import StandardScaler

from whycluster import console
from whycluster.explain import explain


def demo() -> str:
    """The wine data, standardised, clustered, explained; as text for the terminal."""
    wine = load_wine()
    X = StandardScaler().fit_transform(wine.data)
    model = KMeans(3, n_init=10, random_state=0).fit(X)
    exp = explain(model, X, feature_names=wine.feature_names)
    by_evidence = np.argsort(-exp.evidence, kind="stable")
    kinds = {"clearest": 0, "median": len(exp) // 2, "most borderline": -1}
    parts = [
        f"{len(exp)} wines, {X.shape[1]} measurements, standardised; k-means with 3 clusters.",
        console.heading("What makes each cluster"),
        str(exp.summary()),
        "share: part of the cluster's relevance; high, middle, low: among the means of all clusters;\n"
        "mean inside, outside: of the feature, in standard deviations from the mean of all wines.",
        console.heading("Three wines explained"),
    ]
    for kind, rank in kinds.items():
        row = int(by_evidence[rank])
        parts.append(f"The {kind} wine. {exp.tell(row)}")
    parts.append(
        "evidence: squared distance to the nearest competing centroid minus that to the own one, 0 on the\n"
        "boundary; relevance: what each feature brings to it, + for the cluster, - against it.\n"
        "The relevances of a wine add up to its evidence."
    )
    return "\n\n".join(parts)
