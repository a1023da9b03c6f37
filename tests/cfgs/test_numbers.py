"""Numbers that presets show, compared with plain loops over the reports: equal to the nanosecond."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping
from itertools import pairwise
from typing import TypeVar

import numpy as np
import pandas as pd
import pytest

from tests.cfgs.recorded import Histogram, Shown, Window, show
from tests.conftest import Unpacked
from tests.spans import find_gaps, list_report_sets, sum_common, sum_lengths, unite
from tests.translated import KERNEL, NCCL_KERNEL, Translated, Translations

pytestmark = pytest.mark.slow  # translates whole jobs

COMPUTE, COMMUNICATION, MEMORY = 1, 2, 4
NCCL_CALL = 9500

Key = TypeVar("Key", bound=Hashable)

SETS = {
    "samples/ddp-2x2": [f"samples/ddp-2x2.rank{rank}.sqlite" for rank in range(4)],
    "samples/mpi-4": [f"samples/mpi-4.rank{rank}.sqlite" for rank in range(4)],
    "samples/single-graph": ["samples/single-graph.sqlite"],
    "gpu/oneproc-4gpu": ["gpu/oneproc-4gpu.sqlite"],
    "bench/torchrun-one-report": ["bench/torchrun-one-report.sqlite.xz"],
    "public/mfu_2gpu_before": ["public/mfu_2gpu_before.sqlite"],
}


@pytest.fixture(scope="module", params=list_report_sets(SETS, push=set(SETS) - {"public/mfu_2gpu_before"}))
def translated(request: pytest.FixtureRequest, unpacked: Unpacked, translations: Translations) -> Translated:
    return translations([unpacked(path) for path in request.param])


@pytest.fixture(scope="module")
def operations(translated: Translated) -> pd.DataFrame:
    return translated.gpu_operations


# ---- what a preset shows ---------------------------------------------------------------------------------------------


def show_preset(translated: Translated, name: str) -> Shown:
    return show(name, translated.trace)


def select_nonzero(window: Window) -> pd.DataFrame:
    """Return the bursts that are not 0, with their length (ns)."""
    bursts = window.bursts[window.bursts["value"] != 0]
    return bursts.assign(length=bursts["end"] - bursts["begin"])


def sum_time_by_value(window: Window) -> dict[tuple[int, int], int]:
    """Return the time (ns) by object and value."""
    return select_nonzero(window).groupby(["object", "value"])["length"].sum().to_dict()


def integrate(window: Window) -> dict[int, int]:
    """Return the sum of value times length (ns) by object."""
    bursts = select_nonzero(window)
    return (bursts["value"] * bursts["length"]).groupby(bursts["object"]).sum().astype(np.int64).to_dict()


# ---- what the reports contain ----------------------------------------------------------------------------------------


def list_gap_lengths(of_gpu: pd.DataFrame) -> list[int]:
    return [end - begin for begin, end in find_gaps(of_gpu)]


def drop_zeros(numbers: Mapping[Key, int]) -> dict[Key, int]:
    return {key: value for key, value in numbers.items() if value}


def group_gpus_by_task(translated: Translated, operations: pd.DataFrame) -> dict[int, list[pd.DataFrame]]:
    """Return, for each task that has rows of GPUs, the operations of each of these GPUs."""
    gpus: dict[int, list[pd.DataFrame]] = {}
    for row, of_gpu in operations.groupby("gpu_row"):
        gpus.setdefault(translated.trace.task_of_row[row] - 1, []).append(of_gpu)
    return gpus


def sweep(spans: Iterable[tuple[int, int, int]]) -> Iterator[tuple[int, int, int, int]]:
    """Return begin, end, highest value and number of the spans (begin, end, value) that hold each piece of time."""
    ordered = sorted(span for span in spans if span[1] > span[0])
    times = sorted({time for begin, end, _ in ordered for time in (begin, end)})
    held: list[tuple[int, int, int]] = []
    following = 0
    for low, high in pairwise(times):
        held = [span for span in held if span[1] > low]
        while following < len(ordered) and ordered[following][0] == low:
            held.append(ordered[following])
            following += 1
        if held:
            yield low, high, max(value for *_, value in held), len(held)


def sum_by_highest(operations: pd.DataFrame, value: str) -> dict[tuple[int, int], int]:
    """Return the sum of the durations (ns) by task and value; where operations overlap, the highest value has all."""
    time: Counter[tuple[int, int]] = Counter()
    for task, of_task in operations.groupby("task"):
        for low, high, highest, number in sweep(zip(of_task["begin"], of_task["end"], of_task[value], strict=True)):
            time[int(task), int(highest)] += number * (high - low)
    return drop_zeros(time)


# ---- GPUs as a whole -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("preset", "kinds"),
    [("analysis/gpu_active", (COMPUTE, COMMUNICATION, MEMORY)), ("analysis/gpu_useful", (COMPUTE,))],
)
def test_active_and_useful_time_of_the_gpus_of_each_rank(
    translated: Translated, operations: pd.DataFrame, preset: str, kinds: tuple[int, ...]
) -> None:
    expected = {
        task: sum(sum_lengths(unite(of_gpu[(of_gpu["kind"] & sum(kinds)) > 0])) for of_gpu in gpus)
        for task, gpus in group_gpus_by_task(translated, operations).items()
    }
    assert integrate(show_preset(translated, preset).windows[-1]) == drop_zeros(expected)


@pytest.mark.all_sets
def test_useful_time_of_the_gpus_of_each_rank_in_the_histogram(
    translated: Translated, operations: pd.DataFrame
) -> None:
    (histogram,) = show_preset(translated, "analysis/gpu_useful_sumtime_2dh").histograms
    useful = {task: round(sum(cells) * 10**6) for task, cells in enumerate(histogram.cells) if any(cells)}
    expected = {
        task: sum(sum_lengths(unite(of_gpu[of_gpu["kind"] == COMPUTE])) for of_gpu in gpus)
        for task, gpus in group_gpus_by_task(translated, operations).items()
    }
    assert useful == drop_zeros(expected)


def test_each_gap_is_shown_with_its_length(translated: Translated, operations: pd.DataFrame) -> None:
    window = show_preset(translated, "analysis/gpu-gaps").windows[-1]
    bursts = select_nonzero(window)
    of_one_gpu = {task: gpus[0] for task, gpus in group_gpus_by_task(translated, operations).items() if len(gpus) == 1}
    for task, of_gpu in of_one_gpu.items():
        of_task = bursts[bursts["object"] == task]
        lengths = list_gap_lengths(of_gpu)
        assert of_task["length"].tolist() == lengths
        assert (of_task["value"] * 1000).round().astype(np.int64).tolist() == lengths  # the preset shows us
    several = sorted(set(group_gpus_by_task(translated, operations)) - set(of_one_gpu))
    for task in several:  # any GPU of the rank is idle
        spans = [gap for of_gpu in group_gpus_by_task(translated, operations)[task] for gap in find_gaps(of_gpu)]
        assert bursts[bursts["object"] == task]["length"].sum() == sum_lengths(
            unite(pd.DataFrame(spans, columns=["begin", "end"]))
        )


def count_by_half_decades(lengths: Iterable[int]) -> dict[float, int]:
    return Counter(math.floor(2 * math.log10(length)) / 2 for length in lengths if length >= 10)


def test_number_of_gaps_by_length(translated: Translated, operations: pd.DataFrame) -> None:
    of_gpus, of_ranks = (
        [{half: int(count) for half, count in row.items() if count} for _, row in histogram.frame.iterrows()]
        for histogram in show_preset(translated, "analysis/gap_histogram").histograms
    )
    for row, of_gpu in operations.groupby("gpu_row"):
        assert of_gpus[row] == count_by_half_decades(list_gap_lengths(of_gpu))
    assert len(of_ranks) == len(translated.trace.threads)
    for task, gpus in group_gpus_by_task(translated, operations).items():
        gaps = [(*gap, gap[1] - gap[0]) for of_gpu in gpus for gap in find_gaps(of_gpu)]
        longest = [(value, begin, end) for begin, end, value, _ in sweep(gaps)]
        runs = [value for i, (value, begin, _) in enumerate(longest) if i == 0 or longest[i - 1][::2] != (value, begin)]
        assert of_ranks[task] == count_by_half_decades(runs)


def test_kernels_in_flight_add_up(translated: Translated, operations: pd.DataFrame) -> None:
    kernels = operations[(operations["kind"] & MEMORY) == 0]
    in_flight = (kernels["end"] - kernels["launched"]).groupby(
        [translated.trace.task_of_row[row] - 1 for row in kernels["gpu_row"]]
    )
    window = show_preset(translated, "analysis/kernels-inflight").windows[-1]
    assert integrate(window) == drop_zeros(in_flight.sum().to_dict())


def test_kernels_running(translated: Translated, operations: pd.DataFrame) -> None:
    shown = show_preset(translated, "analysis/kernels_running")
    time = shown.histograms[0].frame
    kernels = operations[(operations["kind"] & MEMORY) == 0]
    for task, of_task in kernels.groupby([translated.trace.task_of_row[row] - 1 for row in kernels["gpu_row"]]):
        times = np.unique(of_task[["begin", "end"]])
        begun, ended = (np.searchsorted(np.sort(of_task[limit]), times[:-1], "right") for limit in ("begin", "end"))
        length = pd.Series(np.diff(times)).groupby(begun - ended).sum()
        expected = {int(running): int(ns) for running, ns in length.items()}
        found = {int(value): ns for value, ns in time.iloc[task].items() if ns}
        assert found == pytest.approx({n: ns / 1e6 for n, ns in expected.items() if n}, rel=1e-9)


def test_overlap_of_communication_and_compute(translated: Translated, operations: pd.DataFrame) -> None:
    shown = show_preset(translated, "analysis/overlap-communication-compute-2dh-timeline")
    (of_gpus,) = (window for window in shown.windows if window.level == "thread")
    time = sum_time_by_value(of_gpus)
    cells = shown.histograms[0].frame
    for row, of_gpu in operations.groupby("gpu_row"):
        spans = {kind: unite(of_gpu[(of_gpu["kind"] & kind) > 0]) for kind in (COMPUTE, COMMUNICATION, MEMORY)}
        for kind, expected in spans.items():
            assert sum(ns for (at, value), ns in time.items() if at == row and int(value) & kind) == sum_lengths(
                expected
            )
        both = sum(ns for (at, value), ns in time.items() if at == row and int(value) in (3, 7))
        assert both == sum_common(spans[COMPUTE], spans[COMMUNICATION])
        assert time.get((row, 8), 0) == sum(list_gap_lengths(of_gpu))
        # The percentages of the histogram come from the same times.
        whole = sum(ns for (at, _), ns in time.items() if at == row)
        percents = sorted(100 * ns / whole for (at, _), ns in time.items() if at == row)
        assert sorted(cell for cell in cells.iloc[row] if cell) == pytest.approx(percents, rel=1e-12)

    of_ranks = shown.histograms[1].frame
    assert len(of_ranks) == len(translated.trace.threads)
    for task, gpus in group_gpus_by_task(translated, operations).items():
        rows = [of_gpu["gpu_row"].iloc[0] for of_gpu in gpus]
        shown = of_gpus.bursts[of_gpus.bursts["object"].isin(rows) & (of_gpus.bursts["value"] != 0)]
        ranked = [(b.begin, b.end, 0 if b.value == 8 else int(b.value)) for b in shown.itertuples()]
        time_of_task: Counter[int] = Counter()
        for low, high, value, _ in sweep(ranked):
            time_of_task[value or 8] += high - low
        whole = sum(time_of_task.values())
        found = {value: of_ranks.iloc[task][value] for value in of_ranks.columns if of_ranks.iloc[task][value]}
        assert found == pytest.approx({value: 100 * ns / whole for value, ns in time_of_task.items()}, rel=1e-9)


# ---- kernels ---------------------------------------------------------------------------------------------------------


def test_time_of_each_stream_in_compute_kernels(translated: Translated, operations: pd.DataFrame) -> None:
    kernels = operations[(operations["table"] == "KERNEL") & (operations["kind"] == COMPUTE)]
    expected = (kernels["end"] - kernels["begin"]).groupby(kernels["row"]).sum().to_dict()
    assert integrate(show_preset(translated, "analysis/in_useful_kernel").windows[-1]) == drop_zeros(expected)


def test_concurrent_nccl_kernels(translated: Translated, operations: pd.DataFrame) -> None:
    nccl = operations[operations["kind"] == COMMUNICATION]
    window = show_preset(translated, "analysis/nccl_kernel_concurrency").windows[-1]
    expected = (nccl["end"] - nccl["begin"]).groupby(nccl["task"]).sum().to_dict()
    assert integrate(window) == drop_zeros(expected)
    for task, of_task in nccl.groupby("task"):
        at_begin = [((of_task["begin"] <= t) & (of_task["end"] > t)).sum() for t in of_task["begin"]]
        assert select_nonzero(window).loc[lambda f, task=task: f["object"] == task, "value"].max() == max(at_begin)


def test_compute_kernels_beside_nccl(translated: Translated, operations: pd.DataFrame) -> None:
    window = show_preset(translated, "analysis/concurrency_of_computation_during_nccl").windows[-1]
    time = integrate(window)
    for task, of_task in operations.groupby("task"):
        in_nccl = unite(of_task[(of_task["kind"] & COMMUNICATION) != 0])  # with copies between GPUs
        kernels = of_task[(of_task["table"] == "KERNEL") & (of_task["kind"] == COMPUTE)]
        # Rows in a compute kernel are counted, so two kernels on different rows of one stream count twice.
        beside = sum(sum_common(unite(of_row), in_nccl) for _, of_row in kernels.groupby("row"))
        assert time.get(task, 0) == sum_lengths(in_nccl) + beside


def test_number_of_queue_delays(translated: Translated, operations: pd.DataFrame) -> None:
    (histogram,) = show_preset(translated, "analysis/queue_delay").histograms
    kernels = operations[(operations["table"] == "KERNEL") & operations["delay"].notna()]
    expected = kernels[kernels["delay"] >= 10].groupby("row").size().to_dict()
    counted = histogram.frame.sum(axis=1)
    assert {row: int(count) for row, count in enumerate(counted) if count} == expected


def test_copies_by_size(translated: Translated, operations: pd.DataFrame) -> None:
    sizes, *_ = show_preset(translated, "analysis/memcpy_sizes").histograms
    copies = operations[operations["table"].isin(("MEMCPY", "MEMSET"))]
    expected = copies[copies["bytes"] >= 2].groupby("row").size().to_dict()
    assert {row: int(count) for row, count in enumerate(sizes.frame.sum(axis=1)) if count} == expected


def test_time_of_copies_adds_up_over_the_streams_of_each_rank(translated: Translated, operations: pd.DataFrame) -> None:
    copied_from = show_preset(translated, "analysis/memcpy_sizes").histograms[-1].frame
    copies = operations[operations["table"] == "MEMCPY"]
    time = (copies["end"] - copies["begin"]).groupby(copies["task"]).sum().to_dict()
    summed = copied_from.sum(axis=1) if len(copied_from.columns) else pd.Series(dtype=float)
    assert {task: round(ms * 10**6) for task, ms in enumerate(summed) if ms} == drop_zeros(time)


# ---- iterations ------------------------------------------------------------------------------------------------------


def test_average_duration_of_the_outermost_ranges(translated: Translated) -> None:
    *_, outermost = show_preset(translated, "analysis/iteration_time").histograms
    ranges = translated.nvtx
    ranges = ranges[(ranges["style"] == "push/pop") & (ranges["domain"] == "")]
    expected = []
    for _, of_row in ranges.groupby("row"):
        last, outer = 0, []
        for begin, end, name in sorted(zip(of_row["begin"], of_row["end"], of_row["name"], strict=True)):
            if begin >= last and end > begin:
                outer.append((end - begin, name))
                last = end
        of_name = pd.DataFrame(outer, columns=["length", "name"]).groupby("name")["length"].mean()
        expected += (of_name / 1e6).tolist()
    averages = [cell for row in outermost.cells for cell in row if cell]
    assert sorted(averages) == pytest.approx(sorted(expected), rel=1e-9)


# ---- by name, cell by cell -------------------------------------------------------------------------------------------


def label_cells(translated: Translated, histogram: Histogram, event_type: int) -> dict[tuple[int, str], float]:
    """Return the cells that are not 0, by row and by the label of the column's value."""
    labels = translated.trace.values.get(event_type, {})
    frame = histogram.frame
    return {(row, labels[int(value)]): cell for value in frame.columns for row, cell in enumerate(frame[value]) if cell}


