"""`DeepClustering`, a model that combines a torch encoder and a head that clusters the encoder's features."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from whycluster.core.energies import LinearEnergy, SquaredEnergy
from whycluster.core.errors import InvalidInputError, UnsupportedModelError
from whycluster.deep.encoder import Encoder
from whycluster.deep.lrp.composites import composite_of
from whycluster.deep.network import DeepNetwork
from whycluster.deep.tensors import read_tensor
from whycluster.models.adapters.registry import adapt, to_network
from whycluster.models.network import Network, TableNetwork

MIDPOINT, ZERO = "midpoint", "zero"


class DeepClustering:
    """A deep clustering, in which an encoder maps inputs to features and a head clusters the features.

    `whycluster.explain` returns the relevance of the inputs of the encoder, such as pixels. The encoder and
    the head stay unchanged.

    Parameters
    ----------
    encoder : a torch module in evaluation mode that takes a batch of inputs
    head : the model that clusters the features. It can be an array or tensor of centroids, (K, d); a fitted
        model that `whycluster.neuralize` supports, such as KMeans or KernelKMeans, or a pipeline that ends in
        such a model; a ``torch.nn.Linear`` whose softargmax yields probabilities (SCAN, DEPICT); or a
        `Network`, such as ``wc.neuralize(centers, metric="student")`` for the Student-t head of DEC and IDEC,
        or ``wc.neuralize(matrix, metric="dot")`` for a softargmax
    layer : the name of the layer whose output provides the features, as in ``encoder.named_modules()``; by
        default, the output of the encoder
    spatial : whether each location in features of shape (n, channels, ...) is a separate point to cluster
    normalize : whether points are scaled to unit length before clustering
    pool : "mean" or "max", to pool the features over all locations; by default, the features are flattened
    reference : the reference point of the features, for k-means and other nearest-centroid heads. With
        "midpoint", the reference is halfway between the two centroids that are compared, the relevance of the
        features adds up to the evidence, and the absence of a feature may count as evidence. With "zero",
        only features that are present count, and the residual contains the remaining evidence. If 0 means
        absence, as after a ReLU, "zero" shows more clearly which feature maps keep an image in its cluster.
    rules : the LRP rules: "auto", "vgg" (as in the paper, with gamma 0.25 in blocks 1 to 3 and 0.1 in later
        blocks), "resnet", "transformer", "mlp", one rule such as ``wc.deep.Gamma(0.25)``, or a
        `whycluster.deep.Composite`
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
    >>> model = wc.deep.DeepClustering(encoder, [[0.0, 0.0], [4.0, 0.0]])
    >>> exp = wc.explain(model, np.array([[1.0, 5.0], [3.5, 5.0]], dtype=np.float32))
    >>> exp.cluster
    array([0, 1])
    >>> exp.relevance
    array([[ 8.,  0.],
           [12.,  0.]], dtype=float32)
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
        reference: str = "midpoint",
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
            _with_reference(_head_network(head), reference),
            spatial=spatial,
            normalize=normalize,
            rules=rules,
            bounds=None if bounds is None else (bounds[0], bounds[1]),
        )

    def transform(self, X: Any) -> NDArray[Any]:
        """Return the features that the head clusters, of shape (n, d), or (n, ..., d) if spatial."""
        rows, layout = self.network.points(X, "transform")
        return rows.reshape(-1, *layout.locations, rows.shape[1])

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the cluster of each input, (n,), or of each location, (n, ...), if spatial."""
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


def _with_reference(head: Network, reference: Any) -> Network:
    """Return a head that uses the given reference point and has the same clusters and evidence.

    |x - mu|^2 equals -(2 mu x - |mu|^2) up to a term that all clusters share. With "zero", k-means is
    therefore a linear layer.
    """
    if reference not in (MIDPOINT, ZERO):
        raise InvalidInputError(
            f"DeepClustering: reference must be {MIDPOINT!r} or {ZERO!r}; got {reference!r}."
        )
    if reference == MIDPOINT or type(head.energy) is LinearEnergy:  # a linear head's reference is always 0
        return head
    if type(head.energy) is not SquaredEnergy:
        raise UnsupportedModelError(
            f"DeepClustering: reference={ZERO!r} requires k-means, another nearest-centroid model or a "
            f"linear head; got a head with a {type(head.energy).__name__}."
        )
    centroids, scale = head.energy.prototypes, head.energy.scale
    bias = -(centroids**2 * scale).sum(axis=1)
    energy = LinearEnergy(2.0 * centroids * scale, bias, gives_probabilities=False)  # still a distance
    return TableNetwork(energy, labels=head.labels)
