"""Networks in a file: the parameters of the energy, the labels, the names and the fidelity."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import prod
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whycluster.core.arrays import Codes
from whycluster.core.energies import Energy
from whycluster.core.errors import InvalidInputError, UnsupportedModelError
from whycluster.data.missing import is_missing
from whycluster.explanations.agreement import Agreement
from whycluster.explanations.fidelity import Fidelity
from whycluster.models.network import Network, TableNetwork, check_rows_alone
from whycluster.models.series_network import SeriesNetwork
from whycluster.segments.storage.archive import ArchiveReader, ArchiveWriter, encode
from whycluster.segments.storage.parameters import (
    FINITE,
    NOT_NEGATIVE,
    PARAMETERS,
    SHARE,
    NestedParameter,
    Parameter,
    Values,
)

_ENERGIES = {kind.__name__: kind for kind in PARAMETERS if issubclass(kind, Energy)}
_CODES = Values("cluster codes of at least 0", lambda codes: codes >= 0)
_SHARES = Values("from 0 to 1, or NaN", lambda a: ~((a < 0) | (a > 1)))
PIPELINE = (
    "save: the steps of a pipeline can be saved only as part of a segmentation, which also contains facts "
    "to check new rows against: wc.save(wc.Segmentation.of(pipeline, X), path)."
)
"""The error for networks and explanations of pipelines."""


def check_savable(network: Network) -> None:
    """Raise an error if a network contains code."""
    if network.is_deep:
        raise UnsupportedModelError(
            "save: a deep clustering cannot be saved, because it contains a torch encoder, which is code. "
            "Save the encoder with torch and the network of its head with wc.save(wc.neuralize(head), path)."
        )
    if isinstance(network, SeriesNetwork):
        return
    if not isinstance(network, TableNetwork):
        check_rows_alone(network, "save")
        raise UnsupportedModelError(PIPELINE)
    if network.verification is not None:
        raise UnsupportedModelError(
            "save: this network cannot be saved, because it verifies the assignment of all rows with the "
            "model's own predict, which is code. If the model has centroids, save their network instead, "
            "which is not verified: wc.neuralize(model.cluster_centers_)."
        )


def put_network(writer: ArchiveWriter, network: Network, labels: NDArray[Any]) -> None:
    """Add a network with these labels; see `check_savable`."""
    put_energy(writer, network.energy)
    writer.put_values("labels", labels)
    writer.facts["feature_names"] = encoded_names(network.feature_names)
    writer.facts["categories"] = encoded_lists(network.categories)
    if isinstance(network, SeriesNetwork):
        writer.facts["series"] = [network.n_steps, network.n_channels]
    put_fidelity(writer, network.fidelity)
    put_agreement(writer, network.agreement)


def take_network(stored: ArchiveReader) -> Network:
    """Return the network that `put_network` added."""
    energy = take_energy(stored)
    labels, names = stored.values("labels", "k"), stored.fact("feature_names", list, type(None))
    categories = take_categories(stored, energy.n_features)
    shape = _take_shape(stored, energy.n_features)
    return stored.make(
        "a network",
        partial(TableNetwork, energy, categories=categories)
        if shape is None
        else partial(SeriesNetwork, energy, *shape),
        labels=labels,
        feature_names=None if names is None else stored.objects("feature_names", names),
        fidelity=take_fidelity(stored),
        agreement=take_agreement(stored),
    )


def _take_shape(stored: ArchiveReader, n_features: int) -> tuple[int, int] | None:
    """Take out the numbers of time steps and of channels, if the rows are time series."""
    if not stored.has_fact("series"):
        return None
    shape = stored.fact("series", list)
    if len(shape) != 2 or not all(type(n) is int and n > 0 for n in shape) or prod(shape) != n_features:
        raise stored.error(
            f"'series' must be the numbers of time steps and channels of {n_features} features"
        )
    return shape[0], shape[1]


def put_energy(writer: ArchiveWriter, energy: Energy) -> None:
    """Add the parameters of an energy."""
    name = type(energy).__name__
    if _ENERGIES.get(name) is not type(energy):
        raise UnsupportedModelError(
            f"save: the energy must be of a known class; got {name}. Save its parameters with numpy.savez, "
            "and reconstruct the energy from them."
        )
    writer.facts["energy"] = name
    _put_parameters(writer, "energy", energy)


def _put_parameters(writer: ArchiveWriter, name: str, owner: Any) -> None:
    for key, parameter in PARAMETERS[type(owner)].parameters.items():
        value, place = attrgetter(parameter.path)(owner), f"{name}.{key}"
        if isinstance(parameter, NestedParameter):
            _put_parameters(writer, place, value)
        elif value is not None:
            if parameter.choices:
                value = parameter.choices.index(value)
            if not np.all(parameter.values.are(np.asarray(value))):
                raise InvalidInputError(
                    f"save: {place} must be {parameter.values.text}; the model contains other values."
                )
            writer.put(place, value, parameter.dtype)


def take_energy(stored: ArchiveReader) -> Energy:
    """Return the energy that `put_energy` added."""
    kind = _ENERGIES[stored.choice("energy", tuple(_ENERGIES))]
    energy: Energy = _take_parameters(stored, "energy", kind)
    return energy


def _take_parameters(stored: ArchiveReader, name: str, kind: type) -> Any:
    known, values = PARAMETERS[kind], dict[str, Any]()
    for key, parameter in known.parameters.items():
        place = f"{name}.{key}"
        if isinstance(parameter, NestedParameter):
            values[key] = _take_parameters(stored, place, parameter.kind)
        elif stored.has(place) or not parameter.optional:
            values[key] = _take_parameter(stored, place, parameter)
    error = known.error(values)
    if error is not None:
        raise stored.error(f"{name!r}: {error}")
    return stored.make(f"a {kind.__name__}", kind, **values)


def _take_parameter(stored: ArchiveReader, name: str, parameter: Parameter) -> Any:
    array = take(stored, name, parameter.axes, [parameter.dtype], parameter.values)
    if parameter.choices:
        return parameter.choices[array.item()]
    return array if parameter.axes else array.item()


def take(
    stored: ArchiveReader, name: str, axes: str, dtypes: Sequence[str] = ("float64",), values: Values = FINITE
) -> NDArray[Any]:
    """Take out an array whose values are checked; see `ArchiveReader.array`."""
    array = stored.array(name, dtypes, axes)
    if not np.all(values.are(array)):
        raise stored.error(f"{name!r} must be {values.text}; it contains other values")
    return array


def take_codes(stored: ArchiveReader, name: str, n_clusters: int) -> Codes:
    """Take out the codes of clusters."""
    codes = take(stored, name, "n", ["int64"], _CODES)
    if codes.max() >= n_clusters:
        raise stored.error(f"{name!r} must be below {n_clusters}, the number of clusters")
    return codes.astype(np.intp)


def put_fidelity(writer: ArchiveWriter, fidelity: Fidelity | None) -> None:
    """Add the fidelity of a surrogate, if there is one."""
    writer.facts["fidelity"] = fidelity is not None
    if fidelity is None:
        return
    writer.put_values("fidelity.labels", fidelity.labels)
    writer.put("fidelity.size", fidelity.size, "int64")
    for name in ("in_sample", "cross_validated"):
        writer.put(f"fidelity.{name}", getattr(fidelity, name), "float64")
        writer.put(f"fidelity.{name}_per_cluster", getattr(fidelity, f"{name}_per_cluster"), "float64")


def take_fidelity(stored: ArchiveReader) -> Fidelity | None:
    """Return the fidelity that `put_fidelity` added."""
    if not stored.fact("fidelity", bool):
        return None
    return Fidelity(
        in_sample=take(stored, "fidelity.in_sample", "", values=SHARE).item(),
        cross_validated=take(stored, "fidelity.cross_validated", "", values=SHARE).item(),
        labels=stored.values("fidelity.labels", "f"),
        size=take(stored, "fidelity.size", "f", ["int64"], NOT_NEGATIVE).astype(np.intp),
        in_sample_per_cluster=take(stored, "fidelity.in_sample_per_cluster", "f", values=_SHARES),
        cross_validated_per_cluster=take(stored, "fidelity.cross_validated_per_cluster", "f", values=_SHARES),
    )


def put_agreement(writer: ArchiveWriter, agreement: Agreement | None) -> None:
    """Add the agreement of the network with its labels, if it was measured."""
    if agreement is None:
        return
    writer.put("agreement.share", agreement.share, "float64")
    writer.put("agreement.n_ties", agreement.n_ties, "int64")
    if agreement.differing.size:
        writer.put("agreement.differing", agreement.differing, "int64")
    writer.put_values("agreement.labels", agreement.labels)
    writer.put("agreement.size", agreement.size, "int64")
    writer.put("agreement.share_per_cluster", agreement.share_per_cluster, "float64")


def take_agreement(stored: ArchiveReader) -> Agreement | None:
    """Return the agreement that `put_agreement` added."""
    if not stored.has("agreement.share"):
        return None
    differing = np.empty(0, dtype=np.intp)
    if stored.has("agreement.differing"):
        differing = take(stored, "agreement.differing", "a", ["int64"], NOT_NEGATIVE).astype(np.intp)
    return Agreement(
        share=take(stored, "agreement.share", "", values=SHARE).item(),
        n_ties=take(stored, "agreement.n_ties", "", ["int64"], NOT_NEGATIVE).item(),
        differing=differing,
        labels=stored.values("agreement.labels", "g"),
        size=take(stored, "agreement.size", "g", ["int64"], NOT_NEGATIVE).astype(np.intp),
        share_per_cluster=take(stored, "agreement.share_per_cluster", "g", values=_SHARES),
    )


def encoded(values: Sequence[Any] | None, name: str) -> list[Any] | None:
    """Return values as JSON values; ``name`` is for messages."""
    return None if values is None else [encode(value, name) for value in values]


def encoded_names(names: Sequence[Any] | None) -> list[Any] | None:
    """Return the names of features as JSON values."""
    others = {name for name in names or () if type(name) is not str and name is not None}
    if any(map(is_missing, others)):
        raise UnsupportedModelError(
            "save: feature_names must not contain missing names; one of them is NaN. Rename that column "
            "first."
        )
    return encoded(names, "feature_names")


def encoded_lists(categories: Sequence[Sequence[Any] | None] | None) -> list[Any] | None:
    """Return the categories of each feature as JSON values."""
    return None if categories is None else [encoded(values, "categories") for values in categories]


def take_categories(stored: ArchiveReader, n_features: int) -> list[list[Any] | None] | None:
    """Take out the categories of each feature."""
    coded = stored.fact("categories", list, type(None))
    if coded is None:
        return None
    if len(coded) != n_features:
        raise stored.error(f"'categories' must have {n_features} entries; got {len(coded)}")
    return [None if values is None else stored.objects("categories", values) for values in coded]
