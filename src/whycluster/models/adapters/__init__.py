"""Adapters from fitted models to networks, one module per library, imported when a model of it is passed.

Modules, in reading order:

- `registry`: finds the adapter of a model
- `unsupported`: the list of supported models, and the error for others
- `incomplete`: results of adapters for models that are not a network yet
- `sklearn`: nearest centroids and trees; `sklearn_mixture`: mixtures of Gaussians
- `faiss`, `dask_ml`: k-means of these libraries
- `kmedoids`: medoids; `kmodes`: tables with categories

Adapters for pipelines, documents, encoders and our own estimators are in their folders.
"""
