"""Makes names from reports safe to show: on one line, of bounded length, without characters that reorder text."""

from __future__ import annotations

import re
import unicodedata

_LONGEST = 200
"""Characters of a name."""
_BREAKS = re.compile(r"[\s\x00-\x1f\x7f-\x9f]+")
_UNSEEN = ("Cf", "Cn", "Co", "Cs")
"""Unicode's categories of characters that could hide or reorder others, or that no encoding has."""


def clean(name: str) -> str:
    """Return a name as a page shows it; what is not seen in it are question marks."""
    text = clean_text(name) or "(unnamed)"
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def quote(name: str) -> str:
    """Return a name as a part of a sentence, which no character in it ends."""
    return f"`{drop_quotes(clean(name))}`"


def drop_quotes(text: str) -> str:
    """Return a text with names in it that are not quoted, of which none begins a quotation."""
    return text.replace("`", "'")


def shorten(text: str) -> str:
    """Return a text of a cell, which may be empty."""
    return clean(text) if text.strip() else ""


def clean_text(text: str) -> str:
    """Return a text of any length on one line; characters that are not seen are question marks."""
    return show_unseen(_BREAKS.sub(" ", text).strip())


def show_unseen(text: str) -> str:
    """Return a text with question marks for characters that are not seen."""
    if text.isascii():
        return text
    return "".join("?" if unicodedata.category(letter) in _UNSEEN else letter for letter in text)
