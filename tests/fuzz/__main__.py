"""`python -m tests.fuzz TARGET --runs N`: fuzz one target, or all, and report what was found."""

from __future__ import annotations

import argparse
import sys

from tests.fuzz.engine import fuzz
from tests.fuzz.targets import TARGETS


def main() -> int:
    """Return 1 if anything was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("target", choices=["all", *TARGETS], nargs="?", default="all")
    parser.add_argument("--runs", type=int, default=None, help="executions; by default those of the tests")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="number of the first execution, to repeat one")
    options = parser.parse_args()
    names = list(TARGETS) if options.target == "all" else [options.target]
    n_findings = 0
    print(f"{'target':12} {'executions':>10} {'per second':>10} {'slowest, s':>10} {'peak, MB':>9} findings")
    for name in names:
        outcome = fuzz(name, options.runs or TARGETS[name].runs, options.seed, options.first)
        rate = outcome.executions / outcome.seconds
        print(
            f"{name:12} {outcome.executions:10,} {rate:10,.0f} {outcome.slowest:10.2f} {outcome.peak:9,.0f} "
            f"{len(outcome.findings)}",
            flush=True,
        )
        n_findings += len(outcome.findings)
        for finding in outcome.findings:
            print(finding)
    return int(n_findings > 0)


if __name__ == "__main__":
    sys.exit(main())
