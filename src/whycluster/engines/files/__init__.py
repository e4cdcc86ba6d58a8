"""Explain tables larger than memory, from files to files.

In reading order:

- ``engine``: `explain_dataset` and its engine
- ``parts``: finds and reads Parquet and CSV files and pyarrow Datasets
- ``plan``: chooses columns and types before any row is read
- ``run_state``: the folder of the results, which lets a stopped run resume
- ``fingerprint``: tells whether two runs have the same model
- ``batches``, ``stages``, ``pool``: batches read ahead, by several threads
- ``results``: the files that a run writes, and `DatasetExplanation`
"""

from whycluster.engines.files.engine import explain_dataset
from whycluster.engines.files.results import DatasetExplanation

__all__ = ["DatasetExplanation", "explain_dataset"]
