"""Dask arrays and data frames, explained lazily and partition by partition.

`engines.parts` says how: what depends on all rows is measured on every partition and added up in a tree;
then one task explains each partition, and relevance, clusters and evidence are taken of what it gives.

Each of the two steps reads the data anew. If both took a partition from one task, Dask would have to keep
it until the last row has been measured, and so all of the data at a time. See `_blocks` and `_measured`.
"""

from __future__ import annotations

from collections import UserDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial, reduce
from itertools import accumulate
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from whycluster.core.attribution import Attribution, Population
from whycluster.core.errors import InvalidInputError, MissingDependencyError
from whycluster.core.rules import DEFAULT_RULE
from whycluster.data.arrays import is_dask, is_sparse
from whycluster.data.frames import unique_name
from whycluster.data.opening import open_table
from whycluster.data.table import Table
from whycluster.engines.aggregates import Aggregate
from whycluster.engines.dask.parts import PartitionResult, Partitions, holds_numbers
from whycluster.engines.request import ExplainRequest, PartResult
from whycluster.explanations.explanation import Explanation
from whycluster.explanations.fidelity import Fidelity
from whycluster.explanations.summary import Summary
from whycluster.models.adapters.registry import to_network
from whycluster.models.network import Network

_TOGETHER = 16  # results of partitions that one task adds up


class _Named(UserDict[Any, Any]):
    """A graph that Dask can tell from others by its name, rather than by a look at each of its tasks."""

    def __init__(self, graph: Mapping[Any, Any], name: str) -> None:
        super().__init__(graph)
        self.name = name

    def __dask_tokenize__(self) -> str:
        return self.name


