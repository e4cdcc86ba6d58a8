"""Which loops k-means goes by: compiled ones for registers of so many bits, or those of NumPy."""

from __future__ import annotations

import platform
import sys
from typing import Any

import pytest

from tests.core import driver
from whycluster.core.compiled import loops

ON_ARM = platform.machine() == "aarch64"
COMPILED = sys.platform == "linux" and (ON_ARM or platform.machine() == "x86_64")


def _load() -> tuple[Any, int] | None:
    """Load the loops, even if the tests as a whole go by NumPy."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.delenv("WHYCLUSTER_COMPILED", raising=False)
        return loops.library.__wrapped__()


LOADED = _load()
NATIVE = ["128"] if ON_ARM else [bits for bits in ("256", "512") if LOADED is None or int(bits) <= LOADED[1]]
BITS = NATIVE if ON_ARM else ["128", *NATIVE]  # "128" are those of aarch64, emulated elsewhere
SANITIZED = [f"{bits} sanitized" for bits in NATIVE]


def limited(monkeypatch: pytest.MonkeyPatch, registers: str) -> None:
    """Go by those of `BITS` or `SANITIZED`, or by "NumPy"; skip what this machine cannot have."""
    if registers != "NumPy" and not COMPILED:
        pytest.skip("loops are compiled on Linux on x86-64 and aarch64 only")
    found = None if registers == "NumPy" else _of(*registers.split())
    monkeypatch.setattr(loops, "library", lambda: found)


def _of(registers: str, sanitized: str = "") -> tuple[Any, int]:
    assert LOADED is not None
    bits = int(registers)
    if bits == 128 and not ON_ARM:
        return driver.emulated(), bits
    return driver.sanitized() if sanitized else LOADED[0], bits
