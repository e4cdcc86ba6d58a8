"""The affine forms of scikit-learn's transformers."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from inspect import getattr_static
from typing import Any

import numpy as np
import sklearn
from scipy import sparse
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import NMF, PCA, FastICA, IncrementalPCA, MiniBatchNMF, TruncatedSVD
from sklearn.feature_extraction.text import (
    CountVectorizer,
    HashingVectorizer,
    TfidfTransformer,
    TfidfVectorizer,
)
from sklearn.feature_selection import SelectorMixin
from sklearn.impute import MissingIndicator, SimpleImputer
from sklearn.pipeline import FeatureUnion, Pipeline
from sklearn.preprocessing import (
    Binarizer,
    FunctionTransformer,
    KBinsDiscretizer,
    MaxAbsScaler,
    MinMaxScaler,
    Normalizer,
    OneHotEncoder,
    OrdinalEncoder,
    PowerTransformer,
    QuantileTransformer,
    RobustScaler,
    StandardScaler,
    TargetEncoder,
)
from sklearn.random_projection import GaussianRandomProjection, SparseRandomProjection
from sklearn.utils.fixes import parse_version

from whycluster.core.arrays import Codes, Floats
from whycluster.core.errors import UnsupportedModelError
from whycluster.data.arrays import is_sparse
from whycluster.data.column_checks import is_number_as_text
from whycluster.data.columns import as_days, as_text
from whycluster.data.elementwise import MARK
from whycluster.data.missing import is_missing
from whycluster.pipelines.affine_form import AffineForm, TwiceTransformedError, compose, join, steps_of

SUPPORTED = (
    "StandardScaler, MinMaxScaler, MaxAbsScaler, RobustScaler",
    "PowerTransformer, QuantileTransformer, KBinsDiscretizer, Binarizer",
    "FunctionTransformer of a NumPy ufunc, or of a function marked with wc.elementwise",
    "SimpleImputer, MissingIndicator",
    "OneHotEncoder, OrdinalEncoder, TargetEncoder",
    "VarianceThreshold, SelectKBest, SelectFromModel and the other selectors",
    "PCA, IncrementalPCA, TruncatedSVD, FastICA, GaussianRandomProjection, SparseRandomProjection",
    "Normalizer",
    "CountVectorizer, TfidfVectorizer, HashingVectorizer, TfidfTransformer, wc.text.WordVectors",
    "ColumnTransformer, FeatureUnion, Pipeline, 'passthrough', 'drop'",
)

ALTERNATIVE = (
    "The clusters can still be explained in terms of the original columns, through a surrogate that reports "
    "how well it matches them: wc.explain(pipeline.predict(X), X), or wc.explain(labels, X)."
)


class StepError(Exception):
    """Raised if a step could not transform some rows; the message names the step and its error."""


@dataclass(frozen=True)
class Step:
    """A fitted transformer, with its name in the pipeline."""

    name: str
    transformer: Any

    def __call__(self, rows: Any) -> Any:
        """Transform rows."""
        try:
            result = self.transformer.transform(rows)
        except Exception as error:  # a step may call a user's function, which may raise anything
            message = str(error).strip() or type(error).__name__
            raise StepError(
                f"{self} could not transform its input: {message}{'' if message[-1] in '.!?' else '.'}"
            ) from error
        n_rows, n_results = getattr(rows, "shape", (None,))[0], getattr(result, "shape", (None,))[0]
        if n_rows is not None and n_results is not None and n_rows != n_results:
            raise StepError(
                f"{self} must return one row for each input row; it returned {n_results} for {n_rows}."
            )
        return result

    def __str__(self) -> str:
        return f"step {self.name!r} ({type(self.transformer).__name__})"


def follow(steps: Sequence[tuple[str, Any]], form: AffineForm, prefix: str = "") -> AffineForm:
    """Return the form after several fitted steps."""
    for name, transformer in steps:
        if not is_passthrough(transformer):
            form = _follow_one(Step(prefix + name, transformer), form)
    return form


def _follow_one(step: Step, form: AffineForm) -> AffineForm:
    expected = getattr(step.transformer, "n_features_in_", form.n_outputs)
    if expected != form.n_outputs:
        raise UnsupportedModelError(
            f"neuralize: {step} was fitted on {expected} features, but the steps before it return "
            f"{form.n_outputs}. Check that no function marked with wc.elementwise changes the number of "
            f"features. {ALTERNATIVE}"
        )
    try:
        return _handler_of(type(step.transformer))(step.transformer, step, form)
    except TwiceTransformedError:
        raise UnsupportedModelError(
            f"neuralize: {step} transforms individual features that earlier steps have already mixed, "
            "transformed and mixed again; relevance cannot be propagated through such a sequence. "
            f"{ALTERNATIVE}"
        ) from None


def _handler_of(kind: type) -> Callable[[Any, Step, AffineForm], AffineForm]:
    """Return the handler for a class. A class that overrides a known class's transform counts as unknown."""
    known = next((parent for parent in kind.__mro__ if parent in _after.registry), object)
    same = getattr_static(kind, "transform", None) is getattr_static(known, "transform", None)
    return _after.dispatch(known if same else object)


