"""Read our docstrings, which are plain text with a few conventions.

In lists of parameters, ``name : description`` becomes a name with a description, without a type.
Single backticks mark names of our own. Only names of the facade become links, because other names may mean
several things.
"""

from __future__ import annotations

import re
from typing import Any

from sphinx.application import Sphinx

import whycluster

_CODE = re.compile(r"(``.+?``|`.+?`)")
_MARKUP = re.compile(r"[|*]|_(?!\w)")
_ENTRY = re.compile(r"(\*{0,2}\w+(?:, \*{0,2}\w+)*) : (.*)")
_TITLE = re.compile(r"[A-Z][A-Za-z ]+")


def setup(app: Sphinx) -> dict[str, bool]:
    """Rewrite docstrings before napoleon reads them, and choose the members of classes."""
    app.connect("autodoc-process-docstring", _process, priority=100)
    app.connect("autodoc-skip-member", _skip)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _process(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    del app, what, name, obj, options
    lines[:] = plain(entries_on_lines_of_their_own(lines))


def _skip(app: Sphinx, what: str, name: str, member: Any, skip: bool, options: Any) -> bool | None:
    """Leave out what classes inherit from other libraries, and fields, which are listed as attributes."""
    del app, what, name, options
    home = getattr(getattr(member, "fget", member), "__module__", None) or "whycluster"
    is_field = str(getattr(member, "__doc__", "")).startswith("Alias for field")
    return True if skip or is_field or not home.startswith("whycluster") else None


def entries_on_lines_of_their_own(lines: list[str]) -> list[str]:
    """Put the description of each parameter below its name; attributes become a list of definitions."""
    found, section = list[str](), ""
    for number, line in enumerate(lines):
        underline = lines[number + 1] if number + 1 < len(lines) else ""
        if _TITLE.fullmatch(line) and underline and set(underline) == {"-"}:
            section = line
            found += [".. rubric:: Attributes", ""] if section == "Attributes" else [line]
        elif section == "Attributes" and line and set(line) == {"-"}:
            continue
        else:
            found += _entry(line, section)
    return found


def _entry(line: str, section: str) -> list[str]:
    entry = _ENTRY.fullmatch(line) if section in ("Parameters", "Attributes") else None
    if entry is None:
        return [line]
    return [f"``{entry[1]}``" if section == "Attributes" else entry[1], f"    {entry[2]}"]


def plain(lines: list[str]) -> list[str]:
    """Escape what is no markup in our docstrings, such as ``|x|^2``, and turn names into links or code."""
    found, is_code = list[str](), False
    for line in lines:
        is_code = line.startswith(">>>") or (is_code and bool(line.strip()))
        is_kept = is_code or line.startswith("**")  # the name of a parameter
        found.append(line if is_kept else "".join(map(_plain, _CODE.split(line))))
    return found


def _plain(part: str) -> str:
    if part.startswith("``"):
        return part
    if part.startswith("`"):
        name = part.strip("`")
        return f":py:obj:`{name} <whycluster.{name}>`" if name in whycluster.__all__ else f"``{name}``"
    return _MARKUP.sub(r"\\\g<0>", part)
