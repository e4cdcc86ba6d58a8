"""The network of a deep clustering: an encoder, the network of what clusters its features, LRP between."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from whycluster.core.errors import InvalidInputError, UnsupportedModelError
from whycluster.data.frames import build_frame
from whycluster.data.opening import column_names
from whycluster.data.progress import Progress
from whycluster.deep.encoder import Encoder, Inputs, to_numpy
from whycluster.deep.explanation import UNITS, DeepExplanation, SpatialExplanation, channel_axis
from whycluster.deep.lrp.composites import Composite, composite_of, with_bounds
from whycluster.deep.lrp.propagation import Trace
from whycluster.deep.lrp.rules import ZB, Tensor
from whycluster.models.network import Network

_AGREES = {torch.float64: 1e-6, torch.float32: 1e-3}  # of the largest feature; half precision: less
_AGREES_ROUGHLY = 3e-2


@dataclass(frozen=True)
class Arrangement:
    """How the features of one input are points.

    Attributes
    ----------
    shape : of the features of one input
    width : how many features a point has
    axis : where these are in the shape, if each place is a point; None if each input is one
    normalize : whether points are given unit length
    """

    shape: tuple[int, ...]
    width: int
    axis: int | None
    normalize: bool

    @property
    def places(self) -> tuple[int, ...]:
        """The shape of the places of one input; of one point that is all of it, ()."""
        return () if self.axis is None else tuple(np.delete(self.shape, self.axis).tolist())

    def points(self, features: NDArray[Any]) -> NDArray[Any]:
        """The points of some inputs, (m, width)."""
        rows = features if self.axis is None else np.moveaxis(features, 1 + self.axis, -1)
        rows = np.ascontiguousarray(rows).reshape(-1, self.width)
        if self.normalize:
            lengths = np.linalg.norm(rows, axis=1, keepdims=True)
            rows = rows / np.where(lengths == 0, 1, lengths)
        return rows

    def slice(self, rows: slice) -> slice:
        """Where the points of some inputs are among all points."""
        n_places = int(np.prod(self.places, dtype=int))
        return slice(rows.start * n_places, rows.stop * n_places)

    def to_features(self, relevance: NDArray[Any]) -> NDArray[Any]:
        """Relevance of points in the shape of the features; the length of a point is taken for a constant."""
        if self.axis is None:
            return relevance.reshape(-1, *self.shape)
        return np.moveaxis(relevance.reshape(-1, *self.places, self.width), -1, 1 + self.axis)


class DeepNetwork(Network):
    """What a deep clustering assigns, and why, down to the inputs of its encoder.

    Parameters
    ----------
    encoder : from inputs to features
    last : the network of what clusters the features
    spatial : whether each place of the features is a point, rather than each input
    normalize : whether points are given unit length
    rules : the rules of LRP, as `composite_of` takes them
    bounds : the least and the greatest value of the inputs, or None
    """

    def __init__(
        self,
        encoder: Encoder,
        last: Network,
        *,
        spatial: bool,
        normalize: bool,
        rules: Any,
        bounds: tuple[Any, Any] | None,
    ) -> None:
        super().__init__(last.energy, labels=last.labels, fidelity=last.fidelity)
        self.encoder, self.last = encoder, last
        self.spatial, self.normalize = spatial, normalize
        self._rules, self._bounds = rules, None if bounds is None else ZB(*bounds)

    def __repr__(self) -> str:
        return f"<DeepNetwork of {self.n_clusters} clusters, {self.last.n_features} features>"

    is_deep = True
    takes_any_kind = False
    text_columns: frozenset[int] = frozenset()
    explains_columns = False

    @property
    def is_checked(self) -> bool:
        """Whether the head compares all features with its own prediction."""
        return self.last.is_checked

    def points(self, X: Any, where: str, name: str = "X") -> tuple[NDArray[Any], Arrangement]:
        """The features of all inputs as the points that are clustered, and how they are that."""
        return self._points(Inputs.open(X, where, name))

    def assign(self, X: Any) -> NDArray[Any]:
        """The cluster of each input, (n,); of places, that of each place of each input."""
        rows, arranged = self.points(X, "assign")
        return self.last.assign(rows).reshape(-1, *arranged.places)

    def evidence(self, X: Any) -> NDArray[Any]:
        """The evidence f_c for every cluster, (n, K); of places, (n, ..., K)."""
        rows, arranged = self.points(X, "evidence")
        return self.last.evidence(rows).reshape(-1, *arranged.places, self.n_clusters)

    def gradient(self, X: Any, target: Any = None) -> NDArray[Any]:  # noqa: ARG002  # as of other networks
        """Not of this network: torch has the gradient of its encoder."""
        raise UnsupportedModelError(
            "gradient: of a deep clustering, torch gives it, of what to_torch() gives. In the features it is "
            "wc.neuralize(head).gradient(features)."
        )

    def open(self, X: Any, where: str, **_: Any) -> Any:  # noqa: ARG002  # as of other networks
        """There is no table of features here."""
        raise UnsupportedModelError(
            f"{where}: this is for models of tables. Of a deep clustering give the head, and "
            "model.transform(X) as the rows."
        )

    def to_torch(self, cluster: Any = None) -> torch.nn.Module:
        """Encoder and clusters as one module, from inputs to `evidence`; it has the user's encoder in it."""
        if self.spatial:
            raise UnsupportedModelError("to_torch: places of images are many rows; take that of the head.")
        return _Joined(self.encoder, self.last.to_torch(cluster), self.normalize)

    def explain(self, X: Any, *, at: Any = None, units: Any = None, **query: Any) -> Any:
        """Explain each input; `whycluster.explain` says what the parameters mean."""
        check_reading(self.encoder, at, units, "explain")
        if query.pop("feature_names", None) is not None:
            raise InvalidInputError("explain: feature_names is for tables; an encoder's inputs have none.")
        inputs = Inputs.open(X, "explain")
        return self.explain_points(inputs, *self._points(inputs), at, units, **query)

    def explain_points(
        self,
        inputs: Inputs,
        rows: NDArray[Any],
        arranged: Arrangement,
        at: str | None,
        units: str | None,
        **query: Any,
    ) -> Any:
        """Explain each input, whose features are at hand as points."""
        self._check_bounds(inputs)
        if query.get("background") is not None:
            query["background"] = self.points(query["background"], "explain", "background")[0]
        found = self.last.explain(rows if self.spatial else self._named(rows, inputs), **query)
        parts = _by_cluster(found) if self.spatial else [found.relevance.__getitem__]
        relevance, axis = self._go_down(inputs, rows, arranged, parts, at, units)
        if not self.spatial:
            return DeepExplanation.of_features(found, relevance[0], inputs.native, at, units, axis)
        cluster = found.cluster_codes.reshape(-1, *arranged.places)
        return SpatialExplanation(np.stack(relevance, axis=1), cluster, found, inputs.native, at, units, axis)

    def _points(self, inputs: Inputs) -> tuple[NDArray[Any], Arrangement]:
        return points_of(self.encoder, inputs, self.spatial, self.normalize, self._check_width)

    def _named(self, rows: NDArray[Any], inputs: Inputs) -> Any:
        """Points of inputs that came in a frame as such a frame too, which keeps its index."""
        if column_names(inputs.native, inputs.where, inputs.name) is None:
            return rows
        names = self.last.feature_names or [f"x{i}" for i in range(rows.shape[1])]
        return build_frame(dict(zip(names, rows.T, strict=True)), inputs.native, None, inputs.where)

    def _check_width(self, shape: tuple[int, ...], where: str) -> int:
        """How many features a point has; raise if those of one input, of this shape, do not fit."""
        width = self.last.n_features
        fits = width in (shape[0], shape[-1]) and len(shape) > 1 if self.spatial else width == np.prod(shape)
        if fits:
            return width
        hint = "Fit the head to features of this layer, or name the layer that it was fitted to: layer=..."
        if self.spatial and len(shape) == 1:
            hint = "These have no places; name an earlier layer, or leave spatial out."
        elif len(shape) > 1 and shape[0] == width:
            hint = "pool='mean' averages over the places; spatial=True clusters each place on its own."
        raise InvalidInputError(
            f"{where}: the encoder must give as many features as the head was fitted on, {width}; it gives "
            f"{' x '.join(map(str, shape))}. {hint}"
        )

    def _go_down(
        self,
        inputs: Inputs,
        points: NDArray[Any],
        arranged: Arrangement,
        relevance: Sequence[Callable[[slice], NDArray[Any]]],
        at: str | None,
        units: str | None,
    ) -> tuple[list[NDArray[Any]], int]:
        """From the relevance of all points to that of all inputs; and where the channels are in that.

        ``relevance`` are functions that give that of some of the points. Each goes the way down on its own,
        on the same trace.
        """
        results: list[NDArray[Any]] = []
        axis = 1
        with Progress("explaining", len(relevance) * len(self.encoder.slices(inputs))) as bar:
            for rows, batch in self.encoder.batches(inputs):
                trace = self.encoder.trace(batch, inputs, at)
                some = arranged.slice(rows)
                _check_same(trace, arranged.points(to_numpy(trace.features)), points[some], inputs)
                composite = self._composite(trace)
                for number, given in enumerate(relevance):
                    seed = trace.seed(np.ascontiguousarray(arranged.to_features(given(some))))
                    found = trace.propagate(seed, composite, at, last=number == len(relevance) - 1)
                    axis = 1 + channel_axis(tuple(found.shape[1:]), trace.kind)
                    values = to_numpy(_by_units(found, units, axis))
                    if number == len(results):
                        results.append(np.empty((len(inputs), *values.shape[1:]), values.dtype))
                    results[number][rows] = values
                    bar.step()
        return results, axis

    def _composite(self, trace: Trace) -> Composite:
        composite = composite_of(self._rules, trace.kind)
        if self._bounds is None:
            return composite
        assert trace.input.value is not None
        low, high = self._bounds.spread(trace.input.value)  # of the shape of the inputs, whatever comes first
        return with_bounds(composite, ZB(low[0].cpu(), high[0].cpu()))

    def _check_bounds(self, inputs: Inputs) -> None:
        if self._bounds is None:
            return
        for rows in self.encoder.slices(inputs):
            some = inputs.tensor[rows]
            low, high = self._bounds.spread(some)
            slack = 1e-4 * (high - low)
            outside = ((some < low - slack) | (some > high + slack)).flatten(1).any(1)
            if bool(outside.any()):
                row = rows.start + int(outside.int().argmax())
                raise InvalidInputError(
                    f"{inputs.where}: {inputs.name} must lie within the bounds of the DeepClustering; input "
                    f"{row} does not, with values from {float(inputs.tensor[row].min()):.4g} to "
                    f"{float(inputs.tensor[row].max()):.4g}. Normalise images as the bounds say, or leave "
                    "bounds out."
                )


