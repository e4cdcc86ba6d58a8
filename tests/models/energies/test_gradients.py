"""Gradients in closed form, against differences of evidences and against autograd."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.cluster import BisectingKMeans, KMeans
from sklearn.mixture import GaussianMixture

import whycluster as wc
from tests.optional import optional
from whycluster.core.energies import AdditiveEnergy, Energy, KernelEnergy, LinearEnergy, SquaredEnergy
from whycluster.models.energies import (
    BernoulliEnergy,
    CosineEnergy,
    DiagonalGaussianEnergy,
    FloorEnergy,
    GaussianEnergy,
    ManhattanEnergy,
    MixedEnergy,
    StudentEnergy,
    Tree,
    TreeEnergy,
    ZeroReferenceEnergy,
)

if TYPE_CHECKING:
    import pandas as pd
    import torch
    from kmodes.kmodes import KModes
    from kmodes.kprototypes import KPrototypes
else:
    pd = optional("pandas")
    torch = optional("torch")
    KModes = optional("kmodes.kmodes:KModes")
    KPrototypes = optional("kmodes.kprototypes:KPrototypes")

Array = NDArray[np.float64]
K, D = 4, 5
SIZES = np.array([2, 3, 1, 4])
# The root parts cluster 3 from the others, the next pair cluster 0, the last clusters 2 and 1.
TREE = Tree(below=np.array([1, -1, -1, 2, -1, -1]), leaf=np.array([-1, 3, 0, -1, 2, 1]))


def normal(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).normal(size=shape)


def triangular(n: int) -> Array:
    return np.array([np.triu(normal(D, D, seed=k)) + 4.0 * np.eye(D) for k in range(n)])


def scale() -> Array:
    return np.abs(normal(D, seed=9)) + 0.1


def kernel(shift: float, gamma: float = 0.3) -> KernelEnergy:
    return KernelEnergy(normal(10, D) + shift, SIZES, gamma, 0.3 * normal(10, seed=3), scale())


NUMBERS = np.array([True, True, False, True, True])
ENERGIES: dict[str, Callable[[float], Energy]] = {
    "squared": lambda shift: SquaredEnergy(normal(K, D) + shift),
    "squared, scaled": lambda shift: SquaredEnergy(normal(K, D) + shift, scale()),
    "manhattan": lambda shift: ManhattanEnergy(normal(K, D) + shift),
    "mixed": lambda shift: MixedEnergy(normal(K, D) + shift, ~NUMBERS, 0.7),
    "diagonal Gaussian": lambda shift: DiagonalGaussianEnergy(
        normal(K, D) + shift, np.abs(normal(K, D, seed=4)) + 0.1, normal(K, seed=5)
    ),
    "Gaussian": lambda shift: GaussianEnergy(normal(K, D) + shift, triangular(K), normal(K, seed=5)),
    "Gaussian with determinants of its own": lambda shift: GaussianEnergy(
        normal(K, D) + shift, normal(K, D, D), normal(K, seed=5), log_det=normal(K, seed=6)
    ),
    "tied Gaussian": lambda shift: GaussianEnergy(normal(K, D) + shift, triangular(1), normal(K, seed=5)),
    "kernel": kernel,
    "stiff kernel": lambda shift: kernel(shift, 50.0),
    "kernel of many units": lambda shift: KernelEnergy(
        normal(200, D) + shift, np.array([70, 60, 40, 30]), 0.5, normal(200, seed=3)
    ),  # they are taken in several parts
    "hard kernel": lambda shift: kernel(shift, np.inf),
    "floor": lambda shift: FloorEnergy(kernel(shift), 4.0, np.full(D, 0.8)),
    "hard floor": lambda shift: FloorEnergy(kernel(shift, np.inf), 4.0, np.full(D, 0.8)),
    "Bernoulli": lambda _: BernoulliEnergy(1 / (1 + np.exp(-normal(K, D, seed=4))), normal(K, seed=5)),
    "fuzzy": lambda shift: StudentEnergy.fuzzy(normal(K, D) + shift, 1.7),
    "student": lambda shift: StudentEnergy(normal(K, D) + shift),
    "student of few degrees": lambda shift: StudentEnergy(normal(K, D) + shift, 0.2),
    "tree": lambda shift: TreeEnergy(TREE, normal(6, D) + shift),
    "zero reference": lambda shift: ZeroReferenceEnergy(normal(K, D) + shift, scale()),
    "linear": lambda _: LinearEnergy(normal(K, D), normal(K, seed=5)),
    "cosine": lambda _: CosineEnergy(normal(K, D)),
}
UNMOVED = ("linear", "cosine", "Bernoulli")  # energies that a translation changes


def rows(shift: float = 0.0) -> Array:
    return 1.5 * normal(60, D, seed=7) + shift


def assigned(evidence: NDArray[Any]) -> NDArray[np.intp]:
    return np.asarray(evidence.argmax(axis=1))


def differences(net: wc.Network, X: Array, target: NDArray[np.intp], step: float) -> Array:
    """Central differences of the evidence for each row's target, feature by feature."""
    every = np.arange(len(X))
    found = []
    for feature in range(X.shape[1]):
        moved = step * np.eye(X.shape[1])[feature]
        ahead, behind = net.evidence(X + moved)[every, target], net.evidence(X - moved)[every, target]
        found.append((ahead - behind) / (2 * step))
    return np.stack(found, axis=1)


