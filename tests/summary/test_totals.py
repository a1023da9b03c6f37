"""Sums over kernels, copies, NCCL, MPI and ranges, against plain SQL and plain loops over the reports."""

from __future__ import annotations

import csv
import json
import re
from collections import Counter, defaultdict
from pathlib import Path

import pandas as pd
import pytest

from nsys2prv_ng.summary.job import JobSummary
from tests.conftest import Unpacked
from tests.report_truth import PUSH_POP, START_END, Objects, Report, split_name
from tests.spans import list_report_sets
from tests.summary.made import SETS, summarize_reports, summary_and_reports


@pytest.fixture(scope="module", params=list_report_sets(SETS))
def made(request: pytest.FixtureRequest) -> tuple[JobSummary, list[Report]]:
    summary, objects = summary_and_reports(*request.param)
    return summary, list(objects.reports)


def summed(rows: pd.DataFrame, by: str, *sums: str) -> dict[str, tuple[int, ...]]:
    """Number of rows, ns, and other sums, by a column."""
    found: dict[str, tuple[int, ...]] = {}
    for name, part in rows.assign(ns=rows["end"] - rows["begin"]).groupby(by):
        found[str(name)] = (len(part), int(part["ns"].sum()), *(int(part[each].sum()) for each in sums))
    return found


# ---- on GPUs ---------------------------------------------------------------------------------------------------------


def test_kernels_by_their_short_name(made: tuple[JobSummary, list[Report]]) -> None:
    found, reports = made
    operations = pd.concat([report.operations for report in reports])
    expected = summed(operations[operations["table"].isin(("KERNEL", "GRAPH_TRACE"))], "name")
    by_name: dict[str, tuple[int, int]] = {}
    for kernel in found.kernels:
        count, ns = by_name.get(kernel.name, (0, 0))
        by_name[kernel.name] = count + kernel.count, ns + kernel.total_ns
    assert by_name == expected
    assert [kernel.total_ns for kernel in found.kernels] == sorted((k.total_ns for k in found.kernels), reverse=True)
    is_nccl = {kernel.name: kernel.kernel_class == "NCCL" for kernel in found.kernels}
    assert is_nccl == {name: name.startswith("nccl") for name in expected}


def test_shortest_and_longest_kernels(made: tuple[JobSummary, list[Report]]) -> None:
    found, reports = made
    operations = pd.concat([report.operations for report in reports])
    kernels = operations[operations["table"].isin(("KERNEL", "GRAPH_TRACE"))]
    length = (kernels["end"] - kernels["begin"]).groupby(kernels["name"])
    limits = {str(name): (int(part.min()), int(part.max())) for name, part in length}
    for name, (shortest, longest) in limits.items():
        of_name = [kernel for kernel in found.kernels if kernel.name == name]
        assert min(kernel.min_ns for kernel in of_name) == shortest
        assert max(kernel.max_ns for kernel in of_name) == longest


def test_copies_and_sets(made: tuple[JobSummary, list[Report]]) -> None:
    found, reports = made
    operations = pd.concat([report.operations for report in reports])
    expected = summed(operations[operations["table"].isin(("MEMCPY", "MEMSET"))], "name", "bytes")
    assert {m.operation: (m.count, m.total_ns, m.bytes) for m in found.memory_operations} == expected


# ---- communication ---------------------------------------------------------------------------------------------------


def function_of(name: str) -> str:
    """What a call or kernel of NCCL does."""
    if name in ("ncclSend", "ncclRecv", "ncclAlltoAll", "ncclGather", "ncclScatter"):
        return "SendRecv"
    found = re.search("AllReduce|AllGather|ReduceScatter|SendRecv|Reduce|Broadcast", name)
    return found.group() if found else ""


