"""Names and values of the user's data in SQL, quoted so that they can never become code."""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Hashable, Iterable
from decimal import Decimal
from typing import Any

import numpy as np

from whycluster.core.errors import InvalidInputError
from whycluster.data.missing import is_missing
from whycluster.data.validation import check_choice

DUCKDB, POSTGRES, SPARK = "duckdb", "postgres", "spark"
DIALECTS = (DUCKDB, POSTGRES, SPARK)
"""The dialects of SQL."""

DOUBLE = {DUCKDB: "DOUBLE", POSTGRES: "DOUBLE PRECISION", SPARK: "DOUBLE"}
"""The type of 64-bit floats in each dialect."""

_PLAIN = re.compile(r"[\w .,:;!?()<>=+*/%&@#|~^-]*")
_LONGEST = 63  # bytes of a name; PostgreSQL truncates longer names


def check_dialect(dialect: Any, where: str) -> None:
    """Raise an error unless the dialect is known; ``where`` names the public function."""
    check_choice(dialect, DIALECTS, where, "dialect")


def quote_name(name: Hashable, dialect: str, where: str) -> str:
    """Return the name of a column or table in quotes, so that everything in it is taken literally.

    Parameters
    ----------
    name : the name; names that are not text are written as text
    dialect : one of `DIALECTS`
    where : the public function, for messages
    """
    text = str(name)
    if not text or "\0" in text:
        raise InvalidInputError(
            f"{where}: a name in SQL must not be empty or contain the character NUL; got {text!r}. Rename it."
        )
    _check_utf8(text, where)
    if dialect == POSTGRES and len(text.encode()) > _LONGEST:
        raise InvalidInputError(
            f"{where}: a name in PostgreSQL must have at most {_LONGEST} bytes; {text!r} has "
            f"{len(text.encode())}. Rename it."
        )
    if dialect == SPARK and "${" in text:
        raise InvalidInputError(
            f"{where}: a name in Spark must not contain ${{, since Spark replaces it with one of its "
            f"settings; got {text!r}. Rename it."
        )
    mark = "`" if dialect == SPARK else '"'
    return mark + text.replace(mark, 2 * mark) + mark


def check_columns(names: Iterable[Hashable], dialect: str, where: str) -> None:
    """Raise an error if two columns have the same name in the database."""
    seen: dict[str, str] = {}
    for name in map(str, names):
        key = name if dialect == POSTGRES else name.lower()
        if key in seen:
            raise InvalidInputError(
                f"{where}: columns must have different names in {dialect}; {seen[key]!r} and {name!r} are "
                "the same. Rename one of them, and fit the model again."
            )
        seen[key] = name


def quote_table(table: str, dialect: str, where: str) -> str:
    """Return the name of a table in quotes; a dot separates schema and table, as in "main.orders"."""
    if not isinstance(table, str):
        raise InvalidInputError(f"{where}: table must be the name of a table; got {table!r}.")
    return ".".join(quote_name(part, dialect, where) for part in table.split("."))


def quote_value(value: Any, dialect: str, where: str) -> str:
    """Return a value as a literal: text, a number, a boolean, a date, a time, a duration, or NULL if missing.

    Floats keep all of their digits. Dates with a time zone are written in UTC.
    """
    if is_missing(value):
        return "NULL"
    if isinstance(value, (bool, np.bool_)):
        return "TRUE" if value else "FALSE"
    if isinstance(value, (int, np.integer)):
        return str(int(value))
    if isinstance(value, (float, np.floating)):
        return _quote_float(float(value), dialect)
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, (dt.date, dt.time, dt.timedelta)):
        return _quote_time(value, dialect, where)
    if isinstance(value, str):
        return quote_text(value, dialect, where)
    raise InvalidInputError(
        f"{where}: a value in SQL must be text, a number, a boolean, a date, a time or a duration; got "
        f"{value!r} of type {type(value).__name__}."
    )


def quote_text(text: str, dialect: str, where: str) -> str:
    """Return text as a literal."""
    if "\0" in text:
        raise InvalidInputError(f"{where}: text in SQL must not contain the character NUL; got {text!r}.")
    _check_utf8(text, where)
    # The settings of a session decide how Spark reads backslashes, quotes and dollar signs, so text that has
    # any of them is written in hexadecimal digits. In E'', PostgreSQL always reads two backslashes as one.
    if dialect == SPARK and not _PLAIN.fullmatch(text):
        return f"CAST(X'{text.encode().hex().upper()}' AS STRING)"
    literal = "'" + text.replace("'", "''") + "'"
    if dialect == POSTGRES and "\\" in text:
        return "E" + literal.replace("\\", "\\\\")
    return literal


def _check_utf8(text: str, where: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidInputError(
            f"{where}: names and text in SQL must be valid Unicode; got {text!r}."
        ) from None


def _quote_float(number: float, dialect: str) -> str:
    if math.isinf(number):
        return f"CAST('{'-' * (number < 0)}Infinity' AS {DOUBLE[dialect]})"
    text = repr(number + 0.0)  # without the sign of -0
    # Without an exponent, DuckDB and Spark would read a decimal, which may have too few digits.
    return text if "e" in text else f"{text}e0"


def _quote_time(value: Any, dialect: str, where: str) -> str:
    if isinstance(value, dt.timedelta):
        if dialect == SPARK:
            raise InvalidInputError(
                f"{where}: durations such as {value} cannot be written in Spark SQL. Convert the column to "
                "a number first, such as days."
            )
        microseconds = value // dt.timedelta(microseconds=1)
        return f"INTERVAL '{microseconds} microseconds'"
    if isinstance(value, dt.time):
        if dialect == SPARK:
            raise InvalidInputError(
                f"{where}: times of day such as {value} cannot be written in Spark SQL. Convert the column "
                "to a number first, such as hours."
            )
        return f"TIME '{value.isoformat()}'"
    if not isinstance(value, dt.datetime):
        return f"DATE '{value.isoformat()}'"
    if value.tzinfo is None:
        return f"TIMESTAMP '{value.isoformat(' ')}'"
    kind = "TIMESTAMP" if dialect == SPARK else "TIMESTAMP WITH TIME ZONE"
    return f"{kind} '{value.astimezone(dt.timezone.utc).isoformat(' ')}'"
