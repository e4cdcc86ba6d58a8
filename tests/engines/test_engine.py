"""The protocol that all engines implement."""

from importlib import import_module
from pathlib import Path

import pytest

from whycluster import engines
from whycluster.engines.engine import Engine

FOLDER = Path(engines.__file__).parent
ENGINES = sorted(path.name for path in FOLDER.iterdir() if (path / "__init__.py").exists())


def test_all_engines_are_found() -> None:
    assert ENGINES == ["anndata", "dask", "files", "spark"]


@pytest.mark.parametrize("name", ENGINES)
def test_every_engine_implements_the_protocol_in_the_same_files(name: str) -> None:
    assert {"engine.py", "parts.py", "results.py"} <= {path.name for path in (FOLDER / name).iterdir()}
    module = import_module(f"whycluster.engines.{name}.engine")
    defined = [
        value for value in vars(module).values() if getattr(value, "__module__", "") == module.__name__
    ]
    (engine,) = [value for value in defined if isinstance(value, type) and issubclass(value, Engine)]
    assert not engine.__abstractmethods__
    assert "run" not in vars(engine)
