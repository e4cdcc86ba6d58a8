"""Tests of plots, all of which need matplotlib."""

import pytest

pytest.importorskip("matplotlib", reason="matplotlib is not installed")
