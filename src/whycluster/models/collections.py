"""Collections that are not in memory, such as Dask's: the engine for each registers itself here."""

from __future__ import annotations

from importlib import import_module
from typing import Any

_ENGINES: dict[str, str] = {}


def provide(library: str, module: str) -> None:
    """Name the module with the functions ``explain_lazily`` and ``assign_lazily`` for a library."""
    _ENGINES[library] = module


def assign(network: Any, X: Any) -> Any:
    """Return the lazy assignment of a collection."""
    return import_module(_ENGINES[type(X).__module__.partition(".")[0]]).assign_lazily(network, X)
