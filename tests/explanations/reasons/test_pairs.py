"""Pairs: the parts add up, agree with the definition, and the sentences are true."""

from __future__ import annotations

import re
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from sklearn.cluster import BisectingKMeans, KMeans
from sklearn.datasets import load_wine
from sklearn.decomposition import PCA
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.mixture import GaussianMixture
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import whycluster as wc
from tests.optional import optional
from tests.reference import pairs as reference
from whycluster.models.energies.dissimilarities import ManhattanEnergy

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
else:
    pd = optional("pandas")
    pl = optional("polars")

X = StandardScaler().fit_transform(load_wine().data)[:, :6]
KMEANS = KMeans(4, n_init=3, random_state=0).fit(X)
MIXTURE = GaussianMixture(3, covariance_type="diag", random_state=0).fit(X)


def check(exp: Any, split: reference.Split, rows: Any, pairs: Any, atol: float = 1e-9) -> None:
    """Compare pairs with the definition."""
    k = len(exp.labels)
    for a, b in pairs:
        found, expected = exp.pair(a, b), reference.pair(split, k, rows[a], rows[b])
        assert found.clusters == tuple(exp.labels[list(expected.clusters)].tolist())
        assert found.competitors == tuple(exp.labels[list(expected.competitors)].tolist())
        assert found.evidence == pytest.approx(expected.evidence, abs=atol)
        assert found.parts == pytest.approx(expected.parts, abs=atol)
        assert found.is_together == (expected.clusters[0] == expected.clusters[1])


def some_pairs(n: int, seed: int = 0) -> list[tuple[int, int]]:
    rng = np.random.default_rng(seed)
    return [tuple(rng.choice(n, 2, replace=False).tolist()) for _ in range(30)]


class TestDefinition:
    def test_kmeans(self) -> None:
        exp = wc.explain(KMEANS, X)
        check(exp, reference.kmeans_split(KMEANS.cluster_centers_), X, some_pairs(len(X)))

    def test_apart_in_kmeans_it_is_the_difference_along_the_line_between_the_centers(self) -> None:
        exp = wc.explain(KMEANS, X)
        for a, b in some_pairs(len(X), 1):
            pair = exp.pair(a, b)
            if not pair.is_together:
                one, other = KMEANS.cluster_centers_[list(pair.clusters)]
                assert pair.relevance == pytest.approx(2.0 * (X[a] - X[b]) * (one - other), abs=1e-9)

    def test_a_pipeline(self) -> None:
        raw = load_wine().data
        pipe = make_pipeline(StandardScaler(), KMeans(3, n_init=3, random_state=0)).fit(raw)
        exp = wc.explain(pipe, raw)
        split = reference.kmeans_split(pipe[-1].cluster_centers_)
        check(exp, split, pipe[0].transform(raw), some_pairs(len(raw)))

    def test_a_mixture(self) -> None:
        exp = wc.explain(MIXTURE, X)
        check(exp, reference.diagonal_split(MIXTURE), X, some_pairs(len(X)))
        for a, b in some_pairs(len(X)):
            pair = exp.pair(a, b)
            # Apart, the weights of the components cancel, so that nothing is left over.
            assert pair.is_together or pair.residual == pytest.approx(0.0, abs=1e-9)

    def test_other_distances(self) -> None:
        network = wc.TableNetwork(ManhattanEnergy(KMEANS.cluster_centers_))
        check(network.explain(X), reference.manhattan_split(KMEANS.cluster_centers_), X, some_pairs(len(X)))


