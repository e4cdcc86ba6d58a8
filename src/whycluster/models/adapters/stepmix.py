"""StepMix: latent classes and profiles, that is, mixtures of Bernoulli or Gaussian features."""

from __future__ import annotations

from typing import Any

import numpy as np
from stepmix.stepmix import StepMix

from whycluster.core.arrays import Floats
from whycluster.core.energies import Energy
from whycluster.core.errors import InvalidInputError, UnsupportedModelError
from whycluster.data.labels import BY_LABELS
from whycluster.models.adapters.registry import adapt, check_fitted, names_of
from whycluster.models.energies import BernoulliEnergy, DiagonalGaussianEnergy
from whycluster.models.network import Network, TableNetwork
from whycluster.models.verification import verification_of

_KINDS = {
    "binary": "binary",
    "bernoulli": "binary",
    "gaussian": "unit",
    "gaussian_unit": "unit",
    "gaussian_spherical": "spherical",
    "gaussian_diag": "diag",
    "continuous": "diag",
}


@adapt.register(StepMix)
def _stepmix(model: Any) -> Network:
    """Return the network of the measurement model, which `predict` uses for rows without outcomes."""
    check_fitted(model)
    if not isinstance(model.measurement, str) or model.measurement not in _KINDS:
        raise UnsupportedModelError(
            f"neuralize: StepMix must have one of the measurements {', '.join(map(repr, _KINDS))}; got "
            f"{model.measurement!r}. {BY_LABELS}"
        )
    parameters = model.get_parameters()
    weights = np.asarray(parameters["weights"], dtype=np.float64)
    used = np.flatnonzero(weights > 0.0)
    energy = _energy(_KINDS[model.measurement], parameters["measurement"], used, np.log(weights[used]))
    verification = verification_of(model, energy, (StepMix,))
    return TableNetwork(energy, labels=used, feature_names=names_of(model), verification=verification)


def _energy(kind: str, parameters: Any, used: Any, log_weights: Floats) -> Energy:
    if kind == "binary":
        return BernoulliEnergy(np.asarray(parameters["pis"])[used], log_weights)
    means = np.asarray(parameters["means"])[used]
    variances = np.ones(means.shape) if kind == "unit" else np.asarray(parameters["covariances"])[used]
    if kind == "spherical":
        variances = np.broadcast_to(variances.reshape(-1, 1), means.shape)
    if not np.isfinite(means).all() or not (variances > 0.0).all():
        raise InvalidInputError(
            "neuralize: every class of the StepMix must have finite means and positive variances; some "
            "classes have collapsed. Fit it again with fewer classes."
        )
    return DiagonalGaussianEnergy(means, 1.0 / variances, log_weights)
