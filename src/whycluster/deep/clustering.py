"""`DeepClustering`: a torch encoder and what clusters its features, as one model."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from whycluster.core.energies import LinearEnergy, SquaredEnergy
from whycluster.core.errors import InvalidInputError, UnsupportedModelError
from whycluster.deep.encoder import Encoder, read_tensor
from whycluster.deep.lrp.composites import composite_of
from whycluster.deep.network import DeepNetwork
from whycluster.models.adapters.registry import adapt, neuralize
from whycluster.models.network import Network, TableNetwork

MIDPOINT, ZERO = "midpoint", "zero"


class DeepClustering:
    """An encoder and a head: inputs become features, and these are clustered.

    `whycluster.explain` of it gives relevance in the inputs of the encoder, such as pixels. Neither the
    encoder nor the head is changed.

    Parameters
    ----------
    encoder : a torch module, in the mode of evaluation; its inputs' first axis counts them
    head : what clusters the features: centroids, (K, d), as an array or a tensor; a fitted model that
        `whycluster.neuralize` knows, such as KMeans or KernelKMeans, or a pipeline that ends in one; a
        ``torch.nn.Linear``, whose softargmax are the probabilities (SCAN, DEPICT); or a `Network`, such as
        ``wc.neuralize(centers, metric="student")`` for the Student-t head of DEC and IDEC, or
        ``wc.neuralize(matrix, metric="dot")`` for a softargmax
    layer : the name of the layer whose output is the features, as in ``encoder.named_modules()``; by default
        what the encoder gives
    spatial : whether each place of the features, (n, channels, ...), is a point that is clustered
    normalize : whether points are given unit length first
    pool : "mean" or "max" over all places of the features; by default all of them are one row
    reference : from where the features of k-means and its like are measured. "midpoint", between two
        centroids: relevance of the features adds up to the evidence, and a feature that is not there may
        speak. "zero": only what is there speaks, for or against; what this leaves is residual. Where 0 means
        absence, as behind a ReLU, it tells better which feature maps hold an image in its cluster
    rules : the rules of LRP: "auto", "vgg" (the paper's: gamma 0.25 in blocks 1 to 3, 0.1 above), "resnet",
        "transformer", "mlp", one rule such as ``wc.deep.Gamma(0.25)``, or a `whycluster.deep.Composite`
    bounds : the least and the greatest value that inputs can have, each a number or one for each channel,
        such as ``wc.deep.pixel_bounds()``; the rule zB is then used where the inputs come in
    batch_size : how many inputs go through the encoder at once; by default as many as their size allows, 16
        of 224 x 224 pixels

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
        composite_of(rules, "mlp")  # raises for what is none
        if spatial and pool is not None:
            raise InvalidInputError(
                "DeepClustering: spatial clusters each place on its own, pool makes one of all; choose one."
            )
        if bounds is not None and (not isinstance(bounds, (tuple, list)) or len(bounds) != 2):
            raise InvalidInputError(
                f"DeepClustering: bounds must be two, the least and the greatest; got {bounds!r}."
            )
        self.encoder, self.head = encoder, head
        self.network = DeepNetwork(
            Encoder(encoder, layer, pool, batch_size),
            _measured_from(reference, _head(head)),
            spatial=spatial,
            normalize=normalize,
            rules=rules,
            bounds=None if bounds is None else (bounds[0], bounds[1]),
        )

    def transform(self, X: Any) -> NDArray[Any]:
        """The features that are clustered, (n, d); of places, (n, ..., d)."""
        rows, arranged = self.network.points(X, "transform")
        return rows.reshape(-1, *arranged.places, rows.shape[1])

    def predict(self, X: Any) -> NDArray[Any]:
        """The cluster of each input, (n,); of places, that of each of them."""
        return self.network.assign(X)

    def __repr__(self) -> str:
        return f"DeepClustering({type(self.encoder).__name__}, {type(self.head).__name__})"


@adapt.register
def _network(model: DeepClustering) -> Network:
    return model.network


def _head(head: Any) -> Network:
    """The network of what clusters the features."""
    if isinstance(head, torch.nn.Linear):
        weight = _numbers(head.weight, "head.weight")
        bias = None if head.bias is None else _numbers(head.bias, "head.bias")
        return TableNetwork(LinearEnergy(weight, bias))
    if isinstance(head, torch.nn.Module):
        raise UnsupportedModelError(
            f"DeepClustering: head must be a torch.nn.Linear, if it is a module; got {type(head).__name__}. "
            "Leave the layers below its last one to the encoder."
        )
    if isinstance(head, torch.Tensor):
        head = _numbers(head, "head")
    network = neuralize(head)
    if network.categories is not None or network.is_deep:
        raise UnsupportedModelError(
            f"DeepClustering: head must cluster features that are numbers; got {type(head).__name__}."
        )
    return network


def _numbers(tensor: torch.Tensor, name: str) -> NDArray[Any]:
    """The values of a head, which must be finite."""
    values = read_tensor(tensor, "DeepClustering", name).cpu().double().numpy()
    if not np.isfinite(values).all():
        raise InvalidInputError(f"DeepClustering: {name} must be finite; it holds values that are not.")
    return values


def _measured_from(reference: Any, head: Network) -> Network:
    """The same clusters and evidence, with features measured from another point.

    |x - mu|^2 is -(2 mu x - |mu|^2) but for what all clusters share: a linear layer.
    """
    if reference not in (MIDPOINT, ZERO):
        raise InvalidInputError(
            f"DeepClustering: reference must be {MIDPOINT!r} or {ZERO!r}; got {reference!r}."
        )
    if reference == MIDPOINT or type(head.energy) is LinearEnergy:  # which is measured from 0 as it is
        return head
    if type(head.energy) is not SquaredEnergy:
        raise UnsupportedModelError(
            f"DeepClustering: reference={ZERO!r} is for k-means, other nearest-centroid models and linear "
            f"heads; got a head of {type(head.energy).__name__}."
        )
    centroids, scale = head.energy.prototypes, head.energy.scale
    energy = LinearEnergy(2.0 * centroids * scale, -(centroids**2 * scale).sum(axis=1))
    energy.gives_probabilities, energy.stiffness = False, None  # they are still distances
    return TableNetwork(energy, labels=head.labels)
