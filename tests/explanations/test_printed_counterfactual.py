"""What is printed of a counterfactual is true, and reaches the cluster when it is typed in.

All checks start from the printed text, the raw table and the model's own ``predict``.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from sklearn.cluster import KMeans
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, PowerTransformer, QuantileTransformer, StandardScaler

import whycluster as wc
from benchmarks.counterfactual import (
    TABLES,
    Line,
    changes_in,
    customers,
    parse,
    purchases,
    score,
    tables,
    typed,
)
from tests.optional import optional
from tests.reference import counterfactual as reference

if TYPE_CHECKING:
    import pandas as pd
else:
    pd = optional("pandas")


@pytest.fixture(autouse=True)
def needs_pandas() -> None:
    """Skip the tests if pandas is missing."""
    assert pd.__name__


def other(exp: wc.Explanation, row: int) -> Any:
    return next(label for label in exp.labels.tolist() if label != exp.assigned[row])


def is_number(column: Any) -> bool:
    return bool(column.dtype.kind in "fiu")


def check_line(line: Line, frame: Any, row: int) -> None:
    """Check the row's own value, the change, and the words about the range of the data."""
    column = frame[line.feature]
    before, after = column.iloc[row], parse(line.becomes, column)
    if not is_number(column):
        return
    assert abs(Decimal(line.value) - Decimal(repr(float(before)))) <= Decimal(1).scaleb(
        Decimal(line.value).as_tuple().exponent  # type: ignore[arg-type]  # of a finite number, an integer
    )
    assert ("outside the data" in line.rest) == (not column.min() <= after <= column.max())
    if (column == column.round()).all():
        assert float(after).is_integer()


@pytest.mark.slow
@pytest.mark.parametrize("name", TABLES)
def test_printed_values_reach_the_cluster(name: str) -> None:
    frame, models = tables()[name]
    found = score(frame, models, 6, seed=1)
    assert (found.tries, found.reached, found.missed) == (6, 6, 0)
    assert found.together == 6
    assert found.alone > 6


@pytest.mark.slow
@pytest.mark.parametrize("step", ["scaled", "logarithms", "powers", "ranks"])
def test_lines_are_true(step: str) -> None:
    frame = purchases(300)
    steps: list[Any] = {
        "scaled": [StandardScaler()],
        "logarithms": [FunctionTransformer(np.log1p), StandardScaler()],
        "powers": [PowerTransformer()],
        "ranks": [QuantileTransformer(n_quantiles=40)],
    }[step]
    model = make_pipeline(*steps, KMeans(4, n_init=1, random_state=0)).fit(frame)
    exp = wc.explain(model, frame)
    for row in range(0, 300, 37):
        to = other(exp, row)
        text = str(exp.counterfactual(row, to))
        joint, *single = changes_in(text)
        alone = [line for lines in single for line in lines]
        for line in [*joint, *alone]:
            check_line(line, frame, row)
        for line in joint:
            assert Decimal(line.value) + Decimal(line.rest[0]) == Decimal(line.becomes)
        before, after = (
            model[:-1].transform(each)[0] for each in (frame.iloc[[row]], typed(frame, row, joint))
        )
        size = re.search(r"of size (\S+?)[,:]", text)
        assert size is not None
        assert float(size[1]) == pytest.approx(np.linalg.norm(after - before), rel=6e-3)
        for line in alone:
            moved = model[:-1].transform(typed(frame, row, [line]))[0]
            assert float(line.rest[0]) == pytest.approx(np.linalg.norm(moved - before), rel=6e-3)
        bound = re.search(r"Below size (\S+), no change moves", text)
        if bound is not None:
            check_bound(float(bound[1]), model, before, to)


def check_bound(bound: float, model: Any, x: Any, to: int) -> None:
    """Check with the exact solution for real numbers, in the units of the model."""
    least = reference.least_change(*reference.half_spaces(x, model[-1].cluster_centers_, to))
    assert least is not None
    assert 0.99 * np.linalg.norm(least) <= bound <= np.linalg.norm(least)


def test_logarithms_are_followed() -> None:
    frame = purchases(300)
    log = FunctionTransformer(np.log1p)
    model = make_pipeline(log, StandardScaler(), KMeans(3, n_init=1, random_state=0)).fit(frame)
    exp = wc.explain(model, frame)
    for row in range(0, 300, 60):
        found = exp.counterfactual(row)
        assert not found.held
        assert found.found
        least = reference.least_change(
            *reference.half_spaces(
                model[:-1].transform(frame.iloc[[row]])[0], model[-1].cluster_centers_, found.to
            )
        )
        assert least is not None
        assert found.lower_bound == pytest.approx(np.linalg.norm(least))
        assert np.linalg.norm(least) <= found.distance < 2 * np.linalg.norm(least) + 0.2


