"""Reproduce the rows of Table I for images: ``python -m benchmarks.table1 --deep --data DIR``.

The clustered features are the outputs of block 5 of VGG-16, averaged over all locations. They are explained
by the 256 feature maps of block 3; a missing map is 0. The images and the encoder of SCAN differ from the
paper's.
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
SIZE = 64  # pixels per side, upsampled from 32; this gives two by two locations at block 5
IMAGES = 96  # the number of images to explain; all images are clustered
STEP = 32  # the number of maps to add at once
GAMMAS = (0.25, 0.5, 1.0)  # in addition to the paper's
GAMMA = 0.1
FINE = 8  # images for which maps are also added one by one
BATCH = 32
IG_STEPS = 10

# The paper's column for each method
COLUMNS = {
    "random": "random",
    "squares": "x^2",
    "pda": "PDA_0",
    "squared gradient": "(grad f)^2",
    "ig-10": "IG-10",
    "neon": "NEON",
}
BASELINES = ["random", "squares", "squared gradient", "ig-10"]
DEFAULT, ZERO, JOINT = "default", "neon, zero", "neon, joint"
OURS = [DEFAULT, ZERO, JOINT, "contrast", "gradient x input", "pda of f"]


@dataclass(frozen=True)
class Row:
    """A row of the table: the model, and the paper's figures in the order of `COLUMNS`."""

    n_clusters: int
    kind: str
    paper: tuple[float, ...]

    @property
    def name(self) -> str:
        """The name in the paper, except for the encoder, which is VGG-s in all rows."""
        return f"{'VGG-s' if self.kind == 'kmeans' else 'VGG-s / SCAN'}, K = {self.n_clusters}"


ROWS = [
    Row(10, "kmeans", (50.52, 66.66, 75.30, 56.11, 66.99, 77.93)),
    Row(100, "kmeans", (32.42, 53.34, 48.78, 39.47, 41.85, 65.09)),
    Row(10, "scan", (58.66, 68.54, 75.69, 59.40, 70.84, 85.76)),
    Row(100, "scan", (38.72, 49.02, 31.77, 41.73, 25.52, 55.38)),
]


class Upper(nn.Module):
    """The layers after those whose maps are explained, followed by the mean over all locations.

    Parameters
    ----------
    layers : from maps, (n, C, H, W), to features at each location, (n, d, h, w)
    """

    def __init__(self, layers: nn.Module) -> None:
        super().__init__()
        self.layers = layers

    def forward(self, maps: Tensor) -> Tensor:
        """Compute the features, (n, d), from maps, (n, C, H, W)."""
        features: Tensor = self.layers(maps).flatten(2).mean(2)
        return features


@dataclass(frozen=True, eq=False)
class Maps:
    """The feature maps of some images, and the layers that compute features from them.

    Attributes
    ----------
    values : (n, C, H, W)
    upper : from maps to features, (n, d)
    """

    values: Tensor
    upper: nn.Module

    @property
    def shape(self) -> tuple[int, int]:
        """The number of images, and the number of maps of each."""
        return self.values.shape[0], self.values.shape[1]

    def some(self, n_images: int) -> Maps:
        """Return the maps of the first images only."""
        return Maps(self.values[:n_images], self.upper)

    def features(self, known: NDArray[np.bool_]) -> Array:
        """Return the features, (n, d), with all maps set to 0 that are not ``known``, (n, C)."""
        parts = []
        with torch.inference_mode():
            for start in range(0, len(known), BATCH):
                rows = slice(start, start + BATCH)
                mask = torch.from_numpy(known[rows]).to(self.values.dtype)
                parts.append(self.upper(self.values[rows] * mask[:, :, None, None]).numpy())
        return np.concatenate(parts)

    def without_each(self) -> Array:
        """Return the features with one map set to 0, for each map in turn: (n, C, d)."""
        n_maps = self.shape[1]
        return np.stack(
            [self.features(np.tile(np.arange(n_maps) != i, (self.shape[0], 1))) for i in range(n_maps)], 1
        )