@dataclass(frozen=True, eq=False, repr=False)
class LazyExplanation:
    """Why each row of a Dask collection is in its cluster; nothing is computed until it is asked for.

    Made by `whycluster.explain`. All arrays are Dask's, with the rows in the chunks of the data. One task
    explains a partition, whatever is taken of it; so compute several attributes in one `dask.compute`.

    Attributes
    ----------
    relevance : (n, d)
    evidence, cluster, competitor : (n,); `Explanation` says what they are
    beta : the stiffness: a number if it was given, or else lazy (`dask.delayed`), and all relevance waits for
        it; None for contrasts, which need none
    rule, threshold, fidelity : as in `Explanation`
    labels : (K,) the labels of all clusters, in memory
    feature_names : the d names
    data : the collection as it was given
    """

    data: Any
    _parts: Partitions
    _blocks: Any  # the Dask array of what tasks are given: blocks of an array, or frames in their place
    _known: Any  # Delayed: the partitions, with what has to be measured on all of them

    @property
    def feature_names(self) -> list[Hashable]:
        """The d names."""
        return self._parts.feature_names

    @property
    def labels(self) -> NDArray[Any]:
        """(K,) the labels of all clusters."""
        return self._asked.labels

    @property
    def fidelity(self) -> Fidelity | None:
        """How well a surrogate matches the clustering."""
        return self._asked.network.fidelity

    @property
    def threshold(self) -> float | None:
        """The probability that the cluster's was explained to exceed."""
        threshold: float | None = self._asked.options["threshold"]
        return threshold

    @property
    def rule(self) -> str:
        """By which rule the evidence is shared."""
        return self._asked.coded.rule

    @property
    def beta(self) -> Any:
        """The stiffness, lazy where it is measured."""
        from dask.delayed import delayed

        if not self._asked.needs_population:
            return self._asked.beta
        return delayed(_beta, pure=True)(self._known)

    @property
    def _asked(self) -> ExplainRequest:
        return self._parts.request

    @cached_property
    def _explained(self) -> Any:
        """(n, d) a Dask array with one `PartitionResult` in the place of each block."""
        return _each(_explain, self._blocks, object, parts=self._known)

    @cached_property
    def relevance(self) -> Any:
        """(n, d) the relevance of every feature."""
        return _each(_take_relevance, self._explained, self._parts.dtype)

    @cached_property
    def evidence(self) -> Any:
        """(n,) how much better the cluster fits than its strongest competitor."""
        return _by_rows(_take, self._explained, self._parts.dtype, field="evidence")

    @cached_property
    def cluster(self) -> Any:
        """(n,) the label of the cluster that is explained."""
        return self._labelled("cluster")

    @cached_property
    def competitor(self) -> Any:
        """(n,) the label of its strongest competitor."""
        return self._labelled("competitor")

    def _labelled(self, field: str) -> Any:
        return _by_rows(_take_label, self._explained, self.labels.dtype, field=field, parts=self._known)

    def to_frame(self) -> Any:
        """A Dask DataFrame: cluster, competitor, evidence, then the relevance of every feature.

        It has the partitions, divisions and index of the DataFrame that is explained. The index of an array
        is the position of each row; where chunks are of unknown size, the position in its chunk.
        """
        try:
            import dask.dataframe as dd
        except ImportError as error:
            raise MissingDependencyError(
                'to_frame needs dask.dataframe: pip install "whycluster[dask]"'
            ) from error
        framed = _by_rows(_frame, self._explained, object, parts=self._known)
        codes, numbers = np.empty(0, np.intp), np.empty((0, len(self.feature_names)), self._parts.dtype)
        index = 0 if self._parts.columns is None else self.data._meta.index
        meta = _frame([PartitionResult(codes, codes, numbers.sum(axis=1), numbers, index, 0)], self._parts)
        keys = framed.__dask_keys__()
        graph = framed.__dask_optimize__(framed.__dask_graph__(), keys)
        return dd.from_graph(_Named(graph, framed.name), meta, self._divisions, keys, "explain")

    @property
    def _divisions(self) -> tuple[Any, ...]:
        if self._parts.columns is not None:
            divisions = tuple(self.data.divisions)
            n_blocks = self._blocks.numblocks[0]  # fewer, where Dask reads several small files as one
            return divisions if len(divisions) == n_blocks + 1 else (None,) * (n_blocks + 1)
        starts, sizes = self._parts.starts, self._blocks.chunks[0]
        if starts is None or not all(sizes):  # one without rows has no first
            return (None,) * (len(sizes) + 1)
        return (*starts, starts[-1] + sizes[-1] - 1)

    def summary(self) -> Any:
        """What makes each cluster, lazily: a `dask.delayed` that computes to a `Summary`.

        It is that of `Explanation.summary`; of columns that hold no numbers it has the relevance only.
        """
        if self._asked.options["target"] is not None or self._asked.options["against"] is not None:
            raise InvalidInputError(
                "summary: rows must be explained for their own clusters, against all others. Explain without "
                "target and against."
            )
        total = _in_a_tree(_merge, self._with_data(_aggregate))
        return _delayed(_summarize, total, self._known)

    def _with_data(self, function: Callable[..., Any]) -> Any:
        """What a function makes of each partition, explained and as it is, which is read once for both."""
        import dask.array as da

        both = (self._explained, "ij", self._blocks, "ij")
        options = {"dtype": object, "meta": np.empty(0, object), "concatenate": False}
        return da.blockwise(function, "i", *both, parts=self._known, **options)

    def compute(self, **options: Any) -> Explanation:
        """All of it in memory, with the data; ``options`` are those of `dask.compute`."""
        import dask

        parts = self._with_data(_keep).to_delayed()
        (found,) = dask.compute(parts.tolist(), **options)
        explained, data, beta = zip(*found, strict=True)
        network = self._asked.network
        table = network.open(_join(data), self._asked.where, feature_names=self._asked.feature_names)
        columns = zip(*(part[:4] for part in explained), strict=True)
        cluster, competitor, evidence, relevance = (np.concatenate(column) for column in columns)
        return Explanation.of(
            Attribution(relevance, cluster, competitor, evidence, beta[0]),
            self._asked.coded,
            network.energy,
            table,
            self.labels,
            self.fidelity,
            relevance=relevance,
        )

    def __getattr__(self, name: str) -> NoReturn:
        """Say where to find what only an `Explanation` has."""
        there = " An Explanation has it: compute() gives one." * hasattr(Explanation, name)
        raise AttributeError(f"a LazyExplanation has no attribute {name!r}.{there}", name=name, obj=self)

    def __repr__(self) -> str:
        n, d = self._blocks.numblocks[0], len(self.feature_names)
        counts = f"{n} partition{'s' * (n != 1)}, {d} feature{'s' * (d != 1)}, {len(self.labels)} clusters"
        beta = "" if self.beta is None else ", beta measured"
        beta = f", beta={self.beta:.4g}" if isinstance(self.beta, float) else beta
        return f"<LazyExplanation of {counts} ({self.rule}{beta}); compute() gives an Explanation>"


