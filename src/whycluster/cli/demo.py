"""``whycluster demo``: from a table to an explanation, on data that every installation has."""

from __future__ import annotations

import numpy as np
from sklearn.cluster import KMeans
from sklearn.datasets import load_wine
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from whycluster.api import explain
from whycluster.data import display


def demo() -> str:
    """The wine data, standardised and clustered by a pipeline, explained as they were; for the terminal."""
    wine = load_wine()
    model = make_pipeline(StandardScaler(), KMeans(3, n_init=10, random_state=0)).fit(wine.data)
    exp = explain(model, wine.data, feature_names=wine.feature_names)
    by_evidence = np.argsort(-exp.evidence, kind="stable")
    kinds = {"clearest": 0, "median": len(exp) // 2, "most borderline": -1}
    parts = [
        f"{len(exp)} wines, {len(exp.feature_names)} measurements; scaled, then k-means with 3 clusters.",
        display.heading("What makes each cluster"),
        str(exp.summary()),
        "share: part of the cluster's relevance; high, middle, low: among the means of all clusters;\n"
        "mean inside, outside: of the feature, as it was measured.",
        display.heading("Three wines explained"),
    ]
    for kind, rank in kinds.items():
        row = int(by_evidence[rank])
        parts.append(f"The {kind} wine. {exp.describe(row)}")
    parts.append(
        "evidence: squared distance to the nearest competing centroid minus that to the own one, in\n"
        "standard deviations; 0 on the boundary. relevance: what each feature brings to it, + for the\n"
        "cluster, - against it. The relevances of a wine add up to its evidence."
    )
    return "\n\n".join(parts)
