"""Rules: for each cluster, the few conjunctions of conditions that describe it."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from textwrap import fill
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whycluster.core.arrays import Codes, Floats
from whycluster.core.errors import InvalidInputError
from whycluster.data import display
from whycluster.data.arrays import evenly_spaced
from whycluster.data.display import percent
from whycluster.data.frame_table import select_columns
from whycluster.data.frames import build_frame, unique_name
from whycluster.data.labels import as_labels
from whycluster.data.mixed_table import RawTable
from whycluster.data.opening import open_table
from whycluster.data.progress import Progress
from whycluster.data.sql_quoting import check_columns, check_dialect, quote_name, quote_table, quote_value
from whycluster.data.table import Table
from whycluster.data.validation import check_integer
from whycluster.explanations.base import BaseExplanation
from whycluster.explanations.reasons.binning import Binning
from whycluster.explanations.reasons.column_values import TEMPORAL, ColumnValues, read_columns
from whycluster.explanations.reasons.conditions import Condition, describe_all, hold_all
from whycluster.explanations.reasons.per_cluster import PerCluster
from whycluster.explanations.reasons.rule_search import RuleSearch
from whycluster.explanations.wording.formatting import WIDTH

_MOST_ROWS = 20_000  # rows that are searched
_LEAST_MEMBERS = 500  # at least this many members of a cluster are searched, if it has them
_MOST_COLUMNS = 40  # columns that are searched for each cluster: those with the most relevance
_LONGEST_RULE = 90  # characters of a condition in the table


@dataclass(frozen=True)
class _Match:
    """A cluster, and the rows that satisfy a description of it."""

    cluster: Any
    size: int
    n_rows: int
    n_members: int

    @property
    def coverage(self) -> float:
        """The share of the cluster's rows that satisfy it."""
        return self.n_members / self.size

    @property
    def precision(self) -> float:
        """The share of the rows that satisfy it that are in the cluster; NaN if there are none."""
        return self.n_members / self.n_rows if self.n_rows else float("nan")

    @property
    def figures(self) -> tuple[str, str]:
        """The coverage and the precision as text."""
        return percent(self.coverage), percent(self.precision)


@dataclass(frozen=True)
class Rule(_Match):
    """A conjunction of conditions that describes a cluster.

    Attributes
    ----------
    cluster : the label of the cluster
    size : the number of rows of the cluster
    n_rows : the number of rows for which the rule holds
    n_members : the number of these rows that are in the cluster
    conditions : the conditions, which all have to hold
    """

    conditions: tuple[Condition, ...]

    @property
    def text(self) -> str:
        """The conditions in words."""
        return describe_all(self.conditions)

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class ClusterRules(_Match):
    """The rules of one cluster; a row satisfies them if any of them holds for it.

    Attributes
    ----------
    cluster, size : as in `Rule`
    n_rows, n_members : the number of rows for which any of the rules holds, and how many are in the cluster
    rules : the rules, the one that holds for most of the cluster first; () if none was found
    """

    rules: tuple[Rule, ...]

    @property
    def f1(self) -> float:
        """The harmonic mean of coverage and precision."""
        return 2.0 * self.n_members / (self.n_rows + self.size)


