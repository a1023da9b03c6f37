"""Tables as they are printed."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import given

from nsys2prv_ng.text.tables import cut_middle, format_table

ROWS = [
    ("kernel", "count", "model"),
    ("ampere_bf16_gemm_128x64_nn", "12", "H200"),
    ("ampere_bf16_gemm_128x64_tn", "4,321", ""),
]


def test_a_table_without_a_width() -> None:
    assert format_table(ROWS, text_last=True, indent=2) == [
        "  kernel                      count  model",
        "  ampere_bf16_gemm_128x64_nn     12  H200",
        "  ampere_bf16_gemm_128x64_tn  4,321",
    ]


def test_names_are_cut_in_the_middle() -> None:
    assert format_table([row[:2] for row in ROWS], width=25) == [
        "kernel              count",
        "ampere_b..28x64_nn     12",
        "ampere_b..28x64_tn  4,321",
    ]


@given(
    st.lists(st.tuples(st.text("ab", max_size=40), st.text("cd", max_size=30), st.text("12", max_size=6)), min_size=1),
    st.integers(20, 90),
)
def test_names_that_differ_still_do(rows: list[tuple[str, str, str]], width: int) -> None:
    lines = format_table(rows, texts=2, width=width, keep_distinct=True, gap=" ")
    assert len(set(lines)) == len({tuple(cell.strip() for cell in row) for row in rows})
    whole = format_table(rows, texts=2, gap=" ")
    assert all(len(line) <= max(width, len(full)) for line, full in zip(lines, whole, strict=True))


@given(st.text(min_size=4), st.integers(4, 50))
def test_a_cut_name_keeps_its_ends(name: str, width: int) -> None:
    short = cut_middle(name, width)
    assert len(short) == min(len(name), width)
    if len(name) > width:
        head, tail = (width - 2) // 2, width - 2 - (width - 2) // 2
        assert short == f"{name[:head]}..{name[-tail:]}"
