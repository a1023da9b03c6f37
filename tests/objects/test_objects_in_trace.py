"""Objects of whole translations: which task and row an event is on, whatever reports were named in which order."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from nsys2prv_ng.paraver.checker.trace import check_trace
from nsys2prv_ng.translation.plan_trace import TranslationPlan
from nsys2prv_ng.translation.translate import translate
from tests.conftest import Unpacked
from tests.report_truth import Report
from tests.tiers import cases
from tests.trace_reader import Trace, compare_tables
from tests.translated import CUDA_API, GRAPH, KERNEL, LAUNCH, MEMORY, NCCL_KERNEL, Translated, changed, translated_set

DEVICE_OPERATIONS = (KERNEL, NCCL_KERNEL, MEMORY, GRAPH)
SECOND = 10**9


def rows_of_tasks(trace: Trace) -> dict[str, list[str]]:
    """Names of the rows of each task; tasks must have different names."""
    rows = iter(trace.names["THREAD"])
    tasks = {
        name: list(itertools.islice(rows, count))
        for name, count in zip(trace.names["TASK"], trace.threads, strict=True)
    }
    assert len(tasks) == len(trace.threads)
    return tasks


def node_names(trace: Trace) -> list[str]:
    """Name of the node of each task."""
    return [trace.names["NODE"][node - 1] for node in trace.nodes]


def number_by_task(translated: Translated, *event_types: int) -> list[int]:
    """Number of intervals of these event types in each task."""
    tasks = translated.task_of(translated.intervals(*event_types)["row"])
    return np.bincount(tasks, minlength=len(translated.trace.threads)).tolist()


def as_rank(rank: int) -> list[str]:
    """Statements that make a report of Open MPI that of another rank."""
    return [
        f"""UPDATE META_DATA_CAPTURE SET value = 'OMPI_COMM_WORLD_RANK="{rank}"'
        WHERE value LIKE 'OMPI_COMM_WORLD_RANK=%'""",
        f"UPDATE MPI_RANKS SET rank = {rank}",
    ]


def moved(host: str, seconds: float) -> list[str]:
    """Statements that give a report another host, and a session that started later."""
    return [
        f"UPDATE TARGET_INFO_SYSTEM_ENV SET value = '{host}' WHERE name = 'Hostname'",
        f"UPDATE TARGET_INFO_SESSION_START_TIME SET utcEpochNs = utcEpochNs + {round(seconds * SECOND)}",
    ]


# ---- the same bytes --------------------------------------------------------------------------------------------------


def files_of(reports: Sequence[Path], folder: Path, name: str = "trace.prv") -> dict[str, bytes]:
    """Contents of the files of a trace with every kind of event; the files are removed."""
    folder.mkdir(exist_ok=True)
    translate(reports, folder / name, TranslationPlan(several_jobs=True))
    found = {path.name: path.read_bytes() for path in folder.iterdir()}
    for path in folder.iterdir():
        path.unlink()
    return found


@pytest.mark.slow
@pytest.mark.parametrize(("backwards", "turns"), cases([(True, (2,)), (False, (1, 2, 3)), (True, (0, 1, 3))], push=1))
def test_the_order_of_reports_changes_no_byte(
    samples: Path, tmp_path: Path, backwards: bool, turns: tuple[int, ...]
) -> None:
    reports = sorted(samples.glob("mpi-4.*"))
    files = files_of(reports, tmp_path / "files")
    assert sorted(files) == ["trace.pcf", "trace.prv", "trace.row"] and all(files.values())
    rotated = [reports[i:] + reports[:i] for i in turns]
    for order in (order[::-1] for order in rotated) if backwards else rotated:
        assert files_of(order, tmp_path / "files") == files, order


@pytest.mark.slow
@pytest.mark.parametrize("ranks", cases(["02", "0123"], push=1))
def test_the_order_of_reports_of_several_nodes_changes_no_byte(samples: Path, tmp_path: Path, ranks: str) -> None:
    reports = [*sorted(samples.glob(f"ddp-2x2.rank[{ranks}].*")), samples / "single-graph.sqlite"]
    files = files_of(reports, tmp_path / "files", "trace.prv.gz")
    orders = [reports[::-1], reports[2:] + reports[:2], reports[::2] + reports[1::2]]
    for order in orders[:2] if ranks == "02" else orders:
        assert files_of(order, tmp_path / "files", "trace.prv.gz") == files, order


@pytest.mark.slow
def test_the_order_of_reports_that_say_the_same_changes_no_byte(samples: Path, tmp_path: Path) -> None:
    """Of two copies of one report only the names differ, and only they can order them."""
    sample = samples / "mpi-4.rank0.sqlite"
    reports = [changed(sample, tmp_path / f"{name}.sqlite", []) for name in ("b", "a")]
    assert files_of(reports, tmp_path / "files") == files_of(reports[::-1], tmp_path / "files")


# ---- tasks -----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_one_pid_on_two_hosts_is_two_tasks(samples: Path, tmp_path: Path) -> None:
    sample = samples / "mpi-4.rank0.sqlite"
    other = changed(sample, tmp_path / "other.sqlite", [*as_rank(1), *moved("elsewhere", 0.25)])
    translated = translated_set([sample, other], tmp_path / "trace")
    trace = translated.trace
    rows = [["r0 MPI Rank 0", "CUDA-D0.S7", "Metrics GPU0"], ["r1 MPI Rank 0", "CUDA-D0.S7", "Metrics GPU0"]]
    assert rows_of_tasks(trace) == {"rank 0": rows[0], "rank 1": rows[1]}
    assert node_names(trace) == ["vm", "elsewhere"]
    found = translated.intervals(KERNEL, CUDA_API)
    first, second = (found[found["row"].isin(rows)] for rows in ([0, 1, 2], [3, 4, 5]))
    shifted = first.assign(row=first["row"] + 3, begin=first["begin"] + SECOND // 4, end=first["end"] + SECOND // 4)
    assert len(first) > 1000
    assert compare_tables(second, shifted, ["type", "row", "begin", "end", "name"]) == ""
    assert check_trace(trace.path).problems == []


@pytest.mark.slow
def test_one_host_name_and_two_boots_are_two_nodes(samples: Path, tmp_path: Path) -> None:
    """Hosts of cloud machines share a name: what differs is when their clocks started."""

    def booted(seconds_before: int) -> list[str]:
        return [
            "ALTER TABLE TARGET_INFO_SESSION_START_TIME ADD COLUMN systemClockNs INTEGER",
            f"UPDATE TARGET_INFO_SESSION_START_TIME SET systemClockNs = {seconds_before * SECOND}",
        ]

    sample = samples / "mpi-4.rank0.sqlite"
    reports = [
        changed(sample, tmp_path / "a.sqlite", booted(1000)),
        changed(sample, tmp_path / "b.sqlite", [*booted(5000), *as_rank(1), *moved("vm", 0.001)]),
        changed(sample, tmp_path / "c.sqlite", [*booted(1000), *as_rank(2), *moved("vm", 0.002)]),
    ]
    # The third says that its clock started 2 ms later than the first's: the same clock, as far as UTC tells.
    trace = translated_set(reports, tmp_path / "trace").trace
    assert trace.names["TASK"] == ["rank 0", "rank 1", "rank 2"]
    assert node_names(trace) == ["vm", "vm (2)", "vm"]


@pytest.mark.slow
def test_processes_that_claim_one_rank_stay_apart(samples: Path, tmp_path: Path) -> None:
    sample = samples / "mpi-4.rank0.sqlite"
    pid = Report(sample).value("SELECT globalTid >> 24 & 0xFFFFFF FROM MPI_RANKS")
    other = changed(samples / "mpi-4.rank1.sqlite", tmp_path / "other.sqlite", as_rank(0))
    other_pid = Report(other).value("SELECT globalTid >> 24 & 0xFFFFFF FROM MPI_RANKS")
    translated = translated_set([sample, other], tmp_path / "trace")
    assert sorted(translated.trace.names["TASK"]) == sorted([f"rank 0 {pid}", f"rank 0 {other_pid}"])
    assert any("rank 0" in warning for warning in translated.summary.warnings)


@pytest.mark.slow
def test_ranks_of_one_report_are_those_of_mpi(shared_reports: Path, tmp_path: Path) -> None:
    path = shared_reports / "gpu/mpi-one-report.sqlite"
    translated = translated_set([path], tmp_path)
    trace = translated.trace
    assert rows_of_tasks(trace) == {
        f"rank {rank}": [f"r{rank} MPI Rank {rank}", f"CUDA-D{rank}.S7", f"Metrics GPU{rank}"] for rank in range(4)
    }
    assert set(trace.nodes) == {1}
    by_rank = Report(path).sql(
        """SELECT m.rank, COUNT(*) AS number FROM CUPTI_ACTIVITY_KIND_RUNTIME r
        JOIN MPI_RANKS m ON m.globalTid >> 24 = r.globalTid >> 24 GROUP BY 1 ORDER BY 1"""
    )
    assert by_rank["rank"].tolist() == [0, 1, 2, 3]
    assert number_by_task(translated, CUDA_API) == by_rank["number"].tolist()


@pytest.mark.slow
def test_ranks_of_one_report_are_those_of_nccl(shared_reports: Path, unpacked: Unpacked, tmp_path: Path) -> None:
    path = unpacked(shared_reports / "bench/torchrun-one-report.sqlite.xz")
    translated = translated_set([path], tmp_path)
    trace = translated.trace
    assert trace.names["TASK"][:4] == ["rank 0", "rank 1", "rank 2", "rank 3"]
    assert not any(name.startswith("rank") for name in trace.names["TASK"][4:])
    by_rank = Report(path).sql(
        """SELECT CAST(json_extract(i.jsonText, '$.Rank') AS INTEGER) AS rank, i.globalTid >> 24 AS process,
        (SELECT COUNT(*) FROM CUPTI_ACTIVITY_KIND_RUNTIME r WHERE r.globalTid >> 24 = i.globalTid >> 24) AS number
        FROM NVTX_EVENTS i JOIN StringIds s ON s.id = i.textId
        WHERE s.value LIKE 'ncclCommInitRank%' AND json_extract(i.jsonText, '$."No. of ranks"') = 4
        GROUP BY 1, 2 ORDER BY 1"""
    )
    assert by_rank["rank"].tolist() == [0, 1, 2, 3]
    assert number_by_task(translated, CUDA_API)[:4] == by_rank["number"].tolist()
    # Each rank computed on the GPU of its number.
    rows = rows_of_tasks(trace)
    for rank in range(4):
        streams = [row for row in rows[f"rank {rank}"] if row.startswith("CUDA-")]
        assert streams and all(row.startswith(f"CUDA-D{rank}.") for row in streams)


@pytest.mark.slow
def test_a_process_without_gpu_is_a_child_of_its_rank(samples: Path, tmp_path: Path) -> None:
    """A loader of data has ranges and no GPU: its task follows the ranks and carries the name of its own."""
    sample = samples / "mpi-4.rank0.sqlite"
    main = int(Report(sample).value("SELECT globalTid FROM MPI_RANKS"))
    worker = (main >> 48 << 48) | 77 << 24 | 77
    statements = [
        f"INSERT INTO PROCESSES (globalPid, pid, name) VALUES ({worker >> 24 << 24}, 77, '/usr/bin/pt_data_worker')",
        f"UPDATE NVTX_EVENTS SET globalTid = {worker} WHERE text = 'collectives'",
    ]
    reports = [changed(sample, tmp_path / "a.sqlite", statements), samples / "mpi-4.rank1.sqlite"]
    translated = translated_set(reports, tmp_path / "trace")
    assert translated.trace.names["TASK"] == ["rank 0", "rank 1", "rank 0: pt_data_worker"]
    assert rows_of_tasks(translated.trace)["rank 0: pt_data_worker"] == ["r0 pt_data_worker"]
    moved_ranges = Report(sample).value("SELECT COUNT(*) FROM NVTX_EVENTS WHERE text = 'collectives'")
    assert number_by_task(translated, 9600)[2] == moved_ranges > 0


@pytest.mark.slow
def test_the_main_thread_is_first_and_the_others_follow_by_their_id(samples: Path, tmp_path: Path) -> None:
    """Ids start again from low numbers, so that threads may have lower ones than their process."""
    sample = samples / "ddp-2x2.rank0.sqlite"
    main, *others = (
        tid
        for (tid,) in Report(sample).connection.execute(
            "SELECT DISTINCT globalTid FROM CUPTI_ACTIVITY_KIND_RUNTIME ORDER BY globalTid"
        )
    )
    assert main >> 24 & 0xFFFFFF == main & 0xFFFFFF and len(others) > 1
    low = main >> 24 << 24 | 5
    tables = ("CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS", "ThreadNames")
    statements = [f"UPDATE {table} SET globalTid = {low} WHERE globalTid = {others[-1]}" for table in tables]
    report = changed(sample, tmp_path / "report.sqlite", statements)
    translated = translated_set([report], tmp_path / "trace", "cuda_api")
    found = translated.intervals(CUDA_API)
    expected = [
        Report(report).value(f"SELECT COUNT(*) FROM CUPTI_ACTIVITY_KIND_RUNTIME WHERE globalTid = {tid}")
        for tid in (main, low, *others[:-1])
    ]
    assert [int((found["row"] == row).sum()) for row in range(len(expected))] == expected


@pytest.mark.slow
@pytest.mark.parametrize("repeats", cases([4, 9, 63], push=1))
def test_repeated_captures_of_one_process_are_one_task(samples: Path, tmp_path: Path, repeats: int) -> None:
    """`capture-range-end=repeat` writes a report for each range."""
    apart = 6  # seconds, which is longer than the capture
    sample = samples / "mpi-4.rank0.sqlite"
    unused = [f"DROP TABLE {table}" for table in ("OSRT_API", "PROFILER_OVERHEAD")]
    small = changed(
        sample, tmp_path / "small.sqlite", [*unused, "DELETE FROM CUPTI_ACTIVITY_KIND_RUNTIME WHERE rowid % 8"]
    )
    once = translated_set([small], tmp_path / "once")
    reports = [changed(small, tmp_path / f"repeat{i}.sqlite", moved("vm", apart * i)) for i in range(repeats)]
    translated = translated_set(reports, tmp_path / "trace")
    assert rows_of_tasks(translated.trace) == rows_of_tasks(once.trace)
    assert len(translated.trace.cpus) == 1
    # All are of one rank of a job of four.
    assert translated.summary.warnings == ["no report of ranks 1-3 of 4 (by OMPI_COMM_WORLD_RANK)"]
    one = once.intervals(KERNEL, CUDA_API, 9600)
    assert len(one) > 100
    all_of_them = [
        one.assign(begin=one["begin"] + apart * i * SECOND, end=one["end"] + apart * i * SECOND) for i in range(repeats)
    ]
    found = translated.intervals(KERNEL, CUDA_API, 9600)
    assert compare_tables(found, pd.concat(all_of_them), ["type", "row", "begin", "end", "name"]) == ""
    assert len(translated.trace.communications) == repeats * len(once.trace.communications)


@pytest.mark.slow
def test_captures_that_overlap_are_not_of_one_process(samples: Path, tmp_path: Path) -> None:
    sample = samples / "mpi-4.rank0.sqlite"
    other = changed(sample, tmp_path / "other.sqlite", moved("vm", 0.1))
    translated = translated_set([sample, other], tmp_path / "trace")
    assert len(translated.trace.threads) == 2
    assert translated.summary.warnings


# ---- streams ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_streams_are_named_by_the_physical_gpu(samples: Path, tmp_path: Path) -> None:
    """The process of rank 2 sees two of the four GPUs, and calls the third one 0."""
    reports = sorted(samples.glob("ddp-2x2.*"))
    devices = [
        Report(path).connection.execute("SELECT DISTINCT deviceId FROM CUPTI_ACTIVITY_KIND_KERNEL").fetchall()
        for path in reports
    ]
    assert devices == [[(0,)], [(1,)], [(0,)], [(1,)]]
    rows = rows_of_tasks(translated_set(reports, tmp_path, "kernels,memory_operations").trace)
    for rank in range(4):
        streams = [row for row in rows[f"rank {rank}"] if row.startswith("CUDA-")]
        assert streams == [f"CUDA-D{rank}.S{stream}" for stream in (7, 15, 17)]


@pytest.mark.slow
def test_a_stream_number_of_two_contexts_is_two_rows(samples: Path, tmp_path: Path) -> None:
    sample = samples / "single-graph.sqlite"
    in_context_2 = "streamId = 16 AND rowid % 3 = 0"
    number = Report(sample).value(f"SELECT COUNT(*) FROM CUPTI_ACTIVITY_KIND_KERNEL WHERE {in_context_2}")
    assert number > 3
    statement = f"UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET contextId = 2 WHERE {in_context_2}"
    report = changed(sample, tmp_path / "report.sqlite", [statement])
    translated = translated_set([report], tmp_path / "trace")
    names = translated.trace.names["THREAD"]
    assert [name for name in names if name.startswith("CUDA-")] == [
        "CUDA-D0.S7",
        "CUDA-D0.S16",
        "CUDA-D0.S16002",
        *(f"CUDA-D0.S{stream}" for stream in (20, 24, 28, 32)),
    ]
    found = translated.intervals(KERNEL)
    assert (found["row"] == names.index("CUDA-D0.S16002")).sum() == number
    expected = translated.operations[translated.operations["table"] == "KERNEL"]
    assert compare_tables(found, expected, ["row", "begin", "end", "name"]) == ""


def overlaps(events: pd.DataFrame) -> int:
    """Number of intervals that begin before another of their row has ended."""
    ordered = events.sort_values(["row", "begin", "end"])
    ended = ordered.groupby("row")["end"].cummax().groupby(ordered["row"]).shift()
    return int((ordered["begin"] < ended).sum())


def test_kernels_that_overlap_on_a_stream_have_a_second_row(
    shared_reports: Path, unpacked: Unpacked, tmp_path: Path
) -> None:
    path = unpacked(shared_reports / "public/mfu_2gpu_before.sqlite")
    translated = translated_set([path], tmp_path)
    names = translated.trace.names["THREAD"]
    assert [name for name in names if name.startswith("CUDA-")] == ["CUDA-D0.S7", "CUDA-D0.S7", "CUDA-D1.S15"]
    found = translated.intervals(*DEVICE_OPERATIONS)
    assert overlaps(found) == 0
    first = names.index("CUDA-D0.S7")
    second = first + 1
    # All that is on the second row overlaps something on the first.
    on_first = found[found["row"] == first].sort_values("begin")
    on_second = found[found["row"] == second]
    assert len(on_second) > 0
    for begin, end in zip(on_second["begin"], on_second["end"], strict=True):
        assert ((on_first["begin"] < end) & (on_first["end"] > begin)).any()


@pytest.mark.slow
def test_three_operations_at_once_have_three_rows(samples: Path, tmp_path: Path) -> None:
    """Of a stream's first kernels one is drawn out over the next two, and the second of these over the first."""
    sample = samples / "mpi-4.rank0.sqlite"
    kernels = Report(sample).sql('SELECT rowid, start, "end" FROM CUPTI_ACTIVITY_KIND_KERNEL ORDER BY start')
    (first, second, third, fourth) = (kernels.iloc[i] for i in range(4))
    statements = [
        f'UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET "end" = {third["end"] + 5} WHERE rowid = {first["rowid"]}',
        f'UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET "end" = {third["end"] + 3} WHERE rowid = {second["rowid"]}',
    ]
    report = changed(sample, tmp_path / "report.sqlite", statements)
    translated = translated_set([report], tmp_path / "trace")
    assert translated.trace.names["THREAD"][1:] == ["CUDA-D0.S7"] * 3 + ["Metrics GPU0"]
    found = translated.intervals(KERNEL).sort_values("begin")
    assert found["row"].tolist()[:4] == [1, 2, 3, 1]
    assert fourth["start"] >= third["end"] + 5
    assert overlaps(found) == 0
    # The lines lead to the rows on which the kernels are.
    lines = translated.trace.communications.sort_values("receive_logical")
    assert lines["receive_row"].tolist()[:4] == [1, 2, 3, 1]


