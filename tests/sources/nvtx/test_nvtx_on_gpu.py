"""NVTX ranges on the GPU against a brute force over SQL rows, and against NVIDIA's own projection."""

from __future__ import annotations

import csv
import re
import sqlite3
from collections import defaultdict

import pytest

from nsys2prv_ng.paraver.checker.trace import check_trace
from nsys2prv_ng.reading.open_reports import Selection
from nsys2prv_ng.sources.registry import select_sources
from nsys2prv_ng.translation.plan_trace import TranslationPlan
from nsys2prv_ng.translation.translate import translate
from tests.trace_reader import read_trace

NAMES_OF_SOURCES = "memory_operations,nvtx,nvtx_on_gpu"
NAME = "coalesce(n.text, (select value from StringIds where id = n.textId), '')"


def projections(report):
    """(domain, text, tid, begin on host, pid, context, stream) -> [first begin, last end, number of operations]."""
    connection = sqlite3.connect(f"{report.as_uri()}?mode=ro&immutable=1", uri=True)
    operations = defaultdict(list)
    tables = {name for (name,) in connection.execute("select name from sqlite_master")}
    for table in {"KERNEL", "MEMCPY", "MEMSET", "GRAPH_TRACE"} & {
        name.removeprefix("CUPTI_ACTIVITY_KIND_") for name in tables
    }:
        rows = connection.execute(
            "select r.globalTid, r.start, k.globalPid, k.contextId, k.streamId, k.start, k.end"
            f" from CUPTI_ACTIVITY_KIND_{table} k join CUPTI_ACTIVITY_KIND_RUNTIME r"
            " on r.correlationId = k.correlationId and r.globalTid >> 24 = k.globalPid >> 24"
        )
        for tid, called, *operation in rows:
            operations[tid].append((called, *operation))
    domains = {
        (tid >> 24, domain): name
        for tid, domain, name in connection.execute(
            f"select globalTid, domainId, {NAME} from NVTX_EVENTS n where eventType = 75"
        )
    }
    projected = {}
    ranges = connection.execute(
        f"select globalTid, domainId, {NAME}, start, end from NVTX_EVENTS n where eventType in (59, 60)"
    )
    for tid, domain, text, begin, end in ranges:
        for called, pid, context, stream, first, last in operations[tid]:
            if begin <= called <= end:
                key = (domains.get((tid >> 24, domain), ""), text, tid, begin, pid, context, stream)
                limits = projected.setdefault(key, [first, last, 0])
                projected[key] = [min(limits[0], first), max(limits[1], last), limits[2] + 1]
    return projected


def translated(reports, folder, sources="nvtx_on_gpu,kernels,memory_operations"):
    summary = translate(reports, folder / "out.prv", TranslationPlan(sources=select_sources(sources)))
    assert not check_trace(folder / "out.prv").problems
    account = next(source for source in summary.sources if source.name == "nvtx_on_gpu")
    assert account.read == account.written + sum(account.dropped.values())
    return summary, read_trace(folder / "out.prv")


def intervals(trace, summary, base):
    """(domain label, name, number, UTC of begin, of end, row name) of each range on a stream, read from the trace."""
    rows = trace.names["THREAD"]
    open_ = defaultdict(list)
    ranges = []
    numbers = {t: label for t, label in trace.types.items() if re.fullmatch(r"NVTX.* range on GPU, lane \d+", label)}
    by_line = trace.events[
        trace.events["type"].isin([*numbers, *(t for t, la in trace.types.items() if "number" in la)])
    ]
    number_at = {
        line: value
        for line, type_, value in zip(by_line["line"], by_line["type"], by_line["value"], strict=True)
        if type_ not in numbers
    }
    for line, time, row, type_, value in by_line[["line", "time", "row", "type", "value"]].itertuples(index=False):
        if type_ not in numbers:
            continue
        if value:
            open_[row, type_].append((time, trace.values[type_][value], number_at.get(line)))
        else:
            begin, name, number = open_[row, type_].pop()
            domain = numbers[type_].removeprefix("NVTX").split(" range on GPU")[0].strip()
            utc = summary.start_utc_ns - base
            ranges.append((domain, name, number, begin + utc, time + utc, rows[row]))
    return ranges


def expected(report, offset=0):
    """What `intervals` must give for one report, rows by their stream number."""
    ranges = []
    for (domain, text, _, _, _, _, stream), (first, last, _) in projections(report).items():
        match = re.fullmatch(r"(.*\S) (\d+)", text)
        name, number = (match[1], int(match[2])) if match else (text, None)
        ranges.append((domain, name, number, first + offset, last + offset, f"S{stream}"))
    return sorted(ranges, key=str)


def utc_of_zero(report):
    with sqlite3.connect(f"{report.as_uri()}?mode=ro&immutable=1", uri=True) as connection:
        return connection.execute("select utcEpochNs from TARGET_INFO_SESSION_START_TIME").fetchone()[0]


