"""What GPUs do as a whole, against plain loops over the operations of the reports, and NVIDIA's definitions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from nsys2prv_ng.paraver.checker.trace import check_trace
from nsys2prv_ng.reading.open_reports import Selection
from tests.conftest import Unpacked
from tests.sources.small_reports import read_rows
from tests.spans import find_gaps, list_report_sets, sum_common, sum_lengths, unite
from tests.translated import KERNEL, NCCL_KERNEL, Translated, Translations, changed, translated_set

ACTIVITY, RUNNING, IN_FLIGHT, IDLE_STRETCH, QUEUE_DELAY = range(63000400, 63000405)
COMPUTE, COMMUNICATION, MEMORY, IDLE, WHOLE_GRAPH = 1, 2, 4, 8, 16
SOURCES = "kernels,memory_operations,cuda_graphs,cuda_api"

SETS = (
    *("samples/ddp-2x2", "samples/mpi-4", "samples/single-graph", "gpu/single-node", "gpu/single-graph"),
    *("gpu/oneproc-4gpu", "gpu/mpi-one-report", "bench/torchrun-one-report", "public/mfu_2gpu_before"),
    *("public/h100_2gpu_1s", "public/pipit_cloverleaf"),
)


@pytest.fixture(scope="module", params=list_report_sets(SETS))
def translated(request: pytest.FixtureRequest, unpacked: Unpacked, translations: Translations) -> Translated:
    return translations([unpacked(path) for path in request.param])


# ---- what the trace says, and what the reports say -------------------------------------------------------------------


def levels(translated: Translated, event_type: int) -> pd.DataFrame:
    """Return the values of a type: row, begin, end (UTC), value. The last of a row, which must be 0, is skipped."""
    values = translated.trace.events
    values = values[values["type"] == event_type]
    by_row = values.groupby("row")
    assert (by_row["value"].last() == 0).all()
    ends = by_row["time"].shift(-1)
    kept = ends.notna()
    begin, end = values["time"][kept] + translated.start, ends[kept].astype(np.int64) + translated.start
    return pd.DataFrame({"row": values["row"][kept], "begin": begin, "end": end, "value": values["value"][kept]})


def time_in(activity: pd.DataFrame, bit: int) -> dict[int, int]:
    """ns by row in which the activity has a bit."""
    inside = activity[(activity["value"] & bit) != 0]
    return (inside["end"] - inside["begin"]).groupby(inside["row"]).sum().to_dict()


def by_gpu(translated: Translated) -> Iterator[tuple[int, pd.DataFrame]]:
    operations = translated.gpu_operations
    assert len(operations)
    yield from operations.groupby("gpu_row")


# ---- the tests -------------------------------------------------------------------------------------------------------


def test_the_trace_is_sound_and_everything_read_is_accounted_for(translated: Translated) -> None:
    assert check_trace(translated.trace.path).problems == []
    account = translated.account("device_activity")
    assert account.read == account.written + sum(account.dropped.values())
    lines = translated.trace.events[translated.trace.events["type"].isin((ACTIVITY, RUNNING, IN_FLIGHT, IDLE_STRETCH))]
    assert account.written == lines["line"].nunique() > 0


@pytest.mark.slow
def test_time_in_compute_communication_and_memory_is_the_union_of_their_operations(translated: Translated) -> None:
    activity = levels(translated, ACTIVITY)
    for kind in (COMPUTE, COMMUNICATION, MEMORY, WHOLE_GRAPH):
        own = {row: gpu_rows[gpu_rows["kind"] & kind > 0] for row, gpu_rows in by_gpu(translated)}
        expected = {row: sum_lengths(unite(gpu_rows)) for row, gpu_rows in own.items()}
        assert time_in(activity, kind) == {row: time for row, time in expected.items() if time}


@pytest.mark.slow
def test_overlap_of_compute_and_communication_is_nvidias(translated: Translated) -> None:
    """nccl_gpu_overlap_trace: the intersection of the unions of NCCL's kernels and of all others."""
    activity = levels(translated, ACTIVITY)
    both = activity[(activity["value"] & (COMPUTE | COMMUNICATION)) == COMPUTE | COMMUNICATION]
    overlaps = (both["end"] - both["begin"]).groupby(both["row"]).sum().to_dict()
    expected = {}
    for row, gpu_rows in by_gpu(translated):
        parts = [gpu_rows[gpu_rows["kind"] & kind > 0] for kind in (COMPUTE, COMMUNICATION)]
        expected[row] = sum_common(*(unite(part) for part in parts))
    assert overlaps == {row: time for row, time in expected.items() if time}


