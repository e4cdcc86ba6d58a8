"""Explanations of deep clusterings: frames, text, plots; encoders of tables, tokens and sequences."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits
from torch import nn

import whycluster as wc
from tests.optional import load_frame, optional
from whycluster.deep.encoder import Inputs

if TYPE_CHECKING:
    import polars as pl
else:
    pl = optional("polars")


def test_public_names() -> None:
    assert wc.deep.__name__ == "whycluster.deep"
    assert {"fit_scan", "normalize", "pixel_bounds"} <= set(wc.deep.__all__)


def explain(*args: Any, **options: Any) -> Any:
    return wc.explain(*args, **options)


def fitted(encoder: nn.Module, X: Any, n_clusters: int = 3, **options: Any) -> wc.deep.DeepClustering:
    features = wc.deep.features(encoder, X, **options)
    head = KMeans(n_clusters, n_init=2, random_state=0).fit(features)
    return wc.deep.DeepClustering(encoder, head, **options)


@pytest.fixture(scope="module")
def wine() -> pd.DataFrame:
    data = load_frame("wine").data
    scaled: pd.DataFrame = (data - data.mean()) / data.std()
    return scaled


@pytest.fixture(scope="module")
def table_model(wine: pd.DataFrame) -> wc.deep.DeepClustering:
    torch.manual_seed(0)
    return fitted(nn.Sequential(nn.Linear(13, 16), nn.ReLU(), nn.Linear(16, 4)).eval(), wine)


@pytest.fixture(scope="module")
def images() -> torch.Tensor:
    return torch.tensor(load_digits().images[:40, None] / 16, dtype=torch.float32)


@pytest.fixture(scope="module")
def image_model(images: torch.Tensor) -> wc.deep.DeepClustering:
    torch.manual_seed(0)
    encoder = nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 6, 3)
    ).eval()
    return fitted(encoder, images, pool="mean")


def test_a_frame_is_explained_by_its_columns(wine: pd.DataFrame, table_model: wc.deep.DeepClustering) -> None:
    indexed = wine.set_axis([f"bottle {i}" for i in range(len(wine))], axis=0)
    exp = explain(table_model, indexed)
    frame = exp.to_frame()
    assert frame.columns.tolist() == ["cluster", "competitor", "evidence", *wine.columns]
    assert frame.index.equals(indexed.index)
    np.testing.assert_array_equal(frame[wine.columns].to_numpy(), exp.relevance)
    lines = exp.describe(3).splitlines()
    strongest = wine.columns[np.abs(exp.relevance[3]).argmax()]
    assert lines[3].startswith(strongest)
    assert lines[9].startswith("7 more")
    assert lines[10].startswith("Features are measured from the midpoint between two clusters, because ")


def test_rows_keep_their_names_in_the_features(
    wine: pd.DataFrame, table_model: wc.deep.DeepClustering
) -> None:
    named = wine.set_index(pd.Index([f"bottle {i}" for i in range(len(wine))]))
    exp: Any = wc.explain(table_model, named)
    assert exp.features.to_frame().index.equals(named.index)
    assert exp.features[[5, 2]].to_frame().index.tolist() == ["bottle 5", "bottle 2"]
    assert exp.describe(7).startswith("Input bottle 7 (position 7) is in cluster")
    assert exp.features.describe(7).startswith("Row bottle 7 (position 7) is in cluster")
    plain: Any = wc.explain(table_model, wine.to_numpy())
    np.testing.assert_allclose(exp.features.relevance, plain.features.relevance, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "convert", [lambda x: x, pl.from_pandas, np.asarray, lambda x: torch.tensor(x.values)]
)
def test_the_summary_of_a_table_is_in_its_columns(
    wine: pd.DataFrame, table_model: wc.deep.DeepClustering, convert: Any
) -> None:
    exp: Any = wc.explain(table_model, convert(wine))
    summary, frame = exp.summary(), exp.to_frame("pandas")
    means = frame.groupby("cluster").mean().drop(columns=["competitor", "evidence"])
    np.testing.assert_array_equal(summary.clusters, means.index)
    np.testing.assert_allclose(summary.relevance, means, rtol=1e-4, atol=1e-6)
    inside = wine.groupby(exp.cluster).mean()
    np.testing.assert_allclose(summary.inside, inside, rtol=1e-4, atol=1e-6)
    assert summary.feature_names == exp.names
    assert len(exp[:20].summary().to_frame()) == exp[:20].summary().relevance.size


def test_only_tables_have_a_summary(images: torch.Tensor, table_model: Any, wine: Any) -> None:
    message = (
        "summary: relevance must belong to the columns of a table; it belongs to {}. Summarize the "
        "features with exp.features.summary(), and channels or locations with "
        'exp.to_frame().groupby("cluster").mean().'
    )
    torch.manual_seed(0)
    encoder = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten()).eval()
    model = wc.deep.DeepClustering(encoder, np.eye(3, 144))
    for of_images, got in (
        (wc.explain(model, images[:3]), "1 x 8 x 8 values"),
        (wc.explain(model, images[:3], at="0", units="channels"), "4 channels of layer '0'"),
    ):
        with pytest.raises(wc.InvalidInputError, match=f"^{re.escape(message.format(got))}$"):
            of_images.summary()
    with pytest.raises(wc.InvalidInputError, match=r"^summary: .* 16 values of layer '0'\. Summarize"):
        wc.explain(table_model, wine, at="0").summary()


def test_polars_in_polars_out(wine: pd.DataFrame, table_model: wc.deep.DeepClustering) -> None:
    exp = explain(table_model, pl.from_pandas(wine))
    assert isinstance(exp.to_frame(), pl.DataFrame)
    assert isinstance(exp[3:5].data, pl.DataFrame)
    np.testing.assert_array_equal(exp[3:5].relevance, explain(table_model, wine).relevance[3:5])


def test_a_column_called_cluster_keeps_its_name(
    wine: pd.DataFrame, table_model: wc.deep.DeepClustering
) -> None:
    frame = explain(table_model, wine.rename(columns={"proline": "cluster"})).to_frame()
    assert frame.columns[0] == "cluster_"
    assert "cluster" in frame.columns


def test_selected_rows_keep_their_explanations(
    wine: pd.DataFrame, table_model: wc.deep.DeepClustering
) -> None:
    exp = explain(table_model, wine)
    selected = exp[[5, 2]]
    np.testing.assert_array_equal(selected.cluster, exp.cluster[[5, 2]])
    np.testing.assert_array_equal(selected.data, wine.iloc[[5, 2]])
    np.testing.assert_array_equal(selected.features.relevance, exp.features.relevance[[5, 2]])
    np.testing.assert_allclose(selected.residual, exp.residual[[5, 2]])
    assert selected.describe(1).startswith("Input 2 is in cluster")
    assert len(list(selected)) == 2


def test_channels_and_locations_have_names(images: torch.Tensor, image_model: wc.deep.DeepClustering) -> None:
    by_channel = explain(image_model, images, at="1", units="channels")
    assert by_channel.names == ["channel 0", "channel 1", "channel 2", "channel 3"]
    assert by_channel.to_frame().shape == (40, 7)
    assert repr(by_channel).startswith("<DeepExplanation of 40 inputs, 4 channels of layer '1', 3 clusters (")
    whole = explain(image_model, images, at="1")
    np.testing.assert_allclose(by_channel.relevance, whole.relevance.sum((2, 3)), atol=1e-6)
    by_location = explain(image_model, images, at="1", units="locations")
    np.testing.assert_allclose(by_location.relevance, whole.relevance.sum(1), atol=1e-6)
    np.testing.assert_allclose(by_location.heatmaps, whole.heatmaps, atol=1e-6)
    message = (
        "to_frame: relevance must have shape (n, d), one number per unit; it has shape (40, 4, 8, 8). "
        'Explain with units="channels" or units="locations".'
    )
    with pytest.raises(wc.InvalidInputError, match=re.escape(message)):
        whole.to_frame()
    with pytest.raises(wc.InvalidInputError, match="heatmaps: relevance must not be summed over locations"):
        _ = by_channel.heatmaps


def test_images_are_described_by_relevance_for_and_against(
    images: torch.Tensor, image_model: wc.deep.DeepClustering
) -> None:
    exp = explain(image_model, images)
    values = exp.relevance[7]
    text = exp.describe(7)
    assert text.startswith(f"Input 7 is in cluster {exp.cluster[7]}: evidence {exp.evidence[7]:.3g}, nearest")
    assert re.search(rf"total for the cluster +{re.escape(f'{values[values > 0].sum():.3g}')}", text)
    at = ", ".join(map(str, np.unravel_index(np.abs(values).argmax(), values.shape)))
    assert f"strongest, at {at}" in text
    assert "... and 37 more inputs" in str(exp)
    with pytest.raises(
        wc.InvalidInputError, match=r"describe: row must be a single integer position; got 'a'\."
    ):
        exp.describe("a")


def test_plots_show_images_next_to_heat_maps(
    images: torch.Tensor, image_model: wc.deep.DeepClustering
) -> None:
    exp = explain(image_model, images)
    figure = exp.plot([0, 5, 6])
    assert len(figure.axes) == 6
    names = [f"{i}: cluster {exp.cluster[i]}" for i in (0, 5, 6)]
    assert [axis.get_ylabel() for axis in figure.axes[::2]] == names
    assert len(exp.plot(3).axes) == 2
    image = np.asarray(figure.axes[2].images[0].get_array())
    np.testing.assert_allclose(image[..., 0], images[5, 0] / images[5, 0].max(), atol=1e-6)
    heat = np.asarray(figure.axes[3].images[0].get_array())
    np.testing.assert_allclose(heat, exp.heatmaps[5], atol=1e-7)


def test_locations_are_clustered_and_each_cluster_has_a_map(images: torch.Tensor) -> None:
    torch.manual_seed(0)
    encoder = nn.Sequential(nn.Conv2d(1, 6, 3, padding=1, bias=False), nn.ReLU(), nn.MaxPool2d(2)).eval()
    found = wc.deep.spatial_clusters(encoder, images[:3] + 0.1, "1", n_clusters=4, reference="midpoint")
    assert found.relevance.shape == (3, 4, 1, 8, 8)
    assert found.cluster.shape == (3, 8, 8)
    assert len(found) == 3
    assert found[1].shape == (4, 8, 8)
    evidence = found.locations.evidence.reshape(3, 8, 8)
    for c in range(4):
        np.testing.assert_allclose(
            found.evidence[:, c], (evidence * (found.cluster == c)).sum((1, 2)), rtol=1e-5
        )
    np.testing.assert_allclose(found.residual, 0, atol=1e-4 * found.evidence.max())
    assert len(found.plot().axes) == 3 * 5
    assert "4 clusters of 8 x 8 locations" in repr(found)


def test_a_single_image_needs_no_batch_axis(images: torch.Tensor) -> None:
    torch.manual_seed(0)
    encoder = nn.Sequential(nn.Conv2d(1, 6, 3), nn.ReLU()).eval()
    one = wc.deep.spatial_clusters(encoder, images[0], None, 2)
    batch = wc.deep.spatial_clusters(encoder, images[:1], None, 2)
    np.testing.assert_array_equal(one.relevance, batch.relevance)


def test_an_image_is_encoded_once_to_cluster_and_once_to_explain(
    images: torch.Tensor,
) -> None:
    torch.manual_seed(0)
    encoder, runs = nn.Sequential(nn.Conv2d(1, 6, 3), nn.ReLU()).eval(), []
    encoder.register_forward_hook(lambda *_: runs.append(1))
    wc.deep.spatial_clusters(encoder, images[0], None, 2)
    assert len(runs) == 2


def test_more_clusters_than_locations_is_an_error(images: torch.Tensor) -> None:
    encoder = nn.Sequential(nn.Conv2d(1, 6, 7), nn.ReLU()).eval()
    message = (
        "spatial_clusters: the layer must have at least n_clusters=8 locations; it has 4. Name an earlier "
        "layer, or request fewer clusters."
    )
    with pytest.raises(wc.InvalidInputError, match=re.escape(message)):
        wc.deep.spatial_clusters(encoder, images[0], None)


def test_features_are_the_clustered_features(images: torch.Tensor) -> None:
    torch.manual_seed(0)
    encoder = nn.Sequential(nn.Conv2d(1, 6, 3), nn.ReLU(), nn.Flatten(), nn.Linear(216, 5)).eval()
    with torch.no_grad():
        maps, last = encoder[1](encoder[0](images)), encoder(images)
    np.testing.assert_allclose(wc.deep.features(encoder, images), last, atol=1e-6)
    np.testing.assert_allclose(
        wc.deep.features(encoder, images, layer="1").reshape(maps.shape), maps, atol=1e-6
    )
    pooled = wc.deep.features(encoder, images, layer="1", pool="max")
    np.testing.assert_allclose(pooled, maps.amax((2, 3)), atol=1e-6)
    locations = wc.deep.features(encoder, images, layer="1", spatial=True, normalize=True)
    assert locations.shape == (40, 6, 6, 6)
    lengths = np.linalg.norm(locations, axis=-1)
    assert np.isclose(lengths[lengths > 0], 1, atol=1e-5).all()
    with pytest.raises(wc.InvalidInputError, match="features: the layer must return locations to cluster"):
        wc.deep.features(encoder, images, spatial=True)


class Tokens(nn.Module):
    """An embedding of words, then a transformer."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(20, 8)
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.layer(self.table(x)).mean(1)
        return out


