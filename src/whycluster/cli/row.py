"""``whycluster row FILE --id 42``: why one row is in its cluster, and not in the others."""

from __future__ import annotations

from typing import Any

import numpy as np

from whycluster import progress
from whycluster.cli.clustering import Asked, cluster
from whycluster.cli.screen import show
from whycluster.cli.telling import tell_notes, to_json
from whycluster.explanation import Explanation


def row(
    *,
    name: str,
    target: str | None,
    against: str | None,
    top: int,
    quiet: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Cluster all rows, and explain one of them."""
    progress.shown = not quiet
    found = cluster(Asked.of(options))
    if not quiet:
        tell_notes(found)
    exp = found.explain(
        np.array([found.position(name)]),
        target=None if target is None else found.label(target, "--target"),
        against=None if against is None else found.label(against, "--against"),
    )
    show(to_json(_as_dict(name, exp, top)) if as_json else exp.tell(0, top))


def _as_dict(name: str, exp: Explanation, top: int) -> dict[str, Any]:
    best = exp.top(top)
    cells = zip(best.feature[0], best.value[0], best.relevance[0], strict=True)
    return {
        "id": name,
        "cluster": exp.cluster[0],
        "assigned": exp.assigned[0],
        "competitor": exp.competitor[0],
        "evidence": exp.evidence[0],
        "residual": exp.residual[0],
        "features": [{"feature": f, "value": v, "relevance": r} for f, v, r in cells],
    }
