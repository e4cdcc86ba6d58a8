"""What is asked of arrays of any kind."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from whycluster.core.arrays import least
from whycluster.data.arrays import smallest, strongest


@pytest.mark.parametrize("order", ["C", "F"])
@given(st.integers(0, 2**32 - 1), st.integers(0, 9), st.integers(1, 300), st.sampled_from([1, 3, 5, 1000]))
def test_the_first_of_equals(order: str, seed: int, n_rows: int, n_columns: int, span: int) -> None:
    values = (
        np.random.default_rng(seed).integers(-span, span + 1, size=(n_rows, n_columns)).astype(np.float32)
    )
    values = np.array(values, order=order)  # type: ignore[call-overload]
    column, found = least(values)
    assert column.tolist() == values.argmin(axis=1).tolist()
    assert found.tolist() == values.min(axis=1).tolist()
    for n in (1, 3, 6, n_columns):
        expected = [sorted(range(n_columns), key=lambda i: -abs(row[i]))[:n] for row in values]
        ascending = [sorted(range(n_columns), key=lambda i: row[i])[:n] for row in values]
        before = values.copy()
        assert smallest(values, n).tolist() == ascending
        assert strongest(values, n).tolist() == expected
        assert (values == before).all()


def test_missing_values_are_the_weakest() -> None:
    values = np.array([[np.nan, 1.0, -5.0, 2.0, 0.0, 3.0], [1.0, 0.0, np.nan, 0.0, -2.0, 0.0]])
    assert strongest(values, 1).tolist() == [[2], [4]]
    assert strongest(values, 6)[:, -1].tolist() == [0, 2]
    assert smallest(values, 6)[:, -1].tolist() == [0, 2]
