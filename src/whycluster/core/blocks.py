"""Rows in blocks, on as many threads as BLAS would use.

NumPy's elementwise steps run on one core, so the blocks are dealt out to threads and BLAS is held to one
thread meanwhile. A thread keeps its work arrays from block to block; their total is bounded whatever the
number of rows.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, nullcontext
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from whycluster.core.arrays import Floats
from whycluster.core.energies import Energy

_THREAD_BYTES = 8 << 20  # measured: smaller blocks pay more for Python, larger ones miss the cache
_STEPS = 4  # times as much where the steps of a pipeline are called: these pay yet more, and halve the time
_MOST_THREADS = 6  # their work arrays and temporaries stay under 64 MB
_LOOK = 0.1  # seconds
_FEW_CLUSTERS = 48  # up to here, reductions are faster column by column

_spreading = threading.Lock()


class _Addable(Protocol):
    """What can be added to its like."""

    def __add__(self, other: Any, /) -> Any: ...


Sum = TypeVar("Sum", bound=_Addable)


class Workspace:
    """The arrays of one thread, for blocks of up to ``n_rows`` rows, which may lie column by column."""

    def __init__(self, energy: Energy, n_rows: int, by_columns: bool = False) -> None:
        d, n_clusters = energy.n_features, energy.n_clusters
        self.x = empty(n_rows, energy.n_inputs, by_columns)
        self.relevance = empty(n_rows, d, by_columns)
        self.scratch = empty(n_rows, energy.scratch_width, by_columns)
        self.h = per_cluster(np.empty(n_rows * n_clusters), n_rows, n_clusters)
        self.weights = per_cluster(np.empty(n_rows * n_clusters), n_rows, n_clusters)


Work = Callable[[Workspace, int, int], None]


def empty(n_rows: int, width: int, by_columns: bool, dtype: Any = np.float64) -> NDArray[Any]:
    """An array (n_rows, width), row by row or column by column."""
    return np.empty((n_rows, width), dtype, order="F" if by_columns else "C")


def per_cluster(room: Floats, n_rows: int, n_clusters: int) -> Floats:
    """An (n_rows, n_clusters) array laid into ``room``, column by column where there are few clusters."""
    part = room[: n_rows * n_clusters]
    few = n_clusters <= _FEW_CLUSTERS
    return part.reshape(n_clusters, n_rows).T if few else part.reshape(n_rows, n_clusters)


def run(
    work: Work,
    energy: Energy,
    n_rows: int,
    most_rows: int = sys.maxsize,
    through_steps: bool = False,
    by_columns: bool = False,
) -> None:
    """Call ``work(workspace, start, stop)`` for every block of rows, on several threads.

    The blocks, of at most ``most_rows``, depend on the energy and the number of rows only, never on the
    threads: two passes over the same rows see the same blocks. The first error, or Ctrl-C, stops all threads
    after the block at hand and is raised here.
    """
    row_bytes = 8 * (energy.n_inputs + energy.n_features + energy.scratch_width + 2 * energy.n_clusters)
    size = max(1, min(most_rows, _THREAD_BYTES * (_STEPS if through_steps else 1) // row_bytes))
    n_blocks = -(-n_rows // size)
    stopped = threading.Event()

    def labour(thread: int, n_threads: int) -> None:
        workspace = Workspace(energy, min(size, n_rows), by_columns)
        with np.errstate(all="ignore"):  # what overflows is found and reported by the passes
            for block in range(thread, n_blocks, n_threads):
                if stopped.is_set():
                    return
                work(workspace, block * size, min(n_rows, (block + 1) * size))

    with _threads(n_blocks) as (pool, n_threads):
        if pool is None:
            labour(0, 1)
        else:
            _spread(pool, lambda thread: labour(thread, n_threads), n_threads, stopped)


class InOrder(Generic[Sum]):
    """A sum of what threads bring, each of some rows or parts; in their order, so that it has the same bits.

    Only what comes before its turn is kept.
    """

    def __init__(self, total: Sum) -> None:
        self._lock, self._stop, self._total = threading.Lock(), 0, total
        self._early: dict[int, tuple[int, Sum | None]] = {}

    @property
    def so_far(self) -> tuple[int, Sum]:
        """Up to where it was added, and what that adds up to."""
        with self._lock:
            return self._stop, self._total

    def add(self, start: int, stop: int, value: Sum | None) -> None:
        """Bring what start..stop give; None is nothing."""
        with self._lock:
            self._early[start] = stop, value
            while self._stop in self._early:
                self._stop, value = self._early.pop(self._stop)
                self._total = self._total if value is None else self._total + value


def each(work: Callable[[int], None], n_tasks: int, stopped: threading.Event | None = None) -> None:
    """Call ``work`` with 0, 1, ..., on several threads.

    The first error, or Ctrl-C, sets ``stopped``; tasks that look at it may end early, others are not begun.
    """
    stopped = stopped or threading.Event()

    def unless_stopped(task: int) -> None:
        if not stopped.is_set():
            work(task)

    with _threads(n_tasks) as (pool, _):
        if pool is None:
            for task in range(n_tasks):
                work(task)
        else:
            _spread(pool, unless_stopped, n_tasks, stopped)


def _spread(
    pool: ThreadPoolExecutor, work: Callable[[int], None], n_tasks: int, stopped: threading.Event
) -> None:
    """Call ``work`` with 0, 1, ...; the first error, or Ctrl-C, sets ``stopped`` and is raised here."""

    def guarded(task: int) -> None:
        try:
            work(task)
        except BaseException:
            stopped.set()
            raise

    futures = [pool.submit(guarded, task) for task in range(n_tasks)]
    try:
        for future in futures:
            error = error_of(future)
            if error is not None:
                raise error
    finally:
        stopped.set()


def error_of(future: Future[Any]) -> BaseException | None:
    """What a task raised, when it has ended.

    Looks up now and then: a signal does not wake who waits where a library (polars) has had it so.
    """
    while not wait([future], _LOOK).done:
        pass
    return future.exception()


@contextmanager
def _threads(n_tasks: int) -> Iterator[tuple[ThreadPoolExecutor | None, int]]:
    """Threads, and their number, while BLAS is held to one; None where there is no need for them.

    One call at a time is spread over threads; calls beside it, or inside, run on the thread they came on.
    """
    if n_tasks <= 1 or not _spreading.acquire(blocking=False):
        yield None, 1
        return
    try:
        n_threads = min(_blas_threads(), _MOST_THREADS, n_tasks)
        with _blas().limit(limits=1), ThreadPoolExecutor(n_threads, "whycluster") as pool:
            yield pool, n_threads
    finally:
        _spreading.release()


@contextmanager
def single_threaded() -> Iterator[None]:
    """Meanwhile calls run on the threads they come on, with BLAS held to one, and no threads are made.

    For work that is spread already: while a batch is explained, the next is read, and the last one written.
    If a call beside it is spread just then, that is so until that call ends.
    """
    ours = _spreading.acquire(blocking=False)
    try:
        with _blas().limit(limits=1) if ours else nullcontext():
            yield
    finally:
        if ours:
            _spreading.release()


@functools.cache
def _blas() -> Any:
    from threadpoolctl import ThreadpoolController  # comes with scikit-learn

    return ThreadpoolController().select(user_api="blas")


def _blas_threads() -> int:
    """As many threads as BLAS would use now, so that its usual settings hold here too."""
    counts = [library["num_threads"] for library in _blas().info()]
    return max(counts, default=os.cpu_count() or 1)
