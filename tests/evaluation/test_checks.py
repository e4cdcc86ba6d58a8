"""The sanity checks: each holds where it should, and each can fail."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
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
    from kmodes.kmodes import KModes
else:
    KModes = optional("kmodes.kmodes:KModes")

Array = NDArray[Any]


@pytest.fixture(scope="module")
def three(wine: Array) -> Any:
    """Three clusters of wines, which everybody finds."""
    return KMeans(3, n_init=10, random_state=0).fit(wine)


def test_k_means_passes_all(wine: Array, three: Any) -> None:
    found = checks.run(three, wine)
    assert found.hold, str(found)
    assert [check.name for check in found.checks] == [
        "conservation",
        "continuity",
        "randomisation",
        "stability",
    ]
    printed = str(found)
    assert printed.count("holds") == 4
    assert printed.startswith("rule 'min-take-most'")
    assert "> 0.7" in printed
    assert "< 0.5" in printed
    assert str(found.checks[0]).startswith("conservation: holds")


def test_conservation_applies_where_every_energy_is_its_features(wine: Array) -> None:
    for model in (
        GaussianMixture(3, covariance_type="diag", random_state=0).fit(wine),
        GaussianMixture(3, reg_covar=0.1, random_state=0).fit(wine),
        wc.KernelKMeans(3, random_state=0).fit(wine),
        wc.Surrogate().fit(wine, KMeans(3, n_init=1, random_state=0).fit_predict(wine)),
    ):
        assert np.abs(wc.explain(model, wine).residual).max() > 1e-6
        with pytest.raises(wc.InvalidInputError, match="a part of the evidence is due to no feature"):
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


def test_what_needs_more_than_rows_is_not_fitted_again(wine: Array, three: Any) -> None:
    """Nor is what starts from something for each row: it would be that of other rows."""
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
    """Of features that all say the same, shuffling alone would change nothing."""
    rng = np.random.default_rng(0)
    X = np.tile(np.repeat([-3.0, 0.0, 3.0], 30)[:, None], (1, 6)) + rng.normal(scale=0.2, size=(90, 6))
    X *= np.linspace(1, 2, 6)
    model = KMeans(3, n_init=3, random_state=0).fit(X)
    assert checks.randomisation(model, X).value < 0.6
    assert (_half_mirrored(6, rng) == 1).sum() == 3


def test_the_nearest_competitor_alone_is_not_continuous(wine: Array, kmeans: Any) -> None:
    """Where the second nearest becomes the nearest, its features take over at once."""
    assert checks.continuity(kmeans, wine).holds
    assert checks.continuity(kmeans, wine, rule="joint").holds
    jumps = checks.continuity(kmeans, wine, rule="contrast")
    assert not jumps.holds
    assert jumps.value > 0.1


def test_what_does_not_look_at_the_model_is_found_out(wine: Array, three: Any) -> None:
    assert checks.randomisation(three, wine).holds
    assert checks.randomisation(three, wine, method="shapley", shuffles=2).holds
    same = checks.randomisation(three, wine, method="squared features")
    assert not same.holds
    assert same.value == pytest.approx(1.0)
    mine = checks.randomisation(three, wine, method=METHODS["neon"])
    assert mine == checks.randomisation(three, wine)


def test_units_do_not_hide_what_the_model_does(wine: Array) -> None:
    scale = 10.0 ** np.linspace(-3, 3, 13)
    model = KMeans(3, n_init=3, random_state=0).fit(wine * scale)
    found = checks.randomisation(model, wine * scale, method="squared features")
    assert found.value == pytest.approx(1.0)


def test_a_shuffled_k_means_is_k_means_with_shuffled_centroids(wine: Array, three: Any) -> None:
    """Also where the energies move their rows by an offset of their own."""
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
        gradient = outputs.gradient(subject.network.energy, ArrayTable.of(wine))
        assert gradient == pytest.approx(outputs.gradient(energy, ArrayTable.of(wine)), rel=1e-6, abs=1e-6)


def test_a_shuffled_function_sees_moved_rows(wine: Array, three: Any) -> None:
    by_model = checks.randomisation(three, wine, method="pda-zero", shuffles=2)
    assert checks.randomisation(three.predict, wine, method="pda-zero", shuffles=2) == by_model


def test_clusters_of_pure_noise_are_not_stable(wine: Array, three: Any) -> None:
    assert checks.stability(three, wine, refits=5).value > 0.8
    noise = np.random.default_rng(0).normal(size=(200, 10))
    found = checks.stability(KMeans(8, n_init=1, random_state=None).fit(noise), noise, refits=5)
    assert not found.holds
    assert found.value < 0.5
    assert "too many clusters, or none" in found.meaning


def test_stability_leaves_the_model_as_it_was(wine: Array, three: Any) -> None:
    before = three.cluster_centers_.copy()
    checks.stability(three, wine, refits=2)
    assert np.array_equal(three.cluster_centers_, before)


def test_centroids_are_checked_but_not_fitted_again(wine: Array, three: Any) -> None:
    found = checks.run(three.cluster_centers_, wine)
    assert [check.name for check in found.checks] == ["conservation", "continuity", "randomisation"]
    assert "stability" in found.left_out
    with pytest.raises(wc.InvalidInputError, match="an estimator that can be fitted again; got ndarray"):
        checks.stability(three.cluster_centers_, wine)


def test_bad_input_is_told(wine: Array, three: Any) -> None:
    with pytest.raises(wc.InvalidInputError, match=r"rule must be one of .*; got 'most'"):
        checks.conservation(three, wine, rule="most")
    with pytest.raises(wc.InvalidInputError, match="model must be one that `neuralize` takes, no function"):
        checks.conservation(three.predict, wine)
    with pytest.raises(wc.InvalidInputError, match=r"methods must be among .*; got 'magic'"):
        checks.randomisation(three, wine, method="magic")
    with pytest.raises(wc.InvalidInputError, match="at least 2 features"):
        checks.randomisation([[0.0], [1.0]], [[0.1], [0.9]])
    with pytest.raises(wc.InvalidInputError, match="shuffles must be a whole number of at least 1; got 0"):
        checks.randomisation(three, wine, shuffles=0)
    with pytest.raises(wc.InvalidInputError, match="refits must be a whole number"):
        checks.stability(three, wine, refits=0)
    with pytest.raises(wc.InvalidInputError, match="two rows of one cluster"):
        checks.continuity([[0.0, 0.0], [1.0, 1.0]], [[0.1, 0.0], [0.9, 1.0]])


def test_categories_cannot_be_mirrored() -> None:
    frame = pd.DataFrame({"a": list("xyxyxy"), "b": list("uuvvuv")})
    model = KModes(2, n_init=1, random_state=0).fit(frame)
    assert checks.conservation(model, frame).holds
    with pytest.raises(wc.InvalidInputError, match="numbers only for this check; 'a' holds categories"):
        checks.randomisation(model, frame)
    found = checks.run(model, frame)
    assert found.checks[0].name == "conservation"
    assert {"randomisation", "stability"} <= set(found.left_out)
