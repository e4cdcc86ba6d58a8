"""Fingerprints of models, so that results of different models are never mixed."""

from __future__ import annotations

import pickle
from types import CodeType, FunctionType
from typing import Any

import numpy as np
from joblib.hashing import NumpyHasher

from whycluster.core.errors import UnsupportedModelError
from whycluster.models.network import Network
from whycluster.segments.storage.saving import digest

_PLAIN = (bool, int, float, complex, str, bytes, type(None), np.ndarray, np.generic)
_HOLDERS = (tuple, list, set, frozenset)


def fingerprint(model: Any, network: Network, where: str) -> str:
    """Return a hash of the network's parameters or, if the network cannot be saved, of the model."""
    try:
        return digest(network)
    except UnsupportedModelError:
        pass
    try:
        return str(_Hasher("sha256").hash(model))[:32]
    except (pickle.PicklingError, TypeError, AttributeError, ValueError) as error:
        raise UnsupportedModelError(
            f"{where}: a later run must be able to recognize the model, so that results of different models "
            f"are never mixed; it holds an object that cannot be pickled ({error.args[0]})."
        ) from error


class _Hasher(NumpyHasher):  # type: ignore[misc]  # joblib has no types
    """Hashes values; functions are hashed by their code, which users may edit between runs."""

    def __init__(self, hash_name: str) -> None:
        super().__init__(hash_name)
        self._within: list[FunctionType] = []
        self._contents: dict[FunctionType, tuple[Any, ...]] = {}

    def save(self, obj: Any) -> None:
        """Add an object to the hash."""
        if not isinstance(obj, FunctionType):
            super().save(set(obj) if type(obj) is frozenset else obj)  # the order of a frozenset varies
        elif obj in self._within:  # the function calls itself
            super().save(obj.__qualname__)
        else:
            self._within.append(obj)
            super().save(self._contents.setdefault(obj, _contents(obj)))
            self._within.pop()


def _contents(function: FunctionType) -> tuple[Any, ...]:
    """Return everything that determines a function's results: code, defaults, closure and globals.

    Among the globals, only plain values and functions of the same module are included.
    """
    module, outside = function.__module__, function.__globals__
    used = {name: outside[name] for name in _names(function.__code__) if name in outside}
    relevant = {
        name: value
        for name, value in used.items()
        if _is_plain(value) or (isinstance(value, FunctionType) and value.__module__ == module)
    }
    closure = [cell.cell_contents for cell in function.__closure__ or ()]
    code, defaults = _code_contents(function.__code__), (function.__defaults__, function.__kwdefaults__)
    return (module, function.__qualname__, code, *defaults, closure, relevant)


def _is_plain(value: Any) -> bool:
    """Return whether ``value`` is a plain value or a container of plain values."""
    inside = [*value, *value.values()] if isinstance(value, dict) else value
    if not isinstance(inside, _HOLDERS):
        return isinstance(value, _PLAIN)
    try:
        return all(map(_is_plain, inside))
    except RecursionError:  # the container holds itself
        return False


def _names(code: CodeType) -> list[str]:
    """Return the global names that code may use, including those used by functions defined inside it."""
    inner = (name for const in code.co_consts if isinstance(const, CodeType) for name in _names(const))
    return sorted({*code.co_names, *inner})


def _code_contents(code: CodeType) -> tuple[Any, ...]:
    """Return the contents of a code object, without file names and line numbers."""
    return (code.co_code, code.co_names, code.co_varnames, [_constant(const) for const in code.co_consts])


def _constant(const: Any) -> Any:
    if isinstance(const, CodeType):
        return _code_contents(const)
    return sorted(map(repr, const)) if isinstance(const, frozenset) else const
