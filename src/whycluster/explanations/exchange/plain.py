"""Explanations and summaries as plain data, in the form that ``schema-1.json`` describes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whycluster.core.errors import InvalidInputError
from whycluster.data.validation import check_integer
from whycluster.explanations.exchange.json_values import to_plain

VERSION = 1
_MOST_NUMBERS = 1_000_000  # relevance scores; as JSON, these are about 100 MB


def describe_rows(exp: Any, chosen: Any, n_strongest: int | None, parts: str, width: int) -> dict[str, Any]:
    """Return an explanation as plain data, without the relevance of its rows.

    Parameters
    ----------
    exp : the explanation, a `BaseExplanation`
    chosen : the rows that the user chose, or None for all of them
    n_strongest : the number of features or words of each row
    parts : "features" or "words"
    width : the number of features, or the mean number of words
    """
    if n_strongest is not None:
        check_integer(n_strongest, 1, "to_dict", "n_strongest", "None or ")
        width = min(width, int(n_strongest))
    if chosen is None and len(exp) * width > _MOST_NUMBERS:
        raise InvalidInputError(
            f"to_dict: an explanation must have at most {_MOST_NUMBERS:,} relevance scores to become JSON; "
            f"this one has {len(exp) * width:,}. Choose rows, such as rows=range(1000), or rows=slice(None) "
            f"for all of them, or the strongest {parts} of each row, such as n_strongest=5. For large "
            "tables, use to_frame() or the Arrow interface, as in pyarrow.table(exp)."
        )
    fidelity = exp.fidelity
    return {
        "format": "whycluster.explanation",
        "version": VERSION,
        "noun": exp.noun.lower(),
        "rule": exp.rule,
        "beta": to_plain(exp.beta),
        "threshold": to_plain(exp.threshold),
        "clusters": plain_list(exp.labels),
        "n_rows": len(exp),
        "fidelity": None if fidelity is None else to_plain(fidelity.cross_validated),
    }


def claims_of(exp: Any) -> list[dict[str, Any]]:
    """Return the claim about each row, as plain data."""
    names = exp.names_of_rows(range(len(exp)))
    positions = range(len(exp)) if exp.positions is None else exp.positions.tolist()
    columns = [exp.cluster, exp.competitor, exp.assigned, exp.evidence, exp.residual]
    rows = zip(names, positions, *map(plain_list, columns), strict=True)
    keys = ("row", "position", "cluster", "competitor", "assigned", "evidence", "residual")
    return [dict(zip(keys, (to_plain(name), *rest), strict=True)) for name, *rest in rows]


def with_parts(
    claims: Sequence[dict[str, Any]], parts: Iterable[list[dict[str, Any]]], totals: NDArray[Any], name: str
) -> list[dict[str, Any]]:
    """Add to each claim its features or words, and the relevance of all others.

    Parameters
    ----------
    claims : one per row
    parts : the features or words of each row, each with its relevance
    totals : (n,) the total relevance of each row
    name : "features" or "words"
    """
    found = []
    for claim, some, total in zip(claims, parts, totals.tolist(), strict=True):
        listed = sum(part["relevance"] for part in some)
        found.append({**claim, name: some, "other_relevance": total - listed})
    return found


def records(keys: Sequence[str], columns: Sequence[NDArray[Any]]) -> list[list[dict[str, Any]]]:
    """Return, for each row, one record per part; the columns have shape (n_rows, n_parts)."""
    rows = zip(*([plain_list(row) for row in column] for column in columns), strict=True)
    return [[dict(zip(keys, part, strict=True)) for part in zip(*row, strict=True)] for row in rows]


def plain_list(values: Any) -> list[Any]:
    """Return an array or a list as a list of plain values."""
    array = np.asarray(values)
    if array.dtype.kind in "biu" or (array.dtype.kind == "f" and np.isfinite(array).all()):
        return array.tolist()  # type: ignore[no-any-return]
    return [to_plain(value) for value in (array if array.dtype.kind in "mM" else array.tolist())]


def describe_clusters(summary: Any, parts: Sequence[list[dict[str, Any]]], name: str) -> dict[str, Any]:
    """Return a summary as plain data.

    Parameters
    ----------
    summary : the summary, a `ClusterSummary`
    parts : the features or words of each cluster
    name : "features" or "words"
    """
    rows = zip(plain_list(summary.clusters), summary.size.tolist(), summary.headlines(), parts, strict=True)
    clusters = [
        {"cluster": label, "size": size, "headline": headline, name: some}
        for label, size, headline, some in rows
    ]
    return {"format": "whycluster.summary", "version": VERSION, "clusters": clusters}
