"""``whycluster rules FILE`` prints the few conditions that describe each cluster."""

from __future__ import annotations

from typing import Any

from whycluster.cli.clustering import CommandOptions
from whycluster.cli.formatting import cluster_and_note, to_json
from whycluster.cli.output import print_result
from whycluster.core.errors import InvalidInputError
from whycluster.data import display
from whycluster.explanations.reasons.rules import Rules


def rules(
    *,
    conditions: int,
    per_cluster: int,
    sql: str | None,
    dialect: str | None,
    quiet: bool,
    as_json: bool,
    **given: Any,
) -> None:
    """Cluster all rows and print the rules of each cluster, as text, as JSON or in SQL."""
    if dialect is not None and sql is None:
        raise InvalidInputError("--dialect works only with --sql, which names the table of the query.")
    if sql is not None and as_json:
        raise InvalidInputError("--sql and --json cannot be combined. Use only one of these options.")
    clustered = cluster_and_note(CommandOptions.of(given), quiet)
    found = clustered.explain().rules(conditions, per_cluster)
    if sql is not None:
        print_result(_printable(found.to_sql(sql, dialect=dialect or "duckdb")))
    elif as_json:
        print_result(to_json(_facts(found)))
    else:
        rows = clustered.rows
        counts = f"{display.count(rows.height, 'row')}, {display.count(rows.width, 'column')}"
        print_result(f"{counts}; {clustered.description}.\n\n{found.describe()}")


def _printable(query: str) -> str:
    """Return a query; raise an error if printing would change it, because control characters are escaped."""
    if display.printable_lines(query) != query:
        raise InvalidInputError(
            "--sql requires names and values without control characters; some contain them. Write the "
            "query in Python, with exp.rules().to_sql()."
        )
    return query


def _facts(found: Rules) -> dict[str, Any]:
    """Return the rules, for JSON."""
    clusters = [
        {
            "cluster": each.cluster,
            "rows": each.size,
            "coverage": each.coverage,
            "precision": each.precision,
            "rules": [
                {
                    "conditions": [condition.text for condition in rule.conditions],
                    "rows": rule.n_rows,
                    "members": rule.n_members,
                    "coverage": rule.coverage,
                    "precision": rule.precision,
                }
                for rule in each.rules
            ],
        }
        for each in found
    ]
    return {"rows": found.n_rows, "right": found.n_right, "wrong": found.n_wrong, "clusters": clusters}
