"""scikit-learn's topic models: the cluster of a document is the topic with the largest weight."""

from __future__ import annotations

from typing import Any

from sklearn.decomposition import NMF, LatentDirichletAllocation

from whycluster.core.errors import UnsupportedModelError
from whycluster.models.adapters.registry import adapt, check_fitted, names_of
from whycluster.models.energies import DirichletTopicsEnergy, FactorEnergy
from whycluster.models.network import Network, TableNetwork


@adapt.register(LatentDirichletAllocation)
def _lda(model: Any) -> Network:
    check_fitted(model)
    energy = DirichletTopicsEnergy(
        model.exp_dirichlet_component_,
        model.doc_topic_prior_,
        model.max_doc_update_iter,
        model.mean_change_tol,
    )
    return TableNetwork(energy, feature_names=names_of(model))


@adapt.register(NMF)
def _nmf(model: Any) -> Network:
    check_fitted(model)
    if model.beta_loss not in ("frobenius", 2) or model.alpha_W != 0.0:
        raise UnsupportedModelError(
            "neuralize: NMF must have beta_loss='frobenius' and alpha_W=0, since its weights are then linear "
            f"in the words; got beta_loss={model.beta_loss!r} and alpha_W={model.alpha_W!r}. Explain the "
            "topics of the rows as labels."
        )
    return TableNetwork(FactorEnergy(model.components_), feature_names=names_of(model))
