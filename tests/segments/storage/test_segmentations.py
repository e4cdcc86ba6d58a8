"""Saved segmentations: one row is explained as in its table, bit by bit, and no file can do harm."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.cluster import KMeans
from sklearn.compose import ColumnTransformer
from sklearn.datasets import load_wine
from sklearn.decomposition import PCA
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.feature_selection import SelectKBest
from sklearn.neighbors import NearestCentroid
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

import whycluster as wc
from tests.contracts.pipelines import CASES, DATA
from tests.contracts.test_models import MODELS
from tests.contracts.test_pipelines import fitted
from tests.segments.storage.test_saving import contents, error_message, write
from tests.segments.test_segmentation import customers
from whycluster.pipelines.steps import transformers_in
from whycluster.segments.storage import steps

pytest.importorskip("pandas", reason="pandas is not installed")
pytest.importorskip("safetensors", reason="safetensors is not installed")

NOT_SAVED = {"unknown model", "subclass of KMeans", "subclass of NearestCentroid"}
Change = Callable[[dict[str, Any], dict[str, Any]], Any]


def rows_of(X: Any, rows: Any) -> Any:
    return X.iloc[rows] if hasattr(X, "iloc") else X[rows]


def assert_rows_alone(seg: wc.Segmentation, X: Any, path: Path) -> None:
    """Check that a loaded segmentation explains single rows as the segmentation explains the whole table."""
    whole = seg.explain(X)
    wc.save(seg, path / "segments.why")
    loaded = wc.load(path / "segments.why")
    assert loaded.model is None
    assert loaded.feature_names == seg.feature_names
    assert loaded.population.columns == seg.population.columns
    for row in (0, X.shape[0] // 3, X.shape[0] - 1):
        alone = loaded.explain(rows_of(X, [row]))
        assert (alone.relevance[0] == whole.relevance[row]).all()
        assert alone.evidence[0] == whole.evidence[row]
        assert alone.beta == whole.beta
        assert loaded.assign(rows_of(X, [row]))[0] == whole.cluster[row]


@pytest.mark.parametrize("kind", [kind for kind in MODELS if kind not in NOT_SAVED])
def test_one_row_of_every_model(kind: str, wine: Any, tmp_path: Path) -> None:
    model = MODELS[kind](np.array(wine), load_wine().target)
    assert_rows_alone(wc.Segmentation.of(model, wine, measure_quality=False), wine, tmp_path)


@pytest.mark.parametrize("name", [name for name in CASES if name != "declared"])
def test_one_row_of_every_pipeline(name: str, tmp_path: Path) -> None:
    X = DATA[CASES[name].data]()
    assert_rows_alone(wc.Segmentation.of(fitted(name), X, measure_quality=False), X, tmp_path)


@cache
def segmentation() -> wc.Segmentation:
    with pytest.warns(wc.ColumnWarning):
        return wc.segment(customers(), 3, {0: "Loyal"})


@pytest.mark.slow
def test_everything_is_restored(tmp_path: Path) -> None:
    seg = segmentation()
    wc.save(seg, tmp_path / "segments.why")
    loaded = wc.load(tmp_path / "segments.why")
    assert repr(loaded) == repr(seg)
    assert loaded.labels.tolist() == ["Loyal", 1, 2]
    assert loaded.left_out == seg.left_out
    assert loaded.sizes.tolist() == seg.sizes.tolist()
    assert [name for name, _ in loaded.steps] == ["columns"]
    for name, value in vars(seg.quality).items():
        assert np.array_equal(getattr(loaded.quality, name), value)
    frame = customers(1)
    assert str(loaded.explain(frame).summary()) == str(seg.explain(frame).summary())
    assert loaded.rename({1: "New"}).labels.tolist() == ["Loyal", "New", 2]
    wc.save(loaded, tmp_path / "again.why")
    assert (tmp_path / "again.why").read_bytes() == (tmp_path / "segments.why").read_bytes()


@pytest.mark.filterwarnings("ignore::whycluster.FidelityWarning")
def test_a_segmentation_of_labels(tmp_path: Path) -> None:
    frame = customers().drop(columns="CustomerID")
    labels = np.where(frame["age"] > 45, "old", "young")
    seg = wc.Segmentation.of(labels, frame, measure_quality=False)
    assert_rows_alone(seg, frame, tmp_path)
    assert str(wc.load(tmp_path / "segments.why").network.fidelity) == str(seg.network.fidelity)


class Half(StandardScaler):  # type: ignore[misc]  # scikit-learn has no types
    """Someone's subclass."""


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: make_pipeline(Half(), KMeans(3, n_init=1, random_state=0)),
            "save: step 'half' must be of a class that whycluster can restore without running code from the "
            "file; got tests.segments.storage.test_segmentations.Half. Segmentations that cannot be saved "
            "can still be used in this process.",
        ),
        (
            lambda: make_pipeline(
                FunctionTransformer(wc.elementwise(lambda values: values * 2.0)), KMeans(3, n_init=1)
            ),
            "save: the function of step 'functiontransformer' must be a NumPy ufunc with one argument, "
            "since any other function is code; got <lambda>. Segmentations that cannot be saved can still "
            "be used in this process.",
        ),
    ],
)
def test_steps_that_cannot_be_saved(make: Callable[[], Any], message: str, wine: Any, tmp_path: Path) -> None:
    seg = wc.Segmentation.of(make().fit(wine), wine, measure_quality=False)
    with pytest.raises(wc.UnsupportedModelError) as caught:
        wc.save(seg, tmp_path / "segments.why")
    assert str(caught.value) == message
    assert not list(tmp_path.iterdir())