def autograd(net: wc.Network, X: Array, target: NDArray[np.intp]) -> Array:
    x = torch.tensor(X, requires_grad=True)
    net.to_torch()(x)[torch.arange(len(X)), torch.from_numpy(target)].sum().backward()
    assert x.grad is not None
    return x.grad.numpy()


def targets(net: wc.Network, X: Array) -> list[NDArray[np.intp]]:
    """Of each row the cluster it is in, and each of the others."""
    own = assigned(net.evidence(X))
    return [(own + away) % net.n_clusters for away in range(net.n_clusters)]


@pytest.mark.parametrize("kind", ENERGIES)
def test_the_gradient_is_the_limit_of_differences(kind: str) -> None:
    net, X = wc.TableNetwork(ENERGIES[kind](0.0)), rows()
    for target in targets(net, X):
        found = net.gradient(X, target)
        assert found.shape == X.shape
        assert np.abs(found - differences(net, X, target, 1e-5)).max() <= 1e-7 * np.abs(found).max()
    own = targets(net, X)[0]
    assert len(set(own.tolist())) == net.n_clusters, "some cluster is not tested"
    assert (net.gradient(X) == net.gradient(X, own)).all()


@pytest.mark.parametrize("kind", ENERGIES)
def test_the_gradient_is_that_of_autograd(kind: str) -> None:
    net, X = wc.TableNetwork(ENERGIES[kind](0.0)), rows()
    for target in targets(net, X):
        expected = autograd(net, X, target)
        assert np.abs(net.gradient(X, target) - expected).max() <= 1e-12 * np.abs(expected).max()


@pytest.mark.parametrize("kind", ENERGIES)
def test_torch_gives_the_evidence_of_every_energy(kind: str) -> None:
    net, X = wc.TableNetwork(ENERGIES[kind](0.0)), rows()
    expected, x = net.evidence(X), torch.from_numpy(X)
    found = net.to_torch()(x).detach().numpy()
    assert found.shape == (len(X), net.n_clusters)
    assert np.abs(found - expected).max() <= 1e-12 * np.abs(expected).max()
    for k in range(net.n_clusters):
        alone = net.to_torch(k)(x).detach().numpy()
        assert alone.shape == (len(X), 1)
        assert np.abs(alone[:, 0] - expected[:, k]).max() <= 1e-12 * np.abs(expected).max()
    batched = net.to_torch()(x.reshape(6, 10, D)).detach().numpy()  # any shape of batch
    assert np.abs(batched.reshape(len(X), -1) - expected).max() <= 1e-12 * np.abs(expected).max()


