"""A reader for the data of a report, which decodes them like the script, and explanations to report."""

from __future__ import annotations

import base64
import html
import json
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import whycluster as wc
from tests.optional import load_frame, optional

if TYPE_CHECKING:
    import pandas as pd
else:
    pd = optional("pandas")

HOSTILE = [
    "<script>window.hacked = 1</script>",
    "</script><script>window.hacked = 1</script>",
    '"><img src=x onerror="window.hacked = 1">',
    "<!-- & ' \" -->",
    "\u202eright to left\u2028\u2029\x00\x07",
    "\u200e\u200f\u202a\u202b\u202c\u202d\u2066\u2067\u2068\u2069\u061c\u200b\ufeff\x1b[31m\x9b\x7f",
]


@dataclass(frozen=True)
class Page:
    """The text of a report."""

    text: str

    @classmethod
    def of(cls, exp: Any, tmp_path: Path, **options: Any) -> Page:
        path = tmp_path / "report.html"
        exp.report(path, **options)
        return cls(path.read_text(encoding="utf-8"))

    @cached_property
    def data(self) -> dict[str, Any]:
        found = re.search(r'<script type="application/json" id="data">(.*?)</script>', self.text, re.DOTALL)
        assert found is not None
        data: dict[str, Any] = json.loads(found[1])
        return data

    def array(self, name: str) -> NDArray[Any]:
        packed = self.data[name]
        numbers = np.frombuffer(base64.b64decode(packed["data"]), dtype=f"<{packed['type']}")
        return np.asarray(numbers.reshape(packed["shape"]))

    def scaled(self, name: str, scale: str) -> NDArray[np.float64]:
        """Return half-precision numbers multiplied by the scale of their row."""
        values = self.array(name).astype(np.float64)
        return values * self.array(scale).astype(np.float64).reshape(-1, *[1] * (values.ndim - 1))

    def values(self) -> NDArray[np.float64]:
        """Return the values of numeric features, (n, F)."""
        code, feature = self.array("value"), self.array("feature")
        values = np.empty(code.shape)
        for i, known in enumerate(self.data["features"]):
            some = code[feature == i]
            missing, some = some == 65535, np.where(some == 65535, 0, some).astype(int)
            if "known" in known:
                numbers = self.array(known["known"])[known["start"] + some].tolist()
                digits = 6 if known["known"] == "singles" else 17
                found = np.array([float(f"{number:.{digits}g}") for number in numbers])
            else:
                found = (known["low"] + some) / 10.0 ** known["decimals"]
            values[feature == i] = np.where(missing, np.nan, found)
        return values


def words_of(page: Page) -> str:
    """Return the visible text of the page without scripts, line by line."""
    body = (
        page.text.partition("<body>")[2].partition('<script type="application/json"')[0].replace("<wbr>", "")
    )
    text = html.unescape(re.sub(r"<[^>]*>", " ", body))
    lines = (re.sub(r"\s+", " ", line).strip() for line in text.splitlines())
    return "\n".join(line for line in lines if line) + "\n"


def explained_wines() -> wc.Explanation:
    """Explain wines, clustered after scaling."""
    X = load_frame("wine").data
    model = make_pipeline(StandardScaler(), KMeans(3, n_init=5, random_state=0)).fit(X)
    exp = wc.explain(model, X)
    assert isinstance(exp, wc.Explanation)
    return exp


def many_rows(n: int = 5000, d: int = 50, n_clusters: int = 8) -> wc.Explanation:
    """Explain rows around random centers."""
    random = np.random.default_rng(0)
    centers = 3 * random.normal(size=(n_clusters, d))
    X = random.normal(size=(n, d)) + centers[random.integers(0, n_clusters, n)]
    exp = wc.explain(KMeans(n_clusters, n_init=1, random_state=0).fit(X[:2000]), X)
    assert isinstance(exp, wc.Explanation)
    return exp


def hostile_table() -> tuple[wc.Explanation, list[str]]:
    """Explain a table whose names are attacks, and return ids of the rows that are attacks, too."""
    random = np.random.default_rng(0)
    n = 60
    group = random.integers(0, 2, n)
    frame = pd.DataFrame(
        {
            HOSTILE[0]: random.normal(4.0 * group),
            HOSTILE[1]: random.normal(4.0 * group),
            HOSTILE[4]: np.array(HOSTILE[2:4])[group],
        }
    )
    labels = np.array(HOSTILE[:2])[group]
    exp = wc.explain(labels, frame)
    assert isinstance(exp, wc.Explanation)
    return exp, [HOSTILE[i % len(HOSTILE)] + str(i) for i in range(n)]
