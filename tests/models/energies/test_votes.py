"""Energies from votes of neighbors, compared with a transcription that goes through them one by one."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.reference import neighbors as slow_split
from tests.reference import votes as slow
from whycluster.models.energies import search
from whycluster.models.energies.search import RowFinder
from whycluster.models.energies.votes import HEADS, CommunityEnergy, SpectralEnergy, VoteEnergy

Array = NDArray[Any]
SIZES = np.array([9, 14, 7])
RNG = np.random.default_rng(0)
MEMBERS = np.repeat(RNG.normal(size=(3, 4)), SIZES, axis=0) + 0.8 * RNG.normal(size=(30, 4))
NEW = RNG.normal(size=(12, 4))


def community(**options: Any) -> CommunityEnergy:
    rng = np.random.default_rng(1)
    known = rng.random((30, 3)) - 0.4
    return CommunityEnergy(MEMBERS, SIZES, known, np.array([0.3, 0.5, 0.2]), n_neighbors=5, **options)


def spectral(head: str, **options: Any) -> SpectralEnergy:
    rng = np.random.default_rng(2)
    known, centers = rng.normal(size=(30, 2)), rng.normal(size=(3, 2))
    centers /= np.linalg.norm(centers, axis=1, keepdims=True)
    return SpectralEnergy(MEMBERS, SIZES, known, np.array([0.9, 0.6]), centers, head, **options)


ENERGIES: dict[str, VoteEnergy] = {
    "community": community(),
    "unweighted": community(fades=False),
    **{f"{head}, kernel": spectral(head, gamma=0.4) for head in HEADS},
    **{f"{head}, neighbors": spectral(head, n_neighbors=4) for head in HEADS},
}


def energies(energy: VoteEnergy, x: Array) -> Array:
    out = np.empty((len(x), energy.n_clusters))
    energy.energies(x, out, np.empty((len(x), energy.scratch_width)))
    return out


def expected(energy: VoteEnergy, scores: Array) -> list[float]:
    """Return the energies for the scores of one row."""
    if isinstance(energy, CommunityEnergy):
        v = scores - min(-energy.penalty.max(), energy.known.min()) + 0.5 / energy.n_neighbors
        return [-float(np.log(v[k] / v.sum())) for k in range(3)]
    assert isinstance(energy, SpectralEnergy)
    length = float(np.linalg.norm(scores))
    return [
        {
            "centers": float(((scores - c) ** 2).sum()),
            "lines": length**2 - float(scores @ c) ** 2,
            "directions": float(((scores / length - c) ** 2).sum()),
        }[energy.head]
        for c in energy.centers
    ]


@pytest.mark.parametrize("name", ENERGIES)
def test_members_have_their_own_scores(name: str) -> None:
    energy = ENERGIES[name]
    found = energies(energy, MEMBERS + 1e-13)
    np.testing.assert_allclose(found, [expected(energy, known) for known in energy.known], rtol=1e-9)


@pytest.mark.parametrize("name", ENERGIES)
def test_new_rows_have_the_votes_of_their_neighbors(name: str) -> None:
    energy = ENERGIES[name]
    for x, found in zip(NEW, energies(energy, NEW), strict=True):
        if energy.gamma is None:
            scores = slow.mean_vote(x, MEMBERS, energy.votes, energy.n_neighbors, energy.fades)
        else:
            scores = slow.kernel_vote(x, MEMBERS, energy.votes, energy.gamma)
        np.testing.assert_allclose(found, expected(energy, scores), rtol=1e-8)


def test_equal_members_share_the_mean_of_their_scores() -> None:
    members = MEMBERS.copy()
    members[[3, 20]] = members[5]
    known = community().known
    energy = CommunityEnergy(members, SIZES, known, np.zeros(3))
    scores = known[[3, 5, 20]].mean(axis=0)
    np.testing.assert_allclose(energies(energy, members[[5]])[0], expected(energy, scores), rtol=1e-9)


@pytest.mark.parametrize("name", ENERGIES)
def test_the_gradient(name: str) -> None:
    energy = ENERGIES[name]
    weights = np.tile([1.0, -2.5, 1.5], (len(NEW), 1))
    out, scratch = np.empty_like(NEW), np.empty((len(NEW), energy.scratch_width))
    energy.differentiate(NEW, weights, out, scratch)
    steps = 1e-6 * np.eye(4)
    rises = [((energies(energy, NEW + s) - energies(energy, NEW - s)) * weights).sum(axis=1) for s in steps]
    np.testing.assert_allclose(out, np.stack(rises, axis=1) / 2e-6, rtol=1e-5, atol=1e-7)
    assert (np.abs(out).max() > 0.01) == (energy.gamma is not None or energy.fades)


def test_the_split_is_pooled_over_the_members() -> None:
    energy, weights = community(), np.array([[1.0, -3.0, 2.0]])
    s = energies(energy, NEW[:1])[0]
    out = np.empty((1, 4))
    energy.combine(NEW[:1], weights, out, np.empty((1, energy.scratch_width)))
    stops = np.cumsum(SIZES)
    total = sum(
        weights[0, k] * slow_split.split(NEW[0], list(MEMBERS[stop - size : stop]), s[k], "euclidean")
        for k, (stop, size) in enumerate(zip(stops, SIZES, strict=True))
    )
    np.testing.assert_allclose(out[0], total, rtol=1e-9)
    assert out.sum() == pytest.approx(weights[0] @ s)


def test_a_row_moves_away_from_its_equals() -> None:
    members = MEMBERS.copy()
    members[20] = members[5]
    energy = CommunityEnergy(members, SIZES, community().known, np.zeros(3), n_neighbors=5)
    apart = energy.apart_from(members[[5]])
    rest = np.delete(np.arange(30), [5, 20])
    vote = slow.mean_vote(members[5], members[rest], energy.votes[rest], 5, fades=True)
    np.testing.assert_allclose(energies(apart, members[[5]])[0], expected(energy, vote), rtol=1e-8)
    assert apart.sizes.tolist() == [8, 13, 7]
    assert energy.apart_from(NEW[:1]) is energy
    alone = CommunityEnergy(MEMBERS, np.array([1, 22, 7]), community().known, np.zeros(3))
    assert alone.apart_from(MEMBERS[:1]) is alone  # the only member of its cluster remains


def test_neighbors_at_the_same_distance() -> None:
    """Their weights are equal, as UMAP has them, even if all neighbors are the same point."""
    same = CommunityEnergy(np.ones((30, 4)), SIZES, community().known, np.zeros(3), n_neighbors=30)
    scores = np.bincount(np.repeat(np.arange(3), SIZES)) / 30.0
    np.testing.assert_allclose(energies(same, np.zeros((1, 4)))[0], expected(same, scores), rtol=1e-9)
    out = np.empty((1, 4))
    same.differentiate(np.zeros((1, 4)), np.array([[1.0, -1.0, 0.0]]), out, np.empty((1, 1)))
    assert np.isfinite(out).all()


@pytest.mark.parametrize("name", ENERGIES)
def test_it_can_be_pickled(name: str) -> None:
    energy = ENERGIES[name]
    rows = np.concatenate([MEMBERS[:3], NEW])
    before = energies(energy, rows)
    np.testing.assert_array_equal(energies(pickle.loads(pickle.dumps(energy)), rows), before)


def test_rows_are_found_by_their_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever their order, with duplicates, in batches of any size, and whether or not they are rounded."""
    rng = np.random.default_rng(0)
    points = rng.integers(0, 3, size=(400, 4)).astype(float) * 1e3
    x = np.concatenate([points[::7] * (1.0 + 1e-13), rng.normal(size=(20, 4)), points[:1] + 1e-3])
    pairs = {(i, j) for i in range(len(x)) for j in range(400) if np.abs(x[i] - points[j]).max() < 1e-6}
    for size in (8 << 20, 800):
        monkeypatch.setattr(search, "_PRODUCT_BYTES", size)
        row, point = RowFinder(points, 1e-9).find(x)
        assert set(zip(row.tolist(), point.tolist(), strict=True)) == pairs
        assert (np.diff(row) >= 0).all()
    assert len(pairs) > 100
    nowhere = RowFinder(points, 1e-9).find(np.empty((0, 4)))
    assert [len(each) for each in nowhere] == [0, 0]
