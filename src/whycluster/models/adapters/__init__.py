"""Adapters from fitted models to networks, one file per library, imported when a model of it is passed.

Read `registry` first: it finds the adapter of a model. The others are `sklearn`, `dask_ml`, `faiss`,
`kmedoids` and `kmodes`. Adapters for pipelines, documents, encoders and our own estimators are in their
folders.
"""
