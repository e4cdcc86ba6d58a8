"""Read our docstrings, which are plain text with a few conventions.

In lists of parameters, ``name : description`` becomes a name with a description, without a type.
Single backticks mark names of our own. Only names of the facade and full names become links, because other
names may mean several things.
"""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

import whycluster

_CODE = re.compile(r"(``.+?``|`.+?`)")
_MARKUP = re.compile(r"[|*]|_(?!\w)")
_ENTRY = re.compile(r"(\*{0,2}\w+(?:, \*{0,2}\w+)*) : (.*)")
_TITLE = re.compile(r"[A-Z][A-Za-z ]+")

INTERNAL = {  # members without an underscore that other layers of the package call, and users have no need of
    "Agreement": ("of", "warn_if_low", "warn_of_surrogate"),
    "BaseExplanation": (
        "reference_clause",
        "reference_sentence",
        "surrogate_sentences",
        "unattributed",
        "unchanged_table",
        "verified",
        "with_labels",
    ),
    "ClusterShares": ("relabeled",),
    "Composite": ("check_layers", "rule_for"),
    "Condition": ("check", "holds", "predicate", "to_sql"),
    "DeepExplanation": ("lines", "of_features", "total_lines", "unattributed"),
    "Explanation": ("lines", "strongest_features"),
    "Fidelity": ("of", "sentences", "warn_if_low"),
    "KernelKMeans": ("energy",),
    "Network": (
        "claims",
        "explain_rows",
        "open",
        "open_background",
        "open_usual",
        "scaled_centroids",
        "takes_any_kind",
        "text_columns",
        "with_labels",
    ),
    "Query": ("coded",),
    "RowAccess": ("names_of_rows", "row_title"),
    "RowChange": ("is_refit", "lacking", "lists_residual", "question", "shown_values", "strongest_columns"),
    "Segmentation": ("open", "select", "steps", "with_labels"),
    "Sentences": ("encoder",),
    "Statement": ("compare", "headline", "is_number", "shown_values"),
    "Summary": (
        "bars_of",
        "format_means",
        "grid",
        "headlines_of",
        "is_date",
        "sorted",
        "statement",
        "statements",
        "statements_of",
        "statements_of_each",
    ),
    "Surrogate": ("energy", "fit_rows", "network"),
    "TableNetwork": ("open", "scaled_centroids", "takes_any_kind", "text_columns"),
    "TextExplanation": ("article", "lines", "strongest_features", "unattributed"),
    "TextSummary": ("bars_of", "grid", "share_of_plain", "strongest", "telling", "telling_words"),
    "WordVectors": ("lexicon", "whycluster_form"),
    "_Match": ("figures",),
}


def setup(app: Sphinx) -> dict[str, bool]:
    """Rewrite docstrings before napoleon reads them, and choose the members of classes."""
    app.connect("autodoc-process-docstring", _process, priority=100)
    app.connect("autodoc-skip-member", _skip)
    app.connect("doctree-read", _dashes)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _process(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    del app, what, name, obj, options
    lines[:] = plain(entries_on_lines_of_their_own(lines))


def _skip(app: Sphinx, what: str, name: str, member: Any, skip: bool, options: Any) -> bool | None:
    """Leave out internal members, members of other libraries, and fields, which are listed as attributes."""
    del app, what, options
    found = getattr(member, "fget", member)
    home = getattr(getattr(found, "__objclass__", found), "__module__", None) or "whycluster"
    is_field = str(getattr(member, "__doc__", "")).startswith("Alias for field")
    owner = getattr(found, "__qualname__", "").rpartition(".")[0]
    is_internal = name.rpartition(".")[2] in INTERNAL.get(owner, ())
    return True if skip or is_field or is_internal or not home.startswith("whycluster") else None


def _dashes(app: Sphinx, doctree: nodes.document) -> None:
    """Write the two dashes that Sphinx puts after the name of a parameter as one."""
    del app
    for text in list(doctree.findall(nodes.Text)):
        if text == " -- ":
            text.parent.replace(text, nodes.Text(" \N{EN DASH} "))


def entries_on_lines_of_their_own(lines: list[str]) -> list[str]:
    """Put the description of each parameter below its name; attributes become a list of definitions.

    Results are described in one sentence. Napoleon would take each of its lines for one more result.
    """
    found, section = list[str](), ""
    for number, line in enumerate(lines):
        underline = lines[number + 1] if number + 1 < len(lines) else ""
        if _TITLE.fullmatch(line) and underline and set(underline) == {"-"}:
            section = line
            found += [".. rubric:: Attributes", ""] if section == "Attributes" else [line]
        elif section == "Attributes" and line and set(line) == {"-"}:
            continue
        elif section == "Returns" and _continues(line, found[-1]):
            found[-1] += f" {line}"
        else:
            found += _entry(line, section)
    return found


def _continues(line: str, previous: str) -> bool:
    """Return whether a line of the results continues the one before it."""
    is_text = bool(previous.strip()) and not previous.startswith((" ", "-"))
    return is_text and line[:1].strip() != "" and not line.startswith("-") and _ENTRY.fullmatch(line) is None


def _entry(line: str, section: str) -> list[str]:
    entry = _ENTRY.fullmatch(line) if section in ("Parameters", "Attributes") else None
    if entry is None:
        return [line]
    return [f"``{entry[1]}``" if section == "Attributes" else entry[1], f"    {entry[2]}"]


def plain(lines: list[str]) -> list[str]:
    """Escape text that is not markup in our docstrings, such as ``|x|^2``; turn names into links or code."""
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
        if name.startswith("whycluster."):
            return f":py:obj:`{name}`"
        return f":py:obj:`{name} <whycluster.{name}>`" if name in whycluster.__all__ else f"``{name}``"
    return _MARKUP.sub(r"\\\g<0>", part)
