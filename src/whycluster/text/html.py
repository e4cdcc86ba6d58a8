"""Render documents as web pages that highlight the words of the original text by relevance.

Pages are self-contained and contain no scripts. All of a document's characters are escaped, so the document
cannot inject markup.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from html import escape
from typing import NamedTuple

# Blue and orange are distinguishable with any color vision and in dark mode.
STYLE = """
.wc { --for: 30 110 220; --against: 230 110 0; --ink: #1c1e21; --dim: #5b626b; --line: #d9dde2;
  --paper: #ffffff; background: var(--paper); padding: .1em .8em; color: var(--ink);
  font: 15px/1.6 system-ui, sans-serif; }
@media (prefers-color-scheme: dark) {
  .wc { --for: 90 160 255; --against: 255 150 40; --ink: #e6e8eb; --dim: #9aa3ad; --line: #3a4048;
    --paper: #16191d; } }
.wc article { border: 1px solid var(--line); border-radius: 8px; margin: 1.2em 0; background: var(--paper); }
.wc h2 { font-size: 1em; font-weight: 600; margin: 0; padding: .6em 1em; border-bottom: 1px solid var(--line);
  overflow-wrap: anywhere; }
.wc .text { white-space: pre-wrap; overflow-wrap: anywhere; padding: .8em 1em; }
.wc .text b { font-weight: inherit; border-radius: 3px; }
.wc .p { background: rgb(var(--for) / var(--a)); }
.wc .n { background: rgb(var(--against) / var(--a)); }
.wc .u { text-decoration: underline dotted var(--dim) 1px; text-underline-offset: .25em; }
.wc .c { color: var(--dim); }
.wc .note { color: var(--dim); font-size: .9em; margin: .4em 0; overflow-wrap: anywhere; }
.wc article .note { padding: 0 1em .4em; }
.wc .note b { font-weight: inherit; border-radius: 3px; padding: 0 .3em; color: var(--ink); }
"""

_STRONGEST = 0.75  # opacity of the strongest word, low enough for its text to stay readable
_FAINTEST = 0.02  # anything below this opacity is invisible


class Mark(NamedTuple):
    """A word to highlight.

    Attributes
    ----------
    start, stop : its span in the text
    relevance : its relevance, or None if the word is not in the model's vocabulary
    stop_word : whether it is a stop word
    cut_off : whether the model does not read that far
    """

    start: int
    stop: int
    relevance: float | None
    stop_word: bool = False
    cut_off: bool = False


def article(heading: str, text: str, marks: Sequence[Mark], notes: str = "") -> str:
    """Return one document with a heading as HTML."""
    below = note(notes) if notes else ""
    return (
        f'<article><h2>{safe(heading)}</h2><div class="text" dir="auto">{highlight(text, marks)}</div>'
        f"{below}</article>"
    )


def highlight(text: str, marks: Sequence[Mark]) -> str:
    """Return the text as HTML with its words highlighted, keeping every character."""
    largest = max((abs(mark.relevance) for mark in marks if mark.relevance is not None), default=0.0)
    pieces, end = [], 0
    for mark in merge_overlaps(marks):
        pieces.append(safe(text[end : mark.start]))
        pieces.append(_highlighted(text[mark.start : mark.stop], mark, largest))
        end = mark.stop
    return "".join([*pieces, safe(text[end:])])


def merge_overlaps(marks: Iterable[Mark]) -> list[Mark]:
    """Return the marks in order, merging overlapping marks such as those for the letters of a ligature."""
    result: list[Mark] = []
    for mark in sorted(marks, key=lambda each: each.start):
        if result and mark.start < result[-1].stop:
            last = result[-1]
            known = [r for r in (last.relevance, mark.relevance) if r is not None]
            result[-1] = Mark(last.start, max(last.stop, mark.stop), sum(known) if known else None)
        elif mark.stop > mark.start:
            result.append(mark)
    return result


def _highlighted(word: str, mark: Mark, largest: float) -> str:
    if mark.cut_off:
        return f'<span class="c" title="cut off">{safe(word)}</span>'
    if mark.relevance is None:
        return safe(word) if mark.stop_word else f'<span class="u" title="unknown">{safe(word)}</span>'
    strength = abs(mark.relevance) / largest if largest > 0 else 0.0
    tint = f' style="--a:{_STRONGEST * strength:.2f}"' if _STRONGEST * strength >= _FAINTEST else ""
    side = ("p" if mark.relevance >= 0 else "n") if tint else "o"
    return f'<b class="{side}"{tint} title="{mark.relevance:+.3g}">{safe(word)}</b>'


def legend(articles: Iterable[str]) -> str:
    """Return what the marks in some documents mean; only those that occur, except for colors."""
    there = {kind for each in articles for kind in "uc" if f'<span class="{kind}"' in each}
    unknown = ' <span class="u">Underlined</span> words are not in the model\'s vocabulary.' * ("u" in there)
    cut_off = ' <span class="c">Gray</span> words are cut off.' * ("c" in there)
    return (
        '<p class="note">Highlighted words are evidence <b class="p" style="--a:.7">for</b> the cluster or '
        '<b class="n" style="--a:.7">against</b> it. The strongest word of each document is shown in full '
        f"color. Hover over a word to see its relevance.{unknown}{cut_off}</p>"
    )


def note(text: str) -> str:
    """Return a remark in small print as HTML."""
    return f'<p class="note">{safe(text)}</p>'


def fragment(parts: Sequence[str]) -> str:
    """Return HTML that can be embedded in another page."""
    return f'<div class="wc"><style>{STYLE}</style>{"".join(parts)}</div>'


def page(title: str, parts: Sequence[str], style: str = "") -> str:
    """Return a self-contained HTML page, with ``style`` as additional CSS."""
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        # As a second line of defense, forbid the browser from running scripts or fetching resources.
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="color-scheme" content="light dark">'
        f"<title>{safe(title)}</title><style>{STYLE}{_PAGE}{style}</style></head>\n"
        f'<body class="wc"><main><h1>{safe(title)}</h1>\n' + "\n".join(parts) + "\n</main></body></html>\n"
    )


_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
_PAGE = """
body.wc { margin: 0; background: var(--paper); }
.wc main { max-width: 62em; margin: 0 auto; padding: 1.5em 1em 4em; }
.wc h1 { font-size: 1.4em; line-height: 1.3; margin: 0 0 .6em; }
"""

_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]")


def safe(text: str) -> str:
    """Return the text escaped for HTML, with control characters made visible."""
    return visible(escape(text, quote=True))


def visible(text: str) -> str:
    """Replace each character that HTML does not allow with a visible symbol."""
    return _CONTROL.sub(_symbol, text)


def _symbol(match: re.Match[str]) -> str:
    code = ord(match.group())
    if code < 0x20:
        return chr(0x2400 + code)
    return "\u2421" if code == 0x7F else "\ufffd"
