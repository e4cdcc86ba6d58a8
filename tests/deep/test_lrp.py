"""LRP through torch modules: compared with an explicit reference, and tested for its invariants."""

from __future__ import annotations

import copy
import re
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn
from torch.nn import functional as F  # noqa: N812  # the usual name
from torch.nn.modules import module as torch_hooks

import whycluster as wc
from tests.deep.networks import (
    VGG16,
    Autoencoder,
    BasicBlock,
    OwnResidual,
    ResNet18,
    ViT,
    ViTBlock,
    conv_net,
    forward_of,
    images,
    mlp,
    settled,
)
from tests.reference import lrp as reference
from tests.reference.lrp import Pass, Value
from whycluster.deep import Composite, DeepClustering, Epsilon, Flat, Gamma, WSquare, ZBox, ZPlus, lrp
from whycluster.deep.encoder import Encoder, Inputs

Array = NDArray[Any]
Tensor = torch.Tensor

RULES: dict[str, tuple[Any, reference.Rule]] = {
    "epsilon": (Epsilon(1e-2), reference.epsilon(1e-2)),
    "proportional": (Epsilon(0.0), reference.epsilon(0.0)),
    "gamma": (Gamma(0.25), reference.gamma(0.25)),
    "strong gamma": (Gamma(10.0), reference.gamma(10.0)),
    "z-plus": (ZPlus(), reference.z_plus),
    "zB": (ZBox(-5.0, 6.0), reference.z_b(-5.0, 6.0)),
    "w-squared": (WSquare(), reference.w_squared),
    "flat": (Flat(), reference.flat),
}


def refer(module: Any, run: Pass, x: Value) -> Value:
    """Run the forward pass of a test network with the reference."""
    if isinstance(module, (nn.Sequential, nn.Linear, nn.Conv2d)):
        return refer_in_order(list(module) if isinstance(module, nn.Sequential) else [module], run, x)
    own: Any = REFERENCES[type(module)]
    result: Value = own(module, run, x)
    return result


def refer_in_order(layers: list[nn.Module], run: Pass, x: Value) -> Value:
    """Run layers in order; a batch norm after a linear layer is part of it."""
    while layers:
        first = layers.pop(0)
        if isinstance(first, (nn.Linear, nn.Conv1d, nn.Conv2d)):
            norm = layers and isinstance(layers[0], nn.modules.batchnorm._BatchNorm)
            x = run.linear(first, x, layers.pop(0) if norm else None)
        else:
            x = refer(first, run, x)
    return x


def _block(block: Any, run: Pass, x: Value) -> Value:
    identity = x if block.downsample is None else refer(block.downsample, run, x)
    y = run.each(torch.relu, run.linear(block.conv1, x, block.bn1))
    return run.each(torch.relu, run.add(run.linear(block.conv2, y, block.bn2), identity))


def _resnet(net: Any, run: Pass, x: Value) -> Value:
    x = run.max_pool(run.each(torch.relu, run.linear(net.conv1, x, net.bn1)), 3, 2, 1)
    for stage in (net.layer1, net.layer2, net.layer3, net.layer4):
        x = refer(stage, run, x)
    x = run.average_of(lambda a: a.mean((2, 3)), x)
    return run.linear(net.fc, x)


def _own(net: Any, run: Pass, x: Value) -> Value:
    x = run.each(torch.relu, run.linear(net.stem, x))
    y = run.each(torch.relu, run.add(x, run.scale(run.linear(net.shared, x), 0.5)))
    z = run.linear(net.shared, run.max_pool(y, 2, 2))
    z = run.add(z, run.average_of(lambda a: F.avg_pool2d(a, 2), y))
    z = run.average_of(lambda a: a.mean((2, 3)), run.each(torch.relu, z))
    last = nn.Linear(len(z.value), len(net.weight), bias=False)
    last.weight = net.weight
    return run.linear(last, z)


def _attend(layer: Any, run: Pass, x: Value) -> Value:
    """Run `tests.deep.networks.Attention` as a module of torch."""
    whole = nn.MultiheadAttention(layer.proj.in_features, layer.heads)
    whole.in_proj_weight, whole.in_proj_bias = layer.qkv.weight, layer.qkv.bias
    whole.out_proj = layer.proj
    return run.attention(whole, x)


def _vit_block(block: Any, run: Pass, x: Value) -> Value:
    y = run.layer_norm(block.norm1, x)
    y = run.attention(block.attention, y) if block.module else _attend(block.attention, run, y)
    x = run.add(x, y)
    y = run.rows(block.mlp[0], run.layer_norm(block.norm2, x))
    return run.add(x, run.rows(block.mlp[2], run.each(F.gelu, y)))


def _vit(net: Any, run: Pass, x: Value) -> Value:
    x = run.linear(net.patches, x)
    x = run.moved(lambda a: a.reshape(len(a), -1).T, x)
    x = run.with_constant(net.token.detach()[0], x)
    x = run.shift(x, net.positions.detach()[0])
    x = run.layer_norm(net.norm, refer(net.blocks, run, x))
    return run.moved(lambda a: a[0], x)


REFERENCES: dict[Any, Callable[[Any, Pass, Value], Value]] = {
    nn.ReLU: lambda _, run, x: run.each(torch.relu, x),
    nn.Tanh: lambda _, run, x: run.each(torch.tanh, x),
    nn.GELU: lambda _, run, x: run.each(F.gelu, x),
    nn.LeakyReLU: lambda layer, run, x: run.each(layer, x),
    nn.Dropout: lambda _layer, _run, x: x,
    nn.Flatten: lambda _, run, x: run.moved(np.ravel, x),
    nn.Unflatten: lambda layer, run, x: run.moved(lambda a: a.reshape(layer.unflattened_size), x),
    nn.MaxPool2d: lambda layer, run, x: run.max_pool(x, layer.kernel_size, layer.stride, layer.padding),
    nn.AvgPool2d: lambda layer, run, x: run.average_of(layer, x),
    nn.ConvTranspose2d: lambda layer, run, x: run.linear(layer, x),
    nn.BatchNorm1d: lambda layer, run, x: run.batch_norm(layer, x),
    nn.BatchNorm2d: lambda layer, run, x: run.batch_norm(layer, x),
    nn.LayerNorm: lambda layer, run, x: run.layer_norm(layer, x),
    Autoencoder: lambda net, run, x: refer(net.decoder, run, refer(net.encoder, run, x)),
    BasicBlock: _block,
    ResNet18: _resnet,
    OwnResidual: _own,
    ViT: _vit,
    ViTBlock: _vit_block,
}


def referred(module: nn.Module, x: Tensor, rule: reference.Rule, **options: Any) -> tuple[Array, Array]:
    """Return features and relevance of a batch by the reference, with the features as their own relevance."""
    double = copy.deepcopy(module).double()
    features, relevance = [], []
    for row in x.double().numpy():
        run, source = Pass(rule, **options), Value(row)
        output = refer(double, run, source)
        run.back(output, output.value)
        features.append(output.value)
        relevance.append(source.relevance)
    return np.stack(features), np.stack(relevance)


def agree(found: Tensor, expected: Array, dtype: torch.dtype) -> None:
    """Assert agreement within single precision, and almost exact agreement in double precision."""
    assert found.dtype == dtype
    bound = 1e-3 if dtype == torch.float32 else 1e-9
    assert np.abs(found.double().numpy() - expected).max() <= bound * np.abs(expected).max()


NETWORKS: dict[str, tuple[Callable[[], Any], Tensor]] = {
    "mlp": (mlp, torch.randn(3, 6, generator=torch.Generator().manual_seed(0))),
    "conv": (conv_net, images(2)),
    "resnet": (lambda: settled(ResNet18(4)), images(2, size=16)),
    "own": (lambda: settled(OwnResidual()), images(2)),
    "vit": (lambda: settled(ViT(module=True)), images(2)),
    "vit, function": (lambda: settled(ViT(module=False)), images(2)),
    "encoder": (lambda: settled(Autoencoder()).encoder, images(2, channels=1)),
    "autoencoder": (lambda: settled(Autoencoder()), images(2, channels=1)),
}


