"""The artificial spiral of the examples."""

from __future__ import annotations

import numpy as np
import pytest

from examples.spiral import spiral


def test_the_spiral_is_black_and_white_with_gray_edges() -> None:
    image = spiral()
    assert image.shape == (3, 448, 448)
    assert image.dtype == np.float32
    assert (image[0] == image[1]).all()
    assert (image[0] == image[2]).all()
    assert image.min() == 0.0
    assert image.max() == 1.0
    gray = (image[0] > 0) & (image[0] < 1)
    assert 0.01 < gray.mean() < 0.1
    assert (image[0][[0, -1]] == 1).all()  # it does not touch the border
    assert (image[0][:, [0, -1]] == 1).all()


def test_the_spiral_has_the_requested_number_of_turns() -> None:
    for turns in (2, 5):
        left = spiral(400, turns=turns)[0][200, :200] > 0.5  # from the border to the middle
        assert np.diff(left.astype(int)).tolist().count(-1) == turns
    areas = [1 - spiral(200, width=width).mean() for width in (0.2, 0.4, 0.8)]
    assert areas[1] / areas[0] == pytest.approx(2, rel=0.1)
    assert areas[2] / areas[1] == pytest.approx(2, rel=0.15)


def test_the_spiral_has_edges_of_all_directions() -> None:
    image = spiral()[0]
    down, right = np.gradient(image)
    strong = np.hypot(down, right) > 0.2
    counts, _ = np.histogram(np.arctan2(down, right)[strong], bins=24)
    assert counts.min() > 0.4 * counts.mean()
