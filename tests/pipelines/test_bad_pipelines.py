"""Bad pipelines, and bad rows for good ones, get a message that says which step, what came and what to do."""

from __future__ import annotations

import re
import tracemalloc
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.cluster import DBSCAN, KMeans, MiniBatchKMeans
from sklearn.compose import ColumnTransformer
from sklearn.datasets import load_wine
from sklearn.decomposition import NMF, PCA, KernelPCA
from sklearn.impute import KNNImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    OneHotEncoder,
    PolynomialFeatures,
    PowerTransformer,
    StandardScaler,
)

import whycluster as wc
from tests.contracts.pipelines import CATEGORIES, NUMBERS, k_means, mixed_frame, numbers, of_columns
from tests.optional import optional

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
else:
    pd = optional("pandas")
    pl = optional("polars")

Array = NDArray[Any]
WINE: Array = load_wine().data
ALTERNATIVE = (
    "The clusters can still be explained in terms of the original columns, through a surrogate that reports "
    "how well it matches them: wc.explain(pipeline.predict(X), X), or wc.explain(labels, X)."
)


class Own(TransformerMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Someone's step."""

    def fit(self, X: Array, y: Any = None) -> Own:  # noqa: ARG002  # scikit-learn's signature
        self.fitted_ = True
        return self

    def transform(self, X: Array) -> Array:
        return X


class Stateless(Own):
    """A step that learns nothing in fit, so that scikit-learn takes it for unfitted."""

    def fit(self, X: Array, y: Any = None) -> Stateless:  # noqa: ARG002  # scikit-learn's signature
        return self


def doubled(values: Array) -> Array:
    return 2 * values


def message(model: Any, X: Any, **options: Any) -> str:
    with pytest.raises(wc.InvalidInputError) as error:
        wc.explain(model, X, **options)
    return str(error.value)


def refused(*steps: Any) -> str:
    model = make_pipeline(*steps, k_means()).fit(WINE)
    with pytest.raises(wc.UnsupportedModelError) as error:
        wc.neuralize(model)
    return str(error.value)


@pytest.fixture(scope="module")
def encoded() -> Pipeline:
    return of_columns(("num", numbers(), NUMBERS), ("cat", OneHotEncoder(), CATEGORIES)).fit(mixed_frame())


@pytest.fixture(scope="module", params=[[], [PCA(3)]], ids=["scaled", "mixed"])
def scaled(request: pytest.FixtureRequest) -> Pipeline:
    return make_pipeline(StandardScaler(), *request.param, k_means()).fit(WINE)


# Steps


@pytest.mark.parametrize(
    ("step", "name"),
    [
        (KernelPCA(3), "kernelpca"),
        (PolynomialFeatures(), "polynomialfeatures"),
        (KNNImputer(), "knnimputer"),
        (Own(), "own"),
    ],
)
def test_a_step_that_is_not_known(step: Any, name: str) -> None:
    kind = type(step).__name__
    begins = (
        f"neuralize: step '{name}' ({kind}) is not supported, because whycluster does not know how this step "
        "computes its features. "
    )
    text = refused(step)
    assert text.startswith(begins + "Supported steps are:\n  - StandardScaler, MinMaxScaler, ")
    assert text.endswith("\n" + ALTERNATIVE)


def test_labels_are_explained_whatever_the_steps_are() -> None:
    model = make_pipeline(Stateless(), DBSCAN(eps=60.0)).fit(WINE)
    exp = wc.explain(model, WINE)
    assert exp.fidelity is not None
    assert len(exp) == len(WINE)


def test_a_step_that_is_not_known_inside_others() -> None:
    inside = make_pipeline(StandardScaler(), KernelPCA(3))
    unknown = "is not supported, because whycluster does not know how this step computes its features"
    assert f"step 'pipeline.kernelpca' (KernelPCA) {unknown}" in refused(inside)
    union = FeatureUnion([("a", PCA(2)), ("b", KernelPCA(2))])
    assert f"step 'featureunion.b' (KernelPCA) {unknown}" in refused(union)
    model = of_columns(("p", PolynomialFeatures(), [0, 1])).fit(WINE)
    refusal = rf"step 'columntransformer\.p' \(PolynomialFeatures\) {unknown}"
    with pytest.raises(wc.UnsupportedModelError, match=refusal):
        wc.explain(model, WINE)


def test_factors_are_refused() -> None:
    assert refused(NMF(2, max_iter=2000)) == (
        "neuralize: step 'nmf' (NMF) solves an optimization problem for each row, so its output is not a "
        f"linear function of the columns. {ALTERNATIVE}"
    )


@pytest.mark.parametrize("function", [doubled, lambda values: values - values.mean(axis=1, keepdims=True)])
def test_a_function_that_is_not_marked(function: Any) -> None:
    assert refused(FunctionTransformer(function)) == (
        "neuralize: step 'functiontransformer' (FunctionTransformer) must use a NumPy ufunc or a "
        f"function marked as elementwise; {function!r} is not marked. If it computes each feature from the "
        f"feature at the same position, mark it: wc.elementwise(function). {ALTERNATIVE}"
    )


def test_mixed_and_transformed_twice() -> None:
    assert refused(PCA(3), PowerTransformer(), PCA(2), PowerTransformer()) == (
        "neuralize: step 'powertransformer-2' (PowerTransformer) transforms individual features that earlier "
        "steps have already mixed, transformed and mixed again; relevance cannot be propagated through such "
        "a sequence. " + ALTERNATIVE
    )


@pytest.mark.parametrize("last", [None, "passthrough"])
def test_a_pipeline_that_only_transforms(last: Any) -> None:
    model = Pipeline([("scale", StandardScaler()), ("end", last)]).fit(WINE)
    with pytest.raises(wc.UnsupportedModelError) as error:
        wc.explain(model, WINE)
    assert str(error.value) == (
        f"neuralize: the last step of the pipeline must be a clustering model; got {last!r}."
    )


@pytest.mark.parametrize("last", [StandardScaler(), LogisticRegression()])
def test_a_pipeline_that_ends_in_no_clustering(last: Any) -> None:
    model = make_pipeline(StandardScaler(), last).fit(WINE, np.arange(178) % 2)
    with pytest.raises(wc.UnsupportedModelError) as error:
        wc.explain(model, WINE)
    told = {
        "StandardScaler": "the last step of the pipeline must be a clustering model; got StandardScaler().",
        "LogisticRegression": "no exact network is known for LogisticRegression. The following models",
    }
    assert str(error.value).startswith(f"neuralize: {told[type(last).__name__]}")


def test_a_pipeline_that_ends_in_labels() -> None:
    model = make_pipeline(StandardScaler(), DBSCAN(eps=2.3, metric="chebyshev")).fit(WINE)
    with pytest.raises(wc.UnsupportedModelError) as error:
        wc.neuralize(model)
    assert str(error.value) == (
        "neuralize: the labels of DBSCAN give the cluster of each row but no rule for other rows, so there "
        "is no network. A rule is known only for the metrics euclidean, manhattan and haversine; this DBSCAN "
        "has metric='chebyshev'. Explain them through a surrogate with wc.explain(labels, X), or neuralize "
        "the surrogate wc.Surrogate().fit(X, labels)."
    )
    assert message(model, WINE[:50]).startswith(
        "explain: labels must have one value for each of the 50 rows of X; got 178."
    )


def test_what_is_not_fitted() -> None:
    for model in (
        make_pipeline(StandardScaler(), KMeans(3)),
        make_pipeline(StandardScaler().fit(WINE), KMeans(3)),
        make_pipeline(StandardScaler(), PCA(2), KMeans(3)),
    ):
        with pytest.raises(wc.NotFittedError) as error:
            wc.explain(model, WINE)
        assert str(error.value) == "neuralize: the Pipeline must be fitted first. Call its fit method."
    model = make_pipeline(StandardScaler(), KMeans(3, n_init=1).fit(WINE))
    with pytest.raises(wc.NotFittedError) as error:
        wc.explain(model, WINE)
    assert str(error.value) == "neuralize: the StandardScaler must be fitted first. Call its fit method."


def test_steps_that_were_fitted_apart() -> None:
    model = make_pipeline(StandardScaler().fit(WINE[:, :5]), k_means().fit(WINE))
    assert message(model, WINE) == (
        "neuralize: the steps of the pipeline return 5 features, but its last step was fitted on 13. Fit the "
        "pipeline as a whole, and mark with wc.elementwise only functions that keep the number of features."
    )


# Columns


def test_columns_missing_and_added(encoded: Pipeline) -> None:
    X = mixed_frame()
    assert message(encoded, X.drop(columns="age")) == (
        "explain: X must have the 8 columns the model was fitted on; missing: ['age']. "
        "Select or rename its columns first."
    )
    assert message(encoded, X.assign(more=1).drop(columns="town")) == (
        "explain: X must have the 8 columns the model was fitted on; missing: ['town']; unknown: ['more']. "
        "Select or rename its columns first."
    )
    assert message(encoded, X, background=X[["age"]]).startswith(
        "explain: background must have the 8 columns"
    )


def test_columns_in_another_order_give_the_same(encoded: Pipeline) -> None:
    X = mixed_frame()
    expected = wc.explain(encoded, X)
    exp = wc.explain(encoded, X[X.columns[[5, 3, 1, 7, 0, 2, 6, 4]]], background=X[X.columns[::-1]])
    assert exp.feature_names == expected.feature_names
    assert (exp.relevance == expected.relevance).all()
    assert (exp.data == X).equals(X == X)


def test_names_that_are_there_twice(encoded: Pipeline) -> None:
    X = mixed_frame().rename(columns={"far": "age"})
    assert message(encoded, X) == "explain: X must have unique column names; 'age' occurs more than once."


def test_the_wrong_shape(scaled: Pipeline) -> None:
    assert message(scaled, WINE[:, :12]) == (
        "explain: X must have 13 features, the number that the model was fitted on; got shape (178, 12)."
    )
    assert message(scaled, WINE[0]) == (
        "explain: X must be two-dimensional (rows, features); got shape (13,). For a single row, select it "
        "as a table: array[[i]] or frame.iloc[[i]]."
    )
    assert message(scaled, WINE[:0]) == (
        "explain: X must have at least one row and one feature; got shape (0, 13)."
    )


def test_a_frame_without_rows(encoded: Pipeline) -> None:
    assert message(encoded, mixed_frame().iloc[:0]) == (
        "explain: X must have at least one row and one feature; got shape (0, 8)."
    )


# Values


def of_step(told: str, rows: str, reason: str) -> bool:
    """Our words, and behind them scikit-learn's, which may change."""
    step = r"step ('columntransformer' \(ColumnTransformer\)|'standardscaler' \(StandardScaler\))"
    begins = rf"explain: X, in rows {rows}: {step}"
    return re.fullmatch(rf"{begins} could not transform its input: .*{reason}.*", told, re.DOTALL) is not None


def test_unknown_categories(encoded: Pipeline) -> None:
    X = mixed_frame()
    assert of_step(message(encoded, X.assign(kind="new")), "0 to 89", r"unknown categories \['new'\]")
    ignoring = of_columns(("cat", OneHotEncoder(handle_unknown="ignore"), CATEGORIES)).fit(X)
    exp = wc.explain(ignoring, X.assign(kind="new"))
    assert (exp.cluster == ignoring.predict(X.assign(kind="new"))).all()
    assert exp.data["kind"].tolist() == ["new"] * 90


def test_columns_of_mixed_types(encoded: Pipeline) -> None:
    X = mixed_frame().astype({"age": object, "kind": object})
    forty, seven, lists = X.copy(), X.copy(), X.assign(kind=[["a"]] * 90)
    forty.iloc[5, 1], seven.iloc[3, 4] = "forty", 7
    assert of_step(message(encoded, forty), "0 to 89", "'forty'")
    assert of_step(message(encoded, seven), "0 to 89", r"unknown categories \[7\]")
    assert of_step(message(encoded, lists), "0 to 89", "")


def test_text_where_numbers_are_expected(scaled: Pipeline) -> None:
    X = WINE.astype(object)
    X[4, 3] = "much"
    told = message(scaled, X)
    plain = (
        r"explain: X, in rows 0 to (63|177): the steps return values that are not numbers: "  # no step is run
    )
    no_number = re.fullmatch(plain + "could not convert string to float: 'much'", told)
    assert of_step(told, "0 to 177", "'much'") or no_number


def test_dates_that_no_step_makes_numbers_of() -> None:
    X = mixed_frame()[["age", "when"]]
    model = of_columns(("all", "passthrough", ["age", "when"])).fit(X.assign(when=1.0))
    assert message(model, X).startswith(
        "explain: X, in rows 0 to 89: the steps return values that are not numbers: "
    )


def test_a_column_of_missing_values_is_imputed(encoded: Pipeline) -> None:
    X = mixed_frame().assign(income=np.nan)
    for given in (X, X.assign(income=None)):
        exp = wc.explain(encoded, given)
        assert (exp.cluster == encoded.predict(X)).all()
        assert np.abs(exp.residual).max() <= 1e-8 * exp.evidence.max()


@pytest.mark.parametrize("make", [np.array, pd.DataFrame, lambda X: pl.DataFrame(X)])
def test_missing_values_that_no_step_fills(scaled: Pipeline, make: Any) -> None:
    X = WINE.copy()
    X[3, 2] = np.nan
    given = make(X)
    name = wc.explain(scaled, make(WINE)).feature_names[2]
    assert message(scaled, given) == (
        f"explain: X must be finite; row 3, feature {name!r} holds a missing value (NaN). "
        "Drop or fill such rows first."
    )
    assert message(scaled, make(WINE), background=given).startswith(
        "explain: background must be finite; row 3"
    )


def test_infinite_values(scaled: Pipeline, encoded: Pipeline) -> None:
    X = WINE.copy()
    X[3, 2] = np.inf
    told = message(scaled, X)
    plain = "explain: X must be finite; row 3, feature 'x2' holds an infinite value. "
    assert of_step(told, "0 to 177", "infinity") or told == f"{plain}Drop or fill such rows first."
    assert of_step(message(encoded, mixed_frame().assign(far=np.inf)), "0 to 89", "infinity")


def test_missing_values_that_a_step_made() -> None:
    model = make_pipeline(FunctionTransformer(np.log), PCA(2), k_means()).fit(WINE + 1)
    X = WINE + 1
    X[2, 1] = -3.0
    assert message(model, X) == (
        "explain: X must have values that the steps turn into finite numbers; in row 2, feature 'x1' holds "
        "-3.0, which becomes nan."
    )


def test_missing_values_that_a_step_made_of_several_columns() -> None:
    shifted = make_pipeline(
        PCA(3), FunctionTransformer(wc.elementwise(lambda z: np.sqrt(z + 1000.0))), PCA(2), k_means()
    )
    X = WINE[:, :5].copy()
    shifted.fit(X)
    X[7] = -1e9 * np.sign(shifted[0].components_[0])
    found = message(shifted, X)
    assert found == (
        "explain: X must have values that the steps turn into finite numbers; in row 7, combining several "
        "columns gives nan. Drop or change such rows first."
    )


def test_questions_that_do_not_fit(encoded: Pipeline) -> None:
    X = mixed_frame()
    assert message(encoded, X, target=9) == (
        "explain: target must be one of the model's 3 clusters, 0, 1, 2; got 9."
    )
    assert message(encoded, X, threshold=0.5).startswith(
        "explain: threshold applies only to models that give probabilities"
    )
    assert message(encoded, X, metric="manhattan").startswith("explain: metric applies only to centroids")
    assert message(encoded, X, feature_names=list("abcdefgh")).startswith(
        "explain: feature_names applies only to arrays"
    )


class Halved(StandardScaler):  # type: ignore[misc]  # scikit-learn has no types
    """A scaler that is no longer one."""

    def transform(self, X: Any, copy: bool | None = None) -> Any:
        return super().transform(X, copy) / 2


class Renamed(StandardScaler):  # type: ignore[misc]
    """One that still is."""


def test_a_subclass_is_known_by_how_it_transforms() -> None:
    model = make_pipeline(Halved(), PCA(2), k_means()).fit(WINE)
    with pytest.raises(wc.UnsupportedModelError, match=r"step 'halved' \(Halved\) is not supported, because"):
        wc.explain(model, WINE)
    same = make_pipeline(Renamed(), PCA(2), k_means()).fit(WINE)
    exp = wc.explain(same, WINE)
    assert (exp.cluster == same.predict(WINE)).all()
    assert np.abs(exp.residual).max() <= 1e-8 * exp.evidence.max()


class Backwards(Pipeline):  # type: ignore[misc]
    """A pipeline with its own predict."""

    def predict(self, X: Any, **params: Any) -> Any:
        return 2 - super().predict(X, **params)


def test_a_pipeline_with_its_own_predict_is_refused() -> None:
    model = Backwards([("scale", StandardScaler()), ("model", k_means())]).fit(WINE)
    message = "Backwards must use the predict method of Pipeline; it defines its own"
    with pytest.raises(wc.UnsupportedModelError, match=message):
        wc.explain(model, WINE)


def refused_on(model: Any, X: Any) -> str:
    with pytest.raises(wc.UnsupportedModelError) as error:
        wc.explain(model, X)
    return str(error.value)


def test_steps_that_do_not_return_what_their_parameters_imply() -> None:
    """A branch that works in place changes the rows of its neighbor; whitened rounding is meaningless."""
    union = FeatureUnion([("scaled", StandardScaler(copy=False)), ("mixed", PCA(2))])
    beside = make_pipeline(union, k_means()).fit(WINE.copy())
    assert (
        "explain: the steps of the pipeline must return what their parameters imply; in row 0, "
        in refused_on(beside, WINE.copy())
    )
    dependent = np.column_stack([WINE, WINE])
    whitened = make_pipeline(StandardScaler(), PCA(whiten=True), k_means()).fit(dependent)
    assert "whitened components without variance, which contain only rounding errors" in refused_on(
        whitened, dependent
    )


def test_functions_that_return_another_number_of_features() -> None:
    few = wc.elementwise(lambda X: X[:, :3])
    model = make_pipeline(FunctionTransformer(few), PCA(2), k_means()).fit(WINE)
    assert refused_on(model, WINE).startswith(
        "neuralize: step 'pca' (PCA) was fitted on 3 features, but the steps before it return 13. Check "
        "that no function marked with wc.elementwise changes the number of features. "
    )
    short = wc.elementwise(lambda X: X[:50] if len(X) > 100 else X)
    model = make_pipeline(FunctionTransformer(short), k_means()).fit(WINE[:90])
    assert message(model, WINE) == (
        "explain: X, in rows 0 to 177: step 'functiontransformer' (FunctionTransformer) must return one "
        "row for each input row; it returned 50 for 178."
    )


def test_any_error_of_a_step_is_reported() -> None:
    def fail(X: Any) -> Any:
        if len(X) == 178:
            raise KeyError("x")
        return X

    model = make_pipeline(FunctionTransformer(wc.elementwise(fail)), k_means()).fit(WINE[:90])
    assert message(model, WINE) == (
        "explain: X, in rows 0 to 177: step 'functiontransformer' (FunctionTransformer) could not transform "
        "its input: 'x'."
    )


def test_a_step_that_raises_without_a_word() -> None:
    def fail(X: Any) -> Any:
        if len(X) == 178:
            raise WordlessError("  \n")
        return X

    class WordlessError(ValueError):
        pass

    model = make_pipeline(FunctionTransformer(wc.elementwise(fail)), k_means()).fit(WINE[:90])
    assert message(model, WINE).endswith("could not transform its input: WordlessError.")


def test_lists_of_numbers_and_text_stay_what_they_are() -> None:
    rows = [[1, "a"], [2, "a"], [3, "b"], [1, "b"]] * 5
    model = make_pipeline(OneHotEncoder(handle_unknown="ignore"), k_means()).fit(rows)
    exp = wc.explain(model, rows)
    assert (exp.cluster == model.predict(rows)).all()
    assert exp.data[1].tolist() == [2, "a"]


@pytest.mark.parametrize("unit", ["timedelta64[h]", "datetime64[h]"])
def test_times_are_what_the_steps_take_them_for(unit: str) -> None:
    hours = np.random.default_rng(0).integers(0, 1000, size=(60, 3))
    X = pd.DataFrame(hours.astype(unit), columns=list("abc"))
    model = make_pipeline(StandardScaler(), PCA(2), k_means()).fit(X)
    exp = wc.explain(model, X)
    assert (exp.cluster == model.predict(X)).all()
    assert np.abs(exp.residual).max() <= 1e-8 * exp.evidence.max()


def test_large_integers_stay_apart_whatever_the_columns_are_called() -> None:
    X = pd.DataFrame({0: [2**60, 2**60 + 1, 2**60 + 2] * 20, 1: np.arange(60) / 60})
    encoder = OneHotEncoder(handle_unknown="ignore")
    columns = ColumnTransformer([("kind", encoder, [0]), ("number", StandardScaler(), [1])])
    model = make_pipeline(columns, k_means()).fit(X)
    assert (wc.neuralize(model).assign(X) == model.predict(X)).all()


@pytest.mark.slow
@pytest.mark.usefixtures("two_threads")
def test_what_is_not_finite_is_searched_for_in_bounded_memory() -> None:
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"kind": rng.integers(0, 2000, 20_000).astype(str), "x": rng.normal(size=20_000)})
    columns = ColumnTransformer([("kind", OneHotEncoder(), ["kind"]), ("x", StandardScaler(), ["x"])])
    model = make_pipeline(columns, MiniBatchKMeans(3, n_init=1, random_state=0)).fit(X)
    X.loc[19_999, "x"] = np.nan
    tracemalloc.start()
    assert message(model, X).startswith("explain: X must be finite; row 19999, feature 'x'")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100 * 2**20


