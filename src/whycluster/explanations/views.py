"""The registry of views: plots and reports that explanations open, although they live in higher layers.

An explanation calls ``load("plot")(self)``. The facade, ``whycluster/__init__.py``, provides the targets.
"""

from importlib import import_module
from typing import Any

_TARGETS: dict[str, str] = {}


def provide(name: str, target: str) -> None:
    """Register the view ``name``; ``target`` is its "package.module:attribute"."""
    _TARGETS[name] = target


def load(name: str) -> Any:
    """Import a view and return it."""
    module, attribute = _TARGETS[name].split(":")
    return getattr(import_module(module), attribute)
