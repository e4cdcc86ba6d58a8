"""Do clusters of positions find the segments of an image? ``python -m benchmarks.segments --data DIR``.

The paper's last showcase, with images of BSDS500 instead of PASCAL VOC 2007. It matches heat maps of K = 4
clusters at each block of VGG-16, and heat maps of other methods, with segments that people drew.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from scipy.ndimage import gaussian_filter
from sklearn.utils.parallel import Parallel, delayed

import whycluster as wc
from benchmarks import draw, summaries
from benchmarks.datasets import data_folder
from benchmarks.matching import match
from benchmarks.measure import write
from benchmarks.summaries import activation_thresholds
from examples import vgg16

Array = NDArray[Any]
Thresholds = dict[float, Array]
Scores = dict[str, list[tuple[float, float]]]  # per method and image: coarsest map, mean over all maps

SIZE = 224
N_MAPS = 4
OWN, BEST = 0.995, 0.9
"""Quantiles for NetDissect: the original one, and the best one of 0.995, 0.95, 0.9 and 0.8 for NetDissect2 at
block 5 on five of the images."""
ACTIVE = ["FM", "LO"]
DISSECTED = {tau: [f"NetDissect1, {tau}", f"NetDissect2, {tau}"] for tau in (OWN, BEST)}
PAPER = ["NEON", *ACTIVE, *DISSECTED[OWN], *DISSECTED[BEST]]
OURS = ["NEON, smoothed", "clusters", "whole image", "random"]
METHODS = [*PAPER, *OURS]
N_JOBS = 2  # images in parallel, with one thread each
ENDS = {block: int(name.removeprefix("features.")) + 1 for block, name in vgg16.BLOCKS.items()}
COMMAND = "python -m benchmarks.segments --data DIR"


@dataclass(frozen=True)
class Picture:
    """An image, (3, H, W) from 0 to 1, and its hand-drawn maps of segments, (H, W), the coarsest first."""

    image: NDArray[np.float32]
    segments: list[Array]


def read_pictures(folder: Path, size: int = SIZE) -> list[Picture]:
    """Read the images of BSDS500, stretched to squares, and their maps of segments."""
    drawn: dict[str, list[Array]] = {}
    with np.load(folder / "segmentations.npz", allow_pickle=False) as maps:
        for name in sorted(maps.files):
            square = Image.fromarray(maps[name]).resize((size, size), Image.Resampling.NEAREST)
            drawn.setdefault(name.partition("_")[0], []).append(np.asarray(square))
    return [
        Picture(
            vgg16.read_image(folder / "images" / f"{name}.jpg", size),
            sorted(segments, key=lambda labels: len(np.unique(labels))),
        )
        for name, segments in sorted(drawn.items())
    ]


def blocks_of(encoder: vgg16.VGG16) -> dict[int, torch.nn.Module]:
    """Return the network up to the end of each block."""
    return {block: encoder.features[:end] for block, end in ENDS.items()}


def thresholds_of(encoder: vgg16.VGG16, pictures: Sequence[Picture]) -> dict[int, Thresholds]:
    """Return the thresholds of NetDissect at each block, over all images."""
    X = torch.from_numpy(np.concatenate([wc.deep.normalize(picture.image) for picture in pictures]))
    found, begin = {}, 0
    for block, end in ENDS.items():  # each block continues from the one before
        with torch.no_grad():
            X = torch.cat([encoder.features[begin:end](X[i : i + 4]) for i in range(0, len(X), 4)])
        identity = torch.nn.Identity()
        found[block] = {tau: activation_thresholds(identity, X, None, quantile=tau) for tau in DISSECTED}
        begin = end
    return found


def heatmaps_of(
    encoder: torch.nn.Module, image: NDArray[np.float32], thresholds: Thresholds, seed: int
) -> dict[str, Array]:
    """Return the heat maps of each method, (K, H, W)."""
    x = wc.deep.normalize(image)[0]
    found = wc.deep.spatial_clusters(
        encoder, x, None, N_MAPS, reference="midpoint", rules="vgg", rule="min-take-most"
    )
    stride = x.shape[-1] // found.cluster.shape[-1]
    inside = np.stack([found.cluster[0] == label for label in found.labels])
    dissected = {}
    for tau, limits in thresholds.items():
        dissected[f"NetDissect1, {tau}"] = summaries.netdissect1(encoder, x, None, limits, N_MAPS)
        dissected[f"NetDissect2, {tau}"] = summaries.netdissect2(encoder, x, None, limits, N_MAPS, n_init=1)
    return {
        "NEON": found[0],
        "FM": summaries.feature_maps(encoder, x, None, N_MAPS, rules="vgg"),
        "LO": summaries.locations(encoder, x, None, N_MAPS, rules="vgg"),
        "NEON, smoothed": np.stack([gaussian_filter(heat, stride) for heat in found[0]]),
        "clusters": np.kron(inside, np.ones((stride, stride))),
        "whole image": np.ones((N_MAPS, *x.shape[1:])),
        "random": np.random.default_rng(seed).uniform(size=(N_MAPS, *x.shape[1:])),
        **dissected,
    }


def scores_of(
    blocks: Mapping[int, torch.nn.Module], picture: Picture, thresholds: Mapping[int, Thresholds], seed: int
) -> dict[int, dict[str, tuple[float, float]]]:
    """Return the scores of one image for each block and method."""
    torch.set_num_threads(1)
    found: dict[int, dict[str, tuple[float, float]]] = {}
    for block, encoder in blocks.items():
        found[block] = {}
        for name, heatmaps in heatmaps_of(encoder, picture.image, thresholds[block], seed).items():
            scores = [match(heatmaps, labels).score for labels in picture.segments]
            found[block][name] = (scores[0], float(np.mean(scores)))
    return found


def measured(encoder: vgg16.VGG16, pictures: Sequence[Picture]) -> Iterator[dict[int, Scores]]:
    """Yield the scores of all images so far, after each image."""
    blocks, thresholds = blocks_of(encoder), thresholds_of(encoder, pictures)
    found: dict[int, Scores] = {block: {name: [] for name in METHODS} for block in blocks}
    work = Parallel(n_jobs=N_JOBS, return_as="generator")
    for one in work(delayed(scores_of)(blocks, p, thresholds, i) for i, p in enumerate(pictures)):
        for block, scores in one.items():
            for name, value in scores.items():
                found[block][name].append(value)
        yield found


def mean_and_error(values: Array) -> tuple[float, float]:
    """Return the mean and its standard error."""
    return float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values)))


def table_of(found: Mapping[int, Scores], column: int) -> list[str]:
    """Return a table of mean scores and standard errors, with the best of the paper's methods in bold."""
    lines = [f"| method | {' | '.join(f'block {block}' for block in found)} |"]
    lines.append("|---|" + "---:|" * len(found))
    for name in METHODS:
        cells = []
        for scores in found.values():
            mean, error = mean_and_error(np.array(scores[name])[:, column])
            cell = f"{mean:.3f} +- {error:.3f}"
            cells.append(f"**{cell}**" if name == _best(scores, PAPER, column) else cell)
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


