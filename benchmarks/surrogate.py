"""Measure how well a surrogate with default settings matches labels: ``python -m benchmarks.surrogate``.

The cross-validated agreement is measured twice. `fidelity_` uses the same folds that chose the size of the
surrogate. The outer cross-validation chooses everything inside its five folds, and also scores a support
vector machine on them.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import DBSCAN, HDBSCAN, AgglomerativeClustering, KMeans, SpectralClustering
from sklearn.datasets import load_breast_cancer, load_digits, load_wine, make_blobs, make_circles, make_moons
from sklearn.model_selection import BaseCrossValidator, StratifiedKFold
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

import whycluster as wc
from benchmarks.measure import write

Array = NDArray[Any]
FOLDS = {
    "shuffled": StratifiedKFold(5, shuffle=True, random_state=0),
    "in order": StratifiedKFold(5),
}


def shapes() -> Iterator[tuple[str, Array, Array]]:
    """Yield labelings of two moons and two circles."""
    moons, _ = make_moons(2000, noise=0.05, random_state=0)
    circles, _ = make_circles(2000, noise=0.05, factor=0.5, random_state=0)
    for name, X in (("moons", moons), ("circles", circles)):
        yield f"{name}, DBSCAN(0.1)", X, DBSCAN(eps=0.1).fit_predict(X)
        yield f"{name}, DBSCAN(0.15)", X, DBSCAN(eps=0.15).fit_predict(X)
        spectral = SpectralClustering(2, affinity="nearest_neighbors", random_state=0)
        yield f"{name}, spectral", X, spectral.fit_predict(X)
        yield f"{name}, single linkage", X, AgglomerativeClustering(2, linkage="single").fit_predict(X)


def tables() -> Iterator[tuple[str, Array, Array]]:
    """Yield labelings of standardized data from scikit-learn."""
    for name, load in (("wine", load_wine), ("cancer", load_breast_cancer), ("digits", load_digits)):
        X = StandardScaler().fit_transform(load().data)
        yield f"{name}, Ward", X, AgglomerativeClustering(6).fit_predict(X)
        yield f"{name}, spectral", X, SpectralClustering(6, random_state=0).fit_predict(X)
        neighbors = SpectralClustering(6, affinity="nearest_neighbors", random_state=0)
        yield f"{name}, spectral, neighbors", X, neighbors.fit_predict(X)
        yield f"{name}, HDBSCAN", X, HDBSCAN(min_cluster_size=15, copy=True).fit_predict(X)


def cross_validated(model: Any, X: Array, y: Array, folds: BaseCrossValidator) -> float:
    """Return the share of held-out labels that a model predicts; a single class needs no model."""
    hits = 0
    for train, test in folds.split(X, y):
        classes = np.unique(y[train])
        known = model.fit(X[train], y[train]).predict(X[test]) if len(classes) > 1 else classes
        hits += int((known == y[test]).sum())
    return hits / len(y)


def fidelity(cases: Iterator[tuple[str, Array, Array]], *, with_svc: bool) -> list[str]:
    """Return a table with one row per labeling."""
    lines = [
        "| labels | clusters | noise | in sample | cross-validated | outer folds, shuffled | SVC "
        "| outer folds, in order | SVC | support vectors | seconds |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for name, X, y in cases:
        clusters = np.unique(y[y >= 0])
        noise = f"{(y < 0).mean():.0%}" if (y < 0).any() else ""
        if len(np.unique(y)) < 2:
            lines.append(f"| {name} | {len(clusters)} | {noise} | nothing to explain | | | | | | | |")
            continue
        start = time.perf_counter()
        model = wc.Surrogate().fit(X, y)
        seconds = time.perf_counter() - start
        cells = [f"{model.fidelity_.in_sample:.3f}", f"{model.fidelity_.cross_validated:.3f}"]
        pairs = [(kind, folds) for folds in FOLDS.values() for kind in (wc.Surrogate(), SVC(C=10))]
        cells += [f"{cross_validated(kind, X, y, folds):.3f}" if with_svc else "" for kind, folds in pairs]
        size = f"{len(model.support_vectors_)}" + f" ({model.noise_})" * bool(noise)
        lines.append(f"| {name} | {len(clusters)} | {noise} | {' | '.join(cells)} | {size} | {seconds:.1f} |")
    return lines


def large() -> Iterator[tuple[str, Array, Array]]:
    """Yield labelings of 20,000 rows: easy, patched from many pieces, nonlinear, and with noise."""
    rng = np.random.default_rng(0)
    X, _ = make_blobs(20_000, 20, centers=40, cluster_std=3.0, random_state=0)
    yield "k-means", X, KMeans(8, n_init=1, random_state=0).fit_predict(X)
    yield "40 pieces, 5 each", X, KMeans(40, n_init=1, random_state=0).fit_predict(X) % 8
    yield "200 pieces, 25 each", X, KMeans(200, n_init=1, random_state=0).fit_predict(X) % 8
    Z = rng.normal(size=(20_000, 20))
    hidden = np.tanh(Z @ rng.normal(size=(20, 30)) / 3) @ rng.normal(size=(30, 8))
    yield "random network", Z, hidden.argmax(axis=1)
    labels = KMeans(8, n_init=1, random_state=0).fit(X)
    far = labels.transform(X).min(axis=1)
    yield "k-means, farthest 15 % noise", X, np.where(far > np.quantile(far, 0.85), -1, labels.labels_)


def main() -> None:
    """Measure everything and write results/surrogate.md."""
    warnings.simplefilter("ignore", UserWarning)  # clusters with fewer rows than folds
    parts = {
        "Two moons and two circles, n = 2000": fidelity(shapes(), with_svc=True),
        "Standardized wine, cancer and digits": fidelity(tables(), with_svc=True),
        "20,000 rows with 20 features, K = 8, including cross-validation": fidelity(large(), with_svc=False),
    }
    lines = [
        "# Surrogate",
        "",
        "The tables show the share of labels that the surrogate predicts correctly. The `cross-validated`",
        "column is the value in `fidelity_`, which comes from the same folds that chose the size of the",
        "surrogate. The `outer folds` columns come from an outer cross-validation that makes all choices",
        "inside each fold. The `SVC` columns show `SVC(C=10)` on the same outer folds. In the",
        "`support vectors` column, `floor` and `cluster` name the noise model: a constant energy or an",
        "additional cluster.",
    ]
    for title, part in parts.items():
        lines += ["", f"## {title}", "", *part]
    write("surrogate", "python -m benchmarks.surrogate", lines)


if __name__ == "__main__":
    main()
