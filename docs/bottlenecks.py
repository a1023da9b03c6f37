"""The table of bottlenecks in its page: python docs/bottlenecks.py renews it, `--check` only compares it."""

from __future__ import annotations

import sys

from page_file import DOCS, write_or_check

from nsys2prv_ng.summary.answer.bottlenecks import BOTTLENECKS

PAGE = DOCS / "reference/bottlenecks.md"
_BEGIN = "<!-- bottlenecks -->\n"
_HEAD = "| class | applies if | try | preset |\n|---|---|---|---|\n"


def make_page() -> str:
    """Return the page with the table as the classes are now, which reaches from its comment to an empty line."""
    before, _, after = PAGE.read_text(encoding="utf-8").partition(_BEGIN)
    rest = after.partition("\n\n")[2]
    rows = [f"| {each.title} (`{each.key}`) | {each.rule} | {each.hint} | `{each.preset}` |\n" for each in BOTTLENECKS]
    return f"{before}{_BEGIN}{_HEAD}{''.join(rows)}\n{rest}"


if __name__ == "__main__":
    sys.exit(write_or_check(PAGE, make_page(), sys.argv[1:], __doc__))