def is_passthrough(transformer: Any) -> bool:
    """Return whether a step returns its input unchanged."""
    return transformer is None or _is(transformer, "passthrough")


def transformers_in(steps: Iterable[tuple[str, Any]]) -> list[Any]:
    """Return the transformers in some steps, each followed by the transformers nested in it."""
    found = []
    for _, transformer in steps:
        if not is_passthrough(transformer) and not _is(transformer, "drop"):
            found += [transformer, *transformers_in(_parts_of(transformer))]
    return found


def _parts_of(transformer: Any) -> list[tuple[str, Any]]:
    """Return the named parts of a transformer that combines several, or [] for any other transformer."""
    if isinstance(transformer, Pipeline):
        return list(transformer.steps)
    if isinstance(transformer, FeatureUnion):
        return list(transformer.transformer_list)
    if not isinstance(transformer, ColumnTransformer) or not hasattr(transformer, "transformers_"):
        return []
    columns = transformer._transformer_to_input_indices  # a part without columns is not fitted
    return [(name, part) for name, part, _ in transformer.transformers_ if len(columns[name])]


def flatten_steps(pipeline: Any, prefix: str = "") -> list[tuple[str, Any]]:
    """Return the steps of a pipeline and of nested pipelines, without passthrough steps."""
    steps = []
    for name, step in pipeline.steps:
        if isinstance(step, Pipeline):
            steps += flatten_steps(step, f"{prefix}{name}.")
        elif not is_passthrough(step):
            steps.append((prefix + name, step))
    return steps


def combines_columns(form: AffineForm) -> bool:
    """Return whether the steps that compute the atoms of a form combine several columns of a row."""
    if form.below is not None:
        return True
    sides = getattr(form.base, "forms", None)
    if sides is not None:
        return any(map(combines_columns, sides))
    runs = steps_of(form.base)
    if not all(isinstance(run, (Step, PickColumns, _Times)) for run in runs):
        return True
    steps = [(run.name, run.transformer) for run in runs if isinstance(run, Step)]
    return not all(isinstance(each, _COLUMN_BY_COLUMN) for each in transformers_in(steps))


_COLUMN_BY_COLUMN = (
    StandardScaler,
    RobustScaler,
    MaxAbsScaler,
    MinMaxScaler,
    OrdinalEncoder,
    Binarizer,
    PowerTransformer,
    QuantileTransformer,
    FunctionTransformer,
    SimpleImputer,
    MissingIndicator,
    OneHotEncoder,
    KBinsDiscretizer,
    TargetEncoder,
    SelectorMixin,
    ColumnTransformer,
    FeatureUnion,
    Pipeline,
)


def _is(transformer: Any, word: str) -> bool:
    return isinstance(transformer, str) and transformer == word


