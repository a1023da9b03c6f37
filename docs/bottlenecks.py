"""The table of bottlenecks in its page: python docs/bottlenecks.py renews it, `--check` only compares it."""

from __future__ import annotations

import sys

from page_file import DOCS, write_or_check

from nsys2prv_ng.summary.answer.bottleneck import Bottleneck
from nsys2prv_ng.summary.answer.bottlenecks import BOTTLENECKS

PAGE = DOCS / "reference/bottlenecks.md"
_BEGIN = "<!-- bottlenecks -->\n"
_HEAD = "| class | applies if | try |\n|---|---|---|\n"


def make_page() -> str:
    """Return the page with the table as the classes are now, which reaches from its comment to an empty line."""
    before, _, after = PAGE.read_text(encoding="utf-8").partition(_BEGIN)
    rest = after.partition("\n\n")[2]
    before_each = [None, *BOTTLENECKS]
    rows = [_write_row(each, above) for each, above in zip(BOTTLENECKS, before_each, strict=False)]
    return f"{before}{_BEGIN}{_HEAD}{''.join(rows)}\n{rest}"


def _write_row(each: Bottleneck, above: Bottleneck | None) -> str:
    """Return the row of a class; a title as in the row above is left out."""
    title = "" if above and above.title == each.title and above.key == each.key else f"{each.title} (`{each.key}`)"
    return f"| {title} | {each.rule} | {each.hint} |\n"


if __name__ == "__main__":
    sys.exit(write_or_check(PAGE, make_page(), sys.argv[1:], __doc__))
