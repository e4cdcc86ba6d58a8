"""Load: a service that explains rows for a minute, and millions of rows with thousands of clusters.

Each measurement runs in a process of its own, whose peak memory is reported.
"""

from __future__ import annotations

import argparse
import http.client
import json
import resource
import subprocess
import sys
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np

import whycluster as wc
from benchmarks.measure import write

N_CLIENTS = 16
N_TABLES, N_ROWS, N_FEATURES = 64, 20, 8  # tables that clients send, and their size


def main() -> None:
    """Run all measurements, or one of them in this process."""
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "--only", choices=["service", "memory", "files"], help="one, without a page of results"
    )
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--clusters", type=int, default=2000)
    options = parser.parse_args()
    if options.only == "service":
        print(json.dumps(serve(options.seconds)))
    elif options.only:
        print(json.dumps(explain_many(options.rows, options.clusters, options.only)))
    else:
        report(options)


def report(options: argparse.Namespace) -> None:
    """Write the page of results."""
    sizes = ["--rows", str(options.rows), "--clusters", str(options.clusters)]
    service = _measured("service", "--seconds", str(options.seconds))
    memory, files = _measured("memory", *sizes), _measured("files", *sizes)
    write(
        "load",
        "python -m benchmarks.load",
        [
            "# Load",
            "",
            "A service, `ThreadingHTTPServer` with a network loaded from a file, explains tables of "
            f"{N_ROWS} rows with {N_FEATURES} features. In this test, {N_CLIENTS} clients send tables for "
            f"{options.seconds:g} seconds and compare every answer with the expected one, bit for bit.",
            "",
            "| requests | per second | median, ms | 99th percentile, ms | wrong answers | growth, MB |",
            "|---:|---:|---:|---:|---:|---:|",
            f"| {service['requests']:,} | {service['rate']:,.0f} | {service['median']:.1f} | "
            f"{service['p99']:.1f} | {service['wrong']} | {service['growth']:.1f} |",
            "",
            "The growth is the increase in memory after the first tenth of the time. It includes 32 bytes "
            "per request for the response times that the clients record.",
            "",
            f"The next table is for {options.rows:,} rows with {N_FEATURES} float64 features and "
            f"{options.clusters:,} clusters, explained in memory with `explain` and from five Parquet files "
            "with `explain_dataset`. The peak is the highest memory use of the whole process, including the "
            "libraries and the data.",
            "",
            "| | data, MB | results, MB | seconds | peak memory, MB |",
            "|---|---:|---:|---:|---:|",
            *(
                f"| {name} | {found['data']:,.0f} | {found['results']:,.0f} | {found['seconds']:,.0f} | "
                f"{found['peak']:,.0f} |"
                for name, found in (("`explain`", memory), ("`explain_dataset`", files))
            ),
        ],
    )


def _measured(name: str, *options: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.load", "--only", name, *options]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


class Service(ThreadingHTTPServer):
    """Explains the rows that are posted to it."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, network: wc.Network) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.network = network


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: Service

    def do_POST(self) -> None:
        """Answer with the relevance of the posted rows."""
        rows = np.array(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        body = json.dumps(self.server.network.explain(rows).relevance.tolist()).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the library's signature
        """Print nothing."""


def serve(seconds: float) -> dict[str, Any]:
    """Run the service and its clients."""
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        wc.save(wc.neuralize(rng.normal(size=(10, N_FEATURES))), Path(folder) / "network")
        network = wc.load(Path(folder) / "network")
    tables = rng.normal(size=(N_TABLES, N_ROWS, N_FEATURES))
    expected = [network.explain(table).relevance.tolist() for table in tables]
    service = Service(network)
    threading.Thread(target=service.serve_forever, daemon=True).start()
    times: list[list[float]] = [[] for _ in range(N_CLIENTS)]
    wrong = [0] * N_CLIENTS
    until = time.monotonic() + seconds

    def ask(client: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", service.server_port, timeout=60)
        drawn = np.random.default_rng(client)
        while time.monotonic() < until:
            which, start = int(drawn.integers(N_TABLES)), time.perf_counter()
            connection.request("POST", "/", json.dumps(tables[which].tolist()))
            answer = json.loads(connection.getresponse().read())
            times[client].append(time.perf_counter() - start)
            wrong[client] += answer != expected[which]
        connection.close()

    clients = [threading.Thread(target=ask, args=(client,)) for client in range(N_CLIENTS)]
    for client in clients:
        client.start()
    time.sleep(seconds / 10)
    before = _resident()
    for client in clients:
        client.join()
    grown = _resident() - before
    service.shutdown()
    taken = np.concatenate(times) * 1000
    return {
        "requests": len(taken),
        "rate": len(taken) / seconds,
        "median": float(np.median(taken)),
        "p99": float(np.quantile(taken, 0.99)),
        "wrong": sum(wrong),
        "growth": grown / 2**20,
    }


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def explain_many(n_rows: int, n_clusters: int, way: str) -> dict[str, float]:
    """Explain rows in memory or from files."""
    rng = np.random.default_rng(0)
    centroids = rng.normal(size=(n_clusters, N_FEATURES))
    with tempfile.TemporaryDirectory() as folder:
        if way == "memory":
            X = rng.normal(size=(n_rows, N_FEATURES))
            start = time.perf_counter()
            exp = wc.explain(centroids, X)
            data, results = X.nbytes, exp.relevance.nbytes + exp.evidence.nbytes
        else:
            data = _write_parts(Path(folder), rng, n_rows)
            out = Path(folder) / "out"
            start = time.perf_counter()
            wc.explain_dataset(centroids, Path(folder) / "in", out)
            results = sum(path.stat().st_size for path in out.rglob("*.parquet"))
        seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {"data": data / 2**20, "results": results / 2**20, "seconds": seconds, "peak": peak / 2**20}


def _write_parts(folder: Path, rng: np.random.Generator, n_rows: int) -> int:
    """Write five files; return their size in bytes."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    (folder / "in").mkdir()
    for part in range(5):
        rows = rng.normal(size=(N_FEATURES, n_rows // 5))
        pq.write_table(pa.table({f"x{i}": rows[i] for i in range(N_FEATURES)}), folder / f"in/{part}.parquet")
    return sum(path.stat().st_size for path in (folder / "in").iterdir())


if __name__ == "__main__":
    main()
