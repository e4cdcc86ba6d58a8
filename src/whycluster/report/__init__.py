"""The report, a self-contained HTML page about the clusters, their features, and each row.

Modules, in reading order:

- `contents`: the contents that all reports share
- `features`, `documents`, `images`: additional contents for tables, documents and deep clusterings
- `typical`: the typical values of clusters; `distributions`: small histograms of values
- `rows`: the chosen rows as arrays; `sampling`: the choice of rows if there are too many to show
- `values`: the values of rows, as in the data; `stories`: the description of a row; `map`: its position
- `formatting`: names, sentences and numbers as text
- `packing`: arrays as base64 for the script
- `page`: the contents as one HTML page, made from `page.html.j2`, `page.css` and `page.js`
- `notebook`: the short HTML that a notebook shows
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from whycluster.data.files import as_path, check_creatable, write_text
from whycluster.explanations.base import BaseExplanation
from whycluster.explanations.explanation import Explanation
from whycluster.report.contents import Contents, Options
from whycluster.report.documents import TextContents
from whycluster.report.features import TableContents
from whycluster.report.page import open_template, render
from whycluster.text.explanation import TextExplanation

_LARGEST = 1_000_000  # maximum number of bytes in a page
_SPARE = 2_000  # margin in bytes, since sizes are estimates
_FEWER = 0.75  # fraction of the rows to try next if the current rows do not fit

__all__ = ["Options", "make_page", "write_report"]


def write_report(exp: BaseExplanation, path: Any, *options: Any) -> None:
    """Write the page to a file, which appears only once it is complete.

    ``options`` are the fields of `Options`.
    """
    where = as_path(path, "report")
    check_creatable(where)
    write_text(where, make_page(exp, Options(*options)))


def make_page(exp: BaseExplanation, options: Options) -> str:
    """Return the page as text of at most a million bytes."""
    options.check(len(exp))
    template = open_template()
    contents = _contents(exp.verified("report"), options)
    context, shared, plans = contents.context(), contents.shared(), contents.plans()
    room = _LARGEST - _SPARE - len(render(template, context | contents.notes(0, plans[0]), shared).encode())
    for n_rows in _row_counts(min(options.n_rows, len(exp))):
        chosen = contents.chosen(n_rows)
        names = contents.n_bytes_of_names(chosen)
        for plan in plans:
            if names + contents.n_bytes(chosen, plan) > room:
                continue
            page = render(
                template, context | contents.notes(len(chosen), plan), shared | contents.rows(chosen, plan)
            )
            if len(page.encode()) <= _LARGEST:
                return page
    # There is no room for a single row.
    return render(template, context | contents.notes(0, plans[-1]), shared)


def _row_counts(n_rows: int) -> Iterator[int]:
    """Yield the numbers of rows to try, in decreasing order.

    The caller tries all plans for each number, so rows are shortened before any are dropped.
    """
    while n_rows > 0:
        yield n_rows
        n_rows = int(n_rows * _FEWER)


def _contents(exp: BaseExplanation, options: Options) -> Contents:
    if isinstance(exp, TextExplanation):
        return TextContents(exp, options)
    if isinstance(exp, Explanation):
        return TableContents(exp, options)
    from whycluster.report.images import contents_of  # all remaining explanations need torch

    deep: Any = exp
    return contents_of(deep)(deep, options)
