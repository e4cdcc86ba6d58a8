"""The reference of an encoder's features, 0 or the midpoint, and the default rule of deep clusterings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA
from sklearn.pipeline import make_pipeline
from torch import nn

import whycluster as wc
from tests.deep.networks import settled
from tests.reference import neon
from whycluster.core.energies import SquaredEnergy
from whycluster.deep import DeepClustering
from whycluster.models.energies import ZeroReferenceEnergy
from whycluster.models.network import TableNetwork

Array = NDArray[Any]


def inputs(n: int = 60, seed: int = 3) -> torch.Tensor:
    return torch.randn(n, 6, generator=torch.Generator().manual_seed(seed))


def net(*last: nn.Module) -> Any:
    """Return an encoder of 5 features that ends with these layers."""
    return settled(nn.Sequential(nn.Linear(6, 10), nn.ReLU(), nn.Linear(10, 5), *last))


def fit(encoder: nn.Module, X: Any = None, n_clusters: int = 4, **options: Any) -> Any:
    features = wc.deep.features(encoder, inputs() if X is None else X, **options)
    return KMeans(n_clusters, n_init=2, random_state=0).fit(features.reshape(-1, features.shape[-1]))


def explain(model: Any, X: Any, **query: Any) -> Any:
    return wc.explain(model, X, **query)


def negative(features: Array) -> int:
    return sum(any(value < 0 for value in row) for row in features.tolist())


class Shift(nn.Module):
    """Add a constant, so that features are negative for some inputs only."""

    def __init__(self, by: float) -> None:
        super().__init__()
        self.by = by

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.by


# ---- The formula


@pytest.mark.parametrize("shift", [0.0, 1000.0])
@pytest.mark.parametrize("scaled", [False, True])
def test_relevance_from_zero_agrees_with_the_slow_transcription(shift: float, scaled: bool) -> None:
    rng = np.random.default_rng(0)
    centroids, X = rng.uniform(size=(5, 4)) + shift, rng.uniform(size=(30, 4)) + shift
    scale = np.array([0.5, 1.0, 2.0, 3.0]) if scaled else np.ones(4)
    network = TableNetwork(ZeroReferenceEnergy(centroids, scale if scaled else None))
    beta = 3.0
    scaled_X, scaled_centroids = X * np.sqrt(scale), centroids * np.sqrt(scale)
    for rule, slow in (("joint", neon.joint_from_zero), ("min-take-most", neon.min_take_most_from_zero)):
        exp = network.explain(X, rule=rule, beta=beta)
        expected = [slow(x, scaled_centroids, c, beta) for x, c in zip(scaled_X, exp.cluster, strict=True)]
        size = np.abs(expected).max()
        np.testing.assert_allclose(exp.relevance, expected, atol=1e-9 * size)
        usual = TableNetwork(SquaredEnergy(centroids, scale)).explain(X, rule=rule, beta=beta)
        np.testing.assert_array_equal(exp.cluster, usual.cluster)
        np.testing.assert_array_equal(exp.competitor, usual.competitor)
        np.testing.assert_allclose(exp.evidence, usual.evidence, rtol=1e-9)
        np.testing.assert_allclose(exp.competition, usual.competition, rtol=1e-7, atol=1e-12)
        np.testing.assert_allclose(exp.relevance.sum(axis=1) + exp.residual, usual.evidence, rtol=1e-6)


def test_contrasts_are_measured_from_zero_too() -> None:
    encoder = net(nn.ReLU())
    head, X = fit(encoder), inputs()
    features, centers = wc.deep.features(encoder, X), head.cluster_centers_
    exp = explain(DeepClustering(encoder, head), X, against=2)
    expected = [neon.from_zero(x, centers, c, 2) for x, c in zip(features, exp.cluster, strict=True)]
    np.testing.assert_allclose(exp.features.relevance, expected, atol=1e-5)
    assert (exp.rule, exp.reference) == ("contrast", "zero")


# ---- The choice


def test_features_that_are_never_negative_are_measured_from_zero() -> None:
    encoder, X = net(nn.ReLU()), inputs()
    head, features = fit(encoder), wc.deep.features(encoder, X)
    exp = explain(DeepClustering(encoder, head), X)
    assert (exp.rule, exp.reference) == (exp.features.rule, exp.features.reference) == ("joint", "zero")
    assert exp.reference_reason == "because none of the 60 inputs has a negative feature"
    centers = head.cluster_centers_
    expected = [
        neon.joint_from_zero(x, centers, c, exp.beta)
        for x, c in zip(features.astype(np.float64), exp.cluster, strict=True)
    ]
    np.testing.assert_allclose(exp.features.relevance, expected, atol=1e-4 * np.abs(expected).max())
    assert (features == 0).mean() > 0.1
    assert (exp.features.relevance[features == 0] == 0).all()
    usual = explain(DeepClustering(encoder, head, reference="midpoint"), X)
    np.testing.assert_array_equal(exp.cluster, usual.cluster)
    np.testing.assert_array_equal(exp.cluster, head.predict(features))
    np.testing.assert_array_equal(exp.evidence, usual.evidence)
    assert exp.beta == pytest.approx(
        usual.beta, rel=1e-6
    )  # float32 features are measured in single precision
    np.testing.assert_allclose(exp.relevance.sum(1), exp.features.relevance.sum(1), atol=1e-3)
    assert np.abs(exp.residual).max() > 0.1 * exp.evidence.max()


def test_a_negative_feature_leads_to_the_midpoint() -> None:
    encoder, X = net(Shift(1.0)), inputs()
    head, features = fit(encoder), wc.deep.features(encoder, X)
    exp = explain(DeepClustering(encoder, head), X)
    assert (exp.rule, exp.reference) == ("joint", "midpoint")
    n = negative(features)
    assert 1 < n < 60
    assert exp.reference_reason == f"because {n} of the 60 inputs have a negative feature"
    expected = wc.explain(head, features, rule="joint").relevance
    np.testing.assert_allclose(exp.features.relevance, expected, atol=1e-5)
    assert np.abs(exp.residual).max() <= 1e-4 * exp.evidence.max()


def test_one_negative_value_counts() -> None:
    encoder = nn.Sequential(nn.Identity()).eval()
    X = np.abs(np.random.default_rng(0).normal(size=(50, 3))).astype(np.float32)
    model = DeepClustering(encoder, [[0.0, 0.0, 0.0], [1.0, 1.0, 1.0]])
    assert explain(model, X).reference == "zero"
    X[17, 1] = -0.0
    assert explain(model, X).reference == "zero"
    X[17, 1] = -1e-30
    exp = explain(model, X)
    assert exp.reference == "midpoint"
    assert exp.reference_reason == "because 1 of the 50 inputs has a negative feature"
    all_negative = explain(model, -X)
    assert all_negative.reference_reason == "because all 50 inputs have a negative feature"
    one = explain(model, X[:1])
    assert (one.reference, one.reference_reason) == ("zero", "because the only input has no negative feature")
    one = explain(model, X[17:18])
    assert (one.reference, one.reference_reason) == (
        "midpoint",
        "because the only input has a negative feature",
    )


@pytest.mark.parametrize(
    ("layers", "options", "expected"),
    [
        ([nn.ReLU()], {}, "zero"),
        ([nn.ReLU(), nn.BatchNorm1d(5)], {}, "midpoint"),
        ([nn.ReLU(), nn.LayerNorm(5)], {}, "midpoint"),
        ([nn.ReLU()], {"normalize": True}, "zero"),
        ([], {"normalize": True}, "midpoint"),
        ([nn.Sigmoid()], {}, "zero"),
        ([nn.GELU()], {}, "midpoint"),
    ],
    ids=str,
)
def test_the_values_decide_and_not_the_layers(
    layers: list[nn.Module], options: dict[str, Any], expected: str
) -> None:
    encoder, X = net(*layers), inputs()
    n = negative(wc.deep.features(encoder, X, **options))
    exp = explain(DeepClustering(encoder, fit(encoder, **options), **options), X)
    assert exp.reference == expected == ("midpoint" if n else "zero")


def test_the_background_counts_too() -> None:
    encoder, X = net(Shift(1.0)), inputs(300)
    features = wc.deep.features(encoder, X)
    never = X[torch.from_numpy(features.min(axis=1) >= 0)]
    rest = X[torch.from_numpy(features.min(axis=1) < 0)]
    assert min(len(never), len(rest)) > 20
    model = DeepClustering(encoder, fit(encoder, X))
    rows, population = never[:5], never[5:]
    exp = explain(model, rows, background=population)
    assert exp.reference == "zero"
    n = len(never)
    seen = f"{n} inputs ({n - 5} of them background)"
    assert exp.reference_reason == f"because none of the {seen} has a negative feature"
    mixed = torch.cat([population, rest[:2]])
    exp = explain(model, rows, background=mixed)
    assert exp.reference == "midpoint"
    seen = f"{n + 2} inputs ({n - 3} of them background)"
    assert exp.reference_reason == f"because 2 of the {seen} have a negative feature"
    new = explain(model, rest[:2], background=never)
    assert new.reference == "midpoint"
    seen = f"{n + 2} inputs ({n} of them background)"
    assert new.reference_reason == f"because 2 of the {seen} have a negative feature"
    # Some inputs with their population as background are explained like the population.
    whole = explain(model, X)
    np.testing.assert_allclose(
        explain(model, X[:9], background=X).relevance, whole.relevance[:9], rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize("batch_size", [1, 7, 100])
def test_the_choice_does_not_depend_on_the_batches(batch_size: int) -> None:
    encoder, X = net(Shift(1.0)), inputs(300)
    features = wc.deep.features(encoder, X)
    never = X[torch.from_numpy(features.min(axis=1) >= 0)][:40]
    late = torch.cat([never, X[torch.from_numpy(features.min(axis=1) < 0)][:1]])
    head = fit(encoder, X)
    for some, reference in ((never, "zero"), (late, "midpoint")):
        exp = explain(DeepClustering(encoder, head, batch_size=batch_size), some)
        whole = explain(DeepClustering(encoder, head, batch_size=1000), some)
        assert exp.reference == whole.reference == reference
        assert exp.reference_reason == whole.reference_reason
        np.testing.assert_allclose(exp.relevance, whole.relevance, rtol=1e-3, atol=1e-4)


def test_no_input_is_encoded_again_for_the_choice() -> None:
    encoder, X, runs = net(nn.ReLU()), inputs(), list[int]()
    head = fit(encoder)
    encoder.register_forward_hook(lambda _, args, __: runs.append(len(args[0])))
    for reference in ("auto", "zero", "midpoint"):
        runs.clear()
        explain(DeepClustering(encoder, head, reference=reference), X, background=inputs(20, seed=5))
        # The features of the inputs and of the background, each with the check of one input, and the trace
        assert runs == [60, 1, 20, 1, 60]


# ---- What the user names


def test_a_named_reference_and_rule_are_used() -> None:
    X = inputs()
    for encoder in (net(), net(nn.ReLU())):
        head, features = fit(encoder), wc.deep.features(encoder, X)
        rows = features.astype(np.float64)
        for reference, rule, slow in (
            ("midpoint", "min-take-most", neon.min_take_most),  # the paper's
            ("midpoint", "joint", neon.joint),
            ("zero", "min-take-most", neon.min_take_most_from_zero),
            ("zero", "joint", neon.joint_from_zero),
        ):
            exp = explain(DeepClustering(encoder, head, reference=reference), X, rule=rule)
            assert (exp.rule, exp.reference, exp.reference_reason) == (rule, reference, "as requested")
            expected = [
                slow(x, head.cluster_centers_, c, exp.beta) for x, c in zip(rows, exp.cluster, strict=True)
            ]
            np.testing.assert_allclose(exp.features.relevance, expected, atol=1e-4 * np.abs(expected).max())


def test_references_that_no_head_has() -> None:
    encoder, centers = net(), np.eye(3, 5)
    for reference in ("one", None, 0, ["zero"]):
        with pytest.raises(wc.InvalidInputError) as error:
            DeepClustering(encoder, centers, reference=reference)  # type: ignore[arg-type]  # on purpose
        assert str(error.value) == (
            f"DeepClustering: reference must be one of 'auto', 'midpoint', 'zero'; got {reference!r}."
        )
    heads = {"StudentEnergy": wc.neuralize(centers, metric="student")}
    heads["ManhattanEnergy"] = wc.neuralize(centers, metric="manhattan")
    for name, head in heads.items():
        with pytest.raises(wc.UnsupportedModelError) as unsupported:
            DeepClustering(encoder, head, reference="zero")
        assert str(unsupported.value) == (
            "DeepClustering: reference='zero' requires k-means, another nearest-centroid model or a linear "
            f"head; got a head with a {name}."
        )
    linear: dict[str, Any] = {
        "LinearEnergy": nn.Linear(5, 3),
        "CosineEnergy": wc.neuralize(centers, metric="cosine"),
    }
    for name, soft in linear.items():
        with pytest.raises(wc.UnsupportedModelError) as unsupported:
            DeepClustering(encoder, soft, reference="midpoint")
        assert str(unsupported.value) == (
            "DeepClustering: reference='midpoint' requires a head that measures distances; got a head with a "
            f"{name}, which always measures features from 0. Leave reference out."
        )


def test_a_threshold_fixes_the_rule() -> None:
    encoder, head = net(), nn.Linear(5, 3)
    exp = explain(DeepClustering(encoder, head), inputs(), threshold=0.4)
    assert (exp.rule, exp.reference) == ("soft", "zero")
    with pytest.raises(
        wc.InvalidInputError, match="threshold applies only to models that give probabilities"
    ):
        explain(DeepClustering(encoder, np.eye(3, 5), reference="zero"), inputs(), threshold=0.5)


# ---- Other heads


def test_linear_heads_measure_from_zero_whatever_the_features() -> None:
    for encoder in (net(), net(nn.ReLU())):
        head = nn.Linear(5, 3)
        nn.init.normal_(head.weight, generator=torch.Generator().manual_seed(0))
        for soft in (head, wc.neuralize(head.weight.detach().numpy(), metric="cosine")):
            for reference in ("auto", "zero"):
                exp = explain(DeepClustering(encoder, soft, reference=reference), inputs())
                assert (exp.rule, exp.reference) == ("joint", "zero")
                assert exp.reference_reason == "because a linear head has no other reference"


def test_zero_is_a_linear_head_with_the_centroids_as_weights() -> None:
    encoder, X = net(), inputs()
    centers = fit(encoder).cluster_centers_
    linear = nn.Linear(5, 4, dtype=torch.float64)
    with torch.no_grad():
        linear.weight.copy_(torch.from_numpy(2.0 * centers))
        linear.bias.copy_(torch.from_numpy(-(centers.astype(np.float64) ** 2).sum(1)))
    exp = explain(DeepClustering(encoder, centers, reference="zero"), X)
    same = explain(DeepClustering(encoder, linear), X)
    np.testing.assert_allclose(exp.relevance, same.relevance, atol=1e-4)
    np.testing.assert_allclose(exp.residual, same.residual, atol=1e-4)


def test_other_heads_keep_the_midpoint() -> None:
    encoder, X = net(nn.ReLU()), inputs()
    rows = wc.deep.features(encoder, X)
    assert negative(rows) == 0
    kmeans = KMeans(3, n_init=1, random_state=0).fit(rows)
    heads: list[Any] = [
        wc.neuralize(kmeans.cluster_centers_, metric="student"),
        wc.KernelKMeans(3, random_state=0).fit(rows),
        make_pipeline(PCA(3), KMeans(3, n_init=1, random_state=0)).fit(rows),
    ]
    for head in heads:
        exp = explain(DeepClustering(encoder, head), X)
        assert (exp.rule, exp.reference) == ("joint", "midpoint")
        assert exp.reference_reason == (
            "because only nearest-centroid models and linear heads have a reference of 0"
        )
        np.testing.assert_allclose(
            exp.features.relevance, wc.explain(head, rows, rule="joint").relevance, rtol=1e-4, atol=1e-5
        )


def test_the_head_stays_as_it_is() -> None:
    encoder, X = net(nn.ReLU()), inputs()
    head = wc.neuralize(fit(encoder)).rename({0: "zeros", 3: "threes"})
    before = head.energy
    model = DeepClustering(encoder, head)
    exp = explain(model, X)
    assert exp.reference == "zero"
    assert head.energy is before
    assert head.default_rule == TableNetwork.default_rule != "joint"
    assert exp.labels.tolist() == head.labels.tolist()
    np.testing.assert_array_equal(exp.cluster, model.predict(X))
    assert type(exp.features.energy) is ZeroReferenceEnergy
    kmeans = fit(encoder)
    assert explain(DeepClustering(encoder, kmeans), X).features.model is kmeans


# ---- Locations


def test_locations_are_measured_from_zero_after_a_relu() -> None:
    torch.manual_seed(0)
    images = torch.rand(3, 1, 8, 8)
    encoder = settled(nn.Sequential(nn.Conv2d(1, 6, 3, padding=1), nn.ReLU()))
    found = wc.deep.spatial_clusters(encoder, images, "1", 3)
    assert (found.rule, found.reference) == ("joint", "zero")
    assert found.locations.reference_reason == "because none of the 192 locations has a negative feature"
    assert repr(found).endswith("relevance 1 x 8 x 8 (joint, reference=zero)>")
    before = wc.deep.spatial_clusters(encoder, images, "0", 3)
    assert before.reference == "midpoint"
    assert wc.deep.features(encoder, images, layer="0").min() < 0
    paper = wc.deep.spatial_clusters(encoder, images, "1", 3, reference="midpoint", rule="min-take-most")
    assert (paper.rule, paper.reference) == ("min-take-most", "midpoint")
    assert paper.locations.reference_reason == "as requested"
    np.testing.assert_array_equal(paper.cluster, found.cluster)
    np.testing.assert_array_equal(paper.evidence, found.evidence)
    np.testing.assert_allclose(
        paper.locations.relevance.sum(axis=1), paper.locations.evidence, rtol=1e-4, atol=1e-5
    )


# ---- What explanations say


@pytest.fixture(scope="module")
def from_zero() -> Any:
    encoder = net(nn.ReLU())
    return explain(DeepClustering(encoder, fit(encoder)), inputs())


def test_explanations_say_where_features_are_measured_from(from_zero: Any) -> None:
    sentence = "Features are measured from 0, because none of the 60 inputs has a negative feature."
    assert from_zero.describe(4).splitlines()[-1] == sentence
    assert from_zero.features.describe(4).splitlines()[-1] == sentence
    assert repr(from_zero).endswith(f"(joint, beta={from_zero.beta:.4g}, reference=zero)>")
    assert repr(from_zero.features).endswith(f"(joint, beta={from_zero.beta:.4g}, reference=zero)>")
    some = from_zero[[3, 1]]
    assert (some.reference, some.reference_reason) == (from_zero.reference, from_zero.reference_reason)
    assert (some.features.reference, some.rename({0: "a"}).reference) == ("zero", "zero")
    encoder = net()
    exp = explain(DeepClustering(encoder, fit(encoder), reference="midpoint"), inputs())
    expected = "Features are measured from the midpoint between two clusters, as requested."
    assert exp.describe(0).splitlines()[-1] == expected
    table = wc.explain(np.eye(3, 5), wc.deep.features(encoder, inputs()))
    assert (table.reference, table.reference_reason) == (None, None)
    assert "measured from" not in table.describe(0)
    assert "reference" not in repr(table)


def test_reports_say_where_features_are_measured_from(from_zero: Any, tmp_path: Path) -> None:
    for exp in (from_zero, from_zero.features):
        exp.report(tmp_path / "report.html")
        page = (tmp_path / "report.html").read_text()
        assert "Features measured from" in page
        assert "0, because none of the 60 inputs has a negative feature" in page
        assert "nearest centroid, as in k-means" in page
    table = wc.explain(np.eye(3, 5), wc.deep.features(net(), inputs()))
    table.report(tmp_path / "report.html")
    assert "measured from" not in (tmp_path / "report.html").read_text()


@pytest.mark.parametrize("data", [True, False])
def test_saved_explanations_keep_the_reference(from_zero: Any, tmp_path: Path, data: bool) -> None:
    path = tmp_path / "features.wc"
    wc.save(from_zero.features, path, data=data)
    loaded: Any = wc.load(path)
    for name in ("rule", "beta", "reference", "reference_reason"):
        assert getattr(loaded, name) == getattr(from_zero.features, name)
    np.testing.assert_array_equal(loaded.relevance, from_zero.features.relevance)
    assert loaded.describe(4).splitlines()[-1] == from_zero.describe(4).splitlines()[-1]
    if data:
        np.testing.assert_array_equal(loaded.competition, from_zero.features.competition)


def test_the_module_has_the_evidence_of_the_explanation(from_zero: Any) -> None:
    encoder = net(nn.ReLU())
    network = wc.neuralize(DeepClustering(encoder, fit(encoder)))
    with torch.no_grad():
        found = network.to_torch()(inputs()).numpy()
    np.testing.assert_allclose(found.max(axis=1), from_zero.evidence, rtol=1e-3, atol=1e-4)