def verdicts(found: Mapping[int, Scores], column: int) -> list[str]:
    """Compare NEON with the best of the paper's other methods, image by image, for each quantile."""
    lines = ["| quantile | block | best competitor | NEON minus competitor | NEON is better in | NEON is |"]
    lines.append("|---|---|---|---:|---:|---|")
    for tau in DISSECTED:
        for block, scores in found.items():
            best, gaps = _gaps(scores, tau, column)
            gap, error = mean_and_error(gaps)
            share = f"{(gaps > 0).sum()} of {len(gaps)} images"
            cells = f"{gap:+.3f} +- {error:.3f} | {share} | {_verdict(gap, error)}"
            lines.append(f"| {tau} | {block} | {best} | {cells} |")
    return lines


def compared_with_paper(found: Mapping[int, Scores], column: int) -> list[str]:
    """Return sentences that compare the result with the paper's."""
    lines = [
        "In the paper, NEON is the best method at all blocks except the last one, where NetDissect2 is best.",
        "NEON's scores in the paper are highest at the lower blocks.",
        "In our results, NEON compares with the best of the paper's other methods as follows:",
        "",
    ]
    for tau, title in ((OWN, "NetDissect's own quantile"), (BEST, "the best quantile for NetDissect2")):
        verdicts: dict[str, list[int]] = {}
        for block, scores in found.items():
            verdict = _verdict(*mean_and_error(_gaps(scores, tau, column)[1]))
            verdicts.setdefault(verdict, []).append(block)
        text = "; ".join(f"{verdict} at {_blocks(blocks)}" for verdict, blocks in verdicts.items())
        lines.append(f"- With {title}, {tau}, NEON is {text}.")
    lines += [
        "",
        '"Level" means that the difference is at most two standard errors.',
        "The *whole image* method uses a heat map of ones. Compared with this method:",
        "",
    ]
    for name in ("NEON", "NEON, smoothed", DISSECTED[BEST][1]):
        above = [
            block for block, scores in found.items() if _best(scores, [name, "whole image"], column) == name
        ]
        where = f"is better at {_blocks(above)}" if above else "is not better at any block"
        lines.append(f"- *{name}* {where}.")
    return lines


def _gaps(scores: Scores, tau: float, column: int) -> tuple[str, Array]:
    """Return the best other method, and NEON's score minus its score for each image."""
    best = _best(scores, [*ACTIVE, *DISSECTED[tau]], column)
    return best, (np.array(scores["NEON"]) - np.array(scores[best]))[:, column]


def _blocks(numbers: Sequence[int]) -> str:
    *most, last = map(str, numbers)
    return f"blocks {', '.join(most)} and {last}" if most else f"block {last}"


def _verdict(gap: float, error: float) -> str:
    return "level" if abs(gap) <= 2 * error else "first" if gap > 0 else "behind"


def _best(scores: Scores, names: Sequence[str], column: int) -> str:
    return max(names, key=lambda name: float(np.array(scores[name])[:, column].mean()))


