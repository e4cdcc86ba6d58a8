"""The adapter for scikit-learn's Pipeline; it puts the network of the last step after the other steps."""

from __future__ import annotations

from dataclasses import replace
from inspect import getattr_static
from typing import Any

from sklearn.decomposition import NMF, LatentDirichletAllocation
from sklearn.pipeline import Pipeline

from whycluster.core.errors import UnsupportedModelError
from whycluster.data.labels import BY_LABELS
from whycluster.models.adapters.incomplete import AwaitingColumns, OnlyLabels
from whycluster.models.adapters.registry import adapt, adapt_model, check_fitted, names_of
from whycluster.models.network import Network
from whycluster.pipelines.front_ends import front_end_of
from whycluster.pipelines.network import check_not_deep, network_behind
from whycluster.pipelines.steps import first_transformer, flatten_steps, transformers_in

TOPIC_MODELS = (LatentDirichletAllocation, NMF)
"""Models without ``predict``, whose `transform` gives the weights of the clusters."""


@adapt.register(Pipeline)
def _pipeline(model: Any) -> Network | OnlyLabels | AwaitingColumns:
    """Return the network of the last step, applied to the output of the steps before it."""
    model = _without_nesting(model)
    end = model.steps[-1][1]
    if not (hasattr(end, "predict") or hasattr(end, "fit_predict") or isinstance(end, TOPIC_MODELS)):
        raise UnsupportedModelError(
            f"neuralize: the last step of the pipeline must be a clustering model; got {end!r}."
        )
    if not _predicts_as_pipeline(model):
        raise UnsupportedModelError(
            f"neuralize: {type(model).__name__} must use the predict method of Pipeline; it defines its own. "
            f"{BY_LABELS}"
        )
    *steps, (_, innermost) = flatten_steps(model)
    transformers, first = transformers_in(steps), first_transformer(model)
    front_end = front_end_of(steps, transformers)
    check_fitted(model)
    if front_end is not None:
        return front_end.network(steps, innermost)
    return _put_behind(model, adapt_model(end), first, transformers)


def _without_nesting(model: Any) -> Any:
    """Return an equivalent pipeline whose last step is not itself a pipeline."""
    name, end = model.steps[-1]
    while isinstance(end, Pipeline) and _predicts_as_pipeline(model) and _predicts_as_pipeline(end):
        inner = [(f"{name}.{step}", transformer) for step, transformer in end.steps]
        model = Pipeline([*model.steps[:-1], *inner])
        name, end = model.steps[-1]
    return model


def _predicts_as_pipeline(model: Any) -> bool:
    return getattr_static(type(model), "predict") is getattr_static(Pipeline, "predict")


def _put_behind(
    model: Any, last: Network | OnlyLabels | AwaitingColumns, first: Any, transformers: list[Any]
) -> Network | OnlyLabels | AwaitingColumns:
    """Apply the result of the last step's adapter after the other steps; ``first`` is the first step."""
    names = names_of(first)

    def behind(network: Network) -> Network:
        n_columns = first.n_features_in_ if hasattr(first, "n_features_in_") else network.n_features
        return network_behind(model.steps[:-1], network, n_columns, names)

    if isinstance(last, OnlyLabels):  # labels can be explained after any steps

        def transform(X: Any) -> Any:
            check_fitted(*transformers)
            return model[:-1].transform(X)

        return replace(last, behind=behind, transform=transform, names=names)
    check_fitted(*transformers)
    if isinstance(last, AwaitingColumns):
        place = last.place
        return replace(last, place=lambda columns: behind(place(columns)), transform=model[:-1].transform)
    check_not_deep(last, model.steps[-1][1])
    return behind(last)