def test_nccl(made: tuple[JobSummary, list[Report]]) -> None:
    """Where every call carries its bytes on one kernel or more, the rate is of all of them."""
    found, reports = made
    calls: Counter[str] = Counter()
    size: Counter[str] = Counter()
    kernels: dict[str, list[int]] = defaultdict(list)
    for report in reports:
        if report.has("NVTX_EVENTS"):
            for text in report.nvtx.loc[report.nvtx["domain"] == "NCCL", "text"]:
                calls[function_of(text)] += 1
        if report.has("NVTX_EVENTS") and "jsonText" in report.sql("SELECT * FROM NVTX_EVENTS LIMIT 0"):
            payloads = report.sql(
                """SELECT COALESCE(n.text, s.value) AS name, n.jsonText AS payload FROM NVTX_EVENTS n
                LEFT JOIN StringIds s ON s.id = n.textId WHERE n.jsonText LIKE '%essage size%'"""
            )
            for name, payload in zip(payloads["name"], payloads["payload"], strict=True):
                size[function_of(name)] += next(v for k, v in json.loads(payload).items() if "essage size" in k)
        operations = report.operations[report.operations["table"] == "KERNEL"]
        for name, begin, end in zip(operations["name"], operations["begin"], operations["end"], strict=True):
            if name.startswith("nccl"):
                kernels[function_of(name) or "other"].append(end - begin)
    del calls[""]
    assert {each.function: each.calls for each in found.nccl if each.calls} == dict(calls)
    assert {each.function: each.bytes for each in found.nccl if each.bytes} == {k: v for k, v in size.items() if v}
    assert {each.function: (each.kernels, each.kernel_ns) for each in found.nccl if each.kernels} == {
        function: (len(lengths), sum(lengths)) for function, lengths in kernels.items()
    }
    for each in found.nccl:
        if each.bytes and each.kernels and each.function != "SendRecv":  # whose calls can share a kernel
            assert (each.carried_bytes, each.carried_ns) == (each.bytes, each.kernel_ns)


def mpi_calls(report: Report, table: str, size: str, received: str) -> pd.DataFrame:
    return report.sql(
        f"""SELECT s.value AS name, m.start AS begin, m."end", m.globalTid AS tid, {size} AS size, {received} AS got
        FROM MPI_{table}_EVENTS m JOIN StringIds s ON s.id = m.textId"""
    )


def test_mpi(made: tuple[JobSummary, list[Report]]) -> None:
    found, reports = made
    rows = []
    for report in reports:
        for table in ("P2P", "COLLECTIVES", "START_WAIT", "OTHER"):
            if report.has(f"MPI_{table}_EVENTS"):
                columns = report.sql(f"SELECT * FROM MPI_{table}_EVENTS LIMIT 0").columns
                names = [name if name in columns else "NULL" for name in ("size", "recvSize")]
                rows.append(mpi_calls(report, table, *names))
    if not rows:
        assert found.mpi == []
        return
    calls = pd.concat(rows)
    # A Sendrecv has a row for what it sends and one for what it receives, a wait one for each of its requests.
    several = r"MPI_(Sendrecv.*|(Wait|Test)(all|any|some)?|Startall)"
    twice = calls[calls["name"].str.fullmatch(several)].groupby(["name", "tid", "begin"], as_index=False)
    once = calls[~calls["name"].str.fullmatch(several)]
    expected = summed(pd.concat([once[["name", "begin", "end"]], twice["end"].max()[["name", "begin", "end"]]]), "name")
    assert {each.call: (each.count, each.total_ns) for each in found.mpi} == expected
    sums = calls.groupby("name")[["size", "got"]].sum()
    for each in found.mpi:
        told, got = (int(sums.loc[each.call, column]) for column in ("size", "got"))
        if each.call in ("MPI_Send", "MPI_Isend"):
            assert (each.sent_bytes, each.received_bytes) == (told, 0)
        elif each.call in ("MPI_Recv", "MPI_Irecv"):
            assert (each.sent_bytes, each.received_bytes) == (0, told)
        elif each.call == "MPI_Sendrecv":
            assert each.sent_bytes is not None and each.received_bytes is not None
            assert each.sent_bytes + each.received_bytes == told > 0
        elif each.call in ("MPI_Allreduce", "MPI_Bcast", "MPI_Alltoall"):
            assert (each.sent_bytes, each.received_bytes) == (told, got)
        elif not told and not got:
            assert not each.sent_bytes and not each.received_bytes


@pytest.mark.slow
def test_calls_that_tell_no_bytes_are_not_said_to_have_none(shared_reports: Path) -> None:
    found = summarize_reports(sorted((shared_reports / "cpu").glob("2022.4.2-ompi_rank?.sqlite")))
    assert found.mpi and all(each.sent_bytes is each.received_bytes is None for each in found.mpi)
    found = summarize_reports(sorted((shared_reports / "cpu").glob("2024.2.3-nccl_mimic_rank?.sqlite")))
    assert found.nccl and all(each.calls and each.bytes is None for each in found.nccl)


# ---- ranges ----------------------------------------------------------------------------------------------------------


def depth_of(ranges: pd.DataFrame) -> list[int]:
    """Of each range in how many others of its thread it lies. A start/end range lies in none, and none in it."""
    columns = ["begin", "end", "tid", "domain", "text"]
    nested = ranges[ranges["style"] == PUSH_POP]
    alike = Counter(nested[columns].itertuples(index=False, name=None))
    of_thread = {tid: (part["begin"].to_numpy(), part["end"].to_numpy()) for tid, part in nested.groupby("tid")}
    depths = []
    for style, *key in ranges[["style", *columns]].itertuples(index=False, name=None):
        depths.append(1)
        if style == PUSH_POP:
            begins, ends = of_thread[key[2]]
            depths[-1] += int(((begins <= key[0]) & (ends >= key[1])).sum()) - alike[tuple(key)]
    return depths


