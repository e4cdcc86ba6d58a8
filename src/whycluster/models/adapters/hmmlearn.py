"""hmmlearn: hidden Markov models with Gaussian emissions."""

from __future__ import annotations

from typing import Any

import numpy as np
from hmmlearn.hmm import GaussianHMM

from whycluster.core.arrays import Floats
from whycluster.core.energies import Energy
from whycluster.core.errors import InvalidInputError, NotFittedError
from whycluster.models.adapters.registry import adapt
from whycluster.models.energies import DiagonalGaussianEnergy, GaussianEnergy
from whycluster.models.nearest_centroid import has_value
from whycluster.models.network import Network
from whycluster.models.sequence_network import SequenceNetwork


@adapt.register(GaussianHMM)
def _gaussian(model: Any) -> Network:
    """Return the network of the states of one sequence, as `predict` decodes them."""
    if not has_value(model, "means_"):
        raise NotFittedError("neuralize: the GaussianHMM must be fitted first. Call its fit method.")
    emission = _emission(model.covariance_type, np.asarray(model.means_), np.asarray(model._covars_))
    return SequenceNetwork(emission, model.startprob_, model.transmat_, sums=model.algorithm == "map")


def _emission(kind: str, means: Floats, covariances: Floats) -> Energy:
    """Return -log p(x | k), up to a term common to all states."""
    log_weights = np.zeros(len(means))
    if kind in ("diag", "spherical"):
        variances = covariances[:, None] if covariances.ndim == 1 else covariances
        variances = np.maximum(np.broadcast_to(variances, means.shape), np.finfo(float).tiny)
        return DiagonalGaussianEnergy(means, 1.0 / variances, log_weights)
    try:
        cholesky = np.linalg.cholesky(covariances if kind == "full" else covariances[None])
    except np.linalg.LinAlgError:
        raise InvalidInputError(
            "neuralize: the GaussianHMM has states whose covariance is singular, because they have "
            "collapsed. Fit it again with a larger min_covar or fewer states."
        ) from None
    roots = np.linalg.inv(cholesky).transpose(0, 2, 1)
    return GaussianEnergy(means, roots, log_weights)
