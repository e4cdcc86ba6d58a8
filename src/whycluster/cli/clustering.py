"""The clustered table of a command, with its options, columns, clusters and row names."""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import polars as pl

from whycluster.cli.naming import read_names
from whycluster.cli.reading import TableFile, check_text, code_notes, date_notes, with_dates
from whycluster.cli.tables import read_table
from whycluster.clustering.labels import fit_surrogate
from whycluster.core.arrays import Codes
from whycluster.core.errors import InvalidInputError
from whycluster.data import display
from whycluster.data.column_checks import (
    LIKE_IDENTIFIER,
    ClassifiedColumns,
    classify_columns,
    named_like_identifier,
)
from whycluster.data.files import is_utf8
from whycluster.data.labels import as_labels
from whycluster.data.progress import Progress
from whycluster.data.settings import spelled_as
from whycluster.data.warnings import ColumnWarning, FewRowsWarning, FidelityWarning, PopulationWarning
from whycluster.explanations.explanation import Explanation
from whycluster.explanations.fidelity import Fidelity
from whycluster.models.adapters.registry import to_network
from whycluster.models.network import Network, Query, QueryOptions
from whycluster.pipelines.tabular import cluster_columns, warn_of_columns
from whycluster.segments.segmentation import Segmentation
from whycluster.segments.storage.saving import load

if TYPE_CHECKING:
    from typing_extensions import Unpack

_MOST_CLUSTERS_LISTED = 12
_MANY_LABELS = 20  # in shorter tables, clusters may be as small as one row
_TABS = {"\\t": "\t", "tab": "\t"}


@dataclass(frozen=True)
class CommandOptions:
    """The options that all commands share, which determine the table and how to cluster it.

    Attributes
    ----------
    file : the table
    k : the number of clusters, or None to use the elbow method
    labels : the column that holds existing clusters, or None to create new clusters
    columns : the columns to use for clustering; if empty, all columns are used
    ignore : the columns to leave out
    id : the column that identifies the rows, or None if unknown
    names : the file that maps clusters to names, or None
    seed : the random seed
    model : the file of a segmentation to apply, or None
    check : whether to compare the rows with those that the segmentation was made on
    id_option : the option that sets ``id``, for messages
    """

    file: TableFile
    k: int | None = None
    labels: str | None = None
    columns: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    id: str | None = None
    names: Path | None = None
    seed: int = 0
    model: Path | None = None
    check: bool = True
    id_option: str = "--id"

    @classmethod
    def of(cls, given: Mapping[str, Any], id_option: str = "--id") -> CommandOptions:
        """Check the shared options of a command and return them."""
        if given["k"] is not None and given["labels"] is not None:
            raise InvalidInputError(
                "--k and --labels cannot be combined: --k creates new clusters, whereas --labels uses "
                "existing clusters. Use only one of these options."
            )
        id_column = given.get("id_column")
        file = table_file(given["file"], given, id_column)
        rest = {name: given[name] for name in ("k", "labels", "columns", "ignore", "seed")}
        rest.update(names=given.get("names"), model=given.get("model"), check=given.get("check", True))
        check_model_options(given)
        return cls(file, id=id_column, id_option=id_option, **rest)


def table_file(path: Path, given: Mapping[str, Any], id_column: str | None) -> TableFile:
    """Check the options that describe the format of a file and return the file with its format."""
    delimiter = _TABS.get(given["delimiter"], given["delimiter"])
    if delimiter is not None and not (len(delimiter) == 1 and delimiter.isascii()):
        raise InvalidInputError(f"--delimiter must be a single ASCII character, or tab; got {delimiter!r}.")
    for word in given["missing"]:
        if not is_utf8(word):
            raise InvalidInputError(f"--missing must be valid UTF-8; got {word!r}.")
    format_options = {name: given[name] for name in ("decimal", "encoding", "missing", "sheet")}
    return TableFile(path, delimiter, **format_options, id=id_column)


