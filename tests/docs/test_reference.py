"""The reference has every public name, and every parameter is documented."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator
from typing import Any

import pytest
from sphinx.util.inventory import InventoryFile

import whycluster as wc
from tests.docs import SITE

MODULES = ("deep", "evaluation", "findings", "plots", "text")
FUNCTIONS = ("tabular.encoder", "tabular.pipeline", "engines.spark.explain")


def inventory() -> set[str]:
    """Return the names that the reference documents."""
    with (SITE / "objects.inv").open("rb") as file:
        found = InventoryFile.load(file, "", lambda base, page: f"{base}{page}")
    return {name for kind, names in found.items() if kind.startswith("py:") for name in names}


def public_names() -> Iterator[str]:
    modules = {"tabular", *MODULES}
    yield from (f"whycluster.{name}" for name in wc.__all__ if name not in modules)
    for module in MODULES:
        for name in importlib.import_module(f"whycluster.{home(module)}").__all__:
            if not inspect.ismodule(look_up(f"whycluster.{module}.{name}")):
                yield f"whycluster.{module}.{name}"
    yield from (f"whycluster.{name}" for name in FUNCTIONS)


def home(module: str) -> str:
    return "explanations.findings" if module == "findings" else module


def look_up(name: str) -> Any:
    found: Any = wc
    for part in name.split(".")[1:]:
        if inspect.ismodule(found) and not hasattr(found, part):
            importlib.import_module(f"{found.__name__}.{part}")
        found = getattr(found, part)
    return found


DOCUMENTED = inventory()


@pytest.mark.parametrize("name", sorted(public_names()))
def test_the_reference_has_every_public_name(name: str) -> None:
    assert name in DOCUMENTED


@pytest.mark.parametrize("name", sorted(DOCUMENTED))
def test_every_name_in_the_reference_has_a_description(name: str) -> None:
    thing = look_up(name) if is_there(name) else None  # fields are described by their class
    if inspect.isroutine(thing) or inspect.isclass(thing):
        assert inspect.getdoc(thing), name


def is_there(name: str) -> bool:
    try:
        look_up(name)
    except AttributeError:
        return False
    return True


def test_the_command_is_documented_with_all_its_options() -> None:
    from whycluster.cli.commands import whycluster

    page = (SITE / "reference" / "cli.html").read_text()
    for name, command in whycluster.commands.items():
        assert f"whycluster-{name}" in page, name
        for parameter in command.params:
            for option in (one for one in parameter.opts if one.startswith("--")):
                assert option in page, (name, option)
