"""Text that a spreadsheet would run as a formula."""

from __future__ import annotations

import re

FORMULA = r"^[=+\-@\t\r\n\uff1d\uff0b\uff0d\uff20]"
"""How formulas begin, also in full-width signs."""
NUMBER = r"^[-+]?[0-9]+(\.[0-9]*)?([eE][-+]?[0-9]+)?$"


def safe_cell(text: str) -> str:
    """Put a single quote before text that a spreadsheet would take for a formula; numbers stay unchanged."""
    return f"'{text}" if re.match(FORMULA, text) and not re.match(NUMBER, text) else text
