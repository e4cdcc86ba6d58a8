"""Run a target many times: each execution ends in a result or in one of our own errors, within limits.

A target runs in a process of its own, because a crash or a hang of a library would end the fuzzer too. The
process writes the number of the current execution to a small shared file, so that the fuzzer knows where a
process stopped, and starts another one behind it.
"""

from __future__ import annotations

import mmap
import os
import random
import resource
import struct
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import whycluster as wc
from tests.fuzz.choices import Choices

SLOWEST = 10.0  # processor seconds that an execution may take
MEMORY = 2 << 30  # bytes that it may take in addition to those before the first one
MOST_FINDINGS = 10  # different ones; then the run stops
# Processor seconds, and seconds in all, without progress after which a process is killed. It must also start.
# On a busy machine, a process may have to wait long for its turn.
_HANGS, _WAITS = 3 * SLOWEST, 60 * SLOWEST
SHARED = 8  # bytes
_STATE = struct.Struct("<qdq")  # next execution, seconds of the slowest, peak memory in KB
# The problems are small, and take up to twice as long on several threads.
_THREADS = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "POLARS_MAX_THREADS"), "1"
)

Target = Callable[[Choices], None]


@dataclass
class Outcome:
    """The executions of a target: how many, how fast, and what went wrong.

    Attributes
    ----------
    slowest : the processor seconds of the slowest execution
    peak : the peak memory of the process, in MB
    findings : a description of each execution that went wrong
    """

    executions: int = 0
    seconds: float = 0.0
    slowest: float = 0.0
    peak: float = 0.0
    findings: list[str] = field(default_factory=list)


def content(target: str, seed: int, number: int, together: int = 1) -> bytes:
    """Return the bytes that drive one execution; ``together`` ones in a row begin with the same `SHARED`."""
    drawn = random.Random(f"{target} {seed} {number}")
    own = drawn.randbytes(drawn.choice((16, 64, 256, 1024)))
    group = random.Random(f"{target} {seed} group {number // together}")
    return own if together == 1 else group.randbytes(SHARED) + own


class Problem(NamedTuple):
    """What went wrong in an execution, and where; problems in the same place count as one finding."""

    place: str
    text: str


def problem(run: Target, data: bytes) -> Problem | None:
    """Execute once; return the error if it is not one of ours, or None."""
    start = time.process_time()  # other processes do not count; `fuzz` notices real hangs
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            run(Choices(data))
    except wc.WhyClusterError:
        pass
    except BaseException as error:  # a panic in a Rust library is not an Exception
        if isinstance(error, KeyboardInterrupt):
            raise
        last = traceback.extract_tb(error.__traceback__)[-1]
        return Problem(f"{type(error)} {last.filename} {last.lineno}", traceback.format_exc())
    seconds = time.process_time() - start
    return Problem("slow", f"took {seconds:.1f} s") if seconds > SLOWEST else None


def fuzz(target: str, runs: int, seed: int = 0, first: int = 0) -> Outcome:
    """Execute a target ``runs`` times, in one process or, after a crash, in several."""
    outcome, end, begun = Outcome(), first + runs, time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        state = Path(folder) / "state"
        state.write_bytes(_STATE.pack(first, 0.0, 0))
        while _read(state)[0] < end and len(outcome.findings) < MOST_FINDINGS:
            outcome.findings += _run_worker(target, seed, end, state)
        number, outcome.slowest, peak = _read(state)
    outcome.executions, outcome.seconds = number - first, time.perf_counter() - begun
    outcome.peak = peak / 1024
    return outcome


def _run_worker(target: str, seed: int, end: int, state: Path) -> list[str]:
    """Run a process until it is done, crashes or hangs; return its findings."""
    before = _read(state)
    command: list[str | Path] = [
        sys.executable,
        "-m",
        "tests.fuzz.worker",
        target,
        str(seed),
        str(end),
        state,
    ]
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=subprocess.STDOUT, env=os.environ | _THREADS
        )
        while process.poll() is None and _makes_progress(process, state):
            pass
        killed = process.poll() is None
        process.kill()
        code = process.wait()
        output.seek(0)
        found = output.read()
    number, slowest, peak = _read(state)
    findings = [f"{target}, execution {each}" for each in found.split("\nFINDING ")[1:]]
    if code:
        what = (
            f"hung, without progress in {_HANGS:g} s of processor time or {_WAITS:g} s"
            if killed
            else f"ended the process with code {code}"
        )
        findings.append(
            f"{target}, execution {number}: {what}\n{found.split(chr(10) + 'FINDING ')[0][-2000:]}"
        )
        state.write_bytes(_STATE.pack(number + 1, max(slowest, before[1]), max(peak, before[2])))
    return findings


def _makes_progress(process: subprocess.Popen[bytes], state: Path) -> bool:
    """Wait for a process to end or to make progress; return whether it did."""
    before, used, until = _read(state)[0], _processor_seconds(process.pid), time.monotonic() + _WAITS
    while process.poll() is None and _read(state)[0] == before:
        if time.monotonic() > until or _processor_seconds(process.pid) > used + _HANGS:
            return False
        time.sleep(0.1)
    return True


def _processor_seconds(process: int) -> float:
    """Return the time that a process has computed for, in all of its threads; 0 if it has ended."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _read(state: Path) -> tuple[int, float, int]:
    number, slowest, peak = _STATE.unpack(state.read_bytes())
    return number, slowest, peak


def work(
    target: str, seed: int, end: int, state: Path, make: Callable[[Path], Target], together: int = 1
) -> None:
    """Execute a target from the number in ``state`` to ``end``, and print what goes wrong."""
    with tempfile.TemporaryDirectory(dir=_fast_folder()) as folder, state.open("r+b") as file:
        shared = mmap.mmap(file.fileno(), _STATE.size)
        number, slowest, peak = _STATE.unpack(shared[:])
        run, places, parent = make(Path(folder)), set[str](), os.getppid()
        problem(run, b"")  # imports and caches do not count
        with limited_memory():
            while number < end and len(places) < MOST_FINDINGS and os.getppid() == parent:
                start = time.process_time()
                found = problem(run, content(target, seed, number, together))
                slowest = max(slowest, time.process_time() - start)
                if found is not None and found.place not in places:
                    places.add(found.place)
                    print(f"\nFINDING {number}: {found.text}", flush=True)
                number += 1
                peak = max(peak, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
                shared[:] = _STATE.pack(number, slowest, peak)


@contextmanager
def limited_memory() -> Iterator[None]:
    """Let the process take only `MEMORY` more than now."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def _fast_folder() -> str | None:
    """Return a folder in memory if there is one; files are written in every execution."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None
