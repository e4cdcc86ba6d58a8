"""Compile the loops of `whycluster.core.compiled`, and list the contents of the wheel (PEP 770)."""

from __future__ import annotations

import json
import os
import re
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
        build_data["sbom_files"].append(self._bill_of_materials())
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

    def _bill_of_materials(self) -> str:
        """Write the bill of materials in the format of CycloneDX: the package, and what it depends on."""
        core, version = self.metadata.core, self.metadata.version
        itself = {
            "type": "library",
            "bom-ref": core.name,
            "name": core.name,
            "version": version,
            "licenses": [{"license": {"id": core.license}}],
            "purl": f"pkg:pypi/{core.name}@{version}",
        }
        names = [re.split(r"[^\w.-]", each)[0] for each in core.dependencies]
        needed = [
            {"type": "library", "bom-ref": name, "name": name, "purl": f"pkg:pypi/{name}"} for name in names
        ]
        target = Path(self.root, "build", f"{core.name}.cdx.json")
        target.parent.mkdir(exist_ok=True)
        content = {
            "bomFormat": "CycloneDX",
            "specVersion": "1.6",
            "version": 1,
            "metadata": {"component": itself},
            "components": needed,
            "dependencies": [{"ref": core.name, "dependsOn": names}],
        }
        target.write_text(json.dumps(content, indent=2))
        return str(target.relative_to(self.root))


def _compile(target: Path) -> None:
    """Compile to a temporary file first, since several installations may build in one folder at a time."""
    compiler = shlex.split(os.environ.get("CC") or "cc")
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".build-") as folder:
        made = Path(folder, target.name)
        command = [*compiler, *SHARED, *(str(target.with_name(name)) for name in SOURCES), "-o", str(made)]
        subprocess.run(command, check=True, capture_output=True, text=True)
        os.replace(made, target)
