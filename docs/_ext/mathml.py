"""Write formulas as MathML, which browsers show without JavaScript and screen readers read."""

from __future__ import annotations

from typing import Any

from docutils.nodes import SkipNode
from docutils.utils.math import latex2mathml
from sphinx.application import Sphinx


def setup(app: Sphinx) -> dict[str, bool]:
    """Add the renderer ``mathml``."""
    app.add_html_math_renderer("mathml", inline_renderers=(_inline, None), block_renderers=(_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _inline(writer: Any, node: Any) -> None:
    writer.body.append(latex2mathml.tex2mathml(node.astext()))
    raise SkipNode


def _block(writer: Any, node: Any) -> None:
    number = f'<span class="eqno">({node["number"]})</span>' if node.get("number") else ""
    formula = latex2mathml.tex2mathml(node.astext(), as_block=True)
    writer.body.append(f'<div class="formula" tabindex="0">{number}{formula}</div>')  # scrolls by keys, too
    raise SkipNode
