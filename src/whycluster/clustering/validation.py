"""Use scikit-learn to validate the rows that our estimators are fitted on."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils import validation

from whycluster.core.arrays import Floats


def check_rows(estimator: Any, X: Any, *, reset: bool = True) -> Floats:
    """Return X as a float64 array.

    With ``reset``, the estimator stores the number and names of its columns. Otherwise they must match.
    """
    options = {"dtype": np.float64, "order": "C", "reset": reset}
    if hasattr(validation, "validate_data"):  # scikit-learn 1.6 and later
        return np.asarray(validation.validate_data(estimator, X, **options))
    return np.asarray(estimator._validate_data(X, **options))
