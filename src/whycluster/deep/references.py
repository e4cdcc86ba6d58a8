"""The reference from which the features of a deep clustering are measured: 0 or the midpoint."""

from __future__ import annotations

from copy import copy
from typing import Any, NamedTuple

from numpy.typing import NDArray

from whycluster.core.energies import LinearEnergy, SquaredEnergy
from whycluster.core.errors import UnsupportedModelError
from whycluster.data.validation import check_choice
from whycluster.models.energies import ZeroReferenceEnergy
from whycluster.models.network import Network, TableNetwork

AUTO, MIDPOINT, ZERO = "auto", "midpoint", "zero"
_CHOICES = (AUTO, MIDPOINT, ZERO)


class Reference(NamedTuple):
    """The reference of an explanation, "zero" or "midpoint", and the reason for it as a clause."""

    point: str
    reason: str


def check_reference(reference: Any, head: Network) -> None:
    """Raise an error unless the head can measure features from this reference."""
    check_choice(reference, _CHOICES, "DeepClustering", "reference")
    if reference == ZERO and not _can_use_zero(head):
        raise UnsupportedModelError(
            f"DeepClustering: reference={ZERO!r} requires k-means, another nearest-centroid model or a "
            f"linear head; got a head with a {type(head.energy).__name__}."
        )
    if reference == MIDPOINT and isinstance(head.energy, LinearEnergy):
        raise UnsupportedModelError(
            f"DeepClustering: reference={MIDPOINT!r} requires a head that measures distances; got a head "
            f"with a {type(head.energy).__name__}, which always measures features from 0. Leave reference "
            "out."
        )


def choose_reference(
    asked: str,
    head: Network,
    points: NDArray[Any],
    background: NDArray[Any] | None,
    noun: str,
    are_tokens: bool = False,
) -> Reference:
    """Return the reference of an explanation.

    With "auto", the reference is zero if the inputs are tokens of a text, or if no feature is negative in any
    of the points. The points of the background count too, so that a few inputs are explained in the same way
    as their population.

    Parameters
    ----------
    asked : the reference of the `DeepClustering`
    head : the network that clusters the points
    points, background : (m, d) the points to explain and those of the background, if there is one
    noun : the word for a point
    are_tokens : whether the inputs are tokens, which the encoder looks up in a table
    """
    if isinstance(head.energy, LinearEnergy):
        return Reference(ZERO, "because a linear head has no other reference")
    if asked != AUTO:
        return Reference(asked, "as requested")
    if not _can_use_zero(head):
        return Reference(
            MIDPOINT, "because only nearest-centroid models and linear heads have a reference of 0"
        )
    if are_tokens:
        return Reference(ZERO, "because the inputs are tokens of a text")
    seen = [points] if background is None else [points, background]
    n_negative = sum(int((some.min(axis=1) < 0).sum()) for some in seen)
    return Reference(MIDPOINT if n_negative else ZERO, _what_was_seen(n_negative, seen, noun))


def with_reference(head: Network, reference: Reference, default_rule: str) -> Network:
    """Return a copy of the head with this reference and default rule; clusters and evidence do not change."""
    head = copy(head)
    head.default_rule = default_rule
    if reference.point == ZERO and type(head.energy) is SquaredEnergy:
        head.energy = ZeroReferenceEnergy(head.energy.prototypes, head.energy.scale)
    return head


def _can_use_zero(head: Network) -> bool:
    if isinstance(head.energy, LinearEnergy):
        return True
    return isinstance(head, TableNetwork) and type(head.energy) is SquaredEnergy


def _what_was_seen(n_negative: int, seen: list[NDArray[Any]], noun: str) -> str:
    """Return a clause with the number of points that have a negative feature."""
    n = sum(len(some) for some in seen)
    if n == 1:
        return f"because the only {noun} has {'a' if n_negative else 'no'} negative feature"
    background = f" ({len(seen[1]):,} of them background)" if len(seen) > 1 else ""
    which = {0: "none of the", n: "all"}.get(n_negative, f"{n_negative:,} of the")
    verb = "have" if n_negative > 1 else "has"
    return f"because {which} {n:,} {noun}s{background} {verb} a negative feature"
