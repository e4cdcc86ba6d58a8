"""Many calls in one process: memory does not grow."""

from __future__ import annotations

import subprocess
import sys

import pytest

N_CALLS = 10_000
_MOST = 4_000_000  # bytes that the process may grow by; 400 bytes per call

# Calls take turns: the compiled loops, NumPy with another rule, a frame, and an error.
CODE = f"""
import gc, resource
import numpy as np, polars as pl
import whycluster as wc

X = np.random.default_rng(0).normal(size=(40, 5))
network, frame = wc.neuralize(X[:4]), pl.DataFrame(X)

def fail():
    try:
        network.explain(X, target=7)
    except wc.InvalidInputError:
        return
    raise AssertionError

calls = [
    lambda: network.explain(X).top(),
    lambda: wc.explain(X[:4], X).relevance,
    lambda: network.explain(X, rule="joint", target=1).evidence,
    lambda: network.explain(frame).describe(0),
    fail,
]

def memory(n_calls):
    for number in range(n_calls):
        calls[number % len(calls)]()
    gc.collect()
    return int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize()

before = memory({N_CALLS // 5})  # caches fill up, and the allocators take what they need
print(memory({N_CALLS}) - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_thousands_of_calls_take_no_more_memory() -> None:
    result = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert int(result.stdout) < _MOST
