"""Is everything true that is said about clusters in words? ``python -m benchmarks.statements --data DIR``.

Explains 20 tables with 3 to 10 clusters, and checks every claim in summaries, sentences, statements, the
output of the command and reports with `tests.reference.statements`, which shares no code with the package.
"""

from __future__ import annotations

import contextlib
import io
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.cluster import DBSCAN, AgglomerativeClustering, KMeans
from sklearn.datasets import (
    load_breast_cancer,
    load_diabetes,
    load_digits,
    load_iris,
    load_linnerud,
    load_wine,
    make_blobs,
)
from sklearn.mixture import GaussianMixture
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import whycluster as wc
from benchmarks.datasets import data_folder
from benchmarks.measure import write
from tests.reference.statements import Facts, Verdict, check
from whycluster import cli

COMMAND = "python -m benchmarks.statements --data DIR"
KINDS = ("summary", "sentence", "statement", "command", "report")


def shipped(loader: Callable[..., Any]) -> Callable[[Path], Any]:
    """Return a table of scikit-learn."""
    return lambda _: loader(as_frame=True).data


def mixed(seed: int, n: int, n_groups: int, missing: float) -> Any:
    """Return a table with numbers, categories, dates, booleans, missing values and a constant column."""
    rng = np.random.default_rng(seed)
    group = rng.integers(0, n_groups, n)
    days = pd.to_timedelta(rng.integers(0, 200, n) + 90 * (group % 3), "D")
    near = (group + (rng.random(n) < 0.2)) % 4
    frame = pd.DataFrame(
        {
            "age": rng.normal(30 + 9 * (group % 4), 6, n).round(1),
            "visits": rng.poisson(2 + 3 * group),
            "income": np.exp(rng.normal(10 + 0.4 * (group % 2), 0.5, n)),
            "city": np.array(["Rome", "Oslo", "Lima, Peru", "Bath and Wells"])[near],
            "plan": np.where(rng.random(n) < 0.2 + 0.6 * (group % 2), "pro", "free"),
            "joined": pd.Timestamp("2019-03-01") + days,
            "member": rng.random(n) < 0.2 + 0.5 * (group % 2),
            "year": 2015 + group % 3 + rng.integers(0, 3, n),
            "same": 1.5,
        }
    )
    for name in ("age", "city", "joined"):
        frame.loc[rng.random(n) < missing, name] = None
    frame.loc[(group == 1) & (rng.random(n) < 0.8), "income"] = np.nan
    return frame


def blobs(seed: int, n_groups: int, d: int, dtype: str = "float64", shift: float = 0.0) -> Any:
    """Return a table of numbers around random centers."""
    X, _ = make_blobs(500, d, centers=n_groups, cluster_std=2.0, random_state=seed)
    return pd.DataFrame((X + shift).astype(dtype), columns=[f"x{i}" for i in range(d)])


def files() -> dict[str, Callable[[Path], Any]]:
    """Return the tables that are read from files."""
    return {
        "seeds": lambda folder: pd.DataFrame(
            np.loadtxt(folder / "seeds" / "seeds_dataset.txt")[:, :7], columns=[f"size {i}" for i in range(7)]
        ),
        "buddy": lambda folder: pd.read_csv(folder / "buddy" / "buddymove_holidayiq.csv").iloc[:, 1:],
        "hepac": lambda folder: pd.read_csv(folder / "hepac" / "hcvdat0.csv"),
        "trpad": lambda folder: pd.read_csv(folder / "trpad" / "tripadvisor_review.csv").iloc[:, 1:],
        "sales": lambda folder: pd.read_csv(folder / "sales" / "Sales_Transactions_Dataset_Weekly.csv")[
            [f"W{week}" for week in range(52)]
        ],
        "water": lambda folder: (
            pd.read_csv(folder / "water" / "water-treatment.data", header=None, na_values="?")
            .iloc[:, 1:]
            .rename(columns=lambda i: f"c{i}")
        ),
        "whlsl": lambda folder: pd.read_csv(folder / "whlsl" / "Wholesale_customers_data.csv"),
    }