def test_idle_stretches_are_the_gaps_of_nvidia(translated: Translated) -> None:
    """gpu_gaps: from the i-th smallest end to the (i + 1)-th smallest begin. The value 8 lasts as long."""
    events = translated.trace.events
    stretches = events[events["type"] == IDLE_STRETCH]
    activity = levels(translated, ACTIVITY)
    for row, gpu_rows in by_gpu(translated):
        expected = find_gaps(gpu_rows)
        idle = stretches[stretches["row"] == row]
        assert (idle["time"] + translated.start).tolist() == [end for _, end in expected]
        assert idle["value"].tolist() == [end - begin for begin, end in expected]
        assert time_in(activity[activity["row"] == row], IDLE).get(row, 0) == sum_lengths(expected)


@pytest.mark.slow
def test_kernels_running_and_in_flight_are_counted(translated: Translated) -> None:
    for event_type, first in ((RUNNING, "begin"), (IN_FLIGHT, "launched")):
        values = levels(translated, event_type)
        for row, gpu_rows in by_gpu(translated):
            kernels = gpu_rows[gpu_rows["kind"] & MEMORY == 0]
            steps = pd.concat([pd.Series(1, kernels[first]), pd.Series(-1, kernels["end"])])
            count = steps.groupby(level=0).sum().sort_index().cumsum()
            changed_at = count[count.diff().fillna(count) != 0]
            on_gpu = values[values["row"] == row]
            assert on_gpu["begin"].tolist() == changed_at.index[:-1].tolist()
            assert on_gpu["value"].tolist() == changed_at.tolist()[:-1]


def test_queue_delay_is_from_the_end_of_the_call_to_the_start(translated: Translated) -> None:
    """cuda_kern_exec_trace: kernel.start - api.end of the call with its correlation id, where that is not negative."""
    trace = translated.trace
    kernels = translated.intervals(KERNEL, NCCL_KERNEL)
    kernels["delay"] = kernels["line"].map(trace.get_attribute(QUEUE_DELAY))
    expected = translated.gpu_operations
    expected = expected[expected["table"] == "KERNEL"]
    wanted = sorted(zip(expected["row"], expected["begin"], expected["delay"].fillna(-1).astype(np.int64), strict=True))
    assert (
        sorted(zip(kernels["row"], kernels["begin"], kernels["delay"].fillna(-1).astype(np.int64), strict=True))
        == wanted
    )


# ---- what is chosen --------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_without_derived_data_nothing_of_it_is_there(samples: Path, tmp_path: Path) -> None:
    trace = translated_set([samples / "single-graph.sqlite"], tmp_path, SOURCES, derived=False).trace
    assert not trace.events["type"].between(ACTIVITY, QUEUE_DELAY).any()
    assert not {ACTIVITY, QUEUE_DELAY} & set(trace.types)
    assert not any(name.startswith("Metrics") for name in trace.names["THREAD"])


