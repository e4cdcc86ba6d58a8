"""The surrogate: a kernel network fitted to given labels, with its fidelity."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from copy import copy
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, column_or_1d

from whycluster.clustering.kernel_fit import MUCH_WORK, KernelModel, fit_kernel
from whycluster.clustering.kernel_passes import energies_of_every_cluster, mean_split
from whycluster.clustering.validation import check_rows
from whycluster.core import blocks, outputs
from whycluster.core.arrays import Codes, Floats
from whycluster.core.energies import Energy, KernelEnergy
from whycluster.core.errors import InvalidInputError
from whycluster.data.labels import NOISE, as_labels, as_list, read_labels
from whycluster.data.table import ArrayTable
from whycluster.data.validation import check_integer
from whycluster.explanations.fidelity import Fidelity
from whycluster.models.energies import FloorEnergy
from whycluster.models.network import Network, TableNetwork

_N_FOLDS = 5
_CHOICE_ROWS = 3000  # rows on which the size, the scale and the noise model are chosen
_MOST_ROWS = 50_000  # maximum number of training rows
_MOST_SUPPORT = 256  # maximum total number of support vectors for "auto"
_RAW, _STANDARDIZED = "raw", "standardized"
_LAST_FULL_SIZE = 4  # up to this size, all scales and noise models are tried; beyond it, only the best ones


@dataclass(eq=False, repr=False)
class Surrogate(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """A kernel network fitted to the labels of any clustering, so that the labels can be explained.

    Cluster k has the energy s_k(x) = -1/gamma log sum_j v_j exp(-gamma sum_i w_i (x_i - u_ji)^2). The support
    vectors u_j, their weights v_j and gamma are fitted to the labels. Two choices are made by
    cross-validation. The feature scale w is either the same for all features or standardizes each feature.
    Noise, the label -1, is either one more cluster or a floor: a constant energy. With a floor, a row is
    noise if its energies for all clusters exceed the floor. `fidelity_` measures how well the surrogate
    matches the labels.

    Parameters
    ----------
    n_support : average number of support vectors per cluster. Larger clusters get more, but no cluster gets
        more support vectors than it has members. "auto" doubles the number until the cross-validated
        agreement stops improving, and takes the smallest number within one standard error of the best.
    random_state : seed or generator for the folds and for k-means inside the clusters

    Attributes
    ----------
    fidelity_ : `Fidelity`, agreement with the labels: in sample and in five-fold cross-validation, overall
        and per cluster. The same folds were used to choose the size, the scale and the noise model.
    classes_ : (K,) distinct labels
    given_ : (n,) labels of the training rows, with -1 replaced by "noise"
    support_vectors_ : (P, d) support vectors, grouped by cluster
    support_cluster_ : (P,) label of each support vector
    log_weights_ : (P,) log v_j
    gamma_ : stiffness of the soft minimum
    scale_ : (d,) feature scale w
    noise_ : how noise is modeled, "cluster" or "floor", or None if there is no noise
    floor_ : constant energy of noise, or None if noise has no floor
    n_support_ : the value of ``n_support`` that was used
    n_fitted_ : number of training rows. If there are many more than 50,000 rows, a sample of about 50,000 is
        drawn.
    """

    n_support: int | Literal["auto"] = "auto"
    _: KW_ONLY
    random_state: int | np.random.RandomState | None = 0

    def fit(self, X: ArrayLike, y: ArrayLike) -> Surrogate:
        """Fit the surrogate to the labels of some rows.

        Parameters
        ----------
        X : (n, d) rows of numbers
        y : (n,) the label of each row; -1 is noise
        """
        return self.fit_rows(check_rows(self, X), y, "Surrogate.fit")

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Return the label of each row, in the form given to `fit`: noise is -1.

        Parameters
        ----------
        X : (n, d) rows of numbers
        """
        check_is_fitted(self)
        rows = check_rows(self, X, reset=False)
        return self._originals[outputs.assign(self.energy, ArrayTable.of(rows))]

    @property
    def energy(self) -> Energy:
        """The energies s_k of the fitted clusters; noise comes last."""
        if self.floor_ is None:
            return self._clusters
        return FloorEnergy(self._clusters, self.floor_, self._floor_split)

    @property
    def _clusters(self) -> KernelEnergy:
        return KernelEnergy(self.support_vectors_, self._sizes, self.gamma_, self.log_weights_, self.scale_)

    def network(self, feature_names: Sequence[Hashable] | None = None) -> Network:
        """Return the network with its fidelity; `whycluster.neuralize` calls this."""
        return TableNetwork(
            self.energy, labels=self._names, feature_names=feature_names, fidelity=self.fidelity_
        )

    def fit_rows(self, rows: Floats, labels: Any, where: str) -> Surrogate:
        """Fit to rows that were already validated; ``where`` names the calling function in messages."""
        codes, self._names = self._read_labels(labels, len(rows), where)
        if isinstance(self.n_support, str) and self.n_support == "auto":
            n_support = None
        else:
            check_integer(self.n_support, 1, where, "n_support", '"auto" or ')
            n_support = int(self.n_support)
        rng = check_random_state(self.random_state)
        noise = len(self._names) - 1 if self._names[-1] == NOISE else None
        self.given_ = self._names[codes]
        self._store(_search(rows, codes, noise, n_support, rng), rows, codes)
        return self

    def _read_labels(self, labels: Any, n_rows: int, where: str) -> tuple[Codes, NDArray[Any]]:
        if labels is None:
            raise InvalidInputError(
                f"{where}: Surrogate requires y to be passed, but the target y is None. Pass a label for "
                f"each row."
            )
        column: NDArray[Any] = np.asarray(labels) if hasattr(labels, "__array__") else np.empty(0)
        if column.ndim == 2 and column.shape[1] == 1:
            labels = column_or_1d(column, warn=True)
        codes, names = read_labels(labels, n_rows, where)
        given = as_labels(as_list(labels, where, whole=False))
        if given.dtype.kind == "f" and not np.isfinite(given).all():
            raise InvalidInputError(
                f"{where}: labels must identify clusters. Input y contains infinity or a value too large for "
                f"{given.dtype!r}."
            )
        if given.dtype.kind == "f" and (given % 1 != 0).any():
            raise InvalidInputError(
                f"{where}: labels must identify clusters; got continuous values, such as "
                f"{given[given % 1 != 0][0]:g}. Unknown label type: continuous."
            )
        if len(names) < 2:
            only = names.tolist()[0]
            got = "all rows are noise" if only == NOISE else f"all rows are in one class, {only!r}"
            raise InvalidInputError(
                f"{where}: labels must contain at least 2 clusters, since a cluster is explained against its "
                f"competitors; {got}."
            )
        first = np.unique(codes, return_index=True)[1]
        self._originals = given[first]
        self.classes_ = self._originals if given.dtype == object else np.sort(self._originals)
        return codes, names

    def _store(self, fit: _SearchResult, rows: Floats, codes: Codes) -> None:
        """Set the fitted attributes."""
        model = fit.model
        self.gamma_, self.floor_, self.log_weights_ = model.gamma, model.floor, model.log_weights
        self.scale_, self.n_support_ = fit.scale, fit.settings.n_support
        self.n_fitted_ = int((fit.predicted >= 0).sum())
        self.noise_ = ("floor" if fit.settings.floor else "cluster") if NOISE in self._names else None
        root = np.sqrt(fit.scale)
        moved = np.divide(model.support, root, out=np.zeros_like(model.support), where=root > 0)
        self.support_vectors_ = moved + fit.center
        self._sizes = model.sizes
        self.support_cluster_ = np.repeat(self._originals[: len(model.sizes)], model.sizes)
        if model.floor is not None:
            self._floor_split = _split_of_floor(rows, codes, self._clusters, model.floor)
        fitted = outputs.assign(self.energy, ArrayTable.of(rows))
        self.fidelity_ = Fidelity.of(self._names, codes, fitted, fit.predicted)


