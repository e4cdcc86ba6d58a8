"""What the steps of a pipeline make of the columns, in a form that relevance can be followed through.

Whatever the steps are, what they give is z = A (t - c) + o, where each *atom* in t comes from one column
only: a scaled number, a power of it, one of the columns that a category fans out to. How an atom is computed
need not be known, since its relevance is its column's; only what mixes columns, A, has to be.
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
from whycluster.pipelines.affine_map import AffineMap

Run: TypeAlias = Callable[[Any], Any]
"""From some of the user's rows, in their own container, to what the steps make of them."""

Matrix: TypeAlias = Any
"""A dense array, or a sparse one."""

NO_COLUMN = -1


@dataclass(frozen=True)
class AffineForm:
    """z = A (t - c) + o: m outputs, of D atoms, of some columns.

    Attributes
    ----------
    run : the steps themselves, which give z
    source : (D,) the column that each atom comes from, or `NO_COLUMN` for what depends on none
    matrix : (m, D) A; None where the outputs are the atoms
    atoms : what gives t; where the outputs are the atoms, `run` does
    center, shift : (D,) c and (m,) o
    unit : (D,) what counts as 1 in each atom: that to which it was scaled before it was mixed
    below : where mixed features were bent (a power of a principal component), what they were mixed of: the
        "columns" here are its outputs
    text : the columns that steps know as text
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

    @classmethod
    def of_columns(cls, n_columns: int) -> AffineForm:
        """The columns as they are."""
        return cls(run=_same, source=np.arange(n_columns))

    @property
    def n_outputs(self) -> int:
        """m, how many features the steps give."""
        return len(self.source) if self.matrix is None else int(self.matrix.shape[0])

    @property
    def base(self) -> Run:
        """What gives the atoms."""
        return self.atoms or self.run

    @property
    def linear(self) -> AffineMap:
        """A, c and o, of a form that has them."""
        shift = np.zeros(self.n_outputs) if self.shift is None else self.shift
        return AffineMap(self.matrix, shift, self.center, self.unit)

    @cached_property
    def owner(self) -> Codes:
        """(m,) the column that each output comes from, `NO_COLUMN` if it comes from several or none."""
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
        """(m,) of each output the atom that it is, and what that is multiplied with; None if it is more."""
        if self.matrix is None:
            return None
        rows = self._used
        if (np.diff(rows.indptr) != 1).any() or len(np.unique(rows.indices)) < rows.nnz:
            return None
        return rows.indices.astype(np.intp), rows.data

    @cached_property
    def _used(self) -> Any:
        """A, without what is 0."""
        rows = _sparse(self).copy()  # a step may hold the same arrays
        rows.eliminate_zeros()
        return rows

    @property
    def mixes(self) -> bool:
        """Whether an output comes from several columns, or from none."""
        return self.matrix is not None and bool((self.owner == NO_COLUMN).any())

    def settled(self) -> AffineForm:
        """The same, with the outputs as atoms where each comes from one column."""
        if self.mixes:
            return self
        return AffineForm(run=self.run, source=self.owner, below=self.below, text=self.text)

    def with_text(self, outputs: Sequence[int]) -> AffineForm:
        """The same, of which some outputs are columns of text, as they are."""
        return replace(self, text=self.text | {*self.owner[list(outputs)].tolist()})

    def bend(self, run: Run, origin: Codes | None = None) -> AffineForm:
        """After a step each of whose outputs comes from one of these, in whatever way.

        Parameters
        ----------
        run : the step
        origin : which output each new one comes from; by default they are as many, in the same order
        """
        after = then(self.run, run)
        origin = np.arange(self.n_outputs) if origin is None else origin
        if not self.mixes:
            return AffineForm(run=after, source=self.owner[origin], below=self.below, text=self.text)
        if self.below is not None:
            raise TwiceBentError
        return AffineForm(run=after, source=origin, below=self, text=self.text)

    def map(
        self, run: Run, matrix: Matrix, center: Floats | None = None, shift: Floats | None = None
    ) -> AffineForm:
        """After a step that gives matrix (z - center) + shift."""
        unit = self.unit
        if self.matrix is not None and not self.mixes:
            if self.factors is None:
                return self.settled().map(run, matrix, center, shift)
            unit = np.ones(len(self.source))
            unit[self.factors[0]] = 1.0 / np.abs(self.factors[1])
        first = self.matrix is None
        mine = 0.0 if self.shift is None else self.shift
        offset = np.zeros(matrix.shape[0]) if shift is None else np.array(shift, dtype=np.float64)
        if not first:
            # Not A c: the center of data far from 0 is subtracted from the rows, never from sums of them.
            moved = np.asarray(mine - (0.0 if center is None else center))
            offset += matrix @ np.broadcast_to(moved, self.n_outputs)
        return replace(
            self,
            run=then(self.run, run),
            matrix=matrix if first else matrix @ self.matrix,
            atoms=self.run if first else self.atoms,
            center=center if first else self.center,
            shift=offset,
            unit=unit,
        )

    def scale(
        self, run: Run, factor: Floats, center: Floats | None = None, shift: Floats | None = None
    ) -> AffineForm:
        """After a step that gives factor * (z - center) + shift, feature by feature."""
        return self.map(run, _diagonal(factor), center, shift)

    def select(self, run: Run, chosen: Codes) -> AffineForm:
        """Some of the outputs."""
        after = then(self.run, run)
        if self.matrix is None:
            return AffineForm(run=after, source=self.source[chosen], below=self.below, text=self.text)
        shift = None if self.shift is None else self.shift[chosen]
        return replace(self, run=after, matrix=self.matrix[chosen], shift=shift)

    def rescale(self, run: Run, length: Callable[[Floats], Floats]) -> AffineForm:
        """After a step that divides each row by its length, which is taken for the row's own constant.

        Parameters
        ----------
        run : the step
        length : of each row of z, (b,)
        """
        if not self.mixes:
            return self.bend(run)
        # z / |z| = A s (t - c - t0) with s = 1 / |z| and t0 such that A t0 = -o. What of o no t0 reaches
        # becomes an atom that is no column's.
        assert self.matrix is not None
        shift, unit = self.linear.shift, self.unit
        # Shortest for no shift is 0; least squares would take seconds to find that for many words.
        start = self.linear.lift(-shift) if shift.any() else np.zeros(len(self.source))
        left = shift + self.matrix @ start
        atoms, matrix, source = _Rescaled(self, start, length), self.matrix, self.source
        if np.abs(left).max(initial=0.0) > _ROUNDING * np.abs(shift).max(initial=0.0):
            atoms = replace(atoms, constant=True)
            source = np.append(source, NO_COLUMN)
            unit = None if unit is None else np.append(unit, 1.0)
            matrix = sparse.hstack([sparse.csr_array(matrix), sparse.csr_array(left[:, None])]).tocsr()
        after = then(self.run, run)
        return AffineForm(after, source, matrix, atoms, unit=unit, below=self.below, text=self.text)

    @property
    def is_plain(self) -> bool:
        """Whether the atoms are the columns as they are."""
        return self.base is _same

    def read(self, rows: Any) -> Any:
        """Atoms of some of the user's rows, minus c; sparse where t is, and nothing is subtracted."""
        t = self.base(rows)
        return t if self.center is None else to_floats(t) - self.center

    def read_floats(self, rows: Any) -> Floats:
        """The same, dense."""
        return to_floats(self.read(rows))

    def bring(self, rows: Any) -> Any:
        """By how much the atoms of some sparse rows differ from those of a row of zeros, (b, D), as CSR.

        That is what the columns that are there bring; what all rows have is nobody's.
        """
        atoms = self.base
        if isinstance(atoms, (_Rescaled, _Beside)):
            return atoms.bring(rows)
        empty = rows[:1] * 0
        empty.eliminate_zeros()  # the logarithm of a zero that is there is not finite
        t, nothing = atoms(rows.copy()), to_floats(atoms(empty))  # a step may work in place
        if is_sparse(t) and not nothing.any():
            return sparse.csr_array(t, dtype=np.float64)
        return sparse.csr_array(to_floats(t) - nothing)


