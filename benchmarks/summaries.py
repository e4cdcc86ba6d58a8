"""Other ways to sum up an image in K heat maps: what clusters of its places are compared with.

The four baselines of the paper's last showcase. None of them clusters places: the first two propagate what
is most active in a layer to the pixels, by the same LRP that explains clusters; the other two are those of
Network Dissection (Zhou et al., 2018), which thresholds activation maps and scales them up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from whycluster.core.errors import InvalidInputError, MissingDependencyError
from whycluster.data.arrays import as_array, is_real
from whycluster.data.validation import check_whole

if TYPE_CHECKING:
    import torch

    from whycluster.deep.encoder import Encoder, Inputs

Maps: TypeAlias = NDArray[np.floating]

TAU = 0.995  # of Network Dissection
_BATCH = 8


def feature_maps(
    encoder: torch.nn.Module, image: Any, layer: str | None, n_maps: int = 4, *, rules: Any = "auto"
) -> Maps:
    """FM: the most active channels of a layer, each propagated to the pixels.

    Active in the sense of the maximum norm: a channel is as active as the place where it is most so. What is
    propagated is the activation of the channel at all its places.

    Parameters
    ----------
    encoder : a torch module in evaluation mode
    image : (channels, H, W), as the encoder takes it
    layer : the name of a layer that gives (n, channels, h, w), as in ``encoder.named_modules()``; None for
        what the encoder gives
    n_maps : how many heat maps, K
    rules : the rules of LRP, as in `whycluster.deep.DeepClustering`

    Returns
    -------
    (K, H, W) relevance of the pixels, the most active channel first
    """

    def chosen(activation: Maps) -> Iterable[Maps]:
        for channel in _greatest(np.abs(activation).max(axis=(1, 2)), n_maps, "feature_maps", "channels"):
            alone = np.zeros_like(activation)
            alone[channel] = activation[channel]
            yield alone

    return _propagated(encoder, image, layer, n_maps, chosen, rules, "feature_maps")


def locations(
    encoder: torch.nn.Module, image: Any, layer: str | None, n_maps: int = 4, *, rules: Any = "auto"
) -> Maps:
    """LO: the most active places of a layer, each propagated to the pixels.

    Active in the sense of the Euclidean norm over the channels. What is propagated are the activations of all
    channels there.

    Parameters
    ----------
    encoder, image, layer, n_maps, rules : as in `feature_maps`

    Returns
    -------
    (K, H, W) relevance of the pixels, the most active place first
    """

    def chosen(activation: Maps) -> Iterable[Maps]:
        norm = np.sqrt((activation.astype(np.float64) ** 2).sum(axis=0))
        for place in _greatest(norm.ravel(), n_maps, "locations", "places"):
            at = (slice(None), *np.unravel_index(place, norm.shape))
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
    """The thresholds of `netdissect1` and `netdissect2`: a quantile of each channel's activations.

    The quantile is over all places of all images, as in Network Dissection; but there the images are those of
    the Broden data set, and here those that are given.

    Parameters
    ----------
    encoder, layer : as in `feature_maps`
    images : (n, channels, H, W)
    quantile : the part of the activations that is below the threshold; 0.995 in Network Dissection
    batch_size : how many images go through the encoder at once

    Returns
    -------
    (channels,) thresholds
    """
    where = "activation_thresholds"
    if not is_real(quantile) or not 0 <= quantile < 1:
        raise InvalidInputError(f"{where}: quantile must be from 0 to below 1; got {quantile!r}.")
    check_whole(batch_size, 1, where, "batch_size")
    opened, inputs = _open(encoder, images, layer, where, "images", batch_size)
    activation = opened.features(inputs)
    _check_maps(activation.shape, where)
    return np.array([np.quantile(activation[:, c], quantile) for c in range(activation.shape[1])])


def netdissect1(
    encoder: torch.nn.Module, image: Any, layer: str | None, thresholds: Any, n_maps: int = 4
) -> Maps:
    """NetDissect1: the activation maps that are above their threshold in the most pixels.

    An activation map is scaled up to the pixels (bilinear), and is 1 above its threshold and 0 elsewhere.

    Parameters
    ----------
    encoder, image, layer, n_maps : as in `feature_maps`
    thresholds : one for each channel of the layer, as `activation_thresholds` gives them

    Returns
    -------
    (K, H, W) zeros and ones, the largest map first
    """
    segments = _segments(encoder, image, layer, thresholds, n_maps, "netdissect1")
    areas = segments.mean(axis=(1, 2))
    return np.asarray(segments[_greatest(areas, n_maps, "netdissect1", "channels")])


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
    """NetDissect2: the centroids of all thresholded activation maps, by k-means.

    Parameters
    ----------
    encoder, image, layer, n_maps : as in `feature_maps`
    thresholds : as in `netdissect1`
    n_init, random_state : of the k-means

    Returns
    -------
    (K, H, W) from 0 to 1: of the maps in a cluster, the part that is above its threshold in each pixel. Maps
    that are nowhere above it are left out. If there are fewer others than K, the last heat maps are zeros.
    """
    from sklearn.cluster import KMeans

    segments = _segments(encoder, image, layer, thresholds, n_maps, "netdissect2")
    rows = segments[segments.any(axis=(1, 2))].reshape(-1, segments[0].size)
    heatmaps = np.zeros((n_maps, *segments.shape[1:]), segments.dtype)
    n_centroids = min(
        n_maps, len({row.tobytes() for row in rows})
    )  # k-means warns if rows are too much alike
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
    """Heat maps of what is ``chosen`` of the activation (channels, h, w): one trace, and many ways back."""
    check_whole(n_maps, 1, where, "n_maps")
    encoder, inputs = _open(module, _one(image, where), layer, where, "image", 1)
    from whycluster.deep.lrp.composites import composite_of
    from whycluster.deep.tensors import to_numpy

    trace = encoder.trace_all(inputs, None)
    _check_maps(tuple(trace.features.shape), where)
    activation, composite = to_numpy(trace.features)[0], composite_of(rules, trace.kind, where)
    if not np.isfinite(activation).all():
        raise InvalidInputError(f"{where}: what the layer gives must be finite; of this image some is not.")
    seeds = (trace.seed(seed[None]) for seed in chosen(activation))
    return np.stack([to_numpy(trace.propagate(seed, composite))[0].sum(axis=0) for seed in seeds])


def _segments(
    module: torch.nn.Module, image: Any, layer: str | None, thresholds: Any, n_maps: int, where: str
) -> Maps:
    """(channels, H, W) zeros and ones: where each activation map, scaled up, is above its threshold."""
    check_whole(n_maps, 1, where, "n_maps")
    encoder, inputs = _open(module, _one(image, where), layer, where, "image", 1)
    import torch

    activation = encoder.features(inputs)
    _check_maps(activation.shape, where)
    limits = as_array(thresholds)
    if limits.shape != activation.shape[1:2] or limits.dtype.kind not in "fiu":
        raise InvalidInputError(
            f"{where}: thresholds must be numbers, one for each of the {activation.shape[1]} channels of the "
            f"layer; got {limits.dtype} of shape {limits.shape}. Take those of activation_thresholds for "
            "this layer."
        )
    size = inputs.tensor.shape[2:]
    # Not to the corners: what a place sees is centered on the middle of its pixels
    scaled = torch.nn.functional.interpolate(
        torch.from_numpy(activation), size=size, mode="bilinear", align_corners=False
    )
    return np.asarray(
        scaled[0].numpy() > limits.astype(activation.dtype)[:, None, None], dtype=activation.dtype
    )


def _open(
    module: torch.nn.Module, images: Any, layer: str | None, where: str, name: str, batch_size: int
) -> tuple[Encoder, Inputs]:
    try:
        from whycluster.deep.encoder import Encoder, Inputs
    except ImportError as error:
        raise MissingDependencyError(f'{where} needs torch: pip install "whycluster[deep]"') from error
    return Encoder(module, layer, None, batch_size, where), Inputs.open(images, where, name)


def _one(image: Any, where: str) -> Any:
    """A batch of the one image."""
    image = image if hasattr(image, "shape") else np.asarray(image)
    shape = tuple(image.shape)
    if len(shape) != 3:
        raise InvalidInputError(
            f"{where}: image must be a single one, of shape (channels, H, W); got {shape}."
        )
    return image[None]


def _check_maps(shape: tuple[int, ...], where: str) -> None:
    if len(shape) != 4:
        raise InvalidInputError(
            f"{where}: layer must give maps, (n, channels, h, w); it gives {shape}. Name an earlier layer."
        )


def _greatest(values: Maps, n: int, where: str, what: str) -> NDArray[np.intp]:
    """Where the n greatest values are, the greatest first; of equal ones, the first."""
    if n > len(values):
        raise InvalidInputError(
            f"{where}: n_maps must be at most the number of {what} of the layer, {len(values)}; got {n}."
        )
    return np.argsort(-values, kind="stable")[:n]
