"""From a table to a network of its clusters: which columns, which clusters, which names of rows."""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn

import numpy as np
import polars as pl

from whycluster.api import fit_surrogate
from whycluster.cli.reading import Source, look_at_codes, look_at_text, read
from whycluster.core.arrays import Codes
from whycluster.core.errors import ColumnWarning, FidelityWarning, InvalidInputError
from whycluster.data import display
from whycluster.data.columns import LIKE_IDENTIFIER, columns_of, judge
from whycluster.data.progress import Progress
from whycluster.explanations.explanation import Explanation
from whycluster.explanations.fidelity import Fidelity
from whycluster.models.adapters.registry import neuralize
from whycluster.models.network import Network
from whycluster.pipelines.tabular import pipeline


@dataclass(frozen=True)
class Asked:
    """What the options say of the table and of its clusters.

    Attributes
    ----------
    source : the file
    k : the number of clusters; None for the elbow
    labels : the column that has the clusters, if they are there
    columns, ignore : the columns to cluster by, by default all; and those to leave out
    id : the column that names the rows
    seed : of all that is random
    """

    source: Source
    k: int | None = None
    labels: str | None = None
    columns: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    id: str | None = None
    seed: int = 0
    id_option: str = "--id"

    @classmethod
    def of(cls, options: Mapping[str, Any], id_option: str = "--id") -> Asked:
        """What the options of a command say; ``id_option`` is the one that names the column of names."""
        if options["k"] is not None and options["labels"] is not None:
            raise InvalidInputError(
                "--k makes clusters, --labels takes those that are there; give one of them."
            )
        delimiter = {"\\t": "\t", "tab": "\t"}.get(options["delimiter"], options["delimiter"])
        if delimiter is not None and len(delimiter.encode()) != 1:
            raise InvalidInputError(f"--delimiter must be one sign, or tab; got {delimiter!r}.")
        written = {name: options[name] for name in ("decimal", "encoding", "missing", "sheet")}
        source = Source(options["file"], delimiter, **written, id=options.get("id_column"))
        rest = {name: options[name] for name in ("k", "labels", "columns", "ignore", "seed")}
        return cls(source, id=options.get("id_column"), id_option=id_option, **rest)


@dataclass(frozen=True)
class Clustered:
    """A table and the network of its clusters.

    Attributes
    ----------
    rows : the columns that were clustered
    ids : the names of the rows, as a column of the table; None where they have none
    network : that assigns the rows to the clusters
    given : (n,) the label that each row has; None where the network gives them
    what : what the clusters are, in words
    left_out : why each of the other columns is not among those that were clustered
    notes : what else is to be said
    doubt : why the rows have no names though there are columns that look like these
    """

    rows: pl.DataFrame
    ids: pl.Series | None
    network: Network
    given: Any
    what: str
    left_out: dict[str, str]
    notes: list[str]
    doubt: str = ""

    @property
    def id_names(self) -> list[str]:
        """Of the column that names the rows, if there is one."""
        return [] if self.ids is None else [str(self.ids.name)]

    def explain(self, some: Codes | None = None, *, target: Any = None, against: Any = None) -> Explanation:
        """The explanation of all rows, or of some; of labels, each row for the one it has."""
        rows = self.rows if some is None else self.rows[some]
        if target is None and self.given is not None:
            target = self.given if some is None else self.given[some]
        with Progress("explaining", None), warnings.catch_warnings():
            warnings.simplefilter("ignore", FidelityWarning)  # it is among the cautions
            background = None if some is None else self.rows
            found = self.network.explain(rows, target=target, against=against, background=background)
        return replace(found, owns_data=True, positions=some, row_names=self.ids)

    def label(self, text: str | None, option: str) -> Any:
        """The cluster of this name; None if none is asked for."""
        return by_label(self.network, text, option)

    def position(self, name: str) -> int:
        """Where the row of this name is; where rows have no names, they are counted from 0."""
        if self.ids is not None:
            found = np.flatnonzero((self.ids.cast(pl.String) == name).fill_null(False).to_numpy())
            if len(found) == 1:
                return int(found[0])
            how = f"{len(found)} rows have" if len(found) else "no row has"
            raise InvalidInputError(f"--id must name one row by column {self.ids.name!r}; {how} {name!r}.")
        if self.doubt:
            raise InvalidInputError(f"--id-column must say which column names the rows: {self.doubt}")
        if name.isdecimal() and int(name) < self.rows.height:
            return int(name)
        raise InvalidInputError(
            f"--id must be the number of a row, from 0 to {self.rows.height - 1}, since no column names "
            f"them; got {name!r}. --id-column says which column does."
        )


