"""Compare our LRP with that of zennit: ``make bench-zennit``.

zennit replaces the gradients of modules; ours follows the operations of the forward pass. On networks that
are plain sequences of modules, the two must agree. The relevance comes from a k-means head on real data.
"""

from __future__ import annotations

import argparse
import copy
import importlib
import sys
import types
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional
from torch.nn.utils.fusion import fuse_conv_bn_eval

import whycluster as wc
from benchmarks.measure import write
from examples.vgg16 import load

Array = NDArray[np.float64]
Tensor = torch.Tensor

STABILIZER = 1e-12  # zennit adds it to every denominator; its default is 1e-6
N_EXPLAINED = 4
WEIGHTED = (nn.Linear, nn.Conv2d)


def load_zennit() -> Any:
    """Import zennit.

    zennit imports torchvision only for two class names, and the torchvision of the package index does not
    load next to a torch for CPUs. Two empty classes replace them, since this benchmark uses no ResNet of
    torchvision.
    """
    names = ("torchvision", "torchvision.models", "torchvision.models.resnet")
    outer, models, resnet = (types.ModuleType(name) for name in names)
    for name in ("BasicBlock", "Bottleneck"):
        setattr(resnet, name, type(name, (), {}))
    vars(models)["resnet"], vars(outer)["models"] = resnet, models
    sys.modules.update(zip(names, (outer, models, resnet), strict=True))
    return importlib.import_module("zennit")


@dataclass(frozen=True)
class Rules:
    """The same rule in both libraries: in all layers, or in the first layer with z+ in all others."""

    name: str
    ours: wc.deep.Rule
    theirs: Callable[..., Any]  # takes zero_params
    first_only: bool = False


@dataclass(frozen=True)
class Case:
    """A sequence of modules, some inputs, and the relevance of its features."""

    name: str
    net: nn.Module
    x: Tensor
    relevance: Tensor
    low: Any = 0.0
    high: Any = 1.0


def rules_of(case: Case, zennit: Any) -> list[Rules]:
    """Return all rules to compare, with the bounds of this case for zB."""
    rules, stable = zennit.rules, {"stabilizer": STABILIZER}
    low, high = (torch.as_tensor(x, dtype=torch.float64).reshape(1, -1) for x in (case.low, case.high))
    if case.x.ndim == 4:
        low, high = low[..., None, None], high[..., None, None]
    return [
        Rules("epsilon 1e-6", wc.deep.Epsilon(1e-6), lambda **zero: rules.Epsilon(1e-6, **zero)),
        Rules("gamma 0.25", wc.deep.Gamma(0.25), lambda **zero: rules.Gamma(0.25, **stable, **zero)),
        Rules("z+", wc.deep.ZPlus(), lambda **zero: rules.ZPlus(**stable, **zero)),
        Rules(
            "zB at the inputs",
            wc.deep.ZBox(case.low, case.high),
            lambda **zero: rules.ZBox(low, high, **stable, **zero),
            True,
        ),
        Rules("w^2 at the inputs", wc.deep.WSquare(), lambda **zero: rules.WSquare(**stable, **zero), True),
        Rules("flat at the inputs", wc.deep.Flat(), lambda **_: rules.Flat(**stable), True),
    ]


def by_zennit(case: Case, rules: Rules, zennit: Any, biases: bool = False) -> Array:
    """Return zennit's relevance of the inputs, with each batch norm merged into the convolution before it.

    zennit can merge it too, but leaves a batch norm that still divides by sqrt(1 + 1e-5).
    """
    zero = {} if biases else {"zero_params": "bias"}
    net = merged(case.net)
    linear = [name for name, part in net.named_modules() if isinstance(part, WEIGHTED)]
    relu = [name for name, part in net.named_modules() if isinstance(part, nn.ReLU)]
    above = zennit.rules.ZPlus(stabilizer=STABILIZER, **zero) if rules.first_only else rules.theirs(**zero)
    composite = zennit.composites.NameMapComposite(
        [(linear[:1], rules.theirs(**zero)), (linear[1:], above), (relu, zennit.rules.Pass())]
    )
    with zennit.attribution.Gradient(net, composite) as attribute:
        _, relevance = attribute(case.x.clone(), case.relevance)
    return np.asarray(relevance.detach().numpy())