def add(maps: Maps, relevance: Array, step: int = 1) -> Array:
    """Return the features while maps are added, the most relevant first: (C / step + 1, n, d).

    Parameters
    ----------
    maps : the maps of n images
    relevance : (n, C) the relevance of each map; ties are broken at random
    step : the number of maps to add at once; a divisor of C
    """
    order = np.lexsort((np.random.default_rng(0).random(relevance.shape), -relevance), axis=1)
    place = np.argsort(order, axis=1)
    n_images, n_maps = maps.shape
    empty = maps.some(1).features(np.zeros((1, n_maps), dtype=bool))  # the same for all images
    rest = [maps.features(place < known) for known in range(step, n_maps + 1, step)]
    return np.stack([np.repeat(empty, n_images, axis=0), *rest])


def flip(features: Array, assign: Callable[[Array], Array], cluster: Array) -> Flipping:
    """Run Algorithm 1: check whether images are in their ``cluster``, (n,), for the features from `add`."""
    assigned = np.asarray(assign(features.reshape(-1, features.shape[2])))
    return Flipping((assigned.reshape(features.shape[:2]) == cluster).T.astype(float))


@dataclass(frozen=True, eq=False)
class Case:
    """A clustering of the features, and the images to explain.

    Attributes
    ----------
    maps : the maps of the images
    head : the model that clusters the features
    network : the same model as a network
    cluster : (n,) the clusters of the images
    beta : 1 / (mean evidence of all images), Eq. 3
    """

    maps: Maps
    head: Any
    network: Network
    cluster: Array
    beta: float

    @classmethod
    def of(cls, row: Row, features: Array, maps: Maps, chosen: Array) -> Case:
        """Cluster all features; ``chosen`` are the positions of the images to explain."""
        head = fit(row, features)
        network = wc.deep.DeepClustering(maps.upper, head).network.head
        evidence = network.explain(features).evidence
        cluster = np.asarray(network.assign(features[chosen]))
        return cls(maps, head, network, cluster, float(1 / evidence.mean()))

    @property
    def is_linear(self) -> bool:
        """Whether the head is linear, so that it always measures features from 0."""
        return isinstance(self.head, nn.Linear)

    def explain(self, gamma: float = GAMMA, reference: str = "auto", **query: Any) -> Any:
        """Explain the maps with `whycluster.explain`, by default with its default rule and reference."""
        rules = wc.deep.Gamma(gamma)
        model = wc.deep.DeepClustering(
            self.maps.upper, self.head, reference=reference, rules=rules, batch_size=BATCH
        )
        return wc.explain(model, self.maps.values, units="channels", beta=self.beta, **query)

    def neon(self, gamma: float = GAMMA, reference: str = "midpoint", rule: str = "min-take-most") -> Array:
        """Return the relevance of the maps, by default with the rule and the reference of the paper."""
        reference = "auto" if self.is_linear else reference  # a linear head has only one reference
        return np.asarray(self.explain(gamma, reference, rule=rule).relevance)

    def gradients(self, share: float = 1.0) -> Tensor:
        """Return the gradients of f_c, (n, C, H, W), at the maps multiplied by ``share``."""
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
        """Return integrated gradients from maps of 0, with ten gradients at the middle of equal steps."""
        total = torch.zeros_like(self.maps.values)
        for i in range(IG_STEPS):
            total += self.gradients((i + 0.5) / IG_STEPS)
        return _summed(total * self.maps.values / IG_STEPS)

    def relevances(self, without_each: Array) -> Iterator[tuple[str, Array]]:
        """Yield the name and the relevance, (n, C), of every method that uses the model."""
        n_images, n_maps, d = without_each.shape
        left = np.asarray(self.network.evidence(without_each.reshape(-1, d)))
        stays = np.asarray(self.network.assign(without_each.reshape(-1, d))).reshape(n_images, n_maps)
        of_cluster = left.reshape(n_images, n_maps, -1)[np.arange(n_images), :, self.cluster]
        gradients = self.gradients()
        yield "pda", (stays != self.cluster[:, None]).astype(float)
        yield "squared gradient", _summed(gradients.square())
        yield "ig-10", self.integrated()
        yield "neon", self.neon()
        yield DEFAULT, np.asarray(self.explain().relevance)
        if not self.is_linear:
            yield ZERO, self.neon(reference="zero")
            yield JOINT, self.neon(rule="joint")
        yield "contrast", self.neon(rule="contrast")
        yield "gradient x input", _summed(gradients * self.maps.values)
        yield "pda of f", -of_cluster

    def by_gamma(self) -> Iterator[tuple[str, Array]]:
        """Yield the relevance by NEON with other gammas."""
        for gamma in GAMMAS:
            yield _with(gamma), self.neon(gamma=gamma)


