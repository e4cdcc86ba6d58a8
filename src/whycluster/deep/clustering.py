"""`DeepClustering`, a model that combines a torch encoder and a head that clusters the encoder's features."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from whycluster.core.energies import LinearEnergy
from whycluster.core.errors import InvalidInputError, UnsupportedModelError
from whycluster.deep.encoder import Encoder
from whycluster.deep.lrp.composites import composite_of
from whycluster.deep.network import DeepNetwork
from whycluster.deep.tensors import read_tensor
from whycluster.models.adapters.registry import adapt, to_network
from whycluster.models.network import Network, TableNetwork


class DeepClustering:
    """A deep clustering, in which an encoder maps inputs to features and a head clusters the features.

    `whycluster.explain` returns the relevance of the inputs of the encoder, such as pixels. The encoder and
    the head stay unchanged.

    Parameters
    ----------
    encoder : a torch module in evaluation mode that takes a batch of inputs. Inputs in a mapping, such as the
        output of a tokenizer, are passed as keyword arguments; a module with another required argument, as in
        sentence-transformers, takes the mapping itself. If the output is a mapping, the sentence embedding is
        used if there is one, otherwise the first tensor.
    head : the model that clusters the features. It can be an array or tensor of centroids, (K, d); a fitted
        model that `whycluster.neuralize` supports, such as KMeans or KernelKMeans, or a pipeline that ends in
        such a model; a ``torch.nn.Linear`` whose softargmax yields probabilities (SCAN, DEPICT); or a
        `Network`, such as ``wc.neuralize(centers, metric="student")`` for the Student-t head of DEC and IDEC,
        or ``wc.neuralize(matrix, metric="dot")`` for a softargmax
    layer : the name of the layer whose output provides the features, as in ``encoder.named_modules()``; by
        default, the output of the encoder
    spatial : whether each location in features of shape (n, channels, ...) is a separate point to cluster
    normalize : whether points are scaled to unit length before clustering
    pool : "mean" or "max", to pool the features over all locations, or over the tokens that the attention
        mask does not hide; or "cls", for the first token. By default, the features are flattened.
    reference : where features are measured from. With "zero", only features that are present count, and the
        residual contains the remaining evidence. With "midpoint", a feature counts by how much better it fits
        one cluster than the other: for k-means, it is measured from the point halfway between the two
        centroids, and the relevance of the features adds up to the evidence, but the absence of a feature may
        count as evidence. With "auto", the reference is zero if no feature is negative in any input to
        explain or in the background, as after a ReLU, or if the inputs are tokens of a text; otherwise, it is
        the midpoint. If your features are never negative but 0 does not mean absence, pass "midpoint". Zero
        requires k-means or another nearest-centroid head; linear heads always use it, and all other heads
        always use the midpoint. The ``reference`` and ``reference_reason`` of an explanation say which
        reference was used and why.
    rules : the LRP rules: "auto", "vgg" (as in the paper, with gamma 0.25 in blocks 1 to 3 and 0.1 in later
        blocks), "resnet", "transformer", "text" (the default if the inputs are tokens: epsilon, with biases
        included), "mlp", one rule such as ``wc.deep.Gamma(0.25)``, or a `whycluster.deep.Composite`
    bounds : the smallest and the largest possible input value, each a number or one number per channel, such
        as ``wc.deep.pixel_bounds()``. If given, the first layer uses the zB rule.
    batch_size : the number of inputs per batch; by default, it depends on the size of the inputs and is 16
        for images of 224 x 224 pixels

    Examples
    --------
    >>> import numpy as np, torch, whycluster as wc
    >>> encoder = torch.nn.Sequential(torch.nn.Linear(2, 2, bias=False), torch.nn.ReLU())
    >>> with torch.no_grad():
    ...     _ = encoder[0].weight.copy_(torch.eye(2))
    >>> model = wc.deep.DeepClustering(encoder, [[4.0, 0.0], [0.0, 4.0]])
    >>> exp = wc.explain(model, np.array([[3.0, 1.0], [0.0, 2.0]], dtype=np.float32))
    >>> exp.cluster
    array([0, 1])
    >>> exp.relevance
    array([[24., -8.],
           [ 0., 16.]], dtype=float32)
    >>> exp.rule, exp.reference
    ('joint', 'zero')
    >>> exp.reference_reason
    'because none of the 2 inputs has a negative feature'
    """

    def __init__(
        self,
        encoder: torch.nn.Module,
        head: Any,
        *,
        layer: str | None = None,
        spatial: bool = False,
        normalize: bool = False,
        pool: str | None = None,
        reference: str = "auto",
        rules: Any = "auto",
        bounds: tuple[Any, Any] | None = None,
        batch_size: int | None = None,
    ) -> None:
        composite_of(rules, "mlp")  # raises an error if the rules are invalid
        if spatial and pool is not None:
            raise InvalidInputError(
                "DeepClustering: only one of spatial and pool may be set; spatial clusters each location "
                "separately, whereas pool combines all locations. Leave one of them out."
            )
        if bounds is not None and (not isinstance(bounds, (tuple, list)) or len(bounds) != 2):
            raise InvalidInputError(
                f"DeepClustering: bounds must be a pair, (smallest value, largest value); got {bounds!r}."
            )
        self.encoder, self.head = encoder, head
        self.network = DeepNetwork(
            Encoder(encoder, layer, pool, batch_size),
            _head_network(head),
            spatial=spatial,
            normalize=normalize,
            rules=rules,
            bounds=None if bounds is None else (bounds[0], bounds[1]),
            reference=reference,
        )

    def transform(self, X: Any) -> NDArray[Any]:
        """Return the features that the head clusters, of shape (n, d), or (n, ..., d) if spatial.

        Parameters
        ----------
        X : n inputs of the encoder: an array or a tensor
        """
        rows, layout = self.network.points(X, "transform")
        return rows.reshape(-1, *layout.locations, rows.shape[1])

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the cluster of each input, (n,), or of each location, (n, ...), if spatial.

        Parameters
        ----------
        X : n inputs of the encoder: an array or a tensor
        """
        return self.network.assign(X)

    def __repr__(self) -> str:
        return f"DeepClustering({type(self.encoder).__name__}, {type(self.head).__name__})"


@adapt.register
def _network(model: DeepClustering) -> Network:
    return model.network


def _head_network(head: Any) -> Network:
    """Return the network of a head."""
    if isinstance(head, torch.nn.Linear):
        weight = _numbers(head.weight, "head.weight")
        bias = None if head.bias is None else _numbers(head.bias, "head.bias")
        return TableNetwork(LinearEnergy(weight, bias))
    if isinstance(head, torch.nn.Module):
        raise UnsupportedModelError(
            f"DeepClustering: a head that is a module must be a torch.nn.Linear; got {type(head).__name__}. "
            "Move its other layers to the encoder."
        )
    if isinstance(head, torch.Tensor):
        head = _numbers(head, "head")
    network = to_network(head)
    if network.categories is not None or network.is_deep:
        raise UnsupportedModelError(
            f"DeepClustering: head must be a model that takes numeric features; got {type(head).__name__}."
        )
    return network


def _numbers(tensor: torch.Tensor, name: str) -> NDArray[Any]:
    """Return a head's tensor as an array; raise an error unless all values are finite."""
    values = read_tensor(tensor, "DeepClustering", name).cpu().double().numpy()
    if not np.isfinite(values).all():
        raise InvalidInputError(f"DeepClustering: {name} must be finite; it contains NaN or infinite values.")
    return values
