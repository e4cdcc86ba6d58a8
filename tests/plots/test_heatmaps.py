"""Grids of heat maps."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray
from PIL import Image

import whycluster as wc

pytest.importorskip("torch")
to_rgb = pytest.importorskip("matplotlib.colors").to_rgb

from whycluster.plots.heatmaps import _sum_blocks, draw_grid  # needs torch


def maps(n: int, height: int = 12, width: int = 10) -> NDArray[np.float64]:
    return np.random.default_rng(n).normal(size=(n, height, width))


def test_the_grid_shows_the_image_and_then_the_clusters() -> None:
    rows: list[Any] = [maps(3), list(100 * maps(2))]
    images: list[Any] = [
        np.random.default_rng(0).random((3, 12, 12), dtype=np.float32),
        np.zeros((6, 6, 3), np.uint8),
    ]
    figure = draw_grid(rows, images=images, titles=["a", "b", "c"], names=["first", "second"])
    axes = np.array(figure.axes).reshape(2, 4)
    np.testing.assert_array_equal(axes[0, 0].images[0].get_array(), images[0].transpose(1, 2, 0))
    for i, row in enumerate(rows):
        for k, heat in enumerate(row):
            np.testing.assert_array_equal(axes[i, k + 1].images[0].get_array(), heat)
    assert not axes[1, 3].images  # the second row has one cluster fewer
    assert [ax.get_title() for ax in axes[0]] == ["", "a", "b", "c"]
    assert [ax.get_ylabel() for ax in axes[:, 0]] == ["first", "second"]


def test_each_row_has_one_scale() -> None:
    rows = [maps(3), 100 * maps(3)]
    rows[0][1, 0, 0] = 1e6
    figure = draw_grid(rows)
    axes = np.array(figure.axes).reshape(2, 3)
    for i, row in enumerate(rows):
        limit = np.quantile(np.abs(row), 0.995)
        for ax in axes[i]:
            assert ax.images[0].get_clim() == (-limit, limit)
    full = draw_grid(rows, quantile=1.0).axes[0].images[0]
    assert full.get_clim() == (-1e6, 1e6)
    single = np.zeros((1, 40, 40))
    single[0, 3, 3] = -2.0
    assert draw_grid([single]).axes[0].images[0].get_clim() == (-2.0, 2.0)
    assert draw_grid([np.zeros((1, 4, 4))]).axes[0].images[0].get_clim() == (-1.0, 1.0)


def test_red_is_positive_and_blue_is_negative(tmp_path: Path) -> None:
    heat = np.zeros((2, 3))
    heat[:, 0], heat[:, 2] = 1.0, -1.0
    image = draw_grid([[heat]]).axes[0].images[0]
    colors = np.asarray(image.to_rgba(heat))[0, :, :3]
    for color, name in zip(colors, ("red", "white", "blue"), strict=True):
        np.testing.assert_allclose(color, to_rgb(name), atol=0.01)
    draw_grid([[heat]], titles=["cluster 0"]).savefig(tmp_path / "grid.png")
    with Image.open(tmp_path / "grid.png") as picture:
        pixels = np.asarray(picture.convert("RGB")).reshape(-1, 3)
    for name in ("red", "blue"):
        assert (pixels == (255 * np.array(to_rgb(name))).astype(int)).all(axis=1).mean() > 0.1


@given(
    heat=arrays(np.int64, st.tuples(st.integers(1, 9), st.integers(1, 9)), elements=st.integers(-9, 9)),
    pool=st.integers(1, 12),
)
def test_pooling_adds_up_blocks(heat: Any, pool: int) -> None:
    found = _sum_blocks(heat.astype(np.float64), pool)
    assert found.shape == (-(-heat.shape[0] // pool), -(-heat.shape[1] // pool))
    for (i, j), total in np.ndenumerate(found):
        assert total == heat[i * pool : (i + 1) * pool, j * pool : (j + 1) * pool].sum()


def test_the_grid_draws_pooled_maps() -> None:
    heat = maps(1)
    drawn: Any = draw_grid([heat], pool=2).axes[0].images[0].get_array()
    np.testing.assert_allclose(drawn, heat[0].reshape(6, 2, 5, 2).sum(axis=(1, 3)))


@pytest.mark.slow
def test_pyplot_is_not_loaded() -> None:
    code = (
        "import numpy as np, sys, whycluster as wc\n"
        "wc.deep\n"
        "print('matplotlib' in sys.modules)\n"
        "wc.plots.draw_grid(np.ones((1, 2, 4, 4)))\n"
        "print('matplotlib.pyplot' in sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.stdout == "False\nFalse\n", result.stderr


def test_without_matplotlib_the_message_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    monkeypatch.delitem(sys.modules, "whycluster.plots.figures", raising=False)  # as on first use
    with pytest.raises(wc.MissingDependencyError) as caught:
        draw_grid([maps(1)])
    assert str(caught.value) == 'plots need matplotlib: pip install "whycluster[plots]"'


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"rows": []}, "rows must contain at least one row of heat maps; it is empty."),
        ({"rows": [maps(2), []]}, "each row must contain at least one heat map; row 1 contains none."),
        (
            {"rows": maps(2)},
            "heat maps must be numeric arrays of shape (H, W); heat map 0 of row 0 is float64 of shape "
            "(10,). Pass a list of heat maps for each row.",
        ),
        (
            {"rows": [1.0]},
            "heat maps must be numeric arrays of shape (H, W); heat map 0 of row 0 is float64 of shape (). "
            "Pass a list of heat maps for each row.",
        ),
        (
            {"rows": [[[[1, 2], [3]]]]},
            "heat maps must be numeric arrays of shape (H, W); heat map 0 of row 0 is object of shape (0,). "
            "Pass a list of heat maps for each row.",
        ),
        (
            {"rows": [maps(2), maps(2) * np.nan]},
            "heat maps must be finite; heat map 0 of row 1 contains NaN or infinite values.",
        ),
        ({"titles": ["a"]}, "titles must have one entry for each column of heat maps, 2; got 1."),
        ({"names": ["a", "b"]}, "names must have one entry for each row, 1; got 2."),
        ({"images": []}, "images must have one entry for each row, 1; got 0."),
        (
            {"images": [np.full((3, 16, 16), 2.0)]},
            "floating-point images must have values from 0 to 1; got values from 2 to 2. Divide by the "
            "largest possible pixel value first.",
        ),
        ({"pool": 0}, "pool must be an integer of at least 1; got 0."),
        ({"quantile": 0.0}, "quantile must be above 0 and at most 1; got 0.0."),
        ({"cell": -1}, "cell must be a positive number of inches; got -1."),
    ],
)
def test_invalid_grids(given: dict[str, Any], message: str) -> None:
    with pytest.raises(wc.InvalidInputError) as caught:
        draw_grid(**{"rows": [maps(2)], **given})
    assert str(caught.value) == f"draw_grid: {message}"