# ---- Agreement with the reference


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("rule", ["gamma", "epsilon"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_networks_agree_with_the_reference(network: str, rule: str, dtype: torch.dtype) -> None:
    build, x = NETWORKS[network]
    module = build().to(dtype)
    ours, theirs = RULES[rule]
    features, expected = referred(module, x.to(dtype), theirs)
    found = lrp(module, x.to(dtype), lambda y: y, rules=ours)
    with torch.no_grad():
        # The reference is for this network.
        assert np.allclose(module(x.to(dtype)).double(), features, atol=1e-4)
    agree(found, expected, dtype)


@pytest.mark.parametrize("network", ["mlp", "conv", "own", "autoencoder"])
@pytest.mark.parametrize("rule", RULES)
def test_rules_agree_with_the_reference(network: str, rule: str) -> None:
    build, x = NETWORKS[network]
    module = build().double()
    ours, theirs = RULES[rule]
    expected = referred(module, x.double(), theirs)[1]
    agree(lrp(module, x.double(), lambda y: y, rules=ours), expected, torch.float64)


@pytest.mark.parametrize("network", ["mlp", "conv", "own", "vit, function"])
@pytest.mark.parametrize("rule", ["gamma", "proportional", "z-plus", "zB"])
def test_biases_with_relevance_agree_with_the_reference(network: str, rule: str) -> None:
    build, x = NETWORKS[network]
    module = build().double()
    ours, theirs = RULES[rule]
    expected = referred(module, x.double(), theirs, biases=True)[1]
    found = lrp(module, x.double(), lambda y: y, rules=Composite(default=ours, biases=True))
    agree(found, expected, torch.float64)


@pytest.mark.parametrize("network", ["conv", "own"])
def test_max_pooling_as_a_mean_agrees_with_the_reference(network: str) -> None:
    build, x = NETWORKS[network]
    module = build().double()
    expected = referred(module, x.double(), reference.gamma(0.25), average=True)[1]
    found = lrp(module, x.double(), lambda y: y, rules=Composite(default=Gamma(0.25), max_pool="average"))
    agree(found, expected, torch.float64)


LAYERS: dict[str, tuple[nn.Module, Tensor]] = {
    "convolution": (nn.Conv2d(3, 4, 3, stride=2, padding=1), images(2)),
    "groups": (nn.Conv2d(4, 6, 3, groups=2, dilation=2, bias=False), images(2, channels=4)),
    "transposed": (nn.ConvTranspose2d(3, 4, 3, stride=2, padding=1, output_padding=1), images(2, size=4)),
    "transposed, batch norm": (
        nn.Sequential(nn.ConvTranspose2d(4, 4, 3, groups=2), nn.BatchNorm2d(4)),
        images(2, channels=4, size=4),
    ),
    "one dimension": (nn.Sequential(nn.Conv1d(3, 4, 3), nn.BatchNorm1d(4)), images(2)[:, :, 0].clone()),
    "matrix": (nn.Sequential(nn.Linear(8, 5), nn.BatchNorm1d(5)), images(2)[:, 0, 0].clone()),
    "batch norm alone": (nn.Sequential(nn.BatchNorm2d(3), nn.Conv2d(3, 2, 3)), images(2)),
    "batch norm behind a ReLU": (
        nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.BatchNorm2d(4), nn.Conv2d(4, 2, 3)),
        images(2),
    ),
    "layer norm": (nn.Sequential(nn.Linear(8, 6), nn.LayerNorm(6)), images(2)[:, 0, 0].clone()),
}


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("layer", LAYERS)
def test_layers_agree_with_the_reference(layer: str, rule: str) -> None:
    module, x = LAYERS[layer]
    module = settled(module).double()
    ours, theirs = RULES[rule]
    expected = referred(module, x.double(), theirs)[1]
    agree(lrp(module, x.double(), lambda y: y, rules=ours), expected, torch.float64)


# ---- Conservation


@pytest.mark.parametrize("module", [True, False])
def test_epsilon_zero_without_biases_is_gradient_times_input(module: bool) -> None:
    net: Any = nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1, bias=False),
        nn.BatchNorm2d(4) if module else nn.Identity(),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(4, 5, 3, bias=False),
        nn.LeakyReLU(0.1),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(5, 3, bias=False),
    )
    net = settled(net).double()
    if module:
        net[1].bias.data.zero_()
        net[1].running_mean.zero_()
    x = images(2).double().requires_grad_()
    y = net(x)
    (gradient,) = torch.autograd.grad(y.sum(), x)
    found = lrp(net, x, lambda y: y, rules=Composite(default=Epsilon(0.0), sums=0.0))
    assert torch.allclose(found, (gradient * x).detach(), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("shape", [(3, 6), (2, 4, 6)])
def test_a_linear_layer_of_tokens_applies_to_each_token(shape: tuple[int, ...]) -> None:
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0)).double()
    layer = settled(nn.Linear(6, 4)).double()
    found = lrp(layer, x, lambda y: y, rules=Gamma(0.25))
    one_by_one = [lrp(layer, row[None], lambda y: y, rules=Gamma(0.25)) for row in x.reshape(-1, 6)]
    assert torch.allclose(found.reshape(-1, 6), torch.cat(one_by_one), rtol=1e-9)


def kept(model: DeepClustering, X: Any, bound: float = 1e-4, **options: Any) -> None:
    """Assert that relevance has the same sum at inputs and features, within 1e-4 of the evidence."""
    exp: Any = wc.explain(model, X, **options)
    at_input = exp.relevance.reshape(len(X), -1).sum(axis=1, dtype=np.float64)
    at_features = exp.features.relevance.sum(axis=1, dtype=np.float64)
    assert (exp.evidence > 0).all()
    assert (np.abs(at_input - at_features) <= bound * exp.evidence).all()
    assert np.allclose(exp.residual, exp.evidence - at_input)


def centroids_of(encoder: Any, X: Tensor, n_clusters: int = 3, **options: Any) -> Array:
    """Return slightly perturbed features of some inputs as centroids."""
    read = Encoder(encoder, options.get("layer"), options.get("pool"), len(X))
    rows = read.features(Inputs.open(X, "test")).reshape(len(X), -1)[:n_clusters].astype(np.float64)
    centroids: Array = rows + 0.3 * rows.std() * np.random.default_rng(0).normal(size=rows.shape)
    return centroids


CONSERVING: dict[str, tuple[Callable[[], Any], Tensor, dict[str, Any], dict[str, Any]]] = {
    "vgg": (lambda: settled(VGG16()), images(3, size=64), {"pool": "mean"}, {}),
    "vgg without biases": (lambda: settled(VGG16(bias=False)), images(3, size=64), {"pool": "mean"}, {}),
    "resnet": (lambda: settled(ResNet18(8)), images(4, size=64), {"layer": "avgpool"}, {}),
    "resnet, last layer": (lambda: settled(ResNet18(8)), images(4, size=64), {}, {}),
    "own": (lambda: settled(OwnResidual()), images(4), {}, {}),
    "mlp": (mlp, torch.randn(5, 6, generator=torch.Generator().manual_seed(1)), {}, {}),
    "vit": (lambda: settled(ViT(True, 16, 4, 3), 1), images(4, seed=1), {}, {"at": "dropout"}),
    "vit, function": (lambda: settled(ViT(False, 16, 4, 3), 1), images(4, seed=1), {}, {"at": "dropout"}),
    "encoder": (
        lambda: settled(Autoencoder()).encoder,
        images(4, channels=1),
        {},
        {},
    ),
    "autoencoder": (lambda: settled(Autoencoder()), images(4, channels=1), {"layer": "encoder"}, {}),
    "decoder": (lambda: settled(Autoencoder()), images(4, channels=1), {}, {}),
}


@pytest.mark.parametrize("network", CONSERVING)
def test_relevance_is_conserved(network: str) -> None:
    build, X, options, question = CONSERVING[network]
    encoder = build()
    head = centroids_of(encoder, X, **options)
    kept(DeepClustering(encoder, head, **options), X, **question)


@pytest.mark.parametrize("rule", ["gamma", "w-squared", "flat", "zB"])
@pytest.mark.parametrize("network", ["mlp", "own", "encoder"])
def test_relevance_is_conserved_by_every_rule(network: str, rule: str) -> None:
    build, X, options, _ = CONSERVING[network]
    encoder = build()
    head = centroids_of(encoder, X, **options)
    kept(DeepClustering(encoder, head, rules=RULES[rule][0], **options), X)


@pytest.mark.parametrize("biases", [False, True])
@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_a_gelu_that_is_written_out_is_a_gelu(approximate: str, biases: bool) -> None:
    class WrittenOut(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            if approximate == "none":
                return x * 0.5 * (1.0 + torch.erf(x / 2**0.5))
            inner = (2 / torch.pi) ** 0.5 * (x + 0.044715 * torch.pow(x, 3.0))
            return 0.5 * x * (1.0 + torch.tanh(inner))

    torch.manual_seed(0)
    first, last, X = nn.Linear(4, 6), nn.Linear(6, 3), torch.randn(5, 4)
    rules = Composite(default=Epsilon(1e-6), sums=0.0, biases=biases)
    found, expected = (
        lrp(settled(nn.Sequential(first, each, last)), X, lambda y: y, rules=rules)
        for each in (WrittenOut(), nn.GELU(approximate=approximate))
    )
    assert np.allclose(found, expected, atol=1e-5)


def test_z_plus_leaves_outputs_without_positive_contributions_in_the_residual() -> None:
    layer = nn.Linear(2, 1, bias=False)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[-1.0, -2.0]]))
    x = torch.tensor([[1.0, 1.0], [1.0, -1.0]])
    assert lrp(layer, x, [[1.0], [1.0]], rules=ZPlus()).tolist() == [[0.0, 0.0], [0.0, 1.0]]


# ---- The model stays unchanged


