"""``whycluster compare FILE A B`` shows what separates two clusters."""

from __future__ import annotations

from typing import Any

import numpy as np

from whycluster.cli.clustering import CommandOptions
from whycluster.cli.formatting import cluster_and_note, to_json
from whycluster.cli.output import print_result
from whycluster.core.errors import InvalidInputError
from whycluster.data import display
from whycluster.data.labels import as_labels

_LEGEND = "share: fraction of what separates the two clusters. compared with: the other cluster."


def compare(*, one: str, other: str, top: int, quiet: bool, as_json: bool, **given: Any) -> None:
    """Explain the members of each of two clusters against the other cluster."""
    clustered = cluster_and_note(CommandOptions.of(given), quiet)
    pair = [clustered.find_cluster(one, "A"), clustered.find_cluster(other, "B")]
    if pair[0] == pair[1]:
        raise InvalidInputError(f"A and B must be different clusters; got {one!r} twice.")
    labels = clustered.network.assign(clustered.rows) if clustered.labels is None else clustered.labels
    # As Python objects, since "noise" and numbers have no common type in NumPy.
    others = [pair[1] if label == pair[0] else pair[0] for label in labels.tolist() if label in pair]
    members = np.flatnonzero([label in pair for label in labels.tolist()])
    if not members.size:
        raise InvalidInputError(
            f"A and B must be clusters of rows in the table; no row is in {pair[0]!r} or {pair[1]!r}."
        )
    against = as_labels(others)
    summary = clustered.explain(members, against=against).summary()
    if as_json:
        print_result(to_json({"clusters": pair, "features": summary.to_frame("polars").to_dicts()}))
        return
    size = dict(zip(summary.clusters.tolist(), summary.size.tolist(), strict=True))
    sizes = " and ".join(f"{size.get(label, 0)} in {display.clean(str(label))}" for label in pair)
    title = f"Clusters {display.clean(one)} and {display.clean(other)}, compared with each other"
    parts = [
        f"{display.count(len(members), 'row')}, {sizes}; {clustered.description}.",
        display.heading(title),
        summary.describe(top),
        _LEGEND,
    ]
    print_result("\n\n".join(parts))
