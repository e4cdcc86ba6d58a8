"""The network of a deep clustering; it combines an encoder, a head that clusters features, and LRP."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from whycluster.core.errors import InvalidInputError, UnsupportedModelError
from whycluster.data.frames import build_frame
from whycluster.data.validation import check_choice
from whycluster.deep.encoder import Encoder, Inputs, track
from whycluster.deep.explanation import CHANNELS, UNITS, DeepExplanation, SpatialExplanation, channel_axis
from whycluster.deep.lrp.composites import Composite, composite_of, with_bounds
from whycluster.deep.lrp.operations import CLASS_TOKEN
from whycluster.deep.lrp.propagation import Trace
from whycluster.deep.lrp.rules import Tensor, ZBox
from whycluster.deep.references import AUTO, check_reference, choose_reference, with_reference
from whycluster.deep.tensors import to_numpy
from whycluster.explanations.unstable import warn_if_unstable
from whycluster.models.network import Network

# Allowed differences between two runs, relative to the largest feature
_TOLERANCES = {torch.float64: 1e-6, torch.float32: 1e-3}
_HALF_TOLERANCE = 3e-2


@dataclass(frozen=True)
class PointLayout:
    """The layout of an input's features as points to cluster.

    Attributes
    ----------
    shape : the shape of the features of one input
    width : the number of features of a point
    axis : the axis of these features if each location is a point, or None if each input is one point
    normalize : whether points are scaled to unit length
    """

    shape: tuple[int, ...]
    width: int
    axis: int | None
    normalize: bool

    @property
    def locations(self) -> tuple[int, ...]:
        """The shape of the locations of one input, or () if each input is one point."""
        return () if self.axis is None else tuple(np.delete(self.shape, self.axis).tolist())

    def points(self, features: NDArray[Any]) -> NDArray[Any]:
        """Return the points of some inputs, (m, width)."""
        rows = features if self.axis is None else np.moveaxis(features, 1 + self.axis, -1)
        rows = np.ascontiguousarray(rows).reshape(-1, self.width)
        if self.normalize:
            lengths = np.linalg.norm(rows, axis=1, keepdims=True)
            rows = rows / np.where(lengths == 0, 1, lengths)
        return rows

    def slice(self, rows: slice) -> slice:
        """Return the slice of the points that belong to a slice of the inputs."""
        n_locations = int(np.prod(self.locations, dtype=int))
        return slice(rows.start * n_locations, rows.stop * n_locations)

    def to_features(self, relevance: NDArray[Any]) -> NDArray[Any]:
        """Return the relevance of points in the shape of the features.

        The lengths that the points were divided by are treated as constants.
        """
        if self.axis is None:
            return relevance.reshape(-1, *self.shape)
        return np.moveaxis(relevance.reshape(-1, *self.locations, self.width), -1, 1 + self.axis)


class DeepNetwork(Network):
    """The network of a deep clustering. Explanations are in terms of the encoder's inputs.

    Parameters
    ----------
    encoder : maps inputs to features
    head : the network that clusters the features
    spatial : whether each location of the features is a point, rather than each input
    normalize : whether points are scaled to unit length
    rules : the LRP rules, in any form that `composite_of` accepts
    bounds : the smallest and the largest value of the inputs, or None
    reference : the reference of the features: "auto", "midpoint" or "zero"
    """

    def __init__(
        self,
        encoder: Encoder,
        head: Network,
        *,
        spatial: bool,
        normalize: bool,
        rules: Any,
        bounds: tuple[Any, Any] | None,
        reference: str = AUTO,
    ) -> None:
        check_reference(reference, head)
        super().__init__(head.energy, labels=head.labels, fidelity=head.fidelity)
        self.encoder, self.head, self.is_checked = encoder, head, head.is_checked
        self.spatial, self.normalize, self._reference = spatial, normalize, reference
        self._width = head.n_features
        self._rules, self._bounds = rules, None if bounds is None else ZBox(*bounds)

    def __repr__(self) -> str:
        return f"<DeepNetwork of {self.n_clusters} clusters, {self._width} feature{'s' * (self._width != 1)}>"

    is_deep = True
    default_rule = (
        "joint"  # more faithful than the other rules for heads of encoders; see docs/faithfulness.md
    )
    takes_any_kind = False
    text_columns: frozenset[int] = frozenset()
    explains_columns = False

    def points(self, X: Any, where: str, name: str = "X") -> tuple[NDArray[Any], PointLayout]:
        """Return the features of all inputs as points to cluster, and the layout of the points."""
        return self._points(Inputs.open(X, where, name))

    def assign(self, X: Any) -> NDArray[Any]:
        """Return the cluster of each input, (n,), or of each location, (n, ...), if spatial."""
        rows, layout = self.points(X, "assign")
        return self.head.assign(rows).reshape(-1, *layout.locations)

    def evidence(self, X: Any) -> NDArray[Any]:
        """Return the evidence f_c for every cluster, (n, K), or per location, (n, ..., K), if spatial."""
        rows, layout = self.points(X, "evidence")
        return self.head.evidence(rows).reshape(-1, *layout.locations, self.n_clusters)

    def gradient(self, X: Any, target: Any = None) -> NDArray[Any]:  # noqa: ARG002  # signature of Network
        """Raise an error, since gradients through an encoder must be computed with torch."""
        raise UnsupportedModelError(
            "gradient: the model must take tables; got a deep clustering. Differentiate the module "
            "from to_torch() with torch, or call wc.neuralize(head).gradient(features)."
        )

    def open(self, X: Any, where: str, **_: Any) -> Any:  # noqa: ARG002  # signature of Network
        """Raise an error, since the inputs of an encoder are not a table."""
        raise UnsupportedModelError(
            f"{where}: the model must take tables; got a deep clustering. Pass its head, with "
            "model.transform(X) as the rows."
        )

    def to_torch(self, cluster: Any = None) -> torch.nn.Module:
        """Return one module that maps inputs to `evidence` and shares the user's encoder."""
        if self.spatial:
            raise UnsupportedModelError(
                "to_torch: each input must be one point; with spatial=True, it consists of many points. "
                "Convert the head instead: wc.neuralize(head).to_torch()."
            )
        return _Joined(self.encoder, self.head.to_torch(cluster), self.normalize)

    def explain(self, X: Any, *, at: Any = None, units: Any = None, **query: Any) -> Any:
        """Explain each input; the parameters are those of `whycluster.explain`."""
        check_readout(self.encoder, at, units, "explain")
        if query.pop("feature_names", None) is not None:
            raise InvalidInputError(
                "explain: feature_names applies only to tables; inputs of an encoder have no columns. Leave "
                "feature_names out."
            )
        inputs = Inputs.open(X, "explain")
        return self.explain_points(inputs, *self._points(inputs), at, units, **query)

    def explain_points(
        self,
        inputs: Inputs,
        rows: NDArray[Any],
        layout: PointLayout,
        at: str | None,
        units: str | None,
        **query: Any,
    ) -> Any:
        """Explain each input, given the points of all inputs and their layout."""
        self._check_bounds(inputs)
        if query.get("background") is not None:
            query["background"] = self.points(query["background"], "explain", "background")[0]
        exp = self._explain_head(
            self._with_index(rows, inputs), rows, query, self.encoder.reads_tokens(inputs)
        )
        parts = _by_cluster(exp) if self.spatial else [exp.relevance.__getitem__]
        relevance, axis, class_token = self._propagate(inputs, rows, layout, parts, at, units)
        total = sum(float(np.abs(part).sum()) for part in relevance)
        made: DeepExplanation | SpatialExplanation
        if self.spatial:
            cluster = exp.cluster_codes.reshape(-1, *layout.locations)
            made = SpatialExplanation(
                np.stack(relevance, axis=1), cluster, exp, inputs.native, at, units, axis
            )
        else:
            own = {"_inputs": inputs.native, "at": at, "units": units, "_axis": axis}
            made = DeepExplanation.of_features(exp, relevance[0], **own, _class_token=class_token)
        warn_if_unstable(total, exp.evidence, inputs.where)
        return made

    def _explain_head(
        self, table: Any, rows: NDArray[Any], query: dict[str, Any], are_tokens: bool = False
    ) -> Any:
        """Explain the points in terms of their features; ``table`` holds them, possibly with an index."""
        noun = "location" if self.spatial else "input"
        background = query.get("background")
        reference = choose_reference(self._reference, self.head, rows, background, noun, are_tokens)
        exp = with_reference(self.head, reference, self.default_rule).explain(table, **query)
        return replace(exp, reference=reference.point, reference_reason=reference.reason)

    def _points(self, inputs: Inputs) -> tuple[NDArray[Any], PointLayout]:
        return encode_points(self.encoder, inputs, self.spatial, self.normalize, self._check_width)

    def _with_index(self, rows: NDArray[Any], inputs: Inputs) -> Any:
        """Return the points. If the inputs are a frame, the points become a frame with the same index."""
        if self.spatial or not inputs.is_frame:
            return rows
        names = self.head.feature_names or [f"x{i}" for i in range(rows.shape[1])]
        return build_frame(dict(zip(names, rows.T, strict=True)), inputs.native, None, inputs.where)

    def _check_width(self, shape: tuple[int, ...], where: str) -> int:
        """Return the number of features of a point; raise an error if this shape does not fit the head."""
        width = self._width
        fits = width in (shape[0], shape[-1]) and len(shape) > 1 if self.spatial else width == np.prod(shape)
        if fits:
            return width
        hint = "Fit the head to features of this layer, or use layer=... to name the layer it was fitted to."
        if self.spatial and len(shape) == 1:
            hint = "These features have no locations. Name an earlier layer, or leave out spatial."
        elif len(shape) > 1 and width in (shape[0], shape[-1]):
            hint = "Use pool='mean' to average over all locations, or spatial=True to cluster each location."
        raise InvalidInputError(
            f"{where}: the encoder must return {width} features, the number that the head was fitted on; it "
            f"returns {' x '.join(map(str, shape))}. {hint}"
        )

    def _propagate(
        self,
        inputs: Inputs,
        points: NDArray[Any],
        layout: PointLayout,
        parts: Sequence[Callable[[slice], NDArray[Any]]],
        at: str | None,
        units: str | None,
    ) -> tuple[list[NDArray[Any]], int, NDArray[Any]]:
        """Propagate relevance from all points to all inputs.

        Parameters
        ----------
        inputs, points, layout : the inputs, their points and the layout of the points
        parts : functions that each return one part of the relevance for a slice of the points. All parts use
            the same trace but are propagated separately.
        at, units : as in `whycluster.explain`

        Returns
        -------
        the relevance of all inputs for each part, the axis of the channels, and the relevance that a class
        token received, (n,)
        """
        results: list[NDArray[Any]] = []
        class_token = np.zeros(len(inputs))
        n_parts, axis = len(parts), 1
        steps = [(rows, number) for rows in self.encoder.slices(inputs) for number in range(n_parts)]
        for rows, number in track("explaining", steps):
            chosen = layout.slice(rows)
            if number == 0:
                trace = self.encoder.trace(self.encoder.batch(inputs, rows), inputs, at)
                _check_same(trace, layout.points(to_numpy(trace.features)), points[chosen], inputs)
            seed = np.ascontiguousarray(layout.to_features(parts[number](chosen)))
            composite, kind = self._composite(trace)
            lost: dict[str, Tensor] = {}
            found = trace.propagate(trace.seed(seed), composite, at, last=number == n_parts - 1, lost=lost)
            if CLASS_TOKEN in lost:
                class_token[rows] += to_numpy(lost[CLASS_TOKEN])
            axis = 1 + channel_axis(tuple(found.shape[1:]), kind)
            values = to_numpy(_sum_units(found, units, axis))
            if number == len(results):
                results.append(np.empty((len(inputs), *values.shape[1:]), values.dtype))
            results[number][rows] = values
        return results, axis, class_token

    def _composite(self, trace: Trace) -> tuple[Composite, str]:
        """Return the rules for a traced pass, and the kind of network that they were chosen for."""
        kind = trace.kind
        composite = composite_of(self._rules, kind)
        if self._bounds is None:
            return composite, kind
        assert trace.input.value is not None
        low, high = self._bounds.expand(trace.input.value)  # before any operation that reshapes the inputs
        return with_bounds(composite, ZBox(low[0].cpu(), high[0].cpu())), kind

    def _check_bounds(self, inputs: Inputs) -> None:
        if self._bounds is None:
            return
        for rows in self.encoder.slices(inputs):
            batch = inputs.tensor[rows]
            low, high = self._bounds.expand(batch)
            slack = 1e-4 * (high - low)
            outside = ((batch < low - slack) | (batch > high + slack)).flatten(1).any(1)
            if bool(outside.any()):
                row = rows.start + int(outside.int().argmax())
                raise InvalidInputError(
                    f"{inputs.where}: {inputs.name} must be within the bounds of the DeepClustering; input "
                    f"{row} has values from {float(inputs.tensor[row].min()):.4g} to "
                    f"{float(inputs.tensor[row].max()):.4g}. Normalize images to these bounds, or leave out "
                    "bounds."
                )


