"""Renders a page from templates, with style and script in the file, and makes what comes from reports safe for it.

Names are on one line of bounded length. Characters that reorder what follows are replaced. Names in a sentence are
isolated from it (`code` in style.css), since letters of a script from right to left reorder the digits and marks beside
them, too.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from nsys2prv_ng.errors import escape_unprintable
from nsys2prv_ng.html.terms import Terms
from nsys2prv_ng.runtime.documents import read_glossary
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
    own = {"policy": policy, "script": Markup(script), "style": Markup(style), "version": __version__}
    return page.render(**own, terms=Terms(read_glossary()), **values)


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


# ---- names -----------------------------------------------------------------------------------------------------------

_LONGEST = 200
"""Most characters of a name."""
_BREAKS = re.compile(r"[\s\x00-\x1f\x7f-\x9f]+")


def clean(name: str) -> str:
    """Return a name as a page shows it, with question marks for invisible characters."""
    text = clean_text(name) or "(unnamed)"
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def quote(name: str) -> str:
    """Return a name in backquotes, as part of a sentence; backquotes in the name are replaced."""
    return f"`{drop_quotes(clean(name))}`"


def drop_quotes(text: str) -> str:
    """Return a text with unquoted names, in which apostrophes replace backquotes: nothing in it starts a quotation."""
    return text.replace("`", "'")


def shorten(text: str) -> str:
    """Return the text of a cell, as `clean` does; it may be empty."""
    return clean(text) if text.strip() else ""


def clean_text(text: str) -> str:
    """Return a text of any length on one line, with question marks for invisible characters."""
    return escape_unprintable(_BREAKS.sub(" ", text).strip())
