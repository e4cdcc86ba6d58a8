"""Plots draw the numbers of the explanation, show names as plain text, and change nothing else."""

from __future__ import annotations

import io
import pickle
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import NDArray
from scipy import sparse
from sklearn.cluster import HDBSCAN, KMeans
from sklearn.datasets import load_digits, load_wine, make_blobs
from sklearn.decomposition import PCA
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.mixture import GaussianMixture
from sklearn.pipeline import make_pipeline

import whycluster as wc
from examples import plots as example
from tests.optional import optional
from whycluster.explanations.maps.projection import project
from whycluster.plots import maps, style, swarm

if TYPE_CHECKING:
    import torch
    from torch import nn
else:
    torch = optional("torch")
    nn = optional("torch:nn")

FOR, AGAINST = "#1e6edc", "#e66e00"
LONG = "average_monthly_amount_in_{}_of_the_customer"


@pytest.fixture(scope="module")
def names() -> list[str]:
    return [str(name) for name in load_wine().feature_names]


@pytest.fixture(scope="module")
def exp(wine: NDArray[np.float64], kmeans: Any, names: list[str]) -> wc.Explanation:
    return wc.explain(kmeans, wine, feature_names=names)


@pytest.fixture(scope="module")
def wide() -> wc.Explanation:
    """100 features with long names and 30 clusters, in single precision."""
    X, _ = make_blobs(600, 100, centers=30, random_state=1, cluster_std=9)
    frame = pd.DataFrame(X.astype(np.float32), columns=[LONG.format(1900 + i) for i in range(100)])
    return wc.explain(KMeans(30, n_init=1, random_state=0).fit(frame), frame)


@pytest.fixture(scope="module")
def texts() -> Any:
    documents = ["cat dog cat", "dog cat fur", "bank bond tax", "tax bank bank", "cat tax", "fur fur dog"]
    model = make_pipeline(TfidfVectorizer(), KMeans(2, n_init=5, random_state=0)).fit(documents)
    return wc.explain(model, documents)


@pytest.fixture(scope="module")
def digits() -> Any:
    images = torch.tensor(load_digits().images[:40, None] / 16, dtype=torch.float32)
    torch.manual_seed(0)
    encoder = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 8)).eval()
    head = KMeans(4, n_init=2, random_state=0).fit(encoder(images).detach().numpy())
    return wc.explain(wc.deep.DeepClustering(encoder, head), images)


def axes() -> Any:
    return Figure(figsize=(5, 4)).add_subplot()


def drawn(ax: Any) -> None:
    """Render the figure; matplotlib warns here about problems, and warnings are errors."""
    with io.BytesIO() as file:
        ax.figure.savefig(file, format="png", dpi=50)
        assert file.getvalue().startswith(b"\x89PNG")


def bars(ax: Any) -> list[Rectangle]:
    return [patch for patch in ax.patches if isinstance(patch, Rectangle)]


def places(points: Any) -> NDArray[np.float64]:
    return np.asarray(points.get_offsets())


def tick_labels(axis: Any) -> list[str]:
    return [label.get_text() for label in axis.get_ticklabels()]


def texts_in(ax: Any) -> list[str]:
    return [text.get_text() for text in ax.texts]


# One row


def test_bars_are_relevance_and_add_up_to_the_evidence(exp: wc.Explanation, names: list[str]) -> None:
    ax = exp.plot.row(3, n_features=5)
    *single, rest, total = bars(ax)
    order = np.argsort(-np.abs(exp.relevance[3]))
    np.testing.assert_allclose([bar.get_width() for bar in single], exp.relevance[3][order[:5]])
    np.testing.assert_allclose(rest.get_width(), exp.relevance[3][order[5:]].sum())
    assert total.get_width() == exp.evidence[3]
    np.testing.assert_allclose(sum(bar.get_width() for bar in [*single, rest]), total.get_width())
    assert all(bar.get_x() == 0 for bar in bars(ax))
    value = np.asarray(exp.data)[3]
    labels = tick_labels(ax.yaxis)
    assert labels[0] == f"{names[order[0]]} = {value[order[0]]:.3g}"
    assert labels[-2:] == ["8 more features", "evidence (the sum)"]
    assert "0: decision boundary" in texts_in(ax)
    assert ax.get_title(loc="left").replace("\n", " ") == exp.describe(3).splitlines()[0]
    drawn(ax)


def test_what_is_no_features_has_a_bar(wine: NDArray[np.float64]) -> None:
    model = GaussianMixture(3, random_state=0, covariance_type="diag").fit(wine)
    exp = wc.explain(model, wine, threshold=0.9)
    ax = exp.plot.row(0)
    *parts, total = bars(ax)
    assert tick_labels(ax.yaxis)[-4:-1] == [
        "3 more features",
        "the threshold 0.9",
        "no single feature",
    ]
    np.testing.assert_allclose(sum(bar.get_width() for bar in parts), total.get_width(), rtol=1e-6)
    np.testing.assert_allclose(total.get_width(), exp.evidence[0])


