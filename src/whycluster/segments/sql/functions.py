"""Functions of one number in SQL. Where NumPy returns NaN, the result is NULL.

PostgreSQL raises an error where NumPy returns NaN or infinity, so each function checks its argument first.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any, TypeAlias

import numpy as np

from whycluster.segments.sql.query import Query, Value

Writer: TypeAlias = Callable[[Query, Value], Value]
_MOST_EXPONENT, _LEAST_EXPONENT = 709.0, -700.0  # outside, exp overflows or loses digits


def writer_of(function: Any) -> Writer | None:
    """Return the function that writes a NumPy function in SQL, or None if there is none."""
    return _WRITERS.get(function) if isinstance(function, np.ufunc) else None


def log(query: Query, x: Value) -> Value:
    """Return the natural logarithm: NULL below 0, and -Infinity at 0."""
    return query.write("CASE WHEN {} > {} THEN LN({}) WHEN {} = {} THEN {} END", x, 0.0, x, x, 0.0, -inf)


def _log1p(query: Query, x: Value) -> Value:
    """Return log(1 + x). The factor corrects for the digits of x that 1 + x loses."""
    u = query.bind(query.write("({} + {})", x, 1.0))
    near = query.write("CASE WHEN {} = {} THEN {}", u, 1.0, x)
    far = query.write("WHEN {} > {} THEN LN({}) * {} / ({} - {})", u, 0.0, u, x, u, 1.0)
    return query.write("{} {} WHEN {} = {} THEN {} END", near, far, u, 0.0, -inf)


def exp(query: Query, x: Value) -> Value:
    """Return the exponential: Infinity if it overflows, and about 0 if it underflows."""
    safe = query.write("EXP(GREATEST({}, {}))", x, _LEAST_EXPONENT)
    return query.write(
        "CASE WHEN {} > {} THEN {} WHEN {} IS NOT NULL THEN {} END", x, _MOST_EXPONENT, inf, x, safe
    )


def _expm1(query: Query, x: Value) -> Value:
    """Return exp(x) - 1. The factor corrects for the digits of x that the exponential loses."""
    u = query.bind(exp(query, x))
    near = query.write("CASE WHEN {} = {} THEN {}", u, 1.0, x)
    middle = query.write("WHEN ABS({}) < {} THEN ({} - {}) * {} / LN({})", x, 1.0, u, 1.0, x, u)
    return query.write("{} {} ELSE {} - {} END", near, middle, u, 1.0)


def _sqrt(query: Query, x: Value) -> Value:
    return query.write("CASE WHEN {} >= {} THEN SQRT({}) END", x, 0.0, x)


def _cbrt(query: Query, x: Value) -> Value:
    return query.write("CBRT({})", x)


def _square(query: Query, x: Value) -> Value:
    return query.write("({} * {})", x, x)


def _abs(query: Query, x: Value) -> Value:
    return query.write("ABS({})", x)


def _negative(query: Query, x: Value) -> Value:
    return query.write("(- {})", x)


def _log_to_base(base: float) -> Writer:
    def write(query: Query, x: Value) -> Value:
        return query.write("({} / {})", log(query, x), float(np.log(base)))

    return write


_WRITERS: dict[Any, Writer] = {
    np.log: log,
    np.log1p: _log1p,
    np.log2: _log_to_base(2.0),
    np.log10: _log_to_base(10.0),
    np.exp: exp,
    np.expm1: _expm1,
    np.sqrt: _sqrt,
    np.cbrt: _cbrt,
    np.square: _square,
    np.abs: _abs,
    np.fabs: _abs,
    np.negative: _negative,
}


def box_cox(query: Query, x: Value, power: float) -> Value:
    """Return (x^power - 1) / power, or log(x) if the power is 0; rows without a positive x are refused."""
    query.refused.append(query.write("({} <= {})", x, 0.0))
    positive = query.bind(query.write("CASE WHEN {} > {} THEN LN({}) END", x, 0.0, x))
    return _powered(query, positive, power)


def yeo_johnson(query: Query, x: Value, power: float) -> Value:
    """Return the Box-Cox transform of 1 + x or, for negative x, its reflection with power 2 - power."""
    size = query.bind(query.write("ABS({})", x))
    logarithm = query.bind(_log1p(query, size))
    above = _powered(query, logarithm, power)
    below = _powered(query, logarithm, 2.0 - power)
    return query.write(
        "CASE WHEN {} >= {} THEN {} WHEN {} < {} THEN (- {}) END", x, 0.0, above, x, 0.0, below
    )


def _powered(query: Query, logarithm: Value, power: float) -> Value:
    """Return (exp(power * logarithm) - 1) / power, or its limit at power 0."""
    if abs(power) < np.spacing(1.0):
        return logarithm
    scaled = query.bind(query.write("({} * {})", power, logarithm))
    return query.write("({} / {})", query.bind(_expm1(query, scaled)), power)
