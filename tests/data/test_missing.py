"""Words for missing values: a CSV file gives the same table alone and as part of a folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from whycluster.data.missing import MISSING_WORDS

pl = pytest.importorskip("polars")
pa = pytest.importorskip("pyarrow")

from whycluster.cli import reading
from whycluster.engines.files.parts import find_parts


def test_a_csv_file_is_the_same_table_alone_and_in_a_folder(tmp_path: Path) -> None:
    lines = ["number,text,flag,day,quoted"]
    for i, word in enumerate(MISSING_WORDS):
        lines.append(f'{i}.5,word {i},true,2020-01-{i + 1:02},"a"')
        lines.append(f'{word},{word},{word},{word},"{word}"')
    path = tmp_path / "table.csv"
    path.write_text("\n".join(lines) + "\n")
    alone = reading.read(reading.TableFile(path))
    (part,) = find_parts(str(tmp_path), "test")
    schema, _ = part.look()
    in_folder = pl.DataFrame(pa.Table.from_batches(list(part.batches(list(schema), 1000))))
    assert alone.equals(in_folder)
    assert alone.schema == in_folder.schema
    assert set(alone.null_count().row(0)) == {len(MISSING_WORDS)}


def test_the_words_are_those_of_pandas() -> None:
    parsers = pytest.importorskip("pandas._libs.parsers")
    assert set(MISSING_WORDS) == parsers.STR_NA_VALUES
