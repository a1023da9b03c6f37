"""Host functions of streams and work of the decompression engine: tables of schema 3.28, against plain SQL."""

from __future__ import annotations

from pathlib import Path

import pytest

from nsys2prv_ng.translation.result import TranslationResult
from tests.sources.small_reports import (
    MAIN,
    PROCESS,
    UTC,
    WORKER,
    Rows,
    export,
    get_account,
    read_rows,
    translate_reports,
)
from tests.summary.made import summarize_reports
from tests.trace_reader import Trace, pair_intervals

FUNCTION, FUNCTION_CALL, MEMORY, BYTES, ACTIVITY, ON_GPU = 63000223, 63000224, 63000001, 63000002, 63000400, 9620
NODES, CALLS = "CUPTI_ACTIVITY_KIND_GRAPH_HOST_NODE_AND_HOST_LAUNCH", "CUDA_HOST_CALLBACK"
DECOMPRESSION = "CUPTI_ACTIVITY_KIND_MEM_DECOMPRESS"
OPERATION = ("start", "end", "globalPid", "deviceId", "contextId", "streamId", "correlationId")
STRINGS = ["kernel", "cudaLaunchKernel_v7000", "cudaLaunchHostFunc_v10000", "load", "store", "range"]


def place(start: int | None, end: int, correlation: int | None, stream: int | None = 7) -> tuple[int | None, ...]:
    return start, end, PROCESS, 0, 1, stream, correlation


def make_report(path: Path, **tables: Rows) -> Path:
    """Write a report with two kernels at 100 and 900 that call 1 and 2 launched in a range, and other tables."""
    calls = [(0, 8, MAIN, 1, 1), (10, 15, MAIN, 2, 3), (16, 18, MAIN, 1, 2), (20, 25, MAIN, 2, 4), (30, 35, MAIN, 2, 5)]
    kernel = (*OPERATION, "shortName", "demangledName")
    common: dict[str, Rows] = {
        "CUPTI_ACTIVITY_KIND_RUNTIME": (("start", "end", "globalTid", "nameId", "correlationId"), calls),
        "CUPTI_ACTIVITY_KIND_KERNEL": (kernel, [(*place(100, 200, 1), 0, 0), (*place(900, 950, 2), 0, 0)]),
        "NVTX_EVENTS": (("start", "end", "eventType", "globalTid", "textId", "domainId"), [(0, 40, 59, MAIN, 5, 0)]),
    }
    return export(path, STRINGS, {**common, **tables})


def translate(report: Path, output: Path, sources: str) -> tuple[Trace, TranslationResult]:
    """Translate a report. Times of the trace are those of the report: there is a call at 0."""
    trace, result = translate_reports([report], output, sources)
    assert result.start_utc_ns == UTC
    return trace, result


def list_intervals(trace: Trace, number: int) -> list[tuple[int, int, str, str]]:
    """Return begin, end, row and label of the intervals of a type."""
    found = pair_intervals(trace, number)
    rows, labels = trace.names["THREAD"], trace.values[number]
    return sorted((each.begin, each.end, rows[each.row], labels[each.value]) for each in found.itertuples())


def test_host_functions_are_on_their_stream_and_thread(tmp_path: Path) -> None:
    """Names come from the call with the id of the function. Functions do not move kernels to other rows."""
    functions = [
        *(place(210, 400, 3), place(190, 205, 4), place(380, 500, 5), place(510, 520, 99)),
        *(place(9, 3, 3), place(0, 0, 3), place(1, 2, 3, None), place(None, 2, 3)),
    ]
    called = [(215, 390, WORKER, 3, 3), (192, 204, WORKER, 4, 4), (4, 1, WORKER, 3, 3), (1, 2, None, 3, 3)]
    tables: dict[str, Rows] = {
        NODES: (OPERATION, functions),
        CALLS: (("start", "end", "globalTid", "nameId", "correlationId"), called),
    }
    report = make_report(tmp_path / "a.sqlite", **tables)
    trace, result = translate(
        report, tmp_path / "x.prv", "kernels,cuda_api,launch_lines,host_functions,nvtx,nvtx_on_gpu"
    )
    stream = "CUDA-D0.S7"
    assert list_intervals(trace, FUNCTION) == [
        (190, 205, stream, "store"),
        (210, 400, stream, "load"),
        (380, 500, stream, "(no name)"),
        (510, 520, stream, "(no name)"),
    ]
    assert len({each.row for each in pair_intervals(trace, FUNCTION).itertuples()}) == 2  # two run at once
    assert len({each.row for each in pair_intervals(trace, 63000006).itertuples()}) == 1
    [thread] = {row for _, _, row, _ in list_intervals(trace, FUNCTION_CALL)}
    assert thread == "process 77 78"
    assert [(b, e, name) for b, e, _, name in list_intervals(trace, FUNCTION_CALL)] == [
        (192, 204, "store"),
        (215, 390, "load"),
    ]
    assert get_account(result, "host_functions").dropped == {
        "ends before it starts": 2,
        "no time (start and end are 0)": 1,
        "no process, device, context or stream": 1,
        "no start or end": 1,
        "no thread": 1,
    }
    lines = trace.communications[["send_logical", "receive_logical", "tag"]].itertuples(index=False, name=None)
    assert sorted(lines) == [*((0, 100, 55001), (10, 210, 55001), (16, 900, 55001), (20, 190, 55001), (30, 380, 55001))]
    # The range on the GPU reaches from its first kernel to its last one, and a GPU does not run host functions.
    assert [(each.begin, each.end) for each in pair_intervals(trace, ON_GPU).itertuples()] == [(100, 950)]
    idle = [gpu.idle_ns for gpu in summarize_reports([report]).gpus]
    assert idle == [700]


