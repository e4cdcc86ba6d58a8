"""Findings of a few explanations: a sentence for each cluster, and the warnings."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.cluster import KMeans
from sklearn.datasets import load_wine
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import whycluster as wc
from tests.optional import optional
from whycluster.data import display
from whycluster.explanations import findings as found
from whycluster.explanations.findings import sentences

if TYPE_CHECKING:
    import pandas as pd
else:
    pd = optional("pandas")


def findings() -> str:
    wine = load_wine()
    kmeans = KMeans(3, n_init=10, random_state=0)
    scaled = make_pipeline(StandardScaler(), kmeans).fit(wine.data)
    plain = KMeans(3, n_init=10, random_state=0).fit(wine.data)
    parts = [
        describe("Wine", wc.explain(scaled, wine.data, feature_names=wine.feature_names)),
        describe("Wine, not scaled", wc.explain(plain, wine.data, feature_names=wine.feature_names)),
    ]
    frame = customers()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", wc.ColumnWarning)  # these columns are listed below
        pipeline = wc.tabular.pipeline(frame, n_clusters=3, category_weight=1.5)
    parts.append(describe("Customers", wc.explain(pipeline, frame), pipeline.left_out_))
    rows, labels = stars()
    parts.append(describe("Noise", wc.explain(labels, rows, feature_names=["mass", "light", "age"])))
    return "\n\n".join(parts)


def describe(title: str, exp: wc.Explanation, left_out: Mapping[Any, str] | None = None) -> str:
    pairs = zip(exp.summary().clusters.tolist(), sentences(exp), strict=True)
    lines = [f"{label}: {sentence}" for label, sentence in pairs]
    lines += [f"[{warning.kind}] {warning.text}" for warning in found.warnings(exp, left_out)]
    return display.heading(title) + "\n" + "\n".join(lines)


def customers() -> Any:
    """Three kinds of them: young in Rome, old in Oslo, of no known age in Lima."""
    rng = np.random.default_rng(0)
    kind = np.arange(150) % 3
    age = np.array([25.0, 65.0, 45.0])[kind] + rng.normal(0, 4, 150)
    age[(kind == 2) & (rng.random(150) < 0.9)] = np.nan
    first = pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 400, 150) + 300 * kind, "D")
    return pd.DataFrame(
        {
            "customer_id": np.arange(150),
            "age": age,
            "city": np.array(["Rome", "Oslo", "Lima"])[kind],
            "paid": rng.choice(["card", "cash"], 150),
            "first seen": first,
        }
    )


def stars() -> tuple[Any, Any]:
    """Two clusters, and what lies far from both."""
    rng = np.random.default_rng(0)
    near = rng.normal(0, 0.2, (80, 3)) + np.array([[0, 0, 0], [6, 0, 0]])[np.arange(80) % 2]
    far = rng.normal(0, 0.2, (20, 3)) + np.array([[0, 9, 0], [6, -9, 0]])[np.arange(20) % 2]
    return np.concatenate([near, far]), np.concatenate([np.arange(80) % 2, np.full(20, -1)])
