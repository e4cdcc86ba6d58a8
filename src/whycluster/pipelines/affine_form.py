"""The output of a pipeline's steps as an affine form, through which relevance can be propagated.

For all supported steps, the output is z = A (t - c) + o. Each *atom* in t comes from a single column: a
scaled number, a power of it, or one of the indicators of a category. It does not matter how an atom is
computed, since its relevance belongs to its column. Only the matrix A, which mixes columns, must be known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from scipy import sparse

from whycluster.core.arrays import Codes, Floats
from whycluster.data.arrays import is_sparse
from whycluster.pipelines.affine_map import AffineMap, map_each

Run: TypeAlias = Callable[[Any], Any]
"""A function from the user's rows, in their container, to the output of steps."""

Matrix: TypeAlias = Any
"""A dense or a sparse array."""

NO_COLUMN = -1


@dataclass(frozen=True)
class AffineForm:
    """z = A (t - c) + o: m outputs computed from D atoms, each of which is computed from one column.

    Attributes
    ----------
    run : the steps themselves, which return z
    source : (D,) the column that each atom comes from, or `NO_COLUMN` if the atom depends on no column
    matrix : (m, D) A, or None if the outputs are the atoms
    atoms : the function that returns t, or None if the outputs of `run` are the atoms
    center, shift : (D,) c and (m,) o
    unit : (D,) the size of a unit step in each atom, in the units to which the atom was scaled before mixing
    below : the form that mixed the features, if mixed features were then transformed one by one (such as a
        power of a principal component). The "columns" of this form are then the outputs of `below`.
    text : the columns that some step treats as text
    days : the columns that `as_days` reads
    """

    run: Run
    source: Codes
    matrix: Matrix | None = None
    atoms: Run | None = None
    center: Floats | None = None
    shift: Floats | None = None
    unit: Floats | None = None
    below: AffineForm | None = None
    text: frozenset[int] = frozenset()
    days: frozenset[int] = frozenset()

    @classmethod
    def of_columns(cls, n_columns: int) -> AffineForm:
        """Return the form of unchanged columns."""
        return cls(run=_identity, source=np.arange(n_columns))

    @property
    def n_outputs(self) -> int:
        """m, the number of features that the steps return."""
        return len(self.source) if self.matrix is None else int(self.matrix.shape[0])

    @property
    def base(self) -> Run:
        """The function that returns the atoms."""
        return self.atoms or self.run

    @property
    def linear(self) -> AffineMap:
        """A, c and o; A is None if the outputs are the atoms."""
        shift = np.zeros(self.n_outputs) if self.shift is None else self.shift
        return AffineMap(self.matrix, shift, self.center, self.unit)

    @cached_property
    def owner(self) -> Codes:
        """(m,) the column that each output comes from, or `NO_COLUMN` if it comes from several or none."""
        if self.matrix is None:
            return self.source
        rows = self._used
        owner = np.full(self.n_outputs, NO_COLUMN)
        used = np.flatnonzero(np.diff(rows.indptr))
        if used.size:
            columns = self.source[rows.indices]
            first = np.minimum.reduceat(columns, rows.indptr[used])
            last = np.maximum.reduceat(columns, rows.indptr[used])
            owner[used] = np.where(first == last, first, NO_COLUMN)
        return owner

    @cached_property
    def factors(self) -> tuple[Codes, Floats] | None:
        """(m,) the atom of each output and its factor, or None if the outputs are not multiples of atoms."""
        if self.matrix is None:
            return None
        rows = self._used
        if (np.diff(rows.indptr) != 1).any() or len(np.unique(rows.indices)) < rows.nnz:
            return None
        return rows.indices.astype(np.intp), rows.data

    @cached_property
    def _used(self) -> Any:
        """A, sparse and without explicit zeros."""
        rows = _sparse(self).copy()  # copied, since a step may share these arrays
        rows.eliminate_zeros()
        return rows

    @property
    def mixes(self) -> bool:
        """Whether any output comes from several columns or from none."""
        if isinstance(self.matrix, np.ndarray) and len(np.unique(self.source)) == len(self.source):
            return bool((np.count_nonzero(self.matrix, axis=1) != 1).any())  # without a sparse copy
        return self.matrix is not None and bool((self.owner == NO_COLUMN).any())

    def simplified(self) -> AffineForm:
        """Return an equivalent form whose atoms are the outputs, if each output comes from one column."""
        if self.mixes:
            return self
        return AffineForm(run=self.run, source=self.owner, below=self.below, text=self.text, days=self.days)

    def with_text(self, outputs: Sequence[int]) -> AffineForm:
        """Return a copy of the form that records which outputs are unchanged text columns."""
        return replace(self, text=self.text | {*self.owner[list(outputs)].tolist()})

    def with_days(self) -> AffineForm:
        """Return a copy of the form that records that its outputs are columns read as days."""
        return replace(self, days=self.days | {*self.owner.tolist()})

    def transform_each(self, run: Run, origin: Codes | None = None) -> AffineForm:
        """Return the form after a step that computes each of its outputs from one output of this form.

        Parameters
        ----------
        run : the step
        origin : the output that each new output comes from; by default, the output at the same position
        """
        after = compose(self.run, run)
        origin = np.arange(self.n_outputs) if origin is None else origin
        if not self.mixes:
            return AffineForm(
                run=after, source=self.owner[origin], below=self.below, text=self.text, days=self.days
            )
        if self.below is not None:
            raise TwiceTransformedError
        return AffineForm(run=after, source=origin, below=self, text=self.text, days=self.days)

    def map(
        self, run: Run, matrix: Matrix, center: Floats | None = None, shift: Floats | None = None
    ) -> AffineForm:
        """Return the form after a step that returns matrix (z - center) + shift."""
        unit = self.unit
        if isinstance(matrix, np.ndarray):  # in C order, since BLAS may sum differently in another order
            matrix = np.ascontiguousarray(matrix)
        if self.matrix is not None and not self.mixes:
            if self.factors is None:
                return self.simplified().map(run, matrix, center, shift)
            unit = np.ones(len(self.source))
            unit[self.factors[0]] = 1.0 / np.abs(self.factors[1])
        first = self.matrix is None
        mine = 0.0 if self.shift is None else self.shift
        offset = np.zeros(matrix.shape[0]) if shift is None else np.array(shift, dtype=np.float64)
        if not first:
            # For data far from 0, the center must be subtracted from the rows; subtracting it from sums of
            # rows would lose precision.
            moved = np.asarray(mine - (0.0 if center is None else center))
            offset += matrix @ np.broadcast_to(moved, self.n_outputs)
        return replace(
            self,
            run=compose(self.run, run),
            matrix=matrix if first else matrix @ self.matrix,
            atoms=self.run if first else self.atoms,
            center=center if first else self.center,
            shift=offset,
            unit=unit,
        )

    def scale(
        self, run: Run, factor: Floats, center: Floats | None = None, shift: Floats | None = None
    ) -> AffineForm:
        """Return the form after a step that returns factor * (z - center) + shift, feature by feature."""
        return self.map(run, _diagonal(factor), center, shift)

    def select(self, run: Run, chosen: Codes) -> AffineForm:
        """Return the form after a step that selects some of the outputs."""
        after = compose(self.run, run)
        if self.matrix is None:
            return AffineForm(
                run=after, source=self.source[chosen], below=self.below, text=self.text, days=self.days
            )
        shift = None if self.shift is None else self.shift[chosen]
        return replace(self, run=after, matrix=self.matrix[chosen], shift=shift)

    def rescale(self, run: Run, length: Callable[[Floats], Floats]) -> AffineForm:
        """Return the form after a step that divides each row by its length.

        The length is treated as a constant of the row.

        Parameters
        ----------
        run : the step
        length : the function that returns the length of each row of z, (b,)
        """
        if not self.mixes:
            return self.transform_each(run)
        # z / |z| = A s (t - c - t0) with s = 1 / |z| and t0 such that A t0 = -o. The part of o that no t0
        # reaches becomes an atom that belongs to no column.
        assert self.matrix is not None
        shift, unit = self.linear.shift, self.unit
        # Without a shift, t0 is 0. For a large vocabulary, least squares would take seconds to find this
        # solution.
        start = self.linear.lift(-shift) if shift.any() else np.zeros(len(self.source))
        left = shift + self.matrix @ start
        atoms, matrix, source = _Rescaled(self, start, length), self.matrix, self.source
        if np.abs(left).max(initial=0.0) > _ROUNDING * np.abs(shift).max(initial=0.0):
            atoms = replace(atoms, constant=True)
            source = np.append(source, NO_COLUMN)
            unit = None if unit is None else np.append(unit, 1.0)
            matrix = sparse.hstack([sparse.csr_array(matrix), sparse.csr_array(left[:, None])]).tocsr()
        after = compose(self.run, run)
        return AffineForm(
            after, source, matrix, atoms, unit=unit, below=self.below, text=self.text, days=self.days
        )

    @property
    def is_plain(self) -> bool:
        """Whether the atoms are the unchanged columns."""
        return self.base is _identity

    def read(self, rows: Any) -> Any:
        """Return t - c for some of the user's rows, as a sparse array if t is sparse and c is None."""
        t = self.base(rows)
        return t if self.center is None else to_floats(t) - self.center

    def read_floats(self, rows: Any) -> Floats:
        """Return t - c for some of the user's rows as a dense array."""
        return to_floats(self.read(rows))

    def contributions(self, rows: Any) -> Any:
        """Return the difference between the atoms of rows and those of a row of zeros, (b, D).

        The result, a CSR array if the rows are sparse, is the contribution of the nonzero columns. The part
        that all rows share belongs to no column.
        """
        atoms = self.base
        if isinstance(atoms, (_Rescaled, _SideBySide)):
            return atoms.contributions(rows)
        if not is_sparse(rows):
            return to_floats(atoms(rows.copy())) - to_floats(atoms(np.zeros_like(rows[:1])))
        empty = rows[:1] * 0
        empty.eliminate_zeros()  # the logarithm of an explicit zero is not finite
        t, nothing = atoms(rows.copy()), to_floats(atoms(empty))  # copied, since a step may work in place
        if is_sparse(t) and not nothing.any():
            return sparse.csr_array(t, dtype=np.float64)
        return sparse.csr_array(to_floats(t) - nothing)


