"""Labels of rows: what they say, and that no two rows share one but those that BasicAnalysis wants so."""

from __future__ import annotations

import re
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsys2prv_ng import inspect, translate
from nsys2prv_ng.objects.places import Device, Node, NodePart, Place, Stream, Thread
from nsys2prv_ng.objects.tasks import FOLDED, LabelledTask, Row, RowKey, RowKind, label_rows
from nsys2prv_ng.paraver.model import TaskRows, TraceModel, format_row
from nsys2prv_ng.report.metadata import Metadata
from tests.analysis.path.path_reports import Capture
from tests.report.test_metadata import init
from tests.sources.nccl.nccl_reports import write_nccl_report
from tests.trace_reader import read_trace

FIXED = re.compile(r"CUDA-D\d+\.S\d+|Metrics GPU\d+", re.ASCII)


def name_threads(names: dict[int, str]) -> Metadata:
    return Metadata("3.20.3", "2025.3", "host", 0, 0, None, {}, {}, names, {}, {}, {}, {})


def make_task(
    rank: int | None, node: str, pid: int, threads: dict[int, str], others: tuple[Place, ...] = (), folded: int = 0
) -> LabelledTask:
    """Return a task with the threads of these ids and names, the last `folded` of them on one row."""
    names = {pid << 24 | tid: name for tid, name in threads.items()}
    metadata = name_threads(names)
    rows = [
        Row(RowKey(RowKind.THREAD, -1, (tid & 0xFFFFFF != pid, tid & 0xFFFFFF)), metadata, Thread(tid)) for tid in names
    ]
    shared = rows[len(rows) - folded :]
    if folded:
        rows[len(rows) - folded :] = [Row(RowKey(RowKind.THREAD, -1, (FOLDED, folded)), metadata, shared[0].place)]
    for place in others:
        if isinstance(place, Stream):
            key = RowKey(RowKind.STREAM, place.device, (place.stream, place.context, place.lane))
        elif isinstance(place, Device):
            key = RowKey(RowKind.DEVICE, place.gpu, ())
        elif isinstance(place, NodePart):
            key = RowKey(RowKind.NODE_PART, -1, (place.key, place.port, place.suffix, False))
        else:
            key = RowKey(RowKind.NODE, -1, ())
        rows.append(Row(key, metadata, place))
    return LabelledTask(rows, [names[row.place.global_tid] for row in shared], rank, node)  # type: ignore[union-attr]


def test_threads_carry_the_rank_and_where_two_are_alike_their_id() -> None:
    gpu = (Stream(0, 0, 1, 7, 0), Stream(0, 0, 1, 7, 1), Device(0))
    names = {10: "python3", 11: "pt_autograd_0", 12: "python3"}
    tasks = [make_task(rank, f"n{rank}", 10, names, gpu) for rank in (0, 12)]
    assert label_rows(tasks) == [
        [f"r{rank} python3 10", f"r{rank} pt_autograd_0", f"r{rank} python3 12", *["CUDA-D0.S7"] * 2, "Metrics GPU0"]
        for rank in (0, 12)
    ]


def test_a_child_has_the_rank_of_its_parent_and_ids_where_names_repeat() -> None:
    tasks = [make_task(3, "n", 10, {10: "python3"}), *(make_task(3, "n", pid, {pid: "loader"}) for pid in (20, 30))]
    assert label_rows(tasks) == [["r3 python3"], ["r3 loader 20"], ["r3 loader 30"]]


def test_one_id_on_two_nodes_or_in_two_containers() -> None:
    """Without ranks, the node tells them apart, and else a number."""
    tasks = [make_task(None, node, 10, {10: "train"}) for node in ("a", "b", "b")]
    assert label_rows(tasks) == [["a train 10"], ["b train 10"], ["b train 10-2"]]


def test_rows_of_nodes_carry_the_node_where_there_are_several() -> None:
    card = NodePart("NIC mlx5_0", (1,))
    assert label_rows([make_task(None, "a", 0, {}, (Node(), card))]) == [["node", "NIC mlx5_0"]]
    tasks = [make_task(None, node, 0, {}, (Device(0), Node(), card)) for node in ("a", "b")]
    assert label_rows(tasks) == [["Metrics GPU0", f"{node} node", f"{node} NIC mlx5_0"] for node in ("a", "b")]


def test_a_thread_that_is_named_like_a_stream() -> None:
    """BasicAnalysis would take it for one."""
    streams = (Stream(0, 0, 1, 7, 0),)
    assert label_rows([make_task(None, "a", 10, {10: "CUDA-D0.S7"}, streams)]) == [["CUDA-D0.S7 10", "CUDA-D0.S7"]]


