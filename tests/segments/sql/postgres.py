"""A PostgreSQL server that lives as long as the tests: its files are temporary, and it listens on no port."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_DEBIAN = Path("/usr/lib/postgresql")
_USER = "tester"


def find_programs() -> Path | None:
    """Return the folder of initdb and pg_ctl, or None if PostgreSQL is not installed."""
    versions = sorted(_DEBIAN.glob("*/bin"), key=lambda path: int(re.sub(r"\D", "", path.parent.name) or 0))
    for folder in [*reversed(versions), *map(Path, os.environ.get("PATH", "").split(os.pathsep))]:
        if (folder / "initdb").exists() and (folder / "pg_ctl").exists():
            return folder
    return None


@contextmanager
def server() -> Iterator[str]:
    """Start a server, yield how to connect to it, and stop it."""
    programs = find_programs()
    if programs is None:
        raise RuntimeError("PostgreSQL must be installed to run these tests: make postgres")
    folder = Path(tempfile.mkdtemp(prefix="whycluster-postgres-"))
    try:
        # The server refuses to run as root.
        who: dict[str, Any] = {}
        if os.getuid() == 0:
            shutil.chown(folder, "postgres", "postgres")
            who = {"user": "postgres", "group": "postgres", "extra_groups": []}
        data = folder / "data"
        settings = f"-k {folder} -c listen_addresses='' -c fsync=off -c max_connections=20"
        _run(
            [
                programs / "initdb",
                "--pgdata",
                data,
                "--username",
                _USER,
                "--auth",
                "trust",
                "--encoding",
                "UTF8",
                "--locale",
                "C",
                "--no-sync",
            ],
            folder,
            who,
        )
        control = [programs / "pg_ctl", "--pgdata", data, "--wait"]
        _run([*control, "--log", folder / "log", "--options", settings, "start"], folder, who)
        try:
            yield f"host={folder} user={_USER} dbname=postgres"
        finally:
            _run([*control, "--mode", "immediate", "stop"], folder, who)
    finally:
        shutil.rmtree(folder)


def _run(command: list[Any], folder: Path, who: dict[str, Any]) -> None:
    # Output goes to a file: the server would keep a pipe open.
    with open(folder.parent / f"{folder.name}.out", "w+") as output:
        Path(output.name).unlink()
        result = subprocess.run(
            [*map(str, command)], stdout=output, stderr=output, cwd=folder, check=False, **who
        )
        output.seek(0)
        assert result.returncode == 0, output.read()
