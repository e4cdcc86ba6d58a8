"""Clustering models as networks, and the adapters that turn fitted models into them.

Reading order: `network` (`Query`, `Network` and its kind for tables), `nearest_centroid` (networks of
centroids), `verification` (compares a model's predictions with its network), `adapters` (one file per
library, and their registry), `torch_network` (a network as a torch module).
"""
