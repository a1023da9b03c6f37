"""Matches names against the patterns that users type."""

from __future__ import annotations

import re
from fnmatch import translate
from functools import lru_cache


def match_patterns(name: str, pattern: str, *, ignore_case: bool = False) -> bool:
    """Return whether a whole name matches a pattern with * and ? as in file names.

    Brackets are plain characters, because names contain them.
    """
    return _compile(pattern, re.IGNORECASE if ignore_case else 0).match(name) is not None


@lru_cache(None)
def _compile(pattern: str, flags: int) -> re.Pattern[str]:
    # There are a few patterns and many names, and translating a pattern takes 60 us.
    return re.compile(translate(pattern.replace("[", "[[]")), flags)
