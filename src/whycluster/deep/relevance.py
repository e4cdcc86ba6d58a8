"""`lrp` propagates relevance through any torch module, independently of clustering."""

from __future__ import annotations

from typing import Any

import torch

from whycluster.core.errors import InvalidInputError
from whycluster.deep.encoder import Encoder, Inputs
from whycluster.deep.lrp.composites import composite_of
from whycluster.deep.tensors import read_tensor


def lrp(
    module: torch.nn.Module,
    x: torch.Tensor,
    relevance: Any,
    *,
    layer: str | None = None,
    at: str | None = None,
    rules: Any = "auto",
) -> torch.Tensor:
    """Propagate relevance from the output of a module back to its input.

    `whycluster.explain` does this for the features of a `DeepClustering`. The module stays unchanged.

    Parameters
    ----------
    module : a torch module in evaluation mode
    x : inputs of the module, which are processed as one batch
    relevance : the relevance of the output, in the shape of the output, or a function that takes the output
        and returns this relevance
    layer : the name of a layer whose output is used instead of the module's output
    at : the name of a layer whose output receives the relevance instead of the input
    rules : as in `DeepClustering`

    Returns
    -------
    a tensor in the shape of ``x`` or, if ``at`` is given, in the shape of that layer's output

    Examples
    --------
    >>> import torch, whycluster as wc
    >>> module = torch.nn.Linear(2, 1, bias=False)
    >>> with torch.no_grad():
    ...     _ = module.weight.copy_(torch.tensor([[3.0, 1.0]]))
    >>> wc.deep.lrp(module, torch.tensor([[1.0, 1.0]]), torch.tensor([[8.0]]), rules=wc.deep.Epsilon(0.0))
    tensor([[6., 2.]])
    """
    inputs = Inputs.open(x, "lrp", "x")
    encoder = Encoder(module, layer, None, len(inputs), "lrp")
    if at is not None:
        encoder.check_layer(at, "lrp", "at")
    trace = encoder.trace_all(inputs, at)
    given = read_tensor(relevance(trace.features) if callable(relevance) else relevance, "lrp", "relevance")
    if given.shape != trace.features.shape:
        raise InvalidInputError(
            f"lrp: relevance must have the shape of the module's output, {tuple(trace.features.shape)}; "
            f"got {tuple(given.shape)}."
        )
    if not bool(torch.isfinite(given).all()):
        raise InvalidInputError("lrp: relevance must be finite; it contains NaN or infinite values.")
    return trace.propagate(trace.seed(given), composite_of(rules, trace.kind, "lrp"), at, last=True)