_ROUNDING = 1e-10


class TwiceTransformedError(Exception):
    """Raised if features were mixed, transformed, mixed again and transformed again."""


@dataclass(frozen=True)
class _Rescaled:
    """s (t - c - t0), where s is the inverse of the length of z, followed by s itself if ``constant``."""

    form: AffineForm
    start: Floats
    length: Callable[[Floats], Floats]
    constant: bool = False

    def __call__(self, rows: Any) -> Any:
        t = self.form.read(rows)
        t = t if is_sparse(t) else to_floats(t)
        z = to_floats(map_each(self.form.matrix, t))
        if self.form.shift is not None:
            z = z + self.form.shift
        s = 1.0 / self.length(z)
        if is_sparse(t) and not self.start.any() and not self.constant:
            return _diagonal(s) @ t
        moved = (to_floats(t) - self.start) * s[:, None]
        return np.column_stack([moved, s]) if self.constant else moved

    def contributions(self, rows: Any) -> Any:
        """Return the contribution of the nonzero columns. The row's length is treated as a constant."""
        s = 1.0 / self.length(to_floats(self.form.run(rows.copy())))
        scaled = _diagonal(s) @ self.form.contributions(rows)
        if not is_sparse(scaled):
            return np.column_stack([scaled, np.zeros(len(s))]) if self.constant else scaled
        if not self.constant:
            return sparse.csr_array(scaled)
        return sparse.hstack(
            [scaled, sparse.csr_array((len(s), 1))]
        ).tocsr()  # the last atom belongs to no column