@dataclass(frozen=True)
class ClusteredTable:
    """A table and the network of its clusters.

    Attributes
    ----------
    rows : the columns that were clustered
    ids : the column that identifies the rows, or None if no column does
    network : the network that assigns rows to clusters
    labels : (n,) existing labels of the rows, or None if the network assigns the clusters
    description : how the clusters were obtained, for the user
    left_out : for each column that was not used, the reason
    notes : further notes for the user
    segmentation : the segmentation that is applied, or None if the clusters are new
    id_problem : why no column identifies the rows although some look like identifiers, or an empty string
    """

    rows: pl.DataFrame
    ids: pl.Series | None
    network: Network
    labels: Any
    description: str
    left_out: dict[str, str]
    notes: list[str]
    id_problem: str = ""
    segmentation: Segmentation | None = None

    @property
    def id_names(self) -> list[str]:
        """The name of the column that identifies the rows, as a list with at most one name."""
        return [] if self.ids is None else [str(self.ids.name)]

    def explain(self, positions: Codes | None = None, **query: Unpack[QueryOptions]) -> Explanation:
        """Explain all rows or the rows at some positions; existing labels are the default targets."""
        rows = self.rows if positions is None else self.rows[positions]
        if query.get("target") is None and self.labels is not None:
            query["target"] = self.labels if positions is None else self.labels[positions]
        if self.segmentation is not None:
            query["background"] = self.segmentation.population.measured
        elif positions is not None:
            query["background"] = self.rows
        with Progress("explaining", None), warnings.catch_warnings():
            warnings.simplefilter("ignore", FidelityWarning)  # the findings include this warning
            warnings.simplefilter("ignore", FewRowsWarning)  # beta is measured on all the rows
            exp = self.network.explain(rows, **query)
        return replace(exp, owns_data=True, positions=positions, row_names=self.ids)

    def find_cluster(self, text: str | None, option: str) -> Any:
        """Return the label of the cluster that an option names, or None if the option is not given."""
        return find_cluster(self.network, text, option)

    def position(self, name: str, option: str = "--id") -> int:
        """Return the position of a row, given its identifier or, if rows have no identifiers, its number."""
        if self.ids is not None:
            return self._position_by_id(self.ids, name, option)
        if self.id_problem:
            raise InvalidInputError(
                f"--id-column must name the column that identifies the rows: {self.id_problem}"
            )
        if name.isdecimal() and int(name) < self.rows.height:
            return int(name)
        raise InvalidInputError(
            f"{option} must be a row number from 0 to {self.rows.height - 1} because no column identifies "
            f"the rows; got {name!r}. To use a column, add --id-column."
        )

    @staticmethod
    def _position_by_id(ids: pl.Series, name: str, option: str) -> int:
        # polars cannot compare text that is not UTF-8, which no row has.
        is_found = (as_text(ids) == name).fill_null(False).to_numpy() if is_utf8(name) else np.zeros(0)
        found = np.flatnonzero(is_found)
        if len(found) != 1:
            matches = f"{len(found)} rows have" if len(found) else "no row has"
            raise InvalidInputError(
                f"{option} must match one row in column {ids.name!r}; {matches} {name!r}."
            )
        return int(found[0])


def as_text(values: pl.Series) -> Any:
    """Return the values of a column as text; polars cannot convert durations."""
    if values.dtype != pl.Duration:
        return values.cast(pl.String)
    texts = [None if value is None else str(value) for value in values.to_list()]
    return pl.Series(values.name, texts, pl.String)


def find_cluster(network: Network, text: str | None, option: str) -> Any:
    """Return the label of the cluster that an option names, or None if the option is not given."""
    if text is None:
        return None
    labels = network.labels.tolist()
    for label in labels:
        if str(label) == text:
            return label
    listed = ", ".join(str(label) for label in labels[:_MOST_CLUSTERS_LISTED])
    more = ", ..." * (len(labels) > _MOST_CLUSTERS_LISTED)
    raise InvalidInputError(f"{option} must be one of the clusters {listed}{more}; got {text!r}.")


