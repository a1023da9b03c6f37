"""Each remedy has a section with code before and after, and GAIN and TRY list remedies in one order."""

from __future__ import annotations

import re
from pathlib import Path

from nsys2prv_ng.summary.answer.remedies import REMEDIES

PAGE = Path(__file__).parents[3] / "docs/guides/remedies.md"


def test_each_remedy_has_a_section_with_code_before_and_after() -> None:
    head, *parts = re.split(r"(?m)^## (.+)$", PAGE.read_text(encoding="utf-8"))
    sections = dict(zip(parts[::2], parts[1::2], strict=True))
    assert head and sorted(sections) == sorted(each.key for each in REMEDIES)
    for key, text in sections.items():
        [code] = re.findall(r"(?s)```\w+\n(.*?)```", text)
        assert re.search(r"(?m)^(#|//) before", code) and re.search(r"(?m)^(#|//) after", code), key
        assert "Saved: " in text, key