def join(forms: Sequence[AffineForm], run: Run) -> AffineForm:
    """Return a form with the outputs of several forms side by side; ``run`` must return the same outputs."""
    text, days = (
        frozenset[int]().union(*each) for each in zip(*((f.text, f.days) for f in forms), strict=True)
    )
    return replace(_join(forms, run), text=text, days=days)


def _join(forms: Sequence[AffineForm], run: Run) -> AffineForm:
    if any(form.below is not None for form in forms):
        return _join_transformed(forms, run)
    if not any(form.mixes for form in forms):
        return AffineForm(run=run, source=np.concatenate([form.owner for form in forms]))
    return _join_mixed(forms, run)


def _join_mixed(forms: Sequence[AffineForm], run: Run) -> AffineForm:
    """Join forms, some of which mix columns.

    Forms that are computed from the same atoms share these atoms and their center.
    """
    mixing = {id(form.base) for form in forms if form.mixes}
    forms = [form if id(form.base) in mixing else form.simplified() for form in forms]
    bases = {id(form.base): [other for other in forms if other.base is form.base] for form in forms}
    roots = {key: _root(group) for key, group in bases.items()}
    # The matrix contains one row of blocks for each form and one column of blocks for each base.
    blocks: Any = [[_sparse(form) if id(form.base) == key else None for key in roots] for form in forms]
    atoms = list(roots.values())
    return AffineForm(
        run=run,
        source=np.concatenate([root.source for root in atoms]),
        matrix=sparse.bmat(blocks, format="csr"),
        atoms=_SideBySide(atoms),
        shift=np.concatenate([_shift_from(roots[id(form.base)].center, form) for form in forms]),
        unit=np.concatenate([np.ones(len(r.source)) if r.unit is None else r.unit for r in atoms]),
    )


