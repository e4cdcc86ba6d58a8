"""Segmentations in a file: the network, the steps before it, the population and the quality."""

from __future__ import annotations

import datetime as dt
import math
from typing import Any

import numpy as np
import sklearn
from numpy.typing import NDArray

from whycluster.core import outputs
from whycluster.core.attribution import Population
from whycluster.core.errors import InvalidInputError, UnsupportedModelError, WhyClusterError
from whycluster.data.column_kinds import ColumnKind
from whycluster.explanations.quality.clustering_quality import Null, Quality
from whycluster.models.network import Network
from whycluster.pipelines.network import PipelineNetwork, network_behind
from whycluster.segments.population import MOST_CATEGORIES, KnownColumn, KnownPopulation
from whycluster.segments.segmentation import Segmentation
from whycluster.segments.storage.archive import ArchiveReader, ArchiveWriter, encode
from whycluster.segments.storage.networks import check_savable, put_network, take_network
from whycluster.segments.storage.steps import read_steps, write_steps

_KINDS = {kind.name.lower(): kind for kind in ColumnKind}
_N_QUARTILES = 5
_PROBES = 8  # rows on which loaded steps are compared with the saved ones
_ALIKE = 1e-6  # largest difference of the evidence for a probe, relative to the largest evidence
_EPOCH = dt.datetime(1970, 1, 1)


def write_segmentation(seg: Segmentation) -> ArchiveWriter:
    """Return the contents of the file of a segmentation; raise an error if it cannot be saved."""
    writer, network = ArchiveWriter("segmentation"), seg.network
    last = network
    if isinstance(network, PipelineNetwork):
        last = network.stages.last
        if network.stages.steps is None:
            raise UnsupportedModelError(
                "save: the steps of the segmentation must be from scikit-learn; other steps cannot be saved."
            )
    check_savable(last)
    put_network(writer, last, network.labels)
    _put_steps(writer, network)
    _put_population(writer, seg.population)
    writer.facts["left_out"] = [
        [encode(name, "left_out"), str(reason)] for name, reason in (seg.left_out or {}).items()
    ]
    writer.facts["quality"] = _quality_facts(seg.quality)
    _put_probes(writer, seg)
    return writer


def load_segmentation(stored: ArchiveReader) -> Segmentation:
    """Return the segmentation in a file."""
    last = take_network(stored)
    columns = _take_columns(stored)
    network = _take_steps(stored, last, columns)
    if len(columns) != network.n_features:
        raise stored.error(f"there must be {network.n_features} columns; got {len(columns)}")
    found = KnownPopulation(_take_measured(stored, network), columns)
    _check_probes(stored, network, columns)
    left_out = {}
    for pair in stored.fact("left_out", list):
        if type(pair) is not list or len(pair) != 2 or type(pair[1]) is not str:
            raise stored.error("'left_out' must be pairs of a column and a reason")
        left_out[stored.object("left_out", pair[0])] = pair[1]
    return Segmentation(network, found, None, _take_quality(stored, network), left_out)


def _put_steps(writer: ArchiveWriter, network: Network) -> None:
    if not isinstance(network, PipelineNetwork):
        writer.facts["steps"] = None
        return
    names = network.stages.names
    writer.facts.update(
        steps=write_steps(writer, network.stages.steps or ()),
        step_names=None if names is None else [encode(name, "feature_names") for name in names],
        sklearn=str(sklearn.__version__),
    )


def _take_steps(stored: ArchiveReader, last: Network, columns: tuple[KnownColumn, ...]) -> Network:
    coded = stored.fact("steps", list, type(None))
    if coded is None:
        return last
    names = stored.fact("step_names", list, type(None))
    listed = None if names is None else stored.objects("step_names", names)
    if listed is not None and len(listed) != len(columns):
        raise stored.error(f"there must be {len(columns)} step_names; got {len(listed)}")
    steps = read_steps(stored, coded)
    try:
        with np.errstate(all="ignore"):
            return network_behind(steps, last, len(columns), listed)
    except Exception as error:  # attributes of scikit-learn may have any contents
        raise stored.error("its steps must match each other and the model after them") from error


def _put_population(writer: ArchiveWriter, known: KnownPopulation) -> None:
    writer.put("population.evidence", np.float64(known.measured.evidence))
    writer.put("population.sizes", known.measured.sizes, "int64")
    writer.put("population.means", known.measured.means)
    writer.facts["columns"] = [
        {
            "name": encode(column.name, "feature_names"),
            "kind": column.kind.name.lower(),
            "used": column.is_used,
            "missing": column.n_missing,
            "range": _floats(column.range),
            "sizes": _floats(column.sizes),
            "categories": None
            if column.categories is None
            else [encode(each, f"the categories of {column.name!r}") for each in column.categories],
            "once": column.n_once,
        }
        for column in known.columns
    ]