def test_signs_are_seen_without_colors(exp: wc.Explanation) -> None:
    row = int(np.argmin(exp.relevance.min(axis=1)))
    ax = exp.plot.row(row, n_features=13)
    signs = set()
    for bar, label in zip(bars(ax)[:-1], texts_in(ax), strict=False):
        against = bar.get_width() < 0
        signs.add(against)
        assert (bar.get_hatch() == "////") == against
        assert to_hex(bar.get_facecolor()) == (AGAINST if against else FOR)
        assert label.startswith("\N{MINUS SIGN}" if against else "+")
    assert signs == {True, False}


def test_a_row_that_is_not_in_the_cluster_has_its_evidence_to_the_left(
    wine: NDArray[np.float64], kmeans: Any
) -> None:
    exp = wc.explain(kmeans, wine, target=1)
    row = int(np.flatnonzero(exp.assigned != 1)[0])
    ax = exp.plot.row(row)
    assert bars(ax)[-1].get_width() == exp.evidence[row] < 0
    assert ", not in 1" in ax.get_title(loc="left").replace("\n", " ")
    drawn(ax)


def test_a_row_without_relevance_is_drawn() -> None:
    exp = wc.explain([[0.0, 0.0], [2.0, 0.0]], [[1.0, 0.0]])
    ax = exp.plot.row()
    assert [bar.get_width() for bar in bars(ax)] == [0, 0, 0]
    assert texts_in(ax)[:3] == ["0", "0", "0"]
    drawn(ax)


def test_a_hundred_features_show_the_strongest_and_say_how_many_more(wide: wc.Explanation) -> None:
    ax = wide.plot.row(0)
    assert len(bars(ax)) == 12
    assert tick_labels(ax.yaxis)[-2] == "90 more features"
    np.testing.assert_allclose(sum(b.get_width() for b in bars(ax)[:-1]), wide.evidence[0], rtol=1e-4)
    drawn(ax)


def test_words_are_counted(texts: Any) -> None:
    ax = texts.plot.row(0)
    assert "cat \N{MULTIPLICATION SIGN} 2" in tick_labels(ax.yaxis)
    np.testing.assert_allclose(sum(b.get_width() for b in bars(ax)[:-1]), texts.evidence[0])
    drawn(ax)


def test_channels_have_bars(digits: Any) -> None:
    model_explained = digits.features.plot.row(2, n_features=3)
    assert tick_labels(model_explained.yaxis)[-2] == "5 more features"


# Clusters


def test_every_cluster_has_a_panel_with_its_shares(exp: wc.Explanation, names: list[str]) -> None:
    panels = exp.plot.clusters(n_features=4)
    summary = exp.summary()
    assert panels.shape == (5,)
    for group, ax in enumerate(panels):
        order = np.argsort(-np.abs(summary.share[group]))[:4]
        np.testing.assert_allclose([bar.get_width() for bar in bars(ax)], summary.share[group, order])
        assert ax.get_title(loc="left") == f"cluster {group} ({summary.size[group]} rows)"
        statement = summary.statement(group, order[0])
        than = f" than in {statement.against[0]}" if len(statement.against) == 1 else ""  # else too long
        assert tick_labels(ax.yaxis)[0] == f"{style.cut(names[order[0]])}, {statement.direction}{than}"
        assert tick_labels(ax.yaxis)[-1] == "9 more features"
    assert len({ax.get_xlim() for ax in panels}) == 1
    drawn(panels[0])


def test_one_cluster_is_one_panel(exp: wc.Explanation) -> None:
    given_axes = axes()
    ax = exp.plot.clusters(2, ax=given_axes)
    assert ax is given_axes
    assert ax.get_title(loc="left").startswith("cluster 2 (")
    panels = Figure().subplots(5)
    assert list(exp.plot.clusters(ax=panels)) == list(panels)


@pytest.mark.slow
def test_categories_and_noise_are_named(wine: NDArray[np.float64]) -> None:
    labels = HDBSCAN(min_cluster_size=8, copy=True).fit_predict(wine)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", wc.FidelityWarning)
        exp = wc.explain(labels, wine)
    assert exp.plot.clusters()[-1].get_title(loc="left").startswith("noise (")
    assert tick_labels(exp.plot.competition().xaxis)[-1] == "noise"
    markers = exp.plot.map().get_legend_handles_labels()[1]
    assert markers[2].startswith("noise (")
    frame = pd.DataFrame({"age": [20.0, 21, 60, 61], "city": ["Rome", "Rome", "Oslo", "Oslo"]})
    mixed = wc.explain(wc.tabular.pipeline(frame, 2), frame)
    labeled = {label for ax in mixed.plot.clusters() for label in tick_labels(ax.yaxis)}
    old = mixed.cluster[2]
    ages = {f"age, higher than in {1 - old}", f"age, lower than in {old}"}
    assert labeled == {"city, mostly Rome", "city, mostly Oslo"} | ages
    for ax in (mixed.plot.row(), mixed.plot.beeswarm(), mixed.plot.map(), mixed.plot.heatmap()):
        drawn(ax)


