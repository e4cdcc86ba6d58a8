"""From energies to the cluster, the competitor and the evidence of each row, in SQL."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from whycluster.models.energies.tree import Tree, Turn
from whycluster.segments.sql.query import Query, Value


class Ranking(NamedTuple):
    """The codes of the cluster and of its strongest competitor, and the evidence; NULL for refused rows."""

    cluster: Value
    competitor: Value
    evidence: Value


def rank(query: Query, energies: Sequence[Value], tree: Tree | None) -> Ranking:
    """Return the ranking of the clusters. On a tie, the first cluster wins."""
    bound = [query.bind(energy) for energy in energies]
    found = _rank(query, bound) if tree is None else _descend(query, bound, tree)
    return found if not query.refused else _without_refused(query, found)


def _without_refused(query: Query, found: Ranking) -> Ranking:
    refused = query.bind(query.write("CASE WHEN {} THEN 1 ELSE 0 END", query.any(query.refused)))
    return Ranking(*(query.write("CASE WHEN {} = 0 THEN {} END", refused, value) for value in found))


def _rank(query: Query, s: list[Value]) -> Ranking:
    best = query.bind(query.least(s))
    cluster = query.bind(_first(query, [query.write("{} = {}", each, best) for each in s]))
    others = [query.write("CASE WHEN {} <> {} THEN {} END", cluster, str(k), s_k) for k, s_k in enumerate(s)]
    second = query.bind(query.least(others))
    reached = [query.write("{} = {} AND {} <> {}", s_k, second, cluster, str(k)) for k, s_k in enumerate(s)]
    return Ranking(cluster, _first(query, reached), query.write("({} - {})", second, best))


def _first(query: Query, conditions: Sequence[Value]) -> Value:
    """Return the position of the first condition that holds, or NULL."""
    branches = [query.write("WHEN {} THEN {}", each, str(k)) for k, each in enumerate(conditions)]
    return query.write(f"CASE {' '.join(['{}'] * len(branches))} END", *branches)


def _descend(query: Query, g: list[Value], tree: Tree) -> Ranking:
    """Return the cluster that a row reaches, and the turn on its path where the evidence is least."""
    landings = _landings(query, g, tree)
    cluster = query.bind(_turn(query, g[0], landings[0], landings[1]))
    evidence = query.bind(
        _by_cluster(query, cluster, [_least_on_path(query, g, path) for path in tree.paths])
    )
    competitors = []
    for path in tree.paths:
        pairs = [(_signed(query, g, turn), landings[turn.sibling]) for turn in path]
        branches = [query.write("WHEN {} = {} THEN {}", here, evidence, there) for here, there in pairs]
        competitors.append(query.write(f"CASE {' '.join(['{}'] * len(branches))} END", *branches))
    return Ranking(cluster, _by_cluster(query, cluster, competitors), evidence)


def _landings(query: Query, g: list[Value], tree: Tree) -> list[Value]:
    """Return the cluster that a row reaches from each node."""
    found: dict[int, Value] = {}
    for node in reversed(range(len(tree.below))):
        leaf, pair = int(tree.leaf[node]), int(tree.below[node])
        if leaf >= 0:
            found[node] = query.write(str(leaf))
        else:
            found[node] = query.bind(_turn(query, g[pair], found[2 * pair], found[2 * pair + 1]))
    return [found[node] for node in range(len(tree.below))]


def _turn(query: Query, g: Value, left: Value, right: Value) -> Value:
    return query.write("CASE WHEN {} >= {} THEN {} WHEN {} < {} THEN {} END", g, 0.0, left, g, 0.0, right)


def _least_on_path(query: Query, g: list[Value], path: Sequence[Turn]) -> Value:
    return query.least([_signed(query, g, turn) for turn in path])


def _signed(query: Query, g: list[Value], turn: Turn) -> Value:
    return g[turn.pair] if turn.sign > 0 else query.write("(- {})", g[turn.pair])


def _by_cluster(query: Query, cluster: Value, values: Sequence[Value]) -> Value:
    branches = [query.write("WHEN {} THEN {}", str(k), value) for k, value in enumerate(values)]
    return query.write(f"CASE {{}} {' '.join(['{}'] * len(branches))} END", cluster, *branches)
