"""The adapter for Spark's MLlib: k-means, bisecting k-means, mixtures, and pipelines that end in these."""

from __future__ import annotations

import shutil
import tempfile
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from pyspark.ml import Estimator, PipelineModel
from pyspark.ml.clustering import BisectingKMeansModel, GaussianMixtureModel, KMeansModel

from whycluster.core.arrays import Floats
from whycluster.core.errors import InvalidInputError, NotFittedError, UnsupportedModelError
from whycluster.models.adapters.registry import adapt
from whycluster.models.energies import GaussianEnergy, Tree, TreeEnergy
from whycluster.models.nearest_centroid import nearest_centroid
from whycluster.models.network import Network, TableNetwork
from whycluster.pipelines.mllib import Source, StageGraph, check_stages
from whycluster.pipelines.network import network_of

FOLDER = "spark.whycluster.folder"
"""The Spark setting for the folder in which a model may be saved temporarily."""

_PARENT = "org$apache$spark$ml$clustering$BisectingKMeansModel$$parentModel"  # the method's name in Java
_CLUSTERINGS = (BisectingKMeansModel, GaussianMixtureModel, KMeansModel)


@adapt.register(Estimator)
def _not_fitted(model: Any) -> Network:
    raise NotFittedError(f"neuralize: the {type(model).__name__} must be fitted first. Call its fit method.")


@adapt.register(KMeansModel)
def _kmeans(model: Any) -> Network:
    return nearest_centroid(np.array(model.clusterCenters()), metric=model.getDistanceMeasure())


@adapt.register(GaussianMixtureModel)
def _mixture(model: Any) -> Network:
    """Return the network of a mixture, without components of zero weight, which are never predicted."""
    rows = model.gaussiansDF.collect()
    weights = np.array(model.weights)
    used = np.flatnonzero(weights > 0)
    means = np.array([rows[k].mean.toArray() for k in used])
    components = [_component(rows[k].cov.toArray()) for k in used]
    roots, log_dets, deviations = (np.array(each) for each in zip(*components, strict=True))
    energy = GaussianEnergy(means, roots, np.log(weights[used]), log_det=log_dets, deviations=deviations)
    return TableNetwork(energy, labels=used)


def _component(covariance: Floats) -> tuple[Floats, float, Floats]:
    """Return P, such that P P^T is the inverse of the covariance S, log det(S) / 2, and the deviations.

    Directions whose variance is zero within MLlib's tolerance are left out of P and of the determinant, as in
    MLlib's density. A feature whose own variance is zero within this tolerance gets the deviation 0.
    """
    values, vectors = np.linalg.eigh(covariance)
    tolerance = np.finfo(np.float64).eps * len(values) * values.max()
    positive, variances = values > tolerance, np.diag(covariance)
    root = vectors * np.where(positive, 1.0 / np.sqrt(np.where(positive, values, 1.0)), 0.0)
    deviations = np.sqrt(np.where(variances > tolerance, variances, 0.0))
    return root, float(np.log(values[positive]).sum() / 2), deviations


@adapt.register(BisectingKMeansModel)
def _bisecting(model: Any) -> Network:
    if model.getDistanceMeasure() != "euclidean":
        raise UnsupportedModelError(
            "neuralize: a BisectingKMeansModel must use the distance measure 'euclidean'; got "
            f"{model.getDistanceMeasure()!r}."
        )
    root = _read_tree(model)
    if not root.children:
        raise InvalidInputError(
            "neuralize: the model must have at least 2 clusters, since a cluster is explained against its "
            "competitors; got 1."
        )
    return TableNetwork(_tree_energy(root))


class _Node(NamedTuple):
    """A node of the tree: its cluster (if it is a leaf), its center and its children."""

    cluster: int
    center: Floats
    children: list[_Node]