class TestSums:
    @pytest.mark.parametrize(
        "model",
        [
            BisectingKMeans(4, random_state=0),
            make_pipeline(PCA(3), KMeans(4, n_init=3, random_state=0)),
            wc.KernelKMeans(3, random_state=0),
            GaussianMixture(3, covariance_type="full", random_state=0),
        ],
        ids=lambda model: type(model).__name__,
    )
    def test_parts_and_residual_add_up(self, model: Any) -> None:
        exp = wc.explain(model.fit(X), X)
        for a, b in some_pairs(len(X), 2)[:10]:
            pair, back = exp.pair(a, b), exp.pair(b, a)
            assert pair.parts.sum() + pair.residual == pytest.approx(pair.evidence.sum(), abs=1e-9)
            assert (pair.evidence > -1e-9).all()
            assert back.relevance == pytest.approx(pair.relevance, abs=1e-9)
            assert back.rows == pair.rows[::-1]
            if type(model).__name__ in ("BisectingKMeans", "Pipeline"):
                assert pair.residual == pytest.approx(0.0, abs=1e-9)

    def test_documents(self) -> None:
        documents = [
            "the cat sat on the mat",
            "a cat and a dog",
            "dogs and cats play",
            "stocks fell on monday",
            "the market and stocks rose",
            "bonds and the market fell",
        ] * 3
        pipe = make_pipeline(TfidfVectorizer(), KMeans(3, n_init=3, random_state=0)).fit(documents)
        exp: Any = wc.explain(pipe, documents)
        vectors = pipe[0].transform(documents).toarray()
        for a, b in [(0, 1), (0, 3), (3, 4), (0, 6), (4, 5)]:
            pair = exp.pair(a, b)
            expected = reference.pair(
                reference.kmeans_split(pipe[-1].cluster_centers_), 3, vectors[a], vectors[b]
            )
            assert pair.clusters == expected.clusters
            assert pair.competitors == expected.competitors
            assert pair.evidence == pytest.approx(expected.evidence, abs=1e-9)
            assert pair.residual == pytest.approx(0.0, abs=1e-9)
            words = [set(re.findall(r"\w\w+", documents[row])) for row in (a, b)]
            assert set(pair.feature_names) == words[0] | words[1]
            for row in range(2):
                one = exp[[a, b][row]]
                told: Any = wc.explain(
                    pipe, one.data, target=pair.clusters[row], against=pair.competitors[row]
                )
                sums: dict[str, float] = {}
                for word in told.words():
                    if word.known:
                        sums[word.text.lower()] = sums.get(word.text.lower(), 0.0) + word.relevance
                shown = dict(zip(pair.feature_names, pair.parts[row].tolist(), strict=True))
                assert {w: r for w, r in shown.items() if w in words[row]} == pytest.approx(sums, abs=1e-9)
        assert "word" in pair.to_frame().columns
        assert str(exp.pair(0, 1)).startswith("Documents 0 and 1 are") or "document 1 is in" in str(
            exp.pair(0, 1)
        )


def mixed() -> Any:
    rng = np.random.default_rng(0)
    kind = np.arange(90) % 3
    return pd.DataFrame(
        {
            "spend": 10.0 * kind + rng.normal(size=90),
            "region": np.array(["North", "South", "East"])[kind],
            "joined": pd.Timestamp("2020-01-01") + pd.to_timedelta(30 * kind, unit="D"),
        },
        index=[f"C{i:03}" for i in range(90)],
    )


class TestText:
    def test_rows_apart(self) -> None:
        exp = wc.explain(KMEANS, X)
        for a, b in some_pairs(len(X), 3):
            pair = exp.pair(a, b)
            expected = reference.pair(reference.kmeans_split(KMEANS.cluster_centers_), 4, X[a], X[b])
            one, other = (f"{each:.3g}" for each in expected.evidence)
            total, text = f"{expected.evidence.sum():.3g}", " ".join(str(pair).split("feature")[0].split())
            c, d = expected.clusters
            k = expected.competitors[0]
            if c != d:
                relevance = expected.parts.sum(axis=0)
                first = int(relevance.argmax())
                assert text == (
                    f"Row {a} is in cluster {c}, and row {b} is in cluster {d}. The evidence that separates "
                    f"them is {total}: {one} for cluster {c} against cluster {d} in row {a}, and {other} for "
                    f"cluster {d} against cluster {c} in row {b}. x{first} ({X[a, first]:.3g} and "
                    f"{X[b, first]:.3g}) separates them most: it contributes {relevance[first]:.3g} of this "
                    "evidence."
                )
                continue
            claim = (
                f"Rows {a} and {b} are both in cluster {c}. Their strongest common competitor is "
                f"cluster {k}: the evidence against it is {one} for row {a} and {other} for row {b}, "
                f"{total} in total."
            )
            least = expected.parts.min(axis=0)
            first = int(least.argmax())
            if least[first] > 0:
                p, q = expected.parts[:, first]
                claim += (
                    f" x{first} ({X[a, first]:.3g} and {X[b, first]:.3g}) is the strongest evidence for "
                    f"both: it contributes {p:.3g} for row {a} and {q:.3g} for row {b}."
                )
            assert text == claim

    def test_the_table_adds_up(self) -> None:
        exp = wc.explain(KMEANS, X)
        pair = exp.pair(0, 100)
        lines = pair.describe(2).splitlines()
        start = next(i for i, line in enumerate(lines) if line.startswith("feature"))
        assert lines[start].split("  ")[0] == "feature"
        rows = [line.split() for line in lines[start + 2 :]]
        order = np.argsort(-np.abs(pair.relevance))[:2]
        assert [row[0] for row in rows] == [*(f"x{i}" for i in order), "4"]
        assert [float(row[5]) for row in rows[:2]] == pytest.approx(pair.relevance[order], rel=5e-3)
        left = np.delete(np.vstack([pair.parts, pair.relevance]), order, axis=1).sum(axis=1)
        assert [float(each) for each in rows[2][3:]] == pytest.approx(left, rel=5e-3)

    def test_names_categories_and_dates(self) -> None:
        frame = mixed()
        exp = wc.explain(wc.tabular.pipeline(frame, 3, random_state=0), frame)
        pair = exp.pair(0, 1)
        assert pair.rows == ("C000", "C001")
        assert "Row C000 is in cluster" in str(pair)
        assert pair.values[0, 1] == "North"
        assert re.search(r"region +North +South", str(pair))
        assert re.search(r"joined +2020-01-01 +2020-01-31", str(pair))
        assert pair.residual == pytest.approx(0.0, abs=1e-9)
        assert pair.to_frame()["relevance"].is_monotonic_decreasing
        assert exp[10:].pair(0, 1).rows == ("C010", "C011")
        assert exp[10:].pair(0, 1).positions.tolist() == [10, 11]

    def test_two_clusters_and_a_mixture_with_a_residual(self) -> None:
        exp = wc.explain(KMeans(2, n_init=1, random_state=0).fit(X), X)
        own = np.flatnonzero(exp.cluster == 0)[:2].tolist()
        assert (
            f"Rows {own[0]} and {own[1]} are both in cluster 0. The evidence against cluster 1 is"
            in " ".join(str(exp.pair(*own)).split())
        )
        exp = wc.explain(MIXTURE, X)
        own = np.flatnonzero(exp.cluster == 0)[:2].tolist()
        pair = exp.pair(*own)
        assert abs(pair.residual) > 1e-3
        assert "no single feature" in str(pair)

    def test_labels_speak_of_the_surrogate(self) -> None:
        exp = wc.explain(KMEANS.labels_, X)
        assert "according to the surrogate" in str(exp.pair(0, 1))