def state(module: nn.Module) -> list[Any]:
    """Return everything that could change in a model, and the settings of torch."""
    parts: list[Any] = []
    for name, part in module.named_modules():
        hooks = {
            key: list(value) for key, value in vars(part).items() if "hooks" in key and value is not None
        }
        parts.append((name, part.training, hooks, sorted(vars(part))))
    for name, tensor in (*module.named_parameters(), *module.named_buffers()):
        gradient = None if tensor.grad is None else tensor.grad.tolist()
        parts.append((name, tensor.dtype, tensor.requires_grad, gradient, tensor._version, tensor.tolist()))
    of_all = {
        key: list(value) for key, value in vars(torch_hooks).items() if key.startswith("_global_") and value
    }
    parts.append((of_all, torch.is_grad_enabled(), torch.is_inference_mode_enabled()))
    parts.append((torch.backends.mha.get_fastpath_enabled(), torch.get_default_dtype()))
    parts.append(torch.utils._python_dispatch._get_current_dispatch_mode_stack())
    return parts


@pytest.mark.parametrize("network", NETWORKS)
def test_the_model_stays_unchanged(network: str) -> None:
    build, X = NETWORKS[network]
    module = build()
    seen: list[Any] = []
    next(module.modules()).register_forward_hook(lambda *_: seen.append(1))
    (first, *_) = module.parameters()
    first.grad = torch.ones_like(first)
    first.requires_grad_(False)
    before, given = state(module), X.clone()
    wc.explain(DeepClustering(module, np.eye(2, module(X)[0].numel())), X)
    lrp(module, X, lambda y: y)
    assert state(module) == before
    assert torch.equal(X, given)
    assert seen  # hooks of the model still run


@pytest.mark.parametrize("fails", [RuntimeError, KeyError, KeyboardInterrupt])
@pytest.mark.filterwarnings("ignore::whycluster.GradientWarning")
def test_torch_stays_unchanged_if_the_model_fails(fails: type[BaseException]) -> None:
    calls: list[int] = []

    def forward(x: Tensor) -> Tensor:
        calls.append(1)
        if len(calls) > 1:
            raise fails("stop")
        result: Tensor = linear(x)
        return result

    linear: Any = nn.Linear(3, 2)
    module = forward_of(forward, linear)
    model = DeepClustering(module, [[0.0, 1.0], [1.0, 0.0]])
    before = state(module)
    with pytest.raises((fails, wc.InvalidInputError)):
        wc.explain(model, np.ones((1, 3)))
    assert len(calls) == 2  # the traced pass
    assert state(module) == before


def test_torch_stays_unchanged_if_there_is_no_rule() -> None:
    module = forward_of(lambda x: torch.cumprod(x, 1))
    before = state(module)
    with pytest.raises(wc.UnsupportedModelError):
        lrp(module, torch.ones(2, 3), lambda y: y)
    assert state(module) == before


@pytest.mark.parametrize("first", [nn.ReLU(inplace=True), nn.Hardtanh(inplace=True)])
def test_in_place_encoders_do_not_change_their_inputs(first: nn.Module) -> None:
    encoder = nn.Sequential(first, settled(nn.Linear(4, 3)))
    X = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
    X.flags.writeable = False
    tensor, head = torch.from_numpy(X.copy()), np.eye(3)
    exp: Any = wc.explain(DeepClustering(encoder, head), X)
    assert np.array_equal(wc.explain(DeepClustering(encoder, head), tensor).relevance, exp.relevance)
    assert np.array_equal(tensor, X)
    assert np.array_equal(exp.data, X)


@pytest.mark.parametrize("network", NETWORKS)
def test_features_equal_the_output_of_the_model(network: str) -> None:
    build, X = NETWORKS[network]
    module = build()
    with torch.no_grad():
        expected = module(X).flatten(1).numpy()
    model = DeepClustering(module, np.eye(2, expected.shape[1]))
    assert np.allclose(model.transform(X), expected, atol=1e-6)
    exp: Any = wc.explain(model, X)
    assert np.allclose(exp.features.data, expected, atol=1e-6)
    assert exp.relevance.shape == tuple(X.shape)


# ---- Units that are 0


def test_bounds_per_channel_apply_to_flattened_inputs() -> None:
    torch.manual_seed(0)
    encoder = nn.Sequential(nn.Flatten(), nn.Linear(12, 5), nn.ReLU()).eval()
    X = torch.rand(4, 3, 2, 2)
    bounds = (np.zeros(3), np.array([1.0, 2.0, 3.0]))
    exp = wc.explain(DeepClustering(encoder, np.eye(5)[:3], bounds=bounds), X, beta=1.0)
    high = np.repeat(bounds[1], 4)
    rules = Composite([("first", ZBox(0.0, high))], Gamma(0.25))
    same = wc.explain(DeepClustering(encoder, np.eye(5)[:3], rules=rules), X, beta=1.0)
    np.testing.assert_allclose(exp.relevance, same.relevance, atol=1e-6)


def test_gates_and_maxima_of_two() -> None:
    x = torch.tensor([[1.0, -2.0, 3.0, 0.5]])
    gated = lrp(forward_of(lambda x: F.glu(x, 1)), x, [[4.0, 2.0]])
    assert gated.tolist() == [[4.0, 2.0, 0.0, 0.0]]
    greater = lrp(forward_of(lambda x: torch.maximum(x[:, :2], x[:, 2:])), x, [[4.0, 2.0]])
    assert greater.tolist() == [[0.0, 0.0, 4.0, 2.0]]


def test_dilated_max_pooling_has_no_mean() -> None:
    module = nn.MaxPool2d(2, 1, dilation=2)
    with pytest.raises(wc.UnsupportedModelError, match="there is no rule for the operation 'max_pool2d"):
        lrp(module, images(1), lambda y: y, rules=Composite(max_pool="average"))


