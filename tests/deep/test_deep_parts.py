"""The parts around a deep clustering: SCAN's head, images, VGG-16."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray
from PIL import Image
from sklearn.datasets import load_digits, make_blobs
from sklearn.metrics import adjusted_rand_score
from torch.nn import functional

import whycluster as wc
from examples import vgg16
from examples.spiral import spiral
from tests.reference import scan as reference
from whycluster.deep import fit_scan, normalize, pixel_bounds, scan

QUICK: dict[str, Any] = {"n_epochs": 20, "n_init": 2, "batch_size": 64}


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Threads that wait for one another take longer than such small products."""
    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(n_threads)


def blobs(n: int = 200, n_features: int = 5, n_clusters: int = 4) -> tuple[Any, Any]:
    X, y = make_blobs(n, n_features, centers=n_clusters, random_state=1)
    return X, y


def assign(head: torch.nn.Linear, features: Any) -> NDArray[Any]:
    with torch.no_grad():
        return np.asarray(head(torch.as_tensor(features, dtype=head.weight.dtype)).argmax(dim=1))


# The package


def test_what_is_loaded() -> None:
    assert wc.deep.__name__ == "whycluster.deep"
    assert {"fit_scan", "normalize", "pixel_bounds"} <= set(wc.deep.__all__)


# SCAN's head


def test_digits_are_clustered_better_than_by_k_means() -> None:
    X, y = load_digits(return_X_y=True)
    cluster = assign(fit_scan(X, 10), X)
    assert adjusted_rand_score(y, cluster) > 0.72  # k-means: 0.67
    assert np.bincount(cluster, minlength=10).min() > 100


@pytest.mark.parametrize("offset", [0.0, 1e4])
def test_blobs_are_found(offset: float) -> None:
    X, y = blobs(400, 10, 8)
    assert adjusted_rand_score(y, assign(fit_scan(X + offset, 8), X + offset)) == 1.0


def test_without_entropy_clusters_collapse_and_with_it_they_do_not() -> None:
    X, _ = blobs()
    sizes = [
        np.bincount(assign(fit_scan(X, 4, entropy_weight=weight), X), minlength=4) for weight in (0.0, 5.0)
    ]
    assert sizes[0].min() == 0
    assert sizes[1].min() == 50


@pytest.mark.parametrize("block", [1, 700, 1 << 22])
def test_neighbours_and_loss_are_those_of_the_formulas(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "_BLOCK", block)
    X, _ = blobs(60)
    z, _, _ = scan._standardize(torch.from_numpy(X))
    near = scan._nearest(z, 7)
    expected = reference.neighbors(z.double().numpy(), 7)
    assert [set(row) for row in near.tolist()] == expected
    weight = torch.from_numpy(np.random.default_rng(0).normal(size=(4, 5)).astype(np.float32))
    bias = torch.arange(4.0)
    heads = scan._Heads(z, 1, 4, 3.0, 0)
    found = float(heads._loss(z, near, weight, bias))
    assert found == pytest.approx(reference.loss(z @ weight.T + bias, expected, 3.0), rel=1e-5)


def test_the_head_with_the_least_loss_is_returned() -> None:
    X, _ = blobs(100)
    z, _, _ = scan._standardize(torch.from_numpy(X))
    near = scan._nearest(z, 10)
    heads = scan._Heads(z, 6, 7, 5.0, 0)
    best = heads.best(z, near)
    weights, biases = heads._weight.view(5, 6, 7), heads._bias.view(6, 7)
    sets = [set(row) for row in near.tolist()]
    losses = [reference.loss(z @ weights[:, i] + biases[i], sets, 5.0) for i in range(6)]
    assert len(set(losses)) == 6
    torch.testing.assert_close(best[0], weights[:, int(np.argmin(losses))].T)


def test_training_lowers_the_loss() -> None:
    X, _ = blobs()
    near = reference.neighbors((X - X.mean(axis=0)), 20)
    losses = []
    for n_epochs in (1, 10, 100):
        head = fit_scan(X, 4, n_epochs=n_epochs, batch_size=100)
        losses.append(reference.loss(head(torch.from_numpy(X)).detach(), near, 5.0))
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] == pytest.approx(-5 * np.log(4), abs=0.05)  # all that can be had


def test_heads_do_not_depend_on_one_another() -> None:
    """Trained beside others, a head moves as it does on its own."""
    X, _ = blobs(50)
    z, _, _ = scan._standardize(torch.from_numpy(X))
    near = scan._nearest(z, 5)
    together, alone = scan._Heads(z, 3, 4, 5.0, 0), scan._Heads(z, 1, 4, 5.0, 0)
    alone._weight = together._weight.view(5, 3, 4)[:, 1].clone()
    for heads in (together, alone):
        heads._generator.manual_seed(7)
        heads.train(z, near, 5, 10, 0.01)
    torch.testing.assert_close(together._weight.view(5, 3, 4)[:, 1], alone._weight)


