"""Tables on narrow terminals: titles on two lines, then without minor columns."""

from __future__ import annotations

import pytest

from nsys2prv_ng.text.grid import Column, Count, Grid, Name, make_columns
from nsys2prv_ng.text.layout import format_grid

COLUMNS = make_columns("a name", "last arrival", Column("first", minor=True), Column("the second", minor=True))
GRID = Grid(caption="Numbers", columns=COLUMNS, rows=[[Name("x"), Count(1), Count(20), Count(300)]])


@pytest.mark.parametrize(
    ("width", "lines"),
    [
        (39, ["a name  last arrival  first  the second", "x                  1     20         300"]),
        (38, ["           last            the", "a name  arrival  first  second", "x             1     20     300"]),
        (27, ["          last          the", "a name arrival first second", "x            1    20    300"]),
        (
            26,
            [
                "           last",
                "a name  arrival  first",
                "x             1     20",
                "  too narrow for the",
                "    second (the JSON has",
                "    all)",
            ],
        ),
        (
            18,
            [
                "           last",
                "a name  arrival",
                "x             1",
                "  too narrow for",
                "    first, the",
                "    second (the",
                "    JSON has all)",
            ],
        ),
    ],
)
def test_a_table_fits_its_terminal(width: int, lines: list[str]) -> None:
    assert format_grid(GRID, width) == ["Numbers:", *lines]


def test_minor_columns_go_before_names_that_need_room() -> None:
    rows = [[Name("a_name_of_24_characters_"), Count(1), Count(20), Count(300)]]
    lines = [format_grid(Grid(columns=COLUMNS, rows=rows, name_room=room), 42)[2] for room in (18, 19, 80)]
    assert lines == [
        "a_name_o..racters_        1     20     300",
        "a_name_of_24_characters_        1     20",
        "a_name_of_24_characters_        1     20",
    ]
    assert len(format_grid(Grid(columns=COLUMNS, rows=rows, name_room=80), 20)[2]) == 20, "without minor columns"
