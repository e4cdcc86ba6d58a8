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
from sklearn.decomposition import PCA
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
    read_tables,
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
    assert found.together > 1
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
    exp, n_joint = wc.explain(model, frame), 0
    for row in range(0, 300, 37):
        to = other(exp, row)
        text = str(exp.counterfactual(row, to))
        joint = [line for lines in read_tables(text, "change") for line in lines]
        alone = [line for lines in read_tables(text, "size") for line in lines]
        for line in [*joint, *alone]:
            check_line(line, frame, row)
        for line in joint:
            assert Decimal(line.value) + Decimal(line.rest[0]) == Decimal(line.becomes)
        before, after = (
            model[:-1].transform(each)[0] for each in (frame.iloc[[row]], typed(frame, row, joint))
        )
        size = re.search(r"of size (\S+?)[,:]", text)
        assert (size is None) == (not joint) == ("together: no smaller change was found." in text)
        if size is not None:
            n_joint += 1
            assert float(size[1]) == pytest.approx(np.linalg.norm(after - before), rel=6e-3)
        for line in alone:
            moved = model[:-1].transform(typed(frame, row, [line]))[0]
            assert float(line.rest[0]) == pytest.approx(np.linalg.norm(moved - before), rel=6e-3)
        bound = re.search(r"Below size (\S+), no change moves", text)
        if bound is not None:
            check_bound(float(bound[1]), model, before, to)
    assert n_joint > 3


def check_bound(bound: float, model: Any, x: Any, to: int) -> None:
    """Check with the exact solution for real numbers, in the units of the model."""
    least = reference.least_change(*reference.half_spaces(x, model[-1].cluster_centers_, to))
    assert least is not None
    assert 0.99 * np.linalg.norm(least) <= bound <= np.linalg.norm(least)


LIMIT = re.compile(
    r"of size (\S+), does\. It changes only (\d+) features?; with (\d+) features, size (\S+) is enough:"
)