def test_an_operation_that_begins_as_another_ends_stays_on_its_row(samples: Path, tmp_path: Path) -> None:
    sample = samples / "mpi-4.rank0.sqlite"
    starts = Report(sample).sql("SELECT rowid, start FROM CUPTI_ACTIVITY_KIND_KERNEL ORDER BY start")
    statement = f"""UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET "end" = {starts["start"][1]}
        WHERE rowid = {starts["rowid"][0]}"""
    report = changed(sample, tmp_path / "report.sqlite", [statement])
    translated = translated_set([report], tmp_path / "trace")
    assert translated.trace.names["THREAD"] == ["r0 MPI Rank 0", "CUDA-D0.S7", "Metrics GPU0"]
    assert len(translated.intervals(KERNEL)) == len(starts)
    assert check_trace(translated.trace.path).problems == []


# ---- kernels without a call ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "statements",
    [
        ["DROP TABLE CUPTI_ACTIVITY_KIND_RUNTIME"],
        ["DELETE FROM CUPTI_ACTIVITY_KIND_RUNTIME"],
        ["UPDATE CUPTI_ACTIVITY_KIND_RUNTIME SET correlationId = NULL"],
        ["UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET correlationId = NULL"],
        ["UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET globalPid = globalPid + (1 << 24)"],
    ],
    ids=["no table", "no rows", "calls without id", "kernels without id", "another process"],
)
def test_kernels_without_a_call_are_kept_and_counted(samples: Path, tmp_path: Path, statements: Iterable[str]) -> None:
    report = changed(samples / "mpi-4.rank0.sqlite", tmp_path / "report.sqlite", statements)
    translated = translated_set([report], tmp_path / "trace")
    kernels = translated.account("kernels")
    assert (kernels.read, kernels.written) == (16, 16)
    assert len(translated.intervals(KERNEL)) == 16
    assert len(translated.trace.communications) == 0
    lines = translated.account("launch_lines")
    assert (lines.read, lines.written, sum(lines.dropped.values())) == (16, 0, 16)
    assert check_trace(translated.trace.path).problems == []


