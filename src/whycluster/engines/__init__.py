"""Explanations of data other than a single table in memory: files, Dask, Spark, AnnData.

In reading order:

- `engine`: `Engine`, the protocol of all engines
- `request`: `ExplainRequest`, which measures and explains the rows of one part
- `results`: `PartResult`, the results of one part, as arrays and as Arrow columns
- `aggregates`: summaries of clusters, added up over the parts
- `files`, `dask`, `spark`, `anndata`: the engines, each with `engine`, `parts` and `results`
"""
