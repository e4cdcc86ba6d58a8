"""What does each block of VGG-16 distinguish in an image? ``python -m examples.representations --data DIR``.

As in Section VI-B of the paper, every location of a block's output is a point of unit length. k-means groups
the points into eight clusters, and the evidence for each cluster is propagated to the pixels, at 448 x 448.
The images are an artificial spiral and a square part of a painting by C. M. Coolidge, "A Friend in Need"
(1903). The paper uses "Poker Game" (1894) from the same series, so its clusters differ.
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
POOL = 4  # pixels per side that become one in the picture, since relevance is on lines too fine to see
SHADE = 0.2  # the opacity of the image over its heat maps
PAINTING = Path("art") / "coolidge_a_friend_in_need_1903_crop.jpg"
LEFT = 275  # the first column of the square in the wide file; it shows two dogs and half the table
SHOWN = {"spiral": (3, 4), "coolidge": (3, 5)}  # the blocks for each image, as in the paper


@dataclass(frozen=True)
class Clusters:
    """The clusters of one block, the largest first.

    Attributes
    ----------
    block : the number of the block, from 1 to 5
    heatmaps : (K, H, W) the relevance of the pixels
    shares : (K,) the share of all locations in each cluster
    lost : the share of the evidence that did not reach the pixels
    """

    block: int
    heatmaps: NDArray[np.floating]
    shares: NDArray[np.floating]
    lost: float


def read_painting(path: Path, size: int = SIZE) -> NDArray[np.float32]:
    """Read a square of the painting, (3, size, size) from 0 to 1, without stretching the wide image."""
    return vgg16.read_image(path, size, LEFT)


def clusters_of(
    encoder: torch.nn.Module, image: NDArray[np.float32], block: int, n_clusters: int = N_CLUSTERS
) -> Clusters:
    """Cluster the locations of a block's output for an image of shape (3, H, W) from 0 to 1."""
    X = wc.deep.normalize(image)
    found = wc.deep.spatial_clusters(
        encoder,
        X,
        vgg16.BLOCKS[block],
        n_clusters,
        reference="midpoint",
        rules="vgg",
        rule="min-take-most",  # with the reference, as in the paper
    )
    shares = np.array([(found.cluster == label).mean() for label in found.labels])
    order = np.argsort(-shares, kind="stable")
    lost = float(found.residual.sum() / found.evidence.sum())
    return Clusters(block, found[0][order], shares[order], lost)


def draw(image: NDArray[np.float32], blocks: list[Clusters]) -> Figure:
    """Draw a row for each block: the image, then a heat map for each cluster, with a faint image over it."""
    figure = wc.plots.draw_grid(
        [one.heatmaps for one in blocks],
        images=[image] * len(blocks),
        names=[f"block {one.block}" for one in blocks],
        pool=POOL,
    )
    panels = np.reshape(np.array(figure.axes), (len(blocks), -1))
    for row, one in zip(panels, blocks, strict=True):
        for panel, share in zip(row[1:], one.shares, strict=True):
            panel.set_title(f"{100 * share:.0f} % of locations", fontsize=7, pad=2)
            extent = panel.images[0].get_extent()
            panel.imshow(image.mean(axis=0), cmap="gray", alpha=SHADE, extent=extent, vmin=0, vmax=1)
    return figure


def main() -> None:
    """Write a picture for each image."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="the folder with art and vgg16")
    parser.add_argument("--weights", type=Path, help="torchvision's state dict, instead of the folder vgg16")
    parser.add_argument("--out", type=Path, default=Path(), help="the folder for the pictures")
    arguments = parser.parse_args()
    if not (arguments.data / PAINTING).is_file():
        raise SystemExit(
            f"examples.representations: {arguments.data} must contain {PAINTING}. Pass its folder as --data."
        )
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
                f"{name}, block {one.block}: the clusters have {shares} of the locations; "
                f"{100 * one.lost:.2g} % of the evidence is lost"
            )
        path = arguments.out / f"{name}.png"
        draw(images[name], found).savefig(path, dpi=160)
        print(f"Written to {path}")


if __name__ == "__main__":
    main()
