"""The rows of Table I on images: ``python -m benchmarks.table1 --deep --data DIR``.

Features are the mean over all places of what block 5 of VGG-16 gives. Explained are the 256 feature maps that
block 3 gives, and a missing map is 0. The images are others than the paper's, and so is the encoder of SCAN.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from torch import Tensor, nn

import whycluster as wc
from benchmarks.measure import write
from examples import vgg16
from whycluster.evaluation.flipping import Flipping, standard_error
from whycluster.models.network import Network

Array = NDArray[Any]
WIDTHS = vgg16.WIDTHS
SIZE = 64  # pixels of a side, from 32: two by two places at block 5
IMAGES = 96  # that are explained, out of all that are clustered
STEP = 32  # maps that are added at once
GAMMAS = (0.25, 0.5, 1.0)  # beside the paper's
GAMMA = 0.1
FINE = 8  # images for which maps are also added one by one
BATCH = 32
IG_STEPS = 10

# Method: the paper's column
COLUMNS = {
    "random": "random",
    "squares": "x^2",
    "pda": "PDA_0",
    "squared gradient": "(grad f)^2",
    "ig-10": "IG-10",
    "neon": "NEON",
}
RIVALS = ["random", "squares", "squared gradient", "ig-10"]
ZERO, ZERO_JOINT = "neon, zero", "neon, zero, joint"
OURS = [ZERO, "neon joint", ZERO_JOINT, "contrast", "gradient x input", "pda of f"]


@dataclass(frozen=True)
class Row:
    """A row of the table: the model, and the paper's figures in the order of `COLUMNS`."""

    n_clusters: int
    kind: str
    paper: tuple[float, ...]

    @property
    def name(self) -> str:
        """As in the paper, but for the encoder: it is VGG-s in all of them."""
        return f"{'VGG-s' if self.kind == 'kmeans' else 'VGG-s / SCAN'}, K = {self.n_clusters}"


ROWS = [
    Row(10, "kmeans", (50.52, 66.66, 75.30, 56.11, 66.99, 77.93)),
    Row(100, "kmeans", (32.42, 53.34, 48.78, 39.47, 41.85, 65.09)),
    Row(10, "scan", (58.66, 68.54, 75.69, 59.40, 70.84, 85.76)),
    Row(100, "scan", (38.72, 49.02, 31.77, 41.73, 25.52, 55.38)),
]


class Upper(nn.Module):
    """The layers above those whose maps are explained, and the mean over all places.

    Parameters
    ----------
    layers : from maps, (n, C, H, W), to features with places, (n, d, h, w)
    """

    def __init__(self, layers: nn.Module) -> None:
        super().__init__()
        self.layers = layers

    def forward(self, maps: Tensor) -> Tensor:
        """(n, C, H, W) to (n, d)."""
        features: Tensor = self.layers(maps).flatten(2).mean(2)
        return features


@dataclass(frozen=True, eq=False)
class Maps:
    """The feature maps of some images, and what is made of them.

    Attributes
    ----------
    values : (n, C, H, W)
    upper : from maps to features, (n, d)
    """

    values: Tensor
    upper: nn.Module

    @property
    def shape(self) -> tuple[int, int]:
        """How many images, and how many maps each."""
        return self.values.shape[0], self.values.shape[1]

    def some(self, n_images: int) -> Maps:
        """The first images only."""
        return Maps(self.values[:n_images], self.upper)

    def features(self, known: NDArray[np.bool_]) -> Array:
        """(n, d), with all maps set to 0 that are not known, (n, C)."""
        parts = []
        with torch.inference_mode():
            for start in range(0, len(known), BATCH):
                rows = slice(start, start + BATCH)
                mask = torch.from_numpy(known[rows]).to(self.values.dtype)
                parts.append(self.upper(self.values[rows] * mask[:, :, None, None]).numpy())
        return np.concatenate(parts)

    def without_each(self) -> Array:
        """The features with one map set to 0, for each of them: (n, C, d)."""
        n_maps = self.shape[1]
        return np.stack(
            [self.features(np.tile(np.arange(n_maps) != i, (self.shape[0], 1))) for i in range(n_maps)], 1
        )


def add(maps: Maps, relevance: Array, step: int = 1) -> Array:
    """The features while maps are added, from the most to the least relevant: (C / step + 1, n, d).

    Parameters
    ----------
    maps : of the images, n of them
    relevance : (n, C) of each map; ties are broken at random
    step : how many maps are added at once; a divisor of C
    """
    order = np.lexsort((np.random.default_rng(0).random(relevance.shape), -relevance), axis=1)
    place = np.argsort(order, axis=1)
    n_images, n_maps = maps.shape
    empty = maps.some(1).features(np.zeros((1, n_maps), dtype=bool))  # all images are alike then
    rest = [maps.features(place < known) for known in range(step, n_maps + 1, step)]
    return np.stack([np.repeat(empty, n_images, axis=0), *rest])


