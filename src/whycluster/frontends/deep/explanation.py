"""The results of deep clusterings: relevance in the inputs of an encoder, such as pixels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from whycluster import console
from whycluster.arrays import Codes, Floats
from whycluster.errors import InvalidInputError
from whycluster.explanation import Claims, Explanation

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CHANNELS, PLACES = "channels", "places"
UNITS = (None, CHANNELS, PLACES)
_SHOWN = 6  # channels of one input, as text


def channel_axis(shape: tuple[int, ...], kind: str) -> int:
    """Where the channels are in relevance: second, but in a transformer behind the tokens."""
    return len(shape) - 1 if kind == "transformer" and len(shape) == 3 else 1


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class DeepExplanation(Claims):
    """How much every input of an encoder, such as a pixel, spoke for the cluster.

    Made by `whycluster.explain` of a `whycluster.deep.DeepClustering`. Relevance is in the units of evidence: over
    an input it adds up to the evidence, but for the `residual`.

    Attributes
    ----------
    relevance : (n, ...) of the shape of the inputs; of what the layer ``at`` gives; or by ``units``
    evidence : (n,) f_c, how much better the cluster fits than its strongest competitor
    cluster, competitor, assigned : (n,) labels, as in `whycluster.Explanation`
    residual : (n,) evidence minus the sum of relevance: what is no feature's, and what LRP lost on the way
    features : the same explanation, in the features that are clustered
    data : the inputs as they were given
    at, units : the layer that was read, and what was added up
    competition, beta, rule, threshold, fidelity, labels : as in `whycluster.Explanation`
    """

    _noun: ClassVar[str] = "Input"
    relevance: NDArray[Any]
    features: Explanation
    at: str | None
    units: str | None
    _inputs: Any
    _axis: int

    @classmethod
    def of_features(
        cls,
        features: Explanation,
        relevance: NDArray[Any],
        inputs: Any,
        at: str | None,
        units: str | None,
        axis: int,
    ) -> DeepExplanation:
        """What is claimed of the features, with relevance in the inputs."""
        claims = {f.name: getattr(features, f.name) for f in fields(Claims)}
        return cls(
            **claims,
            relevance=relevance,
            features=features,
            at=at,
            units=units,
            _inputs=inputs,
            _axis=axis,
        )

    @property
    def data(self) -> Any:
        """The inputs as they were given."""
        return self._inputs

    @property
    def residual(self) -> Floats:
        """(n,) what the relevances leave unexplained of the evidence."""
        explained: Floats = self.relevance.reshape(len(self), -1).sum(axis=1, dtype=np.float64)
        return self.evidence.astype(np.float64) - explained

    @property
    def heatmaps(self) -> NDArray[Any]:
        """(n, ...) relevance by place, added up over the channels: for images (n, height, width)."""
        return _heatmaps(self.relevance, self.units, self._axis, 1)

    def _take(self, rows: Codes) -> dict[str, Any]:
        inputs = self._inputs[rows] if hasattr(self._inputs, "shape") else [self._inputs[i] for i in rows]
        return {"relevance": self.relevance[rows], "features": self.features[rows], "_inputs": inputs}

    def __repr__(self) -> str:
        n, *shape = self.relevance.shape
        where = f"{' x '.join(map(str, shape))} {self.units or 'values'}"
        where += "" if self.at is None else f" of layer {self.at!r}"
        return f"<DeepExplanation of {n} input{'s' * (n != 1)}, {where}, {len(self.labels)} clusters ({self._how()})>"

    def tell(self, row: int = 0) -> str:
        """One input as text: what is claimed, how much speaks for and against, and where it is."""
        if not isinstance(row, (int, np.integer)):
            raise InvalidInputError(f"tell: row must be one index; got {row!r}.")
        one = self[row]
        values = one.relevance[0]
        lines = [["for the cluster", f"{values[values > 0].sum():.3g}"]]
        lines.append(["against it", f"{values[values < 0].sum():.3g}"])
        lines += [
            [name, f"{value:.3g}"] for name, value in one._unborne(float(np.abs(values).max()), "input")
        ]
        at = [int(i) for i in np.unravel_index(np.abs(values).argmax(), values.shape)]
        lines.append([f"strongest, at {', '.join(map(str, at))}", f"{values[tuple(at)]:.3g}"])
        return one._claim() + "\n" + console.table(["relevance", "sum"], lines, align="<>")

    def plot(self, rows: Sequence[int] = (0,), **options: Any) -> Figure:
        """The heat maps of some inputs, with these beside them if they are images; see `draw_grid`."""
        from whycluster.deep.heatmaps import draw_grid

        maps = self.heatmaps[list(rows)]
        titles = [f"cluster {self.cluster[row]}" for row in rows]
        return draw_grid([maps], titles=titles, **options)


@dataclass(frozen=True, eq=False, repr=False)
class SpatialExplanation:
    """One heat map for each cluster of places: how much every input spoke for the places that are in it.

    Attributes
    ----------
    relevance : (n, K, ...) for each input and cluster of the shape of the input, of what the layer ``at``
        gives, or by ``units``
    places : the explanation of all places as rows, in the features that are clustered
    data : the inputs as they were given
    at, units : the layer that was read, and what was added up
    """

    relevance: NDArray[Any]
    _codes: Codes  # (n, ...) the cluster of each place
    places: Explanation
    data: Any
    at: str | None
    units: str | None
    _axis: int

    @property
    def labels(self) -> NDArray[Any]:
        """(K,) the labels of the clusters, in the order of `relevance`."""
        return self.places.labels

    @cached_property
    def cluster(self) -> NDArray[Any]:
        """(n, ...) the label of each place."""
        return self.labels[self._codes]

    @property
    def evidence(self) -> Floats:
        """(n, K) of each cluster the evidence of its places, added up."""
        n, n_clusters = self.relevance.shape[:2]
        evidence = self.places.evidence.reshape(n, -1).astype(np.float64)
        codes = self._codes.reshape(n, -1)
        return np.stack([np.where(codes == c, evidence, 0.0).sum(axis=1) for c in range(n_clusters)], axis=1)

    @property
    def residual(self) -> Floats:
        """(n, K) evidence minus the sum of relevance."""
        n, n_clusters = self.relevance.shape[:2]
        explained: Floats = self.relevance.reshape(n, n_clusters, -1).sum(axis=2, dtype=np.float64)
        return self.evidence - explained

    @property
    def heatmaps(self) -> NDArray[Any]:
        """(n, K, ...) relevance by place of the input, added up over its channels."""
        return _heatmaps(self.relevance, self.units, self._axis + 1, 2)

    def __len__(self) -> int:
        return len(self.relevance)

    def __getitem__(self, row: int) -> NDArray[Any]:
        """The heat maps of one input, (K, ...)."""
        return self.heatmaps[row]

    def __iter__(self) -> Iterator[NDArray[Any]]:
        return iter(self.heatmaps)

    def __repr__(self) -> str:
        n, n_clusters, *shape = self.relevance.shape
        return (
            f"<SpatialExplanation of {n} input{'s' * (n != 1)}: {n_clusters} clusters of "
            f"{' x '.join(map(str, self._codes.shape[1:]))} places, relevance {' x '.join(map(str, shape))}>"
        )

    def plot(self, **options: Any) -> Figure:
        """One row for each input: the heat map of every cluster; see `whycluster.deep.draw_grid`."""
        from whycluster.deep.heatmaps import draw_grid

        options.setdefault("titles", [f"cluster {label}" for label in self.labels])
        return draw_grid(list(self.heatmaps), **options)


def _heatmaps(relevance: NDArray[Any], units: str | None, axis: int, n_before: int) -> NDArray[Any]:
    """Added up over the channels; ``n_before`` axes come before those of one relevance."""
    if units == CHANNELS:
        raise InvalidInputError(
            'heatmaps: relevance was added up over the places (units="channels"), so that there are no maps. '
            "Explain without units."
        )
    if units == PLACES or relevance.ndim <= n_before + 1:
        return relevance
    return np.asarray(relevance.sum(axis=axis))