def by_label(network: Network, text: str | None, option: str) -> Any:
    """The cluster of this name; None if none is asked for."""
    if text is None:
        return None
    labels = network.labels.tolist()
    for label in labels:
        if str(label) == text:
            return label
    shown = ", ".join(str(label) for label in labels[:12]) + ", ..." * (len(labels) > 12)
    raise InvalidInputError(f"{option} must name a cluster: {shown}; got {text!r}.")


def cluster(asked: Asked) -> Clustered:
    """Read the file, and cluster its rows."""
    with Progress(f"reading {asked.source.path.name}", None):
        frame = read(asked.source)
    return cluster_frame(frame, asked)


def cluster_frame(frame: pl.DataFrame, asked: Asked, step: int = 1) -> Clustered:
    """Choose the columns, and cluster the rows or take the clusters that are there.

    ``step`` says that the rows are every so many of a larger table.
    """
    chosen = choose(frame, asked)
    with Progress("looking at the columns", None):
        notes = look_at_text(frame[chosen])
        left_out = left_out_of(frame, chosen, keep=bool(asked.columns), step=step)
    used = [name for name in chosen if name not in left_out]
    if not used:
        listed = "; ".join(f"{name}: {reason}" for name, reason in list(left_out.items())[:5])
        raise InvalidInputError(f"there must be a column to cluster by, and none is left. {listed}.")
    rows = frame[used]  # select would take some names for patterns
    notes += look_at_codes(rows)
    find = _by_k_means if asked.labels is None else _by_labels
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("ignore", FidelityWarning)  # it is among the cautions
        warnings.simplefilter("always", ColumnWarning)
        network, given, what = find(rows, frame, asked)
    notes += [str(each.message).split(": ", 1)[-1] for each in said]
    ids, doubt = _ids(frame, left_out, asked)
    notes += [f"rows are counted from 0: {doubt}"] * bool(doubt)
    return Clustered(rows, ids, network, given, what, left_out, notes, doubt)


def _by_k_means(rows: pl.DataFrame, frame: pl.DataFrame, asked: Asked) -> tuple[Network, Any, str]:
    check_k(asked.k, frame.height)
    with Progress("clustering", None):
        model = pipeline(rows, asked.k, keep=rows.columns, random_state=asked.seed)
    what = f"k-means with {model[-1].n_clusters} clusters"
    if asked.k is None:
        what += f", the elbow of {min(model.inertias_)} to {max(model.inertias_)}"
    return neuralize(model), None, what


def _by_labels(rows: pl.DataFrame, frame: pl.DataFrame, asked: Asked) -> tuple[Network, Any, str]:
    assert asked.labels is not None
    labels = frame[asked.labels]
    if labels.null_count():
        raise InvalidInputError(
            f"--labels: column {asked.labels!r} must name the cluster of every row; {labels.null_count()} of "
            f"{frame.height} have none. Remove these rows, or give them a label, -1 for noise."
        )
    if labels.n_unique() < 2:
        raise InvalidInputError(
            f"--labels: column {asked.labels!r} must name at least two clusters; all rows have {labels[0]!r}."
        )
    with Progress("fitting a surrogate to the labels", None):
        network, given = fit_surrogate(labels, rows)
    assert network.fidelity is not None
    return network, given, predicted(asked.labels, network.fidelity)


