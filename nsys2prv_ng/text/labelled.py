"""Lays out labelled lines, which people read and `grep` finds: the label at the start, the text in a fixed column."""

from __future__ import annotations

import re
from collections.abc import Sequence

from nsys2prv_ng.text.layout import wrap
from nsys2prv_ng.text.style import PLAIN, Style

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]+")
"""Characters that could forge a line or command a terminal: lines may come from a file of others."""
TABLES, FILES = "Tables: --details", "Report: --html FILE   Data: --json"
"""The options that lead on: with tables shown, only FILES."""
LABEL_WIDTH = 12
"""Columns of a label and the blanks after it."""


def format_labelled(
    lines: Sequence[tuple[str, str]], width: int, style: Style = PLAIN, column: int = LABEL_WIDTH
) -> list[str]:
    """Return the lines of (label, text), wrapped to `width` columns; texts start at `column`."""
    formatted = []
    for label, text in ((_CONTROL.sub(" ", label), _CONTROL.sub(" ", text)) for label, text in lines):
        wrapped = wrap(text, width, indent=(column, column))
        formatted += [f"{style.bold(label.ljust(column))}{line[column:]}" for line in wrapped[:1]]
        formatted += wrapped[1:]
    return formatted
