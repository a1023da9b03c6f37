"""What all results with tables share: their tables as DataFrames and CSV, and what a notebook shows.

Tables are grids of typed cells, so their values are the numbers themselves: times in ns, sizes in bytes, shares and
efficiencies from 0 to 1, ranks and GPUs by number. Names of columns are those of the tables with `_` for blanks,
and end with the unit.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from nsys2prv_ng.errors import UsageError, suggest
from nsys2prv_ng.text.grid import Cell, Drawing, Grid, Name, Number, Portion, Score, Share, Term
from nsys2prv_ng.value_class import ValueClass

if TYPE_CHECKING:
    import pandas as pd

_MOST_SHOWN = 10
"""Most rows of a table in a notebook."""
_LEFT, _RIGHT = ' style="text-align:left"', ' style="text-align:right"'


class Tabular(ValueClass):
    """A result with tables."""

    def tabulate(self) -> dict[str, Grid]:
        """Return the tables by name, also those without rows."""
        raise NotImplementedError

    @property
    def tables(self) -> list[str]:
        """The names of the tables that have rows."""
        return [name for name, grid in self.tabulate().items() if grid.rows]

    def to_frame(self, name: str) -> pd.DataFrame:
        """Return a table as a DataFrame; without rows if there is nothing in it. Raises UsageError for another name."""
        import pandas as pd

        grids = self.tabulate()
        if name not in grids:
            raise UsageError(f"no table is called {name}; {suggest([str(name)], grids)}", parameter="name")
        columns = list_columns(grids[name])
        return pd.DataFrame({title: pd.Series(values, dtype=_choose_type(values)) for title, values in columns.items()})

    def _list_lines(self) -> Sequence[tuple[str, str]]:
        """Return the labelled lines that a notebook shows above tables."""
        return ()

    def _list_shown(self) -> Sequence[Grid]:
        """Return the tables that a notebook shows."""
        return ()

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the labelled lines, and short tables."""
        lines = "".join(f"<tr>{_cell(label, 'th')}{_cell(text)}</tr>" for label, text in self._list_lines())
        parts = [f"<table><caption>{escape(repr(self))}</caption>{lines}</table>"]
        return "".join([*parts, *(format_html(grid) for grid in self._list_shown() if grid.rows)])


# ---- values ----------------------------------------------------------------------------------------------------------


def list_columns(grid: Grid) -> dict[str, list[Any]]:
    """Return the values of all rows by the name of their column, without columns of drawings."""
    found: dict[str, list[Any]] = {}
    for number in grid.list_columns(grid.rows, wide=True):
        column, cells = grid.columns[number], [row[number] for row in grid.rows]
        if any(isinstance(cell, Drawing) for cell in cells):
            continue
        typed = next((cell for cell in cells if isinstance(cell, Number | Share | Score)), None)
        words = [re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_") for text in (column.over, column.title)]
        title = "_".join(filter(None, words)) or ("detail" if number else "name")
        unit = "" if typed is None else typed.unit
        title += f"_{unit}" if unit and not title.endswith(unit) else ""
        title += f"_{number}" if title in found else ""
        values = [cell.values if isinstance(cell, Name) else {} for cell in cells]
        known = dict.fromkeys(key for each in values for key in each if each[key] is not None)
        found[title] = [get_value(cell, is_number=typed is not None) for cell in cells]
        found |= {key: [each.get(key) for each in values] for key in known}
        if any(isinstance(cell, Term) and cell.depth for cell in cells):
            found["depth"] = [cell.depth if isinstance(cell, Term) else 0 for cell in cells]
    return found


def get_value(cell: Cell, *, is_number: bool) -> Any:
    """Return the value of a cell; None for a text in a column of numbers, which stands for a number not known."""
    if isinstance(cell, Portion):
        return cell.part
    if isinstance(cell, Share):
        return cell.part / cell.whole if cell.whole else None
    if isinstance(cell, Number):
        return cell.number
    if isinstance(cell, Score):
        return cell.value
    return None if is_number else cell.text if isinstance(cell, Name | Term) else str(cell)


def _choose_type(values: Sequence[Any]) -> Any:
    """Return the type of a Series: integers stay exact if some are not known."""
    known = [value for value in values if value is not None]
    are_whole = bool(known) and all(isinstance(value, int) for value in known)
    return "Int64" if are_whole and len(known) < len(values) else None


def format_csv(grid: Grid) -> str:
    """Return a table as CSV with a header; what is not known is empty."""
    columns, out = list_columns(grid), io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))
    return out.getvalue()


# ---- notebooks -------------------------------------------------------------------------------------------------------


def format_html(grid: Grid) -> str:
    """Return a table for notebooks: texts to the left, numbers to the right, everything escaped."""
    shown = [*grid.list_shown(_MOST_SHOWN), *grid.footer]
    numbers = grid.list_columns(shown, wide=False)
    head = "".join(_cell(grid.columns[number].title, "th", is_text=number < grid.names) for number in numbers)
    body = ""
    for row in shown:
        body += f"<tr>{''.join(_cell(str(row[number]), is_text=number < grid.names) for number in numbers)}</tr>"
    hidden = len(grid.rows) - _MOST_SHOWN
    more = f"<p>and {hidden:,} more {escape(grid.more)}</p>" if hidden > 0 else ""
    return f"<table><caption>{escape(grid.caption)}</caption><tr>{head}</tr>{body}</table>{more}"


def _cell(text: str, tag: str = "td", *, is_text: bool = True) -> str:
    return f"<{tag}{_LEFT if is_text else _RIGHT}>{escape(text)}</{tag}>"
