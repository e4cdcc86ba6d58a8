"""The results of deep clusterings: relevance in the inputs of an encoder, such as pixels."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, ClassVar

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

from whycluster.core.arrays import Codes, Floats
from whycluster.core.errors import InvalidInputError
from whycluster.data import display
from whycluster.data.opening import column_names, open_table
from whycluster.explanations import views
from whycluster.explanations.explanation import BaseExplanation, Explanation
from whycluster.explanations.formatting import Line, bars, rest
from whycluster.explanations.summary import Summary

CHANNELS, PLACES = "channels", "places"
UNITS = (None, CHANNELS, PLACES)
_SHOWN = 6  # channels of one input, as text
_NOUNS = {None: "input", CHANNELS: "channel", PLACES: "place"}


def channel_axis(shape: tuple[int, ...], kind: str, width: int | None = None) -> int:
    """Where the channels of one input, or of what a layer makes of it, are.

    First, but in networks without convolutions behind the tokens, or steps of time. Where the number of
    channels is known to be ``width``, and only the other end has that many, there.
    """
    usual = len(shape) - 1 if kind in ("transformer", "mlp") and len(shape) == 2 else 0
    other = len(shape) - 1 - usual
    return other if width is not None and shape[usual] != width and shape[other] == width else usual


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class DeepExplanation(BaseExplanation):
    """How much every input of an encoder, such as a pixel, spoke for the cluster.

    Made by `whycluster.explain` of a `whycluster.deep.DeepClustering`. Relevance is in the units of
    evidence: over an input it adds up to the evidence, but for the `residual`.

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

    noun: ClassVar[str] = "Input"
    instead: ClassVar[str] = (
        "Draw images with plot.images(), and the features that are clustered with the plots of exp.features."
    )
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
        claims = {f.name: getattr(features, f.name) for f in fields(BaseExplanation)}
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
        inputs = _taken(self._inputs, rows)
        return {"relevance": self.relevance[rows], "features": self.features[rows], "_inputs": inputs}

    @property
    def names(self) -> list[Hashable]:
        """What relevance of shape (n, d) is of: columns of a frame, channels, places or numbered inputs."""
        return self._names("names")

    def _names(self, where: str) -> list[Hashable]:
        if self.relevance.ndim != 2:
            raise InvalidInputError(
                f"{where}: relevance must be one number for each of some units; it has shape "
                f'{self.relevance.shape}. Explain with units="channels" or units="places".'
            )
        columns = None if self.at is not None else column_names(self._inputs, where, "X")
        kind = {None: "x", CHANNELS: "channel ", PLACES: "place "}[self.units]
        return columns or [f"{kind}{i}" for i in range(self.relevance.shape[1])]

    def to_frame(self, backend: str | None = None) -> Any:
        """One row per input: cluster, competitor, evidence, then relevance, which must be of shape (n, d).

        Of images that takes ``units="channels"``, mostly with ``at=``. ``backend`` as in `Explanation`.
        """
        return self._framed(self._names("to_frame"), self.relevance, backend)

    def summary(self) -> Summary:
        """What makes each cluster, in the columns of a table: as `whycluster.Explanation.summary`."""
        if self.at is not None or len(np.shape(self._inputs)) != 2:
            raise InvalidInputError(
                "summary: relevance must be of the columns of a table, which have a mean; it is of "
                f"{self._shape()}. In the features there is one, exp.features.summary(); of channels or "
                'places see exp.to_frame().groupby("cluster").mean().'
            )
        rows = self._inputs
        if hasattr(rows, "detach"):
            rows = rows.detach().cpu().double().numpy()
        return self._summarized(open_table(rows, where="summary"), self.relevance)

    def __repr__(self) -> str:
        n = len(self)
        counts = f"{n} input{'s' * (n != 1)}, {self._shape()}, {len(self.labels)} clusters"
        return f"<DeepExplanation of {counts} ({self._how()})>"

    def _shape(self) -> str:
        """What the relevance of one input is of."""
        where = "" if self.at is None else f" of layer {self.at!r}"
        return f"{' x '.join(map(str, self.relevance.shape[1:]))} {self.units or 'values'}{where}"

    def describe(self, row: int = 0) -> str:
        """One input as text: what is claimed, how much speaks for and against, and where it is."""
        if not isinstance(row, (int, np.integer)):
            raise InvalidInputError(f"describe: row must be one position, a whole number; got {row!r}.")
        one = self[row]
        lines = one.lines(_SHOWN) if one.relevance.ndim == 2 else one.places()
        cells = [
            [line.name, f"{line.relevance:.3g}", bar] for line, bar in zip(lines, bars(lines), strict=True)
        ]
        return one.claim() + "\n" + display.table(["of", "relevance", ""], cells, align="<><")

    def lines(self, n: int) -> list[Line]:
        """What the evidence of a single input consists of: the ``n`` strongest parts, then the rest."""
        names, values = self.names, self.relevance[0]
        order = np.argsort(-np.abs(values), kind="stable")
        lines = [Line(str(names[i]), "", float(values[i])) for i in order[:n]]
        lines += rest(len(order[n:]), _NOUNS[self.units], "", float(values[order[n:]].sum()))
        return lines + self.unattributed(float(np.abs(values).max()), "input")

    def places(self) -> list[Line]:
        """How much speaks for and against a single input, and where most of it is."""
        values = self.relevance[0]
        at = tuple(int(i) for i in np.unravel_index(np.abs(values).argmax(), values.shape))
        return [
            Line("all that speaks for it", "", float(values[values > 0].sum()), False),
            Line("all that speaks against it", "", float(values[values < 0].sum()), False),
            Line(f"the strongest, at {', '.join(map(str, at))}", "", float(values[at]), False),
            *self.unattributed(float(np.abs(values).max()), "input"),
        ]

    @property
    def plot(self) -> Any:
        """Plots: ``plot.images([0, 1])``, ...; ``plot([0, 1])`` returns the whole figure."""
        return views.load("plot_images")(self)


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
        return np.asarray(self.heatmaps[row])

    def __iter__(self) -> Iterator[NDArray[Any]]:
        return iter(self.heatmaps)

    def __repr__(self) -> str:
        n, n_clusters, *shape = self.relevance.shape
        return (
            f"<SpatialExplanation of {n} input{'s' * (n != 1)}: {n_clusters} clusters of "
            f"{' x '.join(map(str, self._codes.shape[1:]))} places, relevance {' x '.join(map(str, shape))}>"
        )

    def plot(self, **options: Any) -> Any:
        """Draw one line per input: the image, then the heat map of each cluster.

        Parameters
        ----------
        options : parameters of `whycluster.plots.draw_grid`

        Returns
        -------
        matplotlib.figure.Figure
        """
        return views.load("plot_spatial")(self, **options)


def _taken(inputs: Any, rows: Codes) -> Any:
    """Some of the inputs, in the container that they came in."""
    if column_names(inputs, "explanation", "X") is not None:
        return nw.from_native(inputs, eager_only=True)[rows.tolist()].to_native()
    return inputs[rows] if hasattr(inputs, "shape") else [inputs[i] for i in rows]


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
