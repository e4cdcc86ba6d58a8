"""Measure the size of a report, and the time to write and to open it: ``python -m benchmarks.report``.

This needs chromedriver and Chromium.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from pathlib import Path

import numpy as np
from sklearn.cluster import KMeans

import whycluster as wc
from benchmarks.measure import write
from examples.report import FLAGS

D, K = 50, 8
SIZES = (5_000, 100_000, 1_000_000)
REPEATS = 7
TIMES = """
const opened = performance.getEntriesByType("navigation")[0];
const start = performance.getEntriesByName("start")[0];
return [opened.loadEventEnd, opened.domInteractive - start.startTime];
"""


def explained(n: int) -> wc.Explanation:
    """Explain rows around random centers, in single precision."""
    random = np.random.default_rng(0)
    centers = 3 * random.normal(size=(K, D)).astype(np.float32)
    X = random.normal(size=(n, D)).astype(np.float32) + centers[random.integers(0, K, n)]
    exp = wc.explain(KMeans(K, n_init=1, random_state=0).fit(X[:5_000]), X)
    assert isinstance(exp, wc.Explanation)
    return exp


def open_times(page: Path) -> tuple[float, float]:
    """Return the median milliseconds until a page is loaded, and the part that its script takes."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    with tempfile.TemporaryDirectory() as profile:
        for flag in (*FLAGS, "--disable-background-networking", f"--user-data-dir={profile}"):
            options.add_argument(flag)
        driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
        try:
            times = []
            for _ in range(REPEATS):
                driver.get("about:blank")
                driver.get(page.as_uri())
                assert len(driver.find_elements("css selector", "#list tbody tr")) == 50
                times.append(driver.execute_script(TIMES))
        finally:
            driver.quit()
    loaded, script = np.median(np.array(times), axis=0)
    return float(loaded), float(script)


def measure(n: int, folder: Path) -> str:
    """Return one line of the table."""
    exp, page = explained(n), folder / f"{n}.html"
    start = time.perf_counter()
    exp.report(page)
    seconds = time.perf_counter() - start
    loaded, script = open_times(page)
    cells = [f"{n:,}", f"{min(n, 5000):,}", f"{seconds:.1f} s", f"{page.stat().st_size / 1000:,.0f} kB"]
    return f"| {' | '.join(cells)} | {loaded:.0f} ms | {script:.0f} ms |"


def main() -> None:
    """Measure everything and write results/report.md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    with tempfile.TemporaryDirectory() as folder:
        lines = [measure(n, Path(folder)) for n in parser.parse_args().sizes]
    page = [
        "# The report",
        "",
        f"The explained tables have {D} columns and {K} clusters.",
        "The page counts as open once headless Chromium has loaded it, listed its first 50 rows and drawn "
        "its "
        "map.",
        f"The time to open the page is the median of {REPEATS} runs. The last column shows how much of "
        "this time "
        "the page's script takes.",
        "",
        "| rows | rows on the page | time to write | size | time to open | time in the script |",
        "|---|---|---|---|---|---|",
        *lines,
    ]
    write("report", "python -m benchmarks.report", page)


if __name__ == "__main__":
    main()
