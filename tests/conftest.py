"""Settings of all tests, and data that many tests share."""

from __future__ import annotations

import os
import re
from collections.abc import Generator, Iterator
from typing import Any

# Before NumPy is imported: small problems take longer on several threads, and much longer next to other work.
for library in ("OMP", "OPENBLAS", "MKL"):
    os.environ.setdefault(f"{library}_NUM_THREADS", "1")

import numpy as np
import pytest
from hypothesis import settings
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.datasets import load_wine
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from tests.optional import Lazy
from whycluster.core.errors import MissingDependencyError

# The same examples in every run, so that failures can be reproduced. HYPOTHESIS_PROFILE=search looks for new
# ones.
settings.register_profile("same", deadline=None, derandomize=True)
settings.register_profile("search", deadline=None, max_examples=2000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--no-skips", action="store_true", help="fail where a test would be skipped")


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """With --no-skips, a test file that is skipped as a whole fails."""
    report = yield
    if report.skipped and collector.config.getoption("--no-skips"):
        report.outcome, report.longrepr = (
            "failed",
            f"{collector.nodeid} must not be skipped: {report.longrepr}",
        )
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Skip a test that fails because a library is not installed; with --no-skips, a skipped test fails."""
    report = yield
    missing = missing_library(call.excinfo.value) if report.failed and call.excinfo else None
    if missing is not None:
        report.outcome = "skipped"
        report.longrepr = (str(item.path), item.location[1] or 0, f"Skipped: {missing} is not installed")
    if report.skipped and not hasattr(report, "wasxfail") and item.config.getoption("--no-skips"):
        report.outcome, report.longrepr = "failed", f"{item.nodeid} must not be skipped: {report.longrepr}"
    return report


@pytest.hookimpl(trylast=True)  # pytest first notes that a test runs
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test if the library that one of its parameters is made with is not installed."""
    callspec = getattr(item, "callspec", None)
    for value in callspec.params.values() if callspec is not None else ():
        if isinstance(value, Lazy):
            value.load()


def missing_library(error: BaseException | None) -> str | None:
    """Return the library that is not installed and that led to the error, or None."""
    while error is not None:
        if isinstance(error, MissingDependencyError) and (
            named := re.search(r"needs (\w+): pip", str(error))
        ):
            return named[1]
        if isinstance(error, ModuleNotFoundError) and error.name:
            library = error.name.partition(".")[0]
            return None if library in ("whycluster", "tests", "benchmarks") else library
        error = error.__cause__ or error.__context__
    return None


@pytest.fixture
def two_threads() -> Iterator[None]:
    """Process blocks of rows on two threads, as on a machine with two cores."""
    with threadpool_limits(2, user_api="blas"):
        yield


@pytest.fixture(scope="session")
def wine() -> NDArray[np.float64]:
    """Standardized data of 178 wines with 13 features; read-only, since all tests share it."""
    X: NDArray[np.float64] = StandardScaler().fit_transform(load_wine().data)
    X.flags.writeable = False
    return X


@pytest.fixture(scope="session")
def kmeans(wine: NDArray[np.float64]) -> Any:
    return KMeans(5, n_init=3, random_state=0).fit(wine)
