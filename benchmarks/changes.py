"""Accounts of moves with a known cause, and drift without one: ``python -m benchmarks.changes``.

Simulates two months with a known cause, one shifted column, and counts how often the account of a row that
moved names this column first. Then simulates months in which nothing changes, and counts alarms of drift.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.cluster import BisectingKMeans, KMeans
from sklearn.datasets import load_breast_cancer, load_iris, load_wine, make_blobs
from sklearn.decomposition import PCA
from sklearn.mixture import GaussianMixture
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import whycluster as wc
from benchmarks.measure import side_by_side, write
from whycluster.segments.changes.flows import first_columns

Array = NDArray[Any]
N_SEEDS = 100
N_MONTHS = 8
N_ROWS = 1000
NOISE = (0.0, 0.05, 0.1, 0.2)
COMMAND = "python -m benchmarks.changes"


def blobs(seed: int) -> Array:
    """Draw 3 to 8 groups in 5 to 15 columns."""
    rng = np.random.default_rng(seed)
    n_columns, n_groups = int(rng.integers(5, 16)), int(rng.integers(3, 9))
    return np.asarray(make_blobs(N_ROWS, n_columns, centers=n_groups, random_state=seed)[0])


TABLES: dict[str, Callable[[int], Array]] = {
    "blobs": blobs,
    "iris": lambda _: load_iris().data,
    "wine": lambda _: load_wine().data,
    "breast cancer": lambda _: load_breast_cancer().data,
}
MODELS: dict[str, Callable[[int], Any]] = {
    "k-means": lambda seed: KMeans(5, n_init=2, random_state=seed),
    "k-means after a PCA": lambda seed: make_pipeline(PCA(0.9), KMeans(5, n_init=2, random_state=seed)),
    "bisecting k-means": lambda seed: BisectingKMeans(5, random_state=seed),
    "diagonal mixture": lambda seed: GaussianMixture(
        4, covariance_type="diag", reg_covar=1e-3, random_state=seed
    ),
    "full mixture": lambda seed: GaussianMixture(4, reg_covar=1e-3, random_state=seed),
    "kernel k-means": lambda seed: wc.KernelKMeans(5, n_support=5, random_state=seed),
}


def framed(X: Array) -> Any:
    """Return rows as a frame with ids."""
    return pd.DataFrame(X, columns=[f"x{i}" for i in range(X.shape[1])]).assign(id=np.arange(len(X)))


def shifted_months(
    table: str, kind: str, noise: float, shift: float = 2.0
) -> Iterator[tuple[wc.Changes, int, Array]]:
    """Yield the changes between two months, the column that was shifted, and which moves needed the shift.

    The shift is ``shift`` standard deviations, and all other changes are noise. A move needed the shift if
    the row, with its new values but without the shift, would not be in its new cluster.
    """
    for seed in range(N_MONTHS):
        rng = np.random.default_rng(seed)
        X = StandardScaler().fit_transform(TABLES[table](seed))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # mixtures that have not converged are models, too
            model = MODELS[kind](seed).fit(X)
        after = X + noise * rng.normal(size=X.shape)
        column = int(rng.integers(X.shape[1]))
        without = after.copy()
        after[:, column] += shift * rng.choice([-1.0, 1.0])
        seg = wc.Segmentation.of(model, X, measure_quality=False)
        changes = wc.changes(seg, framed(X), framed(after), on="id")
        rows = changes.record.pairing.after[changes.record.moves.rows]
        network = seg.network
        yield changes, column, (network.assign(without) != network.assign(after))[rows]


def named_first(table: str, kind: str, noise: float) -> Array:
    """Count the rows that moved, those in which the cause is first, and both among moves that needed it.

    The last two numbers are the largest residual, relative to the change, and the largest contribution of a
    column that did not change, in months without noise.
    """
    found = np.zeros(6)
    for changes, column, needed in shifted_months(table, kind, noise):
        accounts = changes.record.moves.accounts
        first = first_columns(accounts.contributions) == column
        found[:4] += len(first), first.sum(), needed.sum(), (first & needed).sum()
        residual = np.abs(accounts.residual / accounts.change).max(initial=0.0)
        others = np.abs(np.delete(accounts.contributions, column, axis=1)).max(initial=0.0)
        found[4:] = max(found[4], residual), max(found[5], others if noise == 0.0 else 0.0)
    return found


def causes() -> list[list[str]]:
    """Return a line of the page for each kind of model."""
    lines = []
    for kind in MODELS:
        found = np.array([[named_first(table, kind, noise) for table in TABLES] for noise in NOISE])
        moved, first, needed, both = found[..., :4].sum(axis=1).T
        cells = [f"{a:.1%} ({b:.1%})" for a, b in zip(first / moved, both / needed, strict=True)]
        largest = [f"{each:.0e}" for each in found[..., 4:].max(axis=(0, 1))]
        lines.append([kind, f"{int(moved.sum()):,}", *cells, *largest])
    return lines


def refits() -> list[list[str]]:
    """Return how exactly data and model add up when both change, for each kind of model."""
    lines = []
    for kind in MODELS:
        n_moved, errors = 0, [0.0, 0.0]
        for seed in range(N_MONTHS):
            rng = np.random.default_rng(seed)
            X = StandardScaler().fit_transform(blobs(seed))
            after = X + 0.2 * rng.normal(size=X.shape) + np.eye(X.shape[1])[0]
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                old, new = MODELS[kind](seed).fit(X), MODELS[kind](seed + 1).fit(after)
            segs = [wc.Segmentation.of(m, x, measure_quality=False) for m, x in ((old, X), (new, after))]
            accounts = wc.changes(segs[0], segs[1], framed(X), framed(after), on="id").record.moves.accounts
            parts = accounts.data.evidence + accounts.model.evidence - accounts.change
            sums = accounts.residual if segs[0].network.energy.adds_up else np.full(1, np.nan)
            n_moved += len(parts)
            errors = [
                float(np.maximum(e, np.abs(x).max(initial=0.0)))
                for e, x in zip(errors, (parts, sums), strict=True)
            ]
        lines.append([kind, f"{n_moved:,}", *(f"{e:.0e}" if e == e else "-" for e in errors)])
    return lines


def own_means(rng: np.random.Generator, n: int) -> tuple[Array, Array]:
    """Draw two months around each customer's own means, in groups."""
    center = 3 * rng.integers(0, 3, (n, 1)) * rng.normal(size=6) + rng.normal(size=(n, 6))
    return center + 0.5 * rng.normal(size=(n, 6)), center + 0.5 * rng.normal(size=(n, 6))