@pytest.mark.parametrize("kind", [kind for kind in ENERGIES if kind not in UNMOVED])
def test_far_from_0_gradients_are_the_same(kind: str) -> None:
    shift = 2.0**20  # about 1e6; the data themselves keep ten digits there
    near, far = wc.TableNetwork(ENERGIES[kind](0.0)), wc.TableNetwork(ENERGIES[kind](shift))
    X = rows(shift)
    for target in targets(near, X - shift):
        expected = near.gradient(X - shift, target)
        found = far.gradient(X, target)
        assert np.abs(found - expected).max() <= 1e-8 * np.abs(expected).max()
        assert np.abs(found - autograd(far, X, target)).max() <= 1e-6 * np.abs(expected).max()


@pytest.mark.parametrize("kind", ENERGIES)
def test_weights_may_be_any_that_sum_to_zero(kind: str) -> None:
    """Not only contrasts: the gradient of a weighted sum of energies is that of the gradients."""
    energy, X = ENERGIES[kind](0.0), rows()
    weights = normal(len(X), energy.n_clusters, seed=2)
    if isinstance(energy.contest, Tree):  # a tree has one cluster against the others
        weights = np.abs(weights)
    weights[:, 2] -= weights.sum(axis=1)
    found, scratch = np.empty_like(X), np.full((len(X), energy.scratch_width), np.nan)
    energy.differentiate(X if energy.offset is None else X - energy.offset, weights, found, scratch)
    assert np.abs(found - _slowly(energy, X, weights)).max() <= 1e-6 * np.abs(found).max()


def _slowly(energy: Energy, X: Array, weights: Array, step: float = 1e-5) -> Array:
    """Central differences of sum_k a_k s_k; in a tree, of the evidence for 2 where the way to k parts."""

    def total(X: Array) -> Array:
        s, scratch = np.empty((len(X), energy.n_clusters)), np.empty((len(X), energy.scratch_width))
        energy.energies(X if energy.offset is None else X - energy.offset, s, scratch)
        if not isinstance(energy.contest, Tree):
            return np.asarray((weights * s).sum(axis=1))
        turns = [(turn, k) for turn in energy.contest.paths[2] for k in energy.contest.under[turn.sibling]]
        return np.asarray(sum(weights[:, k] * turn.sign * s[:, turn.pair] for turn, k in turns))

    moves = step * np.eye(X.shape[1])
    return np.stack([(total(X + move) - total(X - move)) / (2 * step) for move in moves], axis=1)


@pytest.mark.parametrize("gamma", [None, 0.3, np.inf])
def test_gradients_where_squares_are_not_expanded(gamma: float | None) -> None:
    """Two groups 1e7 apart, with clusters in each."""
    far = np.repeat([0.0, 1e7], [6, 4])[:, None]
    units = normal(10, D) + far
    energy = SquaredEnergy(units) if gamma is None else KernelEnergy(units, SIZES, gamma)
    squares = energy if isinstance(energy, SquaredEnergy) else energy.units
    assert squares.linear is None
    X = np.concatenate([rows()[:30], rows()[30:] + 1e7])
    net = wc.TableNetwork(energy)
    own = assigned(net.evidence(X))
    found = net.gradient(X)
    assert np.abs(found - differences(net, X, own, 2.0**-13)).max() <= 1e-4 * np.abs(found).max()
    if gamma is None:
        competitor = net.explain(X).competitor
        expected = 2 * (units[own] - units[competitor])
        assert np.abs(found - expected).max() <= 1e-8 * np.abs(expected).max()


def test_a_floor_where_squares_are_not_expanded() -> None:
    units = normal(10, D) + np.repeat([0.0, 1e7], [6, 4])[:, None]
    X = np.concatenate([rows()[:30], rows()[30:] + 1e7])
    net = wc.TableNetwork(FloorEnergy(KernelEnergy(units, SIZES, 0.3), 4.0, np.zeros(D)))
    own = assigned(net.evidence(X))
    assert (own == 4).any()
    assert (own != 4).any()
    found = net.gradient(X)
    assert np.abs(found - autograd(net, X, own)).max() <= 1e-8 * np.abs(found).max()


