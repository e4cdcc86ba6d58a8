"""Encode the numbers, dates and categories in rows so that the page shows them as the data contain them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from whycluster.core.arrays import Codes, Floats
from whycluster.data.arrays import evenly_spaced
from whycluster.data.missing import is_missing
from whycluster.data.table import Table
from whycluster.report.formatting import clean_names

_MISSING = 65535  # the code of a missing value
_LARGEST_CODE = 65534
_MOST_DECIMALS = 9  # numbers with more decimals are measurements or results, which are rounded
_LARGEST_WHOLE = 2.0**53  # the integers up to here are exact
_DIGITS = 6  # of rounded numbers; single precision keeps six digits
_FEW_DIGITS = (4, 3)  # of rounded numbers that are all of a similar size

_SAMPLED_ROWS, _SAMPLED_COLUMNS = 500, 100  # rows and columns from which the sizes of values are estimated


class Encoding(NamedTuple):
    """The encoding of a numeric feature's values as two-byte codes; 65535 means missing.

    Attributes
    ----------
    low, decimals : a code means the value (low + code) / 10**decimals, unless ``known`` is given
    known : the distinct values, if no such formula fits them; a code then means the value known[code]
    rounded : whether the values have more digits than are shown
    """

    low: int = 0
    decimals: int = 0
    known: Floats | None = None
    rounded: bool = False

    @property
    def n_bytes(self) -> int:
        """The number of bytes per value, if all values are different."""
        if self.known is None:
            return 2
        return 6 if are_singles(self.known) else 10


def choose_encoding(values: Floats, is_date: bool = False) -> Encoding:
    """Choose how to encode the values of a feature, (m,), in which missing values are NaN.

    Numbers with a few decimals, as most files contain, stay exact, and so do dates. Others are rounded to six
    digits, or to three or four digits of a typical number if that takes less space.
    """
    known = np.unique(values[np.isfinite(values)])
    if not known.size:
        return Encoding()
    exact = _as_decimals(known)
    if exact is not None:
        known, decimals = exact
        return _fixed(known, decimals) or Encoding(known=known)
    if is_date:
        return Encoding(known=known)
    middle = float(np.median(np.abs(known[known != 0])))
    for digits in _FEW_DIGITS:
        decimals = digits - 1 - int(np.floor(np.log10(middle)))
        few = _fixed(known, decimals) if 0 <= decimals <= 2 * _MOST_DECIMALS else None
        if few is not None:
            return few._replace(rounded=True)
    return Encoding(known=np.unique([float(f"{v:.{_DIGITS}g}") for v in known.tolist()]), rounded=True)


def mean_bytes(table: Table) -> float:
    """Return the mean number of bytes that a value of a table takes, estimated from some rows and columns."""
    rows = evenly_spaced(table.n_rows, _SAMPLED_ROWS)
    features = evenly_spaced(table.n_features, _SAMPLED_COLUMNS)
    values = Table.pick(table.take(rows), np.tile(features, (len(rows), 1)))
    sizes = [
        2 if i in table.categories else choose_encoding(column, i in table.dates).n_bytes
        for i, column in zip(features.tolist(), values.T, strict=True)
    ]
    return float(np.mean(sizes)) if sizes else 2.0


def _as_decimals(known: Floats) -> tuple[Floats, int] | None:
    """Return the numbers, and how many decimals they have, or None if they have too many.

    Numbers in single precision are read with the digits that they were written with.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        for decimals in range(_MOST_DECIMALS + 1):
            if (np.rint(known * 10.0**decimals) / 10.0**decimals == known).all():
                return known, decimals
        single = known.astype(np.float32)
    if (single == known).all():
        written = single.astype(str).astype(np.float64)
        return None if (written == known).all() else _as_decimals(written)
    return None


def _fixed(known: Floats, decimals: int) -> Encoding | None:
    """Return an encoding with a fixed number of decimals, or None if two bytes are not enough."""
    low, high = float(known[0]), float(known[-1])
    if max(abs(low), abs(high)) * 10.0**decimals >= _LARGEST_WHOLE:
        return None
    ends = [_scaled(value, decimals) for value in (low, high)]
    return Encoding(ends[0], decimals) if ends[1] - ends[0] <= _LARGEST_CODE else None


def _scaled(value: float, decimals: int) -> int:
    """Return 10**decimals times a number that is rounded to that many decimals, without rounding twice."""
    return int(f"{value:.{decimals}f}".replace(".", ""))


