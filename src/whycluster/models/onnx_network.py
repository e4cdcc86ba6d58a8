"""A nearest-centroid model and the explanation of its rows as an ONNX graph.

The formulas are those of `whycluster.core`: energies, evidence, the weights of a rule, relevance. The graph
consists of matrix products and has no tensor of shape (rows, clusters, features). It computes in float64.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Iterable
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from whycluster.core.arrays import Codes
from whycluster.core.attribution import CodedQuery, Population, measured
from whycluster.core.energies import Energy, SquaredEnergy
from whycluster.core.errors import InvalidInputError
from whycluster.core.rows import Rows
from whycluster.core.rules import CONTRAST, JOINT, MIN_TAKE_MOST, NODE_WEIGHTS, PATH, SIXTEENTHS, Sharing
from whycluster.data.validation import check_choice
from whycluster.explanations.exchange.json_values import to_plain
from whycluster.models.scaling import Scaling

# From 2020, so that older runtimes read the model; later versions add nothing that the graph needs.
_OPSET, _IR_VERSION = 13, 7
_DTYPES = {"float64": TensorProto.DOUBLE, "float32": TensorProto.FLOAT}
_SUPPORTED_RULES = (PATH, MIN_TAKE_MOST, JOINT, CONTRAST)
_OUTPUTS = {
    "cluster": "the position in labels of the cluster of each row; -1 if a value is missing or infinite",
    "competitor": "the position in labels of the strongest competitor of each row, or -1",
    "evidence": "how much closer each row is to its cluster than to the competitor, as squared distances",
    "relevance": "the part of the evidence that each feature contributes",
}

Tensor: TypeAlias = "str | NDArray[Any] | float"
"""The name of a computed tensor, or a constant."""


class Facts(NamedTuple):
    """The metadata of the model, with all values written as JSON."""

    labels: Iterable[Any]
    feature_names: Iterable[Hashable]
    rule: str
    beta: float | None


class _Graph:
    """The nodes and constants of a graph; calling it adds a node and returns the name of its output."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[TensorProto] = []

    def __call__(self, operation: str, *inputs: Tensor, out: str | None = None, **attributes: Any) -> str:
        names = [each if isinstance(each, str) else self._constant(each) for each in inputs]
        out = out or f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(operation, names, [out], **attributes))
        return out

    def _constant(self, values: NDArray[Any] | float) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(
            numpy_helper.from_array(np.ascontiguousarray(values).reshape(np.shape(values)), name)
        )
        return name

    def sum_rows(self, x: str) -> str:
        """Return the sum of each row, (n, 1)."""
        return self("ReduceSum", x, np.array([1]), keepdims=1)

    def power(self, x: str, exponent: int) -> str:
        """Return x raised to a positive integer power, by multiplication, as the core computes it."""
        if exponent == 1:
            return x
        half = self.power(x, exponent // 2)
        square = self("Mul", half, half)
        return self("Mul", square, x) if exponent % 2 else square


class _Competition(NamedTuple):
    """The evidence of each row: cluster and competitor, (n, 1); f, (n, 1); h and own, (n, K)."""

    cluster: str
    competitor: str
    f: str
    h: str  # 0 for the row's own cluster
    own: str  # whether k is the row's own cluster


def check_options(rule: str, dtype: Any) -> None:
    """Raise an error if there is no graph for this rule or dtype."""
    check_choice(dtype, _DTYPES, "to_onnx", "dtype")
    check_choice(rule, _SUPPORTED_RULES, "to_onnx", "rule")


def complete(query: CodedQuery, energy: Energy, background: Rows | Population | None) -> CodedQuery:
    """Return the query with all that it takes from the background."""
    to_measure = query.to_measure(energy)
    if not to_measure:
        return query
    if background is None:
        raise InvalidInputError(
            f"to_onnx: background must be the rows on which to measure {' and '.join(to_measure)}, "
            'usually those that the model was fitted on; got None. Only rule="contrast" needs none.'
        )
    return measured(query, energy, background)


def build(
    energy: SquaredEnergy, scaling: Scaling | None, sharing: Sharing, dtype: str, facts: Facts
) -> onnx.ModelProto:
    """Return the model.

    Parameters
    ----------
    energy : the centroids
    scaling : the scalers before them, or None
    sharing : the rule, with beta and the prior if it uses them
    dtype : that of the rows, the evidence and the relevance
    facts : the metadata
    """
    g = _Graph()
    x = _read(g, energy, scaling)
    codes = np.arange(energy.n_clusters, dtype=np.int64)
    found = _compete(g, _energies(g, energy, x), codes)
    weights = _weigh(g, found, sharing, codes)
    relevance = _by_column(g, _combine(g, energy, x, weights), scaling)
    _write(g, found, relevance, _DTYPES[dtype])
    return _model(g, energy.n_features if scaling is None else scaling.n_columns, _DTYPES[dtype], facts)


def _read(g: _Graph, energy: SquaredEnergy, scaling: Scaling | None) -> str:
    """Return the features, without the offset of the energy."""
    x = g("Cast", "X", to=TensorProto.DOUBLE)
    if scaling is not None:
        x = g("Gather", x, scaling.columns.astype(np.int64), axis=1)
        x = g("Sub", x, scaling.center)
        x = g("Add", g("Mul", x, scaling.factor), scaling.shift)
    return x if energy.offset is None else g("Sub", x, energy.offset)


def _energies(g: _Graph, energy: SquaredEnergy, x: str) -> str:
    """Return s_k, (n, K), without |x|^2 if the squares are expanded."""
    if energy.linear is None:
        distances = [g.sum_rows(_split(g, energy, x, k)) for k in range(energy.n_clusters)]
        return g("Concat", *distances, axis=1)
    slopes, bias = energy.linear
    s = g("Add", g("MatMul", x, slopes.T), bias)
    # Runtimes may sum equal columns in different orders, which would break ties between equal centroids.
    originals = energy.originals.astype(np.int64)
    has_copies = bool((originals != np.arange(len(originals))).any())
    return g("Gather", s, originals, axis=1) if has_copies else s


def _split(g: _Graph, energy: SquaredEnergy, x: str, k: int) -> str:
    """Return (x - mu_k)^2, (n, d)."""
    assert energy.squared_terms is not None
    centroids, scale = energy.squared_terms
    apart = g("Sub", x, centroids[k])
    return g("Mul", g("Mul", apart, apart), scale)


def _compete(g: _Graph, s: str, codes: Codes) -> _Competition:
    """Return the evidence of each row; on a tie, the first cluster wins."""
    cluster = g("ArgMin", s, axis=1, keepdims=1)
    own = g("Equal", codes, cluster)
    h = g("Sub", s, g("ReduceMin", s, axes=[1], keepdims=1))
    others = g("Where", own, np.inf, h)
    competitor = g("ArgMin", others, axis=1, keepdims=1)
    f = g("ReduceMin", others, axes=[1], keepdims=1)
    return _Competition(cluster, competitor, f, g("Where", own, 0.0, h), own)


def _weigh(g: _Graph, found: _Competition, sharing: Sharing, codes: Codes) -> str:
    """Return the weights a_k, (n, K), which sum to 0 in each row."""
    if sharing.rule == CONTRAST:
        chosen = g("Equal", codes, found.competitor)
        a = g("Cast", chosen, to=TensorProto.DOUBLE)
    else:
        a = _RULES[sharing.rule](g, found, sharing)
    return g("Where", found.own, g("Neg", g.sum_rows(a)), a)


def _path(g: _Graph, found: _Competition, sharing: Sharing) -> str:
    """Return the weights of the path rule; see `whycluster.core.rules`."""
    assert sharing.prior is not None
    rate = _stiffness(sharing) / -16.0
    y = _soft_min(g, found, rate)
    shared, w = g("Exp", g("Mul", found.f, rate)), sharing.prior.weights
    total: str | None = None
    for m, weight in zip(SIXTEENTHS, NODE_WEIGHTS, strict=True):
        odds = g("Mul", g.power(y, m), w)
        rest = g("Mul", g.power(shared, m), g.sum_rows(odds))
        scale = g("Div", weight, g("Add", g("Gather", w, found.cluster), rest))
        if m > 1:
            scale = g("Mul", scale, g.power(shared, m - 1))
        part = g("Mul", odds, scale)
        total = part if total is None else g("Add", total, part)
    assert total is not None
    return _normalize_jointly(g, found, total)


def _joint(g: _Graph, found: _Competition, sharing: Sharing) -> str:
    return _normalize_jointly(g, found, _soft_min(g, found, -_stiffness(sharing)))


def _min_take_most(g: _Graph, found: _Competition, sharing: Sharing) -> str:
    p = _soft_min(g, found, -_stiffness(sharing))
    return g("Mul", g("Div", p, g.sum_rows(p)), _ratio(g, found.f, found.h))


_RULES: dict[str, Callable[[_Graph, _Competition, Sharing], str]] = {
    PATH: _path,
    JOINT: _joint,
    MIN_TAKE_MOST: _min_take_most,
}


def _stiffness(sharing: Sharing) -> float:
    assert sharing.beta is not None
    return float(min(sharing.beta, np.finfo(np.float64).max))


def _soft_min(g: _Graph, found: _Competition, rate: float) -> str:
    """Return exp(rate (h_k - f_c)), and 0 for the row's own cluster."""
    y = g("Exp", g("Mul", g("Sub", found.h, found.f), rate))
    return g("Where", found.own, 0.0, y)


def _normalize_jointly(g: _Graph, found: _Competition, p: str) -> str:
    """Return p_k f_c / sum_j p_j h_j, or p_k / sum_j p_j if all h_k are 0."""
    p = g("Div", p, g.sum_rows(p))
    return g("Mul", p, _ratio(g, found.f, g.sum_rows(g("Mul", p, found.h))))


def _ratio(g: _Graph, numerator: str, denominator: str) -> str:
    """Return numerator / denominator, or 1 where the denominator is 0."""
    is_zero = g("Equal", denominator, 0.0)
    return g("Where", is_zero, 1.0, g("Div", numerator, g("Where", is_zero, 1.0, denominator)))


def _combine(g: _Graph, energy: SquaredEnergy, x: str, weights: str) -> str:
    """Return sum_k a_k (x - mu_k)^2; if expanded, it is sum_k a_k mu_k^2 - 2 x * sum_k a_k mu_k."""
    if energy.linear is not None:
        return g(
            "Add", g("MatMul", weights, energy.squares), g("Mul", g("MatMul", weights, energy.slopes), x)
        )
    total: str | None = None
    for k in range(energy.n_clusters):
        part = g("Mul", _split(g, energy, x, k), g("Gather", weights, np.array([k]), axis=1))
        total = part if total is None else g("Add", total, part)
    assert total is not None
    return total


def _by_column(g: _Graph, relevance: str, scaling: Scaling | None) -> str:
    """Return the relevance of the columns, which is 0 for those that the scalers leave out."""
    if scaling is None or np.array_equal(scaling.columns, np.arange(scaling.n_columns)):
        return relevance
    feature, is_used = np.zeros(scaling.n_columns, np.int64), np.zeros(scaling.n_columns)
    feature[scaling.columns], is_used[scaling.columns] = np.arange(len(scaling.columns)), 1.0
    return g("Mul", g("Gather", relevance, feature, axis=1), is_used)


def _write(g: _Graph, found: _Competition, relevance: str, dtype: int) -> None:
    """Write the outputs. Rows whose evidence is not finite, which `explain` refuses, get -1 and NaN."""
    is_finite = g("Equal", g("Sub", found.f, found.f), 0.0)
    for name, code in (("cluster", found.cluster), ("competitor", found.competitor)):
        g("Squeeze", g("Where", is_finite, code, np.array(-1)), np.array([1]), out=name)
    evidence = g("Squeeze", g("Where", is_finite, found.f, np.nan), np.array([1]))
    g("Cast", evidence, to=dtype, out="evidence")
    g("Cast", g("Where", is_finite, relevance, np.nan), to=dtype, out="relevance")


def _model(g: _Graph, n_columns: int, dtype: int, facts: Facts) -> onnx.ModelProto:
    types = {"cluster": TensorProto.INT64, "competitor": TensorProto.INT64}
    rows = helper.make_tensor_value_info(
        "X", dtype, ["rows", n_columns], "the rows, in the order of feature_names"
    )
    outputs = [
        helper.make_tensor_value_info(
            name, types.get(name, dtype), ["rows", n_columns] if name == "relevance" else ["rows"], meaning
        )
        for name, meaning in _OUTPUTS.items()
    ]
    graph = helper.make_graph(g.nodes, "whycluster", [rows], outputs, g.constants)
    model = helper.make_model(
        graph,
        producer_name="whycluster",
        ir_version=_IR_VERSION,
        opset_imports=[helper.make_opsetid("", _OPSET)],
    )
    helper.set_model_props(model, {key: json.dumps(_plain(value)) for key, value in facts._asdict().items()})
    return model


def _plain(value: Any) -> Any:
    is_list = not isinstance(value, (str, float)) and value is not None
    return [to_plain(each) for each in value] if is_list else to_plain(value)
