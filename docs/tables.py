"""The list of all tables and their columns in its page: python docs/tables.py renews it, `--check` only compares it."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Collection

from page_file import DOCS, write_or_check

from nsys2prv_ng.tables.columns import Column
from nsys2prv_ng.tables.registry import TABLES

PAGE = DOCS / "reference/python.md"
_BEGIN = "<!-- tables -->\n"
_FEW = 3
"""Fewest tables with a column for it to be listed once for all."""
_UNIT = re.compile(r"(^|_)(ns|bytes)$")


def make_page() -> str:
    """Return the page with the list as the tables are now, which reaches from its comment to an empty line."""
    before, _, after = PAGE.read_text(encoding="utf-8").partition(_BEGIN)
    rest = after.partition("\n\n")[2]
    return f"{before}{_BEGIN}{_list_tables()}\n{rest}"


def _list_tables() -> str:
    """Return a row for the columns of many tables, then one for each table with the others by name and meaning."""
    tables = TABLES.values()
    counts = Counter(_describe(column) for table in tables for column in table.columns)
    most = {text.split("`")[1]: text for text, _ in reversed(counts.most_common())}  # of columns with one name
    common = [text for text in most.values() if counts[text] >= _FEW]
    rows = ["| table | a row is | columns |", "|---|---|---|", f"| several | | {'<br>'.join(sorted(common))} |"]
    seen: dict[str, str] = {}
    told: dict[str, str] = {}
    for table in tables:
        texts = [_describe(column) for column in table.columns]
        shared = ", ".join(_list_names(texts, common))
        own = [_refer(text, told.setdefault(text, table.name), table.name) for text in texts if text not in common]
        first = seen.setdefault(shared, table.name)
        rows.append(
            f"| `{table.name}` | {table.meaning} | "
            f"{'<br>'.join([shared if first == table.name else f'common ones as `{first}`', *own])} |"
        )
    return "\n".join(rows) + "\n"


def _list_names(texts: Collection[str], common: Collection[str]) -> list[str]:
    return [re.findall("`.*?`", text)[0] for text in texts if text in common]


def _refer(text: str, teller: str, table: str) -> str:
    """Return the text of a column, or its name and the table before that has the same text."""
    return text if teller == table else f"{text.partition(':')[0]}: as in `{teller}`"


def _describe(column: Column) -> str:
    """Return the name of a column, a star if it is an integer that may be missing, its meaning, and its unit."""
    star = "\\*" if column.kind == "integer" and column.may_lack else ""
    unit = f" ({column.unit})" if column.unit and not _UNIT.search(column.name) else ""
    return f"`{column.name}`{star}: {column.meaning}{unit}".replace("|", "\\|")


if __name__ == "__main__":
    sys.exit(write_or_check(PAGE, make_page(), sys.argv[1:], __doc__))
