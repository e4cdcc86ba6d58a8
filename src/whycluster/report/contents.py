"""What every report says, whatever was clustered: all numbers and words, and no markup."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from whycluster.core.arrays import Codes
from whycluster.core.errors import InvalidInputError
from whycluster.core.rules import CONTRAST
from whycluster.data import display
from whycluster.data.labels import as_list, cluster_name, is_noise
from whycluster.data.validation import check_whole
from whycluster.explanations import findings
from whycluster.explanations.cluster_styles import COLORS, SHAPES, ClusterStyle, style_of
from whycluster.explanations.explanation import BORDERLINE, BaseExplanation
from whycluster.explanations.summary import Groups
from whycluster.report import drawing
from whycluster.report.sampling import choose_rows

_WHERE = "report"
_BINS = 24
_LISTED = 5  # typical and borderline rows of a cluster
_LEAST_SHARE = 0.005  # what would be shown as 0 %
_FEW_CLUSTERS = 40  # beyond, the table of who competes with whom has too many cells to be read
_LONGEST_NAME = 80  # characters of a name, a category or an id
_LONGEST_SENTENCE = 1000


def shown(name: Any) -> str:
    """A name as a page shows it: on one line, with characters that are not to be seen written out."""
    return display.clean(str(name), _LONGEST_NAME)


def sentence(text: str) -> str:
    """A sentence as a page shows it, whatever names are in it."""
    return display.clean(text, _LONGEST_SENTENCE)


@dataclass(frozen=True)
class Options:
    """What the user asked of a report; see `whycluster.Explanation.report`."""

    title: str | None = None
    n_rows: int = 5000
    random_state: int = 0
    ids: Sequence[Any] | None = None
    left_out: Mapping[str, str] | None = None

    def check(self, n: int) -> None:
        """Raise unless they can be met for a table of n rows."""
        if not n:
            raise InvalidInputError(f"{_WHERE}: there is no row to report on. Choose some rows.")
        check_whole(self.n_rows, 1, _WHERE, "n_rows")
        check_whole(self.random_state, 0, _WHERE, "random_state")
        if self.title is not None and not isinstance(self.title, str):
            raise InvalidInputError(f"{_WHERE}: title must be text; got {self.title!r}.")
        if self.left_out is not None and not isinstance(self.left_out, Mapping):
            raise InvalidInputError(
                f"{_WHERE}: left_out must map the name of each column that was left out to the reason; "
                f"got {type(self.left_out).__name__}."
            )
        if self.ids is not None and (not hasattr(self.ids, "__len__") or len(self.ids) != n):
            n_ids = len(self.ids) if hasattr(self.ids, "__len__") else f"a {type(self.ids).__name__}"
            raise InvalidInputError(f"{_WHERE}: ids must be one for each of the {n} rows; got {n_ids}.")


class Plan(NamedTuple):
    """How much of each row a page has room for."""

    detail: int  # so many features, the strongest; of texts characters, of images pixels along a side
    n_rivals: int  # other clusters; the nearest, if not all
    n_apart: int = 0  # features that speak for the cluster against each of these


@dataclass(frozen=True)
class Contents(ABC):
    """What can be said of any explanation.

    Attributes
    ----------
    exp : the explanation of all rows
    options : what was asked
    """

    exp: BaseExplanation
    options: Options

    kind: ClassVar[str]  # of rows: "table", "documents" or "images"

    @abstractmethod
    def plans(self) -> list[Plan]:
        """What may be shown of each row, from the most to the least."""

    @abstractmethod
    def n_bytes(self, chosen: Codes, plan: Plan) -> int:
        """About how many bytes of the page the chosen rows take, but for their names."""

    @abstractmethod
    def rows(self, chosen: Codes, plan: Plan) -> dict[str, Any]:
        """All that the script is to know of the chosen rows."""

    @abstractmethod
    def not_shown(self, plan: Plan) -> list[str]:
        """What of each row is not shown, in sentences."""

    def context(self) -> dict[str, Any]:
        """What the template shows, but for `notes`."""
        return {
            "kind": self.kind,
            "title": self.title(),
            "noun": self.noun,
            "facts": self.facts(),
            "quality": self.quality(),
            "warnings": self.warnings(),
            "left_out": [(shown(k), sentence(str(v))) for k, v in (self.options.left_out or {}).items()],
            "clusters": self.clusters(),
            "reach": self.reach_text,
            "competition": self.competition(),
            "names": self.names,
            "legend": np.unique(self.places).tolist(),
            "looks": self.looks,
            "colors": COLORS,
            "shapes": SHAPES,
        }

    def shared(self) -> dict[str, Any]:
        """What the script is to know besides the rows."""
        return {
            "kind": self.kind,
            "noun": self.noun,
            "names": self.names,
            "looks": self.looks,
            "headings": [self.heading(code) for code in range(len(self.names))],
            "groups": self.groups.codes.tolist(),
            "pairs": self.pairs() if len(self.names) <= _FEW_CLUSTERS else None,
            "median": self.median,
            "n_rows": len(self.exp),
            "labelled": self.exp.fidelity is not None,
            "contrast": self.exp.rule == CONTRAST,
            "threshold": self.exp.threshold,
        }

    def notes(self, n_shown: int, plan: Plan) -> dict[str, Any]:
        """What the page leaves out."""
        n = len(self.exp)
        lines = []
        if n_shown < n:
            lines.append(
                f"{n_shown:,} of {n:,} {self.noun}s, drawn at random; every cluster is there, and so are the "
                f"{self.noun}s named above."
            )
        return {"notes": lines + self.not_shown(plan)}

    def bytes_of_names(self, chosen: Codes) -> int:
        """How many bytes the names of the chosen rows take; positions are there anyway."""
        if self.options.ids is None and self.exp.positions is None and self.exp.row_name(0) == 0:
            return 0
        return sum(len(self.id_of(row).encode()) + 3 for row in chosen.tolist())

    @cached_property
    def groups(self) -> Groups:
        """The clusters that have members."""
        return findings.groups(self.exp)

    @cached_property
    def names(self) -> list[str]:
        """(K,) what the clusters are called."""
        return [shown(label) for label in self.exp.labels.tolist()]

    @cached_property
    def looks(self) -> list[ClusterStyle]:
        """(K,) how the clusters look."""
        return [style_of(code, is_noise(label)) for code, label in enumerate(self.exp.labels.tolist())]

    @property
    def places(self) -> Codes:
        """(n,) the clusters in which the map shows the rows: as they were given, or as the model says."""
        return self.exp.cluster_codes if self.exp.fidelity is not None else self.exp.assigned_codes

    @cached_property
    def listed(self) -> list[tuple[Codes, Codes]]:
        """(G) typical and borderline rows of each cluster, by position."""
        return [
            (findings.typical_rows(self.exp, c, _LISTED), findings.borderline_rows(self.exp, c, _LISTED))
            for c in self.groups.codes.tolist()
        ]

    @cached_property
    def limit(self) -> float:
        """The evidence below which a row is borderline."""
        return BORDERLINE * self.median

    @cached_property
    def median(self) -> float:
        """The median evidence of all members."""
        return self.exp.median_evidence

    @cached_property
    def is_borderline(self) -> NDArray[np.bool_]:
        """(n,) whether a row is."""
        return np.asarray(findings.borderline(self.exp))

    def chosen(self, n_rows: int) -> Codes:
        """Positions of the rows that the page has room for."""
        wanted = [row for pair in self.listed for rows in pair for row in rows]
        return choose_rows(
            self.exp.cluster_codes, np.array(wanted, dtype=np.intp), n_rows, self.options.random_state
        )

    def id_of(self, row: int) -> str:
        """What a row is called: as the user said, in a pandas index, or by its position in the data."""
        return shown(self.exp.row_name(row) if self.options.ids is None else self._ids[row])

    @cached_property
    def _ids(self) -> list[Any]:
        return as_list(self.options.ids, _WHERE, whole=False)

    @property
    def noun(self) -> str:
        """What a row is called, in the middle of a sentence."""
        return self.exp.noun.lower()

    def title(self) -> str:
        """The user's title, or one that says what it is."""
        if self.options.title is not None:
            return shown(self.options.title)
        if len(self.exp) == 1:
            return f"Why a {self.noun} is where it is"
        return f"Why {display.count(len(self.exp), self.noun)} are where they are"

    def facts(self) -> list[tuple[str, str]]:
        """What was clustered, as pairs of a name and what it is."""
        exp = self.exp
        clusters = f"{len(exp.labels):,}"
        empty = len(exp.labels) - len(self.groups.codes)
        if empty:
            clusters += f", {empty:,} of them without members here"
        how = "labels that were given, through a surrogate" if exp.fidelity else exp.energy.title
        rule = exp.rule if exp.beta is None else f"{exp.rule}, beta {exp.beta:.3g}"
        return [
            (f"{exp.noun}s", f"{len(exp):,}"),
            ("Clusters", clusters),
            ("Clustered by", how),
            ("Explained by", f"the rule {rule}"),
        ]

    def quality(self) -> list[str]:
        """How well it was clustered, in sentences."""
        exp = self.exp
        n = int(self.is_borderline.sum())
        some = f"{display.count(n, self.noun)} ({n / len(exp):.1%})" if n else f"No {self.noun}"
        lines = [
            f"{some} {'are' if n > 1 else 'is'} borderline: the evidence for the cluster is at most a tenth "
            f"of the median, {number(self.median)}."
        ]
        n_targets = int((~exp.is_member).sum())
        if exp.fidelity is not None:
            fidelity = exp.fidelity
            lines.append(
                f"A surrogate stands in for the labels. It gives the right label to "
                f"{fidelity.cross_validated:.1%} of the {self.noun}s that it was not fitted to, and to "
                f"{fidelity.in_sample:.1%} of those it was."
            )
            if n_targets:
                lines.append(
                    f"{display.count(n_targets, self.noun)} that it puts elsewhere than the label says "
                    f"{'is' if n_targets == 1 else 'are'} not counted in the clusters below."
                )
        elif n_targets:
            lines.append(
                f"{display.count(n_targets, self.noun)} {'is' if n_targets == 1 else 'are'} explained for a "
                f"cluster that the model does not give, and not counted in the clusters below."
            )
        return lines

    def warnings(self) -> list[str]:
        """What may mislead, in sentences."""
        return [sentence(caution.text) for caution in findings.warnings(self.exp, self.options.left_out)]

    def clusters(self) -> list[dict[str, Any]]:
        """What is said of each cluster that has members."""
        groups, evidence = self.groups, self.exp.evidence
        reach = self._reach
        largest = int(groups.size.max(initial=1))
        cards = []
        for g, code in enumerate(groups.codes.tolist()):
            own = evidence[self.exp.is_member & (self.exp.cluster_codes == code)]
            bins = np.histogram(np.clip(own, *reach), _BINS, reach)[0].astype(np.float64)
            typical, near = self.listed[g]
            card = {
                "code": code,
                "name": self.names[code],
                "heading": self.heading(code),
                "sentence": "",
                "features": [],
                "means": "Mean",
                "words": [],
                "size": int(groups.size[g]),
                "part": f"{groups.size[g] / max(1, len(self.exp)):.0%}",
                "width": round(100 * groups.size[g] / largest, 1),
                "evidence": number(float(np.median(own))),
                "strip": drawing.steps(bins, float(bins.max())),
                "boundary": drawing.place(0.0, *reach),
                "borderline": f"{(np.abs(own) <= self.limit).mean():.0%}",
                "typical": [{"row": row, "id": self.id_of(row)} for row in typical.tolist()],
                "near": [{"row": row, "id": self.id_of(row)} for row in near.tolist()],
                "fidelity": self._fidelity(code),
            }
            cards.append(card)
        return cards

    def heading(self, code: int) -> str:
        """A cluster as a title."""
        name = cluster_name(self.exp.labels[code], self.names[code])
        return name[0].upper() + name[1:]

    @cached_property
    def _reach(self) -> tuple[float, float]:
        """From where to where evidence is drawn: a few far off are drawn at the end."""
        evidence = np.asarray(self.exp.evidence[self.exp.is_member], dtype=np.float64)
        if not evidence.size:
            return 0.0, 1.0
        low, high = min(0.0, float(np.quantile(evidence, 0.01))), float(np.quantile(evidence, 0.99))
        return (low, high) if high > low else (low, low + 1.0)

    @property
    def reach_text(self) -> tuple[str, str]:
        """The two ends of the axis of evidence."""
        low, high = self._reach
        return number(low), number(high)

    def _fidelity(self, code: int) -> str | None:
        fidelity = self.exp.fidelity
        if fidelity is None:
            return None
        label = self.exp.labels[code]
        found = [i for i, name in enumerate(fidelity.labels.tolist()) if name == label]
        share = fidelity.cross_validated_per_cluster[found[0]] if found else np.nan
        return None if np.isnan(share) else f"{share:.0%}"

    def competition(self) -> dict[str, Any]:
        """Who competes with whom: of each cluster a line of shares, and its strongest rivals in words."""
        shares = self.groups.competitor_share
        lines = []
        for g, code in enumerate(self.groups.codes.tolist()):
            order = np.argsort(-shares[g], kind="stable")
            rivals = [self._rival(g, k) for k in order.tolist() if shares[g, k] >= _LEAST_SHARE][:3]
            cells = [None if k == code else self._cell(shares[g, k]) for k in range(len(self.names))]
            lines.append(
                {"group": g, "code": code, "name": self.names[code], "rivals": rivals, "cells": cells}
            )
        return {"lines": lines, "matrix": len(self.names) <= _FEW_CLUSTERS}

    def _rival(self, g: int, k: int) -> dict[str, Any]:
        return {
            "name": self.names[k],
            "part": f"{self.groups.competitor_share[g, k]:.0%}",
            "on": self.told_apart(g, k),
        }

    def pairs(self) -> dict[str, Any] | None:
        """What is known of each pair of clusters, if anything is."""
        return None

    def told_apart(self, g: int, k: int) -> list[str]:  # noqa: ARG002  # only features tell apart
        """The names of what tells a cluster from a rival most."""
        return []

    @staticmethod
    def _cell(share: float) -> dict[str, Any]:
        return {"text": f"{share:.0%}", "tint": round(float(share), 2)}


def number(value: float) -> str:
    """A number as a person reads it, with a minus sign as long as a plus."""
    return display.number(value).replace("-", "\u2212")


def signed(value: float) -> str:
    """Three digits with their sign."""
    return f"{value:+.3g}".replace("-", "\u2212")


def percent(part: float, form: str = "+.0%") -> str:
    """A part with its sign."""
    return f"{part:{form}}".replace("-", "\u2212")