def flip(features: Array, assign: Callable[[Array], Array], cluster: Array) -> Flipping:
    """Algorithm 1: whether images are in their cluster, (n,), with the features that `add` gives."""
    assigned = np.asarray(assign(features.reshape(-1, features.shape[2])))
    return Flipping((assigned.reshape(features.shape[:2]) == cluster).T.astype(float))


@dataclass(frozen=True, eq=False)
class Case:
    """A clustering of the features, and the images that are explained.

    Attributes
    ----------
    maps : of the images
    head : what clusters the features
    network : the same, neuralized
    cluster : (n,) where the images are
    beta : 1 / (mean evidence of all images), Eq. 3
    """

    maps: Maps
    head: Any
    network: Network
    cluster: Array
    beta: float

    @classmethod
    def of(cls, row: Row, features: Array, maps: Maps, chosen: Array) -> Case:
        """Cluster all features; ``chosen`` are the images of the maps."""
        head = fit(row, features)
        network = wc.deep.DeepClustering(maps.upper, head).network.head
        evidence = network.explain(features).evidence
        cluster = np.asarray(network.assign(features[chosen]))
        return cls(maps, head, network, cluster, float(1 / evidence.mean()))

    def neon(self, gamma: float = GAMMA, reference: str = "midpoint", **question: Any) -> Array:
        """What `whycluster.explain` gives for the maps."""
        rules = wc.deep.Gamma(gamma)
        model = wc.deep.DeepClustering(
            self.maps.upper, self.head, reference=reference, rules=rules, batch_size=BATCH
        )
        relevance = wc.explain(
            model, self.maps.values, units="channels", beta=self.beta, **question
        ).relevance
        return np.asarray(relevance)

    def gradients(self, share: float = 1.0) -> Tensor:
        """Of f_c in the maps, (n, C, H, W), at this share of their values."""
        head = self.network.to_torch()
        parts = []
        for start in range(0, len(self.cluster), BATCH):
            rows = slice(start, start + BATCH)
            maps = (share * self.maps.values[rows]).detach().requires_grad_()
            evidence = head(self.maps.upper(maps).double())
            target = torch.as_tensor(self.cluster[rows])[:, None]
            parts.append(torch.autograd.grad(evidence.gather(1, target).sum(), maps)[0])
        return torch.cat(parts)

    def integrated(self) -> Array:
        """From maps of 0 on, at the middle of each of ten parts of the way."""
        total = torch.zeros_like(self.maps.values)
        for i in range(IG_STEPS):
            total += self.gradients((i + 0.5) / IG_STEPS)
        return _summed(total * self.maps.values / IG_STEPS)

    def relevances(self, without_each: Array) -> Iterator[tuple[str, Array]]:
        """Every method that looks at the model, with its relevance, (n, C), one after the other."""
        n_images, n_maps, d = without_each.shape
        left = np.asarray(self.network.evidence(without_each.reshape(-1, d)))
        stays = np.asarray(self.network.assign(without_each.reshape(-1, d))).reshape(n_images, n_maps)
        of_cluster = left.reshape(n_images, n_maps, -1)[np.arange(n_images), :, self.cluster]
        gradients = self.gradients()
        yield "pda", (stays != self.cluster[:, None]).astype(float)
        yield "squared gradient", _summed(gradients.square())
        yield "ig-10", self.integrated()
        yield "neon", self.neon()
        if not isinstance(self.head, nn.Linear):
            yield ZERO, self.neon(reference="zero")
            yield ZERO_JOINT, self.neon(reference="zero", rule="joint")
        yield "neon joint", self.neon(rule="joint")
        yield "contrast", self.neon(rule="contrast")
        yield "gradient x input", _summed(gradients * self.maps.values)
        yield "pda of f", -of_cluster

    def by_gamma(self) -> Iterator[tuple[str, Array]]:
        """NEON with other gammas."""
        for gamma in GAMMAS:
            yield _with(gamma), self.neon(gamma=gamma)


def _with(gamma: float) -> str:
    return f"neon, gamma {gamma:g}"


def _summed(maps: Tensor) -> Array:
    """Over the places of each map."""
    return np.asarray(maps.sum((2, 3)).numpy())