def test_the_gradient_of_kmeans_is_the_paper_s(wine: Array, kmeans: Any) -> None:
    """w_k = 2 (mu_c - mu_k), the weights of the linear layer."""
    mu, exp = kmeans.cluster_centers_, wc.explain(kmeans, wine)
    found = wc.neuralize(kmeans).gradient(wine)
    np.testing.assert_allclose(found, 2 * (mu[exp.cluster] - mu[exp.competitor]), rtol=1e-12, atol=1e-12)
    why_not = wc.neuralize(kmeans).gradient(wine, target=3)
    others = exp.cluster != 3
    expected = 2 * (mu[3] - mu[exp.cluster])
    np.testing.assert_allclose(why_not[others], expected[others], rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(why_not[~others], found[~others])


def test_a_small_step_along_the_gradient_gains_its_squared_length(wine: Array) -> None:
    net = wc.neuralize(GaussianMixture(4, covariance_type="tied", random_state=0).fit(wine))
    gradient, step = net.gradient(wine), 1e-9
    gained = net.evidence(wine + step * gradient).max(axis=1) - net.evidence(wine).max(axis=1)
    np.testing.assert_allclose(gained / step, (gradient**2).sum(axis=1), rtol=1e-3)


def test_at_a_prototype_the_manhattan_distance_has_no_slope() -> None:
    net = wc.neuralize([[0.0, 0.0], [4.0, 1.0]], metric="manhattan")
    found = net.gradient([[0.0, 0.0], [1.0, 1.0]])
    assert found.tolist() == [[-1.0, -1.0], [-2.0, -1.0]]


def test_a_row_of_zeros_has_no_gradient_under_the_cosine() -> None:
    X = np.array([[0.0, 0.0], [3.0, 4.0], [0.0, 0.0]])
    net = wc.neuralize(np.eye(2), metric="cosine")
    found = net.gradient(X)
    assert (found[[0, 2]] == 0).all()
    # f_1 = (y - x) / |(x, y)| at (3, 4)
    np.testing.assert_allclose(found[1], [-1 / 5 - 3 / 125, 1 / 5 - 4 / 125], rtol=1e-12)
    np.testing.assert_allclose(autograd(net, X, net.assign(X)), found, atol=1e-15)


def test_cosines_of_rows_of_any_length() -> None:
    """The longer the row, the flatter."""
    rows = np.array([[3.0, 4.0], [4.0, 3.0]])
    net = wc.neuralize(np.eye(2), metric="cosine")
    expected = net.gradient(rows)
    for size in (1e-200, 1e200):
        X = rows * size
        np.testing.assert_allclose(net.gradient(X) * size, expected, rtol=1e-12)
        np.testing.assert_allclose(autograd(net, X, net.assign(X)) * size, expected, rtol=1e-12)
        np.testing.assert_allclose(net.to_torch()(torch.from_numpy(X)).detach(), net.evidence(X), rtol=1e-12)


def test_single_precision_comes_back_as_it_came(wine: Array, kmeans: Any) -> None:
    net = wc.neuralize(kmeans)
    single = net.gradient(wine.astype("f4"))
    assert single.dtype == np.float32
    assert net.gradient(wine).dtype == np.float64
    np.testing.assert_allclose(single, net.gradient(wine.astype("f4").astype("f8")), rtol=1e-6)


def test_gradients_of_frames_and_sparse_rows(wine: Array) -> None:
    frame = pd.DataFrame(wine, columns=[f"f{i}" for i in range(13)])
    net = wc.neuralize(KMeans(4, n_init=1, random_state=0).fit(frame))
    expected = net.gradient(frame)
    np.testing.assert_array_equal(net.gradient(frame[frame.columns[::-1]]), expected)
    np.testing.assert_allclose(net.gradient(sp.csr_array(wine)), expected, rtol=1e-12)


def test_on_a_tie_the_first_competitor_counts() -> None:
    """On the line between two of them; torch takes the mean."""
    net = wc.neuralize([[0.0, 0.0], [2.0, 1.0], [2.0, -1.0]])
    assert net.gradient([[0.5, 0.0]]).tolist() == [[-4.0, -2.0]]
    assert autograd(net, np.array([[0.5, 0.0]]), np.array([0])).tolist() == [[-4.0, 0.0]]


def test_the_data_are_not_changed() -> None:
    for make in ENERGIES.values():
        X = rows()
        X.flags.writeable = False
        wc.TableNetwork(make(0.0)).gradient(X)


@pytest.mark.usefixtures("two_threads")
def test_many_rows_are_as_few() -> None:
    X = np.random.default_rng(0).normal(size=(70_000, D))
    for kind in ("kernel", "tree", "Gaussian"):
        net = wc.TableNetwork(ENERGIES[kind](0.0))
        np.testing.assert_allclose(net.gradient(X)[-50:], net.gradient(X[-50:]), rtol=1e-9, atol=1e-12)


def test_targets_are_labels_and_wrong_ones_an_error() -> None:
    net = wc.TableNetwork(SquaredEnergy(normal(3, 2)), labels=["a", "b", "c"])
    X = normal(4, 2, seed=1)
    by_row = net.gradient(X, target=["a", "b", "c", "a"])
    np.testing.assert_array_equal(by_row[1], net.gradient(X, target="b")[1])
    with pytest.raises(wc.InvalidInputError) as error:
        net.gradient(X, target="d")
    assert str(error.value) == (
        "gradient: target must be one of the model's 3 clusters, 'a', 'b', 'c'; got 'd'."
    )
    with pytest.raises(wc.InvalidInputError) as error:
        net.gradient(X, target=["a", "b"])
    assert str(error.value) == (
        "gradient: target must be a single cluster or one cluster for each of the 4 rows; got shape (2,)."
    )
    with pytest.raises(wc.InvalidInputError, match=r"^gradient: X must be finite; row 1"):
        net.gradient(np.array([[0.0, 1.0], [np.nan, 0.0]]))


def test_noise_is_a_target_too() -> None:
    X = np.concatenate([normal(60, 2) * 0.1, normal(60, 2, seed=1) * 0.1 + 2.0, normal(12, 2, seed=2) * 4])
    labels = np.repeat([0, 1, -1], [60, 60, 12])
    net = wc.neuralize(wc.Surrogate().fit(X, labels))
    code = net.labels.tolist().index("noise")
    found = net.gradient(X, target=-1)
    every = np.full(len(X), code)
    assert np.abs(found - differences(net, X, every, 1e-6)).max() <= 1e-5 * np.abs(found).max()
    assert np.abs(found - autograd(net, X, every)).max() <= 1e-9 * np.abs(found).max()


def test_categories_have_no_slope() -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "color": rng.choice(["red", "blue", "green"], 60),
            "size": rng.normal(size=60),
            "age": rng.normal(size=60),
        }
    )
    model = KPrototypes(3, random_state=0).fit(frame, categorical=[0])
    net = wc.neuralize(model, categorical=[0])
    found, exp = net.gradient(frame), net.explain(frame)
    assert (found[:, 0] == 0).all()
    numbers = np.asarray(model.cluster_centroids_[:, :2], dtype=float)
    np.testing.assert_allclose(found[:, 1:], 2 * (numbers[exp.cluster] - numbers[exp.competitor]), atol=1e-12)
    modes = KModes(2, random_state=0).fit(frame[["color"]])
    assert (wc.neuralize(modes).gradient(frame[["color"]]) == 0).all()


