"""Explain Dask arrays and data frames lazily, partition by partition."""

from whycluster.engines.dask.engine import LazyExplanation, assign_lazily, explain_lazily

__all__ = ["LazyExplanation", "assign_lazily", "explain_lazily"]
