"""The change of one row, with the account of its move."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from textwrap import fill
from typing import Any

import numpy as np

from whycluster.core.arrays import Codes, Floats
from whycluster.data import display
from whycluster.data.arrays import is_real, strongest
from whycluster.data.labels import cluster_name
from whycluster.data.validation import check_integer
from whycluster.explanations.wording.formatting import WIDTH
from whycluster.segments.changes.matching import NONE
from whycluster.segments.changes.record import GONE, MOVED, NEW, STAYED, ChangeRecord

_ROUNDING = 1e-6  # a residual below this fraction of the change is not listed


@dataclass(frozen=True)
class RowAccount:
    """What each column contributed to the move of one row.

    Attributes
    ----------
    before, after : the evidence for the new cluster against the old one, before and after the move
    contributions : (d,) what each column contributed to the change
    data, model : (d,) the parts of the contributions that are due to the values of the row and to the new
        segmentation; without a second segmentation, ``model`` is 0
    data_change, model_change : the parts of the change that are due to the values and to the new
        segmentation; they add up to `change`
    residual : the part of the change that belongs to no single column
    """

    before: float
    after: float
    contributions: Floats
    data: Floats
    model: Floats
    data_change: float
    model_change: float
    residual: float

    @property
    def change(self) -> float:
        """The change of the evidence."""
        return self.after - self.before

    @property
    def causes(self) -> tuple[float, float]:
        """The parts of the change that are due to the values and to the new segmentation."""
        return self.data_change, self.model_change

    @property
    def residuals(self) -> tuple[float, float, float]:
        """The residual, and its parts that are due to the values and to the new segmentation."""
        data, model = self.data_change - self.data.sum(), self.model_change - self.model.sum()
        return self.residual, float(data), float(model)


@dataclass(frozen=True)
class RowChange:
    """One row before and after.

    Attributes
    ----------
    title : the name of the id column and the id
    status : "stayed", "moved", "new" or "gone"
    before, after : the labels of its clusters, or None if the row is not in the table
    columns : (d,) the names of the columns
    values : for a row that moved, the values of each column before and after
    account : the account of the move, or None if the row did not move, or if one of two segmentations does
        not have both clusters
    old_with_new_values, new_with_old_values : for a move with two segmentations, the cluster that the old
        segmentation assigns to the new values, and the one that the new segmentation assigns to the old
        values; else None
    is_lacking : whether the new segmentation lacks the cluster that the row was in before, and whether the
        old segmentation lacks the one that it is in after
    """

    title: str
    status: str
    before: Any
    after: Any
    columns: Sequence[Hashable]
    values: Sequence[tuple[Any, Any]] = ()
    account: RowAccount | None = None
    old_with_new_values: Any = None
    new_with_old_values: Any = None
    is_lacking: tuple[bool, bool] = (False, False)

    @property
    def lacking(self) -> list[str]:
        """Which segmentation lacks which cluster, as clauses."""
        return lacking(cluster_name(self.before), cluster_name(self.after), *self.is_lacking)

    @property
    def is_refit(self) -> bool:
        """Whether the row moved between two segmentations."""
        return self.old_with_new_values is not None

    def describe(self, n_columns: int = 6) -> str:
        """Return the change as text: what happened, and the account of a move, the strongest columns first.

        Parameters
        ----------
        n_columns : the number of columns to list
        """
        check_integer(n_columns, 1, "describe", "n_columns")
        text = "\n".join(fill(line, WIDTH) for line in self.sentences())
        return text if self.account is None else f"{text}\n{self._table(self.account, n_columns)}"

    def __str__(self) -> str:
        return self.describe()

    def sentences(self) -> list[str]:
        """Return what happened to the row, one sentence per line."""
        if self.status != MOVED:
            return [_WORDS[self.status].format(self.title, cluster_name(_first(self.after, self.before)))]
        source, target = cluster_name(self.before), cluster_name(self.after)
        moved, reasons = f"{self.title} moved from {source} to {target}", " and ".join(self.lacking)
        if self.account is None:
            return [f"{moved}. The move has no account: {reasons}.", *self._elsewhere()]
        before, after, change = (
            f"{number + 0.0:.3g}" for number in (self.account.before, self.account.after, self.account.change)
        )
        evidence = f"the evidence {self.question} changed by {change}, from {before} to {after}"
        why = f" ({reasons})" * bool(reasons)
        return [f"{moved}: {evidence}{why}.", *self._causes(self.account), *self._elsewhere()]

    @property
    def question(self) -> str:
        """The question that the evidence in the account answers, as a phrase that begins with "for"."""
        return question(cluster_name(self.before), cluster_name(self.after), *self.is_lacking)

    def _causes(self, account: RowAccount) -> list[str]:
        if not self.is_refit:
            return []
        data, model = f"{account.data_change + 0.0:.3g}", f"{account.model_change + 0.0:.3g}"
        return [f"Of this change, {data} is due to its values and {model} to the new segmentation."]

    def _elsewhere(self) -> list[str]:
        if not self.is_refit:
            return []
        old, new = cluster_name(self.old_with_new_values), cluster_name(self.new_with_old_values)
        return [
            f"The old segmentation puts its new values in {old}; the new one puts its old values in {new}."
        ]

    def strongest_columns(self, n: int) -> Codes:
        """Return the positions of the columns that contributed most, at most ``n``, without those at 0."""
        if self.account is None:
            return np.empty(0, dtype=np.intp)
        found = strongest(self.account.contributions[None], min(n, len(self.columns)))[0]
        return np.asarray(found[self.account.contributions[found] != 0.0])

    def shown_values(self, column: int) -> tuple[str, str]:
        """Return the values before and after as text, with enough digits to tell different numbers apart."""
        before, after = self.values[column]
        if all(is_real(value) and np.isfinite(value) for value in (before, after)):
            shown = display.format_apart([float(before), float(after)])
            return shown[0], shown[1]
        return display.format_value(before), display.format_value(after)

    def lists_residual(self, account: RowAccount) -> bool:
        """Return whether the residual is more than rounding error."""
        largest = float(np.abs(account.contributions).max(initial=0.0))
        return abs(account.residual) > _ROUNDING * max(largest, abs(account.change))

    def _table(self, account: RowAccount, n_columns: int) -> str:
        listed = self.strongest_columns(n_columns)
        largest = float(np.abs(account.contributions).max(initial=0.0))
        parts = [account.contributions, *([account.data, account.model] if self.is_refit else [])]
        lines = [
            [
                str(self.columns[i]),
                *self.shown_values(int(i)),
                f"{parts[0][i]:.3g}",
                display.bar(parts[0][i], largest),
                *(f"{part[i] + 0.0:.3g}" for part in parts[1:]),
            ]
            for i in listed
        ]
        n_left = int((account.contributions != 0.0).sum()) - len(listed)
        if n_left:
            sums = [f"{np.delete(part, listed).sum() + 0.0:.3g}" for part in parts]
            lines.append([f"{n_left} more column{'s' * (n_left != 1)}", "", "", sums[0], "", *sums[1:]])
        if self.lists_residual(account):
            texts = [f"{rest + 0.0:.3g}" for rest in account.residuals[: len(parts)]]
            lines.append(["no single column", "", "", texts[0], "", *texts[1:]])
        heads = ["column", "before", "after", "contribution", "", *["data", "model"] * self.is_refit]
        return display.table(heads, lines, "<>>><" + ">>" * self.is_refit)


_WORDS = {
    STAYED: "{} stayed in {}.",
    NEW: "{} is new; it is in {}.",
    GONE: "{} is gone; it was in {}.",
}


def _first(*labels: Any) -> Any:
    return next(label for label in labels if label is not None)


def find_row(record: ChangeRecord, name: Any) -> RowChange:
    """Return the change of the row with an id."""
    before, after = record.pairing.find(name, "row")
    source = NONE if before < 0 else int(record.before[before])
    target = NONE if after < 0 else int(record.after[after])
    if source != target and NONE not in (source, target):
        return moved_rows(record, np.flatnonzero(record.pairing.before[record.moves.rows] == before))[0]
    status = STAYED if source == target else NEW if source == NONE else GONE
    pairing = record.pairing
    own = pairing.ids_after[after] if before < 0 else pairing.ids_before[before]
    title = f"{display.clean(str(pairing.on))} {display.clean(str(own))}"
    return RowChange(title, status, record.label(source), record.label(target), record.moves.columns)


def moved_rows(record: ChangeRecord, moves: Codes) -> list[RowChange]:
    """Return the changes of rows that moved, given their positions among the moves."""
    values = record.moves.values(moves)
    return [_moved_row(record, move, each) for move, each in zip(moves.tolist(), values, strict=True)]


def _moved_row(record: ChangeRecord, move: int, values: list[tuple[Any, Any]]) -> RowChange:
    moves, pairing = record.moves, record.pairing
    row = moves.rows[move]
    before, after = int(pairing.before[row]), int(pairing.after[row])
    source, target = int(record.before[before]), int(record.after[after])
    title = f"{display.clean(str(pairing.on))} {display.clean(str(pairing.ids_before[before]))}"
    assigned = moves.old_with_new_values, moves.new_with_old_values
    old, new = (None if codes is None else record.label(int(codes[move])) for codes in assigned)
    return RowChange(
        title,
        MOVED,
        record.label(source),
        record.label(target),
        moves.columns,
        values,
        _account(record, int(moves.place[move])),
        old,
        new,
        record.is_lacking(source, target),
    )


def lacking(source: str, target: str, no_source: bool, no_target: bool) -> list[str]:
    """Return which segmentation lacks which cluster of a move, as clauses."""
    found = [f"the new segmentation has no {source}"] * no_source
    return found + [f"the old segmentation has no {target}"] * no_target


def question(source: str, target: str, no_source: bool, no_target: bool) -> str:
    """Return the question that the evidence of a move answers, as a phrase that begins with "for"."""
    if no_target:
        return f"for leaving {source}"
    return f"for {target}" if no_source else f"for {target} against {source}"


def _account(record: ChangeRecord, place: int) -> RowAccount | None:
    if place == NONE:
        return None
    accounts = record.moves.accounts
    return RowAccount(
        float(accounts.before[place]),
        float(accounts.after[place]),
        accounts.data.split[place] + accounts.model.split[place],
        accounts.data.split[place],
        accounts.model.split[place],
        float(accounts.data.evidence[place]),
        float(accounts.model.evidence[place]),
        float(accounts.residual[place]),
    )
