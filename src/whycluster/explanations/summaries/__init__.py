"""Summaries: the features that define each cluster, in figures, sentences and names.

Modules, in reading order:

- `summary`: the explanations of each cluster's members, averaged
- `members`: the clusters that the members of each cluster compete with
- `statements`: sentences about a feature of a cluster; `comparisons`: the means and frequencies behind them
- `naming`: short names for clusters, made from statements
"""