class _Settings(NamedTuple):
    """The settings chosen by cross-validation."""

    scale: str
    floor: bool  # whether noise is modeled by a floor
    n_support: int


@dataclass(frozen=True)
class _SearchResult:
    """The best kernel model in its training units, and its settings."""

    model: KernelModel
    center: Floats
    scale: Floats
    settings: _Settings
    predicted: Codes  # (n,) cross-validated codes; -1 for rows that were not used in training


def _search(
    rows: Floats, codes: Codes, noise: int | None, n_support: int | None, rng: np.random.RandomState
) -> _SearchResult:
    """Choose the settings by cross-validation on at most a few thousand rows, then fit to all rows."""
    seed = int(rng.randint(2**31 - 1))
    sample = sample_rows(codes, _MOST_ROWS, rng)
    center = rows[sample].mean(axis=0)
    moved = rows[sample] - center
    data = _Folds(moved, codes[sample], noise, _scales(moved, center), seed, rng)
    subset = sample_rows(codes[sample], _CHOICE_ROWS, rng)
    settings, prediction = _choose_settings(data.take(subset), n_support)
    if len(subset) < len(sample):
        settings, prediction = _enlarge(settings, data, n_support)
    predicted = np.full(len(codes), -1, dtype=np.intp)
    predicted[sample] = prediction
    return _SearchResult(data.fit(settings), center, data.scales[settings.scale], settings, predicted)


