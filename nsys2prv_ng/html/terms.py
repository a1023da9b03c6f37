"""Finds words of the glossary in the texts of a page, which then has their meaning at the word."""

from __future__ import annotations

import re
from collections.abc import Mapping

_PLAIN = {
    "align", "axis", "caused", "derived", "dropped", "export", "job", "lane", "merged", "moving", "omit", "outside",
    "overview", "rank", "report", "skip", "task", "thread", "trace", "uncertainty", "waiting",
}  # fmt: skip
"""Words that mean in sentences of the page what they mean anywhere, and those on events that no page counts."""


class Terms:
    """The words of a page with a meaning. A word has it where it is first: `meanings` fills as texts are split."""

    def __init__(self, glossary: Mapping[str, str]) -> None:
        known = {word.lower(): (word, meaning) for word, meaning in glossary.items() if word not in _PLAIN}
        words = sorted(map(re.escape, known), key=len, reverse=True)  # "wait time" comes before "wait"
        self._known = known | {f"{word}s": entry for word, entry in known.items()}
        self._pattern = re.compile(rf"\b((?:{'|'.join(words)})s?)\b", re.ASCII | re.IGNORECASE)
        self.meanings: dict[str, str] = {}
        """The meaning of each word found so far."""

    def split(self, text: str) -> list[tuple[str, str]]:
        """Return the pieces of a text, each with the number of the word whose first place it is; "" for others."""
        return [(piece, self._mark(piece) if n % 2 else "") for n, piece in enumerate(self._pattern.split(text))]

    def _mark(self, piece: str) -> str:
        word, meaning = self._known[piece.lower()]
        if word in self.meanings:
            return ""
        self.meanings[word] = meaning
        return f"word-{len(self.meanings)}"