def test_ranges_that_repeat(made: tuple[JobSummary, list[Report]]) -> None:
    found, reports = made
    objects = Objects(reports)
    expected: dict[tuple[str, str, str], list[int]] = defaultdict(list)
    for index, report in enumerate(reports):
        ranges = report.nvtx[report.nvtx["style"].isin((PUSH_POP, START_END)) & (report.nvtx["domain"] != "NCCL")]
        if len(ranges) > 20_000:
            pytest.skip("too many ranges for a plain loop")
        ranges = ranges.assign(name=[split_name(text)[0] for text in ranges["text"]])
        ranges = ranges.assign(depth=depth_of(ranges))
        for (domain, name, tid), part in ranges[ranges["depth"] <= 2].groupby(["domain", "name", "tid"]):
            if len(part) >= 3:
                task = objects.tasks[objects.task_of_process[index, tid >> 24]]
                expected[domain, name, task] += (part["end"] - part["begin"]).tolist()
    told = {
        (each.domain, each.name, task.task): (task.count, task.total_ns, task.min_ns, task.max_ns)
        for each in found.ranges
        for task in each.tasks
    }
    assert told == {key: (len(v), sum(v), min(v), max(v)) for key, v in expected.items()}


@pytest.mark.slow
def test_tasks_of_a_range_are_in_order(samples: Path) -> None:
    found = summarize_reports(sorted(samples.glob("ddp-2x2.rank*.sqlite")))
    steps = next(each for each in found.ranges if each.name == "step")
    assert [task.rank for task in steps.tasks] == [0, 1, 2, 3] and {task.count for task in steps.tasks} == {6}


# ---- NVIDIA's own sums -----------------------------------------------------------------------------------------------


def gold(folder: Path, report: str, name: str) -> list[dict[str, str]]:
    with (folder / "gold" / f"{report}_{name}.csv").open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module", params=[pytest.param("ddplong-2x2.rank0", marks=pytest.mark.all_sets), "mpi-4.rank0"])
def measured(request: pytest.FixtureRequest, shared_reports: Path, unpacked: Unpacked) -> tuple[Path, str, JobSummary]:
    """The folder of the reports, and a report's name and numbers."""
    name = request.param
    files = {"ddplong-2x2.rank0": "bench/ddplong-2x2.rank0.sqlite.xz", "mpi-4.rank0": "gpu/mpi-4.rank0.sqlite"}
    return shared_reports, name, summarize_reports([unpacked(shared_reports / files[name])], demangled_names=True)


@pytest.mark.slow
def test_kernels_are_those_of_nvidia(measured: tuple[Path, str, JobSummary]) -> None:
    folder, name, found = measured
    expected = {
        row["Name"]: tuple(int(row[c]) for c in ("Instances", "Total Time (ns)", "Min (ns)", "Max (ns)"))
        for row in gold(folder, name, "cuda_gpu_kern_sum")
    }
    assert {k.name: (k.count, k.total_ns, k.min_ns, k.max_ns) for k in found.kernels} == expected


@pytest.mark.slow
def test_copies_are_those_of_nvidia(measured: tuple[Path, str, JobSummary]) -> None:
    folder, name, found = measured
    expected = {}
    for row in gold(folder, name, "cuda_gpu_mem_time_sum"):
        label = row["Operation"].strip("[]").removeprefix("CUDA ").replace("-", " ").lower()
        expected[label] = int(row["Count"]), int(row["Total Time (ns)"])
    assert {m.operation.lower(): (m.count, m.total_ns) for m in found.memory_operations} == expected


def test_ranges_are_those_of_nvidia(measured: tuple[Path, str, JobSummary]) -> None:
    """NVIDIA's texts are whole, with their numbers; what is deep or not repeated is not in the overview."""
    folder, name, found = measured
    sums: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for row in gold(folder, name, "nvtx_pushpop_sum"):
        domain, _, text = row["Range"].partition(":")
        of_name = sums[f"{domain}:{split_name(text)[0]}"]
        of_name[0] += int(row["Instances"])
        of_name[1] += int(row["Total Time (ns)"])
    assert found.ranges
    for each in found.ranges:
        if each.name != "training loop":
            assert [each.count, each.total_ns] == sums[f"{each.domain}:{each.name}"]
