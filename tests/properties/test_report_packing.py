"""What a report packs, for all numbers and texts."""

from __future__ import annotations

import json
from html.parser import HTMLParser

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from whycluster.core.arrays import Codes, Floats
from whycluster.data.arrays import evenly_spaced, strongest
from whycluster.report.formatting import clean_names
from whycluster.report.packing import scaled_halves
from whycluster.report.page import as_json
from whycluster.report.sampling import choose_rows
from whycluster.report.values import choose_encoding, encode

FINITE = st.floats(-1e300, 1e300)
SCALED = st.floats(-1e6, 1e6, allow_subnormal=False)
TIED = st.sampled_from([-1.0, 0.0, 1.0])


@given(hnp.arrays(np.float64, st.integers(1, 30), elements=st.one_of(FINITE, st.just(np.nan))))
def test_values_are_missing_or_right_to_the_digits_shown(values: Floats) -> None:
    coding = choose_encoding(values)
    code = encode(values, coding)
    assert code.dtype == np.uint16
    np.testing.assert_array_equal(code == 65535, np.isnan(values))
    for place, value in zip(code.tolist(), values.tolist(), strict=True):
        if np.isnan(value):
            continue
        shown = (coding.low + place) / 10.0**coding.decimals if coding.known is None else coding.known[place]
        if coding.known is None:
            assert abs(shown - value) <= 0.5000001 * 10.0**-coding.decimals
        if not coding.rounded:
            with np.errstate(over="ignore"):
                is_single = np.float32(value) == value  # shown with the digits that it was written with
            assert shown == value or (is_single and abs(shown - value) <= 1e-7 * abs(value))
        elif coding.known is not None:
            assert f"{shown:.6g}" == f"{value:.6g}"


@given(hnp.arrays(np.float64, st.tuples(st.integers(1, 8), st.integers(1, 5)), elements=SCALED))
def test_halves_keep_three_digits(values: Floats) -> None:
    scale, numbers = scaled_halves(values)
    assert np.isfinite(numbers).all()
    found = numbers.astype(np.float64) * scale.astype(np.float64)[:, None]
    largest = np.abs(values).max(axis=1, keepdims=True)
    assert (np.abs(found - values) <= 6e-4 * np.abs(values) + 2e-9 * largest).all()


@given(
    st.recursive(st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=8)
)
def test_texts_come_back_and_end_no_element(data: object) -> None:
    text = as_json(data)
    assert json.loads(text) == data
    assert not set("<>&\u2028\u2029") & set(text)


@given(st.text())
def test_names_are_one_line_that_is_seen(name: str) -> None:
    (text,) = clean_names([name])
    assert text.isprintable()
    assert len(text) <= 80
    text.encode()  # no half of a character


class _Scripts(HTMLParser):
    count = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:  # noqa: ARG002  # HTMLParser's signature
        self.count += tag == "script"


@given(st.text(alphabet="<>/script!-&\"' \n=xo", max_size=40))
def test_nothing_breaks_out_of_an_element_for_data(text: str) -> None:
    parser = _Scripts()
    parser.feed(f'<script type="application/json">{as_json([text])}</script><p>')
    assert parser.count == 1


@given(
    hnp.arrays(np.float64, st.tuples(st.integers(1, 6), st.integers(1, 9)), elements=SCALED | TIED),
    st.integers(1, 9),
)
def test_the_strongest_are_those_of_a_stable_order(values: Floats, n: int) -> None:
    n = min(n, values.shape[1])
    expected = [
        [i for _, i in sorted((-abs(v), i) for i, v in enumerate(row))[:n]] for row in values.tolist()
    ]
    assert strongest(values, n).tolist() == expected


@given(
    hnp.arrays(np.intp, st.integers(1, 60), elements=st.integers(0, 5)),
    st.integers(1, 70),
    st.lists(st.integers(0, 10**6), max_size=6),
    st.integers(0, 3),
)
def test_chosen_rows(cluster: Codes, n_rows: int, wanted: list[int], seed: int) -> None:
    positions = np.array([row % len(cluster) for row in wanted], dtype=np.intp)
    rows = choose_rows(cluster, positions, n_rows, seed)
    assert len(rows) == min(n_rows, len(cluster))
    assert (np.diff(rows) > 0).all()
    n_clusters = len(set(cluster.tolist()))
    if n_rows >= n_clusters:
        assert len(set(cluster[rows].tolist())) == n_clusters
    if n_rows >= n_clusters + len(set(positions.tolist())):
        assert set(positions.tolist()) <= set(rows.tolist())


@given(st.integers(0, 300), st.integers(1, 400))
def test_rows_are_taken_evenly(n: int, most: int) -> None:
    rows = evenly_spaced(n, most)
    assert len(rows) == min(n, most)
    if most >= n:
        assert rows.tolist() == list(range(n))
    elif most > 1:
        assert (rows[0], rows[-1]) == (0, n - 1)
        gaps = np.diff(rows)
        assert gaps.min() >= 1
        assert np.ptp(gaps) <= 1