def test_torch_takes_categories_as_codes() -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"color": rng.choice(list("abcd"), 60), "size": rng.normal(size=60)})
    model = KPrototypes(3, random_state=0).fit(frame, categorical=[0])
    codes = frame["color"].map(model._enc_map[0]).to_numpy(dtype=float)
    X = np.column_stack([codes, frame["size"]])
    net = wc.neuralize(model, categorical=[0])
    found = net.to_torch()(torch.from_numpy(X)).detach().numpy()
    np.testing.assert_allclose(found, net.evidence(frame), atol=1e-12)
    unknown = torch.tensor([[-1.0, 0.2]], dtype=torch.float64)
    expected = net.evidence(pd.DataFrame({"color": ["z"], "size": [0.2]}))
    np.testing.assert_allclose(net.to_torch()(unknown).detach().numpy(), expected, atol=1e-12)


class Canberra(AdditiveEnergy):
    """The example of docs/models.md: only a split."""

    def split(self, x: Array, k: int, out: Array) -> None:
        out[...] = np.abs(x - self.prototypes[k]) / (np.abs(x) + np.abs(self.prototypes[k]) + 1e-300)


class Cubic(AdditiveEnergy):
    """A split and its slope."""

    def split(self, x: Array, k: int, out: Array) -> None:
        out[...] = np.abs(x - self.prototypes[k]) ** 3

    def slope(self, x: Array, k: int, out: Array) -> None:
        difference = x - self.prototypes[k]
        out[...] = 3 * difference * np.abs(difference)