def sample_rows(codes: Codes, most: int, rng: np.random.RandomState) -> Codes:
    """Return the positions of all rows, or of about ``most`` random rows if there are many more.

    The sample contains at least one row of each cluster.
    """
    if len(codes) <= most * 4 // 3:
        return np.arange(len(codes))
    order = rng.permutation(len(codes))
    one_of_each = order[np.unique(codes[order], return_index=True)[1]]
    return np.unique(np.concatenate([order[:most], one_of_each]))


class _Folds:
    """Rows, their codes, and the fold in which each row is held out."""

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
        # Stratified: the rows of each cluster are spread evenly over the folds.
        self.fold = np.empty(len(codes), dtype=np.intp)
        self.fold[np.lexsort((rng.random_sample(len(codes)), codes))] = np.arange(len(codes)) % _N_FOLDS

    def take(self, rows: Codes) -> _Folds:
        """Return a subset of the rows, with the same scales and folds."""
        part = copy(self)
        part.rows, part.codes, part.fold = self.rows[rows], self.codes[rows], self.fold[rows]
        return part

    def fit(self, settings: _Settings, rows: NDArray[np.bool_] | slice = slice(None)) -> KernelModel:
        """Fit a kernel network to all rows, or to a subset."""
        scaled = self.rows[rows] * np.sqrt(self.scales[settings.scale])
        floor = self.noise if settings.floor else None
        return fit_kernel(scaled, self.codes[rows], settings.n_support, floor, self.seed)

    def predict_out_of_fold(self, settings: _Settings) -> Codes:
        """Return the predicted cluster of each row, from a network fitted without the row's fold."""
        result = np.full(len(self.codes), -1, dtype=np.intp)

        def work(fold: int) -> None:
            held_out = self.fold == fold
            if held_out.any() and not held_out.all():
                root = np.sqrt(self.scales[settings.scale])
                result[held_out] = self.fit(settings, ~held_out).assign(self.rows[held_out] * root)

        blocks.each(work, _N_FOLDS)
        return result


def _scales(rows: Floats, center: Floats) -> dict[str, Floats]:
    """Return the candidate scales, each (d,), such that the features that vary have a mean variance of 1."""
    variance = rows.var(axis=0)
    varies = variance > (8 * np.finfo(np.float64).eps * np.abs(center)) ** 2  # more than rounding errors
    if not varies.any():
        return {_RAW: np.ones(len(variance))}
    raw = np.full(len(variance), 1 / variance[varies].mean())
    standardized = np.divide(1.0, variance, out=np.zeros_like(variance), where=varies)
    if np.allclose(raw[varies], standardized[varies], rtol=1e-3):
        return {_STANDARDIZED: standardized}
    return {_RAW: raw, _STANDARDIZED: standardized}


