"""Measure how long whycluster takes to start: ``python -m benchmarks.startup``."""

from __future__ import annotations

import subprocess
import sys

from benchmarks.measure import side_by_side, write


def run(*arguments: str) -> None:
    """Run Python in a separate process."""
    subprocess.run([sys.executable, *arguments], check=True, capture_output=True)


def main() -> None:
    """Measure everything and write results/startup.md."""
    times = side_by_side(
        {
            "python": lambda: run("-c", "pass"),
            "whycluster": lambda: run("-c", "import whycluster"),
            "sklearn": lambda: run("-c", "import sklearn.cluster"),
            "both": lambda: run("-c", "import sklearn.cluster; from whycluster import explain"),
            "demo": lambda: run("-m", "whycluster", "demo"),
            "help": lambda: run("-m", "whycluster", "--help"),
        },
        repeats=7,
    )
    lines = [
        "# Startup time",
        "",
        f"`import whycluster` takes {times['whycluster'] - times['python']:.2f} s.",
        f"Importing scikit-learn takes {times['sklearn'] - times['python']:.2f} s. After that, importing "
        f"`explain` takes another {max(0.0, times['both'] - times['sklearn']):.2f} s.",
        "",
        f"`whycluster --help` takes {times['help']:.2f} s, including {times['python']:.2f} s to start "
        "Python.",
        f"`whycluster demo` takes {times['demo']:.1f} s.",
    ]
    write("startup", "python -m benchmarks.startup", lines)


if __name__ == "__main__":
    main()
