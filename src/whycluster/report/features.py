"""What reports of tables have: features, with their distributions, and the values of rows."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from whycluster.core.arrays import Codes, Floats, evenly, strongest
from whycluster.data import display
from whycluster.data.missing import is_missing
from whycluster.data.table import Table
from whycluster.explanations import findings
from whycluster.explanations.explanation import Explanation
from whycluster.explanations.summary import MISSING, Summary
from whycluster.plots.style import cut_all
from whycluster.report import drawing
from whycluster.report.contents import Contents, Plan, number, percent, sentence, shown
from whycluster.report.packing import codes, coding_of, encode, halves, number_categories, packed
from whycluster.report.rows import claims, pack_rivals, told_apart

_BINS = 24
_SAMPLED = 5000  # rows that ranges are taken from
_MOST_CATEGORIES = 1000  # of a column; more are free text
_CATEGORIES_SHOWN = 5
_LONGEST_CATEGORY = 22  # letters, beside a bar
_LEAST_SHARE = 0.005  # what would be shown as 0 %
_MOST_NAMED = 10  # columns that have no part in it
_ENOUGH = 10  # rows to tell that from


@dataclass(frozen=True)
class TableContents(Contents):
    """The report of a table."""

    exp: Explanation
    kind: ClassVar[str] = "table"

    @cached_property
    def summary(self) -> Summary:
        """What makes each cluster."""
        return self.exp.summary()

    @cached_property
    def _competition(self) -> findings.Competition:
        return findings.competition(self.exp, self._sample)

    @cached_property
    def _sample(self) -> findings.MemberSample:
        return findings.MemberSample.of(self.exp, "report")

    def facts(self) -> list[tuple[str, str]]:
        """With the columns."""
        facts = super().facts()
        facts.insert(1, ("Columns", f"{len(self.exp.feature_names) - len(self._unused):,}"))
        return facts

    def quality(self) -> list[str]:
        """With the columns that the steps before the model leave out."""
        names = [shown(self.exp.feature_names[i]) for i in self._unused]
        if not names:
            return super().quality()
        some = ", ".join(names[:_MOST_NAMED]) + f" and {len(names) - _MOST_NAMED:,} more" * (
            len(names) > _MOST_NAMED
        )
        have = "has" if len(names) == 1 else "have"
        return [
            *super().quality(),
            sentence(f"{display.count(len(names), 'column')} {have} no part in it: {some}."),
        ]

    @cached_property
    def _unused(self) -> list[int]:
        """Columns that are nothing to any row; of a few rows, that says nothing."""
        if len(self.exp) < _ENOUGH:
            return []
        used = np.zeros(len(self.exp.feature_names), dtype=np.bool_)
        for rows in self.exp.table.slices():
            used |= (self.exp.relevance[rows] != 0).any(axis=0)
        return np.flatnonzero(~used).tolist() if used.any() else []

    def warnings(self) -> list[str]:
        """What may mislead; the summary is there already."""
        found = findings.warnings(self.exp, self.options.left_out, self.summary, self._sample)
        return [sentence(caution.text) for caution in found]

    def clusters(self) -> list[dict[str, Any]]:
        """With a sentence and the features of each."""
        cards = super().clusters()
        n_features = 6 if len(cards) <= 20 else 3
        sentences = findings.sentences(self.exp, self.summary)
        drawn = Distributions.of(self.exp, self._defining(n_features))
        for g, (card, said) in enumerate(zip(cards, sentences, strict=True)):
            card["sentence"] = sentence(said)
            card["features"] = [
                self._feature(g, card["code"], i, drawn) for i in self._defining(n_features)[g]
            ]
            if any(each["inside"].endswith("%") for each in card["features"]):
                card["means"] = "Mean or frequency"
        return cards

    def _defining(self, n: int) -> list[list[int]]:
        """(G) the features of the largest share, those that would show as 0 % left out."""
        share = self.summary.share
        order = strongest(share, n)
        return [
            [i for rank, i in enumerate(row) if rank == 0 or abs(share[g, i]) >= _LEAST_SHARE]
            for g, row in enumerate(order.tolist())
        ]

    def _feature(self, g: int, code: int, i: int, drawn: Distributions) -> dict[str, Any]:
        summary = self.summary
        share, direction = float(summary.share[g, i]), str(summary.direction[g, i])
        is_category = i in self.exp.table.categories and direction != MISSING
        return {
            "name": shown(summary.feature_names[i]),
            "share": percent(share),
            "width": round(100 * abs(share) / drawing.largest_size(summary.share[g].tolist()), 1),
            "side": "for" if share >= 0 else "against",
            "direction": "" if is_category else shown(direction),
            "equals": shown(direction) if is_category else "",
            "inside": self._value(float(summary.inside[g, i]), direction, i),
            "outside": self._value(float(summary.outside[g, i]), direction, i),
            "drawing": drawn.drawing(code, i),
        }

    def _value(self, mean: float, direction: str, i: int) -> str:
        if np.isnan(mean):
            return ""
        if direction == MISSING or i in self.exp.table.categories:
            return f"{mean:.0%}"
        return _number(mean, i in self.exp.table.dates)

    def told_apart(self, g: int, k: int) -> list[str]:
        """The features that tell them apart."""
        return [shown(self.exp.feature_names[i]) for i in self._competition.feature[g, k].tolist() if i >= 0]

    def pairs(self) -> dict[str, Any] | None:
        """Of each pair of clusters, (G, K), the mean evidence, and the features that tell them apart."""
        competition = self._competition
        used, place = np.unique(competition.feature, return_inverse=True)
        place = place.reshape(competition.feature.shape)
        return {
            "names": [shown(self.exp.feature_names[i]) if i >= 0 else "" for i in used.tolist()],
            "evidence": [[_plain(value) for value in row] for row in competition.evidence],
            "on": [
                [
                    [[place[g, k, j].item(), _plain(r)] for j, r in enumerate(some) if not np.isnan(r)]
                    for k, some in enumerate(row)
                ]
                for g, row in enumerate(competition.relevance)
            ],
        }

    def rows(self, chosen: Codes, plan: Plan) -> dict[str, Any]:
        """All that the page knows of the chosen rows."""
        some = self.exp[chosen]
        n = min(plan.detail, some.relevance.shape[1])
        columns = strongest(some.relevance, n)
        apart = told_apart(some, self.exp.table, plan.n_rivals, plan.n_apart)
        used, places = _renumbered(columns, apart.feature)
        scale, relevance = halves(np.take_along_axis(some.relevance, columns, axis=1))
        apart_scale, apart_relevance = halves(apart.relevance)
        values, features = _values(some.table, columns, places[0], used)
        for feature, i in zip(features, used.tolist(), strict=True):
            feature["name"] = shown(self.exp.feature_names[i])
        return (
            claims(self, chosen, some)
            | pack_rivals(apart.rival, apart.evidence, len(self.names))
            | {
                "features": features,
                "n_features": some.relevance.shape[1] - len(self._unused),
                "scale": packed(scale),
                "feature": packed(codes(places[0])),
                "relevance": packed(relevance),
                "value": packed(values),
                "apart_scale": packed(apart_scale),
                "apart_feature": packed(codes(places[1])),
                "apart_relevance": packed(apart_relevance),
            }
        )

    def n_bytes(self, chosen: Codes, plan: Plan) -> int:
        """Those of the arrays, as base64."""
        index = 1 if len(self.exp.feature_names) <= 256 else 2
        cluster = 1 if len(self.names) <= 256 else 2
        rivals = plan.n_rivals * (2 + plan.n_apart * (2 + index))
        rivals += plan.n_rivals * cluster * (plan.n_rivals < len(self.names) - 1)
        plain = (2 if len(self.exp) < 1 << 16 else 4) + (
            2 + self.exp.is_targeted
        ) * cluster  # position, clusters
        plain += 4 + 4 + 3 * 4 + 4 * (not self.exp.energy.adds_up)  # evidence, map, scales, residual
        per_row = plain + plan.detail * (index + 4) + rivals
        return len(chosen) * per_row * 4 // 3

    def plans(self) -> list[Plan]:
        """The strongest features, and how many of them against how many clusters."""
        d, others = len(self.exp.feature_names), len(self.names) - 1
        sizes = [
            (10, 60, 3),
            (10, 60, 2),
            (8, 60, 2),
            (6, 60, 2),
            (6, 12, 2),
            (6, 6, 2),
            (5, 4, 1),
            (3, 2, 1),
        ]
        return [Plan(min(most, d), min(others, rivals), min(apart, d)) for most, rivals, apart in sizes]

    def not_shown(self, plan: Plan) -> list[str]:
        """Features and clusters for which there is no room."""
        d, others = len(self.exp.feature_names) - len(self._unused), len(self.names) - 1
        lines = []
        if plan.detail < d:
            lines.append(f"Of each row the {plan.detail} strongest of {d} features; the others are added up.")
        if plan.n_rivals < others:
            lines.append(f"Of each row the {plan.n_rivals} nearest of {others} other clusters.")
        return lines


def _number(value: float, date: bool) -> str:
    return f"{np.datetime64(round(value), 'D')}" if date else number(value)


def _plain(value: float) -> float | None:
    """What JSON has in place of NaN."""
    return None if np.isnan(value) else float(f"{value:.4g}")


def _known(value: Any) -> Any:
    """The value, None if it is missing."""
    return None if is_missing(value) else value


def _renumbered(*columns: Codes) -> tuple[Codes, list[Codes]]:
    """The different features in some arrays, and of these arrays the places among them."""
    used, place = np.unique(np.concatenate([c.ravel() for c in columns]), return_inverse=True)
    ends = np.cumsum([c.size for c in columns])[:-1]
    return used, [part.reshape(c.shape) for part, c in zip(np.split(place, ends), columns, strict=True)]


def _values(
    table: Table, columns: Codes, places: Codes, used: Codes
) -> tuple[NDArray[np.uint16], list[dict[str, Any]]]:
    """The values of each row in its columns as codes, (n, k), and of each feature what the codes mean."""
    numbers = Table.pick(table, columns)  # categories too, by their codes
    objects = table.pick(columns) if table.categories or table.goes_through_steps else None
    result = np.zeros(columns.shape, dtype=np.uint16)
    features: list[dict[str, Any]] = []
    order = np.argsort(places, axis=None, kind="stable")
    starts = np.searchsorted(places.ravel()[order], np.arange(len(used) + 1))
    for place, column in enumerate(used.tolist()):
        cells = order[starts[place] : starts[place + 1]]
        there = [] if objects is None else [_known(v) for v in objects.ravel()[cells].tolist()]
        if column in table.categories or any(isinstance(v, bool) for v in there):
            result.ravel()[cells], names = number_categories([v if v is None else shown(v) for v in there])
            features.append({"categories": names})
            continue
        coding = coding_of(numbers.ravel()[cells])
        result.ravel()[cells] = encode(numbers.ravel()[cells], coding)
        features.append({"low": coding.low, "step": coding.step, "exact": coding.exact})
        if column in table.dates:
            features[-1]["date"] = True
    return result, features


class Distributions(NamedTuple):
    """How the values of some features are distributed over the clusters, of all rows.

    Attributes
    ----------
    counts : of each feature, (K, bins) how many values of each cluster fall where
    edges : of each feature of numbers, (bins + 1,); values beyond are in the first and the last bin
    """

    table: Table
    counts: dict[int, Floats]
    edges: dict[int, Floats]

    @classmethod
    def of(cls, exp: Explanation, features: list[list[int]]) -> Distributions:
        """Count the values of these features."""
        table, n_clusters = exp.table, len(exp.labels)
        wanted = sorted({i for row in features for i in row})
        sizes = {i: len(table.categories[i]) for i in wanted if i in table.categories}
        edges = _edges(table, [i for i in wanted if i not in table.categories])
        wanted = [i for i in wanted if i in edges or 0 < sizes.get(i, 0) <= _MOST_CATEGORIES]
        widths = {i: sizes[i] if i in sizes else len(edges[i]) - 1 for i in wanted}
        counts = {i: np.zeros(n_clusters * width) for i, width in widths.items()}
        for start, block in table.blocks():
            cluster = exp.assigned_codes[start : start + len(block)]
            for i, width in widths.items():
                values = block[:, i]
                there = np.isfinite(values) & (values >= 0 if i in sizes else True)
                bins = (
                    values[there] if i in sizes else np.searchsorted(edges[i][1:-1], values[there], "right")
                )
                counts[i] += np.bincount(
                    cluster[there] * width + bins.astype(np.intp), minlength=n_clusters * width
                )
        return cls(table, {i: c.reshape(n_clusters, -1) for i, c in counts.items()}, edges)

    def drawing(self, code: int, i: int) -> dict[str, Any] | None:
        """The values of a feature inside a cluster and outside; None where they cannot be drawn."""
        if i not in self.counts:
            return None
        inside = self.counts[i][code]
        outside = self.counts[i].sum(axis=0) - inside
        if i in self.edges:
            edges = self.edges[i]
            ends = [_number(end, i in self.table.dates) for end in _ends(edges)]
            if i in self.table.dates:
                ends = [end[:-3] for end in ends]  # without the day
            return {"kind": "numbers", **drawing.both(inside, outside), "low": ends[0], "high": ends[1]}
        bars = self._bars(i, inside, outside)
        largest = drawing.largest_size([bar[side] for bar in bars for side in ("inside", "outside")])
        return {"kind": "categories", "bars": bars, "largest": largest}

    def _bars(self, i: int, inside: Floats, outside: Floats) -> list[dict[str, Any]]:
        """The categories that are most frequent in either."""
        parts = [c / max(1.0, c.sum()) for c in (inside, outside)]
        order = np.argsort(-np.maximum(*parts), kind="stable")[:_CATEGORIES_SHOWN]
        there = [c for c in order.tolist() if parts[0][c] or parts[1][c]]
        names = [self.table.categories[i][c] for c in there]
        bars: list[dict[str, Any]] = [
            {"name": cut, "whole": shown(name), "inside": float(parts[0][c]), "outside": float(parts[1][c])}
            for c, name, cut in zip(there, names, cut_all(names, _LONGEST_CATEGORY), strict=True)
        ]
        n_left = int(((inside + outside) > 0).sum()) - len(bars)
        if n_left > 0:
            rest = [1.0 - sum(bar[side] for bar in bars) for side in ("inside", "outside")]
            more = f"{n_left} more"
            bars.append(
                {"name": more, "whole": more, "inside": max(0.0, rest[0]), "outside": max(0.0, rest[1])}
            )
        return bars


def _ends(edges: Floats) -> tuple[float, float]:
    """The least and the largest value that are drawn: of whole numbers, those in the middle of their bins."""
    half = 0.5 if edges[0] % 1 == 0.5 and edges[1] - edges[0] == 1 else 0.0
    return float(edges[0]) + half, float(edges[-1]) - half


def _edges(table: Table, features: list[int]) -> dict[int, Floats]:
    """Where bins begin and end: between the outer hundredths, so that a few values far off do not matter."""
    if not features:
        return {}
    rows = evenly(table.n_rows, _SAMPLED)
    columns = np.broadcast_to(np.array(features), (len(rows), len(features)))
    values = Table.pick(table.take(rows), columns)
    found = {}
    for i, column in zip(features, values.T, strict=True):
        there = column[np.isfinite(column)]
        if not there.size:
            continue
        low, high = np.quantile(there, [0.01, 0.99])
        whole = (there == np.round(there)).all()
        if whole and high - low < _BINS:
            found[i] = np.arange(np.floor(low) - 0.5, np.ceil(high) + 1.0)
        else:
            found[i] = np.linspace(low, high if high > low else low + 1.0, _BINS + 1)
    return found
