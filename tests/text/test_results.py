"""Tables of results as DataFrames, CSV and HTML: typed cells become numbers, names stay what they are."""

from __future__ import annotations

import csv
import io

import pytest

from nsys2prv_ng.errors import UsageError
from nsys2prv_ng.text.grid import (
    Bar,
    BarPart,
    Bound,
    Bytes,
    Column,
    Count,
    Grid,
    Name,
    Ns,
    Ordinal,
    Portion,
    Rate,
    Saving,
    Score,
    Share,
    Term,
    make_columns,
)
from nsys2prv_ng.text.results import Tabular, format_csv, format_html, list_columns

HOSTILE = '<script>alert("x")</script>,\n=1+1'
LARGE = 2**53 + 1
"""An integer that no float has."""


def make_grid() -> Grid:
    bar = Bar([BarPart("part", "host_ns", 1.0)], 1.0)
    titles: list[str | Column] = ["", "", "time", "size", "share", "GPU time", "rate", "step", "wait time", "", "text"]
    rows = [
        [Name(HOSTILE), Term("b", depth=2), Ns(LARGE), Bytes(7), Share(1, 4), Portion(3, 9), Rate(2.5)],
        [Name("a"), Term("c"), "-", Bytes(None), Share(1, 0), Portion(4, 9), Rate(None)],
    ]
    more = [[Ordinal(12_345), Saving(-5), bar, "yes"], ["", Saving(6), bar, ""]]
    return Grid(
        columns=make_columns(*titles), rows=[[*row, *rest] for row, rest in zip(rows, more, strict=True)], names=2
    )


class Made(Tabular):
    """A result with one table that has rows, and one without."""

    def tabulate(self) -> dict[str, Grid]:
        return {"kernels": make_grid(), "waits": Grid(columns=make_columns("a"), rows=[])}


def test_values_are_numbers_and_names_of_columns_have_units() -> None:
    assert list_columns(make_grid()) == {
        "name": [HOSTILE, "a"],
        "detail": ["b", "c"],
        "depth": [2, 0],
        "time_ns": [LARGE, None],
        "size_bytes": [7, None],
        "share": [0.25, None],
        "gpu_time_ns": [3, 4],
        "rate_bytes_per_s": [2.5, None],
        "step": [12_345, None],
        "wait_time_ns": [-5, 6],
        "text": ["yes", ""],
    }


def test_columns_of_one_title_are_apart() -> None:
    columns = [Column("size"), Column("size"), Column("steps", over="useful"), Column("no limit")]
    grid = Grid(columns=columns, rows=[[Bytes(1), Bytes(2), Score(0.5), Bound(None)]])
    assert list_columns(grid) == {"size_bytes": [1], "size_bytes_1": [2], "useful_steps": [0.5], "no_limit_ns": [None]}


def test_a_frame_keeps_large_integers_beside_unknown_ones() -> None:
    frame = Made().to_frame("kernels")
    assert frame["time_ns"].dtype == "Int64" and int(frame["time_ns"][0]) == LARGE and frame["time_ns"].isna()[1]
    assert frame["gpu_time_ns"].dtype == "int64" and frame["share"].tolist()[0] == 0.25
    assert list(Made().to_frame("waits").columns) == ["a"] and Made().to_frame("waits").empty


def test_names_of_tables() -> None:
    assert Made().tables == ["kernels"]
    with pytest.raises(UsageError) as raised:
        Made().to_frame("kernel")
    assert str(raised.value) == "name: no table is called kernel; did you mean kernels?"


def test_csv_is_read_back_as_it_was() -> None:
    head, first, second = csv.reader(io.StringIO(format_csv(make_grid())))
    assert head == list(list_columns(make_grid()))
    assert first[:4] == [HOSTILE, "b", "2", str(LARGE)] and second[3:5] == ["", ""]


def test_html_escapes_names_and_aligns_texts() -> None:
    html = format_html(make_grid())
    assert "<script>" not in html and "&lt;script&gt;alert(&quot;x&quot;)" in html
    assert '<td style="text-align:left">a</td>' in html and '<td style="text-align:right">25.0%</td>' in html
    grid = Grid(columns=make_columns("name", "count"), rows=[[Name("x"), Count(n)] for n in range(12)], more="<rows>")
    assert format_html(grid).count("<tr>") == 11 and "and 2 more &lt;rows&gt;" in format_html(grid)