def check_readout(encoder: Encoder, at: Any, units: Any, where: str) -> None:
    """Raise an error unless ``at`` is a layer of the encoder and ``units`` is a known option."""
    if at is not None:
        encoder.check_layer(at, where, "at")
    if units is not None:
        check_choice(units, UNITS, where, "units")


def encode_points(
    encoder: Encoder,
    inputs: Inputs,
    spatial: bool,
    normalize: bool,
    check: Callable[[tuple[int, ...], str], int] | None = None,
) -> tuple[NDArray[Any], PointLayout]:
    """Return the features of all inputs as points to cluster, and the layout of the points.

    Parameters
    ----------
    encoder, inputs : the encoder and its inputs
    spatial, normalize : as in `DeepClustering`
    check : a function that takes the shape of the features of one input and returns the number of features of
        a point; or None to accept any number of features
    """
    features = encoder.features(inputs)
    shape = features.shape[1:]
    width = None if check is None else check(shape, inputs.where)
    if not spatial:
        layout = PointLayout(shape, int(np.prod(shape)), None, normalize)
        return layout.points(features), layout
    if len(shape) < 2:
        raise InvalidInputError(
            f"{inputs.where}: the layer must return locations to cluster, in shape (n, channels, ...); it "
            f"returns shape {features.shape}. Name an earlier layer."
        )
    kind = encoder.kind(inputs) if len(shape) == 2 else ""  # the kind requires a trace and matters only here
    axis = channel_axis(shape, kind, width)
    layout = PointLayout(shape, shape[axis], axis, normalize)
    return layout.points(features), layout