def _floats(values: tuple[float, ...] | None) -> list[Any] | None:
    return None if values is None else [float(value) for value in values]


def _take_columns(stored: ArchiveReader) -> tuple[KnownColumn, ...]:
    columns = tuple(_take_column(stored, each) for each in stored.fact("columns", list))
    names = [column.name for column in columns]
    if not columns or len(set(names)) < len(names):
        raise stored.error("'columns' must have distinct names")
    return columns


_COLUMN = {
    "name": (object,),
    "kind": (str,),
    "used": (bool,),
    "missing": (int,),
    "range": (list, type(None)),
    "sizes": (list, type(None)),
    "categories": (list, type(None)),
    "once": (int,),
}


def _take_column(stored: ArchiveReader, coded: Any) -> KnownColumn:
    if type(coded) is not dict or coded.keys() != _COLUMN.keys():
        raise stored.error(f"a column must have {', '.join(_COLUMN)}")
    for name, kinds in _COLUMN.items():
        if kinds != (object,) and type(coded[name]) not in kinds:
            raise stored.error(f"{name!r} of a column must be of type {kinds[0].__name__}")
    categories = coded["categories"]
    counts = min(coded["missing"], coded["once"])
    if coded["kind"] not in _KINDS or counts < 0 or len(categories or ()) > MOST_CATEGORIES:
        raise stored.error("a column must have a known kind, nonnegative counts and few categories")
    name = stored.object("columns", coded["name"])
    return KnownColumn(
        name,
        _KINDS[coded["kind"]],
        coded["used"],
        coded["missing"],
        _quartiles(stored, coded["range"], -math.inf),
        _quartiles(stored, coded["sizes"], 0.0),
        None if categories is None else tuple(stored.objects("categories", categories)),
        coded["once"],
    )


def _quartiles(stored: ArchiveReader, coded: list[Any] | None, above: float) -> tuple[float, ...] | None:
    if coded is None:
        return None
    valid = len(coded) == _N_QUARTILES and all(type(each) is float and math.isfinite(each) for each in coded)
    if not valid or sorted(coded) != coded or coded[0] <= above:
        raise stored.error("the range of a column must be five numbers in ascending order")
    return tuple(coded)


def _take_measured(stored: ArchiveReader, network: Network) -> Population:
    energy = network.energy
    evidence = float(stored.array("population.evidence", ["float64"], ""))
    sizes = stored.array("population.sizes", ["int64"], "?")
    means = stored.array("population.means", ["float64"], "??")
    width = energy.n_inputs if energy.needs_means else 0
    if sizes.shape != (energy.n_clusters,) or means.shape != (energy.n_clusters, width):
        raise stored.error("the population must have the sizes and the means of all clusters")
    if not (math.isfinite(evidence) and np.isfinite(means).all() and (sizes >= 0).all()):
        raise stored.error("the population must consist of finite numbers")
    if evidence < 0 or not 0 < float(sizes.astype(np.float64).sum()) < 2**62:
        raise stored.error("the population must have rows, and a mean evidence of at least 0")
    return Population(evidence, sizes.astype(np.intp), means)


def _quality_facts(found: Quality | None) -> dict[str, Any] | None:
    if found is None:
        return None
    return {
        "verdict": found.verdict,
        "text": found.text,
        "silhouette": found.silhouette,
        "n_rows": found.n_rows,
        "nulls": None if found.nulls is None else [list(null) for null in found.nulls],
        "reference": found.reference,
        "stability": found.stability,
        "clusters": None
        if found.clusters is None
        else [encode(label, "labels") for label in found.clusters.tolist()],
        "cluster_silhouette": _list(found.cluster_silhouette),
        "cluster_stability": _list(found.cluster_stability),
        "not_measured": dict(found.not_measured),
    }


def _list(values: NDArray[Any] | None) -> list[float] | None:
    return None if values is None else [float(value) for value in values]


_NUMBER = (float, type(None))
_LIST = (list, type(None))
_QUALITY: dict[str, tuple[type, ...]] = {
    "verdict": (str, type(None)),
    "text": (str,),
    "silhouette": _NUMBER,
    "n_rows": (int,),
    "nulls": _LIST,
    "reference": (str, type(None)),
    "stability": _NUMBER,
    "clusters": _LIST,
    "cluster_silhouette": _LIST,
    "cluster_stability": _LIST,
    "not_measured": (dict,),
}