def tables() -> dict[str, Callable[[Path], Any]]:
    """Return the 20 tables."""
    loaders = (load_iris, load_wine, load_breast_cancer, load_diabetes, load_digits, load_linnerud)
    names = ("iris", "wine", "cancer", "diabetes", "digits", "linnerud")
    return {
        **{name: shipped(loader) for name, loader in zip(names, loaders, strict=True)},
        **files(),
        "mixed, 300 rows": lambda _: mixed(0, 300, 4, 0.0),
        "mixed, 600 rows": lambda _: mixed(1, 600, 5, 0.1),
        "mixed, many missing": lambda _: mixed(2, 400, 3, 0.4),
        "blobs": lambda _: blobs(0, 6, 4),
        "blobs, float32": lambda _: blobs(1, 5, 8, "float32"),
        "blobs, far from 0": lambda _: blobs(2, 4, 3, shift=1e7),
        "noise": lambda _: pd.DataFrame(np.random.default_rng(0).normal(size=(400, 6))).add_prefix("n"),
    }


def models(frame: Any, k: int) -> dict[str, tuple[Any, bool]]:
    """Return clusterings of a table by name, and whether they are labels."""
    pipe = wc.tabular.pipeline(frame, k)
    found: dict[str, tuple[Any, bool]] = {"k-means": (pipe, False)}
    numbers = frame.select_dtypes("number")
    if numbers.shape[1] == frame.shape[1] and not numbers.isna().any().any():
        scaled = StandardScaler().fit_transform(numbers)
        if k == 3:
            mixture = GaussianMixture(k, covariance_type="diag", random_state=0)
            found["mixture"] = (make_pipeline(StandardScaler(), mixture).fit(frame), False)
        if k == 5:
            near = np.sort(((scaled[:100, None] - scaled[None]) ** 2).sum(-1), axis=1)[:, 5]
            dense = DBSCAN(eps=float(np.sqrt(np.median(near))), min_samples=5).fit_predict(scaled)
            labels = dense if len(set(dense)) > 2 else AgglomerativeClustering(k).fit_predict(scaled)
            found["labels"] = (labels, True)
        if k == 10:
            found["unscaled"] = (KMeans(k, n_init=1, random_state=0).fit(frame.to_numpy()), False)
    return found


def shown(labels: Any) -> list[Any]:
    """Return labels as they are shown: -1 is noise."""
    return ["noise" if label == -1 else label for label in np.asarray(labels).tolist()]


