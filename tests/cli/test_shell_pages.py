"""The commands in the README and in "five minutes in the shell" run, in their order."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import numpy as np
import pytest

from whycluster import cli

ROOT = Path(__file__).parents[2]
PAGES = ("README.md", "docs/start/shell.md", "docs/start/install.md")


def commands(page: str) -> list[list[str]]:
    """Return the commands of whycluster on a page; pip is not run."""
    blocks = re.findall(r"^```sh\n(.*?)^```", (ROOT / page).read_text(), re.DOTALL | re.MULTILINE)
    lines = [shlex.split(line, comments=True) for block in blocks for line in block.splitlines()]
    assert {line[0] for line in lines if line} <= {"whycluster", "pip"}
    return [line[1:] for line in lines if line and line[0] == "whycluster"]


def write_customers(path: Path, seed: int) -> None:
    rng = np.random.default_rng(seed)
    lines = ["CustomerID,Age,Spend,City"]
    for i in range(120):
        group = (i + 1 + (i % 17 == seed)) % 3  # some customers move from one file to the other
        age, spend = 20 + 20 * group + rng.normal(), 100 * 3**group + rng.normal()
        lines.append(
            f"{i},{age:.1f},{'' if i % 40 == 5 else f'{spend:.2f}'},{('Rome', 'Oslo', 'Bonn')[group]}"
        )
    path.write_text("\n".join(lines) + "\n")


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_the_commands_of_a_page_run(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_customers(tmp_path / "customers.csv", 0)
    write_customers(tmp_path / "february.csv", 1)
    found = commands(page)
    assert found
    for command in found:
        assert cli.main(command) == 0, (command, capsys.readouterr())
