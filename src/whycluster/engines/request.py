"""The request to answer for every part: a model, a query, and what to do with invalid rows.

`ExplainRequest` measures and explains the rows of one part, whatever library holds them. Engines
(`whycluster.engines.engine`) provide the parts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from whycluster.core import attribution, outputs
from whycluster.core.arrays import Codes
from whycluster.core.attribution import BETA, Attribution, CodedQuery, Population
from whycluster.core.errors import InvalidInputError, UnsupportedModelError
from whycluster.data.frame_table import FrameTable
from whycluster.data.opening import column_names, open_table
from whycluster.data.settings import setting
from whycluster.data.table import Table
from whycluster.data.validation import check_choice
from whycluster.engines.results import SKIP, ArrowFormat, PartResult
from whycluster.explanations.explanation import Explanation
from whycluster.models.adapters.incomplete import OnlyLabels
from whycluster.models.adapters.registry import find_network
from whycluster.models.network import Network, Query, check_rows_alone

INVALID = ("error", "skip")
FIDELITY_EXPRESSION = "wc.neuralize(model).fidelity"
"""Where users find the fidelity of a surrogate if the results do not include it."""
_ATTEMPTS = 4  # rows to try when a row without flaws is needed

Result = TypeVar("Result")


@dataclass(frozen=True)
class ExplainRequest:
    """A request to explain rows, shared by all parts. Create it with `of`; it can be sent to other processes.

    Attributes
    ----------
    network : the network of the model
    where : the name of the public function, for messages
    query : the query, without its background
    coded : the query, with clusters as codes
    invalid : what to do with rows that have missing or infinite values: "error" or "skip"; "refuse" raises an
        error that does not mention "skip", for engines without that option
    feature_names : (d,) the names of the columns, for parts without column names
    name : the name of the data in messages, such as "X"
    population : the quantities that depend on all rows, once they have been measured
    """

    network: Network
    where: str
    query: Query
    coded: CodedQuery
    invalid: str = "refuse"
    feature_names: Sequence[Hashable] | None = None
    name: str = "X"
    population: Population | None = None
    verdicts: dict[tuple[int, int], bool] = field(default_factory=dict, compare=False, repr=False)
    """For each (column, kind), whether rows with this kind of flaw in this column can be explained."""

    @classmethod
    def of(
        cls,
        model: Any,
        where: str,
        query: Query,
        *,
        feature_names: Sequence[Hashable] | None = None,
        metric: str | None = None,
        invalid: str = "refuse",
        name: str = "X",
        fidelity_expression: str | None = "exp.fidelity",
    ) -> ExplainRequest:
        """Read the model and check the query before any row is read.

        Warn if the model is a surrogate with low fidelity. The warning refers to ``fidelity_expression`` for
        details; pass None for no warning. The query's background is not used here; see `measure_background`.
        """
        if invalid != "refuse":
            check_choice(invalid, INVALID, where, "invalid")
        check_for_all_rows(query, where)
        network = read_network(model, where, metric)
        coded = query.coded(network.labels, network.energy, where, network.default_rule)
        if network.fidelity is not None and fidelity_expression is not None:
            network.fidelity.warn_if_low(where, fidelity_expression)
        return cls(network, where, replace(query, background=None), coded, invalid, feature_names, name)

    def measure_background(self, background: Any, names: Sequence[Hashable] | None = None) -> ExplainRequest:
        """Measure ``background`` if the request needs a population; return the request with the result.

        The columns of ``background`` are matched by name with the columns of the model or, if the model has
        no column names, with ``names``.
        """
        if isinstance(background, Population):
            return self.with_population(background)
        if not self.needs_population:
            return self
        known = self.network.feature_names or names
        table = self.network.open(background, self.where, name="background", model_names=known)
        return self.with_population(attribution.population(self.network.energy, table))

    @property
    def labels(self) -> NDArray[Any]:
        """(K,) the labels of the clusters, by code."""
        return self.network.labels

    @property
    def needs_population(self) -> bool:
        """Whether all rows have to be measured before any row can be explained."""
        return self.population is None and bool(self.to_measure)

    @property
    def to_measure(self) -> list[str]:
        """The names of the quantities that depend on all rows, even if they have been measured already."""
        energy = self.network.energy
        return self.coded.to_measure(energy) + ["the cluster means"] * energy.needs_means

    @property
    def only_needs_beta(self) -> bool:
        """Whether measuring would be unnecessary if beta were given."""
        return self.to_measure == [BETA]

    @property
    def completed(self) -> CodedQuery:
        """The query with beta and the prior, unless they have not been measured yet."""
        if self.population is None:
            return (
                self.coded
                if self.needs_population
                else attribution.completed(self.coded, self.network.energy)
            )
        return attribution.measured(self.coded, self.network.energy, self.population)

    @property
    def beta(self) -> float | None:
        """The stiffness in use, or None if it has not been measured yet or is not needed."""
        return self.completed.known_beta(self.network.energy)

    def with_population(self, population: Population | None) -> ExplainRequest:
        """Return the request with a population measured on all rows; None leaves the request unchanged."""
        if population is None:
            return self
        if not population.sizes.any():
            raise InvalidInputError(
                f"{self.where}: there must be at least one row that can be explained; found none."
            )
        return replace(self, population=population)

    def prepared(self) -> ExplainRequest:
        """Return the request with the population built into its query and energy.

        Without this call, the work is repeated for every part. An `Explanation` of some rows needs a prepared
        request, because its methods must use the quantities measured on all rows.
        """
        population, network = self.population, self.network
        if population is None:
            return self
        coded = self.completed
        if network.energy.needs_means:
            network = copy(network)
            network.energy = network.energy.with_means(population.means, population.sizes)
        return replace(self, network=network, coded=coded)

    def take(self, rows: slice | Codes) -> ExplainRequest:
        """Return the request for some rows; it changes only if the query specifies a cluster for each row."""
        cluster = self.coded.cluster
        if cluster is None or cluster.ndim == 0:
            return self
        return replace(self, coded=replace(self.coded, cluster=cluster[rows]))

    def measure(self, part: Any, first_row: int = 0) -> Population:
        """Measure the valid rows of a part; populations of several parts can be added.

        ``first_row`` is the number of the first row of the part, for messages.
        """
        energy = self.network.energy
        found = self.apply(part, partial(attribution.population, energy), first_row)
        return Population.none(energy) if found is None else found

    def apply(self, part: Any, work: Callable[[Table], Result], first_row: int = 0) -> Result | None:
        """Apply ``work`` to the valid rows of a part; return None if there are no such rows."""
        return self._apply(part, work, first_row)[0]

    def population_from_json(self, stored: Any) -> Population | None:
        """Return the population that `population_to_json` wrote for this model, or None if it is damaged."""
        like = Population.none(self.network.energy)
        try:
            evidence = float(stored["evidence"])
            sizes = np.array(stored["sizes"], dtype=np.intp).reshape(like.sizes.shape)
            means = np.array(stored["means"], dtype=np.float64).reshape(like.means.shape)
            intact = 0 <= evidence < math.inf and np.isfinite(means).all() and (sizes >= 0).all()
        except (TypeError, ValueError, KeyError, OverflowError):
            intact = False
        return Population(evidence, sizes, means) if intact else None

    def explain(self, part: Any, first_row: int = 0) -> PartResult:
        """Explain the rows of a part: any table that `whycluster.explain` accepts, even one without rows."""
        found, valid = self._apply(part, self._explain, first_row)
        if found is None:
            return PartResult.empty(self.network.n_features, self._names(part), valid)
        return found if valid is None else found.expanded(valid)

    def explanation(self, result: PartResult, coded: CodedQuery) -> Explanation:
        """Return the result of a part as an `Explanation`; all rows must be valid.

        ``coded`` is the completed query that the result answers.
        """
        assert result.table is not None
        found = Attribution(
            result.relevance, result.cluster, result.competitor, result.evidence, coded.beta, coded.prior
        )
        claims = self.network.claims(found, self.coded, result.table)
        return Explanation(relevance=found.relevance, **claims)

    def _explain(self, table: Table) -> PartResult:
        if not self.network.explains_columns:
            raise UnsupportedModelError(
                f"{self.where}: the model must explain rows in terms of their columns; this one explains "
                "documents in terms of their words. Use wc.explain on batches of documents."
            )
        names = [str(name) for name in table.feature_names]
        found = attribution.attribute(self.network.energy, table, self.coded, self.population)
        return PartResult(
            found.cluster, found.competitor, found.evidence, found.relevance, names, None, table
        )

    def _apply(
        self, part: Any, work: Callable[[Table], Result], first_row: int
    ) -> tuple[Result | None, NDArray[np.bool_] | None]:
        """Apply ``work`` to the valid rows of a part; return its result and which rows are valid.

        The result is None if there are no valid rows. Rows are checked only if ``work`` fails; if it
        succeeds, the second value is None.
        """
        part = _as_table(part)
        if part.shape[0] == 0:
            return None, None
        try:
            return work(self._open(part).with_row_numbers(first_row)), None
        except InvalidInputError as error:
            if self.invalid == "refuse":
                raise
            try:
                raw = open_table(part, where=self.where, any_kind=True)
                valid = self._valid(raw)
            except InvalidInputError:
                raise error from None
            if valid.all():
                raise  # the error has another cause
            if self.invalid == "error":
                raise InvalidInputError(
                    f"{error} Or pass {setting(SKIP)} to get nulls for such rows."
                ) from error
        if not valid.any():
            return None, valid
        rows = np.flatnonzero(valid)
        return work(self._open(raw.take(rows).native).with_row_numbers(first_row, rows)), valid

    def _valid(self, raw: Table) -> NDArray[np.bool_]:
        """Return whether each row can be explained, (n,), independently of the other rows.

        The steps of a pipeline may accept missing values in some columns. If they accept a value in a column,
        they accept it in every row. So each kind of flaw is tried once per column, in a row without other
        flaws. Other errors are raised when the row is explained.
        """
        flaws = raw.invalid_values()
        if not self.network.takes_any_kind:  # no value may be missing
            return np.asarray((flaws == 0).all(axis=1))
        refused, clean = np.zeros((raw.n_features, flaws.max() + 1), bool), None
        for kind in range(1, flaws.max() + 1):
            for column in np.flatnonzero((flaws == kind).any(axis=0)).tolist():
                if (column, kind) not in self.verdicts:
                    clean = clean or self._clean_row(raw, flaws)
                    if clean is None:
                        return np.asarray((flaws == 0).all(axis=1))
                    value = raw.cells(int(np.argmax(flaws[:, column] == kind)))[column]
                    flawed = clean.put(np.zeros(1, np.intp), np.array([column]), [value])
                    self.verdicts[column, kind] = self._accepts(flawed.native)
                refused[column, kind] = not self.verdicts[column, kind]
        return np.asarray(~refused[np.arange(raw.n_features), flaws].any(axis=1))

    def _clean_row(self, raw: Table, flaws: NDArray[np.int8]) -> Table | None:
        """Return a row that can be explained, or None if no such row is found.

        The flaws of a row of the part are replaced with values from other rows.
        """
        cleanest = np.argsort((flaws > 0).sum(axis=1), kind="stable")
        for attempt in range(min(_ATTEMPTS, len(cleanest))):
            row = cleanest[attempt]
            sources = [(c, np.flatnonzero(flaws[:, c] == 0)) for c in np.flatnonzero(flaws[row])]
            filled = [(c, raw.cells(int(rows[attempt % len(rows)]))[c]) for c, rows in sources if len(rows)]
            columns, values = np.array([c for c, _ in filled], np.intp), [value for _, value in filled]
            one = raw.take(np.array([row]))
            one = one.put(np.zeros(len(values), np.intp), columns, values) if filled else one
            if self._accepts(one.native):
                return one
        return None

    def _accepts(self, rows: Any) -> bool:
        """Return whether these rows can be explained."""
        try:
            attribution.population(self.network.energy, self._open(rows))
        except InvalidInputError:
            return False
        return True

    def assign(self, part: Any) -> NDArray[Any]:
        """Return the labels of the rows of a part."""
        return np.asarray(self.labels[outputs.assign(self.network.energy, self._open(part))])

    def _open(self, part: Any) -> Table:
        table = self.network.open(
            part, self.where, name=self.name, whole=False, feature_names=self.feature_names
        )
        return replace(table, by_columns=True) if isinstance(table, FrameTable) else table

    def arrow_format(self, **options: Any) -> ArrowFormat:
        """Return the format of the results; the options are the attributes of `ArrowFormat`."""
        return ArrowFormat(self.where, self.labels, self.invalid == "skip", **options)

    def _names(self, part: Any) -> list[str]:
        """Return the names of the features of a part without rows."""
        found = self.network.feature_names or column_names(_as_table(part), self.where, "X")
        known = found or self.feature_names or [f"x{i}" for i in range(self.network.n_features)]
        return [str(name) for name in known]


def population_to_json(population: Population) -> dict[str, Any]:
    """Return a population as JSON values, which represent floats exactly."""
    return {
        "evidence": population.evidence,
        "sizes": population.sizes.tolist(),
        "means": population.means.tolist(),
    }


def check_for_all_rows(query: Query, where: str) -> None:
    """Raise an error if a query has a cluster for each row, since the row numbers of parts are unknown."""
    for option, clusters in (("target", query.target), ("against", query.against)):
        shape = (len(clusters),) if isinstance(clusters, (list, tuple)) else getattr(clusters, "shape", ())
        if len(shape) > 0:
            raise InvalidInputError(
                f"{where}: {setting(option)} must be one cluster for all rows; got shape {shape}. Pass one "
                "cluster at a time."
            )


def read_network(model: Any, where: str, metric: str | None) -> Network:
    """Return the network of a model; raise an error unless it explains rows in terms of their columns."""
    found = find_network(model, metric, (), where=where)
    if isinstance(found, OnlyLabels):
        network = found.network()
        if network is not None:
            return network
        raise UnsupportedModelError(
            f"{where}: model must be able to assign new rows; {found.kind} only say which cluster each row "
            "is in. Fit a surrogate to some rows, and pass the surrogate: wc.Surrogate().fit(X, labels)."
        )
    if found.is_deep:
        raise UnsupportedModelError(
            f"{where}: the model must explain rows in terms of their columns; a deep clustering is "
            "explained in terms of the inputs of its encoder. Use wc.explain on batches of inputs."
        )
    check_rows_alone(found, where)
    return found


def _as_table(part: Any) -> Any:
    """Convert record batches to tables without copying, and objects without a shape to arrays."""
    if type(part).__module__.startswith("pyarrow") and type(part).__name__ == "RecordBatch":
        import pyarrow as pa

        return pa.Table.from_batches([part])
    return part if hasattr(part, "shape") else np.asarray(part)
