"""`wc.load`: damaged files, and files with a right checksum and arbitrary contents."""

from __future__ import annotations

import json
import struct
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np

import whycluster as wc
from tests.fuzz.choices import Choices
from tests.fuzz.engine import Target
from tests.segments.storage.test_saving import (
    ENERGIES,
    EXPLAINED,
    FRAMED,
    SPARSE,
    categorical_explanation,
    contents,
)
from whycluster.models.network import TableNetwork
from whycluster.segments.storage import archive

_DTYPES = {name: short for short, name in archive._DTYPES.items()}
_NEW = ("f8", "f4", "i8", "u4", "u1", "?", "f2", "u8")
_FILLS = (0, 1, 2, -1, 97, 0.5, np.nan, np.inf, 1e308, 2**31)


def make(folder: Path) -> Target:
    path = folder / "file"
    objects = [
        *(TableNetwork(energy) for energy in ENERGIES),
        TableNetwork(ENERGIES[-2], labels=np.array(["a", 1, None], object)),
        TableNetwork(ENERGIES[-1], feature_names=["u", "v", ("w", 1.5)]),
        EXPLAINED[[2, 4, 6]],
        SPARSE,
        FRAMED,
        categorical_explanation(),
    ]
    seeds = [contents(each, path) for each in objects]

    def run(choices: Choices) -> None:
        write(choices, *choices.pick(seeds), path)
        _use(wc.load(path), path)

    return run


def write(choices: Choices, facts: dict[str, Any], arrays: dict[str, Any], path: Path) -> None:
    """Write a file that is damaged, or that holds other facts and arrays; sometimes, measure loading it."""
    whole = choices.one_in(4)
    if not whole:
        facts, arrays = forged(choices, facts, arrays)
    content = serialized(facts, arrays, choices)
    path.write_bytes(choices.damaged(content) if whole else content)
    if choices.one_in(32):
        check_memory(path)


def forged(
    choices: Choices, facts: dict[str, Any], arrays: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return other facts and arrays; most changes are small, so that they pass the first checks."""
    arrays = dict(arrays)
    for _ in range(choices.between(1, 3)):
        if choices.one_in(2):
            facts = choices.damaged_inside(facts)
        else:
            name = choices.text() if choices.one_in(10) else choices.pick(list(arrays))
            arrays[name] = _array(choices, arrays.get(name))
    return facts, arrays


def _array(choices: Choices, like: Any) -> Any:
    kind = choices.below(4)
    if like is None or kind == 0:
        shape = [choices.below(6) for _ in range(choices.below(4))]
        with np.errstate(all="ignore"):
            return np.full(shape, choices.pick(_FILLS)).astype(choices.pick(_NEW))
    if kind == 1:
        return like[: choices.below(len(like) + 1)] if like.ndim else like.reshape(1)
    changed = np.array(like)
    if kind == 2 and changed.dtype == np.uint8 and changed.ndim == 1:  # JSON
        return np.frombuffer(choices.damaged(changed.tobytes()), np.uint8)
    if changed.size:
        with np.errstate(all="ignore"):
            changed.reshape(-1)[choices.below(changed.size)] = np.array(choices.pick(_FILLS)).astype(
                like.dtype
            )
    return changed


def serialized(facts: Any, arrays: dict[str, Any], choices: Choices) -> bytes:
    """Return a file with these contents and a right checksum, and sometimes a header of its own."""
    text = json.dumps(facts)
    checked = {**arrays, "crc32": archive._checksum(text, arrays)}
    header: dict[str, Any] = {"__metadata__": {"whycluster": text}}
    end = 0
    for name, array in checked.items():
        header[name] = {
            "dtype": _DTYPES[array.dtype.name],
            "shape": list(array.shape),
            "data_offsets": [end, end + array.nbytes],
        }
        end += array.nbytes
    if choices.one_in(8):
        header = choices.damaged_value(header)
    head = json.dumps(header).encode()
    return struct.pack("<Q", len(head)) + head + b"".join(array.tobytes() for array in checked.values())


def check_memory(path: Path) -> None:
    """Check the memory that the documentation of `load` promises."""
    tracemalloc.start()
    try:
        wc.load(path)
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 100 * path.stat().st_size + 20_000_000, f"{path.stat().st_size} bytes took {peak}"


def _use(loaded: Any, path: Path) -> None:
    if isinstance(loaded, wc.Explanation):
        str(loaded)
        loaded.top(), loaded.describe(0), loaded.to_frame(), loaded.competition
        loaded.summary()
    else:
        repr(loaded)
        rows = np.arange(3.0 * loaded.n_features).reshape(3, -1)
        assert loaded.explain(rows).relevance.shape == rows.shape
    wc.save(loaded, path)
    wc.load(path)
