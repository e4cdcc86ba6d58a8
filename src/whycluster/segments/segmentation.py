"""Segmentations: a clustering that is kept and applied to new rows."""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

from whycluster.clustering.labels import fit_surrogate
from whycluster.core.errors import InvalidInputError, UnsupportedModelError
from whycluster.data import display
from whycluster.data.column_checks import classify_columns
from whycluster.data.frame_table import as_frame, name_differences
from whycluster.data.labels import Renamable
from whycluster.data.table import Table
from whycluster.data.validation import check_integer
from whycluster.data.warnings import FewRowsWarning, FidelityWarning
from whycluster.explanations.explanation import Explanation
from whycluster.explanations.quality.clustering_quality import Quality, quality
from whycluster.models.adapters.incomplete import OnlyLabels
from whycluster.models.adapters.registry import find_network
from whycluster.models.network import Network, QueryOptions, check_rows_alone
from whycluster.models.tiles import assign_each
from whycluster.pipelines.network import PipelineNetwork
from whycluster.pipelines.tabular import cluster_columns, warn_of_columns
from whycluster.segments.new_rows import check_rows
from whycluster.segments.population import KnownPopulation
from whycluster.segments.sql.query import Column
from whycluster.segments.sql.statement import select

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack


def segment(
    frame: Any,
    n_clusters: int | None = None,
    names: Mapping[Any, str] | None = None,
    *,
    keep: Sequence[Hashable] = (),
    random_state: int = 0,
    measure_quality: bool = True,
) -> Segmentation:
    """Cluster a table with numeric, categorical and date columns, and return the segmentation.

    Parameters
    ----------
    frame : a pandas or polars DataFrame, or a pyarrow Table
    n_clusters : the number of clusters; None chooses it as `whycluster.tabular.pipeline` does
    names : names for some of the clusters, such as ``{0: "Loyal"}``
    keep : names of columns to use even if they look like identifiers
    random_state : the random seed
    measure_quality : whether to measure how distinct and stable the clusters are, which takes a few seconds

    Returns
    -------
    Segmentation

    Examples
    --------
    >>> import pandas as pd
    >>> import whycluster as wc
    >>> frame = pd.DataFrame({"age": [20, 21, 60, 61], "city": ["Rome", "Rome", "Oslo", "Oslo"]})
    >>> seg = wc.segment(frame, n_clusters=2, measure_quality=False)
    >>> labels = seg.assign(frame)
    >>> bool(labels[0] == labels[1] != labels[2])
    True
    """
    if n_clusters is not None:
        check_integer(n_clusters, 2, "segment", "n_clusters", "None or ")
    columns = classify_columns(frame, "segment", keep)
    warn_of_columns(columns)
    rows = nw.from_native(columns.frame, eager_only=True).drop(list(columns.left_out))
    kept = classify_columns(rows.to_native(), "segment", rows.columns)
    pipeline = cluster_columns(kept, n_clusters, random_state)
    made = Segmentation.of(pipeline, kept.frame, names, measure_quality=measure_quality)
    return replace(made, left_out=columns.left_out)


