"""What can be said of an explanation: each cluster in a sentence, who competes with whom, and cautions.

Only members count: rows that are explained for the cluster that they are in, as in `summary`. Clusters are
codes 0..K-1 here, and groups 0..G-1 are those clusters that have members, in the order of their codes.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

from whycluster.core import attribution
from whycluster.core.arrays import Codes, Floats, evenly
from whycluster.core.attribution import Query
from whycluster.data import display
from whycluster.data.columns import Column, like_days, like_identifier
from whycluster.data.labels import NOISE, cluster_name, is_noise
from whycluster.data.table import Table
from whycluster.explanations.explanation import BaseExplanation, Explanation
from whycluster.explanations.fidelity import LOW, Fidelity
from whycluster.explanations.summary import MISSING, Groups, Summary, group_members
from whycluster.text.explanation import TextExplanation
from whycluster.text.summary import TextSummary

MOST_ROWS = 5000  # that contrasts with every other cluster are computed of
N_TELLING = 3  # features that are kept for each pair of clusters

_CARRIED = 0.6  # of what speaks for a cluster, the features that a sentence names carry so much,
_MOST_NAMED = 4  # or are so many
_N_WORDS = 3  # of documents, where no few words carry most
_MOST_RIVALS = 2 / 3  # of the members, for which two competitors are named together
_MOST_LISTED = 5

_ENOUGH = 10  # rows to speak of all clusters
_ONE_COLUMN = 0.9  # of all relevance, and of all variance
_DRIVES = 0.3  # of the relevance of a cluster
_RESTS_ON = 0.25
_MOSTLY = 0.5
_ALIKE = 0.1  # of the median evidence


class Caution(NamedTuple):
    """What an analyst should know before resting on an explanation.

    Attributes
    ----------
    kind : "fidelity", "one column", "identifier", "date", "missing values", "alike", "borderline" or "left
        out"
    text : what was found, why it matters and what to do
    clusters : the labels of the clusters that it is about; empty if it is about all
    feature : the name of the column that it is about, if there is one
    """

    kind: str
    text: str
    clusters: tuple[Any, ...] = ()
    feature: Hashable | None = None


@dataclass(frozen=True, eq=False)
class Competition:
    """Who competes with whom, over the members of G of the K clusters.

    Attributes
    ----------
    clusters : (G,) labels of the clusters that have members
    labels : (K,) labels of all clusters
    share : (G, K) part of the members whose strongest competitor is k
    evidence : (G, K) mean evidence of the members against k; NaN against themselves
    feature : (G, K, 3) which features tell the members from k most, strongest first, as positions in
        ``feature_names``; -1 where there are none
    relevance : (G, K, 3) their mean relevance in the contrast with k; NaN where there are none
    feature_names : the d names
    """

    clusters: NDArray[Any]
    labels: NDArray[Any]
    share: Floats
    evidence: Floats
    feature: Codes
    relevance: Floats
    feature_names: list[Hashable]


@dataclass(frozen=True, eq=False)
class Sample:
    """At most `MOST_ROWS` members, m of them in order: of every cluster as many, evenly from its rows.

    Attributes
    ----------
    cluster : (m,) their clusters
    table : the rows
    h : (m, K) their evidence against every other cluster; NaN at their own
    """

    cluster: Codes
    table: Table
    h: NDArray[Any]

    @classmethod
    def of(cls, exp: BaseExplanation, where: str) -> Sample:
        """Choose them; ``where`` is for messages."""
        codes = groups(exp).codes
        most = max(1, MOST_ROWS // max(1, len(codes)))
        parts = [np.empty(0, np.intp)]
        for code in codes:
            own = _members_of(exp, code)
            parts.append(own[evenly(len(own), most)])
        some = exp[np.sort(np.concatenate(parts))]
        if not len(some):
            return cls(some.cluster_codes, some.table, np.empty((0, len(exp.labels))))
        table = some.unchanged_table(where)
        return cls(some.cluster_codes, table, attribution.contrasts(exp.energy, table, some.cluster_codes))


def groups(exp: BaseExplanation) -> Groups:
    """The clusters that have members, in the order of the summary, and their competitors."""
    return group_members(exp.cluster_codes, exp.competitor_codes, exp.is_member, len(exp.labels))


def borderline(exp: BaseExplanation) -> NDArray[np.bool_]:
    """(n,) whether a row is so near a boundary that it could as well be on the other side of it."""
    return exp.is_borderline


def typical_rows(exp: BaseExplanation, cluster_code: int, n: int) -> Codes:
    """Positions of the n members of a cluster whose evidence is nearest to its median, nearest first.

    Of those that are equally near up to rounding, as two with the median halfway between them, the first.
    """
    own = _members_of(exp, cluster_code)
    if not own.size:
        return own
    evidence = exp.evidence[own].astype(np.float64)
    rounding = max(1e-9, 8 * float(np.finfo(exp.evidence.dtype).eps))
    far = np.abs(evidence - np.median(evidence)) / (np.abs(evidence).max() or 1.0)
    return own[np.argsort(np.rint(far / rounding), kind="stable")][:n]


def borderline_rows(exp: BaseExplanation, cluster_code: int, n: int) -> Codes:
    """Positions of the n members of a cluster with the least evidence, least first."""
    own = _members_of(exp, cluster_code)
    return own[np.argsort(exp.evidence[own], kind="stable")][:n]


def _members_of(exp: BaseExplanation, cluster_code: int) -> Codes:
    return np.flatnonzero(exp.is_member & (exp.cluster_codes == cluster_code))


def competition(exp: BaseExplanation, sample: Sample | None = None) -> Competition:
    """Who competes with whom, and which features tell them apart; of documents and images, no features.

    Shares are of all members; evidence and features of at most 5000, the same number of each cluster if it
    has as many, and evenly from all of its rows. One competitor is taken at a time, so that nothing of shape
    (rows, clusters, features) is made. Give the ``sample`` of these, if it is there already.
    """
    codes, _, share = groups(exp)
    some = Sample.of(exp, "rivalry") if sample is None else sample
    group = np.searchsorted(codes, some.cluster)
    shape = (len(codes), len(exp.labels), N_TELLING)
    feature, relevance = np.full(shape, -1), np.full(shape, np.nan)
    evidence = np.full(shape[:2], np.nan)
    if group.size:
        evidence = _means(some.h, group, len(codes))
        energy = attribution.informed(exp.energy, exp.table)  # by all rows, whichever are asked about
        for k in range(len(exp.labels) if isinstance(exp, Explanation) else 0):
            against = np.full(len(group), k)
            found = attribution.attribute(energy, some.table, Query(some.cluster, against))
            feature[:, k], relevance[:, k] = _telling(_means(found.relevance, group, len(codes)))
    return Competition(
        clusters=exp.labels[codes],
        labels=exp.labels,
        share=share,
        evidence=evidence,
        feature=feature,
        relevance=relevance,
        feature_names=exp.feature_names if isinstance(exp, Explanation) else [],
    )


def _telling(mean: Floats) -> tuple[Codes, Floats]:
    """The strongest features of each group, (G, 3), and their relevance; only those that speak for it."""
    best = np.argsort(-mean, axis=1, kind="stable")[:, :N_TELLING]
    value = np.take_along_axis(mean, best, axis=1)
    short = ((0, 0), (0, N_TELLING - best.shape[1]))
    best = np.pad(np.where(value > 0, best, -1), short, constant_values=-1)
    return best, np.pad(np.where(value > 0, value, np.nan), short, constant_values=np.nan)


def _means(values: NDArray[Any], group: Codes, n_groups: int) -> Floats:
    """The mean of the rows of each group, (G, m); each has some."""
    order = np.argsort(group, kind="stable")
    starts = np.searchsorted(group[order], np.arange(n_groups))
    size = np.bincount(group, minlength=n_groups)[:, None]
    return np.asarray(np.add.reduceat(values[order].astype(np.float64), starts, axis=0) / size)


def sentences(exp: Explanation | TextExplanation, summary: Summary | TextSummary | None = None) -> list[str]:
    """Each cluster of the summary in one sentence: what carries it, and whom it is mostly up against.

    Named are the features, strongest first, that carry 60 % of what speaks for the cluster, at most four;
    of documents, words. Give the ``summary``, if it is there already.
    """
    found = exp.summary() if summary is None else summary
    shares = groups(exp).rivals
    said = []
    for group, label in enumerate(found.clusters.tolist()):
        text = _words(found, group) if isinstance(found, TextSummary) else _features(found, group)
        rivals = "" if is_noise(label) else _rivals(shares[group], exp.labels)
        said.append(text + f"; {rivals}" * bool(rivals) + ".")
    return said


def _features(summary: Summary, group: int) -> str:
    """The features that carry a cluster, by their direction."""
    columns = _strongest(summary.share[group])
    names = [_item(summary.feature_names[i]) for i in columns]
    if is_noise(summary.clusters.tolist()[group]):
        return "Far from all clusters" + f", mostly in {_listed(names)}" * bool(names)
    if not names:
        return "No feature sets it apart"
    by_direction: dict[str, list[str]] = {}
    for column in columns:
        direction, said = _said(summary, group, column)
        by_direction.setdefault(direction, []).append(said)
    text = ", ".join(f"{direction} {_listed(said)}".lstrip() for direction, said in by_direction.items())
    return text if "" in list(by_direction)[:1] else _begin(text)  # a name stays as it is


def _said(summary: Summary, group: int, column: int) -> tuple[str, str]:
    """What a feature is like in a cluster, and its name; of a category nothing, and what it is.

    A category that is no more frequent than elsewhere is no mark of the cluster, though the feature may be.
    """
    name, direction = _item(summary.feature_names[column]), str(summary.direction[group, column])
    if direction == MISSING or column not in summary._categories:
        return direction or "by", name
    frequent = summary.inside[group, column] > summary.outside[group, column]
    return ("", f"{name} = {_item(direction)}") if frequent else ("by", name)


def _words(summary: TextSummary, group: int) -> str:
    """The words that carry a cluster; they are in the order of the summary, by score."""
    lines = summary.lines(summary.clusters.tolist()[group], _N_WORDS)
    if not len(lines):
        return "No known word sets it apart"
    text = _listed([_item(summary.word[line]) for line in lines])
    return f"Far from all clusters, mostly by {text}" if is_noise(summary.clusters[group]) else text


def _strongest(share: Floats) -> list[int]:
    """The features that carry most of what speaks for a cluster, strongest first."""
    order = np.argsort(-share, kind="stable")
    order = order[share[order] > 0]
    carried = np.cumsum(share[order])
    enough = 1 + int(np.searchsorted(carried, _CARRIED * carried[-1])) if order.size else 0
    return [int(i) for i in order[: min(enough, _MOST_NAMED)]]


def _rivals(share: Floats, labels: NDArray[Any]) -> str:
    """Whom the members of a cluster are up against, if there is anything to say of it."""
    first, *rest = np.argsort(-share, kind="stable")[:2].tolist()
    if share[first] > _MOSTLY:
        return "mostly " * bool(share[first] < 1) + f"against {_clusters(labels[[first]])}"
    two = sorted([first, *rest])
    return f"against {_clusters(labels[two])}" if share[two].sum() >= _MOST_RIVALS else ""


def warnings(
    exp: BaseExplanation,
    left_out: Mapping[Any, str] | None = None,
    summary: Summary | None = None,
    sample: Sample | None = None,
) -> list[Caution]:
    """What may mislead in an explanation, the most important first.

    Parameters
    ----------
    exp : of a table; of documents and images, what does not depend on columns is said
    left_out : columns that were left out before clustering, with the reasons
    summary : of the explanation of a table, if it is there already
    sample : of its rows, if it is there already
    """
    found = [] if exp.fidelity is None else list(_unfaithful(exp.fidelity))
    if isinstance(exp, Explanation):
        summary = exp.summary() if summary is None else summary
        found += [*_one_column(exp), *_driven(exp, summary), *_missing(summary)]
    found += [*_alike(exp, sample), *_undecided(exp)]
    return found + (_left_out(left_out) if left_out else [])


def _unfaithful(fidelity: Fidelity) -> Iterator[Caution]:
    agreement = fidelity.cross_validated_per_cluster
    bad = [c for c in np.argsort(agreement, kind="stable") if fidelity.size[c] and agreement[c] < LOW]
    matched = [
        f"{_cluster(fidelity.labels[c])} ({agreement[c]:.1%} of {display.count(fidelity.size[c], 'row')})"
        for c in bad
    ]
    labels = tuple(fidelity.labels[bad].tolist())
    if fidelity.cross_validated < LOW:
        yield Caution(
            "fidelity",
            f"What is explained is a surrogate for the labels, and it gives only "
            f"{fidelity.cross_validated:.1%} of them to rows that it was not fitted to "
            f"({fidelity.in_sample:.1%} to those it was). What is said of it need not hold for the labels. "
            f"Badly matched: {_some(matched)}. Read the explanations of these with care, and check that the "
            f"columns are those that the labels were made from.",
            labels,
        )
    elif bad:
        yield Caution(
            "fidelity",
            f"What is explained is a surrogate for the labels. It gives {fidelity.cross_validated:.1%} of "
            f"all labels to rows that it was not fitted to, but fewer here: {_some(matched)}. Read the "
            f"explanations of these with care.",
            labels,
        )


def _one_column(exp: Explanation) -> Iterator[Caution]:
    """Whether one of three columns or more carries nearly all relevance."""
    d = len(exp.feature_names)
    if len(exp) < _ENOUGH:
        return
    total = np.zeros(d)
    for rows in exp.table.slices():
        total += np.abs(exp.relevance[rows]).sum(axis=0, dtype=np.float64)
    first = int(total.argmax())
    if d < 3 or not total[first] > _ONE_COLUMN * total.sum():
        return
    name, spread = exp.feature_names[first], exp.table.spread()
    text = f'"{_name(name)}" carries {_percent(total[first] / total.sum())} of all relevance'
    if exp.energy.gives_probabilities:  # a mixture measures variances itself, so that units do not matter
        spread = None
    if spread is not None and spread[first] > _ONE_COLUMN * spread.sum():
        text += (
            f" and has {_percent(spread[first] / spread.sum())} of the variance of all columns: the clusters "
            f"tell rows apart by it alone, and the other {d - 1} hardly count. If that is only due to its "
            f"units, standardise the columns and cluster again."
        )
    else:
        text += (
            f": the clusters tell rows apart by it alone, and the other {d - 1} columns hardly count. If "
            f"that is not meant, leave it out and cluster again."
        )
    yield Caution("one column", text, feature=name)


def _driven(exp: Explanation, summary: Summary) -> list[Caution]:
    """Clusters that an identifier or a date drives; identifiers first."""
    identifiers, dates = [], []
    share = summary.share
    for column in np.flatnonzero((share >= _DRIVES).any(axis=0)).tolist():
        driven = np.flatnonzero(share[:, column] >= _DRIVES)
        clusters, name = summary.clusters[driven], exp.feature_names[column]
        largest = "up to " * (len(driven) > 1) + _percent(share[driven, column].max())
        carries = f"carries {largest} of the relevance of {_clusters(clusters)}"
        opened = _column(exp.table, column)
        reason = like_identifier(opened)
        if reason:
            identifiers.append(
                Caution(
                    "identifier",
                    f'"{_name(name)}" {carries}, and looks {reason.replace(",", ":", 1)}. An identifier says '
                    f"where a row stands in a list, not what it is like. Leave the column out and cluster "
                    f"again.",
                    tuple(clusters.tolist()),
                    name,
                )
            )
        elif column in exp.table.dates or like_days(opened):
            dates.append(
                Caution(
                    "date",
                    f'"{_name(name)}" {carries}, and holds dates. Rows may be together for when they were '
                    f"recorded, not for what they are like. If that is not meant, leave the column out, or "
                    f"put what matters of it in its place, such as an age or the month.",
                    tuple(clusters.tolist()),
                    name,
                )
            )
    return identifiers + dates


def _column(table: Table, column: int) -> Column:
    """One column of a table, from its frame if it is one."""
    name = table.feature_names[column]
    frame = nw.from_native(table.native, eager_only=True, pass_through=True)
    if isinstance(frame, nw.DataFrame):
        series = frame[:, column]
        return Column(name, series, series.to_list, table.where)
    values = table.pick(np.full((table.n_rows, 1), column))[:, 0]
    return Column(name, None, values.tolist, table.where)


def _missing(summary: Summary) -> Iterator[Caution]:
    rests = (summary.direction == MISSING) & (summary.share >= _RESTS_ON)
    for group, column in np.argwhere(rests).tolist():
        label, name = summary.clusters[group], summary.feature_names[column]
        inside, outside = summary.inside[group, column], summary.outside[group, column]
        elsewhere = "" if np.isnan(outside) else f" ({_percent(outside)} elsewhere)"
        yield Caution(
            "missing values",
            f'{_begin(_cluster(label))} rests on missing values: "{_name(name)}" is missing in '
            f"{_percent(inside)} of its rows{elsewhere} and carries {_percent(summary.share[group, column])} "
            f"of its relevance. Rows may be together for how they were recorded, not for what they are like. "
            f"Find out why the values are missing; fill them or leave the column out, and cluster again.",
            (summary.clusters.tolist()[group],),
            name,
        )


def _alike(exp: BaseExplanation, sample: Sample | None) -> list[Caution]:
    """Pairs of clusters whose members have little evidence against each other, both ways."""
    codes, median = groups(exp).codes, exp.median_evidence
    if len(codes) < 2 or median == 0.0:
        return []
    some = Sample.of(exp, "cautions") if sample is None else sample
    middle = np.stack([np.median(some.h[some.cluster == code][:, codes], axis=0) for code in codes])
    near = np.maximum(middle, middle.T)
    pairs = [(a, b) for a, b in np.argwhere(near < _ALIKE * median).tolist() if a < b]
    pairs.sort(key=lambda pair: float(near[pair]))
    found = []
    for a, b in pairs[:_MOST_LISTED]:
        both = exp.labels[codes[[a, b]]]
        found.append(
            Caution(
                "alike",
                f"{_begin(_clusters(both))} are told apart by almost nothing: the median evidence of the "
                f"one against the other is {display.number(middle[a, b])}, and "
                f"{display.number(middle[b, a])} the other way, where that of all {_nouns(exp)} is "
                f"{display.number(median)}. Chance may have put {_nouns(exp)} into either. Take both "
                f"as one, or cluster again with fewer clusters.",
                tuple(both.tolist()),
            )
        )
    if len(pairs) > _MOST_LISTED:
        more = display.count(len(pairs) - _MOST_LISTED, "more pair")
        found[-1] = found[-1]._replace(text=f"{found[-1].text} The same holds for {more} of clusters.")
    return found


def _undecided(exp: BaseExplanation) -> Iterator[Caution]:
    """Clusters most of whose members are borderline."""
    near = borderline(exp)
    for code in groups(exp).codes:
        own = near[_members_of(exp, code)]
        if own.mean() > _MOSTLY:
            label, n = exp.labels[code], len(own)
            some = "its only" if n == 1 else f"{int(own.sum()):,} of its {n:,}"
            yield Caution(
                "borderline",
                f"{_begin(_cluster(label))} is mostly borderline: {some} {_nouns(exp, n)} "
                f"{'has' if n == 1 else 'have'} at most a tenth of the median evidence, and could as well be "
                f"in another cluster. Do not rest much on it; another number of clusters, "
                f"or other columns, may part the clusters more clearly.",
                tuple(exp.labels[[code]].tolist()),
            )


def _left_out(left_out: Mapping[Any, str]) -> list[Caution]:
    reasons = [f'"{_name(name)}" ({reason})' for name, reason in left_out.items()]
    one = len(reasons) == 1
    text = (
        f"{display.count(len(reasons), 'column')} {'was' if one else 'were'} left out, and the clusters know "
        f"nothing of {'it' if one else 'them'}: {_some(reasons)}. Make sure that "
        f"{'it does' if one else 'none of them does'}{' not' * one} matter."
    )
    return [Caution("left out", text, feature=next(iter(left_out)) if one else None)]


def _name(name: Hashable) -> str:
    """A name as the user had it, on one line and of readable length; what is blank is quoted."""
    text = str(name)
    return display.clean(text if text.strip() else repr(text))


def _item(name: Hashable) -> str:
    """A name among others; quoted where it would read as several."""
    text = _name(name)
    return f'"{text}"' if ", " in text or " and " in text else text


def _cluster(label: Any) -> str:
    return cluster_name(label, _name(label))


def _clusters(labels: Iterable[Any]) -> str:
    """Several clusters by their labels: clusters 1, 2 and noise."""
    listed = list(labels)
    named = [_name(label) for label in listed if not is_noise(label)]
    text = [f"cluster{'s' * (len(named) > 1)} {_some(named)}"] if named else []
    return _listed(text + [NOISE] * (len(named) < len(listed)))


def _some(items: Sequence[str]) -> str:
    """The first of them, if they are many."""
    left = len(items) - _MOST_LISTED
    return _listed([*items[:_MOST_LISTED], f"{left} more"] if left > 0 else items)


def _listed(items: Sequence[str]) -> str:
    """A, b and c."""
    return " and ".join([", ".join(items[:-1]), items[-1]] if len(items) > 1 else items)


def _begin(text: str) -> str:
    """As a sentence begins."""
    return text[:1].upper() + text[1:]


def _nouns(exp: BaseExplanation, n: int = 2) -> str:
    """What one or more rows are called."""
    return exp.noun.lower() + "s" * (n != 1)


def _percent(part: float) -> str:
    """Nearly all is not all."""
    return "over 99%" if 0.995 <= part < 1.0 else f"{part:.0%}"
