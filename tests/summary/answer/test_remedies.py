"""Each remedy has a section with code before and after, and GAIN and TRY list remedies in one order."""

from __future__ import annotations

import re
from pathlib import Path

from nsys2prv_ng.summary.answer.answer import SECTIONS
from nsys2prv_ng.summary.answer.bottlenecks import BOTTLENECKS
from nsys2prv_ng.summary.answer.remedies import REMEDIES

ROOT = Path(__file__).parents[3]
PAGE, SECTION_FILES = ROOT / "docs/guides/remedies.md", ROOT / "nsys2prv_ng/html/summary_sections"


def test_each_remedy_has_a_section_with_code_before_and_after() -> None:
    head, *parts = re.split(r"(?m)^## (.+)$", PAGE.read_text(encoding="utf-8"))
    sections = dict(zip(parts[::2], parts[1::2], strict=True))
    assert head and sorted(sections) == sorted(each.key for each in REMEDIES)
    for key, text in sections.items():
        [code] = re.findall(r"(?s)```\w+\n(.*?)```", text)
        assert re.search(r"(?m)^(#|//) before", code) and re.search(r"(?m)^(#|//) after", code), key
        assert "Saved: " in text, key


def test_the_page_has_the_section_that_an_answer_names() -> None:
    """The titles are those of sections that name the same preset."""
    source = "".join(path.read_text(encoding="utf-8") for path in SECTION_FILES.glob("*.py"))
    titles = set(re.findall(r'Section\("[a-z-]+", "([^"]+)"', source))
    assert {each.preset for each in BOTTLENECKS} == set(SECTIONS)
    assert set(SECTIONS.values()) <= titles
