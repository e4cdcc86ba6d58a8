"""The benchmarks of faithfulness, on data that ship with scikit-learn: they run and list missing files."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("matplotlib", reason="matplotlib is not installed")

import numpy as np
from sklearn.cluster import KMeans
from sklearn.mixture import GaussianMixture

from benchmarks import beta, datasets, mixtures, rules, runtime, table1, varying
from whycluster.evaluation import METHODS


@pytest.mark.slow
def test_table_1_lists_missing_files(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table1, "SEEDS", range(1))
    monkeypatch.setattr(table1, "REPEATS", 2)
    table1.main()
    page = (results / "table1.md").read_text()
    assert "| winer | 178 x 13 | 6 | kmeans | paper | 78.36 |" in page
    assert "first" in page
    for name in ("buddy", "hepac", "seeds", "news", "trpad", "sales", "water", "whlsl"):
        assert f"- {name}: not measured" in page


@pytest.mark.slow
def test_rules_list_missing_files(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "SEEDS", range(1))
    monkeypatch.setattr(rules, "MOST_ROWS", 60)
    monkeypatch.setattr(rules, "TUNED", {"iris": 3, "hepac": 8})
    monkeypatch.setattr(rules, "TESTED", {"winer": 3})
    rules.main()
    page = (results / "rules.md").read_text()
    assert "| winer | 60 x 13 | 3 |" in page
    assert "- hepac: not measured" in page
    assert all(f"| {name} |" in page for name in (*rules.MAIN, *rules.CANDIDATES))


@pytest.mark.slow
def test_fresh_data_sets_have_a_page_of_their_own(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not rules.FRESH.keys() & {**rules.TUNED, **rules.TESTED}.keys()
    monkeypatch.setattr(rules, "SEEDS", range(1))
    monkeypatch.setattr(rules, "MOST_ROWS", 60)
    monkeypatch.setattr(rules, "FRESH", {"factors": 3, "hepac": 8})
    monkeypatch.setattr("sys.argv", ["benchmark", "--fresh", "--data", str(results / "nowhere")])
    rules.main()
    page = (results / "rules_fresh.md").read_text()
    assert "| factors | 60 x 12 | 3 |" in page
    assert "- hepac: not measured" in page
    assert "| fresh | " in page
    assert not (results / "rules.md").exists()


@pytest.mark.slow
def test_mixtures_list_missing_files(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mixtures, "SEEDS", range(1))
    monkeypatch.setattr(mixtures, "MOST_ROWS", 60)
    monkeypatch.setattr(mixtures, "TUNED", {"iris": 3, "hepac": 8})
    monkeypatch.setattr(mixtures, "TESTED", {"winer": 3})
    monkeypatch.setattr(mixtures, "FRESH", {"factors": 3})
    monkeypatch.setattr(mixtures, "SHAPES", ((2, 3),))
    mixtures.main()
    page = (results / "mixtures.md").read_text()
    assert page.count("| winer | 60 x 13 | 3 |") == 2
    assert page.count("| factors | 60 x 12 | 3 |") == 2
    assert page.count("- hepac: not measured") == 1
    assert all(f"| {name} | +" in page for name in (*mixtures.QUADRATIC, *mixtures.RULES))


def test_the_quadratic_split_of_mixtures_adds_up() -> None:
    """Up to component weights and determinants; a tied covariance has one determinant."""
    X = datasets.load("winer", Path("nowhere"))
    model = GaussianMixture(2, covariance_type="tied", random_state=0).fit(X)
    s, _ = mixtures.splits(model, X)
    own, log_weights = s.argmin(axis=1), np.log(model.weights_)
    expected = s.max(axis=1) - s.min(axis=1) + log_weights[1 - own] - log_weights[own]
    for joint in (False, True):
        assert np.allclose(mixtures.quadratic(model, X, joint=joint).sum(axis=1), expected)


def test_candidates_match_the_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two candidates are rules of the package, written differently."""
    monkeypatch.setattr(rules, "SEEDS", range(1))
    X = datasets.load("winer", Path("nowhere"))
    model = KMeans(5, n_init=1, random_state=0).fit(X)
    case = rules.Case(model, X, X)
    sequential, path = (METHODS[f"neon {rule}"](model, X) for rule in ("sequential", "path"))
    for candidate, expected in {
        "joint, beta x 1, sizes^0": METHODS["neon joint"](model, X),
        "sequential, gains only": 3 * sequential - path,  # of which the rule takes two thirds
    }.items():
        made = rules.CANDIDATES[candidate](case)
        for row in range(0, len(X), 20):
            assert np.corrcoef(made[row], expected[row])[0, 1] == pytest.approx(1.0)


@pytest.mark.slow
def test_figures_are_drawn(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(varying, "FEATURES", (2, 3))
    monkeypatch.setattr(varying, "CLUSTERS", (2, 3, 4, 5, 6, 7))
    monkeypatch.setattr(varying, "SEEDS", range(1))
    monkeypatch.setattr(varying, "BASELINES", varying.BASELINES[:1])
    monkeypatch.setattr(varying, "METHODS", ["neon", "neon sequential", *varying.BASELINES])
    varying.main()
    monkeypatch.setattr(beta, "FACTORS", (0.5, 1.0, 2.0))
    monkeypatch.setattr(table1, "SEEDS", range(1))
    beta.main()
    for name in ("varying", "beta"):
        assert (results / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert "![" in (results / f"{name}.md").read_text()
    assert "- hepac: not measured" in (results / "beta.md").read_text()


def test_slopes_are_exponents() -> None:
    assert runtime.slope([1, 2, 4, 8], [5.0, 3.0, 12.0, 48.0]) == pytest.approx(2.0)
    sizes = runtime.axes_of("neon")
    assert [size.p for size in sizes["p"]] == [16, 32, 64, 128]
    assert runtime.problem(sizes["p"][0]).rows.shape == (1024, 32)
