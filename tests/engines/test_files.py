"""`explain_dataset`: compared with `explain` of the whole table, and after all kinds of failures."""

from __future__ import annotations

import errno
import gzip
import json
import os
import random
import resource
import signal
import subprocess
import sys
import textwrap
import threading
import time
import warnings
import weakref
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyarrow", reason="pyarrow is not installed")


import narwhals as nw
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.dataset as pads
import pyarrow.parquet as pq
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.cluster import KMeans
from sklearn.compose import make_column_transformer
from sklearn.decomposition import PCA
from sklearn.mixture import GaussianMixture
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler

import whycluster as wc
from tests.optional import optional
from whycluster.engines.aggregates import Aggregate, ReservoirSample
from whycluster.engines.files import run_state
from whycluster.engines.files.parts import find_parts
from whycluster.engines.files.plan import ModelColumns, make_plan
from whycluster.engines.files.results import DatasetExplanation
from whycluster.engines.files.run_state import RunState
from whycluster.engines.files.stages import ahead
from whycluster.engines.request import ExplainRequest

if TYPE_CHECKING:
    import dask.dataframe as dd
    import polars as pl
else:
    dd = optional("dask.dataframe")
    pl = optional("polars")

RNG = np.random.default_rng(0)
NAMES = ["a", "b", "c", "d"]
CENTERS = np.array([[0.0, 0, 0, 0], [4, 0, 1, 0], [0, 5, 0, 2]])
ROWS = CENTERS[RNG.integers(3, size=900)] + RNG.normal(size=(900, 4))
SIZES = [300, 1, 0, 599]
MODEL = KMeans(3, init=CENTERS, n_init=1).fit(pd.DataFrame(ROWS, columns=NAMES))
WHOLE = wc.explain(MODEL, pd.DataFrame(ROWS, columns=NAMES))
KNOWN: dict[str, Any] = {"beta": 0.2, "rule": "min-take-most"}  # needs no pass over the rows to measure them
UNMEASURED: tuple[dict[str, Any], ...] = (KNOWN, {"background": pd.DataFrame(ROWS, columns=NAMES)})
UNMEASURED_IDS = ("beta", "background")
known_population = pytest.mark.parametrize("known", UNMEASURED, ids=UNMEASURED_IDS)


def frame(rows: Any = ROWS) -> pd.DataFrame:
    table: pd.DataFrame = pd.DataFrame(
        rows, columns=NAMES, copy=True
    )  # before pandas 3, it would share memory
    table["key"] = [f"r{i}" for i in range(len(rows))]
    return table


def write(
    folder: Path, table: pd.DataFrame | None = None, sizes: Any = SIZES, suffix: str = "parquet"
) -> Path:
    table = frame() if table is None else table
    folder.mkdir(exist_ok=True)
    whole, start = pa.Table.from_pandas(table, preserve_index=False), 0
    for number, size in enumerate(sizes):
        part = whole.slice(start, size)  # an empty part keeps the types of the columns
        path = folder / f"part-{number}.{suffix}"
        pq.write_table(part, path) if suffix == "parquet" else pacsv.write_csv(part, path)
        start += size
    return folder


def read(found: DatasetExplanation) -> pa.Table:
    return pa.concat_tables(pq.read_table(path) for path in found.parts)


def relevance(table: pa.Table) -> np.ndarray[Any, Any]:
    return np.column_stack([table[name].to_numpy() for name in NAMES])


def check_whole(table: pa.Table, whole: Any = WHOLE) -> None:
    assert table["cluster"].to_pylist() == whole.cluster.tolist()
    assert table["competitor"].to_pylist() == whole.competitor.tolist()
    np.testing.assert_allclose(table["evidence"].to_numpy(), whole.evidence, rtol=1e-9)
    np.testing.assert_allclose(relevance(table), whole.relevance, rtol=1e-8, atol=1e-9)


def error_message(*args: Any, **options: Any) -> str:
    with pytest.raises(wc.InvalidInputError) as caught:
        wc.explain_dataset(*args, **options)
    return str(caught.value)


@pytest.mark.parametrize("batch_rows", [7, 64, "auto"])
def test_files_are_explained_like_the_whole_table(batch_rows: Any, tmp_path: Path) -> None:
    found = wc.explain_dataset(
        MODEL, write(tmp_path / "in"), tmp_path / "out", id_columns=["key"], batch_rows=batch_rows
    )
    assert [path.name for path in found.parts] == [f"part-{i}.parquet" for i in range(4)]
    assert [pq.read_metadata(path).num_rows for path in found.parts] == SIZES
    assert (found.n_rows, found.n_invalid, found.n_done_before) == (900, 0, 0)
    assert found.beta == pytest.approx(WHOLE.beta, rel=1e-12)
    table = read(found)
    assert table.column_names == ["key", "cluster", "evidence", "competitor", *NAMES]
    assert table["key"].to_pylist() == frame()["key"].tolist()
    check_whole(table)
    # Tools that read the folder as a table find these rows, and nothing else.
    assert pads.dataset(tmp_path / "out").to_table().num_rows == 900
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "_whycluster.json",
        "_whycluster.lock",
        *(f"part-{i}.parquet" for i in range(4)),
    ]


@pytest.mark.parametrize(
    "options",
    [{"rule": "sequential"}, {"rule": "joint", "beta": 0.5}, {"target": 1}, {"against": 0}, {"workers": 3}],
    ids=str,
)
def test_options_work_as_in_explain(options: dict[str, Any], tmp_path: Path) -> None:
    found = wc.explain_dataset(MODEL, write(tmp_path / "in"), tmp_path / "out", **options)
    options.pop("workers", None)
    check_whole(read(found), wc.explain(MODEL, frame()[NAMES], **options))


def in_folders(folder: Path) -> None:
    for i in (0, 1):
        (folder / f"day={i}").mkdir()
        (folder / f"part-{i}.parquet").rename(folder / f"day={i}" / "x.parquet")


@pytest.mark.parametrize(
    ("sizes", "pass_as"),
    [
        ([300, 600], lambda folder: f"{folder}/part-*.parquet"),
        ([900], lambda folder: folder / "part-0.parquet"),
        ([300, 600], lambda folder: [folder / "part-1.parquet", str(folder / "part-0.parquet")]),
        ([300, 600], pads.dataset),
    ],
    ids=["pattern", "file", "list", "dataset"],
)
def test_data_can_be_a_pattern_a_file_a_list_or_a_dataset(
    sizes: list[int], pass_as: Any, tmp_path: Path
) -> None:
    folder = write(tmp_path / "in", sizes=sizes)
    check_whole(read(wc.explain_dataset(MODEL, pass_as(folder), tmp_path / "out")))


@pytest.mark.parametrize("suffix", ["csv", "tsv"])
def test_text_files(suffix: str, tmp_path: Path) -> None:
    folder = write(tmp_path / "in", sizes=[300, 600], suffix="csv")
    for path in folder.iterdir():
        text = path.read_text()
        path.unlink()
        path.with_suffix(f".{suffix}").write_text(text.replace(",", "\t") if suffix == "tsv" else text)
    found = wc.explain_dataset(MODEL, folder, tmp_path / "out", id_columns=["key"], batch_rows=70)
    check_whole(read(found))
    assert [path.name for path in found.parts] == [f"part-{i}.{suffix}.parquet" for i in (0, 1)]


def test_results_keep_the_folders_and_the_columns_in_their_names(tmp_path: Path) -> None:
    folder = write(tmp_path / "in", sizes=[300, 600])
    in_folders(folder)
    found = wc.explain_dataset(MODEL, folder, tmp_path / "out")
    assert [path.relative_to(tmp_path / "out").as_posix() for path in found.parts] == [
        "day=0/x.parquet",
        "day=1/x.parquet",
    ]
    check_whole(read(found))
    hive = pads.dataset(folder, partitioning="hive")
    found = wc.explain_dataset(MODEL, hive, tmp_path / "hive", id_columns=["day", "key"])
    assert pads.dataset(found.folder, partitioning="hive").to_table()["day"].unique().to_pylist() == [0, 1]
    check_whole(pa.concat_tables(pq.ParquetFile(path).read() for path in found.parts))


def test_a_dataset_in_memory(tmp_path: Path) -> None:
    table = pa.Table.from_pandas(frame()[NAMES])
    found = wc.explain_dataset(MODEL, pads.dataset(table), tmp_path / "out")
    check_whole(read(found))


def test_results_of_float32_are_float32_and_columns_can_be_chosen(tmp_path: Path) -> None:
    table = pd.DataFrame(ROWS.astype(np.float32), columns=["w", "x", "y", "z"])
    table["count"] = 1
    folder = write(tmp_path / "in", table)
    found = wc.explain_dataset(MODEL.cluster_centers_, folder, tmp_path / "out", id_columns=["count"])
    results = read(found)
    assert results.schema.field("w").type == pa.float32()
    np.testing.assert_allclose(results["z"].to_numpy(), WHOLE.relevance[:, 3], rtol=1e-4, atol=1e-4)
    turned = wc.explain_dataset(
        MODEL.cluster_centers_[:, ::-1], folder, tmp_path / "turned", columns=["z", "y", "x", "w"]
    )
    np.testing.assert_allclose(read(turned)["z"].to_numpy(), results["z"].to_numpy(), rtol=1e-4, atol=1e-5)


def test_columns_in_another_order_are_matched_by_name(tmp_path: Path) -> None:
    folder = write(tmp_path / "in")
    turned = wc.explain_dataset(MODEL, folder, tmp_path / "turned", columns=NAMES[::-1], output="both")
    found = wc.explain_dataset(MODEL, folder, tmp_path / "found", output="both")
    check_whole(read(turned))
    assert str(turned.summary) == str(found.summary)
    assert turned.quantiles().equals(found.quantiles())


def test_a_column_can_be_copied_and_explained(tmp_path: Path) -> None:
    found = wc.explain_dataset(MODEL, write(tmp_path / "in"), tmp_path / "out", id_columns="a")
    table = read(found)
    assert table.column_names == ["a", "cluster", "evidence", "competitor", "a_", "b", "c", "d"]
    np.testing.assert_array_equal(table["a"], ROWS[:, 0])
    check_whole(table.drop_columns("a").rename_columns({"a_": "a"}))
    assert (
        repr(found)
        == f"<DatasetExplanation of 900 rows in 4 parts in {str(tmp_path / 'out')!r}, beta={found.beta:.4g}>"
    )


def test_other_tools_read_only_the_results(tmp_path: Path) -> None:
    wc.explain_dataset(MODEL, write(tmp_path / "in"), tmp_path / "out", output="both")
    assert len(dd.read_parquet(tmp_path / "out")) == 900
    assert pl.read_parquet(tmp_path / "out" / "*.parquet").height == 900
    assert len(pd.read_parquet(tmp_path / "out")) == 900


