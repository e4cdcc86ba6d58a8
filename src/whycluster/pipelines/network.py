"""A network behind the steps of a pipeline: rows as the user has them, relevance by their columns."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import narwhals as nw
import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from whycluster.core.arrays import Codes, Floats, evenly
from whycluster.core.energies import Energy, SquaredEnergy
from whycluster.core.energies.squared import HARMLESS_OFFSET
from whycluster.core.errors import InvalidInputError, UnsupportedModelError
from whycluster.data.arrays import is_real, is_sparse
from whycluster.data.frames import installed
from whycluster.data.missing import is_missing
from whycluster.data.mixed_table import RawTable
from whycluster.data.opening import open_table
from whycluster.data.table import Table
from whycluster.models.network import Network
from whycluster.pipelines.affine_form import NO_COLUMN, AffineForm, to_floats
from whycluster.pipelines.column_energy import ColumnsEnergy
from whycluster.pipelines.mixing import TransformedEnergy, through
from whycluster.pipelines.steps import WAY_OUT, StepError, follow

if TYPE_CHECKING:
    import torch

_SPREAD_VALUES = 1 << 19  # of some rows, of which variances are taken
_CHECKED = 64  # rows that the steps are checked on
_ROUNDING = {4: 3e-2, 8: 1e-4}  # by the bytes of a number that steps work with; what is wrong is far off
_EXTREME = 100  # powers of ten; squares of factors beyond may overflow or vanish


def network_behind(
    steps: Sequence[tuple[str, Any]], last: Network, n_columns: int, names: Sequence[Hashable] | None
) -> Network:
    """The network of a pipeline.

    Parameters
    ----------
    steps : its fitted steps but the last, with their names
    last : the network of the last one
    n_columns : how many columns it was fitted on
    names : what these are called, if it was fitted on a frame
    """
    form = follow(steps, AffineForm.of_columns(n_columns))
    check_width(form, last)
    return network_of(form, last, n_columns, names)


def network_of(form: AffineForm, last: Network, n_columns: int, names: Sequence[Hashable] | None) -> Network:
    """The network of a model behind what steps make of the columns; otherwise as `network_behind`."""
    energy = _of_columns(form, last.energy)
    if energy is None:
        form = form.settled()
        energy = _energy(form, last.energy, n_columns)
    stages = Stages(form, last, None if names is None else list(names))
    return PipelineNetwork(energy, stages)


class PipelineNetwork(Network):
    """The network of a pipeline: it takes the columns of the user, and explains rows by them.

    Parameters
    ----------
    energy : the energies of the columns
    stages : the steps, and the network of the model at the end
    """

    def __init__(self, energy: Energy, stages: Stages) -> None:
        last = stages.last
        super().__init__(energy, labels=last.labels, feature_names=stages.names, fidelity=last.fidelity)
        self.stages = stages

    takes_any_kind = True

    @property
    def is_checked(self) -> bool:
        """Whether the model at the end compares all rows with its own prediction."""
        return self.stages.last.is_checked

    @property
    def text_columns(self) -> frozenset[int]:
        """The positions of columns that an encoder among the steps knows as text."""
        return self.stages.form.text

    def open(self, X: Any, where: str, *, name: str = "X", whole: bool = True, **names: Any) -> StagedTable:  # noqa: ARG002
        """Return the user's rows with the steps that they go through."""
        names.setdefault("model_names", self.feature_names)
        raw = open_table(X, where=where, name=name, n_features=self.n_features, any_kind=True, **names)
        table = StagedTable.of(raw, self.stages)
        if self.stages.form.mixes:
            table.check_steps()
        if self.is_checked:
            table.verify()
        return table

    def to_torch(self, cluster: Any = None) -> torch.nn.Module:  # noqa: ARG002
        """Raise: the steps of a pipeline need not be layers."""
        raise UnsupportedModelError(
            "to_torch: the steps of a pipeline need not be layers. Take the network of its last step: "
            "wc.neuralize(pipeline[-1]).to_torch(), for what pipeline[:-1].transform(X) gives."
        )


def check_width(form: AffineForm, last: Network) -> None:
    """Raise unless the steps give as many features as the last one takes."""
    if form.n_outputs != last.n_features:
        raise InvalidInputError(
            f"neuralize: the steps of the pipeline are known to give {form.n_outputs} features, but its "
            f"last step was fitted on {last.n_features}. Fit the pipeline as a whole; and mark with "
            f"wc.elementwise only functions that give as many as they take."
        )


def check_not_deep(network: Network, model: Any) -> None:
    """Raise for an encoder behind other steps: its inputs are not features of an energy."""
    if network.is_deep:
        raise UnsupportedModelError(
            f"neuralize: {type(model).__name__} has its own encoder, and relevance does not go further back "
            "than the inputs of that encoder. Explain it in the output of the steps before it: "
            "wc.explain(pipeline[-1], pipeline[:-1].transform(X))."
        )


