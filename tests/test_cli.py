"""The command, run as people run it: as a process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import whycluster
from whycluster import cli
from whycluster.errors import WhyClusterError

GOLDEN = Path(__file__).parent / "golden"


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "whycluster", *arguments], capture_output=True, text=True, check=False
    )


def test_demo_tells_what_makes_each_cluster_and_three_rows() -> None:
    result = run("demo")
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    assert result.stdout == (GOLDEN / "demo.txt").read_text()
    assert result.stdout.isascii()


def test_the_installed_command_is_the_module() -> None:
    command = Path(sys.executable).with_name("whycluster")
    result = subprocess.run([command, "--version"], capture_output=True, text=True, check=True)
    assert result.stdout == run("--version").stdout == f"whycluster {whycluster.__version__}\n"


def test_without_a_command_it_shows_the_help() -> None:
    result = run()
    assert result.returncode == 2
    assert "demo" in result.stdout


def test_an_unknown_command_is_one_mistake() -> None:
    result = run("explode")
    assert result.returncode == 2
    assert "invalid choice: 'explode'" in result.stderr


def test_an_error_is_one_line_and_exit_code_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> str:
        raise WhyClusterError("explain: something is wrong.")

    monkeypatch.setattr("whycluster.cli.demo.demo", fail)
    assert cli.main(["demo"]) == 2
    assert capsys.readouterr().err == "whycluster: explain: something is wrong.\n"
    with pytest.raises(WhyClusterError):
        cli.main(["--debug", "demo"])
