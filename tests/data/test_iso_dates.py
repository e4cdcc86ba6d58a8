"""Dates in text: read as dates if every value is an ISO date, in files, folders and Python alike."""

from __future__ import annotations

import datetime as dt
import json
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import whycluster as wc
from tests.optional import optional
from whycluster.data.column_kinds import ColumnKind, kind_of_text
from whycluster.data.iso_dates import parse_date

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa

    from whycluster.cli.commands import run
else:
    pd, pl, pa = optional("pandas"), optional("polars"), optional("pyarrow")
    run = optional("whycluster.cli.commands:run", requires="click")

UTC = dt.timezone.utc


def table(n: int = 90) -> Any:
    """Return numbers, and dates that decide the clusters."""
    rng = np.random.default_rng(0)
    group = rng.integers(0, 3, n)
    since = pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 90, n) + 600 * group, "D")
    return pd.DataFrame({"since": since, "spent": np.round(rng.normal(size=n), 2)})


def as_strings(frame: Any, pattern: str = "%Y-%m-%d") -> Any:
    return frame.assign(since=frame["since"].dt.strftime(pattern))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2024-03-01", dt.date(2024, 3, 1)),
        ("2024-03-01 12:30", dt.datetime(2024, 3, 1, 12, 30)),
        ("2024-03-01T12:30:05.25", dt.datetime(2024, 3, 1, 12, 30, 5, 250_000)),
        ("2024-03-01T12:30:05.123456789", dt.datetime(2024, 3, 1, 12, 30, 5, 123_456)),
        ("2024-03-01T12:30Z", dt.datetime(2024, 3, 1, 12, 30, tzinfo=UTC)),
        ("2024-03-01 01:30+02:00", dt.datetime(2024, 2, 29, 23, 30, tzinfo=UTC)),
        ("2024-03-01 01:30-0530", dt.datetime(2024, 3, 1, 7, 0, tzinfo=UTC)),
        ("2023-02-29", None),
        ("0000-01-01", None),
        ("03/04/2024", None),
        ("2024-3-1", None),
        ("20240301", None),
        ("2024-03-01 ", None),
        ("2024-03-01 25:00", None),
        ("٢٠٢٤-03-01", None),
    ],
)
def test_single_dates(text: str, expected: Any) -> None:
    assert parse_date(text) == expected


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["2024-03-01", None, "2024-03-02"], ColumnKind.DATE),
        (["2024-03-01", "2024-03-02 12:30"], ColumnKind.DATE),
        (["2024-03-01T10:00Z", "2024-03-02T12:30+01:00"], ColumnKind.DATE),
        (["2024-03-01T10:00Z", "2024-03-02T12:30"], ColumnKind.TEXT),
        (["2024-03-01", "unknown"], ColumnKind.TEXT),
        (["2024-03-01", ""], ColumnKind.TEXT),
        (["03/04/2024"], ColumnKind.TEXT),
        ([None, None], ColumnKind.TEXT),
        ([], ColumnKind.TEXT),
    ],
)
def test_every_value_must_be_a_date(values: list[Any], kind: ColumnKind) -> None:
    assert kind_of_text(values) is kind


@pytest.mark.parametrize("pattern", ["%Y-%m-%d", "%Y-%m-%d %H:%M", "%Y-%m-%dT%H:%M:%SZ"])
@pytest.mark.parametrize("library", ["pandas", "object", "polars", "pyarrow"])
def test_text_is_clustered_and_explained_like_dates(library: str, pattern: str) -> None:
    dates = table()
    text = as_strings(dates, pattern)
    native = {
        "pandas": text,
        "object": text.astype({"since": object}),
        "polars": pl.from_pandas(text),
        "pyarrow": pa.Table.from_pandas(text, preserve_index=False),
    }[library]
    expected, pipe = wc.tabular.pipeline(dates, 3), wc.tabular.pipeline(native, 3)
    readable = text if library == "pyarrow" else native
    assert (pipe.predict(readable) == expected.predict(dates)).all()
    exp, like = wc.explain(pipe, native), wc.explain(expected, dates)
    np.testing.assert_allclose(exp.relevance, like.relevance, atol=1e-9)
    found, as_dates = exp.counterfactual(0), like.counterfactual(0)
    assert found.to == as_dates.to
    assert found.distance == pytest.approx(as_dates.distance)
    assert pd.Timestamp(found.single[0]).tz_localize(None) == pd.Timestamp(as_dates.single[0])
    if pattern == "%Y-%m-%d":
        assert str(found) == str(as_dates)
        assert str(exp.summary()) == str(like.summary())


