"""Vision encoders from timm and transformers, with random weights; nothing is downloaded."""

from __future__ import annotations

import warnings
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from torch import nn

import whycluster as wc
from benchmarks.vision import RECIPES, Recipe, explain, with_random_weights
from tests.deep.networks import settled
from whycluster.deep import Composite, DeepClustering, Epsilon, features, lrp

for library in ("timm", "transformers"):
    if find_spec(library) is None:
        pytest.skip(f"{library} is not installed", allow_module_level=True)

LOST = "biases and losses of LRP"
CONVOLUTIONS = {name for name in RECIPES if "ResNet" in name or "ConvNeXt" in name}
WITHOUT_CLASS_TOKEN = {name for name in RECIPES if "Swin" in name or "SigLIP" in name} | CONVOLUTIONS


@pytest.fixture(autouse=True)
def one_thread() -> Any:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("name", RECIPES)
def test_relevance_and_named_shares_add_up(name: str) -> None:
    exp = explain(RECIPES[name])
    shares, strength = exp.residual_shares, np.abs(exp.relevance).sum()
    assert exp.relevance.shape == (12, 3, 32, 32)
    assert np.abs(exp.relevance).reshape(12, -1).sum(1).all()
    assert_allclose(
        exp.relevance.sum((1, 2, 3)) + sum(shares.values()), exp.evidence, atol=1e-5 * exp.evidence.max()
    )
    # The class token is the only loss: all other relevance reaches the pixels.
    assert np.abs(shares[LOST]).sum() < 1e-4 * strength
    assert ("class token" in shares) == (name not in WITHOUT_CLASS_TOKEN)
    assert exp.heatmaps.shape == (12, 32, 32)


def test_a_class_token_loses_less_if_attention_adds_more_to_it() -> None:
    """The class token is a constant that every residual sum passes on, next to what attention adds to it."""
    recipe = RECIPES["transformers, CLIP"]

    def lost(factor: float) -> float:
        def build() -> Any:
            module = with_random_weights(recipe.build())
            with torch.no_grad():
                for layer, part in module.named_modules():
                    if layer.endswith("out_proj"):
                        part.weight.mul_(factor)
            return module

        exp = explain(Recipe(build, recipe.options))
        return float(np.abs(exp.residual_shares["class token"]).sum() / exp.evidence.sum())

    assert lost(1.0) > 0.5
    assert lost(8.0) < 0.3


@pytest.mark.parametrize("name", ["timm, ViT, mean of patches", "transformers, CLIP, mean of tokens"])
def test_a_class_token_loses_little_if_all_tokens_are_averaged(name: str) -> None:
    exp = explain(RECIPES[name])
    assert np.abs(exp.residual_shares["class token"]).sum() < 0.1 * exp.evidence.sum()


def test_the_first_token_is_the_feature() -> None:
    recipe = RECIPES["transformers, ViT"]
    module, X = with_random_weights(recipe.build()), torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        hidden = module(X).last_hidden_state
    assert_allclose(features(module, X, pool="cls"), hidden[:, 0], atol=1e-6)
    assert_allclose(features(module, X, pool="mean"), hidden.mean(1), atol=1e-6)
    torch_module: Any = wc.neuralize(
        DeepClustering(module, features(module, X, pool="mean"), pool="mean")
    ).to_torch()
    fresh: Any = DeepClustering(module, features(module, X, pool="mean"), pool="mean").network
    assert_allclose(fresh.to_torch()(X).detach(), torch_module(X).detach())  # nothing was encoded before
    assert fresh.to_torch()(X).argmax(1).tolist() == [0, 1]


def test_a_first_token_needs_tokens() -> None:
    module = settled(nn.Conv2d(3, 4, 3))
    with pytest.raises(wc.InvalidInputError) as error:
        features(module, torch.randn(2, 3, 8, 8), pool="cls")
    assert str(error.value) == (
        "features: pool='cls' needs features of shape (n, tokens, channels); the encoder returns shape "
        "(2, 4, 6, 6). Use pool='mean'."
    )


class Mixer(nn.Module):
    """Patches that are mixed by linear layers, without attention."""

    def __init__(self, channels_last: bool) -> None:
        super().__init__()
        self.patches, self.channels_last = nn.Conv2d(3, 6, 4, stride=4), channels_last
        self.norm, self.mix = nn.LayerNorm(6), nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        tokens = self.patches(x).flatten(2).transpose(1, 2)
        found: torch.Tensor = tokens + self.mix(self.norm(tokens).transpose(1, 2)).transpose(1, 2)
        return found if self.channels_last else found.transpose(1, 2)


@pytest.mark.parametrize("channels_last", [True, False])
def test_tokens_are_pooled_over_the_right_axis_without_attention(channels_last: bool) -> None:
    module, X = settled(Mixer(channels_last)), torch.randn(2, 3, 8, 8)
    found = features(module, X, pool="mean")
    assert found.shape == (2, 6)
    assert_allclose(found, module(X).detach().mean(1 if channels_last else 2), atol=1e-6)


def test_a_fused_product_and_sum_is_the_product_and_the_sum() -> None:
    torch.manual_seed(0)
    shift, scale = torch.randn(5), torch.randn(5)

    class Fused(nn.Module):
        def __init__(self, fused: bool, kind: str) -> None:
            super().__init__()
            self.layer, self.fused, self.kind = nn.Linear(4, 5), fused, kind

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.layer(x)
            base = shift if self.kind == "constant base" else y
            one = scale if self.kind != "constant product" else shift
            other = y.tanh() if self.kind != "constant product" else scale
            if self.fused:
                return torch.addcmul(base, one, other, value=0.5)
            return base + 0.5 * (one * other)

    X = torch.randn(3, 4)
    for kind in ("constant base", "constant product", "two variables"):
        modules = [settled(Fused(fused, kind)) for fused in (True, False)]
        for composite in (Composite(), Composite(default=Epsilon(1e-6), sums=0.0, biases=True)):
            fused, plain = (lrp(module, X, lambda y: y, rules=composite) for module in modules)
            assert_allclose(fused, plain, atol=1e-5)


def test_nothing_warns_but_few_rows() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        explain(RECIPES["transformers, SigLIP"])
    assert [each.category for each in caught] == [wc.FewRowsWarning]
