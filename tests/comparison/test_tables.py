"""Names of kernels that are the same on both sides, or nearly."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsys2prv_ng.comparison.tables import Match, match_names, strip_arguments


@pytest.mark.parametrize(
    ("name", "stripped"),
    [
        ("gemm", "gemm"),
        ("void at::native::elementwise<4, Fill<float>>(int, Fill<float>)", "at::native::elementwise"),
        ("a<b", "a<b"),
        ("a>b", "a>b"),
        ("(anonymous namespace)::copy<int>()", "::copy"),
        ("<>", "<>"),
        ("", ""),
    ],
)
def test_names_without_arguments(name: str, stripped: str) -> None:
    assert strip_arguments(name) == stripped


def test_exact_names_first_then_without_arguments_then_by_class() -> None:
    a = {"copy<float>": "Copy", "copy<int>": "Copy", "sgemm": "GEMM FP32", "dgemm": "GEMM FP64", "norm": "Norm"}
    b = {"copy<float>": "Copy", "copy<half>": "Copy", "nvjet": "GEMM BF16", "softmax": "Softmax"}
    assert match_names(a, b) == [
        Match("copy<float>", ["copy<float>"], ["copy<float>"], False),
        Match("copy", ["copy<int>"], ["copy<half>"], False),
        Match("GEMM", ["sgemm", "dgemm"], ["nvjet"], True),
        Match("norm", ["norm"], [], False),
        Match("softmax", [], ["softmax"], False),
    ]


NAMES = st.dictionaries(
    st.text("ab<>(), :", max_size=6), st.sampled_from(["GEMM FP32", "GEMM FP8", "Copy", "GEMMs"]), max_size=8
)


@given(NAMES, NAMES)
def test_every_name_is_in_one_row(a: dict[str, str], b: dict[str, str]) -> None:
    matches = match_names(a, b)
    assert sorted(name for match in matches for name in match.a) == sorted(a)
    assert sorted(name for match in matches for name in match.b) == sorted(b)
    assert all(match.a or match.b for match in matches)
    assert {match.name for match in matches if match.a == match.b} == set(a) & set(b)


def test_what_follows_the_parameters_is_no_name() -> None:
    """Compilers append it to clones: two functions stay two."""
    assert strip_arguments("void f<int>(int) [clone .x]") == "f"
    assert strip_arguments("g(int) [clone .x]") == "g"
