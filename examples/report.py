"""Write a report on 178 wines, and take a picture of it: ``python -m examples.report --picture wine.png``.

The picture needs Chromium.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import tempfile
from pathlib import Path

from sklearn.cluster import KMeans
from sklearn.datasets import load_wine
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import whycluster as wc

FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run")  # of Chromium
WIDTH, HEIGHT = 1280, 1100  # pixels of the picture, which shows the first two clusters


def write_report(path: Path) -> None:
    """Cluster the wines and write the report, in the units of the measurements."""
    X = load_wine(as_frame=True).data
    model = make_pipeline(StandardScaler(), KMeans(3, n_init=10, random_state=0)).fit(X)
    wc.explain(model, X).report(path, title="178 wines in three clusters")


def take_screenshot(page: Path, picture: Path) -> None:
    """Write a picture of the top of a page."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        raise SystemExit("No picture: Chromium is not installed.")
    with tempfile.TemporaryDirectory() as profile:
        flags = [
            *FLAGS,
            "--hide-scrollbars",
            f"--user-data-dir={profile}",
            f"--window-size={WIDTH},{HEIGHT}",
            f"--screenshot={picture}",
        ]
        subprocess.run([chromium, *flags, page.resolve().as_uri()], check=True, capture_output=True)


def main() -> None:
    """Write the report and, on request, a picture of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--page", type=Path, default=Path("wine.html"), help="the report to write")
    parser.add_argument("--picture", type=Path, help="the picture to write, by default none")
    chosen = parser.parse_args()
    write_report(chosen.page)
    if chosen.picture is not None:
        take_screenshot(chosen.page, chosen.picture)


if __name__ == "__main__":
    main()
