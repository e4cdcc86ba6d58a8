"""Explain the groups of cells in an AnnData object in terms of genes.

In reading order:

- `engine`: `explain_anndata` and its engine
- `parts`: reads groups, expression, scores and loadings
- `corrected`: scores that were corrected after the PCA, for example by Harmony
- `gene_model`: fits a surrogate to the groups and expresses it in terms of genes
- `results`: collects results per cell and per group, and writes them into the AnnData object
"""

from whycluster.engines.anndata.engine import explain_anndata

__all__ = ["explain_anndata"]