def run_command(*arguments: Any) -> str:
    """Run the command, and return what it prints."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
        code = cli.main([str(argument) for argument in arguments])
    if code:
        raise RuntimeError(f"exit code {code}: {arguments}")
    return out.getvalue()


def facts_of(exp: Any, frame: Any, labels: list[Any], model: Any, data: Any = None) -> Facts:
    """Return what the claims about an explanation are checked against; ``model`` is None for labels."""
    own = [str(label) for label in labels]
    if model is None:
        counted = [str(a) == b for a, b in zip(exp.assigned.tolist(), own, strict=True)]
        return Facts(frame, labels, exp.relevance.tolist(), counted)
    found = contributions_of(exp, own, model, frame if data is None else data)
    return Facts(frame, labels, exp.relevance.tolist(), None, found)


def contributions_of(exp: Any, own: list[str], model: Any, data: Any) -> dict[str, dict[str, Any]]:
    """Return what each competitor adds to the relevance of each cluster: its share of each contrast.

    With the share R_k of the evidence and the evidence h_k against competitor k alone, the weight of the
    competitor is R_k / h_k, and its part of the relevance is that part of the relevance against it alone.
    """
    found: dict[str, dict[str, Any]] = {label: {} for label in own}
    labels = np.array(own)
    for code, other in enumerate(exp.labels.tolist()):
        alone = wc.explain(model, data, against=other, feature_names=_names(data, exp))
        weight = np.divide(
            exp.competition[:, code],
            alone.evidence,
            out=np.zeros(len(exp)),
            where=alone.evidence != 0,
            dtype=np.float64,
        )
        for label in found:
            if label != str(other):
                found[label][str(other)] = weight[labels == label] @ alone.relevance[labels == label]
    return found


def _names(data: Any, exp: Any) -> list[Any] | None:
    return None if hasattr(data, "columns") else list(exp.feature_names)


def check_explanation(exp: Any, facts: Facts, folder: Path) -> dict[str, Verdict]:
    """Check everything that is said about an explanation."""
    summary = exp.summary()
    clusters, d = summary.clusters.tolist(), len(exp.feature_names)
    said = wc.findings.statements(exp, d)
    exp.report(folder / "page.html")
    page = (folder / "page.html").read_text(encoding="utf-8")
    return {
        "summary": check(facts, summaries=[str(summary), summary.describe(d)]),
        "sentence": check(facts, sentences=list(zip(clusters, wc.findings.sentences(exp), strict=True))),
        "statement": check(facts, statements=[(each.cluster, each.text) for each in said]),
        "report": check(facts, reports=[page]),
    }


def check_command(model: Any, frame: Any, k: int, facts: Facts, folder: Path) -> Verdict:
    """Check the output of `explain` and `compare` for k-means with K clusters."""
    file = folder / "table.csv"
    frame.to_csv(file, index=False)
    verdict = check(facts, commands=[run_command("explain", file, "--k", k, "--quiet")])
    labels = facts.labels
    first, second = sorted(set(labels))[:2]
    rows = [row for row, label in enumerate(labels) if label in (first, second)]
    against = [second if labels[row] == first else first for row in rows]
    pair = wc.explain(model, frame.iloc[rows], against=np.array(against))
    own = [labels[row] for row in rows]
    known = Facts(frame.iloc[rows], own, pair.relevance.tolist())
    verdict.add(check(known, commands=[run_command("compare", file, first, second, "--k", k, "--quiet")]))
    return verdict


def check_table(frame: Any, k: int, folder: Path) -> dict[str, Verdict]:
    """Check everything that is said about a table with K clusters."""
    total = {kind: Verdict() for kind in KINDS}
    for name, (model, is_labels) in models(frame, k).items():
        data = frame.to_numpy() if name == "unscaled" else frame
        exp = wc.explain(model, data, feature_names=list(frame.columns) if name == "unscaled" else None)
        labels = shown(model if is_labels else model.predict(data))
        facts = facts_of(exp, frame, labels, None if is_labels else model, data)
        found = check_explanation(exp, facts, folder)
        if name == "k-means":
            found["command"] = check_command(model, frame, k, facts, folder)
        for kind, verdict in found.items():
            total[kind].add(verdict)
    return total


def main() -> None:
    """Check all tables, and write the results."""
    data = data_folder(__doc__)
    rows, false = [], []
    totals = {kind: Verdict() for kind in KINDS}
    for name, load in tables().items():
        frame, count = load(data), {kind: Verdict() for kind in KINDS}
        ks = [3] if len(frame) < 50 else [3, 5, 10]
        for k in ks:
            with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
                warnings.simplefilter("ignore")
                for kind, verdict in check_table(frame, k, Path(folder)).items():
                    count[kind].add(verdict)
                    totals[kind].add(verdict)
                    false += [f"{name}, K = {k}: {text}" for text in verdict.false]
        n = [count[kind].n_claims for kind in KINDS]
        wrong = sum(len(count[kind].false) for kind in KINDS)
        rows.append(
            f"| {name} | {len(frame):,} x {frame.shape[1]} | {', '.join(map(str, ks))} | "
            + " | ".join(f"{each:,}" for each in n)
            + f" | {wrong:,} |"
        )
        print(rows[-1], flush=True)
    n = [totals[kind].n_claims for kind in KINDS]
    write(
        "statements",
        COMMAND,
        [
            _INTRODUCTION,
            "",
            f"**{len(false):,} of {sum(n):,} claims are false.**",
            "",
            "| table | size | K | summaries | sentences | statements | command | report | false |",
            "|---|---|---|---:|---:|---:|---:|---:|---:|",
            *rows,
            "| all | | | " + " | ".join(f"{each:,}" for each in n) + f" | {len(false):,} |",
            *(["", "False claims:", "", *[f"- {text}" for text in false[:50]]] if false else []),
        ],
    )


_INTRODUCTION = """\
# Are the words about clusters true?

Summaries, sentences, statements, the command (`explain` and `compare`) and the report say how a cluster
compares with the clusters that it competes with.
A checker that shares no code with the package reads each claim out of the printed text and derives it
again from the raw table, the labels of the model's `predict` and the relevance.
A claim is a mean or frequency (equal to the digits shown), an order, a share, a size, a category (the one
with the largest positive relevance of those in a tenth of the rows), or a cluster that is compared with (one
of those that make up two thirds of the feature's relevance).
Text that the checker cannot read counts as a false claim.

Clusterings: k-means after `wc.tabular.pipeline`. For numeric tables without missing values also a Gaussian
mixture (K = 3), labels of DBSCAN or agglomerative clustering through a surrogate (K = 5; DBSCAN finds its
own number) and k-means on the unscaled values (K = 10)."""

if __name__ == "__main__":
    main()
