"""Checks of parameters that many functions share."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np

from whycluster.core.errors import InvalidInputError


def check_integer(value: Any, least: int, where: str, name: str, also: str = "") -> None:
    """Raise an error unless a parameter is an integer of at least ``least``.

    ``also`` names other values that the caller accepts, for the message, such as ``"None or "``.
    """
    is_integer = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if not is_integer or value < least:
        raise InvalidInputError(
            f"{where}: {name} must be {also}an integer of at least {least}; got {value!r}."
        )


def check_choice(value: Any, choices: Collection[str | None], where: str, name: str) -> None:
    """Raise an error unless a parameter is one of the choices."""
    if not (value is None or isinstance(value, str)) or value not in choices:
        raise InvalidInputError(
            f"{where}: {name} must be one of {', '.join(map(repr, choices))}; got {value!r}."
        )
