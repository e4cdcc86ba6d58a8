"""Clustering models as networks, and the adapters that turn fitted models into them.

Modules, in reading order:

- `network`: `Query`, the options of `explain`; `Network`, and `TableNetwork` for models of plain tables
- `energies`: the energies of models that are not in the paper
- `nearest_centroid`: networks of centroids, for several metrics
- `verification`: the check that a model and its network predict the same clusters
- `agreement`: how far a network gives the rows of a clustering the labels that they have
- `energies`: energies that need more than NumPy, such as a search for neighbors
- `adapters`: from fitted models to networks, one or more modules per library
- `torch_network`: a network as a torch module
- `scaling`, `onnx_network`: a nearest-centroid model, with its scalers, as an ONNX model
"""
