"""Which loops k-means goes by: compiled ones for registers of so many bits, or those of NumPy."""

from __future__ import annotations

import platform
import sys
from typing import Any

import pytest

from whycluster.core.compiled import loops


def _load() -> tuple[Any, int] | None:
    """Load the loops, even if the tests as a whole go by NumPy."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.delenv("WHYCLUSTER_COMPILED", raising=False)
        return loops.library.__wrapped__()


LOADED = _load()
COMPILED = sys.platform == "linux" and platform.machine() == "x86_64"


def limited(monkeypatch: pytest.MonkeyPatch, registers: str) -> None:
    """Go by those for "256" or "512" bits, or by "NumPy"; skip what this machine cannot have."""
    bits = 0 if registers == "NumPy" else int(registers)
    if bits and not COMPILED:
        pytest.skip("loops are compiled on Linux on x86-64 only")
    if bits:
        assert LOADED is not None
        if bits > LOADED[1]:
            pytest.skip(f"this processor has no registers of {bits} bits")
    found = None if LOADED is None or not bits else (LOADED[0], bits)
    monkeypatch.setattr(loops, "library", lambda: found)
