"""FLOPs of operators by their shapes, against loops that count multiplications and additions one by one."""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsys2prv_ng.report.database import open_database
from nsys2prv_ng.report.metadata import Strings, read_metadata
from nsys2prv_ng.sources.nvtx.events import TABLE
from nsys2prv_ng.sources.nvtx.flops import count_flops, parse_sizes
from nsys2prv_ng.sources.shared.report_reader import ReportReader
from nsys2prv_ng.sources.shared.source_options import SourceOptions
from tests.sources.small_reports import MAIN, WORKER, export

Shape = tuple[int, ...]
Range = tuple[int, int, int, str]
"""Start, end, thread, text."""


def count(path: Path, ranges: Sequence[Range], domain: int = 0) -> list[int]:
    """The FLOPs of each range, 0 if it does not count."""
    columns = ("start", "end", "globalTid", "eventType", "text", "domainId")
    rows = [(begin, end, tid, 59, text, domain) for begin, end, tid, text in ranges]
    export(path, ("",), {"NVTX_EVENTS": (columns, rows)})
    with open_database(path) as database:
        strings = Strings(database)
        reader = ReportReader(database, read_metadata(database, strings), strings, {"nvtx": (TABLE,)}, SourceOptions())
        counts: list[int] = count_flops(reader).tolist()
    path.unlink()
    return counts


def write(name: str, op: int, shapes: Sequence[Shape], makers: Sequence[tuple[int, int]] = ()) -> str:
    """The text of an operator as PyTorch writes it; `makers`: operator and number of the first arguments."""
    every = [*makers, *[(0, -1)] * (len(shapes) - len(makers))]
    sizes = ", ".join(f"[{', '.join(map(str, shape))}]" for shape in shapes)
    inputs = ", ".join(f"({maker},{number})" for maker, number in every)
    return f"{name}, op_id = {op}, sizes = [{sizes}], input_op_ids = [{inputs}]"


def in_turn(*texts: str) -> list[Range]:
    return [(100 * n + 1, 100 * n + 90, MAIN, text) for n, text in enumerate(texts)]


# ---- loops -----------------------------------------------------------------------------------------------------------


def multiply_and_add(a: Shape, b: Shape) -> int:
    """One multiplication and one addition for each element of the result and each k."""
    return sum(2 for _ in itertools.product(range(a[0]), range(b[1]), range(a[1])))


