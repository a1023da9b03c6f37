"""The table of bottlenecks in its page: python docs/bottlenecks.py renews it, `--check` only compares it."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator

from page_file import DOCS, write_or_check

from nsys2prv_ng.summary.answer.bottlenecks import BOTTLENECKS

PAGE = DOCS / "reference/bottlenecks.md"
_BEGIN = "<!-- bottlenecks -->\n"
_HEAD = "| class | applies if: *try* |\n|---|---|\n"


def make_page() -> str:
    """Return the page with the table as the classes are now, which reaches from its comment to an empty line."""
    before, _, after = PAGE.read_text(encoding="utf-8").partition(_BEGIN)
    rest = after.partition("\n\n")[2]
    return f"{before}{_BEGIN}{_HEAD}{''.join(_list_rows())}\n{rest}"


def _list_rows() -> Iterator[str]:
    """Yield a row for each title, with a line for each class of it, in their order."""
    for (title, key), group in itertools.groupby(BOTTLENECKS, key=lambda each: (each.title, each.key)):
        yield f"| {title} (`{key}`) | {'<br>'.join(f'{each.rule}: *{each.hint}*' for each in group)} |\n"


if __name__ == "__main__":
    sys.exit(write_or_check(PAGE, make_page(), sys.argv[1:], __doc__))
