"""The whole query: the columns that it reads, the steps, the model, and the columns that it returns."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from whycluster.core.energies import Energy
from whycluster.core.errors import InvalidInputError, UnsupportedModelError
from whycluster.data.arrays import is_real
from whycluster.data.frames import unique_name
from whycluster.data.sql_quoting import check_columns, quote_table
from whycluster.models.energies.tree import Tree, TreeEnergy
from whycluster.models.network import Network, TableNetwork
from whycluster.pipelines.network import PipelineNetwork
from whycluster.segments.sql import reading
from whycluster.segments.sql.dialects import WHERE, find_dialect
from whycluster.segments.sql.energies import energies_of
from whycluster.segments.sql.query import Column, Query, Value
from whycluster.segments.sql.ranking import rank
from whycluster.segments.sql.steps import follow


def select(
    network: Network,
    columns: Sequence[Column],
    table: str,
    dialect: str,
    returned: Sequence[Hashable] | None = None,
) -> str:
    """Return a SELECT that assigns each row of a table as the network does.

    Parameters
    ----------
    network : the network of the model
    columns : the columns of the model, in their order
    table, dialect, returned : as in `Segmentation.to_sql`, where ``returned`` is called ``columns``
    """
    names = [column.name for column in columns]
    query = Query.of(find_dialect(dialect), [*names, *(returned or ())])
    source = quote_table(table, dialect, WHERE)
    steps, last = _parts(network)
    check_columns(names, query.dialect.name, WHERE)
    outputs = follow(steps, query, columns)
    features = [query.bind(reading.number(each, query, None)) for each in outputs]
    query.require(features)
    ranking = rank(query, energies_of(last.energy, query, features), _tree(last.energy))
    taken = [str(name).lower() for name in (names if returned is None else returned)]
    results = {
        "cluster": _label(query, ranking.cluster, network.labels),
        "competitor": _label(query, ranking.competitor, network.labels),
        "evidence": ranking.evidence,
    }
    named = [(query.dialect.identifier(unique_name(name, taken)), value) for name, value in results.items()]
    return query.render(source, None if returned is None else _returned(query, returned), named)


def _tree(energy: Energy) -> Tree | None:
    return energy.contest if isinstance(energy, TreeEnergy) else None


def _parts(network: Network) -> tuple[Sequence[tuple[str, Any]], Network]:
    """Return the steps of a network and the network of its last step."""
    steps: Sequence[tuple[str, Any]] | None = ()
    last = network
    if isinstance(network, PipelineNetwork):
        steps, last = network.stages.steps, network.stages.last
    if steps is None or not isinstance(last, TableNetwork):
        raise UnsupportedModelError(
            f"{WHERE}: the model must be from scikit-learn, alone or after steps from scikit-learn; a "
            f"{type(last).__name__} after other steps cannot be written in SQL."
        )
    if last.categories is not None:
        raise UnsupportedModelError(
            f"{WHERE}: the model compares codes of categories ({last.energy.title}), which cannot be written "
            "in SQL. Use wc.tabular.pipeline, which encodes categories as numbers."
        )
    return steps, last


def _returned(query: Query, names: Sequence[Hashable]) -> list[tuple[str, str]]:
    """Return the columns of the table to return, each with its name in the subqueries."""
    if isinstance(names, str):
        raise InvalidInputError(f"{WHERE}: columns must be a list of names; got {names!r}.")
    check_columns(names, query.dialect.name, WHERE)
    return [(query.dialect.identifier(name), f"k{i}") for i, name in enumerate(names)]


def _label(query: Query, code: Value, labels: Any) -> Value:
    """Return the label of a cluster: an integer, a number or text."""
    names = labels.tolist()
    if all(isinstance(name, int) and not isinstance(name, bool) for name in names):
        literals = [str(name) for name in names]
    elif all(is_real(name) for name in names):
        literals = [query.dialect.number(float(name)) for name in names]
    else:
        literals = [query.dialect.string(str(name)) for name in names]
    branches = [query.write("WHEN {} THEN {}", str(k), literal) for k, literal in enumerate(literals)]
    return query.write(f"CASE {{}} {' '.join(['{}'] * len(branches))} END", query.bind(code), *branches)
