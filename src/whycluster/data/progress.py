"""A progress bar for long tasks, shown only on a terminal and only after two seconds."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType

_PATIENCE = 2.0  # seconds before a bar appears
_PAUSE = 0.1  # seconds between two updates
_BEAT = 0.5  # seconds between two updates if the number of steps is unknown
_WIDTH = 30

shown = True
"""Whether bars are shown; see `hidden`."""


@contextmanager
def hidden() -> Iterator[None]:
    """Hide all progress bars inside the ``with`` block."""
    global shown
    before, shown = shown, False
    try:
        yield
    finally:
        shown = before


class Progress:
    """A progress bar, which any thread may advance: ``with Progress("flipping", 100) as bar: bar.step()``.

    Parameters
    ----------
    title : the name of the task
    n_steps : the number of steps, or None if it is unknown; then only the elapsed time is shown
    unit : the unit of the steps, to show how many are done per second
    """

    _open: list[Progress] = []  # noqa: RUF012  # bars may nest; the last one is visible

    def __init__(self, title: str, n_steps: int | None, unit: str = "") -> None:
        self._title, self._n_steps, self._unit = title, n_steps, unit
        self._done = 0
        self._written = 0  # characters of the line
        self._next = 0.0
        self._start = time.monotonic()
        self._lock = threading.Lock()
        self._terminal = shown and sys.stderr is not None and sys.stderr.isatty()
        self._over = threading.Event()

    def __enter__(self) -> Progress:
        self._open.append(self)
        if self._n_steps is None and self._terminal:
            threading.Thread(target=self._beat, daemon=True).start()
        return self

    def step(self, n: int = 1) -> None:
        """Count one or more finished steps."""
        with self._lock:
            self._done += n
            taken = time.monotonic() - self._start
            if self._n_steps and self._terminal and taken > max(_PATIENCE, self._next):
                self._show(taken)
                self._next = taken + _PAUSE

    def _beat(self) -> None:
        while not self._over.wait(_BEAT):
            with self._lock:
                taken = time.monotonic() - self._start
                if taken > _PATIENCE and self._open[-1] is self and not self._over.is_set():
                    self._write(f"{self._title}{self._rate(taken)}, {taken:.0f} s")

    def _show(self, taken: float) -> None:
        assert self._n_steps
        part = min(1.0, self._done / self._n_steps)
        bar = "#" * round(_WIDTH * part)
        left = taken / part - taken
        self._write(f"{self._title} [{bar:.<{_WIDTH}}] {part:4.0%}{self._rate(taken)}, {left:.0f} s left")

    def _rate(self, taken: float) -> str:
        return f", {self._done / taken:,.0f} {self._unit}/s" * bool(self._unit and self._done)

    def _write(self, line: str) -> None:
        sys.stderr.write(f"\r{line:<{self._written}}")
        sys.stderr.flush()
        self._written = max(self._written, len(line))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            self._over.set()
            self._open.remove(self)
            if self._written:  # clear the line
                sys.stderr.write("\r" + " " * self._written + "\r")
                sys.stderr.flush()
