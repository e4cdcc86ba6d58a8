"""The quality of a clustering: how distinct and stable the clusters are, compared with chance.

All figures refer to the space in which the model compares rows, on a random sample of at most 1,000 rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from whycluster.core.arrays import Codes, Floats
from whycluster.core.errors import InvalidInputError
from whycluster.data import display
from whycluster.data.absent_table import AbsentTable
from whycluster.data.labels import noise_mask
from whycluster.data.progress import Progress
from whycluster.data.validation import check_integer
from whycluster.explanations.base import BaseExplanation
from whycluster.explanations.explanation import Explanation
from whycluster.explanations.quality.null_data import NullData
from whycluster.explanations.quality.refitting import RefitError, Refitting

CLEAR, WEAK, NONE = "clear", "weak", "none"

MOST_ROWS = 1000  # size of the sample
_MOST_VALUES = 1 << 20  # rows times features of the sample
_LEAST_ROWS = 10
_ROWS_PER_CLUSTER = 3
_N_DRAWS = 10  # draws of each kind of data without clusters
_N_REFITS = 10  # refits to resampled rows

# Chosen on the seeds from 10,000 on and 500 to 511; benchmarks/results/quality.md reports other seeds.
_BEATS = 0.03  # least difference from the silhouettes in data without clusters
_DEVIATIONS = 1.5  # least difference in standard deviations
_BEATS_CLEARLY = 0.1
_STABLE = 0.75  # least adjusted Rand index of clear clusters

_DESCRIPTIONS = {
    "normal": "normal data with the same covariance",
    "uniform": "uniform data with the same covariance",
    "shuffled": "columns of similar values and the same correlations, but without clusters",
}
_VERDICTS = {
    CLEAR: "The clusters are clear: they are much more distinct than clusters in data without structure.",
    WEAK: "The clusters are weak: {why}.",
    NONE: "The clusters are no more distinct than clusters in data without structure.",
}
_NO_MODEL = "labels come without a model that could be fitted to other data"
_FAVORS_ROUND = "Silhouettes favor round clusters; clusters of other shapes may be more distinct."


class Null(NamedTuple):
    """The distribution of the silhouette when data of one kind, without clusters, are clustered.

    Attributes
    ----------
    kind : "normal" (same covariance), "uniform" (in a box, same covariance) or "shuffled" (the values of
        each column, smoothed until they have one peak, and the same correlations)
    mean, deviation : the mean and the standard deviation of the silhouette over the draws
    z : the difference between the silhouette of the clusters and the mean, in standard deviations
    """

    kind: str
    mean: float
    deviation: float
    z: float


@dataclass(frozen=True, eq=False, repr=False)
class Quality:
    """How distinct and stable the clusters are; a figure that could not be measured is None.

    Attributes
    ----------
    verdict : "clear", "weak" or "none" (no more distinct than clusters in data without structure), or None if
        this was not measured, as for labels, which come without a model that could be fitted to such data
    text : the verdict and the figures in words
    silhouette : the mean silhouette of the rows in the sample, from -1 to 1
    n_rows : the number of rows in the sample
    nulls : the silhouettes that the same model, or k-means if `reference` says so, reaches in three kinds of
        data without clusters
    reference : the class of the model that was fitted to data without clusters
    stability : the mean adjusted Rand index between the clusters and those of models refitted to resampled
        rows; 1 if they agree, about 0 if they agree by chance
    clusters : (G,) the labels of the clusters in the sample
    cluster_silhouette : (G,) the mean silhouette of each of these clusters
    cluster_stability : (G,) the mean Jaccard similarity of each of these clusters with the most similar
        cluster of each refitted model
    not_measured : for each figure that is None, the reason
    """

    verdict: str | None
    text: str
    silhouette: float | None = None
    n_rows: int = 0
    nulls: tuple[Null, ...] | None = None
    reference: str | None = None
    stability: float | None = None
    clusters: NDArray[Any] | None = None
    cluster_silhouette: Floats | None = None
    cluster_stability: Floats | None = None
    not_measured: Mapping[str, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"<Quality: {self.verdict or 'not measured'}. {self.text}>"

    def __str__(self) -> str:
        return self.text


class _Sample(NamedTuple):
    """Rows as the model compares them, their clusters as codes 0..G-1, the metric, and a note on its rows."""

    rows: Floats
    codes: Codes
    clusters: NDArray[Any]
    metric: str
    note: str


def quality(exp: BaseExplanation, model: Any = None, *, random_state: int = 0) -> Quality:
    """Measure how distinct and stable the clusters are, and compare them with data without clusters.

    The clusters are "clear" or "weak" if their silhouette is larger than the silhouettes that the same model,
    with the same number of clusters, reaches in each of three kinds of data without clusters; otherwise, the
    verdict is "none". Clear clusters also have a large margin and are stable. A sample of at most 1,000 rows
    is used, so the time does not grow with the number of rows; usually, it takes one or two seconds.

    Models that cannot be fitted again, or take too long, are compared with the clusters that k-means finds in
    data without clusters. Labels come without a model, so they get no verdict; only their silhouette is
    measured. For documents, images and categories, nothing is measured.

    Parameters
    ----------
    exp : the explanation; all of its rows count
    model : the model, of which copies are fitted; by default the explained one
    random_state : the random seed

    Returns
    -------
    Quality
    """
    check_integer(random_state, 0, "quality", "random_state")
    if not isinstance(exp, BaseExplanation):
        raise InvalidInputError(
            "quality: exp must be an explanation, such as the result of explain(model, X); got "
            f"{type(exp).__name__}."
        )
    rng = np.random.default_rng(random_state)
    sample = _draw(exp, rng)
    if isinstance(sample, str):
        reasons = dict.fromkeys(("silhouette", "nulls", "stability"), sample)
        return Quality(None, f"The quality of the clusters was not measured: {sample}.", not_measured=reasons)
    n_steps = 1 if exp.fidelity is not None else 1 + _N_REFITS + _N_DRAWS * len(_DESCRIPTIONS)
    # Many small fits are faster on one thread, and much faster if other processes are busy.
    with Progress("measuring the quality", n_steps) as bar, threadpool_limits(1):
        return _measure(exp, sample, exp.model if model is None else model, rng, bar)


def _draw(exp: BaseExplanation, rng: np.random.Generator) -> _Sample | str:
    """Return a sample of the rows, or the reason why nothing can be measured."""
    table, energy = exp.table, exp.energy
    if not isinstance(exp, Explanation):
        return f"{exp.noun.lower()}s are not rows of numbers"
    if isinstance(table, AbsentTable):
        return "the explanation was saved without its data"
    if energy.categorical is not None or (table.categories and not table.goes_through_steps):
        return "the model compares categories, which have no distances between them"
    codes = _codes(exp)
    kept = np.flatnonzero(~np.array(noise_mask(exp.labels.tolist()))[codes])
    n_clusters, width = len(np.unique(codes[kept])), max(table.n_features, energy.n_inputs)
    n = min(len(kept), MOST_ROWS, _MOST_VALUES // width)
    if n_clusters < 2:
        return "fewer than two clusters have rows"
    if n < max(_LEAST_ROWS, _ROWS_PER_CLUSTER * n_clusters):
        few = f"{display.count(n, 'row')} for {n_clusters:,} clusters"
        return f"{few} are too few" if n == len(kept) else f"a sample of {few} is too small"
    chosen = np.sort(rng.choice(kept, n, replace=False))
    unchanged = exp.unchanged_table("quality").take(chosen)
    x = np.array(unchanged.inputs(0, n, energy.offset, np.empty((n, energy.n_inputs))))
    rows = np.asarray(energy.compared(x), dtype=np.float64)
    present, group = np.unique(codes[chosen], return_inverse=True)
    if len(present) < 2:
        return "fewer than two clusters have rows in the sample"
    metric = energy.distance or "euclidean"
    return _Sample(rows, group, exp.labels[present], metric, _which_rows(n, len(kept), len(codes)))


def _which_rows(n: int, n_kept: int, n_rows: int) -> str:
    """Return which rows were measured, or "" if all were."""
    without = " without noise" if n_kept < n_rows else ""
    if n < n_kept:
        return f" (in a sample of {n:,} rows{without})"
    return f" (in the {n:,} rows{without})" if without else ""


def _codes(exp: BaseExplanation) -> Codes:
    """Return the clusters to measure: given labels, or else the clusters that the model assigns."""
    labeled = exp.is_labeled and exp.is_targeted and len(np.unique(exp.cluster_codes)) > 1
    return exp.cluster_codes if labeled else exp.assigned_codes


def _measure(
    exp: BaseExplanation, sample: _Sample, model: Any, rng: np.random.Generator, bar: Progress
) -> Quality:
    each = _silhouettes(sample, sample.rows, sample.codes)
    silhouette, seeds = float(each.mean()), rng.integers(2**31, size=2).tolist()
    bar.step()
    if exp.fidelity is not None:
        return _of_labels(sample, each)
    reason = ""
    try:
        reference = Refitting(model)
        stability, per_cluster = _resample(sample, reference, seeds[0], bar)
        nulls = _compare(sample, reference, seeds[1], bar)
    except RefitError as error:
        reason, stability, per_cluster = str(error), None, None
        reference = Refitting.kmeans(len(sample.clusters))
        nulls = _compare(sample, reference, seeds[1], bar)
    found = Quality(
        verdict=_verdict(silhouette, nulls, stability),
        text="",
        silhouette=silhouette,
        n_rows=len(each),
        nulls=nulls,
        reference=reference.name,
        stability=stability,
        clusters=sample.clusters,
        cluster_silhouette=_cluster_means(sample, each),
        cluster_stability=per_cluster,
        not_measured={"stability": reason} if reason else {},
    )
    is_round = exp.energy.distance is not None
    return replace(found, text=_describe(found, sample.note, bool(reason), is_round))


def _of_labels(sample: _Sample, each: Floats) -> Quality:
    """Return the quality of given labels: only silhouettes, since no model can be fitted to other data."""
    silhouette = float(each.mean())
    return Quality(
        verdict=None,
        text="Whether the labels are more distinct than clusters in data without structure was not measured: "
        f"{_NO_MODEL}. Their mean silhouette is {silhouette:.2f}{sample.note}; it is 1 if "
        f"labels are far apart, about 0 if they overlap, and negative if rows are nearer to other labels. "
        f"{_FAVORS_ROUND}",
        silhouette=silhouette,
        n_rows=len(each),
        clusters=sample.clusters,
        cluster_silhouette=_cluster_means(sample, each),
        not_measured=dict.fromkeys(("nulls", "stability"), _NO_MODEL),
    )


def _cluster_means(sample: _Sample, each: Floats) -> Floats:
    return np.asarray(np.bincount(sample.codes, each) / np.bincount(sample.codes))


def _silhouettes(sample: _Sample, rows: Floats, codes: NDArray[Any]) -> Floats:
    """Return the silhouette of each row, or 0 if there is only one cluster, or one cluster per row."""
    from sklearn.metrics import silhouette_samples

    n_clusters = len(np.unique(codes))
    if not 1 < n_clusters < len(rows):
        return np.zeros(len(rows))
    return np.asarray(silhouette_samples(rows, codes, metric=sample.metric), dtype=np.float64)


def _resample(
    sample: _Sample, reference: Refitting, seed: int, bar: Progress
) -> tuple[float | None, Floats | None]:
    """Refit the model to rows drawn with replacement; return the agreement, and that of each cluster."""
    from sklearn.metrics import adjusted_rand_score

    rng, n, codes = np.random.default_rng(seed), len(sample.codes), sample.codes
    size = np.bincount(codes)
    agreement, similarity = np.empty(_N_REFITS), np.empty((_N_REFITS, len(size)))
    drawn = [sample.rows[rng.integers(n, size=n)] for _ in range(_N_REFITS)]
    for i, found in enumerate(reference.clusters_of_each(drawn, seed, sample.rows)):
        _, other = np.unique(found, return_inverse=True)
        agreement[i] = adjusted_rand_score(codes, other)
        width = int(other.max()) + 1
        both = np.bincount(codes * width + other, minlength=len(size) * width).reshape(-1, width)
        similarity[i] = (both / (size[:, None] + np.bincount(other) - both)).max(axis=1)
    bar.step(_N_REFITS)
    return float(agreement.mean()), similarity.mean(axis=0)


def _compare(sample: _Sample, reference: Refitting, seed: int, bar: Progress) -> tuple[Null, ...]:
    """Return the silhouettes of clusterings of data without clusters."""
    rng, data = np.random.default_rng(seed), NullData(sample.rows)
    silhouette = float(_silhouettes(sample, sample.rows, sample.codes).mean())
    nulls = []
    for kind in data.kinds:
        without = data.draws(kind, rng, _N_DRAWS)
        clusters = reference.clusters_of_each(without, seed)
        drawn = [
            _silhouettes(sample, rows, codes).mean() for rows, codes in zip(without, clusters, strict=True)
        ]
        bar.step(_N_DRAWS)
        mean, deviation = float(np.mean(drawn)), float(np.std(drawn, ddof=1))
        nulls.append(Null(kind, mean, deviation, (silhouette - mean) / max(deviation, 1e-9)))
    return tuple(nulls)


def _verdict(silhouette: float, nulls: tuple[Null, ...], stability: float | None) -> str:
    margin = min(silhouette - null.mean for null in nulls)
    if margin < _BEATS or min(null.z for null in nulls) < _DEVIATIONS:
        return NONE
    is_stable = stability is None or stability >= _STABLE
    return CLEAR if margin >= _BEATS_CLEARLY and is_stable else WEAK


def _describe(found: Quality, note: str, is_replaced: bool, is_round: bool) -> str:
    """Return the verdict and the figures as sentences."""
    assert found.verdict is not None
    assert found.nulls is not None
    assert found.clusters is not None
    best = max(found.nulls, key=lambda null: null.mean)
    who = f"k-means with {len(found.clusters)} clusters" if is_replaced else "the same model"
    why = "they are more distinct than clusters in data without structure, but not by much"
    if found.stability is not None and found.stability < _STABLE:
        why = "they change if the model is fitted to other rows"
    parts = [
        _VERDICTS[found.verdict].format(why=why),
        f"Their mean silhouette is {found.silhouette:.2f}{note}, and {who} reaches {best.mean:.2f} in "
        f"{_DESCRIPTIONS[best.kind]}.",
        _describe_stability(found),
    ]
    if not is_round and found.verdict != CLEAR:
        parts.append(_FAVORS_ROUND)
    return " ".join(parts)


def _describe_stability(found: Quality) -> str:
    if found.stability is None:
        return f"Their stability was not measured: {found.not_measured['stability']}."
    finds = "finds much the same clusters" if found.stability >= _STABLE else "finds different clusters"
    return f"Fitted to resampled rows, the model {finds} (adjusted Rand index {found.stability:.2f})."
