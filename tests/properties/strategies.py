"""Random clusterings for hypothesis."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray


@dataclass(frozen=True)
class Problem:
    """Rows and centroids on a grid of eighths: exact ties and duplicates come up, near-ties do not."""

    X: NDArray[np.float64]
    centroids: NDArray[np.float64]

    @property
    def scale(self) -> float:
        """The size of the squared distances, for tolerances."""
        largest = float(np.abs(self.X).max() + np.abs(self.centroids).max())
        n_features: int = self.X.shape[1]
        return largest * largest * n_features + 1e-300


def grid(n_rows: int, n_columns: int) -> st.SearchStrategy[NDArray[np.float64]]:
    cells = arrays(np.int64, (n_rows, n_columns), elements=st.integers(-800, 800))
    return cells.map(lambda values: values / 8.0)


@st.composite
def problems(draw: st.DrawFn, min_clusters: int = 2, max_clusters: int = 7, max_features: int = 6) -> Problem:
    d = draw(st.integers(1, max_features))
    X = draw(grid(draw(st.integers(1, 12)), d))
    centroids = draw(grid(draw(st.integers(min_clusters, max_clusters)), d))
    return Problem(X, centroids)


@st.composite
def rough_problems(draw: st.DrawFn) -> Problem:
    """Real-valued rows around real-valued centroids, each feature with a scale and an offset of its own."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    d, n_clusters = draw(st.integers(1, 60)), draw(st.integers(2, 60))
    scale = 10.0 ** rng.uniform(-3, 3, size=d)
    offset = scale * rng.uniform(-1, 1, size=d) * 10.0 ** draw(st.integers(0, 3))
    centroids = rng.normal(size=(n_clusters, d)) * scale + offset
    X = rng.normal(size=(draw(st.integers(1, 30)), d)) * scale + offset
    return Problem(X, centroids)