def encode(values: Floats, encoding: Encoding) -> NDArray[np.uint16]:
    """Encode the values of a numeric feature."""
    codes = np.full(values.shape, _MISSING, dtype=np.uint16)
    here = np.isfinite(values)
    different, place = np.unique(values[here], return_inverse=True)
    if encoding.known is None:
        own = [_scaled(value, encoding.decimals) - encoding.low for value in different.tolist()]
    else:  # rounding keeps the order, so the nearest known number is the rounded one
        middles = encoding.known[:-1] / 2 + encoding.known[1:] / 2
        own = np.searchsorted(middles, different).tolist()
    codes[here] = np.array(own, dtype=np.uint16)[place]
    return codes


def are_singles(known: Floats) -> bool:
    """Return whether the script can read the numbers from single precision, by rounding to six digits."""
    with np.errstate(over="ignore", under="ignore"):
        single = known.astype(np.float32)
    normal = np.isfinite(single) & ((np.abs(single) >= np.finfo(np.float32).tiny) | (known == 0))
    return bool(normal.all()) and all(
        float(f"{s:.{_DIGITS}g}") == v for s, v in zip(single.tolist(), known.tolist(), strict=True)
    )


def renumber_features(*columns: Codes) -> tuple[Codes, list[Codes]]:
    """Return the distinct features in some arrays, and the arrays as positions among these features."""
    used, place = np.unique(np.concatenate([c.ravel() for c in columns]), return_inverse=True)
    ends = np.cumsum([c.size for c in columns])[:-1]
    return used, [part.reshape(c.shape) for part, c in zip(np.split(place, ends), columns, strict=True)]


class Values(NamedTuple):
    """The encoded values of some cells.

    Attributes
    ----------
    codes : the codes of the cells, with the shape of the cells
    features : for each feature, the meaning of its codes
    singles, doubles : the distinct numbers of the features that have no formula
    """

    codes: NDArray[np.uint16]
    features: list[dict[str, Any]]
    singles: NDArray[np.float32]
    doubles: Floats


def encode_values(table: Table, columns: Codes, places: Codes, used: Codes) -> Values:
    """Encode the values of some features of each row.

    Parameters
    ----------
    table : n rows
    columns, places : (n, k) the features of each row and their positions in ``used``
    used : the features
    """
    numbers = Table.pick(table, columns).ravel()  # for categories, their codes
    objects = table.pick(columns).ravel() if table.categories or table.goes_through_steps else None
    result = np.zeros(columns.size, dtype=np.uint16)
    features: list[dict[str, Any]] = []
    numeric: list[tuple[dict[str, Any], Floats]] = []
    order = np.argsort(places, axis=None, kind="stable")
    starts = np.searchsorted(places.ravel()[order], np.arange(len(used) + 1))
    for place, column in enumerate(used.tolist()):
        cells = order[starts[place] : starts[place + 1]]
        values = [] if objects is None else [None if is_missing(v) else v for v in objects[cells].tolist()]
        feature: dict[str, Any] = {}
        features.append(feature)
        if column in table.categories or any(isinstance(v, bool) for v in values):
            result[cells], feature["categories"] = _encode_categories(values)
            continue
        encoding = choose_encoding(numbers[cells], column in table.dates)
        result[cells] = encode(numbers[cells], encoding)
        feature |= {"low": encoding.low, "decimals": encoding.decimals, "rounded": encoding.rounded}
        if column in table.dates:
            feature["date"] = True
        if encoding.known is not None:
            numeric.append((feature, encoding.known))
    singles, doubles = _gather(numeric)
    return Values(result.reshape(columns.shape), features, singles, doubles)


def _gather(numeric: Sequence[tuple[dict[str, Any], Floats]]) -> tuple[NDArray[np.float32], Floats]:
    """Put the distinct numbers of all features into two arrays, and say in the features where they start."""
    arrays: dict[str, list[Floats]] = {"singles": [], "doubles": []}
    for feature, known in numeric:
        some = "singles" if are_singles(known) else "doubles"
        feature["known"], feature["start"] = some, sum(map(len, arrays[some]))
        arrays[some].append(known)
    singles, doubles = (np.concatenate([np.empty(0), *some]) for some in arrays.values())
    return singles.astype(np.float32), doubles


def _encode_categories(values: list[Any]) -> tuple[NDArray[np.uint16], list[str]]:
    """Return codes of categories, which may be None, and the category names in the order of their codes."""
    codes: dict[str, int] = {}
    names = iter(clean_names([v for v in values if v is not None]))
    numbers = [
        _MISSING if v is None else min(codes.setdefault(next(names), len(codes)), _LARGEST_CODE)
        for v in values
    ]
    return np.array(numbers, dtype=np.uint16), list(codes)
