"""`inspect` finds what plain SQL finds in reports, whatever the kind of export, and whatever is wrong with them."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from datetime import datetime, timedelta, timezone
from functools import lru_cache
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from nsys2prv_ng.errors import UsageError
from nsys2prv_ng.inspection.inspect import inspect
from nsys2prv_ng.inspection.model import InspectedReport, Inspection
from nsys2prv_ng.inspection.text import escape_text, format_inspection
from nsys2prv_ng.runtime.progress import Progress
from nsys2prv_ng.sources.node import diagnostics
from nsys2prv_ng.sources.registry import DERIVED, SOURCES, select_sources
from nsys2prv_ng.translation.plan_trace import TranslationPlan
from nsys2prv_ng.translation.translate import translate
from tests.cli.program_runs import run
from tests.cli.test_program import SAMPLE, assert_one_line, broken, files
from tests.conftest import SAMPLES
from tests.report.fake_nsys import Fake, age, hide_nsys
from tests.report.table_folders import KINDS, folder_of
from tests.report_sets import sets
from tests.sources.small_reports import MAIN, PROCESS, UTC, export
from tests.spans import list_single_reports
from tests.tiers import cases
from tests.trace_reader import read_row, read_trace

# Written down once more, and not taken from the sources.
CUPTI = "CUPTI_ACTIVITY_KIND_"
TABLES = {
    "cuda_api": [CUPTI + "RUNTIME"],
    "kernels": [CUPTI + "KERNEL"],
    "memory_operations": [CUPTI + "MEMCPY", CUPTI + "MEMSET"],
    "cuda_graphs": [CUPTI + "GRAPH_TRACE", "CUDA_GRAPH_EVENTS", "CUDA_GRAPH_NODE_EVENTS"],
    "cuda_sync": [CUPTI + "SYNCHRONIZATION", CUPTI + "CUDA_EVENT"],
    "cuda_memory": ["CUDA_GPU_MEMORY_USAGE_EVENTS"],
    "unified_memory": ["CUDA_UM_GPU_PAGE_FAULT_EVENTS", "CUDA_UM_CPU_PAGE_FAULT_EVENTS"],
    "gpu_contexts": ["GPU_CONTEXT_SWITCH_EVENTS"],
    "cuda_libraries": ["CUBLAS_EVENTS", "CUDNN_EVENTS"],
    "video": ["NVVIDEO_ENCODER_API", "NVVIDEO_DECODER_API", "NVVIDEO_JPEG_API", "GPU_VIDEO_ENGINE_WORKLOAD"],
    "gpu_metrics": ["GPU_METRICS"],
    "mpi": [f"MPI_{kind}_EVENTS" for kind in ("P2P", "COLLECTIVES", "START_WAIT", "OTHER")],
    "ucx": ["UCP_EVENTS", "UCP_SUBMIT_EVENTS", "UCP_PROGRESS_EVENTS"],
    "nvtx": ["NVTX_EVENTS"],
    "openacc": [f"{CUPTI}OPENACC_{activity}" for activity in ("OTHER", "DATA", "LAUNCH")],
    "os_runtime": ["OSRT_API"],
    "system_calls": ["SYSCALL"],
    "scheduling": ["SCHED_EVENTS"],
    "cpu_samples": ["COMPOSITE_EVENTS"],
    "profiler_overhead": ["PROFILER_OVERHEAD", CUPTI + "OVERHEAD"],
    "network_metrics": ["NET_NIC_METRIC", "NET_IB_SWITCH_METRIC", "NET_IB_SWITCH_CONGESTION_EVENT"],
    "cpu_counters": [
        *(f"PERF_EVENT_{what}_{kind}_EVENT" for what in ("CPU", "SOC_OR_CPU") for kind in ("RAW", "METRIC")),
        "PMU_EVENTS",
        "SOC_METRICS",
    ],
}
NAMED = "SELECT count(*) FROM NVTX_EVENTS JOIN StringIds ON id = textId WHERE "
NCCL = NAMED + (
    "value IN ('ncclAllReduce', 'ncclAllGather', 'ncclReduceScatter', 'ncclReduce', 'ncclBroadcast', 'ncclBcast',"
    " 'ncclAlltoAll', 'ncclGather', 'ncclScatter', 'ncclSend', 'ncclRecv', 'ncclPutSignal', 'ncclSignal',"
    " 'ncclWaitSignal')"
)
OLD_MPI = NAMED + "substr(value, 1, 4) = 'MPI_'"
PLUGINS = (
    "SELECT count(*) FROM GENERIC_EVENTS WHERE typeId NOT IN (SELECT typeId FROM GENERIC_EVENT_TYPES"
    " JOIN GENERIC_EVENT_SOURCES USING (sourceId) WHERE GENERIC_EVENT_SOURCES.data LIKE '%GpuMetrics%')"
)
SEVERITIES = {1: "info", 2: "warning", 3: "error", 4: "verbose"}


class Sql:
    """A report, queried with plain sqlite3."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True)) as connection:
            names = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
            self.rows = {name: connection.execute(f'SELECT count(*) FROM "{name}"').fetchone()[0] for (name,) in names}

    def __call__(self, query: str) -> list[tuple]:
        with closing(sqlite3.connect(f"{self.path.resolve().as_uri()}?mode=ro&immutable=1", uri=True)) as connection:
            return connection.execute(query).fetchall()

    def sum(self, tables: Sequence[str]) -> int:
        return sum(self.rows.get(table, 0) for table in tables)

    def value(self, table: str, name: str) -> str | None:
        found = self(f"SELECT value FROM {table} WHERE name = '{name}'") if table in self.rows else []
        return found[0][0] if found else None