@pytest.mark.parametrize("library", ["pandas", "polars", "numpy"])
@pytest.mark.parametrize("rest", [[], ["kind"], ["x"]])
def test_float32_columns_far_from_0_behind_a_pca(library: str, rest: list[str]) -> None:
    """The steps round, which is no reason to refuse the pipeline."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(300, 4)) + 1e5, columns=list("abcd")).astype("float32")
    frame = frame.assign(kind=rng.choice(["x", "y"], 300), x=rng.normal(size=300))[[*"abcd", *rest]]
    steps = [
        ("pca", PCA(2), [0, 1, 2, 3]),
        *(("kind", OneHotEncoder(), [4]) for name in rest if name == "kind"),
    ]
    model = make_pipeline(ColumnTransformer(steps), k_means())
    X = {"pandas": frame, "polars": pl.from_pandas(frame), "numpy": frame.to_numpy()}[library]
    exp = wc.explain(model.fit(X), X)
    assert (exp.assigned == model.predict(X)).mean() > 0.9


def test_float32_columns_do_not_hide_a_step_that_returns_something_else() -> None:
    X = (np.random.default_rng(0).normal(size=(60, 3)) + 1e3).astype(np.float32)
    union = FeatureUnion([("scaled", StandardScaler(copy=False)), ("mixed", PCA(2))])
    model = make_pipeline(union, k_means()).fit(X.copy())
    assert "must return what their parameters imply; in row 0, " in refused_on(model, X.copy())
