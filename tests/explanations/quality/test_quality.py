"""The quality of a clustering: silhouette, data without clusters, stability, verdict and words."""

from __future__ import annotations

import time
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.cluster import Birch, KMeans
from sklearn.datasets import load_iris, load_wine, make_blobs
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.isotonic import IsotonicRegression
from sklearn.metrics import adjusted_rand_score, silhouette_samples, silhouette_score
from sklearn.mixture import GaussianMixture
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import whycluster as wc
from benchmarks.quality import WITH, WITHOUT
from whycluster.explanations.findings import Quality, quality
from whycluster.explanations.quality.null_data import NullData, with_one_peak
from whycluster.explanations.quality.refitting import RefitError, Refitting

Array = NDArray[np.float64]
IRIS: Array = load_iris().data
THREE = KMeans(3, n_init=3, random_state=0)


def blobs(n_rows: int = 150) -> Array:
    rows: Array = make_blobs(n_rows, 3, centers=[[0, 0, 0], [9, 0, 0], [0, 9, 9]], random_state=0)[0]
    return rows


def noise(n_rows: int = 200) -> Array:
    return np.random.default_rng(0).normal(size=(n_rows, 4))


def measured(model: Any, rows: Any, **options: Any) -> Quality:
    return quality(wc.explain(model, rows), **options)


def check_not_measured(found: Quality, reason: str) -> None:
    assert found.text == f"The quality of the clusters was not measured: {reason}."
    assert found.not_measured == dict.fromkeys(("silhouette", "nulls", "stability"), reason)
    figures = (found.verdict, found.silhouette, found.nulls, found.stability, found.reference)
    assert figures == (None,) * 5
    assert found.clusters is found.cluster_silhouette is found.cluster_stability is None


def every_peak_tried(values: Array) -> Array:
    """`with_one_peak`, from two isotonic regressions for each place of the peak."""
    edges = np.unique(np.quantile(values, np.linspace(0.0, 1.0, 41)))
    inside = np.searchsorted(edges, values, side="right").clip(1, len(edges) - 1) - 1
    width = np.diff(edges)
    density = np.bincount(inside, minlength=len(width)) / width

    def fitted(peak: int) -> Array:
        sides = np.split(np.arange(len(width)), [peak + 1])
        fits = [
            IsotonicRegression(increasing=rising).fit(side, density[side], width[side]).predict(side)
            for side, rising in zip(sides, (True, False), strict=True)
            if len(side)
        ]
        return np.concatenate(fits)

    shape = min(map(fitted, range(len(width))), key=lambda fit: float((width * (fit - density) ** 2).sum()))
    result: Array = values.copy()
    steps = np.flatnonzero(~np.isclose(shape[1:], shape[:-1], rtol=1e-12, atol=0.0)) + 1
    for bins in np.split(np.arange(len(shape)), steps):
        own = np.flatnonzero(np.isin(inside, bins))
        if len(bins) > 1:
            low, high = edges[bins[0]], edges[bins[-1] + 1]
            result[own] = low + (np.arange(len(own)) + 0.5) / len(own) * (high - low)
    return result


