"""VGG-16 of the examples, and its weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="torch is not installed")

import numpy as np
import torch
from PIL import Image
from torch.nn import functional

from examples import vgg16
from examples.spiral import spiral
from whycluster.deep import normalize

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


def test_weights_are_read_from_several_files(weights: dict[str, Any], tmp_path: Path) -> None:
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


def test_a_state_dict_of_torchvision_is_read(tmp_path: Path) -> None:
    model = vgg16.VGG16(WIDTHS)
    state = {**model.state_dict(), "classifier.0.weight": torch.zeros(2, 2)}
    torch.save(state, tmp_path / "vgg16.pth")
    loaded = vgg16.load_torchvision(tmp_path / "vgg16.pth", WIDTHS)
    x = torch.from_numpy(normalize(spiral(32)))
    assert torch.equal(loaded(x), model.eval()(x))


def test_layers_are_numbered_as_in_torchvision() -> None:
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
