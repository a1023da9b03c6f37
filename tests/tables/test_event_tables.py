"""Tables of events against plain SQL on the reports, to the ns, and against loops over their ranges."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter

import pandas as pd
import pytest

from nsys2prv_ng.paraver.value_tables import MEMORY_KINDS
from tests.report_sets import list_sets, sets
from tests.report_truth import COPY_LABELS
from tests.tables.opened import check_rows, count_rows, has_columns, in_utc, list_reports, open_set, read_sql

PREFIX = "CUPTI_ACTIVITY_KIND_"
EVERY = sets(list_sets())


@pytest.mark.parametrize("name", EVERY)
def test_rows_are_what_was_read_without_what_was_dropped(name: str) -> None:
    job = open_set(name)
    for table in job.tables:
        frame = getattr(job, table)
        attrs = frame.attrs
        assert len(frame) == attrs["read"] - sum(attrs["dropped"].values()) + attrs["pieces"], table
        assert frame["start_ns"].is_monotonic_increasing, table
        if "end_ns" in frame:
            assert (frame["end_ns"] >= frame["start_ns"]).all(), table


@pytest.mark.parametrize("name", EVERY)
def test_kernels(name: str) -> None:
    job = open_set(name)
    correlation = ", o.correlationId AS correlation_id" if has_columns(name, f"{PREFIX}KERNEL", "correlationId") else ""
    truth = read_sql(
        name,
        f"{PREFIX}KERNEL",
        f"""SELECT o.start AS start_ns, o."end" AS end_ns, (o.globalPid >> 24) & 0xFFFFFF AS process,
        o.contextId AS context, o.streamId AS stream, s.value AS name, o.gridX AS grid_x, o.gridY AS grid_y,
        o.gridZ AS grid_z, o.blockX AS block_x, o.blockY AS block_y, o.blockZ AS block_z,
        o.registersPerThread AS registers, o.staticSharedMemory AS static_shared_bytes,
        o.dynamicSharedMemory AS dynamic_shared_bytes, o.localMemoryPerThread AS local_bytes {correlation}
        FROM {PREFIX}KERNEL o JOIN StringIds s ON s.id = o.shortName""",
    )
    if len(truth):
        truth["name"] = truth["name"].map(lambda text: re.sub(r"\[abi:\w+\]", "", text))
    check_rows(job, job.kernels, truth)


@pytest.mark.parametrize("name", EVERY)
def test_copies(name: str) -> None:
    job = open_set(name)
    what = """o.start AS start_ns, o."end" AS end_ns, (o.globalPid >> 24) & 0xFFFFFF AS process,
        o.contextId AS context, o.streamId AS stream, o.bytes AS bytes"""
    copies = read_sql(name, f"{PREFIX}MEMCPY", f"SELECT {what}, o.copyKind AS name FROM {PREFIX}MEMCPY o")
    fills = read_sql(name, f"{PREFIX}MEMSET", f"SELECT {what}, 'Memset' AS name FROM {PREFIX}MEMSET o")
    if len(copies):
        copies["name"] = copies["name"].map(lambda kind: COPY_LABELS.get(kind, COPY_LABELS[0]))
    check_rows(job, job.copies, pd.concat([copies, fills]))


@pytest.mark.parametrize("name", EVERY)
def test_cuda_calls_and_their_correlation_ids(name: str) -> None:
    job = open_set(name)
    truth = read_sql(
        name,
        f"{PREFIX}RUNTIME",
        f"""SELECT o.start AS start_ns, o."end" AS end_ns, (o.globalTid >> 24) & 0xFFFFFF AS process,
        o.globalTid & 0xFFFFFF AS thread, s.value AS name FROM {PREFIX}RUNTIME o JOIN StringIds s ON s.id = o.nameId""",
    )
    if len(truth):
        truth["name"] = truth["name"].map(lambda text: re.sub(r"_v[0-9]+$", "", text))
    check_rows(job, job.cuda_calls, truth)


@pytest.mark.parametrize("name", EVERY)
def test_launches_of_kernels(name: str) -> None:
    """Kernels outside of graphs: the call with their correlation id, which has the id in its table, too."""
    job = open_set(name)
    kernel, runtime = f"{PREFIX}KERNEL", f"{PREFIX}RUNTIME"
    if not all(has_columns(name, table, "correlationId") for table in (kernel, runtime)):
        return
    outside = "COALESCE(k.graphNodeId, 0) = 0" if has_columns(name, kernel, "graphNodeId") else "1"
    query = f"""SELECT k.start AS start_ns, (k.globalPid >> 24) & 0xFFFFFF AS process,
        k.correlationId AS correlation_id,
        MIN(r.start) AS launch_ns, r.globalTid & 0xFFFFFF AS launch_thread FROM {kernel} k
        JOIN {runtime} r ON r.correlationId = k.correlationId AND r.globalTid >> 24 = k.globalPid >> 24
        WHERE {outside} GROUP BY k.rowid"""
    frames = (
        [frame for frame in [read_sql(name, runtime, query)] if len(frame)]
        if any(report.has(kernel) for report in list_reports(name))
        else []
    )
    for truth in frames:
        kernels = in_utc(job, job.kernels)
        shown = kernels[kernels["graph_node_id"].isna() & kernels["launch_ns"].notna()]
        expected = count_rows(truth, [*truth.columns])
        assert not count_rows(shown, [*truth.columns]) - expected
        assert len(shown) >= len(truth) - sum(job.kernels.attrs["dropped"].values())
        calls = in_utc(job, job.cuda_calls)
        with_id = calls[calls["correlation_id"].notna()]
        of_calls = dict(
            zip(zip(with_id["process"], with_id["correlation_id"], strict=True), with_id["start_ns"], strict=True)
        )
        assert all(
            of_calls.get((process, number)) == launched
            for process, number, launched in zip(
                shown["process"], shown["correlation_id"], shown["launch_ns"], strict=True
            )
        )


@pytest.mark.parametrize("name", EVERY)
def test_range_is_the_innermost_of_the_launching_thread(name: str) -> None:
    """By a loop over the ranges around each of some kernels and calls."""
    job = open_set(name)
    nvtx = job.nvtx[(job.nvtx["class"] == "push/pop") & (job.nvtx["domain"] != "GIL Trace")]
    threads = {
        key: group.sort_values(["start_ns", "end_ns"], ascending=[True, False])
        for key, group in nvtx.groupby(["process", "thread"])
    }
    starts = {key: group["start_ns"].tolist() for key, group in threads.items()}
    for frame, thread, time in ((job.kernels, "launch_thread", "launch_ns"), (job.cuda_calls, "thread", "start_ns")):
        chosen = frame.iloc[:: max(1, len(frame) // 300)]
        columns = [chosen[column].tolist() for column in ("process", thread, time)]
        found = []
        for process, tid, at in zip(*columns, strict=True):
            if pd.isna(tid) or (process, tid) not in threads:
                found.append(("", ""))
                continue
            before = threads[process, tid].iloc[: bisect_right(starts[process, tid], at)]
            around = before[before["end_ns"] >= at]["name"].tolist()
            found.append((around[-1] if around else "", around))
        assert [text for text, _ in found] == ["" if pd.isna(text) else text for text in chosen["range"]]


@pytest.mark.parametrize("name", EVERY)
def test_nvtx(name: str) -> None:
    job = open_set(name)
    parts = [report.nvtx.assign(start_ns=report.nvtx["begin"] + report.utc) for report in list_reports(name)]
    truth = pd.concat(parts, ignore_index=True)
    if not job.nvtx.attrs["read"]:  # up to 2023, those of MPI are its calls
        truth = truth[~truth["text"].str.startswith("MPI_")]
    assert len(job.nvtx) + sum(job.nvtx.attrs["dropped"].values()) == job.nvtx.attrs["read"] >= len(truth)
    if not len(truth):
        return
    shown = in_utc(job, job.nvtx)
    truth = truth.assign(thread=truth["tid"] & 0xFFFFFF, **{"class": truth["style"]})
    truth["domain"] = truth["domain"].replace("", "default")
    columns = ["start_ns", "thread", "class", "domain"]
    assert not count_rows(shown, columns) - count_rows(truth, columns)


@pytest.mark.parametrize("name", EVERY)
def test_os_calls(name: str) -> None:
    job = open_set(name)
    where = "WHERE COALESCE(o.eventClass, 27) NOT IN (31, 32)" if has_columns(name, "OSRT_API", "eventClass") else ""
    truth = read_sql(
        name,
        "OSRT_API",
        f"""SELECT o.start AS start_ns, (o.globalTid >> 24) & 0xFFFFFF AS process, o.globalTid & 0xFFFFFF AS thread
        FROM OSRT_API o {where}""",
    )
    check_rows(job, job.os_calls, truth)


@pytest.mark.parametrize("name", EVERY)
def test_gpu_metrics(name: str) -> None:
    job = open_set(name)
    truth = read_sql(
        name,
        "GPU_METRICS",
        """SELECT DISTINCT g.timestamp AS start_ns, g.typeId & 255 AS gpu, n.metricName AS title, g.value AS value
        FROM GPU_METRICS g JOIN TARGET_INFO_GPU_METRICS n ON n.typeId = g.typeId AND n.metricId = g.metricId""",
    )
    metrics = in_utc(job, job.gpu_metrics)
    assert bool(len(metrics)) == bool(len(truth))
    if len(truth):
        unit = truth["title"].str.extract(r" \[([^\]]*)\]$")[0].fillna("")
        truth["unit"] = unit.replace("MHz", "Hz")
        truth["name"] = truth["title"].str.replace(r" \[[^\]]*\]$", "", regex=True)
        columns = ["start_ns", "gpu", "name", "unit", "value"]
        assert count_rows(metrics, columns) == count_rows(truth, columns)


@pytest.mark.parametrize("name", EVERY)
def test_memory(name: str) -> None:
    job = open_set(name)
    truth = read_sql(
        name,
        "CUDA_GPU_MEMORY_USAGE_EVENTS",
        """SELECT o.start AS start_ns, (o.globalPid >> 24) & 0xFFFFFF AS process,
        CASE o.memoryOperationType WHEN 0 THEN 'Allocation' ELSE 'Free' END AS name
        FROM CUDA_GPU_MEMORY_USAGE_EVENTS o""",
    )
    events = job.memory
    check_rows(job, events[events["name"] != "In use"], truth)


@pytest.mark.parametrize("name", EVERY)
def test_memory_in_use_when_captures_begin(name: str) -> None:
    """What the changes at time 0 leave, in the order of calls, since their times do not tell it; by kind of memory."""
    job, table = open_set(name), "CUDA_GPU_MEMORY_USAGE_EVENTS"
    if not has_columns(name, table, "correlationId", "address"):
        return
    left: Counter[str] = Counter()
    for report in (report for report in list_reports(name) if report.has(table)):
        held: dict[tuple[int, int], tuple[int, int]] = {}
        for row in report.sql(f"SELECT * FROM {table} WHERE start = 0").sort_values("correlationId").itertuples():
            if row.memoryOperationType == 0:
                held[row.globalPid, row.address] = row.memKind, row.bytes
            else:
                held.pop((row.globalPid, row.address), None)
        for kind, size in held.values():
            left[MEMORY_KINDS.get(kind + 1, "Unknown")] += size
    frame = job.memory[job.memory["name"] == "In use"]
    found = frame.groupby("class", observed=True)["bytes"].sum()
    assert found[found > 0].to_dict() == +left
    on_gpu = ~frame["class"].isin([MEMORY_KINDS[1], MEMORY_KINDS[2]])
    assert frame["gpu"].notna().tolist() == on_gpu.tolist()


@pytest.mark.parametrize("name", EVERY)
def test_samples(name: str) -> None:
    job = open_set(name)
    truth = read_sql(
        name,
        "COMPOSITE_EVENTS",
        """SELECT c.start AS start_ns, (c.globalTid >> 24) & 0xFFFFFF AS process, c.globalTid & 0xFFFFFF AS thread,
        CASE f.unresolved WHEN 1 THEN '' ELSE s.value END AS name FROM COMPOSITE_EVENTS c
        LEFT JOIN SAMPLING_CALLCHAINS f ON f.id = c.id AND f.stackDepth = 0 LEFT JOIN StringIds s ON s.id = f.symbol""",
    )
    shown = job.samples.assign(name=job.samples["name"].astype(object))
    shown.attrs = job.samples.attrs
    if len(truth):
        truth["name"] = truth["name"].fillna("(no call chain)")
        unresolved = "^0x|^\\[|^\\("  # the name of the module stands for a function without one
        truth.loc[truth["name"].str.contains(unresolved), "name"] = ""
        shown.loc[shown["name"].str.contains(unresolved), "name"] = ""
    check_rows(job, shown, truth)


@pytest.mark.parametrize("name", EVERY)
def test_mpi_calls(name: str) -> None:
    job = open_set(name)
    tables = {
        "MPI_P2P_EVENTS": "size", "MPI_COLLECTIVES_EVENTS": "size", "MPI_OTHER_EVENTS": "NULL",
        "MPI_START_WAIT_EVENTS": "NULL",
    }  # fmt: skip
    parts = [
        read_sql(
            name,
            table,
            f"""SELECT o.start AS start_ns, o."end" AS end_ns, (o.globalTid >> 24) & 0xFFFFFF AS process,
            o.globalTid & 0xFFFFFF AS thread, s.value AS name FROM {table} o JOIN StringIds s ON s.id = o.textId""",
        )
        for table in tables
    ]
    truth = pd.concat(parts)
    calls = job.mpi_calls
    if len(truth):  # later exports: earlier ones have ranges of NVTX
        check_rows(job, calls, truth)
        of_rank = {process: rank for report in list_reports(name) for process, rank in report.mpi_ranks.items()}
        shown = calls.groupby("process", observed=True)["rank"].unique()
        assert {process: [*ranks] for process, ranks in shown.items()} == {
            process & 0xFFFFFF: [rank] for process, rank in of_rank.items() if process & 0xFFFFFF in shown.index
        }
