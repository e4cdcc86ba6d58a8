"""Deep clusterings trained with ClustPy."""

from __future__ import annotations

import copy
import subprocess
import sys
from typing import Any

import pytest

pytest.importorskip("clustpy", reason="clustpy is not installed")


import numpy as np
import torch
from clustpy.deep import AEC, DCN, DEC, DKM, IDEC, VaDE
from clustpy.deep.neural_networks import ConvolutionalAutoencoder, FeedforwardAutoencoder
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import whycluster as wc
from whycluster.models.energies import StudentEnergy

Array = NDArray[Any]
MODELS = (DEC, IDEC, DCN, DKM, AEC)


@pytest.fixture(scope="module")
def digits() -> Array:
    """Return 1797 digits of 64 pixels, from 0 to 1."""
    return np.asarray(load_digits().data / 16)


def fit(kind: Any, X: Array, layers: Any = (64, 200, 5), n_clusters: int = 10, **options: Any) -> Any:
    """Train briefly; the clusters do not have to be good."""
    network = FeedforwardAutoencoder(list(layers), random_state=0) if isinstance(layers, tuple) else layers
    epochs = {"pretrain_epochs": 5, "clustering_epochs": 3}
    options = {"neural_network": network, "embedding_size": 5, "random_state": 0, **epochs, **options}
    return kind(n_clusters, **options).fit(X)


def encoder_of(model: Any) -> torch.nn.Module:
    network: Any = wc.neuralize(model)
    return network.encoder.module  # type: ignore[no-any-return]


def is_conserved(exp: Any) -> bool:
    """Only rounding loses relevance, which matters if the evidence is almost 0."""
    assert exp.reference == "midpoint"
    sizes = np.abs(exp.relevance).sum(axis=1)
    return bool((np.abs(exp.residual) <= 1e-4 * exp.evidence + 1e-6 * sizes).all())


@pytest.fixture(scope="module", params=MODELS, ids=lambda kind: kind.__name__)
def model(request: pytest.FixtureRequest, digits: Array) -> Any:
    return fit(request.param, digits)


@pytest.fixture(scope="module")
def dec(digits: Array) -> Any:
    return fit(DEC, digits)


def test_the_network_assigns_as_the_model(model: Any, digits: Array) -> None:
    net = wc.neuralize(model)
    assert (net.assign(digits) == model.predict(digits)).all()
    assert net.n_clusters == 10
    new = np.random.default_rng(5).normal(scale=0.7, size=(2000, 64))
    assert (net.assign(new) == model.predict(new)).all()
    rows = torch.tensor(digits[:50], dtype=torch.float32)
    assert (net.assign(rows) == model.predict(digits[:50].astype(np.float32))).all()


def test_relevance_of_pixels_adds_up_to_the_evidence(model: Any, digits: Array) -> None:
    exp = wc.explain(model, digits)
    assert exp.relevance.shape == digits.shape
    assert (exp.cluster == model.predict(digits)).all()
    assert np.unique(exp.cluster).size == 10
    assert is_conserved(exp)
    assert (exp.relevance[digits == 0] == 0).all()  # black pixels contribute to no sum
    distances = ((model.transform(digits)[:, None] - model.cluster_centers_) ** 2).sum(axis=2)
    nearest, next_one = np.sort(distances, axis=1)[:, :2].T
    assert np.abs(exp.evidence - (next_one - nearest)).max() <= 1e-5 * exp.evidence.max()


