"""Matches names against the patterns that users type."""

from __future__ import annotations

import re
from fnmatch import translate


def match_patterns(name: str, pattern: str, *, ignore_case: bool = False) -> bool:
    """Return whether a whole name matches a pattern with * and ? as in file names.

    Brackets are plain characters, because names contain them.
    """
    flags = re.IGNORECASE if ignore_case else 0
    return re.match(translate(pattern.replace("[", "[[]")), name, flags) is not None
