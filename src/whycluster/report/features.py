"""Reports on tables, with the features of clusters, their distributions, and the values of rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from whycluster.core.arrays import Codes
from whycluster.data import display
from whycluster.data.arrays import strongest
from whycluster.explanations import findings
from whycluster.explanations.explanation import Explanation
from whycluster.explanations.reasons.rules import ClusterRules
from whycluster.explanations.stories.member_sample import MemberSample
from whycluster.explanations.stories.story import splits_evidence
from whycluster.explanations.summaries.naming import propose_names
from whycluster.explanations.summaries.statements import Statement, format_values, values_and_comparisons
from whycluster.explanations.summaries.summary import Summary
from whycluster.report.contents import FEW_CLUSTERS, LEAST_SHARE, N_COMPETITORS, Contents, Plan
from whycluster.report.distributions import Distributions
from whycluster.report.formatting import clean_names, clean_sentences, format_shares
from whycluster.report.packing import scaled_together, smallest_codes
from whycluster.report.rows import claims_of, contrasts_of, pack_others
from whycluster.report.stories import (
    TypicalValues,
    relevance_against_competitor,
    residuals,
)
from whycluster.report.typical import typical_values
from whycluster.report.values import encode_values, mean_bytes, renumber_features

_MAX_NAMED = 10  # maximum number of unused columns that are named
_ENOUGH = 10  # number of rows needed to tell that a column is unused


def _as_lines(found: ClusterRules) -> dict[str, Any]:
    """Return the rules of a cluster as text."""
    texts = [*clean_sentences([rule.text for rule in found.rules]), ""]
    lines = [
        dict(zip(("text", "coverage", "precision"), (text, *each.figures), strict=True))
        for text, each in zip(texts, (*found.rules, found), strict=True)
    ]
    return {"lines": lines[:-1], "together": lines[-1] if len(lines) > 2 else None}


@dataclass(frozen=True)
class TableContents(Contents):
    """The contents of a report on a table."""

    exp: Explanation
    kind: ClassVar[str] = "table"

    @cached_property
    def summary(self) -> Summary:
        """The summary of the explanation."""
        return self.exp.summary()

    @cached_property
    def _competition(self) -> findings.Competition:
        most, sample = (None if len(self.names) <= FEW_CLUSTERS else N_COMPETITORS), self._sample
        if len(self.described) < len(self.groups.codes):
            codes = self.groups.codes[self.described]
            sample = MemberSample.of(self.exp, "report", codes)
        return findings.competition(self.exp, sample, most)

    @cached_property
    def _sample(self) -> MemberSample:
        return MemberSample.of(self.exp, "report")

    def _names(self, features: Iterable[int]) -> list[str]:
        names = self.exp.table.feature_names
        return clean_names([names[i] for i in features])

    def _of_what(self) -> str:
        return f", {display.count(self._n_used, 'column')}"

    @property
    def _n_used(self) -> int:
        return int(self.exp.relevance.shape[1]) - len(self._unused)

    def facts(self) -> list[tuple[str, str]]:
        """Add the number of columns."""
        facts = super().facts()
        facts.insert(1, ("Columns", f"{self._n_used:,}"))
        return facts

    def remarks(self) -> list[str]:
        """Add the columns that have no influence because no row has relevance in them."""
        if not self._unused:
            return super().remarks()
        names = self._names(self._unused)
        some = ", ".join(names[:_MAX_NAMED]) + f" and {len(names) - _MAX_NAMED:,} more" * (
            len(names) > _MAX_NAMED
        )
        have = "has" if len(names) == 1 else "have"
        unused = f"{display.count(len(names), 'column')} {have} no influence: {some}."
        return super().remarks() + clean_sentences([unused])

    @cached_property
    def _unused(self) -> list[int]:
        """The columns without relevance in any row, or none if there are too few rows to tell."""
        if self.n_rows < _ENOUGH:
            return []
        used = np.zeros(self.exp.relevance.shape[1], dtype=np.bool_)
        for rows in self.exp.table.slices():
            used |= (self.exp.relevance[rows] != 0).any(axis=0)
        return np.flatnonzero(~used).tolist() if used.any() else []

    @cached_property
    def all_checks(self) -> list[findings.Check]:
        """All checks, based on the summary and the sample of this report."""
        return findings.checks(self.exp, self.options.left_out, self.summary, self._sample)

    def clusters(self) -> list[dict[str, Any]]:
        """Add a sentence and the features of each cluster."""
        cards = super().clusters()
        groups = self.described.tolist()
        sentences = clean_sentences([f"{line}." for line in self.summary.headlines_of(groups)])
        features = self._features(6 if len(cards) <= 20 else 3)
        named = list(propose_names(self.summary).values())
        proposed = clean_names([named[g] for g in groups])
        typical, rules = typical_values(self.summary, groups), self._rules()
        columns = zip(cards, sentences, features, proposed, typical, strict=True)
        for card, sentence, lines, name, values in columns:
            card["sentence"], card["features"], card["rules"] = sentence, lines, rules.get(card["code"])
            card["typical_values"] = values
            card["proposed"] = "" if name.lower() in (card["name"], card["heading"].lower()) else name
            if any(line["inside"].endswith("%") for line in lines):
                card["means"] = "Mean or frequency"
        return cards

    def _rules(self) -> dict[int, dict[str, Any]]:
        """Return the rules of each cluster, by code, with their figures on all rows; {} if there are none.

        If all rows are explained for one cluster of given labels, their own labels are not known.
        """
        exp = self.exp
        has_labels = exp.fidelity is None or not exp.is_targeted or exp.is_labeled
        if not has_labels or len(self.groups.codes) > FEW_CLUSTERS or self.n_rows < _ENOUGH:
            return {}
        codes = {label: code for code, label in enumerate(exp.labels.tolist())}
        return {codes[each.cluster]: _as_lines(each) for each in exp.rules() if each.rules}

    def _features(self, n: int) -> list[list[dict[str, Any]]]:
        """Describe the ``n`` features with the largest shares in each cluster, without shares below 0.5%."""
        share, described, codes = self.summary.share, self.described.tolist(), self.groups.codes
        pairs = [
            (g, i)
            for g, row in zip(described, strongest(share[self.described], n).tolist(), strict=True)
            for rank, i in enumerate(row)
            if rank == 0 or abs(share[g, i]) >= LEAST_SHARE
        ]
        features = [i for _, i in pairs]
        statements = self.summary.statements_of(pairs)
        columns = zip(
            pairs,
            self._names(features),
            clean_sentences([text for _, text in values_and_comparisons(statements)]),
            format_shares([share[pair] for pair in pairs]),
            *self._means(pairs, statements),
            Distributions.of(self.exp, features).drawings([(int(codes[g]), i) for g, i in pairs]),
            strict=True,
        )
        largest = max((abs(float(share[pair])) for pair in pairs), default=0.0) or 1.0
        lines: dict[int, list[dict[str, Any]]] = {g: [] for g in described}
        for (g, i), name, comparison, part, inside, outside, drawing in columns:
            lines[g].append(
                {
                    "name": name,
                    "share": part,
                    "width": round(100 * abs(float(share[g, i])) / largest, 1),
                    "side": "for" if share[g, i] >= 0 else "against",
                    "comparison": comparison,
                    "inside": inside,
                    "outside": outside,
                    "drawing": drawing,
                }
            )
        return list(lines.values())

    def _means(
        self, pairs: list[tuple[int, int]], statements: list[Statement]
    ) -> tuple[list[str], list[str]]:
        """Format the means, dates or frequencies of features inside and outside clusters, with "" for NaN."""
        others = [float(self.summary.outside[pair]) for pair in pairs]
        values = [
            [each.value, *[value for value in (other, *each.values) if value == value]]
            if each.value == each.value
            else [other]
            for each, other in zip(statements, others, strict=True)
        ]
        inside, outside = [], []
        texts = format_values(statements, values)
        for each, other, shown in zip(statements, others, texts, strict=True):
            inside.append(shown[0] if each.value == each.value else "")
            outside.append(shown[len(shown) > 1 and each.value == each.value] if other == other else "")
        return inside, outside

    def features_between(self, pairs: Sequence[tuple[int, int]]) -> list[list[str]]:
        """Return, for each pair (group, code), the features that best separate the two clusters."""
        places = {g: place for place, g in enumerate(self.described.tolist())}
        found = (self._competition.feature[places[g], k] for g, k in pairs)
        features = [[i for i in some.tolist() if i >= 0] for some in found]
        names = iter(self._names([i for some in features for i in some]))
        return [[next(names) for _ in some] for some in features]

    def pairs(self) -> dict[str, Any] | None:
        """Return the mean evidence and the strongest features of each pair of clusters, (G, K)."""
        competition = self._competition
        used, place = np.unique(competition.feature, return_inverse=True)
        place = place.reshape(competition.feature.shape)
        names = self._names([i for i in used.tolist() if i >= 0])
        return {
            "names": [""] * (len(used) - len(names)) + names,  # -1, which stands for no feature, comes first
            "evidence": [[_rounded(value) for value in row] for row in competition.evidence],
            "features": [
                [
                    [[place[g, k, j].item(), _rounded(r)] for j, r in enumerate(some) if not np.isnan(r)]
                    for k, some in enumerate(row)
                ]
                for g, row in enumerate(competition.relevance)
            ],
        }

    def rows(self, chosen: Codes, plan: Plan) -> dict[str, Any]:
        """Return the strongest features of the chosen rows, the features' values, and the contrasts."""
        some = self.exp[chosen]
        n = min(plan.detail, some.relevance.shape[1])
        columns = strongest(some.relevance, n)
        contrasts = contrasts_of(some, self.exp.table, plan.n_others, plan.n_contrasted)
        against = relevance_against_competitor(self.exp, some)
        typical = TypicalValues.of(self.summary.compared, some, against)
        cells = np.column_stack([columns, typical.feature])
        used, (places, contrast_places) = renumber_features(cells, contrasts.feature)
        beside = np.take_along_axis(against, columns, axis=1)
        relevance = np.take_along_axis(some.relevance, columns, axis=1)
        scale, (relevance, beside, contrast_relevance, evidence) = scaled_together(
            relevance, beside, contrasts.relevance, contrasts.evidence
        )
        values = encode_values(some.table, cells, places, used)
        for feature, name in zip(values.features, self._names(used.tolist()), strict=True):
            feature["name"] = name
        return (
            claims_of(self, chosen, some)
            | pack_others(contrasts.other, len(self.names))
            | ({"beside": beside} | residuals(some, against) if splits_evidence(self.exp) else {})
            | (typical.packed(against) if self.exp.positions is None else {})  # else, not all rows are known
            | {
                "features": values.features,
                "n_features": self._n_used,
                "scale": scale,
                "feature": smallest_codes(places[:, :-1]),
                "relevance": relevance,
                "value": values.codes[:, :-1],
                "typical_feature": smallest_codes(places[:, -1]),
                "typical_value": values.codes[:, -1],
                "singles": values.singles,
                "doubles": values.doubles,
                "contrast_feature": smallest_codes(contrast_places),
                "contrast_relevance": contrast_relevance,
                "against": evidence,
            }
        )

    def n_bytes(self, chosen: Codes, plan: Plan) -> int:
        """Estimate the size of the arrays as base64."""
        index = 1 if self.exp.relevance.shape[1] <= 256 else 2
        cluster = 1 if len(self.names) <= 256 else 2
        others = plan.n_others * (2 + plan.n_contrasted * (2 + index))
        others += plan.n_others * cluster * (plan.n_others < len(self.names) - 1)
        position = 2 if self.n_rows < 1 << 16 else 4
        plain = position + (2 + self.exp.is_targeted) * cluster
        plain += 4 + 4 + 4 + 4 * (not self.exp.energy.adds_up)  # evidence, map, scales, residual
        story = index + self._n_bytes_of_value + 5 + position + 2
        beside = 0
        if splits_evidence(self.exp):
            story, beside = story + 3 * cluster + 4, 2
        per_row = plain + plan.detail * (index + 2 + beside + self._n_bytes_of_value) + others + story
        return int(len(chosen) * per_row * 4 / 3)

    @cached_property
    def _n_bytes_of_value(self) -> float:
        """The mean number of bytes that a value takes."""
        return mean_bytes(self.exp.table)

    def plans(self) -> list[Plan]:
        """Return the plans to try, each with numbers of features, other clusters and contrasted features."""
        d, others = self.exp.relevance.shape[1], len(self.names) - 1
        sizes = [
            (10, 60, 3),
            (10, 60, 2),
            (8, 60, 2),
            (8, 60, 1),
            (6, 60, 2),
            (6, 60, 1),
            (6, 12, 2),
            (6, 6, 2),
            (6, 6, 1),
            (6, 4, 1),
            (5, 4, 1),
            (5, 2, 1),
            (4, 2, 1),
            (3, 2, 1),
        ]
        return [Plan(min(most, d), min(others, m), min(contrasted, d)) for most, m, contrasted in sizes]

    def not_shown(self, plan: Plan) -> list[str]:
        """Return sentences about the features and clusters that are not shown."""
        d, others = self.exp.relevance.shape[1] - len(self._unused), len(self.names) - 1
        lines = []
        if plan.detail < d:
            lines.append(
                f"Each row shows the {plan.detail} strongest of {d} features and the sum of all other "
                "features."
            )
        if plan.n_others < others:
            lines.append(f"Each row is compared with the {plan.n_others} nearest of {others} other clusters.")
        return lines


def _rounded(value: float) -> float | None:
    """Round to four digits and convert NaN to None, since JSON does not support NaN."""
    return None if np.isnan(value) else float(f"{value:.4g}")
