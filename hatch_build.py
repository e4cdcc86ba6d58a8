"""Compile the loops of `whycluster.core.compiled` when the package is built or installed."""

from __future__ import annotations

import os
import shlex
import subprocess
import sysconfig
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FLAGS = ("-std=gnu11", "-O3", "-fno-math-errno", "-fno-trapping-math")
SHARED = (*FLAGS, "-shared", "-fPIC")
# To build for the other one, set CC to a cross-compiler and _PYTHON_HOST_PLATFORM to the platform.
_TESTED = ("linux-x86_64", "linux-aarch64")
SOURCES = ("kmeans.c", "sequential.c")


class CustomBuildHook(BuildHookInterface[Any]):
    """Compiles ``_kmeans.so`` next to its sources; if that fails, the wheel does not contain it."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002  # hatchling's signature
        """Compile the loops and tag the wheel for this platform."""
        if self.target_name != "wheel":
            return
        target = Path(self.root, "src", "whycluster", "core", "compiled", "_kmeans.so")
        platform = sysconfig.get_platform()
        try:
            if platform not in _TESTED:
                raise OSError(f"they have not been tested on {platform}")
            _compile(target)
        except (OSError, ValueError, subprocess.CalledProcessError) as error:
            reason = getattr(error, "stderr", None) or str(error)
            self.app.display_warning(
                f"whycluster is built without its compiled loops and is slower: {reason}"
            )
            with suppress(OSError):  # remove the library of an earlier build
                target.unlink()
            return
        build_data.update(pure_python=False, tag=f"py3-none-{platform.replace('-', '_')}")


def _compile(target: Path) -> None:
    """Compile to a temporary file first, since several installations may build in one folder at a time."""
    compiler = shlex.split(os.environ.get("CC") or "cc")
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".build-") as folder:
        made = Path(folder, target.name)
        command = [*compiler, *SHARED, *(str(target.with_name(name)) for name in SOURCES), "-o", str(made)]
        subprocess.run(command, check=True, capture_output=True, text=True)
        os.replace(made, target)
