"""Write the golden files again: ``make golden``."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from sklearn.cluster import KMeans
from sklearn.datasets import load_wine
from sklearn.preprocessing import StandardScaler

import whycluster as wc
from tests.report_page import Page, explained_wines, words_of
from whycluster.cli.demo import demo

HERE = Path(__file__).parent


def main() -> None:
    X = StandardScaler().fit_transform(load_wine().data)
    names = [f"column {i}" for i in range(13)]
    exp = wc.explain(KMeans(5, n_init=3, random_state=0).fit(X), X, feature_names=names)
    texts = {"demo": demo(), "summary": str(exp.summary()), "explanation": str(exp)}
    with TemporaryDirectory() as folder:
        texts["report"] = words_of(Page.of(explained_wines(), Path(folder))).removesuffix("\n")
    for name, text in texts.items():
        (HERE / f"{name}.txt").write_text(text + "\n")


if __name__ == "__main__":
    main()