def test_dates_may_be_missing_and_the_data_stay_as_they_are() -> None:
    text = as_strings(table())
    text.loc[3, "since"] = None
    before = text.copy()
    exp = wc.explain(wc.tabular.pipeline(text, 3), text)
    assert exp.cluster.shape == (90,)
    pd.testing.assert_frame_equal(text, before)
    assert "since (missing)" in str(exp.counterfactual(3))


def test_new_rows_must_hold_dates_too() -> None:
    text = as_strings(table())
    pipe = wc.tabular.pipeline(text, 3)
    text.loc[4, "since"] = "unknown"
    message = (
        "as_days: column 'since' must hold dates, durations or times of day; row 4 holds 'unknown'. The "
        "column held dates, durations or times of day when the pipeline was fitted."
    )
    with pytest.raises(wc.InvalidInputError) as error:
        pipe.predict(text)
    assert str(error.value) == message
    with pytest.raises(wc.InvalidInputError) as error:
        wc.explain(pipe, text)
    assert message in str(error.value)


def test_labels_are_explained_with_dates() -> None:
    dates = table()
    labels = (dates["since"] > "2021-06-01").astype(int).to_numpy()
    text = wc.explain(labels, as_strings(dates))
    np.testing.assert_allclose(text.relevance, wc.explain(labels, dates).relevance, atol=1e-9)


@pytest.mark.parametrize("pattern", ["%d/%m/%Y", "%d.%m.%y"])
def test_ambiguous_dates_stay_text_with_a_warning(pattern: str) -> None:
    dates = table()
    dates["since"] = dates["since"].dt.to_period("M").dt.to_timestamp()
    with pytest.warns(wc.ColumnWarning) as caught:
        wc.tabular.pipeline(as_strings(dates, pattern), 3)
    assert [str(each.message) for each in caught] == [
        "pipeline: 'since' holds dates as text that are not all written as 2024-03-01, so each distinct "
        "value is treated as a category. Convert it first, for example with pandas.to_datetime."
    ]


def test_iso_dates_need_no_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        wc.tabular.pipeline(as_strings(table()), 3)


@pytest.mark.parametrize("kind", ["csv", "parquet", "jsonl"])
def test_files_folders_and_python_agree(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dates = table()
    text = as_strings(dates)
    folder = tmp_path / "folder"
    folder.mkdir()
    frame = pl.from_pandas(text)
    write = {"csv": frame.write_csv, "parquet": frame.write_parquet, "jsonl": frame.write_ndjson}[kind]
    write(tmp_path / f"table.{kind}")
    expected = wc.explain(wc.tabular.pipeline(dates, 3), dates)
    out = tmp_path / "out.parquet"
    assert run(["explain", str(tmp_path / f"table.{kind}"), "--k", "3", "--out", str(out)]) == 0
    assert "read as dates: 'since'" in capsys.readouterr().err
    found = pl.read_parquet(out)
    assert found["cluster"].to_list() == expected.cluster.tolist()
    np.testing.assert_allclose(found["since"].to_numpy(), expected.relevance[:, 0], atol=1e-9)
    if kind == "jsonl":  # folders hold Parquet or CSV files
        return
    write(folder / f"a.{kind}")
    results = tmp_path / "results"
    assert run(["explain", str(folder), "--k", "3", "--out", str(results), "--json"]) == 0
    captured = capsys.readouterr()
    assert "read as dates: 'since'" in captured.err
    assert json.loads(captured.out)
    (part,) = [path for path in results.iterdir() if path.suffix == ".parquet" and path.name[0] != "_"]
    found = pl.read_parquet(part)
    assert found["cluster"].to_list() == expected.cluster.tolist()
    np.testing.assert_allclose(found["since"].to_numpy(), expected.relevance[:, 0], rtol=1e-5, atol=1e-6)