def _tree_energy(root: _Node) -> TreeEnergy:
    """Return the energy of the tree, with pairs of nodes in breadth-first order (parents before children)."""
    nodes = list(root.children)
    below, leaf = [], []
    for node in nodes:  # the list grows during the loop
        if node.children:
            below.append(len(nodes) // 2)
            leaf.append(-1)
            nodes += node.children
        else:
            below.append(-1)
            leaf.append(node.cluster)
    return TreeEnergy(Tree(np.array(below), np.array(leaf)), np.array([node.center for node in nodes]))


def _read_tree(model: Any) -> _Node:
    """Return the tree of a model, whose public interface exposes only the leaves.

    The tree is read from the JVM or, under Spark Connect, which gives no access to the JVM, from the saved
    model.
    """
    try:
        return _from_jvm(getattr(model._java_obj, _PARENT)().root())
    except Exception:  # AttributeError or an error from py4j, which may not be installed
        return _from_file(model)


def _from_jvm(node: Any) -> _Node:
    children = [_from_jvm(child) for child in node.children()]
    return _joined(node.index(), np.array(node.center().toArray()), children)


def _from_file(model: Any) -> _Node:
    from pyspark.sql import SparkSession

    session = SparkSession.active()
    base = session.conf.get(FOLDER, tempfile.gettempdir())
    path = f"{base}/whycluster-{uuid.uuid4().hex}"
    model.save(path)
    try:
        reader = session.read.option("recursiveFileLookup", "true").option("pathGlobFilter", "*.parquet")
        rows = {row["index"]: row for row in reader.parquet(f"{path}/data").collect()}
    finally:
        shutil.rmtree(path.removeprefix("file:"), ignore_errors=True)  # if the server runs on this machine

    def node(index: int) -> _Node:
        row = rows[index]
        return _joined(index, row.center.toArray(), [node(child) for child in row.children])

    below = {child for row in rows.values() for child in row.children}
    return node(next(index for index in rows if index not in below))


def _joined(cluster: int, center: Floats, children: list[_Node]) -> _Node:
    """Return a node, or its only child if the other child received no rows."""
    return children[0] if len(children) == 1 else _Node(cluster, center, children)


@adapt.register(PipelineModel)
def _pipeline(model: Any) -> Network:
    return behind(model, {})[0]


def is_mllib(model: Any) -> bool:
    """Return whether a model reads its rows from named columns."""
    return isinstance(model, (PipelineModel, *_CLUSTERINGS))


def behind(model: Any, names: Mapping[str, Sequence[str]]) -> tuple[Network, list[Source]]:
    """Return the network of a model or pipeline in terms of the user's columns, and the columns themselves.

    Parameters
    ----------
    model : a clustering model from MLlib, or a pipeline that ends in one
    names : the names of the features in the user's columns of vectors, if known
    """
    *stages, end = _flat(model) or [None]
    if not isinstance(end, _CLUSTERINGS):
        raise UnsupportedModelError(
            "neuralize: the last stage of the pipeline must be a KMeansModel, BisectingKMeansModel or "
            f"GaussianMixtureModel; got {'an empty pipeline' if end is None else type(end).__name__}."
        )
    check_stages(stages)
    fold = _fold()
    known = {fold(name): found for name, found in names.items()}
    graph = StageGraph(stages, fold, {name: len(found) for name, found in known.items()})
    last, column = adapt(end), end.getFeaturesCol()
    assert isinstance(last, Network)
    sources = graph.sources(column, last.n_features)
    form = graph.form(column, sources)
    if form.n_outputs != last.n_features:
        raise InvalidInputError(
            f"neuralize: the stages of the pipeline compute {form.n_outputs} features from its columns, but "
            f"its model takes {last.n_features}. A column of vectors counts as one feature if its length is "
            "not known; whycluster.engines.spark.explain(model, df) reads the length from df, provided that "
            "a VectorAssembler or a VectorSizeHint recorded it there."
        )
    features = [name for s in sources for name in s.feature_names(known.get(fold(s.name), []))]
    if len(set(features)) < len(features):
        features = [f"{s.name}_{i}" if s.width else s.name for s in sources for i in range(s.width or 1)]
    if form.is_plain and form.matrix is None:
        return TableNetwork(last.energy, labels=last.labels, feature_names=features), sources
    return network_of(form, last, len(features), features), sources


def _fold() -> Callable[[str], str]:
    """Return the function for comparing names: Spark ignores case unless it is set to be case-sensitive."""
    from pyspark.sql import SparkSession

    sensitive = SparkSession.active().conf.get("spark.sql.caseSensitive")
    return str if sensitive.lower() == "true" else str.lower


def _flat(model: Any) -> list[Any]:
    """Return the stages of a pipeline, including those of nested pipelines."""
    if not isinstance(model, PipelineModel):
        return [model]
    return [stage for part in model.stages for stage in _flat(part)]
