"""Numbers that presets of CPU samples show, compared with plain loops over reports."""

from __future__ import annotations

import bisect
import sqlite3
from collections import Counter
from pathlib import Path

import pandas as pd
import pytest

from nsys2prv_ng.bundled.presets import list_presets
from tests.cfgs.recorded import Histogram, show
from tests.cfgs.sampled_report import SampledReport, make_sampled_report
from tests.sources.host.test_cpu_samples import shown
from tests.sources.small_reports import translate_reports
from tests.spans import find_gaps
from tests.trace_reader import Trace

pytestmark = pytest.mark.slow  # translates whole jobs

FUNCTION, MODULE = 30000000, 30000200
SOURCES = "kernels,memory_operations,cuda_api,os_runtime,cpu_samples"


def show_histogram(name: str, trace: Trace) -> Histogram:
    (histogram,) = show(name, trace).histograms
    return histogram


def count_samples(histogram: Histogram, trace: Trace) -> dict[tuple[int, str], int]:
    """Return the number of samples by row and function."""
    frame, labels = histogram.frame, trace.values[FUNCTION]
    return {(row, labels[int(v)]): int(n) for v in frame.columns for row, n in enumerate(frame[v]) if n}


@pytest.fixture(scope="module", params=[1, 2])
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[SampledReport, Trace]:
    folder = tmp_path_factory.mktemp("sampled")
    report = make_sampled_report(folder, request.param)
    return report, translate_reports([report.path], folder / "trace.prv", SOURCES)[0]


def list_rows(report: SampledReport, trace: Trace) -> list[int]:
    """Return the row of each thread. The streams and GPUs of a process follow its threads."""
    assert len(trace.threads) == 2
    return [0, 1, trace.threads[0]]


def test_number_of_samples_by_function(made: tuple[SampledReport, Trace]) -> None:
    report, trace = made
    rows = list_rows(*made)
    expected = Counter((rows[row], function) for row, _, function in report.samples)
    assert count_samples(show_histogram("basics/sampled_functions", trace), trace) == expected


def test_samples_taken_while_a_gpu_of_the_rank_is_idle(made: tuple[SampledReport, Trace]) -> None:
    report, trace = made
    rows = list_rows(*made)
    idle = {
        process: [
            gap for spans in of_gpu.values() for gap in find_gaps(pd.DataFrame(spans, columns=["begin", "end"]))
        ]
        for process, of_gpu in report.kernels.items()
    }  # fmt: skip
    expected = Counter(
        (rows[row], function)
        for row, time, function in report.samples
        if any(begin <= time < end for begin, end in idle[report.process_of_row[row]])
    )
    assert 300 < sum(expected.values()) < 2000
    assert count_samples(show_histogram("analysis/sampled_while_gpu_idle", trace), trace) == expected


def test_the_timeline_shows_the_last_function_while_a_gpu_is_idle(made: tuple[SampledReport, Trace]) -> None:
    _, trace = made
    shown_windows = show("analysis/sampled_while_gpu_idle", trace).windows
    names = [window.name for window in shown_windows]
    timeline = shown_windows[names.index("Sampled functions while a GPU of the rank is idle")].bursts
    idle = shown_windows[names.index("Any GPU of the rank idle")].bursts
    events = trace.events[trace.events["type"] == FUNCTION]
    task = [number - 1 for number in trace.task_of_row]
    for row in list_rows(*made):
        of_row = events[events["row"] == row].sort_values("time", kind="stable")
        times, values = of_row["time"].tolist(), of_row["value"].tolist()
        of_task = idle[idle["object"] == task[row]]
        begins, flags = of_task["begin"].tolist(), of_task["value"].tolist()
        for burst in timeline[timeline["object"] == row].itertuples():
            if burst.begin == burst.end:
                continue
            last = bisect.bisect_right(times, burst.begin) - 1
            is_idle = flags[bisect.bisect_right(begins, burst.begin) - 1]
            assert burst.value == (values[last] if last >= 0 and is_idle else 0)


def test_presets_of_samples_have_their_events(made: tuple[SampledReport, Trace]) -> None:
    _, trace = made
    names = {preset.name for preset in list_presets()}
    for name in ("basics/sampled_functions", "analysis/sampled_while_gpu_idle"):
        assert name in names
        for window in show(name, trace).windows:
            assert (window.bursts["value"] != 0).any(), window.name


def test_functions_of_a_real_report_while_its_gpu_is_idle(shared_reports: Path, tmp_path: Path) -> None:
    path = shared_reports / "gpu/sampled-1.sqlite"
    trace, _ = translate_reports([path], tmp_path / "trace.prv", SOURCES)
    connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True)
    operations = pd.concat(
        pd.read_sql_query(f'SELECT start AS begin, "end" FROM CUPTI_ACTIVITY_KIND_{table}', connection)
        for table in ("KERNEL", "MEMCPY")  # it has no sets and no graphs
    )
    samples = connection.execute(
        """SELECT e.start, globalTid & 16777215, s.value, m.value, unresolved FROM COMPOSITE_EVENTS e
        JOIN SAMPLING_CALLCHAINS c ON c.id = e.id AND stackDepth = 0
        JOIN StringIds s ON s.id = symbol JOIN StringIds m ON m.id = module"""
    ).fetchall()
    connection.close()
    idle = find_gaps(operations)
    begins = [begin for begin, _ in idle]
    expected: Counter[tuple[str, str]] = Counter()
    for time, thread, symbol, module, unresolved in samples:
        at = bisect.bisect_right(begins, time) - 1
        if at >= 0 and time < idle[at][1]:
            expected[str(thread), shown(symbol, module, unresolved)[:400]] += 1
    main = max(expected, key=expected.__getitem__)[0]
    assert main == "2106" and sum(expected.values()) > 1500
    counts = count_samples(show_histogram("analysis/sampled_while_gpu_idle", trace), trace)
    row = next(row for row, name in enumerate(trace.names["THREAD"]) if name.endswith(f" {main}"))
    assert {label[:400]: n for (of_row, label), n in counts.items() if of_row == row} == {
        label: n for (thread, label), n in expected.items() if thread == main
    }
