"""The progress bar: on a terminal, after two seconds, and gone at the end."""

from __future__ import annotations

import io

import pytest

from whycluster.data import progress
from whycluster.data.progress import Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def written(monkeypatch: pytest.MonkeyPatch, stream: io.StringIO, patience: float) -> str:
    monkeypatch.setattr("sys.stderr", stream)
    monkeypatch.setattr(progress, "_PATIENCE", patience)
    monkeypatch.setattr(progress, "_PAUSE", 0.0)
    with Progress("counting", 4) as bar:
        for _ in range(4):
            bar.step()
    return stream.getvalue()


def test_a_terminal_sees_how_far_it_is_and_an_empty_line_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    text = written(monkeypatch, Terminal(), 0.0)
    for part in ("counting", " 25%", " 50%", "100%", "s left"):
        assert part in text
    assert text.endswith("\r")
    last = text.split("\r")[-2]
    assert last.strip() == ""
    assert len(last) >= max(len(part) for part in text.split("\r"))


def test_it_is_not_written_more_often_than_anyone_can_see(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Terminal()
    monkeypatch.setattr("sys.stderr", stream)
    monkeypatch.setattr(progress, "_PATIENCE", 0.0)
    with Progress("counting", 1000) as bar:
        for _ in range(1000):
            bar.step()
    assert stream.getvalue().count("counting") < 20


def test_a_file_sees_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert written(monkeypatch, io.StringIO(), 0.0) == ""


def test_what_is_quick_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert written(monkeypatch, Terminal(), 60.0) == ""


def test_a_process_without_stderr(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", None)
    with Progress("counting", 1) as bar:
        bar.step()