def test_text_columns_cannot_be_saved(tmp_path: Path) -> None:
    frame = customers()[["age", "city"]]
    columns = ColumnTransformer([("age", StandardScaler(), ["age"]), ("words", TfidfVectorizer(), "city")])
    model = Pipeline([("columns", columns), ("clusters", KMeans(2, n_init=1, random_state=0))]).fit(frame)
    seg = wc.Segmentation.of(model, frame, measure_quality=False)
    with pytest.raises(wc.UnsupportedModelError) as caught:
        wc.save(seg, tmp_path / "segments.why")
    assert str(caught.value) == (
        "save: step 'words' must be of a class that whycluster can restore without running code from the "
        "file; got sklearn.feature_extraction.text.TfidfVectorizer. Segmentations that cannot be saved can "
        "still be used in this process."
    )


def test_a_selector_is_saved_as_the_columns_that_it_selects(wine: Any, tmp_path: Path) -> None:
    target = load_wine().target
    model = make_pipeline(SelectKBest(k=4), StandardScaler(), NearestCentroid()).fit(wine, target)
    seg = wc.Segmentation.of(model, wine, measure_quality=False)
    assert_rows_alone(seg, wine, tmp_path)
    selector = wc.load(tmp_path / "segments.why").steps[0][1]
    assert selector.get_support().tolist() == model[0].get_support().tolist()


def test_every_class_of_steps_is_covered() -> None:
    used = set()
    for name in CASES:
        if name != "declared":
            used |= {type(each) for each in transformers_in(fitted(name).steps[:-1])}
    assert set(steps.STEPS) <= used


# Hostile files.


@cache
def small() -> wc.Segmentation:
    frame = customers()[["age", "spend", "city"]]
    return wc.segment(frame, 2, measure_quality=False)


def put(path: str, value: Any) -> Change:
    """Return a change of one fact, given by its keys and positions, separated by slashes."""

    def change(facts: Any, _: dict[str, Any]) -> None:
        *places, last = [int(key) if key.isdecimal() else key for key in path.split("/")]
        for place in places:
            facts = facts[place]
        facts[last] = value

    return change


