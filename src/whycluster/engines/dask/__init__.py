"""Explain Dask arrays and data frames lazily, one partition at a time.

In reading order:

- `engine`: the lazy forms of `whycluster.explain` and `Network.assign`, and their engine
- `parts`: checks partitions and passes them to tasks
- `graph`: applies functions to blocks and adds up the results, as task graphs
- `results`: `LazyExplanation`
"""

from whycluster.engines.dask.engine import assign_lazily, explain_lazily
from whycluster.engines.dask.results import LazyExplanation

__all__ = ["LazyExplanation", "assign_lazily", "explain_lazily"]
