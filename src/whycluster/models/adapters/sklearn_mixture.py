"""scikit-learn's mixtures of Gaussians."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import digamma
from sklearn.mixture import BayesianGaussianMixture, GaussianMixture

from whycluster.core.arrays import Codes, Floats
from whycluster.core.energies import Energy
from whycluster.core.errors import InvalidInputError
from whycluster.models.adapters.registry import adapt, check_fitted
from whycluster.models.adapters.sklearn import exact
from whycluster.models.energies import DiagonalGaussianEnergy, GaussianEnergy
from whycluster.models.network import Network

_KNOWN = (GaussianMixture, BayesianGaussianMixture)


@adapt.register(GaussianMixture)
@adapt.register(BayesianGaussianMixture)
def _mixture(model: Any) -> Network:
    """Return the network of a mixture, leaving out components with weight 0, which are never assigned."""
    check_fitted(model)
    log_weights = _bayesian(model) if isinstance(model, BayesianGaussianMixture) else _log(model.weights_)
    used = np.flatnonzero(log_weights > -np.inf)
    energy = _gaussian(model, used, log_weights[used])
    return exact(model, energy, _KNOWN, used)


def _gaussian(model: Any, used: Codes, log_weights: Floats) -> Energy:
    means, roots = model.means_[used], model.precisions_cholesky_
    if not all(np.isfinite(values).all() for values in (means, roots, log_weights)):
        raise InvalidInputError(
            f"neuralize: every component of the {type(model).__name__} must have finite parameters; some "
            "components have collapsed. Fit it again with a larger reg_covar or fewer components."
        )
    n_features = means.shape[1]
    if model.covariance_type == "full":
        return GaussianEnergy(means, roots[used], log_weights)
    if model.covariance_type == "tied":
        return GaussianEnergy(means, roots[None], log_weights)
    if model.covariance_type == "spherical":
        roots = np.broadcast_to(roots[:, None], (len(roots), n_features))
    return DiagonalGaussianEnergy(means, roots[used] ** 2, log_weights)


def _bayesian(model: Any) -> Floats:
    """Return the expected log weights, plus the terms that a Bayesian mixture adds to the log densities."""
    concentration = model.weight_concentration_
    if model.weight_concentration_prior_type == "dirichlet_process":
        total = digamma(concentration[0] + concentration[1])
        sticks = np.cumsum(digamma(concentration[1]) - total)
        log_weights = digamma(concentration[0]) - total + np.concatenate([[0.0], sticks[:-1]])
    else:
        log_weights = digamma(concentration) - digamma(concentration.sum())
    d, freedom = model.means_.shape[1], model.degrees_of_freedom_
    log_lambda = d * np.log(2.0) + digamma(0.5 * (freedom - np.arange(d)[:, None])).sum(axis=0)
    return np.asarray(
        log_weights - 0.5 * d * np.log(freedom) + 0.5 * (log_lambda - d / model.mean_precision_)
    )


def _log(weights: Floats) -> Floats:
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(weights))
