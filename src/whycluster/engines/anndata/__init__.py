"""Explain the groups of cells in an AnnData by genes.

In reading order:

- ``engine``: `explain_anndata`
- ``parts``: reads groups, expression, scores and loadings
- ``gene_model``: the surrogate of the groups, expressed in genes
- ``results``: results per cell and per group, and where they are written
"""

from whycluster.engines.anndata.engine import explain_anndata

__all__ = ["explain_anndata"]
