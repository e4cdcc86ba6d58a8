"""Small drawings for the page: the paths of SVG, made of numbers only."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from whycluster.core.arrays import Floats

WIDTH, HEIGHT = 120, 30  # of a histogram, in its own units; the page stretches it


def steps(counts: Floats, largest: float) -> str:
    """The outline of a histogram as a path, from the lower left corner to the lower right."""
    height = HEIGHT * (1.0 - np.asarray(counts) / largest) if largest > 0 else np.full(len(counts), HEIGHT)
    width = WIDTH / len(counts)
    parts = [f"M0 {HEIGHT}"]
    for i, y in enumerate(height):
        parts.append(f"V{_short(y)}H{_short((i + 1) * width)}")
    return "".join([*parts, f"V{HEIGHT}"])


def both(inside: Floats, outside: Floats) -> dict[str, str]:
    """Two histograms over the same bins, each as parts of its own total."""
    parts = [counts / max(1.0, counts.sum()) for counts in (inside, outside)]
    largest = max(float(part.max(initial=0.0)) for part in parts)
    return {"inside": steps(parts[0], largest), "outside": steps(parts[1], largest)}


def place(value: float, low: float, high: float) -> float:
    """Where a value lies between two others, in percent of the way, kept on it."""
    return round(100 * float(np.clip((value - low) / (high - low), 0, 1)), 2) if high > low else 0.0


def _short(number: float) -> str:
    return f"{number:.1f}".removesuffix(".0")


def largest_size(values: Sequence[float]) -> float:
    """The largest absolute value, 1 where there is none."""
    return max((abs(value) for value in values), default=1.0) or 1.0
