"""Models of smaller libraries: assigned as the models do, and split as in slow transcriptions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.datasets import load_wine
from sklearn.decomposition import NMF, LatentDirichletAllocation
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import whycluster as wc
from tests.optional import optional
from tests.reference import alignment as slow_alignment
from tests.reference import topics as slow
from whycluster.core.energies import Energy
from whycluster.models.energies import StudentEnergy

if TYPE_CHECKING:
    import minisom
    import skfuzzy
    import stepmix.stepmix as stepmix
    import tslearn.clustering as tslearn
else:
    minisom = optional("minisom")
    skfuzzy = optional("skfuzzy")
    stepmix = optional("stepmix.stepmix")
    tslearn = optional("tslearn.clustering")


Array = NDArray[Any]
RNG = np.random.default_rng(0)
Z = StandardScaler().fit_transform(load_wine().data)
BINARY = (Z > 0).astype(float)
COUNTS = RNG.poisson(RNG.gamma(0.3, 3.0, size=(4, 20))[RNG.integers(0, 4, 120)])


def energies(energy: Energy, X: Array) -> Array:
    out = np.empty((len(X), energy.n_clusters))
    x = X if energy.offset is None else X - energy.offset
    energy.energies(x, out, np.empty((len(X), energy.scratch_width)))
    return out


def differences(energy: Energy, X: Array, k: int, c: int) -> Array:
    """The split of k minus that of c, (n, d)."""
    weights = np.zeros((len(X), energy.n_clusters))
    weights[:, k], weights[:, c] = 1.0, -1.0
    out = np.empty((len(X), energy.n_features))
    x = X if energy.offset is None else X - energy.offset
    energy.combine(x, weights, out, np.empty((len(X), energy.scratch_width)))
    return out


@pytest.mark.parametrize("distance", ["euclidean", "manhattan", "cosine"])
def test_the_nearest_neuron_of_a_map(distance: str) -> None:
    model = minisom.MiniSom(2, 3, 13, activation_distance=distance, random_seed=0)
    model.train(Z, 200)
    exp = wc.explain(model, Z)
    winners = [model.winner(row) for row in Z]
    assert exp.assigned.tolist() == [f"{row},{column}" for row, column in winners]
    np.testing.assert_allclose(exp.relevance.sum(axis=1), exp.evidence)


def test_a_map_with_another_distance_is_refused() -> None:
    model = minisom.MiniSom(2, 3, 13, activation_distance="chebyshev", random_seed=0)
    with pytest.raises(wc.UnsupportedModelError) as error:
        wc.neuralize(model)
    assert str(error.value) == (
        "neuralize: MiniSom must have the activation_distance 'euclidean', 'manhattan' or 'cosine'; got "
        "'chebyshev'. Explain the winners of the rows as labels."
    )


def test_latent_classes() -> None:
    model = stepmix.StepMix(3, measurement="binary", random_state=0, progress_bar=0).fit(BINARY)
    exp, energy = wc.explain(model, BINARY), wc.neuralize(model).energy
    np.testing.assert_array_equal(exp.assigned, model.predict(BINARY))
    parameters = model.get_parameters()
    p = np.clip(parameters["measurement"]["pis"], 1e-15, 1 - 1e-15)
    found, split = energies(energy, BINARY), differences(energy, BINARY, 2, 0)
    for row in range(0, 178, 25):
        expected, parts = slow.binary_mixture(BINARY[row], p, parameters["weights"])
        np.testing.assert_allclose(found[row], expected)
        np.testing.assert_allclose(split[row], parts[2] - parts[0], atol=1e-12)
    shares = np.exp(-found)
    np.testing.assert_allclose(
        shares / shares.sum(axis=1, keepdims=True), model.predict_proba(BINARY), atol=1e-9
    )
    assert wc.explain(model, BINARY, threshold=0.9).evidence.shape == (178,)


@pytest.mark.parametrize("kind", ["gaussian_unit", "gaussian_spherical", "gaussian_diag"])
def test_latent_profiles(kind: str) -> None:
    model = stepmix.StepMix(3, measurement=kind, random_state=0, progress_bar=0).fit(Z)
    np.testing.assert_array_equal(wc.explain(model, Z).assigned, model.predict(Z))


def test_other_measurements_and_models_that_are_not_fitted_are_refused() -> None:
    model = stepmix.StepMix(2, measurement="binary_nan", random_state=0, progress_bar=0).fit(BINARY)
    with pytest.raises(wc.UnsupportedModelError, match="must have one of the measurements 'binary', "):
        wc.neuralize(model)
    with pytest.raises(wc.NotFittedError, match="the StepMix must be fitted first"):
        wc.neuralize(stepmix.StepMix(2))
    with pytest.raises(wc.NotFittedError, match="the LatentDirichletAllocation must be fitted first"):
        wc.neuralize(LatentDirichletAllocation())
    with pytest.raises(wc.NotFittedError, match="the TimeSeriesKMeans must be fitted first"):
        wc.neuralize(tslearn.TimeSeriesKMeans())


@pytest.mark.parametrize("m", [1.5, 2.0, 3.0])
def test_fuzzy_memberships(m: float) -> None:
    centers, shares, *_ = skfuzzy.cmeans(Z.T, 3, m, 1e-9, 1000, seed=0)
    energy = StudentEnergy.fuzzy(centers, m)
    network = wc.TableNetwork(energy) if m != 2.0 else wc.neuralize(centers, metric="fuzzy")
    exp = network.explain(Z)
    np.testing.assert_array_equal(exp.assigned, shares.argmax(axis=0))
    np.testing.assert_allclose(exp.relevance.sum(axis=1), exp.evidence)
    found = np.exp(-energies(network.energy, Z))
    found /= found.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(found, shares.T, atol=1e-6)
    for row in range(0, 178, 40):
        np.testing.assert_allclose(found[row], slow.memberships(Z[row], centers, m), rtol=1e-9)


def test_a_row_at_a_fuzzy_center_belongs_to_it() -> None:
    centers = np.array([[0.0, 0.0], [3.0, 4.0]])
    exp = wc.neuralize(centers, metric="fuzzy").explain(centers)
    assert exp.assigned.tolist() == [0, 1]
    assert np.isfinite(exp.relevance).all()
    with pytest.raises(wc.InvalidInputError) as error:
        StudentEnergy.fuzzy(centers, 1.0)
    assert str(error.value) == "StudentEnergy.fuzzy: m must be a finite number above 1; got 1.0."


def test_topics_of_latent_dirichlet_allocation() -> None:
    model = LatentDirichletAllocation(4, random_state=0).fit(COUNTS)
    exp, energy = wc.explain(model, COUNTS), wc.neuralize(model).energy
    np.testing.assert_array_equal(exp.assigned, model.transform(COUNTS).argmax(axis=1))
    np.testing.assert_allclose(exp.relevance.sum(axis=1), exp.evidence)
    X = COUNTS.astype(float)
    found, split = energies(energy, X), differences(energy, X, 1, 3)
    for row in range(0, 120, 40):
        gamma, parts = slow.dirichlet_topics(
            X[row], model.exp_dirichlet_component_, model.doc_topic_prior_, 100, model.mean_change_tol
        )
        np.testing.assert_allclose(found[row], -gamma)
        np.testing.assert_allclose(split[row], parts[3] - parts[1], atol=1e-9)
    with pytest.raises(wc.UnsupportedModelError, match="gradient: the weights of LDA's topics"):
        wc.neuralize(model).gradient(COUNTS)


def test_topics_of_a_factorization() -> None:
    model = NMF(4, random_state=0, max_iter=5000, tol=1e-8).fit(COUNTS)
    exp, energy = wc.explain(model, COUNTS), wc.neuralize(model).energy
    assert (exp.assigned == model.transform(COUNTS).argmax(axis=1)).mean() >= 0.99
    np.testing.assert_allclose(exp.relevance.sum(axis=1), exp.evidence, atol=1e-9)
    X = COUNTS.astype(float)
    found, split = energies(energy, X), differences(energy, X, 1, 3)
    for row in range(0, 120, 30):
        w, parts = slow.nearest_mixture(X[row], model.components_)
        np.testing.assert_allclose(found[row], -w, atol=1e-9)
        np.testing.assert_allclose(split[row], parts[3] - parts[1], atol=1e-9)
    with pytest.raises(wc.UnsupportedModelError, match=r"got beta_loss=\'frobenius\' and alpha_W=0\.5"):
        wc.neuralize(NMF(4, alpha_W=0.5, random_state=0, max_iter=500).fit(COUNTS))


DOCUMENTS = [
    "the cat sat on the mat",
    "dogs and cats are pets",
    "stocks fell on monday",
    "the market and stocks rose",
    "pets like the cat and the dog",
    "monday market news stocks",
]


def test_topics_of_documents_are_explained_per_word() -> None:
    pipeline = make_pipeline(TfidfVectorizer(), NMF(2, random_state=0)).fit(DOCUMENTS)
    exp = wc.explain(pipeline, DOCUMENTS)
    np.testing.assert_array_equal(exp.assigned, pipeline.transform(DOCUMENTS).argmax(axis=1))
    assert "stocks" in exp.describe(3)


def test_the_topics_of_counts_are_explained_per_word() -> None:
    """LDA has no gradient, which pipelines of documents need."""
    words = CountVectorizer().fit(DOCUMENTS)
    counts = words.transform(DOCUMENTS)
    model = LatentDirichletAllocation(2, random_state=0).fit(counts)
    exp = wc.explain(model, counts, feature_names=words.get_feature_names_out())
    np.testing.assert_array_equal(exp.assigned, model.transform(counts).argmax(axis=1))
    assert "stocks" in exp.describe(3)
    with pytest.raises(wc.UnsupportedModelError, match="explain the word counts instead"):
        wc.explain(make_pipeline(words, model), DOCUMENTS)


def waves(n: int = 30, n_steps: int = 12) -> Array:
    rng = np.random.default_rng(1)
    t, speed = np.linspace(0, 6, n_steps), rng.integers(1, 4, n)[:, None]
    first = np.sin(speed * t + rng.normal(0, 0.5, size=(n, 1))) + rng.normal(0, 0.2, size=(n, n_steps))
    return np.stack([first, first**2], axis=2)


@pytest.mark.parametrize("metric", ["euclidean", "dtw", "softdtw"])
def test_time_series(metric: str) -> None:
    X = waves()
    model = tslearn.TimeSeriesKMeans(3, metric=metric, max_iter=3, random_state=0).fit(X)
    exp = wc.explain(model, X)
    np.testing.assert_array_equal(exp.assigned, model.predict(X))
    assert exp.relevance.reshape(X.shape).shape == X.shape
    assert exp.feature_names[:3] == ["t0, channel 0", "t0, channel 1", "t1, channel 0"]
    if metric != "softdtw":
        np.testing.assert_allclose(exp.relevance.sum(axis=1), exp.evidence)
    assert "t0, channel" in str(exp.summary()) or "channel" in exp.describe(0)


@pytest.mark.parametrize("gamma", [0.0, 0.7])
def test_alignments_are_those_of_all_paths(gamma: float) -> None:
    from whycluster.models.energies import AlignmentEnergy

    rng = np.random.default_rng(2)
    centers, X = rng.normal(size=(3, 5, 2)), rng.normal(size=(4, 4, 2))
    energy = AlignmentEnergy(centers, 4, gamma)
    flat = X.reshape(4, -1)
    found, split = energies(energy, flat), differences(energy, flat, 2, 0)
    for row in range(4):
        expected = [slow_alignment.alignment(X[row], center, gamma) for center in centers]
        np.testing.assert_allclose(found[row], [cost for cost, _ in expected])
        np.testing.assert_allclose(split[row], (expected[2][1] - expected[0][1]).ravel(), atol=1e-12)
    step, network = 1e-6, wc.TableNetwork(energy)
    slopes = network.gradient(flat, target=0)
    for feature in range(8):
        moved = step * np.eye(8)[feature]
        ahead, behind = (network.evidence(flat + sign * moved)[:, 0] for sign in (1, -1))
        np.testing.assert_allclose(slopes[:, feature], (ahead - behind) / (2 * step), atol=1e-5)


def test_series_that_do_not_fit_are_refused() -> None:
    X = waves()
    model = tslearn.TimeSeriesKMeans(2, max_iter=2, random_state=0).fit(X)
    must = "explain: X must be series of equal length, an array of shape (n, 12, 2); got "
    ending = ". Resample them to 12 time steps."
    padded = X.copy()
    padded[3, 9:] = np.nan
    cases = [
        (X[:, :9], "shape (30, 9, 2)"),
        ([X[0].tolist(), X[1, :4].tolist()], "series of different lengths, or other values"),
        (padded, "missing values, with which tslearn pads shorter series"),
    ]
    for wrong, got in cases:
        with pytest.raises(wc.InvalidInputError) as error:
            wc.explain(model, wrong)
        assert str(error.value) == f"{must}{got}{ending}"


def test_other_metrics_of_series_are_refused() -> None:
    options = {"global_constraint": "sakoe_chiba", "sakoe_chiba_radius": 2}
    model = tslearn.TimeSeriesKMeans(2, metric="dtw", metric_params=options, max_iter=2, random_state=0).fit(
        waves()
    )
    with pytest.raises(wc.UnsupportedModelError, match="and no metric_params except gamma; got 'dtw'"):
        wc.neuralize(model)