def without_folders(text: str) -> str:
    """Return a message on one line, with file names instead of paths."""
    words = re.split(r"([\s'])", " ".join(text.split()))
    return "".join(word.rpartition("/")[2] if word.startswith("/") else word for word in words)


def look_at(*reports: Path, jobs: int = 1) -> Inspection:
    return inspect(reports, Progress(), jobs)


def one(report: Path) -> InspectedReport:
    found = look_at(report)
    assert found.unreadable == []
    return found.reports[0]


@lru_cache(maxsize=2)
def seen(report: Path) -> tuple[Sql, InspectedReport]:
    """What SQL and `inspect` say of a real report, for the tests of it, which follow each other."""
    return Sql(report), one(report)


# ---- numbers ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("report", list_single_reports())
def test_numbers_are_those_of_sql(report):
    sql, found = seen(report)
    expected = {name: sql.sum(tables) for name, tables in TABLES.items()}
    has_nvtx = "NVTX_EVENTS" in sql.rows
    expected["nccl"] = sql(NCCL)[0][0] if has_nvtx else 0
    expected["mpi"] = expected["mpi"] or (sql(OLD_MPI)[0][0] if has_nvtx else 0)
    expected["openmp"] = sql.sum([name for name in sql.rows if name.startswith("OPENMP_EVENT_KIND_")])
    expected["plugin_metrics"] = sql(PLUGINS)[0][0] if "GENERIC_EVENTS" in sql.rows else 0
    assert {name: found.sources[name] for name in expected} == expected
    assert {name for name, rows in found.sources.items() if rows} <= {name for name, rows in expected.items() if rows}
    assert found.tables == {name: sql.rows[name] for name in found.tables}
    operations = expected["kernels"] + expected["memory_operations"] + sql.rows.get(CUPTI + "GRAPH_TRACE", 0)
    made = {
        "launch_lines": expected["cuda_api"] and operations,
        "nvtx_on_gpu": expected["nvtx"] and expected["cuda_api"] and operations,
        "device_activity": operations,
    }
    assert found.derived == [name for name, there in made.items() if there]
    assert_every_event_is_listed(sql, found)


def assert_every_event_is_listed(sql: Sql, found: InspectedReport) -> None:
    """Tables of moments and intervals are counted or listed as not translated, except those that hold no events."""
    no_source = {each.table: each.rows for each in found.not_translated if "no source reads this table" in each.why}
    described = {"DIAGNOSTIC_EVENT", "MPI_COMMUNICATORS"}
    if "GENERIC_EVENT_SOURCES" in sql.rows and sql(
        "SELECT 1 FROM GENERIC_EVENT_SOURCES WHERE data LIKE '%GpuMetrics%'"
    ):
        described.add("GENERIC_EVENTS")
    for table, rows in sql.rows.items():
        columns = {name for (name,) in sql(f"SELECT name FROM pragma_table_info('{table}')")}
        if rows and columns & {"start", "timestamp", "rawTimestamp"} and table not in described:
            assert rows == found.tables.get(table) or rows == no_source.get(table), table
    assert not no_source.keys() & found.tables.keys()


