"""Deep clusterings: a head for the features of a deep network, images as it takes them, heat maps."""

from whycluster.errors import MissingDependencyError

try:
    import torch  # noqa: F401  # asked for here, so that the message says what to install
except ImportError as error:
    raise MissingDependencyError('wc.deep needs torch: pip install "whycluster[deep]"') from error

from whycluster.deep.heatmaps import draw_grid
from whycluster.deep.images import IMAGENET_MEAN, IMAGENET_STD, normalize, pixel_bounds, spiral
from whycluster.deep.scan import fit_scan

__all__ = ["IMAGENET_MEAN", "IMAGENET_STD", "draw_grid", "fit_scan", "normalize", "pixel_bounds", "spiral"]