def test_warns_of_files_that_are_not_read(tmp_path: Path) -> None:
    folder = write(tmp_path / "in")
    for name in ("x.arrow", "more/y.jsonl", "README.md", "_SUCCESS", ".hidden.json"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).touch()
    with pytest.warns(wc.FilesWarning) as warned:
        wc.explain_dataset(MODEL, folder, tmp_path / "out")
    (warning,) = warned
    assert str(warning.message) == (
        "explain_dataset: skipped 3 files in the folder: ['README.md', 'more/y.jsonl', 'x.arrow']. "
        "Only files of type .parquet, .parq, .pq, .csv, .tsv are read."
    )
    assert warning.filename == __file__


def test_copied_columns_can_have_any_type(tmp_path: Path) -> None:
    table = pa.Table.from_pandas(frame()[NAMES])
    ids = {
        "cluster": pa.array(np.arange(900)),
        "when": pa.array(pd.date_range("2020-01-01", periods=900, freq="h", tz="Europe/Berlin")),
        "kind": pa.array(["x", None, "z"] * 300).dictionary_encode(),
        "raw": pa.array([bytes([i % 256]) for i in range(900)]),
        "many": pa.array([[i, i + 1] for i in range(900)]),
        "price": pa.array(range(900), pa.decimal128(9, 2)),
    }
    for name, column in ids.items():
        table = table.append_column(name, column)
    (tmp_path / "in").mkdir()
    pq.write_table(table, tmp_path / "in" / "x.parquet", row_group_size=200)
    found = wc.explain_dataset(MODEL, tmp_path / "in", tmp_path / "out", id_columns=list(ids), batch_rows=70)
    results = read(found)
    assert results.column_names == [*ids, "cluster_", "evidence", "competitor", *NAMES]
    for name in ids:
        assert results[name].to_pylist() == table[name].to_pylist()
        assert results[name].type == table[name].type


def test_two_parts_with_the_same_result_file_are_an_error(tmp_path: Path) -> None:
    folder = write(tmp_path / "in", sizes=[900])
    pacsv.write_csv(pa.Table.from_pandas(frame()), folder / "part-0.csv")
    (folder / "part-0.parquet").rename(folder / "part-0.csv.parquet")
    assert error_message(MODEL, folder, tmp_path / "out") == (
        "explain_dataset: each part must have its own result file; 'part-0.csv.parquet' and 'part-0.csv' "
        "would both be written to 'part-0.csv.parquet'. Rename one of them."
    )


def test_a_part_that_disappears_is_named(tmp_path: Path) -> None:
    folder = write(tmp_path / "in", sizes=[450, 450])
    dataset = pads.dataset(folder)
    (folder / "part-1.parquet").unlink()
    assert "'part-1.parquet': it cannot be read" in error_message(MODEL, dataset, tmp_path / "out")
    assert (tmp_path / "out" / "part-0.parquet").exists()


def test_paths_with_parent_folders_do_not_overwrite_the_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "work").mkdir()
    write(tmp_path / "data", sizes=[400])
    write(tmp_path / "work" / "local", frame()[400:], sizes=[500])
    before = (tmp_path / "data" / "part-0.parquet").read_bytes()
    monkeypatch.chdir(tmp_path / "work")
    pass_as = ["../data/part-0.parquet", "../work/../data/part-0.parquet", "local/part-0.parquet"]
    found = wc.explain_dataset(MODEL, pass_as, "../out")
    assert (tmp_path / "data" / "part-0.parquet").read_bytes() == before
    assert [path.relative_to("../out").as_posix() for path in found.parts] == [
        "data/part-0.parquet",
        "work/local/part-0.parquet",
    ]
    check_whole(read(found))


def test_a_part_listed_twice_is_an_error(tmp_path: Path) -> None:
    path = str(write(tmp_path / "in", sizes=[900]) / "part-0.parquet")
    assert error_message(MODEL, pads.dataset([path, path]), tmp_path / "out") == (
        "explain_dataset: data must list each file once; the Dataset lists 'part-0.parquet' 2 times."
    )


def test_patterns_and_folders_skip_the_same_hidden_files(tmp_path: Path) -> None:
    folder = write(tmp_path / "in", sizes=[900])
    for name in ("_delta_log", ".hidden"):
        write(folder / name, sizes=[10])
    for data in (folder, f"{folder}/**/*.parquet"):
        assert [part.name for part in find_parts(data, "x")] == ["part-0.parquet"]


def test_booleans_and_copied_numbers_in_csv(tmp_path: Path) -> None:
    # The second part begins beyond the first megabyte.
    first, second = "a,b,on\n" + "1,2,true\n3,9,false\n" * 60_000, "1.5,2,false\n"
    (tmp_path / "x.csv").write_text(first + second)
    centers = np.array([[1.0, 2.0, 1.0], [3.0, 9.0, 0.0]])
    found = wc.explain_dataset(centers, tmp_path / "x.csv", tmp_path / "out", id_columns=["a"], top=1,
                               columns=["a", "b", "on"], beta=0.1)  # fmt: skip
    table = read(found)
    assert table["a"].to_pylist()[-2:] == [3.0, 1.5]
    assert table["cluster"].to_pylist()[-2:] == [1, 0]
    whole = wc.explain(centers, np.array([[1.5, 2.0, 0.0]]), beta=0.1)
    assert table["evidence"][-1].as_py() == pytest.approx(whole.evidence[0])


def test_identifiers_in_csv_are_copied_unchanged(tmp_path: Path) -> None:
    names = [f"{18_446_744_073_709_551_000 + i}" for i in range(40)] + ["007", "7.0", "2020-01-01"]
    (tmp_path / "x.csv").write_text("id,a,b,c,d\n" + "".join(f"{name},1,2,3,4\n" for name in names))
    options: dict[str, Any] = {
        "id_columns": ["id"],
        "check": False,
        **KNOWN,
    }  # the other columns are far from the clusters
    found = wc.explain_dataset(MODEL, tmp_path / "x.csv", tmp_path / "out", **options)
    assert read(found)["id"].to_pylist() == names


