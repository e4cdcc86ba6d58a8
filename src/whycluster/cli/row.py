"""``whycluster row FILE --id 42`` explains why one row is in its cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from whycluster.cli.clustering import CommandOptions, parse_names, read_query
from whycluster.cli.formatting import cluster_and_note, to_json
from whycluster.cli.output import print_result
from whycluster.core.errors import InvalidInputError
from whycluster.explanations.counterfactuals.counterfactual import Counterfactual
from whycluster.explanations.explanation import Explanation
from whycluster.explanations.reasons.pairs import Pair
from whycluster.explanations.stories.story import contrast, evidence_rank


def row(
    *,
    name: str,
    other: str | None,
    to: str | None,
    within: Sequence[str],
    hold: Sequence[str],
    top: int,
    quiet: bool,
    as_json: bool,
    **given: Any,
) -> None:
    """Cluster all rows and explain one of them, or compare it with another one."""
    if other is not None:
        _check_alone(to, given)
    clustered = cluster_and_note(CommandOptions.of(given, "--id-column"), quiet)
    if to is not None and clustered.labels is not None:
        raise InvalidInputError("--to works only with new clusters, not with --labels. Remove --labels.")
    _check_needs_to(to, {"--within": within, "--hold": hold})
    position = clustered.position(name)
    exp = clustered.explain(**read_query(clustered.network, given))
    if other is not None:
        pair = _pair(exp, position, clustered.position(other, "--with"))
        print_result(to_json(_pair_facts(pair, (name, other), top)) if as_json else pair.describe(top))
        return
    destination = clustered.find_cluster(to, "--to")
    if to is not None and destination == exp.assigned[position]:
        raise InvalidInputError(f"--to must be a different cluster; the row is already in {to}.")
    change = None
    if to is not None:
        columns = _changeable(clustered.rows.columns, within, hold)
        change = exp.counterfactual(position, destination, within=columns)
    if as_json:
        facts = _row_facts(name, exp, position, top)
        print_result(to_json(facts if change is None else facts | _change_facts(change)))
    else:
        print_result(exp.describe(position, top) + ("" if change is None else f"\n\n{change.describe(top)}"))


def _check_alone(to: str | None, given: Mapping[str, Any]) -> None:
    """Raise an error if another question is asked together with --with."""
    options = {"to": to, **{name: given[name] for name in ("target", "against")}}
    for option, value in options.items():
        if value is not None:
            raise InvalidInputError(
                f"--with and --{option} cannot be combined. Use only one of these options."
            )


def _pair(exp: Explanation, position: int, other: int) -> Pair:
    if position == other:
        raise InvalidInputError("--with must name a different row than --id.")
    return exp.pair(position, other)


def _pair_facts(pair: Pair, names: tuple[str, str], top: int) -> dict[str, Any]:
    """Return what separates two rows, or why they are in the same cluster, for JSON."""
    order = np.argsort(-np.abs(pair.relevance), kind="stable")[:top]
    return {
        "ids": names,
        "clusters": pair.clusters,
        "competitors": pair.competitors,
        "together": pair.is_together,
        "evidence": pair.evidence,
        "residual": pair.residual,
        "features": [
            {
                "feature": pair.feature_names[i],
                "values": pair.values[:, i],
                "parts": pair.parts[:, i],
                "relevance": pair.relevance[i],
            }
            for i in order
        ],
    }


def _check_needs_to(to: str | None, options: dict[str, Sequence[str]]) -> None:
    for option, given in options.items():
        if given and to is None:
            raise InvalidInputError(f"{option} works only with --to, which names the cluster to move to.")


def _changeable(columns: Sequence[str], within: Sequence[str], hold: Sequence[str]) -> list[str]:
    """Return the columns that may change."""
    allowed = parse_names(within, columns, "--within") or set(columns)
    held = parse_names(hold, columns, "--hold")
    left = [column for column in columns if column in allowed - held]
    if not left:
        raise InvalidInputError("--hold must leave at least one column to change; it leaves none.")
    return left


def _change_facts(change: Counterfactual) -> dict[str, Any]:
    """Return the change of several features, and the changes of single features in order of size."""
    cells = zip(change.feature_names, change.before, change.after, change.single, strict=True)
    changes = [{"feature": f, "before": b, "after": a, "alone": s} for f, b, a, s in cells]
    enough = [i for i in np.argsort(change.single_distance, kind="stable") if change.single[i] is not None]
    alone = [
        {"feature": change.feature_names[i], "value": change.single[i], "distance": change.single_distance[i]}
        for i in enough
    ]
    return {
        "to": change.to,
        "alone": alone,
        "distance": change.distance,
        "changes": changes,
        "held": change.held,
    }


def _row_facts(name: str, every: Explanation, position: int, top: int) -> dict[str, Any]:
    exp, rank, against = every[position], evidence_rank(every, position), contrast(every, position)
    best = exp.top(top)
    columns = exp.strongest_features(top)[0]
    cells = zip(best.feature[0], best.value[0], best.relevance[0], strict=True)
    features = [{"feature": f, "value": v, "relevance": r} for f, v, r in cells]
    if against is not None:
        features = [
            {**each, "against_competitor": against[i]} for each, i in zip(features, columns, strict=True)
        ]
    return {
        "id": name,
        "cluster": exp.cluster[0],
        "assigned": exp.assigned[0],
        "competitor": exp.competitor[0],
        "evidence": exp.evidence[0],
        "residual": exp.residual[0],
        "rank": None if rank is None else rank._asdict(),
        "features": features,
    }