def test_relevance_of_features_of_zero_is_finite_and_conserved() -> None:
    encoder = settled(nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 8), nn.ReLU()))
    X = torch.randn(20, 6, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        assert (encoder(X) == 0).float().mean() > 0.2
    head = np.random.default_rng(0).normal(size=(4, 8))  # features of 0 have relevance, too
    exp: Any = wc.explain(DeepClustering(encoder, head, reference="midpoint", rules=Gamma(0.25)), X)
    off = exp.features.relevance[np.asarray(encoder(X).detach()) == 0]
    assert np.abs(off).max() > 0.1
    lost = exp.features.relevance.sum(axis=1) - exp.relevance.sum(axis=1)
    assert (np.abs(lost) <= 1e-4 * exp.evidence).all()


@pytest.mark.parametrize("pool", ["mean", "max"])
@pytest.mark.parametrize("max_pool", ["winner", "average"])
def test_maps_that_are_all_zero_share_equally(pool: str, max_pool: str) -> None:
    encoder: Any = nn.Sequential(nn.Conv2d(1, 2, 1), nn.ReLU(), nn.MaxPool2d(2))
    with torch.no_grad():
        encoder[0].weight.copy_(torch.tensor([1.0, -1.0]).reshape(2, 1, 1, 1))
        encoder[0].bias.zero_()
    X = torch.full((1, 1, 4, 4), 2.0)
    rules = Composite(default=Gamma(0.5), max_pool=max_pool)
    centroids = [[2.0, 0.0], [0.0, 3.0]]
    model = DeepClustering(encoder, centroids, pool=pool, reference="midpoint", rules=rules)
    exp: Any = wc.explain(model, X)
    assert exp.features.relevance[0, 1] == pytest.approx(9.0)  # the feature map that is 0
    assert exp.relevance.sum() == pytest.approx(13.0)
    if max_pool == "average":
        assert np.allclose(exp.relevance, 13 / 16)


@pytest.mark.parametrize("rule", RULES)
def test_inputs_of_zero_leave_relevance_in_the_residual(rule: str) -> None:
    encoder = conv_net()
    X = torch.zeros(2, 3, 8, 8)
    exp: Any = wc.explain(DeepClustering(encoder, np.eye(5), rules=RULES[rule][0]), X)
    assert np.isfinite(exp.relevance).all()
    if rule in ("epsilon", "proportional", "gamma", "strong gamma", "z-plus"):
        assert not exp.relevance.any()
        assert np.allclose(exp.residual, exp.evidence)


@pytest.mark.parametrize("sums", [0.0, 0.1])
def test_sums_of_zero_are_shared_equally(sums: float) -> None:
    x = torch.tensor([[1.0, 0.0]])
    module = forward_of(lambda x: (x + 2 * x).sub(3 * x))
    assert lrp(module, x, [[4.0, 2.0]], rules=Composite(sums=sums)).tolist() == [pytest.approx([4.0, 2.0])]


# ---- Operations without a rule


NO_RULE = (
    "{}: there is no rule for the operation 'cumprod' of the encoder{}. Take the features from an "
    "earlier layer (layer=...), replace the operation with operations that have a rule, or use its gradient "
    'instead of a rule: Composite(..., unknown="gradient").'
)


class Product(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.cumprod(x, 1)


def test_an_operation_without_a_rule_raises() -> None:
    x = torch.ones(2, 3)
    with pytest.raises(wc.UnsupportedModelError) as error:
        lrp(nn.Sequential(nn.Linear(3, 3), Product()), x, lambda y: y)
    assert str(error.value) == NO_RULE.format("lrp", " (module '1')")
    with pytest.raises(wc.UnsupportedModelError) as error:
        wc.explain(DeepClustering(Product(), np.eye(3)), x)
    assert str(error.value) == NO_RULE.format("explain", "")


def test_an_operation_without_a_rule_may_use_its_gradient() -> None:
    x = torch.tensor([[2.0, 3.0, 5.0]], dtype=torch.float64)
    with pytest.warns(wc.GradientWarning) as caught:
        found = lrp(Product(), x, [[0.0, 0.0, 30.0]], rules=Composite(unknown="gradient"))
    assert [str(w.message) for w in caught] == [
        "lrp: there is no rule for the operation 'cumprod' of the encoder; its relevance is distributed in "
        "proportion to input times gradient and may not add up."
    ]
    assert found.tolist() == [[30.0, 30.0, 30.0]]  # gradient of the product times each factor


def test_an_operation_without_a_rule_does_not_matter_without_relevance() -> None:
    module = forward_of(lambda x: x * torch.cumprod(x, 1).softmax(1))  # weights count as constant
    x = torch.randn(2, 3)
    assert torch.allclose(lrp(module, x, lambda y: y), module(x))
    aside = forward_of(lambda x: (x * 2, torch.cumprod(x, 1))[0])
    assert torch.allclose(lrp(aside, x, lambda y: y), 2 * x)


# ---- In-place operations


def _overwritten(x: Tensor) -> Tensor:
    y = x * 2
    y[:, 0] = 0
    return y


def _filled(x: Tensor) -> Tensor:
    y = torch.zeros_like(x)
    y[:, 0] = x[:, 1]
    return y


def _viewed(x: Tensor) -> Tensor:
    y = x * 2
    part = y[:, :2]
    y.relu_()
    return part


@pytest.mark.parametrize("forward", [_overwritten, _filled, _viewed])
def test_in_place_changes_of_parts_raise(forward: Callable[[Tensor], Tensor]) -> None:
    module = nn.Sequential(nn.Linear(3, 3), forward_of(forward))
    with pytest.raises(wc.UnsupportedModelError) as error:
        lrp(module, torch.randn(2, 3), lambda y: y)
    end = (
        "changes part of a tensor in place and then uses the whole tensor, or the other way around; LRP "
        "cannot trace such changes. Combine the parts with torch.cat or torch.where."
    )
    places = ("module '1' of the encoder", "the encoder's forward method")
    assert str(error.value) in [f"lrp: {place} {end}" for place in places]


def test_in_place_changes_of_whole_tensors_are_supported() -> None:
    def forward(x: Tensor) -> Tensor:
        y = first(x)
        kept = y * 1.0
        y.relu_()
        y += x
        y.mul_(2.0).unsqueeze_(1)
        z: Tensor = second(y.squeeze(1))
        z.add_(1.0)
        z += second(kept)
        return z

    def plain(x: Tensor) -> Tensor:
        y = first(x)
        z: Tensor = second((torch.relu(y) + x) * 2.0) + 1.0 + second(y * 1.0)
        return z

    first, second = settled(nn.Linear(4, 4)), settled(nn.Linear(4, 2), 1)
    x = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
    inplace, ordinary = forward_of(forward, first, second), forward_of(plain, first, second)
    assert torch.allclose(lrp(inplace, x, lambda y: y), lrp(ordinary, x, lambda y: y), rtol=1e-4, atol=1e-6)


# ---- Single operations


def test_constants_next_to_values_of_a_relu_may_be_negative() -> None:
    """As for a class token before the other tokens."""
    constant = torch.tensor([[-1.0, 2.0, -3.0]], dtype=torch.float64)
    layer = settled(nn.Linear(6, 4)).double()
    module = forward_of(lambda x: layer(torch.cat([constant.expand(len(x), -1), torch.relu(x)], 1)), layer)
    x = torch.rand(2, 3, generator=torch.Generator().manual_seed(0)).double()
    whole = torch.cat([constant.expand(2, -1), x], 1)
    expected = referred(layer, whole, reference.gamma(0.25))[1][:, 3:]
    agree(lrp(module, x, lambda y: y, rules=Gamma(0.25)), expected, torch.float64)


def test_batch_norm_after_a_batched_product_scales_its_rows() -> None:
    draw = torch.Generator().manual_seed(0)
    x, w = torch.randn(3, 5, 5, generator=draw).double(), torch.randn(5, 7, generator=draw).double()
    norm = settled(nn.BatchNorm1d(5)).double()
    module = forward_of(lambda x: norm(torch.bmm(x, w.expand(len(x), 5, 7))), norm)
    apart = forward_of(lambda x: norm(torch.bmm(x, w.expand(len(x), 5, 7)).clone()), norm)
    found = lrp(module, x, lambda y: y, rules=Gamma(0.25))
    # Negative scales flip outputs: only for epsilon is a folded batch norm the same.
    assert torch.allclose(
        lrp(module, x, lambda y: y, rules=Epsilon(0.0)), lrp(apart, x, lambda y: y, rules=Epsilon(0.0))
    )
    assert torch.allclose(found.sum((1, 2)), module(x).sum((1, 2)))


def test_random_activations_are_fixed_in_evaluation_mode() -> None:
    x = torch.randn(2, 4, generator=torch.Generator().manual_seed(0))
    layer = settled(nn.Linear(4, 3))
    same = nn.Sequential(layer, nn.LeakyReLU((1 / 8 + 1 / 3) / 2))
    found = lrp(nn.Sequential(layer, nn.RReLU()).eval(), x, lambda y: y)
    assert torch.allclose(found, lrp(same, x, lambda y: y))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("kind", ["none", "causal", "bool", "added"])
def test_attention_with_any_mask_is_a_mean_with_constant_weights(kind: str, dtype: torch.dtype) -> None:
    below = torch.ones(5, 5).tril().bool()
    masks: dict[str, dict[str, Any]] = {
        "none": {},
        "causal": {"is_causal": True},
        "bool": {"attn_mask": below},
        "added": {"attn_mask": torch.zeros(5, 5, dtype=dtype).masked_fill(~below, float("-inf"))},
    }
    q, k = torch.randn(2, 1, 2, 5, 4, generator=torch.Generator().manual_seed(0)).to(dtype)
    module = forward_of(lambda v: F.scaled_dot_product_attention(q[:, :1], k[:, :1], v, **masks[kind]))
    v = torch.rand(1, 1, 5, 4, generator=torch.Generator().manual_seed(1)).to(dtype)
    scores = (q[0, 0].double() @ k[0, 0].double().T) / 2
    if kind != "none":
        scores = scores.masked_fill(~below, float("-inf"))
    weights, values = scores.softmax(1), v[0, 0].double()
    found = lrp(module, v, lambda y: torch.ones_like(y))[0, 0].double()
    expected = values * (weights.T @ (1 / (weights @ values)))
    assert torch.allclose(
        found, expected, rtol=1e-9 if dtype == torch.float64 else 1e-4 if dtype == torch.float32 else 0.05
    )


@pytest.mark.parametrize(
    "module",
    [
        nn.Sequential(nn.Conv2d(3, 4, 3), nn.GroupNorm(2, 4)),
        nn.Sequential(nn.Conv2d(3, 4, 3), nn.InstanceNorm2d(4)),
        nn.Sequential(nn.Conv2d(3, 4, 3, padding=1, padding_mode="reflect"), nn.SiLU()),
        nn.Sequential(nn.Conv2d(3, 4, 3), nn.PixelUnshuffle(2), nn.Hardswish()),
        nn.Sequential(nn.Conv2d(3, 4, 3), nn.Upsample(scale_factor=2, mode="bilinear"), nn.Softplus()),
        nn.Sequential(nn.Conv2d(3, 4, 3), nn.Upsample(scale_factor=2), nn.PReLU()),
        nn.Sequential(nn.Flatten(2), nn.Conv1d(3, 4, 3), nn.MaxPool1d(2), nn.AvgPool1d(2)),
        nn.Sequential(nn.Conv2d(3, 4, 3), nn.AdaptiveMaxPool2d(2), nn.ELU()),
        nn.Sequential(nn.Conv2d(3, 4, 3), nn.Unfold(2), nn.Dropout(), nn.Identity()),
        nn.Sequential(nn.Unflatten(1, (1, 3)), nn.Conv3d(1, 4, 2), nn.MaxPool3d((1, 2, 2)), nn.Mish()),
        forward_of(lambda x: x * torch.sigmoid(x.mean((2, 3), keepdim=True))),  # squeeze and excitation
        forward_of(lambda x: torch.stack(x.chunk(2, dim=2), dim=1).flatten(1) / 3 - 1),
        forward_of(lambda x: x / x.norm(dim=1, keepdim=True)),
        forward_of(lambda x: x * torch.rsqrt(x.pow(2).mean(1, keepdim=True) + 1e-5)),
        forward_of(lambda x: torch.where(x > 0, x, 0.1 * x)[:, :, 1:, ::2].contiguous()),
        forward_of(lambda x: torch.einsum("nchw,cd->ndhw", x, torch.eye(3, 2).to(x) + 0.5)),
        forward_of(lambda x: x.topk(3, dim=3).values.amax(2)),
    ],
    ids=lambda module: "".join(type(part).__name__ for part in module.children()) or "function",
)
def test_operations_conserve(module: nn.Module) -> None:
    module = settled(module).double()
    x = images(2).double()
    found = lrp(module, x, lambda y: y.abs(), rules=Gamma(0.25))
    assert found.shape == x.shape
    with torch.no_grad():
        assert torch.allclose(found.flatten(1).sum(1), module(x).abs().flatten(1).sum(1))


# ---- Kinds of models


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")  # from torch.jit
@pytest.mark.parametrize("network", ["mlp", "conv", "encoder"])
def test_scripted_modules_are_traced_like_others(network: str) -> None:
    build, x = NETWORKS[network]
    module = build()
    expected = lrp(module, x, lambda y: y, rules=Gamma(0.25))
    jit: Any = torch.jit  # untyped
    for compiled in (jit.script(module), jit.trace(module, x)):
        for _ in range(3):  # it is optimized after a few runs
            found = lrp(compiled, x, lambda y: y, rules=Gamma(0.25))
        assert torch.allclose(found, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("network", ["mlp", "conv", "own", "vit", "vit, function", "autoencoder"])
def test_half_precision_models_have_single_precision_relevance(network: str, dtype: torch.dtype) -> None:
    build, x = NETWORKS[network]
    module = build().to(dtype)
    single = copy.deepcopy(module).float()
    x = x.to(dtype)
    found = lrp(module, x, lambda y: torch.ones_like(y), rules=Gamma(0.25))
    expected = lrp(single, x.float(), lambda y: torch.ones_like(y), rules=Gamma(0.25))
    assert found.dtype == torch.float32
    # Branches that nearly cancel amplify rounding errors of the forward pass.
    bound = 0.95 if "vit" in network else 0.98
    assert F.cosine_similarity(found.flatten(), expected.flatten(), dim=0) > bound
    exp: Any = wc.explain(DeepClustering(module, np.eye(2, module(x).flatten(1).shape[1])), x)
    assert exp.relevance.dtype == np.float32


@pytest.mark.parametrize("network", ["mlp", "conv", "own", "vit", "vit, function"])
def test_torch_modes_of_the_caller_do_not_matter(network: str) -> None:
    build, x = NETWORKS[network]
    module = build()
    head = np.eye(2, module(x)[0].numel())
    expected = lrp(module, x, lambda y: y, rules=Gamma(0.25))
    exp = wc.explain(DeepClustering(module, head), x)
    for mode in (torch.inference_mode, torch.no_grad, torch.enable_grad):
        with mode():
            found = lrp(module, x.clone(), lambda y: y, rules=Gamma(0.25))
            inner = wc.explain(DeepClustering(module, head), x.clone())
        assert torch.allclose(found, expected, rtol=1e-4, atol=1e-6)
        assert np.allclose(inner.relevance, exp.relevance, rtol=1e-3, atol=1e-5)


def test_relevance_has_single_precision_under_autocast() -> None:
    module, x = conv_net(), images(2)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = lrp(module, x, lambda y: y, rules=Gamma(0.25))
    expected = lrp(module, x, lambda y: y, rules=Gamma(0.25))
    assert found.dtype == torch.float32
    assert F.cosine_similarity(found.flatten(), expected.flatten(), dim=0) > 0.98


def test_the_transformer_of_torch_is_traced_without_its_fast_path() -> None:
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, activation="gelu")
    encoder = settled(nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)).double()
    X = torch.randn(4, 5, 8, generator=torch.Generator().manual_seed(0)).double()
    kept(DeepClustering(encoder, np.random.default_rng(0).normal(size=(3, 40))), X)


def test_memory_formats_do_not_matter(resnet: tuple[Any, Tensor, Array]) -> None:
    encoder, X, _ = resnet
    expected = lrp(encoder, X, lambda y: y, rules=Gamma(0.25))
    last = copy.deepcopy(encoder).to(memory_format=torch.channels_last)
    found = lrp(last, X.to(memory_format=torch.channels_last), lambda y: y, rules=Gamma(0.25))
    assert (found - expected).abs().max() <= 1e-3 * expected.abs().max()


def test_double_precision_models_have_double_precision_relevance() -> None:
    x = torch.randn(3, 6, dtype=torch.float64)
    exp: Any = wc.explain(DeepClustering(mlp().double(), np.eye(5)), x)
    assert exp.relevance.dtype == np.float64
    assert (
        np.abs(exp.relevance.sum(axis=1) - exp.evidence).max() < 1e-10 + np.abs(exp.features.residual).max()
    )


# ---- Layers and units


@pytest.fixture(scope="module")
def resnet() -> tuple[Any, Tensor, Array]:
    encoder, X = settled(ResNet18(4)), images(9, size=32)
    return encoder, X, centroids_of(encoder, X)


def test_relevance_at_a_layer_has_its_shape(resnet: tuple[Any, Tensor, Array]) -> None:
    encoder, X, head = resnet
    model = DeepClustering(encoder, head)
    whole: Any = wc.explain(model, X)
    inner: Any = wc.explain(model, X, at="layer2")
    channels: Any = wc.explain(model, X, at="layer2", units="channels")
    locations: Any = wc.explain(model, X, at="layer2", units="locations")
    assert whole.relevance.shape == tuple(X.shape)
    assert inner.relevance.shape == (9, 8, 4, 4)
    assert np.allclose(channels.relevance, inner.relevance.sum(axis=(2, 3)), rtol=1e-4, atol=1e-6)
    assert np.allclose(locations.relevance, inner.relevance.sum(axis=1), rtol=1e-4, atol=1e-6)
    assert np.array_equal(locations.heatmaps, locations.relevance)
    assert np.allclose(whole.heatmaps, whole.relevance.sum(axis=1))
    # With so few channels, all are 0 at some locations; relevance that biases bring there is lost.
    assert (np.abs(inner.residual - whole.residual) <= 1e-3 * whole.evidence).all()
    for exp in (inner, channels, locations):
        assert np.array_equal(exp.evidence, whole.evidence)
        assert exp.at == "layer2"


def test_relevance_at_a_layer_propagates_to_the_input(resnet: tuple[Any, Tensor, Array]) -> None:
    encoder, X, _ = resnet
    inner = lrp(encoder, X, lambda y: y, at="layer1", rules=Gamma(0.25))
    below = lrp(encoder, X, inner, layer="layer1", rules=Gamma(0.25))
    assert torch.allclose(below, lrp(encoder, X, lambda y: y, rules=Gamma(0.25)), rtol=1e-3, atol=1e-5)


def test_relevance_of_tokens_has_channels_last() -> None:
    encoder, X = settled(ViT()), images(3)
    model = DeepClustering(encoder, centroids_of(encoder, X))
    inner: Any = wc.explain(model, X, at="blocks.0")
    assert inner.relevance.shape == (3, 5, 8)
    channels: Any = wc.explain(model, X, at="blocks.0", units="channels")
    assert np.allclose(channels.relevance, inner.relevance.sum(axis=1), rtol=1e-4, atol=1e-5)
    assert np.allclose(inner.heatmaps, inner.relevance.sum(axis=2))


@pytest.mark.parametrize("name", ["layer1.0.conv2", "layer1.0.bn2", "layer1.0.bn1", "layer1.0"])
def test_relevance_of_a_skip_connection_does_not_belong_to_the_layer(
    resnet: tuple[Any, Tensor, Array], name: str
) -> None:
    double = copy.deepcopy(resnet[0]).double()
    x = images(1, size=16).double()
    found = lrp(double, x, lambda y: y, at=name, rules=Gamma(0.25)).numpy()
    expected = _read_in_first_block(double, x[0].numpy(), name)
    assert np.abs(found[0] - expected).max() <= 1e-9 * np.abs(expected).max()


def _read_in_first_block(net: Any, x: Array, name: str) -> Array:
    """Return the relevance of the output of a part of the first block, by the reference."""
    run = Pass(reference.gamma(0.25))
    block = net.layer1[0]
    stem = run.max_pool(run.each(torch.relu, run.linear(net.conv1, Value(x), net.bn1)), 3, 2, 1)
    first = run.linear(block.conv1, stem, block.bn1)
    middle = run.each(torch.relu, first)
    if name.endswith("conv2"):  # between convolution and batch norm, which are not folded then
        conv = run.linear(block.conv2, middle)
        second = run.batch_norm(block.bn2, conv)
    else:
        conv = second = run.linear(block.conv2, middle, block.bn2)
    out = run.each(torch.relu, run.add(second, stem))
    y = refer(net.layer1[1], run, out)
    for stage in (net.layer2, net.layer3, net.layer4):
        y = refer(stage, run, y)
    y = run.linear(net.fc, run.average_of(lambda a: a.mean((2, 3)), y))
    run.back(y, y.value)
    wanted = {"conv2": conv, "bn2": second, "bn1": first, "0": out}[name.rpartition(".")[2]]
    return wanted.relevance


@pytest.mark.parametrize("at", [None, "0", "1", "3"])
def test_features_of_a_layer_equal_those_of_the_network_up_to_it(at: str | None) -> None:
    encoder, X = conv_net(), images(4)
    cut = encoder[:5]
    head = centroids_of(cut, X)
    exp: Any = wc.explain(DeepClustering(encoder, head, layer="4", rules=Gamma(0.2)), X, at=at)
    same: Any = wc.explain(DeepClustering(cut, head, rules=Gamma(0.2)), X, at=at)
    assert np.allclose(exp.relevance, same.relevance, rtol=1e-5, atol=1e-6)


def test_relevance_at_the_layer_of_the_features_is_that_of_the_features() -> None:
    encoder, X = conv_net(), images(4)
    model = DeepClustering(encoder, centroids_of(encoder, X, layer="4"), layer="4")
    exp: Any = wc.explain(model, X, at="4")
    assert np.allclose(exp.relevance.reshape(4, -1), exp.features.relevance, rtol=1e-6)


@pytest.mark.parametrize("pool", ["mean", "max"])
def test_pooled_features_equal_those_of_a_pooling_layer(pool: str) -> None:
    encoder = conv_net()[:7]
    X = images(5)
    layer: nn.Module = nn.AdaptiveAvgPool2d(1) if pool == "mean" else nn.AdaptiveMaxPool2d(1)
    pooled = nn.Sequential(*encoder, layer, nn.Flatten())
    head = centroids_of(pooled, X)
    exp: Any = wc.explain(DeepClustering(encoder, head, pool=pool), X)
    same: Any = wc.explain(DeepClustering(pooled, head), X)
    assert np.allclose(exp.relevance, same.relevance, rtol=1e-4, atol=1e-6)
    assert (np.abs(exp.relevance.sum(axis=(1, 2, 3)) - exp.features.relevance.sum(axis=1)) < 1e-4).all()


@pytest.mark.parametrize("batch_size", [1, 2, 7])
@pytest.mark.parametrize(
    "options", [{}, {"layer": "layer3", "pool": "mean"}, {"layer": "layer3", "spatial": True}]
)
def test_the_batch_size_does_not_matter(
    resnet: tuple[Any, Tensor, Array], batch_size: int, options: dict[str, Any]
) -> None:
    encoder, X, head = resnet
    if options:
        head = np.random.default_rng(0).normal(size=(3, 16))
    exp: Any = wc.explain(DeepClustering(encoder, head, batch_size=16, **options), X)
    some: Any = wc.explain(DeepClustering(encoder, head, batch_size=batch_size, **options), X)
    assert np.abs(some.relevance - exp.relevance).max() <= 1e-3 * np.abs(exp.relevance).max()


def test_features_are_clustered_with_unit_length() -> None:
    encoder, X = mlp(), torch.randn(6, 6, generator=torch.Generator().manual_seed(0))
    inside = forward_of(lambda x: F.normalize(encoder(x), dim=1), encoder)
    head = centroids_of(inside, X)
    exp: Any = wc.explain(DeepClustering(encoder, head, normalize=True, rules="mlp"), X)
    same: Any = wc.explain(DeepClustering(inside, head, rules="mlp"), X)
    assert np.allclose(np.linalg.norm(exp.features.data, axis=1), 1)
    assert np.allclose(exp.relevance, same.relevance, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("normalize", [False, True])
def test_each_location_is_clustered(normalize: bool) -> None:
    encoder, X = settled(nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 5, 3))), images(3)
    head = np.random.default_rng(0).normal(size=(3, 5))
    model = DeepClustering(encoder, head, spatial=True, normalize=normalize)
    exp: Any = wc.explain(model, X)
    with torch.no_grad():
        rows = encoder(X).permute(0, 2, 3, 1).reshape(-1, 5).double().numpy()
    if normalize:
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    expected = ((rows[:, None] - head) ** 2).sum(axis=2).argmin(axis=1).reshape(3, 4, 4)
    assert np.array_equal(exp.cluster, expected)
    assert np.array_equal(model.predict(X), expected)
    assert exp.relevance.shape == (3, 3, 3, 8, 8)
    assert exp.heatmaps.shape == (3, 3, 8, 8)
    total = exp.locations.relevance.sum(axis=1).reshape(3, 4, 4)
    for c in range(3):
        of_cluster = np.where(expected == c, total, 0).sum(axis=(1, 2))
        assert np.allclose(exp.relevance[:, c].sum(axis=(1, 2, 3)), of_cluster, rtol=1e-4, atol=1e-4)