def test_names_of_several_calls_of_one_launch(tmp_path: Path) -> None:
    """The call within the function counts; if there is none, or no id, the name is not known."""
    functions = [place(210, 300, 3), place(310, 400, 3), place(500, 600, 3), place(700, 800, None)]
    called = [(220, 290, WORKER, 3, 3), (320, 390, WORKER, 4, 3), (720, 780, WORKER, 4, None)]
    tables: dict[str, Rows] = {
        NODES: (OPERATION, functions),
        CALLS: (("start", "end", "globalTid", "nameId", "correlationId"), called),
    }
    report = make_report(tmp_path / "a.sqlite", **tables)
    trace, _ = translate(report, tmp_path / "x.prv", "cuda_api,host_functions")
    assert [name for *_, name in list_intervals(trace, FUNCTION)] == ["load", "store", "(no name)", "(no name)"]


@pytest.mark.parametrize("sources", ["memory_operations,cuda_api", "kernels,memory_operations,cuda_api,launch_lines"])
def test_decompression_is_work_of_the_gpu(sources: str, tmp_path: Path) -> None:
    work = [(*place(210, 500, 3), 1 << 20), (*place(450, 480, 4), 5), (*place(600, 700, 5), None), (*place(9, 3, 3), 1)]
    report = make_report(tmp_path / "a.sqlite", **{DECOMPRESSION: ((*OPERATION, "sourceBytes"), work)})
    trace, result = translate(report, tmp_path / "x.prv", sources)
    assert list_intervals(trace, MEMORY) == [
        (210, 500, "CUDA-D0.S7", "Decompression"),
        (450, 480, "CUDA-D0.S7", "Decompression"),
    ]
    sizes = trace.events[(trace.events["type"] == BYTES) & (trace.events["value"] > 0)]
    assert sorted(zip(sizes["time"], sizes["value"], strict=True)) == [(210, 1 << 20), (450, 5)]
    assert get_account(result, "memory_operations").dropped == {"no number of bytes": 1, "ends before it starts": 1}
    if "launch_lines" in sources:
        lines = trace.communications[["send_logical", "receive_logical", "size", "tag"]]
        assert sorted(lines.itertuples(index=False, name=None)) == [
            (0, 100, 0, 55001),
            (10, 210, 1 << 20, 55002),
            (16, 900, 0, 55001),
            (20, 450, 5, 55002),
            (30, 600, 0, 55002),
        ]


def test_decompression_makes_a_gpu_busy(tmp_path: Path) -> None:
    """Idle time is the union of all operations, by SQL, from the first operation to the last."""
    work = [(*place(210, 500, 3), 1), (*place(450, 610, 4), 5)]
    report = make_report(tmp_path / "a.sqlite", **{DECOMPRESSION: ((*OPERATION, "sourceBytes"), work)})
    tables = ("CUPTI_ACTIVITY_KIND_KERNEL", DECOMPRESSION)
    query = " UNION ALL ".join(f"SELECT start, end FROM {table}" for table in tables)
    busy = set().union(*(range(*each) for each in read_rows(report, query)))
    [gpu] = summarize_reports([report]).gpus
    assert (gpu.idle_ns, gpu.memory_ns) == (max(busy) + 1 - min(busy) - len(busy), 610 - 210)
    [copies] = summarize_reports([report]).memory_operations
    assert (copies.operation, copies.count, copies.bytes) == ("Decompression", 2, 6)
