"""Rows in blocks, on as many threads as BLAS would use.

NumPy's elementwise steps run on one core, so the blocks are dealt out to threads and BLAS is held to one
thread meanwhile. A thread keeps its work arrays from block to block; their total is bounded whatever the
number of rows.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from whycluster.table import Floats

_THREAD_BYTES = 8 << 20  # measured: smaller blocks pay more for Python, larger ones miss the cache
_TOTAL_BYTES = 48 << 20
_FEW_CLUSTERS = 48


class Workspace:
    """The arrays of one thread, for blocks of up to ``n_rows`` rows."""

    def __init__(self, n_rows: int, n_features: int, n_clusters: int) -> None:
        self.x = np.empty((n_rows, n_features))
        self.scratch = np.empty((n_rows, n_features))
        self.relevance = np.empty((n_rows, n_features))
        self.h = per_cluster(np.empty(n_rows * n_clusters), n_rows, n_clusters)
        self.weights = per_cluster(np.empty(n_rows * n_clusters), n_rows, n_clusters)


def per_cluster(room: Floats, n_rows: int, n_clusters: int) -> Floats:
    """An (n_rows, n_clusters) array laid into ``room``, column by column where there are few clusters."""
    part = room[: n_rows * n_clusters]
    few = n_clusters <= _FEW_CLUSTERS
    return part.reshape(n_clusters, n_rows).T if few else part.reshape(n_rows, n_clusters)


Work = Callable[[Workspace, int, int], None]


def run(work: Work, n_rows: int, n_features: int, n_clusters: int) -> None:
    """Call ``work(workspace, start, stop)`` for every block of rows, on several threads.

    The first error, or Ctrl-C, stops all threads after the block at hand and is raised here.
    """
    n_threads = _n_threads()
    row_bytes = 8 * (3 * n_features + 2 * n_clusters)
    size = max(1, min(_THREAD_BYTES, _TOTAL_BYTES // n_threads) // row_bytes)
    n_blocks = -(-n_rows // size)
    n_threads = min(n_threads, n_blocks)
    stopped = threading.Event()

    def labour(thread: int) -> None:
        workspace = Workspace(min(size, n_rows), n_features, n_clusters)
        with np.errstate(all="ignore"):  # what overflows is found and reported by the caller
            for block in range(thread, n_blocks, n_threads):
                if stopped.is_set():
                    return
                try:
                    work(workspace, block * size, min(n_rows, (block + 1) * size))
                except BaseException:
                    stopped.set()
                    raise

    if n_blocks == 1:
        labour(0)
        return
    with _one_blas_thread, ThreadPoolExecutor(n_threads, "whycluster") as pool:
        futures = [pool.submit(labour, thread) for thread in range(n_threads)]
        try:
            for future in futures:
                future.result()
        finally:
            stopped.set()


@functools.cache
def _blas() -> Any:
    from threadpoolctl import ThreadpoolController  # comes with scikit-learn

    return ThreadpoolController().select(user_api="blas")


def _n_threads() -> int:
    """As many threads as BLAS would use now, so that its usual settings hold here too."""
    counts = [library["num_threads"] for library in _blas().info()]
    return max(counts, default=os.cpu_count() or 1)


class _OneBlasThread:
    """BLAS on one thread while any call is running, and as it was before once the last has ended."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._limiter: Any = None

    def __enter__(self) -> None:
        with self._lock:
            if self._users == 0:
                self._limiter = _blas().limit(limits=1)
            self._users += 1

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._users -= 1
            if self._users == 0:
                self._limiter.restore_original_limits()


_one_blas_thread = _OneBlasThread()
