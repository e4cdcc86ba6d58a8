"""The reference has every public name, and every parameter is documented."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from bs4 import BeautifulSoup, Tag
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


@cache
def entries() -> dict[str, Tag]:
    """Return the signature of every name in the reference."""
    pages = (BeautifulSoup(path.read_text(), "html.parser") for path in SITE.glob("reference/*.html"))
    return {str(found["id"]): found for page in pages for found in page.select("dt.sig[id]")}


def parameters(signature: Tag) -> list[str]:
    names = (found.select_one("span.n") for found in signature.select("em.sig-param"))
    return [name.text for name in names if name is not None and name.text[0] not in "*_"]


def described_in(signature: Tag) -> set[str]:
    """Return the names that a description lists as parameters or attributes, or has as code in its text."""
    text = signature.find_next_sibling("dd")
    assert text is not None
    own = [part for part in text.select("dl.field-list strong, code") if not is_of_member(part, text)]
    return {name.strip(" *") for part in own for name in part.text.split(",")}


def is_of_member(part: Tag, text: Tag) -> bool:
    """Return whether part of the description of a class belongs to one of its members."""
    return any("py" in (above.get("class") or []) for above in part.parents if text in above.parents)


def described_by_class(name: str) -> set[str]:
    """Return the names in the text about a class and its bases, which describes what methods share."""
    owner = name.rpartition(".")[0]
    if not inspect.isclass(look_up(owner)):
        return set()
    names = {f"{base.__module__}.{base.__qualname__}" for base in look_up(owner).__mro__}
    known = [found for full, found in entries().items() if full == owner or same_class(full, names)]
    texts = [found.find_next_sibling("dd") for found in known]
    return {code.text for text in texts if text is not None for code in text.select("dd > p > code")}


def same_class(name: str, wanted: set[str]) -> bool:
    found = look_up(name) if is_there(name) else None
    return inspect.isclass(found) and f"{found.__module__}.{found.__qualname__}" in wanted


@pytest.mark.parametrize("name", sorted(DOCUMENTED))
def test_every_parameter_is_described(name: str) -> None:
    signature = entries().get(name)
    wanted = set() if signature is None else set(parameters(signature))
    if signature is not None and not wanted <= described_in(signature):
        assert wanted <= described_in(signature) | described_by_class(name)


def test_parameters_are_found_in_signatures() -> None:
    """The test above relies on how Sphinx and its theme write signatures and descriptions."""
    assert parameters(entries()["whycluster.Segmentation.assign"]) == ["new", "check"]
    assert parameters(entries()["whycluster.explain"]) == list(inspect.signature(wc.explain).parameters)
    assert {"model", "X", "query", "target"} <= described_in(entries()["whycluster.explain"])
    assert "within" not in described_in(entries()["whycluster.Explanation"])
    assert "within" in described_in(entries()["whycluster.Explanation.counterfactual"])


def test_only_members_that_exist_are_left_out() -> None:
    path = Path(__file__).parents[2] / "docs" / "_ext" / "docstrings.py"
    spec = importlib.util.spec_from_file_location("docstrings", path)
    assert spec is not None
    assert spec.loader is not None
    extension = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(extension)
    classes = {
        base
        for name in DOCUMENTED
        if is_there(name) and inspect.isclass(look_up(name))
        for base in look_up(name).__mro__
    }
    for owner, members in extension.INTERNAL.items():
        defined = [vars(each) for each in classes if each.__qualname__ == owner]
        assert defined, owner
        for member in members:
            assert any(member in each for each in defined), (owner, member)


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


def test_the_schema_and_the_file_formats_are_documented() -> None:
    schema = Path(wc.__file__).parent / "explanations" / "exchange" / "schema-1.json"
    page = BeautifulSoup((SITE / "reference" / "formats.html").read_text(), "html.parser").get_text()
    assert schema.read_text().strip() in page
    for name in (".why", "_whycluster.json", "ONNX", "HTML"):
        assert name in page, name


def test_results_are_described_in_one_piece() -> None:
    page = BeautifulSoup((SITE / "reference" / "explain.html").read_text(), "html.parser")
    (result,) = [
        title.find_next_sibling("dd")
        for title in page.select("dt")
        if title.text.startswith("Returns")
        and "LazyExplanation" in (title.find_next_sibling("dd") or title).text
    ]
    assert result is not None
    assert not result.select("li")
    assert " ".join(result.text.split()).startswith("Explanation, or for documents a whycluster.text.TextExp")
