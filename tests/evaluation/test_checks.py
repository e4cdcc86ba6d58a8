"""Sanity checks: each passes when it should, and each can fail."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.cluster import BisectingKMeans, KMeans
from sklearn.mixture import GaussianMixture
from sklearn.neighbors import NearestCentroid

import whycluster as wc
from tests.optional import optional
from whycluster.core import attribution, outputs
from whycluster.core.attribution import CodedQuery
from whycluster.core.energies import SquaredEnergy
from whycluster.data.table import ArrayTable
from whycluster.evaluation import METHODS, checks
from whycluster.evaluation.checks import _half_mirrored
from whycluster.evaluation.subject import Subject
from whycluster.models.network import TableNetwork

if TYPE_CHECKING:
    import pandas as pd
    from kmodes.kmodes import KModes
else:
    pd = optional("pandas")
    KModes = optional("kmodes.kmodes:KModes")

Array = NDArray[Any]


@pytest.fixture(scope="module")
def three(wine: Array) -> Any:
    """Three clear clusters of wines."""
    return KMeans(3, n_init=10, random_state=0).fit(wine)


@pytest.mark.parametrize("options", [{}, {"rule": "min-take-most"}], ids=["default", "min-take-most"])
def test_k_means_passes_all_checks(options: dict[str, Any], wine: Array, three: Any) -> None:
    found = checks.run(three, wine, **options)
    assert found.hold, str(found)
    assert [check.name for check in found.checks] == [
        "conservation",
        "continuity",
        "randomization",
        "stability",
    ]
    printed = str(found)
    assert printed.count("holds") == 4
    assert printed.startswith(f"rule {options.get('rule', 'path')!r}")
    assert "> 0.7" in printed
    assert "< 0.5" in printed
    assert str(found.checks[0]).startswith("conservation: holds")


@pytest.mark.slow
def test_conservation_applies_if_all_evidence_belongs_to_features(wine: Array) -> None:
    for model in (
        GaussianMixture(3, covariance_type="diag", random_state=0).fit(wine),
        GaussianMixture(3, reg_covar=0.1, random_state=0).fit(wine),
        wc.KernelKMeans(3, random_state=0).fit(wine),
        wc.Surrogate().fit(wine, KMeans(3, n_init=1, random_state=0).fit_predict(wine)),
    ):
        assert np.abs(wc.explain(model, wine).residual).max() > 1e-6
        with pytest.raises(
            wc.InvalidInputError, match="part of this model's evidence belongs to no single feature"
        ):
            checks.conservation(model, wine)
        found = checks.run(model, wine)
        assert "conservation" in found.left_out
        assert "left out: conservation" in str(found)
    for model in (BisectingKMeans(4, random_state=0).fit(wine), wc.neuralize(wine[:4], metric="manhattan")):
        assert checks.conservation(model, wine).holds


def test_conservation_can_fail(wine: Array, three: Any) -> None:
    class Leaking(SquaredEnergy):
        def combine(self, x: Array, weights: Array, out: Array, scratch: Array) -> None:
            super().combine(x, weights, out, scratch)
            out[:, 0] *= 0.9

    found = checks.conservation(TableNetwork(Leaking(three.cluster_centers_)), wine)
    assert not found.holds
    assert "FAILS" in str(found)


def test_models_that_need_more_than_rows_are_not_refitted(wine: Array, three: Any) -> None:
    """Nor are models that start from one value per row, which would belong to other rows."""
    supervised = NearestCentroid().fit(wine, three.labels_)
    started = wc.KernelKMeans(3, init=three.labels_, random_state=0).fit(wine)
    surrogate = wc.Surrogate().fit(wine, three.labels_)
    for model, told in (
        (supervised, "also needs y"),
        (started, "also needs init"),
        (surrogate, "also needs"),
    ):
        with pytest.raises(wc.InvalidInputError, match=told):
            checks.stability(model, wine)
        assert "stability" in checks.run(model, wine).left_out


def test_mirroring_matters() -> None:
    """If all features are equal, a shuffle alone changes nothing."""
    rng = np.random.default_rng(0)
    X = np.tile(np.repeat([-3.0, 0.0, 3.0], 30)[:, None], (1, 6)) + rng.normal(scale=0.2, size=(90, 6))
    X *= np.linspace(1, 2, 6)
    model = KMeans(3, n_init=3, random_state=0).fit(X)
    assert checks.randomization(model, X).value < 0.6
    assert (_half_mirrored(6, rng) == 1).sum() == 3


def test_the_nearest_competitor_alone_is_not_continuous(wine: Array, kmeans: Any) -> None:
    """When the second nearest competitor becomes the nearest, the relevance jumps to its features."""
    assert checks.continuity(kmeans, wine).holds
    assert checks.continuity(kmeans, wine, rule="joint").holds
    jumps = checks.continuity(kmeans, wine, rule="contrast")
    assert not jumps.holds
    assert jumps.value > 0.1


def test_methods_that_ignore_the_model_fail(wine: Array, three: Any) -> None:
    assert checks.randomization(three, wine).holds
    assert checks.randomization(three, wine, method="shapley", shuffles=2).holds
    same = checks.randomization(three, wine, method="squared features")
    assert not same.holds
    assert same.value == pytest.approx(1.0)
    mine = checks.randomization(three, wine, method=METHODS["neon"])
    assert mine == checks.randomization(three, wine)


def test_units_do_not_hide_the_model(wine: Array) -> None:
    scale = 10.0 ** np.linspace(-3, 3, 13)
    model = KMeans(3, n_init=3, random_state=0).fit(wine * scale)
    found = checks.randomization(model, wine * scale, method="squared features")
    assert found.value == pytest.approx(1.0)


def test_a_shuffled_k_means_is_k_means_with_shuffled_centroids(wine: Array, three: Any) -> None:
    """This also holds for energies that shift their rows by an offset."""
    order, factor, shift = np.roll(np.arange(13), 1), np.linspace(-2, 2.5, 13), np.linspace(0, 1, 13)
    for move in (0.0, 1e6):
        subject = Subject(three.cluster_centers_ + move, wine, "test").shuffled(order, factor, shift + move)
        assert subject.network is not None
        centers = np.empty_like(three.cluster_centers_)
        centers[:, order] = (three.cluster_centers_ - shift) / factor
        scale = np.empty(13)
        scale[order] = factor**2
        energy = SquaredEnergy(centers, scale)
        assert np.array_equal(subject.cluster, outputs.assign(energy, ArrayTable.of(wine)))
        found = attribution.attribute(subject.network.energy, ArrayTable.of(wine), CodedQuery(rule="joint"))
        slow = attribution.attribute(energy, ArrayTable.of(wine), CodedQuery(rule="joint"))
        assert found.relevance == pytest.approx(slow.relevance, rel=1e-6, abs=1e-6)
        gradient, expected = (
            outputs.slopes(each, ArrayTable.of(wine), CodedQuery())[1]
            for each in (subject.network.energy, energy)
        )
        assert gradient == pytest.approx(expected, rel=1e-6, abs=1e-6)


def test_a_shuffled_function_gets_shuffled_rows(wine: Array, three: Any) -> None:
    by_model = checks.randomization(three, wine, method="pda-zero", shuffles=2)
    assert checks.randomization(three.predict, wine, method="pda-zero", shuffles=2) == by_model


def test_clusters_of_pure_noise_are_not_stable(wine: Array, three: Any) -> None:
    assert checks.stability(three, wine, refits=5).value > 0.8
    noise = np.random.default_rng(0).normal(size=(200, 10))
    found = checks.stability(KMeans(8, n_init=1, random_state=None).fit(noise), noise, refits=5)
    assert not found.holds
    assert found.value < 0.5
    assert "too many clusters, or the data may have no clusters" in found.meaning


def test_stability_does_not_change_the_model(wine: Array, three: Any) -> None:
    before = three.cluster_centers_.copy()
    checks.stability(three, wine, refits=2)
    assert np.array_equal(three.cluster_centers_, before)


def test_centroids_are_checked_but_not_refitted(wine: Array, three: Any) -> None:
    found = checks.run(three.cluster_centers_, wine)
    assert [check.name for check in found.checks] == ["conservation", "continuity", "randomization"]
    assert "stability" in found.left_out
    with pytest.raises(wc.InvalidInputError, match="an estimator that can be refitted; got ndarray"):
        checks.stability(three.cluster_centers_, wine)


def test_bad_input(wine: Array, three: Any) -> None:
    with pytest.raises(wc.InvalidInputError, match=r"rule must be one of .*; got 'most'"):
        checks.conservation(three, wine, rule="most")
    with pytest.raises(
        wc.InvalidInputError, match="model must be one that `neuralize` accepts; got a function"
    ):
        checks.conservation(three.predict, wine)
    with pytest.raises(wc.InvalidInputError, match=r"methods must be among .*; got 'magic'"):
        checks.randomization(three, wine, method="magic")
    with pytest.raises(wc.InvalidInputError, match="at least 2 features"):
        checks.randomization([[0.0], [1.0]], [[0.1], [0.9]])
    with pytest.raises(wc.InvalidInputError, match="shuffles must be an integer of at least 1; got 0"):
        checks.randomization(three, wine, shuffles=0)
    with pytest.raises(wc.InvalidInputError, match="refits must be an integer"):
        checks.stability(three, wine, refits=0)
    with pytest.raises(wc.InvalidInputError, match="two rows of the same cluster"):
        checks.continuity([[0.0, 0.0], [1.0, 1.0]], [[0.1, 0.0], [0.9, 1.0]])


def test_categories_cannot_be_mirrored() -> None:
    frame = pd.DataFrame({"a": list("xyxyxy"), "b": list("uuvvuv")})
    model = KModes(2, n_init=1, random_state=0).fit(frame)
    assert checks.conservation(model, frame).holds
    with pytest.raises(wc.InvalidInputError, match="only numeric columns for this check; 'a' is categorical"):
        checks.randomization(model, frame)
    found = checks.run(model, frame)
    assert found.checks[0].name == "conservation"
    assert {"randomization", "stability"} <= set(found.left_out)
