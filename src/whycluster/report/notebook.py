"""Show explanations in a notebook: the clusters, and bars for the first rows, as HTML without scripts."""

from __future__ import annotations

from whycluster.explanations import findings
from whycluster.explanations.explanation import Explanation
from whycluster.report.contents import Options
from whycluster.report.features import TableContents
from whycluster.report.formatting import clean_names, clean_sentences, format_signed
from whycluster.text import html

_ROWS, _FEATURES, _CLUSTERS = 3, 6, 20

_STYLE = """
.wc table { border-collapse: collapse; margin: .6em 0 1em; font-size: 14px; }
.wc th, .wc td { padding: .15em .9em .15em 0; text-align: left; font-weight: inherit; vertical-align: middle;
  overflow-wrap: anywhere; }
.wc thead th { color: var(--dim); border-bottom: 1px solid var(--line); }
.wc .number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.wc .bar { width: 12em; padding: 0; }
.wc .bar span { display: block; height: .6em; width: var(--w); margin-left: var(--l); border-radius: 2px; }
.wc .bar .p { background: rgb(var(--for) / .85); }
.wc .bar .n { background: rgb(var(--against) / .85); }
.wc h4 { font-size: 14px; margin: .8em 0 0; }
"""


def fragment(exp: Explanation) -> str:
    """Return the HTML that a notebook shows."""
    contents = TableContents(exp, Options())
    notes = clean_sentences(exp.surrogate_sentences())
    parts = [html.note(repr(exp)), *map(html.note, notes), _clusters(contents)]
    parts += [_row(exp, row) for row in range(min(len(exp), _ROWS))]
    if len(exp) > _ROWS:
        parts.append(
            html.note(f"... and {len(exp) - _ROWS:,} more rows: see report(), summary(), to_frame()")
        )
    return html.fragment([f"<style>{_STYLE}</style>", *parts])


def _clusters(contents: TableContents) -> str:
    """Return a table of the clusters, with name, size and a sentence for each."""
    sentences = clean_sentences(findings.sentences(contents.exp, contents.summary))
    sizes = contents.groups.size.tolist()
    lines = [
        f'<tr><th>{html.safe(contents.names[code])}</th><td class="number">{size:,}</td>'
        f"<td>{html.safe(sentence)}</td></tr>"
        for code, size, sentence in zip(contents.groups.codes.tolist(), sizes, sentences, strict=True)
    ]
    if len(lines) > _CLUSTERS:
        lines[_CLUSTERS:] = [
            f"<tr><th></th><td></td><td>... and {len(lines) - _CLUSTERS} more clusters</td></tr>"
        ]
    heads = (
        '<tr><th scope="col">cluster</th><th scope="col" class="number">rows</th><th scope="col"></th></tr>'
    )
    return f"<table><thead>{heads}</thead><tbody>{''.join(lines)}</tbody></table>"


def _row(exp: Explanation, row: int) -> str:
    """Return the claim about a row and a table of its strongest features."""
    one = exp[row]
    every = one.lines(_FEATURES)
    reach = max(abs(line.relevance) for line in every) or 1.0
    names, values = clean_names([line.name for line in every]), clean_names([line.value for line in every])
    lines = [
        f'<tr><th>{html.safe(name)}</th><td class="number">{html.safe(value)}</td>'
        f'<td class="number">{format_signed(line.relevance)}</td>{_bar(line.relevance / reach)}</tr>'
        for line, name, value in zip(every, names, values, strict=True)
    ]
    heads = "".join(f'<th scope="col">{head}</th>' for head in ("feature", "value", "relevance", ""))
    claim = f"<h4>{html.safe(one.claim())}</h4>"
    return f"{claim}<table><thead><tr>{heads}</tr></thead><tbody>{''.join(lines)}</tbody></table>"


def _bar(part: float) -> str:
    """Return a bar that extends from the middle to the right if positive and to the left if negative."""
    width = 50 * abs(part)
    left = 50 if part >= 0 else 50 - width
    side, place = "p" if part >= 0 else "n", f"--w:{width:.1f}%;--l:{left:.1f}%"
    return f'<td class="bar"><span class="{side}" style="{place}"></span></td>'
