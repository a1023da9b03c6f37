"""Renders a page from templates: escapes all that comes from reports, and includes style and script in the file."""

from __future__ import annotations

import base64
import hashlib
import json
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from nsys2prv_ng.errors import escape_unprintable
from nsys2prv_ng.html.names import clean, clean_text, shorten
from nsys2prv_ng.text.formatting import count_noun
from nsys2prv_ng.version import __version__


def render_page(**values: Any) -> str:
    """Return a page with values, none of which can become markup or script.

    The policy of the page forbids all requests, and all scripts except its own.
    """
    script, style = _read("page.js"), _read("style.css")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    policy += "; base-uri 'none'; form-action 'none'"
    page = _load_templates().get_template("page.html.j2")
    return page.render(policy=policy, script=Markup(script), style=Markup(style), version=__version__, **values)


@cache
def _load_templates() -> Environment:
    environment = Environment(
        loader=PackageLoader("nsys2prv_ng.html"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_finalize,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"name": clean, "text": clean_text, "short": shorten, "noun": count_noun, "data": _dump}
    return environment


def _finalize(value: Any) -> Any:
    """Return what a template prints for a value; only the program makes markup, so markup stays as it is."""
    return escape_unprintable(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _read(name: str) -> str:
    return (Path(__file__).parent / "templates" / name).read_text(encoding="utf-8")


def _dump(value: Any) -> Markup:
    """Return a value as JSON for a script element; no name in it can end the element."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=True)
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))