@pytest.mark.slow
def test_small_shares_have_a_digit_behind_the_point(wide: wc.Explanation) -> None:
    panels = wide.plot.clusters()
    assert panels.shape == (30,)
    share = wide.summary().share[0]
    assert texts_in(panels[0])[0] == f"{np.abs(share).max():+.1%}"
    drawn(panels[0])


def test_words_make_clusters(texts: Any) -> None:
    panels = texts.plot.clusters(n_features=2)
    summary = texts.summary()
    for label, ax in zip(summary.clusters, panels, strict=True):
        assert tick_labels(ax.yaxis)[:2] == summary.words(label, 2)
        assert ax.get_title(loc="left").endswith(f"({(texts.cluster == label).sum()} documents)")
    grid = texts.plot.heatmap(n_features=4)
    assert set(tick_labels(grid.yaxis)) == set(summary.words(0, 2) + summary.words(1, 2))
    assert "strongest 4 of 6 words" in grid.get_xlabel()


@pytest.mark.slow
def test_the_heat_map_has_the_greatest_shares(exp: wc.Explanation, names: list[str]) -> None:
    ax = exp.plot.heatmap(n_features=6)
    share, shown = exp.summary().share, tick_labels(ax.yaxis)
    greatest = np.argsort(-np.abs(share).max(axis=0), kind="stable")[:6]
    assert set(shown) == {style.cut(names[i]) for i in greatest}
    columns = [[style.cut(name) for name in names].index(label) for label in shown]
    np.testing.assert_array_equal(np.asarray(ax.images[0].get_array()), share[:, columns].T)
    limits = ax.images[0].get_clim()
    assert limits[0] == -limits[1] == -np.abs(share[:, columns]).max()
    assert "the strongest 6 of 13 features" in ax.get_xlabel()
    strongest = f"{100 * np.abs(share).max():.0f}"
    assert strongest in texts_in(ax)
    drawn(ax)


def test_numbers_that_would_not_be_readable_are_left_out(wide: wc.Explanation) -> None:
    assert len(texts_in(wide.plot.heatmap())) > 100
    assert not texts_in(wide.plot.heatmap(ax=Figure(figsize=(2, 1)).add_subplot()))


# Competition


def test_the_matrix_is_the_shares_of_competitors(exp: wc.Explanation) -> None:
    ax = exp.plot.competition()
    shown = np.asarray(ax.images[0].get_array())
    for cluster in range(5):
        of = exp.competitor[exp.cluster == cluster]
        np.testing.assert_allclose(shown[cluster], [(of == other).mean() for other in range(5)])
    assert [patch.get_hatch() for patch in bars(ax)] == ["xx"] * 5
    assert [(patch.get_x(), patch.get_y()) for patch in bars(ax)] == [(i - 0.5, i - 0.5) for i in range(5)]
    drawn(ax)


def test_clusters_without_members_are_columns_only(exp: wc.Explanation) -> None:
    ax = exp[exp.cluster == 3].plot.competition()
    assert tick_labels(ax.yaxis) == ["3"]
    assert tick_labels(ax.xaxis) == ["0", "1", "2", "3", "4"]


# All rows


def test_the_swarm_has_a_point_for_every_row(exp: wc.Explanation, names: list[str]) -> None:
    ax = exp.plot.beeswarm(n_features=4)
    order = np.argsort(-np.abs(exp.relevance).mean(axis=0))[:4]
    assert tick_labels(ax.yaxis) == [style.cut(names[i]) for i in order]
    points = [c for c in ax.collections if len(places(c)) == len(exp)]
    for place, (column, found) in enumerate(zip(order, points, strict=True)):
        offsets = places(found)
        np.testing.assert_allclose(offsets[:, 0], exp.relevance[:, column])
        assert np.abs(offsets[:, 1] - place).max() < 0.5
        rank = np.asarray(found.get_array())
        value = np.asarray(exp.data)[:, column]
        assert (rank[value.argmin()], rank[value.argmax()]) == (0, 1)
    assert "9 weaker features not shown" in ax.get_xlabel()
    drawn(ax)


def test_the_swarm_of_one_cluster(exp: wc.Explanation) -> None:
    ax = exp.plot.beeswarm(cluster=2)
    size = int((exp.cluster == 2).sum())
    assert ax.get_title(loc="left") == f"relevance in cluster 2 ({size} rows)"
    assert max(len(places(c)) for c in ax.collections) == size


def test_colors_of_the_swarm_are_ordered_in_black_and_white() -> None:
    light = swarm._colormap()(np.linspace(0, 1, 20))[:, :3] @ [0.299, 0.587, 0.114]
    assert (np.diff(light) > 0).all()


