"""ClustPy: deep clusterings that assign to the nearest center in the embedding of an autoencoder."""

from __future__ import annotations

from inspect import getattr_static
from typing import Any

import numpy as np
import torch
from clustpy.deep import AEC, DCN, DEC, DKM
from numpy.typing import NDArray

from whycluster.core.errors import InvalidInputError
from whycluster.deep.encoder import Encoder, Inputs
from whycluster.deep.network import Arrangement, DeepNetwork
from whycluster.models.adapters.registry import OnlyLabels, adapt
from whycluster.models.estimators import check_fitted
from whycluster.models.nearest_centroid import nearest_centroid
from whycluster.models.network import Network

_NEAREST = (AEC, DCN, DEC, DKM)  # IDEC is a DEC
_NETWORKS = ("neural_network_trained_", "neural_network", "autoencoder")  # since 0.0.3, in 0.0.2, in 0.0.1
_ANY = DEC.__base__  # what all its deep clusterings derive from


@adapt.register(_ANY)
def _deep(model: Any) -> Network | OnlyLabels:
    check_fitted(model)
    if not _predicts_nearest(model):
        return OnlyLabels(model.labels_, f"the labels of {type(model).__name__}")
    network = next(getattr(model, name) for name in _NETWORKS if getattr(model, name, None) is not None)
    return _Embedded(model, Encoder(_Embedding(network), None, None, model.batch_size))


def _predicts_nearest(model: Any) -> bool:
    """Whether a model is of a known class, or of a subclass that does not predict in a way of its own."""
    known = next((cls for cls in _NEAREST if isinstance(model, cls)), None)
    return known is not None and all(
        getattr_static(type(model), name, None) is getattr_static(known, name, None)
        for name in ("predict", "transform")
    )


class _Embedding(torch.nn.Module):
    """An autoencoder as far as its embedding, with its own layers under their own names."""

    def __init__(self, network: Any) -> None:
        super().__init__()
        self._modules, self._parameters = network._modules, network._parameters
        self._buffers, self.training = network._buffers, network.training
        self._encode = network.encode

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Rows to their embeddings."""
        embedded: torch.Tensor = self._encode(x)
        return embedded


class _Embedded(DeepNetwork):
    """Centers in the embedding, as a model's ``predict`` compares them.

    ``predict`` gives the embedding the dtype of the rows. Of whole numbers it is cut to whole numbers then
    (ClustPy 0.0.3), and the nearest center may be another one. So rows of any dtype but these are predicted
    by the model too; of bfloat16 there are no arrays that it could be given.
    """

    _KEPT = (torch.float32, torch.float64, torch.bfloat16)

    def __init__(self, model: Any, encoder: Encoder) -> None:
        centers = nearest_centroid(model.cluster_centers_)
        super().__init__(encoder, centers, spatial=False, normalize=False, rules="auto", bounds=None)
        self._model = model

    def _points(self, inputs: Inputs) -> tuple[NDArray[Any], Arrangement]:
        rows, arranged = super()._points(inputs)
        if inputs.tensor.dtype not in self._KEPT and hasattr(self._model, "predict"):
            self._compare(inputs, self.last.assign(rows))
        return rows, arranged

    def _compare(self, inputs: Inputs, nearest: NDArray[Any]) -> None:
        """Raise if the model predicts other clusters of these rows."""
        predicted = np.asarray(self._model.predict(inputs.tensor.cpu().numpy()))
        differ = np.flatnonzero(predicted != nearest)
        if differ.size:
            row = int(differ[0])
            raise InvalidInputError(
                f"{inputs.where}: {inputs.name} must be real numbers of float32 or float64; got "
                f"{inputs.describe()}. {type(self._model).__name__}.predict rounds the embedding to the same "
                f"dtype, and of {differ.size} of {len(nearest)} rows names another cluster than the nearest "
                f"(row {row}: {int(predicted[row])}, not {int(nearest[row])}). Give "
                f"{inputs.name}.astype(float), to predict too."
            )
