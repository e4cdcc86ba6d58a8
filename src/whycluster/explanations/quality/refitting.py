"""Fit copies of a model to other rows, without changing the model."""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whycluster.core.arrays import Floats
from whycluster.data import display

_LONGEST = 4.0  # seconds of computing for all fits together


class RefitError(Exception):
    """A model that cannot be fitted again; the message is the reason."""


class Refitting:
    """Fits copies of a model to other rows.

    Parameters
    ----------
    model : the model, or a pipeline that ends with it; it is only copied
    longest : the CPU time, in seconds, after which no more copies are fitted
    """

    def __init__(self, model: Any, longest: float = _LONGEST) -> None:
        while hasattr(model, "named_steps"):  # a pipeline
            model = model.steps[-1][1]
        self.name = type(model).__name__
        if model is None:
            raise RefitError("the model is not known")
        if not all(hasattr(model, method) for method in ("get_params", "fit", "predict")):
            is_array = hasattr(model, "shape") or isinstance(model, (list, tuple))
            raise RefitError(f"{'centroids' if is_array else self.name} cannot be fitted again")
        self._model, self._left = model, longest

    @classmethod
    def kmeans(cls, n_clusters: int) -> Refitting:
        """Return k-means, for labels and for models that cannot be copied."""
        from sklearn.cluster import KMeans

        return cls(KMeans(n_clusters, n_init=3), np.inf)

    def clusters_of_each(
        self, fitted: Sequence[Floats], seed: int, predicted: Floats | None = None
    ) -> list[NDArray[Any]]:
        """Return the `clusters` of copies fitted to several sets of rows.

        They are those of ``predicted`` or, by default, those of the rows that the copy was fitted to. The
        seeds are ``seed``, ``seed`` + 1, ...
        """
        return [
            self.clusters(rows, rows if predicted is None else predicted, seed + i)
            for i, rows in enumerate(fitted)
        ]

    def clusters(self, fitted: Floats, predicted: Floats, seed: int) -> NDArray[Any]:
        """Fit a copy with a random seed to some rows, and return the clusters of the same or other rows.

        CPU time is limited instead of wall time, which depends on other processes.
        """
        if self._left <= 0.0:
            raise RefitError(f"fitting {self.name} again takes too long")
        start = time.process_time()
        try:
            result = self._fit_and_predict(fitted, predicted, seed)
        except Exception as error:  # models of any library may fail in any way
            reason = display.clean(str(error), 80)
            raise RefitError(f"fitting {self.name} again failed ({reason})") from error
        self._left -= time.process_time() - start
        return result

    def _fit_and_predict(self, fitted: Floats, predicted: Floats, seed: int) -> NDArray[Any]:
        from sklearn.base import clone

        copy = clone(self._model)
        seeds = [name for name in copy.get_params() if name.split("__")[-1] == "random_state"]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the user has already seen the model's own warnings
            copy.set_params(**dict.fromkeys(seeds, seed)).fit(fitted)
            return np.asarray(copy.predict(predicted)).reshape(len(predicted))
