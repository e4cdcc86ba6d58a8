"""``whycluster row FILE --id 42``: why one row is in its cluster, and not in the others."""

from __future__ import annotations

from typing import Any

import numpy as np

from whycluster.cli.clustering import Asked
from whycluster.cli.formatting import start, to_json
from whycluster.cli.screen import show
from whycluster.core.errors import InvalidInputError
from whycluster.explanations.counterfactual import Counterfactual
from whycluster.explanations.explanation import Explanation


def row(
    *,
    name: str,
    target: str | None,
    against: str | None,
    to: str | None,
    top: int,
    quiet: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Cluster all rows, and explain one of them."""
    found = start(Asked.of(options, "--id-column"), quiet)
    if to is not None and found.given is not None:
        raise InvalidInputError("--to is for clusters that are made here: leave --labels out.")
    position = found.position(name)
    exp = found.explain(
        np.array([position]),
        target=found.label(target, "--target"),
        against=found.label(against, "--against"),
    )
    other = found.label(to, "--to")
    if to is not None and other == exp.assigned[0]:
        raise InvalidInputError(f"--to must be another cluster than {to}, which the row is in.")
    moved = None if to is None else found.explain().counterfactual(position, other)
    if as_json:
        show(to_json(_as_dict(name, exp, top) | ({} if moved is None else _change(moved))))
    else:
        show(exp.describe(0, top) + ("" if moved is None else f"\n\n{moved.describe(top)}"))


def _change(moved: Counterfactual) -> dict[str, Any]:
    cells = zip(moved.feature_names, moved.before, moved.after, moved.single, strict=True)
    changes = [{"feature": f, "before": b, "after": a, "alone": s} for f, b, a, s in cells]
    return {"to": moved.to, "distance": moved.distance, "changes": changes}


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