def test_only_some_of_many_rows_are_drawn_and_the_title_says_so() -> None:
    X = np.random.default_rng(0).normal(size=(5000, 3))
    exp = wc.explain(KMeans(3, n_init=1, random_state=0).fit(X), X)
    assert "2,000 of 5,000 rows" in exp.plot.beeswarm().get_title(loc="left")
    ax = exp.plot.map()
    assert ax.get_title(loc="left").startswith("3,000 of 5,000 rows: two principal")
    clusters = [c for c in ax.collections if str(c.get_label()).startswith("cluster")]
    assert sum(len(places(c)) for c in clusters) == 3000
    named = [c.get_label() for c in clusters]
    assert named == [f"cluster {c} ({(exp.cluster == c).sum():,})" for c in range(3)]


def test_the_map_is_of_principal_components(exp: wc.Explanation, wine: NDArray[np.float64]) -> None:
    ax = exp.plot.map()
    place = PCA(2).fit_transform(wine)
    for code, points in enumerate(ax.collections[:5]):
        found = places(points)
        np.testing.assert_allclose(np.abs(found), np.abs(place[exp.cluster == code]), atol=1e-6)
    near = exp.evidence < 0.1 * np.median(exp.evidence)
    rings = ax.collections[5]
    assert near.any()
    assert len(places(rings)) == near.sum()
    assert rings.get_label() == f"borderline ({near.sum()})"
    assert not len(rings.get_facecolor())
    np.testing.assert_allclose(np.abs(places(rings)), np.abs(place[near]), atol=1e-6)
    drawn(ax)


def test_clusters_differ_by_color_and_marker(exp: wc.Explanation, wide: wc.Explanation) -> None:
    looks = {style.cluster_style(code, False) for code in range(56)}
    assert len(looks) == 56
    ax = exp.plot.map()
    shapes = {np.asarray(c.get_paths()[0].vertices).tobytes() for c in ax.collections[:5]}
    assert len(shapes) == 5
    assert {"0", "1", "2", "3", "4"} <= set(texts_in(ax))
    many = wide.plot.map()
    assert {str(label) for label in wide.labels} == set(texts_in(many))  # instead of a legend
    drawn(many)


def test_maps_of_sparse_rows_documents_images_and_categories(texts: Any, digits: Any) -> None:
    X = sparse.random(50, 40, 0.2, random_state=0, format="csr")
    exp = wc.explain(KMeans(2, n_init=1, random_state=0).fit(X), X)
    for ax in (exp.plot.map(), exp.plot.beeswarm(), texts.plot.map(), digits.plot.map()):
        drawn(ax)
    assert texts.plot.map().get_title(loc="left").startswith("6 documents")


def test_one_row_of_one_feature_is_enough() -> None:
    exp = wc.explain([[0.0], [1.0]], [[0.2]])
    plot = exp.plot
    for ax in (plot.row(), plot.heatmap(), plot.beeswarm(), plot.competition(), plot.map()):
        drawn(ax)
    drawn(plot.clusters()[0])


def test_constant_columns_have_no_place_in_the_map() -> None:
    X = np.column_stack([np.arange(6.0), np.full(6, 0.1), np.full(6, 1e9)])
    exp = wc.explain(X[[0, 5]], X)
    place, part, of = project(exp.energy, exp.table)
    assert of == "the model's features"
    np.testing.assert_allclose(part, [1, 0], atol=1e-12)
    np.testing.assert_allclose(np.abs(place[:, 0]), np.abs(np.arange(6) - 2.5), atol=1e-12)


@given(
    st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=8),
)
def test_few_names_never_overlap(centers: list[tuple[float, float]]) -> None:
    size = np.tile([0.06, 0.04], (len(centers), 1))
    found = maps.push_apart(np.array(centers), size, rounds=500)
    gap = np.abs(found[:, None] - found[None]) / size[0]
    separate = (gap >= 0.99).any(axis=2)
    assert separate[~np.eye(len(centers), dtype=bool)].all()


@given(st.lists(st.floats(0, 1), min_size=1, max_size=60))
def test_points_of_a_swarm_stay_in_their_line_and_apart(x: list[float]) -> None:
    offset = swarm.spread(np.array(x))
    assert np.abs(offset).max() < 0.5
    places = {(np.floor(a * 80), b) for a, b in zip(x, offset.tolist(), strict=True)}
    assert len(places) == len(x)


# Names


