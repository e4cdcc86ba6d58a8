"""Matching of heat maps with segments: the score, its properties, and error messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray
from scipy.ndimage import zoom

import whycluster as wc
from benchmarks.matching import match
from tests.optional import optional
from tests.reference import matching as reference

if TYPE_CHECKING:
    import torch
else:
    torch = optional("torch")

Array = NDArray[Any]
SEGMENTS = np.array([[0, 0, 1, 1], [0, 0, 1, 1], [5, 5, 5, 5]])
MASKS = np.stack([value == SEGMENTS for value in (0, 1, 5)])


@st.composite
def problems(draw: st.DrawFn) -> tuple[Array, Array]:
    """Draw heat maps in steps of a quarter, some of them zero, and masks that may overlap."""
    size = (draw(st.integers(1, 4)), draw(st.integers(1, 4)))
    quarters = arrays(np.int64, (draw(st.integers(1, 5)), *size), elements=st.integers(-8, 8))
    masks = draw(arrays(np.bool_, (draw(st.integers(1, 5)), *size)))
    for mask in masks:
        mask[draw(st.integers(0, size[0] - 1)), draw(st.integers(0, size[1] - 1))] = True
    return draw(quarters) / 4.0, masks


@given(problems())
def test_the_score_is_the_best_of_all_pairings(problem: tuple[Array, Array]) -> None:
    heatmaps, masks = problem
    found = match(heatmaps, masks)
    assert_allclose(found.score, reference.score(heatmaps, masks), atol=1e-12)
    expected = [[reference.cosine(r, m) for m in masks] for r in heatmaps]
    assert_allclose(found.cosine, expected, atol=1e-12)


@given(problems())
def test_pairs_are_pairs_and_the_score_is_their_mean(problem: tuple[Array, Array]) -> None:
    heatmaps, masks = problem
    found = match(heatmaps, masks)
    assert found.pairs.shape == (min(len(heatmaps), len(masks)), 2)
    first, second = found.pairs.T
    assert len(set(first)) == len(set(second)) == len(found.pairs)
    assert_array_equal(first, np.sort(first))
    assert found.score == found.cosine[first, second].mean()
    assert (np.abs(found.cosine) <= 1.0).all()
    assert -1.0 <= found.score <= 1.0


@given(problems(), st.data())
def test_the_scale_of_a_heat_map_does_not_matter(problem: tuple[Array, Array], data: st.DataObject) -> None:
    heatmaps, masks = problem
    powers = data.draw(arrays(np.int64, len(heatmaps), elements=st.integers(-300, 300)))
    scaled = heatmaps * 10.0 ** powers[:, None, None]
    assert_allclose(match(scaled, masks).cosine, match(heatmaps, masks).cosine, atol=1e-12)


@given(problems(), st.randoms(use_true_random=False))
def test_the_order_does_not_matter(problem: tuple[Array, Array], random: Any) -> None:
    heatmaps, masks = problem
    maps_in, masks_in = list(range(len(heatmaps))), list(range(len(masks)))
    random.shuffle(maps_in)
    random.shuffle(masks_in)
    before, after = match(heatmaps, masks), match(heatmaps[maps_in], masks[masks_in])
    assert_allclose(after.score, before.score, atol=1e-12)
    assert_allclose(after.cosine, before.cosine[np.ix_(maps_in, masks_in)], atol=1e-15)


@given(problems())
def test_masks_match_themselves(problem: tuple[Array, Array]) -> None:
    _, masks = problem
    assert_allclose(match(masks, masks).score, 1.0, atol=1e-12)
    opposite = match(-masks[:1].astype(float), masks[:1])
    assert_allclose(opposite.score, -1.0, atol=1e-12)


@given(arrays(np.int64, (3, 4), elements=st.integers(-2, 3)))
def test_a_map_of_segments_equals_its_masks_in_ascending_order(labels: Array) -> None:
    heatmaps = np.random.default_rng(0).normal(size=(3, 3, 4))
    masks = [labels == value for value in sorted(set(labels.ravel().tolist()))]
    expected = match(heatmaps, masks).cosine
    for kind in (np.int8, np.float32):
        assert_array_equal(match(heatmaps, labels.astype(kind)).cosine, expected)


def test_the_sum_decides_not_the_best_pair() -> None:
    """A greedy choice would give the first heat map the only mask that fits the second."""
    masks = [[[1, 1, 0, 0]], [[0, 1, 1, 1]]]
    heatmaps = np.array([[[3.0, 4.0, 2.0, 2.0]], [[1.0, 0.5, 0.0, 0.0]]])
    found = match(heatmaps, masks)
    assert found.cosine[0].argmax() == 0
    assert found.pairs.tolist() == [[0, 1], [1, 0]]


def test_a_heat_map_of_zeros_has_the_cosine_0() -> None:
    heatmaps = np.stack([np.zeros((3, 4)), 2.0 * MASKS[1]])
    found = match(heatmaps, MASKS)
    assert_array_equal(found.cosine[0], [0.0, 0.0, 0.0])
    assert_allclose(found.score, 0.5)


def test_the_cosine_of_a_constant_heat_map_is_the_root_of_the_area() -> None:
    """This is the baseline to compare a score with."""
    assert_allclose(match(np.ones((1, 3, 4)), MASKS).cosine, [[np.sqrt(1 / 3)] * 3])


def test_unpaired_masks_do_not_count() -> None:
    assert_allclose(match(MASKS[:2], MASKS).score, 1.0)
    assert_allclose(match([*MASKS, *-MASKS.astype(int)], MASKS).score, 1.0)


def test_the_input_does_not_change_and_the_result_is_read_only() -> None:
    heatmaps, masks = np.arange(24.0).reshape(2, 3, 4), MASKS.copy()
    found = match(heatmaps, masks)
    assert_array_equal(heatmaps.ravel(), np.arange(24.0))
    assert_array_equal(masks, MASKS)
    assert not found.cosine.flags.writeable
    assert not found.pairs.flags.writeable


def test_the_representation() -> None:
    found = match(MASKS[[2, 0]], MASKS)
    assert repr(found) == "<Matching: score 1.000, 2 heat maps and 3 masks: 0 with 2 (1.00), 1 with 0 (1.00)>"
    assert repr(match(MASKS[:1], MASKS[:1])) == (
        "<Matching: score 1.000, 1 heat map and 1 mask: 0 with 0 (1.00)>"
    )
    five = np.eye(5)[:, None, :]
    assert repr(match(five, five)).endswith("2 with 2 (1.00), 3 with 3 (1.00), ...>")


def message(heatmaps: Any, masks: Any) -> str:
    with pytest.raises(wc.InvalidInputError) as error:
        match(heatmaps, masks)
    return str(error.value)


def test_sizes_that_differ() -> None:
    heatmaps = np.ones((2, 9, 8))
    text = message(heatmaps, MASKS)
    assert text == (
        "match: heatmaps and masks must have the same height and width; got (2, 9, 8) and (3, 3, 4). Resize "
        "the masks, such as scipy.ndimage.zoom(masks, (1, 9 / 3, 8 / 4), order=0, grid_mode=True, "
        'mode="nearest").'
    )
    assert "and (3, 4). Resize the masks, such as scipy.ndimage.zoom(masks, (9 / 3, 8 / 4), order=0" in (
        message(heatmaps, SEGMENTS)
    )
    match(heatmaps, zoom(MASKS, (1, 9 / 3, 8 / 4), order=0, grid_mode=True, mode="nearest"))  # as it says
    resized = zoom(SEGMENTS, (9 / 3, 8 / 4), order=0, grid_mode=True, mode="nearest")
    assert_array_equal(resized, np.repeat(np.repeat(SEGMENTS, 3, axis=0), 2, axis=1))
    match(heatmaps, resized)


@pytest.mark.parametrize("shape", [(0, 3, 4), (2, 0, 4), (3, 4, 0), (1, 1, 3, 4), (4,), (3, 0)])
def test_heat_maps_of_another_shape(shape: tuple[int, ...]) -> None:
    assert message(np.ones(shape), MASKS) == (
        "match: heatmaps must have shape (K, H, W), with at least one heat map of at least one pixel; got "
        f"{shape}."
    )


def test_a_single_heat_map() -> None:
    assert message(np.ones((3, 4)), MASKS).endswith("got (3, 4). For a single heat map, pass heatmaps[None].")


@pytest.mark.parametrize("shape", [(0, 3, 4), (2, 0, 4), (0, 4), (1, 1, 3, 4), (4,)])
def test_masks_of_another_shape(shape: tuple[int, ...]) -> None:
    assert message(MASKS, np.ones(shape)) == (
        "match: masks must have shape (M, H, W), or (H, W) for a map of segments, with at least one mask of "
        f"at least one pixel; got {shape}."
    )


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_heat_maps_that_are_not_finite(value: float) -> None:
    heatmaps = np.ones((2, 3, 4))
    heatmaps[1, 2, 3] = heatmaps[1, 2, 1] = value
    assert message(heatmaps, MASKS) == (
        f"match: heatmaps must be finite; heat map 1 has {value} in row 2, column 1 (2 in all)."
    )


@pytest.mark.parametrize("value", [np.nan, np.inf, 0.5])
def test_maps_of_segments_without_integers(value: float) -> None:
    labels = SEGMENTS.astype(float)
    labels[1, 2] = value
    assert message(MASKS, labels) == (
        f"match: a map of segments must hold integers; row 1, column 2 is {value} (1 in all). "
        "Resize maps by nearest neighbors."
    )


def test_a_map_of_booleans_may_be_one_mask_or_two() -> None:
    assert message(MASKS, MASKS[0]) == (
        "match: a map of segments must hold integers; got booleans. For a single mask pass masks[None],"
        " for a mask and its background masks.astype(int)."
    )


@pytest.mark.parametrize("value", [2.0, 0.5, -1.0, np.nan, 255.0])
def test_masks_of_other_numbers(value: float) -> None:
    masks = MASKS.astype(float)
    masks[2, 2, 0] = value
    assert message(MASKS, masks) == (
        f"match: masks must hold booleans, or 0 and 1; got {value}. Convert them, such as masks > 0."
    )


def test_masks_without_a_pixel() -> None:
    masks = MASKS.copy()
    masks[1] = False
    assert message(MASKS, masks) == (
        "match: every mask must have a pixel; mask 1 has none (1 of 3 have none). Drop such masks."
    )


def test_input_without_numbers() -> None:
    complex_maps = MASKS + 1j
    assert message(complex_maps, MASKS) == (
        "match: heatmaps must be an array of real numbers of shape (K, H, W); got ndarray (complex128)."
    )
    assert message(MASKS, MASKS.astype(str)).startswith(
        "match: masks must be an array of real numbers of shape (M, H, W), or (H, W) for a map of segments; "
    )
    assert "got list (" in message([[[1.0], [1.0, 2.0]]], MASKS)
    assert "(masked values)" in message(np.ma.masked_greater(MASKS.astype(int), 0), MASKS)


def test_tensors() -> None:
    tensor = torch.tensor(MASKS, dtype=torch.float32)
    assert_allclose(match(tensor, MASKS).score, 1.0)
    assert "got (3, 3, 4) and (3, 3, 3)." in message(tensor, tensor[:, :, :3])
    assert "detach()" in message(tensor.requires_grad_(), MASKS)
