"""Groups of reasons: members of one cluster that are there for different reasons.

The explanations of a cluster's members are themselves clustered, as in S. Lapuschkin et al., "Unmasking
Clever Hans predictors and assessing what machines really learn", Nature Communications 10 (2019). A split
into groups must pass a test on rows that were not used to find it.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from textwrap import fill
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whycluster.core.arrays import Codes, Floats
from whycluster.data import display
from whycluster.data.arrays import evenly_spaced
from whycluster.data.column_checks import identifiers_and_dates
from whycluster.data.columns import category_as_text
from whycluster.data.display import capitalize, format_items, format_name, join_words, percent
from whycluster.data.frames import as_column, build_frame
from whycluster.data.labels import as_labels, cluster_name, list_clusters
from whycluster.data.progress import Progress
from whycluster.data.table import Table
from whycluster.explanations.base import BaseExplanation
from whycluster.explanations.reasons.cautions import MOSTLY, Caution, caution_about
from whycluster.explanations.reasons.column_values import (
    BOOLEAN,
    CATEGORY,
    DAY,
    TIMESTAMP,
    ColumnValues,
    read_columns,
)
from whycluster.explanations.reasons.per_cluster import PerCluster
from whycluster.explanations.reasons.unimodality import dip, valley
from whycluster.explanations.wording.formatting import WIDTH

# Chosen on the seeds from 1,000 on; benchmarks/results/strategies.md reports other seeds.
_SIGNIFICANT = 0.65  # the dip that a split must have in rows that it was not found on
_LEAST_ROWS = 40  # members that are needed to look for groups
_LEAST_SHARE = 0.05  # the least share of a cluster's members in a group
_LEAST_DIFFERENCE = 0.25  # the least difference between two groups, as a share of the relevance
_MOST_ROWS = 2000  # members that are tested
_MOST_COLUMNS = 100  # columns that are tested
_MOST_GROUPS = 6
_N_EXAMPLES = 3
_N_COMPONENTS = 3  # principal components, and single columns, that are tried as directions

_RESTS_ON = 0.25  # share of the relevance of a group from which a column is checked


@dataclass(frozen=True, eq=False)
class ReasonGroup:
    """Members of a cluster that are there for similar reasons.

    Attributes
    ----------
    rows : the positions of the members
    share : (d,) the mean relevance of each feature for these members, as a fraction of the total
    examples : the names of up to three members whose reasons are most typical of the group
    cautions : warnings that the group may rest on an artifact
    """

    rows: Codes
    share: Floats
    examples: tuple[Hashable, ...]
    cautions: tuple[Caution, ...] = ()

    @property
    def size(self) -> int:
        """The number of members."""
        return len(self.rows)


@dataclass(frozen=True, eq=False)
class ClusterStrategies:
    """The groups of reasons in one cluster.

    Attributes
    ----------
    cluster : the label of the cluster
    size : the number of members
    groups : the groups, the largest first; a single one if no separate groups were found
    is_tested : whether there were enough members to look for groups
    """

    cluster: Any
    size: int
    groups: tuple[ReasonGroup, ...]
    is_tested: bool


@dataclass(frozen=True, eq=False, repr=False)
class Strategies(PerCluster[ClusterStrategies]):
    """The groups of reasons in all clusters. `print` them, or convert them with `to_frame`.

    Attributes
    ----------
    clusters : one `ClusterStrategies` for each cluster that has members
    group : (n,) the number of the group of each row in its cluster, from 0; -1 for rows that are not members
    feature_names : the names of the d features
    """

    clusters: tuple[ClusterStrategies, ...]
    group: Codes
    feature_names: list[Hashable]
    _table: Table = field(repr=False)
    _like: Any = field(default=None, repr=False)

    @property
    def cautions(self) -> list[Caution]:
        """All warnings."""
        return [caution for each in self.clusters for group in each.groups for caution in group.cautions]

    def describe(self, n_features: int = 3) -> str:
        """Return the groups as text, with the strongest features of each.

        Parameters
        ----------
        n_features : the number of features to list for each group
        """
        several = [each for each in self.clusters if len(each.groups) > 1]
        parts = [fill(self._summary(), WIDTH)]
        if several:
            parts.append(self._groups(several, n_features))
            parts.append(
                fill(
                    "share: the mean relevance of the feature in the group, as a fraction of the total. in "
                    "it, others: the mean or frequency in the group, and in the other rows of the cluster.",
                    WIDTH,
                )
            )
        parts += [fill(caution.text, WIDTH) for caution in self.cautions]
        return "\n\n".join(parts)

    def _summary(self) -> str:
        """Return which clusters have one group of reasons, and which have several, as sentences."""
        if not self.clusters:
            return "No row belongs to the cluster it is explained for, so there are no reasons to group."
        one = [each for each in self.clusters if len(each.groups) == 1 and each.is_tested]
        few = [each for each in self.clusters if not each.is_tested]
        texts = [
            f"{capitalize(cluster_name(each.cluster))} has {len(each.groups)} groups of reasons."
            for each in self.clusters
            if len(each.groups) > 1
        ]
        if one:
            names = list_clusters(display.format_names(each.cluster for each in one))
            texts.append(f"No separate groups of reasons were found in {names}.")
        if few:
            names = list_clusters(display.format_names(each.cluster for each in few))
            texts.append(f"Not tested, because there are fewer than {_LEAST_ROWS} rows: {names}.")
        return " ".join(texts)

    def _groups(self, several: list[ClusterStrategies], n_features: int) -> str:
        heads = ["cluster", "group", "rows", "feature", "share", "", "in it", "others", "such as"]
        lines = []
        for each in several:
            members = np.concatenate([group.rows for group in each.groups])
            first = [str(each.cluster)]
            for number, group in enumerate(each.groups, 1):
                order = np.argsort(-np.abs(group.share), kind="stable")[:n_features].tolist()
                columns = read_columns(self._table, order, np.sort(members))
                inside = np.isin(np.sort(members), group.rows)
                start = [*first, str(number), str(group.size)]
                such = join_words(format_items(group.examples))
                for i, column in zip(order, columns, strict=True):
                    values = [str(self.feature_names[i]), f"{group.share[i]:.0%}"]
                    bar = display.bar(group.share[i], float(np.abs(group.share).max()))
                    lines.append([*start, *values, bar, *typical(column, inside), such])
                    start, such = ["", "", ""], ""
                first = [""]
        return display.table(heads, lines, "<>><><<<<", 60)

    def to_frame(self, backend: str | None = None) -> Any:
        """Return a frame with one line per cluster, group and feature; by decreasing share within a group.

        The columns are cluster, group, size, feature and share. By default, the frame comes from the same
        library as the data; ``backend`` selects a different library.
        """
        d = len(self.feature_names)
        every = [(c, number, g) for c in self.clusters for number, g in enumerate(c.groups, 1)]
        order = [np.argsort(-group.share, kind="stable") for _, _, group in every]
        names = as_column(self.feature_names)
        columns: dict[Hashable, Any] = {
            "cluster": as_labels([c.cluster for c, _, _ in every for _ in range(d)]),
            "group": np.repeat(np.array([number for _, number, _ in every], dtype=np.int64), d),
            "size": np.repeat(np.array([group.size for _, _, group in every], dtype=np.int64), d),
            "feature": np.concatenate([names[:0], *(names[each] for each in order)]),
            "share": np.concatenate(
                [np.empty(0), *(g.share[each] for (_, _, g), each in zip(every, order, strict=True))]
            ),
        }
        return build_frame(columns, self._like, backend, "strategies.to_frame", same_rows=False)


def typical(column: ColumnValues, inside: NDArray[np.bool_]) -> tuple[str, str]:
    """Return the mean or frequency of a column in a group and in the other rows, as text."""
    x = column.values
    missing = np.isnan(x)
    if missing[inside].mean() > MOSTLY:
        return f"missing ({percent(missing[inside].mean())})", _share_of(missing, ~inside)
    known = inside & ~missing
    if column.kind == BOOLEAN:
        return f"true ({percent(x[known].mean())})", _share_of(x[~missing] == 1.0, ~inside[~missing])
    if column.kind == CATEGORY:
        codes = x[known].astype(np.intp)
        first = int(np.bincount(codes[codes >= 0], minlength=1).argmax())
        name = display.clean(str(category_as_text(column.categories[first])))
        return f"{name} ({percent((x[inside] == first).mean())})", _share_of(x == first, ~inside)
    other = ~inside & ~missing
    means = [float(x[rows].mean()) if rows.any() else float("nan") for rows in (known, other)]
    is_date = column.kind in (DAY, TIMESTAMP)
    one, two = display.format_dates(means) if is_date else display.format_apart(means)
    return one, two if other.any() else ""


def _share_of(holds: NDArray[np.bool_], rows: NDArray[np.bool_]) -> str:
    return percent(float(holds[rows].mean())) if rows.any() else ""


def find_strategies(exp: BaseExplanation, relevance: NDArray[Any]) -> Strategies:
    """Return the groups of reasons in all clusters; see `Explanation.strategies`."""
    table = exp.unchanged_table("strategies")
    clusters, group = [], np.full(len(exp), -1)
    members = exp.member_clusters
    with Progress("grouping reasons", len(members.codes)) as bar:
        for code in members.codes.tolist():
            rows = np.flatnonzero(exp.is_member & (exp.cluster_codes == code))
            found = _groups_of(relevance, rows)
            made = [_group(exp, relevance, each) for each in found]
            if len(made) > 1:
                made = [_with_cautions(exp, table, code, made, number) for number in range(len(made))]
            for number, each in enumerate(made):
                group[each.rows] = number
            label = exp.labels.tolist()[code]
            clusters.append(ClusterStrategies(label, len(rows), tuple(made), len(rows) >= _LEAST_ROWS))
            bar.step()
    return Strategies(tuple(clusters), group, table.feature_names, table, exp.data)


def _groups_of(relevance: NDArray[Any], rows: Codes) -> list[Codes]:
    """Return the positions of the members of each group, the largest group first."""
    least = max(_LEAST_ROWS // 4, int(_LEAST_SHARE * len(rows)))
    left: list[Codes] = [rows]
    done: list[Codes] = []
    while left:
        each = left.pop()
        split = None
        if len(each) >= _LEAST_ROWS and len(left) + len(done) + 2 <= _MOST_GROUPS:
            split = _split(relevance, each, least)
        if split is None:
            done.append(each)
        else:
            left += split
    return sorted(done, key=lambda each: (-len(each), int(each[0])))


def _split(relevance: NDArray[Any], rows: Codes, least: int) -> list[Codes] | None:
    """Return two groups of rows with different reasons, or None if there is only one."""
    some = rows[evenly_spaced(len(rows), _MOST_ROWS)]
    sample = _scaled(relevance, some)
    columns = np.argsort(-sample.var(axis=0), kind="stable")[:_MOST_COLUMNS]
    sample = sample[:, columns]
    if not _is_significant(sample):
        return None
    direction = _best_direction(sample)
    projected = relevance[np.ix_(rows, columns)].astype(np.float64) @ direction
    is_high = projected > valley(projected)
    parts = [rows[~is_high], rows[is_high]]
    if min(len(part) for part in parts) < least or _difference(relevance, parts) < _LEAST_DIFFERENCE:
        return None
    return parts


def _scaled(relevance: NDArray[Any], rows: Codes) -> Floats:
    """Return the relevance of rows as fractions of their mean total relevance.

    All rows are divided by the same number. Dividing each by its own total would bend a single group into
    two where the relevance of a feature changes its sign.
    """
    own = relevance[rows].astype(np.float64)
    total = float(np.abs(own).sum(axis=1).mean())
    return own / total if total > 0 else own


def _is_significant(sample: Floats) -> bool:
    """Return whether a direction found on one half of the rows has two peaks in the other half."""
    order = np.random.default_rng(0).permutation(len(sample))
    halves = sample[order[::2]], sample[order[1::2]]
    return any(dip(b @ _best_direction(a)) > _SIGNIFICANT for a, b in (halves, halves[::-1]))


def _best_direction(sample: Floats) -> Floats:
    """Return the direction in which the rows differ most clearly from a single peak."""
    return max(_directions(sample), key=lambda direction: dip(sample @ direction))


def _directions(sample: Floats) -> list[Floats]:
    """Return directions to test: columns that vary most, principal components, a line between clusters."""
    from sklearn.cluster import KMeans

    d = sample.shape[1]
    found = list(np.eye(d)[np.argsort(-sample.var(axis=0), kind="stable")[:_N_COMPONENTS]])
    moved = sample - sample.mean(axis=0)
    if moved.any():
        found += list(np.linalg.svd(moved, full_matrices=False)[2][:_N_COMPONENTS])
        centers = KMeans(2, n_init=3, random_state=0).fit(sample).cluster_centers_
        found.append(centers[1] - centers[0])
    return found


def _shares(relevance: NDArray[Any], rows: Codes) -> Floats:
    mean = relevance[rows].astype(np.float64).mean(axis=0)
    total = np.abs(mean).sum()
    return np.asarray(mean / total if total > 0 else mean)


def _difference(relevance: NDArray[Any], parts: list[Codes]) -> float:
    """Return the share of relevance, from 0 to 1, that two groups have on different features."""
    one, other = (_shares(relevance, part) for part in parts)
    return float(0.5 * np.abs(one - other).sum())


def _group(exp: BaseExplanation, relevance: NDArray[Any], rows: Codes) -> ReasonGroup:
    own = _scaled(relevance, rows)
    distance = np.square(own - own.mean(axis=0)).sum(axis=1)
    nearest = rows[np.argsort(distance, kind="stable")[:_N_EXAMPLES]]
    return ReasonGroup(rows, _shares(relevance, rows), tuple(exp.names_of_rows(nearest.tolist())))


def _with_cautions(
    exp: BaseExplanation, table: Table, code: int, groups: list[ReasonGroup], number: int
) -> ReasonGroup:
    """Return a group with warnings about the columns that carry much of its relevance."""
    group = groups[number]
    columns = np.flatnonzero(group.share >= _RESTS_ON).tolist()
    title = f"Group {number + 1} of {cluster_name(exp.labels[code], format_name(exp.labels[code]))}"
    others = np.concatenate([each.rows for each in groups if each is not group])
    rows = np.sort(np.concatenate([group.rows, others]))
    found = []
    reasons = identifiers_and_dates(table, columns)
    for column, values, (reason, _) in zip(columns, read_columns(table, columns, rows), reasons, strict=True):
        rests = (
            f'{title} rests on "{format_name(values.name)}", which carries {group.share[column]:.0%} of its'
        )
        caution = caution_about(values, np.isin(rows, group.rows), f"{rests} relevance", reason)
        found += [caution] if caution is not None else []
    return ReasonGroup(group.rows, group.share, group.examples, tuple(found))
