"""Page faults of unified memory, and the causes of migrations: small exports, and a capture against plain SQL."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from nsys2prv_ng.sources.registry import select_sources
from nsys2prv_ng.translation.plan_trace import TranslationPlan
from nsys2prv_ng.translation.translate import translate
from tests.conftest import NO_REPORTS, REPORTS
from tests.sources.small_reports import PROCESS, export, get_account, translate_reports
from tests.trace_reader import Trace, read_trace

ACCESS, FAULTS, TOOK, GPU_ADDRESS, FUNCTION, CPU_ADDRESS = range(63000240, 63000246)
OPERATION, CAUSE = 63000001, 63000212
GPU_COLUMNS = ("start", "end", "globalPid", "deviceId", "address", "numberOfPageFaults", "faultAccessType")
CPU_COLUMNS = ("start", "globalPid", "address", "CpuInstruction", "module")


def lines(trace: Trace) -> list[tuple[int, str, dict[int, int]]]:
    """Return (time, row, value by type) of each line of events."""
    return [
        (
            int(line["time"].iat[0]),
            trace.names["THREAD"][line["row"].iat[0]],
            dict(zip(line["type"], line["value"], strict=False)),
        )
        for _, line in trace.events.groupby("line")
    ]


def test_faults(tmp_path: Path) -> None:
    tables = {
        "CUDA_UM_GPU_PAGE_FAULT_EVENTS": (
            GPU_COLUMNS,
            [
                (10, 30, PROCESS, 0, 4096, 5, 2),
                (20, 40, PROCESS, 1, 8192, None, 9),
                (20, None, PROCESS, 0, 0, 1, 1),
                (20, 30, PROCESS, None, 0, 1, 1),
            ],
        ),
        "CUDA_UM_CPU_PAGE_FAULT_EVENTS": (
            CPU_COLUMNS,
            [
                (50, PROCESS, 4096, 0, 1),
                (60, PROCESS, None, None, 1),
                (70, PROCESS, 1, None, None),
                (80, None, 1, 0, 1),
                (None, PROCESS, 1, 0, 1),
                (2**63 - 1, PROCESS, 1, 0, 1),
            ],
        ),
        # The process calls GPU 3 its device 0.
        "TARGET_INFO_CUDA_DEVICE": (("pid", "cudaId", "gpuId"), [(77, 0, 3), (77, 1, 1)]),
    }
    trace, summary = translate_reports(
        [export(tmp_path / "a.sqlite", ["add", "libm.so"], tables)], tmp_path / "x.prv", "unified_memory"
    )
    named = {ACCESS: trace.values[ACCESS], FUNCTION: trace.values[FUNCTION]}
    faults = [
        (time + 10, row, {t: named[t][value] if t in named else value for t, value in pairs.items()})
        for time, row, pairs in lines(trace)
    ]
    assert faults == [
        (10, "Metrics GPU3", {ACCESS: "Write", FAULTS: 5, TOOK: 20, GPU_ADDRESS: 4096}),
        (20, "Metrics GPU1", {ACCESS: "Unknown", TOOK: 20, GPU_ADDRESS: 8192}),
        (50, "process 77", {FUNCTION: "add", CPU_ADDRESS: 4096}),
        (60, "process 77", {FUNCTION: "libm.so"}),
        (70, "process 77", {FUNCTION: "(no name)", CPU_ADDRESS: 1}),
    ]
    account = get_account(summary, "unified_memory")
    assert (account.read, account.written) == (10, 5)
    assert account.dropped == {"no start or end": 1, "no process or device": 1, "no process": 1, "no time": 2}


@pytest.mark.all_sets
@pytest.mark.slow
@pytest.mark.skipif(not REPORTS.exists(), reason=NO_REPORTS)
def test_capture_against_sql(tmp_path: Path) -> None:
    report = REPORTS / "gpu/um-1.sqlite"
    with closing(sqlite3.connect(f"file:{report}?mode=ro&immutable=1", uri=True)) as database:
        (utc,) = database.execute("SELECT utcEpochNs FROM TARGET_INFO_SESSION_START_TIME").fetchone()
        on_gpu = database.execute(
            "SELECT start, faultAccessType + 1, numberOfPageFaults, end - start, address"
            " FROM CUDA_UM_GPU_PAGE_FAULT_EVENTS ORDER BY start, address"
        ).fetchall()
        on_cpu = database.execute(
            "SELECT start, s.value, address FROM CUDA_UM_CPU_PAGE_FAULT_EVENTS f JOIN StringIds s"
            " ON s.id = f.CpuInstruction ORDER BY start, address"
        ).fetchall()
        causes = database.execute(
            "SELECT migrationCause + 1, count(*) FROM CUPTI_ACTIVITY_KIND_MEMCPY WHERE copyKind IN (11, 12) GROUP BY 1"
        ).fetchall()
    assert len(on_gpu) == 147 and len(on_cpu) == 288 and len(causes) == 2
    sources = select_sources("unified_memory,memory_operations")
    summary = translate([report], tmp_path / "x.prv", TranslationPlan(sources=sources))
    start, trace = summary.start_utc_ns - utc, read_trace(tmp_path / "x.prv")
    events = [(time + start, pairs) for time, _, pairs in lines(trace)]
    types = (ACCESS, FAULTS, TOOK, GPU_ADDRESS)
    assert sorted((time, *(p[t] for t in types)) for time, p in events if ACCESS in p) == on_gpu
    names = trace.values[FUNCTION]
    assert sorted((time, names[p[FUNCTION]], p[CPU_ADDRESS]) for time, p in events if FUNCTION in p) == on_cpu
    causes_found = [p[CAUSE] for _, p in events if CAUSE in p]
    assert [(cause, causes_found.count(cause)) for cause in sorted(set(causes_found))] == causes
    assert {trace.values[OPERATION][p[OPERATION]] for _, p in events if CAUSE in p} == {
        "Migration host to device",
        "Migration device to host",
    }
