"""Explain data other than one table in memory: files, data on a compute cluster, or an AnnData object.

In reading order:

- `engine`: `Engine`, the protocol of all engines: measure all parts, then explain each part
- `request`: `ExplainRequest`, which measures and explains the rows of one part
- `results`: the explanations of one part, and how they become an Arrow table
- `aggregates`: summaries of the clusters, accumulated over parts
- `files`: explains tables larger than memory, from files to files
- `dask`: explains Dask arrays and data frames lazily
- `spark`: explains Spark DataFrames on the workers
- `anndata`: explains groups of cells in an AnnData object in terms of genes

Each engine's folder contains the files `engine`, `parts` and `results`.
"""
