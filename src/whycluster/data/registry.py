"""The registry of functions in higher layers that objects of lower layers offer as methods.

``exp.plot`` calls ``load("plot")(exp)``, and the function lives in a layer above explanations. The facade,
``whycluster/__init__.py``, registers the functions; they are imported when they are first used.
"""

from importlib import import_module
from typing import Any

_TARGETS: dict[str, str] = {}


def provide(name: str, target: str) -> None:
    """Register a function; ``target`` is its "package.module:attribute"."""
    _TARGETS[name] = target


def load(name: str) -> Any:
    """Import a registered function and return it."""
    module, attribute = _TARGETS[name].split(":")
    return getattr(import_module(module), attribute)