STEP = "steps/0/1/branches/0/1/steps/1/1"  # the scaler of the numbers
HOSTILE = [
    (put(f"{STEP}/class", "os.system"), "a step must be of a known class; got 'os.system'"),
    (put(f"{STEP}/class", ["StandardScaler"]), "a step must have a class"),
    (put(f"{STEP}/fitted/__class__", 1), "StandardScaler must have no '__class__'"),
    (put(f"{STEP}/parameters/transform", "x"), "StandardScaler must have no 'transform'"),
    (put(f"{STEP}/state", {}), "a step must not have 'state'"),
    (put(f"{STEP}/output", "html"), "'output' of a step must be one of default, pandas, polars"),
    (put(f"{STEP}/fitted/mean_", {"array": "labels", "shape": [2]}), None),
    (
        put(f"{STEP}/fitted/mean_/shape", [10**12]),
        "'mean_' must have shape (1000000000000,); it has 2 values",
    ),
    (put(f"{STEP}/fitted/n_features_in_", 10**12), None),
    (
        put("steps/0/1/branches/0/1/steps/0/1/parameters/func", "eval"),
        "the function of a step must be a NumPy ufunc or a function of whycluster",
    ),
    (
        put("steps/0/1/branches/0/2", [10**9]),
        "the columns of a ColumnTransformer must be positions of its columns",
    ),
    (put("steps/0/1/n_columns", 10**12), None),
    (put("steps", [["a", "eval"]]), "a step must have a class"),
    (
        put("columns/0/kind", "code"),
        "a column must have a known kind, nonnegative counts and few categories",
    ),
    (put("columns/0/range", [1.0]), "the range of a column must be five numbers in ascending order"),
    (put("columns/1/name", "age"), "'columns' must have distinct names"),
    (put("quality", {}), "'quality' must have the attributes of a Quality"),
    (put("left_out", [["a"]]), "'left_out' must be pairs of a column and a reason"),
    (put("kind", "network"), "there must be no other facts; got 'columns'"),
    (
        put("format", 2),
        " must have format 1, the newest format that this version of whycluster reads; got 2. Update "
        "whycluster.",
    ),
]


@pytest.mark.parametrize(("change", "message"), HOSTILE)
def test_hostile_files_are_refused(change: Change, message: str | None, tmp_path: Path) -> None:
    facts, arrays = contents(small(), tmp_path / "file")
    change(facts, arrays)
    found = error_message(write(tmp_path / "file", facts, arrays))
    assert message is None or found == message


def test_other_results_than_those_that_were_saved_are_refused(tmp_path: Path) -> None:
    facts, arrays = contents(small(), tmp_path / "file")
    facts["sklearn"] = "1.2.3"
    arrays["probes"] = arrays["probes"] + 1.0
    import sklearn

    with pytest.raises(wc.InvalidInputError) as caught:
        wc.load(write(tmp_path / "file", facts, arrays))
    assert str(caught.value) == (
        f"load: the steps in {str(tmp_path / 'file')!r} must compute the same as when they were saved, with "
        f"scikit-learn '1.2.3'; with scikit-learn {sklearn.__version__}, they do not. Install that version, "
        "or make the segmentation again."
    )


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e308])
def test_components_with_which_lapack_would_not_finish(value: float, wine: Any, tmp_path: Path) -> None:
    model = make_pipeline(StandardScaler(), PCA(4), KMeans(3, n_init=1, random_state=0)).fit(wine)
    facts, arrays = contents(wc.Segmentation.of(model, wine, measure_quality=False), tmp_path / "file")
    place = facts["steps"][1][1]["fitted"]["components_"]["array"]
    arrays[place] = np.full_like(arrays[place], value)
    found = error_message(write(tmp_path / "file", facts, arrays))
    assert found == "its steps must match each other and the model after them"


def test_no_attribute_outside_the_list_can_be_set(tmp_path: Path) -> None:
    """The classes and attributes in a file are those of the list, and nothing else."""
    facts, _ = contents(small(), tmp_path / "file")
    text = json.dumps(copy.deepcopy(facts["steps"]))
    assert "sklearn" not in text
    assert "whycluster" not in text
    classes = {kind.__name__ for kind in steps.STEPS} | {"Pipeline", "FeatureUnion", "ColumnTransformer"}
    assert set(_classes(facts["steps"])) <= classes
    assert PCA in steps.STEPS


def _classes(value: Any) -> list[str]:
    if isinstance(value, dict):
        own = [value["class"]] if "class" in value else []
        return own + [found for each in value.values() for found in _classes(each)]
    return [found for each in value for found in _classes(each)] if isinstance(value, list) else []
