"""Tests of deep clusterings, all of which need torch."""

import pytest

pytest.importorskip("torch", reason="torch is not installed")

from examples import minilm  # noqa: F401  # declares operators for torchvision, which ClustPy imports
