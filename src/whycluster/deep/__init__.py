"""Deep clusterings: torch encoders, LRP, heat maps."""

from whycluster.core.errors import MissingDependencyError

try:
    import torch  # noqa: F401  # asked for here, so that the message says what to install
except ImportError as error:
    raise MissingDependencyError('wc.deep needs torch: pip install "whycluster[deep]"') from error

from whycluster.deep.clustering import DeepClustering
from whycluster.deep.explanation import DeepExplanation, SpatialExplanation
from whycluster.deep.features import features
from whycluster.deep.images import IMAGENET_MEAN, IMAGENET_STD, normalize, pixel_bounds
from whycluster.deep.lrp.composites import Composite, Place
from whycluster.deep.lrp.rules import ZB, Epsilon, Flat, Gamma, Rule, WSquared, ZPlus
from whycluster.deep.relevance import lrp
from whycluster.deep.scan import fit_scan
from whycluster.deep.spatial import spatial_clusters

__all__ = [
    "IMAGENET_MEAN",
    "IMAGENET_STD",
    "ZB",
    "Composite",
    "DeepClustering",
    "DeepExplanation",
    "Epsilon",
    "Flat",
    "Gamma",
    "Place",
    "Rule",
    "SpatialExplanation",
    "WSquared",
    "ZPlus",
    "features",
    "fit_scan",
    "lrp",
    "normalize",
    "pixel_bounds",
    "spatial_clusters",
]
