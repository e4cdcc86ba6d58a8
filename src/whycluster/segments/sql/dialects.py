"""The differences between SQL dialects, apart from quotes: types, dates, whole rows and limits."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable
from typing import Any, ClassVar

from whycluster.core.errors import InvalidInputError
from whycluster.data.column_kinds import ColumnKind
from whycluster.data.sql_quoting import (
    DOUBLE,
    DUCKDB,
    POSTGRES,
    SPARK,
    check_dialect,
    quote_name,
    quote_text,
    quote_value,
)

WHERE = "to_sql"
_ZONED = r":[0-9.:]*(Z|[+-][0-9][0-9](:?[0-9][0-9])?)$"  # a time with its zone, at the end of a text
_SECONDS = 86400.0  # in a day
# Spark reads a time with a zone only if it has seconds, and a zone only if it has a colon.
_COMPLETE = (
    ("([T ][0-9][0-9]:[0-9][0-9])(Z|[+-]|$)", "$1:00$2"),
    ("(:[0-9.]*[+-][0-9][0-9])([0-9][0-9])$", "$1:$2"),
)


class Dialect(ABC):
    """A dialect of SQL.

    Attributes
    ----------
    name : the name that users choose
    text : the type of text
    most_columns : the maximum number of columns of a subquery, or None if there is no such limit
    fence : what follows a subquery so that its columns are computed only once
    """

    name: ClassVar[str]
    text: ClassVar[str]
    most_columns: ClassVar[int | None] = None
    fence: ClassVar[str] = ""

    @property
    def double(self) -> str:
        """The type of 64-bit floats."""
        return DOUBLE[self.name]

    def identifier(self, name: Hashable) -> str:
        """Return the name of a column in quotes."""
        return quote_name(name, self.name, WHERE)

    def string(self, text: str) -> str:
        """Return text as a literal."""
        return quote_text(text, self.name, WHERE)

    def number(self, value: float) -> str:
        """Return a number as a literal of type double; reading it gives the same bits."""
        if value != value:
            return f"CAST('NaN' AS {self.double})"
        literal = quote_value(float(value), self.name, WHERE)
        return f"({literal})" if literal.startswith("-") else literal

    def read_number(self, column: str, kind: ColumnKind | None) -> str:  # noqa: ARG002  # for PostgreSQL
        """Return a column of numbers or booleans as a double."""
        return f"CAST({column} AS {self.double})"

    @abstractmethod
    def read_days(self, column: str, kind: ColumnKind) -> str:
        """Return a column of dates, dates as text, durations or times of day as a number of days."""

    def row_of(self, alias: str) -> str:
        """Return a whole row of a table as one value."""
        return alias

    def expand(self, row: str) -> str:
        """Return all columns of a value that `row_of` made."""
        return f"{row}.*"


class DuckDB(Dialect):
    """DuckDB."""

    name, text = DUCKDB, "VARCHAR"

    def read_days(self, column: str, kind: ColumnKind) -> str:
        """Return the days since 1970, or the length in days."""
        if kind in (ColumnKind.DURATION, ColumnKind.TIME):
            return f"(epoch({column}) / {self.number(_SECONDS)})"
        zoned, naive = (f"epoch(CAST({column} AS {kind}))" for kind in ("TIMESTAMPTZ", "TIMESTAMP"))
        text = f"CAST({column} AS VARCHAR)"
        # Casts of text to TIMESTAMP ignore the zone. The type is known before the query runs.
        seconds = _case(
            (f"typeof({column}) = 'TIMESTAMP WITH TIME ZONE'", zoned),
            (f"typeof({column}) = 'VARCHAR' AND regexp_matches({text}, '{_ZONED}')", zoned),
            otherwise=naive,
        )
        return f"({seconds} / {self.number(_SECONDS)})"


class Postgres(Dialect):
    """PostgreSQL."""

    name, text = POSTGRES, "TEXT"
    most_columns = 1600  # the limit of a SELECT is 1,664
    fence = " OFFSET 0"  # otherwise, subqueries are merged, and their columns are computed again for each use

    def number(self, value: float) -> str:
        """Return a number as a literal; without the cast, it would be a numeric, which is slow."""
        literal = super().number(value)
        return literal if literal.startswith("CAST") else f"{literal}::float8"

    def read_number(self, column: str, kind: ColumnKind | None) -> str:
        """Return a column as a double. There is no cast from booleans, so they go through text."""
        if kind is not ColumnKind.BOOLEAN:
            return super().read_number(column, kind)
        text = f"CAST({column} AS TEXT)"
        return (
            f"CAST(CASE {text} WHEN 'true' THEN '1' WHEN 'false' THEN '0' ELSE {text} END AS {self.double})"
        )

    def read_days(self, column: str, kind: ColumnKind) -> str:
        """Return the days since 1970, or the length in days."""
        seconds = f"EXTRACT(EPOCH FROM {column})"
        if kind not in (ColumnKind.DURATION, ColumnKind.TIME):
            zoned, naive = (
                f"EXTRACT(EPOCH FROM CAST({column} AS {kind}))" for kind in ("TIMESTAMPTZ", "TIMESTAMP")
            )
            has_zone = f"pg_typeof({column}) = 'timestamptz'::regtype OR CAST({column} AS TEXT) ~ '{_ZONED}'"
            seconds = _case(
                (f"pg_typeof({column}) IN ('date', 'timestamp')", naive), (has_zone, zoned), otherwise=naive
            )
        return f"(CAST({seconds} AS {self.double}) / {self.number(_SECONDS)})"

    def expand(self, row: str) -> str:
        """Return all fields of a composite value."""
        return f"({row}).*"


class Spark(Dialect):
    """Spark SQL, version 4.0 or later."""

    name, text = SPARK, "STRING"
    _epoch = "TIMESTAMP_NTZ'1970-01-01 00:00:00'"

    def read_days(self, column: str, kind: ColumnKind) -> str:
        """Return the days since 1970, or the length in days."""
        if kind is ColumnKind.TIME:
            raise InvalidInputError(
                f"{WHERE}: times of day cannot be read in Spark SQL. Convert column {column} to a "
                "number first, such as hours, and fit the model again."
            )
        if kind is ColumnKind.DURATION:
            micros = self._micros(f"{self._epoch} + {column}")
        else:
            text = f"CAST({column} AS STRING)"
            for pattern, complete in _COMPLETE:
                text = f"regexp_replace({text}, '{pattern}', '{complete}')"
            micros = _case(
                (f"typeof({column}) <> 'string'", self._micros(self._naive(column))),
                (f"{column} RLIKE '{_ZONED}'", f"unix_micros(CAST({text} AS TIMESTAMP))"),
                otherwise=self._micros(self._naive(text)),
            )
        return f"(CAST({micros} AS DOUBLE) / {self.number(1e6 * _SECONDS)})"

    def _naive(self, timestamp: str) -> str:
        return f"CAST({timestamp} AS TIMESTAMP_NTZ)"

    def _micros(self, timestamp: str) -> str:
        return f"timestampdiff(MICROSECOND, {self._epoch}, {timestamp})"

    def row_of(self, alias: str) -> str:
        """Return a struct."""
        return f"struct({alias}.*)"


def _case(*branches: tuple[str, str], otherwise: str) -> str:
    """Return a CASE expression of conditions and their values."""
    whens = " ".join(f"WHEN {condition} THEN {value}" for condition, value in branches)
    return f"CASE {whens} ELSE {otherwise} END"


_DIALECTS: dict[str, Dialect] = {each.name: each for each in (DuckDB(), Postgres(), Spark())}


def find_dialect(name: Any) -> Dialect:
    """Return the dialect of this name."""
    check_dialect(name, WHERE)
    return _DIALECTS[name]