def fit(row: Row, features: Array) -> Any:
    """K-means, or SCAN's head."""
    if row.kind == "kmeans":
        return KMeans(row.n_clusters, n_init=3, random_state=0).fit(features)
    return wc.deep.fit_scan(features, row.n_clusters, neighbors=20, n_init=2)


def read_images(folder: Path) -> NDArray[np.float32]:
    """The images, upsampled and normalised as VGG-16 takes them."""
    with np.load(folder / "cifar10" / "cifar10_subset.npz") as file:
        images = torch.from_numpy(file["images"]).permute(0, 3, 1, 2).float() / 255
    larger = nn.functional.interpolate(images, size=(SIZE, SIZE), mode="bilinear", align_corners=False)
    return wc.deep.normalize(larger.clamp(0, 1).numpy())


def encode(folder: Path) -> tuple[Array, Maps, Array]:
    """The features of all images, (N, d), the maps of those that are explained, and which these are."""
    images = torch.from_numpy(read_images(folder))
    layers = vgg16.load(folder / "vgg16", WIDTHS).features
    layers.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # torch has no type for it
    at = int(vgg16.BLOCKS[3].partition(".")[2]) + 1
    lower, upper = layers[:at], Upper(layers[at:]).eval()
    chosen = np.sort(np.random.default_rng(0).permutation(len(images))[:IMAGES])
    features, maps = [], []
    with torch.no_grad():
        for start in range(0, len(images), BATCH):
            below = lower(images[start : start + BATCH].contiguous(memory_format=torch.channels_last))
            features.append(upper(below).numpy())
            maps.append(below[chosen[(chosen >= start) & (chosen < start + BATCH)] - start])
    return np.concatenate(features), Maps(torch.cat(maps), upper), chosen


def of_any_model(maps: Maps) -> dict[str, Array]:
    """What `add` gives for the methods that do not look at the model."""
    orders = {
        "random": np.random.default_rng(1).random(maps.shape),
        "squares": _summed(maps.values.square()),
    }
    return {name: add(maps, relevance, STEP) for name, relevance in orders.items()}


def measured(case: Case, without_each: Array, blind: dict[str, Array]) -> dict[str, Flipping]:
    """The curves of all methods; ``blind`` are those that do not look at the model."""
    found = {}
    for name, features in blind.items():
        found[name] = flip(features, case.network.assign, case.cluster)
    for name, relevance in chain(case.relevances(without_each), case.by_gamma()):
        found[name] = flip(add(case.maps, relevance, STEP), case.network.assign, case.cluster)
        print(f"  {name}: {found[name].auc:.2f} +- {found[name].standard_error:.2f}", flush=True)
    return found


def lines_of(row: Row, found: dict[str, Flipping]) -> list[str]:
    """The paper's figures, ours, and their standard errors over the images."""
    names = [*COLUMNS, *OURS]
    paper = [f"{value:.2f}" for value in row.paper] + [""] * len(OURS)
    best = max((name for name in COLUMNS), key=lambda name: found[name].auc)
    ours = [f"{found[name].auc:.2f}" if name in found else "" for name in names]
    ours[names.index(best)] = f"**{found[best].auc:.2f}**"
    errors = [f"{found[name].standard_error:.2f}" if name in found else "" for name in names]
    return [
        f"| {row.name} | paper | {' | '.join(paper)} |",
        f"| | ours | {' | '.join(ours)} |",
        f"| | +- | {' | '.join(errors)} |",
    ]


def verdict(row: Row, found: dict[str, Flipping]) -> str:
    """How NEON stands against the best of random, squares, gradient and IG, here and in the paper."""
    paper = dict(zip(COLUMNS, row.paper, strict=True))
    rival = max(RIVALS, key=lambda name: found[name].auc)
    there = paper["neon"] - max(paper[name] for name in RIVALS)
    cells = [row.name, f"{there:+.2f}", COLUMNS[rival]]
    joint = ZERO_JOINT if ZERO_JOINT in found else "neon joint"  # a linear head is measured from 0 as it is
    ours = ("neon", ZERO, joint)
    cells += [_gap(found[name], found[rival]) if name in found else "the same" for name in ours]
    return f"| {' | '.join(cells)} |"


def _gap(one: Flipping, other: Flipping) -> str:
    gap = one.per_row - other.per_row
    return f"{gap.mean():+.2f} +- {standard_error(gap):.2f}"


