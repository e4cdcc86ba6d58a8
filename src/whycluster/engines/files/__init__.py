"""Explain tables larger than memory, from files to files."""

from whycluster.engines.files.engine import explain_dataset
from whycluster.engines.files.run import DatasetExplanation

__all__ = ["DatasetExplanation", "explain_dataset"]
