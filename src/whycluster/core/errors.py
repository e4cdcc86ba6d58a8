"""The errors of whycluster; `whycluster.data.warnings` has the warnings.

Each error also inherits from the built-in error that it refines, so ``except ValueError`` works as expected.
A message names the function, what it expects, what it got, and what to do.
"""


class WhyClusterError(Exception):
    """The base class of all errors of this package."""


class InvalidInputError(WhyClusterError, ValueError):
    """The data or a parameter is invalid."""


class UnsupportedModelError(WhyClusterError, TypeError):
    """No exact network is known for this model."""


class NotFittedError(WhyClusterError, ValueError):
    """The model has not been fitted yet."""


class MissingDependencyError(WhyClusterError, ImportError):
    """An optional library that the call needs is not installed."""


class GradientWarning(UserWarning):
    """For an operation without an LRP rule, its gradient was used instead, so relevance may not add up."""