def gamma_line(row: Row, found: dict[str, Flipping]) -> str:
    """NEON by gamma."""
    rival = max(RIVALS, key=lambda name: found[name].auc)
    cells = " | ".join(f"{found[name].auc:.2f}" for name in ("neon", *map(_with, GAMMAS), rival))
    return f"| {row.name} | {cells} ({COLUMNS[rival]}) |"


def step_note(row: Row, case: Case) -> str:
    """What it changes that several maps are added at once, on a few images."""
    few, relevance, cluster = case.maps.some(FINE), case.neon()[:FINE], case.cluster[:FINE]
    coarse, fine = (flip(add(few, relevance, step), case.network.assign, cluster).auc for step in (STEP, 1))
    return (
        f"Maps are added {STEP} at a time. On {FINE} images of {row.name}, NEON has {coarse:.2f} this way "
        f"and {fine:.2f} one by one."
    )


def start_note(row: Row, case: Case) -> str:
    """How many images need no map at all."""
    nothing = case.maps.some(1).features(np.zeros((1, case.maps.shape[1]), dtype=bool))
    share = np.mean(case.cluster == case.network.assign(nothing))
    return f"{row.name}: without any map, {share:.0%} of the images are in their cluster."


def main(folder: Path) -> None:
    """Into results/table1_deep.md."""
    features, maps, chosen = encode(folder)
    without_each, blind = maps.without_each(), of_any_model(maps)
    head = ["model", "", *COLUMNS.values(), *OURS]
    table = [f"| {' | '.join(head)} |", "|---|---|" + "---:|" * (len(head) - 2)]
    verdicts = [
        "| model | paper: NEON minus best | best here | NEON minus it | from zero | from zero, joint |",
        "|---|---:|---|---:|---:|---:|",
    ]
    gammas = [
        f"| model | {' | '.join(f'{gamma:g}' for gamma in (GAMMA, *GAMMAS))} | best rival |",
        "|---|" + "---:|" * (len(GAMMAS) + 2),
    ]
    notes = []
    for row in ROWS:
        print(row.name, flush=True)
        case = Case.of(row, features, maps, chosen)
        found = measured(case, without_each, blind)
        table += lines_of(row, found)
        verdicts.append(verdict(row, found))
        gammas.append(gamma_line(row, found))
        notes.append(start_note(row, case))
        if row is ROWS[0]:
            notes.append(step_note(row, case))
        print("\n".join([*table[-3:], verdicts[-1], gammas[-1], *notes[-2:]]), flush=True)
    parts = [table, [_RIVALS, "", *verdicts], [_GAMMAS, "", *gammas], [f"- {note}" for note in notes]]
    lines = [line for part in parts for line in ("", *part)]
    write(
        "table1_deep",
        "python -m benchmarks.table1 --deep --data DIR",
        [*_introduction(len(features), len(chosen)), *lines],
    )


def _introduction(n_clustered: int, n_explained: int) -> list[str]:
    return [
        "# The deep rows of Table I, beside ours",
        "",
        "AUC of Algorithm 1 in the 256 feature maps that block 3 of VGG-16 gives; a missing map is 0. "
        "Clustered is the mean over all places of what block 5 gives.",
        "",
        "**The images are not the paper's, nor is the encoder of its SCAN rows.** The paper has 5,000 "
        "images of STL-10. Of these, 256 could be had, too few for so many clusters. Here "
        f"{n_clustered:,} images of CIFAR-10 are clustered, upsampled from 32 to {SIZE} pixels, and "
        f"{n_explained} of them, chosen at random, are explained. The paper's SCAN rows have a VGG-16 "
        "that was trained without labels (VGG-u); here SCAN's head is trained on the same features as "
        "k-means, of a VGG-16 that was trained on ImageNet (VGG-s). So levels differ. K = 1000 is left "
        "out: there would be two images to a cluster.",
        "",
        "NEON is `wc.explain(DeepClustering(vgg, head, pool='mean', rules=Gamma(0.1)), X, "
        "at='features.16', units='channels')`, with beta = 1 / (mean evidence of all images). *neon, "
        "zero* is the same for k-means with reference='zero': clusters and evidence are the same, but what "
        "a feature brings is measured from 0, not from the middle between two centroids; linear heads are "
        "measured so as they are. *joint* is the rule of that name. *pda* asks whether the image leaves its "
        "cluster, *pda of f* how much evidence is lost. Squares, gradients and products with them are added "
        "up over the places of a map. Bold: the best of the paper's methods. +-: standard errors over the "
        "images.",
    ]


_RIVALS = "NEON against the best of random, x^2, the squared gradient and IG-10:"
_GAMMAS = "NEON with other gammas in the convolutions; the paper has 0.1:"
