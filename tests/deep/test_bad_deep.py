"""Bad encoders, heads and images get a message that says what was expected, what came and what to do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from torch import nn
from torch.nn import functional as F  # noqa: N812  # as everybody calls it

import whycluster as wc
from benchmarks.summaries import feature_maps
from tests.deep.networks import OwnResidual, ResNet18, conv_net, forward_of, images, mlp, settled
from whycluster.deep import ZB, Composite, DeepClustering, Epsilon, Gamma, lrp

Array = NDArray[Any]
Tensor = torch.Tensor
HEAD = np.eye(5)
X: Array = images(3).numpy()
AS_TRAINED = (
    "Give inputs of the size, the order of axes and the dtype that it was trained on; of a "
    "single one, X[None]."
)


def small(*layers: nn.Module) -> Any:
    """A network from images to 5 features, with these layers in it."""
    return settled(nn.Sequential(nn.Conv2d(3, 4, 3), *layers, nn.Flatten(), nn.Linear(144, 5)))


def message(encoder: Any, x: Any, head: Any = HEAD, question: Any = None, **options: Any) -> str:
    with pytest.raises(wc.InvalidInputError) as error:
        wc.explain(DeepClustering(encoder, head, **options), x, **(question or {}))
    return str(error.value)


def refused(make: Callable[[], Any], kind: type[Exception] = wc.InvalidInputError) -> str:
    with pytest.raises(kind) as error:
        make()
    return str(error.value)


# ---- inputs


def test_images_of_another_size() -> None:
    assert message(small(), images(2, size=9)) == (
        "explain: the encoder cannot take X of shape (2, 3, 9, 9), float32: mat1 and mat2 shapes cannot be "
        f"multiplied (2x196 and 144x5). {AS_TRAINED}"
    )


def test_images_whose_channels_come_last() -> None:
    assert message(small(), X.transpose(0, 2, 3, 1)) == (
        "explain: the encoder cannot take X of shape (3, 8, 8, 3), float32: Given groups=1, weight of size "
        "[4, 3, 3, 3], expected input[3, 8, 8, 3] to have 3 channels, but got 8 channels instead. The "
        "channels seem to come last; in torch they come before places, (n, channels, ...). For images, "
        "X.transpose(0, 3, 1, 2) of an array, X.permute(0, 3, 1, 2) of a tensor."
    )


def test_encoders_that_bring_the_channels_forward_themselves_are_taken() -> None:
    within = small()
    encoder = forward_of(lambda x: within(x.permute(0, 3, 1, 2)), within)
    exp = wc.explain(DeepClustering(encoder, HEAD), X.transpose(0, 2, 3, 1))
    expected = wc.explain(DeepClustering(within, HEAD), X).relevance.transpose(0, 2, 3, 1)
    assert np.allclose(exp.relevance, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("bounds", [None, (-2.0, 2.0)])
def test_images_of_bytes(bounds: Any) -> None:
    assert message(small(), np.zeros((2, 3, 8, 8), dtype=np.uint8), bounds=bounds) == (
        "explain: X must be images of real numbers, scaled and normalised as those that the encoder was "
        "trained on; got shape (2, 3, 8, 8), uint8. For bytes of an encoder trained on ImageNet, "
        "wc.deep.normalize(images)."
    )


@pytest.mark.parametrize(
    ("values", "name"),
    [(X > 0, "torch.bool"), (X + 0j, "torch.complex64"), (torch.ones(2, 3) > 0, "torch.bool")],
)
def test_inputs_that_are_no_real_numbers(values: Any, name: str) -> None:
    assert message(small(), values) == f"explain: X must hold real numbers; got {name}."


def test_pixels_that_are_not_finite() -> None:
    bad = X.copy()
    bad[1, 0, 0, 0] = np.nan
    for batch_size in (1, 16):
        assert message(small(), bad, batch_size=batch_size) == (
            "explain: X must be finite; input 1 holds values that are not."
        )


def test_activations_that_are_not_finite() -> None:
    encoder = small(nn.ReLU())
    with torch.no_grad():
        encoder[0].weight[0, 0, 0, 0] = float("nan")
    expected = "features must be finite; of input 0 of X some are not, though it is finite itself."
    assert message(encoder, X) == f"explain: {expected}"
    model = DeepClustering(encoder, HEAD)
    assert refused(lambda: model.predict(X)) == f"assign: {expected}"
    assert refused(lambda: model.transform(X)) == f"transform: {expected}"


def test_a_single_image() -> None:
    assert message(small(nn.BatchNorm2d(4)), X[0]) == (
        "explain: the encoder cannot take X of shape (3, 8, 8), float32: expected 4D input (got 3D input). "
        f"{AS_TRAINED}"
    )
    pooled = nn.Sequential(nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    assert message(pooled, X[0], np.eye(4)) == (
        "explain: the encoder must give features whose first axis counts its inputs; of 3 inputs it "
        "gives shape (4, 1). Name a layer that does: layer=...; of a single input, give X[None]."
    )


@pytest.mark.parametrize("shape", [(6,), (0, 6), (0, 3, 8, 8), ()])
def test_no_inputs_or_a_single_row(shape: tuple[int, ...]) -> None:
    assert message(mlp(), np.ones(shape)) == (
        "explain: X must have a first axis that counts inputs of the encoder, one or more; got shape "
        f"{shape}. For a single one, give X[None]."
    )


@pytest.mark.parametrize(
    ("values", "kind"),
    [([[1.0, 2.0], [3.0]], "list"), (["a", "b"], "list"), (None, "NoneType"), (np.array([{}]), "ndarray")],
)
def test_inputs_that_are_no_array(values: Any, kind: str) -> None:
    assert message(mlp(), values) == (f"explain: X must be a tensor or an array of numbers; got {kind}.")


def test_tensors_without_values_of_their_own() -> None:
    dense = torch.ones(3, 6)
    for values, got in (
        (dense.to_sparse(), "torch.float32, torch.sparse_coo, on the device cpu"),
        (dense.to("meta"), "torch.float32, torch.strided, on the device meta"),
    ):
        rest = f"must be a dense tensor, with values; got one of {got}. Of a sparse one, give"
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
            "fit_scan: features must be numbers in two dimensions (n, d); got Tensor that cannot be read as "
            "such."
        )


def test_frames_with_columns_that_are_no_numbers() -> None:
    frame = pd.DataFrame(np.ones((3, 6)), columns=list("abcdef"))
    text = (
        "must have only numeric or boolean columns; got 'c' (String). Encode them as numbers (objects that "
    )
    assert message(mlp(), frame.assign(c=["u", "v", "w"])).startswith(f"explain: X {text}")
    assert refused(lambda: wc.deep.features(mlp(), frame.assign(c="u"))).startswith(f"features: X {text}")
    missing = frame.assign(c=pd.array([1, None, 2], dtype="Int64"))
    assert message(mlp(), missing) == "explain: X must be finite; input 1 holds values that are not."
    flags, model = frame.assign(c=[True, False, True]), DeepClustering(mlp(), HEAD)
    numbers = wc.explain(model, flags.astype(float))
    assert np.allclose(wc.explain(model, flags).relevance, numbers.relevance, rtol=1e-5, atol=1e-6)


def test_values_behind_a_mask_are_not_taken() -> None:
    masked = np.ma.masked_greater(np.arange(12.0).reshape(2, 6), 10)
    assert message(mlp(), masked) == ("explain: X must be a tensor or an array of numbers; got MaskedArray.")


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
def test_inputs_of_any_layout_are_taken(convert: Callable[[Array], Any]) -> None:
    model = DeepClustering(small(), HEAD)
    exp, same = wc.explain(model, X), wc.explain(model, convert(X))
    assert np.allclose(same.relevance, exp.relevance, rtol=1e-4, atol=1e-5)
    assert np.allclose(same[[0, 2]].relevance, exp.relevance[[0, 2]], rtol=1e-4, atol=1e-5)


def test_read_only_inputs_are_taken() -> None:
    frozen = X.copy()
    frozen.flags.writeable = False
    wc.explain(DeepClustering(small(), HEAD), frozen)


# ---- encoders


def test_encoders_that_are_no_modules() -> None:
    assert refused(lambda: DeepClustering(lambda x: x, HEAD)) == (  # type: ignore[arg-type]
        "DeepClustering: the encoder must be a torch.nn.Module; got function."
    )


@pytest.mark.parametrize("layer", [nn.BatchNorm2d(4), nn.Dropout(), nn.Dropout2d()])
def test_encoders_in_the_mode_of_training(layer: nn.Module) -> None:
    encoder = small(layer).train()
    expected = (
        f"the encoder must be in the mode of evaluation; its 1 ({type(layer).__name__}) is in that of "
        "training, in which features change with the batch or at random. Call encoder.eval() first."
    )
    assert message(encoder, X) == f"explain: {expected}"
    assert refused(lambda: DeepClustering(encoder, HEAD).predict(X)) == f"assign: {expected}"
    assert encoder.training
    encoder.eval()[1].train()  # the layer alone
    assert message(encoder, X) == f"explain: {expected}"


def test_encoders_that_are_in_the_mode_of_training_but_not_affected_by_it_are_taken() -> None:
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
        "the encoder must give the same features each time it is run; of the same input they differ. Call "
        "encoder.eval(), and leave nothing random in its forward: dropout needs training=self.training."
    )
    encoder = nn.Sequential(small(), forward_of(forward))
    torch.manual_seed(0)  # two draws may be the same by chance
    assert message(encoder, X) == f"explain: {expected}"
    assert refused(lambda: wc.deep.features(encoder, X)) == f"features: {expected}"
    assert refused(lambda: DeepClustering(encoder, HEAD).predict(X)) == f"assign: {expected}"
    same = "lrp: the encoder must give the same features each time it is run, but"
    advice = "Call encoder.eval(), and leave nothing random in its forward."
    x = torch.from_numpy(X)
    assert refused(lambda: lrp(encoder, x, lambda y: y)) == (
        f"{same} module '1' of the encoder draws random numbers ({name}). {advice}"
    )


def test_encoders_that_change_from_run_to_run() -> None:
    runs: list[int] = []

    def forward(x: Tensor) -> Tensor:
        runs.append(1)
        result: Tensor = below(x) + (len(runs) > 2)  # not yet where features are computed
        return result

    below = small()
    assert message(forward_of(forward), X) == (
        "explain: the encoder must give the same features each time it is run; of the same inputs they "
        "differ by up to 1. Call encoder.eval(), and leave nothing random in its forward."
    )


@pytest.mark.parametrize(
    ("forward", "got"),
    [
        (lambda x: {"features": x}, "no tensor"),
        (lambda x: x.mean(), "shape ()"),
        (lambda x: x[:1], "shape (1, 3, 8, 8)"),
        (lambda x: x[:, :0], "shape (3, 0, 8, 8)"),
    ],
)
def test_encoders_that_give_no_features(forward: Callable[[Tensor], Any], got: str) -> None:
    assert message(forward_of(forward), X) == (
        "explain: the encoder must give features whose first axis counts its inputs; of 3 inputs it gives "
        f"{got}. Name a layer that does: layer=...; of a single input, give X[None]."
    )


def test_encoders_whose_features_do_not_depend_on_the_input() -> None:
    constant = torch.rand(5, generator=torch.Generator().manual_seed(0))
    assert message(forward_of(lambda x: constant.expand(len(x), 5)), X) == (
        "explain: the features that the encoder gives do not depend on its input."
    )


def test_encoders_whose_features_vary_in_number() -> None:
    encoder = forward_of(lambda x: x.flatten(1)[:, : 5 + int(x.mean() > 0)])
    values = torch.full((4, 1, 8, 8), -1.0)
    values[2:] = 1.0
    assert message(encoder, values, batch_size=2) == (
        "explain: the encoder must give features of one shape; got (5,) and, from input 2 on, (6,)."
    )


def test_encoders_whose_weights_are_not_made_yet_stay_as_they_are() -> None:
    encoder = nn.LazyLinear(5)
    expected = (
        "the encoder must have its weights; those of a lazy layer are made when it is first run. Run it, and "
        "train it, first."
    )
    assert message(encoder, np.ones((3, 4))) == f"explain: {expected}"
    assert refused(lambda: lrp(encoder, torch.ones(3, 4), lambda y: y)) == f"lrp: {expected}"
    assert encoder.has_uninitialized_params()


# ---- layers


@pytest.mark.parametrize(
    ("name", "listed"),
    [
        ("layer5", "the closest are 'layer4', 'layer3', 'layer2'"),
        ("layer1.0.conv3", "the closest are 'layer1.0.conv2', 'layer1.0.conv1', 'layer4.0.conv2'"),
        ("zzzzzzzzz", "the closest are 'conv1', 'bn1', 'relu', 'maxpool', 'layer1'"),
    ],
)
def test_layers_that_do_not_exist(name: str, listed: str) -> None:
    encoder = settled(ResNet18(2))
    expected = (
        f"must be the name of a layer of the encoder, as in its named_modules(); got {name!r}; {listed}."
    )
    assert message(encoder, X, layer=name) == f"DeepClustering: layer {expected}"
    assert message(encoder, X, np.eye(10), {"at": name}) == f"explain: at {expected}"
    assert refused(lambda: lrp(encoder, torch.from_numpy(X), lambda y: y, at=name)) == f"lrp: at {expected}"


def test_layers_of_an_encoder_without_layers() -> None:
    assert message(nn.Linear(2, 5), X, layer="fc") == (
        "DeepClustering: layer must be the name of a layer of the encoder, as in its named_modules(); "
        "got 'fc'; it has none."
    )


def test_layers_that_run_twice() -> None:
    encoder = settled(OwnResidual())
    assert message(encoder, X, layer="shared") == (
        "explain: layer must be one that runs once in the encoder; 'shared' runs 2 times. Name the "
        "module around it, or one that runs after it."
    )
    assert message(encoder, X, np.eye(4), {"at": "shared"}) == (
        "explain: at must be a layer that runs once on the way to the features; 'shared' runs 2 times."
    )


def test_layers_that_do_not_run() -> None:
    used, aside = small(), nn.Linear(2, 2)
    encoder = forward_of(used, used, aside)
    assert message(encoder, X, layer="parts.1") == (
        "explain: the layer 'parts.1' of the encoder must take part in its forward pass; it does not."
    )
    assert message(encoder, X, question={"at": "parts.1"}) == (
        "explain: at must be a layer that runs once on the way to the features; 'parts.1' runs 0 times."
    )


def test_messages_begin_with_the_function_that_was_called() -> None:
    used, aside, x = small(), nn.Linear(2, 2), torch.from_numpy(X)
    encoder = forward_of(used, used, aside)
    for name, call in (
        ("features", lambda: wc.deep.features(encoder, x, layer="parts.1")),
        ("spatial_clusters", lambda: wc.deep.spatial_clusters(encoder, x, "parts.1", 2)),
        ("assign", lambda: DeepClustering(encoder, HEAD, layer="parts.1").predict(x)),
        ("to_torch", lambda: wc.neuralize(DeepClustering(encoder, HEAD, layer="parts.1")).to_torch()(x)),
    ):
        assert refused(call) == (
            f"{name}: the layer 'parts.1' of the encoder must take part in its forward pass; it does not."
        )
    assert refused(lambda: wc.deep.features(forward_of(lambda x: x.mean()), x)) == (
        "features: the encoder must give features whose first axis counts its inputs; of 3 inputs it gives "
        "shape (). Name a layer that does: layer=...; of a single input, give X[None]."
    )
    assert refused(lambda: lrp(encoder, x, lambda y: y, at="parts.1")) == (
        "lrp: at must be a layer that runs once on the way to the features; 'parts.1' runs 0 times."
    )
    nowhere = Composite([("zzz", Gamma())])
    expected = "the rules of a Composite must be for places that the encoder has; 'zzz' is none of its"
    assert refused(lambda: lrp(small(), x, lambda y: y, rules=nowhere)).startswith(f"lrp: {expected}")
    assert refused(lambda: feature_maps(small(), X[0], "0", rules=nowhere)).startswith(
        f"feature_maps: {expected}"
    )
    constant = forward_of(lambda x: torch.ones(len(x), 5))
    assert refused(lambda: lrp(constant, x, lambda y: y)) == (
        "lrp: the features that the encoder gives do not depend on its input."
    )


def test_what_comes_after_the_layer_need_not_fit() -> None:
    encoder = nn.Sequential(small(), nn.Linear(99, 2))
    assert wc.explain(DeepClustering(encoder, HEAD, layer="0"), X).relevance.shape == X.shape


# ---- heads


def test_features_of_another_width_than_the_head() -> None:
    first = "explain: the encoder must give as many features as the head was fitted on,"
    fit = "Fit the head to features of this layer, or name the layer that it was fitted to: layer=..."
    assert message(small(), X, np.eye(7)) == f"{first} 7; it gives 5. {fit}"
    assert message(small(), X, np.eye(7), layer="0") == f"{first} 7; it gives 4 x 6 x 6. {fit}"
    assert message(small(), X, np.eye(4), layer="0") == (
        f"{first} 4; it gives 4 x 6 x 6. pool='mean' averages over the places; spatial=True clusters "
        "each place on its own."
    )
    assert message(small(), X, np.eye(7), layer="0", spatial=True) == f"{first} 7; it gives 4 x 6 x 6. {fit}"
    assert message(small(), X, HEAD, spatial=True) == (
        f"{first} 5; it gives 5. These have no places; name an earlier layer, or leave spatial out."
    )


def test_heads_without_values() -> None:
    encoder, spoilt = small(), nn.Linear(5, 3)
    torch.nn.init.constant_(spoilt.bias, torch.nan)
    assert refused(lambda: DeepClustering(encoder, spoilt)) == (
        "DeepClustering: head.bias must be finite; it holds values that are not."
    )
    rest = "must be a dense tensor, with values; got one of torch.float32, torch.strided, on the device meta."
    assert refused(lambda: DeepClustering(encoder, nn.Linear(5, 3, device="meta"))) == (
        f"DeepClustering: head.weight {rest} Of a sparse one, give head.weight.to_dense()."
    )
    assert refused(lambda: DeepClustering(encoder, torch.ones(3, 5, device="meta"))) == (
        f"DeepClustering: head {rest} Of a sparse one, give head.to_dense()."
    )


def test_heads_of_the_wrong_kind() -> None:
    encoder = small()
    kind = wc.UnsupportedModelError
    assert refused(lambda: DeepClustering(encoder, nn.Sequential(nn.Linear(5, 3))), kind) == (
        "DeepClustering: head must be a torch.nn.Linear, if it is a module; got Sequential. Leave the "
        "layers below its last one to the encoder."
    )
    assert refused(lambda: DeepClustering(encoder, DeepClustering(encoder, HEAD)), kind) == (
        "DeepClustering: head must cluster features that are numbers; got DeepClustering."
    )
    assert refused(lambda: DeepClustering(encoder, KMeans(3)), wc.NotFittedError) == (
        "neuralize: the KMeans must be fitted first. Call its fit method."
    )
    assert refused(lambda: DeepClustering(encoder, np.array([0, 1, 1])), kind).startswith(
        "neuralize: labels say which cluster each row is in"
    )
    assert refused(lambda: DeepClustering(encoder, "kmeans"), kind).startswith(
        "neuralize: model must be a fitted model; got 'kmeans'."
    )


# ---- options


def test_options_that_exclude_each_other() -> None:
    assert refused(lambda: DeepClustering(small(), HEAD, spatial=True, pool="mean")) == (
        "DeepClustering: spatial clusters each place on its own, pool makes one of all; choose one."
    )


def test_options_that_do_not_exist() -> None:
    encoder = small()
    assert refused(lambda: DeepClustering(encoder, HEAD, pool="sum")) == (
        "DeepClustering: pool must be None, 'mean' or 'max'; got 'sum'."
    )
    assert refused(lambda: DeepClustering(encoder, HEAD, batch_size=0)) == (
        "DeepClustering: batch_size must be None or a whole number of at least 1; got 0."
    )
    assert message(encoder, X, question={"units": "pixels"}) == (
        "explain: units must be one of None, 'channels', 'places'; got 'pixels'."
    )
    assert message(encoder, X, question={"feature_names": ["a"]}) == (
        "explain: feature_names is for tables; an encoder's inputs have none."
    )
    assert refused(lambda: DeepClustering(encoder, HEAD, rules="vg")) == (
        "DeepClustering: rules must be one of 'auto', 'vgg', 'resnet', 'transformer', 'mlp', a rule such as "
        "wc.deep.Gamma(0.25), or a wc.deep.Composite; got 'vg'."
    )


@pytest.mark.parametrize("question", [{"at": "features.16"}, {"units": "channels"}])
def test_layers_of_models_that_have_none(question: dict[str, Any]) -> None:
    rows = np.random.default_rng(0).normal(size=(20, 2))
    for model in (KMeans(2, n_init=1).fit(rows), rows[:2]):
        assert refused(lambda model=model: wc.explain(model, rows, **question)) == (  # type: ignore[misc]
            "explain: at and units are for deep clusterings, which have layers; this model has none. "
            "Leave them out."
        )


def test_rules_that_are_none() -> None:
    assert refused(lambda: Gamma(-1)) == "Gamma: gamma must be a number from 0 on; got -1."
    assert refused(lambda: Gamma(float("nan"))) == "Gamma: gamma must be a number from 0 on; got nan."
    assert refused(lambda: Epsilon("a")) == "Epsilon: epsilon must be a number from 0 on; got 'a'."  # type: ignore[arg-type]
    assert refused(lambda: Composite(max_pool="least")) == (
        "Composite: max_pool must be 'winner' or 'average'; got 'least'."
    )
    assert refused(lambda: Composite(unknown="ignore")) == (
        "Composite: unknown must be 'raise' or 'gradient'; got 'ignore'."
    )
    pairs = (
        "Composite: rules must be pairs of a place (a name, a pattern or a function) and a rule, and "
        "default a rule; got"
    )
    assert refused(lambda: Composite([("first", 3)])) == f"{pairs} ('first', 3)."  # type: ignore[list-item]
    assert refused(lambda: Composite(default="gamma")) == f"{pairs} ('', 'gamma')."  # type: ignore[arg-type]
    assert refused(lambda: Composite(Gamma())) == f"{pairs} Gamma(gamma=0.25)."  # type: ignore[arg-type]
    assert refused(lambda: Composite(None)) == f"{pairs} None."  # type: ignore[arg-type]


def test_rules_that_can_be_gone_through_once_are_kept() -> None:
    pairs = [("first", Epsilon()), ("linear", Gamma(0.1))]
    once: Any = Composite(iter(pairs))  # type: ignore[arg-type]  # a list is asked for, but this is as good
    assert once == Composite(pairs)
    pairs.clear()
    assert len(once.rules) == 2


def test_inputs_outside_the_bounds() -> None:
    inside = X.clip(-1, 1)
    inside[2, 0, 0, 0] = 1.5
    assert message(small(), inside, bounds=(-1, 1)) == (
        "explain: X must lie within the bounds of the DeepClustering; input 2 does not, with values from "
        "-1 to 1.5. Normalise images as the bounds say, or leave bounds out."
    )
    assert message(small(), inside, bounds=(-1, 1), batch_size=1) == message(small(), inside, bounds=(-1, 1))


def test_bounds_that_are_none() -> None:
    ends = (
        "ZB: low and high must be finite numbers, as many of the one as of the other, and low no greater "
        "than high; got"
    )
    assert refused(lambda: DeepClustering(small(), HEAD, bounds=(0, 1, 2))) == (  # type: ignore[arg-type]
        "DeepClustering: bounds must be two, the least and the greatest; got (0, 1, 2)."
    )
    assert refused(lambda: DeepClustering(small(), HEAD, bounds=(1, 0))) == (f"{ends} 1 and 0.")
    assert refused(lambda: DeepClustering(small(), HEAD, bounds=("a", "b"))) == f"{ends} 'a' and 'b'."
    assert refused(lambda: DeepClustering(small(), HEAD, bounds=(0, 1j))) == f"{ends} 0 and 1j."
    assert refused(lambda: ZB([0, 0], [1, 1, 1])) == f"{ends} [0, 0] and [1, 1, 1]."
    learned = torch.full((3,), -9.0, requires_grad=True)
    exp: Any = wc.explain(DeepClustering(small(), HEAD, bounds=(learned, 9)), X)
    assert np.array_equal(
        exp.relevance, wc.explain(DeepClustering(small(), HEAD, bounds=(-9, 9)), X).relevance
    )
    assert message(small(), X, bounds=([-9, -9], [9, 9])) == (
        "ZB: low and high must be numbers, one for each channel, or of the shape (3, 8, 8) of one input; "
        "got shape (2,)."
    )


def test_relevance_of_another_shape_than_the_features() -> None:
    assert refused(lambda: lrp(small(), torch.from_numpy(X), torch.ones(3, 4))) == (
        "lrp: relevance must be of the shape of what the module gives, (3, 5); got (3, 4)."
    )
    x = torch.from_numpy(X)
    for relevance in (None, lambda _: None):
        assert refused(lambda relevance=relevance: lrp(small(), x, relevance)) == (  # type: ignore[misc]
            "lrp: relevance must be a tensor or an array of numbers; got NoneType."
        )
    assert refused(lambda: lrp(small(), x, torch.full((3, 5), torch.nan))) == (
        "lrp: relevance must be finite; it holds values that are not."
    )


def test_relevance_of_any_layout_is_taken() -> None:
    encoder, x, given = small(), torch.from_numpy(X), np.arange(15.0, dtype=np.float32).reshape(3, 5)
    expected = lrp(encoder, x, given)
    for same in (given[::-1].copy()[::-1], pd.DataFrame(given), torch.tensor(given, requires_grad=True)):
        assert torch.equal(lrp(encoder, x, same), expected)


def test_spatial_clusters_read_where_nothing_is() -> None:
    assert refused(lambda: wc.deep.spatial_clusters(conv_net(), X[0], "2", 2, units="pixels")) == (
        "spatial_clusters: units must be one of None, 'channels', 'places'; got 'pixels'."
    )
    assert refused(lambda: wc.deep.spatial_clusters(conv_net(), X[0], "2", 2, bounds=(50, 60))).startswith(
        "spatial_clusters: image must lie within the bounds of the DeepClustering; input 0 does not, with"
    )
    with pytest.raises(TypeError, match=r"spatial_clusters\(\) got an unexpected keyword argument 'target'"):
        wc.deep.spatial_clusters(conv_net(), X[0], "2", 2, target=1)  # type: ignore[call-arg]


def test_spatial_clusters_of_what_has_too_few_places() -> None:
    encoder = conv_net()
    assert refused(lambda: wc.deep.spatial_clusters(encoder, X[0], "2", 1)) == (
        "spatial_clusters: n_clusters must be a whole number of at least 2; got 1."
    )
    assert refused(lambda: wc.deep.spatial_clusters(encoder, X[0], "9", 2)) == (
        "spatial_clusters: a layer must have places to be clustered by, (n, channels, ...); it gives (1, 5). "
        "Name an earlier layer."
    )
    assert refused(lambda: wc.deep.spatial_clusters(encoder, X[0], "2", 99)) == (
        "spatial_clusters: the layer must have at least as many places as there are clusters, 99; it has 64."
    )


def test_what_a_deep_clustering_cannot_give() -> None:
    model = DeepClustering(small(), HEAD)
    network = wc.neuralize(model)
    assert refused(lambda: network.gradient(X), wc.UnsupportedModelError) == (
        "gradient: of a deep clustering, torch gives it, of what to_torch() gives. In the features it is "
        "wc.neuralize(head).gradient(features)."
    )
    channels: Any = wc.explain(model, X, units="channels")
    assert refused(lambda: channels.heatmaps) == (
        'heatmaps: relevance was added up over the places (units="channels"), so that there are no maps. '
        "Explain without units."
    )