def _with(gamma: float) -> str:
    return f"neon, gamma {gamma:g}"


def _summed(maps: Tensor) -> Array:
    """Sum over the locations of each map."""
    return np.asarray(maps.sum((2, 3)).numpy())


def fit(row: Row, features: Array) -> Any:
    """Fit k-means or a SCAN head."""
    if row.kind == "kmeans":
        return KMeans(row.n_clusters, n_init=3, random_state=0).fit(features)
    return wc.deep.fit_scan(features, row.n_clusters, neighbors=20, n_init=2)


def read_images(folder: Path) -> NDArray[np.float32]:
    """Read the images, upsampled and normalized for VGG-16."""
    with np.load(folder / "cifar10" / "cifar10_subset.npz") as file:
        images = torch.from_numpy(file["images"]).permute(0, 3, 1, 2).float() / 255
    larger = nn.functional.interpolate(images, size=(SIZE, SIZE), mode="bilinear", align_corners=False)
    return wc.deep.normalize(larger.clamp(0, 1).numpy())


def encode(folder: Path) -> tuple[Array, Maps, Array]:
    """Return the features of all images, (N, d), and the maps and positions of the images to explain."""
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
    """Call `add` for the methods that do not use the model."""
    orders = {
        "random": np.random.default_rng(1).random(maps.shape),
        "squares": _summed(maps.values.square()),
    }
    return {name: add(maps, relevance, STEP) for name, relevance in orders.items()}


def measured(case: Case, without_each: Array, blind: dict[str, Array]) -> dict[str, Flipping]:
    """Return the curves of all methods; ``blind`` has the features of those that do not use the model."""
    found = {}
    for name, features in blind.items():
        found[name] = flip(features, case.network.assign, case.cluster)
    for name, relevance in chain(case.relevances(without_each), case.by_gamma()):
        found[name] = flip(add(case.maps, relevance, STEP), case.network.assign, case.cluster)
        print(f"  {name}: {found[name].auc:.2f} +- {found[name].standard_error:.2f}", flush=True)
    return found


def lines_of(row: Row, found: dict[str, Flipping]) -> list[str]:
    """Return three lines of the table: the paper's figures, ours, and their standard errors."""
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
    """Return a line that compares NEON with the best baseline, here and in the paper."""
    paper = dict(zip(COLUMNS, row.paper, strict=True))
    best = max(BASELINES, key=lambda name: found[name].auc)
    there = paper["neon"] - max(paper[name] for name in BASELINES)
    cells = [row.name, f"{there:+.2f}", COLUMNS[best]]
    ours = ("neon", ZERO, DEFAULT)
    cells += [_gap(found[name], found[best]) if name in found else "as NEON" for name in ours]
    cells.append(_gap(found[DEFAULT], found["neon"]))
    return f"| {' | '.join(cells)} |"


def _gap(one: Flipping, other: Flipping) -> str:
    gap = one.per_row - other.per_row
    return f"{gap.mean():+.2f} +- {standard_error(gap):.2f}"


def gamma_line(row: Row, found: dict[str, Flipping]) -> str:
    """Return a line with the AUC of NEON for each gamma."""
    best = max(BASELINES, key=lambda name: found[name].auc)
    cells = " | ".join(f"{found[name].auc:.2f}" for name in ("neon", *map(_with, GAMMAS), best))
    return f"| {row.name} | {cells} ({COLUMNS[best]}) |"


def step_note(row: Row, case: Case) -> str:
    """Describe the effect of adding several maps at once, on a few images."""
    few, relevance, cluster = case.maps.some(FINE), case.neon()[:FINE], case.cluster[:FINE]
    coarse, fine = (flip(add(few, relevance, step), case.network.assign, cluster).auc for step in (STEP, 1))
    return (
        f"Maps are added {STEP} at a time.\n  On {FINE} images for {row.name}, the AUC of NEON is "
        f"{coarse:.2f} if maps are added in this way and {fine:.2f} if they are added one by one."
    )


