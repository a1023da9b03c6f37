"""Chooses how text looks: bold labels and bars on a terminal, neither in a file or a pipe."""

from __future__ import annotations

import os
import sys
from typing import NamedTuple

_BLOCK, _HASH = "\N{FULL BLOCK}", "#"


class Style(NamedTuple):
    """`bar`: the character that bars are drawn with; empty for no bars. `is_bold`: whether labels are bold."""

    bar: str = ""
    is_bold: bool = False

    def bold(self, text: str) -> str:
        """Return a text in bold if the style has that."""
        return f"\x1b[1m{text}\x1b[0m" if self.is_bold and text.strip() else text

    def draw_bar(self, share: float, room: int) -> str:
        """Return a bar of a share (0 to 1) of `room` columns; "" if the style has no bars, or the share rounds to 0."""
        return self.bar * round(min(max(share, 0.0), 1.0) * max(room, 0))


PLAIN = Style()


def choose_style() -> Style:
    """Return the style for standard output."""
    if not sys.stdout.isatty():
        return PLAIN
    is_dumb = os.environ.get("TERM", "") in ("", "dumb")
    try:
        _BLOCK.encode(sys.stdout.encoding or "ascii")
    except (UnicodeError, LookupError):
        return Style(_HASH, not is_dumb and "NO_COLOR" not in os.environ)
    return Style(_HASH if is_dumb else _BLOCK, not is_dumb and "NO_COLOR" not in os.environ)
