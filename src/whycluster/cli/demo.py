"""``whycluster demo`` explains a clustering of a small data set that ships with scikit-learn."""

from __future__ import annotations

import numpy as np
from sklearn.cluster import KMeans
from sklearn.datasets import load_wine
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from whycluster.api import explain
from whycluster.cli.output import LEGEND
from whycluster.data import display

_ABOUT_EVIDENCE = """\
evidence: squared distance to the nearest competing centroid minus squared distance to the wine's
own centroid, in standardized units; 0 on the boundary between the two clusters. relevance: what
each feature contributes to the evidence, + for the cluster, - against it. The relevance of all
features of a wine adds up to its evidence."""


def demo() -> str:
    """Return an explanation, as text, of a pipeline that standardizes and clusters the wine data."""
    wine = load_wine()
    model = make_pipeline(StandardScaler(), KMeans(3, n_init=10, random_state=0)).fit(wine.data)
    exp = explain(model, wine.data, feature_names=wine.feature_names)
    by_evidence = np.argsort(-exp.evidence, kind="stable")
    ranks = {"clearest": 0, "median": len(exp) // 2, "most borderline": -1}
    wines = [f"The {kind} wine. {exp.describe(int(by_evidence[rank]))}" for kind, rank in ranks.items()]
    parts = [
        f"{len(exp)} wines, {len(exp.feature_names)} measurements; standardized, k-means with 3 clusters.",
        display.heading("What defines each cluster"),
        str(exp.summary()),
        LEGEND,
        display.heading("Three wines explained"),
        *wines,
        _ABOUT_EVIDENCE,
    ]
    return "\n\n".join(parts)
