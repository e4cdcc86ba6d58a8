"""Explain the rows of Spark data frames on the workers."""

from whycluster.engines.spark.engine import explain

__all__ = ["explain"]