def read_query(network: Network, given: Mapping[str, Any]) -> QueryOptions:
    """Return the query that the options of a command describe; error messages name these options."""
    query: QueryOptions = {
        "target": find_cluster(network, given["target"], "--target"),
        "against": find_cluster(network, given["against"], "--against"),
        "rule": given["rule"],
        "beta": _number(given["beta"]),
        "threshold": _number(given.get("threshold")),
    }
    try:
        with spelled_as({name: f"--{name}" for name in query}):
            Query(**query).coded(network.labels, network.energy, "explain", network.default_rule)
    except InvalidInputError as error:
        raise InvalidInputError(str(error).removeprefix("explain: ")) from error
    return query


def _number(text: str | None) -> Any:
    """Convert text to a number if possible; `Query` checks the result."""
    try:
        return text if text is None else float(text)
    except ValueError:
        return text


def cluster(options: CommandOptions) -> ClusteredTable:
    """Read the file and cluster its rows."""
    segmentation = None if options.model is None else load_segmentation(options.model)
    frame, notes = read_table(options.file, 2 if segmentation is None else 1)
    if segmentation is not None:
        clustered = apply_segmentation(segmentation, frame, options)
    else:
        clustered = cluster_frame(frame, options)
    return replace(clustered, notes=[*notes, *clustered.notes])


def load_segmentation(path: Path, name: str = "--model") -> Segmentation:
    """Return the segmentation in a file; ``name`` is the argument of the command, for messages."""
    try:
        found = load(path)
    except InvalidInputError as error:
        raise InvalidInputError(f"{name}: {str(error).removeprefix('load: ')}") from error
    if not isinstance(found, Segmentation):
        raise InvalidInputError(
            f"{name} must be a segmentation, written by whycluster fit or wc.save; {path} contains a "
            f"{type(found).__name__}."
        )
    return found


def apply_segmentation(seg: Segmentation, frame: pl.DataFrame, options: CommandOptions) -> ClusteredTable:
    """Return the rows of a table with their clusters under a segmentation, and notes on unusual rows."""
    if options.id is not None:
        _check_single_column(options.id_option, options.id, frame)
    frame = frame.with_columns(with_dates(frame).get_columns())
    if options.names is not None:
        seg = seg.rename(read_names(options.names, seg.labels.tolist()))
    with warnings.catch_warnings(record=True) as caught, spelled_as({"pass check=False": "add --no-check"}):
        warnings.simplefilter("always", PopulationWarning)
        try:
            seg.open(frame, "explain", check=options.check)
        except InvalidInputError as error:
            what = str(error).removeprefix("explain: ").removeprefix("new ")
            raise InvalidInputError(f"{options.file.path}: {what}") from error
    rows = frame[[str(name) for name in seg.feature_names]]
    left_out = {name: "not used" for name in frame.columns if name not in rows.columns and name != options.id}
    made = "in the data the clusters were made on"  # whose values the reasons count
    left_out |= {name: f"{why} {made}" for name, why in (seg.left_out or {}).items() if name in left_out}
    ids, id_problem = _find_ids(frame, left_out, options)
    notes = [str(warning.message).removeprefix("explain: ") for warning in caught]
    made_on = display.count(seg.population.n_rows, "row")
    description = f"the segmentation in {options.model}, made on {made_on}"
    return ClusteredTable(rows, ids, seg.network, None, description, left_out, notes, id_problem, seg)


def check_model_options(given: Mapping[str, Any]) -> None:
    """Raise an error for --model with options that create clusters, and for --no-check without --model."""
    if given.get("model") is None:
        if not given.get("check", True):
            raise InvalidInputError(
                "--no-check works only with --model, which names the segmentation to apply."
            )
        return
    for name in ("k", "labels", "columns", "ignore"):
        if given.get(name):
            raise InvalidInputError(
                f"--{name} applies to new clusters, but --model provides its own. Remove it."
            )


