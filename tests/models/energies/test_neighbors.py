"""The energies of the nearest members, compared with a transcription that goes through all pairs."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.reference import neighbors as slow
from whycluster.core import outputs
from whycluster.core.attribution import CodedQuery, attribute
from whycluster.data.table import ArrayTable
from whycluster.models.energies import pooled, search
from whycluster.models.energies.neighbors import NeighborEnergy

Array = NDArray[Any]
SIZES = np.array([12, 1, 30])


def data(metric: str, d: int = 3) -> tuple[Array, Array, Array]:
    """Return members of three clusters, rows of none, and rows to compare; some equal members."""
    rng = np.random.default_rng(0)
    d = 2 if metric == "haversine" else d
    centers = rng.normal(size=(3, d)) * (0.4 if metric == "haversine" else 3.0)
    members = np.repeat(centers, SIZES, axis=0) + rng.normal(size=(SIZES.sum(), d)) * 0.3
    members[3] = members[2]  # a duplicate
    others = rng.normal(size=(6, d))
    x = np.concatenate([members[[0, 2, 3, 12, 20]], others[:2], rng.normal(size=(7, d)) * 1.5])
    return members, others, x


def parts(members: Array) -> list[list[Array]]:
    stops = np.cumsum(SIZES)
    return [list(members[stop - size : stop]) for stop, size in zip(stops, SIZES, strict=True)]


def energies(energy: NeighborEnergy, x: Array) -> Array:
    out = np.empty((len(x), energy.n_clusters))
    energy.energies(x, out, np.empty((len(x), energy.scratch_width)))
    return out


METRICS = ["euclidean", "manhattan", "haversine"]


@pytest.mark.parametrize("metric", METRICS)
def test_the_nearest_member_and_noise(metric: str) -> None:
    members, _, x = data(metric)
    energy = NeighborEnergy(members, SIZES, metric, floor=0.7)
    expected = [
        [*(slow.energy(slow.mth_nearest(row, own, 1, metric), metric) for own in parts(members)), 0.7]
        for row in x
    ]
    np.testing.assert_allclose(energies(energy, x), expected, rtol=1e-9, atol=1e-15)


@pytest.mark.parametrize("metric", METRICS)
def test_the_third_nearest_member(metric: str) -> None:
    members, _, x = data(metric)
    keep = np.r_[0:12, 13:43]
    energy = NeighborEnergy(members[keep], SIZES[[0, 2]], metric, n_neighbors=3)
    expected = [
        [slow.energy(slow.mth_nearest(row, own, 3, metric), metric) for own in parts(members)[::2]]
        for row in x
    ]
    np.testing.assert_allclose(energies(energy, x), expected, rtol=1e-9, atol=1e-15)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("m", [0, 1, 4])
def test_mutual_reachability(metric: str, m: int) -> None:
    members, others, x = data(metric)
    everyone = [*members, *others]
    cores = [slow.core_distance(row, everyone, m, metric) for row in members]
    bias = np.array([-0.1, -0.5, -0.2])
    energy = NeighborEnergy(
        members, SIZES, metric, n_neighbors=m, bias=bias, floor=0.0, cores=np.array(cores), others=others
    )
    starts = np.cumsum(SIZES) - SIZES
    expected = [
        [
            slow.energy(
                slow.reachability(row, own, cores[start : start + len(own)], everyone, m, metric), metric
            )
            + b
            for own, start, b in zip(parts(members), starts, bias, strict=True)
        ]
        + [0.0]
        for row in x
    ]
    np.testing.assert_allclose(energies(energy, x), expected, rtol=1e-9, atol=1e-15)


def test_more_members_are_searched_until_the_smallest_reachability_is_certain() -> None:
    """The nearest members have large core distances, so the decisive one is far down the list."""
    members = np.arange(1.0, 200.0)[:, None]
    cores = np.where(members[:, 0] < 100, 500.0, 0.0)
    pair = np.concatenate([members, members + 1000.0])
    energy = NeighborEnergy(pair, np.array([199, 199]), cores=np.tile(cores, 2), n_neighbors=0)
    np.testing.assert_allclose(energies(energy, np.zeros((1, 1)))[0, 0], 100.0**2)


@pytest.mark.parametrize("n_neighbors", [1, 3, 8])
def test_the_cluster_with_the_most_votes_has_the_lowest_energy(n_neighbors: int) -> None:
    members, others, x = data("euclidean")
    energy = NeighborEnergy(
        members, SIZES, n_neighbors=n_neighbors, others=others, votes=True, leaves_out=False
    )
    everyone = np.concatenate([members, others])
    cluster = np.repeat(np.arange(4), [*SIZES, len(others)])
    found = energies(energy, x).argmin(axis=1)
    n_decided = 0
    for row, k in zip(x, found, strict=True):
        nearest = np.argsort(((everyone - row) ** 2).sum(axis=1), kind="stable")[:n_neighbors]
        votes = np.bincount(cluster[nearest], minlength=4)[:3]
        if (votes == votes.max()).sum() == 1:
            n_decided += 1
            assert k == votes.argmax()
    assert n_decided >= 7


@pytest.mark.parametrize("equal", [True, False])
@pytest.mark.parametrize("metric", METRICS)
def test_the_split_is_pooled_over_the_members(metric: str, equal: bool) -> None:
    members, _, x = data(metric)
    bias = np.array([0.3, -0.2, 0.1])
    d = x.shape[1]
    shares = np.full(d, 1 / d) if equal else np.arange(1, d + 1) / np.arange(1, d + 1).sum()
    energy = NeighborEnergy(members, SIZES, metric, floor=0.5, bias=bias, shares=None if equal else shares)
    s = energies(energy, x)
    weights = np.random.default_rng(1).normal(size=s.shape)
    weights -= weights.mean(axis=1, keepdims=True)
    out = np.empty_like(x)
    energy.combine(x, weights, out, np.empty((len(x), energy.scratch_width)))
    for i, row in enumerate(x):
        expected = weights[i, 3] * 0.5 * shares
        for k, own in enumerate(parts(members)):
            split = slow.split(row, own, s[i, k] - bias[k], metric)
            expected = expected + weights[i, k] * (split + bias[k] * shares)
        np.testing.assert_allclose(out[i], expected, rtol=1e-9, atol=1e-12)
        assert out[i].sum() == pytest.approx(weights[i] @ s[i])


def test_a_row_that_equals_all_members_has_an_equal_split() -> None:
    energy = NeighborEnergy(
        np.array([[1.0, 2.0], [1.0, 2.0], [5.0, 2.0]]), np.array([2, 1]), bias=np.array([0.4, 0.0])
    )
    out = np.empty((1, 2))
    energy.combine(np.array([[1.0, 2.0]]), np.array([[1.0, 0.0]]), out, np.empty((1, energy.scratch_width)))
    np.testing.assert_allclose(out, [[0.2, 0.2]])


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("kind", ["nearest", "reachability"])
def test_the_gradient(metric: str, kind: str) -> None:
    members, others, _ = data(metric)
    cores = np.full(len(members), 0.02) if kind == "reachability" else None
    energy = NeighborEnergy(
        members, SIZES, metric, cores=cores, n_neighbors=1 if cores is None else 3, others=others, floor=0.5
    )
    x = np.random.default_rng(5).normal(size=(40, members.shape[1])) * 0.7
    weights = np.tile([1.0, -2.0, 0.7, 0.3], (len(x), 1))
    out, scratch = np.empty_like(x), np.empty((len(x), energy.scratch_width))
    energy.differentiate(x, weights, out, scratch)
    step = 1e-6 * np.eye(x.shape[1])
    expected = np.stack(
        [((energies(energy, x + e) - energies(energy, x - e)) * weights).sum(axis=1) / 2e-6 for e in step],
        axis=1,
    )
    np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("metric", ["euclidean", "manhattan"])
def test_all_searches_find_the_same_points(metric: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    points, x = rng.normal(size=(300, 6)) + 1e3, rng.normal(size=(50, 6)) + 1e3
    x[:9] = points[:9]
    found = []
    for trees in (9, 0):
        monkeypatch.setattr(search, "_TREES", trees)
        found.append(search.Points(points, search.METRICS[metric]).nearest(x, 7))
    for distance, index in found[1:]:
        np.testing.assert_array_equal(index, found[0][1])
        np.testing.assert_allclose(distance, found[0][0], rtol=1e-9, atol=1e-12)
    assert all((distance[:9, 0] == 0).all() for distance, _ in found)


def test_many_members_share_the_split_through_landmarks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sample of the members gives almost the same split as all of them."""
    rng = np.random.default_rng(0)
    members = rng.normal(size=(3000, 4)) * [1.0, 2.0, 0.5, 1.0] + np.repeat([[0.0], [6.0]], 1500, axis=0)
    x = ArrayTable.of(rng.normal(size=(60, 4)) * 3)
    found = []
    for n in (pooled.LANDMARKS, 3000):
        monkeypatch.setattr(pooled, "LANDMARKS", n)
        energy = NeighborEnergy(members, np.array([1500, 1500]))
        found.append(attribute(energy, x, CodedQuery(rule="path")).relevance)
    assert np.corrcoef(found[0].ravel(), found[1].ravel())[0, 1] > 0.995


