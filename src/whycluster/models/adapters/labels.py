"""Rules that users choose for their labels: communities of a graph, or the votes of the nearest rows."""

from __future__ import annotations

from functools import partial
from typing import Any

from numpy.typing import NDArray

from whycluster.core.arrays import Codes, Floats
from whycluster.core.errors import InvalidInputError
from whycluster.data.labels import read_labels
from whycluster.data.validation import check_choice
from whycluster.models.adapters.density import ordered
from whycluster.models.adapters.graph import labels_on_graph
from whycluster.models.adapters.incomplete import OnlyLabels
from whycluster.models.energies.neighbors import NeighborEnergy
from whycluster.models.network import Network, TableNetwork

SURROGATE, NEIGHBORS = METHODS = ("surrogate", "neighbors")
_N_NEIGHBORS = 5  # as in scikit-learn's KNeighborsClassifier


def with_chosen_rule(found: Network | OnlyLabels, graph: Any, method: Any, where: str) -> OnlyLabels:
    """Return labels with the rule that the user chose, or without a rule if the user chose a surrogate."""
    name = "graph" if graph is not None else "method"
    if not isinstance(found, OnlyLabels):
        raise InvalidInputError(
            f"{where}: {name} applies only to labels and to models that provide only labels; this model "
            f"determines its own network. Leave {name} out."
        )
    if method is not None:
        check_choice(method, METHODS, where, "method")
    if graph is not None:
        if method is not None:
            raise InvalidInputError(
                f"{where}: graph cannot be combined with method; got method={method!r}. Leave one of them "
                "out."
            )
        return labels_on_graph(found.labels, graph, where)
    if method == SURROGATE:
        return OnlyLabels(found.labels, found.kind, encoder=found.encoder)
    codes, names = read_labels(found.labels, len(found.labels), where)
    rule = partial(_nearest_rows, codes, names)
    return OnlyLabels(names[codes], found.kind, rule, is_chosen=True, takes_any_rows=True)


def _nearest_rows(codes: Codes, names: NDArray[Any], rows: Floats | None) -> Network:
    """Return the network of the votes of the nearest other rows; noise votes like a cluster."""
    assert rows is not None
    order, sizes, _ = ordered(codes)
    energy = NeighborEnergy(rows[order], sizes, n_neighbors=_N_NEIGHBORS, votes=True)
    return TableNetwork(energy, labels=names)
