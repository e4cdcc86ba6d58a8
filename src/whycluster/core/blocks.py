"""Blocks of rows, processed on as many threads as BLAS would use, and the memory they work in.

NumPy's elementwise operations run on one core. So blocks are distributed over threads, and BLAS is limited to
one thread while they run. A thread reuses its work arrays from block to block; their total size is bounded
for any number of rows.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, nullcontext
from typing import Any, Generic, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from whycluster.core.arrays import Floats

_MOST_THREADS = 6  # keeps work arrays and temporaries under 64 MB
_POLL_SECONDS = 0.1
_FEW_CLUSTERS = 48  # with at most this many clusters, reductions are faster column by column

_spreading = threading.Lock()


Sum = TypeVar("Sum", bound=Any)  # anything that can be added


class OutOfRangeError(Exception):
    """Raised if a result is NaN, infinite or too small; the caller then searches the rows for the reason."""


def check_finite(values: NDArray[Any]) -> None:
    """Raise `OutOfRangeError` unless all values are finite."""
    # A NaN or infinity makes the sum non-finite. Summing in float32 is much faster but can overflow, so a
    # non-finite sum is checked again in float64.
    if not np.isfinite(values.sum()) and not np.isfinite(values.sum(dtype=np.float64)):
        raise OutOfRangeError


def check_rounded(relevance: NDArray[Any], evidence: Floats) -> None:
    """Raise `OutOfRangeError` if relevance or evidence is out of range for the dtype of the relevance."""
    check_finite(relevance)
    largest, limits = np.abs(evidence).max(initial=0.0), np.finfo(relevance.dtype)
    if largest != 0.0 and not limits.tiny / limits.eps <= largest <= limits.max:
        raise OutOfRangeError


Space = TypeVar("Space")
Work: TypeAlias = Callable[[Space, int, int], None]
"""Processes rows start..stop with the work arrays of its thread."""


def per_cluster(room: Floats, n_rows: int, n_clusters: int) -> Floats:
    """Return part of ``room`` as a view, (n_rows, n_clusters), by columns if there are few clusters."""
    part = room[: n_rows * n_clusters]
    few = n_clusters <= _FEW_CLUSTERS
    return part.reshape(n_clusters, n_rows).T if few else part.reshape(n_rows, n_clusters)


class EvidenceView:
    """h, (n, K) in float64, stored in the memory where the relevance, (n, d), is written later.

    Keeping h there between two passes avoids computing it twice and needs no extra memory.
    """

    def __init__(self, relevance: NDArray[Any], n_clusters: int) -> None:
        self.relevance, self.n_clusters = relevance, n_clusters

    @classmethod
    def of(cls, relevance: NDArray[Any], n_clusters: int) -> EvidenceView | None:
        """Return the view, or None if the array for the relevance cannot hold h."""
        enough = 8 * n_clusters <= relevance.itemsize * relevance.shape[1]
        return cls(relevance, n_clusters) if enough and relevance.flags.c_contiguous else None

    def rows(self, start: int, stop: int) -> Floats:
        """Return h of rows start..stop, (b, K)."""
        room = self.relevance[start:stop].reshape(-1)
        if room.dtype != np.float64:  # skip one float32 if the block does not begin on a float64 boundary
            between = room.ctypes.data // room.itemsize % 2
            room = room[between : between + (len(room) - between) // 2 * 2].view(np.float64)
        return per_cluster(room, stop - start, self.n_clusters)


def run(work: Work[Space], make_space: Callable[[], Space], n_rows: int, size: int) -> None:
    """Call ``work(space, start, stop)`` for every block of rows; each thread has its own work arrays."""
    own = threading.local()

    def run_block(block: int) -> None:
        if not hasattr(own, "space"):
            own.space = make_space()
        with np.errstate(all="ignore"):  # overflow is detected and reported by the passes
            work(own.space, block * size, min(n_rows, (block + 1) * size))

    each(run_block, -(-n_rows // size))


def each(work: Callable[[int], None], n_tasks: int, stopped: threading.Event | None = None) -> None:
    """Call ``work`` with 0, 1, ..., ``n_tasks`` - 1 on several threads.

    The first error, or Ctrl-C, sets ``stopped`` and is raised here. Running tasks may check ``stopped``; no
    further tasks are started.
    """
    stopped = stopped or threading.Event()
    tasks = iter(range(n_tasks))  # shared by the threads

    def run_tasks() -> None:
        try:
            for task in tasks:
                if stopped.is_set():
                    return
                work(task)
        except BaseException:
            stopped.set()
            raise

    with _threads(n_tasks) as (pool, n_threads):
        if pool is None:
            run_tasks()
            return
        futures = [pool.submit(run_tasks) for _ in range(n_threads)]
        try:
            for future in futures:
                error = error_of(future)
                if error is not None:
                    raise error
        finally:
            stopped.set()


class InOrder(Generic[Sum]):
    """A sum that is computed in the order of the rows, although threads pass the values in any order.

    The result is therefore bit-identical in every run. Values that arrive early are kept until their turn.
    """

    def __init__(self, total: Sum) -> None:
        self._lock, self._stop, self._total = threading.Lock(), 0, total
        self._early: dict[int, tuple[int, Sum | None]] = {}

    @property
    def so_far(self) -> tuple[int, Sum]:
        """The position up to which all values have been added, and the sum of these values."""
        with self._lock:
            return self._stop, self._total

    def add(self, start: int, stop: int, value: Sum | None) -> None:
        """Add the value of rows start..stop; None adds nothing."""
        with self._lock:
            self._early[start] = stop, value
            while self._stop in self._early:
                self._stop, value = self._early.pop(self._stop)
                self._total = self._total if value is None else self._total + value


def error_of(future: Future[Any]) -> BaseException | None:
    """Wait for a task and return its exception, or None if it succeeded.

    The function polls, because polars changes signal handling so that Ctrl-C does not interrupt a plain wait.
    """
    while not wait([future], _POLL_SECONDS).done:
        pass
    return future.exception()


@contextmanager
def _threads(n_tasks: int) -> Iterator[tuple[ThreadPoolExecutor | None, int]]:
    """Provide a thread pool (None if no pool is needed) and its size, and limit BLAS to one thread.

    Only one call at a time uses a pool. Concurrent and nested calls run on the calling thread.
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
    """Run calls on the calling thread, and limit BLAS to one thread, for work that already runs in parallel.

    A concurrent call that already uses a pool keeps the pool until the call ends.
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
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController().select(user_api="blas")


def _blas_threads() -> int:
    """Return the number of threads that BLAS would use, so that the settings of BLAS apply here too."""
    counts = [library["num_threads"] for library in _blas().info()]
    return max(counts, default=os.cpu_count() or 1)
