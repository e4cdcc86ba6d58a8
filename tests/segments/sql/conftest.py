"""One database of each kind for all tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture(scope="session")
def duck() -> Iterator[Any]:
    from tests.segments.sql.databases import DuckDB

    database = DuckDB()
    yield database
    database.connection.close()


@pytest.fixture(scope="session")
def postgres() -> Iterator[Any]:
    from tests.segments.sql.databases import Postgres
    from tests.segments.sql.postgres import server

    with server() as address:
        database = Postgres(address)
        yield database
        database.connection.close()


@pytest.fixture(params=["duckdb", "postgres"])
def database(request: pytest.FixtureRequest) -> Any:
    """Return each of the databases in turn."""
    return request.getfixturevalue("duck" if request.param == "duckdb" else "postgres")
