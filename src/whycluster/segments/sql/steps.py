"""The steps of a pipeline as SQL expressions, one function per transformer."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
from sklearn import preprocessing
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA, FastICA, IncrementalPCA, TruncatedSVD
from sklearn.feature_selection import SelectorMixin
from sklearn.impute import MissingIndicator, SimpleImputer
from sklearn.pipeline import FeatureUnion, Pipeline
from sklearn.random_projection import GaussianRandomProjection, SparseRandomProjection

from whycluster.core.arrays import Floats
from whycluster.core.errors import UnsupportedModelError
from whycluster.data.columns import LARGEST, as_days, as_numbers, as_text
from whycluster.data.missing import is_missing
from whycluster.pipelines.affine_form import to_floats
from whycluster.pipelines.steps import Step, is_passthrough
from whycluster.pipelines.tabular import weigh
from whycluster.segments.sql import functions, reading
from whycluster.segments.sql.encoders import encode
from whycluster.segments.sql.query import Column, Query, Value

Input: TypeAlias = Column | Value
Inputs: TypeAlias = Sequence[Input]

SUPPORTED = (
    "StandardScaler, MinMaxScaler, MaxAbsScaler, RobustScaler, Normalizer, PowerTransformer",
    "SimpleImputer, MissingIndicator",
    "OneHotEncoder, OrdinalEncoder, TargetEncoder, KBinsDiscretizer, Binarizer",
    "FunctionTransformer of np.log, np.log1p, np.log2, np.log10, np.sqrt, np.cbrt, np.square, np.abs, "
    "np.exp, np.expm1 or np.negative",
    "the steps of wc.tabular.pipeline",
    "PCA, IncrementalPCA, TruncatedSVD, FastICA, GaussianRandomProjection, SparseRandomProjection",
    "VarianceThreshold, SelectKBest and the other selectors",
    "ColumnTransformer, FeatureUnion, Pipeline, 'passthrough', 'drop'",
)


def follow(steps: Sequence[tuple[str, Any]], query: Query, inputs: Inputs, prefix: str = "") -> Inputs:
    """Return the outputs of several fitted steps."""
    for name, transformer in steps:
        if not is_passthrough(transformer):
            inputs = after(transformer, Step(prefix + name, transformer), query, inputs)
    return inputs


@functools.singledispatch
def after(transformer: Any, step: Step, query: Query, inputs: Inputs) -> Inputs:
    """Return the outputs of a step; raise an error if its class is not registered."""
    raise refusal(step, "it cannot be written in SQL")


def refusal(step: Step, reason: str) -> UnsupportedModelError:
    """Return the error for a step that cannot be written in SQL."""
    listed = "".join(f"\n  - {line}" for line in SUPPORTED)
    return UnsupportedModelError(
        f"to_sql: {step} is not supported, because {reason}. Supported steps are:{listed}"
    )


Handler: TypeAlias = Callable[[Any, Step, Query, list[Value]], list[Value]]


def _numeric(*kinds: type) -> Callable[[Handler], Handler]:
    """Register a function for transformers that take numbers."""

    def register(handler: Handler) -> Handler:
        def read(transformer: Any, step: Step, query: Query, inputs: Inputs) -> Inputs:
            return handler(transformer, step, query, [reading.number(each, query, step) for each in inputs])

        for kind in kinds:
            after.register(kind, read)
        return handler

    return register


@_numeric(preprocessing.StandardScaler)
def _standard(scaler: Any, step: Step, query: Query, inputs: list[Value]) -> list[Value]:
    return _scaled(query, inputs, scaler.mean_ if scaler.with_mean else None, scaler.scale_)


@_numeric(preprocessing.RobustScaler)
def _robust(scaler: Any, step: Step, query: Query, inputs: list[Value]) -> list[Value]:
    return _scaled(query, inputs, scaler.center_, scaler.scale_)


@_numeric(preprocessing.MaxAbsScaler)
def _max_abs(scaler: Any, step: Step, query: Query, inputs: list[Value]) -> list[Value]:
    found = _scaled(query, inputs, None, scaler.scale_)
    return _clipped(query, found, (-1.0, 1.0)) if getattr(scaler, "clip", False) else found


@_numeric(preprocessing.MinMaxScaler)
def _min_max(scaler: Any, step: Step, query: Query, inputs: list[Value]) -> list[Value]:
    found = [
        query.write("({} * {} + {})", value, float(scale), float(least))
        for value, scale, least in zip(inputs, scaler.scale_, scaler.min_, strict=True)
    ]
    return _clipped(query, found, scaler.feature_range) if scaler.clip else found


def _scaled(query: Query, inputs: list[Value], center: Floats | None, scale: Floats | None) -> list[Value]:
    found = inputs
    if center is not None:
        found = [query.write("({} - {})", v, float(c)) for v, c in zip(found, center, strict=True)]
    if scale is not None:
        found = [query.write("({} / {})", v, float(s)) for v, s in zip(found, scale, strict=True)]
    return found


def _clipped(query: Query, values: list[Value], bounds: tuple[float, float]) -> list[Value]:
    """Return numbers clipped to two bounds; LEAST and GREATEST alone would ignore a missing number."""
    low, high = map(float, bounds)
    template = "CASE WHEN {} IS NOT NULL THEN GREATEST({}, LEAST({}, {})) END"
    bound = [query.bind(value) for value in values]
    return [query.write(template, value, low, high, value) for value in bound]


@after.register(SimpleImputer)
def _imputer(imputer: Any, step: Step, query: Query, inputs: Inputs) -> Inputs:
    """Fill missing values, and append the indicators."""
    statistics = imputer.statistics_.tolist()
    text = any(isinstance(each, str) for each in statistics)
    read = reading.text if text else reading.number
    values = [query.bind(read(each, query, step)) for each in inputs]
    found = []
    for value, filler in zip(values, statistics, strict=True):
        if not is_missing(filler):
            found.append(_filled(query, value, filler, imputer.missing_values))
        elif imputer.keep_empty_features:
            raise refusal(step, "a column without values has no statistic")
    if imputer.indicator_ is not None:
        found += _indicators(imputer.indicator_, query, values)
    return found


def _filled(query: Query, value: Value, filler: Any, missing: Any) -> Value:
    new = query.dialect.string(filler) if isinstance(filler, str) else float(filler)
    if is_missing(missing):
        return query.write("COALESCE({}, {})", value, new, is_text=value.is_text)
    query.refused.append(query.write("({} IS NULL)", value))
    condition = _is_missing(query, value, missing)
    return query.write("CASE WHEN {} THEN {} ELSE {} END", condition, new, value, is_text=value.is_text)


def _is_missing(query: Query, value: Value, missing: Any) -> Value:
    if is_missing(missing):
        return query.write("({} IS NULL)", value)
    word = query.dialect.string(missing) if isinstance(missing, str) else float(missing)
    return query.write("({} = {})", value, word)


@after.register(MissingIndicator)
def _indicator(indicator: Any, step: Step, query: Query, inputs: Inputs) -> Inputs:
    values = [query.bind(reading.number(each, query, step)) for each in inputs]
    if indicator.features == "missing-only" and indicator.error_on_new:
        known = set(indicator.features_.tolist())
        new = [
            _is_missing(query, v, indicator.missing_values) for i, v in enumerate(values) if i not in known
        ]
        query.refused.extend(new)
    return _indicators(indicator, query, values)


def _indicators(indicator: Any, query: Query, values: list[Value]) -> list[Value]:
    chosen = [values[i] for i in indicator.features_.tolist()]
    conditions = [_is_missing(query, value, indicator.missing_values) for value in chosen]
    return [query.write("CASE WHEN {} THEN {} ELSE {} END", each, 1.0, 0.0) for each in conditions]


@after.register(preprocessing.OneHotEncoder)
@after.register(preprocessing.OrdinalEncoder)
@after.register(preprocessing.TargetEncoder)
def _encoder(encoder: Any, step: Step, query: Query, inputs: Inputs) -> Inputs:
    return encode(encoder, step, query, inputs)


@after.register(preprocessing.FunctionTransformer)
def _function(transformer: Any, step: Step, query: Query, inputs: Inputs) -> Inputs:
    function, options = transformer.func, transformer.kw_args or {}
    if function is None:
        return inputs
    if function is as_text:
        return [reading.text(each, query, step) for each in inputs]
    if function is as_days:
        return [reading.days(each, query, step) for each in inputs]
    values = [reading.number(each, query, step) for each in inputs]
    if function is as_numbers:
        return _limited(query, values)
    if function is weigh:
        return [query.write("({} * {})", value, float(options["weight"])) for value in values]
    write = None if options else functions.writer_of(function)
    if write is None:
        name = getattr(function, "__name__", repr(function))
        raise refusal(step, f"the function {name} cannot be written in SQL")
    return [write(query, query.bind(value)) for value in values]


def _limited(query: Query, values: list[Value]) -> list[Value]:
    """Refuse rows with numbers whose squares would overflow, as `as_numbers` does."""
    values = [query.bind(value) for value in values]
    largest = query.greatest([query.write("ABS({})", value) for value in values])
    query.refused.append(query.write("(COALESCE({}, {}) > {})", largest, 0.0, LARGEST))
    return values


@_numeric(preprocessing.PowerTransformer)
def _power(transformer: Any, step: Step, query: Query, inputs: list[Value]) -> list[Value]:
    write = functions.yeo_johnson if transformer.method == "yeo-johnson" else functions.box_cox
    pairs = zip(inputs, transformer.lambdas_.tolist(), strict=True)
    found = [write(query, query.bind(value), power) for value, power in pairs]
    scaler = transformer._scaler if transformer.standardize else None
    return found if scaler is None else _scaled(query, found, scaler.mean_, scaler.scale_)


@_numeric(preprocessing.Binarizer)
def _binarizer(binarizer: Any, step: Step, query: Query, inputs: list[Value]) -> list[Value]:
    query.require(inputs)
    return [_flag(query, query.write("{} > {}", value, float(binarizer.threshold))) for value in inputs]


@_numeric(preprocessing.KBinsDiscretizer)
def _bins(discretizer: Any, step: Step, query: Query, inputs: list[Value]) -> list[Value]:
    """Return the number of each bin, or an indicator for each bin."""
    values, found = [query.bind(value) for value in inputs], []
    query.require(values)
    for value, edges in zip(values, discretizer.bin_edges_, strict=True):
        inner = edges[1:-1].tolist()
        above = [_flag(query, query.write("{} >= {}", value, edge)) for edge in inner]
        if discretizer.encode == "ordinal":
            found.append(query.sum(above))
            continue
        bounds = zip([None, *inner], [*inner, None], strict=True)
        found += [_flag(query, _between(query, value, low, high)) for low, high in bounds]
    return found


def _between(query: Query, value: Value, low: float | None, high: float | None) -> Value:
    parts = [] if low is None else [query.write("{} >= {}", value, low)]
    parts += [] if high is None else [query.write("{} < {}", value, high)]
    return query.write(" AND ".join(["{}"] * len(parts)) or "TRUE", *parts)


def _flag(query: Query, condition: Value) -> Value:
    return query.write("CASE WHEN {} THEN {} ELSE {} END", condition, 1.0, 0.0)


@after.register(SelectorMixin)
def _selector(selector: Any, step: Step, query: Query, inputs: Inputs) -> Inputs:
    return [inputs[i] for i in selector.get_support(indices=True).tolist()]


@_numeric(PCA, IncrementalPCA)
def _pca(pca: Any, step: Step, query: Query, inputs: list[Value]) -> list[Value]:
    found = _mapped(query, inputs, pca.components_, pca.mean_)
    if not pca.whiten:
        return found
    deviation = np.sqrt(pca.explained_variance_)
    least = np.finfo(deviation.dtype).eps  # as in scikit-learn
    return _scaled(query, found, None, np.maximum(deviation, least))


@_numeric(FastICA)
def _ica(ica: Any, step: Step, query: Query, inputs: list[Value]) -> list[Value]:
    return _mapped(query, inputs, ica.components_, ica.mean_ if ica.whiten else None)


@_numeric(TruncatedSVD, GaussianRandomProjection, SparseRandomProjection)
def _projection(transformer: Any, step: Step, query: Query, inputs: list[Value]) -> list[Value]:
    return _mapped(query, inputs, transformer.components_, None)


def _mapped(query: Query, inputs: list[Value], matrix: Any, center: Floats | None) -> list[Value]:
    """Return linear combinations of numbers. The center is subtracted first, which is more accurate."""
    moved = [query.bind(value) for value in _scaled(query, inputs, center, None)]
    query.require(moved)
    return [query.bind(linear(query, moved, row)) for row in to_floats(matrix)]


def linear(query: Query, values: Sequence[Value], weights: Floats, constant: float = 0.0) -> Value:
    """Return constant + sum_i weights_i values_i, without terms that are 0."""
    pairs = zip(weights.tolist(), values, strict=True)
    terms = [query.write("{} * {}", weight, value) for weight, value in pairs if weight != 0.0]
    first = [query.write("{}", constant)] if constant != 0.0 or not terms else []
    return query.sum([*first, *terms])


@_numeric(preprocessing.Normalizer)
def _normalizer(normalizer: Any, step: Step, query: Query, inputs: list[Value]) -> list[Value]:
    values = [query.bind(value) for value in inputs]
    query.require(values)
    if normalizer.norm == "l2":
        length = query.write("SQRT{}", query.sum([query.write("{} * {}", v, v) for v in values]))
    else:
        sizes = [query.write("ABS({})", value) for value in values]
        length = query.sum(sizes) if normalizer.norm == "l1" else query.greatest(sizes)
    divisor = query.bind(query.write("COALESCE(NULLIF({}, {}), {})", length, 0.0, 1.0))
    return [query.write("({} / {})", value, divisor) for value in values]


@after.register(Pipeline)
def _pipeline(pipeline: Any, step: Step, query: Query, inputs: Inputs) -> Inputs:
    return follow(pipeline.steps, query, inputs, f"{step.name}.")


@after.register(FeatureUnion)
def _union(union: Any, step: Step, query: Query, inputs: Inputs) -> Inputs:
    parts = [(name, part, inputs) for name, part in union.transformer_list]
    return _branches(parts, union.transformer_weights, step, query)


@after.register(ColumnTransformer)
def _columns(transformer: Any, step: Step, query: Query, inputs: Inputs) -> Inputs:
    chosen = transformer._transformer_to_input_indices
    parts = [(name, part, [inputs[i] for i in chosen[name]]) for name, part, _ in transformer.transformers_]
    return _branches([part for part in parts if part[2]], transformer.transformer_weights, step, query)


def _branches(
    parts: Sequence[tuple[str, Any, Inputs]], weights: dict[str, float] | None, step: Step, query: Query
) -> Inputs:
    """Return the outputs of several branches side by side, with their weights."""
    found: list[Input] = []
    for name, part, inputs in parts:
        if isinstance(part, str) and part == "drop":
            continue
        outputs = follow([(name, part)], query, inputs, f"{step.name}.")
        weight = (weights or {}).get(name)
        if weight is not None:
            numbers = [reading.number(each, query, step) for each in outputs]
            outputs = [query.write("({} * {})", value, float(weight)) for value in numbers]
        found += outputs
    return found
