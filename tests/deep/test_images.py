"""Images as inputs of networks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from PIL import Image

import whycluster as wc
from whycluster.deep import normalize, pixel_bounds


def test_bytes_and_floats_are_normalized_alike() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, size=(2, 5, 7, 3), dtype=np.uint8)
    before = pixels.copy()
    found = normalize(pixels)
    assert found.shape == (2, 3, 5, 7)
    assert found.dtype == np.float32
    for n, row, column, channel in ((0, 0, 0, 0), (1, 4, 6, 2), (0, 3, 2, 1)):
        value = pixels[n, row, column, channel] / 255
        expected = (value - wc.deep.IMAGENET_MEAN[channel]) / wc.deep.IMAGENET_STD[channel]
        assert found[n, channel, row, column] == pytest.approx(expected, abs=1e-5)
    floats = pixels.transpose(0, 3, 1, 2) / 255
    np.testing.assert_allclose(normalize(floats), found, atol=1e-6)
    np.testing.assert_array_equal(normalize(pixels[0]), found[:1])
    np.testing.assert_allclose(normalize(floats[1]), found[1:], atol=1e-6)
    np.testing.assert_array_equal(normalize([Image.fromarray(image) for image in pixels]), found)
    np.testing.assert_array_equal(pixels, before)


@given(
    images=arrays(np.uint8, (2, 2, 2, 3)),
    mean=st.tuples(*[st.floats(0, 1)] * 3),
    std=st.tuples(*[st.floats(0.01, 2)] * 3),
)
def test_no_pixel_is_out_of_bounds(images: Any, mean: Any, std: Any) -> None:
    images[0, 0, 0], images[0, 0, 1] = 0, 255
    low, high = pixel_bounds(mean, std)
    found = normalize(images, mean, std)
    np.testing.assert_array_equal(found.min(axis=(0, 2, 3)), low)
    np.testing.assert_array_equal(found.max(axis=(0, 2, 3)), high)


def test_the_bounds_of_imagenet() -> None:
    low, high = pixel_bounds()
    np.testing.assert_allclose(low, [-2.1179, -2.0357, -1.8044], atol=1e-4)
    np.testing.assert_allclose(high, [2.2489, 2.4286, 2.6400], atol=1e-4)


SHAPES = (
    "images must be uint8 of shape (H, W, 3) or (n, H, W, 3), or floats from 0 to 1 of shape (3, H, W) or "
    "(n, 3, H, W); got {}. If the sizes differ, resize the images first."
)
RANGE = (
    "floating-point images must have values from 0 to 1; got values from {}. Divide by the largest possible "
    "pixel value first."
)


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (np.zeros((3, 5, 7), np.uint8), SHAPES.format("uint8 of shape (3, 5, 7)")),
        (np.zeros((5, 7, 3)), SHAPES.format("float64 of shape (5, 7, 3)")),
        (np.zeros((5, 7), np.uint8), SHAPES.format("uint8 of shape (5, 7)")),
        (np.zeros((0, 5, 7, 3), np.uint8), SHAPES.format("uint8 of shape (0, 5, 7, 3)")),
        (np.zeros((3, 3, 3), np.int64), SHAPES.format("int64 of shape (3, 3, 3)")),
        ([np.zeros((3, 5, 7)), np.zeros((3, 5, 8))], SHAPES.format("object of shape (0,)")),
        (torch.zeros(3, 5, 7, device="meta"), SHAPES.format("object of shape (0,)")),
        (torch.full((3, 2, 2), 255.0, requires_grad=True), RANGE.format("255 to 255")),
        (np.full((3, 2, 2), 255.0), RANGE.format("255 to 255")),
        (np.full((3, 2, 2), -0.5), RANGE.format("-0.5 to -0.5")),
        (np.full((3, 2, 2), np.nan), RANGE.format("nan to nan")),
    ],
)
def test_invalid_images(images: Any, message: str) -> None:
    with pytest.raises(wc.InvalidInputError) as caught:
        normalize(images)
    assert str(caught.value) == f"normalize: {message}"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: pixel_bounds(mean=(0.5, 0.5)),
            "pixel_bounds: mean must be three finite numbers, for red, green and blue; got (0.5, 0.5).",
        ),
        (
            lambda: normalize(np.ones((3, 4, 4)), mean=[0.5, [0, 1], 0.5]),  # type: ignore[list-item]
            "normalize: mean must be three finite numbers, for red, green and blue; got [0.5, [0, 1], 0.5].",
        ),
        (
            lambda: normalize(np.ones((3, 4, 4)), std=(0.5, 0.5, 0.0)),
            "normalize: std must be three positive numbers, for red, green and blue; got (0.5, 0.5, 0.0).",
        ),
    ],
)
def test_invalid_mean_and_std(call: Any, message: str) -> None:
    with pytest.raises(wc.InvalidInputError) as caught:
        call()
    assert str(caught.value) == message
