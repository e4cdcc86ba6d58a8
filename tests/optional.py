"""Optional libraries for tests, imported on first use.

A test file in which only some tests need a library replaces ``import polars as pl`` by

    if TYPE_CHECKING:
        import polars as pl
    else:
        pl = optional("polars")

If polars is missing, the tests and test parameters that use it are skipped, and the others run.
"""

from __future__ import annotations

import importlib
import os
from typing import Any

import pytest
import sklearn
from sklearn.utils.fixes import parse_version

from whycluster.pipelines.steps import READS_NAMES_OF_POLARS


class Lazy:
    """A module, or a name in a module, that is imported on first use.

    If it is missing, a test that uses it is skipped. While tests are collected, it replaces anything made of
    it, such as a test parameter, so that only the tests with this parameter are skipped.
    """

    def __init__(self, module: str, name: str, requires: str) -> None:
        self._module, self._name, self._requires = module, name, requires

    def load(self) -> Any:
        try:
            importlib.import_module(self._requires)
            module = importlib.import_module(self._module)
        except ModuleNotFoundError:
            if _runs_a_test():
                pytest.skip(f"{self._requires} is not installed")
            return self
        return getattr(module, self._name) if self._name else module

    def __getattr__(self, name: str) -> Any:
        if name.startswith(("__", "pytest")) and not _runs_a_test():  # pytest looks around
            raise AttributeError(name)
        loaded = self.load()
        return loaded if loaded is self else getattr(loaded, name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        loaded = self.load()
        return loaded if loaded is self else loaded(*args, **kwargs)


def optional(path: str, requires: str = "") -> Any:
    """Return a module or a name in it, imported on first use.

    Parameters
    ----------
    path : "polars" for the module, "kmodes.kmodes:KModes" for a name in one
    requires : the library that must be installed; by default the one of the path
    """
    module, _, name = path.partition(":")
    return Lazy(module, name, requires or module.partition(".")[0])


def _runs_a_test() -> bool:
    return "PYTEST_CURRENT_TEST" in os.environ


def needs_names_of_polars() -> None:
    """Skip a test that fits steps to a polars frame if scikit-learn cannot read it."""
    if parse_version(sklearn.__version__) < parse_version("1.7"):
        pytest.skip("scikit-learn before 1.7 does not join sparse and polars columns")
    if not READS_NAMES_OF_POLARS and not hasattr(
        importlib.import_module("polars").DataFrame, "__dataframe__"
    ):
        pytest.skip("scikit-learn before 1.9 does not read the column names of polars 2")


def load_frame(name: str) -> Any:
    """Return a data set of scikit-learn, such as "wine", with its table as a pandas data frame."""
    return optional(f"sklearn.datasets:load_{name}", requires="pandas")(as_frame=True)