_ROUNDING = 1e-10


class TwiceBentError(Exception):
    """Features were mixed, bent, mixed and bent again."""


@dataclass(frozen=True)
class _Rescaled:
    """s (t - c - t0), with s the inverse of the length of z; and s itself, where it is asked for."""

    form: AffineForm
    start: Floats
    length: Callable[[Floats], Floats]
    constant: bool = False

    def __call__(self, rows: Any) -> Any:
        t = self.form.read(rows)
        t = t if is_sparse(t) else to_floats(t)
        z = to_floats((self.form.matrix @ t.T).T)
        if self.form.shift is not None:
            z = z + self.form.shift
        s = 1.0 / self.length(z)
        if is_sparse(t) and not self.start.any() and not self.constant:
            return _diagonal(s) @ t
        moved = (to_floats(t) - self.start) * s[:, None]
        return np.column_stack([moved, s]) if self.constant else moved

    def bring(self, rows: Any) -> Any:
        """What the columns that are there bring; the length is the row's own constant."""
        s = 1.0 / self.length(to_floats(self.form.run(rows.copy())))
        brought = sparse.csr_array(_diagonal(s) @ self.form.bring(rows))
        if not self.constant:
            return brought
        return sparse.hstack([brought, sparse.csr_array((len(s), 1))]).tocsr()  # the last atom is nobody's


