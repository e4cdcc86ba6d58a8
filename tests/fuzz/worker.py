"""The process that executes a target; started by `engine.fuzz`."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.fuzz.engine import work
from tests.fuzz.targets import TARGETS, make

if __name__ == "__main__":
    name, seed, end, state = sys.argv[1:]
    work(name, int(seed), int(end), Path(state), lambda folder: make(name, folder), TARGETS[name].together)
