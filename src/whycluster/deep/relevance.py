"""`lrp`: relevance through any torch module, for its own sake."""

from __future__ import annotations

from typing import Any

import torch

from whycluster.core.errors import InvalidInputError
from whycluster.deep.encoder import Encoder, Inputs, read_tensor
from whycluster.deep.lrp.composites import composite_of


def lrp(
    module: torch.nn.Module,
    x: torch.Tensor,
    relevance: Any,
    *,
    layer: str | None = None,
    at: str | None = None,
    rules: Any = "auto",
) -> torch.Tensor:
    """Relevance of what a module gives, propagated back to what it was given.

    `whycluster.explain` of a `DeepClustering` does this for the relevance of its features. The module is not
    changed.

    Parameters
    ----------
    module : a torch module in the mode of evaluation
    x : a batch of its inputs, all taken at once
    relevance : of its output, in the same shape; or a function that is given the output and says its
        relevance
    layer : the name of a layer whose output is meant instead of the module's
    at : the name of a layer, whose output's relevance is wanted instead of the input's
    rules : as in `DeepClustering`

    Returns
    -------
    a tensor of the shape of x, or of what the layer ``at`` gives

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
            f"lrp: relevance must be of the shape of what the module gives, {tuple(trace.features.shape)}; "
            f"got {tuple(given.shape)}."
        )
    if not bool(torch.isfinite(given).all()):
        raise InvalidInputError("lrp: relevance must be finite; it holds values that are not.")
    return trace.propagate(trace.seed(given), composite_of(rules, trace.kind, "lrp"), at, last=True)
