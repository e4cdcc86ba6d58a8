"""Explain the groups of cells in an AnnData by genes."""

from whycluster.engines.anndata.engine import explain_anndata

__all__ = ["explain_anndata"]