def test_tokens_have_relevance_at_their_embedding() -> None:
    torch.manual_seed(0)
    encoder, ids = Tokens().eval(), torch.randint(0, 20, (12, 5))
    model = fitted(encoder, ids)
    exp = explain(model, ids, at="table", units="locations")
    assert exp.relevance.shape == (12, 5)
    named = sum(exp.residual_shares.values())
    np.testing.assert_allclose(named, exp.residual, atol=1e-4 * exp.evidence.max())
    usual = wc.deep.DeepClustering(encoder, model.head, rules="transformer", reference="midpoint")
    exp = explain(usual, ids, at="table", units="locations")
    assert np.abs(exp.residual).max() <= 1e-4 * exp.evidence.max()
    message = (
        "explain: X must hold floating-point numbers to receive relevance; this encoder uses integers as "
        "embedding indices. Use at=... to name the embedding layer or a later layer."
    )
    with pytest.raises(wc.InvalidInputError, match=re.escape(message)):
        explain(model, ids)


def test_integers_are_values_without_an_embedding(table_model: wc.deep.DeepClustering) -> None:
    X = np.random.default_rng(0).integers(-3, 3, (20, 13))
    exp, same = explain(table_model, X), explain(table_model, X.astype(np.float32))
    np.testing.assert_array_equal(exp.relevance, same.relevance)


