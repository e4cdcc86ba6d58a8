"""`ExplainRequest`: a table explained part by part, compared with the whole table."""

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.cluster import KMeans
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_wine
from sklearn.impute import SimpleImputer
from sklearn.mixture import GaussianMixture
from sklearn.neighbors import NearestCentroid
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import whycluster as wc
from tests.optional import load_frame, optional
from whycluster.engines.request import ExplainRequest
from whycluster.engines.results import PartResult

pytest.importorskip("pandas", reason="pandas is not installed")

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
else:
    pd = optional("pandas")
    pa = optional("pyarrow")

ROWS = load_wine().data
FRAME = load_frame("wine").data
CUTS = [(0, 1), (1, 60), (60, 60), (60, 178)]
MODELS: dict[str, Any] = {
    "k-means": KMeans(3, n_init=2, random_state=0).fit(ROWS),
    "mixture": GaussianMixture(3, random_state=0).fit(ROWS),
    "pipeline": make_pipeline(StandardScaler(), KMeans(3, n_init=2, random_state=0)).fit(ROWS),
    "names": KMeans(3, n_init=2, random_state=0).fit(FRAME),
    "surrogate": wc.Surrogate().fit(ROWS, load_wine().target_names[load_wine().target]),
    "labels": NearestCentroid().fit(ROWS, load_wine().target_names[load_wine().target]),
    "kernel": make_pipeline(
        SimpleImputer(), StandardScaler(), wc.KernelKMeans(3, gamma=0.05, random_state=0)
    ).fit(ROWS),
}


def by_parts(request: ExplainRequest, rows: Any, cuts: Any = CUTS) -> list[PartResult]:
    parts = [rows[start:stop] for start, stop in cuts]
    if request.needs_population:
        found = [request.measure(part) for part in parts]
        request = request.with_population(sum(found[1:], found[0]))
    return [request.explain(part) for part in parts]


def joined(results: list[PartResult], what: str) -> Any:
    return np.concatenate([getattr(result, what) for result in results])


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"rule": "min-take-most"},
        {"rule": "joint"},
        {"rule": "sequential"},
        {"rule": "contrast"},
        {"beta": 0.5},
        {"target": 1},
        {"against": 0},
    ],
    ids=str,
)
def test_parts_are_explained_like_the_whole_table(name: str, options: dict[str, Any]) -> None:
    model, rows = MODELS[name], FRAME if name == "names" else ROWS
    labels = wc.neuralize(model).labels
    for key in ("target", "against"):
        options = {**options, **({key: labels[options[key]]} if key in options else {})}
    if name == "surrogate" and options.get("rule") == "sequential":
        options = {**options, "beta": 2.0}
    whole = wc.explain(model, rows, **options)
    results = by_parts(ExplainRequest.of(model, "explain", wc.Query(**options)), rows)
    np.testing.assert_array_equal(labels[joined(results, "cluster")], whole.cluster)
    np.testing.assert_array_equal(labels[joined(results, "competitor")], whole.competitor)
    np.testing.assert_allclose(joined(results, "evidence"), whole.evidence, rtol=1e-10, atol=1e-9)
    scale = np.abs(whole.relevance).max()
    np.testing.assert_allclose(joined(results, "relevance"), whole.relevance, rtol=1e-9, atol=1e-11 * scale)
    assert not sum(result.n_invalid for result in results)


def test_beta_is_measured_on_all_rows_or_on_the_background() -> None:
    model = MODELS["k-means"]
    request = ExplainRequest.of(model, "explain", wc.Query())
    assert request.beta is None
    known = request.with_population(request.measure(ROWS[:100]) + request.measure(ROWS[100:]))
    assert known.beta == pytest.approx(wc.explain(model, ROWS).beta, rel=1e-14)
    assert not known.needs_population
    given = ExplainRequest.of(model, "explain", wc.Query()).measure_background(ROWS[:50])
    assert not given.needs_population
    assert given.beta == wc.explain(model, ROWS[50:], background=ROWS[:50]).beta
    assert not ExplainRequest.of(model, "explain", wc.Query(against=0)).needs_population


