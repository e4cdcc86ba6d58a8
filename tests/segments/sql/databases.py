"""Databases for tests of `to_sql`: load a data frame as a table, and run a query on it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from whycluster.data.missing import is_missing

ROW = "row number"  # the column that identifies rows


class Database(ABC):
    """A database with the interface that the tests need."""

    dialect: str

    @abstractmethod
    def execute(self, sql: str) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Run a statement; return the names of the columns and the rows."""

    @abstractmethod
    def type_of(self, values: pd.Series[Any]) -> str:
        """Return the type of a column that can hold these values."""

    @abstractmethod
    def insert(self, table: str, rows: list[list[Any]]) -> None:
        """Insert rows into a table whose name is in quotes."""

    def quoted(self, name: str) -> str:
        return '"' + name.replace('"', '""') + '"'

    @contextmanager
    def holding(self, frame: pd.DataFrame, table: str) -> Iterator[None]:
        """Store a frame as a table, with the numbers of its rows, while a block runs."""
        named = frame.reset_index(drop=True).copy()
        named.insert(0, ROW, range(len(named)))
        quoted = self.quoted(table)
        types = ", ".join(f"{self.quoted(str(c))} {self.type_of(named[c])}" for c in named)
        self.execute(f"CREATE TABLE {quoted} ({types})")
        try:
            columns = [named[name].tolist() for name in named]
            self.insert(quoted, [[to_null(cell) for cell in row] for row in zip(*columns, strict=True)])
            yield
        finally:
            self.execute(f"DROP TABLE {quoted}")

    def score(self, sql: str) -> pd.DataFrame:
        """Run a query that `to_sql` made, and return its result in the order of the rows."""
        names, rows = self.execute(sql)
        found: Any = pd.DataFrame(rows, columns=names, dtype=object)
        ordered: pd.DataFrame = found.sort_values(ROW, ignore_index=True)
        return ordered


def to_null(cell: Any) -> Any:
    if is_missing(cell):
        return None
    return cell.to_pydatetime() if isinstance(cell, pd.Timestamp) else cell


class DuckDB(Database):
    dialect = "duckdb"

    def __init__(self) -> None:
        import duckdb

        self.connection = duckdb.connect()

    def execute(self, sql: str) -> tuple[list[str], list[tuple[Any, ...]]]:
        found = self.connection.execute(sql)
        return [column[0] for column in found.description or []], found.fetchall()

    def type_of(self, values: pd.Series[Any]) -> str:
        return {"f": "DOUBLE", "i": "BIGINT", "b": "BOOLEAN", "M": "TIMESTAMP", "m": "INTERVAL"}.get(
            values.dtype.kind, "VARCHAR"
        )

    def insert(self, table: str, rows: list[list[Any]]) -> None:
        columns = [pa.array(values) for values in zip(*rows, strict=True)]  # row by row would be slow
        new = pa.table(columns, names=[f"c{i}" for i in range(len(columns))])
        self.connection.register("new", new)
        self.connection.execute(f"INSERT INTO {table} SELECT * FROM new")
        self.connection.unregister("new")


class Postgres(Database):
    dialect = "postgres"

    def __init__(self, address: str) -> None:
        import psycopg

        self.connection = psycopg.connect(address, autocommit=True)

    def execute(self, sql: str) -> tuple[list[str], list[tuple[Any, ...]]]:
        found = self.connection.execute(sql.encode())
        if found.description is None:
            return [], []
        return [column.name for column in found.description], found.fetchall()

    def type_of(self, values: pd.Series[Any]) -> str:
        kinds = {"f": "double precision", "i": "bigint", "b": "boolean", "M": "timestamp", "m": "interval"}
        return kinds.get(values.dtype.kind, "text")

    def insert(self, table: str, rows: list[list[Any]]) -> None:
        with self.connection.cursor().copy(f"COPY {table} FROM STDIN".encode()) as copy:
            for row in rows:
                copy.write_row(row)


def nan_for_null(values: pd.Series[Any]) -> np.ndarray[Any, Any]:
    """Return numbers, with NaN for NULL."""
    return np.array([np.nan if value is None else float(value) for value in values])