@pytest.mark.parametrize("name", ["ddp-2x2.rank0", "ddp-2x2.rank3", "mpi-4.rank1", "single-graph"])
def test_against_brute_force(samples, tmp_path, name):
    report = samples / f"{name}.sqlite"
    summary, trace = translated([report], tmp_path)
    got = [(*rest, row.split(".")[1].split("-")[0]) for *rest, row in intervals(trace, summary, utc_of_zero(report))]
    assert sorted(got, key=str) == expected(report)
    assert got


@pytest.mark.slow
def test_backward_on_another_thread(shared_reports, tmp_path):
    report = shared_reports / "gpu/autograd-1.sqlite"
    summary, trace = translated([report], tmp_path)
    by_sql = projections(report)
    assert len({tid for _, _, tid, *_ in by_sql}) == 2, "forward and backward threads both launch"
    got = intervals(trace, summary, utc_of_zero(report))
    assert sorted((b, e) for *_, b, e, _ in got) == sorted((first, last) for first, last, _ in by_sql.values())


def test_overlapping_start_end_ranges(samples, tmp_path):
    """Two start/end ranges that cross on the host, around the launches of a sample: both are shown, on two lanes."""
    import shutil

    report = tmp_path / "crossing.sqlite"
    shutil.copy(samples / "single-graph.sqlite", report)
    with sqlite3.connect(report) as connection:
        tid, low, high = connection.execute(
            "select r.globalTid, min(r.start), max(r.end) from CUPTI_ACTIVITY_KIND_RUNTIME r"
            " join CUPTI_ACTIVITY_KIND_KERNEL k on k.correlationId = r.correlationId group by 1 order by count(*) desc"
        ).fetchone()
        third = (high - low) // 3
        for text, begin, end in (("a", low, high - third), ("b", low + third, high)):
            connection.execute(
                "insert into NVTX_EVENTS (start, end, eventType, text, globalTid, domainId) values (?, ?, 60, ?, ?, 0)",
                (begin, end, text, tid),
            )
    summary, trace = translated([report], tmp_path)
    got = [(*rest, row.split(".")[1].split("-")[0]) for *rest, row in intervals(trace, summary, utc_of_zero(report))]
    assert sorted(got, key=str) == expected(report)
    assert {"a", "b"} <= {name for _, name, *_ in got}


@pytest.mark.slow
def test_nvidias_projection(shared_reports, unpacked, tmp_path):
    """nvtx_gpu_proj_sum of nsys 2025.3: instances and total projected time of each range, over all its streams."""
    report = unpacked(shared_reports / "bench/ddplong-2x2.rank0.sqlite.xz")
    gold = {}
    with (shared_reports / "gold/ddplong-2x2.rank0_nvtx_gpu_proj_sum.csv").open() as file:
        for row in csv.DictReader(file):
            gold[row["Range"]] = (int(row["Range Instances"]), int(row["Total Proj Time (ns)"]))
    instances = defaultdict(dict)
    from nsys2prv_ng.report.database import Database
    from nsys2prv_ng.report.metadata import Strings, read_metadata
    from nsys2prv_ng.sources.nvtx import events as nvtx_events
    from nsys2prv_ng.sources.nvtx import nvtx
    from nsys2prv_ng.sources.shared.report_reader import ReportReader
    from nsys2prv_ng.sources.shared.source_options import SourceOptions

    database = Database(report)
    strings = Strings(database)
    reader = ReportReader(
        database, read_metadata(database, strings), strings, {"nvtx_on_gpu": nvtx.ON_GPU.tables}, SourceOptions()
    )
    events, launched = reader.once(nvtx_events.read_nvtx_events), nvtx.find_launched(reader)
    for domain in events.domains:
        for rows in events.find_nesting_sets(domain):
            for row, _, begin, end in zip(*nvtx.project(events, rows, launched), strict=True):
                limits = instances[f"{domain}:{events.texts.get_text(row)}"].setdefault(row, [begin, end])
                limits[:] = min(limits[0], begin), max(limits[1], end)
    got = {name: (len(rows), int(sum(e - b for b, e in rows.values()))) for name, rows in instances.items()}
    database.close()
    assert got == gold


@pytest.mark.slow
def test_a_range_from_one_damaged_time_to_another(tmp_path, samples):
    """One of two operations that a range launched is longer ago than Paraver can show, and on a row nobody wants."""
    report = tmp_path / "a.sqlite"
    report.write_bytes((samples / "ddp-2x2.rank1.sqlite").read_bytes())
    with sqlite3.connect(report) as connection:
        connection.execute("update CUPTI_ACTIVITY_KIND_MEMCPY set start = -(1 << 61), end = -(1 << 61) where rowid = 1")
    sound = samples / "ddp-2x2.rank3.sqlite"
    selection = Selection(ranks=frozenset({3}))
    summary = translate(
        [report, sound],
        tmp_path / "a.prv",
        TranslationPlan(sources=select_sources(NAMES_OF_SOURCES), selection=selection),
    )
    (account,) = (source for source in summary.sources if source.name == "nvtx_on_gpu")
    assert account.written > 0 and account.dropped["outside the selected ranks and GPUs"] > 0
    assert account.read == account.written + sum(account.dropped.values())