def by_us(case: Case, rules: Rules, biases: bool = False) -> Array:
    """Return the relevance by `whycluster.deep.lrp`."""
    composite = wc.deep.Composite(
        [("first", rules.ours)] if rules.first_only else [],
        default=wc.deep.ZPlus() if rules.first_only else rules.ours,
        biases=biases,
    )
    return wc.deep.lrp(case.net, case.x, case.relevance, rules=composite).numpy()


def compare(ours: Array, theirs: Array) -> tuple[float, float]:
    """Return the smallest cosine over the inputs, and the largest difference relative to max |R|."""
    a, b = ours.reshape(len(ours), -1), theirs.reshape(len(theirs), -1)
    cosine = (a * b).sum(axis=1) / (np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1))
    return float(cosine.min()), float((np.abs(a - b).max(axis=1) / np.abs(b).max(axis=1)).max())


# Networks, in float64, so that all differences come from the method


def vgg_case(data: Path) -> Case:
    """Return VGG-16 with its weights, the central 64 x 64 pixels of photographs, and k-means on block 5."""
    with np.load(data / "stl10" / "stl10_unlabeled_examples.npz") as file:
        x = torch.from_numpy(wc.deep.normalize(file["images"][:24, 16:80, 16:80])).double()
    low, high = wc.deep.pixel_bounds()
    return with_head("VGG-16, STL-10 at 64 px", load(data / "vgg16").double(), x, 5, low, high)


def mlp_case() -> Case:
    """Return a classifier of digits without its last layer."""
    x, y = digits()
    net = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 10))
    train(net, x.flatten(1), y)
    return with_head("MLP, digits", net[:4], x.flatten(1), 10)


