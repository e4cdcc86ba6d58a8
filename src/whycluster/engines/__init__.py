"""Explain data that are not one table in memory: in files, on a cluster, or in an AnnData.

In reading order:

- `engine`: `Engine`, the protocol of all engines: measure all parts, then explain each
- `request`: `ExplainRequest`, which measures and explains the rows of one part
- `results`: the explanations of one part, and how they become an Arrow table
- `aggregates`: summaries of clusters, added up over parts
- `files`: tables larger than memory, from files to files
- `dask`: Dask arrays and data frames, lazily
- `spark`: Spark DataFrames, on the workers
- `anndata`: groups of cells in an AnnData, by genes

The folders of the engines have the same files: `engine`, `parts` and `results`.
"""