def test_the_number_of_rows_is_estimated_before_reading(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    table = frame(rng.normal(size=(60_000, 4)))
    folder = write(tmp_path / "in", table, sizes=[40_000, 20_000, 0], suffix="csv")
    write(tmp_path / "in", table, sizes=[50_000])

    def n_rows() -> int | None:
        plan = make_plan(ModelColumns.of(wc.neuralize(MODEL)), find_parts(folder, "explain"), None, ())
        return plan.n_rows(plan.parts)

    assert n_rows() == pytest.approx(110_000, rel=0.01)
    for path in folder.glob("*.csv"):
        path.unlink()
    assert n_rows() == 50_000
    with gzip.open(folder / "more.csv.gz", "wt") as file:
        table.to_csv(file)
    assert n_rows() is None


@pytest.mark.slow
def test_text_files_that_are_compressed_blank_or_have_long_lines(tmp_path: Path) -> None:
    rows = "".join(f"{','.join(map(str, row))}\n" for row in ROWS)
    (tmp_path / "in").mkdir()
    with gzip.open(tmp_path / "in" / "a.csv.gz", "wt") as file:
        file.write("a,b,c,d\n" + rows)
    (tmp_path / "in" / "b.csv").write_text("a,b,c,d\n")
    blank = ",,,\n" * 300_000  # a megabyte of it
    (tmp_path / "in" / "c.csv").write_text("a,b,c,d\n" + blank + "1,2,3,4\n")
    found = wc.explain_dataset(
        MODEL, tmp_path / "in", tmp_path / "out", invalid="skip", background=frame()[NAMES]
    )
    assert [pq.read_metadata(path).num_rows for path in found.parts] == [900, 0, 300_001]
    assert (found.n_invalid, found.parts[0].name) == (300_000, "a.csv.gz.parquet")
    check_whole(pq.read_table(found.parts[0]))
    assert (
        pq.read_table(found.parts[2])["cluster"].to_pylist()[-1]
        == MODEL.predict(frame(np.array([[1, 2, 3, 4]]))[NAMES])[0]
    )
    wide = np.arange(7_500.0)
    numbers = ",".join(f"{value:.150f}" for value in wide / 7)  # a megabyte, too
    names = ",".join(f"x{i}" for i in range(len(wide)))
    (tmp_path / "wide.csv").write_text(f"{names}\n{numbers}\n{numbers}\n")
    centers = np.stack([wide / 7, -wide])
    assert wc.explain_dataset(centers, tmp_path / "wide.csv", tmp_path / "wide", top=1, beta=1.0).n_rows == 2


def test_the_order_of_the_parts_does_not_matter(tmp_path: Path) -> None:
    for place, odd in ((tmp_path / "first", 0), (tmp_path / "last", 5)):
        folder = write(place, sizes=[150] * 6)
        frame()[:150].assign(b="x").to_parquet(folder / f"part-{odd}.parquet")
        message = error_message(MODEL, folder, tmp_path / f"out-{odd}")
        assert (
            f"1 of 6 parts could not be explained; the others are done. 'part-{odd}.parquet': column 'b'"
            in message
        )
        assert len(list((tmp_path / f"out-{odd}").glob("part-*"))) == 5
        empty = frame()[:150].assign(b=None)
        pq.write_table(pa.Table.from_pandas(empty), folder / f"part-{odd}.parquet")
        assert pq.read_schema(folder / f"part-{odd}.parquet").field("b").type == pa.null()
        found = wc.explain_dataset(MODEL, folder, tmp_path / f"out-{odd}", overwrite=True, invalid="skip")
        assert found.n_invalid == 150


@pytest.mark.parametrize("odd", [0, 3])
def test_most_parts_decide_the_types_of_columns_of_pipelines(odd: int, tmp_path: Path) -> None:
    table = pd.DataFrame({"kind": ["x", "y"] * 100, "size": np.arange(200.0)})
    encoder = make_column_transformer((OneHotEncoder(), ["kind"]), (StandardScaler(), ["size"]))
    model = make_pipeline(encoder, KMeans(2, n_init=1, random_state=0)).fit(table)
    (tmp_path / "in").mkdir()
    for i in range(4):
        part = table[50 * i : 50 * (i + 1)]
        part = part.assign(size=part["size"].astype(str) + "!") if i == odd else part
        part.to_parquet(tmp_path / "in" / f"{i}.parquet")
    message = error_message(model, tmp_path / "in", tmp_path / "out")
    assert (
        f"1 of 4 parts could not be explained; the others are done. '{odd}.parquet': column 'size'" in message
    )


def test_decimals_are_numbers(tmp_path: Path) -> None:
    values = [Decimal("1.25"), Decimal("-3.5"), None, Decimal("7")]
    columns = {
        name: pa.array(values, kind(20, 4))
        for name, kind in zip("ab", (pa.decimal128, pa.decimal256), strict=True)
    }
    pq.write_table(pa.table(columns), tmp_path / "x.parquet")
    centers = np.array([[1.0, 1.0], [-3.0, -3.0], [8.0, 8.0]])
    found = wc.explain_dataset(
        centers, tmp_path / "x.parquet", tmp_path / "out", **KNOWN, invalid="skip", top=1
    )
    assert read(found)["cluster"].to_pylist() == [0, 1, None, 2]
    assert read(found)["value_1"].to_pylist() == [1.25, -3.5, None, 7.0]


def test_results_too_large_for_float32(tmp_path: Path) -> None:
    if not hasattr(nw, "Float16"):
        pytest.skip("this version of narwhals does not read float16")
    narrow = {"a": np.full(4, 1e18, np.float32), "b": np.ones(4, np.float16)}
    pq.write_table(pa.table(narrow), tmp_path / "x.parquet")
    centers = np.array([[1e21, 0.0], [-1e21, 1.0], [0.0, 0.0]])
    assert error_message(centers, tmp_path / "x.parquet", tmp_path / "out", beta=0.1) == (
        "explain_dataset: part 'x.parquet': results must fit into float32, whose largest number is 3.4e+38; "
        "in row 0, feature 'a' has relevance 9.98e+41, and the evidence is 9.98e+41. Drop such rows, or "
        "rescale the data and fit the model again."
    )


def test_links_are_followed_but_no_file_is_read_twice(tmp_path: Path) -> None:
    folder = write(tmp_path / "in")
    (folder / "self").symlink_to(".")
    (folder / "latest.parquet").symlink_to("part-3.parquet")
    (tmp_path / "more").mkdir()
    frame()[:10].to_parquet(tmp_path / "more" / "x.parquet")
    (folder / "more").symlink_to(tmp_path / "more")
    found = wc.explain_dataset(MODEL, folder, tmp_path / "out")
    assert found.n_rows == 910
    assert [path.name for path in found.parts][:2] == ["latest.parquet", "x.parquet"]


def test_pages_that_do_not_match_their_checksums_are_corrupt(tmp_path: Path) -> None:
    folder = write(tmp_path / "in", sizes=[400, 500])
    table = pq.read_table(folder / "part-1.parquet")
    options = {"write_page_checksum": True, "compression": "none", "use_dictionary": False}
    pq.write_table(table, folder / "part-1.parquet", **options)
    content = bytearray((folder / "part-1.parquet").read_bytes())
    content[200] ^= 255
    (folder / "part-1.parquet").write_bytes(content)
    for data in (folder, pads.dataset(folder)):
        message = error_message(MODEL, data, tmp_path / f"out-{type(data).__name__}", **KNOWN)
        assert "'part-1.parquet': it cannot be read (" in message


def test_batches_are_smaller_if_copied_columns_are_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = frame(np.tile(ROWS, (20, 1)))
    table["key"] = "k" * 10_000
    write(tmp_path / "in", table, sizes=[18_000])
    explain, sizes = ExplainRequest.explain, list[int]()

    def count(self: ExplainRequest, part: Any, first_row: int = 0) -> Any:
        sizes.append(part.num_rows)
        return explain(self, part, first_row)

    monkeypatch.setattr(ExplainRequest, "explain", count)
    wc.explain_dataset(MODEL, tmp_path / "in", tmp_path / "long", id_columns=["key"], **KNOWN)
    assert 1000 < max(sizes) < 3000
    sizes.clear()
    wc.explain_dataset(MODEL, tmp_path / "in", tmp_path / "short", **KNOWN)
    assert max(sizes) == 18_000


@known_population
def test_later_rows_of_csv_can_have_fractions_and_text(known: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    n = 100_000
    note = ["7"] * (n - 1) + ["so it goes"]
    last = ["1"] * (n - 1) + ["1.5"]
    lines = [f"{i},{note[i]},1,2,3,{last[i]}" for i in range(n)]
    (tmp_path / "in" / "x.csv").write_text("key,note,a,b,c,d\n" + "\n".join(lines) + "\n")
    found = wc.explain_dataset(MODEL, tmp_path / "in", tmp_path / "out", id_columns=["key"], **known)
    results = read(found)
    assert results["key"].to_pylist()[-1] == str(n - 1)
    row = pd.DataFrame([[1.0, 2, 3, 1.5]], columns=NAMES)
    np.testing.assert_allclose(relevance(results)[-1], wc.explain(MODEL, row, **known).relevance[0])


def test_results_are_float32_only_if_all_parts_are(tmp_path: Path) -> None:
    folder = write(tmp_path / "in", sizes=[300, 600])
    first = pd.read_parquet(folder / "part-0.parquet")
    first.astype(dict.fromkeys(NAMES, "float32")).to_parquet(folder / "part-0.parquet")
    first[["key"]].to_parquet(folder / "part-.parquet")  # the first part, which fails
    error_message(MODEL, folder, tmp_path / "out")
    assert pq.read_schema(tmp_path / "out" / "part-1.parquet").field("a").type == pa.float64()


@known_population
def test_settings_of_a_run_hold_for_parts_added_later(known: dict[str, Any], tmp_path: Path) -> None:
    folder, out = write(tmp_path / "in", sizes=[300]), tmp_path / "out"
    narrow = pa.Table.from_pandas(frame()[NAMES].astype(np.float32), preserve_index=False)
    pq.write_table(narrow, folder / "part-0.parquet")
    wc.explain_dataset(MODEL, folder, out, **known, top=1)
    pq.write_table(pa.Table.from_pandas(frame()[NAMES]), folder / "part-1.parquet")
    assert error_message(MODEL, folder, out, **known, top=1) == (
        "explain_dataset: 1 of 2 parts could not be explained; the others are done. 'part-1.parquet': its "
        "columns must be float32 or narrower, like the columns of all parts when the run began, so that no "
        "result is rounded; convert them, or start over with overwrite=True."
    )
    pq.write_table(narrow, folder / "part-1.parquet")
    found = wc.explain_dataset(MODEL, folder, out, **known, top=1)
    assert {pq.read_schema(path).field("value_1").type for path in found.parts} == {pa.float32()}


def test_text_in_a_new_part_if_all_parts_had_numbers(tmp_path: Path) -> None:
    table = pd.DataFrame({"kind": ["x", "y"] * 100, "size": np.arange(200.0)})
    encoder = make_column_transformer((OneHotEncoder(), ["kind"]), (StandardScaler(), ["size"]))
    model = make_pipeline(encoder, KMeans(2, n_init=1, random_state=0)).fit(table)
    table.to_parquet(tmp_path / "a.parquet")
    plan = make_plan(ModelColumns.of(wc.neuralize(model)), find_parts(tmp_path, ""), None, ())
    assert plan.settings == {"dtype": "float64", "as_text": True}
    later = plan.with_settings({"dtype": "float64", "as_text": False})
    assert later.to_do == []
    assert later.failed["a.parquet"] == (
        "its columns must hold numbers, like the columns of all parts when the run began; convert them, or "
        "start over with overwrite=True"
    )


def test_a_background_is_matched_by_name_and_identifies_the_run(tmp_path: Path) -> None:
    folder, out = write(tmp_path / "in"), tmp_path / "out"
    some = frame()[NAMES][:100]
    model = MODEL.cluster_centers_
    found = wc.explain_dataset(model, folder, out, background=some[["d", "c", "b", "a"]])
    assert found.beta == pytest.approx(wc.explain(MODEL, some).beta, rel=1e-12)
    assert "of a run that differs in background" in error_message(model, folder, out, background=some[:50])
    with pytest.raises(wc.InvalidInputError, match="explain_dataset: background must have"):
        wc.explain_dataset(model, folder, tmp_path / "other", background=some[["a", "b"]])


def test_a_run_with_a_background_is_not_resumed_without_it(tmp_path: Path) -> None:
    folder, out = write(tmp_path / "in"), tmp_path / "out"
    wc.explain_dataset(MODEL, folder, out, background=frame()[NAMES][:50])
    assert "a run that differs in background. Choose another" in error_message(MODEL, folder, out)


@pytest.mark.parametrize(
    ("query", "measured"),
    [
        ({}, "beta, the cluster sizes and the cluster means"),
        ({"beta": 0.3}, "the cluster sizes and the cluster means"),
        ({"beta": 0.3, "rule": "min-take-most"}, "the cluster means"),
    ],
    ids=str,
)
def test_a_pca_needs_more_measurements_than_beta(
    query: dict[str, Any], measured: str, tmp_path: Path
) -> None:
    folder, out = write(tmp_path / "in", sizes=[300, 300]), tmp_path / "out"
    model = make_pipeline(PCA(2), KMeans(3, n_init=1, random_state=0)).fit(frame()[NAMES])
    found = wc.explain_dataset(model, folder, out, **query)
    whole = wc.explain(model, frame()[NAMES][:600], **query)
    np.testing.assert_allclose(relevance(read(found)), whole.relevance, rtol=1e-8, atol=1e-9)
    frame()[600:].to_parquet(folder / "part-2.parquet")
    assert error_message(model, folder, out, **query) == (
        f"explain_dataset: the parts must be those that {measured} were measured on; 'part-2.parquet' has "
        "been added, removed or changed since then. Pass background=... to explain parts as they arrive, or "
        "overwrite=True to start over."
    )


def test_a_surrogate_of_low_fidelity_warns(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    surrogate = wc.Surrogate().fit(frame()[NAMES][:200], rng.integers(2, size=200))
    with pytest.warns(wc.FidelityWarning) as warned:
        wc.explain_dataset(surrogate, write(tmp_path / "in"), tmp_path / "out")
    message = str(warned[0].message)
    assert message.startswith(
        "explain_dataset: the surrogate, which is explained instead of the labels, predicts "
    )
    assert message.endswith(" with care; see wc.neuralize(model).fidelity for details.")


def test_a_folder_in_use_by_another_program_is_left_alone(tmp_path: Path) -> None:
    theirs = tmp_path / "out" / "_temporary" / "0"
    theirs.mkdir(parents=True)
    (theirs / "task").write_text("precious")
    assert "holds other files, such as '_temporary'" in error_message(
        MODEL, write(tmp_path / "in"), tmp_path / "out"
    )
    assert (theirs / "task").read_text() == "precious"


def test_names_of_parts_are_relative_to_the_given_folder(tmp_path: Path) -> None:
    write(tmp_path / "in")
    (tmp_path / "in").rename(tmp_path / "2024")
    (tmp_path / "in").mkdir()
    (tmp_path / "2024").rename(tmp_path / "in" / "2024")
    (tmp_path / "in" / "linked").symlink_to(write(tmp_path / "else", sizes=[100]))
    for data in (tmp_path / "in", f"{tmp_path}/in/*/*.parquet"):
        names = [part.name for part in find_parts(data, "x")]
        assert names == [*(f"2024/part-{i}.parquet" for i in range(4)), "linked/part-0.parquet"]
    (tmp_path / "in" / "linked").unlink()
    assert find_parts(tmp_path / "in", "x")[0].name == "2024/part-0.parquet"
    assert find_parts(tmp_path / "in" / "2024" / "part-0.parquet", "x")[0].name == "part-0.parquet"


@known_population
def test_data_in_memory_are_never_mistaken_for_those_of_an_earlier_run(
    known: dict[str, Any], tmp_path: Path
) -> None:
    out, table = tmp_path / "out", pa.Table.from_pandas(frame()[NAMES])
    wc.explain_dataset(MODEL, pads.dataset(table[:10]), out, **known)
    found = wc.explain_dataset(MODEL, pads.dataset(table), out, **known)
    assert (found.n_rows, found.n_done_before) == (900, 0)
    wc.explain_dataset(MODEL, pads.dataset(table[:10]), tmp_path / "auto")
    assert "added, removed or changed since" in error_message(MODEL, pads.dataset(table), tmp_path / "auto")


@known_population
def test_similar_files_in_another_folder_are_different_parts(known: dict[str, Any], tmp_path: Path) -> None:
    for name, rows in (("one", ROWS[:50]), ("two", ROWS[50:100])):
        folder = write(tmp_path / name, frame(rows), sizes=[50])
        os.utime(folder / "part-0.parquet", (0, 0))
    wc.explain_dataset(MODEL, tmp_path / "one", tmp_path / "out", **known)
    found = wc.explain_dataset(MODEL, tmp_path / "two", tmp_path / "out", **known)
    np.testing.assert_allclose(
        relevance(read(found)), wc.explain(MODEL, frame()[NAMES][50:100], **known).relevance
    )


@pytest.mark.parametrize("output", ["rows", "summary", "both"])
def test_a_part_that_changes_while_it_is_explained_is_named(
    output: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, explained = write(tmp_path / "in", sizes=[450, 450]), ExplainRequest.explain

    def change(self: ExplainRequest, part: Any, first_row: int = 0) -> Any:
        if part.num_rows and (folder / "part-1.parquet").stat().st_mtime_ns != 0:
            os.utime(folder / "part-1.parquet", (0, 0))
        return explained(self, part, first_row)

    monkeypatch.setattr(ExplainRequest, "explain", change)
    message = error_message(MODEL, folder, tmp_path / "out", output=output)
    assert "'part-1.parquet': it changed while it was being read" in message
    assert not (tmp_path / "out" / "part-1.parquet").exists()


def test_rows_are_counted_from_the_start_of_their_part(tmp_path: Path) -> None:
    folder = write(tmp_path / "in", with_gaps())
    for n, options in enumerate(({}, KNOWN)):
        message = error_message(MODEL, folder, tmp_path / f"out-{n}", batch_rows=4, **options)
        assert "part 'part-3.parquet': data must be finite; row 9, feature 'b'" in message


def test_a_run_killed_before_it_wrote_its_description(tmp_path: Path) -> None:
    folder, out = write(tmp_path / "in"), tmp_path / "out"
    (out / "_whycluster.tmp").mkdir(parents=True)
    (out / "_whycluster.tmp" / "_whycluster.json").write_text("{")
    (out / "_whycluster.lock").touch()
    check_whole(read(wc.explain_dataset(MODEL, folder, out)))


@pytest.mark.parametrize("n_missing", [0, 2])
def test_errors_of_steps_count_rows_from_the_start_of_their_part(n_missing: int, tmp_path: Path) -> None:
    rows = np.abs(ROWS)
    model = make_pipeline(FunctionTransformer(np.log1p), KMeans(3, n_init=1, random_state=0)).fit(rows)
    rows[250, 1] = -5.0
    rows[205 : 205 + n_missing, 0] = np.nan
    pd.DataFrame(rows, columns=NAMES).to_parquet(tmp_path / "x.parquet")
    options: dict[str, Any] = {
        "columns": NAMES,
        "batch_rows": 100,
        **KNOWN,
        "invalid": "skip" if n_missing else "error",
    }
    message = error_message(model, tmp_path / "x.parquet", tmp_path / "out", **options)
    assert "in row 250, feature 'b' holds -5.0, which becomes nan" in message


def test_time_per_part_does_not_grow_with_their_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, dumped = write(tmp_path / "in", sizes=[3] * 40), list[int]()
    dumps = json.dumps

    def count(*args: Any, **options: Any) -> str:
        dumped.append(1)
        return dumps(*args, **options)

    monkeypatch.setattr(json, "dumps", count)
    monkeypatch.setattr(run_state, "_PAUSE", 1e9)  # progress is saved once per run, however long it takes
    wc.explain_dataset(MODEL, folder, tmp_path / "out")
    n_first = len(dumped)
    for path in folder.iterdir():
        path.rename(path.with_suffix(".more.parquet"))
    write(folder, sizes=[3] * 40)
    dumped.clear()
    wc.explain_dataset(MODEL, folder, tmp_path / "out", overwrite=True)
    assert len(dumped) - n_first == 41  # once per result, and once to forget the results of the other run


def test_a_part_whose_name_is_too_long_for_its_aggregate(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    frame().to_parquet(tmp_path / "in" / f"{'a' * 245}.parquet")
    with pytest.raises(
        OSError, match=r"File name too long.*To resume, fix the cause and start the run again\."
    ):
        wc.explain_dataset(MODEL, tmp_path / "in", tmp_path / "out", output="both")


def interrupt_if(is_last: Callable[[int], bool], monkeypatch: pytest.MonkeyPatch) -> None:
    """Interrupt runs before they measure a part with such a number of rows; save their progress at once."""
    measure = ExplainRequest.measure

    def stop(self: ExplainRequest, part: Any, first_row: int = 0) -> Any:
        if is_last(getattr(part, "num_rows", 0)):
            raise KeyboardInterrupt
        return measure(self, part, first_row)

    monkeypatch.setattr(run_state, "_PAUSE", 0.0)
    monkeypatch.setattr(ExplainRequest, "measure", stop)


def test_parts_that_changed_are_measured_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, out = write(tmp_path / "in"), tmp_path / "out"
    interrupt_if(lambda n_rows: n_rows == 599, monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        wc.explain_dataset(MODEL, folder, out, workers=1)
    measured = json.loads((out / "_whycluster.json").read_text())["measured"]
    assert [*measured["inputs"]] == ["part-0.parquet", "part-1.parquet", "part-2.parquet"]
    assert sum(measured["population"]["sizes"]) == 301
    monkeypatch.undo()
    (folder / "part-0.parquet").touch()  # looks like a change
    found = wc.explain_dataset(MODEL, folder, out, workers=1)
    assert found.beta == pytest.approx(WHOLE.beta, rel=1e-12)


def test_measurements_survive_a_stopped_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, out = write(tmp_path / "in"), tmp_path / "out"
    seen: list[int] = []

    def is_second(n_rows: int) -> bool:
        seen.extend([n_rows] * (n_rows > 0))
        return n_rows > 0 and len(seen) == 2

    interrupt_if(is_second, monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        wc.explain_dataset(MODEL, folder, out, workers=1)
    found = wc.explain_dataset(MODEL, folder, out, workers=1)
    assert seen == [300, 1, 1, 599]  # the first is not read again
    assert found.beta == pytest.approx(WHOLE.beta, rel=1e-12)
    check_whole(read(found))


def test_measurements_without_skipped_rows_are_not_used_if_they_are_errors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = ROWS.copy()
    rows[3, 1] = np.nan
    folder, out = write(tmp_path / "in", frame(rows), sizes=[300, 300, 300]), tmp_path / "out"
    monkeypatch.setattr(run_state, "_PAUSE", -1.0)
    measure, measured = ExplainRequest.measure, []

    def stop_in_the_last(self: ExplainRequest, part: Any, first_row: int = 0) -> Any:
        measured.append(part)
        if len(measured) > 2:
            raise KeyboardInterrupt
        return measure(self, part, first_row)

    monkeypatch.setattr(ExplainRequest, "measure", stop_in_the_last)
    with pytest.raises(KeyboardInterrupt):
        wc.explain_dataset(MODEL, folder, out, invalid="skip", workers=1)
    assert json.loads((out / "_whycluster.json").read_text())["measured"]["inputs"]
    monkeypatch.setattr(ExplainRequest, "measure", measure)
    assert "part 'part-0.parquet': data must be finite; row 3, feature 'b'" in error_message(
        MODEL, folder, out
    )
    found = wc.explain_dataset(MODEL, folder, out, invalid="skip")
    assert (found.n_rows, found.n_invalid) == (900, 1)


def test_non_nullable_columns_and_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = pa.Table.from_pandas(frame(), preserve_index=False)
    fields = [field.with_nullable(False) if field.name == "key" else field for field in table.schema]
    (tmp_path / "in").mkdir()
    pq.write_table(table.cast(pa.schema(fields)), tmp_path / "in" / "x.parquet")
    monkeypatch.setenv("HOME", str(tmp_path))
    found = wc.explain_dataset(MODEL, "~/in", "~/out", id_columns=["key"], top=np.int64(1))
    assert found.parts == [tmp_path / "out" / "x.parquet"]
    assert not read(found).schema.field("key").nullable


def test_results_with_the_wrong_number_of_rows_are_replaced(tmp_path: Path) -> None:
    folder, out = write(tmp_path / "in", sizes=[900]), tmp_path / "out"
    found = wc.explain_dataset(MODEL, folder, out)
    whole = pq.read_table(found.parts[0])
    pq.write_table(whole[:5], found.parts[0])  # with the same footer
    again = wc.explain_dataset(MODEL, folder, out)
    assert (again.n_done_before, again.n_rows) == (0, 900)


def test_links_that_lead_out_of_the_folder_are_not_followed(tmp_path: Path) -> None:
    folder = write(tmp_path / "in", sizes=[900])
    (tmp_path / "theirs").mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "_whycluster.tmp").symlink_to(tmp_path / "theirs")
    assert "out must not contain links that lead outside it" in error_message(
        MODEL, folder, tmp_path / "out", **KNOWN
    )
    assert list((tmp_path / "theirs").iterdir()) == []


@pytest.mark.parametrize(
    "change",
    [
        {"parts": [1]},
        {"parts": None},
        {"request": []},
        {"figures": []},
        {"figures": {"population": {"evidence": "x"}, "inputs": {}, "without": ["part-0.parquet"]}},
        {"figures": {"population": None, "inputs": {}, "without": ["part-0.parquet"]}},
        {"figures": {"population": {}}},
        {"figures": {"population": {}, "inputs": [], "without": []}},
        {"figures": {}, "measured": {"part-0.parquet": 7}},
        {"figures": {}, "measured": {"inputs": [], "population": {}}},
        {"figures": {}, "measured": {"inputs": {}, "population": {"evidence": 1.0}}},
        {"settings": []},
        {"settings": {}},
        {"settings": {"dtype": "O", "as_text": False}},
        {"settings": {"dtype": "float32", "as_text": "no"}},
        {
            "figures": {
                "population": {"evidence": -5.0, "sizes": [1, 1, 1], "means": [[], [], []]},
                "inputs": {},
                "without": ["part-0.parquet"],
            }
        },
    ],
    ids=str,
)
def test_an_edited_description_is_an_error(change: Any, tmp_path: Path) -> None:
    folder, out = write(tmp_path / "in", sizes=[900]), tmp_path / "out"
    wc.explain_dataset(MODEL, folder, out)
    facts = json.loads((out / "_whycluster.json").read_text())
    (out / "_whycluster.json").write_text(json.dumps({**facts, **change}))
    message = error_message(MODEL, folder, out)
    assert (
        "must be a description written by this version of whycluster" in message
        or "were changed after they were written" in message
    )


@pytest.mark.parametrize("damage", ["cut", "shape", "text", "other", "locked"])
def test_damaged_aggregates_are_replaced(damage: str, tmp_path: Path) -> None:
    folder, out = write(tmp_path / "in", sizes=[900]), tmp_path / "out"
    before = wc.explain_dataset(MODEL, folder, out, output="summary").summary
    path = out / "_summary" / "part-0.parquet.npz"
    with np.load(path) as file:
        arrays = dict(file)
    if damage == "cut":
        path.write_bytes(path.read_bytes()[:-100])
    elif damage == "locked":  # as if it had a password
        content = path.read_bytes().replace(b"PK\x01\x02", b"PK\x01\x02", 1)
        at = content.index(b"PK\x01\x02") + 8
        path.write_bytes(content[:at] + b"\x01" + content[at + 1 :])
    elif damage == "other":
        np.save(path.with_suffix(".npy"), np.arange(3))
        path.with_suffix(".npy").rename(path)
    else:
        wrong = np.zeros((2, 2)) if damage == "shape" else np.full((3, 4), "x")
        np.savez(path, **{**arrays, "mean": wrong})
    found = wc.explain_dataset(MODEL, folder, out, output="summary")
    assert found.n_done_before == 0
    assert before is not None
    assert found.summary is not None
    np.testing.assert_array_equal(found.summary.relevance, before.relevance)


def test_only_the_strongest_features(tmp_path: Path) -> None:
    found = wc.explain_dataset(MODEL, write(tmp_path / "in"), tmp_path / "out", top=2)
    table, top = read(found), WHOLE.top(2)
    assert table.column_names == [
        "cluster", "evidence", "competitor",
        "feature_1", "relevance_1", "value_1", "feature_2", "relevance_2", "value_2",
    ]  # fmt: skip
    for rank in (0, 1):
        assert table[f"feature_{rank + 1}"].to_pylist() == top.feature[:, rank].tolist()
        np.testing.assert_allclose(
            table[f"relevance_{rank + 1}"].to_numpy(), top.relevance[:, rank], atol=1e-9
        )
        np.testing.assert_array_equal(table[f"value_{rank + 1}"].to_numpy(), top.value[:, rank])


def check_compared(summary: Any) -> None:
    """Check which clusters features are compared with: those whose means differ most.

    They are the fewest that make up two thirds of the squared differences, weighted by how many rows have
    them as strongest competitor (at least 5%), but at most three.
    """
    for group, cluster in enumerate(summary.clusters.tolist()):
        competitors = WHOLE.competitor[WHOLE.cluster == cluster].tolist()
        share = {k: competitors.count(k) / len(competitors) for k in sorted(set(competitors))}
        for feature in range(len(NAMES)):
            mean = dict(zip(summary.clusters.tolist(), summary.inside[:, feature].tolist(), strict=True))
            weight = {
                k: part * (mean[k] - mean[cluster]) ** 2
                for k, part in share.items()
                if part >= 0.05 or part == max(share.values())
            }
            named: list[Any] = []
            for k in sorted(weight, key=lambda k: -weight[k]):
                if len(named) < 3 and sum(weight[j] for j in named) < 2 / 3 * sum(weight.values()):
                    named.append(k)
            statement = summary.statement(group, feature)
            assert statement.against == tuple(sorted(named))
            above = [mean[cluster] > mean[k] for k in named]
            assert statement.direction == ("higher" if all(above) else "between" if any(above) else "lower")


@pytest.mark.parametrize("output", ["summary", "both"])
def test_summaries_are_added_up_over_parts(output: str, tmp_path: Path) -> None:
    folder = write(tmp_path / "in")
    found = wc.explain_dataset(MODEL, folder, tmp_path / "out", output=output, batch_rows=50)
    whole, summary = WHOLE.summary(), found.summary
    assert summary is not None
    assert (found.n_rows, len(found.parts)) == (900, 4 if output == "both" else 0)
    np.testing.assert_array_equal(summary.clusters, whole.clusters)
    np.testing.assert_array_equal(summary.size, whole.size)
    for name in ("relevance", "share", "inside", "outside"):
        np.testing.assert_allclose(getattr(summary, name), getattr(whole, name), rtol=1e-8, atol=1e-9)
    quantiles = found.quantiles("pandas")  # all rows are in the sample, so these are exact
    assert (quantiles["rank_error"] == 0).all()
    for _, row in quantiles.iterrows():
        mine = WHOLE.relevance[WHOLE.cluster == row["cluster"], NAMES.index(row["feature"])]
        for name, q in {"q05": 0.05, "q25": 0.25, "q50": 0.5, "q75": 0.75, "q95": 0.95}.items():
            np.testing.assert_allclose(row[name], np.quantile(mine, q), rtol=1e-5, atol=1e-5)
    written = pd.read_csv(tmp_path / "out" / "_summary.csv")
    expected = pd.merge(summary.to_frame("pandas"), quantiles, on=["cluster", "feature"])
    written["against"] = written["against"].astype(str)  # the labels of one cluster are read as numbers
    pd.testing.assert_frame_equal(written[expected.columns], expected, check_dtype=False)
    check_compared(summary)
    assert {"cluster", "size", "feature", "relevance", "share", "q50", "rank_error"} <= {*written.columns}
    again = wc.explain_dataset(MODEL, folder, tmp_path / "out", output=output)
    assert again.n_done_before == 4
    np.testing.assert_array_equal(again.summary.relevance, summary.relevance)  # type: ignore[union-attr]
    if output == "both":
        check_whole(read(found))


def test_quantiles_must_be_requested(tmp_path: Path) -> None:
    found = wc.explain_dataset(MODEL, write(tmp_path / "in"), tmp_path / "out")
    with pytest.raises(wc.InvalidInputError) as caught:
        found.quantiles()
    assert str(caught.value) == (
        'explain_dataset: quantiles require a run with output="summary" or "both"; this run wrote only rows.'
    )


def test_parts_of_a_large_table_keep_few_rows() -> None:
    request = ExplainRequest.of(MODEL, "explain", wc.Query()).measure_background(frame()[NAMES])
    total, reservoir, kept = Aggregate.empty(3, 4, most=500), ReservoirSample(3, 4, most=500), np.zeros(3)
    whole = Aggregate.empty(3, 4, most=500)
    for seed in range(60):
        rows = CENTERS[np.repeat([0, 1, 2], [700, 49, 1])] + 0.01 * np.random.default_rng(seed).normal(
            size=(750, 4)
        )
        part, result = Aggregate.empty(3, 4, most=500), request.explain(rows)
        part.add(result, np.random.default_rng(seed), reservoir)
        whole.add(result, np.random.default_rng(seed))
        reservoir.add(part)
        kept += np.isfinite(part.priority).sum(axis=1)
        total.merge(part)
    assert (kept[0], kept[2]) == (pytest.approx(500 + 500 * sum(1 / n for n in range(1, 60)), abs=300), 60)
    assert np.isfinite(total.priority).sum(axis=1).tolist() == [500, 500, 60]
    assert np.array_equal(total.priority, whole.priority)  # no row of the sample is left out
    assert np.array_equal(total.sample, whole.sample, equal_nan=True)
    assert total.size.tolist() == [42_000, 2_940, 60]


def test_quantiles_after_parts_are_removed_use_a_complete_sample() -> None:
    request = ExplainRequest.of(MODEL, "explain", wc.Query()).measure_background(frame()[NAMES])
    reservoir, states = ReservoirSample(3, 4, most=50), []
    for seed in range(4):
        rows = CENTERS[np.zeros(200, int)] + 0.01 * np.random.default_rng(seed).normal(size=(200, 4))
        state = Aggregate.empty(3, 4, most=50)
        state.add(request.explain(rows), np.random.default_rng(seed), reservoir)
        reservoir.add(state)
        states.append(state)
    left = Aggregate.empty(3, 4, most=50)
    left.merge(states[3])  # kept few rows, because the other parts had filled the sample
    n = np.isfinite(states[3].priority[0]).sum()
    assert 0 < n < 50
    assert left.rank_error[0] == pytest.approx(0.5 / np.sqrt(n))
    left.merge(states[0])
    below = (states[0].priority[0] <= states[3].limit[0]).sum()
    assert 0 < below < 50
    assert left.rank_error[0] == pytest.approx(0.5 / np.sqrt(n + below))
    assert np.isfinite(left.quantiles()[0]).all()


@pytest.mark.parametrize(
    "labels", [[0, 1, -1], ["a", 0, 1.5], [date(2020, 1, day) for day in (1, 2, 3)]], ids=str
)
def test_a_summary_of_labels_of_any_kind(labels: list[Any], tmp_path: Path) -> None:
    given = np.array(labels, dtype=object)[MODEL.predict(frame()[NAMES])]
    surrogate = wc.Surrogate().fit(frame()[NAMES], given.tolist())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", wc.FidelityWarning)
        found = wc.explain_dataset(surrogate, write(tmp_path / "in"), tmp_path / "out", output="both")
    written = pacsv.read_csv(tmp_path / "out" / "_summary.csv").to_pandas()
    quantiles = found.quantiles("pandas").astype({"cluster": str}).set_index(["cluster", "feature"])
    for _, row in written.iterrows():
        assert quantiles.loc[(str(row["cluster"]), row["feature"])]["q50"] == pytest.approx(row["q50"])
    assert found.summary is not None
    assert {str(each) for each in found.summary.clusters} == {*written["cluster"].astype(str)}


def test_quantiles_of_relevance_too_large_for_float32(tmp_path: Path) -> None:
    rows = pd.DataFrame(ROWS * 1e60, columns=NAMES)
    rows.to_parquet(tmp_path / "x.parquet")
    found = wc.explain_dataset(CENTERS * 1e60, tmp_path / "x.parquet", tmp_path / "out", output="summary")
    whole = wc.explain(CENTERS * 1e60, rows)
    median = found.quantiles()["q50"].to_numpy()[:4]
    np.testing.assert_allclose(median, np.median(whole.relevance[whole.cluster == 0], axis=0))


def test_rank_error_bounds_the_error_of_sampled_quantiles() -> None:
    rng = np.random.default_rng(1)
    rows = np.concatenate([rng.normal(size=(20_000, 2)), rng.normal(size=(20_000, 2)) + 6])
    request = ExplainRequest.of([[0.0, 0.0], [6.0, 6.0]], "explain", wc.Query(beta=1.0))
    halves = []
    for half in (rows[::2], rows[1::2]):
        total = Aggregate.empty(2, 2)
        for start in range(0, len(half), 3000):
            total.add(request.explain(half[start : start + 3000]), rng)
        halves.append(total)
    halves[0].merge(halves[1])
    assert halves[0].size.sum() == 40_000
    error = halves[0].rank_error
    np.testing.assert_allclose(error, 0.5 / 64)
    exact = request.explain(rows)
    for k in (0, 1):
        mine = exact.relevance[exact.cluster == k]
        rank = (mine < halves[0].quantiles()[k, :, 2]).mean(axis=0)
        assert (np.abs(rank - 0.5) < 5 * error[k]).all()


@given(st.lists(st.integers(0, 40), min_size=1, max_size=6), st.integers(0, 2**32))
@settings(max_examples=30, deadline=None)
def test_aggregates_of_parts_add_up_to_the_whole(sizes: list[int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(sum(sizes), 4)) * 3
    request = ExplainRequest.of(MODEL.cluster_centers_, "explain", wc.Query()).measure_background(ROWS)
    total, start = Aggregate.empty(3, 4), 0
    for size in sizes:
        total.add(request.explain(rows[start : start + size]), rng)
        start += size
    result = request.explain(rows)
    assert total.size.sum() == len(rows)
    for k in range(3):
        mine = result.cluster == k
        assert total.size[k] == mine.sum()
        if mine.any():
            np.testing.assert_allclose(total.relevance[k], result.relevance[mine].mean(axis=0), atol=1e-9)
            np.testing.assert_allclose(total.mean[k], rows[mine].mean(axis=0), atol=1e-9)
            sampled = total.sample[k][np.isfinite(total.priority[k])]
            np.testing.assert_allclose(
                np.sort(sampled[:, 0]), np.sort(result.relevance[mine, 0]), rtol=1e-5, atol=1e-6
            )


def mixed(n: int = 200) -> tuple[Any, pd.DataFrame]:
    rng = np.random.default_rng(3)
    table = pd.DataFrame(
        {"color": rng.choice(["red", "blue"], n), "size": rng.normal(size=n) + np.arange(n) % 2 * 5}
    )
    steps = make_column_transformer((OneHotEncoder(), ["color"]), (StandardScaler(), ["size"]))
    return make_pipeline(steps, KMeans(2, n_init=2, random_state=0)).fit(table), table


@pytest.mark.parametrize("top", [None, 2])
def test_pipelines_with_categories(top: int | None, tmp_path: Path) -> None:
    model, table = mixed()
    folder = write(tmp_path / "in", table, sizes=[90, 0, 110])
    found = wc.explain_dataset(model, folder, tmp_path / "out", top=top)
    whole, results = wc.explain(model, table), read(found)
    if top is None:
        np.testing.assert_allclose(results["color"].to_numpy(), whole.relevance[:, 0], atol=1e-9)
    else:
        names = whole.top(2).feature[:, 0].tolist()
        assert results["feature_1"].to_pylist() == names
        colors = [v for f, v in zip(names, results["value_1"].to_pylist(), strict=True) if f == "color"]
        assert set(colors) <= {"red", "blue"}
    assert wc.explain_dataset(model, folder, tmp_path / "out", top=top).n_done_before == 3
    summed = wc.explain_dataset(model, folder, tmp_path / "sum", output="summary").summary
    assert summed is not None
    np.testing.assert_allclose(summed.relevance, whole.summary().relevance, atol=1e-9)
    assert np.isnan(summed.inside[:, 0]).all()


# Resuming and overwriting


def test_a_second_run_only_does_what_is_missing(tmp_path: Path) -> None:
    folder = write(tmp_path / "in")
    first = wc.explain_dataset(MODEL, folder, tmp_path / "out")
    times = [path.stat().st_mtime_ns for path in first.parts]
    first.parts[3].unlink()
    first.parts[0].write_bytes(first.parts[0].read_bytes()[:-9])  # as after a power cut
    second = wc.explain_dataset(MODEL, folder, tmp_path / "out")
    assert second.n_done_before == 2
    assert [path.stat().st_mtime_ns for path in second.parts][1:3] == times[1:3]
    assert second.beta == first.beta
    check_whole(read(second))


def test_another_model_or_option_is_an_error_unless_overwritten(tmp_path: Path) -> None:
    folder, out = write(tmp_path / "in"), tmp_path / "out"
    wc.explain_dataset(MODEL, folder, out, id_columns=["key"])
    before = {path.name: path.read_bytes() for path in out.glob("*.parquet")}
    other = KMeans(3, init=CENTERS + 0.5, n_init=1, max_iter=1).fit(frame()[NAMES])
    message = (
        "explain_dataset: out must be a new folder, or the folder of a run with the same options; "
        f"{str(out)!r} holds the results of a run that differs in "
    )
    instead = ". Choose another folder, or pass overwrite=True to replace its contents."
    assert error_message(other, folder, out, id_columns=["key"]) == f"{message}model{instead}"
    assert error_message(MODEL, folder, out, id_columns=["key"], top=2) == f"{message}top{instead}"
    assert error_message(MODEL, folder, out, rule="joint") == f"{message}id_columns and rule{instead}"
    assert error_message(MODEL, folder, out, id_columns=["key"], beta=2.0) == f"{message}beta{instead}"
    assert {path.name: path.read_bytes() for path in out.glob("*.parquet")} == before
    same = wc.explain_dataset(MODEL, folder, out, id_columns=["key"], rule=wc.neuralize(MODEL).default_rule)
    assert same.n_done_before == len(same.parts)
    found = wc.explain_dataset(other, folder, out, overwrite=True)
    assert found.n_done_before == 0
    check_whole(read(found), wc.explain(other, frame()[NAMES]))


def test_overwriting_removes_only_results_of_the_other_run(tmp_path: Path) -> None:
    out = tmp_path / "out"
    wc.explain_dataset(MODEL, write(tmp_path / "in"), out, output="both")
    (out / "notes.txt").write_text("mine")
    less = write(tmp_path / "less", sizes=[400, 500])
    wc.explain_dataset(MODEL, less, out, overwrite=True)
    assert sorted(path.name for path in out.iterdir() if path.is_file()) == [
        "_whycluster.json", "_whycluster.lock", "notes.txt", "part-0.parquet", "part-1.parquet",
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["a\ud800", "a" * 300, "part-0.parquet/x"])
def test_a_description_with_impossible_file_names(name: str, tmp_path: Path) -> None:
    folder, out = write(tmp_path / "in"), tmp_path / "out"
    wc.explain_dataset(MODEL, folder, out)
    facts = json.loads((out / "_whycluster.json").read_text())
    facts["parts"].append(name)
    (out / "_whycluster.json").write_text(json.dumps(facts))
    check_whole(read(wc.explain_dataset(MODEL, folder, out, overwrite=True)))


def test_a_tampered_description_removes_nothing_outside_its_folder(tmp_path: Path) -> None:
    out, outside = tmp_path / "out", tmp_path / "precious.txt"
    outside.write_text("mine")
    wc.explain_dataset(MODEL, write(tmp_path / "in"), out)
    facts = json.loads((out / "_whycluster.json").read_text())
    facts["parts"] = ["../precious.txt", str(outside)]
    (out / "_whycluster.json").write_text(json.dumps(facts))
    wc.explain_dataset(MODEL, tmp_path / "in", out, overwrite=True)
    assert outside.read_text() == "mine"
    (out / "_whycluster.json").write_text("[" * 100_000)
    assert error_message(MODEL, tmp_path / "in", out).startswith(
        f"explain_dataset: {str(out / '_whycluster.json')!r} must be a description written by this "
        "version of whycluster"
    )


@pytest.mark.parametrize(
    ("query", "measured", "remedy"),
    [
        ({}, "beta and the cluster sizes were", "background"),
        ({"beta": 0.2}, "the cluster sizes were", "background"),
        ({"rule": "sequential", "beta": 0.2}, "the cluster sizes were", "background"),
        ({"rule": "min-take-most"}, "beta was", "beta"),
        ({"rule": "joint"}, "beta was", "beta"),
    ],
    ids=str,
)
def test_parts_that_changed_since_they_were_measured(
    query: dict[str, Any], measured: str, remedy: str, tmp_path: Path
) -> None:
    folder, out = write(tmp_path / "in"), tmp_path / "out"
    wc.explain_dataset(MODEL, folder, out, **query)
    pq.write_table(pa.Table.from_pandas(frame()[:5]), folder / "part-9.parquet")
    assert error_message(MODEL, folder, out, **query) == (
        f"explain_dataset: the parts must be those that {measured} measured on; 'part-9.parquet' has been "
        f"added, removed or changed since then. Pass {remedy}=... to explain parts as they arrive, or "
        "overwrite=True to start over."
    )
    assert wc.explain_dataset(MODEL, folder, out, overwrite=True, **query).n_rows == 905


def test_parts_can_be_added_to_those_of_a_mixture(tmp_path: Path) -> None:
    folder, out = write(tmp_path / "in"), tmp_path / "out"
    mixture = GaussianMixture(3, random_state=0).fit(frame()[NAMES])
    wc.explain_dataset(mixture, folder, out)
    pq.write_table(pa.Table.from_pandas(frame()[:5]), folder / "part-9.parquet")
    found = wc.explain_dataset(mixture, folder, out)
    assert (found.n_done_before, found.n_rows, found.beta) == (4, 905, 1.0)
    check_whole(read(found)[:900], wc.explain(mixture, frame()[NAMES]))


@known_population
def test_parts_can_be_added_and_changed_if_nothing_is_measured(known: dict[str, Any], tmp_path: Path) -> None:
    folder, out = write(tmp_path / "in"), tmp_path / "out"
    wc.explain_dataset(MODEL, folder, out, **known)
    pq.write_table(pa.Table.from_pandas(frame()[:5]), folder / "part-9.parquet")
    pq.write_table(pa.Table.from_pandas(frame()[300:303]), folder / "part-1.parquet")
    found = wc.explain_dataset(MODEL, folder, out, **known)
    assert (found.n_done_before, found.n_rows) == (3, 907)
    assert found.beta == wc.explain(MODEL, frame()[NAMES], **known).beta


@known_population
def test_warns_of_results_whose_parts_are_gone(known: dict[str, Any], tmp_path: Path) -> None:
    folder, out = write(tmp_path / "in"), tmp_path / "out"
    wc.explain_dataset(MODEL, folder, out, **known)
    (folder / "part-1.parquet").rename(folder / "part-8.parquet")
    with pytest.warns(wc.FilesWarning) as warned:
        found = wc.explain_dataset(MODEL, folder, out, **known)
    assert str(warned[0].message) == (
        f"explain_dataset: {str(out)!r} also holds the results of 1 part that is no longer in the data: "
        "['part-1.parquet']. These results are kept."
    )
    assert warned[0].filename == __file__
    assert (found.n_rows, found.n_done_before) == (900, 3)
    assert (out / "part-1.parquet").exists()


@known_population
def test_parts_whose_names_change_because_more_are_given(known: dict[str, Any], tmp_path: Path) -> None:
    old, new = (write(tmp_path / year, sizes=[5, 6]) for year in ("2024", "2025"))
    wc.explain_dataset(MODEL, [old / "part-0.parquet", old / "part-1.parquet"], tmp_path / "out", **known)
    message = error_message(MODEL, [old, new / "part-0.parquet"], tmp_path / "out", **known)
    assert message == (
        "explain_dataset: each part must keep its name between calls; the part whose results are in "
        "'part-0.parquet' would now be written to '2024/part-0.parquet'. Always pass the same folder, the "
        "one that contains all parts, or pass overwrite=True to start over."
    )
    found = wc.explain_dataset(
        MODEL, [old, new / "part-0.parquet"], tmp_path / "out", **known, overwrite=True
    )
    assert found.n_rows == len(pd.read_parquet(tmp_path / "out")) == 16


def test_results_are_never_written_where_data_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "in")
    monkeypatch.setenv("HOME", str(tmp_path))
    for data, out in (
        ("~/in", "~/in/out"),
        (tmp_path / "in", tmp_path / "in" / "a" / "out"),
        (f"{tmp_path}/in/**/*.parquet", tmp_path / "in" / "out"),
        (f"{tmp_path}/*/*.parquet", tmp_path / "out"),
        ([f"{tmp_path}/in/part-0.parquet", "~/i*/*.parquet"], tmp_path / "ix"),
    ):
        assert "out must be a folder separate from the data" in error_message(MODEL, data, out)
    for data in (f"{tmp_path}/in/*.parquet", [f"{tmp_path}/in/part-0.parquet"]):
        wc.explain_dataset(MODEL, data, tmp_path / "in" / "out", overwrite=True)  # not read as data


def test_a_folder_with_other_files_or_data_is_an_error(tmp_path: Path) -> None:
    folder, out = write(tmp_path / "in"), tmp_path / "out"
    out.mkdir()
    (out / "thesis.txt").write_text("mine")
    assert error_message(MODEL, folder, out, overwrite=True) == (
        f"explain_dataset: out must be a new or empty folder, or the folder of an earlier run; {str(out)!r} "
        "holds other files, such as 'thesis.txt'. Choose another folder."
    )
    for place in (folder, folder / "out", tmp_path):
        assert error_message(MODEL, folder, place) == (
            f"explain_dataset: out must be a folder separate from the data; {str(place)!r} contains the "
            "data or is inside the data folder."
        )
    assert error_message(MODEL, folder, out / "thesis.txt").startswith(
        "explain_dataset: out must be a writable folder"
    )


# Parts with errors


def test_a_corrupt_part_is_named_and_the_others_are_finished(tmp_path: Path) -> None:
    folder, out = write(tmp_path / "in", sizes=[300, 200, 400]), tmp_path / "out"
    whole = (folder / "part-1.parquet").read_bytes()
    middle = len(whole) // 2
    for broken in (
        b"",
        b"PAR1 no Parquet at all",
        whole[:middle],
        whole[:60] + bytes(middle) + whole[60 + middle :],
    ):
        (folder / "part-1.parquet").write_bytes(broken)
        message = error_message(MODEL, folder, out, overwrite=True)
        assert message.startswith(
            "explain_dataset: 1 of 3 parts could not be explained; the others are done. 'part-1.parquet': it "
        )
        assert sorted(path.name for path in out.glob("*.parquet")) == ["part-0.parquet", "part-2.parquet"]
    rest = wc.explain(MODEL, frame()[NAMES].drop(range(300, 500)))
    check_whole(pads.dataset(out).to_table(), rest)
    # Once it is repaired, it is explained with the same beta as the others, which was measured without it.
    (folder / "part-1.parquet").write_bytes(whole)
    found = wc.explain_dataset(MODEL, folder, out)
    assert (found.n_done_before, found.n_rows) == (2, 900)
    assert found.beta == pytest.approx(rest.beta, rel=1e-12)


def test_parts_with_other_columns_are_named_and_the_others_are_finished(tmp_path: Path) -> None:
    folder, out = write(tmp_path / "in", sizes=[300, 200, 400]), tmp_path / "out"
    odd = pd.read_parquet(folder / "part-1.parquet")
    odd.drop(columns="c").to_parquet(folder / "part-1.parquet")
    odd.assign(d="x").to_parquet(folder / "part-2.parquet")
    assert error_message(MODEL, folder, out) == (
        "explain_dataset: 2 of 3 parts could not be explained; the others are done. 'part-1.parquet': it "
        "must have exactly one column named 'c'; it has ['a', 'b', 'd', 'key']; 'part-2.parquet': column "
        f"'d' must hold numbers; it has type {pq.read_schema(folder / 'part-2.parquet').field('d').type}."
    )
    assert [path.name for path in out.glob("*.parquet")] == ["part-0.parquet"]


def test_parts_can_differ_in_column_order_number_types_and_other_columns(tmp_path: Path) -> None:
    folder = write(tmp_path / "in", sizes=[300, 600])
    second = pd.read_parquet(folder / "part-1.parquet")
    second[["key", "d", "c", "b", "a"]].assign(more=1).astype({"a": "float32"}).to_parquet(
        folder / "part-1.parquet"
    )
    found = wc.explain_dataset(MODEL, folder, tmp_path / "out", id_columns=["key"])
    table = read(found)
    assert table["a"].type == pa.float64()
    np.testing.assert_allclose(relevance(table), WHOLE.relevance, rtol=1e-4, atol=1e-4)


def test_no_part_can_be_read(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "x.parquet").write_bytes(b"nothing")
    assert error_message(MODEL, folder, tmp_path / "out").startswith(
        "explain_dataset: no part can be explained. 'x.parquet': it cannot be read ("
    )
    assert not (tmp_path / "out").exists()


def with_gaps() -> pd.DataFrame:
    table = frame()
    table.loc[310, "b"] = np.nan
    table.loc[400, "a"] = np.inf
    return table


@pytest.mark.parametrize("query", [{}, *UNMEASURED], ids=["auto", *UNMEASURED_IDS])
def test_errors_of_rows_that_are_not_finite_name_part_row_and_column(
    query: dict[str, Any], tmp_path: Path
) -> None:
    folder, out = write(tmp_path / "in", with_gaps()), tmp_path / "out"
    assert error_message(MODEL, folder, out, **query, workers=1) == (
        "explain_dataset: part 'part-3.parquet': data must be finite; row 9, feature 'b' holds a missing "
        'value (NaN). Drop or fill such rows first. Or pass invalid="skip" to get nulls for such rows.'
    )
    assert not (out / "part-3.parquet").exists()
    found = wc.explain_dataset(MODEL, folder, out, **query, invalid="skip")  # resumes
    assert (found.n_rows, found.n_invalid) == (900, 2)
    assert found.n_done_before == (3 if query else 0)
    table = read(found)
    for name in ("cluster", "evidence", "competitor", "a", "d"):
        assert [i for i, value in enumerate(table[name].to_pylist()) if value is None] == [310, 400]
    whole = wc.explain(MODEL, with_gaps()[NAMES].drop([310, 400]), **query)
    check_whole(table.filter(pa.compute.is_valid(table["cluster"])), whole)
    assert "holds a missing value" in error_message(MODEL, folder, out, **query)  # still an error


@pytest.mark.parametrize("invalid", ["error", "skip"])
@pytest.mark.parametrize("query", [{}, *UNMEASURED], ids=["auto", *UNMEASURED_IDS])
@pytest.mark.parametrize("top", [None, 2])
def test_columns_are_nullable_only_if_rows_can_be_skipped(
    invalid: str, query: dict[str, Any], top: int | None, tmp_path: Path
) -> None:
    folder, out = write(tmp_path / "in"), tmp_path / "out"
    options: dict[str, Any] = {**query, "top": top, "id_columns": ["key"]}

    def nulls() -> set[bool]:
        schemas = [pq.read_schema(path) for path in out.glob("*.parquet")]
        assert all(schema.field("key").nullable for schema in schemas)
        return {entry.nullable for schema in schemas for entry in list(schema)[1:]}

    found = wc.explain_dataset(MODEL, folder, out, invalid=invalid, **options)
    none = invalid == "error" and not query
    assert nulls() == {not none}
    for path in found.parts[:2]:
        path.unlink()
    other = "skip" if invalid == "error" else "error"
    again = wc.explain_dataset(MODEL, folder, out, invalid=other, **options)
    assert again.n_done_before == len(SIZES) - 2
    assert nulls() == {not none}  # the same in all parts of a run
    assert len(read(again)) == 900


def test_rows_with_missing_values_in_csv(tmp_path: Path) -> None:
    folder = write(tmp_path / "in", with_gaps().drop(index=400), sizes=[899], suffix="csv")
    found = wc.explain_dataset(MODEL, folder, tmp_path / "out", invalid="skip", output="both", top=1)
    assert (found.n_rows, found.n_invalid) == (899, 1)
    assert read(found)["feature_1"][310].as_py() is None
    assert found.summary is not None
    assert found.summary.size.sum() == 898


# Stopped runs


SCRIPT = textwrap.dedent(
    """
    import sys
    import whycluster as wc
    model = wc.load(sys.argv[1])
    options = {"id_columns": ["key"], "batch_rows": 200, "output": "both"}
    found = wc.explain_dataset(model, sys.argv[2], sys.argv[3], **options)
    print(found.n_rows)
    """
)


def arguments(tmp_path: Path) -> list[str]:
    return [sys.executable, "-c", SCRIPT, *(str(tmp_path / name) for name in ("model", "in", "out"))]


def test_pandas_is_not_imported_on_a_thread(tmp_path: Path) -> None:
    """While one thread imports pandas, narwhals on another one would see a part of it."""
    code = """
import sys, threading
import numpy as np
import whycluster as wc

class Imports:
    def find_spec(self, name, path, target=None):
        if name == "pandas":
            print(threading.current_thread().name)

sys.meta_path.insert(0, Imports())
wc.explain_dataset(np.eye(3, 4), *sys.argv[1:], columns=list("abcd"), workers=2)
"""
    args = [sys.executable, "-c", code, str(write(tmp_path / "in")), str(tmp_path / "out")]
    done = subprocess.run(args, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("MainThread\n", "")


def started(tmp_path: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(arguments(tmp_path), stdout=subprocess.PIPE, stderr=subprocess.PIPE)


@pytest.mark.slow
def test_killed_ten_times_at_random_no_row_is_lost_doubled_or_truncated(tmp_path: Path) -> None:
    rows = np.tile(ROWS, (30, 1)) + RNG.normal(size=(27_000, 4)) * 0.1
    table = frame(rows)
    write(tmp_path / "in", table, sizes=[1350] * 20)
    wc.save(wc.neuralize(MODEL), tmp_path / "model")
    out, chance = tmp_path / "out", random.Random(0)
    killed = 0
    for _ in range(10):
        process = started(tmp_path)
        while not (out / "_whycluster.lock").exists() and process.poll() is None:
            time.sleep(0.01)
        n_before = len(list(out.glob("part-*.parquet")))
        time.sleep(chance.uniform(0.0, 0.4))
        while n_before == len(list(out.glob("part-*.parquet"))) < 20 and chance.random() < 0.9:
            time.sleep(0.02)  # usually until another part is finished
            if process.poll() is not None:
                break
        process.send_signal(signal.SIGKILL)
        killed += process.wait() == -signal.SIGKILL
        process.communicate()
        for path in out.glob("part-*.parquet"):  # files with a final name are complete
            assert pq.read_table(path).num_rows == 1350
    assert killed >= 5
    process = started(tmp_path)
    message, errors = process.communicate(timeout=60)
    assert message == b"27000\n", errors
    whole = wc.explain(MODEL, table[NAMES])
    parts = sorted(out.glob("part-*.parquet"), key=lambda path: int(path.stem[5:]))
    results = pa.concat_tables(pq.read_table(path) for path in parts)
    by_name = {p.name: p for p in (tmp_path / "in").iterdir()}
    keys = [k for path in parts for k in pq.read_table(by_name[path.name])["key"].to_pylist()]
    assert results["key"].to_pylist() == keys == table["key"].tolist()
    check_whole(results, whole)
    summary = pd.read_csv(out / "_summary.csv")
    assert [*summary.columns[-6:]] == ["q05", "q25", "q50", "q75", "q95", "rank_error"]
    assert summary["size"].tolist()[::4] == np.bincount(whole.cluster).tolist()
    assert not (out / "_whycluster.tmp").exists()


def test_two_runs_cannot_write_to_the_same_folder(tmp_path: Path) -> None:
    folder, out = write(tmp_path / "in"), tmp_path / "out"
    with RunState(out, "explain_dataset").opened():
        assert error_message(MODEL, folder, out) == (
            f"explain_dataset: {str(out)!r} must not be in use; another run is writing to it. Wait for that "
            "run to finish, or choose another folder."
        )
    check_whole(read(wc.explain_dataset(MODEL, folder, out)))


@pytest.mark.slow
@pytest.mark.parametrize(("room", "whole"), [(150_000, 2), (100, 0)])
def test_a_full_disk_leaves_complete_parts_and_is_explained(room: int, whole: int, tmp_path: Path) -> None:
    big = np.tile(ROWS, (20, 1))
    write(tmp_path / "in", frame(big), sizes=[900, 900, 16_200])
    wc.save(wc.neuralize(MODEL), tmp_path / "model")
    args = arguments(tmp_path)

    def limited() -> None:  # limits the size of files, as a full disk does
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))

    done = subprocess.run(args, capture_output=True, text=True, preexec_fn=limited)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith(
        f"OSError: [Errno {errno.EFBIG}] explain_dataset: writing to "
    )
    assert done.stderr.splitlines()[-1].endswith(". To resume, free some space and start the run again.")
    assert (
        sorted(p.name for p in (tmp_path / "out").glob("*.parquet"))
        == [
            "part-0.parquet",
            "part-1.parquet",
        ][:whole]
    )
    again = subprocess.run(args, capture_output=True, text=True, check=True)
    assert again.stdout == "18000\n"


def test_an_error_stops_all_workers_and_no_thread_is_left(tmp_path: Path) -> None:
    folder = write(tmp_path / "in", with_gaps(), sizes=[100] * 9)
    before = threading.active_count()
    assert "part-3.parquet" in error_message(
        MODEL, folder, tmp_path / "out", **KNOWN, workers=4, batch_rows=10
    )
    assert threading.active_count() == before
    assert not (tmp_path / "out" / "_whycluster.tmp").exists()


def test_a_writer_that_fails_leaves_no_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write(tmp_path / "in", sizes=[900])
    before = threading.active_count()

    def fail(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(pq.ParquetWriter, "write_table", fail)
    with pytest.raises(
        OSError, match=r"writing to .* failed .*No space left on device.*free some space"
    ) as caught:
        wc.explain_dataset(MODEL, folder, tmp_path / "out", **KNOWN, batch_rows=9)
    assert caught.value.errno == errno.ENOSPC
    assert threading.active_count() == before  # although the traceback still exists


def test_stages_respect_their_limit_and_keep_no_items() -> None:
    class Thing:
        pass

    made: list[Any] = []

    def things() -> Any:
        for _ in range(6):
            thing = Thing()
            made.append(weakref.ref(thing))
            yield thing
            del thing

    items = ahead(things(), 2)
    for n in range(1, 4):
        thing = next(items)
        deadline = time.monotonic() + 5
        while len(made) < n + 2 and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(0.05)
        assert len(made) == n + 2
        assert [ref() is not None for ref in made] == [False] * (n - 1) + [True] * 3
    del thing
    items.close()


def test_stages_pass_on_errors_and_end_when_closed() -> None:
    closed = []

    def numbers() -> Any:
        try:
            yield from range(100)
        finally:
            closed.append(True)

    assert list(ahead(range(5))) == [0, 1, 2, 3, 4]
    assert list(ahead(ahead(range(5), 3), 2)) == [0, 1, 2, 3, 4]
    items = ahead(numbers())
    assert next(items) == 0
    items.close()
    assert closed == [True]

    def failing() -> Any:
        yield 1
        raise OSError("lost")

    items = ahead(failing())
    assert next(items) == 1
    with pytest.raises(OSError, match="lost"):
        next(items)


# Invalid arguments


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"output": "all"}, "output must be one of 'rows', 'summary', 'both'; got 'all'."),
        ({"top": 0}, "top must be None or an integer of at least 1; got 0."),
        ({"batch_rows": "many"}, "batch_rows must be 'auto' or an integer of at least 1; got 'many'."),
        ({"workers": 1.5}, "workers must be 'auto' or an integer of at least 1; got 1.5."),
        ({"id_columns": "a", "output": "summary"}, "id_columns and top apply only to rows; output="),
        ({"top": 2, "output": "summary"}, "id_columns and top apply only to rows; output="),
        (
            {"columns": ["a", "b"]},
            "columns must be the 4 columns that the model was fitted on; got 2: ['a', 'b']. Pass ",
        ),
        ({"target": 9}, "target must be one of the model's 3 clusters, 0, 1, 2; got 9."),
        (
            {"target": [0, 1]},
            "target must be one cluster for all rows; got shape (2,). Pass one cluster at a time.",
        ),
        ({"target": 1, "against": 1}, "against must differ from target; both are 1."),
        ({"beta": -1}, 'beta must be "auto" or a number above 0'),
        ({"rule": "x"}, "rule must be one of"),
        ({"id_columns": ["key", "key"]}, "id_columns must be a list of distinct column names; got"),
        ({"id_columns": None}, "id_columns must be a list of distinct column names; got None."),
        ({"columns": 5}, "columns must be a list of distinct column names; got 5."),
        ({"target": 1, "output": "both"}, "for a summary, rows must be explained for their own clusters"),
        ({"invalid": "drop"}, "invalid must be one of 'error', 'skip'; got 'drop'."),
        (
            {"id_columns": ["name"]},
            "no part can be explained. 'part-0.parquet': it must have exactly one column named 'name'",
        ),
    ],
    ids=str,
)
def test_invalid_options(options: dict[str, Any], message: str, tmp_path: Path) -> None:
    folder = write(tmp_path / "in", sizes=[10])
    assert error_message(MODEL, folder, tmp_path / "out", **options).startswith(f"explain_dataset: {message}")
    assert not (tmp_path / "out").exists()


def test_data_that_do_not_exist(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "x.json").write_text("{}")
    out = tmp_path / "out"
    assert error_message(MODEL, tmp_path / "gone", out) == (
        f"explain_dataset: data must name existing files; found none at {str(tmp_path / 'gone')!r}."
    )
    assert error_message(MODEL, tmp_path / "empty", out).startswith(
        "explain_dataset: data must contain files of type .parq"
    )
    assert error_message(MODEL, str(tmp_path / "*.parquet"), out).startswith(
        "explain_dataset: data must contain files of type "
    )
    assert error_message(MODEL, tmp_path / "x.json", out).startswith(
        "explain_dataset: every file in data must be of type .parq"
    )
    assert error_message(MODEL, frame(), out) == (
        "explain_dataset: data must be a file, a folder, a pattern such as 'in/*.parquet', a list of these, "
        "or a pyarrow Dataset; got DataFrame."
    )


def test_labels_need_a_surrogate(tmp_path: Path) -> None:
    folder = write(tmp_path / "in")
    with pytest.raises(wc.UnsupportedModelError) as caught:
        wc.explain_dataset(WHOLE.cluster, folder, tmp_path / "out")
    assert str(caught.value) == (
        "explain_dataset: model must be able to assign new rows; labels only say which cluster each row is "
        "in. Fit a surrogate to some rows, and pass the surrogate: wc.Surrogate().fit(X, labels)."
    )
    surrogate = wc.Surrogate().fit(frame()[NAMES], WHOLE.cluster)
    check_whole(
        read(wc.explain_dataset(surrogate, folder, tmp_path / "out")), wc.explain(surrogate, frame()[NAMES])
    )


def test_the_model_and_the_data_are_not_changed(tmp_path: Path) -> None:
    folder = write(tmp_path / "in")
    before = {path: (path.read_bytes(), os.stat(path).st_mtime_ns) for path in folder.iterdir()}
    centers = MODEL.cluster_centers_.copy()
    wc.explain_dataset(MODEL, folder, tmp_path / "out", output="both")
    assert {path: (path.read_bytes(), os.stat(path).st_mtime_ns) for path in folder.iterdir()} == before
    np.testing.assert_array_equal(MODEL.cluster_centers_, centers)