def compute_shares(time: pd.Series) -> dict[tuple[int, str], float]:
    """Return the percentage of the sum of each row."""
    return (100 * time / time.groupby(level=0).transform("sum")).to_dict()


def test_share_of_each_kernel_in_the_time_of_its_stream(translated: Translated, operations: pd.DataFrame) -> None:
    (histogram,) = show_preset(translated, "analysis/kernel-timepercent").histograms
    kernels = operations[(operations["table"] == "KERNEL") & (operations["kind"] == COMPUTE)]
    time = (kernels["end"] - kernels["begin"]).groupby([kernels["row"], kernels["name"]]).sum()
    assert label_cells(translated, histogram, KERNEL) == pytest.approx(compute_shares(time[time > 0]), rel=1e-9)


@pytest.mark.parametrize(("which", "column", "event_type"), [(1, "dstKind", 63000211), (2, "srcKind", 63000210)])
def test_time_of_copies_by_kind_of_memory(
    translated: Translated, operations: pd.DataFrame, which: int, column: str, event_type: int
) -> None:
    histogram = show_preset(translated, "analysis/memcpy_sizes").histograms[which]
    kinds = []
    for report in translated.objects.reports:
        for table in ("MEMCPY", "MEMSET"):
            if report.has(f"CUPTI_ACTIVITY_KIND_{table}"):
                of_table = {"MEMCPY": column, "MEMSET": "memKind" if which == 1 else "NULL"}[table]
                kinds += [row for (row,) in report.connection.execute(
                    f"SELECT {of_table} FROM CUPTI_ACTIVITY_KIND_{table} ORDER BY rowid"
                )]  # fmt: skip
    copies = operations[operations["table"].isin(("MEMCPY", "MEMSET"))]
    assert len(kinds) == len(copies)
    # Values are those of CUPTI plus one; kinds that it does not document are the last.
    copies = copies.assign(memory=[None if kind is None else kind + 1 if kind < 7 else 8 for kind in kinds])
    expected = sum_by_highest(copies.dropna(subset=["memory"]), "memory")
    labels = {value: label for value, label in translated.trace.values.get(event_type, {}).items() if value}
    cells = {key: round(ms * 10**6) for key, ms in label_cells(translated, histogram, event_type).items()}
    assert cells == {(task, labels[value]): ns for (task, value), ns in expected.items()}


def test_number_of_nccl_calls_and_time_of_nccl_kernels_by_name(
    translated: Translated, operations: pd.DataFrame
) -> None:
    _, number, time = show_preset(translated, "analysis/nccl_calls_2dh").histograms
    calls = translated.nvtx[(translated.nvtx["domain"] == "NCCL") & (translated.nvtx["style"] == "push/pop")]
    calls = calls[calls["end"] > calls["begin"]]
    expected = calls.groupby(["row", "name"]).size().to_dict()
    assert label_cells(translated, number, NCCL_CALL) == expected
    nccl = operations[operations["kind"] == COMMUNICATION]
    names = translated.trace.values.get(NCCL_KERNEL, {})
    value_of_name = {name: value for value, name in names.items()}
    of_value = sum_by_highest(nccl.assign(value=nccl["name"].map(value_of_name)), "value")
    cells = label_cells(translated, time, NCCL_KERNEL)
    assert {key: round(ms * 10**6) for key, ms in cells.items()} == {
        (task, names[value]): ns for (task, value), ns in of_value.items()
    }
