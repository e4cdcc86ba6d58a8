"""A query under construction: expressions, and the subqueries that compute those that are used repeatedly."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain

from whycluster.core.errors import InvalidInputError
from whycluster.data.column_kinds import ColumnKind
from whycluster.data.frames import unique_name
from whycluster.segments.sql.dialects import WHERE, Dialect

_TABLE = "whycluster_t"
_ROW = "whycluster_row"
_TERMS = 32  # number of terms in one pair of parentheses; databases limit the depth of expressions


@dataclass(frozen=True)
class Column:
    """A column of the table, which is read as a number, as days or as text.

    Attributes
    ----------
    name : its name
    kind : the kind of values that it held when the model was fitted, or None if it is not known
    """

    name: Hashable
    kind: ColumnKind | None = None


@dataclass(frozen=True)
class Value:
    """An SQL expression.

    Attributes
    ----------
    sql : the expression, which can be used in any larger expression without parentheses
    names : the columns of subqueries that it uses
    level : the number of the subquery that can compute it
    is_text : whether it is text instead of a number
    """

    sql: str
    names: frozenset[str] = frozenset()
    level: int = 0
    is_text: bool = False


@dataclass(frozen=True)
class Query:
    """The subqueries of a query. Each one computes columns from those of the subqueries before it.

    Attributes
    ----------
    dialect : the dialect
    alias : the name of the table within the query, which no column of the model has
    levels : the columns of each subquery, by name
    refused : conditions under which the model refuses a row
    """

    dialect: Dialect
    alias: str = _TABLE
    levels: list[dict[str, Value]] = field(default_factory=lambda: [{}])
    refused: list[Value] = field(default_factory=list)
    _bound: dict[str, Value] = field(default_factory=dict)

    @classmethod
    def of(cls, dialect: Dialect, names: Iterable[Hashable]) -> Query:
        """Return an empty query of a table whose columns have these names."""
        return cls(dialect, unique_name(_TABLE, [str(name).lower() for name in names]))

    def write(self, template: str, *parts: Value | str | float, is_text: bool = False) -> Value:
        """Return an expression in which the parts replace the {}; numbers are written as literals."""
        values = [part for part in parts if isinstance(part, Value)]
        texts = [self._text(part) for part in parts]
        names = frozenset(chain.from_iterable(value.names for value in values))
        level = max((value.level for value in values), default=0)
        return Value(template.format(*texts), names, level, is_text)

    def _text(self, part: Value | str | float) -> str:
        if isinstance(part, Value):
            return part.sql
        return part if isinstance(part, str) else self.dialect.number(part)

    def bind(self, value: Value) -> Value:
        """Return the column of a subquery that computes an expression, so that it can be used repeatedly."""
        if value.sql in value.names:
            return value
        if value.sql not in self._bound:
            name = f"v{sum(map(len, self.levels))}"
            while len(self.levels) <= value.level:
                self.levels.append({})
            self.levels[value.level][name] = value
            self._bound[value.sql] = Value(name, frozenset([name]), value.level + 1, value.is_text)
        return self._bound[value.sql]

    def sum(self, terms: Sequence[Value]) -> Value:
        """Return the sum of expressions, in parentheses that are not nested deeply."""
        return self._joined(terms, "({})", " + ")

    def any(self, conditions: Sequence[Value]) -> Value:
        """Return whether one of the conditions holds."""
        return self._joined(conditions, "({})", " OR ")

    def least(self, values: Sequence[Value]) -> Value:
        """Return the least of some numbers; NULLs are ignored."""
        return values[0] if len(values) == 1 else self._joined(values, "LEAST({})", ", ")

    def greatest(self, values: Sequence[Value]) -> Value:
        """Return the greatest of some numbers; NULLs are ignored."""
        return values[0] if len(values) == 1 else self._joined(values, "GREATEST({})", ", ")

    def _joined(self, values: Sequence[Value], around: str, between: str) -> Value:
        if not values:
            return self.write("{}", 0.0)
        while True:
            groups = [values[start : start + _TERMS] for start in range(0, len(values), _TERMS)]
            values = [self.write(around.format(between.join(["{}"] * len(g))), *g) for g in groups]
            if len(values) == 1:
                return values[0]

    def require(self, values: Iterable[Value]) -> None:
        """Refuse rows in which one of these numbers is missing or infinite."""
        total = self.sum([value for value in values if not value.is_text])
        finite = self.write("(COALESCE(ABS({}), {}) < {})", total, float("inf"), float("inf"))
        self.refused.append(self.write("(NOT {})", finite))

    def render(
        self, table: str, keep: Sequence[tuple[str, str]] | None, results: Sequence[tuple[str, Value]]
    ) -> str:
        """Return the whole query.

        Parameters
        ----------
        table : the quoted name of the table
        keep : the columns of the table to return, each with its name in the subqueries; None for all
        results : more columns to return, each with its quoted name
        """
        carried = {_ROW: self.dialect.row_of(self.alias)}
        shown = [self.dialect.expand(_ROW)]
        if keep is not None:
            carried = {inner: f"{self.alias}.{outer}" for outer, inner in keep}
            shown = [f"{inner} AS {outer}" for outer, inner in keep]
        needed = frozenset(chain.from_iterable(value.names for _, value in results))
        return "\n".join(self._lines(table, carried, [*shown, *_named(results)], needed)) + "\n"

    def _lines(
        self, table: str, carried: dict[str, str], shown: Sequence[str], needed: frozenset[str]
    ) -> list[str]:
        """Return the lines of the query; the subqueries are found from the last to the first."""
        parts: list[str] = []
        for number in reversed(range(len(self.levels))):
            made = {name: value for name, value in self.levels[number].items() if name in needed}
            passed = sorted(needed - set(made), key=_number)
            needed = frozenset(passed).union(*(value.names for value in made.values()))
            first = number == 0
            columns = [f"{sql} AS {name}" for name, sql in carried.items()] if first else [*carried]
            columns += [*passed, *(f"{value.sql} AS {name}" for name, value in made.items())]
            self._check_width(len(columns))
            source = f"{table} AS {self.alias}" if first else _subquery(number - 1)
            listed = ",\n    ".join(columns)
            parts.append(
                f"{_subquery(number)} AS (\n  SELECT\n    {listed}\n  FROM {source}{self.dialect.fence}\n)"
            )
        listed = ",\n  ".join(shown)
        return ["WITH " + ",\n".join(reversed(parts)), f"SELECT\n  {listed}", f"FROM {_subquery(-1, self)}"]

    def _check_width(self, n_columns: int) -> None:
        most = self.dialect.most_columns
        if most is not None and n_columns > most:
            raise InvalidInputError(
                f"{WHERE}: a query must have at most {most:,} columns in {self.dialect.name}; this one needs "
                f"{n_columns:,}, since the steps of the model create many features. Use fewer columns or "
                "categories, for example with a lower max_categories, or another dialect."
            )


def _subquery(number: int, query: Query | None = None) -> str:
    """Return the name of a subquery; -1 is the last one of the query."""
    return f"whycluster_{number if query is None else len(query.levels) - 1}"


def _named(results: Sequence[tuple[str, Value]]) -> list[str]:
    return [f"{value.sql} AS {name}" for name, value in results]


def _number(name: str) -> int:
    return int(name.removeprefix("v"))