class TestErrors:
    @pytest.mark.parametrize(
        ("rows", "message"),
        [
            ((0, 0), "pair: a and b must be different rows; both are at position 0."),
            ((0, -178), "pair: a and b must be different rows; both are at position 0."),
            ((0, 178), "pair: b must be a position from 0 to 177; got 178."),
            (("C1", 0), "pair: a must be a single integer position; got 'C1'."),
            ((True, 0), "pair: a must be a single integer position; got True."),
            (([1], 0), "pair: a must be a single integer position; got [1]."),
        ],
    )
    def test_messages(self, rows: Any, message: str) -> None:
        with pytest.raises(wc.InvalidInputError) as caught:
            wc.explain(KMEANS, X).pair(*rows)
        assert str(caught.value) == message

    def test_some_rows_of_a_model_that_needs_the_means(self) -> None:
        exp = wc.explain(make_pipeline(PCA(3), KMeans(4, n_init=1, random_state=0)).fit(X), X)
        assert exp.energy.needs_means
        with pytest.raises(wc.InvalidInputError) as caught:
            exp[5:].pair(0, 1)
        assert str(caught.value) == (
            "pair: the explanation must contain all rows, since the split of this model's evidence depends "
            "on the means of all rows; it contains only some of them. Use the explanation that it was taken "
            "from."
        )

    def test_changed_data(self) -> None:
        rows = X.copy()
        exp = wc.explain(KMEANS, rows)
        rows += 1.0
        with pytest.raises(wc.InvalidInputError, match=r"^pair: the data have been changed since they were "):
            exp.pair(0, 1)


class TestWhatIsPrinted:
    def test_rows_of_the_same_name_are_told_apart(self) -> None:
        frame = pd.DataFrame(X, index=["a"] * len(X))
        pair = wc.explain(KMEANS, frame.to_numpy()).pair(0, 1)
        named = wc.explain(KMeans(2, n_init=1, random_state=0).fit(frame), frame).pair(0, 1)
        assert "position" not in str(pair)
        assert named.claim().startswith("Rows a (position 0) and a (position 1) are both in cluster ")

    def test_a_residual_of_each_row_is_listed_even_if_it_cancels_in_both(self) -> None:
        rng = np.random.default_rng(1)
        kind = np.arange(60) % 3
        rows = np.c_[rng.normal(size=60) + 4 * (kind == 1), rng.normal(size=60) + 4 * (kind == 2)]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the surrogate misses a few labels
            pair = wc.explain(kind, rows).pair(0, 1)
        rest = pair.evidence - pair.parts.sum(axis=1)
        assert np.abs(rest).min() > 1e-3 > 1e-9 > abs(pair.residual)
        assert str(pair).splitlines()[-1].split() == [
            *["no", "single", "feature"],
            *[f"{each:.3g}" for each in rest],
            "0",
        ]

    def test_rounding_error_is_zero(self) -> None:
        rows = np.array([[0.1, 0.3, 7.0], [0.2, 9.7, 7.0], [0.3, 0.1, 7.0], [0.1, 9.9, 7.0]])
        pair = wc.explain(KMeans(2, n_init=1, random_state=0).fit(rows), rows).pair(0, 1)
        assert "e-" not in str(pair)
        assert "-0 " not in str(pair)
