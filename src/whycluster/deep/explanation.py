"""Explanations of deep clusterings in terms of the encoder's inputs, such as pixels."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, ClassVar

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

from whycluster.core.arrays import Codes, Floats
from whycluster.core.errors import InvalidInputError
from whycluster.data import registry
from whycluster.data.opening import column_names, open_table
from whycluster.explanations.base import BaseExplanation
from whycluster.explanations.explanation import Explanation, summarize_features
from whycluster.explanations.summaries.summary import Summary
from whycluster.explanations.wording.formatting import Line, format_lines, rest

CHANNELS, LOCATIONS = "channels", "locations"
BASELINE, CLASS_TOKEN, BIASES = "baseline of the clusters", "class token", "biases and losses of LRP"
UNITS = (None, CHANNELS, LOCATIONS)
_N_LINES = 6  # number of units in the description of an input
_NOUNS = {None: "input", CHANNELS: "channel", LOCATIONS: "location"}


def channel_axis(shape: tuple[int, ...], kind: str, width: int | None = None) -> int:
    """Return the channel axis of one input or of one layer output.

    Channels come first, except in networks without convolutions, where they come last, after the tokens or
    time steps. If the number of channels is known to be ``width`` and only the axis at the other end has that
    size, that axis is used.
    """
    usual = len(shape) - 1 if kind in ("transformer", "text", "mlp") and len(shape) == 2 else 0
    other = len(shape) - 1 - usual
    return other if width is not None and shape[usual] != width and shape[other] == width else usual


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class DeepExplanation(BaseExplanation):
    """The relevance of every value of an input, such as a pixel, for the input's cluster.

    `whycluster.explain` returns this explanation for a `whycluster.deep.DeepClustering`. Relevance is in
    units of evidence. The relevance of one input adds up to its evidence, except for the `residual`.

    Attributes
    ----------
    relevance : (n, ...) relevance in the shape of the inputs or, if ``at`` is given, of that layer's outputs;
        with ``units``, the sums for each channel or location
    evidence : (n,) f_c, how much better the cluster fits than its strongest competitor
    cluster, competitor, assigned : (n,) labels, as in `whycluster.Explanation`
    residual : (n,) evidence minus the sum of relevance. It consists of evidence that belongs to no feature
        and of relevance lost by LRP.
    residual_shares : the parts of the residual by name, (n,) each: the baseline of the clusters, a class
        token, and biases and losses of LRP
    features : the same explanation in terms of the clustered features
    data : the inputs as given by the user
    at, units : the layer and the units for which relevance is reported
    reference : where the features are measured from, "zero" or "midpoint"; see `DeepClustering`
    reference_reason : the reason for the reference, as a clause; with ``reference="auto"``, it says in how
        many of the inputs a feature is negative
    competition, beta, rule, threshold, fidelity, labels : as in `whycluster.Explanation`
    """

    noun: ClassVar[str] = "Input"
    instead: ClassVar[str] = (
        "Draw images with plot.images() and the clustered features with exp.features.plot."
    )
    not_columns: ClassVar[str] = (
        "the inputs of an encoder. Use exp.features.{method}, about the features that are clustered."
    )
    relevance: NDArray[Any]
    features: Explanation
    at: str | None
    units: str | None
    _inputs: Any
    _axis: int
    _class_token: NDArray[Any] | None = None

    @classmethod
    def of_features(cls, features: Explanation, relevance: NDArray[Any], **own: Any) -> DeepExplanation:
        """Return the explanation of inputs, given their relevance and the explanation of their features."""
        shared = {f.name: getattr(features, f.name) for f in fields(BaseExplanation)}
        return cls(**shared, relevance=relevance, features=features, **own)

    @property
    def data(self) -> Any:
        """The inputs as the user gave them."""
        return self._inputs

    @property
    def residual(self) -> Floats:
        """(n,) the evidence minus the sum of relevance."""
        explained: Floats = self.relevance.reshape(len(self), -1).sum(axis=1, dtype=np.float64)
        return self.evidence.astype(np.float64) - explained

    @property
    def residual_shares(self) -> dict[str, Floats]:
        """The parts of the residual by name, (n,) each.

        The baseline of the clusters is the part of the evidence that belongs to no feature. The rest has two
        parts: the relevance that a class token, and other constants that the encoder adds to the inputs'
        tokens, receive, and the relevance that biases and LRP itself lose.
        """
        baseline = np.asarray(self.features.residual, dtype=np.float64)
        token = np.zeros(len(self)) if self._class_token is None else self._class_token
        shares = {BASELINE: baseline, CLASS_TOKEN: token, BIASES: self.residual - baseline - token}
        return {name: share for name, share in shares.items() if share.any()}

    def unattributed(self, largest: float, noun: str) -> list[Line]:
        """Return lines for the parts of a single input's evidence that belong to none of its values."""
        shares = self.residual_shares
        if CLASS_TOKEN not in shares or self.threshold is not None:
            return super().unattributed(largest, noun)
        return [Line(name, "", float(share[0]), False) for name, share in shares.items()]

    @property
    def heatmaps(self) -> NDArray[Any]:
        """(n, ...) relevance per location, summed over channels, such as (n, height, width) for images."""
        return _heatmaps(self.relevance, self.units, self._axis, 1)

    def _take(self, rows: Codes) -> dict[str, Any]:
        inputs = _take(self._inputs, rows)
        token = None if self._class_token is None else self._class_token[rows]
        return {
            "relevance": self.relevance[rows],
            "features": self.features[rows],
            "_inputs": inputs,
            "_class_token": token,
        }

    @property
    def names(self) -> list[Hashable]:
        """The names of the units (columns, channels, locations or values) if relevance has shape (n, d)."""
        return self._names("names")

    def _names(self, where: str) -> list[Hashable]:
        if self.relevance.ndim != 2:
            raise InvalidInputError(
                f"{where}: relevance must have shape (n, d), one number per unit; it has shape "
                f'{self.relevance.shape}. Explain with units="channels" or units="locations".'
            )
        columns = None if self.at is not None else column_names(self._inputs, where, "X")
        kind = {None: "x", CHANNELS: "channel ", LOCATIONS: "location "}[self.units]
        return columns or [f"{kind}{i}" for i in range(self.relevance.shape[1])]

    def to_frame(self, backend: str | None = None) -> Any:
        """Return a frame with each input's cluster, competitor, evidence and the relevance of each unit.

        Relevance must have shape (n, d). Images therefore need ``units="channels"``, usually with ``at=``.

        Parameters
        ----------
        backend : as in `whycluster.Explanation.to_frame`
        """
        return self._framed(self._names("to_frame"), self.relevance, backend)

    def _parts(self) -> tuple[str, int]:
        return "values", 1  # relevance has the shape of images; only the claims become plain data

    def summary(self) -> Summary:
        """Summarize each cluster in terms of a table's columns, as `whycluster.Explanation.summary` does."""
        if self.at is not None or len(np.shape(self._inputs)) != 2:
            raise InvalidInputError(
                "summary: relevance must belong to the columns of a table; it belongs to "
                f"{self._shape()}. Summarize the features with exp.features.summary(), and channels or "
                'locations with exp.to_frame().groupby("cluster").mean().'
            )
        rows = self._inputs
        if hasattr(rows, "detach"):
            rows = rows.detach().cpu().double().numpy()
        return summarize_features(self, open_table(rows, where="summary"), self.relevance)

    def __repr__(self) -> str:
        n = len(self)
        counts = f"{n} input{'s' * (n != 1)}, {self._shape()}, {len(self.labels)} clusters"
        return f"<DeepExplanation of {counts} ({self._how()})>"

    def _shape(self) -> str:
        """Describe the shape and units of the relevance of one input."""
        where = "" if self.at is None else f" of layer {self.at!r}"
        return f"{' x '.join(map(str, self.relevance.shape[1:]))} {self.units or 'values'}{where}"

    def describe(self, row: int = 0) -> str:
        """Describe one input as text: its cluster, the relevance for and against it, and the reference.

        Parameters
        ----------
        row : the position of the input
        """
        if not isinstance(row, (int, np.integer)):
            raise InvalidInputError(f"describe: row must be a single integer position; got {row!r}.")
        one = self[row]
        lines = one.lines(_N_LINES) if one.relevance.ndim == 2 else one.total_lines()
        return f"{one.claim()}\n{format_lines(lines, ['of', 'relevance'])}\n{one.reference_sentence()}"

    def lines(self, n: int) -> list[Line]:
        """Return lines for the ``n`` strongest units of a single input and one line for all other units."""
        names, values = self.names, self.relevance[0]
        order = np.argsort(-np.abs(values), kind="stable")
        lines = [Line(str(names[i]), "", float(values[i])) for i in order[:n]]
        lines += rest(len(order[n:]), _NOUNS[self.units], "", float(values[order[n:]].sum()))
        return lines + self.unattributed(float(np.abs(values).max()), "input")

    def total_lines(self) -> list[Line]:
        """Return lines with a single input's total relevance for and against its cluster, and its peak."""
        values = self.relevance[0]
        at = tuple(int(i) for i in np.unravel_index(np.abs(values).argmax(), values.shape))
        return [
            Line("total for the cluster", "", float(values[values > 0].sum()), False),
            Line("total against it", "", float(values[values < 0].sum()), False),
            Line(f"strongest, at {', '.join(map(str, at))}", "", float(values[at]), False),
            *self.unattributed(float(np.abs(values).max()), "input"),
        ]

    @property
    def plot(self) -> Any:
        """The plots, such as ``plot.images([0, 1])``; ``plot([0, 1])`` returns the whole figure."""
        return registry.load("plot_images")(self)


