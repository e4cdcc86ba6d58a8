"""An artificial image for the figures of Section VI-B of the paper: a black spiral on white."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_SUBPIXELS = 4  # points along each side of a pixel: 17 shades of gray at an edge
_MARGIN = 0.05  # the part of the image that stays white around the spiral


def spiral(size: int = 448, turns: float = 4.0, width: float = 0.5) -> NDArray[np.float32]:
    """Draw a black spiral on white, with edges in all orientations.

    The arm of the Archimedean spiral begins in the middle and ends, cut off, near the border.

    Parameters
    ----------
    size : height and width of the image in pixels
    turns : number of turns of the arm; positive
    width : width of the arm as a fraction of the distance between two turns; between 0 and 1

    Returns
    -------
    (3, size, size) array of float32
        from 0, black, to 1, white; pixels at an edge are gray, in proportion to their white part
    """
    n = size * _SUBPIXELS
    position = ((np.arange(n) + 0.5) / n - 0.5) * 2 / (1.0 - _MARGIN)
    x, y = position[None, :], -position[:, None]
    angle = np.arctan2(y, x) / (2 * np.pi) % 1.0  # in turns
    # The number of turns the arm would have made to pass here; its center line passes at the nearest number
    # with the same angle.
    passed = np.hypot(x, y) * (turns + width / 2)
    turn = np.round(passed - angle) + angle
    black = (np.abs(passed - turn) < width / 2) & (turn >= 0) & (turn <= turns)
    white = 1.0 - black.reshape(size, _SUBPIXELS, size, _SUBPIXELS).mean(axis=(1, 3))
    return np.repeat(white[None].astype(np.float32), 3, axis=0)
