"""Accounts of moves: they agree with a slow transcription, and they add up for every model."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from sklearn.cluster import BisectingKMeans, KMeans
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_wine
from sklearn.decomposition import PCA
from sklearn.impute import SimpleImputer
from sklearn.mixture import GaussianMixture
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import whycluster as wc
from tests.contracts.test_models import JUMPING, MODELS, WITH_RESIDUAL
from tests.optional import optional
from tests.properties import test_rules_of_labels as rules
from tests.reference import changes as slow
from tests.reference import models
from tests.segments.changes.months import customers, kept, next_month
from whycluster.segments.changes.accounts import Accounts
from whycluster.segments.changes.matching import NONE

if TYPE_CHECKING:
    import pandas as pd
else:
    pd = optional("pandas")

COLUMNS = ["one", "two", "three"]


def months(n: int = 150, scale: float = 1.5) -> tuple[Any, Any]:
    """Two months in which many rows move, with ids."""
    rng = np.random.default_rng(4)
    x = rng.normal(size=(n, 3)) + 3 * rng.integers(0, 3, (n, 1)) * np.array([1.0, -1.0, 0.5])
    before = pd.DataFrame(x, columns=COLUMNS)
    after = before + rng.normal(scale=scale, size=x.shape)
    return before.assign(id=np.arange(n)), after.assign(id=np.arange(n))


def moved(changes: wc.Changes) -> tuple[Accounts, Any, Any, Any]:
    """Return the accounts, the positions of the rows, and the codes of their clusters."""
    record = changes.record
    assert (record.moves.place != NONE).all()
    rows = record.moves.rows
    at = record.pairing.before[rows], record.pairing.after[rows]
    return record.moves.accounts, at, record.before[at[0]], record.after[at[1]]


def squares(centers: Any) -> models.Split:
    def split(x: Any, k: int) -> tuple[float, Any]:
        parts = (x - centers[k]) ** 2
        return float(parts.sum()), parts

    return split


def _mixture(kind: str, X: Any) -> GaussianMixture:
    return GaussianMixture(3, covariance_type=kind, random_state=0).fit(X)


CENTERS = np.array([[0.0, 0.2, 1.0], [3.0, -3.0, 2.0], [6.0, -6.0, 3.0]])
REFERENCES: dict[str, tuple[Callable[[Any], Any], Callable[[Any, int], models.Split]]] = {
    "k-means": (
        lambda X: KMeans(4, n_init=1, random_state=0).fit(X),
        lambda model, _: squares(model.cluster_centers_),
    ),
    "full mixture": (
        lambda X: _mixture("full", X),
        lambda model, _: models.gaussian(model.weights_, model.means_, model.covariances_),
    ),
    "diagonal mixture": (
        lambda X: _mixture("diag", X),
        lambda model, _: models.diagonal(model.weights_, model.means_, model.covariances_),
    ),
    "kernel k-means": (
        lambda X: wc.KernelKMeans(3, n_support=4, random_state=0).fit(X.to_numpy()),
        lambda model, _: slow.kernel(model.support_vectors_, model.support_cluster_, model.gamma_),
    ),
    "manhattan": (lambda _: wc.neuralize(CENTERS, metric="manhattan"), lambda *_: models.manhattan(CENTERS)),
    "cosine": (lambda _: wc.neuralize(CENTERS, metric="cosine"), lambda *_: models.cosine(CENTERS)),
    "dot": (lambda _: wc.neuralize(CENTERS, metric="dot"), lambda *_: models.dot(CENTERS)),
    "student": (
        lambda _: wc.neuralize(CENTERS, metric="student"),
        lambda _, b: models.student(CENTERS, 1.0, b),
    ),
}


def on_a_line(x0: Any, x1: Any, split: models.Split, a: int, b: int) -> Any:
    return slow.along_the_line(x0, x1, lambda x: slow.gap(x, split, a, b)[0])


def leaving_on_a_line(x0: Any, x1: Any, split: models.Split, n_clusters: int, a: int) -> Any:
    return slow.along_the_line(x0, x1, lambda x: slow.leaving(x, split, n_clusters, a)[0])


ON_A_LINE = ("full mixture", "kernel k-means", "cosine", "student")
"""The models in which the part of a column depends on other columns."""


@pytest.mark.parametrize("kind", REFERENCES)
def test_accounts_are_those_of_the_reference(kind: str) -> None:
    make, reference = REFERENCES[kind]
    before, after = months()
    model = make(before[COLUMNS])
    found, at, source, target = moved(
        wc.changes(kept(model, before[COLUMNS]), before, after.iloc[::-1], on="id")
    )
    assert len(source) > 10
    x0, x1 = before[COLUMNS].to_numpy(), after[COLUMNS].iloc[::-1].to_numpy()
    for row, (i, j, a, b) in enumerate(zip(*at, source, target, strict=True)):
        split, precision = reference(model, b), 1e-9
        g0, g1, expected = slow.account(x0[i], x1[j], split, a, b)
        if kind in ON_A_LINE:
            precision = 1e-6
            expected = on_a_line(x0[i], x1[j], split, a, b)
        assert g0 <= 0 <= g1
        size = 1 + abs(g0) + abs(g1)
        assert abs(found.before[row] - g0) <= 1e-9 * size
        assert abs(found.after[row] - g1) <= 1e-9 * size
        np.testing.assert_allclose(found.contributions[row], expected, rtol=precision, atol=precision * size)
    assert np.abs(found.residual / found.change).max() <= 1e-9 or kind == "diagonal mixture"


@pytest.mark.parametrize("kind", REFERENCES)
def test_unchanged_columns_contribute_nothing(kind: str) -> None:
    make, _ = REFERENCES[kind]
    before, after = months(scale=3.0)
    after["three"] = before["three"]
    found, *_ = moved(wc.changes(kept(make(before[COLUMNS]), before[COLUMNS]), before, after, on="id"))
    assert len(found.change) > 10
    assert (found.contributions[:, 2] == 0.0).all()
    assert (found.contributions[:, :2] != 0.0).any(axis=1).all()


def test_a_tree_is_left_where_the_two_paths_part() -> None:
    before, after = months()
    model = BisectingKMeans(5, random_state=0).fit(before[COLUMNS])
    seg = kept(model, before[COLUMNS])
    found, at, source, target = moved(wc.changes(seg, before, after, on="id"))
    energy: Any = seg.network.energy
    tree, centers = energy.contest, energy.nodes.prototypes
    for row, (i, a, b) in enumerate(zip(at[0], source, target, strict=True)):
        (turn,) = [turn for turn in tree.paths[b] if a in tree.under[turn.sibling]]
        nodes = squares(centers)
        g0, g1, expected = slow.account(
            before[COLUMNS].to_numpy()[i], after[COLUMNS].to_numpy()[i], nodes, turn.sibling, turn.own
        )
        assert g0 <= 0 <= g1
        np.testing.assert_allclose(found.contributions[row], expected, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose([found.before[row], found.after[row]], [g0, g1], rtol=1e-9, atol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("kind", MODELS)
def test_every_model_adds_up(kind: str) -> None:
    X, y = load_wine(return_X_y=True)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    seg = kept(MODELS[kind](X, y), X)
    found, *_ = moved(wc.changes(seg, *moves_of(X, seg.feature_names), on="id"))
    assert len(found.change) > 5
    assert (found.before <= 0).all()
    assert (found.after >= 0).all()
    size = np.abs(found.before).max() + np.abs(found.after).max()
    np.testing.assert_allclose(found.contributions.sum(axis=1) + found.residual, found.change, atol=1e-9)
    if not kind.startswith((*WITH_RESIDUAL, *JUMPING)):
        assert np.abs(found.residual).max() <= 1e-9 * size


def moves_of(X: Any, names: Any) -> tuple[Any, Any]:
    """Return rows with ids, and the same rows after random moves."""
    before = pd.DataFrame(X, columns=list(names)).assign(id=range(len(X)))
    return before, before + np.random.default_rng(0).normal(size=(len(X), X.shape[1] + 1)) * [
        *[1.0] * X.shape[1],
        0.0,
    ]


CONTINUOUS = ("DBSCAN", "HDBSCAN", "spectral, rbf")
"""The rules of labels whose evidence does not jump, except at the rows that they were fitted on."""


@pytest.mark.parametrize("is_new", [False, True], ids=["training rows", "new rows"])
@pytest.mark.parametrize("kind", CONTINUOUS)
def test_rules_of_labels_add_up_for_new_rows(kind: str, is_new: bool) -> None:
    """A training row does not count as its own neighbor; this jump belongs to no column."""
    seg = kept(rules.NETWORKS[kind]()[0], rules.WINE)
    X = rules.WINE[::18] + 0.05 * is_new * np.random.default_rng(9).normal(size=(10, 13))
    found, *_ = moved(wc.changes(seg, *moves_of(X, seg.feature_names), on="id"))
    size = np.abs(found.before).max() + np.abs(found.after).max()
    assert (np.abs(found.residual).max() <= 1e-9 * size) == is_new


def test_columns_of_a_pipeline_add_up_their_features() -> None:
    """One-hot columns, missing indicators and scaled columns are added up by their source column."""
    before = customers()
    after = next_month(before)
    numbers, columns = ["age", "spend", "visits"], ["age", "spend", "visits", "city"]
    front = make_column_transformer(
        (make_pipeline(SimpleImputer(add_indicator=True), StandardScaler()), numbers),
        (OneHotEncoder(sparse_output=False), ["city"]),
    )
    pipe = make_pipeline(front, KMeans(4, n_init=2, random_state=0)).fit(before[columns])
    changes = wc.changes(kept(pipe, before[columns]), before, after, on="CustomerID")
    found, at, source, target = moved(changes)
    z0, z1 = pipe[0].transform(before[columns]), pipe[0].transform(after[columns])
    owner = [0, 1, 2, 1, 3, 3, 3]  # the indicator of spend follows the three numbers
    assert z0.shape[1] == len(owner)
    assert len(source) > 10
    for row, (i, j, a, b) in enumerate(zip(*at, source, target, strict=True)):
        g0, g1, each = slow.account(z0[i], z1[j], squares(pipe[-1].cluster_centers_), a, b)
        expected = [sum(e for e, o in zip(each, owner, strict=True) if o == c) for c in range(4)]
        np.testing.assert_allclose(found.contributions[row], expected, atol=1e-9)
        np.testing.assert_allclose([found.before[row], found.after[row]], [g0, g1], atol=1e-9)
    assert np.abs(found.residual).max() <= 1e-9


@pytest.mark.parametrize("last", [KMeans(4, n_init=2, random_state=0), GaussianMixture(3, random_state=0)])
def test_principal_components_are_accounted_for_in_the_columns(last: Any) -> None:
    before, after = months()
    pipe = make_pipeline(StandardScaler(), PCA(2), last).fit(before[COLUMNS])
    found, at, source, target = moved(wc.changes(kept(pipe, before[COLUMNS]), before, after, on="id"))
    np.testing.assert_allclose(found.contributions.sum(axis=1) + found.residual, found.change, atol=1e-9)
    if isinstance(last, KMeans):  # linear: the weights 2 A^T (mu_b - mu_a), times the change of each column
        assert np.abs(found.residual).max() <= 1e-9
        scaled = (after - before)[COLUMNS].to_numpy()[at[0]] / pipe[0].scale_
        centers = pipe[-1].cluster_centers_
        weights = 2 * (centers[target] - centers[source]) @ pipe[1].components_
        np.testing.assert_allclose(found.contributions, weights * scaled, atol=1e-9)


def test_single_precision_adds_up_too() -> None:
    before, after = (month.astype(dict.fromkeys(COLUMNS, "float32")) for month in months())
    model = KMeans(4, n_init=1, random_state=0).fit(before[COLUMNS])
    found, *_ = moved(wc.changes(kept(model, before[COLUMNS]), before, after, on="id"))
    assert found.contributions.dtype == np.float64
    assert np.abs(found.residual).max() <= 1e-9


@pytest.mark.parametrize(
    "make", [lambda: KMeans(3, n_init=3, random_state=0), lambda: GaussianMixture(3, random_state=0)]
)
def test_data_and_model_are_two_players(make: Any) -> None:
    before, after = months(scale=1.2)
    after[COLUMNS] += [0.5, 0.0, 0.0]
    old, new = make().fit(before[COLUMNS]), make().fit(after[COLUMNS])
    segs = [kept(model, month[COLUMNS]) for model, month in ((old, before), (new, after))]
    changes = wc.changes(segs[0], segs[1], before, after, on="id")
    matches = changes.record.matches
    assert matches.is_shared.all()
    found, at, source, target = moved(changes)
    assert len(source) > 5
    if isinstance(old, KMeans):
        splits = squares(old.cluster_centers_), squares(new.cluster_centers_)
    else:
        splits = tuple(models.gaussian(m.weights_, m.means_, m.covariances_) for m in (old, new))  # type: ignore[assignment]
    x0, x1 = before[COLUMNS].to_numpy(), after[COLUMNS].to_numpy()
    for row, (i, a, b) in enumerate(zip(at[0], source, target, strict=True)):
        pairs = [(int(codes[a]), int(codes[b])) for codes in (matches.old, matches.new)]
        expected = slow.account_of_both(x0[i], x1[i], splits, *zip(*pairs, strict=True))
        if not isinstance(old, KMeans):
            expected["data"][:-1] = np.mean(
                [on_a_line(x0[i], x1[i], splits[new], *pairs[new]) for new in (0, 1)], axis=0
            )
        for name in ("data", "model"):
            part = getattr(found, name)
            np.testing.assert_allclose(
                [*part.split[row], part.evidence[row]], expected[name], rtol=1e-6, atol=1e-6
            )
    np.testing.assert_allclose(found.data.evidence + found.model.evidence, found.change, atol=1e-9)
    np.testing.assert_allclose(found.contributions.sum(axis=1) + found.residual, found.change, atol=1e-9)


def test_a_cluster_of_only_one_segmentation_is_left_or_entered() -> None:
    """The evidence is that for leaving the old cluster, or that for the new one."""
    before, after = months(scale=0.6)
    few, many = (KMeans(k, n_init=3, random_state=0).fit(before[COLUMNS]) for k in (2, 4))
    for old, new in ((few, many), (many, few)):
        segs = [kept(model, before[COLUMNS]) for model in (old, new)]
        record = wc.changes(segs[0], segs[1], before, after, on="id").record
        moves, matches = record.moves, record.matches
        splits = squares(old.cluster_centers_), squares(new.cluster_centers_)
        at = record.pairing.before[moves.rows]
        lacks = 0
        for move, i in enumerate(at.tolist()):
            a, b = int(record.before[i]), int(record.after[record.pairing.after[moves.rows[move]]])
            no_source, no_target = matches.new[a] == NONE, matches.old[b] == NONE
            if no_source and no_target:
                assert moves.place[move] == NONE
            if no_source == no_target:
                continue
            lacks += 1
            worth, lines = {}, []
            for is_new in (False, True):
                for name, month in (("old", before), ("new", after)):
                    x = month[COLUMNS].to_numpy()[i]
                    code = int((matches.new if is_new else matches.old)[a if no_target else b])
                    n_clusters = (new if is_new else old).n_clusters
                    g, e = slow.leaving(x, splits[is_new], n_clusters, code)
                    sign = 1 if no_target else -1
                    key = frozenset(["model"] * is_new + ["data"] * (name == "new"))
                    worth[key] = sign * np.append(e, g)
                x0, x1 = (month[COLUMNS].to_numpy()[i] for month in (before, after))
                lines.append(leaving_on_a_line(x0, x1, splits[is_new], n_clusters, code))
            expected = slow.shapley_of_two(worth, ("data", "model"))
            expected["data"][:-1] = sign * np.mean(
                lines, axis=0
            )  # the strongest competitor changes on the line
            place = moves.place[move]
            for part in ("data", "model"):
                found = getattr(moves.accounts, part)
                np.testing.assert_allclose(
                    [*found.split[place], found.evidence[place]], expected[part], rtol=1e-6, atol=1e-6
                )
            assert moves.accounts.before[place] <= 0 <= moves.accounts.after[place]
        assert lacks > 5


def test_columns_of_only_one_segmentation_count_for_the_model() -> None:
    before, after = months(scale=0.6)
    old = KMeans(3, n_init=3, random_state=0).fit(before[COLUMNS[:2]])
    new = KMeans(3, n_init=3, random_state=0).fit(after[COLUMNS])
    changes = wc.changes(kept(old, before[COLUMNS[:2]]), kept(new, after[COLUMNS]), before, after, on="id")
    found, *_ = moved(changes)
    assert changes.record.moves.columns == COLUMNS
    assert np.abs(found.contributions[:, 2]).max() > 0
    assert np.abs(found.residual).max() <= 1e-9
    np.testing.assert_allclose(found.data.evidence + found.model.evidence, found.change, atol=1e-9)


def test_models_of_different_kinds_are_compared_in_units_of_their_mean_evidence() -> None:
    before, after = months(scale=0.6)
    segs = [
        kept(KMeans(3, n_init=3, random_state=0).fit(before[COLUMNS]), before[COLUMNS]),
        kept(GaussianMixture(3, random_state=0).fit(before[COLUMNS]), before[COLUMNS]),
    ]
    changes = wc.changes(segs[0], segs[1], before, after, on="id")
    found, at, source, target = moved(changes)
    means = [seg.explain(before[COLUMNS]).evidence.mean() for seg in segs]
    for row, (i, a, b) in enumerate(zip(at[0], source, target, strict=True)):
        labels = segs[0].labels[[a, b]]
        first = segs[0].explain(before[COLUMNS].iloc[[i]], target=labels[1], against=labels[0])
        assert found.before[row] == pytest.approx(first.evidence[0] / means[0], rel=1e-9)
    assert (
        "The two segmentations measure evidence in different units, so the evidence of each is divided"
        in changes.summary()
    )
    np.testing.assert_allclose(found.data.evidence + found.model.evidence, found.change, atol=1e-9)
