"""A pool of threads that work on parts, with one progress bar."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from whycluster.core import blocks
from whycluster.data.progress import Progress
from whycluster.engines.files.parts import FilePart
from whycluster.engines.files.plan import RunPlan


class PartPool:
    """Threads that work on several parts at a time.

    Parameters
    ----------
    plan : the plan of the run; parts that cannot be read are recorded as failed
    workers : the number of threads
    """

    def __init__(self, plan: RunPlan, workers: int) -> None:
        self._plan, self._workers = plan, workers
        self._stopped = threading.Event()
        self._bar: Progress | None = None

    def each(self, title: str, parts: list[FilePart], work: Callable[[FilePart], None]) -> None:
        """Call ``work`` for each part.

        Ctrl-C, or any error other than a `PartError`, stops all threads at their next `tick`.
        """
        self._stopped, n_rows = threading.Event(), self._plan.n_rows(parts)
        with Progress(title, n_rows, "rows") as self._bar:
            if self._workers == 1:
                for part in parts:
                    self._one(part, work)
            else:
                self._each_on_threads(parts, work)

    def _each_on_threads(self, parts: list[FilePart], work: Callable[[FilePart], None]) -> None:
        import pyarrow as pa

        pa.array([])  # imports pandas here, since other threads could see a half-imported pandas
        with ThreadPoolExecutor(self._workers, "whycluster-part") as pool:
            futures = [pool.submit(self._one, part, work) for part in parts]
            try:
                for future in futures:
                    _raise(blocks.error_of(future))
            finally:
                self._stopped.set()

    def tick(self, n_rows: int) -> None:
        """Advance the progress bar; raise an error if another thread failed."""
        if self._stopped.is_set():
            raise _StoppedError
        if self._bar is not None:
            self._bar.step(n_rows)

    def _one(self, part: FilePart, work: Callable[[FilePart], None]) -> None:
        if self._stopped.is_set():
            return
        try:
            with self._plan.recording_failure(part):
                work(part)
        except BaseException:
            self._stopped.set()
            raise


class _StoppedError(Exception):
    """Raised to stop a thread after another part has failed."""


def _raise(error: BaseException | None) -> None:
    if error is not None and not isinstance(error, _StoppedError):
        raise error
