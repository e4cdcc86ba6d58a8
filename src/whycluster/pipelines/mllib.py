"""The affine forms of the transformers in Spark's MLlib.

The stages of a `PipelineModel` read and write columns by name. They are first traced backward, from the
column that the clustering model takes to the user's own columns, which no stage writes. The stages are then
composed, starting from these columns, into an `AffineForm`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import narwhals as nw
import numpy as np
from pyspark.ml.feature import (
    MinMaxScalerModel,
    OneHotEncoderModel,
    PCAModel,
    StandardScalerModel,
    StringIndexerModel,
    VectorAssembler,
    VectorSizeHint,
)

from whycluster.core.arrays import Codes, Floats
from whycluster.core.errors import UnsupportedModelError
from whycluster.data.arrays import is_real
from whycluster.data.missing import is_missing
from whycluster.pipelines.affine_form import AffineForm, Run, TwiceTransformedError, join, to_floats
from whycluster.pipelines.steps import PickColumns

SUPPORTED = "VectorAssembler, StandardScaler, MinMaxScaler, PCA, StringIndexer, OneHotEncoder"

_PREDICTED = ("prediction", "rawPrediction", "probability")

WidthOf = Callable[[str], int | None]
"""Maps the name of a user's column to the length of its vectors, or to None if no length is known."""

ALTERNATIVE = (
    "The clusters can still be explained in terms of any columns, through a surrogate fitted to some rows: "
    "wc.Surrogate().fit(X, labels)."
)


@dataclass(frozen=True)
class Source:
    """One of the user's columns that a model depends on.

    Attributes
    ----------
    name : the name of the column
    width : the length of its vectors, or None if it holds single values
    labels : the labels recorded by a StringIndexer for a categorical column, or None for a numeric column
    keeps : whether the StringIndexer treats any other value as one more category instead of raising an error
    """

    name: str
    width: int | None = None
    labels: tuple[str, ...] | None = None
    keeps: bool = False

    def feature_names(self, known: Sequence[str]) -> list[str]:
        """Return one name per feature: the known names if each feature has one, else numbered names."""
        if self.width is None:
            return [self.name]
        return list(known) if len(known) == self.width else [f"{self.name}_{i}" for i in range(self.width)]


@dataclass(frozen=True)
class StageGraph:
    """The stages between the user's columns and the column that a model takes.

    Parameters
    ----------
    stages : the fitted stages before the model, in order
    fold : the function that Spark applies to names before comparing them: lowercasing or the identity
    widths : the lengths of the user's columns of vectors, by folded name
    """

    stages: Sequence[Any]
    fold: Callable[[str], str]
    widths: Mapping[str, int]

    def sources(self, column: str, width: int) -> list[Source]:
        """Return the user's columns that a column is computed from, in the order in which they are found."""
        found: dict[str, Source] = {}
        for source in self._sources(column, len(self.stages), Source(column, width)):
            first = found.setdefault(self.fold(source.name), source)
            if replace(source, name=first.name) != first:
                raise UnsupportedModelError(
                    f"neuralize: the stages of the pipeline must use column {source.name!r} in only one "
                    "way; they use it in two ways, for example as a number and as a category, so its "
                    "relevance would mix these uses. Copy the column and let each stage use its own copy."
                )
        return list(found.values())

    def _sources(self, column: str, before: int, taken: Source) -> list[Source]:
        writer = self._writer(column, before)
        if writer is None:
            return [taken]
        at, written = writer
        reads = _reads(self.stages[at], written, self._width)
        return [found for source in reads for found in self._sources(source.name, at, source)]

    def form(self, column: str, sources: Sequence[Source]) -> AffineForm:
        """Return the form of a column in terms of the user's columns. A vector counts as several columns."""
        widths = [source.width or 1 for source in sources]
        stops = np.cumsum(widths).tolist()
        places = {
            self.fold(s.name): np.arange(stop - w, stop)
            for s, w, stop in zip(sources, widths, stops, strict=True)
        }
        try:
            return self._form(column, len(self.stages), places)
        except TwiceTransformedError:
            raise UnsupportedModelError(
                "neuralize: a stage of the pipeline encodes features that earlier stages have mixed; "
                f"relevance cannot be propagated through such a stage. {ALTERNATIVE}"
            ) from None

    def _form(self, column: str, before: int, places: Mapping[str, Codes]) -> AffineForm:
        writer, n_columns = self._writer(column, before), sum(map(len, places.values()))
        if writer is None:
            return _whole(_choice(places[self.fold(column)]), n_columns)
        at, written = writer
        stage = self.stages[at]
        reads = _reads(stage, written, self._width)
        forms = [self._form(source.name, at, places) for source in reads]
        return _whole(_after(stage, written, forms), n_columns)

    def _writer(self, column: str, before: int) -> tuple[int, str] | None:
        """Return the last stage that writes a column, with the name it uses, or None for a user's column."""
        for at in reversed(range(before)):
            for written in outputs(self.stages[at]):
                if self.fold(written) == self.fold(column):
                    return at, written
        return None

    def _width(self, column: str) -> int | None:
        return self.widths.get(self.fold(column))


