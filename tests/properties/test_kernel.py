"""Kernel k-means against the paper's network of pairs of support vectors, on random problems."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.optional import optional
from tests.reference import kernel, models
from whycluster import Network, TableNetwork
from whycluster.core.energies import Energy, KernelEnergy
from whycluster.models.energies import FloorEnergy

if TYPE_CHECKING:
    import torch
else:
    torch = optional("torch")


@dataclass(frozen=True)
class Problem:
    X: NDArray[np.float64]
    model: kernel.Kernel

    @property
    def energy(self) -> KernelEnergy:
        support, weights = np.vstack(self.model.support).astype(float), np.hstack(self.model.weights)
        sizes = np.array([len(u) for u in self.model.support])
        return KernelEnergy(support, sizes, self.model.gamma, np.log(weights))

    @property
    def net(self) -> Network:
        return TableNetwork(self.energy)


@st.composite
def problems(draw: st.DrawFn, weighted: bool = True) -> Problem:
    """Clusters of up to five support vectors, sharp and soft kernels, data near 0 and far from it."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    d, n_clusters = draw(st.integers(1, 8)), draw(st.integers(2, 5))
    offset = rng.normal(size=d) * 10.0 ** draw(st.integers(-1, 4))
    support = [rng.normal(size=(rng.integers(1, 6), d)) + offset for _ in range(n_clusters)]
    gamma = 10.0 ** draw(st.floats(-2, 1.5))
    X = rng.normal(scale=1.5, size=(draw(st.integers(1, 12)), d)) + offset
    model = kernel.Kernel.plain(support, gamma)
    if weighted:
        weights = [np.exp(rng.normal(size=len(u))) for u in support]
        model = kernel.Kernel(support, weights, gamma)
    return Problem(X, model)


@given(problems(), st.sampled_from(["path", "min-take-most"]))
def test_the_linear_pass_equals_the_network_of_pairs(problem: Problem, rule: str) -> None:
    exp = problem.net.explain(problem.X, rule=rule)
    if rule == "path":
        assert exp.beta == problem.model.gamma
    expected = kernel.explain(problem.X, problem.model, rule=rule)
    assert exp.cluster.tolist() == [kernel.assign(x, problem.model) for x in problem.X]
    rounding = np.square(np.concatenate([problem.X, *problem.model.support])).sum(axis=1).max()
    spread = np.ptp(np.concatenate([problem.X, *problem.model.support]), axis=0)
    tolerance = 1e-9 * np.abs(expected).max() + 1e-13 * float(spread @ spread) + 1e-15 * rounding
    assert np.abs(exp.relevance - expected).max() <= tolerance * problem.model.gamma + tolerance


@given(problems())
def test_its_torch_network_has_four_layers_and_gives_the_evidence(problem: Problem) -> None:
    layers = problem.net.to_torch()
    assert isinstance(layers, torch.nn.Sequential)
    names = [type(layer).__name__ for layer in layers]
    assert names == ["Linear", "SoftPooling", "SoftPooling", "MinPooling"]
    found = layers(torch.from_numpy(problem.X)).detach().numpy()
    expected = problem.net.evidence(problem.X)
    assert np.abs(found - expected).max() <= 1e-8 * (np.abs(expected).max() + np.abs(problem.X).max() ** 2)


@given(problems(weighted=False))
def test_evidence_is_positive_at_the_assigned_cluster_only(problem: Problem) -> None:
    evidence = problem.net.evidence(problem.X)
    assigned = problem.net.assign(problem.X)
    assert (evidence.argmax(axis=1) == assigned).all()
    assert (np.sort(evidence, axis=1)[:, -2] <= 0).all()


@pytest.mark.slow
@given(problems(), st.floats(0.1, 10.0))
def test_a_floor_is_one_more_cluster(problem: Problem, floor: float) -> None:
    """Noise: its energy is a constant, its split the profile."""
    d = problem.X.shape[1]
    profile = np.arange(1.0, d + 1) / np.arange(1.0, d + 1).sum()
    net = TableNetwork(FloorEnergy(problem.energy, floor, floor * profile))
    exp = net.explain(problem.X, rule="contrast")
    size = np.square(np.concatenate([problem.X, *problem.model.support])).sum(axis=1).max()
    for row, x in enumerate(problem.X):
        s = [*(kernel.energy(x, problem.model, k) for k in range(problem.model.n_clusters)), floor]
        order = np.argsort(s, kind="stable")
        assert abs(exp.evidence[row] - (s[order[1]] - s[order[0]])) <= 1e-12 * size + 1e-9 * abs(max(s))
        assert exp.cluster[row] == order[0] or exp.evidence[row] <= 1e-12 * size
        if {exp.cluster[row], exp.competitor[row]} == {order[0], len(s) - 1}:
            own = _split(x, problem.model, order[0])
            assert np.abs(exp.relevance[row] - (floor * profile - own)).max() <= 1e-11 * size + 1e-9