@pytest.mark.slow
@pytest.mark.parametrize("name", ["$x^2$", "a$b", r"\frac{1}{2}", "<b>&amp;</b>", "100%", "_hidden", "{x}"])
def test_names_are_shown_as_they_are(name: str) -> None:
    frame = pd.DataFrame({name: [0.0, 0.1, 5.0], "other": [1.0, 2.0, 3.0]})
    labels = np.array([name, name, "other"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", wc.FidelityWarning)
        exp = wc.explain(wc.neuralize([[0.0, 1.5], [5.0, 3.0]]), frame.to_numpy(), feature_names=list(frame))
        named = wc.explain(labels, frame)
    plots = [exp.plot.row(), exp.plot.clusters(0), exp.plot.heatmap(), exp.plot.beeswarm()]
    for ax in plots:
        label = next(t for t in ax.get_yticklabels() if t.get_text().startswith(name))
        assert not label.get_parse_math()
        drawn(ax)
    for ax in (named.plot.map(), named.plot.competition(), named.plot.row(), named.plot.clusters()[0]):
        drawn(ax)
    assert name in texts_in(named.plot.map())
    legend: Any = named.plot.map().get_legend()
    assert not any(text.get_parse_math() for text in legend.get_texts())


def test_control_characters_are_not_obeyed() -> None:
    exp = wc.explain([[0.0, 0], [1.0, 0]], [[0.2, 0]], feature_names=["a\nb\x1b[0m", "\u202eevil"])
    assert tick_labels(exp.plot.row().yaxis)[0].startswith("a\\nb\\x1b[0m = ")
    assert tick_labels(exp.plot.heatmap().yaxis)[1] == "\\u202eevil"


# Some systems have fonts for these characters; this one has none.
@pytest.mark.filterwarnings("ignore:Glyph .* missing from")
@pytest.mark.filterwarnings("ignore:Matplotlib currently does not support Arabic")  # before 3.11
def test_other_scripts_are_drawn() -> None:
    names = [
        "日本語のとても長い列の名前は途中で切られます本当に",
        "عمود طويل جدا من البيانات هنا",
        "a\u0301" * 40,
    ]
    exp = wc.explain([[0.0, 0, 0], [1.0, 2, 3]], [[0.2, 1, 1]], feature_names=names)
    drawn(exp.plot.row())
    label = tick_labels(exp.plot.row().yaxis)[0]
    assert "…" in label


def test_names_are_cut_in_the_middle() -> None:
    assert style.cut("short") == "short"
    assert style.cut(LONG.format(2019)) == "average_monthly…e_customer"
    assert style.cut("日" * 20) == "日" * 7 + "…" + "日" * 5


def test_names_that_would_be_the_same_keep_what_differs() -> None:
    names = [LONG.format(2019), LONG.format(2020), "short"]
    assert style.cut_all(names) == ["average_monthl…2019…stomer", "average_monthl…2020…stomer", "short"]
    assert style.cut_all([names[0]] * 2) == ["average_monthly…e_customer"] * 2  # identical names
    assert style.cut_all(["a" * 40, "a" * 41]) == ["…aaaaaaaaaaaaa…"] * 2  # too long to show the difference


@given(st.lists(st.text(max_size=60), max_size=5))
def test_all_names_fit(names: list[str]) -> None:
    assert all(style._width(name) <= 26 for name in style.cut_all(names))


@given(st.text(max_size=80), st.integers(5, 40))
def test_cut_names_fit_and_keep_their_ends(text: str, longest: int) -> None:
    found = style.cut(text, longest)
    assert style._width(found) <= longest
    assert found.isprintable()
    if text.isascii() and text.isalnum() and len(text) > longest:
        first, last = found.split("…")
        assert text.startswith(first)
        assert text.endswith(last)
        assert len(found) == longest


def test_letters_of_other_scripts_are_looked_for_in_fonts_that_are_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    font = mpl.font_manager.FontEntry(name="Noto Sans CJK JP")
    monkeypatch.setattr(mpl.font_manager.fontManager, "ttflist", [font])
    style._more_fonts.cache_clear()
    try:
        assert style.plain_text()["fontfamily"] == [*mpl.rcParams["font.family"], "Noto Sans CJK JP"]
    finally:
        style._more_fonts.cache_clear()


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0.0, "0"),
        (-0.0, "0"),
        (1.2345, "+1.23"),
        (-0.01, "\N{MINUS SIGN}0.01"),
        (3689.4, "+3,689"),
        (-2e7, "\N{MINUS SIGN}2e+07"),
    ],
)
def test_numbers_have_signs(value: float, expected: str) -> None:
    assert style.signed(value) == expected


def test_color_blind_people_can_distinguish_for_and_against() -> None:
    """People who cannot tell red from green still see blue, and the sum of red and green."""
    one, other = np.array(to_rgb(FOR)), np.array(to_rgb(AGAINST))
    assert abs(one[2] - other[2]) > 0.5
    assert abs(one[:2].sum() - other[:2].sum()) > 0.5


# Curves