@dataclass(frozen=True, eq=False, repr=False)
class Rules(PerCluster[ClusterRules]):
    """The rules of all clusters. `print` them, or convert them with `to_frame` and `to_sql`.

    Attributes
    ----------
    clusters : one `ClusterRules` for each cluster that has rows
    n_rows : the number of rows that the rules were checked on
    n_right, n_wrong : the number of rows that `apply` gives their own cluster, and another one
    feature_names : the names of the columns of the data
    """

    clusters: tuple[ClusterRules, ...]
    n_rows: int
    n_right: int
    n_wrong: int
    feature_names: list[Hashable]
    _like: Any = field(default=None, repr=False)

    @cached_property
    def ordered(self) -> list[Rule]:
        """All rules, the most precise first: the order in which `apply` and `to_sql` try them."""
        every = [rule for each in self.clusters for rule in each.rules]
        return sorted(every, key=lambda rule: (-rule.precision, -rule.n_members))

    def describe(self) -> str:
        """Return the rules as a table, and how well they agree with the clusters, as text."""
        rows: list[list[str]] = []
        for each in self.clusters:
            rows += _lines(each)
        table = display.table(
            ["cluster", "rows", "rule", "coverage", "precision"], rows, "<><>>", _LONGEST_RULE
        )
        return f"{table}\n\n{fill(self.sentence(), WIDTH)}"

    def sentence(self) -> str:
        """Return how well the rules, tried in the order of `ordered`, agree with the clusters."""
        if not self.ordered:
            return "No rule was found for any cluster."
        left = self.n_rows - self.n_right - self.n_wrong
        right, wrong, none = (percent(n / self.n_rows) for n in (self.n_right, self.n_wrong, left))
        return (
            "coverage: the share of the cluster's rows for which the rule holds. precision: the share of the "
            "rows for which it holds that are in the cluster. If the most precise rule decides, "
            f"{right} of the rows get their own cluster, {wrong} another one, and {none} none."
        )

    def to_frame(self, backend: str | None = None) -> Any:
        """Return a frame with one row per rule: its cluster, text, coverage and precision.

        By default, the frame comes from the same library as the data; ``backend`` ("pandas", "polars" or
        "pyarrow") selects a different library.
        """
        every = [(number, rule) for each in self.clusters for number, rule in enumerate(each.rules, 1)]
        columns: dict[Hashable, Any] = {
            "cluster": as_labels([rule.cluster for _, rule in every]),
            "size": np.array([rule.size for _, rule in every], dtype=np.int64),
            "rule": np.array([number for number, _ in every], dtype=np.int64),
            "text": [rule.text for _, rule in every],
            "n_conditions": np.array([len(rule.conditions) for _, rule in every], dtype=np.int64),
            "n_rows": np.array([rule.n_rows for _, rule in every], dtype=np.int64),
            "n_members": np.array([rule.n_members for _, rule in every], dtype=np.int64),
            "coverage": np.array([rule.coverage for _, rule in every], dtype=np.float64),
            "precision": np.array([rule.precision for _, rule in every], dtype=np.float64),
        }
        return build_frame(columns, self._like, backend, "rules.to_frame", same_rows=False)

    def to_sql(self, table: str = "rows", cluster: Any = None, *, dialect: str = "duckdb") -> str:
        """Return a query that gives each row of a table the cluster of the first rule that holds for it.

        The most precise rule comes first. Rows without a rule get NULL. Names and values are quoted, so they
        cannot become code. The new column is called "cluster", or "cluster_" if the data have such a column.

        Parameters
        ----------
        table : the name of the table; a dot separates the schema from the table
        cluster : the label of a cluster; if given, the query selects the rows for which one of its rules
            holds
        dialect : "duckdb", "postgres" or "spark"
        """
        check_dialect(dialect, "to_sql")
        check_columns(self.feature_names, dialect, "to_sql")
        name = quote_table(table, dialect, "to_sql")
        if cluster is not None:
            return f"SELECT *\nFROM {name}\nWHERE {self._where(self[cluster], dialect)}"
        if not self.ordered:
            raise InvalidInputError("to_sql: there must be at least one rule; none was found.")
        cases = [
            f"    WHEN {_and(rule, dialect)} THEN {quote_value(rule.cluster, dialect, 'to_sql')}"
            for rule in self._in_one_type()
        ]
        taken = [str(each).lower() for each in self.feature_names]  # databases may ignore case
        label = quote_name(unique_name("cluster", taken), dialect, "to_sql")
        return "\n".join(["SELECT *,", "  CASE", *cases, f"  END AS {label}", f"FROM {name}"])

    def _in_one_type(self) -> list[Rule]:
        """Return the ordered rules, with labels as text if they are not all numbers."""
        if all(isinstance(rule.cluster, (int, np.integer)) for rule in self.ordered):
            return self.ordered
        return [replace(rule, cluster=str(rule.cluster)) for rule in self.ordered]

    @staticmethod
    def _where(each: ClusterRules, dialect: str) -> str:
        if not each.rules:
            raise InvalidInputError(
                f"to_sql: cluster must have at least one rule; none was found for {each.cluster!r}."
            )
        return "\n   OR ".join(f"({_and(rule, dialect)})" for rule in each.rules)

    def apply(self, X: Any) -> NDArray[Any]:
        """Return, for each row, the cluster of the first rule that holds for it, or None if none does.

        The most precise rule comes first, as in `to_sql`.

        Parameters
        ----------
        X : rows with the columns of the explained data. In a frame, they are found by name, and other columns
            are ignored.
        """
        names = self.feature_names
        X = select_columns(X, names, "apply", "X")
        raw = open_table(X, where="apply", n_features=len(names), model_names=names, any_kind=True)
        known = {each.feature: each for rule in self.ordered for each in rule.conditions}
        positions = [names.index(name) for name in known]
        if isinstance(raw, RawTable):
            temporal = [names.index(name) for name, each in known.items() if each.kind in TEMPORAL]
            raw = raw.with_dates(temporal)
        columns = dict(zip(known, read_columns(raw, positions), strict=True))
        for rule in self.ordered:
            for each in rule.conditions:
                each.check(columns[each.feature], "apply")
        found = np.full(raw.n_rows, None, dtype=object)
        for rule in reversed(self.ordered):  # so that the first rule is written last
            found[hold_all(rule.conditions, columns, raw.n_rows)] = rule.cluster
        return found


