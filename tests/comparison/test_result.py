"""The text of a comparison: labels in a fixed column, few lines, percentage points, names instead of letters."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from nsys2prv_ng.comparison.compare import compare_sides
from nsys2prv_ng.comparison.model import Pair, Side
from nsys2prv_ng.comparison.result import format_comparison, format_markdown
from nsys2prv_ng.summary.job import JobSummary
from tests.comparison.made import GPUS, MS, make_summary
from tests.comparison.made_runs import make_gpu, make_run
from tests.summary.difference.test_changes import run

VERDICT = re.compile(r"^(FASTER|SLOWER|NO DIFFERENCE|INCONCLUSIVE)", re.MULTILINE)
PARTS = ("compute", "waiting", "moving", "not_split", "memory", "host", "queued", "graph", "unknown", "cut")


def communicating(label: str, overlapped: int, exposed: int) -> JobSummary:
    """A run of five steps in which each GPU communicates for these times (ms per step)."""
    gpus = [
        replace(make_gpu(number), communication_ns=5 * (overlapped + exposed) * MS, overlap_ns=5 * overlapped * MS)
        for number in range(GPUS)
    ]
    return replace(run(label, {"compute": 20, "moving": exposed}), gpus=gpus)


def text_of(a: JobSummary, b: JobSummary, width: int = 100, **shows: bool) -> str:
    return format_comparison(compare_sides([Side("before", a), Side("after", b)]), width, **shows)


@pytest.mark.parametrize("width", [60, 80, 100, 120])
def test_labels_stand_in_a_column(width: int) -> None:
    """Every label starts a line, and every other line of the answer starts below its text."""
    a, b = (run(label, dict.fromkeys(PARTS, ms)) for label, ms in (("a", 10), ("b", 30)))
    answer = text_of(a, b, width).split("\n\n")[0].splitlines()
    assert answer[0].startswith("SLOWER        `after` is slower than `before`: ")
    for line in answer:
        assert re.match(r"[A-Z ]{13} \S|\s{14}\S", line), line
        assert len(line) <= min(width, 100)
    labels = [line[:14].strip() for line in answer if line[0] != " "]
    assert labels == ["SLOWER", "PARTS", "RUN", "RUN", "NOTE"]


@pytest.mark.parametrize(
    ("a", "b", "label"),
    [
        ([10] * 5, [5] * 5, "FASTER"),
        ([10] * 5, [15] * 5, "SLOWER"),
        ([10] * 5, [10] * 5, "NO DIFFERENCE"),
        ([10] * 5, [10.1] * 5, "NO DIFFERENCE"),
        ([10] * 3, [5] * 5, "INCONCLUSIVE"),
        ([], [5] * 5, "INCONCLUSIVE"),
    ],
)
def test_each_pair_has_one_verdict_that_grep_finds(a: list[float], b: list[float], label: str) -> None:
    one, other = (make_summary([{"compute_ns": int(ms * MS) * GPUS} for ms in side]) for side in (a, b))
    sides = [Side("a", one), Side("b", other), Side("c", other)]
    for shows_details in (False, True):
        text = format_comparison(compare_sides(sides), shows_details=shows_details)
        assert VERDICT.findall(text) == [label] * 2
        assert text.startswith(label)


def test_the_default_is_short_and_details_have_all_tables() -> None:
    """Ten parts differ: six are shown, and the other four are one row, so that the column still adds up."""
    a, b = (run(label, {part: ms + n for n, part in enumerate(PARTS)}) for label, ms in (("a", 10), ("b", 14)))
    b = replace(b, gpus=[replace(gpu, peak_memory_bytes=9) for gpu in b.gpus])
    a = replace(a, gpus=[replace(gpu, peak_memory_bytes=5) for gpu in a.gpus])
    short, details = text_of(a, b), text_of(a, b, shows_details=True)
    assert len(short.splitlines()) <= 25 and short.count("part  ") == 1
    assert "4 smaller parts" in short and "4 smaller parts" not in details
    assert "Peak GPU memory" in details and "Peak GPU memory" not in short
    assert short.splitlines()[-1].startswith("Tables: --details")
    assert text_of(a, b, shows_all=True).count("\n") >= details.count("\n")
    rows = [re.split(r"  +", line) for line in short.split("\n\n")[1].splitlines()[2:]]
    changes = [float(row[3].split()[0]) for row in rows]
    assert sum(changes[:-1]) == pytest.approx(changes[-1]) == 40


def test_overlap_in_percentage_points() -> None:
    """1 of 10 ms overlaps, then 6 of 10 ms."""
    comparison = compare_sides([Side("before", communicating("a", 1, 9)), Side("after", communicating("b", 6, 4))])
    for text in (format_comparison(comparison, 200), format_comparison(comparison, 60)):
        assert (
            "OVERLAP communication per step and GPU: `before` 1.00 ms overlapped (10.0%), 9.00 ms exposed,"
            " `after` 6.00 ms overlapped (60.0%, +50.0 pp), 4.00 ms exposed " in " ".join(text.split())
        )
    assert "OVERLAP" not in text_of(run("a", {"compute": 10}), run("b", {"compute": 12}))
    alone = text_of(run("a", {"compute": 10}), communicating("b", 0, 7), 200)
    assert "OVERLAP       communication per step and GPU: `after` 0 ns overlapped (0.0%), 7.00 ms exposed\n" in alone


def rates_of(parallel: float) -> JobSummary:
    """A run whose GPUs have this parallel efficiency."""
    made = run("x", {"compute": 20})
    assert made.efficiency is not None and made.efficiency.in_steps is not None
    in_steps = made.efficiency.in_steps
    trees = in_steps.nccl_as_communication
    assert trees.device is not None
    trees = replace(trees, device=replace(trees.device, parallel=parallel))
    efficiency = replace(made.efficiency, in_steps=replace(in_steps, nccl_as_communication=trees))
    return replace(made, efficiency=efficiency)


def test_differences_of_percentages_are_points() -> None:
    comparison = compare_sides([Side("before", rates_of(0.043)), Side("after", rates_of(0.056))])
    plain, marked = (show(comparison, shows_details=True) for show in (format_comparison, format_markdown))
    row = next(line for line in plain.splitlines() if "communication: parallel" in line)
    assert row.split()[-4:] == ["4.3%", "5.6%", "+1.3", "pp"]
    assert "| 4.3&#37; | 5.6&#37; | +1.3 pp |" in marked or "| 4.3% | 5.6% | +1.3 pp |" in marked


def test_names_stand_for_both_runs() -> None:
    """No output calls a run A or B."""
    a, b = communicating("a", 1, 9), communicating("b", 6, 4)
    comparison = compare_sides([Side("before", a), Side("after", b)])
    for text in (
        format_comparison(comparison, shows_all=True),
        format_markdown(comparison, shows_all=True),
        " ".join(note for pair in comparison.to_dict()["pairs"] for note in pair["notes"]),
    ):
        assert not re.search(r"\b[AB]\b(?!\.\.\.)", text)


def test_findings_are_lines_of_the_first_pair() -> None:
    """A warning is a matter of trust."""
    a, b = run("a", {"compute": 10}), replace(run("b", {"compute": 10}), ranks=2)
    text = text_of(a, b)
    assert "\nTRUST         number of processes: 4 (before) vs 2 (after)\n" in text
    assert text.split("\n\n")[0].count("TRUST") == 1


def test_how_a_comparison_shows_itself() -> None:
    pair: Pair
    comparison = compare_sides([Side("be<b>fore", run("a", {"compute": 10})), Side("after", run("b", {"compute": 20}))])
    (pair,) = comparison.pairs
    assert repr(comparison) == "<Comparison with be<b>fore: after slower>" and pair.verdict.kind == "slower"
    assert str(comparison) == format_comparison(comparison, 100)
    page = comparison._repr_html_()
    assert page.startswith("<table>") and page.count("<table>") == 2 and ">SLOWER</th>" in page
    assert "be&lt;b&gt;fore" in page and "<b>" not in page


def test_scaling_is_a_line_and_a_table() -> None:
    """100 ms on one GPU, 58 ms on two: 1.72 times as fast, 86 % of two."""
    sides = [make_run("one", [800], 100), make_run("two", [390, 400], 58)]
    comparison = compare_sides(sides)
    for show, start in ((format_comparison, "SCALING       "), (format_markdown, "- **SCALING** ")):
        short, details = (show(comparison, shows_details=more) for more in (False, True))
        line = next(line for line in short.splitlines() if "SCALING" in line)
        assert line.startswith(start) and "two" in line and "speedup 1.72 (efficiency 86.2" in line
        assert "global efficiency" in details and "global efficiency" not in short