@pytest.mark.parametrize(
    ("name", "query", "beta", "to_measure"),
    [
        ("k-means", {}, None, ["beta", "the cluster sizes"]),
        ("k-means", {"beta": 0.5}, 0.5, ["the cluster sizes"]),
        ("k-means", {"rule": "sequential", "beta": 0.5}, 0.5, ["the cluster sizes"]),
        ("k-means", {"rule": "min-take-most"}, None, ["beta"]),
        ("k-means", {"rule": "min-take-most", "beta": 0.5}, 0.5, []),
        ("k-means", {"rule": "joint", "beta": 0.5}, 0.5, []),
        ("k-means", {"rule": "contrast"}, None, []),
        ("mixture", {}, 1.0, []),
        ("mixture", {"beta": 0.5}, 0.5, []),
        ("mixture", {"rule": "min-take-most"}, None, ["beta"]),
        ("kernel", {}, 0.05, ["the cluster sizes"]),
        ("kernel", {"rule": "joint"}, None, ["beta"]),
    ],
    ids=str,
)
def test_only_unknown_quantities_are_measured(
    name: str, query: dict[str, Any], beta: float | None, to_measure: list[str]
) -> None:
    request = ExplainRequest.of(MODELS[name], "explain", wc.Query(**query))
    assert (request.beta, request.to_measure) == (beta, to_measure)
    assert request.needs_population == bool(to_measure)
    assert request.only_needs_beta == (to_measure == ["beta"])
    part = ROWS[:40]
    if not to_measure:  # a part is explained like the whole table
        whole = wc.explain(MODELS[name], ROWS, **query)
        assert request.beta == whole.beta
        np.testing.assert_allclose(request.explain(part).relevance, whole.relevance[:40], rtol=1e-9)


def test_a_part_of_the_competitor_itself_has_no_evidence() -> None:
    model = MODELS["k-means"]
    request = ExplainRequest.of(model, "explain", wc.Query(against=0))
    result = request.explain(ROWS[model.labels_ == 0])
    assert not result.evidence.any()
    assert not result.relevance.any()


@pytest.mark.parametrize("kind", ["array", "float32", "frame", "arrow", "batch", "sparse"])
def test_parts_in_any_container(kind: str) -> None:
    rows: Any = ROWS.astype(np.float32) if kind == "float32" else ROWS.copy()
    table = pa.table({name: FRAME[name].to_numpy() for name in FRAME})
    part = {"frame": FRAME, "arrow": table, "batch": table.to_batches()[0], "sparse": sp.csr_array(rows)}.get(
        kind, rows
    )
    request = ExplainRequest.of(MODELS["k-means"], "explain", wc.Query(beta=0.01))
    result = request.explain(part)
    assert result.relevance.dtype == (np.float32 if kind == "float32" else np.float64)
    np.testing.assert_allclose(
        result.relevance, wc.explain(MODELS["k-means"], ROWS, beta=0.01).relevance, rtol=1e-4, atol=1e-2
    )


def with_gaps(rows: Any) -> Any:
    rows = rows.copy()
    rows[3, 2], rows[70, 0], rows[71, 1] = np.nan, np.inf, -np.inf
    return rows


@pytest.mark.parametrize("name", ["k-means", "pipeline", "mixture"])
def test_rows_that_are_not_finite_are_errors_or_skipped(name: str) -> None:
    model, rows = MODELS[name], with_gaps(ROWS)
    with pytest.raises(wc.InvalidInputError, match=r"row 3|NaN|infin"):
        ExplainRequest.of(model, "explain", wc.Query()).measure(rows)
    skipping = ExplainRequest.of(model, "explain", wc.Query(), invalid="skip")
    results = by_parts(skipping, rows)
    valid = np.isfinite(rows).all(axis=1)
    np.testing.assert_array_equal(
        np.concatenate([np.ones(len(a.evidence), bool) if a.valid is None else a.valid for a in results]),
        valid,
    )
    assert sum(result.n_invalid for result in results) == 3
    whole = wc.explain(model, rows[valid])
    np.testing.assert_allclose(joined(results, "relevance")[valid], whole.relevance, rtol=1e-9, atol=1e-6)
    assert np.isnan(joined(results, "relevance")[~valid]).all()


