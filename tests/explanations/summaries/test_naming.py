"""Names of clusters: proposals that are true of the data, and the names that users give."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.cluster import DBSCAN, KMeans
from sklearn.datasets import load_breast_cancer, load_iris, load_wine, make_blobs
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import whycluster as wc
from whycluster.cli import main

pd: Any = pytest.importorskip("pandas")


def _tables() -> dict[str, Any]:
    rng = np.random.default_rng(1)
    blobs = pd.DataFrame(make_blobs(300, 6, centers=8, random_state=0)[0], columns=list("abcdef"))
    mixed = pd.DataFrame(
        {
            "age": rng.integers(18, 80, 300),
            "spend": rng.lognormal(3, 1, 300),
            "city": rng.choice(["Rome", "Paris", "Oslo, North"], 300, p=[0.5, 0.3, 0.2]),
            "since": pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 900, 300), unit="D"),
            "score": np.where(rng.random(300) < 0.5, np.nan, rng.normal(size=300)),
        }
    )
    tables = {"iris": load_iris(as_frame=True).data, "wine": load_wine(as_frame=True).data}
    cancer = load_breast_cancer(as_frame=True).data
    return {**tables, "cancer": cancer, "blobs": blobs, "mixed": mixed}


def _explain(frame: Any, k: int) -> wc.Explanation:
    if "city" in frame:
        return wc.explain(wc.tabular.pipeline(frame, n_clusters=k), frame)
    return wc.explain(make_pipeline(StandardScaler(), KMeans(k, n_init=1, random_state=0)).fit(frame), frame)


def _is_true(word: str, frame: Any, own: Any, clusters: Any) -> bool:
    """Derive one word of a name again from the table."""
    kind, _, rest = word.partition(" ")
    if kind in ("high", "late", "low", "early"):
        inside, outside = frame.loc[own, rest].mean(), frame.loc[~own, rest].mean()
        others = frame[rest][~own].groupby(clusters[~own]).mean().dropna()
        if kind in ("high", "late"):
            return bool(inside > outside and (others < inside).mean() >= 2 / 3)
        return bool(inside < outside and (others > inside).mean() >= 2 / 3)
    if kind == "no":
        missing = frame[rest].isna()
        return bool(missing[own].mean() > max(0.5, missing[~own].mean()))
    values = frame[kind].astype(str)
    return bool((values[own] == rest.strip('"')).mean() > 0.5)


@pytest.mark.parametrize("k", [2, 3, 6, 10])
@pytest.mark.parametrize("table", list(_tables()))
def test_proposed_names_are_unique_and_true(table: str, k: int) -> None:
    frame = _tables()[table]
    exp = _explain(frame, k)
    names = exp.names()
    assert list(names) == np.unique(exp.cluster).tolist()
    assert len(set(names.values())) == len(names)
    n_words = 0
    for label, name in names.items():
        text = re.sub(r" \(cluster \d+\)$", "", name)
        assert text, name
        for word in re.split(r", (?=high |low |late |early |no |city )", text):
            if word.startswith("cluster "):
                continue
            n_words += 1
            assert _is_true(word, frame, pd.Series(exp.cluster == label), exp.cluster), (label, name)
    assert n_words >= k


def test_a_middle_cluster_is_neither_high_nor_low() -> None:
    centers = [[0.0, 0.0], [4.0, 9.0], [8.0, 0.0]]
    exp = wc.explain(centers, np.repeat(centers, 20, axis=0))
    assert exp.names() == {0: "low x0", 1: "high x1", 2: "high x0"}


def test_clusters_that_cannot_be_told_apart_in_words_keep_their_labels() -> None:
    X = np.repeat([[0.0, 0.0], [4.0, 0.0], [8.0, 0.0]], 20, axis=0)
    exp = wc.explain([[0.0, 0.0], [4.0, 0.0], [8.0, 0.0]], X)
    assert exp.names() == {0: "low x0", 1: "cluster 1", 2: "high x0"}


def test_noise_is_called_noise() -> None:
    X, _ = make_blobs(200, 2, centers=3, cluster_std=0.5, random_state=0)
    labels = DBSCAN(eps=0.35).fit_predict(X)
    exp = wc.explain(labels, X)
    assert exp.names()["noise"] == "noise"


class TestRename:
    """Names that users give."""

    def _exp(self) -> wc.Explanation:
        return _explain(load_iris(as_frame=True).data, 3)

    def test_everything_shows_the_names(self, tmp_path: Path) -> None:
        exp = self._exp().rename({0: "Loyal", 2: "Rare"})
        assert set(exp.cluster.tolist()) == {"Loyal", 1, "Rare"}
        assert exp.summary().clusters.tolist() == ["Loyal", 1, "Rare"]
        assert any("Loyal" in text and "cluster" in text for text in wc.findings.sentences(exp))
        assert "Loyal" in exp.describe(int(np.flatnonzero(exp.cluster == "Loyal")[0]))
        assert {"Loyal", "Rare"} <= set(exp.to_frame()["cluster"])
        exp.report(tmp_path / "report.html")
        assert "Cluster Loyal" in (tmp_path / "report.html").read_text("utf-8")

    def test_the_numbers_stay_the_same_and_the_original_too(self) -> None:
        exp = self._exp()
        other = exp.rename(exp.names())
        np.testing.assert_array_equal(other.relevance, exp.relevance)
        np.testing.assert_array_equal(other.competition, exp.competition)
        assert exp.labels.tolist() == [0, 1, 2]

    def test_surrogates_keep_their_fidelity(self) -> None:
        X, y = make_blobs(150, 2, centers=3, cluster_std=0.3, random_state=0)
        exp = wc.explain(y, X).rename({0: "a"})
        assert exp.fidelity is not None
        assert exp.fidelity.labels.tolist() == ["a", 1, 2]

    @pytest.mark.parametrize(
        ("names", "message"),
        [
            (
                {0: "a", 1: "a"},
                "rename: each cluster must have its own name; 'a' would name several clusters.",
            ),
            ({9: "a"}, "rename: names may contain only the clusters 0, 1, 2; got 9."),
            ({0: " "}, "rename: a name must be text; got ' ' for cluster 0."),
            ({0: 5}, "rename: a name must be text; got 5 for cluster 0."),
            ({True: "a"}, "rename: names may contain only the clusters 0, 1, 2; got True."),
            (
                {0: "noise"},
                "rename: 'noise' is the name of rows far from all clusters; got it for cluster 0. Choose "
                "another name.",
            ),
            (["a"], "rename: names must map clusters to names, as in {0: 'Loyal'}; got list."),
        ],
    )
    def test_bad_names(self, names: Any, message: str) -> None:
        with pytest.raises(wc.InvalidInputError, match=f"^{re.escape(message)}$"):
            self._exp().rename(names)

    def test_markup_in_names_is_shown_and_not_obeyed(self, tmp_path: Path) -> None:
        exp = self._exp().rename({0: "<script>alert(1)</script>"})
        exp.report(tmp_path / "report.html")
        assert "<script>alert(1)" not in (tmp_path / "report.html").read_text("utf-8")

    def test_a_network_is_renamed_too(self) -> None:
        X = load_iris().data
        net = wc.neuralize(KMeans(3, n_init=1, random_state=0).fit(X))
        codes = net.assign(X)
        other = net.rename({1: "one"})
        assert other.assign(X).tolist() == [{1: "one"}.get(code, code) for code in codes.tolist()]
        assert net.assign(X).tolist() == codes.tolist()
        assert set(wc.explain(other, X, target="one").cluster.tolist()) == {"one"}


class TestCommand:
    """The option --names."""

    @pytest.fixture
    def table(self, tmp_path: Path) -> str:
        load_iris(as_frame=True).data.to_csv(tmp_path / "iris.csv", index=False)
        return str(tmp_path / "iris.csv")

    @pytest.mark.parametrize(
        ("file", "text"),
        [
            ("names.csv", 'cluster,name\n0,Loyal\n2,"Rare, old"\n'),
            ("names.csv", "\ufeff0,Loyal\n\n2, Rare, old \n".replace(" Rare, old ", '"Rare, old"')),
            ("names.json", '{"0": "Loyal", "2": "Rare, old"}'),
        ],
    )
    def test_names_from_a_file(
        self, table: str, tmp_path: Path, file: str, text: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (tmp_path / file).write_text(text, "utf-8")
        options = ["--k", "3", "--names", str(tmp_path / file), "--quiet"]
        assert main(["explain", table, *options]) == 0
        shown = capsys.readouterr().out
        assert re.search(r"^Loyal \(\d+ rows\): ", shown, re.MULTILINE)
        assert re.search(r"^Rare, old \(\d+ rows\): ", shown, re.MULTILINE)
        assert main(["compare", table, "Loyal", "Rare, old", *options]) == 0
        assert "Clusters Loyal and Rare, old, compared" in capsys.readouterr().out

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("0,a,b\n", "is not: a line has 3 values instead of 2."),
            ("0,a\n7,b\n", "whycluster: --names must contain only known clusters (0, 1, 2); got '7'."),
            (
                "0,a\n1,a\n",
                "whycluster: --names: each cluster must have its own name; 'a' would name several ",
            ),
            ("0,a\n1, \n", "whycluster: --names: a name must be text; got '' for cluster 1.\n"),
            (
                "0,a\n0,b\n",
                "whycluster: --names must name each cluster at most once; cluster 0 has two names.\n",
            ),
        ],
    )
    def test_bad_files(
        self, table: str, tmp_path: Path, text: str, message: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (tmp_path / "names.csv").write_text(text)
        assert main(["explain", table, "--k", "3", "--names", str(tmp_path / "names.csv"), "--quiet"]) == 2
        assert message in capsys.readouterr().err

    def test_a_key_of_json_that_is_repeated(
        self, table: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (tmp_path / "names.json").write_text('{"0": "a", "0": "b"}')
        assert main(["explain", table, "--k", "3", "--names", str(tmp_path / "names.json"), "--quiet"]) == 2
        assert (
            "--names must name each cluster at most once; cluster 0 has two names." in capsys.readouterr().err
        )

    def test_a_missing_file(self, table: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["explain", table, "--k", "3", "--names", "none.csv", "--quiet"]) == 2
        assert capsys.readouterr().err == (
            "whycluster: --names must be a readable file; No such file or directory: 'none.csv'.\n"
        )

    def test_not_for_folders(self, table: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        (tmp_path / "in").mkdir()
        out, table = str(tmp_path / "out"), str(Path(table).rename(tmp_path / "in" / "iris.csv").parent)
        assert main(["explain", table, "--k", "3", "--names", "none.csv", "--out", out, "--quiet"]) == 2
        assert capsys.readouterr().err == (
            "whycluster: --names does not work with results in a folder. Set --out to a file.\n"
        )