def heavy_tails(rng: np.random.Generator, n: int) -> tuple[Array, Array]:
    """Draw the same with log-normal values."""
    first, second = own_means(rng, n)
    return np.exp(first / 2), np.exp(second / 2)


def strangers(rng: np.random.Generator, n: int) -> tuple[Array, Array]:
    """Draw two months without any relation between the rows of a customer."""
    first, second = own_means(rng, n)
    return first, rng.permutation(second)


def random_walk(rng: np.random.Generator, n: int) -> tuple[Array, Array]:
    """Add noise of a tenth of a deviation to the first month."""
    first, _ = own_means(rng, n)
    return first, first + 0.1 * first.std(axis=0) * rng.normal(size=first.shape)


def rare_events(rng: np.random.Generator, n: int) -> tuple[Array, Array]:
    """Draw counts, most of which are 0."""
    rate = rng.gamma(0.3, size=(n, 6))
    return rng.poisson(rate).astype(float), rng.poisson(rate).astype(float)


QUIET: dict[str, tuple[Callable[[np.random.Generator, int], tuple[Array, Array]], int]] = {
    "around own means, 300 rows": (own_means, 300),
    "around own means, 5,000 rows": (own_means, 5000),
    "around own means, 60 rows": (own_means, 60),
    "log-normal, 1,000 rows": (heavy_tails, 1000),
    "no relation between the months, 1,000 rows": (strangers, 1000),
    "small random steps, 5,000 rows": (random_walk, 5000),
    "rare events, 1,000 rows": (rare_events, 1000),
}