def first_transformer(step: Any) -> Any:
    """Return the first transformer in a step that records its number of columns, or None if none does.

    A Pipeline or FeatureUnion takes the number from its first part, which may be the string 'passthrough'.
    """
    if hasattr(step, "n_features_in_"):
        return step
    if isinstance(step, Pipeline):
        parts = [part for _, part in step.steps if not is_passthrough(part)][:1]
    else:
        parts = [part for _, part in getattr(step, "transformer_list", ())]
    return next((found for found in map(first_transformer, parts) if found is not None), None)


@functools.singledispatch
def _after(transformer: Any, step: Step, form: AffineForm) -> AffineForm:
    """Return the form after a step; raise an error if its class is not registered."""
    own = getattr(transformer, "whycluster_form", None)  # our own transformers provide their form
    if own is not None:
        return own(step, form)  # type: ignore[no-any-return]
    listed = "".join(f"\n  - {line}" for line in SUPPORTED)
    raise UnsupportedModelError(
        f"neuralize: {step} is not supported, because whycluster does not know how this step computes its "
        f"features. Supported steps are:{listed}\n{ALTERNATIVE}"
    )


@_after.register(StandardScaler)
def _standard(scaler: Any, step: Step, form: AffineForm) -> AffineForm:
    return form.scale(step, _inverse(scaler.scale_, form), scaler.mean_ if scaler.with_mean else None)


@_after.register(RobustScaler)
def _robust(scaler: Any, step: Step, form: AffineForm) -> AffineForm:
    return form.scale(step, _inverse(scaler.scale_, form), scaler.center_)


@_after.register(MaxAbsScaler)
def _max_abs(scaler: Any, step: Step, form: AffineForm) -> AffineForm:
    if getattr(scaler, "clip", False):  # scikit-learn 1.7 and later
        return form.transform_each(step)
    return form.scale(step, _inverse(scaler.scale_, form))


@_after.register(MinMaxScaler)
def _min_max(scaler: Any, step: Step, form: AffineForm) -> AffineForm:
    if scaler.clip:
        return form.transform_each(step)
    shift = np.full(form.n_outputs, scaler.feature_range[0], dtype=np.float64)
    return form.scale(step, scaler.scale_, scaler.data_min_, shift)


def _inverse(scale: Floats | None, form: AffineForm) -> Floats:
    return np.ones(form.n_outputs) if scale is None else 1.0 / scale


def _with_known_text(form: AffineForm, encoder: Any) -> AffineForm:
    """Record in the form which columns an encoder takes as text, either unchanged or converted to text.

    Values converted by the package's own `as_text` may have been numbers or booleans. Such a column counts as
    text only if one of its values, such as 01234, is not the usual way to write a number.
    """
    path = [run.transformer if isinstance(run, Step) else run for run in steps_of(form.run)]
    converted = [each for each in path if getattr(each, "func", None) is as_text]
    if not all(isinstance(each, (PickColumns, SimpleImputer)) or each in converted for each in path):
        return form
    filled = {str(each.fill_value) for each in path if isinstance(each, SimpleImputer)}
    known = [[name for name in names if not is_missing(name)] for names in encoder.categories_]
    text = [i for i, names in enumerate(known) if names and all(isinstance(name, str) for name in names)]
    if converted:
        text = [i for i in text if not all(is_number_as_text(name) for name in {*known[i]} - filled)]
    return form.with_text(text)


@_after.register(OrdinalEncoder)
def _ordinal(encoder: Any, step: Step, form: AffineForm) -> AffineForm:
    return _with_known_text(form, encoder).transform_each(step)


@_after.register(Binarizer)
@_after.register(PowerTransformer)
@_after.register(QuantileTransformer)
def _one_by_one(transformer: Any, step: Step, form: AffineForm) -> AffineForm:  # noqa: ARG001  # the class determines the form
    return form.transform_each(step)


