"""Encoders of tokens: mappings as inputs and outputs, lookups, pooling over tokens, class tokens, memory."""

from __future__ import annotations

import gc
from collections import UserDict
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from torch import nn

import whycluster as wc
from tests.deep.networks import settled
from whycluster.deep import Composite, DeepClustering, Epsilon, features, lrp
from whycluster.deep.lrp.tape import Operation

Tensor = torch.Tensor
IDS = torch.tensor([[5, 3, 7, 0], [2, 9, 0, 0], [4, 4, 8, 1]])
MASK = torch.tensor([[1, 1, 1, 0], [1, 1, 0, 0], [1, 1, 1, 1]])


class Reader(nn.Module):
    """A small text encoder with the arguments and outputs of transformers."""

    def __init__(self, width: int = 8, clamps: bool = False) -> None:
        super().__init__()
        self.table, self.clamps = nn.Embedding(10, width), clamps
        self.positions = nn.Embedding(6, width)
        self.layer = nn.TransformerEncoderLayer(width, 2, 16, batch_first=True)

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> dict[str, Any]:
        if self.clamps:
            input_ids = torch.where(input_ids > 0, input_ids.clamp(0, 9), 0)[:, :]
        x = self.table(input_ids) + self.positions(torch.arange(input_ids.shape[1]))
        hidden = None if attention_mask is None else attention_mask == 0
        return {"last_hidden_state": self.layer(x, src_key_padding_mask=hidden), "pooler_output": None}


def reader(**options: Any) -> Any:
    torch.manual_seed(0)
    return settled(Reader(**options))


def batch() -> dict[str, Tensor]:
    return {"input_ids": IDS, "attention_mask": MASK}


def test_pooling_averages_over_the_tokens_that_are_not_hidden() -> None:
    module = reader()
    with torch.no_grad():
        found = module(**batch())["last_hidden_state"].numpy()
    there = MASK.numpy()[:, :, None]
    mean = (found * there).sum(1) / there.sum(1)
    largest = np.where(there, found, -np.inf).max(1)
    assert_allclose(features(module, batch(), pool="mean"), mean, atol=1e-6)
    assert_allclose(features(module, batch(), pool="max"), largest, atol=1e-6)
    assert_allclose(
        features(module, IDS, pool="mean"), module(IDS)["last_hidden_state"].detach().mean(1), atol=1e-6
    )


def test_pooling_of_convolutions_still_averages_over_time() -> None:
    module = settled(nn.Sequential(nn.Conv1d(3, 5, 3), nn.ReLU()))
    X = torch.randn(4, 3, 9)
    assert_allclose(features(module, X, pool="mean"), module(X).detach().mean(2), atol=1e-6)


@pytest.mark.parametrize("wrap", [dict, UserDict, lambda d: {k: v.tolist() for k, v in d.items()}])
def test_a_mapping_is_passed_as_keywords(wrap: Any) -> None:
    module = reader()
    head = features(module, batch(), pool="mean")[:2]
    model = DeepClustering(module, head, pool="mean")
    exp: Any = wc.explain(model, wrap(batch()), at="table")
    assert exp.cluster.tolist()[:2] == [0, 1]
    assert exp.relevance.shape == (3, 4, 8)
    assert not exp.relevance[0, 3].any()  # hidden tokens have no relevance
    assert (exp.rule, exp.reference, exp.reference_reason) == (
        "joint",
        "zero",
        "because the inputs are tokens of a text",
    )
    assert_allclose(sum(exp.residual_shares.values()), exp.residual, atol=1e-6)
    assert set(exp.residual_shares) == {"baseline of the clusters", "biases and losses of LRP"}
    assert set(exp[1:].data) == {"input_ids", "attention_mask"}
    assert len(exp[1:].data["input_ids"]) == 2


def test_a_module_with_one_argument_takes_the_mapping() -> None:
    class Wrapped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.reader = reader()

        def forward(self, input: dict[str, Tensor], **options: Any) -> dict[str, Tensor]:  # noqa: A002, ARG002  # as in sentence-transformers
            return {**input, "sentence_embedding": self.reader(**input)["last_hidden_state"][:, 0]}

    found = features(Wrapped().eval(), batch())
    assert_allclose(found, reader()(**batch())["last_hidden_state"].detach()[:, 0], atol=1e-6)


def test_a_list_of_tensors_is_a_batch() -> None:
    module = settled(nn.Sequential(nn.Flatten(), nn.Linear(6, 2)))
    X = torch.randn(3, 2, 3)
    assert_allclose(features(module, list(X)), features(module, X))


@pytest.mark.parametrize("clamps", [False, True])
def test_integer_operations_before_a_lookup_change_nothing(clamps: bool) -> None:
    def run(x: Any) -> Tensor:
        return lrp(reader(clamps=x), IDS, lambda y: y, at="table")

    assert_allclose(run(clamps), run(False))
    assert run(clamps).abs().sum() > 0


