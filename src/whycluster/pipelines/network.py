"""The network of a pipeline; it takes the user's rows and assigns relevance to their columns."""

from __future__ import annotations

import importlib.util
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import narwhals as nw
import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from whycluster.core.arrays import Codes, Floats, row_by_row
from whycluster.core.energies import Energy, SquaredEnergy
from whycluster.core.energies.squared import HARMLESS_OFFSET
from whycluster.core.errors import InvalidInputError, UnsupportedModelError
from whycluster.data.arrays import evenly_spaced, is_real
from whycluster.data.frames import installed
from whycluster.data.missing import is_missing
from whycluster.data.mixed_table import RawTable
from whycluster.data.opening import open_table
from whycluster.data.sparse_table import SparseTable
from whycluster.data.table import Table
from whycluster.models.network import Network
from whycluster.models.scaling import Scaling, no_centroids
from whycluster.pipelines.affine_form import NO_COLUMN, AffineForm, to_floats
from whycluster.pipelines.column_energy import ColumnsEnergy
from whycluster.pipelines.mixing import TransformedEnergy, through
from whycluster.pipelines.steps import (
    ALTERNATIVE,
    READS_NAMES_OF_POLARS,
    StepError,
    combines_columns,
    follow,
)

if TYPE_CHECKING:
    import torch
    from typing_extensions import Unpack

    from whycluster.data.frame_table import ColumnNames

_SPREAD_VALUES = 1 << 19  # number of values used to estimate variances
_CHECKED = 64  # number of rows used to check the steps
_ROUNDING = {4: 3e-2, 8: 1e-4}  # tolerance by bytes per number; real errors are much larger
_EXTREME = 100  # powers of ten; the squares of larger factors may overflow or underflow


def network_behind(
    steps: Sequence[tuple[str, Any]], last: Network, n_columns: int, names: Sequence[Hashable] | None
) -> Network:
    """Return the network of a pipeline.

    Parameters
    ----------
    steps : its fitted steps except for the last one, with their names
    last : the network of the last step
    n_columns : the number of columns that the pipeline was fitted on
    names : the names of these columns, if the pipeline was fitted on a frame
    """
    form = follow(steps, AffineForm.of_columns(n_columns))
    check_width(form, last)
    return network_of(form, last, n_columns, names, steps)


def network_of(
    form: AffineForm,
    last: Network,
    n_columns: int,
    names: Sequence[Hashable] | None,
    steps: Sequence[tuple[str, Any]] | None = None,
) -> Network:
    """Return the network of a model that follows steps given as a form; see `network_behind`."""
    energy = _of_columns(form, last.energy)
    if energy is None:
        form = form.simplified()
        energy = _energy(form, last.energy, n_columns)
    fitted = None if steps is None else tuple(steps)
    stages = Stages(form, last, None if names is None else list(names), fitted)
    return PipelineNetwork(energy, stages)


