"""Cluster labels, given by models or users, and their internal codes 0..K-1."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from whycluster.core.arrays import Codes
from whycluster.core.errors import InvalidInputError
from whycluster.data import display
from whycluster.data.missing import is_missing

if TYPE_CHECKING:
    from typing_extensions import Self

NOISE = "noise"
"""The label of rows that belong to no cluster; density-based clusterings use -1."""

BY_LABELS = (
    "Any clustering can be explained from its labels, through a surrogate that reports how well it matches "
    "them: wc.explain(labels, X)."
)


def is_noise(label: Any) -> bool:
    """Return whether a label means noise: rows that belong to no cluster."""
    return isinstance(label, str) and label == NOISE


def noise_mask(labels: Iterable[Any]) -> list[bool]:
    """Return whether each label means noise."""
    return [is_noise(label) for label in labels]


def cluster_name(label: Any, shown: str | None = None) -> str:
    """Return the name of a cluster for a sentence: "cluster 3", or "noise".

    ``shown`` is the text of the label; by default, the label on one line, cut to a readable length.
    """
    if is_noise(label):
        return NOISE
    return f"cluster {display.clean(str(label)) if shown is None else shown}"


def list_clusters(names: Sequence[str]) -> str:
    """Return several clusters as text, given their formatted labels: "clusters 1, 2 and noise"."""
    named = [name for name in names if name != NOISE]
    text = [f"cluster{'s' * (len(named) > 1)} {display.join_first(named)}"] if named else []
    return " and ".join(text + [NOISE] * (len(named) < len(names)))


class Labels:
    """The labels of K clusters, in the order of their codes.

    Parameters
    ----------
    names : (K,) distinct labels, such as integers or strings; an array of objects may mix them
    """

    def __init__(self, names: ArrayLike) -> None:
        self.names = np.array(names)  # objects stay objects
        self.names.flags.writeable = False
        self._codes = {name: code for code, name in enumerate(self.names.tolist())}
        if self.names.ndim != 1 or len(self._codes) != self.names.size:
            raise InvalidInputError(
                f"neuralize: labels must be distinct; got {display.cut(self.names.tolist(), 8)}."
            )
        if NOISE in self._codes:
            self._codes.setdefault(-1, self._codes[NOISE])  # the user may write -1, as the clustering does
        # Labels 0..K-1, the usual case, are their own codes and need no lookup.
        self._plain = self.names.dtype.kind in "iu" and np.array_equal(self.names, np.arange(len(self)))

    def __len__(self) -> int:
        return self.names.size

    def decode(self, codes: Codes) -> NDArray[Any]:
        """Return the labels for codes."""
        return codes if self._plain else self.names[codes]

    def encode(self, labels: Any, where: str, name: str) -> Codes:
        """Return the codes of one label or an array of labels; raise an error for unknown ones."""
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
        """Return the codes of labels, or -1 for unknown labels."""
        try:
            given = np.asarray(labels)
        except ValueError:  # lists of different lengths
            return np.array(-1)
        if _is_masked(labels):
            return np.full(given.shape, -1)
        if self._plain and given.dtype.kind in "iu":
            codes = given.astype(np.intp)
            if given.size and not (given.min() >= 0 and given.max() < len(self)):
                codes[(given < 0) | (given >= len(self))] = -1
            return codes
        # From the original objects, since NumPy would convert a list of text and numbers to text.
        objects = np.asarray(labels, dtype=object).ravel().tolist()
        found = [self._codes.get(label, -1) if self._may_be_label(label) else -1 for label in objects]
        return np.array(found, dtype=np.intp).reshape(given.shape)

    def _may_be_label(self, label: Any) -> bool:
        try:
            hash(label)
        except TypeError:
            return False
        # True is not cluster 1
        return not isinstance(label, bool) or any(isinstance(name, bool) for name in self.names.tolist())


class _Labeled(Protocol):
    @property
    def labels(self) -> NDArray[Any]:
        """(K,) the names of the clusters."""

    def with_labels(self, labels: NDArray[Any]) -> Self:
        """Return the object with other names for all clusters."""


AnyLabeled = TypeVar("AnyLabeled", bound=_Labeled)


class Renamable:
    """Something with clusters that can be given other names."""

    def rename(self: AnyLabeled, names: Mapping[Any, str]) -> AnyLabeled:
        """Return the same object with other names for some clusters, such as ``rename({0: "Loyal"})``.

        Parameters
        ----------
        names : a mapping from present labels to new names
        """
        return self.with_labels(renamed(self.labels, names, "rename"))


def renamed(labels: NDArray[Any], names: Any, where: str) -> NDArray[Any]:
    """Return the labels with other names for some of them; the names must be unique."""
    if not isinstance(names, Mapping):
        raise InvalidInputError(
            f"{where}: names must map clusters to names, as in {{0: 'Loyal'}}; got {type(names).__name__}."
        )
    known, codes = labels.tolist(), Labels(labels)
    new = list(known)
    for label, name in names.items():
        code = int(codes.find(label))
        if code < 0:
            listed = ", ".join(map(repr, known[:10])) + ", ..." * (len(known) > 10)
            raise InvalidInputError(f"{where}: names may contain only the clusters {listed}; got {label!r}.")
        if not isinstance(name, str) or not name.strip():
            raise InvalidInputError(f"{where}: a name must be text; got {name!r} for cluster {label!r}.")
        if is_noise(name) and not is_noise(known[code]):
            raise InvalidInputError(
                f"{where}: {name!r} is the name of rows far from all clusters; got it for cluster {label!r}. "
                "Choose another name."
            )
        new[code] = name
    texts = [str(name) for name in new]  # the name "1" and cluster 1 would look the same
    again = next((name for place, name in enumerate(texts) if name in texts[:place]), None)
    if again is not None:
        raise InvalidInputError(
            f"{where}: each cluster must have its own name; {again!r} would name several clusters."
        )
    return as_labels(new)


def read_labels(labels: Any, n_rows: int, where: str) -> tuple[Codes, NDArray[Any]]:
    """Return the codes, (n,), and names, (K,), of cluster labels; -1 becomes `NOISE`, which comes last.

    Categories keep their order. Numbers and text are sorted, with "2" before "10".
    """
    values = as_list(labels, where)
    if len(values) != n_rows:
        raise InvalidInputError(
            f"{where}: labels must have one value for each of the {n_rows} rows of X; got {len(values)}. "
            "Explain all rows that were clustered, and select some of them afterward; to explain new rows, "
            "use wc.Surrogate().fit(X, labels)."
        )
    missing = next((row for row, value in enumerate(values) if is_missing(value)), None)
    if missing is not None:
        raise InvalidInputError(
            f"{where}: labels must have no missing values; row {missing} has {values[missing]!r}. Drop such "
            "rows from labels and X, or give them a label, such as -1 for noise."
        )
    values = [NOISE if far else value for value, far in zip(values, _noise(values), strict=True)]
    try:
        codes = {name: code for code, name in enumerate(_in_order(set(values), labels))}
    except TypeError as error:
        raise InvalidInputError(f"{where}: labels must be numbers or text ({error}).") from error
    return np.array([codes[value] for value in values], dtype=np.intp), as_labels(list(codes))


def as_list(labels: Any, where: str, *, whole: bool = True) -> list[Any]:
    """Return labels as Python objects: None if masked, dates as text, whole numbers as integers."""
    for method in ("to_list", "to_pylist"):  # pandas and polars, pyarrow
        if hasattr(labels, method):
            values = getattr(labels, method)()
            break
    else:
        array = labels if isinstance(labels, np.ndarray) else np.asarray(labels, dtype=object)
        if array.ndim != 1:
            raise InvalidInputError(f"{where}: labels must be one-dimensional; got shape {array.shape}.")
        values = (array.astype(str) if array.dtype.kind in "mM" else array).tolist()
        if _is_masked(labels):
            values = [None if hidden else value for value, hidden in zip(values, labels.mask, strict=True)]
    plain = [value.item() if isinstance(value, np.generic) else value for value in values]
    return [int(v) if whole and isinstance(v, float) and v.is_integer() else v for v in plain]


def _is_masked(labels: Any) -> bool:
    """Return whether labels are a NumPy masked array with hidden values, not a nullable pandas array."""
    return isinstance(labels, np.ma.MaskedArray) and np.ma.is_masked(labels)


def _noise(values: list[Any]) -> list[bool]:
    """Return which values are -1; "-1" also counts if all labels are integers in text form, as in a file."""
    if "-1" in values and all(isinstance(v, str) and v.removeprefix("-").isdecimal() for v in values):
        return [value == "-1" for value in values]
    return [isinstance(value, int) and not isinstance(value, bool) and value == -1 for value in values]


def _in_order(names: set[Any], labels: Any) -> list[Any]:
    categories = getattr(getattr(labels, "cat", labels), "categories", None)  # a pandas categorical
    order = list(names)
    if categories is not None and hasattr(categories, "tolist"):
        known = {name: place for place, name in enumerate(categories.tolist())}
        order.sort(key=lambda name: known.get(name, len(known)))
    elif all(isinstance(name, str) and (name.isdecimal() or name == NOISE) for name in names):
        order.sort(key=lambda name: (name == NOISE, len(name), name))
    else:
        order.sort(key=lambda name: (isinstance(name, str), name))
    return [name for name in order if name != NOISE] + [NOISE] * (NOISE in names)


def as_labels(values: list[Any]) -> NDArray[Any]:
    """Return labels as an array, with dtype object if NumPy would otherwise convert some of them."""
    kinds = {str if isinstance(v, str) else bool if isinstance(v, bool) else type(v) for v in values}
    small = all(abs(value) < 2**63 for value in values if isinstance(value, int))
    if small and (kinds == {str} or kinds == {bool} or kinds <= {int, float}):
        return np.array(values)
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array
