"""Measure how faithful an explanation is.

Modules, in reading order:

- `samplers`: draw the unknown features of a row.
- `subject`: the model and the rows under evaluation.
- `flipping`: `flipping_auc`, Algorithm 1 of the paper.
- `shapley`: Shapley values of the cluster assignment.
- `oracle`: the greedy oracle, a practical upper bound for `flipping_auc`.
- `methods`: the registry of explanation methods.
- `comparison`: `compare`, which scores several methods on the same draws.
- `shuffled`: a model with shuffled features, for a sanity check.
- `checks`: sanity checks of explanations.
"""

from whycluster.evaluation import checks
from whycluster.evaluation.comparison import Comparison, compare
from whycluster.evaluation.flipping import Flipping, flipping_auc
from whycluster.evaluation.methods import METHODS, Method, shapley_values
from whycluster.evaluation.samplers import ConditionalKDE

__all__ = [
    "METHODS",
    "Comparison",
    "ConditionalKDE",
    "Flipping",
    "Method",
    "checks",
    "compare",
    "flipping_auc",
    "shapley_values",
]
