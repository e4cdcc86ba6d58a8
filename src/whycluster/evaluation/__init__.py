"""How faithful is an explanation? Algorithm 1 of the paper, methods, sanity checks, segments of images."""

from whycluster.evaluation import checks
from whycluster.evaluation.comparison import Comparison, compare
from whycluster.evaluation.flipping import Flipping, flipping_auc
from whycluster.evaluation.matching import Matching, match
from whycluster.evaluation.methods import METHODS, Method, shapley_values
from whycluster.evaluation.samplers import ConditionalKDE

__all__ = [
    "METHODS",
    "Comparison",
    "ConditionalKDE",
    "Flipping",
    "Matching",
    "Method",
    "checks",
    "compare",
    "flipping_auc",
    "match",
    "shapley_values",
]