def check_reading(encoder: Encoder, at: Any, units: Any, where: str) -> None:
    """Raise unless ``at`` is a layer, and ``units`` can be added up to."""
    if at is not None:
        encoder.check_layer(at, where, "at")
    if units not in UNITS:
        raise InvalidInputError(
            f"{where}: units must be one of {', '.join(map(repr, UNITS))}; got {units!r}."
        )


def points_of(
    encoder: Encoder,
    inputs: Inputs,
    spatial: bool,
    normalize: bool,
    check: Callable[[tuple[int, ...], str], int] | None = None,
) -> tuple[NDArray[Any], Arrangement]:
    """The features of all inputs as points to cluster, and how they are that.

    ``check`` is given the shape of the features of one input, and says how many a point has; None for as many
    as there are.
    """
    features = encoder.features(inputs)
    shape = features.shape[1:]
    width = None if check is None else check(shape, inputs.where)
    if not spatial:
        arranged = Arrangement(shape, int(np.prod(shape)), None, normalize)
        return arranged.points(features), arranged
    if len(shape) < 2:
        raise InvalidInputError(
            f"{inputs.where}: a layer must have places to be clustered by, (n, channels, ...); it gives "
            f"{features.shape}. Name an earlier layer."
        )
    kind = encoder.kind(inputs) if len(shape) == 2 else ""  # for which it is traced; else it does not matter
    axis = channel_axis(shape, kind, width)
    arranged = Arrangement(shape, shape[axis], axis, normalize)
    return arranged.points(features), arranged