def test_a_dissimilarity_of_the_user_s() -> None:
    X = rows()
    split_only = wc.TableNetwork(Canberra(normal(K, D)))
    assert np.abs(split_only.explain(X).residual).max() < 1e-9
    with pytest.raises(wc.UnsupportedModelError) as error:
        split_only.gradient(X)
    assert str(error.value) == (
        "gradient: Canberra must define slope(x, k, out), the derivative of its split, to have a gradient. "
        "Explanations work without slope."
    )
    with pytest.raises(wc.UnsupportedModelError) as error:
        split_only.to_torch()
    assert str(error.value) == "to_torch: Canberra cannot be converted to a torch network yet."
    both = wc.TableNetwork(Cubic(normal(K, D)))
    for target in targets(both, X):
        found = both.gradient(X, target)
        assert np.abs(found - differences(both, X, target, 1e-5)).max() <= 1e-7 * np.abs(found).max()


@pytest.mark.parametrize("kind", ENERGIES)
def test_what_is_done_to_the_torch_network_is_not_done_to_ours(kind: str) -> None:
    net, X = wc.TableNetwork(ENERGIES[kind](0.0)), rows()
    before, module = net.evidence(X), net.to_torch()
    with torch.no_grad():
        for values in (*module.parameters(), *module.buffers()):
            if values.dtype == torch.float64:
                values += 1.0
    assert (net.evidence(X) == before).all()
    assert (net.to_torch()(torch.from_numpy(X)).detach().numpy().argmax(axis=1) == assigned(before)).all()


def test_the_layers_of_a_tree(wine: Array) -> None:
    net = wc.neuralize(BisectingKMeans(6, random_state=1).fit(wine))
    module = net.to_torch()
    assert isinstance(module, torch.nn.Sequential)
    detection, pooling = module
    assert isinstance(detection, torch.nn.Linear)
    assert detection.weight.shape == (5, 13)
    assert type(pooling).__name__ == "PathPooling"


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("manhattan", ["ManhattanDistances", "Differences", "MinPooling"]),
        ("mixed", ["MixedDistances", "Differences", "MinPooling"]),
        ("diagonal Gaussian", ["SquaredDistances", "Differences", "MinPooling"]),
        ("Gaussian", ["QuadraticForms", "Differences", "MinPooling"]),
        ("floor", ["SquaredDistances", "SoftPooling", "Floor", "Differences", "MinPooling"]),
        ("cosine", ["UnitLength", "Linear", "MinPooling"]),
        ("student", ["SquaredDistances", "StudentLayer", "Differences", "MinPooling"]),
    ],
)
def test_layers_are_named(kind: str, names: list[str]) -> None:
    module = wc.TableNetwork(ENERGIES[kind](0.0)).to_torch()
    assert isinstance(module, torch.nn.Sequential)
    assert [type(layer).__name__ for layer in module] == names
    assert all(repr(layer) for layer in module)