def _of_columns(form: AffineForm, energy: Energy) -> Energy | None:
    """Squares of columns that are scaled and no more are weighted squares of the columns: no step is run."""
    factors = form.factors
    if not isinstance(energy, SquaredEnergy) or factors is None or not form.is_plain:
        return None
    columns, factor = factors
    center = np.zeros(len(factor)) if form.center is None else form.center[columns]
    shift = form.linear.shift
    # What stands in columns that are not used must not matter, and far from 0 centroids would lose digits.
    far = np.abs(center * factor) + np.abs(shift) > HARMLESS_OFFSET
    if len(columns) < len(form.source) or far.any() or (np.abs(np.log10(np.abs(factor))) > _EXTREME).any():
        return None
    centroids, scale = np.empty_like(energy.prototypes), np.empty(len(columns))
    centroids[:, columns] = (energy.prototypes - shift) / factor + center
    scale[columns] = factor**2 * energy.scale
    return ColumnsEnergy(SquaredEnergy(centroids, scale), form.source, len(columns))


def _energy(form: AffineForm, energy: Energy, n_columns: int) -> Energy:
    """The energies of the atoms, split over the columns."""
    if form.matrix is not None:
        energy = through(energy, form.linear.without_offset())
    if form.below is None:
        return ColumnsEnergy(energy, form.source, n_columns)
    below = form.below
    bent = ColumnsEnergy(energy, form.source, below.n_outputs)
    assert below.matrix is not None
    return ColumnsEnergy(TransformedEnergy(bent, below.matrix), below.source, n_columns)


@dataclass(frozen=True)
class Stages:
    """The steps of a pipeline, and the network of the model at its end.

    Attributes
    ----------
    form : the columns after the steps, as an affine form
    last : the network of the last step
    names : the column names that the steps know, None if they were fitted on arrays
    """

    form: AffineForm
    last: Network
    names: list[Hashable] | None

    def to_numbers(self, values: Any, where: str) -> Floats:
        """What the steps give, as numbers: categories, where the last step takes these, by their codes."""
        if self.last.categories is None:
            return to_floats(values)
        table = open_table(values, where=where, categories=self.last.categories)
        return table.to_array()