@_after.register(FunctionTransformer)
def _function(transformer: Any, step: Step, form: AffineForm) -> AffineForm:
    function = transformer.func
    if function is None:
        return form
    if not isinstance(function, np.ufunc) and not getattr(function, MARK, False):
        raise UnsupportedModelError(
            f"neuralize: {step} must use a NumPy ufunc or a function marked as elementwise; {function!r} is "
            f"not marked. If it computes each feature from the feature at the same position, mark it: "
            f"wc.elementwise(function). {ALTERNATIVE}"
        )
    after = form.transform_each(step)
    return after.with_days() if function is as_days else after


@_after.register(SimpleImputer)
def _imputer(imputer: Any, step: Step, form: AffineForm) -> AffineForm:
    # A column without any values is left out, unless keep_empty_features is set.
    there = [not _is_nan(value) or imputer.keep_empty_features for value in imputer.statistics_.tolist()]
    origin = np.flatnonzero(there)
    if imputer.indicator_ is not None:
        origin = np.concatenate([origin, imputer.indicator_.features_])
    return form.transform_each(step, origin)


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and value != value


@_after.register(MissingIndicator)
def _indicator(indicator: Any, step: Step, form: AffineForm) -> AffineForm:
    return form.transform_each(step, np.asarray(indicator.features_))


@_after.register(OneHotEncoder)
def _one_hot(encoder: Any, step: Step, form: AffineForm) -> AffineForm:
    origin = np.repeat(np.arange(form.n_outputs), encoder._n_features_outs)
    return _with_known_text(form, encoder).transform_each(step, origin)


@_after.register(KBinsDiscretizer)
def _bins(discretizer: Any, step: Step, form: AffineForm) -> AffineForm:
    counts = 1 if discretizer.encode == "ordinal" else discretizer.n_bins_
    return form.transform_each(step, np.repeat(np.arange(form.n_outputs), counts))


@_after.register(TargetEncoder)
def _target(encoder: Any, step: Step, form: AffineForm) -> AffineForm:
    count = len(encoder.classes_) if encoder.target_type_ == "multiclass" else 1
    return _with_known_text(form, encoder).transform_each(step, np.repeat(np.arange(form.n_outputs), count))


@_after.register(SelectorMixin)
def _selector(selector: Any, step: Step, form: AffineForm) -> AffineForm:
    return form.select(step, selector.get_support(indices=True))


@_after.register(PCA)
@_after.register(IncrementalPCA)
def _pca(pca: Any, step: Step, form: AffineForm) -> AffineForm:
    matrix = pca.components_
    if pca.whiten:
        deviation = np.sqrt(pca.explained_variance_)
        least = np.finfo(deviation.dtype).eps  # as in scikit-learn
        matrix = matrix / np.where(deviation < least, least, deviation)[:, None]
    return form.map(step, np.asarray(matrix, dtype=np.float64), pca.mean_)


@_after.register(FastICA)
def _ica(ica: Any, step: Step, form: AffineForm) -> AffineForm:
    return form.map(step, np.asarray(ica.components_, dtype=np.float64), ica.mean_ if ica.whiten else None)


@_after.register(TruncatedSVD)
@_after.register(GaussianRandomProjection)
@_after.register(SparseRandomProjection)
def _projection(transformer: Any, step: Step, form: AffineForm) -> AffineForm:
    matrix = transformer.components_
    return form.map(step, sparse.csr_array(matrix) if is_sparse(matrix) else np.asarray(matrix, np.float64))


@_after.register(NMF)
@_after.register(MiniBatchNMF)
def _factors(transformer: Any, step: Step, form: AffineForm) -> AffineForm:  # noqa: ARG001  # always raises
    raise UnsupportedModelError(
        f"neuralize: {step} solves an optimization problem for each row, so its output is not a linear "
        f"function of the columns. {ALTERNATIVE}"
    )


@_after.register(Normalizer)
def _normalizer(normalizer: Any, step: Step, form: AffineForm) -> AffineForm:
    return form.rescale(step, _LENGTHS[normalizer.norm])


