"""`explain_dataset` of Parquet files that are damaged, often in their footers."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa

from tests.fuzz.choices import Choices
from tests.fuzz.engine import Target
from tests.fuzz.targets.state import explain, write_input
from whycluster.engines.files.parts import ParquetPart, PartError, reading

_FOOTER = 600  # bytes


def make(folder: Path) -> Target:
    data, out = folder / "in", folder / "out"
    write_input(data)
    path = data / "a.parquet"
    whole = path.read_bytes()

    def run(choices: Choices) -> None:
        start = 0 if choices.one_in(3) else len(whole) - _FOOTER
        path.write_bytes(whole[:start] + choices.damaged(whole[start:]))
        if choices.one_in(32):
            shutil.rmtree(out, ignore_errors=True)
            explain(data, out)
            return
        part = ParquetPart("a.parquet", path)
        fields = [pa.field("y", pa.float64()), pa.field("x", pa.float64())]
        try:
            with reading():
                part.look()
                for batch in part.batches(fields, 5):
                    assert batch.num_rows <= 5
        except PartError:
            pass

    return run
