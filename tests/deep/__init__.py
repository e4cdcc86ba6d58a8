"""Tests of deep clusterings, all of which need torch."""

from importlib.util import find_spec
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch", reason="torch is not installed")

# ClustPy imports torchvision. The torchvision of the package index is built for GPUs: it does not load next
# to a torch for CPUs, whose operators it misses, unless these are declared. No test calls them.
if find_spec("torchvision") is not None and torch.version.cuda is None:
    OPERATORS = torch.library.Library("torchvision", "DEF")  # they exist as long as this object does
    for name in ("nms", "qnms"):
        OPERATORS.define(f"{name}(Tensor boxes) -> Tensor")