def test_locations_of_tokens_are_rows_along_the_last_axis() -> None:
    encoder, X = settled(ViT(width=16)), images(3)
    head = np.random.default_rng(0).normal(size=(3, 16))
    exp: Any = wc.explain(DeepClustering(encoder, head, layer="norm", spatial=True), X, at="dropout")
    assert exp.cluster.shape == (3, 5)
    assert exp.relevance.shape == (3, 3, 5, 16)


def test_heat_maps_of_tokens_and_of_features() -> None:
    encoder, X = settled(ViT(width=16)), images(3)
    head = np.random.default_rng(0).normal(size=(3, 16))
    exp: Any = wc.explain(DeepClustering(encoder, head, layer="norm", spatial=True), X, at="dropout")
    assert np.allclose(exp.heatmaps, exp.relevance.sum(axis=3))
    plain: Any = wc.explain(DeepClustering(encoder, head), X, at="norm", units="locations")
    assert plain.heatmaps.shape == (3, 5)
    rows: Any = wc.explain(DeepClustering(mlp(), np.eye(5)), torch.ones(2, 6))
    assert np.array_equal(rows.heatmaps, rows.relevance)


def test_spatial_clusters_equal_k_means_of_unit_rows() -> None:
    encoder, image = settled(OwnResidual()), images(1, size=12)[0]
    exp = wc.deep.spatial_clusters(encoder, image, "stem", 3)
    with torch.no_grad():
        rows = F.normalize(encoder.stem(image[None]), dim=1).permute(0, 2, 3, 1).reshape(-1, 5).numpy()
    labels = KMeans(3, n_init=3, random_state=0).fit(rows).labels_
    assert np.array_equal(exp.cluster.ravel(), labels)
    assert exp.relevance.shape == (1, 3, 3, 12, 12)


