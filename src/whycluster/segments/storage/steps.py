"""The fitted steps of a pipeline in a file: their classes, their attributes, and how these are checked.

A step is stored as the name of its class and the attributes that ``transform`` uses. Loading creates the step
from a class in `STEPS`, never from one that the file names, and sets these attributes after checking them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn import preprocessing
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA, FastICA, IncrementalPCA, TruncatedSVD
from sklearn.feature_selection import SelectorMixin, VarianceThreshold
from sklearn.impute import MissingIndicator, SimpleImputer
from sklearn.pipeline import FeatureUnion, Pipeline
from sklearn.random_projection import GaussianRandomProjection, SparseRandomProjection

from whycluster.core.errors import UnsupportedModelError
from whycluster.data.arrays import is_sparse
from whycluster.data.columns import as_days, as_numbers, as_text
from whycluster.pipelines.steps import is_passthrough
from whycluster.pipelines.tabular import median, weigh
from whycluster.segments.storage.archive import ArchiveReader, ArchiveWriter, encode

SCALAR, VALUES, LISTS, STEP, DTYPE, MAP = "scalar", "values", "lists", "step", "dtype", "map"
"""The kinds of attributes: a number or string, an array, a list of arrays, a step, a dtype, a dictionary."""

_COMMON = {"n_features_in_": SCALAR, "feature_names_in_": VALUES}
_OUTPUT = "_sklearn_output_config"
_CONTAINERS = ("default", "pandas", "polars")
_DTYPES = ("float64", "float32", "float16", "int64", "int32", "bool", "object")
_OURS = {each.__name__: each for each in (as_days, as_numbers, as_text, weigh)}
_UFUNCS = {
    name: each
    for name, each in vars(np).items()
    if isinstance(each, np.ufunc) and (each.nin, each.nout) == (1, 1)
}
_MOST_AXES = 3


@dataclass(frozen=True)
class StepFormat:
    """The attributes of a class of steps that are stored.

    Attributes
    ----------
    parameters : the arguments of the constructor
    fitted : the kinds of the attributes that ``fit`` sets
    check : a function that describes the problem with the attributes of a step, or returns None
    """

    parameters: tuple[str, ...] = ()
    fitted: Mapping[str, str] = field(default_factory=dict)
    check: Callable[[Any], str | None] = lambda _: None


def _one_per_column(*names: str) -> Callable[[Any], str | None]:
    """Return a check that these arrays, unless they are None, have one value per column."""

    def check(step: Any) -> str | None:
        for name in names:
            value = getattr(step, name)
            if value is not None and np.shape(value) != (step.n_features_in_,):
                return f"{name} must have one value for each of its {step.n_features_in_} columns"
        return None

    return check


def _check_components(step: Any) -> str | None:
    if step.components_.ndim != 2 or step.components_.shape[1] != step.n_features_in_:
        return f"components_ must have {step.n_features_in_} columns"
    return None


def _check_lists(step: Any, name: str, n_lists: int) -> str | None:
    lists = getattr(step, name)
    if len(lists) != n_lists or not all(isinstance(each, np.ndarray) and each.ndim == 1 for each in lists):
        return f"{name} must have one list for each of its columns"
    return None


def _check_categories(step: Any) -> str | None:
    return _check_lists(step, "categories_", step.n_features_in_)


def _check_one_hot(step: Any) -> str | None:
    """Check the categories, and compute the number of output columns instead of reading it."""
    problem = _check_categories(step)
    if problem is None:
        step._n_features_outs = step._compute_n_features_outs()
    return problem


def _check_targets(step: Any) -> str | None:
    n_targets = len(step.classes_) if step.target_type_ == "multiclass" else 1
    return _check_categories(step) or _check_lists(step, "encodings_", step.n_features_in_ * n_targets)


def _check_bins(step: Any) -> str | None:
    problem = _check_lists(step, "bin_edges_", step.n_features_in_)
    if problem is None:
        edges = np.empty(len(step.bin_edges_), dtype=object)
        edges[:] = step.bin_edges_
        step.bin_edges_ = edges
        step.n_bins_ = np.array([len(each) - 1 for each in edges], dtype=np.int64)
    return problem


def _check_function(step: Any) -> str | None:
    weighs = step.func is weigh
    weight = (step.kw_args or {}).get("weight")
    if weighs != (step.kw_args is not None) or (weighs and type(weight) is not float):
        return "kw_args must contain the weight of a branch"
    return None


_ENCODER = {
    **_COMMON,
    "categories_": LISTS,
    "_infrequent_enabled": SCALAR,
    "_infrequent_indices": LISTS,
    "_default_to_infrequent_mappings": LISTS,
}
_LINEAR = {**_COMMON, "components_": VALUES, "mean_": VALUES}
_PROJECTION = StepFormat((), {**_COMMON, "components_": VALUES, "n_components_": SCALAR}, _check_components)

STEPS: dict[type, StepFormat] = {
    preprocessing.StandardScaler: StepFormat(
        ("with_mean", "with_std", "copy"),
        {**_COMMON, "mean_": VALUES, "var_": VALUES, "scale_": VALUES, "n_samples_seen_": VALUES},
        _one_per_column("mean_", "scale_"),
    ),
    preprocessing.MinMaxScaler: StepFormat(
        ("feature_range", "clip", "copy"),
        {**_COMMON, "min_": VALUES, "scale_": VALUES, "data_min_": VALUES, "data_max_": VALUES},
        _one_per_column("min_", "scale_", "data_min_", "data_max_"),
    ),
    preprocessing.MaxAbsScaler: StepFormat(
        ("clip", "copy"), {**_COMMON, "scale_": VALUES, "max_abs_": VALUES}, _one_per_column("scale_")
    ),
    preprocessing.RobustScaler: StepFormat(
        ("with_centering", "with_scaling", "copy"),
        {**_COMMON, "center_": VALUES, "scale_": VALUES},
        _one_per_column("center_", "scale_"),
    ),
    preprocessing.PowerTransformer: StepFormat(
        ("method", "standardize", "copy"),
        {**_COMMON, "lambdas_": VALUES, "_scaler": STEP},
        _one_per_column("lambdas_"),
    ),
    preprocessing.QuantileTransformer: StepFormat(
        ("output_distribution", "ignore_implicit_zeros", "copy"),
        {**_COMMON, "n_quantiles_": SCALAR, "references_": VALUES, "quantiles_": VALUES},
    ),
    preprocessing.KBinsDiscretizer: StepFormat(
        ("encode",), {**_COMMON, "bin_edges_": LISTS, "_encoder": STEP}, _check_bins
    ),
    preprocessing.Binarizer: StepFormat(("threshold", "copy"), _COMMON),
    preprocessing.Normalizer: StepFormat(("norm", "copy"), _COMMON),
    preprocessing.FunctionTransformer: StepFormat(
        ("func", "inverse_func", "validate", "accept_sparse", "feature_names_out", "kw_args"),
        _COMMON,
        _check_function,
    ),
    SimpleImputer: StepFormat(
        ("missing_values", "strategy", "fill_value", "add_indicator", "keep_empty_features", "copy"),
        {**_COMMON, "statistics_": VALUES, "indicator_": STEP, "_fit_dtype": DTYPE, "_fill_dtype": DTYPE},
        _one_per_column("statistics_"),
    ),
    MissingIndicator: StepFormat(
        ("missing_values", "features", "sparse", "error_on_new"),
        {**_COMMON, "features_": VALUES, "_n_features": SCALAR, "_precomputed": SCALAR},
    ),
    preprocessing.OneHotEncoder: StepFormat(
        ("sparse_output", "dtype", "handle_unknown", "drop", "min_frequency", "max_categories"),
        {**_ENCODER, "drop_idx_": VALUES, "_drop_idx_after_grouping": VALUES},
        _check_one_hot,
    ),
    preprocessing.OrdinalEncoder: StepFormat(
        (
            "dtype",
            "handle_unknown",
            "unknown_value",
            "encoded_missing_value",
            "min_frequency",
            "max_categories",
        ),
        {**_ENCODER, "_missing_indices": MAP},
        _check_categories,
    ),
    preprocessing.TargetEncoder: StepFormat(
        ("target_type",),
        {
            **_COMMON,
            "categories_": LISTS,
            "_infrequent_enabled": SCALAR,
            "target_type_": SCALAR,
            "classes_": VALUES,
            "target_mean_": VALUES,
            "encodings_": LISTS,
        },
        _check_targets,
    ),
    VarianceThreshold: StepFormat(
        ("threshold",), {**_COMMON, "variances_": VALUES}, _one_per_column("variances_")
    ),
    PCA: StepFormat(
        ("whiten",), {**_LINEAR, "explained_variance_": VALUES, "n_components_": SCALAR}, _check_components
    ),
    IncrementalPCA: StepFormat(
        ("whiten", "batch_size"),
        {**_LINEAR, "explained_variance_": VALUES, "n_components_": SCALAR, "batch_size_": SCALAR},
        _check_components,
    ),
    TruncatedSVD: StepFormat((), {**_COMMON, "components_": VALUES}, _check_components),
    FastICA: StepFormat(("whiten",), _LINEAR, _check_components),
    GaussianRandomProjection: _PROJECTION,
    SparseRandomProjection: StepFormat(("dense_output",), _PROJECTION.fitted, _check_components),
}
"""The steps that can be stored, apart from ColumnTransformer, FeatureUnion, Pipeline and selectors."""

_CLASSES = {kind.__name__: kind for kind in STEPS}
_REASON = "Segmentations that cannot be saved can still be used in this process."


def write_steps(writer: ArchiveWriter, steps: Sequence[tuple[str, Any]]) -> list[Any]:
    """Add the arrays of fitted steps to a file, and return everything else about them as JSON values."""
    return [[name, _encode_step(writer, step, name)] for name, step in steps if not is_passthrough(step)]


def _encode_step(writer: ArchiveWriter, step: Any, name: str) -> Any:
    if isinstance(step, str) or step is None:
        return "drop" if step == "drop" else "passthrough"
    kind = type(step)
    if kind is Pipeline:
        return {"class": "Pipeline", "steps": write_steps(writer, step.steps)}
    if kind is FeatureUnion:
        parts = [[each, _encode_step(writer, part, each)] for each, part in step.transformer_list]
        return {"class": "FeatureUnion", "steps": parts, "weights": _encode_weights(step), **_output(step)}
    if kind is ColumnTransformer:
        return _encode_columns(writer, step)
    if isinstance(step, SelectorMixin) and kind is not VarianceThreshold:
        step = _as_threshold(step)
        kind = VarianceThreshold
    if kind not in STEPS:
        raise UnsupportedModelError(
            f"save: step {name!r} must be of a class that whycluster can restore without running code from "
            f"the file; got {kind.__module__}.{kind.__qualname__}. {_REASON}"
        )
    form = STEPS[kind]
    found = {each: _encode_parameter(each, getattr(step, each, None), step, name) for each in form.parameters}
    fitted = {
        each: _encode_fitted(writer, each, what, getattr(step, each), name)
        for each, what in form.fitted.items()
        if hasattr(step, each)
    }
    return {"class": kind.__name__, "parameters": found, "fitted": fitted, **_output(step)}


def _as_threshold(selector: Any) -> VarianceThreshold:
    """Return a selector of the same columns whose state is an array."""
    chosen = selector.get_support()
    found = VarianceThreshold(0.5)
    found.variances_, found.n_features_in_ = chosen.astype(np.float64), len(chosen)
    if hasattr(selector, "feature_names_in_"):
        found.feature_names_in_ = selector.feature_names_in_
    return found


def _output(step: Any) -> dict[str, Any]:
    """Return the container that a step returns, if the user has chosen one."""
    chosen = getattr(step, _OUTPUT, {}).get("transform")
    return {} if chosen is None else {"output": chosen}


def _encode_weights(step: Any) -> list[Any] | None:
    weights = step.transformer_weights
    return None if weights is None else [[name, float(weight)] for name, weight in weights.items()]


def _encode_columns(writer: ArchiveWriter, step: Any) -> dict[str, Any]:
    branches = []
    for name, inner, columns in step.transformers_:
        chosen = [int(i) for i in step._transformer_to_input_indices[name]]
        single = isinstance(columns, (str, int)) and not isinstance(columns, bool)
        branch = _encode_step(writer, inner, name) if chosen else "drop"
        branches.append([name, branch, chosen[0] if single else chosen])
    names = getattr(step, "feature_names_in_", None)
    return {
        "class": "ColumnTransformer",
        "branches": branches,
        "weights": _encode_weights(step),
        "n_columns": int(step.n_features_in_),
        "names": None if names is None else [encode(name, "the names of columns") for name in names],
        "sparse": bool(step.sparse_output_),
        "outputs": [[name, part.start, part.stop] for name, part in step.output_indices_.items()],
        "prefixes": step.verbose_feature_names_out
        if isinstance(step.verbose_feature_names_out, bool)
        else True,
        **_output(step),
    }


def _encode_parameter(name: str, value: Any, step: Any, place: str) -> Any:
    if name == "kw_args" and step.func is weigh:
        return {"weight": float(value["weight"])}
    if name == "strategy" and callable(value):
        value = "median" if value is median else value
    if name == "dtype":
        return np.dtype(value).name
    if name in ("func", "inverse_func") and value is not None:
        return _name_of(value, place)
    if value is None or isinstance(value, (bool, int, float, str, tuple, np.generic)):
        return encode(value, f"{name} of step {place!r}")
    if name == "drop" and isinstance(value, (list, np.ndarray)):
        return None  # the fitted step knows the categories that it drops
    raise UnsupportedModelError(
        f"save: {name} of step {place!r} must be a number or a string; got {type(value).__name__}. {_REASON}"
    )


def _name_of(function: Any, place: str) -> str:
    """Return the name of a function that loading can find again without running code from the file."""
    for known in (_OURS, _UFUNCS):
        for name, each in known.items():
            if each is function:
                return name
    raise UnsupportedModelError(
        f"save: the function of step {place!r} must be a NumPy ufunc with one argument, since any other "
        f"function is code; got {getattr(function, '__name__', function)!s}. {_REASON}"
    )


def _encode_fitted(writer: ArchiveWriter, name: str, what: str, value: Any, place: str) -> Any:
    if value is None:
        return None
    if what == SCALAR:
        return encode(value, f"{name} of step {place!r}")
    if what == DTYPE:
        return np.dtype(value).name
    if what == STEP:
        return _encode_step(writer, value, place)
    if what == MAP:
        return [[int(key), int(item)] for key, item in value.items()]
    if what == LISTS:
        return [None if each is None else _put(writer, np.asarray(each)) for each in value]
    return _put(writer, value)


def _put(writer: ArchiveWriter, value: Any) -> Any:
    """Add an array or a sparse matrix, and return the reference to it."""
    name = f"steps.{len(writer.arrays)}"
    if is_sparse(value):
        rows = sparse.csr_array(value)
        writer.put_values(name, rows.data)
        writer.put(f"{name}.indices", rows.indices, "int64")
        writer.put(f"{name}.starts", rows.indptr, "int64")
        return {"sparse": name, "shape": [int(length) for length in rows.shape]}
    array = np.asarray(value)
    by_columns = array.flags.f_contiguous and not array.flags.c_contiguous
    # The order is kept, because BLAS may sum differently if the numbers are stored in another order.
    writer.put_values(name, array.reshape(-1, order="F" if by_columns else "C"))
    found = {"array": name, "shape": [int(length) for length in array.shape]}
    return {**found, "by_columns": True} if by_columns else found


def read_steps(stored: ArchiveReader, coded: Any) -> list[tuple[str, Any]]:
    """Return the fitted steps that `write_steps` added."""
    return [(name, _decode_step(stored, each)) for name, each in _pairs(stored, coded)]


def _pairs(stored: ArchiveReader, coded: Any, length: int = 2) -> list[Any]:
    if type(coded) is not list or not all(
        type(each) is list and len(each) == length and type(each[0]) is str for each in coded
    ):
        raise stored.error(f"'steps' must be lists of {length} values that begin with a name")
    return coded


def _decode_step(stored: ArchiveReader, coded: Any) -> Any:
    if type(coded) is str and coded in ("drop", "passthrough"):
        return coded
    node = _Node(stored, coded)
    made = _CONTAINERS_OF_STEPS.get(node.kind, _decode_plain)(node)
    output = node.take("output", str, type(None))
    if output is not None:
        if output not in _CONTAINERS:
            raise stored.error(f"'output' of a step must be one of {', '.join(_CONTAINERS)}")
        setattr(made, _OUTPUT, {"transform": output})
    node.close()
    return made


class _Node:
    """A step as JSON values; each value is taken out once."""

    def __init__(self, stored: ArchiveReader, coded: Any) -> None:
        self.stored = stored
        if type(coded) is not dict or type(coded.get("class")) is not str:
            raise stored.error("a step must have a class")
        self._values = dict(coded)
        self.kind: str = self._values.pop("class")

    def take(self, name: str, *kinds: type) -> Any:
        """Take out a value, which must have one of these types."""
        value = self._values.pop(name, None)
        if type(value) not in kinds:
            expected = " or ".join(kind.__name__ for kind in kinds)
            raise self.stored.error(f"{name!r} of a step must be of type {expected}")
        return value

    def close(self) -> None:
        """Raise an error if any value is left over."""
        if self._values:
            raise self.stored.error(f"a step must not have {min(self._values)[:80]!r}")


def _decode_pipeline(node: _Node) -> Pipeline:
    steps = read_steps(node.stored, node.take("steps", list))
    if not steps:
        raise node.stored.error("a Pipeline must have steps")
    return Pipeline(steps)


def _decode_union(node: _Node) -> FeatureUnion:
    steps = read_steps(node.stored, node.take("steps", list))
    made = FeatureUnion(steps)
    made.transformer_weights = _decode_weights(node)
    return made


def _decode_weights(node: _Node) -> dict[str, float] | None:
    coded = node.take("weights", list, type(None))
    if coded is None:
        return None
    weights = dict(_pairs(node.stored, coded))
    if not all(type(weight) is float for weight in weights.values()):
        raise node.stored.error("'weights' of a step must be numbers")
    return weights


def _decode_columns(node: _Node) -> ColumnTransformer:
    stored, n_columns = node.stored, node.take("n_columns", int)
    names = node.take("names", list, type(None))
    branches = []
    for name, inner, columns in _pairs(stored, node.take("branches", list), 3):
        listed = [columns] if type(columns) is int else columns
        if type(listed) is not list or not all(type(i) is int and 0 <= i < n_columns for i in listed):
            raise stored.error("the columns of a ColumnTransformer must be positions of its columns")
        branches.append((name, _decode_step(stored, inner), columns))
    made = ColumnTransformer(branches)
    made.transformer_weights = _decode_weights(node)
    made.verbose_feature_names_out = node.take("prefixes", bool)
    made.n_features_in_ = n_columns
    if names is not None:
        made.feature_names_in_ = _names(stored, names, n_columns)
    made.transformers_ = branches
    made._columns = [columns for _, _, columns in branches]
    made._transformer_to_input_indices = {
        name: [columns] if type(columns) is int else columns for name, _, columns in branches
    }
    made._remainder = ("remainder", "drop", [])
    made.sparse_output_ = node.take("sparse", bool)
    outputs = _pairs(stored, node.take("outputs", list), 3)
    if not all(type(i) is int for part in outputs for i in part[1:]):
        raise stored.error("the outputs of a ColumnTransformer must be positions")
    made.output_indices_ = {name: slice(start, stop) for name, start, stop in outputs}
    return made


def _names(stored: ArchiveReader, coded: list[Any], n_columns: int) -> NDArray[Any]:
    found = stored.objects("names", coded)
    if len(found) != n_columns:
        raise stored.error(f"a step must have {n_columns} column names; got {len(found)}")
    names = np.empty(len(found), dtype=object)
    names[:] = found
    return names


_CONTAINERS_OF_STEPS: dict[str, Callable[[_Node], Any]] = {
    "Pipeline": _decode_pipeline,
    "FeatureUnion": _decode_union,
    "ColumnTransformer": _decode_columns,
}


def _decode_plain(node: _Node) -> Any:
    stored, kind = node.stored, _CLASSES.get(node.kind)
    if kind is None:
        raise stored.error(f"a step must be of a known class; got {node.kind[:80]!r}")
    form = STEPS[kind]
    made = kind()
    for name, value in _known(node, "parameters", form.parameters).items():
        setattr(made, name, _decode_parameter(stored, name, value))
    for name, value in _known(node, "fitted", tuple(form.fitted)).items():
        setattr(made, name, _decode_fitted(stored, name, form.fitted[name], value))
    width = getattr(made, "n_features_in_", None)
    if type(width) is not int or width < 0:
        raise stored.error(f"{node.kind} must have a number of columns")
    try:
        problem = form.check(made)
    except Exception as error:  # an attribute is missing, or not of the kind that the class expects
        raise stored.error(f"the attributes of {node.kind} must match each other") from error
    if problem is not None:
        raise stored.error(f"{node.kind}: {problem}")
    return made


def _known(node: _Node, place: str, names: tuple[str, ...]) -> dict[str, Any]:
    found: dict[str, Any] = node.take(place, dict)
    unknown = [name for name in found if name not in names]
    if unknown:
        raise node.stored.error(f"{node.kind} must have no {unknown[0][:80]!r}")
    return found


def _decode_parameter(stored: ArchiveReader, name: str, value: Any) -> Any:
    if name == "dtype":
        return _dtype(stored, value).type
    if name in ("func", "inverse_func") and value is not None:
        found = _OURS.get(value) or _UFUNCS.get(value) if type(value) is str else None
        if found is None:
            raise stored.error("the function of a step must be a NumPy ufunc or a function of whycluster")
        return found
    if name == "kw_args" and type(value) is dict:
        return dict(value)
    return stored.object(name, value)


def _dtype(stored: ArchiveReader, value: Any) -> np.dtype[Any]:
    if type(value) is not str or value not in _DTYPES:
        raise stored.error(f"the dtype of a step must be one of {', '.join(_DTYPES)}")
    return np.dtype(value)


def _decode_fitted(stored: ArchiveReader, name: str, what: str, value: Any) -> Any:
    if value is None:
        return None
    if what == SCALAR:
        return stored.object(name, value)
    if what == DTYPE:
        return _dtype(stored, value)
    if what == STEP:
        return _decode_step(stored, value)
    if what == MAP:
        return _decode_map(stored, name, value)
    if what == LISTS:
        if type(value) is not list:
            raise stored.error(f"{name!r} must be a list of arrays")
        return [None if each is None else _take(stored, name, each) for each in value]
    return _take(stored, name, value)


def _decode_map(stored: ArchiveReader, name: str, value: Any) -> dict[int, int]:
    whole = type(value) is list and all(type(pair) is list and len(pair) == 2 for pair in value)
    if not whole or not all(type(item) is int for pair in value for item in pair):
        raise stored.error(f"{name!r} must be pairs of integers")
    return dict(value)


def _take(stored: ArchiveReader, name: str, value: Any) -> Any:
    """Return the array or the sparse matrix that a reference names."""
    if type(value) is not dict or value.keys() - {"by_columns"} not in (
        {"array", "shape"},
        {"sparse", "shape"},
    ):
        raise stored.error(f"{name!r} must refer to an array")
    shape, place = value["shape"], value.get("array", value.get("sparse"))
    valid = type(shape) is list and all(type(length) is int and length >= 0 for length in shape)
    if type(place) is not str or not valid or len(shape) > _MOST_AXES:
        raise stored.error(f"{name!r} must have the name and the shape of an array")
    if "sparse" in value:
        if len(shape) != 2:
            raise stored.error(f"{name!r} must have two axes")
        return sparse.csr_matrix(stored.sparse_parts(place, *shape), shape=shape)
    values = stored.values(place, "?")
    if math.prod(shape) != values.size:
        raise stored.error(f"{name!r} must have shape {tuple(shape)}; it has {values.size} values")
    return values.reshape(shape, order=_order(value)) if shape else values.reshape(())[()]


def _order(value: dict[str, Any]) -> Literal["C", "F"]:
    return "F" if value.get("by_columns") is True else "C"
