"""Finds the pages of the docs that come with the program, and reads the words of their glossary."""

from __future__ import annotations

import re
from pathlib import Path

from nsys2prv_ng.runtime.files import locate_bundled

_ROW = re.compile(r"^\| (.+?) \| (.+) \|$", re.MULTILINE)
_OTHERS = "## Other words"
"""The section of the glossary whose rows name the entry to read instead."""


def list_pages() -> dict[str, Path]:
    """Return the pages by the names of their files without the ending, sorted."""
    found = [
        path for folder in ("start", "guides", "reference") for path in locate_bundled(f"docs/{folder}").glob("*.md")
    ]
    return {path.stem: path for path in sorted(found, key=lambda path: path.stem)}


def read_page(name: str) -> str:
    """Return the Markdown of a page. Raises KeyError for an unknown one."""
    return list_pages()[name].read_text(encoding="utf-8")


def read_glossary() -> dict[str, str]:
    """Return the meaning of each word of the glossary, as plain text without links.

    An older word, or the name of a JSON field, has the word to read instead before the meaning.
    """
    entries, _, others = unlink(read_page("glossary")).partition(_OTHERS)
    glossary = dict(_list_words(entries))
    return glossary | {word: f"{see}: {glossary[see]}" for word, see in _list_words(others) if see in glossary}


def _list_words(text: str) -> list[tuple[str, str]]:
    """Return each word and its meaning, from tables whose first column has one or more words."""
    rows = [(words, meaning) for words, meaning in _ROW.findall(text) if words != "word"]
    return [
        (word, meaning) for words, meaning in rows for word in re.split(r", | \(|\)", words.replace("`", "")) if word
    ]


def unlink(text: str) -> str:
    """Return Markdown with the texts of its links alone."""
    return re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", text)
