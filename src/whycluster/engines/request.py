"""Explaining a table that is read part by part.

Once it is known what depends on all rows (beta, and for some rules and energies the sizes and means of the
clusters), each row is explained by itself. So all engines take the same two steps, wherever the parts are:
`Asked.measure` each of them and add up what comes; then `Asked.knowing` that, `Asked.explain` each of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from whycluster.core import attribution, outputs
from whycluster.core.arrays import Codes, strongest, turned
from whycluster.core.attribution import CodedQuery, Population
from whycluster.core.errors import InvalidInputError, UnsupportedModelError
from whycluster.core.rules import DEFAULT_RULE
from whycluster.data.arrays import is_real
from whycluster.data.display import format_value
from whycluster.data.frame_table import FrameTable
from whycluster.data.frames import unique_name
from whycluster.data.labels import Labels
from whycluster.data.missing import is_missing
from whycluster.data.opening import column_names, open_table
from whycluster.data.settings import setting
from whycluster.data.table import Table
from whycluster.models.adapters.registry import OnlyLabels, find_network
from whycluster.models.network import Network, Query

INVALID = ("error", "skip")
_SKIP = 'invalid="skip"'
LAYOUTS = ("columns", "array")
_TRIED = 4  # rows of a kind

Result = TypeVar("Result")


@dataclass(frozen=True)
class PartResult:
    """The explanations of the rows of one part.

    Attributes
    ----------
    cluster, competitor : (n,) codes
    evidence : (n,)
    relevance : (n, d)
    names : (d,) of the features
    valid : (n,) which rows could be explained; None: all. Of the others codes are 0, all else NaN
    table : the rows that could, None if there is none
    """

    cluster: Codes
    competitor: Codes
    evidence: NDArray[Any]
    relevance: NDArray[Any]
    names: list[str]
    valid: NDArray[np.bool_] | None
    table: Table | None

    @property
    def n_invalid(self) -> int:
        """How many rows could not be explained."""
        return 0 if self.valid is None else int((~self.valid).sum())


@dataclass(frozen=True)
class ExplainRequest:
    """What is asked of every part; made by `of`. It can be sent to other processes.

    Attributes
    ----------
    network : what the model became
    where : the function that was called, for messages
    options : what `explain` was given: target, against, beta, rule, threshold
    invalid : "error", or "skip" for rows that are not explained if a value is missing or not finite; "refuse"
        where that cannot be asked for
    feature_names : (d,) names for the columns of parts that have none
    population : what was measured on all rows, if anything was
    """

    network: Network
    where: str
    options: dict[str, Any]
    invalid: str = "refuse"
    feature_names: Sequence[Hashable] | None = None
    population: Population | None = None
    verdicts: dict[tuple[int, int], bool] = field(default_factory=dict, compare=False, repr=False)
    """Of columns and kinds of flaws, whether rows that have these can be explained, as far as was tried."""

    @classmethod
    def of(
        cls,
        model: Any,
        where: str,
        *,
        target: Any = None,
        against: Any = None,
        beta: float | str = "auto",
        rule: str = DEFAULT_RULE,
        threshold: float | None = None,
        background: Any = None,
        feature_names: Sequence[Hashable] | None = None,
        metric: str | None = None,
        invalid: str = "refuse",
    ) -> ExplainRequest:
        """Look into the model and check what is asked of it, before any row is read."""
        if invalid not in (*INVALID, "refuse"):
            raise InvalidInputError(f"{where}: invalid must be one of {INVALID}; got {invalid!r}.")
        network = read_network(model, where, metric)
        Query(target, against, beta, rule, threshold).check(network.energy, where)
        codes = {
            name: _one_cluster(network, label, name, where)
            for name, label in (("target", target), ("against", against))
        }
        if codes["target"] is not None and codes["target"] == codes["against"]:
            raise InvalidInputError(
                f"{where}: against must be another cluster than target; both are {target!r}."
            )
        if network.fidelity is not None:
            network.fidelity.warn_if_low()
        options = {"target": target, "against": against, "beta": beta, "rule": rule, "threshold": threshold}
        request = cls(network, where, options, invalid, feature_names)
        return request if background is None else request.measured_on(background)

    def measured_on(self, background: Any, names: Sequence[Hashable] | None = None) -> ExplainRequest:
        """The same question, with what it needs to know measured on these rows.

        ``names`` are those of the columns that are explained, which the rows are matched with if the model
        knows none.
        """
        if not self.needs_population:
            return self
        known = self.network.feature_names or names
        table = self.network.open(background, self.where, name="background", model_names=known)
        return self.knowing(attribution.population(self.network.energy, table))

    @property
    def coded(self) -> CodedQuery:
        """The query, with clusters as codes."""
        return Query(**self.options).coded(self.network, self.where)

    @property
    def labels(self) -> NDArray[Any]:
        """(K,) what the codes stand for."""
        return self.network.labels

    @property
    def needs_population(self) -> bool:
        """Whether all parts have to be measured before one can be explained."""
        asks = self.coded.needs_population or self.network.energy.needs_means
        return asks and self.population is None

    @property
    def only_needs_beta(self) -> bool:
        """Whether a given beta would do in place of what is measured."""
        given = replace(self, options={**self.options, "beta": 1.0}, population=None)
        return not given.needs_population

    @property
    def beta(self) -> float | None:
        """As it is used; None if it is not known yet, or not needed."""
        query = self.coded
        if self.population is None:
            return query.beta
        return attribution.measured(query, self.network.energy, self.population).beta

    def knowing(self, population: Population) -> ExplainRequest:
        """The same question, with what was measured on all rows."""
        if population.n_rows == 0:
            raise InvalidInputError(f"{self.where}: there must be at least one row that can be explained.")
        return replace(self, population=population)

    def measure(self, part: Any, first_row: int = 0) -> Population:
        """How the rows of a part stand; these add up. Nothing has to be known for it.

        ``first_row`` is what its first row is counted as in messages.
        """
        energy = self.network.energy
        found, _ = self._of_valid(part, lambda table: attribution.population(energy, table), first_row)
        return Population.none(energy) if found is None else found

    def read_population(self, told: Any) -> Population | None:
        """What `population_to_json` was given, of the same model; None if it is not such."""
        like = Population.none(self.network.energy)
        try:
            evidence = float(told["evidence"])
            sizes = np.array(told["sizes"], dtype=np.intp).reshape(like.sizes.shape)
            means = np.array(told["means"], dtype=np.float64).reshape(like.means.shape)
            whole = 0 <= evidence < math.inf and np.isfinite(means).all() and (sizes >= 0).all()
        except (TypeError, ValueError, KeyError, OverflowError):
            whole = False
        return Population(evidence, sizes, means) if whole else None

    def explain(self, part: Any, first_row: int = 0) -> PartResult:
        """Explain the rows of a part: anything that `whycluster.explain` takes, also of no rows."""
        found, valid = self._of_valid(part, self._explain, first_row)
        if found is None:
            n, d = (0 if valid is None else len(valid)), self.network.n_features
            empty = np.zeros(n, np.intp)
            names = self._names(part)
            return PartResult(empty, empty, np.full(n, np.nan), np.full((n, d), np.nan), names, valid, None)
        return found if valid is None else _spread(found, valid)

    def _explain(self, table: Table) -> PartResult:
        if not self.network.explains_columns:
            raise UnsupportedModelError(
                f"{self.where}: rows must be explained by columns; this model explains documents, by their "
                "words. Use wc.explain for some of them at a time."
            )
        found = attribution.attribute(self.network.energy, table, self.coded, self.population)
        names = [str(name) for name in table.feature_names]
        return PartResult(
            found.cluster, found.competitor, found.evidence, found.relevance, names, None, table
        )

    def _of_valid(
        self, part: Any, work: Callable[[Table], Result], first_row: int
    ) -> tuple[Result | None, NDArray[np.bool_] | None]:
        """What the work gives of the rows of a part, None if there are none; and which of them are valid.

        That is looked for only if it does not go without: None, if all are.
        """
        part = _as_table(part)
        if part.shape[0] == 0:
            return None, None
        try:
            return work(self._open(part).counted(first_row)), None
        except InvalidInputError as error:
            if self.invalid == "refuse":
                raise
            try:
                raw = open_table(part, where=self.where, any_kind=True)
                valid = self._valid(raw)
            except InvalidInputError:
                raise error from None
            if valid.all():
                raise  # for another reason
            if self.invalid == "error":
                raise InvalidInputError(
                    f"{error} Or give {setting(_SKIP)}, for nulls in their place."
                ) from error
        if not valid.any():
            return None, valid
        rows = np.flatnonzero(valid)
        return work(self._open(raw.take(rows).native).counted(first_row, rows)), valid

    def _valid(self, raw: Table) -> NDArray[np.bool_]:
        """(n,) which rows can be explained, each by itself, whatever stands beside it.

        The steps of a pipeline may take values that are missing, in some columns. What they take in a column
        they take in any row: each is tried once, in a row that is sound otherwise. That a row has another
        fault is told when it is explained.
        """
        flaws = raw.flaws()
        if not self.network.takes_any_kind:  # nothing may be missing
            return np.asarray((flaws == 0).all(axis=1))
        refused, sound = np.zeros((raw.n_features, flaws.max() + 1), bool), None
        for kind in range(1, flaws.max() + 1):
            for column in np.flatnonzero((flaws == kind).any(axis=0)).tolist():
                if (column, kind) not in self.verdicts:
                    sound = sound or self._sound(raw, flaws)
                    if sound is None:
                        return np.asarray((flaws == 0).all(axis=1))
                    value = raw.cells(int(np.argmax(flaws[:, column] == kind)))[column]
                    tried = sound.put(np.zeros(1, np.intp), np.array([column]), [value])
                    self.verdicts[column, kind] = self._takes(tried.native)
                refused[column, kind] = not self.verdicts[column, kind]
        return np.asarray(~refused[np.arange(raw.n_features), flaws].any(axis=1))

    def _sound(self, raw: Table, flaws: NDArray[np.int8]) -> Table | None:
        """A row that can be explained: one of the part, with what it misses taken from others."""
        cleanest = np.argsort((flaws > 0).sum(axis=1), kind="stable")
        for attempt in range(min(_TRIED, len(cleanest))):
            row = cleanest[attempt]
            there = [(c, np.flatnonzero(flaws[:, c] == 0)) for c in np.flatnonzero(flaws[row])]
            filled = [(c, raw.cells(int(rows[attempt % len(rows)]))[c]) for c, rows in there if len(rows)]
            columns, values = np.array([c for c, _ in filled], np.intp), [value for _, value in filled]
            one = raw.take(np.array([row]))
            one = one.put(np.zeros(len(values), np.intp), columns, values) if filled else one
            if self._takes(one.native):
                return one
        return None

    def _takes(self, rows: Any) -> bool:
        """Whether rows can be explained."""
        try:
            attribution.population(self.network.energy, self._open(rows))
        except InvalidInputError:
            return False
        return True

    def assign(self, part: Any) -> NDArray[Any]:
        """The labels of the rows of a part."""
        return np.asarray(self.labels[outputs.assign(self.network.energy, self._open(part))])

    def _open(self, part: Any) -> Table:
        table = self.network.open(part, self.where, whole=False, feature_names=self.feature_names)
        return replace(table, by_columns=True) if isinstance(table, FrameTable) else table

    def to_arrow(
        self,
        answer: PartResult,
        *,
        layout: str = "columns",
        top: int | None = None,
        dtype: Any = None,
        value_dtype: Any = None,
        as_text: bool | None = None,
        taken: Sequence[str] = (),
    ) -> Any:
        """A pyarrow table: cluster, evidence, competitor, then the relevance; null where a row is not valid.

        Parameters
        ----------
        answer : what `explain` gave
        layout : "columns", one for each feature, or "array", one column of lists
        top : instead, of so many features, the strongest first: feature_1, relevance_1, value_1, ...
        dtype : of the numbers; by default that of the answer
        value_dtype : of the values of the strongest features; by default the same
        as_text : whether the values of the strongest features are text; by default if one of them is
        taken : names of columns that stand beside these; ours get an underscore behind theirs
        """
        import pyarrow as pa

        dtype = np.dtype(answer.relevance.dtype if dtype is None else dtype)
        self._check_fits(answer, dtype)
        off = None if answer.valid is None else ~answer.valid
        names = answer.names
        apart: list[str] = []
        for name in names:  # one that stands beside them too has another name
            apart.append(unique_name(name, [*taken, *names, *apart]) if name in taken else name)
        others = [*taken, *(apart if top is None and layout == "columns" else [])]
        columns: dict[str, Any] = {}

        def add(name: str, values: Any) -> None:
            columns[unique_name(name, [*columns, *others])] = values

        labels = pa.array(_plain(self.labels))
        add("cluster", _taken(labels, answer.cluster, off))
        add("evidence", pa.array(answer.evidence.astype(dtype, copy=False), mask=off))
        add("competitor", _taken(labels, answer.competitor, off))
        if top is not None:
            values = dtype if value_dtype is None else np.dtype(value_dtype)
            for what, column in _strongest(answer, top, dtype, values, as_text):
                add(what, column)
        elif layout == "array":
            add("relevance", _lists(answer.relevance, dtype, off))
        else:
            for name, values in zip(apart, turned(answer.relevance, dtype), strict=True):
                columns[name] = pa.array(values, mask=off)
        return pa.table(columns)

    def _check_fits(self, answer: PartResult, dtype: np.dtype[Any]) -> None:
        """Raise for a row whose numbers are too large for the results.

        It is not skipped: what is measured on all rows, such as beta, is measured on it too.
        """
        if answer.relevance.itemsize <= dtype.itemsize:
            return
        largest = np.finfo(dtype).max
        both = (answer.relevance, answer.evidence[:, None])
        if all(np.nanmax(np.abs(values), initial=0.0) <= largest for values in both):
            return
        assert answer.table is not None
        row = int(np.argmax((np.abs(np.hstack(both)) > largest).any(axis=1)))
        feature = int(np.argmax(np.abs(answer.relevance[row])))
        not_skipped = f"{setting(_SKIP)} is for what is missing or infinite. " * (self.invalid == "skip")
        raise InvalidInputError(
            f"{self.where}: results must fit into {dtype}, which goes up to {largest:.3g}; row "
            f"{answer.table.first_row + row}, feature {answer.names[feature]!r} has a relevance of "
            f"{answer.relevance[row, feature]:.3g}, of an evidence of {answer.evidence[row]:.3g}. "
            f"{not_skipped}Drop such rows, or rescale the data and fit "
            "the model again."
        )

    def _names(self, part: Any) -> list[str]:
        """Of the features of a part without rows."""
        found = self.network.feature_names or column_names(_as_table(part), self.where, "X")
        known = found or self.feature_names or [f"x{i}" for i in range(self.network.n_features)]
        return [str(name) for name in known]


def population_to_json(population: Population) -> dict[str, Any]:
    """What was measured, as JSON can hold it, which keeps every digit of a float."""
    return {
        "evidence": population.evidence,
        "sizes": population.sizes.tolist(),
        "means": population.means.tolist(),
    }


def _plain(labels: NDArray[Any]) -> NDArray[Any]:
    """Labels as a column can hold them: objects as text, whole numbers in 32 bits where they fit."""
    if labels.dtype == object:
        return np.array([str(label) for label in labels.tolist()])
    if labels.dtype.kind in "iu" and np.array_equal(labels, labels.astype(np.int32)):
        return labels.astype(np.int32)
    return labels


def _taken(names: Any, codes: Codes, off: NDArray[np.bool_] | None) -> Any:
    """The names of codes, as a column; null where a row is off."""
    import pyarrow as pa

    return names.take(pa.array(codes, mask=off))


def _one_cluster(network: Network, label: Any, name: str, where: str) -> int | None:
    """The code of a cluster that is asked about in all rows."""
    if label is None:
        return None
    code = Labels(network.labels).encode(label, where, name)
    if code.shape != ():
        raise InvalidInputError(
            f"{where}: {name} must be one cluster for all rows; got {len(code)}. Ask for one at a time."
        )
    return int(code)


def read_network(model: Any, where: str, metric: str | None) -> Network:
    """The network of a model that explains rows by their columns; an error for any other."""
    found = find_network(model, metric, ())
    if isinstance(found, OnlyLabels):
        raise UnsupportedModelError(
            f"{where}: {found.kind} say which cluster each row is in, but not why another row would be, so "
            "that parts need a model. Fit a surrogate to some rows, and give that: "
            "wc.Surrogate().fit(X, labels)."
        )
    if found.is_deep:
        raise UnsupportedModelError(
            f"{where}: rows must be explained by columns; a deep clustering explains what its encoder takes. "
            "Use wc.explain for some of it at a time."
        )
    return found


def _as_table(part: Any) -> Any:
    """A batch of Arrow as a table of the same memory; all else as it is."""
    if type(part).__module__.startswith("pyarrow") and type(part).__name__ == "RecordBatch":
        import pyarrow as pa

        return pa.Table.from_batches([part])
    return part if hasattr(part, "shape") else np.asarray(part)


def _spread(found: PartResult, valid: NDArray[np.bool_]) -> PartResult:
    """The answer for all rows of a part, of one for those that are valid."""

    def at_valid(values: NDArray[Any], fill: float) -> NDArray[Any]:
        spread = np.full((len(valid), *values.shape[1:]), fill, values.dtype)
        spread[valid] = values
        return spread

    return PartResult(
        at_valid(found.cluster, 0),
        at_valid(found.competitor, 0),
        at_valid(found.evidence, np.nan),
        at_valid(found.relevance, np.nan),
        found.names,
        valid,
        found.table,
    )


def _lists(relevance: NDArray[Any], dtype: Any, off: NDArray[np.bool_] | None) -> Any:
    """(n, d) numbers as a column of lists."""
    import pyarrow as pa

    n, d = relevance.shape
    values = pa.array(np.ascontiguousarray(relevance, dtype).reshape(-1))
    starts = pa.array(np.arange(n + 1, dtype=np.int32) * d)
    mask = None if off is None else pa.array(off)
    return pa.ListArray.from_arrays(starts, values, mask=mask)


def _strongest(
    answer: PartResult, top: int, dtype: Any, value_dtype: Any, as_text: bool | None
) -> list[tuple[str, Any]]:
    """The columns of the strongest features: names, relevance and values."""
    import pyarrow as pa

    off = None if answer.valid is None else ~answer.valid
    order = strongest(answer.relevance if off is None else np.nan_to_num(answer.relevance), top)
    relevance = np.take_along_axis(answer.relevance, order, axis=1).astype(dtype, copy=False)
    value, called = _values(answer, order, value_dtype, as_text), pa.array(answer.names)
    kind = pa.string() if value.dtype == object else None
    columns: list[tuple[str, Any]] = []
    for rank in range(order.shape[1]):
        columns += [
            (f"feature_{rank + 1}", _taken(called, order[:, rank], off)),
            (f"relevance_{rank + 1}", pa.array(np.ascontiguousarray(relevance[:, rank]), mask=off)),
            (f"value_{rank + 1}", pa.array(np.ascontiguousarray(value[:, rank]), kind, mask=off)),
        ]
    return columns


def _written(value: Any) -> str:
    """With all digits, where people are shown a few."""
    if type(value) is str:  # as most are, or floats: there are millions of them
        return value
    if type(value) is float and value == value:
        return repr(value)
    return repr(float(value)) if is_real(value) and not is_missing(value) else format_value(value)


def _values(answer: PartResult, order: Codes, dtype: Any, as_text: bool | None) -> NDArray[Any]:
    """What the rows have in these columns, (n, k), as numbers or, in objects, as text."""
    if answer.table is None:
        return np.full(order.shape, "" if as_text else np.nan, object if as_text else dtype)
    picked = answer.table.pick(order if answer.valid is None else order[answer.valid])
    if as_text or (as_text is None and picked.dtype == object):
        texts = [_written(value) for value in picked.ravel().tolist()]
        picked = np.array(texts, dtype=object).reshape(picked.shape)
    else:
        picked = picked.astype(dtype, copy=False)
    if answer.valid is None:
        return picked
    value = np.full(order.shape, "" if picked.dtype == object else 0, picked.dtype)
    value[answer.valid] = picked
    return value
