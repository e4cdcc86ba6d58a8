"""Settings of all tests, and data that many tests share."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

# Before NumPy is imported: small problems take longer on several threads, and much longer next to other work.
for library in ("OMP", "OPENBLAS", "MKL"):
    os.environ.setdefault(f"{library}_NUM_THREADS", "1")

import numpy as np
import pytest
from hypothesis import settings
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.datasets import load_wine
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

# The same examples in every run, so that failures can be reproduced. HYPOTHESIS_PROFILE=search looks for new
# ones.
settings.register_profile("same", deadline=None, derandomize=True)
settings.register_profile("search", deadline=None, max_examples=2000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))


@pytest.fixture
def two_threads() -> Iterator[None]:
    """Process blocks of rows on two threads, as on a machine with two cores."""
    with threadpool_limits(2, user_api="blas"):
        yield


@pytest.fixture(scope="session")
def wine() -> NDArray[np.float64]:
    """Standardized data of 178 wines with 13 features; read-only, since all tests share it."""
    X: NDArray[np.float64] = StandardScaler().fit_transform(load_wine().data)
    X.flags.writeable = False
    return X


@pytest.fixture(scope="session")
def kmeans(wine: NDArray[np.float64]) -> Any:
    return KMeans(5, n_init=3, random_state=0).fit(wine)
