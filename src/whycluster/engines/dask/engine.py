"""Explain Dask arrays and data frames lazily, one partition at a time.

The quantities that depend on all rows are measured on every partition and added up in a tree. Then each
partition is explained by a single task, whose result contains relevance, clusters and evidence.

Each of the two steps reads the data. If both steps took a partition from the same task, Dask would have to
keep the partition until the last row is measured, and would thus hold all data in memory. See `blocks_of` and
`DaskEngine.measure_all`.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from functools import reduce
from typing import Any

from numpy.typing import NDArray

from whycluster.core.attribution import Population
from whycluster.core.errors import InvalidInputError
from whycluster.data.arrays import is_dask
from whycluster.engines.dask.graph import by_rows, call_later, each_block, reduce_in_tree, shared
from whycluster.engines.dask.parts import DaskParts, Partition, Partitions, blocks_of, find_partitions
from whycluster.engines.dask.results import LazyExplanation, PartitionResult
from whycluster.engines.engine import Engine
from whycluster.engines.request import ExplainRequest
from whycluster.models.adapters.registry import to_network
from whycluster.models.network import Network, Query


def explain_lazily(
    model: Any,
    X: Any,
    query: Query,
    *,
    feature_names: Sequence[Hashable] | None = None,
    metric: str | None = None,
    categorical: Sequence[int] | None = None,
) -> LazyExplanation:
    """Explain a Dask array or DataFrame; the parameters are those of `whycluster.explain`."""
    if categorical is not None:
        model, metric = to_network(model, metric, categorical, "explain"), None
    request = ExplainRequest.of(model, "explain", query, feature_names=feature_names, metric=metric)
    parts, background = find_partitions(X, request), query.background
    if background is None or not request.needs_population:
        return DaskEngine(parts.partitions).run(parts)
    columns = parts.partitions.columns
    if is_dask(background):
        of_background = replace(request, feature_names=None, name="background")
        other = find_partitions(background, of_background, columns)
        return DaskEngine(parts.partitions).run(parts, other)
    known = replace(parts.partitions, request=request.measure_background(background, columns))
    return DaskEngine(known).run(parts)


def check_options(encoder: Any, at: str | None, units: str | None, graph: Any, method: str | None) -> None:
    """Raise an error for options that do not apply to Dask collections."""
    if encoder is not None:
        raise InvalidInputError(
            "explain: documents must be in memory; got a Dask collection. Call X.compute() first."
        )
    if at is not None or units is not None:
        raise InvalidInputError(
            "explain: at and units apply only to deep clusterings, which do not accept Dask collections. "
            "Leave at and units out."
        )
    if graph is not None or method is not None:
        raise InvalidInputError(
            "explain: graph and method apply only to labels of rows in memory; got a Dask collection. Call "
            "X.compute() first."
        )


def assign_lazily(network: Network, X: Any) -> Any:
    """Return the label of each row of a Dask array or DataFrame, (n,), as a Dask array."""
    parts = find_partitions(X, ExplainRequest.of(network, "assign", Query(), fidelity_expression=None))
    assigned = each_block(_assign, blocks_of(X, "assign"), object, partitions=shared(parts.partitions))
    return by_rows(_only, assigned, network.labels.dtype)


class DaskEngine(Engine[DaskParts, Partition, PartitionResult, LazyExplanation]):
    """Explains the partitions of a Dask collection; nothing is computed until a result is requested.

    Parameters
    ----------
    partitions : the request, and the requirements for each partition
    """

    def __init__(self, partitions: Partitions) -> None:
        self.partitions, self.request = partitions, partitions.request

    def measure(self, part: Partition) -> Population:
        """Measure the rows of one partition."""
        return self.partitions.attempt(part, self.request.measure)

    def measure_all(self, parts: DaskParts) -> Any:
        """Return a `dask.delayed` of the sum over all partitions.

        The tasks that compute the sum are fused before any other task of the graph shares them.
        """
        blocks = blocks_of(parts.collection, "measure")
        measured = each_block(_measure, blocks, object, partitions=shared(parts.partitions))
        return reduce_in_tree(_add_up, measured)

    def explain(self, part: Partition) -> PartitionResult:
        """Explain the rows of one partition."""
        partitions = self.partitions

        def explain(rows: Any) -> PartitionResult:
            found = partitions.request.explain(rows)
            start = 0 if partitions.starts is None else partitions.starts[part.number]
            return PartitionResult(
                found.cluster,
                found.competitor,
                partitions.cast(found.evidence),
                partitions.cast(found.relevance),
                start if partitions.columns is None else rows.index,
                part.number,
            )

        return partitions.attempt(part, explain)

    def explain_all(self, parts: DaskParts, population: Any) -> LazyExplanation:
        """Return the lazy explanation of all partitions."""
        known = shared(self.partitions)
        if population is not None:
            known = call_later(_with_population, known, population)
        blocks = blocks_of(parts.collection, "explain")
        explained = each_block(_explain, blocks, object, partitions=known)
        return LazyExplanation(parts.collection, self.partitions, blocks, explained, known)


# Tasks are module-level functions, because workers find them by name.


def _measure(block: Any, partitions: Partitions, block_id: tuple[int, ...]) -> Population:
    return DaskEngine(partitions).measure(Partition(block, block_id[0]))


def _add_up(populations: list[Population]) -> Population:
    return reduce(Population.__add__, populations)


def _with_population(partitions: Partitions, population: Population) -> Partitions:
    return replace(partitions, request=partitions.request.with_population(population))


def _explain(block: Any, partitions: Partitions, block_id: tuple[int, ...]) -> PartitionResult:
    return DaskEngine(partitions).explain(Partition(block, block_id[0]))


def _assign(block: Any, partitions: Partitions, block_id: tuple[int, ...]) -> NDArray[Any]:
    if block.shape[0] == 0:
        return partitions.request.labels[:0]
    return partitions.attempt(Partition(block, block_id[0]), partitions.request.assign)


def _only(blocks: list[NDArray[Any]]) -> NDArray[Any]:
    return blocks[0]
