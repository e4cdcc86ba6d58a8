"""The warnings of whycluster."""

import sys


class FidelityWarning(UserWarning):
    """A surrogate matches its labels poorly, so its explanations may not hold for the clustering."""


class AgreementWarning(UserWarning):
    """The rule that is known for a clustering does not reproduce the labels of all rows."""


class ColumnWarning(UserWarning):
    """Some columns of a table are left out or may be misread; the message names them."""


class FilesWarning(UserWarning):
    """Some files in a folder cannot be read or are not used; the message names one of them."""


class FewRowsWarning(UserWarning):
    """Quantities that all rows share were measured on fewer than ten rows per cluster."""


class UnstableRelevanceWarning(UserWarning):
    """The absolute relevance is far above the evidence, so relevance of opposite signs cancels out."""


class PopulationWarning(UserWarning):
    """Rows differ from those that a model or a segmentation was made on; the message names the columns."""


def level_of_the_caller() -> int:
    """Return the stack level of the first caller outside this package, for warnings."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("whycluster"):
        frame, level = frame.f_back, level + 1
    return level
