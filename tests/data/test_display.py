"""Numbers as text."""

import pytest

from whycluster.data.display import number


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (-0.0, "0"),
        (0.00012345, "0.000123"),
        (12.345, "12.3"),
        (999.4, "999"),
        (999.9, "1000"),
        (1234.56, "1235"),
        (654391.2, "654391"),
        (1998297.4, "1998297"),
        (-2e9, "-2000000000"),
        (3.5e12, "3.5e+12"),
        (float("nan"), "nan"),
    ],
)
def test_large_numbers_have_no_exponent(value: float, text: str) -> None:
    assert number(value) == text
