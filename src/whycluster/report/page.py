"""Turn the contents of a report into one self-contained page, which needs no network or other files.

Data cannot become markup or code. The template escapes all its variables. The script reads JSON without any
character that could end an element. The page's content security policy forbids other scripts and all
requests.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from whycluster.core.errors import MissingDependencyError
from whycluster.report.packing import pack

if TYPE_CHECKING:
    from jinja2 import Template

_JOINTS = re.compile(r"(?<=[_/.\-])")
_ESCAPED = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}


def render(template: Template, context: dict[str, Any], data: dict[str, Any]) -> str:
    """Return the page as text.

    Parameters
    ----------
    template : the result of `open_template`
    context : the variables of the template
    data : the data that the script reads
    """
    from markupsafe import Markup

    script = _read("page.js")
    return template.render(
        **context,
        style=Markup(_read("page.css")),
        script=Markup(script),
        data=Markup(as_json(pack(data))),
        policy=_policy(f"'{_hash(script)}'"),
    )


def render_static(template: Template, context: dict[str, Any], style: str) -> str:
    """Return a page without a script as text; ``style`` is added to the style of all pages."""
    from markupsafe import Markup

    return template.render(**context, style=Markup(_read("page.css") + style), policy=_policy("'none'"))


def _policy(scripts: str) -> str:
    """Return the content security policy of a page on which only these scripts may run."""
    return "; ".join(
        [
            "default-src 'none'",
            "style-src 'unsafe-inline'",
            f"script-src {scripts}",
            "base-uri 'none'",
            "form-action 'none'",
        ]
    )


def as_json(data: Any) -> str:
    """Return JSON that is safe inside a script element, regardless of the text it contains."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for character, escaped in _ESCAPED.items():
        text = text.replace(character, escaped)
    return text


def _breakable(name: str) -> Any:
    """Return a name as escaped markup that may break after underscores, slashes, dots and hyphens."""
    from markupsafe import Markup

    return Markup("<wbr>").join(_JOINTS.split(name))


def _hash(script: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _read(name: str) -> str:
    return files("whycluster.report").joinpath(name).read_text(encoding="utf-8")


def open_template(text: str | None = None) -> Template:
    """Return a template, by default that of the report; raise an error if jinja2 is not installed."""
    try:
        from jinja2 import Environment, StrictUndefined
    except ImportError as error:
        raise MissingDependencyError('a report needs jinja2: pip install "whycluster[report]"') from error
    environment = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["breakable"] = _breakable
    return environment.from_string(_read("page.html.j2") if text is None else text)
