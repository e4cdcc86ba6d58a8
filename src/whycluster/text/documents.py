"""Validate the user's documents and encode them, as a table, for the clustering model."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import narwhals as nw
import numpy as np

from whycluster.core.arrays import Codes, Floats
from whycluster.core.errors import InvalidInputError
from whycluster.data.arrays import is_sparse
from whycluster.data.missing import is_missing
from whycluster.data.table import Table
from whycluster.pipelines.steps import StepError


def read_documents(X: Any, where: str, name: str = "X") -> list[str]:
    """Return the documents as a list of strings; raise an error if X contains anything else."""
    if isinstance(X, (str, bytes)):
        raise InvalidInputError(
            f"{where}: {name} must be a list of documents; got a single {_type_name(X)}. Put it in a list: "
            f"[text]."
        )
    values = _values(X, where, name)
    if {type(value) for value in values} <= {str} and values:
        return values
    if not values:
        raise InvalidInputError(f"{where}: {name} must contain at least one document; it is empty.")
    bad = next((i for i, value in enumerate(values) if not isinstance(value, str)), None)
    if bad is not None:
        raise InvalidInputError(
            f"{where}: {name} must contain only strings; {_describe_invalid(bad, values[bad])}"
        )
    return [str(value) for value in values]  # convert subclasses of str, such as NumPy's


def _values(X: Any, where: str, name: str) -> list[Any]:
    """Return the values of a list, an array, a series or any other ordered collection."""
    source = nw.from_native(X, pass_through=True, allow_series=True)
    if isinstance(source, nw.Series):
        return source.to_list()
    if isinstance(source, (nw.DataFrame, nw.LazyFrame)):
        raise InvalidInputError(
            f"{where}: {name} must be a sequence of documents, each a string; got a table. Select its text "
            "column: frame[column]."
        )
    dimensions = len(getattr(X, "shape", (0,)))
    if is_sparse(X) or dimensions != 1:
        raise InvalidInputError(
            f"{where}: {name} must be a sequence of documents, each a string; got an array of shape "
            f"{getattr(X, 'shape', ())}. Select its text column: array[:, column]."
        )
    if isinstance(X, (Mapping, AbstractSet)) or not isinstance(X, Iterable):
        raise InvalidInputError(
            f"{where}: {name} must be a list or a column of documents; got a value of type "
            f"{type(X).__name__}."
        )
    if hasattr(X, "to_pylist"):  # a pyarrow array
        return X.to_pylist()  # type: ignore[no-any-return]
    return X.tolist() if isinstance(X, np.ndarray) else list(X)


def _type_name(value: Any) -> str:
    return "string" if isinstance(value, str) else "bytes object"


def _describe_invalid(row: int, value: Any) -> str:
    """Describe a value that is not a document and suggest a fix."""
    if isinstance(value, bytes):
        return f"document {row} is bytes. Decode it first: document.decode('utf-8')."
    if is_missing(value):
        return f"document {row} is missing ({value!r}). Drop it or replace it with an empty string."
    return f"document {row} has type {type(value).__name__}. Convert it to text or drop it."


class DocumentEncoder(ABC):
    """Encodes documents as the features of a clustering model."""

    @property
    @abstractmethod
    def n_outputs(self) -> int:
        """The number of features."""

    @abstractmethod
    def encode(self, texts: Sequence[str], start: int, stop: int) -> Floats:
        """Return the features of texts[start:stop], (stop - start, n_outputs)."""


@dataclass(frozen=True)
class DocumentTable(Table):
    """Documents as a table; reading rows encodes them as the features of the clustering model.

    Attributes
    ----------
    texts : the documents. Strings are immutable, so these are always the documents that were explained.
    encoder : turns documents into features
    """

    texts: Sequence[str]
    encoder: DocumentEncoder
    goes_through_steps = True
    most_rows = 1024  # smaller blocks, since words and terms take more memory than features

    @classmethod
    def of(cls, X: Any, encoder: DocumentEncoder, where: str, name: str) -> DocumentTable:
        """Return a table of the user's documents."""
        texts = read_documents(X, where, name)
        # A generator can be read only once, and ``read_documents`` has just read it.
        native = texts if isinstance(X, (list, tuple)) or not hasattr(X, "__len__") else X
        n_features, kind = encoder.n_outputs, np.dtype(np.float64)
        return cls(native, len(texts), n_features, [], kind, where, name, texts=texts, encoder=encoder)

    def read(self, start: int, stop: int, offset: Floats | None, out: Floats) -> Floats:
        """Write the features of documents start..stop to ``out``, minus the offset."""
        with self.naming_documents(start, stop):
            np.copyto(out, self.encoder.encode(self.texts, start, stop))
        if offset is not None:
            out -= offset
        return out

    @contextmanager
    def naming_documents(self, start: int, stop: int) -> Iterator[None]:
        """If a step fails on the documents, add their positions to its error message."""
        try:
            yield
        except StepError as error:
            raise InvalidInputError(
                f"{self.where}: {self.name}, in documents {start} to {stop - 1}: {error}"
            ) from error

    def take(self, rows: Codes) -> Table:
        """Return a table of some of the documents."""
        texts = [self.texts[row] for row in rows]
        native = texts if self.native is self.texts else self._select(rows)
        return replace(self, native=native, n_rows=len(rows), texts=texts)

    def _select(self, rows: Codes) -> Any:
        source = nw.from_native(self.native, pass_through=True, allow_series=True)
        if isinstance(source, nw.Series):
            return source[rows.tolist()].to_native()
        return self.native[rows] if isinstance(self.native, np.ndarray) else [self.texts[i] for i in rows]

    @property
    def index(self) -> Sequence[Hashable] | None:
        """The index of the documents if they are a pandas series, else None."""
        source = nw.from_native(self.native, pass_through=True, allow_series=True)
        return nw.maybe_get_index(source) if isinstance(source, nw.Series) else None

    def first_not_finite(self) -> tuple[int, Hashable, float] | None:
        """Return the row, feature and value of the first NaN or infinity, or None if all are finite."""
        for start, block in self.blocks():
            bad = np.argwhere(~np.isfinite(block))
            if len(bad):
                row, column = bad[0]
                return start + int(row), f"x{column}", float(block[row, column])
        return None

    def frame_like(self) -> Any:
        """Return a frame from the library of the user's series, or None if the documents are not a series."""
        source = nw.from_native(self.native, pass_through=True, allow_series=True)
        return source.to_frame().to_native() if isinstance(source, nw.Series) else None
