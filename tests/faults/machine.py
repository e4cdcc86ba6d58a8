"""A machine whose disk fails: runs tasks in a worker with the shim."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

from tests.faults.disk import Disk

HERE = Path(__file__).parent
SHORT = -1
"""The fault of reads and writes of only half of the bytes."""


class Ended(NamedTuple):
    """How a task ended: the class and message of its error, or empty texts."""

    error: str
    message: str


class Machine:
    """A worker, and the folder that is its disk.

    Attributes
    ----------
    place, disk, log : the folder of the inputs, the folder below it that is the disk, and the log
    result : what the last task returned
    n_matching : how many of its calls were among those that may fail
    """

    def __init__(self, place: Path) -> None:
        self.place, self.disk, self.log = place, place / "disk", place / "log"
        self.result: str | None = None
        self.n_matching = 0
        self.disk.mkdir()
        library = place / "shim.so"
        compiler = ["cc", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
        subprocess.run([*compiler, "-o", library, HERE / "shim.c"], check=True)
        self._worker = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.worker"],
            cwd=HERE.parent.parent,
            env={**os.environ, "LD_PRELOAD": str(library)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def close(self) -> None:
        self._worker.communicate()

    def run(
        self,
        name: str,
        *arguments: str,
        cut: int | None = None,
        power: random.Random | None = None,
        calls: str = "",
        fault: int = 0,
        first: int = 1,
        n_faults: int = 1 << 30,
        **options: Any,
    ) -> Ended | None:
        """Run a task; None if it was killed.

        Parameters
        ----------
        name, arguments, options : the task; see worker.py
        cut : kill the process at this call
        power : if given, the power of the disk fails at the same time, or right after the task
        calls, fault, first, n_faults : which calls fail, with which error, and how many from the first one on
        """
        answer = self.place / "answer"
        answer.unlink(missing_ok=True)
        disk = Disk(self.disk, self.place / "graveyard")
        task = {
            "name": name,
            "arguments": arguments,
            "options": options,
            "disk": str(self.disk),
            "above": str(self.place),
            "log": str(self.log),
            "graveyard": str(disk.graveyard),
            "answer": str(answer),
            "cut_at": cut or 0,
            "calls": calls,
            "fault": fault,
            "first": first,
            "n_faults": n_faults,
        }
        assert self._worker.stdin is not None
        assert self._worker.stdout is not None
        print(json.dumps(task), file=self._worker.stdin, flush=True)
        status = int(self._worker.stdout.readline())
        assert status in (0, signal.SIGKILL), status
        if power is not None:
            disk.replay(self.log)
            disk.cut_power(power)
        if status:
            return None
        found = json.loads(answer.read_text())
        self.result, self.n_matching = found.pop("result", None), found.pop("n_matching")
        return Ended(**found)
