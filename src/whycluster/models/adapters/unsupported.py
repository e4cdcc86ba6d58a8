"""The models that have a network, and the error for anything else."""

from __future__ import annotations

import os
from typing import Any

from whycluster.core.errors import UnsupportedModelError
from whycluster.data.labels import BY_LABELS

SUPPORTED = (
    "whycluster.KernelKMeans, Surrogate",
    "sklearn.cluster.KMeans, MiniBatchKMeans, BisectingKMeans, Birch, MeanShift, AffinityPropagation",
    "sklearn.mixture.GaussianMixture, BayesianGaussianMixture",
    "sklearn.cluster.DBSCAN, HDBSCAN, OPTICS, AgglomerativeClustering, SpectralClustering (by their rules)",
    "hdbscan.HDBSCAN (by its rule)",
    "communities of a graph, such as those of Leiden: wc.explain(labels, X, graph=graph)",
    "sklearn.neighbors.NearestCentroid, KNeighborsClassifier",
    "sklearn.decomposition.LatentDirichletAllocation, NMF (the topic with the largest weight)",
    "faiss.Kmeans",
    "hmmlearn.hmm.GaussianHMM (the states of one sequence)",
    "kmedoids.KMedoids",
    "kmodes.kmodes.KModes, kmodes.kprototypes.KPrototypes",
    "minisom.MiniSom",
    "fuzzy c-means, such as that of scikit-fuzzy: wc.explain(centers, X, metric='fuzzy')",
    "stepmix.StepMix (binary, or Gaussian with diagonal covariances)",
    "tslearn.clustering.TimeSeriesKMeans (euclidean, dtw, softdtw)",
    "dask_ml.cluster.KMeans; dask_ml.wrappers.ParallelPostFit of one of these",
    "clustpy.deep.DEC, IDEC, DCN, DKM, AEC",
    "bertopic.BERTopic without HDBSCAN; with it, its labels are explained",
    "pyspark.ml.clustering.KMeansModel, BisectingKMeansModel, GaussianMixtureModel; PipelineModel of these",
    "any fitted model with cluster_centers_ that predicts the nearest of them (checked on your data)",
    "an array of centroids, one per row",
    "sklearn.pipeline.Pipeline that ends in one of these, or in a model that provides only labels",
)


def unsupported(model: Any) -> UnsupportedModelError:
    """Return the error for an object that is not a supported model, with advice for common mistakes."""
    must = "neuralize: model must be a fitted model; got"
    if isinstance(model, type):
        return UnsupportedModelError(f"{must} the class {model.__name__}.")
    if isinstance(model, (str, os.PathLike)):
        return UnsupportedModelError(f"{must} {str(model)!r}. Load a saved network with wc.load(path).")
    if hasattr(model, "obsm"):
        return UnsupportedModelError(
            f"{must} an AnnData object. Explain its groups of cells with wc.explain_anndata(adata, groups)."
        )
    if any(cls.__module__.startswith("hmmlearn.") for cls in type(model).__mro__):
        return UnsupportedModelError(
            f"neuralize: of hmmlearn's models, only GaussianHMM is supported; got a {type(model).__name__}. "
            f"{BY_LABELS}"
        )
    listed = "".join(f"\n  - {line}" for line in SUPPORTED)
    return UnsupportedModelError(
        f"neuralize: no exact network is known for {type(model).__name__}. The following models are "
        f"supported once they are fitted:{listed}\n{BY_LABELS}"
    )
