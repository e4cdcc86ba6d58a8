"""Measure the cost and the conservation of LRP on VGG-16: ``python -m benchmarks.lrp [--data DIR]``.

The time is compared with that of a forward pass and the gradient for the same images, side by side. Memory is
measured in a separate process for each task. Without data, the weights and the images are random.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from sklearn.cluster import KMeans

import whycluster as wc
from benchmarks.measure import side_by_side, write
from examples.vgg16 import VGG16, load, read_image

SIZE = 224
BATCH = 4
REPEATS = 7
MODES = ("forward and gradient", "lrp", "explain")


def network(data: Path | None) -> VGG16:
    """Return VGG-16 with its ImageNet weights, or with random weights."""
    torch.manual_seed(0)
    found = load(data / "vgg16") if data is not None else VGG16().eval()
    return found.requires_grad_(False)


def images(data: Path | None, n: int) -> torch.Tensor:
    """Return n photographs, or noise."""
    if data is None:
        return torch.randn(n, 3, SIZE, SIZE, generator=torch.Generator().manual_seed(0))
    paths = sorted((data / "bsds500" / "images").glob("*.jpg"))[:n]
    return torch.from_numpy(wc.deep.normalize(np.stack([read_image(path, SIZE) for path in paths])))


def calls(data: Path | None, n: int) -> dict[str, Callable[[], object]]:
    """Return the calls to compare, for n images."""
    module, x = network(data), images(data, n)
    centers = torch.randn(10, 512, generator=torch.Generator().manual_seed(1)).abs()
    model = wc.deep.DeepClustering(module, centers, pool="mean", batch_size=n)

    def gradient() -> object:
        given = x.clone().requires_grad_()
        return torch.autograd.grad(module(given).mean((2, 3)).sum(), given)

    return {
        MODES[0]: gradient,
        MODES[1]: lambda: wc.deep.lrp(module, x, torch.ones_like),
        MODES[2]: lambda: wc.explain(model, x, beta=1.0),
    }


def megabytes(mode: str, n: int) -> float:
    """Return the peak memory of one call in a separate process, without the memory before the call.

    Weights and images are random, since memory does not depend on them.
    """
    command = [sys.executable, "-m", "benchmarks.lrp", "--memory", mode, "--images", str(n)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[-1])


def print_megabytes(mode: str, n: int) -> None:
    """Print the peak memory of one call; `megabytes` runs this in a separate process."""
    call = calls(None, n)[mode]
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak of loading
    before = status("VmRSS")
    call()
    print(status("VmHWM") - before)


def status(name: str) -> float:
    """Return an entry of the status that Linux reports for this process, in MB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name)) / 1024


def conservation(data: Path | None) -> list[float]:
    """Return |sum at the pixels - f_c| / f_c for each image; the network has all its biases."""
    module, x = network(data), images(data, 8)
    head = KMeans(3, n_init=3, random_state=0).fit(wc.deep.features(module, x, pool="mean"))
    model = wc.deep.DeepClustering(module, head, pool="mean", reference="midpoint", batch_size=4)
    exp = wc.explain(model, x)
    return [float(part) for part in np.abs(exp.residual) / exp.evidence]


def main(data: Path | None) -> None:
    """Measure everything and write results/lrp.md."""
    lines = ["# Cost and conservation of LRP", ""]
    lines += [
        f"The network is VGG-16 without its classifier. Images have {SIZE} x {SIZE} pixels, LRP uses the "
        "paper's "
        f"rules, and torch runs on {torch.get_num_threads()} threads.",
        "A call to `explain` consists of a forward pass for the features, a forward pass for the tape, and",
        "the backward pass. A call to `wc.deep.lrp` consists of only the last two passes.",
        "For each convolution, the forward pass of LRP computes one more product than a plain forward pass.",
        "In the backward pass, LRP computes two products, whereas computing the gradient takes only one.",
        "",
    ]
    lines += ["| images | task | seconds | ratio | peak memory, MB | ratio |", "|---|---|---|---|---|---|"]
    for n in (1, BATCH):
        times = side_by_side(calls(data, n), REPEATS)
        memory = {mode: megabytes(mode, n) for mode in MODES}
        for mode in MODES:
            ratios = times[mode] / times[MODES[0]], memory[mode] / memory[MODES[0]]
            lines.append(
                f"| {n} | {mode} | {times[mode]:.2f} | {ratios[0]:.2f} | {memory[mode]:.0f} | "
                f"{ratios[1]:.2f} |"
            )
    kept = conservation(data)
    lines += [
        "",
        "Conservation is measured for k-means with K = 3 on the pooled output of block 5. All biases are "
        "kept.",
        f"On {len(kept)} images, |sum of the relevance of the pixels - f_c| is at most {max(kept):.1e} f_c.",
    ]
    write("lrp", "python -m benchmarks.lrp --data DIR", lines)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="folder of the data sets")
    parser.add_argument("--memory", choices=MODES, help=argparse.SUPPRESS)
    parser.add_argument("--images", type=int, default=BATCH, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.memory is None:
        main(given.data)
    else:
        print_megabytes(given.memory, given.images)
