"""Every error that whycluster raises on purpose.

Each also inherits the built-in it refines, so ``except ValueError`` works as people expect.
A message says where, what was expected, what came, and what to do.
"""


class WhyClusterError(Exception):
    """The parent of all errors of this package."""


class InvalidInputError(WhyClusterError, ValueError):
    """The data or a parameter cannot be explained as it is."""


class UnsupportedModelError(WhyClusterError, TypeError):
    """No exact network is known for this model."""


class NotFittedError(WhyClusterError, ValueError):
    """The model has not been fitted yet."""


class MissingDependencyError(WhyClusterError, ImportError):
    """An optional library is needed for this call."""


class FidelityWarning(UserWarning):
    """A surrogate matches its labels badly, so its explanations may not be those of the clustering."""


class ColumnWarning(UserWarning):
    """Some columns of a table are left out, or read as what they may not be; the message names them."""


class FilesWarning(UserWarning):
    """Some files of a folder are of kinds that are not read there, or of no use; the message names one."""


class GradientWarning(UserWarning):
    """Relevance went through an operation that has no rule by its gradient, and need not add up."""