@dataclass(frozen=True, eq=False, repr=False)
class Segmentation(Renamable):
    """A clustering to keep: the model, its network, and facts about the rows that it was made on.

    `whycluster.segment` and `Segmentation.of` create segmentations; `whycluster.save` writes them to a file.

    Attributes
    ----------
    network : the network of the model, whose labels are the names of the clusters
    population : the rows that the segmentation was made on: sizes of the clusters, types, ranges and
        categories of the columns
    model : the fitted model or pipeline; None if the segmentation was loaded from a file
    quality : how distinct and stable the clusters are, or None if this was not measured
    left_out : the columns that were left out before clustering, with the reasons
    """

    network: Network
    population: KnownPopulation
    model: Any = None
    quality: Quality | None = None
    left_out: Mapping[Hashable, str] | None = None

    @classmethod
    def of(
        cls, model: Any, X: Any, names: Mapping[Any, str] | None = None, *, measure_quality: bool = True
    ) -> Segmentation:
        """Return the segmentation of a fitted model or pipeline.

        Parameters
        ----------
        model : a fitted clustering model or pipeline, centroids, a `Network`, or the labels of the rows of X,
            which are approximated by a surrogate. So are the labels of models that give only labels, such as
            DBSCAN. To keep the rule that they follow, pass ``whycluster.neuralize(model, rows=X)``.
        X : the rows that the model was fitted on, as `whycluster.explain` takes them
        names : names for some of the clusters, such as ``{0: "Loyal"}``
        measure_quality : whether to measure how distinct and stable the clusters are, which takes a few
            seconds
        """
        network = _network_of(model, X)
        network = network if names is None else network.rename(names)
        table = network.open_usual(X, "Segmentation")
        found = KnownPopulation.of(network, table)
        made = cls(network, found, network.model)
        if not measure_quality:
            return made
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FewRowsWarning)  # these are all the rows
            warnings.simplefilter("ignore", FidelityWarning)
            return replace(made, quality=quality(network.explain(X, background=found.measured)))

    @property
    def steps(self) -> tuple[tuple[str, Any], ...]:
        """The fitted scikit-learn steps before the model, with their names; empty without a pipeline."""
        network = self.network
        return (network.stages.steps or ()) if isinstance(network, PipelineNetwork) else ()

    @property
    def labels(self) -> NDArray[Any]:
        """(K,) the names of the clusters."""
        return self.network.labels

    @property
    def feature_names(self) -> list[Hashable]:
        """(d,) the names of the columns, in the order of the model."""
        return [column.name for column in self.population.columns]

    @property
    def sizes(self) -> NDArray[np.intp]:
        """(K,) the number of rows in each cluster when the segmentation was made."""
        return self.population.measured.sizes

    def __repr__(self) -> str:
        rows, clusters, columns = (
            display.count(n, noun)
            for n, noun in (
                (self.population.n_rows, "row"),
                (len(self.labels), "cluster"),
                (self.network.n_features, "column"),
            )
        )
        return f"<Segmentation of {rows} into {clusters} by {columns}>"

    def with_labels(self, labels: NDArray[Any]) -> Self:
        """Return the segmentation with other labels for all clusters, (K,)."""
        found = self.quality
        if found is not None and found.clusters is not None:
            new = dict(zip(self.labels.tolist(), labels.tolist(), strict=True))
            clusters = np.array([new[label] for label in found.clusters.tolist()], dtype=object)
            found = replace(found, clusters=clusters)
        return replace(self, network=self.network.with_labels(labels), quality=found)

    def assign(self, new: Any, *, check: bool = True) -> NDArray[Any]:
        """Return the cluster of each new row, (n,).

        Parameters
        ----------
        new : (n, d) the rows. Columns of a frame are matched by name, and columns that the segmentation does
            not use are ignored.
        check : whether to compare the rows with those that the segmentation was made on. Columns of another
            type, and values on another scale, raise an error. Unseen categories, and other large differences,
            issue a `PopulationWarning`.
        """
        network = self.network
        codes = assign_each(network.energy, self.open(new, "assign", check=check))
        return network.codes.decode(codes)

    def explain(self, new: Any, *, check: bool = True, **query: Unpack[QueryOptions]) -> Explanation:
        """Explain why each new row is in its cluster.

        Beta and the sizes of the clusters are those of the rows that the segmentation was made on, so the
        explanation of a row does not depend on the other rows in ``new``.

        Parameters
        ----------
        new, check : as for `assign`
        query : the options of `whycluster.Query`
        """
        query.setdefault("background", self.population.measured)
        return self.network.explain(self.open(new, "explain", check=check), **query)

    def to_sql(
        self, table: str = "customers", dialect: str = "duckdb", columns: Sequence[Hashable] | None = None
    ) -> str:
        """Return a SELECT that assigns each row of a database table as `assign` does.

        The query scales, encodes and fills values as the model does. It returns the columns of the table and
        three more: ``cluster``, ``competitor`` (the strongest one) and ``evidence``. If the model has a
        column of such a name, an underscore is appended. All three are NULL in rows that `assign` would
        refuse, such as rows with missing values that the model cannot fill.

        Parameters
        ----------
        table : the name of the table; a dot separates schema and table. The columns must have the names of
            `feature_names`; the table may have more columns.
        dialect : "duckdb", "postgres" or "spark"
        columns : the columns of the table to return, such as ``["customer_id"]``; by default all of them

        Examples
        --------
        >>> import pandas as pd
        >>> import whycluster as wc
        >>> seg = wc.segment(pd.DataFrame({"age": [20, 21, 60, 61]}), 2, measure_quality=False)
        >>> 'FROM "customers"' in seg.to_sql("customers", columns=["id"])
        True
        """
        known = [Column(column.name, column.kind) for column in self.population.columns]
        return select(self.network, known, table, dialect, columns)

    def select(self, new: Any, where: str, name: str = "new") -> Any:
        """Return the columns of the segmentation, in its order; raise an error if one is missing.

        Parameters
        ----------
        new : the rows; a frame is returned as a narwhals frame
        where, name : the function that was called and its parameter, for messages
        """
        frame, names = as_frame(new, where, name), self.feature_names
        if frame is None:
            return new
        return frame if frame.columns == names else _select(frame, names, where, name)

    def open(self, new: Any, where: str, *, name: str = "new", check: bool = True) -> Table:
        """Return new rows as a table of the network, with the columns of the segmentation, in its order.

        Parameters
        ----------
        new, check : as for `assign`
        where, name : the function that was called and its parameter, for messages
        """
        table = self.network.open(self.select(new, where, name), where, name=name)
        if check:
            check_rows(self.population, table, where)
        return table


def _select(frame: nw.DataFrame[Any], names: list[Hashable], where: str, name: str) -> nw.DataFrame[Any]:
    """Return the given columns of a frame; raise an error if one is missing."""
    given = frame.columns
    if not set(names) <= set(given):
        raise InvalidInputError(
            f"{where}: {name} must have the {len(names)} columns that the segmentation was made on; "
            f"{name_differences(given, names)}. Select or rename its columns first."
        )
    return frame.select([nw.col(column) for column in names])  # type: ignore[arg-type]  # any hashable


def _network_of(model: Any, X: Any) -> Network:
    """Return the network of a model, or that of a surrogate fitted to labels."""
    found = find_network(model, None, None, X, where="Segmentation")
    if isinstance(found, OnlyLabels):
        return fit_surrogate(found.labels, X)[0]
    if not found.explains_columns or found.is_deep:
        raise UnsupportedModelError(
            "Segmentation: the model must take rows of a table; documents and the inputs of encoders have no "
            "columns to check, and an encoder is code, which a file cannot contain. Make the segmentation of "
            "the model of features instead: wc.Segmentation.of(head, features). For a pipeline that takes "
            "documents, these are pipeline[1:] and pipeline[:1].transform(X), and documents are explained "
            "with wc.explain(segmentation.network, X, encoder=pipeline[0])."
        )
    check_rows_alone(found, "Segmentation")
    return found
