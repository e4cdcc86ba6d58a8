"""`features` returns the features of an encoder, ready to be clustered."""

from __future__ import annotations

from typing import Any

import torch
from numpy.typing import NDArray

from whycluster.deep.encoder import Encoder, Inputs
from whycluster.deep.network import encode_points


def features(
    encoder: torch.nn.Module,
    X: Any,
    *,
    layer: str | None = None,
    spatial: bool = False,
    normalize: bool = False,
    pool: str | None = None,
    batch_size: int | None = None,
) -> NDArray[Any]:
    """Return the features that a `DeepClustering` with these parameters would cluster.

    Fit the head of the `DeepClustering` to these features.

    Parameters
    ----------
    encoder : a torch module in evaluation mode
    X : a batch of inputs of the encoder, as an array or a tensor
    layer, spatial, normalize, pool, batch_size : as in `DeepClustering`

    Returns
    -------
    (n, d) array, or (n, ..., d) if spatial

    Examples
    --------
    >>> import torch, whycluster as wc
    >>> encoder = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU()).eval()
    >>> images = torch.zeros(5, 3, 8, 8)
    >>> wc.deep.features(encoder, images, pool="mean").shape
    (5, 4)
    >>> wc.deep.features(encoder, images, spatial=True).shape
    (5, 6, 6, 4)
    """
    source = Encoder(encoder, layer, pool, batch_size, "features")
    rows, layout = encode_points(source, Inputs.open(X, "features"), spatial, normalize)
    return rows.reshape(-1, *layout.locations, layout.width)