def test_relevance_is_continuous() -> None:
    """Along a line, relevance changes little from step to step, also where another member is the nearest."""
    members, others, _ = data("euclidean")
    cores = np.full(len(members), 0.1)
    energy = NeighborEnergy(members, SIZES, cores=cores, n_neighbors=3, others=others, floor=2.0)
    t = np.linspace(0.0, 1.0, 4001)[:, None]
    line = members[0] + 0.01 + t * (members[30] - members[0])
    query = CodedQuery(rule="path", beta=1.0, cluster=np.array(0))
    found = attribute(energy, ArrayTable.of(line), query, ArrayTable.of(members))
    inside = found.evidence > 0
    change = np.abs(np.diff(found.relevance[inside], axis=0)).max()
    assert inside.sum() > 500
    assert change <= 0.01 * np.abs(found.relevance[inside]).max()


def test_blocks_are_remembered_but_not_forever(monkeypatch: pytest.MonkeyPatch) -> None:
    members, _, x = data("euclidean")
    energy, calls = NeighborEnergy(members, SIZES), list[int]()
    whole = NeighborEnergy.find

    def counted(self: NeighborEnergy, x: Array) -> Any:
        calls.append(len(x))
        return whole(self, x)

    monkeypatch.setattr(NeighborEnergy, "find", counted)
    first = energies(energy, x)
    np.testing.assert_array_equal(energies(energy, x.copy()), first)
    assert calls == [len(x)]
    monkeypatch.setattr(pooled, "_CACHE_BYTES", 1)
    energies(energy, x[:3])
    energies(energy, x)
    assert calls == [len(x), 3, len(x)]


def test_it_can_be_pickled() -> None:
    members, others, x = data("euclidean")
    energy = NeighborEnergy(members, SIZES, others=others, floor=1.0)
    outputs.assign(energy, ArrayTable.of(x))
    copy = pickle.loads(pickle.dumps(energy))
    np.testing.assert_array_equal(energies(copy, x), energies(energy, x))


def test_a_row_moves_away_from_itself() -> None:
    members, others, _ = data("euclidean")
    cores = np.full(len(members), 0.1)
    energy = NeighborEnergy(members, SIZES, cores=cores, n_neighbors=2, others=others, floor=0.0)
    for row in (members[[5]], others[[1]]):
        apart = energy.apart_from(row)
        np.testing.assert_allclose(energies(apart, row), energies(energy, row))
        np.testing.assert_allclose(energies(apart, row + 1e-9), energies(energy, row), atol=1e-7)
    alone = members[[12]]  # the only member of its cluster remains
    assert energy.apart_from(alone) is energy
    assert energy.apart_from(alone + 1.0) is energy