class _Joined(torch.nn.Module):
    """An encoder followed by the network of a head."""

    def __init__(self, encoder: Encoder, clusters: torch.nn.Module, normalize: bool) -> None:
        super().__init__()
        self.encoder, self.clusters = encoder.module, clusters
        self._encoder, self._normalize = encoder, normalize

    def forward(self, x: Tensor) -> Tensor:
        """Return the evidence of a batch of inputs."""
        self._encoder.find_tokens(Inputs.open(x, "to_torch"))
        features = self._encoder.forward(x, "to_torch").flatten(1).double()
        if self._normalize:
            features = torch.nn.functional.normalize(features, dim=1)
        evidence: Tensor = self.clusters(features)
        return evidence


def _by_cluster(exp: Any) -> list[Callable[[slice], NDArray[Any]]]:
    """Return, for each cluster, a function that keeps only the relevance of this cluster's points."""

    def of(c: int) -> Callable[[slice], NDArray[Any]]:
        return lambda rows: exp.relevance[rows] * (exp.cluster_codes[rows] == c)[:, None]

    return [of(c) for c in range(len(exp.labels))]


def _sum_units(relevance: Tensor, units: str | None, axis: int) -> Tensor:
    """Sum relevance over locations (for units="channels") or over channels (for units="locations")."""
    if units is None or relevance.ndim == 2:
        return relevance
    locations = [dim for dim in range(1, relevance.ndim) if dim != axis]
    return relevance.sum(locations if units == CHANNELS else axis)


def _check_same(trace: Trace, now: NDArray[Any], before: NDArray[Any], inputs: Inputs) -> None:
    """Raise an error if the features of the traced pass differ from those of the first pass."""
    allowed = _TOLERANCES.get(trace.features.dtype, _HALF_TOLERANCE) * max(1e-30, float(np.abs(before).max()))
    if not (np.abs(now - before) <= allowed).all():
        raise InvalidInputError(
            f"{inputs.where}: the encoder must return the same features each time it runs; for the same "
            f"inputs they differ by up to {float(np.abs(now - before).max()):.3g}. Call encoder.eval(), and "
            "remove all randomness from its forward method."
        )