def _choice(chosen: Codes) -> AffineForm:
    """Return the form of some unchanged columns."""
    return AffineForm(PickColumns(chosen), chosen)


def _whole(form: AffineForm, n_columns: int) -> AffineForm:
    """Return the form, without its selection step if that step selects all columns in order."""
    whole = _is_choice(form) and np.array_equal(form.source, np.arange(n_columns))
    return AffineForm.of_columns(n_columns) if whole else form


def _is_choice(form: AffineForm) -> bool:
    return form.matrix is None and (form.is_plain or isinstance(form.run, PickColumns))


def check_stages(stages: Sequence[Any]) -> None:
    """Raise an error for a stage without known output columns, since it may write any column."""
    for stage in stages:
        if not outputs(stage) and not isinstance(stage, VectorSizeHint):  # a VectorSizeHint writes no column
            raise _unknown(stage)


def _unknown(stage: Any) -> UnsupportedModelError:
    return UnsupportedModelError(
        f"neuralize: stage {stage.uid!r} ({type(stage).__name__}) is not supported, because "
        f"whycluster does not know how this stage computes its columns. Supported stages are {SUPPORTED}. "
        f"{ALTERNATIVE}"
    )


def outputs(stage: Any) -> list[str]:
    """Return the columns that a stage writes: features, or the predictions of a model."""
    predicted = [name for what in _PREDICTED for name in _columns(stage, what)]
    return [*_columns(stage, "output"), *predicted]


def _columns(stage: Any, what: str) -> list[str]:
    several, one = f"{what}Cols", f"{what}Col"
    if stage.hasParam(several) and stage.isSet(several):
        return [unquoted(name) for name in stage.getOrDefault(several)]
    return [unquoted(stage.getOrDefault(one))] if stage.hasParam(one) and stage.isDefined(one) else []


def unquoted(name: str) -> str:
    """Remove the backticks that Spark puts around names containing a dot."""
    quoted = len(name) > 1 and name.startswith("`") and name.endswith("`")
    return name[1:-1].replace("``", "`") if quoted else name


def _place(stage: Any, column: str) -> tuple[int, str]:
    """Return the position of a column among a stage's outputs and the input it is computed from."""
    at = outputs(stage).index(column)
    return at, _columns(stage, "input")[at]


@functools.singledispatch
def _reads(stage: Any, column: str, width_of: WidthOf) -> list[Source]:
    """Return the columns that a stage computes a column from, and the type it expects for each."""
    raise _unknown(stage)


@functools.singledispatch
def _after(stage: Any, column: str, forms: Sequence[AffineForm]) -> AffineForm:
    """Return the form of a column that a stage writes, given the forms of its inputs."""
    raise _unknown(stage)


@_reads.register(VectorAssembler)
def _reads_several(stage: Any, column: str, width_of: WidthOf) -> list[Source]:
    return [Source(name, width_of(name)) for name in _columns(stage, "input")]


@_after.register(VectorAssembler)
def _assemble(stage: Any, column: str, forms: Sequence[AffineForm]) -> AffineForm:
    if len(forms) == 1:
        return forms[0]
    if all(map(_is_choice, forms)):
        return _choice(np.concatenate([form.source for form in forms]))
    return join(forms, _SideBySide([form.run for form in forms]))


def _reads_one(width: Callable[[Any], int | None]) -> Callable[[Any, str, WidthOf], list[Source]]:
    """Return a reader for stages that compute each column from one column of length ``width(stage)``."""

    def reads(stage: Any, column: str, width_of: WidthOf) -> list[Source]:
        _, name = _place(stage, column)
        return [Source(name, width(stage))]

    return reads


_reads.register(StandardScalerModel, _reads_one(lambda stage: len(stage.std)))
_reads.register(MinMaxScalerModel, _reads_one(lambda stage: len(stage.originalMin)))
_reads.register(PCAModel, _reads_one(lambda stage: stage.pc.numRows))
_reads.register(OneHotEncoderModel, _reads_one(lambda _: None))


@_after.register(StandardScalerModel)
def _standard(stage: Any, column: str, forms: Sequence[AffineForm]) -> AffineForm:
    std = stage.std.toArray()
    factor = np.ones(len(std))
    if stage.getWithStd():
        # A constant column becomes 0, as in MLlib.
        factor = np.divide(1.0, std, out=np.zeros(len(std)), where=std != 0)
    return _scaled(forms[0], factor, stage.mean.toArray() if stage.getWithMean() else None)