def test_bounds_set_the_rule_of_the_first_layer() -> None:
    encoder, X = conv_net().double(), images(3).double().clamp(-2, 2)
    low, high = [-2.0, -2.5, -3.0], [2.0, 2.5, 3.0]
    model = DeepClustering(encoder, np.eye(5), rules=Gamma(0.25), bounds=(low, high))
    exp: Any = wc.explain(model, X)
    spread = [np.repeat(np.array(bound), 64) for bound in (low, high)]
    run = Pass(reference.gamma(0.25), rules={0: reference.z_b(*spread)})
    source = Value(X[0].numpy())
    run.back(refer(encoder, run, source), exp.features.relevance[0])
    assert np.allclose(exp.relevance[0], source.relevance, rtol=1e-9, atol=1e-9)
    named = DeepClustering(encoder, np.eye(5), rules=Composite([("first", ZBox(low, high))], Gamma(0.25)))
    assert np.array_equal(wc.explain(named, X).relevance, exp.relevance)


# ---- Composites


def test_selectors_are_names_patterns_and_functions() -> None:
    encoder, x = conv_net().double(), images(2).double()
    by_number = [reference.flat, reference.w_squared, reference.epsilon(0.1)]
    expected = referred(encoder, x, reference.gamma(9.0), rules=dict(enumerate(by_number)))[1]
    rules: list[Any] = [
        [("first", Flat()), ("convolution", WSquare()), ("linear", Epsilon(0.1))],
        [("0", Flat()), ("4", WSquare()), ("9", Epsilon(0.1))],
        [("[0-3]", Flat()), ("?", WSquare()), ("linear", Epsilon(0.1))],  # "9": the first match counts
        [
            (lambda place: place.index == 0 and place.count == 3 and place.first, Flat()),
            (lambda layer: layer.block == 2 and layer.kind == "convolution", WSquare()),
            (lambda place: place.module == "9" and not place.first, Epsilon(0.1)),
        ],
    ]
    for n, given_rules in enumerate(rules):
        found = lrp(encoder, x, lambda y: y, rules=Composite(given_rules, Gamma(9.0)))
        if n == 2:
            by_third = {0: reference.flat, 1: reference.w_squared, 2: reference.w_squared}
            agree(found, referred(encoder, x, reference.gamma(9.0), rules=by_third)[1], torch.float64)
        else:
            agree(found, expected, torch.float64)


@pytest.mark.parametrize(
    ("kind", "network"), [("vgg", "conv"), ("resnet", "own"), ("transformer", "vit"), ("mlp", "mlp")]
)
def test_auto_chooses_the_composite_by_the_kind_of_network(kind: str, network: str) -> None:
    build, x = NETWORKS[network]
    module = build()
    assert torch.equal(lrp(module, x, lambda y: y), lrp(module, x, lambda y: y, rules=kind))


def test_the_papers_composite_has_less_gamma_in_the_last_two_blocks() -> None:
    layers: list[nn.Module] = []
    for _ in range(5):
        layers += [nn.Conv2d(2, 2, 1), nn.ReLU(), nn.MaxPool2d(2)]
    encoder = settled(nn.Sequential(*layers, nn.Flatten(), nn.Linear(2, 2))).double()
    x = images(1, channels=2, size=32).double()
    of_block = {i: reference.gamma(0.25 if i < 3 else 0.1) for i in range(5)} | {5: reference.epsilon(1e-6)}
    expected = referred(encoder, x, reference.flat, rules=of_block)[1]
    agree(lrp(encoder, x, lambda y: y, rules="vgg"), expected, torch.float64)


