"""Explain tables larger than memory, reading from files and writing results to files.

In reading order:

- `engine`: `explain_dataset` and its engine
- `parts`: finds and reads Parquet and CSV files and pyarrow Datasets
- `plan`: chooses columns and types before any row is read
- `manifest`: the number of rows, size and checksum of each finished result
- `run_state`: describes the run in the folder of the results, so that a stopped run can resume
- `fingerprint`: hashes the model, to check whether two runs use the same model
- `batches`: reads a part in batches that fit in memory
- `stages`: reads, explains and writes at the same time, on separate threads
- `new_rows`: compares the rows of each part with those of a segmentation
- `pool`: works on several parts at a time
- `results`: the files that a run writes, and `DatasetExplanation`
- `verification`: `verify_dataset`, which checks a folder of results
"""

from whycluster.engines.files.engine import explain_dataset
from whycluster.engines.files.results import DatasetExplanation
from whycluster.engines.files.verification import DatasetVerification, verify_dataset

__all__ = ["DatasetExplanation", "DatasetVerification", "explain_dataset", "verify_dataset"]