def explain_lazily(
    model: Any,
    X: Any,
    *,
    target: Any = None,
    against: Any = None,
    beta: float | str = "auto",
    rule: str = DEFAULT_RULE,
    threshold: float | None = None,
    background: Any = None,
    feature_names: Sequence[Hashable] | None = None,
    metric: str | None = None,
    categorical: Sequence[int] | None = None,
    at: str | None = None,
    units: str | None = None,
) -> LazyExplanation:
    """`whycluster.explain` of a Dask array or DataFrame; the parameters are described there."""
    for name, clusters in (("target", target), ("against", against)):
        if isinstance(clusters, (list, tuple)) or getattr(clusters, "ndim", 0) > 0:
            raise InvalidInputError(
                f"explain: {name} must be one cluster for all rows of a Dask collection, not one for each. "
                "Ask for one cluster at a time."
            )
    if at is not None or units is not None:
        raise InvalidInputError(
            "explain: at and units are for deep clusterings, which do not take Dask collections. "
            "Leave them out."
        )
    if categorical is not None:
        model, metric = to_network(model, metric=metric, categorical=categorical), None
    request = ExplainRequest.of(
        model,
        "explain",
        target=target,
        against=against,
        beta=beta,
        rule=rule,
        threshold=threshold,
        feature_names=feature_names,
        metric=metric,
    )
    parts = _look_at(X, request)
    if request.needs_population and background is not None and not is_dask(background):
        parts = replace(parts, request=request.measured_on(background, parts.columns))
    known = _shared(parts)
    if parts.request.needs_population:
        population = _measured(X, parts) if background is None else _measured_on(background, parts)
        known = _delayed(_know, known, population)
    return LazyExplanation(X, parts, _blocks(X, "explain"), known)


def assign_lazily(network: Network, X: Any) -> Any:
    """The label of each row of a Dask array or DataFrame, (n,), as a Dask array."""
    parts = _look_at(X, ExplainRequest.of(network, "assign"))
    assigned = _each(_assign, _blocks(X, "assign"), object, parts=_shared(parts))
    return _by_rows(_only, assigned, network.labels.dtype)


def _look_at(
    X: Any, request: ExplainRequest, name: str = "X", known_names: list[Hashable] | None = None
) -> Partitions:
    """What is asked of the partitions of a collection; raises for all that can be told without reading them.

    ``known_names`` are the columns to match a frame with, if the model knows none.
    """
    import dask.array as da

    network = request.network
    names = network.feature_names or known_names
    if isinstance(X, da.Array):
        first = _first_row_of(X, request, name, names)
        sizes = X.chunks[0]
        starts = None if any(map(np.isnan, sizes)) else [0, *accumulate(sizes[:-1])]
        return Partitions(request, name, None, frozenset(), first.feature_names, first.dtype, starts)
    if not _is_frame(X):
        raise InvalidInputError(
            f"{request.where}: {name} must be a Dask array or DataFrame; got a Dask {type(X).__name__}."
        )
    if names is None and len(X.columns) != network.n_features:
        raise InvalidInputError(
            f"{request.where}: {name} must have {network.n_features} features, as the model was fitted on; "
            f"got {len(X.columns)} columns."
        )
    first = _typed(X._meta_nonempty, request, name, names)
    columns = list(X.columns) if known_names is None or network.feature_names else known_names
    numbers = frozenset(column for column in columns if holds_numbers(X.dtypes[column]))
    return Partitions(request, name, columns, numbers, first.feature_names, first.dtype, None)


def _is_frame(X: Any) -> bool:
    return hasattr(type(X), "map_partitions") and getattr(X, "ndim", 0) == 2  # a Delayed has anything


