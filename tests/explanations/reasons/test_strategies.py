"""Groups of reasons: one where there is one, two where two were planted, and true sentences."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from sklearn.cluster import KMeans

import whycluster as wc
from tests.optional import optional
from tests.reference import unimodality as reference
from whycluster.data.opening import open_table
from whycluster.explanations.reasons.column_values import read_columns
from whycluster.explanations.reasons.strategies import typical
from whycluster.explanations.reasons.unimodality import dip, valley

if TYPE_CHECKING:
    import pandas as pd
else:
    pd = optional("pandas")


def nearest(X: Any, kind: Any) -> Any:
    """Return the explanation of a k-means with one cluster for each kind."""
    centers = np.array([X[kind == k].mean(axis=0) for k in range(kind.max() + 1)])
    model = KMeans(len(centers), init=centers, n_init=1, max_iter=1).fit(X)
    model.cluster_centers_ = centers
    return wc.explain(model, X)


def planted(seed: int = 0, n: int = 160, share: float = 0.5) -> tuple[Any, Any, Any]:
    """Return rows of three kinds, the kinds, and which of two reasons the rows of the first kind have."""
    rng = np.random.default_rng(seed)
    kind = np.repeat([0, 1, 2], n)
    X = rng.normal(size=(3 * n, 5))
    first = rng.random(n) < share
    X[:n, 0] += 7.0 * first
    X[:n, 1] += 7.0 * ~first
    X[n : 2 * n, 2] += 6.0
    X[2 * n :, 3] += 6.0
    X[n:, :2] -= 3.0
    return X, kind, first


class TestDip:
    @pytest.mark.parametrize("n", [5, 12, 20])
    def test_it_is_the_excess_of_mass(self, n: int) -> None:
        rng = np.random.default_rng(n)
        two = np.r_[rng.normal(size=n), rng.normal(5, 1, size=n)]
        for values in (rng.random(n), rng.normal(size=n), two):
            found, expected = dip(values) / np.sqrt(len(values)), reference.dip(values)
            assert expected - 1e-12 <= found <= 1.05 * expected

    def test_of_uniform_values_it_is_rarely_significant(self) -> None:
        rng = np.random.default_rng(0)
        assert np.mean([dip(rng.random(100)) > 0.65 for _ in range(300)]) <= 0.01

    def test_equal_values_have_one_peak(self) -> None:
        assert dip(np.full(50, 3.0)) == pytest.approx(0.5 / np.sqrt(50))

    def test_the_valley_is_between_the_peaks(self) -> None:
        rng = np.random.default_rng(0)
        values = np.r_[rng.normal(0, 1, size=300), rng.normal(9, 1, size=60)]
        place = valley(values)
        assert (values[:300] < place).mean() > 0.99
        assert (values[300:] > place).mean() > 0.98


class TestGroups:
    def test_two_planted_reasons_are_found(self) -> None:
        for seed, share in ((0, 0.5), (1, 0.8), (2, 0.3)):
            X, kind, first = planted(seed, share=share)
            exp = nearest(X, kind)
            found = exp.strategies()
            assert [len(each.groups) for each in found] == [2, 1, 1]
            rows = np.flatnonzero(exp.cluster == 0)
            rows = rows[rows < len(first)]
            truth, group = first[rows], found.group[rows]
            assert max(((group == 0) == truth).mean(), ((group == 1) == truth).mean()) > 0.98
            for each in found[0].groups:
                expected = exp.relevance[each.rows].mean(axis=0)
                assert each.share == pytest.approx(expected / np.abs(expected).sum())
                assert int(np.argmax(each.share)) == (0 if truth[np.searchsorted(rows, each.rows[0])] else 1)

    def test_three_planted_reasons_are_found(self) -> None:
        rng = np.random.default_rng(0)
        reason = rng.integers(3, size=300)
        X = np.r_[rng.normal(size=(300, 4)), rng.normal(size=(200, 4)) - 4.0]
        X[np.arange(300), reason] += 9.0
        found = nearest(X, np.repeat([0, 1], [300, 200])).strategies()
        assert [len(each.groups) for each in found] == [3, 1]
        for group in found[0].groups:
            assert np.bincount(reason[group.rows], minlength=3).max() >= 0.95 * group.size

    def test_homogeneous_clusters_have_one_group(self) -> None:
        counts = []
        for seed in range(6):
            rng = np.random.default_rng(seed)
            kind = np.repeat(np.arange(4), 100)
            X = 3.0 * rng.normal(size=(4, 6))[kind] + rng.gamma(2.0, 1.0, size=(400, 6))
            counts += [len(each.groups) for each in nearest(X, kind).strategies() if each.is_tested]
        assert set(counts) == {1}
        assert len(counts) >= 20

    def test_every_member_is_in_one_group(self) -> None:
        X, kind, _ = planted()
        exp = nearest(X, kind)
        found = exp.strategies()
        for each in found:
            rows = np.concatenate([group.rows for group in each.groups])
            assert np.array_equal(np.sort(rows), np.flatnonzero(exp.cluster == each.cluster))
            assert each.size == len(rows)
            for number, group in enumerate(each.groups):
                assert (found.group[group.rows] == number).all()
                assert set(group.examples) <= set(group.rows.tolist())
        assert found.to_frame()["share"].abs().sum() == pytest.approx(4.0)

    def test_rows_explained_for_another_cluster_are_in_no_group(self) -> None:
        X, _, _ = planted()
        model = KMeans(3, n_init=3, random_state=0).fit(X)
        exp = wc.explain(model, X, target=0)
        found = exp.strategies()
        assert len(found) == 1
        assert np.array_equal(found.group >= 0, exp.assigned == 0)

    def test_no_members(self) -> None:
        X, kind, _ = planted()
        exp = nearest(X, kind)
        other = wc.explain(exp.model, X[:50], target=1, background=X)
        other = other[np.flatnonzero(other.assigned != 1)]
        found = other.strategies()
        assert len(found) == 0
        assert found.to_frame().shape == (0, 5)
        assert str(found) == (
            "No row belongs to the cluster it is explained for, so there are no reasons to group."
        )

    def test_equal_rows(self) -> None:
        X = np.repeat([[0.0, 0.0], [5.0, 5.0]], 50, axis=0)
        found = nearest(X, np.repeat([0, 1], 50)).strategies()
        assert [len(each.groups) for each in found] == [1, 1]


def recorded(seed: int = 0) -> Any:
    """Return a frame in which half of one cluster is there because a value is missing."""
    rng = np.random.default_rng(seed)
    n = 200
    kind = np.repeat([0, 1], n)
    frame = pd.DataFrame({name: rng.normal(size=2 * n) for name in ("a", "b", "c")})
    lost = rng.random(n) < 0.5
    frame.loc[np.flatnonzero(lost), "a"] = np.nan
    frame.loc[np.flatnonzero(~lost), "b"] += 12.0
    return frame, kind


class TestCautions:
    def test_missing_values(self) -> None:
        frame, kind = recorded()
        exp = wc.explain(kind, frame)
        found = exp.strategies()
        assert len(found[0].groups) == 2
        (caution,) = found.cautions
        group = next(each for each in found[0].groups if each.cautions)
        number = found[0].groups.index(group) + 1
        inside = frame["a"].isna().to_numpy()[group.rows].mean()
        others = np.setdiff1d(np.concatenate([each.rows for each in found[0].groups]), group.rows)
        outside = frame["a"].isna().to_numpy()[others].mean()
        assert caution == (
            "missing values",
            f'Group {number} of cluster 0 rests on "a", which carries {group.share[0]:.0%} of its relevance '
            f"and is missing in {_percent(inside)} of its rows ({_percent(outside)} of the other rows of the "
            "cluster). These rows may be grouped by how they were recorded. Find out why the values are "
            "missing.",
            "a",
        )
        assert str(caution[1]) in " ".join(found.describe().split())

    def test_a_constant_that_may_stand_for_something_unknown(self) -> None:
        X, kind, first = planted()
        X[:160, 0] = np.where(first, 9.0, X[:160, 0])
        exp = nearest(X, kind)
        found = exp.strategies()
        (caution,) = found.cautions
        assert caution.kind == "constant"
        group = next(each for each in found[0].groups if each.cautions)
        number, share = found[0].groups.index(group) + 1, float(group.share[0])
        assert caution.text == (
            f'Group {number} of cluster 0 rests on "x0", which carries {share:.0%} of its relevance and is 9 '
            "in 100% of its rows (0% of the other rows of the cluster). A single value may stand for a "
            "default or for something unknown. Check what it means."
        )

    def test_an_identifier(self) -> None:
        rng = np.random.default_rng(0)
        n = 200
        late = np.arange(2 * n) >= n
        frame = pd.DataFrame(
            {"customer_id": np.where(late, 5000, 0) + np.arange(2 * n), "b": rng.normal(size=2 * n)}
        )
        frame["b"] += np.where(late, 0.0, 3500.0)
        extra = pd.DataFrame({"customer_id": -8000 + np.arange(n), "b": rng.normal(size=n) - 4000.0})
        frame = pd.concat([frame, extra], ignore_index=True)
        found = nearest(frame.to_numpy(dtype=float), np.repeat([0, 1], [2 * n, n]))
        exp = wc.explain(found.model, frame)
        cautions = exp.strategies().cautions
        assert {caution.kind for caution in cautions} == {"identifier"}
        assert "looks like an identifier" in cautions[0].text

    def test_none_where_nothing_is_odd(self) -> None:
        X, kind, _ = planted()
        assert nearest(X, kind).strategies().cautions == []


def _percent(part: float) -> str:
    return "over 99%" if 0.995 <= part < 1 else "under 1%" if 0 < part < 0.005 else f"{part:.0%}"


class TestText:
    def test_means_and_shares(self) -> None:
        X, kind, _ = planted()
        exp = nearest(X, kind)
        found = exp.strategies()
        text = found.describe(2)
        assert text.startswith(
            "Cluster 0 has 2 groups of reasons. No separate groups of reasons were found in clusters 1 and 2."
        )
        lines = [line.split() for line in text.splitlines() if re.search(r" x\d ", line)]
        assert len(lines) == 4
        rows = np.concatenate([group.rows for group in found[0].groups])
        for number, group in enumerate(found[0].groups):
            order = np.argsort(-np.abs(group.share))[:2]
            others = np.setdiff1d(rows, group.rows)
            for place, column in enumerate(order):
                line = lines[2 * number + place]
                at = line.index(f"x{column}")
                assert line[at + 1] == f"{group.share[column]:.0%}"
                means = [X[part, column].mean() for part in (group.rows, others)]
                shown = [each for each in line[at + 2 :] if not set(each) <= set("+-")][:2]
                assert [float(each) for each in shown] == pytest.approx(means, rel=5e-3, abs=1e-3)

    def test_other_kinds_of_columns(self) -> None:
        rng = np.random.default_rng(0)
        days = pd.to_timedelta(rng.integers(400, size=100), unit="D")
        frame = pd.DataFrame(
            {
                "city": rng.choice(["Oslo", "Rome", "Bonn"], size=100, p=[0.5, 0.3, 0.2]),
                "open": rng.random(100) < 0.3,
                "since": pd.Timestamp("2020-01-01") + days,
                "lost": np.where(rng.random(100) < 0.7, np.nan, 1.5),
            }
        )
        inside = rng.random(100) < 0.4
        table = open_table(frame, where="f", any_kind=True)
        city, is_open, since, lost = (typical(each, inside) for each in read_columns(table, range(4)))
        here, there = frame[inside], frame[~inside]
        name = here["city"].mode()[0]
        shares = [_percent((each["city"] == name).mean()) for each in (here, there)]
        assert city == (f"{name} ({shares[0]})", shares[1])
        assert is_open == (f"true ({_percent(here['open'].mean())})", _percent(there["open"].mean()))
        assert since == tuple(str(each["since"].mean().round("D").date()) for each in (here, there))
        shares = [_percent(each["lost"].isna().mean()) for each in (here, there)]
        assert lost == (f"missing ({shares[0]})", shares[1])

    def test_few_rows_are_not_tested(self) -> None:
        X = np.r_[
            np.random.default_rng(0).normal(size=(30, 2)), np.random.default_rng(1).normal(9, size=(50, 2))
        ]
        found = nearest(X, np.repeat([0, 1], [30, 50])).strategies()
        assert " ".join(str(found).split()) == (
            "No separate groups of reasons were found in cluster 1. Not tested, because there are fewer than "
            "40 rows: cluster 0."
        )

    def test_an_unknown_cluster(self) -> None:
        X, kind, _ = planted()
        with pytest.raises(wc.InvalidInputError) as caught:
            nearest(X, kind).strategies()[9]
        assert (
            str(caught.value) == "strategies: cluster must be one of the model's 3 clusters, 0, 1, 2; got 9."
        )

    def test_changed_data(self) -> None:
        X, kind, _ = planted()
        exp = nearest(X, kind)
        X += 1.0
        with pytest.raises(
            wc.InvalidInputError, match=r"^strategies: the data have been changed since they were "
        ):
            exp.strategies()