def test_relevance_of_biases_is_in_the_residual() -> None:
    encoder: Any = nn.Sequential(nn.Linear(1, 1))
    with torch.no_grad():
        encoder[0].weight.fill_(1.0)
        encoder[0].bias.fill_(3.0)
    X = np.array([[1.0]], dtype=np.float32)
    rules = Composite(default=Epsilon(0.0), biases=True)
    model = DeepClustering(encoder, [[4.0], [0.0]], reference="midpoint", rules=rules)
    exp: Any = wc.explain(model, X)
    assert exp.features.relevance.tolist() == [[16.0]]
    assert exp.relevance.tolist() == [[4.0]]
    assert exp.residual.tolist() == [12.0]


# ---- Heads


@pytest.fixture(scope="module")
def encoded() -> tuple[Any, Tensor, Array]:
    encoder = mlp()
    X = torch.randn(60, 6, generator=torch.Generator().manual_seed(3)) * 2
    with torch.no_grad():
        return encoder, X, encoder(X).numpy()


HEADS: dict[str, Callable[[Array], Any]] = {
    "KMeans": lambda rows: KMeans(4, n_init=2, random_state=0).fit(rows),
    "KernelKMeans": lambda rows: wc.KernelKMeans(3, random_state=0).fit(rows),
    "scaled": lambda rows: make_pipeline(StandardScaler(), KMeans(4, n_init=2, random_state=0)).fit(rows),
    "PCA": lambda rows: make_pipeline(PCA(3), KMeans(4, n_init=2, random_state=0)).fit(rows),
}


@pytest.mark.parametrize("head", HEADS)
def test_fitted_models_are_heads_with_the_same_clusters(
    encoded: tuple[Any, Tensor, Array], head: str
) -> None:
    encoder, X, rows = encoded
    fitted = HEADS[head](rows)
    model = DeepClustering(encoder, fitted)
    exp: Any = wc.explain(model, X)
    assert np.array_equal(model.predict(X), fitted.predict(rows))
    assert np.array_equal(exp.cluster, fitted.predict(rows))
    plain = wc.explain(fitted, rows, rule="joint")
    assert np.allclose(exp.features.relevance, plain.relevance)
    assert np.allclose(exp.evidence, plain.evidence)
    assert np.abs(exp.relevance.sum(axis=1) - plain.relevance.sum(axis=1)).max() < 1e-4 * plain.evidence.max()


@pytest.mark.parametrize("convert", [np.asarray, torch.as_tensor, lambda rows: rows.tolist()])
def test_centroids_are_heads(encoded: tuple[Any, Tensor, Array], convert: Callable[[Any], Any]) -> None:
    encoder, X, rows = encoded
    centroids = rows[:4] * 1.1
    exp: Any = wc.explain(DeepClustering(encoder, convert(centroids)), X)
    assert np.array_equal(exp.cluster, ((rows[:, None] - centroids) ** 2).sum(axis=2).argmin(axis=1))
    head = nn.Parameter(torch.as_tensor(centroids))
    assert np.allclose(wc.explain(DeepClustering(encoder, head), X).relevance, exp.relevance)


@pytest.mark.parametrize("bias", [True, False])
def test_a_linear_layer_is_a_softargmax(encoded: tuple[Any, Tensor, Array], bias: bool) -> None:
    encoder, X, rows = encoded
    head = nn.Linear(5, 4, bias=bias)
    nn.init.normal_(head.weight, generator=torch.Generator().manual_seed(0))
    logits = head(torch.from_numpy(rows)).detach().double()
    model = DeepClustering(encoder, head)
    assert np.array_equal(model.predict(X), logits.argmax(dim=1))
    exp: Any = wc.explain(model, X)
    top = logits.topk(2, dim=1).values
    assert np.allclose(exp.evidence, top[:, 0] - top[:, 1], atol=1e-4)
    # Prop. 7: log(p / (1 - p)) - log(threshold / (1 - threshold))
    absolute: Any = wc.explain(model, X, threshold=0.7)
    p = logits.softmax(dim=1).max(dim=1).values.numpy()
    assert np.allclose(absolute.evidence, np.log(p / (1 - p)) - np.log(0.7 / 0.3), atol=1e-3)
    if not bias:
        products = wc.neuralize(head.weight.detach().numpy(), metric="dot")
        assert np.allclose(
            wc.explain(DeepClustering(encoder, products), X).relevance, exp.relevance, atol=1e-5
        )


def test_contrasts_and_targets_of_a_deep_clustering(encoded: tuple[Any, Tensor, Array]) -> None:
    encoder, X, rows = encoded
    head = HEADS["KMeans"](rows)
    model = DeepClustering(encoder, head)
    questions: list[dict[str, Any]] = [{"target": 1}, {"against": 2}, {"beta": 3.0}, {}]
    for question in questions:
        exp: Any = wc.explain(model, X, **question)
        assert np.allclose(exp.features.relevance, wc.explain(head, rows, **question, rule="joint").relevance)
    for rule in ("min-take-most", "path", "joint", "sequential", "contrast"):
        exp = wc.explain(model, X, rule=rule)
        assert exp.rule == rule
        assert np.allclose(exp.features.relevance, wc.explain(head, rows, rule=rule).relevance)
    exp = wc.explain(model, X, background=X[:7])
    plain = wc.explain(head, rows, background=rows[:7], rule="joint")
    assert np.allclose(exp.features.relevance, plain.relevance, atol=1e-5 * np.abs(plain.relevance).max())


def test_encoder_and_head_as_one_module(encoded: tuple[Any, Tensor, Array]) -> None:
    encoder, X, rows = encoded
    network = wc.neuralize(DeepClustering(encoder, HEADS["KMeans"](rows)))
    with torch.no_grad():
        assert np.allclose(network.to_torch()(X), network.evidence(X), atol=1e-5)


# ---- Random networks


LAYER_KINDS = ("linear", "relu", "tanh", "layer norm", "batch norm")


@pytest.mark.slow
@settings(max_examples=60)
@given(
    st.lists(st.sampled_from(LAYER_KINDS), min_size=1, max_size=6),
    st.sampled_from(["gamma", "proportional", "zB"]),
    st.integers(0, 1000),
)
def test_any_sequence_of_layers_agrees_with_the_reference(kinds: list[str], rule: str, seed: int) -> None:
    module = _sequence(kinds, seed).double()
    x = torch.randn(2, 4, generator=torch.Generator().manual_seed(seed)).double()
    ours, theirs = RULES[rule]
    features, expected = referred(module, x, theirs)
    found = lrp(module, x, lambda y: y, rules=ours).numpy()
    size = max(np.abs(expected).max(), np.abs(features).max())
    assert np.abs(found - expected).max() <= 1e-7 * size
    if rule == "gamma" and "relu" not in kinds:  # no unit with inputs that are all 0
        assert np.abs(found.sum(axis=1) - features.sum(axis=1)).max() <= 1e-7 * size


def _sequence(kinds: list[str], seed: int) -> Any:
    """Return layers of these kinds."""
    make: dict[str, Callable[[], Any]] = {
        "linear": lambda: nn.Linear(4, 4),
        "relu": nn.ReLU,
        "tanh": nn.Tanh,
        "layer norm": lambda: nn.LayerNorm(4),
        "batch norm": lambda: nn.BatchNorm1d(4),
    }
    return settled(nn.Sequential(*[make[kind]() for kind in kinds]), seed)


# ---- Special cases


