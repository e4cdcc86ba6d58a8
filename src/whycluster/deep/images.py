"""Convert images to network inputs (normalized, channels first) and to arrays for display."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whycluster.core.errors import InvalidInputError
from whycluster.data.arrays import as_array_or_empty

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


def normalize(
    images: Any, mean: Sequence[float] = IMAGENET_MEAN, std: Sequence[float] = IMAGENET_STD
) -> NDArray[np.float32]:
    """Normalize images for a network that was trained with this mean and standard deviation.

    Parameters
    ----------
    images : one image or several images of the same size: either uint8 with channels last, (H, W, 3) or (n,
        H, W, 3), as image libraries return them, or floats from 0 to 1 with channels first, (3, H, W) or (n,
        3, H, W). The channels are red, green and blue.
    mean, std : the mean and standard deviation of each channel, for pixel values from 0 to 1; by default
        those of ImageNet

    Returns
    -------
    (n, 3, H, W) array of float32
        (image - mean) / std; n = 1 for a single image

    Examples
    --------
    >>> import numpy as np
    >>> import whycluster as wc
    >>> wc.deep.normalize(np.full((3, 32, 32), 0.5)).shape
    (1, 3, 32, 32)
    """
    mean32, std32 = _read_moments(mean, std, "normalize")
    return _normalized(read_images(images, "normalize"), mean32, std32)


def pixel_bounds(
    mean: Sequence[float] = IMAGENET_MEAN, std: Sequence[float] = IMAGENET_STD
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return the smallest and the largest normalized pixel value (black and white), each of shape (3,).

    Parameters
    ----------
    mean, std : the mean and standard deviation of each channel, as in `normalize`
    """
    mean32, std32 = _read_moments(mean, std, "pixel_bounds")
    ends = np.stack([np.zeros((3, 1, 1), np.float32), np.ones((3, 1, 1), np.float32)])
    low, high = _normalized(ends, mean32, std32)[:, :, 0, 0]
    return low, high


def read_images(images: Any, where: str) -> NDArray[np.float32]:
    """Return images as floats from 0 to 1 with channels first, (n, 3, H, W), without a copy if possible."""
    array = as_array_or_empty(images)
    batch = array[None] if array.ndim == 3 else array
    if not _are_images(batch):
        raise InvalidInputError(
            f"{where}: images must be uint8 of shape (H, W, 3) or (n, H, W, 3), or floats from 0 to 1 of "
            f"shape (3, H, W) or (n, 3, H, W); got {array.dtype} of shape {array.shape}. "
            f"If the sizes differ, resize the images first."
        )
    if batch.dtype == np.uint8:
        return np.asarray(batch.transpose(0, 3, 1, 2) / np.float32(255), np.float32)
    if not (batch.min() >= 0 and batch.max() <= 1):  # this check also rejects NaN
        raise InvalidInputError(
            f"{where}: floating-point images must have values from 0 to 1; got values from "
            f"{batch.min():.4g} to {batch.max():.4g}. Divide by the largest possible pixel value first."
        )
    return batch.astype(np.float32, copy=False)


def _are_images(batch: NDArray[Any]) -> bool:
    if batch.ndim != 4 or 0 in batch.shape:
        return False
    if batch.dtype == np.uint8:
        return bool(batch.shape[3] == 3)
    return batch.dtype.kind == "f" and bool(batch.shape[1] == 3)


def _read_moments(mean: Any, std: Any, where: str) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    moments = []
    for name, value in (("mean", mean), ("std", std)):
        array = as_array_or_empty(value)
        valid = array.shape == (3,) and array.dtype.kind in "fiu" and np.isfinite(array).all()
        if not valid or (name == "std" and array.min() <= 0):
            kind = "positive" if name == "std" else "finite"
            raise InvalidInputError(
                f"{where}: {name} must be three {kind} numbers, for red, green and blue; got {value!r}."
            )
        moments.append(array.astype(np.float32))
    return moments[0], moments[1]


def _normalized(
    images: NDArray[np.float32], mean: NDArray[np.float32], std: NDArray[np.float32]
) -> NDArray[np.float32]:
    return (images - mean[:, None, None]) / std[:, None, None]


def displayable_images(inputs: Any) -> list[NDArray[Any]] | None:
    """Return the inputs as images, each rescaled to the range from 0 to 1, or None if they are not images."""
    values = np.asarray(inputs.detach().cpu() if hasattr(inputs, "detach") else inputs, dtype=np.float64)
    if values.ndim != 4 or values.shape[1] not in (1, 3):
        return None
    images = []
    for image in values:
        span = np.ptp(image)
        images.append(np.broadcast_to((image - image.min()) / (span if span else 1.0), (3, *image.shape[1:])))
    return images
