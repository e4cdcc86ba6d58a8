"""How messages refer to a setting: as a Python argument or as a command-line option.

A message that recommends a setting asks `setting` for its spelling. The command uses `spelled_as` to replace
Python arguments with its own options.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

_spellings: Mapping[str, str] = {}  # not a context variable, because worker threads must see it too


def setting(argument: str) -> str:
    """Return how the caller writes a setting, such as ``--force`` for ``overwrite=True``.

    Parameters
    ----------
    argument : the setting as an argument of a Python function

    Returns
    -------
    str
        The argument itself, unless `spelled_as` is active.
    """
    return _spellings.get(argument, argument)


@contextmanager
def spelled_as(spellings: Mapping[str, str]) -> Iterator[None]:
    """Use other spellings for settings in messages inside the ``with`` block, in all threads."""
    global _spellings
    before, _spellings = _spellings, spellings
    try:
        yield
    finally:
        _spellings = before