def test_a_part_and_data_without_valid_rows() -> None:
    request = ExplainRequest.of(MODELS["k-means"], "explain", wc.Query(), invalid="skip")
    nothing = np.full((4, 13), np.nan)
    assert request.measure(nothing).n_rows == 0
    result = ExplainRequest.of(MODELS["k-means"], "explain", wc.Query(beta=1.0), invalid="skip").explain(
        nothing
    )
    assert result.n_invalid == 4
    assert request.arrow_format(top=2).table(result)["value_1"].null_count == 4
    with pytest.raises(wc.InvalidInputError) as caught:
        request.with_population(request.measure(nothing))
    assert str(caught.value) == "explain: there must be at least one row that can be explained; found none."


def test_skipping_does_not_hide_other_errors() -> None:
    request = ExplainRequest.of(MODELS["k-means"], "explain", wc.Query(), invalid="skip")
    with pytest.raises(wc.InvalidInputError, match="must have 13 features"):
        request.measure(ROWS[:, :5])
    with pytest.raises(wc.InvalidInputError, match="too large to be squared"):
        request.measure(np.full((3, 13), 1e307))


def mixed() -> tuple[Any, pd.DataFrame]:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "color": pd.Series(rng.choice(["red", "blue"], 60), dtype="str"),
            "size": rng.normal(size=60) + np.repeat([0.0, 5.0], 30),
        }
    )
    steps = make_column_transformer((OneHotEncoder(), ["color"]), (StandardScaler(), ["size"]))
    return make_pipeline(steps, KMeans(2, n_init=2, random_state=0)).fit(frame), frame


def test_missing_categories_and_numbers_of_a_pipeline_are_skipped() -> None:
    model, frame = mixed()
    gaps = frame.copy()
    gaps.loc[4, "color"] = None
    gaps.loc[9, "size"] = np.nan
    result = ExplainRequest.of(model, "explain", wc.Query(beta=1.0), invalid="skip").explain(gaps)
    assert result.valid is not None
    assert np.flatnonzero(~result.valid).tolist() == [4, 9]
    whole = wc.explain(model, frame, beta=1.0)
    np.testing.assert_allclose(result.relevance[result.valid], whole.relevance[result.valid], atol=1e-12)


