"""What the estimators share: checks as scikit-learn expects them."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils import validation

from whycluster.arrays import Floats
from whycluster.errors import InvalidInputError


def check_rows(estimator: Any, X: Any, *, reset: bool = True) -> Floats:
    """X as a float64 array; the estimator learns its width and names, or is compared with them."""
    options = {"dtype": np.float64, "order": "C", "reset": reset}
    if hasattr(validation, "validate_data"):  # scikit-learn 1.6 and later
        return np.asarray(validation.validate_data(estimator, X, **options))
    return np.asarray(estimator._validate_data(X, **options))


def check_whole(value: Any, least: int, where: str, name: str, also: str = "") -> None:
    """Raise unless the value is a whole number of at least ``least``."""
    whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if not whole or value < least:
        raise InvalidInputError(
            f"{where}: {name} must be {also}a whole number of at least {least}; got {value!r}."
        )
