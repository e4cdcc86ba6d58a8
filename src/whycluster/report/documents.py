"""Reports on documents, with the words of each cluster and texts with marked words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from whycluster.core.arrays import Codes
from whycluster.data import display
from whycluster.explanations import findings
from whycluster.report.contents import Contents, Plan
from whycluster.report.formatting import clean_names, clean_sentences, format_shares
from whycluster.report.packing import smallest_codes
from whycluster.report.rows import claims_of, nearest_clusters, pack_contrasts
from whycluster.text import html
from whycluster.text.explanation import TextExplanation
from whycluster.text.summary import PLAIN, TextSummary
from whycluster.text.words import STOP_WORD

_WORDS_SHOWN = 8  # per cluster
_BYTES_PER_MARK = 8  # start, length and relevance in two bytes each, encoded as base64


@dataclass(frozen=True)
class TextContents(Contents):
    """The contents of a report on documents."""

    exp: TextExplanation
    kind: ClassVar[str] = "documents"

    def _of_what(self) -> str:
        return f", {display.count(int(self.exp.n_words.sum()), 'word')}"

    def facts(self) -> list[tuple[str, str]]:
        """Add the number of words."""
        facts = super().facts()
        n_known, n_words = int(self.exp.n_known.sum()), int(self.exp.n_words.sum())
        facts.insert(1, ("Words", f"{n_words:,}, including {n_known:,} that are known to the model"))
        n_cut_off = int(self.exp.n_cut_off.sum())
        if n_cut_off:
            facts.insert(2, ("Words cut off", f"{n_cut_off:,}, because {self.exp.what_is_read}"))
        evidence = float(self.exp.evidence.sum())
        if self.exp.residual_shares and evidence:
            shares = {name: float(each.sum()) / evidence for name, each in self.exp.residual_shares.items()}
            listed = ", ".join(f"{name} {share:.1%}" for name, share in shares.items())
            facts.append(("Evidence outside the words", listed))
        return facts

    def clusters(self) -> list[dict[str, Any]]:
        """Add a sentence and the words of each cluster."""
        cards, summary = super().clusters(), self.exp.summary()
        sentences = clean_sentences(findings.sentences(self.exp, summary))
        for g, card in zip(self.described.tolist(), cards, strict=True):
            card["sentence"], card["words"] = sentences[g], self._words(summary, g)
        return cards

    def _words(self, summary: TextSummary, g: int) -> list[dict[str, Any]]:
        size = int(summary.size[g])
        label = summary.clusters.tolist()[g]
        top = summary.telling(label, _WORDS_SHOWN).tolist()
        others = max(1, len(self.exp) - size)
        largest = max((float(summary.share[entry]) for entry in top), default=1.0)
        words = clean_names([summary.word[entry] for entry in top])
        shares = format_shares([float(summary.share[entry]) for entry in top], digits=1)
        rows = [
            {
                "word": word,
                "share": share,
                "width": round(100 * float(summary.share[entry]) / largest, 1),
                "inside": f"{summary.documents[entry] / size:.0%}",
                "outside": f"{summary.documents_outside[entry] / others:.0%}",
            }
            for entry, word, share in zip(top, words, shares, strict=True)
        ]
        plain = summary.share_of_plain(label)
        if plain is not None:
            (share,) = format_shares([plain], digits=1)
            rows.append({"word": PLAIN, "share": share, "inside": ""})
        return rows

    def plans(self) -> list[Plan]:
        """Return the plans to try, each with the number of characters and of other clusters to show."""
        others = len(self.names) - 1
        return [Plan(n, min(others, most)) for n, most in ((8000, 60), (3000, 60), (1200, 20))]

    def not_shown(self, plan: Plan) -> list[str]:
        """Return a sentence if any documents are cut."""
        longest = max((len(text) for text in self.exp.texts), default=0)
        if longest <= plan.detail:
            return []
        return [
            f"Documents are cut after {plan.detail:,} characters; the relevance of the remaining text is "
            "shown as one sum."
        ]

    def n_bytes(self, chosen: Codes, plan: Plan) -> int:
        """Estimate the size of the texts and their marks."""
        words = self.exp.word_table
        size = len(chosen) * (40 + 3 * plan.n_others)
        for row in chosen.tolist():
            size += len(self.exp.texts[row][: plan.detail].encode()) * 103 // 100
            marked = (words.start[words.slice_of(row)] < plan.detail) & (
                words.kind[words.slice_of(row)] != STOP_WORD
            )
            size += _BYTES_PER_MARK * int(marked.sum())
        return size

    def rows(self, chosen: Codes, plan: Plan) -> dict[str, Any]:
        """Return the texts of the chosen documents and the positions of their words."""
        exp = self.exp[chosen]
        texts = [html.visible(text[: plan.detail]) for text in exp.texts]
        marks = [self._marks(exp, row, plan.detail) for row in range(len(exp))]
        known = [np.array([m.relevance for m in each if m.relevance is not None]) for each in marks]
        scale = np.array([np.abs(values).max(initial=0.0) for values in known])
        every = [(mark, row) for row, each in enumerate(marks) for mark in each]
        document = np.array([row for _, row in every], dtype=np.intp)
        relevance = np.array([np.nan if m.relevance is None else m.relevance for m, _ in every])
        per_unit = np.divide(1.0, scale, out=np.zeros(len(scale)), where=scale > 0)
        return (
            claims_of(self, chosen, exp)
            | pack_contrasts(*nearest_clusters(exp, plan.n_others), len(self.names))
            | {
                "texts": texts,
                "cut": [row for row, text in enumerate(exp.texts) if len(text) > plan.detail],
                "ends": smallest_codes(np.cumsum([0, *map(len, marks)])),
                "start": smallest_codes(np.array([m.start for m, _ in every], dtype=np.intp)),
                "length": smallest_codes(np.array([m.stop - m.start for m, _ in every], dtype=np.intp)),
                "scale": scale.astype(np.float64),
                "relevance": (relevance * per_unit[document]).astype(np.float16),
            }
        )

    @staticmethod
    def _marks(exp: TextExplanation, row: int, longest: int) -> list[html.Mark]:
        """Return the words to mark in a document, up to the position at which it is cut."""
        return html.merge_overlaps(
            word.mark for word in exp.words(row) if not word.stop_word and word.stop <= longest
        )
