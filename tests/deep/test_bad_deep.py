"""Error messages for invalid encoders, heads and images."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from torch import nn
from torch.nn import functional as F  # noqa: N812  # the usual name

import whycluster as wc
from benchmarks.summaries import feature_maps
from tests.deep.networks import OwnResidual, ResNet18, conv_net, forward_of, images, mlp, settled
from whycluster.deep import Composite, DeepClustering, Epsilon, Gamma, ZBox, lrp

Array = NDArray[Any]
Tensor = torch.Tensor
HEAD = np.eye(5)
X: Array = images(3).numpy()
AS_TRAINED = (
    "Use the input size, order of axes and dtype that the encoder was trained with; for a single input, "
    "pass X[None]."
)


def small(*layers: nn.Module) -> Any:
    """Return a network from images to 5 features that contains these layers."""
    return settled(nn.Sequential(nn.Conv2d(3, 4, 3), *layers, nn.Flatten(), nn.Linear(144, 5)))


def message(encoder: Any, x: Any, head: Any = HEAD, question: Any = None, **options: Any) -> str:
    with pytest.raises(wc.InvalidInputError) as error:
        wc.explain(DeepClustering(encoder, head, **options), x, **(question or {}))
    return str(error.value)


def refused(make: Callable[[], Any], kind: type[Exception] = wc.InvalidInputError) -> str:
    with pytest.raises(kind) as error:
        make()
    return str(error.value)


# ---- Inputs


def test_images_of_another_size() -> None:
    assert message(small(), images(2, size=9)) == (
        "explain: the encoder fails on X of shape (2, 3, 9, 9), float32: mat1 and mat2 shapes cannot be "
        f"multiplied (2x196 and 144x5). {AS_TRAINED}"
    )


def test_images_with_channels_last() -> None:
    assert message(small(), X.transpose(0, 2, 3, 1)) == (
        "explain: the encoder fails on X of shape (3, 8, 8, 3), float32: Given groups=1, weight of size [4, "
        "3, 3, 3], expected input[3, 8, 8, 3] to have 3 channels, but got 8 channels instead. The channels "
        "seem to come last; torch expects (n, channels, ...). For images, use X.transpose(0, 3, 1, 2) for "
        "an array or X.permute(0, 3, 1, 2) for a tensor."
    )


def test_encoders_may_move_the_channels_themselves() -> None:
    within = small()
    encoder = forward_of(lambda x: within(x.permute(0, 3, 1, 2)), within)
    exp = wc.explain(DeepClustering(encoder, HEAD), X.transpose(0, 2, 3, 1))
    expected = wc.explain(DeepClustering(within, HEAD), X).relevance.transpose(0, 2, 3, 1)
    assert np.allclose(exp.relevance, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("bounds", [None, (-2.0, 2.0)])
def test_images_of_bytes(bounds: Any) -> None:
    assert message(small(), np.zeros((2, 3, 8, 8), dtype=np.uint8), bounds=bounds) == (
        "explain: X must contain floating-point images, scaled and normalized as in the encoder's "
        "training; got shape (2, 3, 8, 8), uint8. If the images are bytes and the encoder was trained on "
        "ImageNet, use wc.deep.normalize(images)."
    )


@pytest.mark.parametrize(
    ("values", "name"),
    [(X > 0, "torch.bool"), (X + 0j, "torch.complex64"), (torch.ones(2, 3) > 0, "torch.bool")],
)
def test_inputs_that_are_not_real_numbers(values: Any, name: str) -> None:
    assert message(small(), values) == f"explain: X must hold real numbers; got {name}."


def test_pixels_that_are_not_finite() -> None:
    bad = X.copy()
    bad[1, 0, 0, 0] = np.nan
    for batch_size in (1, 16):
        assert message(small(), bad, batch_size=batch_size) == (
            "explain: X must be finite; input 1 contains NaN or infinite values."
        )


def test_activations_that_are_not_finite() -> None:
    encoder = small(nn.ReLU())
    with torch.no_grad():
        encoder[0].weight[0, 0, 0, 0] = float("nan")
    expected = "features must be finite; input 0 of X is finite, but some of its features are not."
    assert message(encoder, X) == f"explain: {expected}"
    model = DeepClustering(encoder, HEAD)
    assert refused(lambda: model.predict(X)) == f"assign: {expected}"
    assert refused(lambda: model.transform(X)) == f"transform: {expected}"


def test_a_single_image() -> None:
    assert message(small(nn.BatchNorm2d(4)), X[0]) == (
        "explain: the encoder fails on X of shape (3, 8, 8), float32: expected 4D input (got 3D input). "
        f"{AS_TRAINED}"
    )
    pooled = nn.Sequential(nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    assert message(pooled, X[0], np.eye(4)) == (
        "explain: the encoder must return one non-empty row of features per input; for 3 inputs it returns "
        "shape (4, 1). Use layer=... to name a layer that does, or, for a single input, pass X[None]."
    )


@pytest.mark.parametrize("shape", [(6,), (0, 6), (0, 3, 8, 8), ()])
def test_no_inputs_or_a_single_row(shape: tuple[int, ...]) -> None:
    assert message(mlp(), np.ones(shape)) == (
        "explain: X must be a batch of one or more encoder inputs, stacked along the first axis; got shape "
        f"{shape}. For a single input, pass X[None]."
    )


@pytest.mark.parametrize(
    ("values", "kind"),
    [([[1.0, 2.0], [3.0]], "list"), (["a", "b"], "list"), (None, "NoneType"), (np.array([{}]), "ndarray")],
)
def test_inputs_that_are_not_an_array(values: Any, kind: str) -> None:
    assert message(mlp(), values) == (f"explain: X must be a tensor or a numeric array; got {kind}.")


def test_tensors_without_dense_values() -> None:
    dense = torch.ones(3, 6)
    for values, got in (
        (dense.to_sparse(), "dtype torch.float32 and layout torch.sparse_coo on the device cpu"),
        (dense.to("meta"), "dtype torch.float32 and layout torch.strided on the device meta"),
    ):
        wanted = "must be a dense tensor, not nested, quantized or on the meta device"
        rest = f"{wanted}; got a tensor with {got}. Convert a sparse tensor with"
        for name, parameter, call in (
            ("explain", "X", lambda x: wc.explain(DeepClustering(mlp(), HEAD), x)),
            ("assign", "X", lambda x: DeepClustering(mlp(), HEAD).predict(x)),
            ("features", "X", lambda x: wc.deep.features(mlp(), x)),
            ("lrp", "x", lambda x: lrp(mlp(), x, lambda y: y)),
            ("lrp", "relevance", lambda x: lrp(mlp(), dense, x)),
        ):
            assert refused(lambda call=call, values=values: call(values)) == (  # type: ignore[misc]
                f"{name}: {parameter} {rest} {parameter}.to_dense()."
            )
        assert refused(lambda values=values: wc.deep.fit_scan(values, 2)) == (  # type: ignore[misc]
            "fit_scan: features must be a numeric array of shape (n, d); got a value of type Tensor that "
            "cannot be converted to one."
        )


def test_frames_with_columns_that_are_not_numeric() -> None:
    frame = pd.DataFrame(np.ones((3, 6)), columns=list("abcdef"))
    text = (
        "must have only numeric or boolean columns; got 'c' (String). Encode them as numbers (if they are "
        "numbers stored as objects, use astype(float)), or drop them."
    )
    assert message(mlp(), frame.assign(c=["u", "v", "w"])) == f"explain: X {text}"
    assert refused(lambda: wc.deep.features(mlp(), frame.assign(c="u"))) == f"features: X {text}"
    missing = frame.assign(c=pd.array([1, None, 2], dtype="Int64"))
    assert message(mlp(), missing) == "explain: X must be finite; input 1 contains NaN or infinite values."
    flags, model = frame.assign(c=[True, False, True]), DeepClustering(mlp(), HEAD)
    numbers = wc.explain(model, flags.astype(float))
    assert np.allclose(wc.explain(model, flags).relevance, numbers.relevance, rtol=1e-5, atol=1e-6)


def test_masked_arrays_are_refused() -> None:
    masked = np.ma.masked_greater(np.arange(12.0).reshape(2, 6), 10)
    assert message(mlp(), masked) == ("explain: X must be a tensor or a numeric array; got MaskedArray.")


@pytest.mark.parametrize(
    "convert",
    [
        lambda x: x[:, ::-1][:, ::-1],
        lambda x: x[:, ::-1].copy()[:, ::-1],  # BGR to RGB
        lambda x: x.astype(">f4"),
        lambda x: np.asfortranarray(x),
        lambda x: x.astype(np.float64),
        lambda x: torch.from_numpy(x).requires_grad_(),
        lambda x: torch.from_numpy(x).to(memory_format=torch.channels_last),
        lambda x: x.tolist(),
        list,
    ],
)
def test_inputs_may_have_any_layout(convert: Callable[[Array], Any]) -> None:
    model = DeepClustering(small(), HEAD)
    exp, same = wc.explain(model, X), wc.explain(model, convert(X))
    assert np.allclose(same.relevance, exp.relevance, rtol=1e-4, atol=1e-5)
    assert np.allclose(same[[0, 2]].relevance, exp.relevance[[0, 2]], rtol=1e-4, atol=1e-5)


def test_inputs_may_be_read_only() -> None:
    frozen = X.copy()
    frozen.flags.writeable = False
    wc.explain(DeepClustering(small(), HEAD), frozen)


# ---- Encoders


def test_encoders_that_are_not_modules() -> None:
    assert refused(lambda: DeepClustering(lambda x: x, HEAD)) == (  # type: ignore[arg-type]
        "DeepClustering: the encoder must be a torch.nn.Module; got function."
    )


@pytest.mark.parametrize("layer", [nn.BatchNorm2d(4), nn.Dropout(), nn.Dropout2d()])
def test_encoders_in_training_mode(layer: nn.Module) -> None:
    encoder = small(layer).train()
    expected = (
        f"the encoder must be in evaluation mode; its 1 ({type(layer).__name__}) is in training mode, where "
        "features are random or depend on the batch. Call encoder.eval() first."
    )
    assert message(encoder, X) == f"explain: {expected}"
    assert refused(lambda: DeepClustering(encoder, HEAD).predict(X)) == f"assign: {expected}"
    assert encoder.training
    encoder.eval()[1].train()  # the layer alone
    assert message(encoder, X) == f"explain: {expected}"


def test_encoders_may_be_in_training_mode_if_it_has_no_effect() -> None:
    wc.explain(DeepClustering(small(nn.ReLU()).train(), HEAD), X)


@pytest.mark.parametrize(
    ("forward", "name"),
    [
        (lambda x: F.dropout(x, training=True), "bernoulli"),
        (lambda x: x + torch.randn(x.shape), "randn"),
        (lambda x: x + torch.randn_like(x), "randn_like"),
        (lambda x: x[:, torch.randperm(5)], "randperm"),
    ],
)
def test_encoders_that_draw_random_numbers(forward: Callable[[Tensor], Tensor], name: str) -> None:
    expected = (
        "the encoder must return the same features each time it runs; they differ for the same input. Call "
        "encoder.eval(), and remove all randomness from its forward method: dropout needs "
        "training=self.training."
    )
    encoder = nn.Sequential(small(), forward_of(forward))
    torch.manual_seed(0)  # two draws may be equal by chance
    assert message(encoder, X) == f"explain: {expected}"
    assert refused(lambda: wc.deep.features(encoder, X)) == f"features: {expected}"
    assert refused(lambda: DeepClustering(encoder, HEAD).predict(X)) == f"assign: {expected}"
    same = "lrp: the encoder must return the same features each time it runs, but"
    advice = "Call encoder.eval(), and remove all randomness from its forward method."
    x = torch.from_numpy(X)
    assert refused(lambda: lrp(encoder, x, lambda y: y)) == (
        f"{same} module '1' of the encoder draws random numbers ({name}). {advice}"
    )


def test_encoders_that_change_from_run_to_run() -> None:
    runs: list[int] = []

    def forward(x: Tensor) -> Tensor:
        runs.append(1)
        result: Tensor = below(x) + (len(runs) > 2)  # not yet when features are computed
        return result

    below = small()
    assert message(forward_of(forward), X) == (
        "explain: the encoder must return the same features each time it runs; for the same inputs they "
        "differ by up to 1. Call encoder.eval(), and remove all randomness from its forward method."
    )


@pytest.mark.parametrize(
    ("forward", "got"),
    [
        (lambda x: {"features": str(x)}, "no tensor"),
        (lambda x: x.mean(), "shape ()"),
        (lambda x: x[:1], "shape (1, 3, 8, 8)"),
        (lambda x: x[:, :0], "shape (3, 0, 8, 8)"),
    ],
)
def test_encoders_without_features(forward: Callable[[Tensor], Any], got: str) -> None:
    assert message(forward_of(forward), X) == (
        "explain: the encoder must return one non-empty row of features per input; for 3 inputs it returns "
        f"{got}. Use layer=... to name a layer that does, or, for a single input, pass X[None]."
    )


def test_encoders_whose_features_do_not_depend_on_the_input() -> None:
    constant = torch.rand(5, generator=torch.Generator().manual_seed(0))
    assert message(forward_of(lambda x: constant.expand(len(x), 5)), X) == (
        "explain: the features must depend on the encoder's input; these features do not."
    )


def test_encoders_whose_features_vary_in_number() -> None:
    encoder = forward_of(lambda x: x.flatten(1)[:, : 5 + int(x.mean() > 0)])
    values = torch.full((4, 1, 8, 8), -1.0)
    values[2:] = 1.0
    assert message(encoder, values, batch_size=2) == (
        "explain: the encoder must return features of the same shape for all inputs; got (5,) and, from "
        "input 2 on, (6,)."
    )


def test_lazy_encoders_are_refused_and_stay_unchanged() -> None:
    encoder = nn.LazyLinear(5)
    expected = (
        "all weights of the encoder must be initialized; a lazy layer creates its weights only when it first "
        "runs. Run and train the encoder first."
    )
    assert message(encoder, np.ones((3, 4))) == f"explain: {expected}"
    assert refused(lambda: lrp(encoder, torch.ones(3, 4), lambda y: y)) == f"lrp: {expected}"
    assert encoder.has_uninitialized_params()


# ---- Layers


@pytest.mark.parametrize(
    ("name", "listed"),
    [
        ("layer5", "The closest names are 'layer4', 'layer3', 'layer2'"),
        ("layer1.0.conv3", "The closest names are 'layer1.0.conv2', 'layer1.0.conv1', 'layer4.0.conv2'"),
        ("zzzzzzzzz", "The closest names are 'conv1', 'bn1', 'relu', 'maxpool', 'layer1'"),
    ],
)
def test_layers_that_do_not_exist(name: str, listed: str) -> None:
    encoder = settled(ResNet18(2))
    expected = (
        f"must be the name of a layer of the encoder, as in its named_modules(); got {name!r}. {listed}."
    )
    assert message(encoder, X, layer=name) == f"DeepClustering: layer {expected}"
    assert message(encoder, X, np.eye(10), {"at": name}) == f"explain: at {expected}"
    assert refused(lambda: lrp(encoder, torch.from_numpy(X), lambda y: y, at=name)) == f"lrp: at {expected}"


def test_layers_of_an_encoder_without_layers() -> None:
    assert message(nn.Linear(2, 5), X, layer="fc") == (
        "DeepClustering: layer must be the name of a layer of the encoder, as in its named_modules(); got "
        "'fc'. The encoder has no layers."
    )


def test_layers_that_run_twice() -> None:
    encoder = settled(OwnResidual())
    assert message(encoder, X, layer="shared") == (
        "explain: layer must run only once in the encoder; 'shared' runs 2 times. Name its parent module, "
        "or a later layer."
    )
    assert message(encoder, X, np.eye(4), {"at": "shared"}) == (
        "explain: at must be a layer that runs once before the features are computed; 'shared' runs 2 times."
    )


def test_layers_that_do_not_run() -> None:
    used, aside = small(), nn.Linear(2, 2)
    encoder = forward_of(used, used, aside)
    assert message(encoder, X, layer="parts.1") == (
        "explain: layer must name a layer that runs in the encoder's forward pass; 'parts.1' does not run."
    )
    assert message(encoder, X, question={"at": "parts.1"}) == (
        "explain: at must be a layer that runs once before the features are computed; 'parts.1' runs 0 times."
    )


def test_messages_start_with_the_public_function() -> None:
    used, aside, x = small(), nn.Linear(2, 2), torch.from_numpy(X)
    encoder = forward_of(used, used, aside)
    for name, call in (
        ("features", lambda: wc.deep.features(encoder, x, layer="parts.1")),
        ("spatial_clusters", lambda: wc.deep.spatial_clusters(encoder, x, "parts.1", 2)),
        ("assign", lambda: DeepClustering(encoder, HEAD, layer="parts.1").predict(x)),
        ("to_torch", lambda: wc.neuralize(DeepClustering(encoder, HEAD, layer="parts.1")).to_torch()(x)),
    ):
        assert refused(call) == (
            f"{name}: layer must name a layer that runs in the encoder's forward pass; 'parts.1' does not "
            "run."
        )
    assert refused(lambda: wc.deep.features(forward_of(lambda x: x.mean()), x)) == (
        "features: the encoder must return one non-empty row of features per input; for 3 inputs it returns "
        "shape (). Use layer=... to name a layer that does, or, for a single input, pass X[None]."
    )
    assert refused(lambda: lrp(encoder, x, lambda y: y, at="parts.1")) == (
        "lrp: at must be a layer that runs once before the features are computed; 'parts.1' runs 0 times."
    )
    nowhere = Composite([("zzz", Gamma())])
    expected = "the rules of a Composite must match layers of the encoder; 'zzz' matches none of its"
    assert refused(lambda: lrp(small(), x, lambda y: y, rules=nowhere)).startswith(f"lrp: {expected}")
    assert refused(lambda: feature_maps(small(), X[0], "0", rules=nowhere)).startswith(
        f"feature_maps: {expected}"
    )
    constant = forward_of(lambda x: torch.ones(len(x), 5))
    assert refused(lambda: lrp(constant, x, lambda y: y)) == (
        "lrp: the features must depend on the encoder's input; these features do not."
    )


def test_later_layers_may_not_fit_the_inputs() -> None:
    encoder = nn.Sequential(small(), nn.Linear(99, 2))
    assert wc.explain(DeepClustering(encoder, HEAD, layer="0"), X).relevance.shape == X.shape


# ---- Heads


def test_features_that_do_not_fit_the_head() -> None:
    first, last = "explain: the encoder must return", "features, the number that the head was fitted on"
    fit = "Fit the head to features of this layer, or use layer=... to name the layer it was fitted to."
    assert message(small(), X, np.eye(7)) == f"{first} 7 {last}; it returns 5. {fit}"
    assert message(small(), X, np.eye(7), layer="0") == f"{first} 7 {last}; it returns 4 x 6 x 6. {fit}"
    assert message(small(), X, np.eye(4), layer="0") == (
        f"{first} 4 {last}; it returns 4 x 6 x 6. Use pool='mean' to average over all locations, or "
        "spatial=True to cluster each location."
    )
    assert message(small(), X, np.eye(7), layer="0", spatial=True) == (
        f"{first} 7 {last}; it returns 4 x 6 x 6. {fit}"
    )
    assert message(small(), X, HEAD, spatial=True) == (
        f"{first} 5 {last}; it returns 5. These features have no locations. Name an earlier layer, or leave "
        "out spatial."
    )


def test_heads_without_values() -> None:
    encoder, spoilt = small(), nn.Linear(5, 3)
    torch.nn.init.constant_(spoilt.bias, torch.nan)
    assert refused(lambda: DeepClustering(encoder, spoilt)) == (
        "DeepClustering: head.bias must be finite; it contains NaN or infinite values."
    )
    rest = (
        "must be a dense tensor, not nested, quantized or on the meta device; got a tensor with dtype "
        "torch.float32 and layout torch.strided on the device meta."
    )
    assert refused(lambda: DeepClustering(encoder, nn.Linear(5, 3, device="meta"))) == (
        f"DeepClustering: head.weight {rest} Convert a sparse tensor with head.weight.to_dense()."
    )
    assert refused(lambda: DeepClustering(encoder, torch.ones(3, 5, device="meta"))) == (
        f"DeepClustering: head {rest} Convert a sparse tensor with head.to_dense()."
    )


def test_heads_of_the_wrong_kind() -> None:
    encoder = small()
    kind = wc.UnsupportedModelError
    assert refused(lambda: DeepClustering(encoder, nn.Sequential(nn.Linear(5, 3))), kind) == (
        "DeepClustering: a head that is a module must be a torch.nn.Linear; got Sequential. Move its other "
        "layers to the encoder."
    )
    assert refused(lambda: DeepClustering(encoder, DeepClustering(encoder, HEAD)), kind) == (
        "DeepClustering: head must be a model that takes numeric features; got DeepClustering."
    )
    assert refused(lambda: DeepClustering(encoder, KMeans(3)), wc.NotFittedError) == (
        "neuralize: the KMeans must be fitted first. Call its fit method."
    )
    assert refused(lambda: DeepClustering(encoder, np.array([0, 1, 1])), kind).startswith(
        "neuralize: labels give the cluster of each row but no rule for other rows,"
    )
    assert refused(lambda: DeepClustering(encoder, "kmeans"), kind).startswith(
        "neuralize: model must be a fitted model; got 'kmeans'."
    )


# ---- Options


def test_options_that_exclude_each_other() -> None:
    assert refused(lambda: DeepClustering(small(), HEAD, spatial=True, pool="mean")) == (
        "DeepClustering: only one of spatial and pool may be set; spatial clusters each location "
        "separately, whereas pool combines all locations. Leave one of them out."
    )


def test_options_that_do_not_exist() -> None:
    encoder = small()
    assert refused(lambda: DeepClustering(encoder, HEAD, pool="sum")) == (
        "DeepClustering: pool must be None, 'mean', 'max' or 'cls'; got 'sum'."
    )
    assert refused(lambda: DeepClustering(encoder, HEAD, batch_size=0)) == (
        "DeepClustering: batch_size must be None or an integer of at least 1; got 0."
    )
    assert message(encoder, X, question={"units": "pixels"}) == (
        "explain: units must be one of None, 'channels', 'locations'; got 'pixels'."
    )
    assert message(encoder, X, question={"feature_names": ["a"]}) == (
        "explain: feature_names applies only to tables; inputs of an encoder have no columns. Leave "
        "feature_names out."
    )
    assert refused(lambda: DeepClustering(encoder, HEAD, rules="vg")) == (
        "DeepClustering: rules must be one of 'auto', 'vgg', 'resnet', 'transformer', 'mlp', 'text', a rule "
        "such as wc.deep.Gamma(0.25), or a wc.deep.Composite; got 'vg'."
    )


@pytest.mark.parametrize("question", [{"at": "features.16"}, {"units": "channels"}])
def test_layers_of_models_without_layers(question: dict[str, Any]) -> None:
    rows = np.random.default_rng(0).normal(size=(20, 2))
    for model in (KMeans(2, n_init=1).fit(rows), rows[:2]):
        assert refused(lambda model=model: wc.explain(model, rows, **question)) == (  # type: ignore[misc]
            "explain: at and units apply only to deep clusterings, which have layers; this model has none. "
            "Leave at and units out."
        )


def test_invalid_rules() -> None:
    assert refused(lambda: Gamma(-1)) == "Gamma: gamma must be a nonnegative number; got -1."
    assert refused(lambda: Gamma(float("nan"))) == "Gamma: gamma must be a nonnegative number; got nan."
    assert refused(lambda: Epsilon("a")) == "Epsilon: epsilon must be a nonnegative number; got 'a'."  # type: ignore[arg-type]
    assert refused(lambda: Composite(max_pool="least")) == (
        "Composite: max_pool must be 'winner' or 'average'; got 'least'."
    )
    assert refused(lambda: Composite(unknown="ignore")) == (
        "Composite: unknown must be 'raise' or 'gradient'; got 'ignore'."
    )
    pairs = (
        "Composite: rules must be pairs of a selector (a name, a pattern or a function) and a rule, and "
        "default must be a rule; got"
    )
    assert refused(lambda: Composite([("first", 3)])) == f"{pairs} ('first', 3)."  # type: ignore[list-item]
    assert refused(lambda: Composite(default="gamma")) == f"{pairs} ('', 'gamma')."  # type: ignore[arg-type]
    assert refused(lambda: Composite(Gamma())) == f"{pairs} Gamma(gamma=0.25)."  # type: ignore[arg-type]
    assert refused(lambda: Composite(None)) == f"{pairs} None."  # type: ignore[arg-type]


def test_rules_may_be_an_iterator() -> None:
    pairs = [("first", Epsilon()), ("linear", Gamma(0.1))]
    once: Any = Composite(iter(pairs))  # type: ignore[arg-type]  # typed as a sequence, but an iterator works
    assert once == Composite(pairs)
    pairs.clear()
    assert len(once.rules) == 2


def test_inputs_outside_the_bounds() -> None:
    inside = X.clip(-1, 1)
    inside[2, 0, 0, 0] = 1.5
    assert message(small(), inside, bounds=(-1, 1)) == (
        "explain: X must be within the bounds of the DeepClustering; input 2 has values from -1 to 1.5. "
        "Normalize images to these bounds, or leave out bounds."
    )
    assert message(small(), inside, bounds=(-1, 1), batch_size=1) == message(small(), inside, bounds=(-1, 1))


def test_invalid_bounds() -> None:
    ends = (
        "ZBox: low and high must be finite numbers or arrays of the same shape, with low no greater than "
        "high; got"
    )
    assert refused(lambda: DeepClustering(small(), HEAD, bounds=(0, 1, 2))) == (  # type: ignore[arg-type]
        "DeepClustering: bounds must be a pair, (smallest value, largest value); got (0, 1, 2)."
    )
    assert refused(lambda: DeepClustering(small(), HEAD, bounds=(1, 0))) == (f"{ends} 1 and 0.")
    assert refused(lambda: DeepClustering(small(), HEAD, bounds=("a", "b"))) == f"{ends} 'a' and 'b'."
    assert refused(lambda: DeepClustering(small(), HEAD, bounds=(0, 1j))) == f"{ends} 0 and 1j."
    assert refused(lambda: ZBox([0, 0], [1, 1, 1])) == f"{ends} [0, 0] and [1, 1, 1]."
    learned = torch.full((3,), -9.0, requires_grad=True)
    exp: Any = wc.explain(DeepClustering(small(), HEAD, bounds=(learned, 9)), X)
    assert np.array_equal(
        exp.relevance, wc.explain(DeepClustering(small(), HEAD, bounds=(-9, 9)), X).relevance
    )
    assert message(small(), X, bounds=([-9, -9], [9, 9])) == (
        "ZBox: low and high must be numbers, one number per channel, or arrays with the shape of one "
        "input, (3, 8, 8); got shape (2,)."
    )


def test_invalid_relevance() -> None:
    assert refused(lambda: lrp(small(), torch.from_numpy(X), torch.ones(3, 4))) == (
        "lrp: relevance must have the shape of the module's output, (3, 5); got (3, 4)."
    )
    x = torch.from_numpy(X)
    for relevance in (None, lambda _: None):
        assert refused(lambda relevance=relevance: lrp(small(), x, relevance)) == (  # type: ignore[misc]
            "lrp: relevance must be a tensor or a numeric array; got NoneType."
        )
    assert refused(lambda: lrp(small(), x, torch.full((3, 5), torch.nan))) == (
        "lrp: relevance must be finite; it contains NaN or infinite values."
    )


def test_relevance_may_have_any_layout() -> None:
    encoder, x, given = small(), torch.from_numpy(X), np.arange(15.0, dtype=np.float32).reshape(3, 5)
    expected = lrp(encoder, x, given)
    for same in (given[::-1].copy()[::-1], pd.DataFrame(given), torch.tensor(given, requires_grad=True)):
        assert torch.equal(lrp(encoder, x, same), expected)


def test_invalid_options_of_spatial_clusters() -> None:
    assert refused(lambda: wc.deep.spatial_clusters(conv_net(), X[0], "2", 2, units="pixels")) == (
        "spatial_clusters: units must be one of None, 'channels', 'locations'; got 'pixels'."
    )
    assert refused(lambda: wc.deep.spatial_clusters(conv_net(), X[0], "2", 2, bounds=(50, 60))).startswith(
        "spatial_clusters: image must be within the bounds of the DeepClustering; input 0 has values"
    )
    with pytest.raises(TypeError, match=r"spatial_clusters\(\) got an unexpected keyword argument 'target'"):
        wc.deep.spatial_clusters(conv_net(), X[0], "2", 2, target=1)  # type: ignore[call-arg]


def test_spatial_clusters_of_layers_with_too_few_locations() -> None:
    encoder = conv_net()
    assert refused(lambda: wc.deep.spatial_clusters(encoder, X[0], "2", 1)) == (
        "spatial_clusters: n_clusters must be an integer of at least 2; got 1."
    )
    assert refused(lambda: wc.deep.spatial_clusters(encoder, X[0], "9", 2)) == (
        "spatial_clusters: the layer must return locations to cluster, in shape (n, channels, ...); it "
        "returns shape (1, 5). Name an earlier layer."
    )
    assert refused(lambda: wc.deep.spatial_clusters(encoder, X[0], "2", 99)) == (
        "spatial_clusters: the layer must have at least n_clusters=99 locations; it has 64. Name an "
        "earlier layer, or request fewer clusters."
    )


def test_unsupported_results_of_deep_clusterings() -> None:
    model = DeepClustering(small(), HEAD)
    network = wc.neuralize(model)
    assert refused(lambda: network.gradient(X), wc.UnsupportedModelError) == (
        "gradient: the model must take tables; got a deep clustering. Differentiate the module "
        "from to_torch() with torch, or call wc.neuralize(head).gradient(features)."
    )
    channels: Any = wc.explain(model, X, units="channels")
    assert refused(lambda: channels.heatmaps) == (
        'heatmaps: relevance must not be summed over locations, as it is with units="channels". Explain '
        "without units."
    )


@pytest.mark.parametrize("method", ["rules", "pair", "strategies", "counterfactual"])
def test_what_needs_columns_is_refused(method: str) -> None:
    rows = np.random.default_rng(0).normal(size=(12, 4)).astype(np.float32)
    encoder = nn.Sequential(nn.Linear(4, 5), nn.ReLU()).eval()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # there are few rows
        exp: Any = wc.explain(DeepClustering(encoder, HEAD), rows)
    with pytest.raises(wc.InvalidInputError) as caught:
        getattr(exp, method)(0, 1)
    assert str(caught.value) == (
        f"{method}: relevance must belong to the columns of a table; it belongs to the inputs of an encoder. "
        f"Use exp.features.{method}, about the features that are clustered."
    )
    assert callable(getattr(exp.features, method))