def join(forms: Sequence[AffineForm], run: Run) -> AffineForm:
    """The outputs of several forms side by side, which ``run`` gives too."""
    return replace(_join(forms, run), text=frozenset().union(*(form.text for form in forms)))


def _join(forms: Sequence[AffineForm], run: Run) -> AffineForm:
    if any(form.below is not None for form in forms):
        return _join_bent(forms, run)
    if not any(form.mixes for form in forms):
        return AffineForm(run=run, source=np.concatenate([form.owner for form in forms]))
    return _join_mixed(forms, run)


def _join_mixed(forms: Sequence[AffineForm], run: Run) -> AffineForm:
    """Forms of which some mix. Those that are made of the same atoms share them, and move them together."""
    mixing = {id(form.base) for form in forms if form.mixes}
    forms = [form if id(form.base) in mixing else form.settled() for form in forms]
    bases = {id(form.base): [other for other in forms if other.base is form.base] for form in forms}
    roots = {key: _root(group) for key, group in bases.items()}
    # One row of blocks for each form, one column of them for each base.
    blocks: Any = [[_sparse(form) if id(form.base) == key else None for key in roots] for form in forms]
    atoms = list(roots.values())
    return AffineForm(
        run=run,
        source=np.concatenate([root.source for root in atoms]),
        matrix=sparse.bmat(blocks, format="csr"),
        atoms=_Beside(atoms),
        shift=np.concatenate([_shift_from(roots[id(form.base)].center, form) for form in forms]),
        unit=np.concatenate([np.ones(len(r.source)) if r.unit is None else r.unit for r in atoms]),
    )


def _root(group: Sequence[AffineForm]) -> AffineForm:
    """The atoms of forms that are made of the same ones, with a center and units."""
    centers = [form.center for form in group if form.center is not None]
    units = [form.unit for form in group if form.unit is not None]
    first = group[0]
    center, unit = next(iter(centers), None), next(iter(units), None)
    return AffineForm(run=first.base, source=first.source, center=center, unit=unit)


def _shift_from(center: Floats | None, form: AffineForm) -> Floats:
    """The shift of a form if another center is subtracted from its atoms."""
    moved = (0.0 if center is None else center) - (0.0 if form.center is None else form.center)
    if not np.any(moved):
        return form.linear.shift
    return np.asarray(form.linear.shift + _matrix(form) @ np.broadcast_to(moved, len(form.source)))


def _join_bent(forms: Sequence[AffineForm], run: Run) -> AffineForm:
    """Forms of which some were bent: those that were not stand on the columns as they are."""
    lower = [form.below or _columns_of(form) for form in forms]
    starts = np.cumsum([0, *(below.n_outputs for below in lower)])
    upper = [
        replace(form, source=_within(form) + start, below=None)
        for form, start in zip(forms, starts, strict=False)
    ]
    return replace(join(upper, run), below=join(lower, _same))


def _columns_of(form: AffineForm) -> AffineForm:
    """The columns that a form uses; what they hold does not matter, since nothing was mixed of them."""
    used = np.unique(form.source)
    return AffineForm(run=_Zeros(len(used)), source=used)


def _within(form: AffineForm) -> Codes:
    """The source of each atom, as one of the outputs below."""
    return form.source if form.below is not None else np.searchsorted(np.unique(form.source), form.source)


@dataclass(frozen=True)
class _Zeros:
    n_columns: int

    def __call__(self, rows: Any) -> Floats:
        return np.zeros((rows.shape[0], self.n_columns))


@dataclass(frozen=True)
class _Beside:
    """The atoms of several forms, side by side."""

    forms: list[AffineForm]

    def __call__(self, rows: Any) -> Floats:
        return np.column_stack([form.read_floats(rows) for form in self.forms])

    def bring(self, rows: Any) -> Any:
        return sparse.hstack([form.bring(rows) for form in self.forms]).tocsr()


def to_floats(values: Any) -> Floats:
    """What a step gave, as a dense array of float64."""
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


def _same(rows: Any) -> Any:
    return rows


@dataclass(frozen=True)
class _Then:
    """One function after another."""

    first: Run
    second: Run

    def __call__(self, rows: Any) -> Any:
        return self.second(self.first(rows))


def then(first: Run, second: Run) -> Run:
    """One function after another."""
    return second if first is _same else _Then(first, second)


def steps_of(run: Run) -> list[Run]:
    """The functions that one consists of, in order."""
    if isinstance(run, _Then):
        return [*steps_of(run.first), *steps_of(run.second)]
    return [] if run is _same else [run]
