"""The smallest step into a cluster whose boundaries are quadrics: mixtures, nearest members, nearest units.

Each energy is the minimum of quadratic functions ("pieces"). A step y leads into piece p of cluster k if
g_j(y) = q_j - q_p >= 0 for the pieces j of all other clusters. Each g_j is quadratic, or linear if both
pieces have the same matrix.

With a single constraint, the smallest y is found globally. It satisfies y = l (A y + b), where
I - l A is positive semidefinite, and l is the root of the secular equation g(y(l)) = 0. With several
constraints, no step is smaller than the largest of these. If that one satisfies all constraints, it is the
optimum. Otherwise, SLSQP finds a local optimum. Its multipliers l_j give a lower bound for all steps, the
minimum of the Lagrangian, if I - sum_j l_j A_j is positive semidefinite. If the bound equals the size of the
step, the step is certified to be the global optimum.

A cluster with several pieces is the union of their regions. The pieces are tried in the order of a lower
bound, until the bound exceeds the best step.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import eigh
from scipy.optimize import brentq, minimize, nnls

from whycluster.core.arrays import Codes, Floats
from whycluster.core.energies.energy import Quadratics
from whycluster.explanations.counterfactuals.half_spaces import Limits, least_step

GLOBAL, CERTIFIED, LOCAL = "global", "certified", "local"
"""What is known about a step: the smallest by construction, by a certificate, or only a local optimum."""

_FITS = 1e-9  # a constraint counts as met up to this fraction of its terms
_EQUAL = 1e-6  # a step within this fraction of its lower bound is the smallest one
_FLAT = 1e-12  # smaller curvatures, relative to the largest, are rounding errors
_ADDED = 8  # violated constraints that are added at once
_ROUNDS = 200  # the largest number of rounds of adding constraints
_MOST_PIECES = 500  # pieces of a cluster that are tried
_STARTS = 7  # the largest number of local searches
_NEWTON, _CONVEX, _CONVERGED = 30, 1e-6, 1e-12  # rounds, smallest eigenvalue and tolerance of Newton steps
_NEAREST = 32  # pieces of other clusters from which the bounds of the pieces are computed


class Step(NamedTuple):
    """A step into a cluster, a lower bound on the size of all steps, and what is known about it."""

    y: Floats
    bound: float
    optimum: str


def weakest(*optimums: str) -> str:
    """Return what is known about a result that depends on several steps."""
    return max(optimums, key=[GLOBAL, CERTIFIED, LOCAL].index)


@dataclass(frozen=True)
class Constraints:
    """g_j(y) = y^T A_j y / 2 + b_j y + c_j >= 0 for J constraints.

    Attributes
    ----------
    curvatures : (M, C, C) the different matrices A
    kind : (J,) the position of each A_j in ``curvatures``
    slopes, constants : (J, C) b, and (J,) c
    """

    curvatures: Floats
    kind: Codes
    slopes: Floats
    constants: Floats
    _decomposed: dict[int, tuple[Floats, Floats]] = field(default_factory=dict, repr=False)

    def axes(self, j: int) -> tuple[Floats, Floats]:
        """Return the eigenvalues and the eigenvectors of A_j."""
        m = int(self.kind[j])
        if m not in self._decomposed:
            a, vectors = eigh(self.curvatures[m])
            a[np.abs(a) <= _FLAT * np.abs(a).max(initial=0.0)] = 0.0
            self._decomposed[m] = a, vectors
        return self._decomposed[m]

    def values(self, y: Floats) -> Floats:
        """Return g(y), (J,)."""
        curved = 0.5 * np.einsum("mcd,c,d->m", self.curvatures, y, y)
        return np.asarray(curved[self.kind] + self.slopes @ y + self.constants)

    def gradients(self, y: Floats) -> Floats:
        """Return the gradients at y, (J, C)."""
        return np.asarray((self.curvatures @ y)[self.kind] + self.slopes)

    def take(self, rows: Codes) -> Constraints:
        """Return some of the constraints."""
        return replace(self, kind=self.kind[rows], slopes=self.slopes[rows], constants=self.constants[rows])

    def allowed(self, y: Floats) -> Floats:
        """Return by how much each constraint may be violated, because of rounding, (J,)."""
        length = np.linalg.norm(y)
        largest = np.abs(self.curvatures).max(axis=(1, 2), initial=0.0) * length**2
        terms = np.abs(self.constants) + np.linalg.norm(self.slopes, axis=1) * length + largest[self.kind]
        return np.asarray(_FITS * terms)

    def fits(self, y: Floats) -> bool:
        """Return whether y meets all constraints."""
        return bool((self.values(y) >= -self.allowed(y)).all())

    @cached_property
    def is_linear(self) -> bool:
        """Whether all constraints are linear."""
        return not self.curvatures[np.unique(self.kind)].any()


class Pieces:
    """The energies of all pieces as functions of a step y, where the inputs are x = base + moves y.

    Parameters
    ----------
    known : the energies as functions of the inputs
    base, moves : (n_inputs,) and (n_inputs, C)
    """

    def __init__(self, known: Quadratics, base: Floats, moves: Floats) -> None:
        matrix = known.matrix
        self._relative: dict[int, tuple[Floats, dict[int, tuple[Floats, Floats]]]] = {}
        z = (base if matrix is None else matrix @ base) + known.shift
        turned = [root.T @ (moves if matrix is None else matrix @ moves) for root in known.roots]
        self.known = known
        self._fastest = np.array([np.linalg.norm(each, 2) if each.size else 0.0 for each in turned])
        self.curvatures = np.array([2.0 * (each.T @ each) for each in turned])
        self.slopes = np.empty((len(known.cluster), moves.shape[1]))
        self.constants = np.empty(len(known.cluster))
        self.distances = np.empty(len(known.cluster))  # |R^T (z - u)|
        for m, root in enumerate(known.roots):
            mine = np.flatnonzero(known.root == m)
            moved = (z - known.centers[mine]) @ root
            self.slopes[mine] = 2.0 * moved @ turned[m]
            squares = np.einsum("pr,pr->p", moved, moved)
            self.distances[mine] = np.sqrt(squares)
            self.constants[mine] = squares + known.bias[mine]

    def of(self, cluster: int) -> Codes:
        """Return the pieces of a cluster."""
        return np.flatnonzero(self.known.cluster == cluster)

    def constraints(self, piece: int, need: float, limits: Limits | None = None) -> Constraints:
        """Return the constraints of a step into a piece: all other clusters have more energy, by ``need``."""
        root = self.known.root
        others = np.flatnonzero(self.known.cluster != self.known.cluster[piece])
        curvatures, decomposed = self._curvatures_from(int(root[piece]))
        sides, ends = Limits(np.empty((0, self.slopes.shape[1])), np.empty(0)) if limits is None else limits
        return Constraints(
            curvatures,
            np.concatenate([root[others], np.full(len(ends), root[piece])]),
            np.concatenate([self.slopes[others] - self.slopes[piece], sides]),
            np.concatenate([self.constants[others] - self.constants[piece] - need, -ends]),
            decomposed,
        )

    def _curvatures_from(self, root: int) -> tuple[Floats, dict[int, tuple[Floats, Floats]]]:
        """Return the differences of all curvatures from one of them, with the eigenvectors known so far."""
        if root not in self._relative:
            curvatures = self.curvatures - self.curvatures[root]
            curvatures[np.abs(curvatures) < _FLAT * np.abs(self.curvatures).max(initial=0.0)] = 0.0
            self._relative[root] = curvatures, {}
        return self._relative[root]

    def bounds(self, pieces: Codes, need: float) -> Floats:
        """Return a lower bound on the size of a step into each piece, (P,)."""
        root, own = self.known.root, self.known.cluster[pieces[0]]
        bound = np.zeros(len(pieces))
        others = np.flatnonzero(self.known.cluster != own)
        for m in np.unique(root[others]).tolist():
            alike = others[root[others] == m]
            near = alike[np.argsort(self.constants[alike], kind="stable")[:_NEAREST]]
            mine = root[pieces] == m
            for j in near.tolist():
                c = self.constants[j] - self.constants[pieces[mine]] - need
                far = np.linalg.norm(self.slopes[j] - self.slopes[pieces[mine]], axis=1)
                bound[mine] = np.maximum(bound[mine], _ratio(-c, far))
            if not self.known.roots[m].any():  # a floor: the row must come near enough to the piece
                most = self.constants[near[0]] - self.known.bias[pieces] - need
                short = self.distances[pieces] - np.sqrt(np.maximum(most, 0.0))
                bound = np.maximum(bound, _ratio(short, self._fastest[root[pieces]]))
        return bound


def _ratio(need: Floats, rate: Floats) -> Floats:
    """Return need / rate where something is needed, or infinity if the rate is 0."""
    far = np.divide(need, rate, out=np.full(len(need), np.inf), where=rate > 0.0)
    return np.where(need > 0.0, far, 0.0)


def smallest_step(
    pieces: Pieces, cluster: int, need: float, limits: Limits | None = None, n_starts: int = _STARTS
) -> Step | None:
    """Return the smallest step into a cluster, or None if none is found.

    ``need`` is the evidence for the cluster after the step. If no step exists, the result has a bound of
    infinity and NaN for the step.
    """
    best: Step | None = None
    least = np.inf  # the smallest bound of all steps
    for place, (piece, bound) in enumerate(_in_order(pieces, cluster, need)):
        if bound >= (np.inf if best is None else np.linalg.norm(best.y)):
            break
        if place == _MOST_PIECES:
            least = min(least, bound)
            break
        step = step_into(pieces.constraints(piece, need, limits), n_starts)
        least = min(least, 0.0 if step is None else step.bound)
        if step is not None and np.isfinite(step.bound) and _is_smaller(step, best):
            best = step
    if best is None:
        return None if least < np.inf else Step(np.full(pieces.slopes.shape[1], np.nan), np.inf, GLOBAL)
    size = float(np.linalg.norm(best.y))
    if least < (1.0 - _EQUAL) * size:
        return Step(best.y, least, LOCAL)
    return Step(best.y, size, CERTIFIED if best.optimum == LOCAL else best.optimum)


def _in_order(pieces: Pieces, cluster: int, need: float) -> Iterator[tuple[int, float]]:
    """Yield the pieces of a cluster with their bounds, in increasing order of the bounds."""
    own = pieces.of(cluster)
    bounds = pieces.bounds(own, need)
    order = np.argsort(bounds, kind="stable")
    yield from zip(own[order].tolist(), bounds[order].tolist(), strict=True)


def nearest_cluster(pieces: Pieces, cluster: int, need: float) -> int | None:
    """Return the cluster that the smallest step out of a cluster leads to, or None if none is found."""
    others = [k for k in range(int(pieces.known.cluster.max()) + 1) if k != cluster]
    bounds = {k: float(pieces.bounds(pieces.of(k), need).min()) for k in others}
    best, found = math.inf, None
    for k in sorted(others, key=bounds.__getitem__):
        if bounds[k] >= best:
            break
        step = smallest_step(pieces, k, need)
        if step is not None and float(np.linalg.norm(step.y)) < best:  # not if the step is NaN
            best, found = float(np.linalg.norm(step.y)), k
    return found


def single_steps(pieces: Pieces, cluster: int, need: float, bounds: Floats) -> Floats:
    """Return the smallest step of each column alone into a cluster, (C,), or NaN if none is found.

    ``bounds`` are the smallest and the largest steps, (2, C).
    """
    best = np.full(pieces.slopes.shape[1], np.nan)
    for place, (piece, bound) in enumerate(_in_order(pieces, cluster, need)):
        if place == _MOST_PIECES or bound >= np.nan_to_num(np.abs(best), nan=np.inf).max(initial=0.0):
            break
        steps = _single_steps_into(pieces.constraints(piece, need), bounds)
        best = np.where(np.isnan(best) | (np.abs(steps) < np.abs(best)), steps, best)
    return best


def _single_steps_into(constraints: Constraints, bounds: Floats) -> Floats:
    """Return the smallest t for each column with a_j t^2 / 2 + b_j t + c_j >= 0 for all j, or NaN."""
    a = np.einsum("mcc->mc", constraints.curvatures)[constraints.kind]
    b, c = constraints.slopes, constraints.constants[:, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        root = np.sqrt(b * b - 2.0 * a * c)  # NaN if the function has no zero
        half = -(b + np.where(b < 0.0, -1.0, 1.0) * root)
        first, second = half / a, 2.0 * c / half
        crossing = -c / b
    ends = np.sort(np.stack([first, second]), axis=0)
    low = np.where((a == 0.0) & (b > 0.0), crossing, np.where(a < 0.0, ends[0], -np.inf))
    high = np.where((a == 0.0) & (b < 0.0), crossing, np.where(a < 0.0, ends[1], np.inf))
    never = ((a == 0.0) & (b == 0.0) & (c < 0.0)) | ((a < 0.0) & np.isnan(root))
    least = np.maximum(low.max(axis=0), bounds[0])
    most = np.minimum(high.min(axis=0), bounds[1])
    gaps = (a > 0.0) & ~np.isnan(root)
    steps = np.full(a.shape[1], np.nan)
    for column in np.flatnonzero((least <= most) & ~never.any(axis=0)).tolist():
        mine = gaps[:, column]
        steps[column] = _outside_gaps(ends[:, mine, column], float(least[column]), float(most[column]))
    return steps


def _outside_gaps(gaps: Floats, least: float, most: float) -> float:
    """Return the number between two limits that is nearest to 0 and in no gap, or NaN; gaps are (2, G)."""
    found = []
    for sign in (1.0, -1.0):
        low, high = (least, most) if sign > 0 else (-most, -least)
        starts, stops = gaps if sign > 0 else -gaps[::-1]
        t = max(low, 0.0)
        for i in np.argsort(starts).tolist():
            if starts[i] < t < stops[i]:
                t = float(stops[i])
        if t <= high:
            found.append(sign * t)
    return min(found, key=abs) if found else math.nan


def _is_smaller(step: Step, best: Step | None) -> bool:
    return best is None or bool(np.linalg.norm(step.y) < np.linalg.norm(best.y))


def step_into(constraints: Constraints, n_starts: int = _STARTS) -> Step | None:
    """Return the smallest y that meets the constraints, or None if none is found.

    Constraints are added when a step violates them. If no y exists, the bound is infinite.
    """
    y = np.zeros(constraints.slopes.shape[1])
    step, chosen = Step(y, 0.0, GLOBAL), np.empty(0, dtype=np.intp)
    for _ in range(_ROUNDS):
        missed = constraints.values(step.y) + constraints.allowed(step.y)
        worst = np.argsort(missed, kind="stable")[:_ADDED]
        worst = np.setdiff1d(worst[missed[worst] < 0.0], chosen)
        if not worst.size:
            return step if constraints.fits(step.y) else None
        chosen = np.concatenate([chosen, worst])
        found = _solve(constraints.take(chosen), n_starts)
        if found is None or math.isinf(found.bound):
            return found
        step = found
    return None


def _solve(constraints: Constraints, n_starts: int) -> Step | None:
    """Return the smallest y that meets a few constraints."""
    nothing = Step(np.zeros(constraints.slopes.shape[1]), np.inf, GLOBAL)
    if constraints.is_linear:
        y = least_step(constraints.slopes, -constraints.constants)
        return nothing if y is None else Step(y, float(np.linalg.norm(y)), GLOBAL)
    each = [nearest(constraints, j) for j in range(len(constraints.constants))]
    alone = [y for y in each if y is not None]
    if len(alone) < len(each):
        return nothing
    alone.sort(key=lambda y: -float(np.linalg.norm(y)))
    bound = float(np.linalg.norm(alone[0]))
    if constraints.fits(alone[0]):
        return Step(alone[0], bound, GLOBAL)
    return _several(constraints, alone, bound, n_starts)


def nearest(constraints: Constraints, j: int) -> Floats | None:
    """Return the smallest y that meets constraint j alone, by its secular equation, or None if none does."""
    b, c = constraints.slopes[j], float(constraints.constants[j])
    if c >= 0.0:
        return np.zeros(len(b))
    a, vectors = constraints.axes(j)
    found = _secular(a, vectors.T @ b, c)
    return None if found is None else np.asarray(vectors @ found)


def _secular(a: Floats, b: Floats, c: float) -> Floats | None:
    """Return the smallest y with sum_i a_i y_i^2 / 2 + b_i y_i + c = 0, where c is negative."""

    def at(rate: float) -> Floats:
        return np.asarray(rate * b / (1.0 - rate * a))

    def value(rate: float) -> float:
        y = at(rate)
        return float((0.5 * a * y + b) @ y + c)

    top = float(a.max(initial=0.0))
    if top > 0.0:
        low, high = 0.0, 1.0 / top
        for closer in (1e-3, 1e-6, 1e-9, 1e-12, 1e-14):
            near = (1.0 - closer) * high
            if value(near) > 0.0:
                return at(float(brentq(value, low, near, xtol=1e-300, rtol=1e-14, maxiter=500)))
            low = near
        return _along_top(a, b, c, high)
    high = 1.0 / max(-float(a.min(initial=0.0)), float(np.linalg.norm(b)), 1e-300)
    for _ in range(200):
        if value(high) > 0.0:
            return at(float(brentq(value, 0.0, high, xtol=1e-300, rtol=1e-14, maxiter=500)))
        high *= 4.0
    return None


def _along_top(a: Floats, b: Floats, c: float, rate: float) -> Floats | None:
    """Return a solution if b has no part along the largest curvature; both signs are equally good."""
    flat = a >= (1.0 - 1e-10) * a.max()
    y = np.zeros(len(a))
    y[~flat] = rate * b[~flat] / (1.0 - rate * a[~flat])
    left = float((0.5 * a * y + b) @ y + c)
    if left < 0.0:
        y[np.argmax(flat)] = math.sqrt(-2.0 * left / a.max())
    return y


def _several(constraints: Constraints, alone: list[Floats], bound: float, n_starts: int) -> Step | None:
    """Return a step found by local searches, with a certificate if there is one.

    Newton steps converge in a few rounds if there is a certificate. SLSQP also finds other local optima.
    """
    best: Step | None = None
    for number, start in enumerate(itertools.islice(_starts(alone), n_starts)):
        y = _newton(constraints, start) if number == 0 else _slsqp(constraints, start)
        if y is None or not constraints.fits(y):
            continue
        size = float(np.linalg.norm(y))
        if best is not None and size >= float(np.linalg.norm(best.y)):
            continue
        bound = max(bound, _dual_bound(constraints, y))
        best = Step(y, min(bound, size), CERTIFIED if bound >= (1.0 - _EQUAL) * size else LOCAL)
        if best.optimum == CERTIFIED:
            break
    return best


def _starts(alone: list[Floats]) -> Iterator[Floats]:
    """Yield the starts of the search: the steps that meet one constraint, their sum, and mixed ones."""
    yield alone[0]
    total = np.sum([y for y in alone if y.any()], axis=0)
    yield total
    yield from alone[:3]
    rng, size = np.random.default_rng(0), float(np.linalg.norm(alone[0]))
    for spread in (1.0, 4.0):
        y = rng.normal(size=len(total))
        yield total + spread * size * y / np.linalg.norm(y)


def _newton(constraints: Constraints, start: Floats) -> Floats | None:
    """Return a local optimum, or None if the search does not converge or the Lagrangian is not convex.

    Each round minimizes the quadratic model of the Lagrangian under the tangent planes, which is a
    least-distance problem.
    """
    y, multipliers = start, _multipliers(constraints.gradients(start), start)
    for _ in range(_NEWTON):
        values, vectors = eigh(_hessian(constraints, multipliers))
        if values[0] <= _CONVEX:
            return None
        half = vectors / np.sqrt(values)  # half half^T is the inverse
        g, h = constraints.gradients(y), constraints.values(y)
        q = least_step(g @ half, g @ (half @ (half.T @ y)) - h)
        if q is None:
            return None
        multipliers = _multipliers(g @ half, q)
        before, y = y, y + half @ (q - half.T @ y)
        if np.linalg.norm(y - before) <= _CONVERGED * np.linalg.norm(y):
            return _repaired(constraints, y)
    return None


def _hessian(constraints: Constraints, multipliers: Floats) -> Floats:
    """Return I - sum_j l_j A_j."""
    totals = np.bincount(constraints.kind, multipliers, len(constraints.curvatures))
    return np.asarray(np.eye(constraints.slopes.shape[1]) - np.tensordot(totals, constraints.curvatures, 1))


def _multipliers(gradients: Floats, y: Floats) -> Floats:
    """Return the l >= 0 for which sum_j l_j g_j is nearest to y."""
    sizes = np.linalg.norm(gradients, axis=1)
    sizes[sizes == 0.0] = 1.0
    found: Floats = nnls((gradients / sizes[:, None]).T, y, maxiter=30 * len(sizes))[0] / sizes
    return found


def _slsqp(constraints: Constraints, start: Floats) -> Floats | None:
    """Return a local optimum. Lengths and constraints are scaled to be of the order of 1."""
    size = max(float(np.linalg.norm(start)), 1e-300)
    at = constraints.gradients(start)
    scale = np.maximum(np.linalg.norm(at, axis=1) * size, np.abs(constraints.constants))
    scale[scale == 0.0] = 1.0
    meets: Any = {
        "type": "ineq",
        "fun": lambda y: constraints.values(size * y) / scale,
        "jac": lambda y: constraints.gradients(size * y) * (size / scale)[:, None],
    }
    with np.errstate(all="ignore"):
        found = minimize(  # type: ignore[call-overload]  # its types do not know these functions
            lambda y: 0.5 * float(y @ y),
            start / size,
            jac=lambda y: y,
            constraints=meets,
            method="SLSQP",
            options={"ftol": 1e-13, "maxiter": 100},
        )
    y = size * found.x
    return _repaired(constraints, y) if np.isfinite(y).all() else None


def _repaired(constraints: Constraints, y: Floats) -> Floats:
    """Remove violations that SLSQP leaves, by Newton steps on the violated constraints."""
    for _ in range(4):
        values = constraints.values(y)
        missed = values < 0.0
        if not missed.any():
            break
        g = constraints.gradients(y)[missed]
        y = y + np.linalg.lstsq(g, -values[missed], rcond=None)[0]
    return y


def _dual_bound(constraints: Constraints, y: Floats) -> float:
    """Return a lower bound on the size of all steps, from the multipliers at a local optimum.

    It is 0 if the Lagrangian |y|^2 / 2 - sum_j l_j g_j(y) is not convex.
    """
    size = float(np.linalg.norm(y))
    gradients = constraints.gradients(y)
    scale = np.linalg.norm(gradients, axis=1) * size
    active = np.flatnonzero((np.abs(constraints.values(y)) <= 1e-5 * scale) & (scale > 0.0))
    if not active.size:
        return 0.0
    some = constraints.take(active)
    multipliers = _multipliers(gradients[active], y)
    linear, constant = multipliers @ some.slopes, float(multipliers @ some.constants)
    values, vectors = eigh(_hessian(some, multipliers))
    if values[0] <= 0.0:
        return 0.0
    # the minimum of y^T (I - sum_j l_j A_j) y / 2 - linear y - constant
    least = -0.5 * float(np.square(vectors.T @ linear) @ (1.0 / values)) - constant
    return math.sqrt(2.0 * least) if least > 0.0 else 0.0
