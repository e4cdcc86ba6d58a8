"""Explain deep clusterings (a torch encoder and a head) in terms of the encoder's inputs. Requires torch.

Modules, in reading order:

- ``clustering``: `DeepClustering`, the model that users create.
- ``tensors``: conversion between arrays and tensors.
- ``encoder``: a torch module that maps inputs to features in batches.
- ``references``: whether features are measured from 0 or from the midpoint between two clusters.
- ``network``: `DeepNetwork` combines an encoder, a head and LRP to explain inputs.
- ``explanation``: the results, `DeepExplanation` and `SpatialExplanation`.
- ``features``, ``relevance``, ``spatial``: the functions `features`, `lrp` and `spatial_clusters`.
- ``images``: conversion of images to inputs of a network and to arrays for display.
- ``scan``: `fit_scan` trains the head of SCAN.
- ``clustpy``: the adapter for ClustPy models.
- ``lrp``: the LRP engine, which does not depend on the other modules.
"""

from whycluster.core.errors import MissingDependencyError

try:
    import torch  # noqa: F401  # imported first, so that the message names the extra to install
except ImportError as error:
    raise MissingDependencyError('wc.deep needs torch: pip install "whycluster[deep]"') from error

from whycluster.deep.clustering import DeepClustering
from whycluster.deep.explanation import DeepExplanation, SpatialExplanation
from whycluster.deep.features import features
from whycluster.deep.images import IMAGENET_MEAN, IMAGENET_STD, normalize, pixel_bounds
from whycluster.deep.lrp.composites import Composite, Layer
from whycluster.deep.lrp.rules import Epsilon, Flat, Gamma, Rule, WSquare, ZBox, ZPlus
from whycluster.deep.relevance import lrp
from whycluster.deep.scan import fit_scan
from whycluster.deep.spatial import spatial_clusters

__all__ = [
    "IMAGENET_MEAN",
    "IMAGENET_STD",
    "Composite",
    "DeepClustering",
    "DeepExplanation",
    "Epsilon",
    "Flat",
    "Gamma",
    "Layer",
    "Rule",
    "SpatialExplanation",
    "WSquare",
    "ZBox",
    "ZPlus",
    "features",
    "fit_scan",
    "lrp",
    "normalize",
    "pixel_bounds",
    "spatial_clusters",
]