class Rectified(FeedforwardAutoencoder):  # type: ignore[misc]  # ClustPy has no types
    """An autoencoder with a ReLU after its embedding."""

    def encode(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(super().encode(x))


def test_embeddings_that_are_never_negative_are_measured_from_zero(digits: Array) -> None:
    model = fit(DEC, digits, layers=Rectified([64, 200, 5], random_state=0))
    assert (model.transform(digits) >= 0).all()
    exp = wc.explain(model, digits)
    assert (exp.rule, exp.reference) == ("joint", "zero")
    assert exp.reference_reason == "because none of the 1,797 inputs has a negative feature"
    assert (exp.cluster == model.predict(digits)).all()


@pytest.mark.slow
def test_the_default_network_of_clustpy(digits: Array) -> None:
    model = fit(DEC, digits, layers=None, pretrain_epochs=1, clustering_epochs=1)
    exp = wc.explain(model, digits)
    assert (exp.cluster == model.predict(digits)).all()
    assert is_conserved(exp)


def test_removing_relevant_pixels_lowers_the_evidence(dec: Any, digits: Array) -> None:
    """Removing the five most relevant pixels lowers the evidence more than removing five others."""
    exp = wc.explain(dec, digits)
    order = np.argsort(-exp.relevance, axis=1)
    lit = np.argsort(-digits + np.random.default_rng(0).uniform(0, 1e-6, digits.shape), axis=1)

    def evidence_without(pixels: Array) -> float:
        X = digits.copy()
        np.put_along_axis(X, pixels[:, :5], 0.0, axis=1)
        evidence = wc.neuralize(dec).evidence(X)
        return float(np.take_along_axis(evidence, exp.cluster[:, None], axis=1).mean())

    assert evidence_without(order) < evidence_without(lit) < exp.evidence.mean()


def test_layers_keep_their_names(dec: Any, digits: Array) -> None:
    names = [name for name, _ in dec.neural_network_trained_.named_modules()]
    assert "encoder.block.1" in names
    exp = wc.explain(dec, digits[:20], at="encoder.block.1")
    assert exp.relevance.shape == (20, 200)
    assert is_conserved(exp)
    with pytest.raises(wc.InvalidInputError) as caught:
        wc.explain(dec, digits[:20], at="encoder.block.9")
    assert str(caught.value) == (
        "explain: at must be the name of a layer of the encoder, as in its named_modules(); got "
        "'encoder.block.9'. The closest names are 'encoder.block.2', 'encoder.block.1', 'encoder.block.0'."
    )


def test_the_model_stays_unchanged(dec: Any, digits: Array) -> None:
    before, network = copy.deepcopy(dec.__dict__), dec.neural_network_trained_
    modes = [part.training for part in network.modules()]
    gradients = [None if p.grad is None else p.grad.clone() for p in network.parameters()]
    wc.explain(dec, digits[:20], at="encoder.block.0")
    wc.neuralize(dec).to_torch()
    assert dec.neural_network_trained_ is network
    assert [part.training for part in network.modules()] == modes
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in network.modules())
    for parameter, gradient in zip(network.parameters(), gradients, strict=True):
        assert (parameter.grad is None) == (gradient is None)
        assert gradient is None or torch.equal(parameter.grad, gradient)
    state = before["neural_network_trained_"].state_dict()
    assert all(torch.equal(value, state[name]) for name, value in network.state_dict().items())
    assert (dec.cluster_centers_ == before["cluster_centers_"]).all()


def test_to_torch_returns_the_evidence(dec: Any, digits: Array) -> None:
    net = wc.neuralize(dec)
    evidence = net.to_torch()(torch.tensor(digits[:50], dtype=torch.float32)).detach().numpy()
    expected = net.evidence(digits[:50])
    assert np.abs(evidence - expected).max() <= 1e-5 * np.abs(expected).max()


@pytest.mark.parametrize("kind", [DEC, IDEC])
def test_the_soft_assignments_of_the_same_encoder(kind: Any, digits: Array) -> None:
    """Test q of the paper, with the centers that were trained with it."""
    model = fit(kind, digits)
    soft = wc.deep.DeepClustering(
        encoder_of(model), wc.neuralize(model.dec_cluster_centers_, metric="student")
    )
    assert (soft.predict(digits) == model.dec_labels_).all()
    squares = ((model.transform(digits)[:, None] - model.dec_cluster_centers_) ** 2).sum(axis=2)
    q = 1 / (1 + squares)
    q /= q.sum(axis=1, keepdims=True)
    best = q.max(axis=1)
    exp = wc.explain(soft, digits, threshold=0.5)
    assert np.abs(exp.evidence - np.log(best / (1 - best))).max() <= 1e-4


def test_other_degrees_of_freedom(digits: Array) -> None:
    model = fit(DEC, digits, alpha=3.0)
    head = wc.TableNetwork(StudentEnergy(model.dec_cluster_centers_, model.alpha))
    soft = wc.deep.DeepClustering(encoder_of(model), head)
    assert (soft.predict(digits) == model.dec_labels_).all()


def test_integers_are_refused_if_predict_rounds_them() -> None:
    X = load_digits().data
    model = fit(DEC, X)
    assert (wc.neuralize(model).assign(X) == model.predict(X)).all()
    whole = X.astype(np.int64)
    predicted, nearest = model.predict(whole), model.predict(X)
    differ = np.flatnonzero(predicted != nearest)
    row = differ[0]
    with pytest.raises(wc.InvalidInputError) as caught:
        wc.explain(model, whole)
    assert str(caught.value) == (
        "explain: X must have dtype float32 or float64; got shape (1797, 64), int64. DEC.predict rounds the "
        f"embedding to this dtype and does not find the nearest cluster for {differ.size} of 1797 rows (row "
        f"{row}: it predicts {predicted[row]}, but {nearest[row]} is nearest). Pass X.astype(float), here "
        "and to predict."
    )
    same = np.flatnonzero(predicted == nearest)[:10]
    assert (wc.explain(model, whole[same]).relevance == wc.explain(model, X[same]).relevance).all()
    brief = torch.tensor(X[:10], dtype=torch.bfloat16)  # represents these numbers exactly
    assert (
        wc.explain(model, brief).relevance == wc.explain(model, X[:10].astype(np.float32)).relevance
    ).all()


