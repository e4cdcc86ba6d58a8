"""The example and the benchmark of sentence embeddings, on a few short messages."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest

from benchmarks import measure
from benchmarks import sentences as benchmark
from examples import sentences as example
from tests.sentences.test_topics import THEMES


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Write messages of 14 words about three themes to the file that the scripts read."""
    (tmp_path / "news").mkdir()
    with gzip.open(tmp_path / "news" / "mini_newsgroups.jsonl.gz", "wt") as file:
        for theme, words in THEMES.items():
            for i in range(8):
                chosen = [words[(i * step) % 6] for step in (1, 2, 3, 5, 7, 11)]
                body = f"Message {i} on the {' and '.join(chosen)} <b>"
                text = f"From: a@b\nSubject: none\n\n{body}\n--\nsigned"
                file.write(json.dumps({"group": f"group.{theme}<i>", "id": str(i), "text": text}) + "\n")
    return tmp_path


@pytest.mark.slow
def test_the_example(data: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    out = data / "page.html"
    monkeypatch.setattr("sys.argv", ["sentences", "--data", str(data), "--out", str(out), "--clusters", "3"])
    monkeypatch.setattr(example, "SHORTEST", 10)
    example.main()
    assert "<TextExplanation of 24 documents" in capsys.readouterr().out
    page = out.read_text("utf-8")
    assert "24 messages from 3 newsgroups" in page
    assert "signed" not in page
    assert "group.sea&lt;i&gt;" in page
    named = re.findall(r"<h3>Cluster \d+: (.*?)</h3>", page)
    assert len(named) == 3
    of_themes = {frozenset(t for t, words in THEMES.items() if {*n.split(", ")} & {*words}) for n in named}
    assert of_themes == {frozenset({theme}) for theme in THEMES}  # each cluster has one theme's words
    shares = re.search(r"Of the evidence, (-?\d+)% belongs to words. The rest: (.*?)\.</p>", page)
    assert shares is not None
    rest = [int(share) for share in re.findall(r"(-?\d+)%", shares[2])]
    assert int(shares[1]) + sum(rest) == pytest.approx(100, abs=2)  # each is rounded
    monkeypatch.setattr("sys.argv", ["sentences", "--data", str(data / "news")])
    with pytest.raises(SystemExit) as stop:
        example.main()
    assert str(stop.value) == (
        f"examples.sentences: {data / 'news'} must contain news. Pass its folder as --data."
    )


@pytest.mark.slow
def test_the_benchmark(data: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(measure, "RESULTS", tmp_path)
    protocol = benchmark.Protocol("tiny", 5, 60, ((3, 0, 4, ("", "[MASK]")),))
    monkeypatch.setattr(benchmark, "LONG", protocol)
    monkeypatch.setattr("sys.argv", ["sentences", "--data", str(data), "--long"])
    benchmark.main()
    page = (tmp_path / "tiny.md").read_text()
    assert "24 messages of 5 to 60 words" in page
    for how in ("removed", "replaced by [MASK]"):
        assert f"## 3 clusters, seed 0, 4 messages, words are {how}" in page
    for name in benchmark.METHODS:
        rows = re.findall(rf"\| {name} \| (\d\.\d+) ± \d\.\d+ \| (\d\.\d+) ± \d\.\d+ \|", page)
        assert len(rows) == 2
        assert all(0 <= float(value) <= 1 for row in rows for value in row)
    assert "Made by `python -m benchmarks.sentences --data DIR --long`" in page


def test_longer_messages_are_not_those_that_the_rules_were_chosen_on() -> None:
    assert benchmark.LONG.shortest > 100
