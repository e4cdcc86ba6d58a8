"""Write the golden files again: ``make golden``."""

from __future__ import annotations

import contextlib
import io
import tempfile
from pathlib import Path
from typing import Any

from sklearn.cluster import KMeans
from sklearn.datasets import load_wine
from sklearn.preprocessing import StandardScaler

import whycluster as wc
from tests.golden import HERE
from tests.golden.findings import findings
from tests.golden.tables import write_passengers, write_wine
from tests.report.page import Page, explained_wines, words_of
from whycluster import cli


def main() -> None:
    X = StandardScaler().fit_transform(load_wine().data)
    names = [f"column {i}" for i in range(13)]
    exp = wc.explain(KMeans(5, n_init=3, random_state=0).fit(X), X, feature_names=names)
    texts = {
        "summary": f"{exp.summary()}\n",
        "explanation": f"{exp}\n",
        "findings": f"{findings()}\n",
        "demo": said("demo"),
        "help": said("--help"),
    }
    for command in (
        *("explain", "report", "row", "compare", "rules", "evaluate"),
        *("fit", "show", "changes", "verify", "demo", "models"),
    ):
        texts[f"help_{command}"] = said(command, "--help")
    with tempfile.TemporaryDirectory() as folder:
        texts["report"] = words_of(Page.of(explained_wines(), Path(folder)))
        wine, passengers = write_wine(Path(folder)), write_passengers(Path(folder))
        common = ("--k", 3, "--ignore", "kind")
        texts["cli_explain"] = said("explain", wine, *common)
        texts["cli_row"] = said("row", wine, "--id", 1003, *common)
        texts["cli_compare"] = said("compare", wine, 0, 2, *common)
        texts["cli_rules"] = said("rules", wine, *common)
        texts["cli_labels"] = said("explain", passengers, "--labels", "group")
        texts["cli_auto"] = said("explain", passengers, "--ignore", "group")
    for name, text in texts.items():
        (HERE / f"{name}.txt").write_text(text)


def said(*arguments: Any) -> str:
    """What the command prints."""
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        cli.main([str(argument) for argument in arguments])
    return printed.getvalue()


if __name__ == "__main__":
    main()