@dataclass(frozen=True)
class StagedTable(Table):
    """Rows as the user has them, and the steps that they go through before the network sees them.

    Attributes
    ----------
    raw : the rows, for people: values, names, categories
    stages : the steps, for the network
    """

    raw: Table
    stages: Stages
    goes_through_steps = True

    @classmethod
    def of(cls, raw: Table, stages: Stages) -> StagedTable:
        """Put the steps behind a table."""
        return cls(
            raw.native,
            raw.n_rows,
            raw.n_features,
            raw.feature_names,
            raw.dtype,
            raw.where,
            raw.name,
            categories=raw.categories,
            dates=raw.dates,
            raw=raw,
            stages=stages,
        )

    def verify(self) -> None:
        """Let the network of the last step compare its model's predictions, on the outputs of the steps."""
        form, last = self.stages.form, self.stages.last
        for rows in self.slices(form.n_outputs):
            last.open(self.transformed(rows.start, rows.stop, form.run), self.where)

    def read(self, start: int, stop: int, offset: Floats | None, out: Floats) -> Floats:
        """The columns as they are."""
        return self.raw.read(start, stop, offset, out)

    def inputs(self, start: int, stop: int, offset: Floats | None, out: Floats) -> Floats:
        """What the steps make of them."""
        form = self.stages.form
        lower = 0 if form.below is None else len(form.below.source)
        upper = out[:, : out.shape[1] - lower]
        if self.is_plain:
            return self.raw.read(start, stop, offset, out)
        np.copyto(upper, self._upper(form, start, stop))
        if form.below is not None:
            np.copyto(out[:, upper.shape[1] :], self.transformed(start, stop, form.below.read_floats))
        if offset is not None:
            out -= offset
        return out

    def memory(self) -> NDArray[Any] | Sequence[NDArray[Any]] | None:
        """Return the memory of the raw rows, if no step has to be run."""
        return self.raw.memory() if self.is_plain else None

    def _upper(self, form: AffineForm, start: int, stop: int) -> Floats:
        values = self.transformed(start, stop, form.base)
        try:
            return self.stages.to_numbers(values, self.where) if form.matrix is None else to_floats(values)
        except (TypeError, ValueError) as error:
            raise InvalidInputError(
                f"{self.where}: {self.name}, {self._told(start, stop)}: the steps leave what is no number: "
                f"{error}"
            ) from error

    def transformed(self, start: int, stop: int, run: Any) -> Any:
        """What a function makes of some rows."""
        try:
            return run(self._rows(start, stop))
        except StepError as error:
            raise InvalidInputError(
                f"{self.where}: {self.name}, {self._told(start, stop)}: {error}"
            ) from error

    def _told(self, start: int, stop: int) -> str:
        return f"in rows {self.number(start)} to {self.number(stop - 1)}"

    def counted(self, first_row: int, among: Codes | None = None) -> StagedTable:
        """The same table, whose rows are counted so in messages."""
        return replace(self, raw=self.raw.counted(first_row, among), first_row=first_row, among=among)

    def check_steps(self) -> None:
        """Raise if the steps, as they are, give other features of the first rows than they are known to."""
        form, stop = self.stages.form, min(_CHECKED, self.n_rows)
        with np.errstate(all="ignore"):
            atoms = self._upper(form, 0, stop)
            if not np.isfinite(atoms).all():  # told when all rows are read
                return
            x = atoms if form.center is None else atoms - form.center
            known = (form.matrix @ x.T).T + form.linear.shift
            given = to_floats(self.transformed(0, stop, form.run))
            size = np.nan_to_num(np.abs(given).max(axis=0)), np.nan_to_num(np.abs(given).max())
            rounding = _ROUNDING[self.dtype.itemsize]
            wrong = np.abs(known - given) > rounding * size[0] + 1e-3 * rounding * size[1]
        if wrong.any():
            row, feature = np.argwhere(wrong)[0]
            raise UnsupportedModelError(
                f"{self.where}: the steps of the pipeline must give what they are known to; of row "
                f"{self.number(row)}, feature {feature} before the last step is {given[row, feature]:.6g}, "
                f"not {known[row, feature]:.6g}. Components without variance that are whitened are of "
                f"rounding only, and a step that works in place changes rows for those beside it. {WAY_OUT}"
            )

    def spread(self) -> Floats | None:
        """(d,) the variance that each column brings to what the steps give; None where it is not known."""
        form = self.stages.form
        if form.below is not None or self.stages.last.categories is not None:
            return None
        part = self.take(evenly(self.n_rows, max(2, _SPREAD_VALUES // len(form.source))))
        variance = part._upper(form, 0, part.n_rows).var(axis=0)
        if form.matrix is not None:  # what an atom brings to all outputs
            variance *= sparse.csr_array(form.matrix).power(2).sum(axis=0)
        known = form.source >= 0
        return np.bincount(form.source[known], variance[known], self.n_features).astype(np.float64)

    def _rows(self, start: int, stop: int) -> Any:
        """Some rows as the steps take them: frames if they know names, else arrays; a copy, if need be."""
        native, names = self.native, self.stages.names
        if isinstance(native, np.ndarray) or is_sparse(native):
            rows = native[start:stop].copy()
            if names is None or is_sparse(native):
                return rows
            columns = {str(name): rows[:, i] for i, name in enumerate(names)}
            return nw.from_dict(columns, backend=installed(self.where)).to_native()  # type: ignore[arg-type]
        frame = nw.from_native(native, eager_only=True)[start:stop]
        by_name = all(isinstance(name, str) for name in frame.columns)
        if names is None and by_name:  # the steps would warn of names that they do not know
            return np.array(frame.to_numpy())
        if frame.implementation.is_pandas():
            return frame.to_native().copy()
        return frame.to_native() if frame.implementation.is_polars() else frame.to_pandas()

    @property
    def is_plain(self) -> bool:
        """Whether the steps are but a linear map of numbers, which the energy has taken over."""
        form = self.stages.form
        return form.is_plain and form.below is None and not isinstance(self.raw, RawTable)

    def put(self, rows: Codes, columns: Codes, values: Sequence[Any]) -> Table:
        """A copy with other values in some cells, to go through the same steps."""
        raw = self.raw.put(rows, columns, values)
        return replace(self, raw=raw, native=raw.native)

    def _select(self, rows: Codes) -> Any:
        return self.raw._select(rows)

    def take(self, rows: Codes) -> StagedTable:
        """The table of the given rows only."""
        raw = self.raw.take(rows)
        return replace(self, raw=raw, native=raw.native, n_rows=raw.n_rows)

    @property
    def index(self) -> Sequence[Hashable] | None:
        """The names of the rows in the data before the steps."""
        return self.raw.index

    def pick(self, columns: Codes) -> NDArray[Any]:
        """The values as they are."""
        return self.raw.pick(columns)

    def to_objects(self) -> NDArray[Any]:
        """The values as they are."""
        return self.raw.to_objects()

    def first_not_finite(self) -> tuple[int, Hashable, float] | None:
        """The first value that the steps leave missing or infinite, in the column that it comes from."""
        form = self.stages.form
        for rows in self.slices(len(form.source)):
            with np.errstate(all="ignore"):
                values = self._upper(form, rows.start, rows.stop)
            bad = np.argwhere(~np.isfinite(values))
            if len(bad):
                row, atom = rows.start + int(bad[0, 0]), bad[0, 1]
                column = form.source[atom] if form.below is None else NO_COLUMN
                if column < 0:
                    return row, "made of several", float(values[tuple(bad[0])])
                self._tell_made(row, column, float(values[tuple(bad[0])]))
                return row, self.feature_names[column], float(values[tuple(bad[0])])
        return None

    def _tell_made(self, row: int, column: int, value: float) -> None:
        """Raise if it is the steps that made it, of a value that was there."""
        given = self.raw.take(np.array([row])).pick(np.array([[column]]))[0, 0]
        if is_missing(given) or (is_real(given) and np.isinf(given)):
            return
        raise InvalidInputError(
            f"{self.where}: {self.name} must have values that the steps make finite numbers of; of "
            f"row {self.number(row)}, feature {self.feature_names[column]!r}, which holds {given!s}, they "
            f"make {value}."
        )