@pytest.mark.parametrize(("name", "most"), [("k-means", 0), ("imputed", 1), ("scaled", 60)])
def test_many_missing_values_need_few_attempts(name: str, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = np.tile(ROWS, (5, 1))
    rows[np.random.default_rng(0).random(rows.shape) < 0.1] = np.nan
    steps = {"imputed": [SimpleImputer()], "scaled": [StandardScaler()], "k-means": []}[name]
    model = make_pipeline(*steps, KMeans(3, n_init=1, random_state=0)).fit(ROWS) if steps else MODELS[name]
    accepts, tried = ExplainRequest._accepts, list[int]()

    def count(self: ExplainRequest, some: Any) -> bool:
        tried.append(len(some))
        return accepts(self, some)

    monkeypatch.setattr(ExplainRequest, "_accepts", count)
    result = ExplainRequest.of(model, "explain", wc.Query(beta=1.0), invalid="skip").explain(rows)
    valid = np.ones(len(rows), bool) if result.valid is None else result.valid
    assert valid.tolist() == (~np.isnan(rows).any(axis=1) | (name == "imputed")).tolist()
    assert len(tried) <= most


@pytest.mark.parametrize("query", [{"beta": 0.5, "rule": "min-take-most"}, {"background": ROWS}], ids=list)
@pytest.mark.parametrize("size", [3, 50, 178])
def test_skipped_rows_do_not_depend_on_the_other_rows(query: dict[str, Any], size: int) -> None:
    rows = ROWS.copy()
    rows[[3, 60, 61], 2] = np.nan  # the imputer accepts these
    rows[[5, 62], 0] = np.inf
    rows[[62, 63], 2] = np.nan
    model = make_pipeline(SimpleImputer(), StandardScaler(), KMeans(3, n_init=2, random_state=0)).fit(ROWS)
    request = ExplainRequest.of(model, "explain", wc.Query(**query), invalid="skip")
    request = request.measure_background(query.get("background"))
    assert not request.needs_population
    results = [request.explain(rows[start : start + size]) for start in range(0, len(rows), size)]
    valid = np.concatenate([np.ones(len(a.evidence), bool) if a.valid is None else a.valid for a in results])
    assert np.flatnonzero(~valid).tolist() == [5, 62]
    whole = wc.explain(model, rows[valid], **query)
    np.testing.assert_allclose(joined(results, "relevance")[valid], whole.relevance, atol=1e-9)


def test_arrow_tables_with_columns_lists_and_strongest_features() -> None:
    rows = with_gaps(ROWS)
    request = ExplainRequest.of(
        MODELS["labels"], "explain", wc.Query(beta=0.01), invalid="skip", feature_names=list(FRAME)
    )
    result = request.explain(rows)
    columns = request.arrow_format(dtype=np.float32).table(result)
    assert columns.column_names == ["cluster", "evidence", "competitor", *FRAME]
    assert columns["alcohol"].type == pa.float32()
    assert [columns[name].null_count for name in ("cluster", "evidence", "proline")] == [3, 3, 3]
    assert columns["cluster"][0].as_py() == request.labels[result.cluster[0]]
    np.testing.assert_allclose(columns["proline"].to_numpy()[0], result.relevance[0, -1], rtol=1e-6)
    lists = request.arrow_format(layout="array").table(result)
    assert lists.column_names == ["cluster", "evidence", "competitor", "relevance"]
    assert lists["relevance"].null_count == 3
    assert lists["relevance"][5].as_py() == result.relevance[5].tolist()
    top = request.arrow_format(top=2).table(result)
    assert top.column_names[3:] == [
        f"{what}_{k}" for k in (1, 2) for what in ("feature", "relevance", "value")
    ]
    first = int(np.abs(result.relevance[8]).argmax())
    assert top["feature_1"][8].as_py() == list(FRAME)[first]
    assert top["relevance_1"][8].as_py() == result.relevance[8, first]
    assert top["value_1"][8].as_py() == rows[8, first]
    assert top["value_1"][3].as_py() is None


def test_values_of_categories_are_text_and_taken_names_get_underscores() -> None:
    model, frame = mixed()
    request = ExplainRequest.of(model, "explain", wc.Query(beta=1.0))
    table = request.arrow_format(top=2, taken=["cluster"]).table(request.explain(frame))
    assert table.column_names[0] == "cluster_"
    values = {table["feature_1"][i].as_py(): table["value_1"][i].as_py() for i in range(60)}
    last = max(i for i in range(60) if table["feature_1"][i].as_py() == "size")
    assert float(values["size"]) == frame["size"][last]
    assert table["value_2"].type == pa.string()


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        (np.arange(5), {}, "explain: model must be able to assign new rows; labels only say"),
        (
            MODELS["k-means"],
            {"invalid": "drop"},
            "explain: invalid must be one of 'error', 'skip'; got 'drop'.",
        ),
        (
            MODELS["k-means"],
            {"target": 9},
            "explain: target must be one of the model's 3 clusters, 0, 1, 2; got 9.",
        ),
        (
            MODELS["k-means"],
            {"target": [0, 1]},
            "explain: target must be one cluster for all rows; got shape (2,). Pass one cluster at a time.",
        ),
        (MODELS["k-means"], {"rule": "x"}, "explain: rule must be one of"),
        (MODELS["k-means"], {"beta": -1}, 'explain: beta must be "auto" or a number above 0'),
    ],
    ids=str,
)
def test_an_invalid_request_raises_before_any_row_is_read(
    model: Any, options: dict[str, Any], message: str
) -> None:
    invalid = options.pop("invalid", "error")
    with pytest.raises(wc.WhyClusterError) as caught:
        ExplainRequest.of(model, "explain", wc.Query(**options), invalid=invalid)
    assert str(caught.value).startswith(message)