class PipelineNetwork(Network):
    """The network of a pipeline; it takes the user's columns and explains rows in terms of these columns.

    Parameters
    ----------
    energy : the energies of the columns
    stages : the steps and the network of the final model
    """

    def __init__(self, energy: Energy, stages: Stages) -> None:
        last = stages.last
        super().__init__(energy, feature_names=stages.names, fidelity=last.fidelity, agreement=last.agreement)
        self.stages, self.labels, self.is_checked = stages, last.labels, last.is_checked

    takes_any_kind = True

    def without_noise(self) -> Network:
        """Return the network of the clusters alone, which assigns noise to the nearest cluster."""
        stages = self.stages
        return network_of(stages.form, stages.last.without_noise(), self.n_features, stages.names)

    @property
    def text_columns(self) -> frozenset[int]:
        """The positions of the columns that an encoder in the pipeline treats as text."""
        return self.stages.form.text

    def open(
        self, X: Any, where: str, *, name: str = "X", whole: bool = True, **columns: Unpack[ColumnNames]
    ) -> StagedTable:
        """Return the user's rows with the steps that they go through."""
        del whole  # ``whole`` matters only for tables of known categories
        columns.setdefault("model_names", self.feature_names)
        n_features = self.energy.n_features
        raw = open_table(X, where=where, name=name, n_features=n_features, any_kind=True, **columns)
        if isinstance(raw, RawTable):
            raw = raw.with_dates(self.stages.form.days)
        table = StagedTable.of(raw, self.stages)
        if self.stages.form.mixes:
            table.check_steps()
        if self.is_checked:
            table.verify()
        return table

    def to_torch(self, cluster: Any = None) -> torch.nn.Module:  # noqa: ARG002  # the signature of all networks
        """Raise an error, since the steps of a pipeline cannot be converted to torch layers."""
        raise UnsupportedModelError(
            "to_torch: the steps of a pipeline cannot be converted to torch layers. Convert only its last "
            "step with wc.neuralize(pipeline[-1]).to_torch(), and apply the result to "
            "pipeline[:-1].transform(X)."
        )

    def scaled_centroids(self) -> tuple[SquaredEnergy, Scaling | None]:
        """Return the centroids in the units of the columns, or in those of the features, and the scalers."""
        last, form, energy = self.stages.last, self.stages.form, self.energy
        if type(last.energy) is not SquaredEnergy:
            return last.scaled_centroids()
        if form.is_plain and isinstance(energy, ColumnsEnergy) and type(energy.energy) is SquaredEnergy:
            return energy.energy, None  # the scalers are part of the energy
        steps = self.stages.steps
        form = form if steps is None else follow(steps, AffineForm.of_columns(self.n_features))
        if form.factors is None or not form.is_plain:
            names = "" if steps is None else f" ({', '.join(type(step).__name__ for _, step in steps)})"
            raise no_centroids(f"the steps of the pipeline{names}")
        columns, factor = form.factors
        center = np.zeros(len(factor)) if form.center is None else form.center[columns]
        return last.energy, Scaling(columns, factor, center, form.linear.shift, self.n_features)


def check_width(form: AffineForm, last: Network) -> None:
    """Raise an error unless the steps return as many features as the last step takes."""
    if form.n_outputs != last.energy.n_features:
        raise InvalidInputError(
            f"neuralize: the steps of the pipeline return {form.n_outputs} features, but its last step was "
            f"fitted on {last.n_features}. Fit the pipeline as a whole, and mark with wc.elementwise only "
            f"functions that keep the number of features."
        )


def check_not_deep(network: Network, model: Any) -> None:
    """Raise an error if a deep model follows other steps, since its inputs are not features of an energy."""
    if network.is_deep:
        raise UnsupportedModelError(
            f"neuralize: {type(model).__name__} has its own encoder, and relevance cannot be propagated "
            "beyond the inputs of that encoder. Explain the model in terms of the output of the steps "
            "before it: wc.explain(pipeline[-1], pipeline[:-1].transform(X))."
        )
    if not network.rows_alone:
        raise UnsupportedModelError(
            f"neuralize: {type(model).__name__} must not follow other steps of a pipeline, since the state "
            "of a row also depends on the rows before and after it. Explain the model in terms of the output "
            "of the steps before it: wc.explain(pipeline[-1], pipeline[:-1].transform(X))."
        )


def _of_columns(form: AffineForm, energy: Energy) -> Energy | None:
    """If the steps only scale columns, return a weighted squared energy, so that no step has to run."""
    factors = form.factors
    if not isinstance(energy, SquaredEnergy) or factors is None or not form.is_plain:
        return None
    columns, factor = factors
    center = np.zeros(len(factor)) if form.center is None else form.center[columns]
    shift = form.linear.shift
    # Unused columns must not affect the energy, and centroids far from 0 would lose precision.
    far = np.abs(center * factor) + np.abs(shift) > HARMLESS_OFFSET
    if len(columns) < len(form.source) or far.any() or (np.abs(np.log10(np.abs(factor))) > _EXTREME).any():
        return None
    centroids, scale = np.empty_like(energy.prototypes), np.empty(len(columns))
    centroids[:, columns] = (energy.prototypes - shift) / factor + center
    scale[columns] = factor**2 * energy.scale
    return ColumnsEnergy(SquaredEnergy(centroids, scale), form.source, len(columns))


def _energy(form: AffineForm, energy: Energy, n_columns: int) -> Energy:
    """Return the energies of the atoms, split over the columns."""
    if form.matrix is not None:
        energy = through(energy, form.linear.without_offset())
    if form.below is None:
        return ColumnsEnergy(energy, form.source, n_columns)
    below = form.below
    transformed = ColumnsEnergy(energy, form.source, below.n_outputs)
    assert below.matrix is not None
    return ColumnsEnergy(TransformedEnergy(transformed, below.matrix), below.source, n_columns)


