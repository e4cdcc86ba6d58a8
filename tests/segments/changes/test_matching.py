"""Clusters of two segmentations are matched by the rows that they share."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from sklearn.cluster import KMeans

import whycluster as wc
from tests.optional import optional
from tests.segments.changes.months import NAMES, customers, kept, segmentation
from whycluster.segments.changes.matching import NONE, match_clusters

if TYPE_CHECKING:
    import pandas as pd
else:
    pd = optional("pandas")


def overlap(old: Any, new: Any, a: int, b: int) -> float:
    both = sum(1 for x, y in zip(old, new, strict=True) if x == a and y == b)
    either = sum(1 for x, y in zip(old, new, strict=True) if x == a or y == b)
    return both / either if either else 0.0


@pytest.mark.parametrize("seed", range(6))
def test_no_other_matching_has_more_overlap(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n_old, n_new = int(rng.integers(2, 5)), int(rng.integers(2, 5))
    old = rng.integers(0, n_old, 60)
    new = np.where(rng.random(60) < 0.6, old % n_new, rng.integers(0, n_new, 60))
    found = match_clusters(np.arange(n_old), np.arange(n_new), old, new)
    size = max(n_old, n_new)
    best = max(
        itertools.permutations(range(size)),
        key=lambda order: sum(overlap(old, new, a, order[a]) for a in range(n_old)),
    )
    expected = {}
    for a in range(n_old):
        shared = int(((old == a) & (new == best[a])).sum())
        if best[a] < n_new and 2 * shared > min((old == a).sum(), (new == best[a]).sum()):
            expected[a] = best[a]
    matched = {
        a: b for a, b in zip(found.old.tolist(), found.new.tolist(), strict=True) if NONE not in (a, b)
    }
    assert matched == expected
    for place, (a, b) in enumerate(zip(found.old.tolist(), found.new.tolist(), strict=True)):
        if NONE in (a, b):
            assert np.isnan(found.overlap[place])
        else:
            assert found.overlap[place] == pytest.approx(overlap(old, new, a, b))


def test_labels_carry_over() -> None:
    old, new = np.repeat([0, 1, 2], [30, 20, 10]), np.repeat([2, 0, 1], [30, 20, 10])
    found = match_clusters(np.array(["a", "b", "c"]), np.arange(3), old, new)
    assert found.labels.tolist() == ["a", "b", "c"]
    assert found.labels[found.from_new].tolist() == ["b", "c", "a"]
    assert found.overlap.tolist() == [1.0, 1.0, 1.0]


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ((np.arange(2), np.arange(3)), [0, 1, 2]),
        ((np.array([0, 5]), np.arange(3)), [0, 5, 1]),
        ((np.array(["a", "b"]), np.array(["a", "b", "c"])), ["a", "b", "b (new)"]),
        ((np.array(["a", "b"]), np.array(["x", "y", "z"])), ["a", "b", "y"]),
    ],
)
def test_a_cluster_without_a_counterpart_gets_a_label_of_its_own(labels: Any, expected: list[Any]) -> None:
    old, new = np.repeat([0, 0, 1], [30, 20, 40]), np.repeat([0, 1, 2], [30, 20, 40])
    found = match_clusters(labels[0], labels[1], old, new)
    assert found.labels.tolist() == expected
    assert found.new.tolist() == [0, 2, 1]
    assert found.old.tolist() == [0, 1, NONE]


def test_clusters_that_share_few_rows_are_not_matched() -> None:
    old, new = np.repeat([0, 0, 1, 1], [40, 10, 11, 9]), np.repeat([0, 1, 0, 1], [40, 10, 11, 9])
    found = match_clusters(np.arange(2), np.arange(2), old, new)
    assert found.labels.tolist() == [0, 1, 2]
    assert found.new.tolist() == [0, NONE, 1]


def test_noise_is_matched_with_noise_only() -> None:
    labels = np.array([0, "noise"], dtype=object), np.array(["noise", 7], dtype=object)
    old, new = np.repeat([0, 1], [30, 20]), np.repeat([0, 1], [30, 20])
    found = match_clusters(labels[0], labels[1], old, new)
    assert found.labels.tolist() == [0, "noise", 7]
    assert found.new.tolist() == [NONE, 0, 1]
    assert found.overlap[1] == 0.0
    same = match_clusters(labels[0], labels[0], old, old)
    assert same.labels.tolist() == [0, "noise"]


def test_a_refit_keeps_its_names() -> None:
    before = customers()
    after = before.sample(frac=0.9, random_state=0)
    old, again = segmentation(before, names=NAMES), segmentation(after)
    changes = wc.changes(old, again, before, after, on="CustomerID")
    renamed = changes.new_segmentation()
    assert set(renamed.labels.tolist()) == set(NAMES.values())
    assert changes.new_labels == dict(zip(again.labels.tolist(), renamed.labels.tolist(), strict=True))
    found = changes.to_frame().set_index("CustomerID")["to"]
    expected = pd.Series(renamed.assign(after), index=after["CustomerID"].to_numpy())
    assert found.loc[expected.index].tolist() == expected.tolist()
    assert again.labels.tolist() == [0, 1, 2]  # unchanged


def test_numbers_carry_over_too() -> None:
    frame = customers()[["age", "visits"]]
    model = KMeans(3, n_init=2, random_state=0).fit(frame)
    other = KMeans(3, n_init=1, init=model.cluster_centers_[[2, 0, 1]], max_iter=1).fit(frame)
    changes = wc.changes(kept(model, frame), kept(other, frame), *[frame.assign(id=range(240))] * 2, on="id")
    assert changes.new_labels == {0: 2, 1: 0, 2: 1}
    assert changes.new_segmentation().labels.tolist() == [2, 0, 1]
    assert len(changes.record.moves.rows) == 0
