"""Explanations: the results of `explain`, and the ways to read them.

Modules, in reading order:

- `base`: `BaseExplanation`, the cluster, the competitor and the evidence of each row
- `explanation`: `Explanation`, which adds the relevance of each feature
- `summary`: the features that define each cluster, averaged over its members
- `counterfactual`: the smallest change that moves a row to another cluster; `half_spaces`: its geometry
- `findings`: sentences and warnings about clusters (public as ``whycluster.findings``)
- `fidelity`: how well a surrogate matches the labels it was fitted to
- `formatting`, `claims`: explanations as text; the claim about a row as a sentence
- `unchanged`: whether the data are still those that were explained
- `projection`, `cluster_styles`: the map of the rows, and the colors and shapes of clusters
"""
