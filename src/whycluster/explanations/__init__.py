"""Explanations: the results of `explain`, and the ways to read them.

Modules, in reading order:

- `base`: `BaseExplanation`, with the cluster, the competitor and the evidence of each row
- `explanation`: `Explanation`, which adds the relevance of each feature
- `summary`: the features that define each cluster, averaged over its members
- `counterfactual`: the smallest change that moves a row to another cluster; `half_spaces`: its geometry
- `findings`: sentences and warnings about clusters (public as ``whycluster.findings``)
- `fidelity`: how well a surrogate matches the labels it was fitted to
- `formatting`: the tables and lists in which explanations are printed
- `claims`: the claim about a row as a sentence
- `unchanged`: a check of whether the data have changed since they were explained
- `projection`, `cluster_styles`: the map of the rows, and the colors and shapes of clusters
"""
