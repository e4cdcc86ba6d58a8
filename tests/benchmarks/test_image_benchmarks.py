"""The benchmarks and examples on images, with small networks and random data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

for library in ("torch", "PIL", "matplotlib"):
    pytest.importorskip(library, reason=f"{library} is not installed")


import numpy as np
import torch
from PIL import Image

import whycluster as wc
from benchmarks import deep_rows, segments, table1
from examples import representations, vgg16
from examples.spiral import spiral


@pytest.fixture
def small_vgg() -> vgg16.VGG16:
    torch.manual_seed(0)
    return vgg16.VGG16(widths=(8, 8, 8, 8, 8)).eval()


def write_bsds(folder: Path) -> None:
    """Write three images, each with a map of two halves and a map of four quarters."""
    (folder / "images").mkdir(parents=True)
    pixels = np.random.default_rng(0).integers(0, 255, size=(3, 24, 40, 3), dtype=np.uint8)
    halves = np.repeat([[1, 2]], 24, axis=0).repeat(20, axis=1).astype(np.uint8)
    quarters = halves + 2 * (np.arange(24) >= 12).astype(np.uint8)[:, None]
    for number, image in enumerate(pixels):
        Image.fromarray(image).save(folder / "images" / f"{number}.jpg")
    maps: dict[str, Any] = {f"{n}_{i}": m for n in range(3) for i, m in enumerate((quarters, halves))}
    np.savez(folder / "segmentations.npz", **maps)


def test_segments_are_read_with_the_coarsest_map_first(tmp_path: Path) -> None:
    write_bsds(tmp_path)
    pictures = segments.read_pictures(tmp_path, size=32)
    assert len(pictures) == 3
    assert [len(np.unique(labels)) for labels in pictures[0].segments] == [2, 4]
    assert (pictures[0].segments[1][:16, 16:] == 2).all()
    assert pictures[0].image.shape == (3, 32, 32)


def test_segments_are_measured_and_drawn(
    results: Path, small_vgg: vgg16.VGG16, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segments, "ENDS", {1: 5, 2: 10})
    monkeypatch.setattr(segments, "N_JOBS", 1)
    write_bsds(results)
    pictures = segments.read_pictures(results, size=32)
    n_threads = torch.get_num_threads()
    *_, found = segments.measured(small_vgg, pictures)
    torch.set_num_threads(n_threads)
    assert all(np.shape(scores) == (3, 2) for block in found.values() for scores in block.values())
    # Maps of ones: the root of the area, which is a half or a quarter
    np.testing.assert_allclose(found[1]["whole image"], [[0.5**0.5, (0.5**0.5 + 0.5) / 2]] * 3)
    segments.report(found, pictures)
    assert (results / "segments.png").read_bytes().startswith(b"\x89PNG")
    page = (results / "segments.md").read_text()
    assert "We use 3 images. Their coarsest segmentations have 2 to 2 segments" in page
    assert all(f"\n| {name} | " in page for name in segments.METHODS)


def test_segments_list_missing_folders(results: Path) -> None:
    with pytest.raises(SystemExit) as stop:
        segments.main()
    assert str(stop.value) == (
        f"benchmarks.segments: {results / 'nowhere'} must contain bsds500 and vgg16. "
        "Pass their folder as --data."
    )


def test_clusters_of_a_representation_are_drawn_by_size(small_vgg: vgg16.VGG16) -> None:
    image = spiral(48)
    found = [representations.clusters_of(small_vgg, image, block, 4) for block in (1, 2)]
    for one in found:
        assert one.heatmaps.shape == (4, 48, 48)
        assert one.shares.sum() == pytest.approx(1.0)
        assert (np.diff(one.shares) <= 0).all()
        assert abs(one.lost) < 1e-3
    figure = representations.draw(image, found)
    titles = [place.get_title() for place in figure.axes]
    assert titles[0] == titles[5] == ""
    assert titles[1] == f"{100 * found[0].shares[0]:.0f} % of locations"


def test_the_painting_is_cut_to_a_square(tmp_path: Path) -> None:
    strip = np.zeros((20, 400, 3), dtype=np.uint8)
    strip[:, representations.LEFT : representations.LEFT + 20] = 255
    Image.fromarray(strip).save(tmp_path / "strip.png")
    square = representations.read_painting(tmp_path / "strip.png", 20)
    assert square.shape == (3, 20, 20)
    assert (square == 1.0).all()


def linear_maps(values: list[list[float]], weights: list[list[float]]) -> deep_rows.Maps:
    """Return images with constant maps, and features that are weighted sums of the maps."""
    layer = torch.nn.Conv2d(len(weights[0]), len(weights), 1, bias=False)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor(weights)[:, :, None, None])
    maps = torch.tensor(values)[:, :, None, None].expand(-1, -1, 2, 2).contiguous()
    return deep_rows.Maps(maps, deep_rows.Upper(layer).eval())


def test_the_area_while_maps_are_added() -> None:
    """An image is in its cluster once the first map, with weight 3, is known."""
    maps = linear_maps([[1.0, 1.0, 1.0, 1.0]] * 2, [[3.0, 1.0, 0.0, 0.0]])
    relevance = np.array([[4.0, 3.0, 2.0, 1.0], [1.0, 2.0, 3.0, 4.0]])

    def assign(features: np.ndarray) -> np.ndarray:
        return (features[:, 0] > 2.0).astype(int)

    cluster = np.ones(2, dtype=int)
    one_by_one = deep_rows.flip(deep_rows.add(maps, relevance), assign, cluster)
    assert one_by_one.curves.tolist() == [[0, 1, 1, 1, 1], [0, 0, 0, 0, 1]]
    assert one_by_one.per_row.tolist() == [87.5, 12.5]
    assert deep_rows.flip(deep_rows.add(maps, relevance, 2), assign, cluster).per_row.tolist() == [75.0, 25.0]
    assert maps.without_each()[0, :, 0].tolist() == [1.0, 3.0, 4.0, 4.0]


def test_methods_for_maps_match_their_formulas() -> None:
    """For two clusters and a linear network, all methods that multiply by the input agree."""
    rng = np.random.default_rng(0)
    maps = linear_maps(rng.uniform(size=(5, 4)).tolist(), rng.normal(size=(3, 4)).tolist())
    everything = maps.features(np.ones((5, 4), dtype=bool))
    row = deep_rows.Row(2, "kmeans", (0.0,) * 6)
    case = deep_rows.Case.of(row, everything, maps, np.arange(5))
    found = dict(case.relevances(maps.without_each()))
    difference = 2 * (case.head.cluster_centers_[case.cluster] - case.head.cluster_centers_[1 - case.cluster])
    weights = difference @ np.asarray(maps.upper.layers.weight.detach())[:, :, 0, 0]  # type: ignore[union-attr,operator]  # a convolution
    values = maps.values[:, :, 0, 0].numpy()
    assert found["gradient x input"] == pytest.approx(values * weights, abs=1e-5)
    assert found["ig-10"] == pytest.approx(values * weights, abs=1e-5)
    # Each of the four places has a quarter.
    assert found["squared gradient"] == pytest.approx(weights**2 / 4, abs=1e-5)
    left = found["pda of f"] + case.network.evidence(everything)[np.arange(5), case.cluster][:, None]
    assert left == pytest.approx(values * weights, abs=1e-5)


def test_explanations_of_maps_match_those_from_the_pixels(tmp_path: Path) -> None:
    write_deep_data(tmp_path, (2, 2, 6, 4, 4))
    network = vgg16.load(tmp_path / "vgg16", (2, 2, 6, 4, 4))
    X = np.random.default_rng(0).normal(size=(6, 3, 32, 32)).astype(np.float32)
    with torch.no_grad():
        maps = deep_rows.Maps(
            network.features[:17](torch.from_numpy(X)), deep_rows.Upper(network.features[17:]).eval()
        )
    features = maps.features(np.ones((6, 6), dtype=bool))
    case = deep_rows.Case.of(deep_rows.Row(2, "kmeans", (0.0,) * 6), features, maps, np.arange(6))
    asked: dict[str, Any] = {"at": vgg16.BLOCKS[3], "units": "channels", "beta": case.beta}
    options: dict[str, Any] = {"pool": "mean", "rules": wc.deep.Gamma(0.1)}
    default = wc.explain(wc.deep.DeepClustering(network, case.head, **options), X, **asked)
    model = wc.deep.DeepClustering(network, case.head, reference="midpoint", **options)
    paper = wc.explain(model, X, rule="min-take-most", **asked)
    for found, whole in ((case.neon(), paper), (case.explain().relevance, default)):
        assert found == pytest.approx(
            whole.relevance, rel=1e-4, abs=1e-6 * float(np.abs(whole.relevance).max())
        )
    assert np.abs(paper.relevance - default.relevance).max() > 0.1 * np.abs(paper.relevance).max()


def test_the_deep_rows_are_written(results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run with a narrow network and a few images, on files of the real format."""
    widths = (2, 2, 8, 4, 4)
    for name, value in {
        "WIDTHS": widths,
        "SIZE": 32,
        "IMAGES": 4,
        "STEP": 4,
        "FINE": 2,
        "GAMMAS": (0.5,),
    }.items():
        monkeypatch.setattr(deep_rows, name, value)
    monkeypatch.setattr(
        deep_rows,
        "ROWS",
        [deep_rows.Row(3, kind, (1.0, 2.0, 3.0, 4.0, 5.0, 7.0)) for kind in ("kmeans", "scan")],
    )
    write_deep_data(tmp_path, widths)
    monkeypatch.setattr("sys.argv", ["benchmark", "--deep", "--data", str(tmp_path)])
    table1.main()
    page = (results / "table1_deep.md").read_text()
    assert "We cluster 40 images from CIFAR-10, upsampled from 32 to 32 pixels, and explain 4 of them" in page
    assert "| VGG-s, K = 3 | paper | 1.00 | 2.00 | 3.00 | 4.00 | 5.00 | 7.00 |" in page
    assert "| VGG-s / SCAN, K = 3 | +2.00 | " in page
    default = "the default is the rule joint with the reference zero, because"
    assert f"- VGG-s, K = 3: {default} none of the 4 inputs has a negative feature." in page
    assert f"- VGG-s / SCAN, K = 3: {default} a linear head has no other reference." in page
    assert not (results / "table1.md").exists()


def write_deep_data(folder: Path, widths: tuple[int, ...]) -> None:
    """Write random images and the weights of a narrow VGG-16 to the files that the benchmark reads."""
    rng = np.random.default_rng(0)
    (folder / "cifar10").mkdir()
    images = rng.integers(0, 256, size=(40, 32, 32, 3), dtype=np.uint8)
    np.savez(folder / "cifar10" / "cifar10_subset.npz", images=images)
    (folder / "vgg16").mkdir()
    arrays: dict[str, Any] = {}
    n_before = 3
    for block, (width, depth) in enumerate(zip(widths, vgg16.DEPTHS, strict=True), start=1):
        for place in range(1, depth + 1):
            arrays[f"conv{block}_{place}.weight"] = rng.normal(size=(width, n_before, 3, 3)) / 3
            arrays[f"conv{block}_{place}.bias"] = rng.uniform(size=width) / 3
            n_before = width
    np.savez(folder / "vgg16" / "weights.npz", **arrays)


def test_the_deep_rows_need_their_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["benchmark", "--deep", "--data", "nowhere"])
    with pytest.raises(FileNotFoundError, match="cifar10_subset"):
        table1.main()