def _blocks(X: Any, step: str) -> Any:
    """The Dask array of the partitions, (n, d), with all columns in a block; frames are blocks themselves.

    Dask joins what leads to a partition in a straight line, such as the reading of a file, into one task, if
    only one step needs it. So that each has its own, tasks are called by their step, and joined at once; but
    for layers of tasks that are alike, which are joined with the step itself when it is computed.
    """
    import dask
    from dask.blockwise import Blockwise

    if _is_frame(X):
        width = np.empty((0, len(X.columns)))
        blocks = X.map_partitions(_same, step, meta=width, enforce_metadata=False, align_dataframes=False)
    else:
        whole = X if X.numblocks[1] == 1 else X.rechunk({1: -1})  # a row is explained as a whole
        blocks = whole.map_blocks(_same, step, dtype=X.dtype, meta=whole._meta)
    alike = (isinstance(layer, Blockwise) or len(layer) == 1 for layer in blocks.dask.layers.values())
    return blocks if all(alike) else dask.optimize(blocks)[0]


def _first_row_of(X: Any, request: ExplainRequest, name: str, names: list[Hashable] | None) -> Table:
    n_features = request.network.n_features
    if X.ndim != 2:
        raise InvalidInputError(
            f"{request.where}: {name} must be two-dimensional (rows, features); got shape {X.shape}."
        )
    if X.shape[1] != n_features:
        raise InvalidInputError(
            f"{request.where}: {name} must have {n_features} features, as the model was fitted on; "
            f"got shape {X.shape}."
        )
    return _typed(np.zeros((1, n_features), X.dtype), request, name, names)


def _typed(like: Any, request: ExplainRequest, name: str, names: list[Hashable] | None) -> Table:
    """A table of a row or two that are like those to come: for their names and dtype, and what is wrong."""
    network = request.network
    table = open_table(
        like,
        where=request.where,
        name=name,
        n_features=network.n_features,
        model_names=names,
        feature_names=request.feature_names,
        any_kind=network.takes_any_kind,
    )
    return table if network.categories is None else replace(table, dtype=np.dtype(np.float64))


def _measured_on(background: Any, parts: Partitions) -> Any:
    """What is measured on another collection than the one that is explained."""
    request = replace(parts.request, feature_names=None)
    return _measured(background, _look_at(background, request, "background", parts.columns))


def _measured(X: Any, parts: Partitions) -> Any:
    """The population of all partitions, lazily: each is measured, and what comes is added up in a tree.

    What is turned into a `dask.delayed` has its tasks joined, before others are there to share any of them.
    """
    blocks = _each(_measure, _blocks(X, "measure"), object, parts=_shared(parts))
    return _in_a_tree(_add_up, blocks)


def _in_a_tree(function: Callable[[list[Any]], Any], blocks: Any) -> Any:
    """What a function that adds some blocks up makes of all of them, as a `dask.delayed`."""
    import dask.array as da

    total = da.reduction(
        blocks,
        chunk=_as_it_is,
        aggregate=partial(_reduce, function),
        axis=tuple(range(blocks.ndim)),
        split_every=dict.fromkeys(range(blocks.ndim), _TOGETHER),
        concatenate=False,
        dtype=object,
        meta=np.empty((), object),
    )
    return total.to_delayed().item()


def _shared(parts: Partitions) -> Any:
    """One key of the graph for what all tasks need, be it large."""
    from dask.base import tokenize
    from dask.delayed import delayed

    return delayed(parts, name=f"partitions-{tokenize(parts)}", traverse=False)


def _delayed(function: Callable[..., Any], *values: Any) -> Any:
    from dask.delayed import delayed

    return delayed(function, pure=True)(*values)


def _each(function: Callable[..., Any], blocks: Any, dtype: Any, **options: Any) -> Any:
    """What a function makes of each block, in the same chunks."""
    return blocks.map_blocks(function, dtype=dtype, meta=np.empty((0, 0), dtype), **options)


def _by_rows(function: Callable[..., Any], blocks: Any, dtype: Any, **options: Any) -> Any:
    """What a function makes of each block, (n,); it is given a list of the only block that its rows have."""
    import dask.array as da

    meta = np.empty(0, dtype)
    return da.blockwise(function, "i", blocks, "ij", dtype=dtype, meta=meta, concatenate=False, **options)


# What tasks do: functions of a module, which workers find by their names.


def _same(part: Any, step: str) -> Any:  # noqa: ARG001  # it makes the task another one
    return part


def _as_it_is(block: Any, axis: Any, keepdims: bool) -> Any:  # noqa: ARG001  # a reduction gives these
    return block


