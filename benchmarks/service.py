"""How long a web service takes to explain one row: ``python -m benchmarks.service``.

Calls the service of docs/handover.md within one process, without a network, and compares it with a service
that returns its input, with `Pipeline.predict`, and with the ONNX model in onnxruntime.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import onnxruntime
import pandas as pd
from fastapi import Body, FastAPI
from fastapi.testclient import TestClient
from sklearn.cluster import KMeans
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import whycluster as wc
from benchmarks.measure import write

N_ROWS = 2000
N_NUMBERS = 10
N_CLUSTERS = 8
REPEATS = 200
COMMAND = "python -m benchmarks.service"


def numbers() -> pd.DataFrame:
    """Draw groups of rows with numeric columns."""
    rng = np.random.default_rng(0)
    centers = rng.normal(0, 4, (N_CLUSTERS, N_NUMBERS))
    values = centers[rng.integers(0, N_CLUSTERS, N_ROWS)] + rng.normal(size=(N_ROWS, N_NUMBERS))
    frame: pd.DataFrame = pd.DataFrame(values, columns=[f"n{i}" for i in range(N_NUMBERS)])
    return frame


def mixed() -> pd.DataFrame:
    """Draw the same rows, with four columns of categories and one of missing values."""
    frame, rng = numbers(), np.random.default_rng(1)
    for i in range(4):
        frame[f"c{i}"] = rng.choice(["red", "green", "blue"], N_ROWS)
    frame.loc[::7, "n0"] = np.nan
    return frame


def row_of(frame: pd.DataFrame, i: int) -> dict[str, Any]:
    """Return a row as the body of a request."""
    row: dict[str, Any] = json.loads(frame.iloc[i].to_json())
    return row


def timed(calls: dict[str, Callable[[], Any]]) -> dict[str, float]:
    """Return the median processor time of each call, in seconds; it depends little on other programs."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(REPEATS):
        for name, call in calls.items():
            start = time.process_time()
            call()
            times[name].append(time.process_time() - start)
    return {name: float(np.median(values)) for name, values in times.items()}


def service(seg: wc.Segmentation) -> TestClient:
    """Return a client of the service, which also has an address that returns its input."""
    app = FastAPI()

    @app.post("/explain")
    def explain(row: dict[str, Any] = Body()) -> Any:  # noqa: B008  # how FastAPI declares a body
        return seg.explain(pd.DataFrame([row])).to_dict(n_strongest=3)["rows"][0]

    @app.post("/echo")
    def echo(row: dict[str, Any] = Body()) -> Any:  # noqa: B008  # how FastAPI declares a body
        return row

    return TestClient(app)


def calls_of(seg: wc.Segmentation, row: dict[str, Any]) -> dict[str, Callable[[], Any]]:
    """Return what is timed."""
    client = service(seg)
    return {
        "the service": lambda: client.post("/explain", json=row).raise_for_status(),
        "a service that returns its input": lambda: client.post("/echo", json=row).raise_for_status(),
        "`seg.explain` and `to_dict`": lambda: seg.explain(pd.DataFrame([row])).to_dict(n_strongest=3),
        "`Pipeline.predict`": lambda: seg.model.predict(pd.DataFrame([row])),
    }


def table(times: dict[str, float]) -> list[str]:
    """Return the rows of a table of milliseconds."""
    lines = [f"| {name} | {1000 * seconds:.2g} |" for name, seconds in times.items()]
    return ["| one row through | processor time, ms |", "|---|---:|", *lines, ""]


def main() -> None:
    """Measure both models and write results/service.md."""
    frame = numbers()
    steps = make_pipeline(StandardScaler(), KMeans(N_CLUSTERS, n_init=1, random_state=0)).fit(frame)
    plain = wc.Segmentation.of(steps, frame, measure_quality=False)
    data = plain.network.to_onnx(plain.population.measured).SerializeToString()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(data, options)
    one = frame.iloc[:1].to_numpy()
    calls = calls_of(plain, row_of(frame, 0))
    calls["the ONNX model in onnxruntime"] = lambda: session.run(None, {"X": one})
    scaled = timed(calls)

    frame = mixed()
    seg = wc.segment(frame, N_CLUSTERS, measure_quality=False)
    tabular = timed(calls_of(seg, row_of(frame, 1)))
    write(
        "service",
        COMMAND,
        [
            "# One row at a time through a web service",
            "",
            "The service of [Hand over to other programs](../../docs/handover.md), called within one "
            "process, without a network.",
            f"Each figure is the processor time of all threads, the median of {REPEATS} calls. Calls take "
            "turns.",
            "Calls wait only for the processor, so the latency on an idle machine should be about the same; "
            "it was not measured.",
            "",
            f"## {N_NUMBERS} numeric columns: `StandardScaler` and `KMeans({N_CLUSTERS})`",
            "",
            *table(scaled),
            f"## `wc.segment`: {N_NUMBERS} numeric and 4 categorical columns, {N_CLUSTERS} clusters",
            "",
            *table(tabular)[:-1],
        ],
    )


if __name__ == "__main__":
    main()