class _Joined(torch.nn.Module):
    """Encoder and clusters, one after the other."""

    def __init__(self, encoder: Encoder, clusters: torch.nn.Module, normalize: bool) -> None:
        super().__init__()
        self.encoder, self.clusters = encoder.module, clusters
        self._encoder, self._normalize = encoder, normalize

    def forward(self, x: Tensor) -> Tensor:
        """Evidence of inputs."""
        features = self._encoder.forward(x, "to_torch").flatten(1).double()
        if self._normalize:
            features = torch.nn.functional.normalize(features, dim=1)
        evidence: Tensor = self.clusters(features)
        return evidence


def _by_cluster(found: Any) -> list[Callable[[slice], NDArray[Any]]]:
    """Of each cluster, the relevance of the points that are explained for it; others have none."""

    def of(c: int) -> Callable[[slice], NDArray[Any]]:
        return lambda some: found.relevance[some] * (found.cluster_codes[some] == c)[:, None]

    return [of(c) for c in range(len(found.labels))]


def _by_units(relevance: Tensor, units: str | None, axis: int) -> Tensor:
    """Added up over places, or over channels."""
    if units is None or relevance.ndim == 2:
        return relevance
    places = [dim for dim in range(1, relevance.ndim) if dim != axis]
    return relevance.sum(places if units == "channels" else axis)


def _check_same(trace: Trace, now: NDArray[Any], before: NDArray[Any], inputs: Inputs) -> None:
    """Raise if the same inputs do not give the same features again, so that another pass is explained."""
    allowed = _AGREES.get(trace.features.dtype, _AGREES_ROUGHLY) * max(1e-30, float(np.abs(before).max()))
    if not (np.abs(now - before) <= allowed).all():
        raise InvalidInputError(
            f"{inputs.where}: the encoder must give the same features each time it is run; of the same "
            f"inputs they differ by up to {float(np.abs(now - before).max()):.3g}. Call encoder.eval(), and "
            "leave nothing random in its forward."
        )
