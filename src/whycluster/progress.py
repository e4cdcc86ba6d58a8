"""A progress bar for work that takes long: on a terminal only, and only after two seconds."""

from __future__ import annotations

import sys
import threading
import time
from types import TracebackType

_PATIENCE = 2.0  # seconds without a bar
_PAUSE = 0.1  # seconds between two looks of it
_WIDTH = 30


class Progress:
    """Counts steps from any thread; ``with Progress("flipping", 100) as bar: bar.step()``.

    Parameters
    ----------
    title : what is going on
    n_steps : how many steps there will be
    """

    def __init__(self, title: str, n_steps: int) -> None:
        self._title, self._n_steps = title, n_steps
        self._done = 0
        self._shown = False
        self._next = 0.0
        self._start = time.monotonic()
        self._lock = threading.Lock()
        self._terminal = sys.stderr is not None and sys.stderr.isatty()

    def __enter__(self) -> Progress:
        return self

    def step(self) -> None:
        """One more step is done."""
        with self._lock:
            self._done += 1
            taken = time.monotonic() - self._start
            if self._terminal and taken > max(_PATIENCE, self._next):
                self._show(taken)
                self._next = taken + _PAUSE

    def _show(self, taken: float) -> None:
        part = self._done / self._n_steps
        bar = "#" * round(_WIDTH * part)
        left = taken / part - taken
        sys.stderr.write(f"\r{self._title} [{bar:.<{_WIDTH}}] {part:4.0%}, {left:.0f} s left  ")
        sys.stderr.flush()
        self._shown = True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._shown:  # leave the line as it was before
            sys.stderr.write("\r" + " " * (len(self._title) + _WIDTH + 30) + "\r")
            sys.stderr.flush()
