"""Explanations: the results of `explain`, and the ways to read them.

Modules and folders, in reading order:

- `base`: `BaseExplanation`, with the cluster, the competitor and the evidence of each row; `row_access`:
  rows by position and by name; `unchanged`: whether the data have changed since they were explained
- `explanation`: `Explanation`, which adds the relevance of each feature; `top_table`: the strongest of
  them; `few_rows`: its warning; `unstable`: a warning about relevance that cancels out
- `summaries/`: the features that define each cluster, and sentences about them
- `stories/`: one row in words, and the rows that it is compared with
- `counterfactuals/`: the smallest change that moves a row to another cluster
- `reasons/`: rules that describe clusters, pairs of rows, and groups of reasons in a cluster
- `findings`: sentences and warnings about clusters (public as ``whycluster.findings``)
- `checks/`: checks that warn about misleading results
- `quality/`: whether there are clusters at all; `fidelity`: how well a surrogate matches the labels it was
  fitted to; `agreement`: how well the rule of a clustering reproduces its labels; `cluster_shares`: the base
  of both
- `exchange/`: explanations as plain data, JSON and Arrow tables, for other programs
- `wording/`: tables, lists and claims as text
- `maps/`: the map of the rows, and the colors and shapes of clusters
"""
