"""The changes between two tables, which `whycluster.changes` returns."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from whycluster.data import display
from whycluster.data.files import as_path, check_creatable, write_text
from whycluster.data.labels import as_labels
from whycluster.data.validation import check_integer
from whycluster.segments.changes import frames
from whycluster.segments.changes.drift import DriftTest
from whycluster.segments.changes.page import make_page
from whycluster.segments.changes.record import ChangeRecord
from whycluster.segments.changes.row_change import RowChange, find_row
from whycluster.segments.changes.sentences import summarize
from whycluster.segments.segmentation import Segmentation


@dataclass(frozen=True, eq=False, repr=False)
class Changes:
    """The changes between two tables: who moved between the clusters, and why.

    `whycluster.changes` returns this result. Clusters of two segmentations have common labels: a cluster of
    the new segmentation has the label of the old cluster that it matches. All frames have the type of the
    first table: pandas, polars or pyarrow; ``backend`` selects another library.

    Attributes
    ----------
    record : the changes as plain data
    after : the segmentation of the second table, as it was given
    """

    record: ChangeRecord
    after: Segmentation

    @property
    def labels(self) -> NDArray[Any]:
        """(L,) the labels of all clusters, before and after."""
        return self.record.labels

    @property
    def new_labels(self) -> dict[Any, Any]:
        """For each cluster of the new segmentation, its label in this result."""
        matches = self.record.matches
        labels = matches.labels[matches.from_new].tolist()
        return dict(zip(matches.new_labels.tolist(), labels, strict=True))

    def new_segmentation(self) -> Segmentation:
        """Return the segmentation of the second table, with the labels that carry over from the old one."""
        matches = self.record.matches
        return self.after.with_labels(as_labels(matches.labels[matches.from_new].tolist()))

    @property
    def drifted(self) -> list[DriftTest]:
        """The comparisons within clusters that raise an alarm, the largest shifts first."""
        return self.record.alarms

    def __repr__(self) -> str:
        pairing, moved = self.record.pairing, len(self.record.moves.rows)
        common, gone, new = (len(rows) for rows in (pairing.before, pairing.gone, pairing.new))
        rows = display.count(common, "common row")
        return f"<Changes: {moved:,} of {rows} moved; {gone:,} gone, {new:,} new>"

    def __str__(self) -> str:
        return self.summary()

    def summary(self, n_flows: int = 10) -> str:
        """Return the changes as text: who moved, the sizes, the moves with their drivers, and the drift.

        Parameters
        ----------
        n_flows : the number of moves to list, the largest first
        """
        check_integer(n_flows, 1, "summary", "n_flows")
        return summarize(self.record, n_flows)

    def row(self, name: Any) -> RowChange:
        """Return the change of one row, with the account of its move; print it to read it.

        Parameters
        ----------
        name : the id of the row
        """
        return find_row(self.record, name)

    def to_frame(self, backend: str | None = None) -> Any:
        """Return a frame with one row per id: its status, its clusters and, if it moved, its account.

        The rows are those of the first table, then the new ones. ``status`` is "stayed", "moved", "new" or
        "gone". The columns of the data hold their contributions to the change of the evidence for the new
        cluster against the old one, from ``evidence_before`` to ``evidence_after``. With ``residual``, they
        add up to this change; with two segmentations, so do ``from_data`` and ``from_model``. All of these
        are NaN in rows without an account. If a column of the data has one of these names, an underscore is
        appended to the name of the added column.

        Parameters
        ----------
        backend : "pandas", "polars" or "pyarrow"; by default the library of the first table
        """
        return frames.rows_frame(self.record, backend)

    def flows(self, backend: str | None = None) -> Any:
        """Return one row per flow, the largest first: from, to, status, rows, share, and what drove it.

        New rows have no ``from``, and rows that are gone have no ``to``. ``share`` is relative to the rows of
        the cluster before or, for new rows, to all new rows. For moves, ``change`` is the mean change of the
        evidence, ``driver`` the column that contributed most to it on average, ``contribution`` its mean
        contribution, and ``first_in`` the number of rows in which it contributed most; see `drivers`.
        """
        return frames.flows_frame(self.record, backend)

    def drivers(self, backend: str | None = None) -> Any:
        """Return what drove each move: all columns with a positive mean contribution, the largest first.

        ``contribution`` is the mean over the rows that moved, and ``first_in`` the number of these rows in
        which the column contributed most.

        Parameters
        ----------
        backend : "pandas", "polars" or "pyarrow"; by default the library of the first table
        """
        return frames.drivers_frame(self.record, backend)

    def sizes(self, backend: str | None = None) -> Any:
        """Return the sizes of each cluster before and after, and the rows that stayed, moved, came and went.

        With two segmentations, ``overlap`` is the number of rows that both put into the cluster, divided by
        the number of rows that either of them does. It is NaN if only one of them has the cluster.

        Parameters
        ----------
        backend : "pandas", "polars" or "pyarrow"; by default the library of the first table
        """
        return frames.sizes_frame(self.record, backend)

    def drift(self, backend: str | None = None) -> Any:
        """Return how every column changed within every cluster, with a test.

        ``before`` and ``after`` are means (of days since 1970 for dates) or, for categories and missing
        values, shares of rows. ``shift`` is the difference in standard deviations within the cluster.
        ``p_value`` is corrected for the number of tests (Holm). ``alarm`` is true if the p-value is at most
        0.01 and the shift at least 0.1.

        Parameters
        ----------
        backend : "pandas", "polars" or "pyarrow"; by default the library of the first table
        """
        return frames.drift_frame(self.record, backend)

    def report(self, path: str | os.PathLike[str], *, title: str | None = None, n_rows: int = 20) -> None:
        """Write a self-contained HTML report about the changes.

        The file needs no network connection. Requires jinja2: ``pip install "whycluster[report]"``.

        Parameters
        ----------
        path : the file; an existing file is replaced atomically
        title : the title of the page
        n_rows : the maximum number of moved rows to show with their accounts, taken from all flows
        """
        check_integer(n_rows, 0, "report", "n_rows")
        where = as_path(path, "report")
        check_creatable(where)
        write_text(where, make_page(self.record, title, n_rows))