NAMES = st.sampled_from(
    [
        "python3",
        "python3 10",
        "r0 python3",
        "other threads (2)",
        "node",
        "CUDA-D0.S7",
        "Metrics GPU0",
        "a\nb",
        "a b",
        "",
        *["LEVEL TASK SIZE 3", "x" * 600, "x" * 601, "a python3", "\x1b[31m", "python3-2"],
    ]
)
TASKS = st.builds(
    make_task,
    st.sampled_from([None, None, 0, 1]),
    st.sampled_from(["a", "b"]),
    st.sampled_from([10, 11]),
    st.dictionaries(st.integers(10, 13), NAMES, max_size=4),
    st.sampled_from(
        [(), (Stream(0, 0, 1, 7, 0), Device(0)), (Node(), NodePart("node", (1,)), NodePart("python3", (2,)))]
    ),
)


@settings(max_examples=40, deadline=None)
@given(st.lists(TASKS, max_size=5))
def test_all_other_labels_are_unique_whatever_the_names(tasks: list[LabelledTask]) -> None:
    labels = label_rows(tasks)
    is_fixed = [[row.key.kind in (RowKind.STREAM, RowKind.DEVICE) for row in task.rows] for task in tasks]
    flat = [
        (label, fixed)
        for own, marks in zip(labels, is_fixed, strict=True)
        for label, fixed in zip(own, marks, strict=True)
    ]
    assert all(FIXED.fullmatch(label) for label, fixed in flat if fixed)
    times = Counter(label for label, _ in flat)
    assert all(times[label] == 1 for label, fixed in flat if not fixed)
    for task, own in zip(tasks, labels, strict=True):
        of_threads = [label for label, row in zip(own, task.rows, strict=True) if row.key.kind == RowKind.THREAD]
        assert task.rank is None or all(f"r{task.rank} " in label for label in of_threads)

    # The file has them as they are, also those that are too long, and one line for each.
    text = format_row(TraceModel(["a"], [TaskRows("t", 0, own) for own in labels]), "x")
    lines = text.split("LEVEL THREAD SIZE ")[1].split("\nLEVEL SYSTEM")[0].splitlines()[1:]
    lines = lines[: len(flat)]
    assert len(lines) == len(flat) and all(line.isprintable() for line in lines)
    cpus = text.split("LEVEL CPU SIZE ")[1].splitlines()[1:]
    assert [cpu.partition(" ")[2] for cpu in cpus] == lines
    assert all(Counter(lines)[line] == 1 for line, (_, fixed) in zip(lines, flat, strict=True) if not fixed)


def test_a_row_has_the_same_label_with_threads_folded(tmp_path: Path) -> None:
    """The main thread has its id since idle threads have its name, also where these share a row."""
    capture = Capture()
    capture.call("cudaFree", 1_000, 2_000)
    for thread in (1, 2):
        capture.system_call("poll", 10_000, 90_000, thread)
    report = capture.write(tmp_path / "x.sqlite")
    tids = [Capture().get_tid(thread) & 0xFFFFFF for thread in range(3)]
    with closing(sqlite3.connect(report)) as database, database:
        database.execute("CREATE TABLE IF NOT EXISTS ThreadNames (nameId INTEGER, priority INTEGER, globalTid INTEGER)")
        database.execute("INSERT INTO StringIds SELECT MAX(id) + 1, 'python3' FROM StringIds")
        for thread in range(3):
            database.execute(
                "INSERT INTO ThreadNames SELECT MAX(id), 0, ? FROM StringIds", (Capture().get_tid(thread),)
            )
    rows = []
    for fold in (False, True):
        translate([report], tmp_path / "x.prv", fold_threads=fold, force=True)
        rows.append([name.removeprefix("r0 python3") for name in read_trace(tmp_path / "x.prv").names["THREAD"]])
    assert rows[0] == [f" {tid}" for tid in tids]
    assert rows[1] == [f" {tids[0]}", "r0 other threads (2)"]


# ---- ranks of NCCL ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("of_nccl", "says"),
    [
        ([2, 0, 1], ["SLURM_PROCID: rank 0 is NCCL's rank 2;"]),
        ([0, 2, 1], ["SLURM_PROCID: rank 1 is NCCL's rank 2;"]),
        ([0, 1, 2], []),
        ([1, 0, 1], []),  # communicators of fewer ranks
        ([1, 0, 3], []),  # one with ranks that have no report
        ([1, None, 2], []),  # a capture that began later
    ],
)
def test_ranks_of_nccl_in_another_order(of_nccl: list[int | None], says: list[str], tmp_path: Path) -> None:
    """torchrun numbered the nodes anew: names of ranks stay those by SLURM_PROCID."""
    reports = [
        write_nccl_report(
            tmp_path / f"{number}.sqlite",
            [init(70 + number, rank, ranks=4) if rank is not None else init(70 + number, 9, ranks=4)],
            environment=f"SLURM_PROCID={number}",
        )
        for number, rank in enumerate(of_nccl)
    ]
    found = inspect(reports)
    warnings = [warning for warning in found.warnings if "NCCL has the 3 ranks in another order than" in warning]
    assert len(warnings) == len(says) and all(text in warning for text, warning in zip(says, warnings, strict=True))
    assert sorted(report.ranks for report in found.reports) == [[0], [1], [2]]