@dataclass(frozen=True)
class Stages:
    """The steps of a pipeline and the network of its final model.

    Attributes
    ----------
    form : the output of the steps, as an affine form of the columns
    last : the network of the last step
    names : the column names recorded by the steps, or None if the steps were fitted on arrays
    steps : the fitted steps of scikit-learn with their names, or None for those of another library
    """

    form: AffineForm
    last: Network
    names: list[Hashable] | None
    steps: tuple[tuple[str, Any], ...] | None = None

    def to_numbers(self, values: Any, where: str) -> Floats:
        """Return the output of the steps as numbers, or as codes if the last step takes categories."""
        if self.last.categories is None:
            return to_floats(values)
        table = open_table(values, where=where, categories=self.last.categories)
        return table.to_array()


@dataclass(frozen=True)
class StagedTable(Table):
    """The user's rows and the steps that transform them for the network.

    Attributes
    ----------
    raw : the user's rows: values, names, categories
    stages : the steps
    """

    raw: Table = field(kw_only=True)
    stages: Stages = field(kw_only=True)
    goes_through_steps = True

    @classmethod
    def of(cls, raw: Table, stages: Stages) -> StagedTable:
        """Return a table whose rows go through the steps."""
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
            booleans=raw.booleans,
            raw=raw,
            stages=stages,
        )

    def verify(self) -> None:
        """Check, on the output of the steps, that the last step and its network predict the same clusters."""
        form, last = self.stages.form, self.stages.last
        for rows in self.slices(form.n_outputs):
            last.open(self.transformed(rows.start, rows.stop, form.run), self.where)

    def read(self, start: int, stop: int, offset: Floats | None, out: Floats) -> Floats:
        """Return the user's columns."""
        return self.raw.read(start, stop, offset, out)

    def inputs(self, start: int, stop: int, offset: Floats | None, out: Floats) -> Floats:
        """Return the inputs of the network, which are the output of the steps."""
        form = self.stages.form
        lower = 0 if form.below is None else len(form.below.source)
        upper = out[:, : out.shape[1] - lower]
        if self.is_plain:
            return self.raw.read(start, stop, offset, out)
        np.copyto(upper, self.atoms(form, start, stop))
        if form.below is not None:
            np.copyto(out[:, upper.shape[1] :], self.transformed(start, stop, form.below.read_floats))
        if offset is not None:
            out -= offset
        return out

    def inputs_in_tiles(self, start: int, stop: int, size: int, offset: Floats | None, out: Floats) -> Floats:
        """Return the inputs of the network; if a step combines columns, always for ``size`` rows at a time.

        A matrix product sums in an order that depends on the number of rows.
        """
        if self.is_plain or not combines_columns(self.stages.form):
            return self.inputs(start, stop, offset, out)
        size = size if self.stages.form.below is None else 1  # a step multiplies by its own matrix
        for first in range(start, stop, size):
            last = min(first + size, stop)
            filled = self.take(np.minimum(np.arange(first, first + size), last - 1))
            with row_by_row():
                part = filled.inputs(0, size, offset, np.empty((size, out.shape[1])))
            out[first - start : last - start] = part[: last - first]
        return out

    def memory(self) -> NDArray[Any] | Sequence[NDArray[Any]] | None:
        """Return the memory of the raw rows if no step has to run, else None."""
        return self.raw.memory() if self.is_plain else None

    def atoms(self, form: AffineForm, start: int, stop: int) -> Floats:
        """Return the atoms of rows start..stop, by which the matrix of the form is multiplied."""
        values = self.transformed(start, stop, form.base)
        try:
            return self.stages.to_numbers(values, self.where) if form.matrix is None else to_floats(values)
        except (TypeError, ValueError) as error:
            raise InvalidInputError(
                f"{self.where}: {self.name}, {self._row_range(start, stop)}: the steps return values that "
                f"are not numbers: {error}"
            ) from error

    def transformed(self, start: int, stop: int, run: Any) -> Any:
        """Apply a function to rows start..stop."""
        try:
            return run(self._rows(start, stop))
        except StepError as error:
            raise InvalidInputError(
                f"{self.where}: {self.name}, {self._row_range(start, stop)}: {error}"
            ) from error

    def _row_range(self, start: int, stop: int) -> str:
        return f"in rows {self.number(start)} to {self.number(stop - 1)}"

    def with_row_numbers(self, first_row: int, row_numbers: Codes | None = None) -> StagedTable:
        """Return a copy of the table that uses the given row numbers in messages."""
        return replace(
            self,
            raw=self.raw.with_row_numbers(first_row, row_numbers),
            first_row=first_row,
            row_numbers=row_numbers,
        )

    def check_steps(self) -> None:
        """Raise an error if the steps transform the first rows differently from their affine form."""
        form, stop = self.stages.form, min(_CHECKED, self.n_rows)
        with np.errstate(all="ignore"):
            atoms = self.atoms(form, 0, stop)
            if not np.isfinite(atoms).all():  # invalid values are reported later, when all rows are read
                return
            x = atoms if form.center is None else atoms - form.center
            expected = (form.matrix @ x.T).T + form.linear.shift
            found = to_floats(self.transformed(0, stop, form.run))
            size = np.nan_to_num(np.abs(found).max(axis=0)), np.nan_to_num(np.abs(found).max())
            rounding = _ROUNDING[self.dtype.itemsize]
            assert form.matrix is not None
            lost = np.ptp(atoms, axis=0) * self._lost_digits(stop)[self._columns_of_atoms()]
            # The matrix may belong to the user, and abs sorts its indices in place in some versions of SciPy.
            lost = abs(form.matrix.copy()) @ lost
            wrong = np.abs(expected - found) > rounding * size[0] + 1e-3 * rounding * size[1] + lost
        if wrong.any():
            row, feature = np.argwhere(wrong)[0]
            raise UnsupportedModelError(
                f"{self.where}: the steps of the pipeline must return what their parameters imply; in row "
                f"{self.number(row)}, feature {feature} before the last step is {found[row, feature]:.6g} "
                f"instead of {expected[row, feature]:.6g}. Likely causes are whitened components without "
                "variance, which contain only rounding errors, and steps that work in place, which change "
                f"the input of parallel steps. {ALTERNATIVE}"
            )

    def _columns_of_atoms(self) -> Codes:
        """Return the column of each atom, or `NO_COLUMN` for atoms made of components."""
        form = self.stages.form
        return form.source if form.below is None else np.full_like(form.source, NO_COLUMN)

    def _lost_digits(self, stop: int) -> Floats:
        """Return the rounding error of each column, relative to its range in the first rows, (d + 1,).

        For float32 columns, steps compute in float32. A PCA subtracts the mean after multiplying, which
        loses precision if a column is far from 0. The last entry, 0, is for `NO_COLUMN`.
        """
        lost = np.zeros(self.n_features + 1)
        frame = nw.from_native(self.native, eager_only=True, pass_through=True)
        columns = np.arange(self.n_features)
        if isinstance(frame, nw.DataFrame):
            columns = np.flatnonzero([dtype == nw.Float32() for dtype in frame.schema.values()])
            values = frame[:stop, columns.tolist()].to_numpy() if columns.size else np.empty((1, 0))
        elif isinstance(frame, np.ndarray) and frame.dtype == np.float32:
            values = frame[:stop]
        else:
            return lost
        span = np.ptp(np.nan_to_num(values).astype(np.float64), axis=0)
        far = np.abs(np.nan_to_num(values)).max(axis=0) * (4.0 * np.finfo(np.float32).eps)
        np.divide(far, span, out=far, where=span > 0)
        lost[columns] = np.where(span > 0, far, 0.0)
        return lost

    def variances(self) -> Floats | None:
        """Return the variance that each column contributes to the output, (d,), or None if it is unknown."""
        form = self.stages.form
        if form.below is not None or self.stages.last.categories is not None:
            return None
        part = self.take(evenly_spaced(self.n_rows, max(2, _SPREAD_VALUES // len(form.source))))
        variance = part.atoms(form, 0, part.n_rows).var(axis=0)
        if form.matrix is not None:  # the contribution of an atom to all outputs
            variance *= sparse.csr_array(form.matrix).power(2).sum(axis=0)
        known = form.source >= 0
        return np.bincount(form.source[known], variance[known], self.n_features).astype(np.float64)

    def _rows(self, start: int, stop: int) -> Any:
        """Return rows as a frame if the steps were fitted on named columns, else as an array.

        Rows are copied if a step could change them in place.
        """
        native, names = self.native, self.stages.names
        is_sparse = isinstance(self.raw, SparseTable)
        if isinstance(native, np.ndarray) or is_sparse:
            rows = native[start:stop].copy()
            if names is None or is_sparse:
                return rows
            columns = {str(name): rows[:, i] for i, name in enumerate(names)}
            return nw.from_dict(columns, backend=installed(self.where)).to_native()  # type: ignore[arg-type]
        frame = nw.from_native(native, eager_only=True)
        if stop - start < self.n_rows:  # selecting rows is slow compared with transforming one
            frame = frame[start:stop]
        by_name = all(isinstance(name, str) for name in frame.columns)
        if names is None and by_name:  # the steps would warn about unknown names
            return np.array(frame.to_numpy())
        if frame.implementation.is_pandas():
            return frame.to_native().copy()
        return frame.to_native() if _can_be_read(frame) else frame.to_pandas()

    @property
    def is_plain(self) -> bool:
        """Whether the steps only map numeric columns linearly, and this map is part of the energy."""
        form = self.stages.form
        return form.is_plain and form.below is None and not isinstance(self.raw, RawTable)

    def put(self, rows: Codes, columns: Codes, values: Sequence[Any]) -> Table:
        """Return a copy in which some cells contain the given values."""
        raw = self.raw.put(rows, columns, values)
        return replace(self, raw=raw, native=raw.native)

    def _select(self, rows: Codes) -> Any:
        return self.raw.take(rows).native

    def take(self, rows: Codes) -> StagedTable:
        """Return a table with some of the rows."""
        raw = self.raw.take(rows)
        return replace(self, raw=raw, native=raw.native, n_rows=raw.n_rows, row_numbers=raw.row_numbers)

    @property
    def index(self) -> Sequence[Hashable] | None:
        """The names of the rows in the data before the steps."""
        return self.raw.index

    def pick(self, columns: Codes) -> NDArray[Any]:
        """Return the values of each row in the given columns of the user's data."""
        return self.raw.pick(columns)

    def to_objects(self) -> NDArray[Any]:
        """Return the user's values as objects."""
        return self.raw.to_objects()

    def first_not_finite(self) -> tuple[int, Hashable, float] | None:
        """Return the row, column and value of the first non-finite output, or None if all are finite."""
        form = self.stages.form
        for rows in self.slices(len(form.source)):
            with np.errstate(all="ignore"):
                values = self.atoms(form, rows.start, rows.stop)
            bad = np.argwhere(~np.isfinite(values))
            if len(bad):
                row, atom = rows.start + int(bad[0, 0]), bad[0, 1]
                column = form.source[atom] if form.below is None else NO_COLUMN
                value = float(values[tuple(bad[0])])
                if column < 0:
                    raise InvalidInputError(
                        f"{self.where}: {self.name} must have values that the steps turn into finite "
                        f"numbers; in row {self.number(row)}, combining several columns gives {value}. Drop "
                        f"or change such rows first."
                    )
                self._check_input(row, column, value)
                return row, self.feature_names[column], value
        return None

    def _check_input(self, row: int, column: int, value: float) -> None:
        """Raise an error if the steps turned a valid value into one that is not finite."""
        given = self.raw.take(np.array([row])).pick(np.array([[column]]))[0, 0]
        if is_missing(given) or (is_real(given) and np.isinf(given)):
            return
        raise InvalidInputError(
            f"{self.where}: {self.name} must have values that the steps turn into finite numbers; in row "
            f"{self.number(row)}, feature {self.feature_names[column]!r} holds {given!s}, which becomes "
            f"{value}."
        )


def _can_be_read(frame: nw.DataFrame[Any]) -> bool:
    """Return whether to pass a non-pandas frame to the steps unchanged, without converting it to pandas."""
    if not frame.implementation.is_polars():
        return False
    if READS_NAMES_OF_POLARS or hasattr(frame.to_native(), "__dataframe__"):
        return True
    return any(importlib.util.find_spec(library) is None for library in ("pandas", "pyarrow"))
