"""Adapters from fitted models to networks, imported when a model from their library is passed.

Modules, in reading order:

- `registry`: finds the adapter of a model
- `unsupported`: the list of supported models, and the error for all other objects
- `incomplete`: results of adapters for models that cannot become a network yet
- `sklearn`: nearest centroids; `sklearn_trees`: trees of them; `sklearn_mixture`: mixtures of Gaussians
- `density`: networks of clusterings by density; `sklearn_density`: those of scikit-learn, and `hdbscan`
- `sklearn_hierarchy`: agglomerative clusterings; `sklearn_neighbors`: votes of neighbors
- `sklearn_spectral`: spectral clusterings; `graph`: communities of graphs; `labels`: rules that users
  choose for their labels
- `faiss`, `dask_ml`: k-means from these libraries
- `sklearn_topics`: topics of LDA and NMF; `tslearn`: time series
- `hmmlearn`: hidden Markov models
- `minisom`: self-organizing maps; `stepmix`: latent classes and profiles
- `kmedoids`: medoids; `kmodes`: tables with categories

A library has one or more modules. Adapters for Spark, ClustPy, pipelines, documents, encoders and our own
estimators are in the folders of those models.
"""