@pytest.mark.slow
@pytest.mark.parametrize("report", list_single_reports())
def test_what_a_report_says_of_itself(report):
    sql, found = seen(report)
    own = "META_DATA_EXPORT" if "META_DATA_EXPORT" in sql.rows else "EXPORT_META_DATA"
    assert found.schema_version == (sql.value(own, "EXPORT_SCHEMA_VERSION") or "unknown")
    assert found.nsys_version == (sql.value(own, "EXPORT_PRODUCT_VERSION") or "unknown")
    assert found.host == found.node == sql.value("TARGET_INFO_SYSTEM_ENV", "Hostname")
    ((utc,),) = sql("SELECT utcEpochNs FROM TARGET_INFO_SESSION_START_TIME")
    assert found.begin_utc_ns == utc
    assert found.duration_ns == sql("SELECT duration FROM ANALYSIS_DETAILS")[0][0]
    assert found.bytes == report.stat().st_size
    begin = datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(microseconds=utc // 1000)
    assert found.to_dict()["begin_utc"] == f"{begin:%Y-%m-%dT%H:%M:%S.%f}{utc % 1000:03d}Z"

    gpus = dict(sql("SELECT id, name FROM TARGET_INFO_GPU")) if "TARGET_INFO_GPU" in sql.rows else {}
    assert {gpu.number: gpu.name for gpu in found.gpus if gpu.name} == gpus
    processes = {pid >> 24 & 0xFFFFFF for (pid,) in sql("SELECT globalPid FROM PROCESSES")}
    assert found.other_processes == len(processes - {task.pid for task in found.tasks})

    if "DIAGNOSTIC_EVENT" in sql.rows:
        rows = sql("SELECT severity, text FROM DIAGNOSTIC_EVENT")
        assert found.diagnostics == Counter(SEVERITIES[severity] for severity, _ in rows)
        expected = Counter(
            (SEVERITIES[severity], without_folders(text)) for severity, text in rows if severity in (2, 3)
        )
        assert {(message.severity, message.text): message.count for message in found.messages} == expected
    else:
        assert (found.diagnostics, found.messages) == ({}, [])


@pytest.mark.parametrize("report", list_single_reports())
def test_gpus_are_used_that_have_operations(report):
    sql, found = seen(report)
    operations = [CUPTI + name for name in ("KERNEL", "MEMCPY", "MEMSET", "GRAPH_TRACE")]
    used = set()
    for table in operations:
        if table in sql.rows:
            used |= set(sql(f"SELECT DISTINCT globalPid >> 24 & 0xFFFFFF, deviceId FROM {table}"))
    known = {}
    if "TARGET_INFO_CUDA_DEVICE" in sql.rows:
        known = {
            (pid, device): gpu for pid, device, gpu in sql("SELECT pid, cudaId, gpuId FROM TARGET_INFO_CUDA_DEVICE")
        }
    elif "TARGET_INFO_GPU" in sql.rows:
        ordinals = dict(sql("SELECT cuDevice, id FROM TARGET_INFO_GPU"))
        known = {each: ordinals.get(each[1], each[1]) for each in used}
    assert {gpu.number for gpu in found.gpus if gpu.used} == {known.get(each, each[1]) for each in used}


# ---- tasks -----------------------------------------------------------------------------------------------------------


def tasks_of_trace(reports: Sequence[Path], folder: Path, sources: str | None = None) -> list[str]:
    """Return the names of all tasks except those that stand for their node."""
    output = folder / "out.prv"
    translate(reports, output, TranslationPlan(sources=select_sources(sources)))
    return names_of_tasks(read_trace(output).names)


def names_of_tasks(names: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the names of tasks that do not stand for their node."""
    return sorted(name for name in names["TASK"] if name not in names["NODE"])


@pytest.mark.slow
@pytest.mark.parametrize(
    "report",
    sets(
        list_single_reports(),
        push=(
            *("samples/single-graph", "gpu/oneproc-4gpu", "gpu/mpi-one-report", "gpu/um-1", "whatif/jax-1"),
            *("cpu/2022.4.2-nvtx_py", "cpu/2023.4.4-mpich_all"),
        ),
    ),
)
def test_tasks_are_those_of_a_trace(report, whole_traces):
    _, found = seen(report)
    _, _, row = whole_traces(report)
    assert sorted(task.name for task in found.tasks) == names_of_tasks(read_row(row.decode()))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "sources"),
    [
        ("ddp-2x2", "kernels,cuda_api,nvtx,nccl,gpu_metrics"),
        pytest.param("ddp-2x2", None, marks=pytest.mark.all_sets),
        ("mpi-4", None),
    ],
)
def test_tasks_nodes_and_ranks_of_a_job(name, sources, tmp_path):
    reports = sorted(SAMPLES.glob(f"{name}.rank*.sqlite"), reverse=True)
    found = look_at(*reports)
    tasks = sorted(task.name for report in found.reports for task in report.tasks)
    assert tasks == tasks_of_trace(reports, tmp_path, sources)
    assert found.tasks == 4 and found.warnings == []
    assert [report.ranks for report in found.reports] == [[0], [1], [2], [3]]
    hosts = {rank: Sql(report).value("TARGET_INFO_SYSTEM_ENV", "Hostname") for rank, report in enumerate(reports[::-1])}
    assert {rank: report.node for report in found.reports for rank in report.ranks} == hosts
    assert {node: len(of) for node, of in found.nodes.items()} == Counter(hosts.values())


@pytest.mark.slow
def test_missing_ranks_and_reports_of_several_jobs(tmp_path):
    assert "no report of rank 3 of 4" in " ".join(look_at(*sorted(SAMPLES.glob("mpi-4.rank[0-2].sqlite"))).warnings)
    for name, utc in (("a", UTC), ("b", UTC + 200 * 86400 * 10**9)):
        export(tmp_path / f"{name}.sqlite", [""], {}, utc=utc)
    warnings = " ".join(look_at(tmp_path / "a.sqlite", tmp_path / "b.sqlite").warnings)
    assert "span 200 days" in warnings


def test_rows_that_make_no_task(tmp_path):
    """Processes with only names of threads, or rows of the profiler itself, are not tasks."""
    other = PROCESS + (1 << 24)
    nvtx = ("start", "end", "eventType", "globalTid", "text")
    report = export(
        tmp_path / "a.sqlite",
        ["", "read"],
        {
            "NVTX_EVENTS": (nvtx, [(1, None, 39, other | 78, "name"), (5, 9, 59, MAIN, "range")]),
            "OSRT_API": (("start", "end", "globalTid", "nameId", "eventClass"), [(1, 1, other, 1, 31)]),
            "SCHED_EVENTS": (("start", "cpu", "isSchedIn", "globalTid"), [(1, 0, 1, other | 78)]),
        },
    )
    found = one(report)
    assert [task.pid for task in found.tasks] == [77]
    assert found.sources["nvtx"] == 2 and found.sources["os_runtime"] == 1 and found.sources["scheduling"] == 1


# ---- exports ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["ddp-2x2.rank0", "single-graph"])
def test_folders_say_the_same(name, kind, tmp_path):
    report = SAMPLES / f"{name}.sqlite"
    folder = folder_of(report, tmp_path, kind)
    expected, found = (one(path).to_dict() for path in (report, folder))
    assert found.pop("file") == str(folder) and expected.pop("file")
    assert found.pop("bytes") == sum(path.stat().st_size for path in folder.iterdir()) and expected.pop("bytes")
    assert found == expected


@pytest.mark.slow
@pytest.mark.parametrize("jobs", cases([2, 9], push=1))
def test_processes_say_the_same(jobs, tmp_path):
    broken(tmp_path)
    reports = [*sorted(SAMPLES.glob("*.sqlite")), *sorted(tmp_path.glob("*.sqlite"))]
    assert look_at(*reports, jobs=jobs) == look_at(*reports)


@pytest.fixture
def fake(monkeypatch, tmp_path) -> Fake:
    hide_nsys(monkeypatch, tmp_path)
    made = Fake(tmp_path / "nsys" / "bin", copies=True)
    monkeypatch.setenv("NSYS_HOME", str(tmp_path / "nsys"))
    return made


@pytest.mark.slow
def test_reports_are_exported_and_nothing_is_left(fake, tmp_path):
    folder = tmp_path / "reports"
    folder.mkdir()
    for rank in (0, 1):
        shutil.copy(SAMPLES / f"mpi-4.rank{rank}.sqlite", folder / f"r{rank}.nsys-rep")
        age(folder / f"r{rank}.nsys-rep", 100)
    reports = sorted(folder.iterdir())
    fake.behave(product="2025.3.2.0", version="NVIDIA Nsight Systems version 2025.3.2.0")
    found = look_at(*reports, jobs=2)
    assert [report.file for report in found.reports] == [str(path) for path in reports]
    assert [report.sources for report in found.reports] == [
        one(SAMPLES / f"mpi-4.rank{rank}.sqlite").sources for rank in (0, 1)
    ]
    assert len(fake.exports()) == 2 and sorted(folder.iterdir()) == reports

    shutil.copy(SAMPLES / "mpi-4.rank0.sqlite", folder / "r0.sqlite")  # an export that is there is used
    look_at(reports[0])
    assert len(fake.exports()) == 2 and files(folder) == ["r0.nsys-rep", "r0.sqlite", "r1.nsys-rep"]


@pytest.mark.slow
def test_an_export_that_cannot_be_made_or_read_is_named_by_its_report(fake, tmp_path):
    """The message does not name the temporary export, which is gone by then."""
    fake.offer_folders(CUPTI + "RUNTIME")  # alike for all reports, and with rows of damaged columns
    runtime = fake.folder / "parquetdir" / f"{CUPTI}RUNTIME.parquet"
    whole = pa.table({"globalTid": pa.array(range(10**4))})
    pq.write_table(whole, runtime, compression="none", use_dictionary=False, write_page_checksum=True)
    content = bytearray(runtime.read_bytes())
    content[5000] ^= 1
    runtime.write_bytes(content)
    fake.behave(copies=False, capture=[], of_reports={"no.nsys-rep": {"code": 1, "says": "Error: cannot do it"}})
    reports = [tmp_path / name for name in ("damaged.nsys-rep", "no.nsys-rep")]
    for report in reports:
        report.write_text("report")
        age(report, 100)
    found = look_at(*reports, SAMPLE)
    damaged, no = found.unreadable
    assert (damaged.file, no.file) == tuple(map(str, reports))
    assert f"{reports[0]}/{CUPTI}RUNTIME.parquet: cannot be read" in damaged.why and "cannot do it" in no.why
    assert [report.file for report in found.reports] == [str(SAMPLE)]
    assert files(tmp_path) == ["damaged.nsys-rep", "empty", "no.nsys-rep", "nsys"]


@pytest.mark.slow
@pytest.mark.parametrize("ends", cases([signal.SIGTERM, signal.SIGINT], push=1))
def test_nothing_is_left_where_it_is_ended(ends, fake, tmp_path):
    fake.behave(sleep=60)
    folder = tmp_path / "reports"
    folder.mkdir()
    (folder / "r.nsys-rep").write_text("report")
    command = [sys.executable, "-m", "nsys2prv_ng", "inspect", str(folder / "r.nsys-rep")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        while not fake.spans():
            time.sleep(0.05)
        assert len(files(folder)) == 2
        process.send_signal(ends)
        output, error = process.communicate(timeout=60)
    assert process.returncode == 128 + ends and output == "" and "error:" in error
    assert files(folder) == ["r.nsys-rep"]


def test_without_nsys_the_others_are_shown(monkeypatch, tmp_path):
    hide_nsys(monkeypatch, tmp_path)
    (tmp_path / "a.nsys-rep").write_text("a")
    (tmp_path / "b.nsys-rep").write_text("b")
    found = look_at(tmp_path / "a.nsys-rep", SAMPLE, tmp_path / "b.nsys-rep")
    assert [Path(each.file).name for each in found.unreadable] == ["a.nsys-rep", "b.nsys-rep"]
    for each in found.unreadable:
        assert "no nsys to export it with" in each.why and "set NSYS_HOME" in each.why
    assert [report.file for report in found.reports] == [str(SAMPLE)]
    assert files(tmp_path) == ["a.nsys-rep", "b.nsys-rep", "empty"]


def test_a_report_named_twice(tmp_path):
    with pytest.raises(UsageError, match="given twice"):
        look_at(SAMPLE, SAMPLE)


# ---- what is wrong ---------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_what_would_not_be_in_a_trace(tmp_path):
    """Metrics as JSON only, events of tracers, and unknown tables; tables of descriptions are not events."""
    data = "{}"
    report = export(
        tmp_path / "a.sqlite",
        [""],
        {
            "GENERIC_EVENTS": (
                ("rawTimestamp", "typeId", "data"),
                [(1, 5, data), (2, 5, data), (3, 6, data), *((4 + i, 7, data) for i in range(3))],
            ),
            "GENERIC_EVENT_TYPES": (("typeId", "sourceId"), [(5, 50), (6, 60), (7, 70)]),
            "GENERIC_EVENT_SOURCES": (
                ("sourceId", "data"),
                [(50, '{"Name":"GpuMetrics"}'), (60, '{"Name":"x","SourceGroup":"FTrace"}'), (70, '{"Name":"Other"}')],
            ),
            "FUTURE_EVENTS": (("start", "what"), [(1, 2)] * 7),
            "FUTURE_NAMES": (("id", "what", "format", "timeSourceId"), [(1, 2, 3, 4)] * 7),
            "OSRT_FILE_ACCESS_EVENTS": (("startedAt", "endedAt", "threadId"), [(1, 2, 3)] * 5),
            "FUTURE_MOMENTS": (("rowId", "frameTime"), [(1, 2)] * 4),
            "FUTURE_SAMPLES": (("sampled_at", "value"), [(1, 2)] * 3),
            "TARGET_INFO_FUTURE": (("startTime",), [(1,)]),
            "EMPTY_EVENTS": (("start",), []),
        },
    )
    found = {(each.table, each.rows): each.why for each in one(report).not_translated}
    unread = {("FUTURE_EVENTS", 7), ("OSRT_FILE_ACCESS_EVENTS", 5), ("FUTURE_MOMENTS", 4), ("FUTURE_SAMPLES", 3)}
    assert found.keys() == {*(("GENERIC_EVENTS", rows) for rows in (1, 2, 3)), *unread}
    assert "nsys 2024.2 or newer" in found["GENERIC_EVENTS", 2] and "ftrace" in found["GENERIC_EVENTS", 1]
    assert one(report).sources["plugin_metrics"] == 0
    summary = translate([report], tmp_path / "out.prv")
    for source, rows in (("gpu_metrics", 2), ("plugin_metrics", 3)):
        dropped = next(each for each in summary.sources if each.name == source).dropped
        told = {reason for reason, count in dropped.items() if count == rows}
        assert len(told) == 1 and told.pop() in found["GENERIC_EVENTS", rows]


def test_payloads_that_the_export_left_out(tmp_path):
    for name, blobs in (("without", "false"), ("with", "true")):
        report = export(
            tmp_path / f"{name}.sqlite",
            ["", "ncclAllReduce", "ncclGroupStart"],
            {
                "NVTX_EVENTS": (
                    ("start", "end", "eventType", "globalTid", "textId", "domainId"),
                    [(1, 2, 59, MAIN, 1, 3), (3, 4, 59, MAIN, 1, 3), (5, 6, 59, MAIN, 2, 3)],
                ),
                "NVTX_PAYLOAD_SCHEMAS": (("domainId", "schemaId"), [(3, 1)]),
                "META_DATA_EXPORT": (("name", "value"), [("EXPORT_PARAM_INCLUDE_BLOBS", blobs)]),
            },
        )
        found = one(report)
        assert found.sources["nccl"] == 2
        untranslated = [(entry.rows, "--include-blobs=true" in entry.why) for entry in found.not_translated]
        assert untranslated == ([(2, True)] if blobs == "false" else [])


@pytest.mark.slow
def test_a_missing_column_is_an_obstacle_for_its_sources(tmp_path):
    report = tmp_path / "a.sqlite"
    shutil.copy(SAMPLE, report)
    with sqlite3.connect(report) as database:
        database.execute("ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL DROP COLUMN streamId")
    done = run("inspect", report)
    line = assert_one_line(done, 1)
    assert "CUPTI_ACTIVITY_KIND_KERNEL has no column streamId" in line and "translate without the sources" in line
    assert (
        "cannot be translated without a new export or another choice of sources:" in done.stdout
        and "cuda_api" in done.stdout
    )
    assert "has no column streamId" in assert_one_line(run(report, tmp_path / "out.prv"), 1)

    ((names),) = [each.sources for each in one(report).obstacles]
    assert set(names) == {
        source.name
        for source in SOURCES + DERIVED
        if any(table.name == CUPTI + "KERNEL" and "streamId" in table.required for table in source.tables)
    }
    found = one(SAMPLE).sources
    others = ",".join(source.name for source in SOURCES if source.name not in names and found.get(source.name))
    assert run(report, tmp_path / "out.prv", "--sources", others, "--no-derived").returncode == 0


def test_warnings_of_versions_times_and_parts(tmp_path):
    report = export(
        tmp_path / "a.sqlite",
        [""],
        {
            "META_DATA_EXPORT": (
                ("name", "value"),
                [("EXPORT_SCHEMA_VERSION", "9.99.0"), ("EXPORT_PARAM_TIMES_TO_EXPORT", "1s/2s")],
            ),
            "TARGET_INFO_SESSION_START_TIME": (("utcEpochNs",), []),
        },
    )
    found = one(report)
    assert found.begin_utc_ns is None and found.to_dict()["begin_utc"] is None
    text = " ".join(found.warnings)
    assert "9.99.0 is newer" in text and "does not say when it was captured" in text and "times 1s/2s" in text
    assert "time of capture unknown" in format_inspection(look_at(report), 100)


def test_broken_reports_are_listed_and_the_others_shown(tmp_path):
    says = broken(tmp_path)
    sound = sorted(SAMPLES.glob("mpi-4.rank*.sqlite"))
    broken_ones = [tmp_path / name for name in says]
    reports = [sound[0], *broken_ones[:4], sound[1], *broken_ones[4:], *sound[2:]]
    done = run("inspect", "--json", *reports)
    line = assert_one_line(done, 1)
    found = json.loads(done.stdout)
    unreadable = {Path(each["file"]).name: each["why"] for each in found["unreadable"]}
    obstacles = {Path(each["file"]).name: each["obstacles"] for each in found["reports"]}
    for name, expected in says.items():
        why = unreadable[name] if name in unreadable else obstacles[name][0]["why"]
        assert expected in why and "\n" not in why
    assert len(unreadable) == len(says) - 1  # whose columns alone are missing can be read
    assert f"and {len(says) - 1} more" in line
    assert [Path(each["file"]) for each in found["reports"] if not each["obstacles"]] == sound
    text = run("inspect", *reports)
    assert text.returncode == 1 and "mpi-4.rank3" in text.stdout
    for name in says:
        assert name.removesuffix(".sqlite") in text.stdout


@pytest.mark.parametrize("name", ["empty.sqlite", "cut.sqlite", "missing.sqlite"])
def test_one_broken_report(name, tmp_path):
    says = broken(tmp_path)[name]
    done = run("inspect", tmp_path / name)
    assert says in assert_one_line(done, 1) and not done.stdout  # the error is all there is


def test_every_cut_of_a_report_ends_well(tmp_path):
    """Rows that can be counted are those that SQL counts."""
    whole = SAMPLE.read_bytes()
    for i in range(1, 12):
        report = tmp_path / f"cut{i}.sqlite"
        report.write_bytes(whole[: len(whole) * i // 12])
        for each in look_at(report).reports:
            assert each.tables == {table: Sql(report).rows[table] for table in each.tables}


@pytest.mark.slow
def test_damage_of_a_table_that_no_source_reads(tmp_path):
    folder = folder_of(SAMPLE, tmp_path, "parquet")
    (folder / "OTHER_EVENTS.parquet").write_bytes(b"PAR1 this is no table")
    found = one(folder)
    assert [(each.table, each.rows) for each in found.not_translated] == [("OTHER_EVENTS", None)]
    assert "OTHER_EVENTS: rows: cannot be read" in format_inspection(look_at(folder), 100)
    (folder / (CUPTI + "RUNTIME.parquet")).write_bytes(b"PAR1 this is no table")
    assert CUPTI + "RUNTIME.parquet" in look_at(folder).unreadable[0].why


# ---- what is shown ---------------------------------------------------------------------------------------------------


def test_help_and_usage():
    assert "--json" in run("inspect", "--help").stdout and "inspect" in run("--help").stdout
    assert "REPORT" in assert_one_line(run("inspect"), 2)
    assert "given twice" in assert_one_line(run("inspect", SAMPLE, SAMPLE), 2)


def test_json_is_stable():
    reports = sorted(SAMPLES.glob("mpi-4.rank*.sqlite"))
    done = run("inspect", "--json", "-q", *reports)
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert found == look_at(*reports).to_dict() and found["version"] == 1
    assert list(found) == ["version", "reports", "unreadable", "nodes", "sources", "totals", "estimate", "warnings"]
    assert set(found["reports"][0]) == {
        *("file", "bytes", "node", "host", "nsys_version", "schema_version", "begin_utc_ns", "begin_utc"),
        *("duration_ns", "ranks", "tasks", "other_processes", "gpus", "sources", "derived", "tables", "rows"),
        *("not_translated", "obstacles", "diagnostics", "messages", "warnings"),
    }
    assert found["totals"]["rows"] == sum(sum(report["tables"].values()) for report in found["reports"])
    assert found["totals"]["bytes"] == sum(path.stat().st_size for path in reports)
    for name, source in found["sources"].items():
        assert source["rows"] == sum(report["sources"][name] for report in found["reports"])
    assert all(type(report[key]) is int for report in found["reports"] for key in ("bytes", "rows", "duration_ns"))


def test_every_source_is_counted_or_made_of_others():
    for source in SOURCES + DERIVED:
        if source is diagnostics.SOURCE:  # messages are counted apart, by their severity
            continue
        assert bool(source.counted_tables) != bool(source.needed_tables) and bool(source.counted_tables) == bool(
            source.noun
        ), source.name
        assert {rows.table for rows in source.counted_tables} <= {table.name for table in source.tables}, source.name


def cells(line: str) -> list[str]:
    return re.split(r"  +", line.strip())


@pytest.mark.slow
def test_tables_show_the_numbers():
    reports = sorted(SAMPLES.glob("ddp-2x2.rank*.sqlite"))
    found = look_at(*reports)
    lines = format_inspection(found, 100).splitlines()
    for report in found.reports:
        (row,) = [cells(line) for line in lines if cells(line)[0] == Path(report.file).stem]
        begin = f"{datetime.fromtimestamp(report.begin_utc_ns // 10**9, timezone.utc):%H:%M:%S}"
        assert row[1:4] == [str(report.ranks[0]), "1", str(report.ranks[0])]
        assert row[4].startswith(begin) and row[7] == f"{Sql(Path(report.file)).sum(list(report.tables)):,}"
    api = [Sql(report).rows[CUPTI + "RUNTIME"] for report in reports]
    (row,) = [cells(line) for line in lines if line.startswith("cuda_api ")]
    assert row[1:] == [f"{sum(api):,}", "4", f"{min(api):,}", f"{max(api):,}", "calls"]
    assert [line for line in lines if line.startswith("node ")] == [
        f"node gpunode0{i}, nsys 2025.3.2.0 (schema 3.20.3), 2026-11-20" for i in (1, 2)
    ]
    lost = [line.strip() for line in lines if "might have been collected" in line]
    assert "Not all CUDA events might have been collected. (in 4 of 4 reports)" in lost
    (other,) = [i for i, line in enumerate(lines) if "Scheduling information" in line]
    assert lines[other - 1] == "other messages:"


def many(count: int) -> Inspection:
    """Make `count` reports, four on each node."""
    (report,) = look_at(SAMPLE).reports
    reports = [
        dataclasses.replace(
            report, file=f"/scratch/a_job_with_a_long_name.rank{i}.sqlite", node=f"node{i // 4}", ranks=[i]
        )
        for i in range(count)
    ]
    return Inspection(reports, [], count, [])


@pytest.mark.slow
@pytest.mark.parametrize("width", [40, 80, 100, 120])
def test_many_reports_are_a_row_each_within_the_width(width):
    lines = format_inspection(many(64), width).splitlines()
    assert max(map(len, lines)) <= max(width, 80)
    names = [cells(line)[0] for line in lines if line.startswith("  a")]
    assert len(names) == len(set(names)) == 64  # also where they are cut
    assert len(lines) < 64 + 2 * 16 + 30


@pytest.mark.slow
def test_real_reports_together_fit(shared_reports):
    reports = [
        path for folder in ("gpu", "cpu", "public") for path in sorted((shared_reports / folder).glob("*.sqlite"))
    ]
    found = look_at(*reports, jobs=2)
    assert len(found.reports) == len(reports) and found.faults == []
    for width in (80, 100):
        lines = format_inspection(found, width).splitlines()
        assert max(map(len, lines)) <= width
        names = [cells(line)[0] for line in lines if re.search(r"[0-9]{2}:[0-9]{2}:[0-9]{2}", line)]
        assert len(names) == len(set(names)) == len(reports)


def test_other_processes_are_counted(shared_reports, unpacked):
    report = one(unpacked(shared_reports / "public/pipit_cloverleaf.sqlite"))
    assert f"1 of {report.other_processes + 1}" in format_inspection(Inspection([report], []), 100)


@pytest.mark.slow
@pytest.mark.parametrize(
    "environment", cases([{"PYTHONIOENCODING": "ascii"}, {"LC_ALL": "C.UTF-8"}], push=1), ids=["ascii", "UTF-8"]
)
def test_nothing_hides_in_names(tmp_path, environment):
    name = "a\nb\x1b[31m\u202e\udcff.sqlite"
    evil = "host\x1b]0;title\x07\r\nnode fake, nsys 1"
    report = export(
        tmp_path / name,
        [""],
        {
            CUPTI + "RUNTIME": (("start", "end", "globalTid", "nameId"), [(1, 2, MAIN, 0)]),
            "TARGET_INFO_GPU": (("id", "name", "uuid"), [(0, "GPU\x1b[2J\n", "GPU-\x1b[2J")]),
            "PROCESSES": (("globalPid", "name"), [(PROCESS, "python\x1b[2J\n")]),
            "DIAGNOSTIC_EVENT": (("severity", "text"), [(3, "lost\x1b[2J all\nnode fake"), (None, None), (7, b"x")]),
            "FUTURE\x1b[2J": (("start",), [(1,)]),
            "META_DATA_EXPORT": (("name", "value"), [("EXPORT_SCHEMA_VERSION", "3.1\x1b[2J")]),
        },
        host=evil,
    )
    done = run("inspect", report, SAMPLE, env={**os.environ, **environment})
    assert done.returncode == 0, done.stderr
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", done.stdout)
    assert [line for line in done.stdout.splitlines() if line.startswith("node fake")] == []
    assert "host?]0;title???node fake" in done.stdout and r"a\nb\x1b[31m\u202e" in done.stdout
    assert "1 error" in done.stdout and "2 unknown" in done.stdout
    [inspected] = json.loads(run("inspect", "--json", report).stdout)["reports"]
    assert inspected["host"] == "host?]0;title???node fake, nsys 1"
    line = assert_one_line(run("inspect", tmp_path / "no\nfile\x1b.sqlite"), 1)
    assert r"no\nfile\x1b.sqlite: no such file" in line


def test_shown():
    assert escape_text("größe 日本 x") == "größe 日本 x"
    assert escape_text("a\tb\x00\udc80\u2028") == r"a\tb\x00\udc80\u2028"


def test_the_captured_environment_stays_in_the_report(tmp_path):
    secrets = ("DB_PASSWORD", "hunter2", "SLURM_JWT", "jwt-token", "API_KEY")
    report = export(
        tmp_path / "a.sqlite",
        [""],
        {
            CUPTI + "RUNTIME": (("start", "end", "globalTid", "nameId"), [(1, 2, MAIN, 0)]),
            "TARGET_INFO_SYSTEM_ENV": (
                ("name", "value"),
                [("Hostname", "host"), ("DeviceEnvironment", "DB_PASSWORD=hunter2;SLURM_JWT=jwt-token;RANK=3")],
            ),
            "META_DATA_CAPTURE": (
                ("name", "value"),
                [("PROCESS_0:ENVIRONMENT_VARIABLE", 'API_KEY="hunter2"'), ("PROCESS_0:COMMAND", "hunter2")],
            ),
        },
    )
    for done in (run("inspect", report), run("inspect", "--json", report)):
        assert done.returncode == 0
        assert not any(secret in done.stdout + done.stderr for secret in secrets)
    assert one(report).ranks == [3]


def test_reports_are_not_touched(tmp_path):
    shutil.copy(SAMPLE, tmp_path / "a.sqlite")
    before = (tmp_path / "a.sqlite").read_bytes(), (tmp_path / "a.sqlite").stat().st_mtime_ns
    assert run("inspect", "a.sqlite", cwd=tmp_path).returncode == 0
    assert files(tmp_path) == ["a.sqlite"]
    assert ((tmp_path / "a.sqlite").read_bytes(), (tmp_path / "a.sqlite").stat().st_mtime_ns) == before


@pytest.mark.slow
def test_a_report_called_inspect(tmp_path):
    shutil.copy(SAMPLE, tmp_path / "inspect")
    assert "cuda_api" in run("inspect", "inspect", cwd=tmp_path).stdout
    done = run("./inspect", "out.prv", "--quiet", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