def _take_quality(stored: ArchiveReader, network: Network) -> Quality | None:
    coded = stored.fact("quality", dict, type(None))
    if coded is None:
        return None
    if coded.keys() != _QUALITY.keys() or any(
        type(coded[name]) not in kinds for name, kinds in _QUALITY.items()
    ):
        raise stored.error("'quality' must have the attributes of a Quality")
    per_cluster = [coded[name] for name in ("cluster_silhouette", "cluster_stability")]
    labels = None if coded["clusters"] is None else stored.objects("quality", coded["clusters"])
    figures = [*(each for each in per_cluster if each is not None), *_null_figures(stored, coded["nulls"])]
    if any(type(value) is not float for each in figures for value in each):
        raise stored.error("'quality' must consist of numbers")
    n_clusters = 0 if labels is None else len(labels)
    if any(each is not None and len(each) != n_clusters for each in per_cluster):
        raise stored.error("'quality' must have a figure for each cluster")
    if not all(type(reason) is str for reason in coded["not_measured"].values()):
        raise stored.error("'quality' must have reasons as text")
    if labels is not None:
        codes = stored.make("labels", network.codes.encode, labels, "load", "quality")
        coded["clusters"] = network.labels[codes]
    nulls = coded["nulls"]
    coded["nulls"] = None if nulls is None else tuple(Null(*each) for each in nulls)
    for name in ("cluster_silhouette", "cluster_stability"):
        coded[name] = None if coded[name] is None else np.array(coded[name], dtype=np.float64)
    return Quality(**coded)


def _null_figures(stored: ArchiveReader, nulls: list[Any] | None) -> list[list[Any]]:
    for each in nulls or ():
        if type(each) is not list or len(each) != len(Null._fields) or type(each[0]) is not str:
            raise stored.error("'nulls' must be the figures of data without clusters")
    return [each[1:] for each in nulls or ()]


def _put_probes(writer: ArchiveWriter, seg: Segmentation) -> None:
    """Add the evidence for rows made from the ranges and categories of the columns.

    Another version of scikit-learn may transform rows differently, which these rows reveal.
    """
    if not isinstance(seg.network, PipelineNetwork):
        return
    try:
        writer.put("probes", _evidence(seg.network, seg.population.columns))
    except WhyClusterError:  # some steps refuse rows that combine known values
        writer.put("probes", np.empty((0, seg.network.n_clusters)))


def _check_probes(stored: ArchiveReader, network: Network, columns: tuple[KnownColumn, ...]) -> None:
    if not isinstance(network, PipelineNetwork):
        return
    expected, version = stored.array("probes", ["float64"], "??"), stored.fact("sklearn", str)
    if not len(expected):
        return
    try:
        found = _evidence(network, columns)
        scale = np.abs(expected).max()
        same = found.shape == expected.shape and np.abs(found - expected).max() <= _ALIKE * scale
    except WhyClusterError:
        same = False
    except Exception as error:  # attributes of scikit-learn may have any contents
        raise stored.error(f"its steps must be able to transform rows ({type(error).__name__})") from error
    if not same:
        raise InvalidInputError(
            f"load: the steps in {str(stored.path)!r} must compute the same as when they were saved, with "
            f"scikit-learn {version[:20]!r}; with scikit-learn {sklearn.__version__}, they do not. Install "
            "that version, or make the segmentation again."
        )


def _evidence(network: Network, columns: tuple[KnownColumn, ...]) -> NDArray[Any]:
    """Return the evidence of the probes for each cluster, (n, K)."""
    rows = np.empty((_PROBES, len(columns)), dtype=object)
    for i, column in enumerate(columns):
        rows[:, i] = [_value(column, probe + i) for probe in range(_PROBES)]
    numeric = all(column.kind in (ColumnKind.NUMBER, ColumnKind.EMPTY) for column in columns)
    X = rows.astype(np.float64) if numeric else rows
    with np.errstate(all="ignore"):
        return outputs.evidence_of_every_cluster(network.energy, network.open(X, "load"))


def _value(column: KnownColumn, place: int) -> Any:
    """Return one of the known values of a column."""
    if column.categories:
        return column.categories[place % len(column.categories)]
    if column.range is None:
        return None
    value = column.range[place % _N_QUARTILES]
    if column.kind is ColumnKind.BOOLEAN:
        return bool(value)
    if column.kind is ColumnKind.DATE:
        return _EPOCH + dt.timedelta(days=value)
    if column.kind is ColumnKind.DURATION:
        return dt.timedelta(days=value)
    if column.kind is ColumnKind.TIME:
        return (_EPOCH + dt.timedelta(days=value)).time()
    return value