@given(problems(), st.floats(0.1, 10.0))
def test_the_path_with_a_floor_is_the_reference(problem: Problem, floor: float) -> None:
    """Noise has a size as any other cluster, and the stiffness is the gamma of the others."""
    d, n = problem.X.shape[1], problem.model.n_clusters
    profile = floor * np.arange(1.0, d + 1) / np.arange(1.0, d + 1).sum()

    def split(x: NDArray[Any], k: int) -> tuple[float, NDArray[Any]]:
        if k == n:
            return floor, profile
        return kernel.energy(x, problem.model, k), _split(x, problem.model, k)

    exp = TableNetwork(FloorEnergy(problem.energy, floor, profile)).explain(problem.X)
    assert exp.beta == problem.model.gamma
    expected = models.explain(problem.X, split, n + 1, problem.model.gamma, "path")
    assert exp.cluster.tolist() == [models.assign(x, split, n + 1) for x in problem.X]
    everything = np.concatenate([problem.X, *problem.model.support])
    spread = np.ptp(everything, axis=0)
    rounding = 1e-13 * float(spread @ spread) + 1e-15 * np.square(everything).sum(axis=1).max()
    tolerance = 1e-9 * np.abs(expected).max() + rounding
    assert np.abs(exp.relevance - expected).max() <= tolerance * (1 + problem.model.gamma)


@given(problems(), st.one_of(st.none(), st.floats(0.1, 10.0)), st.data())
def test_the_gradient_is_the_mean_over_the_support_vectors(
    problem: Problem, floor: float | None, data: st.DataObject
) -> None:
    """grad s_k = 2 sum_j q_j (x - u_j), and 0 of a floor."""
    energy: Energy = problem.energy
    if isinstance(energy, KernelEnergy) and floor is not None:
        energy = FloorEnergy(energy, floor, np.zeros(energy.n_features))
    target = data.draw(st.integers(0, energy.n_clusters - 1))
    net, size = TableNetwork(energy), np.abs(np.concatenate([problem.X, *problem.model.support])).max()
    evidence, found = net.evidence(problem.X), net.gradient(problem.X, target)
    for row, x in enumerate(problem.X):
        slopes = [_slope(x, problem.model, k) for k in range(problem.model.n_clusters)] + [0 * x]
        others = np.delete(np.arange(energy.n_clusters), target)
        rival = others[evidence[row, others].argmax()]  # the assigned cluster, or the second
        expected = slopes[rival] - slopes[target]
        near = np.abs(x - np.concatenate(problem.model.support)).max()
        rounding = 1e-12 * near + 1e-14 * size * (1 + problem.model.gamma * near * size)
        assert np.abs(found[row] - expected).max() <= rounding


@pytest.mark.parametrize("gamma", [0.3, np.inf])
def test_groups_of_clusters_far_apart_keep_their_digits(gamma: float) -> None:
    """Squares are not expanded there: two groups 1e7 apart, with clusters of some units in each."""
    rng = np.random.default_rng(0)
    support = [rng.normal(size=(n, 3)) + far for n, far in ((4, 0.0), (2, 0.0), (1, 1e7), (3, 1e7))]
    sizes = np.array([len(u) for u in support])
    X = np.concatenate([rng.normal(size=(20, 3)), rng.normal(size=(20, 3)) + 1e7])
    net = TableNetwork(KernelEnergy(np.concatenate(support), sizes, gamma))
    exp = net.explain(X, rule="contrast")
    if np.isfinite(gamma):
        model = kernel.Kernel.plain(support, gamma)
        energies = np.array([[kernel.energy(x, model, k) for k in range(4)] for x in X])
        splits = np.array([[_split(x, model, k) for k in range(4)] for x in X])
    else:
        squares = [(X[:, None] - u) ** 2 for u in support]
        nearest = [s[np.arange(40), s.sum(axis=2).argmin(axis=1)] for s in squares]
        splits = np.stack(nearest, axis=1)
        energies = splits.sum(axis=2)
    order = np.argsort(energies, axis=1)
    rows = np.arange(40)
    assert (exp.cluster == order[:, 0]).all()
    expected = splits[rows, order[:, 1]] - splits[rows, order[:, 0]]
    assert np.abs(exp.relevance - expected).max() <= 1e-8 * np.abs(expected).max()


def _split(x: NDArray[np.float64], model: kernel.Kernel, k: int) -> NDArray[np.float64]:
    squares = (x - model.support[k]) ** 2
    q = kernel.shares(squares.sum(axis=1).tolist(), model.weights[k], -model.gamma)
    return np.asarray(np.array(q) @ squares)


def _slope(x: NDArray[np.float64], model: kernel.Kernel, k: int) -> NDArray[np.float64]:
    distances = ((x - model.support[k]) ** 2).sum(axis=1)
    q = kernel.shares(distances.tolist(), model.weights[k], -model.gamma)
    return np.asarray(2 * np.array(q) @ (x - model.support[k]))