def cluster_frame(frame: pl.DataFrame, options: CommandOptions, step: int = 1) -> ClusteredTable:
    """Choose the columns, then cluster the rows or use the existing clusters.

    Parameters
    ----------
    frame : the rows
    options : how to cluster them
    step : ``frame`` contains every ``step``-th row of a larger table
    """
    chosen = choose_columns(frame, options)
    frame = frame.with_columns(with_dates(frame[chosen]).get_columns())
    notes = check_text(frame[chosen]) + date_notes(frame[chosen])
    with Progress("checking the columns", None):
        columns = classify_columns(frame[chosen], "explain", chosen if options.columns else (), step)
    left_out = {str(name): reason for name, reason in columns.left_out.items()}
    used = [name for name in chosen if name not in left_out]
    if not used:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in list(left_out.items())[:5])
        raise InvalidInputError(
            f"the table must contain at least one column to cluster by; none can be used. {reasons}."
        )
    rows = frame[used]  # `select` would interpret some names as patterns
    columns = replace(columns, frame=rows, left_out={})
    notes += code_notes(rows)
    find_clusters = _new_clusters if options.labels is None else _existing_clusters
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("ignore", FidelityWarning)  # the findings include this warning
        warnings.simplefilter("always", ColumnWarning)
        warnings.filterwarnings("ignore", ".* dates as text", ColumnWarning)  # `check_text` notes them
        network, labels, description = find_clusters(columns, frame, options)
    if options.names is not None:
        names = read_names(options.names, network.labels.tolist())
        network = network.rename(names)
        labels = labels if labels is None else as_labels([names.get(each, each) for each in labels.tolist()])
    notes += [str(warning.message).split(": ", 1)[-1] for warning in caught]
    ids, id_problem = _find_ids(frame, left_out, options)
    notes += [f"rows are numbered from 0: {id_problem}"] * bool(id_problem)
    return ClusteredTable(rows, ids, network, labels, description, left_out, notes, id_problem)


def _new_clusters(
    columns: ClassifiedColumns, frame: pl.DataFrame, options: CommandOptions
) -> tuple[Network, Any, str]:
    check_k(options.k, frame.height)
    with Progress("clustering", None):
        warn_of_columns(columns)
        try:
            model = cluster_columns(columns, options.k, options.seed)
        except InvalidInputError as error:
            raise InvalidInputError(str(error).replace("explain: n_clusters must", "--k must")) from error
    description = f"k-means with {model[-1].n_clusters} clusters"
    if options.k is None:
        description += f", the elbow of {min(model.inertias_)} to {max(model.inertias_)}"
    return to_network(model), None, description


def _existing_clusters(
    columns: ClassifiedColumns, frame: pl.DataFrame, options: CommandOptions
) -> tuple[Network, Any, str]:
    assert options.labels is not None
    labels = frame[options.labels]
    where = f"--labels: column {options.labels!r}"
    if labels.null_count():
        raise InvalidInputError(
            f"{where} must contain a cluster for every row; {labels.null_count()} of {frame.height} rows "
            "lack one. Remove these rows or label them, with -1 for noise."
        )
    if labels.n_unique() < 2:
        raise InvalidInputError(f"{where} must contain at least two clusters; all rows are in {labels[0]!r}.")
    with Progress("fitting a surrogate to the labels", None):
        network, given = fit_surrogate(labels, columns.frame)
    assert network.fidelity is not None
    return network, given, describe_surrogate(options.labels, network.fidelity)


def check_k(k: int | None, n_rows: int) -> None:
    """Raise an error if a table of this size cannot have k clusters. None (automatic) is always valid."""
    if k is not None and not 2 <= k <= n_rows:
        raise InvalidInputError(
            f"--k must be auto or a number from 2 to {n_rows}, the number of rows; got {k}."
        )


def describe_surrogate(labels: str | None, fidelity: Fidelity) -> str:
    """Describe the surrogate for a column of labels in a few words."""
    return f"a surrogate of {labels!r} that predicts {fidelity.cross_validated:.1%} of its labels"