@dataclass(frozen=True)
class _Length:
    """The length of each row of an array, with 1 for a row of zeros."""

    order: float

    def __call__(self, z: Floats) -> Floats:
        lengths = np.asarray(np.linalg.norm(z, ord=self.order, axis=1))
        lengths[lengths == 0.0] = 1.0
        return lengths


_LENGTHS = {"l1": _Length(1), "l2": _Length(2), "max": _Length(np.inf)}


@_after.register(TfidfTransformer)
def _tfidf(transformer: Any, step: Step, form: AffineForm) -> AffineForm:  # noqa: ARG001  # the signature of all handlers
    """Treat the transformer as elementwise, with the length of each row as a constant of that row."""
    return form.transform_each(step)


@_after.register(CountVectorizer)
@_after.register(TfidfVectorizer)
@_after.register(HashingVectorizer)
def _vectorizer(vectorizer: Any, step: Step, form: AffineForm) -> AffineForm:
    """Return the form after vectorizing one column of text, with a feature for each word."""
    if isinstance(vectorizer, HashingVectorizer):
        n_words = vectorizer.n_features
    else:
        n_words = len(vectorizer.vocabulary_)
    return form.transform_each(step, np.zeros(n_words, dtype=np.intp))


@_after.register(Pipeline)
def _pipeline(pipeline: Any, step: Step, form: AffineForm) -> AffineForm:
    return follow(pipeline.steps, form, f"{step.name}.")


@_after.register(FeatureUnion)
def _union(union: Any, step: Step, form: AffineForm) -> AffineForm:
    weights = union.transformer_weights or {}
    branches = [
        _weighted(follow([(name, transformer)], form, f"{step.name}."), weights.get(name))
        for name, transformer in union.transformer_list
        if not _is(transformer, "drop")
    ]
    return _joined(branches, step, form)


@_after.register(ColumnTransformer)
def _columns(transformer: Any, step: Step, form: AffineForm) -> AffineForm:
    weights = transformer.transformer_weights or {}
    branches = []
    for name, inner, columns in transformer.transformers_:
        chosen = np.asarray(transformer._transformer_to_input_indices[name], dtype=np.intp)
        if _is(inner, "drop") or not chosen.size:
            continue
        part = form.select(PickColumns(chosen, np.isscalar(columns)), chosen)
        branch = follow([(name, inner)], part, f"{step.name}.")
        branches.append(_weighted(branch, weights.get(name)))
    return _joined(branches, step, form)


def _weighted(form: AffineForm, weight: float | None) -> AffineForm:
    """Return the form multiplied by the weight that a union assigns to a branch."""
    if weight is None:
        return form
    return form.scale(_Times(weight), np.full(form.n_outputs, float(weight)))


def _joined(branches: Sequence[AffineForm], step: Step, form: AffineForm) -> AffineForm:
    if not branches:
        raise UnsupportedModelError(f"neuralize: {step} must return at least one feature; it returns none.")
    return join(branches, compose(form.run, step))


@dataclass(frozen=True)
class _Times:
    weight: float

    def __call__(self, rows: Any) -> Any:
        return rows * self.weight


# Before version 1.9, scikit-learn reads column names through `__dataframe__`, which polars 2 no longer
# provides. It selects columns of such frames only by position.
READS_NAMES_OF_POLARS = parse_version(sklearn.__version__) >= parse_version("1.9")


@dataclass(frozen=True)
class PickColumns:
    """Select columns by position; if ``single``, return one column as a one-dimensional array."""

    chosen: Codes
    single: bool = False

    def __call__(self, rows: Any) -> Any:
        """Return the columns in the same kind of container as the rows."""
        which: Any = int(self.chosen[0]) if self.single else self.chosen
        if hasattr(rows, "iloc"):
            return rows.iloc[:, which]
        if isinstance(rows, np.ndarray) or is_sparse(rows):
            return rows[:, which]
        return rows[:, which if self.single else self.chosen.tolist()]  # polars
