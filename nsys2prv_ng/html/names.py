"""Makes names from reports safe for pages: one line of bounded length.

Characters that reorder what follows are replaced. Names in a sentence are isolated from it (`code` in style.css), since
letters of a script from right to left reorder the digits and marks beside them, too.
"""

from __future__ import annotations

import re

from nsys2prv_ng.errors import escape_unprintable

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