def _and(rule: Rule, dialect: str) -> str:
    return " AND ".join(each.to_sql(dialect, "to_sql") for each in rule.conditions)


def _lines(each: ClusterRules) -> list[list[str]]:
    """Return the lines of the table for one cluster."""
    first = [str(each.cluster), str(each.size)]
    if not each.rules:
        return [[*first, "no rule found", "", ""]]
    lines = []
    for number, rule in enumerate(each.rules):
        start, figures = "or " * (number > 0), rule.figures
        for condition in rule.conditions:
            lines.append([*first, start + condition.text, *figures])
            first, figures, start = ["", ""], ("", ""), "   " * (number > 0) + "and "
    if len(each.rules) > 1:
        lines.append(["", "", "together", *each.figures])
    return lines


def find_rules(exp: BaseExplanation, relevance: NDArray[Any], max_conditions: int, max_rules: int) -> Rules:
    """Return the rules of all clusters; see `Explanation.rules`.

    Parameters
    ----------
    exp : the explanation
    relevance : (n, d) the relevance of the columns, by which they are chosen if there are many
    max_conditions, max_rules : the maximum number of conditions of a rule, and of rules of a cluster
    """
    check_integer(max_conditions, 1, "rules", "max_conditions")
    check_integer(max_rules, 1, "rules", "max_rules")
    table = exp.unchanged_table("rules")
    if not len(exp):
        raise InvalidInputError("rules: the explanation must have at least one row; it has none.")
    if exp.fidelity is not None and exp.is_targeted and not exp.is_labeled:
        raise InvalidInputError(
            f"rules: labels must be explained for their own clusters; all rows are explained for cluster "
            f"{exp.cluster.tolist()[0]!r}. Explain them without target."
        )
    codes = exp.cluster_codes if exp.is_labeled else exp.assigned_codes
    present = np.unique(codes)
    found = {}
    with Progress("finding rules", len(present)) as bar:
        sample = _Sample.of(table, codes)
        read = lru_cache(1)(sample.read)  # clusters often share all columns
        for code in present.tolist():
            columns = read(_most_relevant(relevance, codes == code))
            member = sample.codes == code
            binning = Binning.of(columns, member, sample.weight)
            search = RuleSearch(binning.binned, member, max_conditions, max_rules)
            found[code] = [binning.conditions(each) for each in search.run()]
            bar.step()
    return _checked(exp, table, codes, found)


