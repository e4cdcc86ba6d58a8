"""Estimators trained by this package: kernel k-means, and a surrogate for labels.

Modules, in reading order:

- `kernel_kmeans`: `KernelKMeans`, k-means with several support vectors per cluster
- `surrogate`: `Surrogate`, a kernel network fitted to the labels of any clustering
- `labels`: fits the surrogate that explains labels; categories, dates and missing values are encoded first
- `kernel_passes`: computations over all rows that only fitting needs
- `centers`: initial support vectors of a cluster
- `kernel_fit`: the optimization that fits a kernel network to labels
- `validation`: the check of the rows that both estimators are fitted on
- `adapter`: how `whycluster.neuralize` turns both estimators into networks
"""