def choose_columns(frame: pl.DataFrame, options: CommandOptions) -> list[str]:
    """Return the columns that the options select for clustering, in the order of the table."""
    for option, name in (("--labels", options.labels), (options.id_option, options.id)):
        if name is not None:
            _check_single_column(option, name, frame)
    if options.labels is not None:
        _check_clusters(frame[options.labels])
    wanted = parse_names(options.columns, frame.columns, "--columns") or set(frame.columns)
    unwanted = parse_names(options.ignore, frame.columns, "--ignore") | {options.labels, options.id}
    chosen = [name for name in frame.columns if name in wanted and name not in unwanted]
    if not chosen:
        _raise_no_column(frame, options)
    return chosen


def _check_single_column(option: str, name: str, frame: pl.DataFrame) -> None:
    if name not in frame.columns:
        _raise_unknown(option, name, frame.columns)
    dtype = frame[name].dtype
    if dtype.is_nested() or dtype == pl.Binary:
        raise InvalidInputError(f"{option} must be a column of single values; {name!r} has type {dtype}.")


def _check_clusters(labels: pl.Series) -> None:
    """Raise an error if labels look like identifiers: fitting a surrogate to them takes minutes."""
    n_clusters = labels.drop_nulls().n_unique()
    if len(labels) >= _MANY_LABELS and 2 * n_clusters >= len(labels):
        raise InvalidInputError(
            f"--labels: column {labels.name!r} must contain fewer clusters than half the number of rows; it "
            f"contains {n_clusters} different values in {len(labels)} rows. Choose the column that contains "
            "the clusters, or omit --labels to create new clusters."
        )


def _raise_no_column(frame: pl.DataFrame, options: CommandOptions) -> NoReturn:
    given = {
        "--columns": options.columns,
        "--ignore": options.ignore,
        "--labels": options.labels,
        options.id_option: options.id,
    }
    names = [option for option, value in given.items() if value]
    leave = "leave" if len(names) > 1 else "leaves"
    raise InvalidInputError(
        f"the table must contain at least one column to cluster by; {' and '.join(names)} {leave} none of "
        f"{frame.width}."
    )


def parse_names(given: Iterable[str], known: Sequence[str], option: str) -> set[str]:
    """Return the columns that an option names.

    The option may be repeated, and each value may list several names.
    """
    found = set()
    for text in given:
        for name in [text] if text in known else text.split(","):
            if name.strip() not in known:
                _raise_unknown(option, name.strip(), known)
            found.add(name.strip())
    return found


def _raise_unknown(option: str, name: str, known: Sequence[str]) -> NoReturn:
    """Raise an error for a column that does not exist, with similar names as suggestions."""
    similar = difflib.get_close_matches(name, known, 3) or list(known[:5])
    listed = ", ".join(display.clean(each) for each in similar)
    more = f", ... ({len(known)} in total)" if len(known) > len(similar) else ""
    raise InvalidInputError(f"{option} must name columns of the table, such as {listed}{more}; got {name!r}.")


def _find_ids(
    frame: pl.DataFrame, left_out: dict[str, str], options: CommandOptions
) -> tuple[pl.Series | None, str]:
    """Return the column that identifies the rows, or None, and a message if the choice is unclear.

    The column is the one that the option names or, by default, the only complete column that looks like an
    identifier; if there are several, such as ids and addresses, the only one that is named like one. The
    message says that the choice is unclear, or that the column contains duplicates.
    """
    if options.id is not None:
        return frame[options.id], ""
    similar = [name for name, reason in left_out.items() if reason.startswith(LIKE_IDENTIFIER)]
    complete = [name for name in similar if not frame[name].null_count()]
    named = [name for name in complete if named_like_identifier(name)]
    if len(named) == 1:
        complete = named
    if not complete:
        return None, ""
    if len(complete) > 1:
        listed = ", ".join(map(repr, complete[:5]))
        return None, f"{listed} all look like identifiers. Choose one with {options.id_option}."
    if frame[complete[0]].n_unique() < frame.height:
        return None, f"{complete[0]!r} looks like an identifier but contains duplicates."
    return frame[complete[0]], ""
