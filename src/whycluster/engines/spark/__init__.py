"""Explain the rows of Spark DataFrames on the workers.

In reading order:

- `engine`: `explain` and its engine
- `parts`: finds the columns that a model takes, sends them to the workers, and reads the batches on the
  workers
- `results`: the columns that the result adds
"""

from whycluster.engines.spark.engine import explain

__all__ = ["explain"]