def start_note(row: Row, case: Case) -> str:
    """Describe how many images need no map at all."""
    nothing = case.maps.some(1).features(np.zeros((1, case.maps.shape[1]), dtype=bool))
    share = np.mean(case.cluster == case.network.assign(nothing))
    return (
        f"{row.name}: {share:.0%} of the images are assigned to their cluster even if all maps are missing."
    )


def default_note(row: Row, case: Case) -> str:
    """Say which rule and which reference the default is, and why."""
    exp = case.explain()
    return f"{row.name}: the default is the rule {exp.rule} with the reference {exp.reference}, " + (
        f"{exp.reference_reason}."
    )


def main(folder: Path) -> None:
    """Measure everything and write results/table1_deep.md."""
    features, maps, chosen = encode(folder)
    without_each, blind = maps.without_each(), of_any_model(maps)
    head = ["model", "", *COLUMNS.values(), *OURS]
    table = [f"| {' | '.join(head)} |", "|---|---|" + "---:|" * (len(head) - 2)]
    verdicts = [
        "| model | paper: NEON minus best | best here | NEON minus best | neon, zero, minus best "
        "| default minus best | default minus NEON |",
        "|---|---:|---|---:|---:|---:|---:|",
    ]
    gammas = [
        f"| model | {' | '.join(f'{gamma:g}' for gamma in (GAMMA, *GAMMAS))} | best baseline |",
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
        notes += [start_note(row, case), default_note(row, case)]
        if row is ROWS[0]:
            notes.append(step_note(row, case))
        print("\n".join([*table[-3:], verdicts[-1], gammas[-1], *notes[-3:]]), flush=True)
    parts = [table, [_BASELINES, "", *verdicts], [_GAMMAS, "", *gammas], [f"- {note}" for note in notes]]
    lines = [line for part in parts for line in ("", *part)]
    write(
        "table1_deep",
        "python -m benchmarks.table1 --deep --data DIR",
        [*_introduction(len(features), len(chosen)), *lines],
    )


def _introduction(n_clustered: int, n_explained: int) -> list[str]:
    return [
        "# The rows of Table I for images and our results",
        "",
        "The table shows the AUC of Algorithm 1 for the 256 feature maps of block 3 of VGG-16.",
        "A missing map is set to 0.",
        "The clustered features are the outputs of block 5, averaged over all locations.",
        "",
        "**The images are not those used in the paper, and neither is the encoder in the SCAN rows.**",
        "The paper uses 5,000 images from STL-10.",
        "Only 256 of them were available, which is too few for so many clusters.",
        f"We cluster {n_clustered:,} images from CIFAR-10, upsampled from 32 to {SIZE} pixels, and explain "
        f"{n_explained} of them, chosen at random.",
        "The paper's SCAN rows use a VGG-16 that was trained without labels (VGG-u).",
        "Our SCAN head is trained on the same features as k-means, from a VGG-16 that was trained on "
        "ImageNet (VGG-s).",
        "The overall levels of the scores therefore differ from the paper's.",
        "We leave out K = 1000, because there would be only two images per cluster.",
        "",
        "NEON is the paper's method: `wc.explain(DeepClustering(vgg, head, pool='mean', "
        "reference='midpoint', rules=Gamma(0.1)), X, at='features.16', units='channels', "
        "rule='min-take-most')`, with beta = 1 / (mean evidence of all images).",
        "*default* is the same call without `reference` and `rule`; the notes below say what it uses.",
        "*neon, zero* uses `reference='zero'`, and *neon, joint* uses `rule='joint'`; both are otherwise "
        "the same as NEON.",
        "The reference zero leaves the clusters and the evidence unchanged but measures the contribution of "
        "a feature from 0 instead of from the midpoint between two centroids.",
        "The SCAN head is linear, so it always measures contributions from 0.",
        "PDA_0 checks whether the image leaves its cluster, and *pda of f* measures how much evidence is "
        "lost.",
        "For methods that use squares, gradients, or products with gradients, the values are summed over "
        "the locations of each map.",
        "The result of the best of the paper's methods is in bold.",
        "The rows marked +- contain standard errors across the images.",
    ]


_BASELINES = "The next table compares NEON with the best of random, x^2, the squared gradient and IG-10:"
_GAMMAS = (
    "The next table shows the AUC of NEON with other values of gamma in the convolutions. The paper uses 0.1."
)
