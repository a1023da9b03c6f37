"""Makes names from reports safe to print: one printable line of bounded length."""

from __future__ import annotations

import re
import zlib
from fnmatch import translate
from functools import lru_cache

from nsys2prv_ng.errors import escape_unprintable

USER_CODE = "user code"
OUTSIDE_CALLS = "code outside calls"
"""What a host thread runs in no recorded call: Python or C++ of the program and of its libraries."""
NO_RANGE, NO_CALL = "(outside NVTX ranges)", f"({OUTSIDE_CALLS})"
"""Shown instead of a range if a thread is in no NVTX range, and instead of a call if it is in no call."""
HOST_FUNCTION = "host function"
"""Stands before the name of a host function that an operation waited for."""
OTHERS = "others"
"""Stands for the names that a list has no room for."""
BACKWARD = "(backward)"
"""Shown as the range, within a range of the program, of the backward passes of its operators."""
LABEL_LENGTH = 500
"""Longer labels are cut: the legend of wxParaver hangs with labels of some thousand characters."""


def to_one_line(label: str) -> str:
    """Return a label without line breaks, tabs and control characters: 1 to LABEL_LENGTH characters."""
    text = re.sub(r"[\s\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]+", " ", label).strip()
    if len(text) > LABEL_LENGTH:
        # Long names with the same start stay different: the checksum at the end depends on the whole name.
        text = f"{text[: LABEL_LENGTH - 10].rstrip()} #{zlib.crc32(text.encode('utf-8', 'replace')):08x}"
    return text or "(unnamed)"


def clean_name(name: str) -> str:
    """Return a name as one line of characters that are seen; leading blanks stay."""
    stem = name.lstrip(" ")
    return name[: len(name) - len(stem)] + escape_unprintable(to_one_line(stem)) if stem else ""


def name_task(rank: int | None, task: str) -> str:
    """Return the rank of a task, or else its name, for a text."""
    return clean_name(task) if rank is None else f"rank {rank}"


def describe_place(range_: str) -> str:
    """Return where a thread was, as part of a sentence: in an NVTX range, or outside all ranges ("")."""
    return f"in {quote_name(range_)}" if range_ else "outside NVTX ranges"


def quote_name(name: str) -> str:
    """Return a name in backquotes, as part of a sentence; backquotes in the name are replaced."""
    return "`" + clean_name(name).replace("`", "'") + "`"


def match_patterns(name: str, pattern: str, *, ignore_case: bool = False) -> bool:
    """Return whether a whole name matches a pattern with * and ? as in file names.

    Brackets are plain characters, because names contain them.
    """
    return _compile(pattern, re.IGNORECASE if ignore_case else 0).match(name) is not None


@lru_cache(None)
def _compile(pattern: str, flags: int) -> re.Pattern[str]:
    # There are a few patterns and many names, and translating a pattern takes 60 us.
    return re.compile(translate(pattern.replace("[", "[[]")), flags)
