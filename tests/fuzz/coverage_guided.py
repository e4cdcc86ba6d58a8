"""`python -m tests.fuzz.coverage_guided TARGET`: fuzz with atheris, which looks for ways to new code.

It stops at the first finding. Other arguments go to libFuzzer, such as ``-atheris_runs=1000`` or a folder of
inputs to begin with.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path


def main() -> None:
    """Execute a target until something goes wrong; atheris ends the process."""
    import atheris

    target, *options = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        with atheris.instrument_imports(include=["whycluster"]):  # so nothing of it is imported before
            from tests.fuzz.engine import MEMORY, SLOWEST, problem
            from tests.fuzz.targets import make

            run = make(target, Path(folder))

        def execute(data: bytes) -> None:
            found = problem(run, data)
            if found is not None:
                raise AssertionError(found.text)

        limits = [f"-timeout={SLOWEST:g}", f"-rss_limit_mb={MEMORY >> 20}", "-max_len=1024"]
        atheris.Setup([sys.argv[0], *limits, *options], execute)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