@pytest.mark.parametrize("kind", MODELS)
def test_a_model_that_is_not_fitted(kind: Any) -> None:
    with pytest.raises(wc.NotFittedError) as caught:
        wc.neuralize(kind(3))
    assert str(caught.value) == f"neuralize: the {kind.__name__} must be fitted first. Call its fit method."


def test_rows_of_another_width(dec: Any) -> None:
    with pytest.raises(wc.InvalidInputError, match=r"the encoder fails on X of shape \(3, 10\), float64"):
        wc.explain(dec, np.zeros((3, 10)))


def test_a_network_in_training_mode(digits: Array) -> None:
    """A model trained elsewhere and marked as fitted keeps its mode."""
    network = FeedforwardAutoencoder([64, 30, 5], batch_norm=True, dropout=0.2)
    network.fitted = True
    model = fit(DEC, digits, layers=network, clustering_epochs=1)
    with pytest.raises(wc.InvalidInputError) as caught:
        wc.explain(model, digits)
    assert str(caught.value) == (
        "explain: the encoder must be in evaluation mode; its encoder.block.1 (BatchNorm1d) is in training "
        "mode, where features are random or depend on the batch. Call encoder.eval() first."
    )
    model.neural_network_trained_.eval()
    assert (wc.explain(model, digits).cluster == model.predict(digits)).all()


@pytest.mark.slow
def test_images_through_convolutions(digits: Array) -> None:
    images = np.kron(digits[:24].reshape(-1, 1, 8, 8), np.ones((1, 3, 4, 4))).astype(np.float32) + 0.1
    network = ConvolutionalAutoencoder(32, [512, 5], random_state=0)
    model = fit(DCN, images, network, n_clusters=3, batch_size=12, pretrain_epochs=1, clustering_epochs=1)
    exp = wc.explain(model, images)
    assert exp.relevance.shape == (24, 3, 32, 32)
    assert (exp.cluster == model.predict(images)).all()
    assert wc.explain(model, images, at="conv_encoder.layer1", units="channels").relevance.shape == (24, 64)


def test_models_with_another_prediction_are_explained_by_their_labels(digits: Array) -> None:
    class Sorted(DCN):  # type: ignore[misc]  # ClustPy has no types
        def predict(self, X: Array, cluster_centers: Any = None) -> Array:
            return np.asarray(9 - super().predict(X, cluster_centers))

    X = digits[:300]
    for model in (fit(Sorted, X), fit(VaDE, X, None, 3, pretrain_epochs=1, clustering_epochs=1)):
        with pytest.raises(wc.UnsupportedModelError) as caught:
            wc.neuralize(model)
        assert str(caught.value).startswith(
            f"neuralize: the labels of {type(model).__name__} give the cluster of each row but no rule for "
        )


def test_a_subclass_with_the_same_prediction(digits: Array) -> None:
    class Careful(DCN):  # type: ignore[misc]  # as above
        pass

    model = fit(Careful, digits)
    assert (wc.neuralize(model).assign(digits) == model.predict(digits)).all()


def test_pipelines_with_a_deep_model_are_refused(digits: Array) -> None:
    # There are as many features as pixels, so the shapes alone do not reveal it.
    network = FeedforwardAutoencoder([64, 64], random_state=0)
    model = DCN(4, neural_network=network, embedding_size=64, pretrain_epochs=1, clustering_epochs=1)
    pipeline = make_pipeline(StandardScaler(), model).fit(digits)
    with pytest.raises(wc.UnsupportedModelError) as caught:
        wc.explain(pipeline, digits)
    assert str(caught.value) == (
        "neuralize: DCN has its own encoder, and relevance cannot be propagated beyond the inputs of that "
        "encoder. Explain the model in terms of the output of the steps before it: wc.explain(pipeline[-1], "
        "pipeline[:-1].transform(X))."
    )
    exp = wc.explain(pipeline[-1], pipeline[:-1].transform(digits))
    assert (exp.cluster == pipeline.predict(digits)).all()


@pytest.mark.slow
def test_other_parts_of_clustpy_need_no_torch() -> None:
    code = """
import sys
sys.modules["torch"] = None
import numpy as np, whycluster as wc
class Centers:
    cluster_centers_ = np.array([[0.0], [4.0]])
    def predict(self, X):
        return np.abs(X - self.cluster_centers_.T).argmin(1)
Centers.__module__ = "clustpy.partition.centers"
print(wc.explain(Centers(), np.array([[1.0], [3.5]])).cluster)
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.stdout == "[0 1]\n", result.stderr
