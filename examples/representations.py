"""What does each block of VGG-16 tell apart in an image? ``python -m examples.representations --data DIR``.

Section VI-B of the paper: every place of a block's output is a point of unit length, k-means makes eight
clusters of them, and the evidence for each cluster is propagated to the pixels, at 448 x 448. The images are
an artificial spiral and a square of a painting by C. M. Coolidge, "A Friend in Need" (1903). The paper has
"Poker Game" (1894) of the same series, so that its clusters are not these.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

import whycluster as wc
from examples import vgg16
from examples.spiral import spiral

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SIZE = 448
N_CLUSTERS = 8
POOL = 4  # pixels a side that are one in the picture: relevance lies on lines that are finer than one can see
SHADE = 0.2  # how much of the image is seen through its heat maps
PAINTING = Path("art") / "coolidge_a_friend_in_need_1903_crop.jpg"
LEFT = 275  # where the square begins in it, of which the file has a wide strip: two dogs and half the table
SHOWN = {"spiral": (3, 4), "coolidge": (3, 5)}  # blocks of each image, as in the paper


@dataclass(frozen=True)
class Clusters:
    """The clusters of one block, the greatest first.

    Attributes
    ----------
    block : from 1 to 5
    heatmaps : (K, H, W) relevance of the pixels
    shares : (K,) the part of all places that is in each cluster
    lost : the part of the evidence that did not reach the pixels
    """

    block: int
    heatmaps: NDArray[np.floating]
    shares: NDArray[np.floating]
    lost: float


def read_painting(path: Path, size: int = SIZE) -> NDArray[np.float32]:
    """A square of the painting, (3, size, size) from 0 to 1; stretching the strip would make other dogs."""
    return vgg16.read_image(path, size, LEFT)


def clusters_of(
    encoder: torch.nn.Module, image: NDArray[np.float32], block: int, n_clusters: int = N_CLUSTERS
) -> Clusters:
    """Clusters of the places of a block's output, in an image from 0 to 1 of shape (3, H, W)."""
    X = wc.deep.normalize(image)
    found = wc.deep.spatial_clusters(encoder, X, vgg16.BLOCKS[block], n_clusters, rules="vgg")
    shares = np.array([(found.cluster == label).mean() for label in found.labels])
    order = np.argsort(-shares, kind="stable")
    lost = float(found.residual.sum() / found.evidence.sum())
    return Clusters(block, found[0][order], shares[order], lost)


def draw(image: NDArray[np.float32], blocks: list[Clusters]) -> Figure:
    """A row for each block: the image, then a heat map for each cluster, with a shade of the image."""
    figure = wc.plots.draw_grid(
        [one.heatmaps for one in blocks],
        images=[image] * len(blocks),
        names=[f"block {one.block}" for one in blocks],
        pool=POOL,
    )
    places = np.reshape(np.array(figure.axes), (len(blocks), -1))
    for row, one in zip(places, blocks, strict=True):
        for place, share in zip(row[1:], one.shares, strict=True):
            place.set_title(f"{100 * share:.0f} % of places", fontsize=7, pad=2)
            extent = place.images[0].get_extent()
            place.imshow(image.mean(axis=0), cmap="gray", alpha=SHADE, extent=extent, vmin=0, vmax=1)
    return figure


def main() -> None:
    """Write a picture for each image."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="the folder with art and vgg16")
    parser.add_argument("--weights", type=Path, help="torchvision's state dict, in place of vgg16")
    parser.add_argument("--out", type=Path, default=Path(), help="the folder for the pictures")
    arguments = parser.parse_args()
    if not (arguments.data / PAINTING).is_file():
        raise SystemExit(f"{PAINTING} not in {arguments.data}; say where with --data")
    if arguments.weights is not None:
        encoder = vgg16.load_torchvision(arguments.weights)
    else:
        encoder = vgg16.load(arguments.data / "vgg16")
    images = {
        "spiral": spiral(SIZE),
        "coolidge": read_painting(arguments.data / PAINTING),
    }
    arguments.out.mkdir(parents=True, exist_ok=True)
    for name, blocks in SHOWN.items():
        found = [clusters_of(encoder, images[name], block) for block in blocks]
        for one in found:
            shares = ", ".join(f"{100 * share:.0f} %" for share in one.shares)
            print(
                f"{name}, block {one.block}: clusters of {shares} of the places; lost {100 * one.lost:.2g} %"
            )
        path = arguments.out / f"{name}.png"
        draw(images[name], found).savefig(path, dpi=160)
        print(f"Written to {path}")


if __name__ == "__main__":
    main()