def test_the_head_takes_features_as_they_were_given() -> None:
    X, _ = blobs()
    plain = fit_scan(X, 4, **QUICK)
    moved = fit_scan(8.0 * X + 32.0, 4, **QUICK)
    logits, others = plain(torch.from_numpy(X)), moved(torch.from_numpy(8.0 * X + 32.0))
    torch.testing.assert_close(logits, others, rtol=1e-3, atol=1e-3)


def test_features_that_never_change_have_no_weight() -> None:
    X, _ = blobs()
    X[:, 2] = 0.1
    weight = fit_scan(X, 4, **QUICK).weight
    assert not weight[:, 2].any()
    assert weight[:, [0, 1, 3, 4]].abs().min() > 0


def test_the_same_seed_gives_the_same_head_and_nothing_else_changes() -> None:
    X, _ = blobs()
    before = X.copy()
    state, n_threads = torch.get_rng_state(), torch.get_num_threads()
    first, again, other = (fit_scan(X, 4, random_state=seed, **QUICK) for seed in (3, 3, 4))
    assert torch.equal(first.weight, again.weight)
    assert torch.equal(first.bias, again.bias)
    assert not torch.equal(first.weight, other.weight)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.get_num_threads() == n_threads
    np.testing.assert_array_equal(X, before)
    assert first.weight.requires_grad


def test_settings_of_torch_make_no_difference() -> None:
    X, _ = blobs()
    features = torch.from_numpy(X).float()
    expected = fit_scan(features, 4, **QUICK).weight
    with torch.no_grad():
        assert torch.equal(fit_scan(features, 4, **QUICK).weight, expected)
    with torch.inference_mode():
        assert torch.equal(fit_scan(features * 1, 4, **QUICK).weight, expected)
    with torch.device("meta"):
        assert torch.equal(fit_scan(features, 4, **QUICK).weight, expected)
    torch.set_default_dtype(torch.float64)
    try:
        assert torch.equal(fit_scan(features, 4, **QUICK).weight, expected)
    finally:
        torch.set_default_dtype(torch.float32)


def test_features_of_every_kind() -> None:
    whole = np.round(4 * blobs()[0])
    expected = fit_scan(whole.astype(np.float32), 4, **QUICK).weight
    locked = whole.astype(np.float32)
    locked.flags.writeable = False
    given = [
        locked,
        whole.astype(np.float16),
        whole.astype(np.int8),
        whole.astype(">f4"),
        np.ascontiguousarray(whole.astype(np.float32)[:, ::-1])[:, ::-1],
        np.asfortranarray(whole.astype(np.float32)),
        torch.from_numpy(whole).half(),
        torch.from_numpy(whole).float().requires_grad_(),
        torch.from_numpy(whole).long(),
    ]
    for features in given:
        weight = fit_scan(features, 4, **QUICK).weight
        assert weight.dtype is torch.float32
        assert torch.equal(weight, expected)
    for doubles in (whole, whole.tolist(), torch.from_numpy(whole)):
        weight = fit_scan(doubles, 4, **QUICK).weight
        assert weight.dtype is torch.float64
        torch.testing.assert_close(weight.float(), expected)


def test_parameters_may_be_numbers_of_numpy() -> None:
    X, _ = blobs()
    given = {name: np.int64(value) for name, value in {**QUICK, "neighbors": 9, "random_state": 2}.items()}
    plain: dict[str, Any] = {name: int(value) for name, value in given.items()}
    rates: dict[str, Any] = {"entropy_weight": np.float64(5), "learning_rate": np.float32(0.0625)}
    expected = fit_scan(X, 4, entropy_weight=5, learning_rate=0.0625, **plain)
    assert torch.equal(fit_scan(X, np.int8(4), **given, **rates).weight, expected.weight)


@pytest.mark.parametrize("size", [1e-200, 1e150])
def test_features_of_any_size(size: float) -> None:
    X, y = blobs()
    assert adjusted_rand_score(y, assign(fit_scan(size * X, 4), size * X)) == 1.0


