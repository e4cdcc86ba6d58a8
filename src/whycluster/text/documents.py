"""Documents as the user gives them, and as rows of what the steps of a pipeline make of them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
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
    """The documents as a list of text, or an error that says what they are instead."""
    if isinstance(X, (str, bytes)):
        raise InvalidInputError(
            f"{where}: {name} must be a list of documents; got a single {_kind(X)}. Put it in a list: [text]."
        )
    values = _values(X, where, name)
    if {type(value) for value in values} <= {str} and values:
        return values
    if not values:
        raise InvalidInputError(f"{where}: {name} must have at least one document; got none.")
    bad = next((i for i, value in enumerate(values) if not isinstance(value, str)), None)
    if bad is not None:
        raise InvalidInputError(f"{where}: {name} must be documents of text; {_what(bad, values[bad])}")
    return [str(value) for value in values]  # subclasses, such as NumPy's


def _values(X: Any, where: str, name: str) -> list[Any]:
    """What is in a list, an array, a series or any other collection with an order."""
    source = nw.from_native(X, pass_through=True, allow_series=True)
    if isinstance(source, nw.Series):
        return source.to_list()
    if isinstance(source, (nw.DataFrame, nw.LazyFrame)):
        raise InvalidInputError(
            f"{where}: {name} must be documents, one text each; got a table. Select its column of text: "
            f"frame[column]."
        )
    dimensions = len(getattr(X, "shape", (0,)))
    if is_sparse(X) or dimensions != 1:
        raise InvalidInputError(
            f"{where}: {name} must be documents, one text each; got an array of shape "
            f"{getattr(X, 'shape', ())}. Select its column of text: array[:, column]."
        )
    if isinstance(X, (Mapping, AbstractSet)) or not isinstance(X, Iterable):
        raise InvalidInputError(
            f"{where}: {name} must be a list of documents, or a column of them; got a {type(X).__name__}."
        )
    if hasattr(X, "to_pylist"):  # an array of pyarrow
        return X.to_pylist()  # type: ignore[no-any-return]
    return X.tolist() if isinstance(X, np.ndarray) else list(X)


def _kind(value: Any) -> str:
    return "string" if isinstance(value, str) else "bytes object"


def _what(row: int, value: Any) -> str:
    """What stands in place of a document, and what to do about it."""
    if isinstance(value, bytes):
        return f"document {row} is bytes. Decode it first: document.decode('utf-8')."
    if is_missing(value):
        return f"document {row} is missing ({value!r}). Drop it, or fill it with an empty text."
    return f"document {row} is a {type(value).__name__}. Turn it into text, or drop it."


@dataclass(frozen=True)
class DocumentTable(Table):
    """Documents; what is read of them is what the network takes.

    Attributes
    ----------
    texts : the documents; text cannot be changed, so they stay what was explained
    make : from documents start..stop of a table to numbers
    """

    texts: Sequence[str]
    make: Callable[[DocumentTable, int, int], Floats]
    goes_through_steps = True
    most_rows = 1024  # what is found in texts takes more memory than what is made of them

    @classmethod
    def of(
        cls,
        X: Any,
        make: Callable[[DocumentTable, int, int], Floats],
        n_features: int,
        where: str,
        name: str,
    ) -> DocumentTable:
        """The user's documents."""
        texts = read_documents(X, where, name)
        # What can be read once only, such as a generator, has just been.
        native = texts if isinstance(X, (list, tuple)) or not hasattr(X, "__len__") else X
        kind = np.dtype(np.float64)
        return cls(native, len(texts), n_features, [], kind, where, name, texts=texts, make=make)

    def read(self, start: int, stop: int, offset: Floats | None, out: Floats) -> Floats:
        """What the steps make of some documents."""
        with self.telling(start, stop):
            np.copyto(out, self.make(self, start, stop))
        if offset is not None:
            out -= offset
        return out

    @contextmanager
    def telling(self, start: int, stop: int) -> Iterator[None]:
        """Say of which documents a step could not make anything."""
        try:
            yield
        except StepError as error:
            raise InvalidInputError(
                f"{self.where}: {self.name}, in documents {start} to {stop - 1}: {error}"
            ) from error

    def take(self, rows: Codes) -> Table:
        """The table of the given documents only."""
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
        """The index of a pandas series."""
        source = nw.from_native(self.native, pass_through=True, allow_series=True)
        return nw.maybe_get_index(source) if isinstance(source, nw.Series) else None

    def first_not_finite(self) -> tuple[int, Hashable, float] | None:
        """The first NaN or infinity that the steps make; their features have no names."""
        for start, block in self.blocks():
            bad = np.argwhere(~np.isfinite(block))
            if len(bad):
                row, column = bad[0]
                return start + int(row), f"x{column}", float(block[row, column])
        return None

    def frame_like(self) -> Any:
        """A frame of the library that the documents came in, None if they came in none."""
        source = nw.from_native(self.native, pass_through=True, allow_series=True)
        return source.to_frame().to_native() if isinstance(source, nw.Series) else None