def test_threads_do_not_see_each_others_modules() -> None:
    encoder, x = settled(nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3))), images(1, 1, 4)[0, 0]
    rules = Composite([("0", Gamma(1.0)), ("2", ZPlus())])
    expected, failures = lrp(encoder, x, lambda y: y, rules=rules), []

    def explain() -> None:
        if not torch.equal(lrp(encoder, x, lambda y: y, rules=rules), expected):
            failures.append("relevance")
        lrp(encoder, x, lambda y: y, layer="0")

    def repeat(work: Callable[[], Any], times: int) -> None:
        try:
            for _ in range(times):
                work()
        except BaseException as error:
            failures.append(repr(error))

    works = [(explain, 40), (explain, 40), (lambda: encoder(x), 400)]
    threads = [threading.Thread(target=repeat, args=work) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert torch.backends.mha.get_fastpath_enabled()


def test_changing_weights_after_use_raises() -> None:
    def masked(x: Tensor) -> Tensor:
        mask = torch.arange(4) < 2
        first = x.masked_fill(mask, 0.0)
        mask.logical_not_()
        return torch.cat([first, x.masked_fill(mask, 0.0)], 1)

    message = (
        "lrp: the encoder's forward method changes weights or constants in place after using them; LRP "
        "cannot trace such changes. Change a copy instead."
    )
    with pytest.raises(wc.UnsupportedModelError, match=re.escape(message)):
        lrp(forward_of(masked), torch.ones(2, 4), lambda y: y)


def test_complex_numbers_are_not_constants() -> None:
    with pytest.raises(wc.UnsupportedModelError, match="there is no rule for the operation"):
        lrp(forward_of(lambda x: x + torch.fft.fft(x).real), torch.ones(2, 4), lambda y: y)


def test_the_maximum_with_zeros_like_is_a_relu() -> None:
    x = torch.tensor([[1.0, -2.0]])
    given = [[3.0, 4.0]]
    assert lrp(forward_of(lambda x: torch.maximum(x, torch.zeros_like(x))), x, given).tolist() == given
    cut = forward_of(lambda x: torch.where(x > 0, x, torch.zeros_like(x)))
    assert lrp(cut, x, given).tolist() == [[3.0, 0.0]]
    written = forward_of(lambda x: torch.mul(x, 2.0, out=torch.empty_like(x)))
    assert lrp(written, x, given).tolist() == given


def test_overlapping_patches_are_sums() -> None:
    x = torch.rand(2, 12, 9, generator=torch.Generator().manual_seed(0))
    assert torch.allclose(lrp(nn.Fold(4, 2), x, lambda y: y), x)  # proportional for positive values


def test_heads_that_share_keys_and_values() -> None:
    def attend(x: Tensor, repeat: bool) -> Tensor:
        q = x.view(-1, 5, 4, 2).transpose(1, 2)
        few = q[:, :2] * 0.5
        if repeat:
            few = few.repeat_interleave(2, 1)
            return F.scaled_dot_product_attention(q, few, few)
        return F.scaled_dot_product_attention(q, few, few, enable_gqa=True)

    x = torch.randn(3, 5, 8, generator=torch.Generator().manual_seed(0))
    found = lrp(forward_of(lambda x: attend(x, repeat=False)), x, lambda y: y)
    assert torch.allclose(found, lrp(forward_of(lambda x: attend(x, repeat=True)), x, lambda y: y), atol=1e-5)
    assert found.sum().item() == pytest.approx(attend(x, repeat=True).sum().item(), rel=1e-4)


def test_a_linear_layer_turns_scales_into_values() -> None:
    weight = torch.ones(4, 4)

    def attention(x: Tensor) -> Tensor:
        values = torch.sigmoid(x) @ weight
        return (values @ values.mT).softmax(-1) @ values

    x = torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(0))
    assert lrp(forward_of(attention), x, lambda y: y).sum().item() == pytest.approx(attention(x).sum().item())


def test_a_matrix_times_itself_is_a_product_of_two_variables() -> None:
    x = torch.randn(2, 3, 3, generator=torch.Generator().manual_seed(0))
    twice = lrp(forward_of(lambda x: torch.bmm(x, x)), x, lambda y: y)
    apart = lrp(forward_of(lambda x: torch.bmm(x, 1 * x)), x, lambda y: y)
    assert torch.equal(twice, apart)


def test_very_small_values_have_relevance() -> None:
    module = nn.Sequential(nn.Linear(4, 3, bias=False), nn.ReLU(), nn.Linear(3, 2, bias=False)).double()
    x = 1e-25 * torch.randn(5, 4, generator=torch.Generator().manual_seed(0)).double()
    assert torch.allclose(lrp(module, x, torch.ones_like).sum(1), torch.full((5,), 2.0).double())


@pytest.mark.parametrize("size", [1e-5, 1.0])
@pytest.mark.parametrize("bias", [0.1, 1e3])
def test_large_biases_cost_no_precision(size: float, bias: float) -> None:
    torch.manual_seed(0)
    encoder = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 5, 3), nn.ReLU()).eval()
    nn.init.constant_(encoder[0].get_parameter("bias"), bias)
    x = size * images(3).abs()
    relevance = lrp(encoder, x, torch.ones_like)
    assert relevance.sum().item() == pytest.approx(3 * 5 * 4 * 4, rel=1e-4)


def test_instance_norm_includes_its_bias_if_biases_count() -> None:
    x = images(2)
    norms = nn.InstanceNorm2d(3, affine=True), nn.GroupNorm(3, 3)
    for norm in norms:
        nn.init.constant_(norm.bias, 1.0)
    one, other = (lrp(norm.eval(), x, torch.abs, rules=Composite(biases=True)) for norm in norms)
    assert torch.allclose(one, other, atol=1e-4)
    assert one.sum() < 0.9 * norms[0](x).abs().sum()


def test_channels_come_first_with_convolutions_and_last_without() -> None:
    conv, X = nn.Conv1d(1, 4, 3).eval(), torch.randn(5, 1, 10)
    assert wc.deep.features(conv, X, spatial=True).shape == (5, 8, 4)
    tokens, T = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval(), torch.randn(5, 8, 8)
    with torch.no_grad():
        expected = tokens(T)
    np.testing.assert_allclose(wc.deep.features(tokens, T, spatial=True), expected, atol=1e-5)
    exp: Any = wc.explain(DeepClustering(nn.Sequential(conv, nn.Flatten()), np.eye(32)[:3]), X)
    assert exp.heatmaps.shape == (5, 10)


def test_bounds_of_tokens() -> None:
    torch.manual_seed(0)
    encoder = nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Flatten()).eval()
    X = torch.rand(6, 7, 5)
    model = DeepClustering(encoder, torch.rand(3, 28), reference="midpoint", bounds=(0.0, 1.0))
    exp = wc.explain(model, X)
    assert np.abs(exp.residual).max() <= 1e-4 * exp.evidence.mean()


def test_bounds_and_names_without_a_matching_layer_raise() -> None:
    encoder = nn.Sequential(forward_of(lambda x: (x - 0.5) / 0.25), nn.Conv2d(3, 4, 8), nn.Flatten()).eval()
    model = DeepClustering(encoder, np.eye(4)[:2], bounds=(0.0, 1.0))
    message = (
        "explain: bounds, and rules for the layer 'first', need a convolution or linear layer that operates "
        "directly on the inputs; in this encoder, another operation, such as a normalization, comes first. "
        "Leave them out, or name one of these layers instead: '1'."
    )
    with pytest.raises(wc.InvalidInputError) as error:
        wc.explain(model, torch.rand(2, 3, 8, 8))
    assert str(error.value) == message
    typo = DeepClustering(encoder, np.eye(4)[:2], rules=Composite([("blok*", Gamma(0.1))]))
    with pytest.raises(
        wc.InvalidInputError, match=r"'blok\*' matches none of its convolutions and linear layers"
    ):
        wc.explain(typo, torch.rand(2, 3, 8, 8))


def test_hooks_of_the_user_run_in_pairs() -> None:
    encoder = settled(nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3)))
    x, calls = torch.randn(3, 4), list[str]()
    encoder.register_forward_pre_hook(lambda *_: calls.append("in"))
    encoder.register_forward_hook(lambda *_: calls.append("out"))
    wc.deep.features(encoder, x, layer="1")
    assert calls.count("in") == calls.count("out") > 0
    encoder[1].register_forward_hook(lambda *given: given[-1] * 10)
    message = (
        "features: the layer must not have forward hooks, because hooks may change its output; '1' has "
        "forward hooks. Remove them, or name its parent module."
    )
    with pytest.raises(wc.InvalidInputError, match=re.escape(message)):
        wc.deep.features(encoder, x, layer="1")


def test_tensors_kept_by_a_module_can_be_trained() -> None:
    class Keeps(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)
            self.kept: Tensor | None = None

        def forward(self, x: Tensor) -> Tensor:
            if self.kept is None:
                self.kept = torch.cos(torch.arange(4.0))
            return torch.as_tensor(self.layer(x) * self.kept)

    encoder = Keeps()
    wc.explain(DeepClustering(encoder, np.eye(4)[:2]), torch.randn(3, 4))
    encoder(torch.randn(3, 4)).sum().backward()
    assert encoder.layer.weight.grad is not None


def test_relevance_of_a_second_output_has_no_rule() -> None:
    second = forward_of(lambda x: torch.native_layer_norm(x, (4,), None, None, 1e-5)[1].expand(-1, 4) * 1.0)
    with pytest.raises(wc.UnsupportedModelError, match="no rule for the operation 'native_layer_norm'"):
        lrp(second, torch.randn(2, 4), lambda y: y)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_z_plus_gives_nothing_without_positive_contributions(dtype: torch.dtype) -> None:
    """Rounding leaves a remainder of the positive sum, which must not receive all relevance.

    The large bias lets the output pass the ReLU.
    """
    generator = torch.Generator().manual_seed(0)
    linear = torch.nn.Linear(500, 40, dtype=dtype)
    with torch.no_grad():
        linear.weight.copy_(-torch.rand(40, 500, generator=generator, dtype=dtype))
        linear.weight[:5].abs_()
        linear.bias.fill_(300.1)
    module = torch.nn.Sequential(linear, torch.nn.ReLU())
    x = torch.rand(20, 500, generator=generator, dtype=dtype)
    relevance = torch.ones(20, 40, dtype=dtype)
    found = wc.deep.lrp(module, x, relevance, rules=wc.deep.ZPlus())
    assert (found >= 0).all()
    assert torch.allclose(found.sum(dim=1), torch.full((20,), 5.0, dtype=dtype), rtol=1e-4)