@pytest.mark.slow
def test_a_kernel_is_linked_within_its_own_process(samples: Path, tmp_path: Path) -> None:
    """Processes of one report count their calls alike: all ids of the second process are ids of the first."""
    sample = samples / "mpi-4.rank0.sqlite"
    report = Report(sample)
    later = 50_000_000
    copies = [
        f"CREATE TABLE copied AS SELECT * FROM CUPTI_ACTIVITY_KIND_{table}"
        f';UPDATE copied SET {pid} = {pid} + (1 << 24) * 5, start = start + {later}, "end" = "end" + {later}'
        f";INSERT INTO CUPTI_ACTIVITY_KIND_{table} SELECT * FROM copied;DROP TABLE copied"
        for table, pid in (("KERNEL", "globalPid"), ("RUNTIME", "globalTid"))
    ]
    twice = changed(sample, tmp_path / "twice.sqlite", ";".join(copies).split(";"))
    translated = translated_set([twice], tmp_path / "trace")
    lines = translated.trace.communications
    assert len(lines) == 2 * 16 and set(lines["tag"]) == {LAUNCH}
    assert (lines["send_task"] == lines["receive_task"]).all()
    calls = report.sql(
        """SELECT r.start AS send, k.start AS receive FROM CUPTI_ACTIVITY_KIND_KERNEL k
        JOIN CUPTI_ACTIVITY_KIND_RUNTIME r ON r.correlationId = k.correlationId"""
    )
    expected = pd.concat([calls, calls + later]) + report.utc
    found = lines.assign(
        send=lines["send_logical"] + translated.start, receive=lines["receive_logical"] + translated.start
    )
    assert compare_tables(found, expected, ["send", "receive"]) == ""
