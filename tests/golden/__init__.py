"""Texts as they should be; ``make golden`` writes them again."""

from __future__ import annotations

from pathlib import Path

HERE = Path(__file__).parent


def read_golden(name: str) -> str:
    """One of them."""
    return (HERE / f"{name}.txt").read_text()
