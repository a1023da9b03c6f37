"""Tables as they are printed."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import given

from nsys2prv_ng.text.formatting import cut_middle, cut_names, format_table

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


def test_names_that_differ_in_the_middle_are_cut_there() -> None:
    names = [f"void at::native::reduce<{size}, {kind}, 4>(int, long)" for size in (128, 512) for kind in ("Sum", "Max")]
    assert cut_names([*names, "kernel", names[0]], 28) == [
        *("void at::nat..128, Sum, 4>..", "void at::nat..128, Max, 4>.."),
        *("void at::nat..512, Sum, 4>..", "void at::nat..512, Max, 4>.."),
        *("kernel", "void at::nat..128, Sum, 4>.."),
    ]
    assert cut_names(names, 12) == ["void..Sum,..", "void..Max,..", "void..Sum,..", "void..Max,.."], "no room for more"
    table = format_table([("", "ns"), *((name, "1") for name in names)], width=32)
    assert len(set(table)) == 5 and max(map(len, table)) == 32


@given(
    st.integers(1, 60).flatmap(lambda n: st.tuples(*[st.text("ab", min_size=n, max_size=n)] * 2)), st.integers(6, 50)
)
def test_two_names_of_one_length_differ_when_cut(names: tuple[str, str], width: int) -> None:
    short = cut_names(names, width)
    assert [len(text) for text in short] == [min(len(name), width) for name in names]
    assert (short[0] == short[1]) == (names[0] == names[1])


@given(
    st.lists(st.tuples(st.text("ab", max_size=40), st.text("cd", max_size=30), st.text("12", max_size=6)), min_size=1),
    st.integers(20, 90),
)
def test_names_that_differ_still_do(rows: list[tuple[str, str, str]], width: int) -> None:
    lines = format_table(rows, texts=2, width=width, keep_distinct=True, gap=" ")
    assert len(set(lines)) == len({tuple(cell.strip() for cell in row) for row in rows})
    whole = format_table(rows, texts=2, gap=" ")
    assert all(len(line) <= max(width, len(full)) for line, full in zip(lines, whole, strict=True))


def test_indents_stay_when_names_are_cut() -> None:
    """A long indent gives way to 12 characters of the name; the part after the last colon stays if it fits."""
    names = [
        "step",
        "  autograd::engine::evaluate_function: MmBackward0",
        "    autograd::engine::evaluate_function: Sum",
    ]
    assert cut_names([*names, " " * 20 + "aten::native_layer_norm"], 24) == [
        *("step", "  autograd:..MmBackward0", "    autograd:..tion: Sum", " " * 12 + "aten:.._norm")
    ]
    assert cut_names(names[1:2], 22) == ["  autogra..MmBackward0"]
    assert cut_names(names[1:2], 12) == ["autog..ward0"], "no room for the indent"
    deep = " " * 30 + "short"
    assert cut_names([deep], 20) == [" " * 8 + "short"] and cut_names([deep], 40) == [deep]


@given(st.text(min_size=4), st.integers(4, 50))
def test_a_cut_name_keeps_its_ends(name: str, width: int) -> None:
    short = cut_middle(name, width)
    assert len(short) == min(len(name), width)
    if len(name) > width:
        head, tail = (width - 2) // 2, width - 2 - (width - 2) // 2
        assert short == f"{name[:head]}..{name[-tail:]}"