def convolve(x: Shape, w: Shape, out: Shape, groups: int) -> int:
    """Each element of the result sums over the taps of its filter and the channels of its group."""
    flops = 0
    per_group = out[1] // groups
    for _, channel, *_ in itertools.product(*map(range, out)):
        group = channel // per_group
        inputs = [c for c in range(x[1]) if c // (x[1] // groups) == group]
        flops += sum(2 for _ in itertools.product(inputs, *map(range, w[2:])))
    return flops


def spread(x: Shape, w: Shape, groups: int) -> int:
    """A transposed convolution: each element of the input adds to the taps of all outputs of its group."""
    return sum(2 for _ in itertools.product(*map(range, x)) for _ in itertools.product(range(w[1]), *map(range, w[2:])))


def convolutions(seed: int) -> Iterator[tuple[Shape, Shape, Shape, int, bool]]:
    """Input, weight, output, groups, and whether it is transposed, of small random convolutions."""
    random.seed(seed)
    for _ in range(12):
        groups, rank = random.choice((1, 1, 2, 3)), random.choice((1, 2))
        source, target = groups * random.randint(1, 3), groups * random.randint(1, 3)
        size = [random.randint(4, 7) for _ in range(rank)]
        taps, stride = [random.randint(1, 3) for _ in range(rank)], random.randint(1, 2)
        batch, is_transposed = random.randint(1, 2), random.random() < 0.4
        if is_transposed:
            out = [(s - 1) * stride + t for s, t in zip(size, taps, strict=True)]
            weight = (source, target // groups, *taps)
        else:
            out = [(s - t) // stride + 1 for s, t in zip(size, taps, strict=True)]
            weight = (target, source // groups, *taps)
        yield (batch, source, *size), weight, (batch, target, *out), groups, is_transposed


# ---- products --------------------------------------------------------------------------------------------------------


def test_products(tmp_path: Path) -> None:
    random.seed(1)
    texts, flops = [], []
    for op in range(1, 30):
        b, m, k, n = (random.randint(1, 6) for _ in range(4))
        one = multiply_and_add((m, k), (k, n))
        name, shapes, expected = random.choice(
            (
                ("aten::mm", [(m, k), (k, n)], one),
                ("aten::addmm", [(n,), (m, k), (k, n), (), ()], one),
                ("aten::bmm", [(b, m, k), (b, k, n)], b * one),
                ("aten::baddbmm", [(b, m, n), (b, m, k), (b, k, n), (), ()], b * one),
            )
        )
        texts.append(write(name, op, shapes))
        flops.append(expected)
    assert count(tmp_path / "a.sqlite", in_turn(*texts)) == flops


def test_what_fits_no_product_does_not_count(tmp_path: Path) -> None:
    wrong = [
        write("aten::mm", 1, [(4, 5), (6, 7)]),
        write("aten::mm", 2, [(4, 5)]),
        write("aten::mm", 3, [(4, 5), ()]),
        write("aten::mm", 4, [(4, 5), (5,)]),
        write("aten::addmm", 5, [(4, 5), (5, 6)]),
        write("aten::bmm", 6, [(2, 4, 5), (3, 5, 6)]),
        write("aten::linear", 7, [(4, 5), (6, 5), (6,)]),
        write("aten::mv", 8, [(4, 5), (5,)]),
        write("my::mm", 9, [(4, 5), (5, 6)]),
    ]
    assert count(tmp_path / "a.sqlite", in_turn(*wrong)) == [0] * len(wrong)


@pytest.mark.parametrize("kind", ["flash", "efficient", "cudnn"])
def test_attention(tmp_path: Path, kind: str) -> None:
    """Forward: scores and values. Backward: scores again, gradients of scores, values, queries and keys."""
    b, h, few, s, t, d, e = 2, 4, 2, 5, 3, 6, 7
    query, key, value, result = (b, h, s, d), (b, h, t, d), (b, h, t, e), (b, h, s, e)
    scores, values = multiply_and_add((s, d), (d, t)), multiply_and_add((s, t), (t, e))
    backward = [scores, multiply_and_add((s, e), (e, t)), multiply_and_add((t, s), (s, e))]
    backward += [multiply_and_add((s, t), (t, d)), multiply_and_add((d, s), (s, t))]
    name = f"aten::_scaled_dot_product_{kind}_attention"
    grouped = [(b, few, t, d), (b, few, t, e)]
    texts = [
        write(name, 1, [query, key, value, (), (), ()]),
        write(f"{name}_backward", 2, [result, query, key, value, result, (b, h, s), ()]),
        write(name, 3, [query, *grouped, ()]),
        write(name, 4, [query, (b, 3, t, d), (b, 3, t, e), ()]),
        write(name, 5, [query, key, (b, h, t + 1, e)]),
        write(name, 6, [query, key]),
    ]
    expected = [b * h * (scores + values), b * h * sum(backward), b * h * (scores + values), 0, 0, 0]
    assert count(tmp_path / "a.sqlite", in_turn(*texts)) == expected


# ---- convolutions ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_convolutions(tmp_path: Path, seed: int) -> None:
    texts, flops = [], []
    for n, (x, w, out, groups, is_transposed) in enumerate(convolutions(seed)):
        op = 10 * n + 1
        one = spread(x, w, groups) if is_transposed else convolve(x, w, out, groups)
        texts += [
            write("aten::convolution", op, [x, w, (), (), ()]),
            write("aten::relu", op + 1, [out], [(op, 0)]),
            write("aten::convolution_backward", op + 2, [out, x, w, (), ()]),
            write("detach", op + 3, [x], [(op + 2, 0)]),
            write("detach", op + 4, [w], [(op + 2, 1)]),
            write("detach", op + 5, [w[:1]], [(op + 2, 2)]),
        ]
        # Each product of an input and a weight appears once in the result, and once in each gradient.
        flops += [one, 0, 2 * one, 0, 0, 0]
    assert count(tmp_path / "a.sqlite", in_turn(*texts)) == flops


X, W, OUT = (2, 3, 8, 8), (4, 3, 3, 3), (2, 4, 6, 6)
ONE = convolve(X, W, OUT, 1)


def test_a_gradient_that_nobody_takes_is_not_computed(tmp_path: Path) -> None:
    texts = [
        write("aten::convolution_backward", 1, [OUT, X, W]),
        write("detach", 2, [W], [(1, 1)]),
        write("aten::convolution_backward", 3, [OUT, X, W]),
        write("detach", 4, [(4,)], [(3, 2)]),
    ]
    assert count(tmp_path / "a.sqlite", in_turn(*texts)) == [ONE, 0, 0, 0]


def test_the_result_comes_from_any_range_of_the_convolution(tmp_path: Path) -> None:
    """`conv2d` returns it last; a bias is added within; a result without a batch is squeezed first."""
    nested = ("aten::conv2d", "aten::convolution", "aten::_convolution", "aten::cudnn_convolution")
    for maker in range(1, 5):
        ranges = [(n, 100 - n, MAIN, write(name, n, [X, W])) for n, name in enumerate(nested, 1)]
        taker = (200, 210, WORKER, write("aten::add_", 9, [OUT, (1, 4, 1, 1)], [(maker, 0)]))
        assert count(tmp_path / "a.sqlite", [*ranges, taker]) == [0, ONE, 0, 0, 0], maker


@pytest.mark.parametrize(
    "takers",
    [
        [],
        [write("aten::relu", 2, [OUT], [(1, 1)])],
        [write("aten::relu", 2, [OUT], [(7, 0)])],
        [write("aten::relu", 2, [(2, 5, 6, 6)], [(1, 0)])],
        [write("aten::relu", 2, [(3, 4, 6, 6)], [(1, 0)])],
        [write("aten::relu", 2, [(4, 6, 6)], [(1, 0)])],
        [write("aten::relu", 2, [OUT], [(1, 0)]), write("aten::relu", 3, [(2, 4, 5, 5)], [(1, 0)])],
        [write("aten::relu", 2, [OUT], [(1, 0)]).replace("[(1,0)]", "[(1,0), (1,0)]")],
        [write("aten::relu", 2, [OUT], [(1, 0)]).replace("2, 4", "-2, 4")],
        [write("aten::relu", 2, [OUT], [(1, 0)]).replace("(1,0)", "(99999999999999999999,0)")],
    ],
)
def test_a_convolution_without_a_sure_result_does_not_count(tmp_path: Path, takers: list[str]) -> None:
    texts = [write("aten::convolution", 1, [X, W]), *takers]
    assert count(tmp_path / "a.sqlite", in_turn(*texts)) == [0] * len(texts)


def test_if_weights_do_not_show_the_direction_the_smaller_number_counts(tmp_path: Path) -> None:
    small, large, w = (1, 4, 3, 3), (1, 4, 6, 6), (4, 4, 2, 2)
    texts = [
        write("aten::convolution", 1, [large, w]),
        write("aten::relu", 2, [small], [(1, 0)]),
        write("aten::convolution", 3, [small, w]),
        write("aten::relu", 4, [large], [(3, 0)]),
    ]
    assert count(tmp_path / "a.sqlite", in_turn(*texts)) == [convolve(large, w, small, 1), 0, spread(small, w, 1), 0]


# ---- which ranges ----------------------------------------------------------------------------------------------------

PRODUCT = write("aten::mm", 5, [(2, 3), (3, 4)])


def test_only_the_outermost_counts_on_each_thread(tmp_path: Path) -> None:
    outer = write("aten::_convolution", 4, [X, W])
    ranges = [(10, 50, MAIN, outer), (20, 30, MAIN, PRODUCT), (20, 30, WORKER, PRODUCT), (50, 60, MAIN, PRODUCT)]
    linear = [(70, 90, MAIN, write("aten::linear", 6, [(2, 3), (4, 3)])), (75, 80, MAIN, PRODUCT)]
    assert count(tmp_path / "a.sqlite", [*ranges, *linear]) == [0, 0, 48, 48, 0, 48]


def test_only_ranges_without_a_domain_count(tmp_path: Path) -> None:
    assert count(tmp_path / "a.sqlite", in_turn(PRODUCT)) == [48]
    assert count(tmp_path / "a.sqlite", in_turn(PRODUCT), domain=3) == [0]


def test_texts_of_older_versions(tmp_path: Path) -> None:
    texts = ["aten::mm, seq = 3, sizes = [[2, 3], [3, 4]]", "aten::mm, seq = -1, op_id = 7, sizes = [[2, 3], [3, 4]]"]
    assert count(tmp_path / "a.sqlite", in_turn(*texts, "aten::mm", "aten::mm, op_id = 7")) == [48, 48, 0, 0]


# ---- hostile texts ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "sizes",
    [
        *("", "[", "[]", "[[", "[[]", "[[2, 3], [3, 4]", "[[2, 3], [3, 4]]]", "[[[2, 3], [3, 4]]]", "[[2, 3] [3, 4]]"),
        *("[[-2, 3], [3, 4]]", "[[2, 3], [3, -4]]", "[[2.0, 3], [3, 4]]", "[[1e400, 3], [3, 4]]", "[[2,3], [3,4]]"),
        *("[[2, 3], [3, 4x]]", "[[2, 3], [3, ]]", "[[2, 3], [, 4]]", "[[٢, 3], [3, 4]]", "[[2, 3],\n[3, 4]]"),
        "[[99999999999999999999999, 3], [3, 4]]",
        "[[3037000500, 1], [1, 3037000500]]",
        f"[[{10**17}, {10**17}], [{10**17}, {10**17}]]",
    ],
)
def test_a_text_that_is_no_list_of_sizes_does_not_count(tmp_path: Path, sizes: str) -> None:
    texts = [f"{name}, op_id = 1, sizes = {sizes}" for name in ("aten::mm", "aten::bmm", "aten::convolution")]
    texts += [f"{text}, input_op_ids = [(1,0), (1,1)]" for text in texts] + [
        f"{text}, input_op_ids = [" for text in texts
    ]
    assert count(tmp_path / "a.sqlite", in_turn(*texts)) == [0] * len(texts)


def test_the_most_that_fits_64_bits(tmp_path: Path) -> None:
    k = 2**31
    texts = [write("aten::mm", 1, [(k, k - 1), (k - 1, 1)]), write("aten::mm", 2, [(k, k), (k, 1)])]
    assert count(tmp_path / "a.sqlite", in_turn(*texts)) == [2**63 - 2**32, 0]


@given(st.lists(st.lists(st.integers(0, 10**18 - 1), max_size=4), min_size=1, max_size=5))
def test_sizes_are_read_as_written(shapes: list[list[int]]) -> None:
    assert parse_sizes(repr(shapes)) == [tuple(shape) for shape in shapes]


@given(st.text("[](), 0123456789-e.", max_size=40))
def test_other_texts_are_no_sizes(text: str) -> None:
    shapes = parse_sizes(text)
    assert shapes is None or repr([list(shape) for shape in shapes]) == re.sub(r"\b0+(?=[0-9])", "", text)