SPOILT = blobs()[0]
SPOILT[3, 1] = np.nan


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"features": np.zeros(5)},
            "features must be a numeric array of shape (n, d); got float64 of shape (5,).",
        ),
        (
            {"features": torch.zeros(4, 3, 2, 2)},
            "features must be a numeric array of shape (n, d); got float32 of shape (4, 3, 2, 2). Pool or "
            "flatten them first: features.mean(axis=(2, 3)).",
        ),
        (
            {"features": np.zeros((0, 3))},
            "features must be a numeric array of shape (n, d); got float64 of shape (0, 3).",
        ),
        (
            {"features": torch.zeros(4, 3, dtype=torch.complex64)},
            "features must be a numeric array of shape (n, d); got complex64 of shape (4, 3).",
        ),
        (
            {"features": [["a", "b"]]},
            "features must be a numeric array of shape (n, d); got list that cannot be converted to one.",
        ),
        (
            {"features": [[1.0], [1.0, 2.0]]},
            "features must be a numeric array of shape (n, d); got list that cannot be converted to one.",
        ),
        ({"features": SPOILT}, "features must be finite; row 3 is not. Drop such rows."),
        (
            {"features": np.ones((30, 3))},
            "features must vary between rows and have a finite mean; all rows are equal.",
        ),
        (
            {"features": np.repeat([[1e308], [-1e308]], 20, axis=0)},
            "features must vary between rows and have a finite mean; they overflow.",
        ),
        ({"n_clusters": 1}, "n_clusters must be a whole number of at least 2; got 1."),
        ({"n_clusters": 3.0}, "n_clusters must be a whole number of at least 2; got 3.0."),
        ({"n_clusters": 201}, "n_clusters must be at most the number of rows, 200; got 201."),
        ({"neighbors": 0}, "neighbors must be a whole number of at least 1; got 0."),
        ({"neighbors": 200}, "neighbors must be less than the number of rows, 200; got 200."),
        ({"entropy_weight": -1.0}, "entropy_weight must be a number of at least 0; got -1.0."),
        ({"entropy_weight": "5"}, "entropy_weight must be a number of at least 0; got '5'."),
        ({"n_epochs": 0}, "n_epochs must be a whole number of at least 1; got 0."),
        ({"batch_size": 0}, "batch_size must be a whole number of at least 1; got 0."),
        ({"learning_rate": 0.0}, "learning_rate must be above 0 and at most 1; got 0.0."),
        ({"learning_rate": 2}, "learning_rate must be above 0 and at most 1; got 2."),
        ({"n_init": True}, "n_init must be a whole number of at least 1; got True."),
        ({"random_state": None}, "random_state must be a whole number of at least 0; got None."),
        ({"random_state": 1 << 63}, "random_state must be less than 2^63; got 9223372036854775808."),
    ],
)
def test_what_scan_cannot_take(given: dict[str, Any], message: str) -> None:
    with pytest.raises(wc.InvalidInputError) as caught:
        fit_scan(**{"features": blobs()[0], "n_clusters": 4, **QUICK, **given})
    assert str(caught.value) == f"fit_scan: {message}"


# Images


def test_bytes_and_floats_are_normalised_alike() -> None:
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
    "(n, 3, H, W); got {}. Resize images of different sizes first."
)
RANGE = (
    "images of floats must be between 0 and 1; got values from {}. Divide by the largest possible value of "
    "a pixel, and normalize later."
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
def test_what_is_no_image(images: Any, message: str) -> None:
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
            lambda: normalize(spiral(4), mean=[0.5, [0, 1], 0.5]),  # type: ignore[list-item]
            "normalize: mean must be three finite numbers, for red, green and blue; got [0.5, [0, 1], 0.5].",
        ),
        (
            lambda: normalize(spiral(4), std=(0.5, 0.5, 0.0)),
            "normalize: std must be three positive numbers, for red, green and blue; got (0.5, 0.5, 0.0).",
        ),
    ],
)
def test_parameters_of_images(call: Any, message: str) -> None:
    with pytest.raises(wc.InvalidInputError) as caught:
        call()
    assert str(caught.value) == message


# VGG-16

WIDTHS = (2, 3, 4, 5, 6)
CONVOLUTIONS = ["1_1", "1_2", "2_1", "2_2", "3_1", "3_2", "3_3", "4_1", "4_2", "4_3", "5_1", "5_2", "5_3"]


@pytest.fixture
def weights() -> dict[str, Any]:
    """Arrays with the names and types of the real ones, of few channels."""
    rng = np.random.default_rng(0)
    found: dict[str, Any] = {}
    n_before = 3
    for name in CONVOLUTIONS:
        width = WIDTHS[int(name[0]) - 1]
        found[f"conv{name}.weight"] = rng.normal(size=(width, n_before, 3, 3)).astype(np.float16)
        found[f"conv{name}.bias"] = rng.normal(size=width).astype(np.float32)
        n_before = width
    return found


