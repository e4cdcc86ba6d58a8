"""Reasons: rules that describe clusters, what two rows have in common, and groups of reasons in a cluster.

Modules, in reading order:

- `rules`: `Rules`, the conjunctions that describe each cluster, as text, as frames and in SQL
- `conditions`: a condition on one column, in words, on data and in SQL; `column_values`: columns to compare
- `rule_search`: the search for the conjunctions; `binning`: columns cut into bins for it
- `pairs`: why two rows are together, or what separates them
- `strategies`: members of a cluster that are there for different reasons; `unimodality`: its test;
  `cautions`: its warnings
- `per_cluster`: the base of the results of `rules` and `strategies`
"""
