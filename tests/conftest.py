"""Settings of all tests, and data that many share: real tables that ship with scikit-learn."""

from __future__ import annotations

import os
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.datasets import load_wine
from sklearn.preprocessing import StandardScaler

# The same examples every time, so that a red run is red for a reason;
# HYPOTHESIS_PROFILE=search looks for new ones.
settings.register_profile("same", deadline=None, derandomize=True)
settings.register_profile("search", deadline=None, max_examples=2000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))

# Small networks take longer on several threads than on one, and much longer beside other work.
if find_spec("torch") is not None:
    import torch

    torch.set_num_threads(1)

# ClustPy imports torchvision, and that of the package index is built for GPUs: beside a torch for CPUs its
# operators are not there, and it does not load. It does if they are declared. Nothing here calls them.
# The tests of adapters and the doctests import ClustPy when they are collected, so this comes before them.
if find_spec("torchvision") is not None and torch.version.cuda is None:
    library: Any = torch.library  # without types
    OPERATORS = library.Library("torchvision", "DEF")  # as long as it is there, so are they
    for name in ("nms", "qnms"):
        OPERATORS.define(f"{name}(Tensor boxes) -> Tensor")


@pytest.fixture(scope="session")
def wine() -> NDArray[np.float64]:
    """178 wines, 13 features, standardised; read-only, as no test may change it."""
    X: NDArray[np.float64] = StandardScaler().fit_transform(load_wine().data)
    X.flags.writeable = False
    return X


@pytest.fixture(scope="session")
def kmeans(wine: NDArray[np.float64]) -> Any:
    return KMeans(5, n_init=3, random_state=0).fit(wine)
