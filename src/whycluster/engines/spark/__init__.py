"""Explain the rows of Spark DataFrames on the workers.

In reading order:

- ``engine``: `explain` and its engine
- ``parts``: which columns a model takes, how they are sent, and how batches are read
- ``results``: the columns that the result adds
"""

from whycluster.engines.spark.engine import explain

__all__ = ["explain"]