def test_a_change_of_few_features_names_what_all_of_them_need() -> None:
    """All sizes are computed again: the printed one from the lines, that of all by least distance."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(90, 9)) @ rng.normal(size=(9, 9))).add_prefix("x")
    model = make_pipeline(StandardScaler(), PCA(5), KMeans(3, n_init=1, random_state=0)).fit(frame)
    exp, n_limited = wc.explain(model, frame), 0
    for row in range(0, 90, 15):
        to = other(exp, row)
        found, x = exp.counterfactual(row, to), model[:2].transform(frame.iloc[[row]])[0]
        slopes, values = reference.half_spaces(x, model[-1].cluster_centers_, to)
        least = reference.least_change(slopes @ model[1].components_, values)
        assert least is not None
        for n_features in (2, 4, 9):
            text = found.describe(n_features)
            lines = [line for some in read_tables(text, "change") for line in some]
            before, after = (
                model[:1].transform(each)[0] for each in (frame.iloc[[row]], typed(frame, row, lines))
            )
            size, limit = np.linalg.norm(after - before), LIMIT.search(text)
            assert (limit is None) == (size <= 1.005 * np.linalg.norm(least))
            if limit is not None:
                n_limited += 1
                assert float(limit[1]) == pytest.approx(size, rel=6e-3)
                assert (int(limit[2]), int(limit[3])) == (len(lines), int(np.count_nonzero(least)))
                assert float(limit[4]) == pytest.approx(np.linalg.norm(least), rel=6e-3)
    assert n_limited > 6


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


def whole_tables() -> dict[str, Any]:
    """Return five tables of three to six columns of whole numbers, in four groups."""
    rng = np.random.default_rng(0)
    group = rng.integers(0, 4, 300)
    noise, means = rng.normal(size=(300, 6)), rng.normal(size=(4, 6))
    columns = {
        "grades": np.clip(np.round(noise + 2 + 1.2 * means[group]), 1, 5),
        "counts": rng.poisson(2 + 6 * rng.random((4, 4))[group]),
        "ages": np.round(40 + 10 * noise + 8 * means[group])[:, :3],
        "yes and no": rng.random((300, 6)) < rng.random((4, 6))[group],
        "units": np.round((noise + 1.5 * means[group])[:, :5] * [1, 2, 1, 3, 1]),
    }
    return {name: pd.DataFrame(values.astype(int)).add_prefix("x") for name, values in columns.items()}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["grades", "counts", "ages", "yes and no", "units"])
def test_no_change_by_whole_numbers_is_smaller(name: str) -> None:
    """All whole numbers that are as near are tried: settled one by one, they were up to 3.4 times as far."""
    frame = whole_tables()[name]
    model = make_pipeline(StandardScaler(), KMeans(4, n_init=3, random_state=0)).fit(frame)
    exp, scale = wc.explain(model, frame), model[0].scale_
    for row in range(0, 300, 30):
        to = other(exp, row)
        found = exp.counterfactual(row, to)
        assert all(float(value).is_integer() for value in [*found.after, *filter(None, found.single)])
        x = model[0].transform(frame.iloc[[row]])[0]
        slopes, values = reference.half_spaces(x, model[-1].cluster_centers_, to)
        least = reference.least_whole_change(slopes / scale, values, 1 / scale, found.distance)
        assert found.distance == pytest.approx(least, rel=1e-6)


@pytest.mark.parametrize("backend", ["pandas", "polars"])
def test_days_change_together_with_numbers(backend: str) -> None:
    """Dates without a time stay without one, in columns of days and of times at midnight."""
    frame = customers(200)[["spent", "since"]]
    frame["since"] = frame["since"].dt.normalize()
    if backend == "polars":
        pl = optional("polars")
        frame = pl.from_pandas(frame).with_columns(pl.col("since").cast(pl.Date))
    model = wc.tabular.pipeline(frame, 3)
    exp, n_days = wc.explain(model, frame), 0
    for row in range(0, 200, 20):
        found = exp.counterfactual(row, other(exp, row))
        assert not found.held
        assert float(found.change[1]).is_integer()
        n_days += bool(found.change[1])
    assert n_days > 5


def test_nothing_is_said_of_several_features_if_only_one_may_change() -> None:
    frame = customers(200)
    text = str(wc.explain(wc.tabular.pipeline(frame, 3), frame).counterfactual(0, within=["since"]))
    assert "One feature alone" in text
    assert "Several features" not in text


@pytest.mark.parametrize("n_wide", [2, 400])
def test_dates_beyond_the_calendar_are_not_given(n_wide: int) -> None:
    """In a wide table, one date alone would have to move by tens of thousands of years."""
    rng = np.random.default_rng(0)
    group = rng.integers(0, 2, 60)
    columns = {f"x{i}": rng.normal(size=60) + 9 * group for i in range(n_wide)}
    columns["when"] = pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 400, 60) + 9 * group, "D")
    frame = pd.DataFrame(columns)
    frame["when"] = frame["when"].astype("datetime64[us]")
    model = wc.tabular.pipeline(frame, 2)
    found = wc.explain(model, frame).counterfactual(0)
    date = found.single[-1]
    assert date is None if n_wide > 2 else 1 <= date.year <= 9999


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
        together = str(exp.counterfactual(row)).split("\n\n")[1].splitlines()[0]
        assert "change of the features that are not held fixed" in together


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
        lines = [line for lines in read_tables(str(exp.counterfactual(2, to)), "size") for line in lines]
        assert [line.value for line in lines if line.feature == "kind"] == ["missing"]


def test_values_that_no_model_can_compare_are_not_printed() -> None:
    """So far away, squares lose all digits of the difference between the clusters."""
    network = wc.neuralize(np.array([[0.0, 1.0, 1e-9], [0.0, -1.0, -1e-9]]))
    exp = network.explain(np.array([[0.0, 0.9, 0.0], [0.0, -0.9, 0.0]]))
    found = exp.counterfactual(0, within=["x2"])
    assert found.single[2] < -1e8
    assert "was found that moves it to cluster 1" in str(found)
