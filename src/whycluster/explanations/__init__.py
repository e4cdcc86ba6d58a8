"""Explanations: the results of `explain`, and the ways to read them.

Modules, in reading order:

- `base`: `BaseExplanation`, with the cluster, the competitor and the evidence of each row; `row_access`:
  rows by position and by name
- `explanation`: `Explanation`, which adds the relevance of each feature; `few_rows`: its warning
- `summary`: the features that define each cluster, averaged over its members
- `members`: the clusters that the members of each cluster compete with
- `statements`: sentences about a feature of a cluster; `comparisons`: the means and frequencies behind them;
  `rivals`: the clusters that a feature is compared with
- `story`: one row in words; `naming`: names for clusters
- `counterfactual`: the smallest change that moves a row to another cluster, and its text
- `changeable_row`, `cell_values`: how changes of a row's values affect the inputs of the model
- `smallest_change`: the search for the change; `half_spaces`: its geometry; `local_search`: boundaries
  that are not planes; `whole_steps`: values that stay whole numbers
- `short_values`: rounded values that are still enough when printed
- `findings`: sentences and warnings about clusters (public as ``whycluster.findings``)
- `checks`: checks that warn about misleading results
- `quality`: whether there are clusters at all; `null_data`: data without clusters; `refitting`: copies of a
  model
- `member_sample`: a sample of the members of all clusters
- `fidelity`: how well a surrogate matches the labels it was fitted to
- `formatting`: the tables and lists in which explanations are printed
- `claims`: the claim about a row as a sentence
- `unchanged`: a check of whether the data have changed since they were explained
- `projection`, `cluster_styles`: the map of the rows, and the colors and shapes of clusters
"""