def _most_relevant(relevance: NDArray[Any], member: NDArray[np.bool_]) -> tuple[int, ...]:
    """Return the columns with the largest absolute relevance for the members of a cluster, in order."""
    d = relevance.shape[1]
    if d <= _MOST_COLUMNS:
        return tuple(range(d))
    rows = np.flatnonzero(member)
    rows = rows[evenly_spaced(len(rows), _LEAST_MEMBERS)]
    share = np.abs(relevance[rows]).mean(axis=0)
    return tuple(sorted(np.argsort(-share, kind="stable")[:_MOST_COLUMNS].tolist()))


@dataclass(frozen=True, eq=False)
class _Sample:
    """The rows that are searched: evenly spaced in each cluster, with a larger share of small clusters.

    Attributes
    ----------
    table : the table of all rows
    rows : (m,) the positions of the rows
    codes : (m,) their clusters
    weight : (m,) how many rows of its cluster each row stands for
    """

    table: Table
    rows: Codes
    codes: Codes
    weight: Floats

    @classmethod
    def of(cls, table: Table, codes: Codes) -> _Sample:
        """Draw the sample."""
        n = len(codes)
        size = np.bincount(codes)
        quota = np.maximum(np.minimum(size, _LEAST_MEMBERS), size * min(1.0, _MOST_ROWS / n)).astype(np.intp)
        chosen = []
        for code in np.flatnonzero(size):
            own = np.flatnonzero(codes == code)
            chosen.append(own[evenly_spaced(len(own), int(quota[code]))])
        rows = np.sort(np.concatenate(chosen))
        weight = np.divide(size, quota, out=np.zeros(len(size)), where=quota > 0)[codes[rows]]
        return cls(table, rows, codes[rows], weight)

    def read(self, columns: Sequence[int]) -> list[ColumnValues]:
        """Return the given columns of the rows."""
        every = len(self.rows) == self.table.n_rows
        return read_columns(self.table, columns, None if every else self.rows)


def _checked(
    exp: BaseExplanation,
    table: Table,
    codes: Codes,
    found: dict[int, list[tuple[Condition, ...]]],
) -> Rules:
    """Return the rules with their figures on all rows, counted with the conditions as they are printed."""
    names = table.feature_names
    used = sorted({names.index(c.feature) for rules in found.values() for rule in rules for c in rule})
    columns = dict(zip([names[i] for i in used], read_columns(table, used), strict=True)) if used else {}
    clusters = []
    for code, conjunctions in found.items():
        member = codes == code
        size, label, union = int(member.sum()), exp.labels.tolist()[code], np.zeros(len(codes), dtype=bool)
        rules = []
        for conditions in conjunctions:
            holds = hold_all(conditions, columns, len(codes))
            union |= holds
            rules.append(Rule(label, size, int(holds.sum()), int((holds & member).sum()), conditions))
        rules = sorted((rule for rule in rules if rule.n_members), key=lambda rule: -rule.n_members)
        n_members = int((union & member).sum())
        clusters.append(ClusterRules(label, size, int(union.sum()), n_members, tuple(rules)))
    return _with_agreement(exp, table, codes, clusters, columns)


def _with_agreement(
    exp: BaseExplanation,
    table: Table,
    codes: Codes,
    clusters: list[ClusterRules],
    columns: dict[Hashable, ColumnValues],
) -> Rules:
    rules = Rules(tuple(clusters), len(codes), 0, 0, table.feature_names, exp.data)
    code_of = {label: code for code, label in enumerate(exp.labels.tolist())}
    given = np.full(len(codes), -1)
    for rule in reversed(rules.ordered):
        given[hold_all(rule.conditions, columns, len(codes))] = code_of[rule.cluster]
    n_right, n_wrong = int((given == codes).sum()), int(((given != codes) & (given >= 0)).sum())
    return Rules(rules.clusters, len(codes), n_right, n_wrong, table.feature_names, exp.data)