def test_relevance_at_the_lookup_is_that_of_the_embeddings_as_inputs() -> None:
    """The same network without its table, run on the embeddings."""
    module = reader()

    class Rest(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.positions = module.layer, module.positions

        def forward(self, x: Tensor) -> Tensor:
            found: Tensor = self.layer(x + self.positions(torch.arange(x.shape[1])))
            return found

    x = module.table(IDS).detach()
    expected = lrp(Rest().eval(), x, lambda y: y, rules="text")
    assert_allclose(lrp(module, IDS, lambda y: y, at="table"), expected, atol=1e-5)


class Strided(nn.Module):
    """Windows of two neighbors, by strides into the storage."""

    def forward(self, x: Tensor) -> Tensor:
        part = x[:, 1:]  # begins inside the storage
        n, t = part.shape
        return torch.as_strided(part, (n, t - 1, 2), (part.stride(0), 1, 1), part.storage_offset()).sum(2)


def test_relevance_passes_strided_views() -> None:
    x = torch.tensor([[9.0, 1.0, 2.0, 4.0], [9.0, 3.0, 5.0, 7.0]])
    found = lrp(Strided(), x, lambda y: y, rules=Composite(sums=0.0))
    assert_allclose(found, [[0.0, 1.0, 4.0, 4.0], [0.0, 3.0, 10.0, 7.0]])


def n_operations() -> int:
    return sum(type(each) is Operation for each in gc.get_objects())


@pytest.mark.parametrize("at", [None, "1"])
def test_no_trace_waits_for_the_garbage_collector(at: str | None) -> None:
    module = settled(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)))
    X = torch.randn(6, 3)
    gc.collect()
    gc.disable()
    try:
        before = n_operations()
        wc.explain(DeepClustering(module, np.eye(2), batch_size=2), X, at=at)
        assert n_operations() == before
    finally:
        gc.enable()


class WithClassToken(nn.Module):
    """Attention over patches and a class token, whose output is the feature."""

    def __init__(self) -> None:
        super().__init__()
        self.token = nn.Parameter(torch.ones(1, 1, 8))
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.layer(torch.cat([self.token.expand(len(x), -1, -1), x], dim=1))[:, 0]
        return found


def test_the_share_of_a_class_token_is_named() -> None:
    torch.manual_seed(0)
    module = settled(WithClassToken())
    X = torch.randn(5, 3, 8)
    exp: Any = wc.explain(DeepClustering(module, features(module, X)[:2]), X)
    shares = exp.residual_shares
    # LRP to the tokens with the class token as an input, which is not lost there
    tokens = torch.cat([module.token.expand(5, -1, -1), X], dim=1)

    class Inner(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = module.layer

        def forward(self, x: Tensor) -> Tensor:
            found: Tensor = self.layer(x)[:, 0]
            return found

    expected = lrp(Inner().eval(), tokens, torch.as_tensor(exp.features.relevance))
    assert_allclose(shares["class token"], expected[:, 0].sum(1), atol=1e-4)
    assert_allclose(sum(shares.values()), exp.residual, atol=1e-6)
    assert "class token" in exp.describe(0)
    assert_allclose(exp[2:].residual_shares["class token"], shares["class token"][2:])


def test_relevance_far_above_the_evidence_is_warned_of() -> None:
    module = nn.Linear(2, 1, bias=False)
    with torch.no_grad():
        module.weight.copy_(torch.tensor([[1.0, -0.9999]]))
    model = DeepClustering(module, [[0.0], [1.0]], rules=Epsilon(0.0), reference="midpoint")
    with pytest.warns(wc.UnstableRelevanceWarning) as caught:
        exp: Any = wc.explain(model, torch.ones(2, 2))
    ratio = np.abs(exp.relevance).sum() / exp.evidence.sum()
    assert ratio > 100
    assert str(caught[0].message) == (
        f"explain: the absolute relevance adds up to {ratio:,.3g} times the evidence, so relevance of "
        "opposite signs "
        "cancels out and has no meaning. Include biases: "
        'rules="text", or wc.deep.Composite(..., biases=True); or use a larger gamma or epsilon.'
    )


@pytest.mark.parametrize(
    ("X", "expected"),
    [
        (
            {"input_ids": [[1, 2], [3]]},
            "features: all rows of X['input_ids'] must have the same length; got rows of different lengths. "
            "Pad them: tokenizer(texts, padding=True, truncation=True).",
        ),
        (
            {"input_ids": IDS, "attention_mask": MASK[:2]},
            "features: all arrays of X must have one row per input; 'input_ids' has 3 and 'attention_mask' "
            "has 2.",
        ),
        (
            {"modality": "text"},
            "features: X must contain at least one input array; got {'modality': 'text'}.",
        ),
        (
            [torch.ones(2), torch.ones(3)],
            "features: all inputs of X must have the same shape, so that they form a batch; got tensors of "
            "shapes (2,), (3,). Resize or pad them.",
        ),
    ],
)
def test_bad_inputs(X: Any, expected: str) -> None:
    with pytest.raises(wc.InvalidInputError) as error:
        features(reader(), X)
    assert str(error.value) == expected
