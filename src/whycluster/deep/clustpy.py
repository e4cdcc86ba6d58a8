"""The adapter for ClustPy's deep clusterings, which assign rows to the nearest center in an embedding."""

from __future__ import annotations

from inspect import getattr_static
from typing import Any

import numpy as np
import torch
from clustpy.deep import AEC, DCN, DEC, DKM
from numpy.typing import NDArray

from whycluster.core.errors import InvalidInputError
from whycluster.deep.encoder import Encoder, Inputs
from whycluster.deep.network import DeepNetwork, PointLayout
from whycluster.models.adapters.incomplete import OnlyLabels
from whycluster.models.adapters.registry import adapt, check_fitted
from whycluster.models.nearest_centroid import nearest_centroid
from whycluster.models.network import Network

_NEAREST = (AEC, DCN, DEC, DKM)  # IDEC is a subclass of DEC
_NETWORKS = (
    "neural_network_trained_",
    "neural_network",
    "autoencoder",
)  # the attribute's name since ClustPy 0.0.3, in 0.0.2 and in 0.0.1
_ANY = DEC.__base__  # the base class of all deep clusterings in ClustPy


@adapt.register(_ANY)
def _deep(model: Any) -> Network | OnlyLabels:
    check_fitted(model)
    if not _predicts_nearest(model):
        return OnlyLabels(model.labels_, f"the labels of {type(model).__name__}")
    network = next(getattr(model, name) for name in _NETWORKS if getattr(model, name, None) is not None)
    return _Embedded(model, Encoder(_Embedding(network), None, None, model.batch_size))


def _predicts_nearest(model: Any) -> bool:
    """Return whether a model is of a known class, or of a subclass that inherits its prediction methods."""
    known = next((cls for cls in _NEAREST if isinstance(model, cls)), None)
    return known is not None and all(
        getattr_static(type(model), name, None) is getattr_static(known, name, None)
        for name in ("predict", "transform")
    )


class _Embedding(torch.nn.Module):
    """The part of an autoencoder that computes the embedding. The layers keep their names."""

    def __init__(self, network: Any) -> None:
        super().__init__()
        self._modules, self._parameters = network._modules, network._parameters
        self._buffers, self.training = network._buffers, network.training
        self._encode = network.encode

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the embeddings of rows."""
        embedded: torch.Tensor = self._encode(x)
        return embedded


class _Embedded(DeepNetwork):
    """A network that assigns rows to the nearest center in an embedding, as the model's ``predict`` does.

    ``predict`` casts the embedding to the dtype of the rows. In ClustPy 0.0.3, this truncates the embeddings
    of integer rows, so a different center may be nearest. For dtypes that may cause truncation, the assigned
    clusters are therefore compared with the model's own predictions. This comparison is impossible for
    bfloat16, which NumPy does not support.
    """

    _EXACT_DTYPES = (torch.float32, torch.float64, torch.bfloat16)

    def __init__(self, model: Any, encoder: Encoder) -> None:
        centers = nearest_centroid(model.cluster_centers_)
        super().__init__(encoder, centers, spatial=False, normalize=False, rules="auto", bounds=None)
        self._model = model

    def _points(self, inputs: Inputs) -> tuple[NDArray[Any], PointLayout]:
        rows, layout = super()._points(inputs)
        if inputs.tensor.dtype not in self._EXACT_DTYPES and hasattr(self._model, "predict"):
            self._compare(inputs, self.head.assign(rows))
        return rows, layout

    def _compare(self, inputs: Inputs, nearest: NDArray[Any]) -> None:
        """Raise an error if the model does not predict the nearest cluster for every row."""
        predicted = np.asarray(self._model.predict(inputs.tensor.cpu().numpy()))
        differ = np.flatnonzero(predicted != nearest)
        if differ.size:
            row = int(differ[0])
            raise InvalidInputError(
                f"{inputs.where}: {inputs.name} must have dtype float32 or float64; got {inputs.describe()}. "
                f"{type(self._model).__name__}.predict rounds the embedding to this dtype and does not find "
                f"the nearest cluster for {differ.size} of {len(nearest)} rows (row {row}: "
                f"it predicts {int(predicted[row])}, but {int(nearest[row])} is nearest). Pass "
                f"{inputs.name}.astype(float), here and to predict."
            )
