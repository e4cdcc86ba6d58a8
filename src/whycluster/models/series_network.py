"""Networks of models of time series: a row is a series, and each time step of a channel is a feature."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from whycluster.core.energies import Energy
from whycluster.core.errors import InvalidInputError
from whycluster.data.frame_table import ColumnNames
from whycluster.data.opening import open_table
from whycluster.data.table import Table
from whycluster.models.network import NetworkOptions
from whycluster.models.numeric_network import NumericNetwork

if TYPE_CHECKING:
    from typing_extensions import Unpack


class SeriesNetwork(NumericNetwork):
    """The network of a model of time series, which takes arrays of shape (n, T, c).

    Relevance has shape (n, T * c): the c channels of the first time step, then those of the second one, and
    so on. ``relevance.reshape(-1, T, c)`` has the shape of the series.

    Parameters
    ----------
    energy : the energies of the flattened series
    n_steps, n_channels : T and c
    options : ``labels``, ``fidelity`` and ``agreement``, as for `Network`; by default, the features are named
        "t0", "t1" and so on
    """

    def __init__(
        self, energy: Energy, n_steps: int, n_channels: int, **options: Unpack[NetworkOptions]
    ) -> None:
        channels = [""] if n_channels == 1 else [f", channel {c}" for c in range(n_channels)]
        options.setdefault("feature_names", [f"t{t}{c}" for t in range(n_steps) for c in channels])
        super().__init__(energy, **options)
        self.n_steps, self.n_channels = n_steps, n_channels

    def _open(self, X: Any, where: str, name: str, columns: ColumnNames) -> Table:
        """Return the series as a table with a column for each time step of each channel."""
        if columns.get("feature_names") is None:
            columns["feature_names"] = self.feature_names
        flat = self._flattened(X, where, name)
        return open_table(flat, where=where, name=name, n_features=self.n_features, **columns)

    def _flattened(self, X: Any, where: str, name: str) -> Any:
        if getattr(X, "ndim", 0) == 2 and X.shape[1] == self.n_features:
            return X  # flattened already, such as the rows of an explanation
        try:
            series = np.asarray(X)
            series = series if series.dtype == np.float32 else series.astype(np.float64, copy=False)
        except (TypeError, ValueError):
            raise self._wrong(where, name, "series of different lengths, or other values") from None
        if series.ndim == 2 and self.n_channels == 1:
            series = series[:, :, None]
        if series.shape[1:] != (self.n_steps, self.n_channels):
            raise self._wrong(where, name, f"shape {series.shape}")
        if np.isnan(series).any():
            raise self._wrong(where, name, "missing values, with which tslearn pads shorter series")
        return series.reshape(len(series), -1)

    def _wrong(self, where: str, name: str, got: str) -> InvalidInputError:
        return InvalidInputError(
            f"{where}: {name} must be series of equal length, an array of shape (n, {self.n_steps}, "
            f"{self.n_channels}); got {got}. Resample them to {self.n_steps} time steps."
        )
