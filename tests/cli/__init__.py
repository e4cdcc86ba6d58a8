"""Tests of the command, all of which need click and polars."""

import pytest

for library in ("click", "polars"):
    pytest.importorskip(library, reason=f"{library} is not installed")
