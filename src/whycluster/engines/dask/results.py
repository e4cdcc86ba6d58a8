"""Results for Dask collections: `LazyExplanation` and the tasks that take results from partitions."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from whycluster.core.arrays import Codes
from whycluster.core.attribution import BETA, CodedQuery
from whycluster.core.errors import InvalidInputError, MissingDependencyError
from whycluster.data.arrays import is_sparse
from whycluster.data.frames import unique_name
from whycluster.engines.aggregates import Aggregate
from whycluster.engines.dask.graph import NamedGraph, by_rows, call_later, each_block, reduce_in_tree
from whycluster.engines.dask.parts import Partition, Partitions
from whycluster.engines.request import ExplainRequest
from whycluster.engines.results import PartResult
from whycluster.explanations.explanation import Explanation
from whycluster.explanations.fidelity import Fidelity
from whycluster.explanations.summaries.summary import Summary


class PartitionResult(NamedTuple):
    """The explanations of the rows of one partition."""

    cluster: Codes  # (n,)
    competitor: Codes  # (n,)
    evidence: NDArray[Any]  # (n,)
    relevance: NDArray[Any]  # (n, d)
    index: Any  # the index of a frame, or the position of an array's first row (0 if unknown)
    number: int  # the number of the partition


@dataclass(frozen=True, eq=False, repr=False)
class LazyExplanation:
    """An explanation of why each row of a Dask collection is in its cluster, computed only on request.

    Returned by `whycluster.explain`. All arrays are Dask arrays with the chunks of the data. One task
    explains a partition for all attributes at once, so compute several attributes in one call to
    `dask.compute`.

    Attributes
    ----------
    relevance : (n, d)
    evidence, cluster, competitor : (n,) as in `Explanation`
    beta : the stiffness: a number if the user or the model provides it, otherwise lazy (`dask.delayed`), or
        None for contrasts, which need no stiffness
    rule, threshold, fidelity : as in `Explanation`
    labels : (K,) the labels of all clusters, in memory
    feature_names : the names of the d features
    data : the Dask collection
    """

    data: Any
    _partitions: Partitions
    _blocks: Any  # the Dask array of the partitions: blocks of an array, or frames
    _explained: Any  # (n, d) a Dask array with a `PartitionResult` for each block
    _known: Any  # Delayed: the partitions, with the population if one is needed

    @property
    def feature_names(self) -> list[Hashable]:
        """The names of the d features."""
        return self._partitions.feature_names

    @property
    def labels(self) -> NDArray[Any]:
        """(K,) the labels of all clusters."""
        return self._request.labels

    @property
    def fidelity(self) -> Fidelity | None:
        """How well a surrogate matches the clustering."""
        return self._request.network.fidelity

    @property
    def threshold(self) -> float | None:
        """The threshold on the probability of the cluster, or None if none was given."""
        return self._request.query.threshold

    @property
    def rule(self) -> str:
        """The rule that shares the evidence among the competitors."""
        return self._request.coded.rule

    @property
    def beta(self) -> Any:
        """The stiffness, which is lazy if it is measured."""
        request = self._request
        is_measured = request.needs_population and BETA in request.to_measure
        return call_later(_beta, self._known) if is_measured else request.beta

    @property
    def _request(self) -> ExplainRequest:
        return self._partitions.request

    @cached_property
    def relevance(self) -> Any:
        """(n, d) the relevance of each feature."""
        return each_block(_take_relevance, self._explained, self._partitions.dtype)

    @cached_property
    def evidence(self) -> Any:
        """(n,) how much better the cluster fits than its strongest competitor."""
        return by_rows(_take, self._explained, self._partitions.dtype, field="evidence")

    @cached_property
    def cluster(self) -> Any:
        """(n,) the label of the explained cluster."""
        return self._labels_of("cluster")

    @cached_property
    def competitor(self) -> Any:
        """(n,) the label of the strongest competitor."""
        return self._labels_of("competitor")

    def _labels_of(self, field: str) -> Any:
        dtype = self.labels.dtype
        return by_rows(_take_label, self._explained, dtype, field=field, partitions=self._known)

    def to_frame(self) -> Any:
        """Return a Dask DataFrame: cluster, competitor, evidence, then the relevance of each feature.

        The frame has the partitions, divisions and index of the explained DataFrame. For an array, the index
        is the position of each row, or its position within its chunk if the sizes of the chunks are unknown.
        """
        try:
            import dask.dataframe as dd
        except ImportError as error:
            raise MissingDependencyError(
                'to_frame needs dask.dataframe: pip install "whycluster[dask]"'
            ) from error
        framed = by_rows(_frame, self._explained, object, partitions=self._known)
        codes, numbers = np.empty(0, np.intp), np.empty((0, len(self.feature_names)), self._partitions.dtype)
        index = 0 if self._partitions.columns is None else self.data._meta.index
        empty = PartitionResult(codes, codes, numbers.sum(axis=1), numbers, index, 0)
        keys = framed.__dask_keys__()
        graph = framed.__dask_optimize__(framed.__dask_graph__(), keys)
        meta = _frame([empty], self._partitions)
        return dd.from_graph(NamedGraph(graph, framed.name), meta, self._divisions, keys, "explain")

    @property
    def _divisions(self) -> tuple[Any, ...]:
        if self._partitions.columns is not None:
            divisions = tuple(self.data.divisions)
            n_blocks = self._blocks.numblocks[0]  # may be smaller if Dask reads several small files as one
            return divisions if len(divisions) == n_blocks + 1 else (None,) * (n_blocks + 1)
        starts, sizes = self._partitions.starts, self._blocks.chunks[0]
        if starts is None or not all(sizes):  # an empty chunk has no first row
            return (None,) * (len(sizes) + 1)
        return (*starts, starts[-1] + sizes[-1] - 1)

    def summary(self) -> Any:
        """Return a `dask.delayed` of the `Summary` of all clusters.

        The summary equals `Explanation.summary`, except that non-numeric columns have relevance but no means.
        """
        query = self._request.query
        if query.target is not None or query.against is not None:
            raise InvalidInputError(
                "summary: rows must be explained for their own clusters, against all others. Explain the "
                "rows without target= and against=."
            )
        total = reduce_in_tree(_merge, self._with_data(_aggregate))
        return call_later(_summarize, total, self._known)

    def _with_data(self, function: Callable[..., Any]) -> Any:
        """Apply a function to the results and rows of each partition; each partition is read only once."""
        import dask.array as da

        both = (self._explained, "ij", self._blocks, "ij")
        options = {"dtype": object, "meta": np.empty(0, object), "concatenate": False}
        return da.blockwise(function, "i", *both, partitions=self._known, **options)

    def compute(self, **options: Any) -> Explanation:
        """Return an explanation in memory that includes the data; ``options`` are those of `dask.compute`."""
        import dask

        parts = self._with_data(_keep).to_delayed()
        (found,) = dask.compute(parts.tolist(), **options)
        explained, data, coded = zip(*found, strict=True)
        request = self._request
        table = request.network.open(_concatenate(data), request.where, feature_names=request.feature_names)
        columns = zip(*(part[:4] for part in explained), strict=True)
        cluster, competitor, evidence, relevance = (np.concatenate(column) for column in columns)
        names = [str(name) for name in self.feature_names]
        result = PartResult(cluster, competitor, evidence, relevance, names, None, table)
        return request.explanation(result, coded[0])

    def __getattr__(self, name: str) -> NoReturn:
        """Raise an AttributeError that says whether an `Explanation` has the attribute."""
        there = " An Explanation has it; compute() returns one." * hasattr(Explanation, name)
        raise AttributeError(f"a LazyExplanation has no attribute {name!r}.{there}", name=name, obj=self)

    def __repr__(self) -> str:
        n, d = self._blocks.numblocks[0], len(self.feature_names)
        counts = f"{n} partition{'s' * (n != 1)}, {d} feature{'s' * (d != 1)}, {len(self.labels)} clusters"
        beta = "" if self.beta is None else ", beta measured"
        beta = f", beta={self.beta:.4g}" if isinstance(self.beta, float) else beta
        return f"<LazyExplanation of {counts} ({self.rule}{beta}); compute() returns an Explanation>"


# Tasks are module-level functions, because workers find them by name.


def _beta(partitions: Partitions) -> float | None:
    return partitions.request.beta


def _take(blocks: list[PartitionResult], field: str) -> NDArray[Any]:
    values: NDArray[Any] = getattr(blocks[0], field)
    return values


def _take_relevance(explained: PartitionResult) -> NDArray[Any]:
    return explained.relevance


def _take_label(blocks: list[PartitionResult], field: str, partitions: Partitions) -> NDArray[Any]:
    labels: NDArray[Any] = partitions.request.labels[_take(blocks, field)]
    return labels


def _keep(
    explained: list[PartitionResult], blocks: list[Any], partitions: Partitions
) -> tuple[PartitionResult, Any, CodedQuery]:
    """Return the results, the rows and the completed query of a partition, for `compute`."""
    return explained[0], partitions.checked(blocks[0]), partitions.request.completed


def _aggregate(explained: list[PartitionResult], blocks: list[Any], partitions: Partitions) -> Aggregate:
    (found,) = explained
    part = Partition(blocks[0], found.number)
    return partitions.attempt(part, lambda rows: _add(rows, found, partitions))


def _add(rows: Any, found: PartitionResult, partitions: Partitions) -> Aggregate:
    """Return the aggregate of the rows of a partition."""
    request, names = partitions.request, [str(name) for name in partitions.feature_names]
    aggregate = Aggregate.empty(len(request.labels), len(names), most=1)
    if len(found.evidence):
        table = request.network.open(rows, request.where, whole=False, feature_names=request.feature_names)
        result = PartResult(*found[:4], names, None, table)
        aggregate.add(result, np.random.default_rng(0))  # the sample is not used here
    return aggregate


def _merge(aggregates: list[Aggregate]) -> Aggregate:
    n_clusters, n_features = aggregates[0].relevance.shape
    total = Aggregate.empty(n_clusters, n_features, most=1)
    for aggregate in aggregates:
        total.merge(aggregate)
    return total


def _summarize(total: Aggregate, partitions: Partitions) -> Summary:
    return total.summary(partitions.request.labels, [str(name) for name in partitions.feature_names])


def _frame(blocks: list[PartitionResult], partitions: Partitions) -> Any:
    """Return a pandas data frame with the same columns as `Explanation.to_frame`."""
    import pandas as pd

    (found,), names = blocks, partitions.feature_names
    labels = partitions.request.labels
    if labels.dtype == object:  # a column must have the same type in all partitions
        labels = labels.astype(str)
    first = {
        "cluster": labels[found.cluster],
        "competitor": labels[found.competitor],
        "evidence": found.evidence,
    }
    n_rows = len(found.evidence)
    index = pd.RangeIndex(found.index, found.index + n_rows) if partitions.columns is None else found.index
    frame = pd.DataFrame(found.relevance, index=index, columns=pd.Index(names))
    for place, (name, values) in enumerate(first.items()):
        frame.insert(place, unique_name(name, names), values)
    return frame


def _concatenate(parts: Sequence[Any]) -> Any:
    """Return the rows of all partitions in one container."""
    some = [part for part in parts if part.shape[0]] or list(parts[:1])
    if is_sparse(some[0]):
        from scipy import sparse

        return sparse.vstack(some, format="csr")
    if hasattr(some[0], "columns"):
        import pandas as pd

        return pd.concat(some)
    return np.concatenate(some)
