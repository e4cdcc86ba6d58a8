"""Fingerprints of models: two models differ if their parameters or the code of their functions do."""

from __future__ import annotations

import subprocess
import sys
import threading
from typing import Any

import numpy as np
import pytest
from sklearn.cluster import KMeans
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

import whycluster as wc
from whycluster.engines.files.fingerprint import fingerprint

ROWS = np.abs(np.random.default_rng(0).normal(size=(40, 2)))
PLAIN = "def step(x): return np.log1p(x)"
CONTAINERS = "both = [frozenset('abc'), {'d', 'e', 'f'}]\ndef step(x): return x * len(both)"
SET = 'def step(x): return x * len({"a", "b", "c"}) if "b" in {"a", "b"} else x'


def fingerprint_of(model: Any) -> str:
    return fingerprint(model, wc.neuralize(model), "explain_dataset")


def behind(step: Any) -> Pipeline:
    model: Pipeline = make_pipeline(
        FunctionTransformer(wc.elementwise(step)), KMeans(2, n_init=1, random_state=0)
    ).fit(ROWS)
    return model


def fingerprint_of_source(source: str) -> str:
    """Return the fingerprint of a pipeline with the function ``step`` of this source."""
    names: dict[str, Any] = {"__name__": "written", "np": np}
    exec(source, names)
    return fingerprint_of(behind(names["step"]))


SOURCES = [
    PLAIN,
    "def step(x): return np.sqrt(x)",
    "def step(x): return np.log1p(x + 1)",
    "def step(x): return np.log1p(x + 2)",
    "def step(x, more=1): return np.log1p(x)",
    "def step(x, more=2): return np.log1p(x)",
    "def step(x, *, more=2): return np.log1p(x)",
    "step = lambda x: np.log1p(x)",
    "step = (lambda one: lambda x: np.log1p(x) * one)(1)",
    "step = (lambda one: lambda x: np.log1p(x) * one)(2)",
    "one = 1\ndef step(x): return np.log1p(x) * one",
    "one = 2\ndef step(x): return np.log1p(x) * one",
    "both = (1, 2)\ndef step(x): return np.clip(x, *both)",
    "both = (1, 3)\ndef step(x): return np.clip(x, *both)",
    "both = [1, (2, 3)]\ndef step(x): return np.clip(x, both[0], both[1][0])",
    "both = [1, (2, 4)]\ndef step(x): return np.clip(x, both[0], both[1][0])",
    "both = {'low': 1, 'high': 2}\ndef step(x): return np.clip(x, both['low'], both['high'])",
    "both = {'low': 1, 'high': None}\ndef step(x): return np.clip(x, both['low'], both['high'])",
    "both = frozenset('ab')\ndef step(x): return x * len(both)",
    "both = frozenset('abc')\ndef step(x): return x * len(both)",
    "def inner(x): return x\ndef step(x): return inner(np.log1p(x))",
    "def inner(x): return x * 2\ndef step(x): return inner(np.log1p(x))",
    "def inner(x): return x\ndef step(x): return (lambda: inner(np.log1p(x)))()",
    "def inner(x): return x * 2\ndef step(x): return (lambda: inner(np.log1p(x)))()",
]


def test_functions_that_differ_have_different_fingerprints() -> None:
    found = [fingerprint_of_source(source) for source in SOURCES]
    assert found == [fingerprint_of_source(source) for source in SOURCES]
    assert len({*found}) == len(SOURCES)


def test_the_position_of_a_function_in_its_file_does_not_matter() -> None:
    assert fingerprint_of_source("\n\n# a comment\n" + PLAIN) == fingerprint_of_source(PLAIN)


def test_functions_that_call_themselves_and_each_other() -> None:
    ring = """
def step(x, n={}): return x if n == 0 else other(x, n - 1)
def other(x, n): return step(x, n) if n in {{"a", "b", 0}} else x
"""
    assert (
        fingerprint_of_source(ring.format(1))
        == fingerprint_of_source(ring.format(1))
        != fingerprint_of_source(ring.format(2))
    )


@pytest.mark.slow
def test_fingerprints_are_the_same_in_another_process() -> None:
    code = """
    from tests.engines import test_fingerprint as t
    print(*map(t.fingerprint_of_source, (t.PLAIN, t.SET, t.CONTAINERS)))
    model = t.make_pipeline(t.StandardScaler(), t.KMeans(2, n_init=1, random_state=0))
    print(t.fingerprint_of(model.fit(t.ROWS)))
    """.replace("\n    ", "\n")
    seen = {
        subprocess.run(
            [sys.executable, "-c", code],
            check=True,
            capture_output=True,
            text=True,
            env={"PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2")
    }
    assert len(seen) == 1
    assert len(seen.pop().split()) == 4


def test_pipelines_with_different_fitted_parameters_differ() -> None:
    model = make_pipeline(StandardScaler(), KMeans(2, n_init=1, random_state=0))
    first = fingerprint_of(model.fit(ROWS))
    assert fingerprint_of(model.fit(ROWS)) == first != fingerprint_of(model.fit(ROWS * 2))


def test_a_model_without_a_fingerprint_is_an_error() -> None:
    model = behind(np.log1p)
    model.notes = threading.Lock()
    with pytest.raises(wc.UnsupportedModelError) as caught:
        fingerprint_of(model)
    assert str(caught.value) == (
        "explain_dataset: a later run must be able to recognize the model, so that results of different "
        "models are never mixed; it holds an object that cannot be pickled (cannot pickle '_thread.lock' "
        "object)."
    )
