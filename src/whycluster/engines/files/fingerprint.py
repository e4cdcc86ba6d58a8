"""What tells a model from any other, so that results of two are never mixed."""

from __future__ import annotations

import pickle
from types import CodeType, FunctionType
from typing import Any

import numpy as np
from joblib.hashing import NumpyHasher  # joblib comes with scikit-learn

from whycluster.core.errors import UnsupportedModelError
from whycluster.models.network import Network
from whycluster.storage.saving import digest

_PLAIN = (bool, int, float, complex, str, bytes, type(None), np.ndarray, np.generic)
_HOLDERS = (tuple, list, set, frozenset)


def fingerprint(model: Any, network: Network, where: str) -> str:
    """A number made of all that the network is made of; of one that cannot be saved, of the model itself."""
    try:
        return digest(network)
    except UnsupportedModelError:
        pass
    try:
        return str(_Hasher("sha256").hash(model))[:32]
    except (pickle.PicklingError, TypeError, AttributeError, ValueError) as error:
        raise UnsupportedModelError(
            f"{where}: the model must be of what can be told from others in a later run, so that their "
            f"results are never mixed; it holds what cannot be pickled ({error.args[0]})."
        ) from error


class _Hasher(NumpyHasher):  # type: ignore[misc]  # joblib has no types
    """joblib's, which goes by values; and functions are told by what they do, since they may be edited."""

    def __init__(self, hash_name: str) -> None:
        super().__init__(hash_name)
        self._within: list[FunctionType] = []
        self._parts: dict[FunctionType, tuple[Any, ...]] = {}

    def save(self, obj: Any) -> None:
        """Write an object."""
        if not isinstance(obj, FunctionType):
            super().save(set(obj) if type(obj) is frozenset else obj)  # whose order is another each time
        elif obj in self._within:  # it calls itself
            super().save(obj.__qualname__)
        else:
            self._within.append(obj)
            super().save(self._parts.setdefault(obj, _parts(obj)))
            self._within.pop()


def _parts(function: FunctionType) -> tuple[Any, ...]:
    """What a function does: its code, what it is given by default, and what it takes from around it.

    Of what is around it, that is the functions of its module that it calls, and plain values.
    """
    module, outside = function.__module__, function.__globals__
    around = {name: outside[name] for name in _names(function.__code__) if name in outside}
    taken = {
        name: value
        for name, value in around.items()
        if _is_plain(value) or (isinstance(value, FunctionType) and value.__module__ == module)
    }
    inside = [cell.cell_contents for cell in function.__closure__ or ()]
    told = (_told(function.__code__), function.__defaults__, function.__kwdefaults__, inside, taken)
    return (module, function.__qualname__, *told)


def _is_plain(value: Any) -> bool:
    """Whether it is a value, or holds nothing else."""
    inside = [*value, *value.values()] if isinstance(value, dict) else value
    if not isinstance(inside, _HOLDERS):
        return isinstance(value, _PLAIN)
    try:
        return all(map(_is_plain, inside))
    except RecursionError:  # it holds itself
        return False


def _names(code: CodeType) -> list[str]:
    """All that a code may take from around it, also in functions that it makes."""
    inner = (name for const in code.co_consts if isinstance(const, CodeType) for name in _names(const))
    return sorted({*code.co_names, *inner})


def _told(code: CodeType) -> tuple[Any, ...]:
    """What it does, wherever it stands."""
    return (code.co_code, code.co_names, code.co_varnames, [_constant(const) for const in code.co_consts])


def _constant(const: Any) -> Any:
    if isinstance(const, CodeType):
        return _told(const)
    return sorted(map(repr, const)) if isinstance(const, frozenset) else const
