"""A kernel network for any labels, with its fidelity."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, column_or_1d

from whycluster.clustering.kernel_fit import MUCH_WORK, KernelModel, fit_kernel
from whycluster.core import attribution, blocks
from whycluster.core.arrays import Codes, Floats
from whycluster.core.energies import Energy, FloorEnergy, KernelEnergy
from whycluster.core.errors import InvalidInputError
from whycluster.data.labels import NOISE, as_labels, as_list, read_labels
from whycluster.data.table import ArrayTable
from whycluster.data.validation import check_whole
from whycluster.explanations.fidelity import Fidelity
from whycluster.models.estimators import check_rows
from whycluster.models.network import Network

_N_FOLDS = 5
_CHOICE_ROWS = 3000  # rows that the size, the scale and the model of noise are chosen on
_MOST_ROWS = 50_000  # rows that are fitted to
_MOST_SUPPORT = 256  # support vectors in all that "auto" may spend
_AS_THEY_ARE, _STANDARDISED = "as they are", "standardised"
_LAST_OF_ALL = 4  # up to this size all scales and models of noise are tried, beyond it the best of them


class Surrogate(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """A kernel network fitted to the labels of any clustering, to be explained in its place.

    Cluster k has the energy s_k(x) = -1/gamma log sum_j v_j exp(-gamma sum_i w_i (x_i - u_ji)^2). Its support
    vectors u_j, their weights v_j and gamma are fitted to the labels; the scale w of the features is that of
    the data or that of standardised data, whichever foretells the labels better. Noise, the label -1, is one
    more cluster or a constant energy, to which a row falls back if all clusters are farther, again whichever
    does better. `fidelity_` says how well all of it matches the labels.

    Parameters
    ----------
    n_support : support vectors per cluster, on average: larger clusters have more, and none has more than
        members. "auto" doubles them until the cross-validated agreement stops improving, and takes the
        fewest that do as well as the best to within a standard error.
    random_state : seed, or generator, of the folds and of k-means inside the clusters

    Attributes
    ----------
    fidelity_ : `Fidelity`, the agreement with the labels: in sample, cross-validated in five folds, per
        cluster. The folds are those that the size, the scale and the model of noise were chosen by.
    classes_ : (K,) the different labels
    support_vectors_ : (P, d) cluster by cluster
    support_cluster_ : (P,) the label of each
    log_weights_ : (P,) log v_j
    gamma_ : stiffness of the soft minimum
    scale_ : (d,) w
    noise_ : "cluster" or "floor" if there is noise, else None
    floor_ : the constant energy of noise, or None
    n_support_ : the number of support vectors per cluster that was used
    n_fitted_ : how many of the rows it was fitted to; of more than 50,000 or so, some are drawn
    """

    def __init__(
        self,
        n_support: int | Literal["auto"] = "auto",
        *,
        random_state: int | np.random.RandomState | None = 0,
    ) -> None:
        self.n_support = n_support
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: ArrayLike) -> Surrogate:
        """Fit to the labels y of the rows of X."""
        return self.fit_rows(check_rows(self, X), y, "Surrogate.fit")

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """The label of each row, as the labels were given: noise is -1."""
        check_is_fitted(self)
        rows = check_rows(self, X, reset=False)
        return self._originals[attribution.assign(self.energy, ArrayTable.of(rows))]

    @property
    def energy(self) -> Energy:
        """The energies s_k, as a network has them; noise comes last."""
        if self.floor_ is None:
            return self._clusters
        return FloorEnergy(self._clusters, self.floor_, self._floor_split)

    @property
    def _clusters(self) -> KernelEnergy:
        return KernelEnergy(self.support_vectors_, self._sizes, self.gamma_, self.log_weights_, self.scale_)

    def network(self, feature_names: Sequence[Hashable] | None = None) -> Network:
        """The network, with its fidelity; `whycluster.neuralize` calls this."""
        return Network(self.energy, labels=self._names, feature_names=feature_names, fidelity=self.fidelity_)

    def fit_rows(self, rows: Floats, labels: Any, where: str) -> Surrogate:
        """Fit to rows that have been checked; ``where`` is the function that was called, for messages."""
        codes, self._names = self._read(labels, len(rows), where)
        if isinstance(self.n_support, str) and self.n_support == "auto":
            n_support = None
        else:
            check_whole(self.n_support, 1, where, "n_support", '"auto" or ')
            n_support = int(self.n_support)
        rng = check_random_state(self.random_state)
        noise = len(self._names) - 1 if self._names[-1] == NOISE else None
        self.given_ = self._names[codes]
        self._keep(_search(rows, codes, noise, n_support, rng), rows, codes)
        return self

    def _read(self, labels: Any, n_rows: int, where: str) -> tuple[Codes, NDArray[Any]]:
        if labels is None:
            raise InvalidInputError(
                f"{where}: Surrogate requires y to be passed, but the target y is None. Give a label for "
                f"each row."
            )
        column: NDArray[Any] = np.asarray(labels) if hasattr(labels, "__array__") else np.empty(0)
        if column.ndim == 2 and column.shape[1] == 1:
            labels = column_or_1d(column, warn=True)
        codes, names = read_labels(labels, n_rows, where)
        given = as_labels(as_list(labels, where, whole=False))
        if given.dtype.kind == "f" and not np.isfinite(given).all():
            raise InvalidInputError(
                f"{where}: labels must name clusters. Input y contains infinity or a value too large for "
                f"{given.dtype!r}."
            )
        if given.dtype.kind == "f" and (given % 1 != 0).any():
            raise InvalidInputError(
                f"{where}: labels must name clusters; got measurements, such as "
                f"{given[given % 1 != 0][0]:g}. Unknown label type: continuous."
            )
        if len(names) < 2:
            what = (
                "all rows are noise"
                if names[0] == NOISE
                else f"all rows are in {names.tolist()[0]!r}, one class"
            )
            raise InvalidInputError(
                f"{where}: labels must name at least 2 clusters, since a cluster is explained against its "
                f"competitors; {what}."
            )
        first = np.unique(codes, return_index=True)[1]
        self._originals = given[first]
        self.classes_ = self._originals if given.dtype == object else np.sort(self._originals)
        return codes, names

    def _keep(self, fit: _Found, rows: Floats, codes: Codes) -> None:
        model = fit.model
        self.gamma_, self.floor_, self.log_weights_ = model.gamma, model.floor, model.log_weights
        self.scale_, self.n_support_ = fit.scale, fit.choice.n_support
        self.n_fitted_ = int((fit.predicted >= 0).sum())
        self.noise_ = ("floor" if fit.choice.floor else "cluster") if NOISE in self._names else None
        root = np.sqrt(fit.scale)
        moved = np.divide(model.support, root, out=np.zeros_like(model.support), where=root > 0)
        self.support_vectors_ = moved + fit.center
        self._sizes = model.sizes
        self.support_cluster_ = np.repeat(self._originals[: len(model.sizes)], model.sizes)
        if model.floor is not None:
            self._floor_split = _typical_split(rows, codes, self._clusters, model.floor)
        fitted = attribution.assign(self.energy, ArrayTable.of(rows))
        self.fidelity_ = Fidelity.of(self._names, codes, fitted, fit.predicted)


class _Choice(NamedTuple):
    """What cross-validation decides."""

    scale: str
    floor: bool  # whether noise is a floor
    n_support: int


@dataclass(frozen=True)
class _Found:
    """The surrogate in the units it was fitted in, and how it was chosen."""

    model: KernelModel
    center: Floats
    scale: Floats
    choice: _Choice
    predicted: Codes  # (n,) cross-validated; -1 where a row was not among those that were fitted to


def _search(
    rows: Floats, codes: Codes, noise: int | None, n_support: int | None, rng: np.random.RandomState
) -> _Found:
    """Choose by cross-validation, on some of the rows if they are many, then fit to all of them."""
    seed = int(rng.randint(2**31 - 1))
    sample = some_of_each(codes, _MOST_ROWS, rng)
    center = rows[sample].mean(axis=0)
    moved = rows[sample] - center
    data = _Folds(moved, codes[sample], noise, _scales(moved, center), seed, rng)
    some = some_of_each(codes[sample], _CHOICE_ROWS, rng)
    choice, guess = _choose(data.of(some), n_support)
    if len(some) < len(sample):
        choice, guess = _widen(choice, data, n_support)
    predicted = np.full(len(codes), -1, dtype=np.intp)
    predicted[sample] = guess
    return _Found(data.fit(choice), center, data.scales[choice.scale], choice, predicted)


def some_of_each(codes: Codes, most: int, rng: np.random.RandomState) -> Codes:
    """Rows to work with: all, or ``most`` at random if they are many more; of each cluster at least one."""
    if len(codes) <= most * 4 // 3:
        return np.arange(len(codes))
    order = rng.permutation(len(codes))
    one_of_each = order[np.unique(codes[order], return_index=True)[1]]
    return np.unique(np.concatenate([order[:most], one_of_each]))


class _Folds:
    """Rows, their codes, and in which fold each is left out."""

    def __init__(
        self,
        rows: Floats,
        codes: Codes,
        noise: int | None,
        scales: dict[str, Floats],
        seed: int,
        rng: np.random.RandomState,
    ) -> None:
        self.rows, self.codes, self.noise, self.seed = rows, codes, noise, seed
        self.scales = scales
        # Stratified; clusters with fewer rows than folds are spread as far as they go.
        self.fold = np.empty(len(codes), dtype=np.intp)
        self.fold[np.lexsort((rng.random_sample(len(codes)), codes))] = np.arange(len(codes)) % _N_FOLDS

    def of(self, some: Codes) -> _Folds:
        """Some of the rows, in the same scales and folds."""
        part = copy(self)
        part.rows, part.codes, part.fold = self.rows[some], self.codes[some], self.fold[some]
        return part

    def fit(self, choice: _Choice, rows: NDArray[np.bool_] | slice = slice(None)) -> KernelModel:
        """A kernel network for some rows."""
        scaled = self.rows[rows] * np.sqrt(self.scales[choice.scale])
        floor = self.noise if choice.floor else None
        return fit_kernel(scaled, self.codes[rows], choice.n_support, floor, self.seed)

    def predict_out_of_fold(self, choice: _Choice) -> Codes:
        """The cluster of each row, by a network that was fitted without its fold."""
        result = np.full(len(self.codes), -1, dtype=np.intp)

        def work(fold: int) -> None:
            left_out = self.fold == fold
            if left_out.any() and not left_out.all():
                root = np.sqrt(self.scales[choice.scale])
                result[left_out] = self.fit(choice, ~left_out).assign(self.rows[left_out] * root)

        blocks.each(work, _N_FOLDS)
        return result


def _scales(rows: Floats, center: Floats) -> dict[str, Floats]:
    """Squared scales of the features, (d,), each with a mean variance of 1 over the features that vary."""
    variance = rows.var(axis=0)
    varies = variance > (8 * np.finfo(np.float64).eps * np.abs(center)) ** 2  # more than by rounding
    if not varies.any():
        return {_AS_THEY_ARE: np.ones(len(variance))}
    as_they_are = np.full(len(variance), 1 / variance[varies].mean())
    standardised = np.divide(1.0, variance, out=np.zeros_like(variance), where=varies)
    if np.allclose(as_they_are[varies], standardised[varies], rtol=1e-3):
        return {_STANDARDISED: standardised}
    return {_AS_THEY_ARE: as_they_are, _STANDARDISED: standardised}


def _choose(data: _Folds, n_support: int | None) -> tuple[_Choice, Codes]:
    """The choice with the fewest support vectors among those as good as the best, and what it foretells.

    All scales and models of noise are tried with 1, 2 and 4 support vectors per cluster; from there on the
    best of them alone, until two doublings bring no gain.
    """
    has_noise = data.noise is not None and (data.codes == data.noise).any()
    kinds = [(scale, floor) for scale in data.scales for floor in ([True, False] if has_noise else [False])]
    tried: dict[_Choice, Codes] = {}
    best, in_vain, size = _Choice("", False, 0), 0, n_support or 1
    most = min(_MOST_SUPPORT, len(data.codes)) / len(np.unique(data.codes))
    while True:
        in_vain += 1
        for scale, floor in kinds:
            choice = _Choice(scale, floor, size)
            tried[choice] = data.predict_out_of_fold(choice)
            if best not in tried or _agreement(tried[choice], data) > _agreement(tried[best], data):
                best, in_vain = choice, 0
        perfect = _agreement(tried[best], data) == 1.0
        if n_support is not None or in_vain == 2 or perfect or 2 * size > most:
            break
        if size == _LAST_OF_ALL:
            kinds = [(best.scale, best.floor)]
        size *= 2
    chosen = _smallest(tried, best, data)
    return chosen, tried[chosen]


def _widen(choice: _Choice, data: _Folds, n_support: int | None) -> tuple[_Choice, Codes]:
    """What some rows chose, and what it foretells of all; more rows may bear more support vectors."""
    guess = data.predict_out_of_fold(choice)
    n_clusters = len(np.unique(data.codes))
    while n_support is None:
        n_units = 2 * choice.n_support * n_clusters
        if n_units > _MOST_SUPPORT or n_units * len(data.codes) > MUCH_WORK:
            break
        more = choice._replace(n_support=2 * choice.n_support)
        better = data.predict_out_of_fold(more)
        if not _is_behind(guess, better, data):
            break
        choice, guess = more, better
    return choice, guess


def _agreement(guess: Codes, data: _Folds) -> float:
    return float((guess == data.codes).mean())


def _smallest(tried: dict[_Choice, Codes], best: _Choice, data: _Folds) -> _Choice:
    """The best of the smallest that are not behind the best of all."""
    fine = [choice for choice in tried if not _is_behind(tried[choice], tried[best], data)]
    least = min(choice.n_support for choice in fine)
    return max((c for c in fine if c.n_support == least), key=lambda c: _agreement(tried[c], data))


def _is_behind(guess: Codes, other: Codes, data: _Folds) -> bool:
    """Whether the other foretells more, by over one standard error of the paired difference."""
    gap = (other == data.codes).astype(float) - (guess == data.codes)
    return bool(gap.mean() > gap.std() / np.sqrt(len(gap)))


def _typical_split(rows: Floats, codes: Codes, clusters: KernelEnergy, floor: float) -> Floats:
    """The floor split over the features as the energy of a typical member is, (d,).

    What is no feature's in the energy of a member, the weights of its support vectors, is none's in the
    floor.
    """
    members = np.flatnonzero(codes < clusters.n_clusters)
    table, own = ArrayTable.of(rows[members]), codes[members]
    split = attribution.mean_split(clusters, table, own)
    energies = attribution.energies_of_every_cluster(clusters, table)[np.arange(len(own)), own]
    total = float(split.sum())
    due = max(floor - (float(energies.mean()) - total), 0.0)
    return split * (due / total) if total > 0.0 else np.full(len(split), due / len(split))
