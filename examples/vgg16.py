"""VGG-16 without its classifier (Simonyan and Zisserman, 2015), and a function that reads its images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from whycluster.deep.images import read_images

WIDTHS = (64, 128, 256, 512, 512)  # the number of channels in each of the five blocks
DEPTHS = (2, 2, 3, 3, 3)  # the number of convolutions in each block
BLOCKS = {1: "features.4", 2: "features.9", 3: "features.16", 4: "features.23", 5: "features.30"}
"""The last layer of each block, which is its max pooling."""


class VGG16(torch.nn.Module):
    """The convolutions of VGG-16, with the same layer names as in torchvision.

    Parameters
    ----------
    widths : the number of channels in each of the five blocks
    """

    def __init__(self, widths: Sequence[int] = WIDTHS) -> None:
        super().__init__()
        layers: list[torch.nn.Module] = []
        n_before = 3
        for width, depth in zip(widths, DEPTHS, strict=True):
            for _ in range(depth):
                layers += [torch.nn.Conv2d(n_before, width, 3, padding=1), torch.nn.ReLU()]
                n_before = width
            layers.append(torch.nn.MaxPool2d(2))
        self.features = torch.nn.Sequential(*layers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Turn normalized images, (n, 3, H, W), into features, (n, 512, H / 32, W / 32)."""
        out: torch.Tensor = self.features(x)
        return out


def load(folder: Path, widths: Sequence[int] = WIDTHS) -> VGG16:
    """Load the network with the weights from the npz files in a folder.

    The arrays are named ``conv1_1.weight``, ``conv1_1.bias`` to ``conv5_3.bias``, in float16 or wider.
    """
    arrays: dict[str, NDArray[np.floating]] = {}
    for path in sorted(folder.glob("*.npz")):
        with np.load(path, allow_pickle=False) as part:
            arrays.update(part)
    if not arrays:
        raise FileNotFoundError(f"no npz files with the weights of VGG-16 in {folder}")
    names = {
        f"{theirs}.{kind}": f"{ours}.{kind}" for theirs, ours in _layers() for kind in ("weight", "bias")
    }
    return _filled(
        {names.get(name, name): torch.from_numpy(array.astype(np.float32)) for name, array in arrays.items()},
        widths,
    )


def load_torchvision(path: Path, widths: Sequence[int] = WIDTHS) -> VGG16:
    """Load the network from a saved state dict of torchvision's vgg16; its classifier is ignored."""
    state = torch.load(path, map_location="cpu", weights_only=True)
    return _filled(
        {name: value.float() for name, value in state.items() if name.startswith("features.")}, widths
    )


def _layers() -> list[tuple[str, str]]:
    """Return two names for each convolution, one with its block and position, one with its layer number."""
    found, number = [], 0
    for block, depth in enumerate(DEPTHS, start=1):
        for place in range(1, depth + 1):
            found.append((f"conv{block}_{place}", f"features.{number}"))
            number += 2  # the convolution and its ReLU
        number += 1  # the pooling
    return found


def _filled(state: Mapping[str, torch.Tensor], widths: Sequence[int]) -> VGG16:
    with torch.device("meta"):  # draws no random weights, which would be replaced anyway
        model = VGG16(widths)
    model.load_state_dict(state, assign=True)
    return model.eval()


def read_image(path: Path, size: int, left: int | None = None) -> NDArray[np.float32]:
    """Read an image file as an array of shape (3, size, size) from 0 to 1.

    The image is stretched to a square or, with ``left``, cut to a square that begins at this column.
    """
    with Image.open(path) as image:
        part = (0, 0, *image.size) if left is None else (left, 0, left + image.height, image.height)
        square = image.convert("RGB").crop(part).resize((size, size), Image.Resampling.BICUBIC)
    pixels: NDArray[np.float32] = read_images(square, "vgg16")[0]
    return pixels