@pytest.mark.slow
def test_two_processes_on_one_gpu_are_one_row(samples: Path, tmp_path: Path) -> None:
    """Reports of two ranks that share the GPU: an interval in which either runs is busy."""
    sample = samples / "mpi-4.rank0.sqlite"
    tables = [row[0] for row in read_rows(sample, "SELECT name FROM sqlite_master WHERE type = 'table'")]
    moved = []
    for table in tables:
        for column in ("globalPid", "globalTid"):
            if column in [row[1] for row in read_rows(sample, f"PRAGMA table_info({table})")]:
                moved.append(f"UPDATE {table} SET {column} = {column} + (1000 << 24)")
    moved += [
        "UPDATE TARGET_INFO_CUDA_DEVICE SET pid = pid + 1000",
        "UPDATE MPI_RANKS SET rank = 1",
        "UPDATE TARGET_INFO_SESSION_START_TIME SET utcEpochNs = utcEpochNs + 20000",
    ]
    other = changed(sample, tmp_path / "other.sqlite", moved)
    translated = translated_set([sample, other], tmp_path / "trace", SOURCES)
    rows = [name for name in translated.trace.names["THREAD"] if name.startswith("Metrics")]
    assert rows == ["Metrics GPU0"]
    ((row, gpu_rows),) = by_gpu(translated)
    busy = time_in(levels(translated, ACTIVITY), COMPUTE)[row]
    assert busy == sum_lengths(unite(gpu_rows)) < (gpu_rows["end"] - gpu_rows["begin"]).sum()
    assert levels(translated, RUNNING)["value"].max() == 2


@pytest.mark.slow
def test_operations_of_sources_that_are_not_chosen_do_not_count(samples: Path, tmp_path: Path) -> None:
    """Lines need the tables of copies, but the copies are not in the trace."""
    translated = translated_set([samples / "single-graph.sqlite"], tmp_path, "kernels,launch_lines")
    activity = levels(translated, ACTIVITY)
    assert time_in(activity, COMPUTE) and not time_in(activity, MEMORY)


@pytest.mark.parametrize("begin_and_end", ["0, 0", "start, start - 10", "-9223372036854775000, 5"])
def test_a_damaged_call_launches_nothing(samples: Path, tmp_path: Path, begin_and_end: str) -> None:
    begin, end = begin_and_end.split(", ")
    runtime = "CUPTI_ACTIVITY_KIND_RUNTIME"
    report = changed(samples / "mpi-4.rank0.sqlite", tmp_path / "x.sqlite", [
        f'UPDATE {runtime} SET start = {begin}, "end" = {end} WHERE correlationId IN'
        " (SELECT correlationId FROM CUPTI_ACTIVITY_KIND_KERNEL)"
    ])  # fmt: skip
    translated = translated_set([report], tmp_path / "trace", "kernels,cuda_api,launch_lines")
    assert QUEUE_DELAY not in translated.trace.types
    in_flight, running = (levels(translated, event_type).reset_index(drop=True) for event_type in (IN_FLIGHT, RUNNING))
    assert in_flight.equals(running)
    assert translated.account("launch_lines").written == 0


@pytest.mark.slow
@pytest.mark.parametrize("normalised", [True, False])
def test_captures_of_exports_with_other_times_are_where_they_were(
    samples: Path, tmp_path: Path, normalised: bool
) -> None:
    """Two captures of one process, 100 s apart, exported with --ts-normalize or --ts-shift."""
    sample = samples / "mpi-4.rank0.sqlite"
    utc = read_rows(sample, "SELECT utcEpochNs FROM TARGET_INFO_SESSION_START_TIME")[0][0]
    reports = []
    for i, later in enumerate((0, 10**11)):
        added = utc + later if normalised else 7 * 10**12
        name, value = ("NORMALIZE", "true") if normalised else ("SHIFT", added)
        statements = [
            f"UPDATE TARGET_INFO_SESSION_START_TIME SET utcEpochNs = utcEpochNs + {later}",
            f"DELETE FROM META_DATA_EXPORT WHERE name = 'EXPORT_PARAM_TIME_{name}'",
            f"INSERT INTO META_DATA_EXPORT (name, value) VALUES ('EXPORT_PARAM_TIME_{name}', '{value}')",
        ]
        statements += [
            f'UPDATE CUPTI_ACTIVITY_KIND_{table} SET start = start + {added}, "end" = "end" + {added}'
            for table in ("KERNEL", "RUNTIME")
        ]
        reports.append(changed(sample, tmp_path / f"{i}.sqlite", statements))
    translated = translated_set(reports, tmp_path / "trace", "kernels,cuda_api")
    activity = levels(translated, ACTIVITY)
    assert (activity["value"] == 0).sum() == 1
    idle = activity[activity["value"] == IDLE]
    assert (idle["end"] - idle["begin"]).max() < 10**9


