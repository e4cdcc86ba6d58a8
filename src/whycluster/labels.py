"""Cluster labels as the model gives them, and the codes 0..K-1 used inside."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from whycluster.arrays import Codes
from whycluster.errors import InvalidInputError


class Labels:
    """The names of K clusters in the order of their energies.

    Parameters
    ----------
    names : (K,) different labels, such as integers or strings
    """

    def __init__(self, names: ArrayLike) -> None:
        self.names = np.array(names)
        self.names.flags.writeable = False
        self._codes = {name: code for code, name in enumerate(self.names.tolist())}
        if self.names.ndim != 1 or len(self._codes) != self.names.size:
            raise InvalidInputError(f"neuralize: labels must be different names; got {self.names.tolist()}.")
        # Plain 0..K-1, the usual case, are their own codes: nothing to look up, row by row.
        self._plain = self.names.dtype.kind in "iu" and np.array_equal(self.names, np.arange(len(self)))

    def __len__(self) -> int:
        return self.names.size

    def decode(self, codes: Codes) -> NDArray[Any]:
        """Codes to labels."""
        return codes if self._plain else self.names[codes]

    def encode(self, labels: Any, where: str, name: str) -> Codes:
        """Labels, a single one or an array of them, to codes of the same shape."""
        codes = self.find(labels)
        if (codes < 0).any():
            first = labels
            if codes.ndim:
                first = np.asarray(labels, dtype=object)[codes < 0].tolist()[0]
            shown = [repr(label) for label in self.names[:10].tolist()] + ["..."] * (len(self) > 10)
            raise InvalidInputError(
                f"{where}: {name} must be one of the model's {len(self)} clusters, {', '.join(shown)}; "
                f"got {first!r}."
            )
        return codes

    def find(self, labels: Any) -> Codes:
        """Codes of labels, -1 for those that are not there."""
        try:
            given = np.asarray(labels)
        except ValueError:  # lists of different lengths
            return np.array(-1)
        if np.ma.is_masked(labels):
            return np.full(given.shape, -1)
        if self._plain and given.dtype.kind in "iu":
            codes = given.astype(np.intp)
            if given.size and not (given.min() >= 0 and given.max() < len(self)):
                codes[(given < 0) | (given >= len(self))] = -1
            return codes
        # From the objects as they came: NumPy would make text of a list that mixes text and numbers.
        objects = np.asarray(labels, dtype=object).ravel().tolist()
        found = [self._codes.get(label, -1) if self._may_be_label(label) else -1 for label in objects]
        return np.array(found, dtype=np.intp).reshape(given.shape)

    def _may_be_label(self, label: Any) -> bool:
        try:
            hash(label)
        except TypeError:
            return False
        return self.names.dtype.kind == "b" or not isinstance(label, bool)  # True is not cluster 1
