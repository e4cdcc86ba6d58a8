"""What LRP costs and what it keeps, on VGG-16: ``python -m benchmarks.lrp [--data DIR]``.

Time is compared with a forward pass and the gradient of the same images, side by side; memory in processes of
their own, each of which does one of the two. Without data the weights and the images are random.
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
    """With the weights of ImageNet, or random ones."""
    torch.manual_seed(0)
    found = load(data / "vgg16") if data is not None else VGG16().eval()
    return found.requires_grad_(False)


def images(data: Path | None, n: int) -> torch.Tensor:
    """Photographs, or noise."""
    if data is None:
        return torch.randn(n, 3, SIZE, SIZE, generator=torch.Generator().manual_seed(0))
    paths = sorted((data / "bsds500" / "images").glob("*.jpg"))[:n]
    return torch.from_numpy(wc.deep.normalize(np.stack([read_image(path, SIZE) for path in paths])))


def calls(data: Path | None, n: int) -> dict[str, Callable[[], object]]:
    """What is compared, ready to be called, for n images."""
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
    """The most memory that a process takes for one call, beyond what it had when all was loaded.

    Random weights and images do: memory does not depend on them.
    """
    command = [sys.executable, "-m", "benchmarks.lrp", "--memory", mode, "--images", str(n)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[-1])


def print_megabytes(mode: str, n: int) -> None:
    """What `megabytes` asks for, in a process of its own."""
    call = calls(None, n)[mode]
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak of loading
    before = status("VmRSS")
    call()
    print(status("VmHWM") - before)


def status(name: str) -> float:
    """What Linux says of this process, in MB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name)) / 1024


def conservation(data: Path | None) -> list[float]:
    """|sum at the pixels - sum at the features| / f_c of each image, with all biases in the network."""
    module, x = network(data), images(data, 8)
    head = KMeans(3, n_init=3, random_state=0).fit(wc.deep.features(module, x, pool="mean"))
    exp = wc.explain(wc.deep.DeepClustering(module, head, pool="mean", batch_size=4), x)
    return [float(part) for part in np.abs(exp.residual) / exp.evidence]


def main(data: Path | None) -> None:
    """Measure and write the page."""
    lines = ["# What LRP costs, and what it keeps", ""]
    lines += [
        f"VGG-16 without its classifier, {SIZE} x {SIZE} pixels, {torch.get_num_threads()} threads; the",
        "rules of the paper. A call of `explain` is one forward pass for the features, one for the tape, and",
        "the way back; of `wc.deep.lrp`, the latter two. Each convolution takes one product more forth and",
        "two back, against one back for the gradient.",
        "",
    ]
    lines += ["| images | what | seconds | ratio | peak memory, MB | ratio |", "|---|---|---|---|---|---|"]
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
        "Conservation, k-means with K = 3 on pooled block 5, the network with its biases:",
        f"|sum at the pixels - f_c| is at most {max(kept):.1e} of f_c, of {len(kept)} images.",
    ]
    write("lrp", "python -m benchmarks.lrp --data DIR", lines)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="the folder of data sets")
    parser.add_argument("--memory", choices=MODES, help=argparse.SUPPRESS)
    parser.add_argument("--images", type=int, default=BATCH, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.memory is None:
        main(given.data)
    else:
        print_megabytes(given.memory, given.images)