def plot(found: Mapping[int, Scores]) -> None:
    """Draw the score of each method at each block, into results/segments.png."""
    figure, axes = draw.panels(1, 2, sharey=True)
    figure.set_size_inches(7.0, 4.8)  # room for the legend
    style = draw.styles(METHODS)
    for column, title in enumerate(("the coarsest map of each image", "mean over all its maps")):
        axis = axes[0, column]
        for name in reversed(METHODS):
            points = [mean_and_error(np.array(scores[name])[:, column]) for scores in found.values()]
            means, errors = zip(*points, strict=True)
            axis.errorbar(list(found), means, errors, **style[name])
        axis.set_title(title, fontsize=9)
        axis.set_xlabel("block")
        axis.set_xticks(list(found))
    axes[0, 0].set_ylabel("score S")
    draw.save(figure, "segments", axes[0, 0], 3)


def report(found: Mapping[int, Scores], pictures: Sequence[Picture]) -> None:
    """Write results/segments.md and segments.png."""
    done = pictures[: len(next(iter(found.values()))["NEON"])]
    counts = [len(np.unique(picture.segments[0])) for picture in done]
    part = "" if len(done) == len(pictures) else f" so far, out of {len(pictures)}"
    counted = (
        f"We use {len(done)} images{part}. Their coarsest segmentations have {min(counts)} to {max(counts)} "
        "segments"
    )
    plot(found)
    lines = [
        *_INTRODUCTION,
        f"{counted} (mean {np.mean(counts):.1f}).",
        "",
        "![Score S of each method at each block of VGG-16](segments.png)",
        "",
        "## The coarsest segmentation of each image",
        "",
        *table_of(found, 0),
        "",
        *verdicts(found, 0),
        "",
        *compared_with_paper(found, 0),
        "",
        "## Mean over all segmentations of each image",
        "",
        *table_of(found, 1),
        "",
        *verdicts(found, 1),
        "",
        *_NOTES,
    ]
    write("segments", COMMAND, lines)


def main() -> None:
    """Measure, and update the page after every few images."""
    folder = data_folder(__doc__)
    missing = [name for name in ("bsds500", "vgg16") if not (folder / name).is_dir()]
    if missing:
        names = " and ".join(missing)
        raise SystemExit(f"benchmarks.segments: {folder} must contain {names}. Pass their folder as --data.")
    pictures = read_pictures(folder / "bsds500")
    encoder = vgg16.load(folder / "vgg16")
    for number, found in enumerate(measured(encoder, pictures), start=1):
        if number % 4 == 0 or number == len(pictures):
            report(found, pictures)


_INTRODUCTION = [
    "# Heat maps of clusters compared with image segments",
    "",
    "The tables show the score S from the last showcase in the paper.",
    "The heat maps for each block of VGG-16 are paired with segments by a matching that maximizes the sum of "
    "their cosine similarities, and S is the mean cosine similarity of the pairs.",
    "S is averaged over the images and shown with its standard error.",
    f"There are {N_MAPS} clusters, and each image has {SIZE} x {SIZE} pixels.",
    "NEON, FM and LO use the paper's LRP rules.",
    "The result of the best of the paper's methods is in bold.",
    "",
    "**The images are not those used in the paper.**",
    "The paper uses PASCAL VOC 2007, which was not available.",
    "We use images from BSDS500 instead.",
    "In BSDS500, several people divided each image into segments, each choosing how finely to divide it.",
    "The segments in the coarsest segmentation are closest to whole objects. We also report the mean over "
    "all segmentations of an image.",
    "The ranking of the methods can be compared with the paper's, but the scores cannot.",
    "",
]

_NOTES = [
    "- NEON scales the activations at each position of a block to unit length and clusters the positions "
    "with k-means.",
    "  It computes a signed heat map for each cluster.",
    "- FM uses the most active channels, and LO uses the most active positions.",
    "  Both methods use the same LRP rules as NEON to propagate these activations to the pixels.",
    "- NetDissect1 uses the thresholded activation maps with the largest areas, and NetDissect2 uses the "
    "centroids of all thresholded activation maps.",
    "  The original thresholds were computed on the Broden data, which were not available.",
    "  Our thresholds are quantiles of each channel's activations across all images; the number after the "
    "name is the quantile.",
    "  Network Dissection itself uses the 0.995 quantile.",
    "  The 0.9 quantile was the best one for NetDissect2 at block 5 on five of these images.",
    "  The other methods, and NetDissect in the paper, were not tuned in this way.",
    "- The last four methods are not from the paper.",
    "  *NEON, smoothed* uses the same heat maps as NEON, blurred by a Gaussian whose width is the distance "
    "between the block's positions.",
    "  The *clusters* method uses the positions in each cluster, without LRP.",
    "  The *whole image* method uses a heat map of ones, and the *random* method uses uniform noise from 0 "
    "to 1.",
    "  These two methods ignore the image.",
    "  Cosine similarity with segment masks rewards evenly spread heat maps, whereas LRP heat maps "
    "concentrate on edges.",
]


if __name__ == "__main__":
    main()