def _reduce(function: Callable[[list[Any]], Any], blocks: list[Any], axis: Any, keepdims: bool) -> Any:  # noqa: ARG001
    from dask.core import flatten

    return function(list(flatten(blocks)))


def _measure(block: Any, parts: Partitions, block_id: tuple[int, ...]) -> Population:
    return parts.measure(block, block_id[0])


def _add_up(populations: list[Population]) -> Population:
    return reduce(Population.__add__, populations)


def _know(parts: Partitions, population: Population) -> Partitions:
    return parts.knowing(population)


def _beta(parts: Partitions) -> float | None:
    return parts.request.beta


def _explain(block: Any, parts: Partitions, block_id: tuple[int, ...]) -> PartitionResult:
    return parts.explain(block, block_id[0])


def _assign(block: Any, parts: Partitions, block_id: tuple[int, ...]) -> NDArray[Any]:
    return parts.assign(block, block_id[0])


def _only(blocks: list[NDArray[Any]]) -> NDArray[Any]:
    return blocks[0]


def _keep(
    explained: list[PartitionResult], blocks: list[Any], parts: Partitions
) -> tuple[PartitionResult, Any, float | None]:
    """All that is to be known of a partition, in memory."""
    return explained[0], parts.checked(blocks[0]), parts.request.beta


def _aggregate(explained: list[PartitionResult], blocks: list[Any], parts: Partitions) -> Aggregate:
    (found,) = explained
    return parts.told(blocks[0], found.number, lambda part: _add(part, found, parts))


def _add(part: Any, found: PartitionResult, parts: Partitions) -> Aggregate:
    """What the rows of a partition, explained, say of their clusters."""
    request, names = parts.request, [str(name) for name in parts.feature_names]
    aggregate = Aggregate.empty(len(request.labels), len(names), most=1)
    if len(found.evidence):
        table = request.network.open(part, request.where, whole=False, feature_names=request.feature_names)
        answer = PartResult(*found[:4], names, None, table)
        aggregate.add(answer, np.random.default_rng(0))  # which draws what is not used here
    return aggregate


def _merge(aggregates: list[Aggregate]) -> Aggregate:
    n_clusters, n_features = aggregates[0].relevance.shape
    total = Aggregate.empty(n_clusters, n_features, most=1)
    for aggregate in aggregates:
        total.merge(aggregate)
    return total


def _summarize(total: Aggregate, parts: Partitions) -> Summary:
    return total.summary(parts.request.labels, [str(name) for name in parts.feature_names])


def _take(blocks: list[PartitionResult], field: str) -> NDArray[Any]:
    values: NDArray[Any] = getattr(blocks[0], field)
    return values


def _take_relevance(explained: PartitionResult) -> NDArray[Any]:
    return explained.relevance


def _take_label(blocks: list[PartitionResult], field: str, parts: Partitions) -> NDArray[Any]:
    labels: NDArray[Any] = parts.request.labels[_take(blocks, field)]
    return labels


def _frame(blocks: list[PartitionResult], parts: Partitions) -> Any:
    """A frame of pandas, as `Explanation.to_frame` gives it."""
    import pandas as pd

    (found,), names = blocks, parts.feature_names
    labels = parts.request.labels
    if labels.dtype == object:  # a column of each partition must be of one kind
        labels = labels.astype(str)
    claimed = {
        "cluster": labels[found.cluster],
        "competitor": labels[found.competitor],
        "evidence": found.evidence,
    }
    n_rows = len(found.evidence)
    index = pd.RangeIndex(found.index, found.index + n_rows) if parts.columns is None else found.index
    frame = pd.DataFrame(found.relevance, index=index, columns=pd.Index(names))
    for place, (name, values) in enumerate(claimed.items()):
        frame.insert(place, unique_name(name, names), values)
    return frame


def _join(parts: Sequence[Any]) -> Any:
    """All rows of partitions that are in memory."""
    some = [part for part in parts if part.shape[0]] or list(parts[:1])
    if is_sparse(some[0]):
        from scipy import sparse

        return sparse.vstack(some, format="csr")
    if hasattr(some[0], "columns"):
        import pandas as pd

        return pd.concat(some)
    return np.concatenate(some)