def batch_norm_case() -> Case:
    """Return three convolutions, each followed by a batch norm."""
    x, y = digits()
    layers: list[nn.Module] = []
    for n_before, width in ((1, 16), (16, 32), (32, 32)):
        layers += [nn.Conv2d(n_before, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU()]
    net = nn.Sequential(*layers, nn.MaxPool2d(2), nn.Flatten(), nn.Linear(32 * 16, 10))
    train(net, x, y)
    return with_head("convolutions with batch norm, digits", net[:10], x, 10)


def digits() -> tuple[Tensor, Tensor]:
    """Return images of digits, (n, 1, 8, 8), and their labels; values are at most 1, and never quite 0."""
    bunch = load_digits()
    x = torch.from_numpy(bunch.images / 16).double()[:, None]
    return 0.05 + 0.95 * x, torch.from_numpy(bunch.target)


def train(net: nn.Module, x: Tensor, y: Tensor) -> None:
    """Train the network for a few epochs."""
    net.double().train()
    optimizer = torch.optim.Adam(net.parameters(), lr=2e-3)
    for _ in range(4):
        for some in torch.split(torch.randperm(len(x)), 64):
            optimizer.zero_grad()
            functional.cross_entropy(net(x[some]), y[some]).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    net.eval()


def with_head(name: str, net: nn.Module, x: Tensor, n_clusters: int, *bounds: Any) -> Case:
    """Fit k-means to the features of all inputs, and explain those of the first few."""
    with torch.no_grad():
        features = net(x)
    rows = features.flatten(1).numpy()
    head = KMeans(n_clusters, n_init=3, random_state=0).fit(rows)
    relevance = wc.explain(head, rows[:N_EXPLAINED]).relevance
    seed = torch.from_numpy(relevance).reshape(features[:N_EXPLAINED].shape)
    return Case(name, net, x[:N_EXPLAINED], seed, *bounds)


def without_biases(case: Case) -> Case:
    """Return the same network with all biases 0, and the same relevance of its features."""
    net = copy.deepcopy(case.net)
    with torch.no_grad():
        for part in net.modules():
            if isinstance(part, (*WEIGHTED, nn.BatchNorm2d)) and part.bias is not None:
                part.bias.zero_()
            if isinstance(part, nn.BatchNorm2d) and part.running_mean is not None:
                part.running_mean.zero_()
    return Case(f"{case.name}, no biases", net, case.x, case.relevance, case.low, case.high)


# Operations without a rule in zennit: z+ in all linear layers, compared with a transcription of the formula


def linear_back(a: Array, weight: Array, R: Array) -> Array:
    """Return R_i = sum_j max(0, a_i w_ij) R_j / sum_i max(0, a_i w_ij)."""
    contributions = np.maximum(0, a[:, :, None] * weight.T[None])  # (n, inputs, outputs)
    return np.asarray((contributions / contributions.sum(axis=1, keepdims=True) * R[:, None]).sum(axis=2))


class Small(nn.Module):
    """Linear - ReLU - operation - Linear, without biases."""

    def __init__(self, between: Callable[[Small, Tensor], Tensor], same: bool = False) -> None:
        super().__init__()
        self.a, self.relu = nn.Linear(6, 6, bias=False), nn.ReLU()
        self.b = self.a if same else nn.Linear(6, 6, bias=False)
        self.branch, self.between = nn.Linear(6, 6, bias=False), between

    def forward(self, x: Tensor) -> Tensor:
        """Compute features from inputs."""
        out: Tensor = self.b(self.between(self, self.relu(self.a(x))))
        return out


@dataclass(frozen=True)
class Trap:
    """An operation between two layers, and the formula for its relevance.

    ``back`` takes the input h, the weights of a branch and the relevance of the output.
    """

    name: str
    between: Callable[[Small, Tensor], Tensor]
    back: Callable[[Array, Array, Array], Array] = lambda _h, _w, R: R
    same: bool = False


def skip_back(h: Array, weight: Array, R: Array) -> Array:
    """Propagate through h + relu(branch(h)), in proportion to the two terms."""
    branch = np.maximum(0, h @ weight.T)
    total = h + branch
    total = np.where(total == 0, 1, total)
    return h / total * R + linear_back(h, weight, branch / total * R)


def functional_back(h: Array, weight: Array, R: Array) -> Array:
    """Propagate through a linear layer that is called as a function."""
    return linear_back(h, weight, R)


TRAPS = [
    Trap("none", lambda _, h: h),
    Trap("none, but both layers are the same module", lambda _, h: h, same=True),
    Trap(
        "`functional.linear(h, weight)`", lambda m, h: functional.linear(h, m.branch.weight), functional_back
    ),
    Trap("`h + relu(branch(h))`", lambda m, h: h + functional.relu(m.branch(h)), skip_back),
    Trap("`0.5 * h`", lambda _, h: 0.5 * h),
    Trap("`h + h`", lambda _, h: h + h),
    Trap("`functional.gelu(h)`", lambda _, h: functional.gelu(h)),
    Trap("`torch.sigmoid(h)`", lambda _, h: torch.sigmoid(h)),
]


def trap_row(trap: Trap, zennit: Any) -> str:
    """Return a line that compares both libraries with the formula."""
    net = Small(trap.between, trap.same).double().eval()
    x = torch.rand(4, 6, dtype=torch.float64)
    with torch.no_grad():
        for part in (net.a, net.b, net.branch):
            part.weight.abs_()  # so that no unit is dead and no terms cancel
        h = net.relu(net.a(x))
        middle = trap.between(net, h).numpy()
    R = torch.rand(4, 6, dtype=torch.float64)
    weights = [part.weight.detach().numpy() for part in (net.a, net.branch, net.b)]
    down = trap.back(h.numpy(), weights[1], linear_back(middle, weights[2], R.numpy()))
    right = linear_back(x.numpy(), weights[0], down)
    case = Case(trap.name, net, x, R)
    rule = Rules("z+", wc.deep.ZPlus(), lambda **zero: zennit.rules.ZPlus(stabilizer=STABILIZER, **zero))
    theirs, ours = by_zennit(case, rule, zennit), by_us(case, rule)
    differences = [np.abs(found - right).max() / np.abs(right).max() for found in (theirs, ours)]
    kept = theirs.sum() / R.numpy().sum()
    return f"| {trap.name} | {differences[0]:.1e} | {kept:.3f} | {differences[1]:.1e} |"


def row(case: Case, rules: Rules, zennit: Any, biases: bool = False) -> tuple[float, str]:
    """Return the cosine of one comparison, and its line of the table."""
    cosine, difference = compare(by_us(case, rules, biases), by_zennit(case, rules, zennit, biases))
    name = rules.name + (", biases receive relevance" if biases else "")
    return cosine, f"| {case.name} | {name} | {cosine:.9f} | {difference:.1e} |"


def merged(net: nn.Module) -> nn.Module:
    """Return the network with every batch norm merged into the convolution before it."""
    parts: list[Any] = []
    for part in net.children() if isinstance(net, nn.Sequential) else [net]:
        if isinstance(part, nn.BatchNorm2d):
            parts.append(fuse_conv_bn_eval(parts.pop(), part))
        else:
            parts.append(part)
    return nn.Sequential(*parts)


def flipped(case: Case) -> float:
    """Return the share of positive outputs of linear layers that are not positive without their bias."""
    counts: list[Tensor] = []

    def look(part: nn.Module, args: Any, output: Tensor) -> None:  # noqa: ARG001  # as torch calls it
        if part.bias is not None:
            shape = (-1, *[1] * (output.ndim - 2))
            without = output - part.bias.detach().reshape(shape)  # type: ignore[operator]  # a tensor
            counts.append(torch.stack([((output > 0) & (without <= 0)).sum(), (output > 0).sum()]))

    net = merged(copy.deepcopy(case.net))
    for part in net.modules():
        if isinstance(part, WEIGHTED):
            part.register_forward_hook(look)
    with torch.no_grad():
        net(case.x)
    n_flipped, n_positive = torch.stack(counts).sum(dim=0).tolist()
    return float(n_flipped / n_positive)


def main() -> None:
    """Compare everything and write results/zennit.md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="folder of the files")
    data = parser.parse_args().data
    torch.manual_seed(0)
    zennit = load_zennit()
    cases = [vgg_case(data), mlp_case(), batch_norm_case()]
    agreeing: list[tuple[float, str]] = []
    biased: list[str] = []
    for case in cases:
        bare = without_biases(case)
        every = {rules.name: rules for rules in rules_of(case, zennit)}
        gamma = every.pop("gamma 0.25")
        agreeing += [row(case, rules, zennit) for rules in every.values()]
        agreeing += [row(bare, gamma, zennit), row(case, gamma, zennit, biases=True)]
        biased.append(f"{row(case, gamma, zennit)[1]} {flipped(case):.1%} |")
    least = min(cosine for cosine, _ in agreeing)
    write("zennit", "make bench-zennit", page(least, [line for _, line in agreeing], biased, zennit))


def page(least: float, agreeing: list[str], biased: list[str], zennit: Any) -> list[str]:
    """Return the page of results."""
    return [
        "# LRP compared with zennit 0.5.1",
        "",
        f"We compare the relevance of {N_EXPLAINED} inputs for a k-means head on the features of each "
        "network. "
        "All computations use float64.",
        "The `cosine` column shows the smallest cosine similarity across the inputs.",
        "The `difference` column shows the largest difference across the inputs, relative to max |R| for "
        "that input.",
        "Most rules apply to all layers. Rules marked `at the inputs` apply only to the first layer, and "
        "z+ applies to all other layers.",
        'Biases receive no relevance (`zero_params="bias"`) unless stated otherwise.',
        f"The smallest cosine is {least:.9f}.",
        "",
        "For zennit, we merge batch norm into the convolutions beforehand, whereas our LRP folds it "
        "into them during the backward pass.",
        "zennit's own merging leaves behind a batch norm that divides by sqrt(1 + 1e-5).",
        "This small difference matters only for the epsilon rule, whose denominators may be just as small.",
        "",
        "| network | rule | cosine | difference |",
        "|---|---|---:|---:|",
        *agreeing,
        "",
        "## The gamma rule if a bias flips the sign of an output",
        "",
        "The gamma rule favors contributions with the same sign as the output.",
        "If biases receive no relevance, zennit leaves them out of the denominator but still uses the sign "
        "of "
        "the output with its bias.",
        "If a bias flips the sign, zennit favors contributions with the wrong sign, and denominators may "
        "come "
        "close to 0.",
        "Our LRP uses the sign of the output without its bias.",
        "The two implementations agree if the network has no biases or if biases receive relevance (see "
        "above).",
        "Otherwise, they differ:",
        "",
        "| network | rule | cosine | difference | outputs that are positive only because of their bias |",
        "|---|---|---:|---:|---:|",
        *biased,
        "",
        "## Operations that zennit does not handle",
        "",
        "The networks are Linear - ReLU - operation - Linear, with z+ in the linear layers, positive weights "
        "and no biases.",
        "We compute the correct result directly from the formula.",
        "zennit handles only modules: it stores the last input of each module and uses the gradient for "
        "everything else.",
        "zennit issues no warning for any of these operations.",
        "Differences are relative to max |R|.",
        "",
        "| operation on h | zennit: difference | zennit: sum out / sum in | ours: difference |",
        "|---|---:|---:|---:|",
        *(trap_row(trap, zennit) for trap in TRAPS),
    ]


if __name__ == "__main__":
    main()
