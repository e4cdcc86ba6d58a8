"""Checks of scikit-learn estimators, those of users and those of this package."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn import exceptions
from sklearn.utils import validation

from whycluster.core.arrays import Floats
from whycluster.core.errors import NotFittedError


def check_fitted(model: Any) -> None:
    """Raise unless an estimator has been fitted."""
    try:
        validation.check_is_fitted(model)
    except exceptions.NotFittedError:
        raise NotFittedError(
            f"neuralize: the {type(model).__name__} must be fitted first. Call its fit method."
        ) from None


def names_of(model: Any) -> Any:
    """Return the column names that an estimator was fitted on, None if it does not know them."""
    return getattr(model, "feature_names_in_", None)


def check_rows(estimator: Any, X: Any, *, reset: bool = True) -> Floats:
    """Return X as a float64 array.

    With ``reset``, the estimator stores the number and names of its columns. Otherwise they must match.
    """
    options = {"dtype": np.float64, "order": "C", "reset": reset}
    if hasattr(validation, "validate_data"):  # scikit-learn 1.6 and later
        return np.asarray(validation.validate_data(estimator, X, **options))
    return np.asarray(estimator._validate_data(X, **options))