def test_whole_numbers_stay_whole() -> None:
    """They do by their type, or if the table holds no others; the smallest change of all whole ones."""
    rng = np.random.default_rng(0)
    X = np.round(rng.normal(size=(200, 3)) * 4 + 6 * rng.integers(0, 2, (200, 1)))
    model = KMeans(2, n_init=1, random_state=0).fit(X)
    steps = np.stack(np.meshgrid(*[np.arange(-15, 16)] * 3), axis=-1).reshape(-1, 3)
    for table in (X, pd.DataFrame(X.astype(int), columns=["x0", "x1", "x2"])):
        network = wc.neuralize(model)
        exp = network.explain(table)
        for row in range(0, 200, 40):
            found = exp.counterfactual(row)
            assert all(float(value).is_integer() for value in found.after)
            assert all(float(value).is_integer() for value in found.single if value is not None)
            enough = steps[network.assign(X[row] + steps) == found.to]
            least = np.linalg.norm(enough, axis=1).min()
            assert least <= found.distance <= least * 1.25


def test_dates_are_typed_in() -> None:
    frame = customers(200)
    model = wc.tabular.pipeline(frame, 3)
    exp = wc.explain(model, frame)
    n_dates = 0
    for row in range(0, 200, 20):
        to = other(exp, row)
        for lines in changes_in(str(exp.counterfactual(row, to, within=["since", "spent"]))):
            n_dates += sum(line.feature == "since" for line in lines)
            assert model.predict(typed(frame, row, lines)) == to
    assert n_dates > 5


def test_features_that_are_held_do_not_change() -> None:
    frame = customers(200)
    exp = wc.explain(wc.tabular.pipeline(frame, 3), frame)
    found = exp.counterfactual(0, hold=["age", "kind"])
    assert found.change[[0, 3]].tolist() == [0.0, 0.0]
    assert found.single[[0, 3]].tolist() == [None, None]
    same = exp.counterfactual(0, within=["visits", "spent", "member", "since"])
    assert (found.after == same.after).all()
    assert str(found) == str(same)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"hold": "age"},
            "hold must be a list of feature names; got 'age'. Leave it out to hold no feature.",
        ),
        (
            {"hold": ["x"]},
            "hold must be names of features, one or more of 'age', 'visits', 'spent', 'kind', 'member', ...; "
            "got 'x'.",
        ),
        (
            {"within": ["age"], "hold": ["age"]},
            "hold must leave at least one feature to change; it leaves none.",
        ),
    ],
)
def test_bad_names_of_features_to_hold(options: dict[str, Any], message: str) -> None:
    frame = customers(50)
    exp = wc.explain(wc.tabular.pipeline(frame, 3), frame)
    with pytest.raises(wc.InvalidInputError) as error:
        exp.counterfactual(0, **options)
    assert str(error.value) == f"counterfactual: {message}"


def test_nothing_is_claimed_of_features_that_are_held() -> None:
    """A change of a category may be smaller, so that only changes of the others are spoken of."""
    frame = customers(200)
    exp = wc.explain(wc.tabular.pipeline(frame, 3), frame)
    for row in range(0, 200, 25):
        first = str(exp.counterfactual(row)).splitlines()[0]
        assert "change of the features that are not held fixed" in first


def test_many_features_that_are_held_are_not_all_listed() -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {f"k{i}": rng.choice(["a", "b"], 40) for i in range(25)} | {"x": rng.normal(size=40)}
    )
    text = str(wc.explain(wc.tabular.pipeline(frame, 2), frame).counterfactual(0))
    assert text.endswith("k18 (category), k19 (category) and 5 more.")


def test_missing_categories_are_called_missing() -> None:
    frame = pd.DataFrame({"kind": pd.Series(["a", "b", np.nan] * 10, dtype=object), "x": np.arange(30) % 7})
    exp = wc.explain(wc.tabular.pipeline(frame, 3, category_weight=9.0), frame)
    for to in exp.assigned[:2].tolist():
        lines = [line for lines in changes_in(str(exp.counterfactual(2, to)))[1:] for line in lines]
        assert [line.value for line in lines if line.feature == "kind"] == ["missing"]


def test_values_that_no_model_can_compare_are_not_printed() -> None:
    """So far away, squares lose all digits of the difference between the clusters."""
    network = wc.neuralize(np.array([[0.0, 1.0, 1e-9], [0.0, -1.0, -1e-9]]))
    exp = network.explain(np.array([[0.0, 0.9, 0.0], [0.0, -0.9, 0.0]]))
    found = exp.counterfactual(0, within=["x2"])
    assert found.single[2] < -1e8
    assert "was found that moves it to cluster 1" in str(found)