def _choose_settings(data: _Folds, n_support: int | None) -> tuple[_Settings, Codes]:
    """Return the settings of the smallest size that is about as good as the best, and their predictions.

    All scales and noise models are tried with 1, 2 and 4 support vectors per cluster. Larger sizes are tried
    only with the best scale and noise model, until two doublings in a row yield no gain.
    """
    has_noise = data.noise is not None and (data.codes == data.noise).any()
    kinds = [(scale, floor) for scale in data.scales for floor in ([True, False] if has_noise else [False])]
    tried: dict[_Settings, Codes] = {}
    best, without_gain, size = _Settings("", False, 0), 0, n_support or 1
    most = min(_MOST_SUPPORT, len(data.codes)) / len(np.unique(data.codes))
    while True:
        without_gain += 1
        for scale, floor in kinds:
            settings = _Settings(scale, floor, size)
            tried[settings] = data.predict_out_of_fold(settings)
            if best not in tried or _agreement(tried[settings], data) > _agreement(tried[best], data):
                best, without_gain = settings, 0
        perfect = _agreement(tried[best], data) == 1.0
        if n_support is not None or without_gain == 2 or perfect or 2 * size > most:
            break
        if size == _LAST_FULL_SIZE:
            kinds = [(best.scale, best.floor)]
        size *= 2
    chosen = _smallest_good(tried, best, data)
    return chosen, tried[chosen]


def _enlarge(settings: _Settings, data: _Folds, n_support: int | None) -> tuple[_Settings, Codes]:
    """Double the size chosen on a subset as long as this helps on all rows; also return its predictions."""
    prediction = data.predict_out_of_fold(settings)
    n_clusters = len(np.unique(data.codes))
    while n_support is None:
        n_units = 2 * settings.n_support * n_clusters
        if n_units > _MOST_SUPPORT or n_units * len(data.codes) > MUCH_WORK:
            break
        larger = settings._replace(n_support=2 * settings.n_support)
        better = data.predict_out_of_fold(larger)
        if not _is_worse(prediction, better, data):
            break
        settings, prediction = larger, better
    return settings, prediction


def _agreement(prediction: Codes, data: _Folds) -> float:
    return float((prediction == data.codes).mean())


def _smallest_good(tried: dict[_Settings, Codes], best: _Settings, data: _Folds) -> _Settings:
    """Return the settings of the smallest size that is not clearly worse than the best settings.

    If several settings of that size are good enough, return the best of them.
    """
    good = [settings for settings in tried if not _is_worse(tried[settings], tried[best], data)]
    least = min(settings.n_support for settings in good)
    return max((s for s in good if s.n_support == least), key=lambda s: _agreement(tried[s], data))


def _is_worse(prediction: Codes, other: Codes, data: _Folds) -> bool:
    """Return whether ``other`` matches more labels by more than one standard error of the difference."""
    gap = (other == data.codes).astype(float) - (prediction == data.codes)
    return bool(gap.mean() > gap.std() / np.sqrt(len(gap)))


def _split_of_floor(rows: Floats, codes: Codes, clusters: KernelEnergy, floor: float) -> Floats:
    """Split the floor among the features, (d,), in proportion to the spread of the scaled rows.

    The part of the energy that comes from the weights of the support vectors belongs to no feature, neither
    for members nor for the floor.
    """
    members = np.flatnonzero(codes < clusters.n_clusters)
    table, own = ArrayTable.of(rows[members]), codes[members]
    of_features = float(mean_split(clusters, table, own).sum())
    energies = energies_of_every_cluster(clusters, table)[np.arange(len(own)), own]
    due = max(floor - (float(energies.mean()) - of_features), 0.0)
    spread = rows.var(axis=0, dtype=np.float64) * clusters.units.scale
    if not spread.any():  # all rows are the same
        spread += 1.0
    return np.asarray(spread * (due / spread.sum()))
