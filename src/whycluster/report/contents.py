"""The contents that all reports share, as numbers and sentences without markup."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np

from whycluster.core.arrays import Codes
from whycluster.core.errors import InvalidInputError
from whycluster.core.rules import CONTRAST
from whycluster.data import display
from whycluster.data.display import percent
from whycluster.data.labels import NOISE, as_list, noise_mask
from whycluster.data.validation import check_integer
from whycluster.explanations import findings
from whycluster.explanations.base import BORDERLINE, BaseExplanation
from whycluster.explanations.maps.cluster_styles import COLORS, SHAPES, ClusterStyle, styles_of
from whycluster.explanations.summaries.members import MemberClusters
from whycluster.report.distributions import N_BINS, axis_ends, histogram_outlines
from whycluster.report.formatting import clean_names, clean_sentences, format_numbers
from whycluster.report.sampling import choose_rows

_WHERE = "report"
_LISTED = 5  # number of typical rows and number of borderline rows per cluster
LEAST_SHARE = 0.005  # smaller shares would be shown as 0%
N_COMPETITORS = 3  # competitors named for each cluster
MOST_DESCRIBED = 100  # clusters; each takes several kilobytes of the page
_MOST_CHOICES = 2000  # clusters to choose from; a longer list would leave less room for rows
FEW_CLUSTERS = 40  # with more clusters, the table of competitors would have too many cells to be readable


@dataclass(frozen=True)
class Options:
    """The options of a report; see `whycluster.Explanation.report`."""

    title: str | None = None
    n_rows: int = 5000
    random_state: int = 0
    ids: Sequence[Any] | None = None
    left_out: Mapping[str, str] | None = None
    quality: findings.Quality | None = None

    def check(self, n: int) -> None:
        """Raise an error if an option is invalid for an explanation of n rows."""
        if not n:
            raise InvalidInputError(
                f"{_WHERE}: exp must contain at least one row; it contains none. Select at least one row."
            )
        check_integer(self.n_rows, 1, _WHERE, "n_rows")
        check_integer(self.random_state, 0, _WHERE, "random_state")
        if self.title is not None and not isinstance(self.title, str):
            raise InvalidInputError(f"{_WHERE}: title must be text; got {self.title!r}.")
        if self.left_out is not None and not isinstance(self.left_out, Mapping):
            raise InvalidInputError(
                f"{_WHERE}: left_out must map the names of columns that were left out to reasons; "
                f"got {type(self.left_out).__name__}."
            )
        if self.ids is not None and (not hasattr(self.ids, "__len__") or len(self.ids) != n):
            n_ids = len(self.ids) if hasattr(self.ids, "__len__") else f"a {type(self.ids).__name__}"
            raise InvalidInputError(
                f"{_WHERE}: ids must contain one id for each of the {n} rows; got {n_ids}."
            )


class Plan(NamedTuple):
    """The amount of each row that the page shows."""

    detail: int  # number of strongest features, characters of a text, or pixels along a side of an image
    n_others: int  # number of other clusters; the nearest ones if not all are shown
    n_contrasted: int = 0  # number of features in the contrast with each other cluster


@dataclass(frozen=True)
class Contents(ABC):
    """The contents that the reports of all kinds of explanations share.

    Attributes
    ----------
    exp : the explanation of all rows
    options : the options of the report
    """

    exp: BaseExplanation
    options: Options

    kind: ClassVar[str]  # the kind of rows: "table", "documents" or "images"

    @abstractmethod
    def plans(self) -> list[Plan]:
        """Return plans for how much of each row to show, from most to least."""

    @abstractmethod
    def n_bytes(self, chosen: Codes, plan: Plan) -> int:
        """Estimate the size of the chosen rows on the page, in bytes, without their names."""

    @abstractmethod
    def rows(self, chosen: Codes, plan: Plan) -> dict[str, Any]:
        """Return the data of the chosen rows for the script."""

    @abstractmethod
    def not_shown(self, plan: Plan) -> list[str]:
        """Return sentences about the parts of each row that the page leaves out."""

    def context(self) -> dict[str, Any]:
        """Return the variables of the template, except `notes`."""
        return {
            "kind": self.kind,
            "title": self.title(),
            "noun": self.noun,
            "article": self._article,
            "data_line": self.data_line(),
            "facts": self.facts(),
            "quality": self.quality,
            "quality_text": clean_sentences([self.quality.text])[0],
            "figures": self._figures(),
            "first_sentences": self.first_sentences(),
            "remarks": self.remarks(),
            "warnings": self.warnings(),
            "checks": self.checks(),
            "left_out": self._left_out(),
            "clusters": self.clusters(),
            "clusters_note": self._clusters_note(),
            "has_all_choices": len(self._choices) == len(self.groups.codes),
            "choices": [(code, self.names[code]) for code in self._choices],
            "evidence_range": self._evidence_texts[1:],
            "evidence_beyond": self._evidence_beyond(),
            "competition": self.competition(),
            "names": self.names,
            "legend": self._on_map[:MOST_DESCRIBED],
            "n_unlisted": max(0, len(self._on_map) - MOST_DESCRIBED),
            "styles": self.styles,
            "colors": COLORS,
            "shapes": SHAPES,
        }

    @cached_property
    def described(self) -> Codes:
        """The positions of the clusters that are described: the largest ones, if there are very many."""
        return np.sort(np.argsort(-self.groups.size, kind="stable")[:MOST_DESCRIBED])

    @property
    def _choices(self) -> list[int]:
        """The clusters to choose from: all, or those that are described, if there are very many."""
        codes = self.groups.codes
        chosen: list[int] = (codes if len(codes) <= _MOST_CHOICES else codes[self.described]).tolist()
        return chosen

    def _clusters_note(self) -> str:
        n = len(self.groups.codes)
        return f"Showing the {MOST_DESCRIBED} largest of {n:,} clusters." if n > MOST_DESCRIBED else ""

    def _left_out(self) -> list[tuple[str, str]]:
        left_out = self.options.left_out
        if not left_out:
            return []
        reasons = clean_sentences(left_out.values())
        return list(zip(clean_names(left_out), reasons, strict=True))

    def shared(self) -> dict[str, Any]:
        """Return the part of the script's data that does not depend on which rows are shown."""
        return {
            "kind": self.kind,
            "noun": self.noun,
            "names": self.names,
            "styles": self.styles,
            "noise": [code for code, is_noise in enumerate(self._is_noise) if is_noise],
            "groups": self.exp.member_clusters.codes.tolist(),
            "pairs": self.pairs() if len(self.names) <= FEW_CLUSTERS else None,
            "median": self.exp.median_evidence,
            "n_rows": self.n_rows,
            "labeled": self.exp.is_labeled,
            "contrast": self.exp.rule == CONTRAST,
            "threshold": self.exp.threshold,
        }

    def notes(self, n_shown: int, plan: Plan) -> dict[str, Any]:
        """Return sentences about the rows and the parts of rows that the page leaves out."""
        n = self.n_rows
        lines = []
        if n_shown < n:
            lines.append(
                f"Showing {n_shown:,} of {n:,} {self.noun}s, drawn at random. All clusters, and all "
                f"{self.noun}s named above, are included."
            )
        return {"notes": lines + self.not_shown(plan)}

    def n_bytes_of_names(self, chosen: Codes) -> int:
        """Return the number of bytes in the names of the chosen rows. Positions need no bytes."""
        if self.options.ids is None and self.exp.positions is None and self.exp.row_name(0) == 0:
            return 0
        return sum(len(name.encode()) + 3 for name in self.ids_of(chosen.tolist()))

    @property
    def groups(self) -> MemberClusters:
        """The clusters that have members."""
        return self.exp.member_clusters

    @cached_property
    def n_rows(self) -> int:
        """The number of rows."""
        return len(self.exp)

    @cached_property
    def names(self) -> list[str]:
        """(K,) names of the clusters."""
        return clean_names(self.exp.labels.tolist())

    @cached_property
    def headings(self) -> list[str]:
        """(K,) names of the clusters as titles."""
        named = zip(self.names, self._is_noise, strict=True)
        return [NOISE.capitalize() if is_noise else f"Cluster {name}" for name, is_noise in named]

    @cached_property
    def styles(self) -> list[ClusterStyle]:
        """(K,) colors and shapes of the clusters."""
        return styles_of(self._is_noise)

    @cached_property
    def _is_noise(self) -> list[bool]:
        return noise_mask(self.exp.labels.tolist())

    @property
    def codes_on_map(self) -> Codes:
        """(n,) the clusters on the map: the labels if labels are explained, else the model's clusters."""
        return self.exp.cluster_codes if self.exp.is_labeled else self.exp.assigned_codes

    @cached_property
    def _on_map(self) -> list[int]:
        """The clusters on the map, those that are described first."""
        codes: list[int] = np.unique(self.codes_on_map).tolist()
        described = set(self.groups.codes[self.described].tolist())
        return sorted(codes, key=lambda code: code not in described)

    @cached_property
    def listed(self) -> list[tuple[list[int], list[int]]]:
        """Positions of the typical and borderline rows of each cluster that is described."""
        return [
            (
                findings.typical_rows(self.exp, code, _LISTED).tolist(),
                findings.borderline_rows(self.exp, code, _LISTED).tolist(),
            )
            for code in self.groups.codes[self.described].tolist()
        ]

    @property
    def limit(self) -> float:
        """The evidence below which a row is borderline."""
        return BORDERLINE * self.exp.median_evidence

    def chosen(self, n_rows: int) -> Codes:
        """Return the positions of the rows to show, which include as many of the listed rows as possible."""
        wanted = np.array(self._wanted, dtype=np.intp)
        return choose_rows(self.exp.cluster_codes, wanted, n_rows, self.options.random_state)

    @property
    def _wanted(self) -> list[int]:
        """Positions of all listed rows."""
        return [row for pair in self.listed for rows in pair for row in rows]

    def ids_of(self, rows: Sequence[int]) -> list[str]:
        """Return the ids of some rows: the given ids, the pandas index, or else positions in the data."""
        if self.options.ids is None:
            return clean_names(self.exp.names_of_rows(rows))
        return clean_names([self._given_ids[row] for row in rows])

    @cached_property
    def _given_ids(self) -> list[Any]:
        return as_list(self.options.ids, _WHERE, whole=False)

    @cached_property
    def noun(self) -> str:
        """The word for a row, in lower case."""
        return self.exp.noun.lower()

    @property
    def _article(self) -> str:
        return "an" if self.noun[0] in "aeiou" else "a"

    def title(self) -> str:
        """Return the given title or a default title."""
        if self.options.title is not None:
            return clean_names([self.options.title])[0]
        if self.n_rows == 1:
            return f"Why {self._article} {self.noun} is in its cluster"
        return f"Why {display.count(self.n_rows, self.noun)} are in their clusters"

    def facts(self) -> list[tuple[str, str]]:
        """Describe the data and the model as pairs of a name and a value."""
        exp = self.exp
        clusters = f"{len(exp.labels):,}"
        empty = len(exp.labels) - len(self.groups.codes)
        if empty:
            clusters += f", {empty:,} of them without members"
        how = "given labels, through a surrogate" if exp.fidelity else exp.energy.title
        rule = exp.rule if exp.beta is None else f"{exp.rule}, beta {exp.beta:.3g}"
        reference = exp.reference_clause()
        return [
            (f"{exp.noun}s", f"{self.n_rows:,}"),
            ("Clusters", clusters),
            ("Clustered with", how),
            ("Explained with", f"the rule {rule}"),
            *([("Features measured from", reference)] if reference else []),
        ]

    def data_line(self) -> str:
        """Describe the data in one line."""
        empty = len(self.exp.labels) - len(self.groups.codes)
        clusters = display.count(len(self.exp.labels), "cluster")
        without = f" ({empty:,} without members)" if empty else ""
        return f"{display.count(self.n_rows, self.noun)}{self._of_what()}, {clusters}{without}"

    def _of_what(self) -> str:
        """Return the size of a row for the line about the data, after a comma, or ""."""
        return ""

    @cached_property
    def quality(self) -> findings.Quality:
        """How distinct and stable the clusters are."""
        return self.options.quality or findings.quality(self.exp)

    def _figures(self) -> list[tuple[str, str]]:
        """Return the figures behind the verdict on the quality, each with its name."""
        found = self.quality
        figures = [("Silhouette", _figure(found.silhouette)), ("Stability", _figure(found.stability))]
        return figures + [
            (f"Silhouette in {null.kind} data without clusters", _figure(null.mean))
            for null in found.nulls or ()
        ]

    def remarks(self) -> list[str]:
        """Return sentences about how well the rows fit their clusters."""
        exp = self.exp
        n = int(exp.is_borderline.sum())
        some = f"{display.count(n, self.noun)} ({n / self.n_rows:.1%})" if n else f"No {self.noun}"
        lines = [
            f"{some} {'are' if n > 1 else 'is'} borderline, with evidence of at most a tenth of the median, "
            f"{self._evidence_texts[0]}."
        ]
        n_targets = int((~exp.is_member).sum())
        if not exp.is_labeled and n_targets:
            are = "is" if n_targets == 1 else "are"
            lines.append(
                f"{display.count(n_targets, self.noun)} {are} explained for a cluster that the model does "
                f"not assign, and {are} not counted in the clusters below."
            )
        return lines

    def first_sentences(self) -> list[str]:
        """Return the caveats that apply to everything the report says about the clusters."""
        warned = [each.text for each in self._warnings if each.kind in findings.READ_FIRST]
        return clean_sentences([*self.exp.surrogate_sentences(), *warned])

    def warnings(self) -> list[str]:
        """Return the other warnings about the explanation as sentences."""
        return clean_sentences([each.text for each in self._warnings if each.kind not in findings.READ_FIRST])

    @property
    def _warnings(self) -> list[findings.Finding]:
        return [finding for check in self.all_checks for finding in check.findings]

    def checks(self) -> list[tuple[str, str]]:
        """Return the checks that gave no warning, each with its outcome."""
        passed = [check for check in self.all_checks if not check.findings]
        outcomes = clean_sentences([check.outcome for check in passed])
        return list(zip([check.name for check in passed], outcomes, strict=True))

    @cached_property
    def all_checks(self) -> list[findings.Check]:
        """All checks of the explanation."""
        return findings.checks(self.exp, self.options.left_out)

    def clusters(self) -> list[dict[str, Any]]:
        """Describe each cluster that has members, or the largest ones."""
        groups, limits = self.groups, self._evidence_range
        codes, sizes = groups.codes[self.described].tolist(), groups.size[self.described].tolist()
        members = [self.exp.evidence[self.exp.is_member & (self.exp.cluster_codes == code)] for code in codes]
        medians = format_numbers([float(np.median(own)) for own in members])
        boundary = round(100 * float(np.clip((0.0 - limits[0]) / (limits[1] - limits[0]), 0, 1)), 2)
        counts = [np.histogram(own, N_BINS, limits)[0].astype(np.float64) for own in members]
        outlines = histogram_outlines(counts)
        links = iter(self._links(self._wanted))
        cards = []
        for g, (code, size, own) in enumerate(zip(codes, sizes, members, strict=True)):
            card = {
                "code": code,
                "name": self.names[code],
                "heading": self.headings[code],
                "sentence": "",
                "features": [],
                "means": "Mean",
                "words": [],
                "size": size,
                "share": percent(size / max(1, self.n_rows)),
                "width": round(100 * size / max(1, self.n_rows), 1),
                "proposed": "",
                "typical_values": [],
                "rules": None,
                "evidence": medians[g],
                "strip": outlines[g],
                "boundary": boundary,
                "borderline": f"{(np.abs(own) <= self.limit).mean():.0%}",
                "typical": [next(links) for _ in self.listed[g][0]],
                "near": [next(links) for _ in self.listed[g][1]],
                "fidelity": self._fidelity(code),
            }
            cards.append(card)
        return cards

    def _links(self, rows: list[int]) -> list[dict[str, Any]]:
        return [{"row": row, "id": name} for row, name in zip(rows, self.ids_of(rows), strict=True)]

    @cached_property
    def _evidence_range(self) -> tuple[float, float]:
        """The range in which evidence is drawn."""
        evidence = np.asarray(self.exp.evidence[self.exp.is_member], dtype=np.float64)
        if not evidence.size:
            return 0.0, 1.0
        low, high = axis_ends(evidence)
        low = min(0.0, low)
        return (low, high) if high > low else (low, low + 1.0)

    def _evidence_beyond(self) -> str:
        """Say how many rows are not drawn because their evidence is beyond the range."""
        evidence, (low, high) = self.exp.evidence[self.exp.is_member], self._evidence_range
        counts = {"less": int((evidence < low).sum()), "more": int((evidence > high).sum())}
        parts = [f"{display.count(n, self.noun)} with {side} evidence" for side, n in counts.items() if n]
        return (
            f"; {' and '.join(parts)} {'is' if sum(counts.values()) == 1 else 'are'} not drawn"
            if parts
            else ""
        )

    @cached_property
    def _evidence_texts(self) -> list[str]:
        """The median evidence and the ends of the range in which evidence is drawn, as text."""
        return format_numbers([self.exp.median_evidence, *self._evidence_range])

    def _fidelity(self, code: int) -> str | None:
        fidelity = self.exp.fidelity
        if fidelity is None:
            return None
        label = self.exp.labels[code]
        found = [i for i, name in enumerate(fidelity.labels.tolist()) if name == label]
        share = fidelity.cross_validated_per_cluster[found[0]] if found else np.nan
        return None if np.isnan(share) else f"{share:.0%}"

    def competition(self) -> dict[str, Any]:
        """Describe the strongest competitors of each cluster, each with its share of the members."""
        groups = self.described.tolist()
        found = [self.groups.competitors(g) for g in groups]
        kept = [share[:N_COMPETITORS] >= LEAST_SHARE for _, share in found]
        named = [k[:N_COMPETITORS][some].tolist() for (k, _), some in zip(found, kept, strict=True)]
        features = iter(
            self.features_between([(g, k) for g, some in zip(groups, named, strict=True) for k in some])
        )
        lines, matrix = [], len(self.names) <= FEW_CLUSTERS
        for g, (competitor, share), some in zip(groups, found, named, strict=True):
            code = int(self.groups.codes[g])
            competitors = [
                {"name": self.names[k], "share": f"{value:.0%}", "features": next(features)}
                for k, value in zip(some, share.tolist(), strict=False)
            ]
            cells = (
                self._cells(code, dict(zip(competitor.tolist(), share.tolist(), strict=True)))
                if matrix
                else []
            )
            lines.append(
                {
                    "group": g,
                    "code": code,
                    "name": self.names[code],
                    "competitors": competitors,
                    "cells": cells,
                }
            )
        return {"lines": lines, "matrix": matrix}

    def _cells(self, code: int, share: dict[int, float]) -> list[dict[str, Any] | None]:
        """Return a cluster's row in the table of competitors, with None for the cluster itself."""
        shares = [share.get(k, 0.0) for k in range(len(self.names))]
        cells = [{"text": f"{value:.0%}", "tint": round(value, 2)} for value in shares]
        return [None if k == code else cell for k, cell in enumerate(cells)]

    def pairs(self) -> dict[str, Any] | None:
        """Return the contrasts between all pairs of clusters, or None if there are no features."""
        return None

    def features_between(self, pairs: Sequence[tuple[int, int]]) -> list[list[str]]:
        """Return, for each pair (group, code), the features that best separate the two clusters."""
        return [[] for _ in pairs]


def _figure(value: float | None) -> str:
    return "not measured" if value is None else f"{value:.2f}".replace("-", "\N{MINUS SIGN}")