class LastState(nn.Module):
    """The last output of a recurrent layer."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.layer(x)[0][:, -1]
        return out


@pytest.mark.parametrize("kind", [nn.RNN, nn.GRU, nn.LSTM])
@pytest.mark.parametrize("n_layers", [1, 2])
def test_recurrent_layers_conserve(kind: Any, n_layers: int) -> None:
    torch.manual_seed(0)
    encoder = LastState(kind(4, 6, n_layers, batch_first=True)).eval()
    X = torch.randn(30, 5, 4)
    exp = explain(fitted(encoder, X), X)
    assert exp.relevance.shape == (30, 5, 4)
    assert np.abs(exp.residual).max() <= 1e-4 * exp.evidence.mean()
    assert torch.backends.mkldnn.enabled  # again


def test_batches_follow_the_size_of_inputs() -> None:
    sizes = {
        (3, 224, 224): 16,
        (3, 32, 32): 512,
        (3, 2000, 2000): 1,
        (64,): 512,
    }
    for shape, expected in sizes.items():
        assert Inputs.open(torch.empty(1, *shape), "test").default_batch_size == expected
    assert Inputs.open(torch.zeros(1, 512, dtype=torch.int64), "test").default_batch_size == 4


def test_sums_that_nearly_cancel_do_not_blow_up() -> None:
    class Difference(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x[:, :2] - x[:, 2:]

    X = torch.tensor([[1.0, 5.0, 1.0 + 1e-6, 1.0], [1.0, 5.0, 3.0, 1.0]])
    relevance = torch.ones(2, 2)
    calm = wc.deep.lrp(Difference(), X, relevance)
    wild = wc.deep.lrp(Difference(), X, relevance, rules=wc.deep.Composite(sums=0.0))
    assert wild.abs().max() > 1e5
    assert calm.abs().max() < 21  # (2 + gamma) / gamma
    torch.testing.assert_close(calm.sum(1), relevance.sum(1))
    torch.testing.assert_close(wild[1], torch.tensor([-0.5, 1.25, 1.5, -0.25]))


def test_values_are_freed_only_in_the_last_pass(images: torch.Tensor) -> None:
    torch.manual_seed(0)
    encoder = nn.Sequential(
        nn.Conv2d(1, 6, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 4, 3), nn.ReLU()
    ).eval()
    twice = wc.deep.spatial_clusters(encoder, images[:2], None, 2)
    for c in (0, 1):
        head = twice.locations.energy.squares.prototypes  # type: ignore[attr-defined]  # of k-means
        model = wc.deep.DeepClustering(encoder, head, spatial=True, normalize=True)
        again = explain(model, images[:2], beta=twice.locations.beta)
        np.testing.assert_allclose(again.relevance[:, c], twice.relevance[:, c], atol=1e-6)