class TestFigures:
    def test_the_silhouette_is_that_of_the_rows_as_the_model_compares_them(self) -> None:
        wine = load_wine().data
        model = make_pipeline(StandardScaler(), THREE).fit(wine)
        found, labels = measured(model, wine), model.predict(wine)
        each = silhouette_samples(StandardScaler().fit_transform(wine), labels)
        assert found.silhouette == pytest.approx(each.mean(), rel=1e-9)
        assert found.n_rows == 178
        assert found.cluster_silhouette is not None
        np.testing.assert_allclose(found.cluster_silhouette, [each[labels == k].mean() for k in range(3)])

    def test_distances_are_those_of_the_model(self) -> None:
        rows = np.abs(blobs()) + 1.0
        for metric in ("cosine", "manhattan"):
            exp = wc.explain(THREE.fit(rows).cluster_centers_, rows, metric=metric)
            expected = silhouette_score(rows, exp.cluster, metric=metric)
            assert quality(exp).silhouette == pytest.approx(expected, rel=1e-9)

    def test_many_rows_are_sampled(self) -> None:
        found = measured(THREE.fit(blobs(2500)), blobs(2500))
        assert found.n_rows == 1000
        assert f"{found.silhouette:.2f} (in a sample of 1,000 rows), and the same model " in found.text
        assert found.silhouette == pytest.approx(silhouette_score(blobs(2500), THREE.labels_), abs=0.01)

    def test_nulls_have_the_silhouettes_of_the_same_model_in_data_without_clusters(self) -> None:
        found = measured(THREE.fit(IRIS), IRIS)
        assert found.reference == "KMeans"
        assert found.nulls is not None
        for null in found.nulls:
            rng = np.random.default_rng(9)
            draws = [NullData(IRIS).draw(null.kind, rng) for _ in range(8)]
            expected = np.mean([silhouette_score(rows, THREE.fit_predict(rows)) for rows in draws])
            assert null.mean == pytest.approx(expected, abs=0.03)
            assert found.silhouette is not None
            assert null.z == pytest.approx((found.silhouette - null.mean) / null.deviation)
        assert [null.kind for null in found.nulls] == ["normal", "uniform", "shuffled"]

    def test_stability_is_the_agreement_with_models_of_resampled_rows(self) -> None:
        found = measured(THREE.fit(IRIS), IRIS)
        rng, agreement = np.random.default_rng(9), []
        for _ in range(10):
            refitted = KMeans(3, n_init=3, random_state=1).fit(IRIS[rng.integers(150, size=150)])
            agreement.append(adjusted_rand_score(THREE.fit_predict(IRIS), refitted.predict(IRIS)))
        assert found.stability == pytest.approx(np.mean(agreement), abs=0.05)
        assert found.cluster_stability is not None
        setosa = THREE.fit_predict(IRIS)[0]
        assert found.cluster_stability[setosa] == 1.0
        assert (np.delete(found.cluster_stability, setosa) < 1.0).all()

    def test_separated_clusters_are_clear_and_stable(self) -> None:
        found = measured(THREE.fit(blobs()), blobs())
        assert (found.verdict, found.stability) == ("clear", 1.0)
        assert found.cluster_stability is not None
        assert found.cluster_stability.tolist() == [1.0] * 3
        assert found.clusters is not None
        assert found.clusters.tolist() == [0, 1, 2]

    def test_the_same_seed_gives_the_same_figures(self) -> None:
        exp = wc.explain(KMeans(3, n_init=1).fit(IRIS), IRIS)  # the model has no seed of its own
        assert quality(exp).text == quality(exp).text
        first, other = quality(exp), quality(exp, random_state=1)
        assert first.nulls is not None
        assert other.nulls is not None
        assert first.nulls[0].mean != other.nulls[0].mean

    def test_the_model_is_not_changed(self) -> None:
        state = np.random.RandomState(0)
        model = KMeans(3, n_init=2, random_state=state).fit(IRIS)
        before, params = {**vars(model)}, model.get_params()
        drawn = state.get_state()[1].copy()  # type: ignore[index]
        assert measured(model, IRIS).stability is not None
        assert vars(model).keys() == before.keys()
        assert all(vars(model)[name] is before[name] for name in before)
        assert model.get_params() == params
        assert (state.get_state()[1] == drawn).all()  # type: ignore[index]

    @pytest.mark.parametrize("kind", ["float32", "sparse", "frame"])
    def test_tables_of_all_kinds(self, kind: str) -> None:
        pd = pytest.importorskip("pandas")
        rows: Any = {"float32": np.float32, "sparse": sp.csr_matrix, "frame": pd.DataFrame}[kind](IRIS)
        model = KMeans(3, n_init=3, random_state=0).fit(rows)
        expected = measured(THREE.fit(IRIS), IRIS).silhouette
        assert measured(model, rows).silhouette == pytest.approx(expected, rel=1e-5)

    def test_the_model_of_a_network_and_of_a_part(self) -> None:
        exp = wc.neuralize(THREE.fit(IRIS)).explain(IRIS)
        assert quality(exp).text == measured(THREE, IRIS).text
        assert quality(exp[::2]).n_rows == 75
        assert quality(exp[::2]).stability is not None