def check_k(k: int | None, n_rows: int) -> None:
    """Raise for a number of clusters that there cannot be; None is for the elbow."""
    if k is not None and not 2 <= k <= n_rows:
        raise InvalidInputError(f"--k must be from 2 to the number of rows, {n_rows}, or auto; got {k}.")


def predicted(labels: str | None, fidelity: Fidelity) -> str:
    """What stands for the clusters in a column, in words."""
    return f"a surrogate of {labels!r} that foretells {fidelity.cross_validated:.1%} of its labels"


def choose(frame: pl.DataFrame, asked: Asked) -> list[str]:
    """The columns that may be clustered by, in the order of the table."""
    for option, name in (("--labels", asked.labels), (asked.id_option, asked.id)):
        if name is not None and name not in frame.columns:
            tell_unknown(option, name, frame.columns)
        if name is not None and (frame[name].dtype.is_nested() or frame[name].dtype == pl.Binary):
            raise InvalidInputError(
                f"{option} must be a column of names; {name!r} is of {frame[name].dtype}."
            )
    wanted = listed(asked.columns, frame.columns, "--columns") or set(frame.columns)
    unwanted = listed(asked.ignore, frame.columns, "--ignore") | {asked.labels, asked.id}
    chosen = [name for name in frame.columns if name in wanted and name not in unwanted]
    if not chosen:
        given = {"--columns": asked.columns, "--ignore": asked.ignore, "--labels": asked.labels}
        options = " and ".join(
            option for option, value in (given | {asked.id_option: asked.id}).items() if value
        )
        leave = "leave" if " and " in options else "leaves"
        raise InvalidInputError(
            f"there must be a column to cluster by; {options} {leave} none of {frame.width}."
        )
    return chosen


def listed(given: Iterable[str], known: Sequence[str], option: str) -> set[str]:
    """The columns that an option names: each time one, or several with commas between them."""
    found = set()
    for text in given:
        for name in [text] if text in known else text.split(","):
            if name.strip() not in known:
                tell_unknown(option, name.strip(), known)
            found.add(name.strip())
    return found


def tell_unknown(option: str, name: str, known: Sequence[str]) -> NoReturn:
    """Raise for a column that is not there, with the names that come near."""
    near = difflib.get_close_matches(name, known, 3) or list(known[:5])
    shown = ", ".join(display.clean(each) for each in near)
    more = f", ... ({len(known)} in all)" if len(known) > len(near) else ""
    raise InvalidInputError(f"{option} must name columns of the table, such as {shown}{more}; got {name!r}.")


def left_out_of(frame: pl.DataFrame, chosen: Sequence[str], keep: bool, step: int = 1) -> dict[str, str]:
    """Why columns cannot be clustered by; what looks like an identifier can, if it was asked for."""
    verdicts = {
        str(column.name): judge(column, keep, step) for column in columns_of(frame[list(chosen)], "explain")
    }
    return {name: reason for name, (_, reason) in verdicts.items() if reason}


def _ids(frame: pl.DataFrame, left_out: dict[str, str], asked: Asked) -> tuple[pl.Series | None, str]:
    """The column that names the rows, as said or as the only one like an identifier; or why there is none."""
    if asked.id is not None:
        return frame[asked.id], ""
    like = [name for name, reason in left_out.items() if reason.startswith(LIKE_IDENTIFIER)]
    whole = [name for name in like if not frame[name].null_count()]
    if not whole:
        return None, ""
    if len(whole) > 1:
        return None, f"{', '.join(map(repr, whole[:5]))} all look like names. Choose with {asked.id_option}."
    if frame[whole[0]].n_unique() < frame.height:
        return None, f"{whole[0]!r} looks like names, but some are there twice."
    return frame[whole[0]], ""
