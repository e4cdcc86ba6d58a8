"""One model explains on many threads and in other processes; all answers are the same, bit for bit."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.cluster import KMeans
from threadpoolctl import threadpool_limits

import whycluster as wc
from tests.core.loops import BITS, limited

N_THREADS = 64
ROWS = 30_000  # several blocks

# A pool of processes explains what its parent has explained before, on several threads.
POOL = f"""
import multiprocessing, sys
import numpy as np
import whycluster as wc

rng = np.random.default_rng(0)
X = rng.normal(size=({ROWS}, 8))
network = wc.neuralize(X[:6])

def answer(_):
    exp = network.explain(X)
    return [values.tobytes() for values in (exp.relevance, exp.evidence, exp.cluster, exp.competitor)]

if __name__ == "__main__":
    expected = answer(0)
    with multiprocessing.get_context(sys.argv[1]).Pool(2) as pool:
        answers = pool.map_async(answer, range(6), chunksize=1).get(timeout=60)
    print(sum(found == expected for found in answers))
"""


def answer_of(exp: wc.Explanation) -> list[bytes]:
    return [values.tobytes() for values in (exp.relevance, exp.evidence, exp.cluster, exp.competitor)]


@pytest.mark.slow
@pytest.mark.parametrize(("loops", "blas_threads"), [(BITS[-1], 2), ("NumPy", 1)])
def test_threads_that_explain_with_one_model(
    monkeypatch: pytest.MonkeyPatch, loops: str, blas_threads: int
) -> None:
    """BLAS on several threads rounds otherwise, so NumPy's answers are the same with one thread only."""
    limited(monkeypatch, loops)
    X = np.random.default_rng(0).normal(size=(ROWS, 8))
    model = KMeans(6, n_init=1, max_iter=5, random_state=0).fit(X)
    found: list[Any] = [None] * N_THREADS
    together = threading.Barrier(N_THREADS)

    def work(thread: int) -> None:
        together.wait(timeout=60)
        found[thread] = answer_of(wc.explain(model, X))

    threads = [threading.Thread(target=work, args=(i,), daemon=True) for i in range(N_THREADS)]
    with threadpool_limits(blas_threads, user_api="blas"):
        expected = answer_of(wc.explain(model, X))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=60)
    assert [answer == expected for answer in found] == [True] * N_THREADS


@pytest.mark.slow
@pytest.mark.parametrize("start", ["fork", "spawn"])
@pytest.mark.skipif(sys.platform == "win32", reason="Windows cannot fork")
def test_processes_that_explain_after_their_parent(tmp_path: Path, start: str) -> None:
    """Nothing that the threads of the parent leave behind, such as a lock, stops its children."""
    script = tmp_path / "pool.py"
    script.write_text(POOL)
    # From Python 3.12 on, a fork beside the threads of BLAS is warned of.
    env = {**os.environ, "OPENBLAS_NUM_THREADS": "2", "PYTHONWARNINGS": "ignore::DeprecationWarning"}
    command = [sys.executable, str(script), start]
    result = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert (result.stdout, result.stderr) == ("6\n", "")
