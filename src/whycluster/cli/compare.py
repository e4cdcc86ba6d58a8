"""``whycluster compare FILE A B``: what tells the rows of two clusters from each other."""

from __future__ import annotations

from typing import Any

import numpy as np

from whycluster.cli.clustering import Asked
from whycluster.cli.formatting import start, to_json
from whycluster.cli.screen import show
from whycluster.core.errors import InvalidInputError
from whycluster.data import display


def compare(*, one: str, other: str, top: int, quiet: bool, as_json: bool, **options: Any) -> None:
    """Explain the members of each of two clusters against the other one."""
    found = start(Asked.of(options), quiet)
    pair = [found.label(one, "A"), found.label(other, "B")]
    if pair[0] == pair[1]:
        raise InvalidInputError(f"A and B must be two clusters; got {one!r} twice.")
    assigned = found.network.assign(found.rows) if found.given is None else found.given
    ours = np.flatnonzero(np.isin(assigned, pair))
    against = np.where(assigned[ours] == pair[0], pair[1], pair[0])
    exp = found.explain(ours, against=against)
    summary = exp.summary()
    if as_json:
        columns = summary.to_frame("polars")
        show(to_json({"clusters": pair, "features": columns.to_dicts()}))
        return
    size = dict(zip(summary.clusters.tolist(), summary.size.tolist(), strict=True))
    sizes = " and ".join(f"{size.get(label, 0)} in {display.clean(str(label))}" for label in pair)
    title = f"Clusters {display.clean(one)} and {display.clean(other)}, each against the other"
    legend = "share: of what tells a cluster from the other one; outside: the mean of the other one."
    show(
        "\n\n".join(
            [
                f"{display.count(len(ours), 'row')}, {sizes}; {found.what}.",
                display.heading(title),
                summary.describe(top),
                legend,
            ]
        )
    )
