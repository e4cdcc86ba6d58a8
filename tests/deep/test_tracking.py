"""The progress bar over the batches of an encoder."""

from __future__ import annotations

import pytest

from tests.data.test_progress import Terminal
from whycluster.data import progress
from whycluster.data.progress import Progress
from whycluster.deep.encoder import track


def test_batches_are_tracked(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Terminal()
    monkeypatch.setattr("sys.stderr", stream)
    monkeypatch.setattr(progress, "_PATIENCE", 0.0)
    monkeypatch.setattr(progress, "_PAUSE", 0.0)
    assert list(track("counting", "abcd")) == list("abcd")
    for part in ("counting", " 25%", " 50%", "100%", "s left"):
        assert part in stream.getvalue()
    assert stream.getvalue().endswith("\r")


def test_the_bar_disappears_if_the_loop_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Terminal()
    monkeypatch.setattr("sys.stderr", stream)
    monkeypatch.setattr(progress, "_PATIENCE", 0.0)

    def fail_at_the_third() -> None:
        for item in track("counting", range(5)):
            if item == 2:
                raise ValueError(item)

    with pytest.raises(ValueError, match="2"):
        fail_at_the_third()
    assert "counting" in stream.getvalue()
    assert stream.getvalue().endswith("\r")
    assert Progress._open == []


def test_a_single_batch_needs_no_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Terminal()
    monkeypatch.setattr("sys.stderr", stream)
    monkeypatch.setattr(progress, "_PATIENCE", 0.0)
    assert list(track("counting", [1])) == [1]
    assert stream.getvalue() == ""
