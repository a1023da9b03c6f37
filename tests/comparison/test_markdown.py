"""Comparisons in Markdown: names are text in it, whatever they hold."""

from __future__ import annotations

import html
import re
from dataclasses import replace

import pytest

from nsys2prv_ng.comparison.compare import compare_sides
from nsys2prv_ng.comparison.model import Side
from nsys2prv_ng.comparison.result import format_markdown
from nsys2prv_ng.summary.kernels.numbers import KernelNumbers
from tests.comparison.made import GPUS, MS, make_summary

HOSTILE = [
    "a|b", "`code`", "``", "<img src=x onerror=alert(1)>", "</code><script>", "a\nb", "a\r\n\r\n# heading", "@everyone",
    "[text](http://example.org)", "![](http://example.org/x.png)", "*bold* _it_ ~~no~~", "&lt;&#60;", "\\", "a\\|b",
    "#12", "$x$", "\x1b[31m", "\u2028", "| --- |", "https://example.org/",
]  # fmt: skip


def render(name: str, count: int = 4, *, shows_details: bool = True) -> str:
    steps = [{"compute_ns": ms * MS * GPUS} for ms in range(100, 100 + count)]
    a, b = make_summary(steps), make_summary([{"compute_ns": ms * MS * GPUS} for ms in range(50, 54)])
    a = replace(
        a, kernels=[KernelNumbers(name=name, kernel_class=name, count=1, total_ns=100 * MS, min_ns=1, max_ns=1)]
    )
    return format_markdown(compare_sides([Side(name, a), Side("b", b)]), shows_details=shows_details)


@pytest.mark.parametrize("count", [0, 1, 4])
@pytest.mark.parametrize("name", HOSTILE)
def test_names_are_text(name: str, count: int) -> None:
    """The document has the lines, cells and tags of the same one with a harmless name; the name can be read in it."""
    text, plain = render(name, count), render("harmless", count)
    assert len(text.split("\n")) == len(plain.split("\n"))
    assert [line.count("|") for line in text.split("\n")] == [line.count("|") for line in plain.split("\n")]
    assert re.findall(r"<[^>]*>", text) == re.findall(r"<[^>]*>", plain)
    shown = re.findall(r"<code>(.*?)</code>", text)
    printable = " ".join(re.sub(r"[\x00-\x1f\u2028]", " ", name).split()) or "(unnamed)"
    assert printable in {html.unescape(cell) for cell in shown}
    for cell in shown:  # nothing in a cell that Markdown or HTML reads, but entities
        assert re.fullmatch(r"(?:[\w .,:;/%+=?()-]|&#\d+;)*", cell), cell
        assert "_" not in cell


def test_a_table() -> None:
    lines = render("gemm").split("\n")
    at = lines.index("Kernels, per step and GPU:")
    assert lines[at + 2 : at + 5] == [
        "|  | <code>class</code> | <code>gemm</code> | <code>b</code> | <code>change</code> | <code>relative</code> |"
        " <code>count</code> |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: |",
        "| <code>gemm</code> | <code>gemm</code> | 25.0 ms | - | gone |  | 0.2 -&#62; - |",
    ]
    assert lines[0].startswith("**FASTER** <code>b</code> is faster than <code>gemm</code>: 51.5 ms per")
    assert any(line.startswith("- **NOTE** <code>an older version made the summary of gemm, b, so") for line in lines)
    assert not any("Kernels" in line for line in render("gemm", shows_details=False).split("\n"))
