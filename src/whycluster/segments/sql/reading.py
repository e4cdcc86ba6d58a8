"""Columns of the table, read as numbers, as days or as text. NULL and NaN are both missing."""

from __future__ import annotations

from whycluster.core.errors import UnsupportedModelError
from whycluster.data.column_kinds import ColumnKind
from whycluster.pipelines.steps import Step
from whycluster.segments.sql.query import Column, Query, Value


def number(source: Column | Value, query: Query, step: Step | None) -> Value:
    """Return a number, with NULL for a missing one."""
    if isinstance(source, Column):
        read = query.dialect.read_number(_column(source, query), source.kind)
        return query.bind(query.write("NULLIF({}, {})", read, float("nan")))
    if source.is_text:
        raise UnsupportedModelError(
            f"to_sql: {step or 'the model'} must take numbers to be written in SQL; it takes text."
        )
    return source


def days(source: Column | Value, query: Query, step: Step) -> Value:
    """Return a column of dates, durations or times of day in days."""
    if isinstance(source, Value):
        raise UnsupportedModelError(
            f"to_sql: {step} must read a column of the table; it follows other steps."
        )
    read = query.dialect.read_days(_column(source, query), source.kind or ColumnKind.DATE)
    return query.bind(query.write("{}", read))


def text(source: Column | Value, query: Query, step: Step | None) -> Value:
    """Return a column as text."""
    if isinstance(source, Column):
        cast = f"CAST({_column(source, query)} AS {query.dialect.text})"
        return query.bind(query.write("{}", cast, is_text=True))
    if not source.is_text:
        raise UnsupportedModelError(
            f"to_sql: {step or 'the model'} must take text to be written in SQL; it takes numbers."
        )
    return source


def _column(source: Column, query: Query) -> str:
    return f"{query.alias}.{query.dialect.identifier(source.name)}"
