"""Cluster labels as the model gives them, and the codes 0..K-1 used inside."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from whycluster.errors import InvalidInputError
from whycluster.propagate import Codes


class Labels:
    """The names of K clusters in the order of their energies.

    Parameters
    ----------
    names : (K,) different labels, integers or strings
    """

    def __init__(self, names: ArrayLike) -> None:
        self.names = np.array(names)
        self._codes = {name: code for code, name in enumerate(self.names.tolist())}
        if self.names.ndim != 1 or len(self._codes) != self.names.size:
            raise InvalidInputError(f"neuralize: labels must be different names; got {self.names.tolist()}.")
        # Plain 0..K-1, the usual case, are their own codes: nothing to look up, row by row.
        self._plain = self.names.dtype.kind in "iu" and np.array_equal(self.names, np.arange(len(self)))

    def __len__(self) -> int:
        return self.names.size

    def decode(self, codes: Codes) -> NDArray[Any]:
        """Codes to labels."""
        return self.names[codes]

    def encode(self, labels: ArrayLike, where: str = "explain", name: str = "labels") -> Codes:
        """Labels, a single one or an array of them, to codes of the same shape."""
        given = np.asarray(labels)
        if self._plain and given.dtype.kind in "iu" and ((given >= 0) & (given < len(self))).all():
            return given.astype(np.intp, copy=False)
        different, inverse = np.unique(given, return_inverse=True)
        unknown = [label for label in different.tolist() if label not in self._codes]
        if unknown:
            raise InvalidInputError(
                f"{where}: {name} must be one of the model's {len(self)} clusters, {self._listed()}; "
                f"got {unknown[0]!r}."
            )
        codes = np.array([self._codes[label] for label in different.tolist()], dtype=np.intp)
        return codes[inverse].reshape(given.shape)

    def _listed(self) -> str:
        shown = [repr(name) for name in self.names[:10].tolist()]
        return ", ".join(shown) + (", ..." if len(self) > 10 else "")
