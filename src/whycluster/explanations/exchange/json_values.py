"""Single values as JSON: numbers, booleans, text, or None."""

from __future__ import annotations

import datetime as dt
import json
import math
from decimal import Decimal
from typing import Any

import numpy as np

from whycluster.data.missing import is_missing


def to_plain(value: Any) -> Any:
    """Return a value in a form that JSON can represent.

    Missing values are None. Dates and times are ISO text, durations are seconds, and infinite numbers are the
    strings "Infinity" and "-Infinity". Anything else that JSON cannot represent is text.
    """
    if isinstance(value, np.generic):
        value = (
            value.item() if value.dtype.kind not in "mM" else value.astype(f"{value.dtype.kind}8[us]").item()
        )
    if is_missing(value):
        return None
    if isinstance(value, (bool, str)):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, (float, Decimal)):
        return _number(float(value))
    if isinstance(value, (dt.date, dt.time)):
        return value.isoformat()
    return value.total_seconds() if isinstance(value, dt.timedelta) else str(value)


def _number(value: float) -> float | str:
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return value


def to_text(document: dict[str, Any]) -> str:
    """Return plain data as JSON in ASCII, which can represent even text that is not valid Unicode."""
    return json.dumps(document, allow_nan=False)
