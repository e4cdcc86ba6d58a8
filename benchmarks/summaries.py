"""Baselines that summarize an image in K heat maps, compared with clusters of its positions.

These are the four baselines of the paper's last showcase. None of them clusters positions. The first two
propagate the strongest activations of a layer to the pixels, by the same LRP that explains clusters. The
other two are from Network Dissection (Zhou et al., 2018), which thresholds activation maps and upsamples
them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.cluster import KMeans

from whycluster.core.errors import InvalidInputError
from whycluster.data.arrays import as_array_or_empty, is_real
from whycluster.data.validation import check_integer
from whycluster.deep.encoder import Encoder, Inputs
from whycluster.deep.lrp.composites import composite_of

Maps: TypeAlias = NDArray[np.floating]

TAU = 0.995  # the quantile of Network Dissection
_BATCH = 8


def feature_maps(
    encoder: torch.nn.Module, image: Any, layer: str | None, n_maps: int = 4, *, rules: Any = "auto"
) -> Maps:
    """FM: propagate the most active channels of a layer to the pixels.

    The activity of a channel is its largest absolute activation over all positions. LRP starts from the
    channel's activations at all positions.

    Parameters
    ----------
    encoder : a torch module in evaluation mode
    image : (channels, H, W) one input of the encoder
    layer : the name of a layer with output (n, channels, h, w), as in ``encoder.named_modules()``; None for
        the output of the encoder
    n_maps : the number of heat maps, K
    rules : the LRP rules, as in `whycluster.deep.DeepClustering`

    Returns
    -------
    (K, H, W) relevance of the pixels, the most active channel first
    """

    def chosen(activation: Maps) -> Iterable[Maps]:
        for channel in _largest(np.abs(activation).max(axis=(1, 2)), n_maps, "feature_maps", "channels"):
            alone = np.zeros_like(activation)
            alone[channel] = activation[channel]
            yield alone

    return _propagated(encoder, image, layer, n_maps, chosen, rules, "feature_maps")


def locations(
    encoder: torch.nn.Module, image: Any, layer: str | None, n_maps: int = 4, *, rules: Any = "auto"
) -> Maps:
    """LO: propagate the most active positions of a layer to the pixels.

    The activity of a position is the Euclidean norm over the channels. LRP starts from the activations of all
    channels at the position.

    Parameters
    ----------
    encoder, image, layer, n_maps, rules : as in `feature_maps`

    Returns
    -------
    (K, H, W) relevance of the pixels, the most active position first
    """

    def chosen(activation: Maps) -> Iterable[Maps]:
        norm = np.sqrt((activation.astype(np.float64) ** 2).sum(axis=0))
        for position in _largest(norm.ravel(), n_maps, "locations", "positions"):
            at = (slice(None), *np.unravel_index(position, norm.shape))
            alone = np.zeros_like(activation)
            alone[at] = activation[at]
            yield alone

    return _propagated(encoder, image, layer, n_maps, chosen, rules, "locations")


def activation_thresholds(
    encoder: torch.nn.Module,
    images: Any,
    layer: str | None,
    *,
    quantile: float = TAU,
    batch_size: int = _BATCH,
) -> Maps:
    """Compute the thresholds of `netdissect1` and `netdissect2`: a quantile of each channel's activations.

    The quantile is over all positions of all images, as in Network Dissection, which uses the images of the
    Broden data set.

    Parameters
    ----------
    encoder, layer : as in `feature_maps`
    images : (n, channels, H, W)
    quantile : the share of activations below the threshold; 0.995 in Network Dissection
    batch_size : the number of images per forward pass

    Returns
    -------
    (channels,) thresholds
    """
    where = "activation_thresholds"
    if not is_real(quantile) or not 0 <= quantile < 1:
        raise InvalidInputError(f"{where}: quantile must be from 0 to below 1; got {quantile!r}.")
    check_integer(batch_size, 1, where, "batch_size")
    opened, inputs = _open(encoder, images, layer, where, "images", batch_size)
    activation = opened.features(inputs)
    _check_maps(activation.shape, where)
    return np.array([np.quantile(activation[:, c], quantile) for c in range(activation.shape[1])])


def netdissect1(
    encoder: torch.nn.Module, image: Any, layer: str | None, thresholds: Any, n_maps: int = 4
) -> Maps:
    """NetDissect1: return the thresholded activation maps with the largest areas.

    Each activation map is upsampled to the pixels (bilinear). It is 1 above its threshold and 0 elsewhere.

    Parameters
    ----------
    encoder, image, layer, n_maps : as in `feature_maps`
    thresholds : one for each channel of the layer, from `activation_thresholds`

    Returns
    -------
    (K, H, W) zeros and ones, the largest area first
    """
    segments = _segments(encoder, image, layer, thresholds, n_maps, "netdissect1")
    areas = segments.mean(axis=(1, 2))
    return np.asarray(segments[_largest(areas, n_maps, "netdissect1", "channels")])


def netdissect2(
    encoder: torch.nn.Module,
    image: Any,
    layer: str | None,
    thresholds: Any,
    n_maps: int = 4,
    *,
    n_init: int = 3,
    random_state: Any = 0,
) -> Maps:
    """NetDissect2: return the k-means centroids of all thresholded activation maps.

    Parameters
    ----------
    encoder, image, layer, n_maps : as in `feature_maps`
    thresholds : as in `netdissect1`
    n_init, random_state : parameters of k-means

    Returns
    -------
    (K, H, W) from 0 to 1: for each pixel, the share of the maps in a cluster that are above their threshold.
    Maps that are nowhere above their threshold do not count. If fewer than K are left, the last heat maps are
    zeros.
    """
    segments = _segments(encoder, image, layer, thresholds, n_maps, "netdissect2")
    rows = segments[segments.any(axis=(1, 2))].reshape(-1, segments[0].size)
    heatmaps = np.zeros((n_maps, *segments.shape[1:]), segments.dtype)
    # k-means warns if there are fewer distinct rows than clusters.
    n_centroids = min(n_maps, len({row.tobytes() for row in rows}))
    if n_centroids:
        means = KMeans(n_centroids, n_init=n_init, random_state=random_state).fit(rows)
        heatmaps[:n_centroids] = means.cluster_centers_.reshape(-1, *segments.shape[1:])
    return heatmaps


def _propagated(
    module: torch.nn.Module,
    image: Any,
    layer: str | None,
    n_maps: int,
    chosen: Callable[[Maps], Iterable[Maps]],
    rules: Any,
    where: str,
) -> Maps:
    """Propagate the ``chosen`` parts of the activation (channels, h, w) to heat maps, from one trace."""
    check_integer(n_maps, 1, where, "n_maps")
    encoder, inputs = _open(module, _one(image, where), layer, where, "image", 1)
    from whycluster.deep.tensors import to_numpy

    trace = encoder.trace_all(inputs, None)
    _check_maps(tuple(trace.features.shape), where)
    activation, composite = to_numpy(trace.features)[0], composite_of(rules, trace.kind, where)
    if not np.isfinite(activation).all():
        raise InvalidInputError(f"{where}: the output of the layer must be finite; it is not for this image.")
    seeds = (trace.seed(seed[None]) for seed in chosen(activation))
    return np.stack([to_numpy(trace.propagate(seed, composite))[0].sum(axis=0) for seed in seeds])


def _segments(
    module: torch.nn.Module, image: Any, layer: str | None, thresholds: Any, n_maps: int, where: str
) -> Maps:
    """Return (channels, H, W) ones where an upsampled activation map exceeds its threshold, else zeros."""
    check_integer(n_maps, 1, where, "n_maps")
    encoder, inputs = _open(module, _one(image, where), layer, where, "image", 1)
    activation = encoder.features(inputs)
    _check_maps(activation.shape, where)
    limits = as_array_or_empty(thresholds)
    if limits.shape != activation.shape[1:2] or limits.dtype.kind not in "fiu":
        raise InvalidInputError(
            f"{where}: thresholds must be numbers, one for each of the {activation.shape[1]} channels of the "
            f"layer; got {limits.dtype} of shape {limits.shape}. Compute them with activation_thresholds for "
            "this layer."
        )
    size = inputs.tensor.shape[2:]
    # No aligned corners: the receptive field of a position is centered on its pixels.
    scaled = torch.nn.functional.interpolate(
        torch.from_numpy(activation), size=size, mode="bilinear", align_corners=False
    )
    return np.asarray(
        scaled[0].numpy() > limits.astype(activation.dtype)[:, None, None], dtype=activation.dtype
    )


def _open(
    module: torch.nn.Module, images: Any, layer: str | None, where: str, name: str, batch_size: int
) -> tuple[Encoder, Inputs]:
    return Encoder(module, layer, None, batch_size, where), Inputs.open(images, where, name)


def _one(image: Any, where: str) -> Any:
    """Return a batch with this image only."""
    image = image if hasattr(image, "shape") else np.asarray(image)
    shape = tuple(image.shape)
    if len(shape) != 3:
        raise InvalidInputError(
            f"{where}: image must be a single image of shape (channels, H, W); got {shape}."
        )
    return image[None]


def _check_maps(shape: tuple[int, ...], where: str) -> None:
    if len(shape) != 4:
        raise InvalidInputError(
            f"{where}: layer must return maps, (n, channels, h, w); got {shape}. Name an earlier layer."
        )


def _largest(values: Maps, n: int, where: str, what: str) -> NDArray[np.intp]:
    """Return the positions of the n largest values, the largest first; ties keep their order."""
    if n > len(values):
        raise InvalidInputError(
            f"{where}: n_maps must be at most the number of {what} of the layer, {len(values)}; got {n}."
        )
    return np.argsort(-values, kind="stable")[:n]
