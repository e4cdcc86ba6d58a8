"""How faithful is an explanation? Algorithm 1 of the paper, methods, sanity checks, segments of images."""

from whycluster.evaluation import checks
from whycluster.evaluation.comparison import Comparison, compare
from whycluster.evaluation.flipping import Flipping, flipping_auc
from whycluster.evaluation.matching import Matching, match
from whycluster.evaluation.methods import METHODS, Method, shapley_values
from whycluster.evaluation.samplers import ConditionalKDE
from whycluster.evaluation.summaries import (
    activation_thresholds,
    feature_maps,
    locations,
    netdissect1,
    netdissect2,
)

__all__ = [
    "METHODS",
    "Comparison",
    "ConditionalKDE",
    "Flipping",
    "Matching",
    "Method",
    "activation_thresholds",
    "checks",
    "compare",
    "feature_maps",
    "flipping_auc",
    "locations",
    "match",
    "netdissect1",
    "netdissect2",
    "shapley_values",
]