def months_of(kind: str, seed: int, shift: float = 0.0) -> wc.Changes:
    """Return two months; one in ten rows is gone, one in ten is new, and one column may be shifted."""
    draw, n = QUIET[kind]
    rng = np.random.default_rng(seed)
    first, second = draw(rng, n)
    second[:, 0] += shift * second[:, 0].std()
    model = make_pipeline(StandardScaler(), KMeans(4, n_init=1, random_state=seed)).fit(first)
    before, after = framed(first).iloc[: -(n // 10)], framed(second).iloc[n // 10 :]
    seg = wc.Segmentation.of(model, first, measure_quality=False)
    return wc.changes(seg, before, after, on="id")


def people(seed: int) -> wc.Changes:
    """Return two months with numbers, categories and missing values, in which nothing changes."""
    rng = np.random.default_rng(seed)
    group = rng.integers(0, 3, 800)

    def month() -> Any:
        return pd.DataFrame(
            {
                "spend": np.where(rng.random(800) < 0.1, np.nan, rng.lognormal(2 + group, 0.5)),
                "visits": rng.poisson(2 + 3 * group),
                "plan": np.array(["basic", "plus", "pro"])[(group + (rng.random(800) < 0.2)) % 3],
                "town": rng.choice(list("abcdefghij"), 800, p=np.arange(10, 0, -1) / 55),
                "id": np.arange(800),
            }
        )

    before, after = month(), month()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", wc.ColumnWarning)
        seg = wc.segment(before.drop(columns="id"), 3, measure_quality=False)
    return wc.changes(seg, before, after, on="id")


def alarms() -> list[list[str]]:
    """Return the share of months without an alarm, and of shifts that are found."""
    lines = []
    for kind in QUIET:
        silent = sum(not months_of(kind, seed).drifted for seed in range(N_SEEDS))
        found = [
            sum(
                any(test.column == "x0" for test in months_of(kind, seed, shift).drifted)
                for seed in range(N_MONTHS)
            )
            for shift in (0.2, 0.5)
        ]
        lines.append([kind, f"{silent} of {N_SEEDS}", *(f"{n} of {N_MONTHS}" for n in found)])
    silent = sum(not people(seed).drifted for seed in range(N_SEEDS))
    lines.append(["numbers, categories and missing values, 800 rows", f"{silent} of {N_SEEDS}", "-", "-"])
    return lines


def speed() -> str:
    """Return the time of `changes` relative to assigning both tables, for 100,000 rows."""
    rng = np.random.default_rng(0)
    first, second = own_means(rng, 100_000)
    model = make_pipeline(StandardScaler(), KMeans(6, n_init=1, random_state=0)).fit(first)
    before, after = framed(first), framed(second)
    columns = [name for name in before if name != "id"]
    seg = wc.Segmentation.of(model, before[columns].to_numpy(), measure_quality=False)
    found = side_by_side(
        {
            "assign": lambda: [seg.network.assign(month[columns]) for month in (before, after)],
            "changes": lambda: wc.changes(seg, before, after, on="id"),
        },
        repeats=5,
    )
    moved = len(wc.changes(seg, before, after, on="id").record.moves.rows)
    return (
        f"For 100,000 rows and {len(columns)} columns, of which {moved:,} rows move, `wc.changes` takes "
        f"{found['changes'] / found['assign']:.0f} times as long as assigning both tables "
        "(median of 5, side by side)."
    )


def markdown(heads: list[str], lines: list[list[str]]) -> list[str]:
    """Return a table."""
    return [f"| {' | '.join(cells)} |" for cells in (heads, ["---"] * len(heads), *lines)]


def main() -> None:
    """Measure everything and write the page."""
    noise = [f"noise {each:g}" for each in NOISE]
    lines = [
        "# Changes between two months",
        "",
        "## Is the cause of a move named first?",
        "",
        f"In {N_MONTHS} pairs of months for each of {len(TABLES)} tables ({', '.join(TABLES)}; all "
        "standardized), one random column is shifted by two standard deviations. All other changes are "
        "normal noise in every column, given in standard deviations. The table shows the number of rows "
        "that moved, and the share of them in which the shifted column contributed most. In brackets, the "
        "same for the rows that needed the shift: with their new values but without the shift, they would "
        "not be in their new cluster. The other rows moved because of the noise. The residual is the largest "
        "difference between a change of the evidence and the sum of all contributions, relative to the "
        "change. The last column is the largest contribution of a column that did not change, in months "
        "without noise.",
        "",
        *markdown(["model", "rows moved", *noise, "residual", "unchanged columns"], causes()),
        "",
        "## Data and model",
        "",
        f"Both months are clustered anew ({N_MONTHS} pairs of blobs; one column shifted by one standard "
        "deviation, noise 0.2). The errors are the largest differences between a change of the evidence and "
        "the sum of the parts of data and model, and between it and the sum of all contributions, for models "
        "whose splits add up.",
        "",
        *markdown(["model", "rows moved", "data + model", "contributions"], refits()),
        "",
        "## Drift",
        "",
        "Months without a change, and with one column shifted by 0.2 and 0.5 standard deviations. One in ten "
        "rows is gone and one in ten is new. The level and the least shift of an alarm were set beforehand.",
        "",
        *markdown(["months", "no alarm", "shift of 0.2 found", "shift of 0.5 found"], alarms()),
        "",
        speed(),
    ]
    write("changes", COMMAND, lines)


if __name__ == "__main__":
    main()
