"""The types of columns in files: those that the model was fitted on, or else those of most files."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyarrow", reason="pyarrow is not installed")


import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.parquet as pq
from sklearn.cluster import KMeans
from sklearn.compose import make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    OneHotEncoder,
    OrdinalEncoder,
    StandardScaler,
    TargetEncoder,
)

import whycluster as wc
from tests.optional import optional

if TYPE_CHECKING:
    import polars as pl
    from kmodes.kmodes import KModes
else:
    pl = optional("polars")
    KModes = optional("kmodes.kmodes:KModes")

RNG = np.random.default_rng(0)
TABLE = pd.DataFrame(
    {
        "code": RNG.choice(["A1", "7", "8"], 300),
        "zip": RNG.choice(["01234", "04567", "10000"], 300),
        "size": RNG.normal(size=300),
    }
)
TABLE["group"] = np.where(TABLE["zip"] == "01234", "x", "y")
NUMBERS = KMeans(2, n_init=1, random_state=0).fit(
    RNG.normal(size=(50, 2)) + 4 * RNG.integers(2, size=(50, 1))
)


def parts(table: pd.DataFrame) -> list[pd.DataFrame]:
    """Return three parts; in the last one, all codes look like numbers."""
    last = table[200:]
    return [table[:100], table[100:200], last[last["code"] != "A1"] if "code" in last else last]


def write(folder: Path, tables: list[pd.DataFrame]) -> Path:
    folder.mkdir()
    for i, table in enumerate(tables):
        table.to_csv(folder / f"{i}.csv", index=False)
    return folder


def check_same(model: Any, folder: Path, tables: list[pd.DataFrame], out: Path, **options: Any) -> None:
    """Check that files are explained like the tables that they were written from."""
    found = wc.explain_dataset(model, folder, out, **options)
    for path, table in zip(found.parts, tables, strict=True):
        results, whole = pq.read_table(path), wc.explain(model, table, beta=found.beta or 1.0)
        assert results["cluster"].to_pylist() == whole.cluster.tolist()
        np.testing.assert_allclose(results["evidence"].to_numpy(), whole.evidence, rtol=1e-9, atol=1e-12)


def behind(encoder: Any, column: str) -> Any:
    filled = make_pipeline(SimpleImputer(strategy="most_frequent"), encoder)
    steps = make_column_transformer((filled, [column]), (StandardScaler(), ["size"]))
    model = make_pipeline(steps, KMeans(3, n_init=3, random_state=0))
    return model.fit(TABLE[[column, "size"]], TABLE["size"])


MODELS = {
    "one-hot": lambda column: behind(OneHotEncoder(sparse_output=False), column),
    "ordinal": lambda column: behind(OrdinalEncoder(), column),
    "target": lambda column: behind(TargetEncoder(target_type="continuous"), column),
    "tabular": lambda column: wc.tabular.pipeline(TABLE[[column, "size"]], n_clusters=3),
}


@pytest.mark.parametrize("column", ["code", "zip"])
@pytest.mark.parametrize("kind", MODELS)
def test_text_that_looks_like_numbers_stays_text_if_a_step_was_fitted_on_text(
    kind: str, column: str, tmp_path: Path
) -> None:
    model, tables = MODELS[kind](column), [table[[column, "size"]] for table in parts(TABLE)]
    check_same(model, write(tmp_path / "in", tables), tables, tmp_path / "out")


@pytest.mark.parametrize("column", ["code", "zip"])
def test_text_that_looks_like_numbers_stays_text_if_the_model_was_fitted_on_text(
    column: str, tmp_path: Path
) -> None:
    columns = [column, "group"]
    model = KModes(2, n_init=2, random_state=0).fit(TABLE[columns])
    tables = [table[columns] for table in parts(TABLE)]
    check_same(model, write(tmp_path / "in", tables), tables, tmp_path / "out", columns=columns)


def test_numbers_if_the_model_was_fitted_on_text(tmp_path: Path) -> None:
    model = KModes(2, n_init=2, random_state=0).fit(TABLE[["zip", "group"]])
    (tmp_path / "in").mkdir()
    for i in range(3):
        part = TABLE[["zip", "group"]][100 * i : 100 * (i + 1)]
        part = part.assign(zip=part["zip"].astype(int)) if i == 1 else part
        part.to_parquet(tmp_path / "in" / f"{i}.parquet")
    with pytest.raises(wc.InvalidInputError) as caught:
        wc.explain_dataset(model, tmp_path / "in", tmp_path / "out", columns=["zip", "group"])
    assert str(caught.value) == (
        "explain_dataset: 1 of 3 parts could not be explained; the others are done. '1.parquet': column "
        "'zip' must hold text, because the model was fitted on text; it has type int64."
    )


def test_numeric_categories_stay_numbers(tmp_path: Path) -> None:
    table = pd.DataFrame({"floor": RNG.choice([1, 2, 3], 300), "size": RNG.normal(size=300)})
    steps = make_column_transformer((OneHotEncoder(), ["floor"]), (StandardScaler(), ["size"]))
    model = make_pipeline(steps, KMeans(3, n_init=3, random_state=0)).fit(table)
    tables = parts(table)
    check_same(model, write(tmp_path / "in", tables), tables, tmp_path / "out")


def test_booleans_that_a_step_converts_to_text(tmp_path: Path) -> None:
    table = pd.DataFrame({"paid": RNG.choice([True, False], 300), "size": RNG.normal(size=300)})
    model = wc.tabular.pipeline(table, n_clusters=3)
    tables = parts(table)
    check_same(model, write(tmp_path / "in", tables), tables, tmp_path / "out")


def test_empty_text_is_missing_except_in_identifiers(tmp_path: Path) -> None:
    table = pd.DataFrame(
        {
            "name": RNG.choice(["NA", "", "001"], 300),
            "color": RNG.choice(np.array(["red", "blue", None], object), 300),
            "size": RNG.normal(size=300),
        }
    )
    table["side"] = np.where(table["size"] > 0, "left", "right")
    folder = write(tmp_path / "in", [table])
    read = pd.read_csv(folder / "0.csv", dtype={"name": str}, keep_default_na=True)
    model = wc.tabular.pipeline(read[["color", "size"]], n_clusters=3)
    check_same(model, folder, [read[["color", "size"]]], tmp_path / "out", id_columns=["name"])
    assert pq.read_table(tmp_path / "out" / "0.csv.parquet")["name"].to_pylist() == table["name"].tolist()
    modes = KModes(2, n_init=2, random_state=0).fit(table[["color", "side"]].dropna())
    options: dict[str, Any] = {"columns": ["color", "side"]}
    row = int(np.argmax(table["color"].isna()))
    with pytest.raises(
        wc.InvalidInputError, match=f"part '0.csv': data must have no missing values; row {row}, "
    ):
        wc.explain_dataset(modes, folder, tmp_path / "strict", **options)
    found = wc.explain_dataset(modes, folder, tmp_path / "skipped", invalid="skip", **options)
    assert found.n_invalid == table["color"].isna().sum()


def test_a_dataset_with_a_schema(tmp_path: Path) -> None:
    n = 60_000  # more rows than types are inferred from
    rows = pd.DataFrame({"id": [f"{i:07d}" for i in range(n)], "u": 1, "v": np.arange(n) % 5}, dtype=object)
    rows.loc[n - 1, "u"] = 2.5
    rows.to_csv(tmp_path / "rows.csv", sep=";", index=False)
    schema = pa.schema({"id": pa.string(), "u": pa.float64(), "v": pa.float64()})
    how = pads.CsvFileFormat(pa.csv.ParseOptions(delimiter=";"))
    data = pads.dataset(tmp_path / "rows.csv", schema=schema, format=how)
    found = wc.explain_dataset(NUMBERS, data, tmp_path / "out", columns=["u", "v"], id_columns=["id"])
    results = pq.read_table(found.parts[0])
    assert results["id"].to_pylist() == rows["id"].tolist()
    last = wc.explain(NUMBERS, rows[["u", "v"]].tail(1).astype(float).to_numpy(), beta=found.beta or 1.0)
    np.testing.assert_allclose(results["evidence"][-1].as_py(), last.evidence[0])


def test_suffixes_in_capitals(tmp_path: Path) -> None:
    rows = pd.DataFrame(RNG.normal(size=(200, 2)), columns=["u", "v"])
    (tmp_path / "in").mkdir()
    with gzip.open(tmp_path / "in" / "A.CSV.GZ", "wt") as file:
        rows.to_csv(file, index=False)
    found = wc.explain_dataset(NUMBERS, tmp_path / "in", tmp_path / "out")
    assert pq.read_table(found.parts[0])["cluster"].to_pylist() == NUMBERS.predict(rows.to_numpy()).tolist()


def test_an_extra_column_in_the_first_part(tmp_path: Path) -> None:
    rows = pd.DataFrame(RNG.normal(size=(30, 2)), columns=["u", "v"])
    (tmp_path / "in").mkdir()
    for i in range(3):
        (rows.assign(w=1.0) if i == 0 else rows).to_parquet(tmp_path / "in" / f"{i}.parquet")
    found = wc.explain_dataset(NUMBERS, tmp_path / "in", tmp_path / "out")
    assert found.n_rows == 90
    assert pq.read_table(found.parts[0]).equals(pq.read_table(found.parts[2]))


@pytest.mark.parametrize("columns", [None, ["v", "u"]])
def test_names_that_are_not_text_are_ignored(columns: list[str] | None, tmp_path: Path) -> None:
    rows = pd.DataFrame(RNG.normal([0, 3], size=(30, 2)), columns=["u", "v"])
    rows.to_parquet(tmp_path / "rows.parquet")
    centers = wc.neuralize(pd.DataFrame([[0.0, 1], [2, 3]]))
    assert centers.feature_names == [0, 1]
    found = wc.explain_dataset(centers, tmp_path / "rows.parquet", tmp_path / "out", columns=columns)
    taken = rows[columns or ["u", "v"]].to_numpy()
    assert pq.read_table(found.parts[0])["cluster"].to_pylist() == centers.assign(taken).tolist()
    assert centers.feature_names == [0, 1]


def test_columns_from_folder_names_occur_once(tmp_path: Path) -> None:
    rows = pd.DataFrame(RNG.normal(size=(60, 2)), columns=["u", "v"]).assign(
        day=np.arange(60) % 2, key=range(60)
    )
    rows.to_parquet(tmp_path / "in", partition_cols=["day"])
    data = pads.dataset(tmp_path / "in", partitioning="hive")
    options: dict[str, Any] = {"columns": ["u", "v"], "id_columns": ["day", "key"]}
    wc.explain_dataset(NUMBERS, data, tmp_path / "out", **options)
    by_polars = pl.read_parquet(f"{tmp_path}/out/**/*.parquet", hive_partitioning=True).to_pandas()
    for results in (
        pd.read_parquet(tmp_path / "out"),
        pq.read_table(tmp_path / "out").to_pandas(),
        by_polars,
    ):
        found = results.sort_values("key")
        assert found["day"].astype(int).tolist() == rows["day"].tolist()
        assert found["cluster"].tolist() == NUMBERS.predict(rows[["u", "v"]].to_numpy()).tolist()


@pytest.mark.parametrize(
    "values",
    [
        ["2020-01-01", "2020-01-02", "2021-05-05"],
        ["12:30", "12:31", "01:00"],
        ["2020-01-01 10:00", "2020-01-01 11:00", "2020-01-02 10:00"],
        ["true", "false"],
        ["True", "False"],
        ["1.0", "2.0"],
        ["1e3", "0x10", "7"],
    ],
    ids=str,
)
@pytest.mark.parametrize("kind", ["one-hot", "tabular", "modes"])
def test_text_stays_text_whatever_it_looks_like(kind: str, values: list[str], tmp_path: Path) -> None:
    size = RNG.normal(size=300)
    table = pd.DataFrame({"what": RNG.choice(values, 300), "size": size}).assign(
        side=np.where(size > 0, "left", "right")
    )
    columns = ["what", "side"] if kind == "modes" else ["what", "size"]
    steps = make_column_transformer((OneHotEncoder(), ["what"]), (StandardScaler(), ["size"]))
    models: dict[str, Any] = {
        "one-hot": lambda rows: make_pipeline(steps, KMeans(3, n_init=2, random_state=0)).fit(rows),
        "tabular": lambda rows: wc.tabular.pipeline(rows, n_clusters=3, keep=["what"]),
        "modes": lambda rows: KModes(2, n_init=2, random_state=0).fit(rows),
    }
    tables = parts(table[columns])
    model, folder = models[kind](table[columns]), write(tmp_path / "in", tables)
    check_same(model, folder, tables, tmp_path / "out", **({"columns": columns} if kind == "modes" else {}))


def test_numbers_that_a_step_converts_to_text_stay_numbers(tmp_path: Path) -> None:
    @wc.elementwise
    def bins(x: Any) -> Any:
        return np.where(np.asarray(x) > 0, "more", "less")

    size = RNG.normal(size=300)
    table = pd.DataFrame({"a": size, "floor": np.array([1.0, 2.0, 3.0, 2.5])[RNG.integers(4, size=300)]})
    binned = make_pipeline(FunctionTransformer(bins), OneHotEncoder(sparse_output=False))
    steps = make_column_transformer((binned, ["a"]), (StandardScaler(), ["floor"]))
    tables = parts(table)
    folder = write(tmp_path / "in", tables)
    model = make_pipeline(steps, KMeans(3, n_init=2, random_state=0)).fit(table)
    check_same(model, folder, tables, tmp_path / "binned")
    as_categories = table.assign(floor=table["floor"].astype(object))
    model = wc.tabular.pipeline(as_categories.assign(floor=as_categories["floor"].map(str)), n_clusters=3)
    check_same(model, folder, [t.assign(floor=t["floor"].map(str)) for t in tables], tmp_path / "spelled")
    model = wc.tabular.pipeline(table.assign(floor=pd.Categorical(table["floor"])), n_clusters=3)
    check_same(model, folder, tables, tmp_path / "categories")


def test_words_for_missing_values_are_those_of_pandas(tmp_path: Path) -> None:
    words = ["", "NA", "None", "<NA>", "nan", "NULL", "n/a"]
    table = pd.DataFrame({"what": RNG.choice(["a", "b", *words], 300), "size": RNG.normal(size=300)})
    table["size"] = table["size"].astype(object)
    table.loc[:20, "size"] = "None"
    folder = write(tmp_path / "in", [table])
    read = pd.read_csv(folder / "0.csv")
    assert read["what"].dropna().isin(["a", "b"]).all()
    model = wc.tabular.pipeline(read, n_clusters=3)
    check_same(model, folder, [read], tmp_path / "out")


def test_a_column_that_is_empty_for_a_megabyte(tmp_path: Path) -> None:
    n = 80_000
    table = pd.DataFrame({"what": [""] * (n - 500) + ["a"] * 500, "size": RNG.normal(size=n)})
    folder = write(tmp_path / "in", [table])
    assert (folder / "0.csv").stat().st_size > 1 << 20
    read = pd.read_csv(folder / "0.csv", low_memory=False)
    check_same(wc.tabular.pipeline(read, n_clusters=3), folder, [read], tmp_path / "out")


def test_each_file_can_have_its_own_timestamp_format(tmp_path: Path) -> None:
    stamps = pd.Timestamp("2020-01-01") + pd.to_timedelta(RNG.integers(1000, size=300), "D")
    table = pd.DataFrame({"when": stamps, "size": RNG.normal(size=300)})
    model, tables = wc.tabular.pipeline(table, n_clusters=3), parts(table)
    formats = ["%Y-%m-%d", "%Y-%m-%d %H:%M:%S", "%Y-%m-%d %H:%M:%S.%f"]
    written = [
        t.assign(when=t["when"].dt.strftime(format_)) for t, format_ in zip(tables, formats, strict=True)
    ]
    check_same(model, write(tmp_path / "in", written), tables, tmp_path / "out")


def test_line_breaks_inside_quotes(tmp_path: Path) -> None:
    rows = pd.DataFrame(RNG.normal(size=(60_000, 2)), columns=["u", "v"])
    rows["note"] = ["x" * (i % 50) + "\ny" for i in range(60_000)]
    folder = write(tmp_path / "in", [rows])
    found = wc.explain_dataset(NUMBERS, folder, tmp_path / "out", columns=["u", "v"], id_columns=["note"])
    results = pq.read_table(found.parts[0])
    assert results["note"].to_pylist() == rows["note"].tolist()
    assert results["cluster"].to_pylist() == NUMBERS.predict(rows[["u", "v"]].to_numpy()).tolist()


@pytest.mark.parametrize("given", ["path", "dataset"])
def test_relevance_of_a_column_from_folder_names(given: str, tmp_path: Path) -> None:
    rows = pd.DataFrame({"u": RNG.normal(size=60), "year": np.repeat([2020, 2021, 2022], 20)})
    model = make_pipeline(StandardScaler(), KMeans(2, n_init=2, random_state=0)).fit(rows)
    for year, part in rows.groupby("year"):
        (tmp_path / "in" / f"year={year}").mkdir(parents=True)
        part[["u", "year"] if given == "path" else ["u"]].to_parquet(
            tmp_path / "in" / f"year={year}" / "a.parquet"
        )
    data: Any = str(tmp_path / "in")
    if given == "dataset":
        with pytest.raises(
            wc.InvalidInputError, match=r"from the folder names, pass pyarrow.dataset.dataset"
        ):
            wc.explain_dataset(model, data, tmp_path / "none")
        data = pads.dataset(data, partitioning="hive")
    wc.explain_dataset(model, data, tmp_path / "out")
    whole = wc.explain(model, rows)
    for results in (pd.read_parquet(tmp_path / "out"), pq.read_table(tmp_path / "out").to_pandas()):
        np.testing.assert_allclose(results["year_"], whole.relevance[:, 1], rtol=1e-6)
        assert results["year"].astype(int).tolist() == rows["year"].tolist()


@pytest.mark.parametrize("query", [{"beta": 0.1, "rule": "joint"}, {"background": [[0.0, 1.0], [3.0, 4.0]]}])
def test_a_dataset_that_gets_a_second_folder(query: dict[str, Any], tmp_path: Path) -> None:
    rows = pd.DataFrame(RNG.normal(size=(30, 2)), columns=["u", "v"])
    for n_done, year in enumerate((2020, 2021)):
        (tmp_path / "in" / f"year={year}").mkdir(parents=True)
        rows.to_parquet(tmp_path / "in" / f"year={year}" / "a.parquet")
        data = pads.dataset(tmp_path / "in", partitioning="hive")
        found = wc.explain_dataset(NUMBERS, data, tmp_path / "out", columns=["u", "v"], **query)
        assert (found.n_done_before, found.n_rows) == (n_done, 30 * (n_done + 1))


def test_a_result_file_with_the_name_of_a_folder(tmp_path: Path) -> None:
    rows = pd.DataFrame(RNG.normal(size=(30, 2)), columns=["u", "v"])
    folder = write(tmp_path / "in", [rows])
    (folder / "0.csv.parquet").mkdir()
    rows.to_parquet(folder / "0.csv.parquet" / "part-0.parquet")
    with pytest.raises(wc.InvalidInputError) as caught:
        wc.explain_dataset(NUMBERS, folder, tmp_path / "out")
    assert str(caught.value) == (
        "explain_dataset: each part must have its own result file; the result of '0.csv' would be the file "
        "'0.csv.parquet', but the result of '0.csv.parquet/part-0.parquet' needs a folder of that name. "
        "Rename one of them."
    )