class TestNullData:
    def test_covariances_are_kept(self) -> None:
        rng = np.random.default_rng(0)
        rows = rng.normal(size=(4000, 3)) @ rng.normal(size=(3, 3)) + 5.0
        for kind in ("normal", "uniform", "shuffled"):
            drawn = NullData(rows).draw(kind, rng)
            np.testing.assert_allclose(drawn.mean(axis=0), rows.mean(axis=0), atol=0.15)
            np.testing.assert_allclose(np.cov(drawn.T), np.cov(rows.T), atol=0.25)

    def test_shuffled_columns_keep_their_shapes(self) -> None:
        rows = np.exp(noise(1000))
        drawn = NullData(rows).draw("shuffled", np.random.default_rng(0))
        assert not np.array_equal(drawn, rows)
        for share in (0.0, 0.1, 0.5, 0.9, 0.99):
            np.testing.assert_allclose(np.quantile(drawn, share, 0), np.quantile(rows, share, 0), rtol=0.06)

    def test_discrete_columns_keep_their_values(self) -> None:
        rows = np.random.default_rng(0).integers(1, 6, (300, 2)).astype(float)
        drawn = NullData(rows).draw("shuffled", np.random.default_rng(0))
        np.testing.assert_array_equal(np.sort(drawn, axis=0), np.sort(rows, axis=0))

    def test_gaps_between_peaks_are_filled(self) -> None:
        rng = np.random.default_rng(0)
        two = np.sort(np.concatenate([rng.normal(0, 1, 500), rng.normal(8, 1, 500)]))
        one = with_one_peak(two)
        assert (one[0], len(one)) == (two[0], len(two))
        assert (np.diff(one) >= 0).all()
        edges = np.linspace(-3, 11, 15)
        before, after = np.histogram(two, edges)[0], np.histogram(one, edges)[0]
        assert before[6:8].max() < 5
        peak = after.argmax()
        assert np.diff(after[: peak + 1]).min() > -15
        assert np.diff(after[peak:]).max() < 15

    @pytest.mark.parametrize("seed", range(5))
    def test_the_shape_with_one_peak_is_the_nearest_of_all(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        two = np.concatenate([rng.normal(0, 1, 150), rng.normal(rng.uniform(0, 8), 2, 150)])
        for values in (np.sort(two), np.sort(np.exp(two)), np.sort(rng.integers(0, 60, 300).astype(float))):
            np.testing.assert_allclose(with_one_peak(values), every_peak_tried(values), rtol=1e-12)

    def test_it_takes_less_than_a_fifth_of_the_time_of_trying_every_peak(self) -> None:
        columns = np.sort(np.random.default_rng(0).normal(size=(20, 100)))
        seconds = []
        for shape in (with_one_peak, every_peak_tried):
            start = time.process_time()
            for column in columns:
                shape(column)
            seconds.append(time.process_time() - start)
        assert seconds[0] < 0.2 * seconds[1]

    def test_constant_columns_and_few_rows(self) -> None:
        rows = np.column_stack([np.arange(12.0), np.full(12, 7.0)])
        wide = np.random.default_rng(0).normal(size=(5, 12))
        for kind in ("normal", "uniform", "shuffled"):
            np.testing.assert_allclose(NullData(rows).draw(kind, np.random.default_rng(0))[:, 1], 7.0)
            assert np.isfinite(NullData(wide).draw(kind, np.random.default_rng(0))).all()


class TestWords:
    """Every text is written again from the figures, which the tests above compute independently."""

    def words(self, found: Quality, who: str = "the same model") -> tuple[str, str]:
        """Return the sentences about the silhouette and about the stability."""
        assert found.nulls is not None
        data = {
            "normal": "normal data with the same covariance",
            "uniform": "uniform data with the same covariance",
            "shuffled": "columns of similar values and the same correlations, but without clusters",
        }
        mean, kind = max((null.mean, null.kind) for null in found.nulls)
        middle = (
            f"Their mean silhouette is {found.silhouette:.2f}, and {who} reaches {mean:.2f} in {data[kind]}."
        )
        if found.stability is None:
            return middle, f"Their stability was not measured: {found.not_measured['stability']}."
        finds = "much the same" if found.stability >= 0.75 else "different"
        return middle, (
            f"Fitted to resampled rows, the model finds {finds} clusters (adjusted Rand index "
            f"{found.stability:.2f})."
        )

    def test_clear(self) -> None:
        found = measured(THREE.fit(blobs()), blobs())
        first = "The clusters are clear: they are much more distinct than clusters in data without structure."
        assert found.text == str(found) == " ".join([first, *self.words(found)])
        assert repr(found) == f"<Quality: clear. {found.text}>"

    def test_weak_because_of_the_margin(self) -> None:
        found = measured(THREE.fit(IRIS), IRIS)
        first = (
            "The clusters are weak: they are more distinct than clusters in data without structure, but not "
            "by much."
        )
        assert found.verdict == "weak"
        assert found.text == " ".join([first, *self.words(found)])

    def test_weak_because_of_the_stability(self) -> None:
        found = measured(KMeans(5, n_init=1, random_state=0).fit(blobs()), blobs())  # three clusters
        first = "The clusters are weak: they change if the model is fitted to other rows."
        assert found.verdict == "weak"
        assert found.text == " ".join([first, *self.words(found)])

    def test_none(self) -> None:
        found = measured(THREE.fit(noise()), noise())
        first = "The clusters are no more distinct than clusters in data without structure."
        assert found.verdict == "none"
        assert found.text == " ".join([first, *self.words(found)])

    def test_other_shapes(self) -> None:
        found = measured(GaussianMixture(3, random_state=0).fit(noise()), noise())
        last = "Silhouettes favor round clusters; clusters of other shapes may be more distinct."
        assert found.text == " ".join(
            [
                "The clusters are no more distinct than clusters in data without structure.",
                *self.words(found),
                last,
            ]
        )
        assert last not in measured(GaussianMixture(3, random_state=0).fit(blobs()), blobs()).text

    def test_without_a_model_to_refit_there_is_k_means_to_compare_with(self) -> None:
        found = measured(THREE.fit(blobs()).cluster_centers_, blobs())
        assert (found.verdict, found.stability, found.cluster_stability) == ("clear", None, None)
        assert found.not_measured == {"stability": "centroids cannot be fitted again"}
        first = "The clusters are clear: they are much more distinct than clusters in data without structure."
        assert found.text == " ".join([first, *self.words(found, "k-means with 3 clusters")])
        assert found.reference == "KMeans"

    @pytest.mark.parametrize("given", ["labels", "surrogate", "hand-made"])
    def test_labels_get_no_verdict(self, given: str) -> None:
        """Clusters in data without structure are no yardstick for labels that nobody looked for."""
        X, labels = blobs(), THREE.fit(blobs()).labels_
        if given == "hand-made":
            labels = (X[:, 0] > np.median(X[:, 0])).astype(int)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", wc.FidelityWarning)
            found = measured(wc.Surrogate().fit(X, labels) if given == "surrogate" else labels, X)
        each = silhouette_samples(X, labels)
        assert (found.verdict, found.nulls, found.stability, found.reference) == (None, None, None, None)
        reason = "labels come without a model that could be fitted to other data"
        assert found.not_measured == {"nulls": reason, "stability": reason}
        assert found.silhouette == pytest.approx(each.mean())
        assert found.cluster_silhouette is not None
        means = [each[labels == label].mean() for label in np.unique(labels)]
        np.testing.assert_allclose(found.cluster_silhouette, means)
        assert found.text == (
            "Whether the labels are more distinct than clusters in data without structure was not measured: "
            f"{reason}. Their mean silhouette is {each.mean():.2f}; it is 1 if labels are far apart, about 0 "
            "if they overlap, and negative if rows are nearer to other labels. Silhouettes favor round "
            "clusters; clusters of other shapes may be more distinct."
        )
        assert repr(found) == f"<Quality: not measured. {found.text}>"

    def test_labels_are_measured_and_not_the_prediction_of_the_surrogate(self) -> None:
        labels = np.where(np.random.default_rng(0).random(150) < 0.1, 0, THREE.fit(blobs()).labels_)
        with pytest.warns(wc.FidelityWarning):
            found = measured(labels, blobs())
        assert found.silhouette == pytest.approx(silhouette_score(blobs(), labels))

    def test_noise_is_no_cluster(self) -> None:
        labels = np.where(np.arange(150) % 5, THREE.fit(blobs()).labels_, -1)
        with pytest.warns(wc.FidelityWarning):
            found = measured(labels, blobs())
        kept = labels >= 0
        assert found.n_rows == kept.sum()
        assert found.silhouette == pytest.approx(silhouette_score(blobs()[kept], labels[kept]))
        assert (
            f"Their mean silhouette is {found.silhouette:.2f} (in the 120 rows without noise); " in found.text
        )

    def test_a_sample_without_noise(self) -> None:
        labels = np.where(np.arange(2000) % 5, THREE.fit(blobs(2000)).labels_, -1)
        with pytest.warns(wc.FidelityWarning):
            found = measured(labels, blobs(2000))
        assert f"{found.silhouette:.2f} (in a sample of 1,000 rows without noise); " in found.text


class Fails(KMeans):  # type: ignore[misc]  # scikit-learn has no types
    """k-means that can be fitted to iris only."""

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Any:
        if X is not IRIS:
            raise RuntimeError("the license\nhas expired")
        return super().fit(X, y, sample_weight)


class Foreign:
    """A model without parameters."""

    def __init__(self) -> None:
        self.cluster_centers_ = THREE.fit(IRIS).cluster_centers_

    def predict(self, X: Any) -> Any:
        return THREE.predict(X)


class TestNotMeasured:
    @pytest.mark.parametrize(
        ("model", "reason"),
        [
            (Fails(3, n_init=1, random_state=0), "fitting Fails again failed (the license\\nhas expired)"),
            (None, "Foreign cannot be fitted again"),
        ],
        ids=["fails", "foreign"],
    )
    def test_a_model_that_cannot_be_refitted(self, model: Any, reason: str) -> None:
        found = measured(Foreign() if model is None else model.fit(IRIS), IRIS)
        assert found.not_measured == {"stability": reason}
        assert (found.stability, found.cluster_stability) == (None, None)
        assert found.text.endswith(f" Their stability was not measured: {reason}.")
        assert ", and k-means with 3 clusters reaches " in found.text

    def test_a_model_that_takes_too_long(self) -> None:
        refitting = Refitting(THREE, longest=1e-9)
        refitting.clusters(IRIS, IRIS, 0)
        with pytest.raises(RefitError, match=r"^fitting KMeans again takes too long$"):
            refitting.clusters(IRIS, IRIS, 0)

    def test_a_model_that_is_not_known_may_be_passed(self, tmp_path: Path) -> None:
        wc.save(wc.explain(THREE.fit(IRIS), IRIS), tmp_path / "exp.wc", data=True)
        exp: Any = wc.load(tmp_path / "exp.wc")
        assert quality(exp).not_measured == {"stability": "the model is not known"}
        assert quality(exp, THREE).text == measured(THREE, IRIS).text

    def test_an_explanation_without_its_data(self, tmp_path: Path) -> None:
        wc.save(wc.explain(THREE.fit(IRIS), IRIS), tmp_path / "exp.wc", data=False)
        exp: Any = wc.load(tmp_path / "exp.wc")
        check_not_measured(quality(exp), "the explanation was saved without its data")

    def test_one_row_one_cluster_and_ties(self) -> None:
        model = THREE.fit(IRIS)
        for rows in (IRIS[:1], IRIS[:50]):
            check_not_measured(measured(model, rows), "fewer than two clusters have rows")
        ties = np.ones((20, 2))
        check_not_measured(measured(ties[:2], ties), "fewer than two clusters have rows")

    def test_few_rows_and_many_clusters(self) -> None:
        some = IRIS[[0, 1, 2, 60, 61, 120, 121]]
        check_not_measured(measured(THREE.fit(IRIS), some), "7 rows for 3 clusters are too few")
        rows = np.arange(10_000.0)[:, None]
        reason = "a sample of 1,000 rows for 10,000 clusters is too small"
        check_not_measured(measured(rows, rows), reason)

    def test_constant_columns_do_not_matter(self) -> None:
        rows = np.column_stack([blobs(), np.full(150, 3.0)])
        found = measured(THREE.fit(rows), rows)
        assert found.verdict == "clear"
        assert found.silhouette == pytest.approx(silhouette_score(blobs(), THREE.labels_))

    def test_a_single_column_is_not_shuffled(self) -> None:
        found = measured(THREE.fit(blobs()[:, :1]), blobs()[:, :1])
        assert found.nulls is not None
        assert [null.kind for null in found.nulls] == ["normal", "uniform"]

    def test_documents_and_categories(self) -> None:
        texts = ["orbit shuttle", "shuttle orbit orbit", "bread butter", "bread bread butter"] * 5
        model = make_pipeline(TfidfVectorizer(), KMeans(2, n_init=1, random_state=0)).fit(texts)
        check_not_measured(measured(model, texts), "documents are not rows of numbers")
        kmodes = pytest.importorskip("kmodes.kmodes")
        rows = np.array([["a", "x"], ["b", "y"]] * 6)
        found = measured(kmodes.KModes(2, random_state=0, n_init=1).fit(rows), rows)
        check_not_measured(found, "the model compares categories, which have no distances between them")

    def test_columns_without_values_are_left_out_before(self) -> None:
        pd = pytest.importorskip("pandas")
        frame = pd.DataFrame(blobs(), columns=list("abc")).assign(empty=np.nan)
        with pytest.warns(wc.ColumnWarning, match="all values are missing"):
            model = wc.tabular.pipeline(frame, 3)
        assert measured(model, frame).verdict == "clear"

    def test_bad_arguments(self) -> None:
        with pytest.raises(wc.InvalidInputError) as error:
            quality(IRIS)  # type: ignore[arg-type]
        message = "quality: exp must be an explanation, such as the result of explain(model, X); got ndarray."
        assert str(error.value) == message
        with pytest.raises(wc.InvalidInputError, match=r"^quality: random_state must be "):
            measured(THREE.fit(IRIS), IRIS, random_state=-1)

    def test_data_that_changed_are_not_measured(self) -> None:
        rows = IRIS.copy()
        exp = wc.explain(THREE.fit(rows), rows)
        rows += 1
        with pytest.raises(wc.InvalidInputError, match=r"^quality: the data have been changed since "):
            quality(exp)


@pytest.mark.parametrize("model", [Birch(n_clusters=3), wc.KernelKMeans(3)])
def test_other_models(model: BaseEstimator, capsys: pytest.CaptureFixture[str]) -> None:
    found = measured(model.fit(blobs()), blobs())
    assert (found.verdict, found.reference) == ("clear", type(model).__name__)
    assert capsys.readouterr().err == ""


@pytest.mark.slow
def test_a_small_version_of_the_benchmark() -> None:
    for families, wrong in ((WITHOUT, {"weak", "clear", None}), (WITH, {"none", None})):
        for name in list(families):
            if "breast" in name:  # many of its columns repeat others
                continue
            verdicts = []
            for seed in range(600, 602):
                rows, k = families[name](np.random.default_rng(seed))
                model = KMeans(k, n_init=10, random_state=seed).fit(rows[:300])
                verdicts.append(measured(model, rows[:300]).verdict)
            assert not wrong & set(verdicts), (name, Counter(verdicts))