def test_flipping_curves_are_drawn_best_first(wine: NDArray[np.float64], kmeans: Any) -> None:
    result = wc.evaluation.compare(kmeans, wine[:30], ["neon", "random"], repeats=2, oracle=False)
    ax = wc.plots.flipping(result)
    lines: list[Any] = list(ax.lines)
    for name, line in zip(result.methods, lines, strict=True):
        found = result.flipping[name]
        np.testing.assert_allclose(line.get_ydata(), 100 * found.curve)
        np.testing.assert_allclose(line.get_xdata(), 100 * np.arange(14) / 13)
        assert line.get_label() == f"{name}: {found.auc:.1f}"
    assert len({(line.get_linestyle(), line.get_marker()) for line in lines}) == 2
    drawn(ax)
    one = wc.plots.flipping(result.flipping["neon"])
    assert one.lines[0].get_label() == f"{result.flipping['neon'].auc:.1f}"
    named = wc.plots.flipping({"$a$": result.flipping["neon"]}, ax=axes())
    drawn(named)


def test_the_elbow_is_marked() -> None:
    X, _ = make_blobs(120, 3, centers=4, random_state=3)
    pipe = wc.tabular.pipeline(pd.DataFrame(X, columns=list("abc")), max_clusters=8)
    ax = wc.plots.elbow(pipe)
    curve = np.array(list(pipe.inertias_.values()))
    line: Any = ax.lines[0]
    np.testing.assert_array_equal(line.get_xdata(), list(pipe.inertias_))
    np.testing.assert_allclose(line.get_ydata(), curve / curve[0])
    chosen = pipe["clusters"].n_clusters
    assert texts_in(ax) == [f"{chosen} clusters chosen"]
    assert places(ax.collections[0])[0, 0] == chosen
    drawn(ax)


# Images


def test_images_stand_beside_their_heat_maps(digits: Any) -> None:
    panels: Any = digits.plot.images([3, 7])
    assert panels.shape == (2, 2)
    np.testing.assert_allclose(np.asarray(panels[1, 1].images[0].get_array()), digits.heatmaps[7], atol=1e-7)
    assert panels[1, 0].get_ylabel() == f"7: cluster {digits.cluster[7]}"
    drawn(panels[0, 0])
    assert len(digits.plot([3, 7]).axes) == 4  # the whole figure


def test_for_and_against_can_be_split_for_black_and_white(digits: Any) -> None:
    panels: Any = digits.plot.images(3, split=True)
    good, bad = (np.asarray(panels[0, i].images[0].get_array()) for i in (1, 2))
    assert good.min() >= 0 >= bad.max()
    np.testing.assert_allclose(good + bad, digits.heatmaps[3], atol=1e-7)
    assert [ax.get_title() for ax in panels[0]] == ["", "for", "against"]


def test_a_heat_map_goes_into_axes(digits: Any) -> None:
    ax = axes()
    found: Any = wc.plots.images(digits, 5, ax=ax, pool=2)
    assert found is ax
    heat = digits.heatmaps[5].reshape(4, 2, 4, 2).sum((1, 3))
    np.testing.assert_allclose(np.asarray(ax.images[0].get_array()), heat, atol=1e-6)
    drawn(ax)


# Figures, axes and errors


def all_plots(exp: Any) -> list[Callable[..., Any]]:
    plot = exp.plot
    return [
        plot.row,
        lambda ax: plot.clusters(0, ax=ax),
        plot.heatmap,
        plot.beeswarm,
        plot.competition,
        plot.map,
        plot.series,
    ]


def test_axes_are_respected_and_pyplot_is_left_alone(exp: wc.Explanation) -> None:
    for draw in all_plots(exp):
        ax = axes()
        assert draw(ax=ax) is ax
        drawn(ax)
    assert exp.plot.row().figure.canvas.manager is None
    assert not plt.get_fignums()


@pytest.mark.slow
@pytest.mark.parametrize("look", ["dark_background", "ggplot"])
def test_styles_of_the_user_are_kept(look: str, exp: wc.Explanation) -> None:
    with plt.style.context(look):
        for draw in all_plots(exp):
            drawn(draw(ax=None))
        color = exp.plot.row().yaxis.get_ticklabels()[0].get_color()
        assert to_hex(color) == to_hex(mpl.rcParams["ytick.color"])


@pytest.mark.slow
def test_notebooks_show_figures_and_files_keep_them(exp: wc.Explanation) -> None:
    for draw in all_plots(exp):
        figure = draw(ax=None).figure
        assert figure._repr_png_().startswith(b"\x89PNG")
        again = pickle.loads(pickle.dumps(figure))
        assert [tick_labels(ax.yaxis) for ax in again.axes] == [tick_labels(ax.yaxis) for ax in figure.axes]


def test_series_are_drawn_with_the_relevance_of_their_time_steps() -> None:
    X = np.random.default_rng(0).normal(size=(40, 9, 2))
    exp = wc.explain(X[:3].reshape(3, 18), X.reshape(40, 18))
    relevance = exp.relevance.reshape(X.shape)
    limits = set()
    for channel in (0, 1):
        ax = exp.plot.series(7, channel, n_channels=2)
        drawn(ax)
        line, bars_drawn = ax.figure.axes[1].lines[0], bars(ax)
        np.testing.assert_array_equal(line.get_ydata(), X[7, :, channel])
        found = {round(bar.get_center()[0]): bar.get_height() for bar in bars_drawn}
        assert found == dict(enumerate(relevance[7, :, channel].tolist()))
        assert [bool(bar.get_hatch()) for bar in bars_drawn] == [bar.get_height() < 0 for bar in bars_drawn]
        assert ax.get_title(loc="left").replace("\n", " ") == f"{exp[7].claim()}; channel {channel}"
        limits.add(ax.get_ylim())
    assert len(limits) == 1