@_after.register(MinMaxScalerModel)
def _min_max(stage: Any, column: str, forms: Sequence[AffineForm]) -> AffineForm:
    least, span = stage.originalMin.toArray(), (stage.originalMax.toArray() - stage.originalMin.toArray())
    low, high = stage.getMin(), stage.getMax()
    factor = np.divide(high - low, span, out=np.zeros(len(span)), where=span != 0)
    # A constant column becomes the middle of the range.
    return _scaled(forms[0], factor, least, np.where(span != 0, low, (low + high) / 2))


@_after.register(PCAModel)
def _pca(stage: Any, column: str, forms: Sequence[AffineForm]) -> AffineForm:
    """Return the form of the components. MLlib's PCA does not subtract a mean."""
    matrix = np.ascontiguousarray(stage.pc.toArray().T)
    return forms[0].map(_Map(matrix), matrix)


@_reads.register(StringIndexerModel)
def _reads_category(stage: Any, column: str, width_of: WidthOf) -> list[Source]:
    at, name = _place(stage, column)
    keeps = stage.getHandleInvalid() == "keep"
    return [Source(name, labels=tuple(stage.labelsArray[at]), keeps=keeps)]


@_after.register(StringIndexerModel)
def _index(stage: Any, column: str, forms: Sequence[AffineForm]) -> AffineForm:
    at, _ = _place(stage, column)
    labels = stage.labelsArray[at]
    other = float(len(labels)) if stage.getHandleInvalid() == "keep" else np.nan
    return forms[0].transform_each(_Index({label: float(i) for i, label in enumerate(labels)}, other))


@_after.register(OneHotEncoderModel)
def _one_hot(stage: Any, column: str, forms: Sequence[AffineForm]) -> AffineForm:
    at, _ = _place(stage, column)
    n_known, keeps = stage.categorySizes[at], stage.getHandleInvalid() == "keep"
    size = n_known + keeps - stage.getDropLast()
    return forms[0].transform_each(_OneHot(n_known, size, keeps), np.zeros(size, np.intp))


def _scaled(
    form: AffineForm, factor: Floats, center: Floats | None = None, shift: Floats | None = None
) -> AffineForm:
    return form.scale(_Scale(factor, center, shift), factor, center, shift)


@dataclass(frozen=True)
class _Scale:
    """factor * (x - center) + shift, column by column."""

    factor: Floats
    center: Floats | None
    shift: Floats | None

    def __call__(self, rows: Any) -> Floats:
        x = to_floats(rows)
        x = (x if self.center is None else x - self.center) * self.factor
        return x if self.shift is None else x + self.shift


@dataclass(frozen=True)
class _Map:
    """The linear map A x."""

    matrix: Floats

    def __call__(self, rows: Any) -> Floats:
        return np.asarray(to_floats(rows) @ self.matrix.T)


@dataclass(frozen=True)
class _SideBySide:
    """The results of several functions of the same rows, side by side."""

    runs: list[Run]

    def __call__(self, rows: Any) -> Floats:
        return np.column_stack([to_floats(run(rows)) for run in self.runs])


@dataclass(frozen=True)
class _Index:
    """The position of a category among the known categories; other values map to NaN or an extra position."""

    places: dict[str | None, float]
    other: float

    @functools.cached_property
    def numbers(self) -> dict[float, float]:
        """The position of each numeric label by its value, since 1 may appear as 1.0 and 1e10 as 1.0E10."""
        return {float(label): place for label, place in self.places.items() if label and _is_number(label)}

    def _place(self, value: Any) -> float:
        if is_real(value) and not is_missing(value):
            return self.numbers.get(float(value), self.other)
        return self.places.get(_as_text(value), self.other)

    def __call__(self, rows: Any) -> Floats:
        if isinstance(rows, np.ndarray):
            values = rows[:, 0].tolist()
        else:
            values = nw.from_native(rows, eager_only=True)[:, 0].to_list()
        return np.array([[self._place(value)] for value in values])


def _is_number(label: str) -> bool:
    try:
        return math.isfinite(float(label))
    except ValueError:
        return False


def _as_text(value: Any) -> str | None:
    """Return a value as Spark would write it, or None if it is missing."""
    if isinstance(value, str):
        return value
    if is_missing(value):
        return None
    return str(value).lower() if isinstance(value, (bool, np.bool_)) else str(value)


@dataclass(frozen=True)
class _OneHot:
    """One indicator per category; at most one of them is 1. All are NaN if the value is not a category."""

    n_known: int
    size: int
    keeps: bool

    def __call__(self, rows: Any) -> Floats:
        index = to_floats(rows)[:, 0]
        whole = index == np.floor(index)
        known = whole & (index >= 0) & (index < self.n_known)
        place = np.where(known, index, self.n_known if self.keeps else np.nan)
        place[~whole] = np.nan
        hot: Floats = (place[:, None] == np.arange(self.size)).astype(np.float64)
        hot[np.isnan(place)] = np.nan
        return hot
