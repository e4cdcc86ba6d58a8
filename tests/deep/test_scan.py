"""The head of SCAN."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from sklearn.datasets import load_digits, make_blobs
from sklearn.metrics import adjusted_rand_score

import whycluster as wc
from tests.reference import scan as reference
from whycluster.deep import fit_scan, scan

QUICK: dict[str, Any] = {"n_epochs": 20, "n_init": 2, "batch_size": 64}


def blobs(n: int = 200, n_features: int = 5, n_clusters: int = 4) -> tuple[Any, Any]:
    X, y = make_blobs(n, n_features, centers=n_clusters, random_state=1)
    return X, y


def assign(head: torch.nn.Linear, features: Any) -> NDArray[Any]:
    with torch.no_grad():
        return np.asarray(head(torch.as_tensor(features, dtype=head.weight.dtype)).argmax(dim=1))


@pytest.mark.slow
def test_digits_are_clustered_better_than_by_k_means() -> None:
    X, y = load_digits(return_X_y=True)
    cluster = assign(fit_scan(X, 10), X)
    assert adjusted_rand_score(y, cluster) > 0.72  # k-means: 0.67
    assert np.bincount(cluster, minlength=10).min() > 100


@pytest.mark.parametrize("offset", [0.0, 1e4])
def test_fit_scan_finds_blobs(offset: float) -> None:
    X, y = blobs(400, 10, 8)
    assert adjusted_rand_score(y, assign(fit_scan(X + offset, 8), X + offset)) == 1.0


def test_clusters_collapse_only_without_entropy() -> None:
    X, _ = blobs()
    sizes = [
        np.bincount(assign(fit_scan(X, 4, entropy_weight=weight), X), minlength=4) for weight in (0.0, 5.0)
    ]
    assert sizes[0].min() == 0
    assert sizes[1].min() == 50


@pytest.mark.parametrize("block", [1, 700, 1 << 22])
def test_neighbors_and_loss_agree_with_the_formulas(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "_BLOCK", block)
    X, _ = blobs(60)
    z, _, _ = scan._standardize(torch.from_numpy(X))
    near = scan._nearest(z, 7)
    expected = reference.neighbors(z.double().numpy(), 7)
    assert [set(row) for row in near.tolist()] == expected
    weight = torch.from_numpy(np.random.default_rng(0).normal(size=(4, 5)).astype(np.float32))
    bias = torch.arange(4.0)
    heads = scan._Heads(z, 1, 4, 3.0, 0)
    found = float(heads._loss(z, near, weight, bias))
    assert found == pytest.approx(reference.loss(z @ weight.T + bias, expected, 3.0), rel=1e-5)


def test_the_head_with_the_smallest_loss_is_returned() -> None:
    X, _ = blobs(100)
    z, _, _ = scan._standardize(torch.from_numpy(X))
    near = scan._nearest(z, 10)
    heads = scan._Heads(z, 6, 7, 5.0, 0)
    best = heads.best(z, near)
    weights, biases = heads._weight.view(5, 6, 7), heads._bias.view(6, 7)
    sets = [set(row) for row in near.tolist()]
    losses = [reference.loss(z @ weights[:, i] + biases[i], sets, 5.0) for i in range(6)]
    assert len(set(losses)) == 6
    torch.testing.assert_close(best[0], weights[:, int(np.argmin(losses))].T)


def test_training_lowers_the_loss() -> None:
    X, _ = blobs()
    near = reference.neighbors((X - X.mean(axis=0)), 20)
    losses = []
    for n_epochs in (1, 10, 100):
        head = fit_scan(X, 4, n_epochs=n_epochs, batch_size=100)
        losses.append(reference.loss(head(torch.from_numpy(X)).detach(), near, 5.0))
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] == pytest.approx(-5 * np.log(4), abs=0.05)  # all that can be had


def test_heads_are_independent() -> None:
    """Trained beside others, a head moves as it does on its own."""
    X, _ = blobs(50)
    z, _, _ = scan._standardize(torch.from_numpy(X))
    near = scan._nearest(z, 5)
    together, alone = scan._Heads(z, 3, 4, 5.0, 0), scan._Heads(z, 1, 4, 5.0, 0)
    alone._weight = together._weight.view(5, 3, 4)[:, 1].clone()
    for heads in (together, alone):
        heads._generator.manual_seed(7)
        heads.train(z, near, 5, 10, 0.01)
    torch.testing.assert_close(together._weight.view(5, 3, 4)[:, 1], alone._weight)


def test_the_head_takes_the_original_features() -> None:
    X, _ = blobs()
    plain = fit_scan(X, 4, **QUICK)
    moved = fit_scan(8.0 * X + 32.0, 4, **QUICK)
    logits, others = plain(torch.from_numpy(X)), moved(torch.from_numpy(8.0 * X + 32.0))
    torch.testing.assert_close(logits, others, rtol=1e-3, atol=1e-3)


def test_constant_features_have_no_weight() -> None:
    X, _ = blobs()
    X[:, 2] = 0.1
    weight = fit_scan(X, 4, **QUICK).weight
    assert not weight[:, 2].any()
    assert weight[:, [0, 1, 3, 4]].abs().min() > 0


def test_the_same_seed_gives_the_same_head_without_side_effects() -> None:
    X, _ = blobs()
    before = X.copy()
    state, n_threads = torch.get_rng_state(), torch.get_num_threads()
    first, again, other = (fit_scan(X, 4, random_state=seed, **QUICK) for seed in (3, 3, 4))
    assert torch.equal(first.weight, again.weight)
    assert torch.equal(first.bias, again.bias)
    assert not torch.equal(first.weight, other.weight)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.get_num_threads() == n_threads
    np.testing.assert_array_equal(X, before)
    assert first.weight.requires_grad


def test_settings_of_torch_do_not_matter() -> None:
    X, _ = blobs()
    features = torch.from_numpy(X).float()
    expected = fit_scan(features, 4, **QUICK).weight
    with torch.no_grad():
        assert torch.equal(fit_scan(features, 4, **QUICK).weight, expected)
    with torch.inference_mode():
        assert torch.equal(fit_scan(features * 1, 4, **QUICK).weight, expected)
    with torch.device("meta"):
        assert torch.equal(fit_scan(features, 4, **QUICK).weight, expected)
    torch.set_default_dtype(torch.float64)
    try:
        assert torch.equal(fit_scan(features, 4, **QUICK).weight, expected)
    finally:
        torch.set_default_dtype(torch.float32)


def test_features_of_every_dtype() -> None:
    whole = np.round(4 * blobs()[0])
    expected = fit_scan(whole.astype(np.float32), 4, **QUICK).weight
    locked = whole.astype(np.float32)
    locked.flags.writeable = False
    given = [
        locked,
        whole.astype(np.float16),
        whole.astype(np.int8),
        whole.astype(">f4"),
        np.ascontiguousarray(whole.astype(np.float32)[:, ::-1])[:, ::-1],
        np.asfortranarray(whole.astype(np.float32)),
        torch.from_numpy(whole).half(),
        torch.from_numpy(whole).float().requires_grad_(),
        torch.from_numpy(whole).long(),
    ]
    for features in given:
        weight = fit_scan(features, 4, **QUICK).weight
        assert weight.dtype is torch.float32
        assert torch.equal(weight, expected)
    for doubles in (whole, whole.tolist(), torch.from_numpy(whole)):
        weight = fit_scan(doubles, 4, **QUICK).weight
        assert weight.dtype is torch.float64
        torch.testing.assert_close(weight.float(), expected)


def test_parameters_may_be_numpy_scalars() -> None:
    X, _ = blobs()
    given = {name: np.int64(value) for name, value in {**QUICK, "neighbors": 9, "random_state": 2}.items()}
    plain: dict[str, Any] = {name: int(value) for name, value in given.items()}
    rates: dict[str, Any] = {"entropy_weight": np.float64(5), "learning_rate": np.float32(0.0625)}
    expected = fit_scan(X, 4, entropy_weight=5, learning_rate=0.0625, **plain)
    assert torch.equal(fit_scan(X, np.int8(4), **given, **rates).weight, expected.weight)


@pytest.mark.parametrize("size", [1e-200, 1e150])
def test_features_of_any_magnitude(size: float) -> None:
    X, y = blobs()
    assert adjusted_rand_score(y, assign(fit_scan(size * X, 4), size * X)) == 1.0


SPOILT = blobs()[0]
SPOILT[3, 1] = np.nan


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"features": np.zeros(5)},
            "features must be a numeric array of shape (n, d); got float64 of shape (5,).",
        ),
        (
            {"features": torch.zeros(4, 3, 2, 2)},
            "features must be a numeric array of shape (n, d); got float32 of shape (4, 3, 2, 2). Pool or "
            "flatten them first: features.mean(axis=(2, 3)).",
        ),
        (
            {"features": np.zeros((0, 3))},
            "features must be a numeric array of shape (n, d); got float64 of shape (0, 3).",
        ),
        (
            {"features": torch.zeros(4, 3, dtype=torch.complex64)},
            "features must be a numeric array of shape (n, d); got complex64 of shape (4, 3).",
        ),
        (
            {"features": [["a", "b"]]},
            "features must be a numeric array of shape (n, d); got a value of type list that cannot be "
            "converted to one.",
        ),
        (
            {"features": [[1.0], [1.0, 2.0]]},
            "features must be a numeric array of shape (n, d); got a value of type list that cannot be "
            "converted to one.",
        ),
        (
            {"features": SPOILT},
            "features must be finite; row 3 contains NaN or infinite values. Drop such rows.",
        ),
        (
            {"features": np.ones((30, 3))},
            "features must vary between rows and have a finite mean; all rows are equal.",
        ),
        (
            {"features": np.repeat([[1e308], [-1e308]], 20, axis=0)},
            "features must vary between rows and have a finite mean; they overflow.",
        ),
        ({"n_clusters": 1}, "n_clusters must be an integer of at least 2; got 1."),
        ({"n_clusters": 3.0}, "n_clusters must be an integer of at least 2; got 3.0."),
        ({"n_clusters": 201}, "n_clusters must be at most the number of rows, 200; got 201."),
        ({"neighbors": 0}, "neighbors must be an integer of at least 1; got 0."),
        ({"neighbors": 200}, "neighbors must be less than the number of rows, 200; got 200."),
        ({"entropy_weight": -1.0}, "entropy_weight must be a nonnegative number; got -1.0."),
        ({"entropy_weight": "5"}, "entropy_weight must be a nonnegative number; got '5'."),
        ({"n_epochs": 0}, "n_epochs must be an integer of at least 1; got 0."),
        ({"batch_size": 0}, "batch_size must be an integer of at least 1; got 0."),
        ({"learning_rate": 0.0}, "learning_rate must be above 0 and at most 1; got 0.0."),
        ({"learning_rate": 2}, "learning_rate must be above 0 and at most 1; got 2."),
        ({"n_init": True}, "n_init must be an integer of at least 1; got True."),
        ({"random_state": None}, "random_state must be an integer of at least 0; got None."),
        ({"random_state": 1 << 63}, "random_state must be less than 2^63; got 9223372036854775808."),
    ],
)
def test_invalid_arguments_of_fit_scan(given: dict[str, Any], message: str) -> None:
    with pytest.raises(wc.InvalidInputError) as caught:
        fit_scan(**{"features": blobs()[0], "n_clusters": 4, **QUICK, **given})
    assert str(caught.value) == f"fit_scan: {message}"