def _root(group: Sequence[AffineForm]) -> AffineForm:
    """Return the atoms that a group of forms shares, with a center and units."""
    centers = [form.center for form in group if form.center is not None]
    units = [form.unit for form in group if form.unit is not None]
    first = group[0]
    center, unit = next(iter(centers), None), next(iter(units), None)
    return AffineForm(run=first.base, source=first.source, center=center, unit=unit)


def _shift_from(center: Floats | None, form: AffineForm) -> Floats:
    """Return the shift of a form whose own center is replaced by ``center``."""
    moved = (0.0 if center is None else center) - (0.0 if form.center is None else form.center)
    if not np.any(moved):
        return form.linear.shift
    return np.asarray(form.linear.shift + _matrix(form) @ np.broadcast_to(moved, len(form.source)))


def _join_transformed(forms: Sequence[AffineForm], run: Run) -> AffineForm:
    """Join forms, some of which transform mixed features while the others use unchanged columns."""
    lower = [form.below or _columns_of(form) for form in forms]
    starts = np.cumsum([0, *(below.n_outputs for below in lower)])
    upper = [
        replace(form, source=_within(form) + start, below=None)
        for form, start in zip(forms, starts, strict=False)
    ]
    return replace(join(upper, run), below=join(lower, _identity))


def _columns_of(form: AffineForm) -> AffineForm:
    """Return a form with one output per column that ``form`` uses; the values do not matter and are 0."""
    used = np.unique(form.source)
    return AffineForm(run=_Zeros(len(used)), source=used)


def _within(form: AffineForm) -> Codes:
    """Return the source of each atom, as the position of an output of `below` or of `_columns_of`."""
    return form.source if form.below is not None else np.searchsorted(np.unique(form.source), form.source)


@dataclass(frozen=True)
class _Zeros:
    n_columns: int

    def __call__(self, rows: Any) -> Floats:
        return np.zeros((rows.shape[0], self.n_columns))


@dataclass(frozen=True)
class _SideBySide:
    """The atoms of several forms, side by side."""

    forms: list[AffineForm]

    def __call__(self, rows: Any) -> Floats:
        return np.column_stack([form.read_floats(rows) for form in self.forms])

    def contributions(self, rows: Any) -> Any:
        parts = [form.contributions(rows) for form in self.forms]
        return sparse.hstack(parts).tocsr() if is_sparse(rows) else np.column_stack(parts)


def to_floats(values: Any) -> Floats:
    """Return the output of a step as a dense array of float64."""
    if isinstance(values, np.ndarray):
        return np.asarray(values, dtype=np.float64)
    dense = values.toarray() if is_sparse(values) else values
    if hasattr(dense, "to_numpy"):
        dense = dense.to_numpy()
    return np.asarray(dense, dtype=np.float64)


def _matrix(form: AffineForm) -> Matrix:
    return _diagonal(np.ones(form.n_outputs)) if form.matrix is None else form.matrix


def _sparse(form: AffineForm) -> Any:
    return sparse.csr_array(_matrix(form))


def _diagonal(values: Floats) -> Matrix:
    n = len(values)
    return sparse.csr_array((np.asarray(values, np.float64), np.arange(n), np.arange(n + 1)), shape=(n, n))


def _identity(rows: Any) -> Any:
    return rows


@dataclass(frozen=True)
class _Composed:
    """The composition of two functions."""

    first: Run
    second: Run

    def __call__(self, rows: Any) -> Any:
        return self.second(self.first(rows))


def compose(first: Run, second: Run) -> Run:
    """Return the composition of two functions: ``second`` after ``first``."""
    return second if first is _identity else _Composed(first, second)


def steps_of(run: Run) -> list[Run]:
    """Return the functions in a composition, in order."""
    if isinstance(run, _Composed):
        return [*steps_of(run.first), *steps_of(run.second)]
    return [] if run is _identity else [run]