def blocks_of(weights: dict[str, Any], x: torch.Tensor) -> dict[int, torch.Tensor]:
    """The output of each block, one layer after another."""
    found = {}
    for name in CONVOLUTIONS:
        kernel, bias = (
            torch.from_numpy(weights[f"conv{name}.{kind}"]).float() for kind in ("weight", "bias")
        )
        x = functional.relu(functional.conv2d(x, kernel, bias, padding=1))
        if name in ("1_2", "2_2", "3_3", "4_3", "5_3"):
            x = functional.max_pool2d(x, 2)
            found[int(name[0])] = x
    return found


def outputs(model: vgg16.VGG16, x: torch.Tensor) -> dict[int, torch.Tensor]:
    found: dict[int, torch.Tensor] = {}
    for block, name in vgg16.BLOCKS.items():
        layer = model.get_submodule(name)
        layer.register_forward_hook(lambda _layer, _inputs, out, block=block: found.update({block: out}))
    with torch.no_grad():
        assert model(x) is found[5]
    return found


def test_weights_of_several_files_are_put_in_their_places(weights: dict[str, Any], tmp_path: Path) -> None:
    names = list(weights)
    for part, ends in enumerate([(0, 18), (18, 22), (22, 26)]):
        np.savez(tmp_path / f"part{part}.npz", **{name: weights[name] for name in names[slice(*ends)]})
    model = vgg16.load(tmp_path, WIDTHS)
    assert not model.training
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    x = torch.from_numpy(normalize(spiral(64)))
    expected = blocks_of(weights, x)
    for block, out in outputs(model, x).items():
        torch.testing.assert_close(out, expected[block])


def test_a_state_of_torchvision_is_read(tmp_path: Path) -> None:
    model = vgg16.VGG16(WIDTHS)
    state = {**model.state_dict(), "classifier.0.weight": torch.zeros(2, 2)}
    torch.save(state, tmp_path / "vgg16.pth")
    loaded = vgg16.load_torchvision(tmp_path / "vgg16.pth", WIDTHS)
    x = torch.from_numpy(normalize(spiral(32)))
    assert torch.equal(loaded(x), model.eval()(x))


def test_layers_have_the_numbers_of_torchvision() -> None:
    with torch.device("meta"):
        model = vgg16.VGG16()
    convolutions = [i for i, layer in enumerate(model.features) if isinstance(layer, torch.nn.Conv2d)]
    assert convolutions == [0, 2, 5, 7, 10, 12, 14, 17, 19, 21, 24, 26, 28]
    poolings = [i for i, layer in enumerate(model.features) if isinstance(layer, torch.nn.MaxPool2d)]
    assert [f"features.{i}" for i in poolings] == list(vgg16.BLOCKS.values())
    assert len(model.features) == 31
    assert sum(parameter.numel() for parameter in model.parameters()) == 14_714_688  # as in the paper on it


def test_missing_weights_are_named(weights: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no npz files with the weights of VGG-16 in"):
        vgg16.load(tmp_path)
    del weights["conv5_3.bias"]
    np.savez(tmp_path / "part.npz", **weights)
    with pytest.raises(RuntimeError, match=r"Missing key.* \"features\.28\.bias\""):
        vgg16.load(tmp_path, WIDTHS)


def test_an_image_file_is_read_as_a_square(tmp_path: Path) -> None:
    pixels = np.zeros((20, 40, 3), np.uint8)
    pixels[:, :20, 0] = 255
    Image.fromarray(pixels).save(tmp_path / "image.png")
    image = vgg16.read_image(tmp_path / "image.png", 16)
    assert image.shape == (3, 16, 16)
    assert image.dtype == np.float32
    assert (image[0, :, :6] == 1).all()
    assert (image[0, :, 10:] == 0).all()
    assert not image[1:].any()
    assert normalize(image).shape == (1, 3, 16, 16)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_z_plus_gives_nothing_where_no_contribution_is_positive(dtype: torch.dtype) -> None:
    """Rounding leaves a little of the sum of what is negative and its size, which must not be shared out.

    The sum is the output less its bias, which is as large here, so that the ReLU lets it through.
    """
    generator = torch.Generator().manual_seed(0)
    linear = torch.nn.Linear(500, 40, dtype=dtype)
    with torch.no_grad():
        linear.weight.copy_(-torch.rand(40, 500, generator=generator, dtype=dtype))
        linear.weight[:5].abs_()
        linear.bias.fill_(300.1)
    module = torch.nn.Sequential(linear, torch.nn.ReLU())
    x = torch.rand(20, 500, generator=generator, dtype=dtype)
    relevance = torch.ones(20, 40, dtype=dtype)
    found = wc.deep.lrp(module, x, relevance, rules=wc.deep.ZPlus())
    assert (found >= 0).all()
    assert torch.allclose(found.sum(dim=1), torch.full((20,), 5.0, dtype=dtype), rtol=1e-4)