@pytest.mark.slow
@pytest.mark.parametrize(("later", "stretches"), [(10**11, 2), (0, 1)])
def test_a_gpu_is_not_idle_between_two_captures(samples: Path, tmp_path: Path, later: int, stretches: int) -> None:
    """Of one process (capture-range-end=repeat), or of two that share the GPU at the same time."""
    sample = samples / "mpi-4.rank0.sqlite"
    moved = [f"UPDATE TARGET_INFO_SESSION_START_TIME SET utcEpochNs = utcEpochNs + {later}"]
    # The operations of the second report are all after those of the first, also where the captures overlap.
    tables = [f"CUPTI_ACTIVITY_KIND_{table}" for table in ("KERNEL", "RUNTIME")]
    moved += [f'UPDATE {table} SET start = start + 10000000000, "end" = "end" + 10000000000' for table in tables]
    moved += ["UPDATE ANALYSIS_DETAILS SET duration = 20000000000, stopTime = startTime + 20000000000"]
    other = changed(sample, tmp_path / "other.sqlite", moved)
    translated = translated_set([sample, other], tmp_path / "trace", "kernels,cuda_api", derived=True)
    activity = levels(translated, ACTIVITY)
    ((row, gpu_rows),) = ((row, a) for row, a in activity.groupby("row"))
    outside = gpu_rows[gpu_rows["value"] == 0]
    assert len(outside) == stretches - 1
    longest = (gpu_rows[gpu_rows["value"] == IDLE]["end"] - gpu_rows[gpu_rows["value"] == IDLE]["begin"]).max()
    assert (longest > 9 * 10**9) == (stretches == 1)
    events = translated.trace.events
    stretch = events[(events["type"] == IDLE_STRETCH) & (events["row"] == row)]
    assert stretch["value"].max() == longest


@pytest.mark.slow
def test_of_a_window_the_activity_is_that_of_the_whole(samples: Path, tmp_path: Path) -> None:
    report = samples / "ddp-2x2.rank0.sqlite"
    whole = translated_set([report], tmp_path / "whole", SOURCES)
    length = whole.trace.duration
    cut = translated_set(
        [report], tmp_path / "cut", SOURCES, Selection(window=(length // 3, length // 3 + length // 10))
    )
    low, high = cut.start + 1, cut.start + cut.trace.duration
    for event_type in (ACTIVITY, RUNNING, IN_FLIGHT):
        inside_window, before = levels(cut, event_type), levels(whole, event_type)
        inside = before.assign(begin=before["begin"].clip(lower=low), end=before["end"].clip(upper=high))
        inside = inside[(inside["begin"] < inside["end"]) & (inside["value"] != 0)]
        assert len(inside) > 10
        inside_window = inside_window[inside_window["value"] != 0]
        assert inside_window.reset_index(drop=True).equals(inside.reset_index(drop=True))
    idle = levels(cut, ACTIVITY)
    idle = idle[idle["value"] == IDLE]
    stretches = cut.trace.events[cut.trace.events["type"] == IDLE_STRETCH]
    assert stretches["value"].sum() == (idle["end"] - idle["begin"]).sum() > 0
    account = cut.account("device_activity")
    assert account.read == account.written + sum(account.dropped.values())
    assert account.dropped["outside the time of the trace"] > 0


@pytest.mark.slow
def test_the_law_holds_for_some_ranks_in_a_window(samples: Path, tmp_path: Path) -> None:
    """Lines that a window adds on rows that nobody wants are none that were read."""
    reports = sorted(samples.glob("ddp-2x2.rank*.sqlite"))
    selection = Selection(ranks=frozenset({0}), window=(10**6, 50 * 10**6))
    summary = translated_set(reports, tmp_path / "a", selection=selection).summary
    for account in summary.sources:
        assert account.read == account.written + sum(account.dropped.values()), account
        assert min(account.written, *account.dropped.values(), 0) == 0, account
