"""What slow steps have that usual ones do not: planted causes, and a real report against plain SQL and loops."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

import pytest

import nsys2prv_ng
from nsys2prv_ng.summary.answer.answer import answer
from nsys2prv_ng.summary.answer.slow_steps import describe_reason
from nsys2prv_ng.summary.job import JobSummary
from nsys2prv_ng.summary.steps.numbers import OnlySlow, SlowStepNumbers
from nsys2prv_ng.summary.steps.table import list_slow_tables
from nsys2prv_ng.summary.text import format_summary
from nsys2prv_ng.text.layout import MOST_ROWS
from tests.conftest import Unpacked
from tests.report_truth import Report
from tests.steps.step_truth import StepTruth, list_ranges
from tests.summary.difference.slow_step_reports import EXTRA, LATE, STEPS, write_job

pytestmark = pytest.mark.slow

SLOW = (4, 7, 11)


def summarize(folder: Path, cause: str, slow: Collection[int] = SLOW) -> tuple[JobSummary, SlowStepNumbers]:
    """A job with a planted cause, and its slow steps, whose parts add up."""
    summary = nsys2prv_ng.summarize(write_job(folder, slow, cause), jobs=1)
    assert summary.slow_steps is not None
    check_sums(summary, summary.slow_steps)
    check_table(summary.slow_steps)
    assert summary.slow_steps.slow == sorted(slow)
    assert summary.slow_steps.usual == [step for step in range(1, STEPS) if step not in slow]
    return summary, summary.slow_steps


def check_sums(summary: JobSummary, numbers: SlowStepNumbers) -> None:
    """Parts add up to the steps to the ns, the steps are the plain means, and host-bound time is divided as a whole."""
    assert summary.efficiency is not None
    for which, key in ((numbers.usual, "usual_ns"), (numbers.slow, "slow_ns"), ([], "difference_ns")):
        whole = getattr(numbers, key)
        assert sum(getattr(part, key) for part in numbers.parts) == whole
        host = sum(getattr(part, key) for part in numbers.parts if part.name == "host-bound")
        assert sum(getattr(part, key) for part in numbers.idle) == pytest.approx(host, abs=len(numbers.idle) + 1)
        if which:
            times = [step.length_ns for step in summary.efficiency.steps if step.number in which]
            assert whole == pytest.approx(sum(times) / len(which), abs=len(numbers.parts))


def check_table(numbers: SlowStepNumbers) -> None:
    """The rows of the table add up, also with small parts and places as sums, and the terminal shows all of them."""
    grid = list_slow_tables(numbers)[0]
    rows = [[str(row[0]), str(row[1]), row[2].number, row[3].number, row[4].number] for row in grid.rows]
    assert len(rows) + len(grid.footer) <= MOST_ROWS + 1
    for column, whole in ((2, numbers.usual_ns), (3, numbers.slow_ns), (4, numbers.difference_ns)):
        assert sum(row[column] for row in rows if not row[1]) == whole
        host = sum(row[column] for row in rows if row[0] == "host-bound")
        assert sum(row[column] for row in rows if row[1]) == pytest.approx(host, abs=len(numbers.idle) + 1)


def get_lines(summary: JobSummary) -> dict[str, str]:
    assert summary.verdict is not None
    return {line.label: line.text for line in summary.verdict.statements}


def get_differences(numbers: SlowStepNumbers) -> dict[str, int]:
    """The parts that differ (ns)."""
    return {part.name: part.difference_ns for part in numbers.parts if part.difference_ns}


def test_a_call_that_only_slow_steps_have(tmp_path: Path) -> None:
    summary, found = summarize(tmp_path, "call")
    assert get_differences(found) == {"host-bound": EXTRA}
    [idle] = [part for part in found.idle if part.difference_ns]
    assert (idle.range, idle.name, idle.usual_ns, idle.slow_ns) == ("step", "cudaMalloc", 0, EXTRA)
    assert [(each.kind, each.name, each.count, each.ns) for each in found.only_slow] == [
        ("call", "cudaMalloc", 3 * len(SLOW), EXTRA)
    ]
    text = "the 3.00 ms more are in `cudaMalloc` (only in slow steps)"
    assert get_lines(summary)["WHERE"] == f"their additional time: host-bound 100.0%; {text}"
    table = format_summary(summary, 100, details=True).split("Slow steps 4, 7, 11 against 10 usual steps, mean")[1]
    assert table.splitlines()[2].split() == ["host-bound", "105", "us", "3.11", "ms", "+3.00", "ms", "100.0%"]


def test_a_kernel_that_takes_longer(tmp_path: Path) -> None:
    summary, found = summarize(tmp_path, "kernel")
    [(name, ns)] = get_differences(found).items()
    assert name.startswith("compute") and ns == EXTRA
    assert {(each.kind, each.name, each.difference_ns) for each in found.changes} >= {
        ("kernel", "sgemm_128x128_nn", EXTRA)
    }
    assert get_lines(summary)["WHERE"].endswith("; the 3.00 ms more are in kernel `sgemm_128x128_nn`")
    # Beside something else that takes as long, the kernel explains nothing.
    parts = [replace(part, name="queued") if part.difference_ns else part for part in found.parts]
    assert describe_reason(replace(summary, slow_steps=replace(found, parts=parts))) == ("", [])


def test_a_rank_that_the_others_wait_for(tmp_path: Path) -> None:
    summary, found = summarize(tmp_path, "late")
    assert get_differences(found) == {"wait time": 2 * EXTRA // 3, "host-bound": EXTRA // 3}
    late = found.late
    assert late is not None and (late.rank, late.ns, late.others, late.range) == (LATE, 2 * EXTRA, 2, "late host")
    assert get_lines(summary)["WHERE"].endswith("; the 3.00 ms more are wait for rank 1 (`late host`)")


def test_a_range_that_only_slow_steps_have(tmp_path: Path) -> None:
    """And a call that takes hardly any time, but shows what these steps do."""
    summary, found = summarize(tmp_path, "range")
    assert get_differences(found) == {"host-bound": EXTRA}
    assert {(each.kind, each.name) for each in found.only_slow} == {
        ("range", "checkpoint"),
        ("call", "cuLibraryLoadData"),
    }
    assert get_lines(summary)["WHERE"].endswith(
        "; the 3.00 ms more are in gaps with kernel loads, in range `checkpoint`; `cuLibraryLoadData` (1.00 us)"
        " only in slow steps"
    )


def test_a_short_call_in_a_single_slow_step_may_be_chance(tmp_path: Path) -> None:
    summary, found = summarize(tmp_path, "range", slow=[6])
    assert [(each.kind, each.name) for each in found.only_slow] == [("range", "checkpoint")]
    assert "cuLibraryLoadData" not in get_lines(summary)["WHERE"]


def test_nothing_is_half_of_the_difference(tmp_path: Path) -> None:
    summary, found = summarize(tmp_path, "calls")
    assert get_differences(found) == {"host-bound": EXTRA}
    assert " more are " not in get_lines(summary)["WHERE"]


def test_a_job_without_slow_steps(tmp_path: Path) -> None:
    summary = nsys2prv_ng.summarize(write_job(tmp_path, (), ""), jobs=1)
    assert summary.slow_steps is None and "Slow step" not in format_summary(summary, 100, details=True)


def test_a_slow_step_is_drawn_beside_the_typical_one(tmp_path: Path) -> None:
    """On one axis: the typical step of 465 us takes as much of it as of the slow step of 3,465 us."""
    page = tmp_path / "page.html"
    nsys2prv_ng.summarize(write_job(tmp_path, SLOW, "call"), html=page, jobs=1)
    section = page.read_text().split('<section id="step"')[1].split("</section>")[0]
    assert "A typical step and a slow one" in section
    assert "<code>step 1</code>, the step closest to the median: 465 us" in section
    assert "<code>step 4</code> is the slowest: 3.46 ms" in section or "3.47 ms" in section
    widths = re.findall(r'<div class="lane".*?width:([0-9.]+)%', section, re.DOTALL)
    lanes = [float(width) for width in widths]
    assert lanes[0] == pytest.approx(lanes[-1] * 465 / 3465, rel=0.02), lanes
    assert "10 usual steps, mean time per GPU and step" in section and "10 usual steps, by name" in section


def test_a_summary_is_read_back(tmp_path: Path) -> None:
    summary, _ = summarize(tmp_path, "late")
    summary.save(tmp_path / "summary.json")
    assert JobSummary.load(tmp_path / "summary.json") == summary


def test_names_of_reports_are_printable(tmp_path: Path) -> None:
    hostile = "<b>\x1b[31m\nname\t`"
    summary, found = summarize(tmp_path, "late")
    assert found.late is not None
    late = replace(found.late, rank=None, task=hostile, range=hostile, what=hostile)
    changed = replace(
        found,
        unit=hostile,
        late=late,
        parts=[replace(part, name=hostile) for part in found.parts],
        idle=[replace(part, name=hostile, range=hostile) for part in found.idle],
        changes=[replace(each, name=hostile, kind=hostile, per=hostile) for each in found.changes],
        only_slow=[OnlySlow(kind="call", name=hostile, count=1, ns=1)],
    )
    for each in (changed, replace(changed, late=None)):
        verdict = answer(replace(summary, slow_steps=each))
        assert all(line.text.isprintable() for line in verdict.statements)
        text = format_summary(replace(summary, slow_steps=each, verdict=verdict), 80, details=True)
        assert all(line.isprintable() for line in text.splitlines())


# ---- real reports ----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_steps_with_new_shapes(shared_reports: Path, unpacked: Unpacked) -> None:
    """Calls by step, with SQL and loops; what no call and no GPU does in a slow step is user code."""
    path = unpacked(shared_reports / "whatif/x-uneven.rank0.sqlite")
    summary = nsys2prv_ng.summarize([path], jobs=1)
    found = summary.slow_steps
    assert found is not None and found.slow == [2, 4, 6, 8, 16]
    check_sums(summary, found)
    check_table(found)
    report = Report(path)
    truth = StepTruth([report], list_ranges([report], "step"))
    [process] = truth.ranges
    times = defaultdict[str, Counter[int]](Counter)
    outer = 0
    for begin, end, name in report.sql(
        """SELECT r.start, r."end", replace(s.value, '_v', '|') AS name FROM CUPTI_ACTIVITY_KIND_RUNTIME r
        JOIN StringIds s ON s.id = r.nameId ORDER BY r.start, -r."end" """
    ).itertuples(index=False):
        step = truth.find_step(process, begin + report.utc)
        if end > outer and step in truth.counted:  # calls within other calls are parts of these
            times[name.split("|")[0]][step] += end - begin
        outer = max(outer, end)
    means = {
        name: tuple(sum(ns[step] for step in which) / len(which) for which in (found.usual, found.slow))
        for name, ns in times.items()
    }
    changes = {each.name: (each.usual_ns, each.slow_ns) for each in found.changes if each.kind == "call"}
    assert changes and all(changes[name] == pytest.approx(means[name], abs=1) for name in changes)
    largest = max(means, key=lambda name: means[name][1] - means[name][0])
    assert largest == next(iter(changes)) == "cuKernelSetAttribute"
    only = {name for name, ns in times.items() if set(ns) == set(found.slow)}
    cuda = [each for each in found.only_slow if each.name.startswith("cu")]
    assert {each.name for each in cuda} == only and "cuLibraryLoadData" in only
    assert all(each.ns == pytest.approx(means[each.name][1], abs=1) for each in cuda)
    # No call is long: at least nine tenths of the difference are outside of calls, by the host's own time.
    excess = sum(truth.lengths[number] for number in found.slow) / 5 - sum(truth.lengths[n] for n in found.usual) / 24
    in_calls = sum(slow - usual for usual, slow in means.values())
    assert found.difference_ns == pytest.approx(excess, abs=len(found.parts)) and in_calls < 0.1 * excess
    [own] = [part for part in found.idle if (part.range, part.name) == ("step", "")]
    assert own.difference_ns > 0.9 * excess
    text = get_lines(summary)["WHERE"]
    assert "more are in gaps with kernel loads; `cuLibraryLoadData` (174 us) only in slow steps" in text
    [loads] = [part for part in found.causes if part.name in text]
    assert loads.difference_ns / 10**6 == pytest.approx(float(text.split("; ")[1].split()[0]), abs=0.1)
    assert len(format_summary(summary, 100).splitlines()) <= 25