def test_plots_say_what_there_is(exp: wc.Explanation) -> None:
    listed = "beeswarm(), clusters(), competition(), heatmap(), map(), row(), series()"
    assert repr(exp.plot) == f"<Plots of {exp!r}: {listed}>"


def test_explanations_are_as_they_were(exp: wc.Explanation) -> None:
    before = exp.relevance.copy(), exp.evidence.copy()
    for draw in all_plots(exp):
        draw(ax=axes())
    np.testing.assert_array_equal(exp.relevance, before[0])
    np.testing.assert_array_equal(exp.evidence, before[1])


def test_data_that_were_changed_are_not_drawn(wine: NDArray[np.float64], kmeans: Any) -> None:
    X = wine.copy()
    exp = wc.explain(kmeans, X)
    X += 1
    for name in ("row", "clusters", "heatmap", "beeswarm", "map", "series"):
        with pytest.raises(wc.InvalidInputError, match="the data have been changed since"):
            getattr(exp.plot, name)()


BAD: list[tuple[Callable[[Any], Any], str]] = [
    (lambda p: p.row("a"), "plot.row: row must be a single integer position; got 'a'."),
    (lambda p: p.row(True), "plot.row: row must be a single integer position; got True."),
    (lambda p: p.row(n_features=0), "plot.row: n_features must be an integer of at least 1; got 0."),
    (
        lambda p: p.clusters(n_features=1.5),
        "plot.clusters: n_features must be an integer of at least 1; got 1.5.",
    ),
    (
        lambda p: p.clusters(7),
        "plot.clusters: cluster must be one of the model's 5 clusters, 0, 1, 2, 3, 4; got 7.",
    ),
    (
        lambda p: p.beeswarm("x"),
        "plot.beeswarm: cluster must be one of the model's 5 clusters, 0, 1, 2, 3, 4; got 'x'.",
    ),
    (lambda p: p.series("a"), "plot.series: row must be a single integer position; got 'a'."),
    (
        lambda p: p.series(n_channels=2),
        "plot.series: n_channels must divide the 13 values of each series; got 2.",
    ),
    (
        lambda p: p.series(channel=1),
        "plot.series: channel must be less than the number of channels, 1; got 1. Pass n_channels= if the "
        "series have more.",
    ),
    (
        lambda p: p.row(ax="no"),
        "plot.row: ax must be matplotlib Axes, such as plt.subplots()[1]; got str.",
    ),
    (
        lambda p: p.map(ax=Figure().subplots(2)),
        "plot.map: ax must be matplotlib Axes, such as plt.subplots()[1]; got ndarray.",
    ),
    (
        lambda p: p.clusters(ax=Figure().add_subplot()),
        "plot.clusters: ax must be one Axes for each of the 5 clusters that have members; got 1. To draw a "
        "single cluster, use cluster=.",
    ),
    (
        lambda p: p.clusters(1, ax=3),
        "plot.clusters: ax must be matplotlib Axes, such as plt.subplots()[1]; got int.",
    ),
]


@pytest.mark.parametrize(("call", "message"), BAD)
def test_bad_arguments_are_named(exp: wc.Explanation, call: Callable[[Any], Any], message: str) -> None:
    with pytest.raises(wc.InvalidInputError) as caught:
        call(exp.plot)
    assert str(caught.value) == message


@pytest.mark.slow
def test_hundreds_of_clusters_are_drawn() -> None:
    X = np.random.default_rng(0).normal(size=(400, 3))
    exp = wc.explain(X[:200], X)
    assert error(exp.plot.clusters) == (
        "plot.clusters: exp must contain members of at most 60 clusters, since each cluster is drawn in its "
        "own panel; it contains members of 200. Draw one cluster with cluster=, or all clusters with "
        "heatmap()."
    )
    drawn(exp.plot.clusters(7))
    for ax in (exp.plot.heatmap(), exp.plot.competition()):
        assert max(ax.figure.get_size_inches()) <= 30
        assert tick_labels(ax.xaxis)[:2] == ["0", "2"]
        drawn(ax)
    ax = exp.plot.map()
    assert len(texts_in(ax)) == 60
    drawn(ax)


def test_rows_that_are_not_there(exp: wc.Explanation) -> None:
    with pytest.raises(IndexError, match="rows must be positions from 0 to 177"):
        exp.plot.row(178)
    np.testing.assert_array_equal(
        [b.get_width() for b in bars(exp.plot.row(-1))], [b.get_width() for b in bars(exp.plot.row(177))]
    )