@dataclass(frozen=True, eq=False, repr=False)
class SpatialExplanation:
    """One heat map per cluster of locations.

    Each heat map shows the relevance of every value of the input for the locations in the cluster.

    Attributes
    ----------
    relevance : (n, K, ...) relevance for each input and cluster, in the shape of the input or, if ``at`` is
        given, of that layer's output; with ``units``, the sums for each channel or location
    locations : the explanation of all locations as rows, in terms of the clustered features
    data : the inputs as given by the user
    at, units : the layer and the units for which relevance is reported
    rule, reference : as in `DeepExplanation`; ``locations.reference_reason`` is the reason for the reference
    """

    relevance: NDArray[Any]
    _codes: Codes  # (n, ...) the cluster of each location
    locations: Explanation
    data: Any
    at: str | None
    units: str | None
    _axis: int

    @property
    def labels(self) -> NDArray[Any]:
        """(K,) the labels of the clusters, in the order of `relevance`."""
        return self.locations.labels

    @property
    def rule(self) -> str:
        """The rule that shares the evidence among the competitors."""
        return self.locations.rule

    @property
    def reference(self) -> str | None:
        """Where the features are measured from: "zero" or "midpoint"."""
        return self.locations.reference

    @cached_property
    def cluster(self) -> NDArray[Any]:
        """(n, ...) the label of each location."""
        return self.labels[self._codes]

    @property
    def evidence(self) -> Floats:
        """(n, K) the total evidence of the locations in each cluster."""
        n, n_clusters = self.relevance.shape[:2]
        evidence = self.locations.evidence.reshape(n, -1).astype(np.float64)
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
        """(n, K, ...) relevance per location of the input, summed over channels."""
        return _heatmaps(self.relevance, self.units, self._axis + 1, 2)

    def __len__(self) -> int:
        return len(self.relevance)

    def __getitem__(self, row: int) -> NDArray[Any]:
        """Return the heat maps of one input, (K, ...)."""
        return np.asarray(self.heatmaps[row])

    def __iter__(self) -> Iterator[NDArray[Any]]:
        return iter(self.heatmaps)

    def __repr__(self) -> str:
        n, n_clusters, *shape = self.relevance.shape
        locations = " x ".join(map(str, self._codes.shape[1:]))
        return (
            f"<SpatialExplanation of {n} input{'s' * (n != 1)}: {n_clusters} clusters of {locations} "
            f"locations, relevance {' x '.join(map(str, shape))} ({self.rule}, reference={self.reference})>"
        )

    def plot(self, **options: Any) -> Any:
        """Draw one row of panels per input, with the image and the heat map of each cluster.

        Parameters
        ----------
        options : parameters of `whycluster.plots.draw_grid`

        Returns
        -------
        matplotlib.figure.Figure
        """
        return registry.load("plot_spatial")(self, **options)


def _take(inputs: Any, rows: Codes) -> Any:
    """Return the inputs at the positions ``rows``, in a container of the user's type."""
    if isinstance(inputs, Mapping):
        return {key: _take(value, rows) if np.ndim(value) else value for key, value in inputs.items()}
    if column_names(inputs, "explanation", "X") is not None:
        return nw.from_native(inputs, eager_only=True)[rows.tolist()].to_native()
    return inputs[rows] if hasattr(inputs, "shape") else [inputs[i] for i in rows]


def _heatmaps(relevance: NDArray[Any], units: str | None, axis: int, n_before: int) -> NDArray[Any]:
    """Sum relevance over channels, where the first ``n_before`` axes precede the axes of an input."""
    if units == CHANNELS:
        raise InvalidInputError(
            'heatmaps: relevance must not be summed over locations, as it is with units="channels". Explain '
            "without units."
        )
    if units == LOCATIONS or relevance.ndim <= n_before + 1:
        return relevance
    return np.asarray(relevance.sum(axis=axis))
