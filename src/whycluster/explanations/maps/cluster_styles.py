"""Colors and shapes of clusters in plots and reports; up to seven clusters differ in both.

The colors are those of Okabe and Ito, without yellow, which is hard to see on white. There is one more shape
than colors, so up to 56 clusters differ in color or shape. Noise is shown as a gray cross, the last color and
the last shape.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class Color(NamedTuple):
    """A color, in a version for light and one for dark backgrounds."""

    light: str
    dark: str


class Shape(NamedTuple):
    """A shape as a matplotlib marker and as an SVG path with coordinates from -10 to 10."""

    marker: str
    path: str


class ClusterStyle(NamedTuple):
    """Positions in `COLORS` and `SHAPES`."""

    color: int
    shape: int


COLORS = (
    Color("#0072b2", "#4aa3df"),
    Color("#e69f00", "#e69f00"),
    Color("#009e73", "#1fc296"),
    Color("#cc79a7", "#e29bc4"),
    Color("#d55e00", "#f0803c"),
    Color("#56b4e9", "#8fd0f7"),
    Color("#000000", "#e6e8eb"),
    Color("#767676", "#a3abb5"),
)
SHAPES = (
    Shape("o", "M-8 0a8 8 0 1 0 16 0a8 8 0 1 0-16 0z"),
    Shape("s", "M-7-7h14v14h-14z"),
    Shape("^", "M0-9 8.5 7h-17z"),
    Shape("D", "M0-9.5 9.5 0 0 9.5-9.5 0z"),
    Shape("v", "M0 9 8.5-7h-17z"),
    Shape("P", "M-3-9h6v6h6v6h-6v6h-6v-6h-6v-6h6z"),
    Shape("X", "M4.2-8.5 8.5-4.2 4.2 0 8.5 4.2 4.2 8.5 0 4.2-4.2 8.5-8.5 4.2-4.2 0-8.5-4.2-4.2-8.5 0-4.2z"),
    Shape("<", "M-9 0 7-8.5v17z"),
    Shape("x", "M6.8-8.8 8.8-6.8 2 0 8.8 6.8 6.8 8.8 0 2-6.8 8.8-8.8 6.8-2 0-8.8-6.8-6.8-8.8 0-2z"),
)


def style_of(code: int, is_noise: bool) -> ClusterStyle:
    """Return the color and shape of a cluster."""
    n_colors, n_shapes = len(COLORS) - 1, len(SHAPES) - 1
    return ClusterStyle(n_colors, n_shapes) if is_noise else ClusterStyle(code % n_colors, code % n_shapes)


def styles_of(is_noise: Iterable[bool]) -> list[ClusterStyle]:
    """Return the styles of all clusters, in the order of their codes."""
    return [style_of(code, noise) for code, noise in enumerate(is_noise)]