def error(call: Callable[[], Any]) -> str:
    with pytest.raises(wc.InvalidInputError) as caught:
        call()
    return str(caught.value)


def test_what_cannot_be_drawn_says_what_can(texts: Any, digits: Any, exp: wc.Explanation) -> None:
    message = f"exp must have relevance for each feature; {texts!r} has none. Draw its words with "
    message += "plot.row() or plot.clusters(), or see to_html()."
    assert error(texts.plot.beeswarm) == f"plot.beeswarm: {message}"
    message = f"exp must have relevance for each feature; {digits!r} has none. Draw images with "
    message += "plot.images() and the clustered features with exp.features.plot."
    for name in ("row", "beeswarm"):
        assert error(getattr(digits.plot, name)) == f"plot.{name}: {message}"
    for name in ("clusters", "heatmap"):
        assert error(getattr(digits.plot, name)).startswith("summary: relevance must belong to the columns")
    assert error(lambda: wc.plots.row(KMeans())) == (
        "plot.row: exp must be an explanation, such as the result of explain(model, X); got KMeans."
    )
    assert error(lambda: wc.plots.images(exp)) == (  # type: ignore[arg-type]
        f"plot.images: exp must have heat maps of images; {exp!r} has none."
    )
    assert error(lambda: digits.plot.images([0, 1], ax=axes())) == (
        "plot.images: with ax, rows must be one position and split must be False; got rows=[0, 1] and "
        "split=False. Leave ax out."
    )
    assert (
        error(lambda: digits.plot.images(())) == "plot.images: rows must contain at least one position; it "
        "is empty."
    )


def test_explanations_against_the_cluster_have_no_summary(wine: NDArray[np.float64], kmeans: Any) -> None:
    some = wc.explain(kmeans, wine[kmeans.labels_ != 0], target=0)
    assert error(some.plot.clusters) == (
        "plot.clusters: exp must contain rows that are explained for the cluster they are in; it contains "
        "none. Draw single rows with plot.row(), or explain the rows without target= and against=."
    )
    assert error(some.plot.competition) == (
        "plot.competition: exp must contain rows that are explained for the cluster they are in; it "
        "contains none. Explain the rows without target= and against=."
    )
    assert error(lambda: wc.explain(kmeans, wine[kmeans.labels_ == 0]).plot.clusters(1)) == (
        "plot.clusters: cluster must be one that has members (0); got 1."
    )
    assert error(lambda: wc.explain(kmeans, wine[kmeans.labels_ == 0]).plot.beeswarm(1)) == (
        "plot.beeswarm: exp must contain at least one row that is explained for 1; it contains none."
    )
    assert error(some[:0].plot.map) == "plot.map: exp must contain at least one row; it contains none."
    none = "exp must contain at least one row; it contains none."
    assert error(some[:0].plot.beeswarm) == f"plot.beeswarm: {none}"


def test_bad_results_are_named() -> None:
    assert error(lambda: wc.plots.flipping(3)) == (
        "plots.flipping: result must come from evaluation.compare or evaluation.flipping_auc, or be a dict "
        "of flipping_auc results; got int."
    )
    assert "got dict" in error(lambda: wc.plots.flipping({}))
    assert error(lambda: wc.plots.elbow(KMeans())) == (
        "plots.elbow: pipeline must come from tabular.pipeline(frame); got KMeans."
    )
    frame = pd.DataFrame({"a": [0.0, 1.5, 5.0, 6.0]})
    assert error(lambda: wc.plots.elbow(wc.tabular.pipeline(frame, 2))) == (
        "plots.elbow: the pipeline must have chosen the number of clusters itself; n_clusters or model was "
        "given. Call tabular.pipeline without n_clusters and model."
    )


@pytest.mark.slow
def test_matplotlib_is_asked_for_when_it_is_needed() -> None:
    code = """
import sys
sys.modules["matplotlib"] = None
import whycluster as wc
exp = wc.explain([[0.0], [1.0]], [[0.2]])
for name in ("row", "clusters", "heatmap", "beeswarm", "competition", "map"):
    try:
        getattr(exp.plot, name)()
    except wc.MissingDependencyError as error:
        print(error)
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.stdout == 'plots need matplotlib: pip install "whycluster[plots]"\n' * 6, result.stderr


@pytest.mark.slow
def test_pictures_are_written_without_a_screen(exp: wc.Explanation, tmp_path: Path) -> None:
    for ending in ("png", "pdf", "svg"):
        path = tmp_path / f"why.{ending}"
        exp.plot.beeswarm().figure.savefig(path)
        assert path.stat().st_size > 1000


@pytest.mark.slow
def test_the_picture_of_the_page_is_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    example.main(["--out", str(tmp_path / "plots.png")])
    assert capsys.readouterr().out == f"written: {tmp_path / 'plots.png'}\n"
    assert (tmp_path / "plots.png").read_bytes().startswith(b"\x89PNG")
    assert [path.name for path in tmp_path.iterdir()] == ["plots.png"]
