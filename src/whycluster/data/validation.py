"""What has to do with scikit-learn's estimators, ours and others': checks, and centres inside a cluster."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn import exceptions
from sklearn.utils import validation

from whycluster.core.arrays import Floats
from whycluster.core.errors import InvalidInputError, NotFittedError


def check_fitted(model: Any) -> None:
    """Raise unless an estimator has been fitted."""
    try:
        validation.check_is_fitted(model)
    except exceptions.NotFittedError:
        raise NotFittedError(
            f"neuralize: the {type(model).__name__} must be fitted first. Call its fit method."
        ) from None


def names_of(model: Any) -> Any:
    """The columns that an estimator was fitted on, None where it does not know them."""
    return getattr(model, "feature_names_in_", None)


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


def centers_inside(members: Floats, n_centers: int, max_iter: int, random_state: Any) -> Floats:
    """Where the support vectors of a cluster start: a short k-means inside it, or its few members.

    No more centres than different rows are asked for: k-means would warn, and filters of warnings belong to
    the whole process, not to a thread.
    """
    if n_centers >= len(members):
        return members
    if n_centers == 1:
        return np.asarray(members.mean(axis=0, keepdims=True))
    from sklearn.cluster import KMeans

    different = np.unique(members, axis=0)
    if len(different) <= n_centers:
        return different
    return np.asarray(
        KMeans(n_centers, n_init=1, max_iter=max_iter, random_state=random_state)
        .fit(members)
        .cluster_centers_
    )
