"""Baselines of heat maps, in a network of two convolutions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch", reason="torch is not installed")

import numpy as np
import torch
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray

import whycluster as wc
from benchmarks.summaries import activation_thresholds, feature_maps, locations, netdissect1, netdissect2
from whycluster.core.errors import InvalidInputError

Array = NDArray[Any]
LAYER = "3"


@pytest.fixture
def encoder() -> torch.nn.Module:
    """A network from (n, 3, 16, 16) to six maps of 8 x 8 at layer 3."""
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 5, 3, padding=1, bias=False),
        torch.nn.ReLU(),
        torch.nn.Conv2d(5, 6, 3, padding=1, bias=False),
        torch.nn.Sequential(torch.nn.ReLU(), torch.nn.MaxPool2d(2)),
        torch.nn.Flatten(),
    ).eval()


@pytest.fixture
def images() -> Array:
    return np.random.default_rng(0).normal(size=(5, 3, 16, 16)).astype(np.float32)


def activation_of(encoder: torch.nn.Module, image: Array) -> Array:
    assert isinstance(encoder, torch.nn.Sequential)
    with torch.no_grad():
        return np.asarray(encoder[:4](torch.from_numpy(image[None]))[0].numpy())


def test_an_image_may_be_a_list(encoder: torch.nn.Module, images: Array) -> None:
    listed = feature_maps(encoder, images[0].tolist(), LAYER, 2)
    assert_allclose(listed, feature_maps(encoder, images[0], LAYER, 2), rtol=1e-5, atol=1e-6)


def test_feature_maps_start_from_the_channels_with_the_largest_activations(
    encoder: torch.nn.Module, images: Array
) -> None:
    found = feature_maps(encoder, images[0], LAYER, 3)
    activation = activation_of(encoder, images[0])
    order = np.argsort([-channel.max() for channel in activation])
    assert found.shape == (3, 16, 16)
    for heat, channel in zip(found, order[:3], strict=True):
        seed = torch.zeros(1, 6, 8, 8)
        seed[0, channel] = torch.from_numpy(activation[channel])
        alone = wc.deep.lrp(encoder, torch.from_numpy(images[:1]), seed, layer=LAYER)
        assert_allclose(heat, alone[0].sum(dim=0).numpy(), atol=1e-6)
        assert heat.sum() == pytest.approx(activation[channel].sum(), rel=1e-4)  # nothing is lost


def test_locations_start_from_the_positions_with_the_largest_norms(
    encoder: torch.nn.Module, images: Array
) -> None:
    found = locations(encoder, torch.from_numpy(images[1]), LAYER, 4, rules=wc.deep.Epsilon())
    activation = activation_of(encoder, images[1])
    places = [(float((activation[:, i, j] ** 2).sum()), i, j) for i in range(8) for j in range(8)]
    for heat, (_, i, j) in zip(found, sorted(places, reverse=True)[:4], strict=True):
        assert heat.sum() == pytest.approx(activation[:, i, j].sum(), rel=1e-3)
        rows, columns = np.nonzero(heat)  # what a place sees: 2 x 2 pixels, and two more around them
        assert 2 * i - 2 <= rows.min() <= rows.max() <= 2 * i + 3
        assert 2 * j - 2 <= columns.min() <= columns.max() <= 2 * j + 3


def test_all_channels_and_all_positions_have_the_same_sum(encoder: torch.nn.Module, images: Array) -> None:
    """Both propagate the same activations, and LRP is linear in its start for a fixed forward pass."""
    channels = feature_maps(encoder, images[2], LAYER, 6).sum(axis=0)
    assert_allclose(locations(encoder, images[2], LAYER, 64).sum(axis=0), channels, atol=1e-5)


@pytest.mark.parametrize("quantile", [0.0, 0.5, 0.9])
def test_thresholds_are_quantiles_over_all_images(
    encoder: torch.nn.Module, images: Array, quantile: float
) -> None:
    found = activation_thresholds(encoder, images, LAYER, quantile=quantile, batch_size=2)
    activation = np.stack([activation_of(encoder, image) for image in images])
    for channel in range(6):
        values = np.sort(activation[:, channel].ravel())
        place = quantile * (len(values) - 1)
        assert values[int(place)] - 1e-6 <= found[channel] <= values[int(np.ceil(place))] + 1e-6


def scaled_up(activation: Array) -> Array:
    """Upsample bilinearly from the centers of 2 x 2 pixels, with the border values beyond."""
    at = np.clip((np.arange(16) + 0.5) / 2 - 0.5, 0, 7)
    low, part = np.floor(at).astype(int), at - np.floor(at)
    high = np.minimum(low + 1, 7)
    rows = activation[:, low] * (1 - part)[:, None] + activation[:, high] * part[:, None]
    return np.asarray(rows[:, :, low] * (1 - part) + rows[:, :, high] * part)


def test_netdissect1_returns_the_largest_segments(encoder: torch.nn.Module, images: Array) -> None:
    limits = activation_thresholds(encoder, images, LAYER, quantile=0.8)
    segments = (scaled_up(activation_of(encoder, images[0])) > limits[:, None, None]).astype(float)
    order = np.argsort(-segments.sum(axis=(1, 2)), kind="stable")
    assert_array_equal(netdissect1(encoder, images[0], LAYER, limits, 3), segments[order[:3]])


def test_netdissect2_returns_means_of_segments(encoder: torch.nn.Module, images: Array) -> None:
    limits = activation_thresholds(encoder, images, LAYER, quantile=0.6)
    found = netdissect2(encoder, images[3], LAYER, limits, 2)
    segments = netdissect1(encoder, images[3], LAYER, limits, 6)
    nearest = np.argmin([[((s - c) ** 2).sum() for c in found] for s in segments], axis=1)
    assert set(nearest) == {0, 1}
    for group, centroid in enumerate(found):
        assert_allclose(centroid, segments[nearest == group].mean(axis=0), atol=1e-6)
    assert_array_equal(found, netdissect2(encoder, images[3], LAYER, limits, 2))


def test_netdissect2_drops_empty_segments(encoder: torch.nn.Module, images: Array) -> None:
    activation = activation_of(encoder, images[0])
    peaks = np.nextafter(activation.max(axis=(1, 2)), np.float32(np.inf))
    assert not netdissect2(encoder, images[0], LAYER, peaks, 4).any()
    peaks[2] = -1.0  # one map, everywhere above
    only = netdissect2(encoder, images[0], LAYER, peaks, 4)
    assert_array_equal(only.mean(axis=(1, 2)), [1, 0, 0, 0])
    peaks[:] = -1.0  # six maps that are all the same
    assert_array_equal(netdissect2(encoder, images[0], LAYER, peaks, 4), only)


def test_the_encoder_does_not_change(encoder: torch.nn.Module, images: Array) -> None:
    before = [parameter.clone() for parameter in encoder.parameters()]
    image = images[0].copy()
    for call in (feature_maps, locations):
        call(encoder, image, LAYER)
    netdissect2(encoder, image, LAYER, activation_thresholds(encoder, images, LAYER))
    assert_array_equal(image, images[0])
    assert all(
        torch.equal(parameter, old) for parameter, old in zip(encoder.parameters(), before, strict=True)
    )


def test_bad_input(encoder: torch.nn.Module, images: Array) -> None:
    image, limits = images[0], np.zeros(6)
    messages: dict[str, Callable[[], Array]] = {
        "feature_maps: n_maps must be at most the number of channels of the layer, 6; got 7.": (
            lambda: feature_maps(encoder, image, LAYER, 7)
        ),
        "locations: n_maps must be at most the number of positions of the layer, 64; got 65.": (
            lambda: locations(encoder, image, LAYER, 65)
        ),
        "feature_maps: image must be a single image of shape (channels, H, W); got (5, 3, 16, 16).": (
            lambda: feature_maps(encoder, images, LAYER)
        ),
        "locations: layer must return maps, (n, channels, h, w); got (1, 384). Name an earlier layer.": (
            lambda: locations(encoder, image, None)
        ),
        "netdissect1: thresholds must be numbers, one for each of the 6 channels of the layer; got float64 "
        "of shape (5,). Compute them with activation_thresholds for this layer.": (
            lambda: netdissect1(encoder, image, LAYER, np.zeros(5))
        ),
        "netdissect2: thresholds must be numbers, one for each of the 6 channels of the layer; got <U1 of "
        "shape (). Compute them with activation_thresholds for this layer.": (
            lambda: netdissect2(encoder, image, LAYER, "a")
        ),
        "netdissect1: layer must be the name of a layer of the encoder, as in its named_modules(); got '9'. "
        "The closest names are '0', '1', '2', '3', '3.0'.": (
            lambda: netdissect1(encoder, image, "9", limits)
        ),
        "netdissect2: n_maps must be an integer of at least 1; got 0.": (
            lambda: netdissect2(encoder, image, LAYER, limits, 0)
        ),
        "activation_thresholds: quantile must be from 0 to below 1; got 1.": (
            lambda: activation_thresholds(encoder, images, LAYER, quantile=1)
        ),
        "feature_maps: the output of the layer must be finite; it is not for this image.": (
            lambda: feature_maps(encoder, image * np.float32(np.nan), LAYER)
        ),
    }
    for message, call in messages.items():
        with pytest.raises(InvalidInputError) as error:
            call()
        assert str(error.value) == message
