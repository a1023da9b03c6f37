"""Records of waits in a trace, compared by plain loops with the kernels, calls and states of the same trace."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from nsys2prv_ng import translate
from nsys2prv_ng.translation.result import TranslationResult
from tests.conftest import SAMPLES
from tests.spans import list_report_sets
from tests.trace_reader import Trace, pair_intervals, read_trace

pytestmark = pytest.mark.slow

KERNEL, NCCL_KERNEL, GRAPH, MEMORY, MPI = 63000006, 63000007, 63000008, 63000001, (50000001, 50000002, 50000003)
BETWEEN = 13
"""The value of memory operations that are copies between GPUs."""
PART, WAITED_FOR, REASON, GPU, LATENESS = range(63000410, 63000415)
WAITING, MOVING = 1, 2
SYNCHRONIZATION, GROUP_COMMUNICATION = 5, 13
SETS = (*("samples/ddp-2x2", "gpu/mpi-4", "gpu/oneproc-4gpu", "exercises/ex2b-overlap", "exercises/ex3a-pp2"),)
PLACE = ["row", "begin", "end"]


@dataclass(frozen=True)
class Made:
    result: TranslationResult
    trace: Trace

    def intervals(self, *types: int) -> pd.DataFrame:
        return pair_intervals(self.trace, *types)

    def find_copies(self) -> pd.DataFrame:
        """Copies between GPUs."""
        return self.intervals(MEMORY).query("value == @BETWEEN")

    def find_nccl(self) -> pd.DataFrame:
        return self.intervals(NCCL_KERNEL)


def make(folder: Path, reports: list[Path], **keywords: object) -> Made:
    result = translate(reports, folder / "x.prv", **keywords)  # type: ignore[arg-type]
    return Made(result, read_trace(folder / "x.prv"))


@pytest.fixture(scope="module", params=list_report_sets(SETS, push=["samples/ddp-2x2", "gpu/oneproc-4gpu"]))
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Made:
    return make(tmp_path_factory.mktemp("waits"), [Path(report) for report in request.param])


def test_parts_fill_their_kernels_and_calls(made: Made) -> None:
    """Waiting comes first, moving fills the rest, and nothing else has parts."""
    parts = made.intervals(PART).sort_values(["row", "begin"])
    owners = pd.concat([made.intervals(NCCL_KERNEL, *MPI), made.find_copies()]).sort_values(["row", "begin"])
    split = 0
    by_row = dict(iter(parts.groupby("row")))
    for row, kernels in owners.groupby("row"):
        own = by_row.pop(row, parts[:0])
        begins = own["begin"].to_numpy()
        for begin, end in zip(kernels["begin"], kernels["end"], strict=True):
            inside = own[np.searchsorted(begins, begin) : np.searchsorted(begins, end)]
            if inside.empty:
                continue
            split += 1
            assert inside["value"].tolist() in ([WAITING], [MOVING], [WAITING, MOVING])
            assert inside["begin"].iloc[0] == begin and inside["end"].iloc[-1] == end
            assert (inside["end"].to_numpy()[:-1] == inside["begin"].to_numpy()[1:]).all()
    assert by_row == {} and split > 0
    account = next(account for account in made.result.sources if account.name == "waits")
    below = sum(count for reason, count in account.dropped.items() if "counted as transfer" in reason)
    assert account.read == account.written + sum(account.dropped.values())
    assert split == account.written + below


def test_who_is_waited_for_shows_while_a_rank_waits(made: Made) -> None:
    waiting = made.intervals(PART).query("value == @WAITING")
    blamed = made.intervals(WAITED_FOR)
    assert blamed[PLACE].merge(waiting[PLACE]).shape[0] == len(blamed) > 0
    assert made.intervals(REASON)[PLACE].equals(blamed[PLACE])
    tasks = made.trace.names["TASK"]
    assert set(made.trace.get_labels(WAITED_FOR, blamed["value"])) <= set(tasks)
    own = np.array(made.trace.task_of_row)[blamed["row"]]
    devices = [name for name in made.trace.names["THREAD"] if name.startswith("CUDA")]
    if len(devices) == 0 or len(tasks) > 1:  # one process may wait for a kernel of its own on another GPU
        assert (own != blamed["value"]).all()


def test_a_stream_that_waits_is_in_synchronization(made: Made) -> None:
    states = made.trace.states[made.trace.states["state"].isin([SYNCHRONIZATION, GROUP_COMMUNICATION])]
    streams = {row for row, name in enumerate(made.trace.names["THREAD"]) if name.startswith("CUDA")}
    waiting = made.intervals(PART).query("value == @WAITING")
    on_streams = waiting[waiting["row"].isin(streams)]
    found = states[states["row"].isin(streams) & (states["state"] == SYNCHRONIZATION)]
    assert sorted(map(tuple, found[PLACE].to_numpy())) == sorted(map(tuple, on_streams[PLACE].to_numpy()))
    nccl = made.find_nccl()
    both = states[states["row"].isin(streams)]
    assert (both["end"] - both["begin"]).sum() == (nccl["end"] - nccl["begin"]).sum()


def test_lines_go_from_the_last_to_those_that_it_released(made: Made) -> None:
    lines = made.trace.communications.query("tag == 55005")
    waits = made.intervals(WAITED_FOR)
    long = waits[waits["end"] - waits["begin"] >= 100_000]
    account = next((a for a in made.result.sources if a.name == "wait_lines"), None)
    assert account is not None and account.written == len(lines) <= len(long)
    ends = {(row, end): value for row, end, value in zip(long["row"], long["end"], long["value"], strict=True)}
    late = {(row, begin) for row, begin in made.intervals(LATENESS)[["row", "begin"]].to_numpy().tolist()}
    for line in lines.itertuples():
        assert ends[line.receive_row, line.receive_logical] == made.trace.task_of_row[line.send_row]
        assert (line.send_row, line.send_logical) in late
        assert line.receive_logical - line.send_logical >= 0


def test_every_time_of_a_gpu_has_the_value_of_its_kernels(made: Made) -> None:
    """At each time between two changes: compute, communication and its parts, memory, or nothing."""
    events = made.trace.events.query("type == @GPU")
    if not (made.trace.events["type"] == NCCL_KERNEL).any():
        assert events.empty
        return
    names = made.trace.names["THREAD"]
    node_of_row = [made.trace.nodes[task - 1] for task in made.trace.task_of_row]
    gpus = {(node_of_row[row], name.split("GPU")[1]): row for row, name in enumerate(names) if "Metrics GPU" in name}
    of_stream = {
        row: gpus[node_of_row[row], name.split("-D")[1].split(".")[0]]
        for row, name in enumerate(names)
        if name.startswith("CUDA-D")
    }
    spans = []
    for kind, types in (
        ("compute", (KERNEL, GRAPH)),
        ("nccl", (NCCL_KERNEL,)),
        ("memory", (MEMORY,)),
        ("part", (PART,)),
    ):
        found = made.intervals(*types)
        kinds = found["value"].map({WAITING: "waiting", MOVING: "moving"}) if kind == "part" else kind
        if kind == "memory":
            kinds = np.where(found["value"] == BETWEEN, "nccl", kind)
        spans.append(found.assign(kind=kinds))
    table = pd.concat(spans)
    table = table[table["row"].isin(of_stream)]
    table["gpu"] = table["row"].map(of_stream)
    checked = Counter[int]()
    for gpu, operations in table.groupby("gpu"):
        changes = events[events["row"] == gpu]
        times = np.unique(np.concatenate([operations["begin"], operations["end"], changes["time"]]))
        value = changes.drop_duplicates("time", keep="last")
        at = np.searchsorted(value["time"].to_numpy(), times, "right") - 1
        shown = np.where(at >= 0, value["value"].to_numpy()[at], 0)
        running = {}
        for kind in ("compute", "nccl", "memory", "waiting", "moving"):
            own = operations[operations["kind"] == kind]
            begins, ends = np.sort(own["begin"].to_numpy()), np.sort(own["end"].to_numpy())
            running[kind] = np.searchsorted(begins, times, "right") - np.searchsorted(ends, times, "right")
        for i in range(times.size - 1):
            n = {kind: count[i] for kind, count in running.items()}
            if n["nccl"]:
                unsplit = n["nccl"] - n["waiting"] - n["moving"]
                which = "moving" if n["moving"] else "unsplit" if unsplit else "waiting"
                expected = {"moving": (3, 2), "unsplit": (8, 9), "waiting": (4, 5)}[which][int(n["compute"] > 0)]
            else:
                expected = 1 if n["compute"] else 6 if n["memory"] else 7
            assert shown[i] == expected, (gpu, times[i], n)
            checked[expected] += int(times[i + 1] - times[i])
        assert shown[-1] == 0
    assert len(checked) >= 4


@pytest.mark.all_sets
def test_parts_of_a_window_are_cut_from_those_of_the_whole(tmp_path: Path) -> None:
    reports = sorted(SAMPLES.glob("ddp-2x2.*.sqlite"))
    whole = make(tmp_path, reports)
    parts = whole.intervals(PART).query("value == @WAITING").sort_values("begin")
    low, high = int(parts["begin"].iloc[3]) + 10, int(parts["end"].iloc[-4]) - 10
    (tmp_path / "cut").mkdir()
    cut = make(tmp_path / "cut", reports, time=(low, high))
    shift = whole.result.start_utc_ns - cut.result.start_utc_ns
    for event_type in (PART, WAITED_FOR, REASON):
        before, after = whole.intervals(event_type), cut.intervals(event_type)
        inside = before[(before["end"] > low) & (before["begin"] < high)]
        begin, end = inside["begin"].clip(lower=low) + shift, inside["end"].clip(upper=high) + shift
        # What was launched before the window has no reason there.
        value = [0] * len(inside) if event_type == REASON else inside["value"]
        expected = sorted(zip(inside["row"], begin, end, value, strict=True))
        shown = after.assign(value=0) if event_type == REASON else after
        assert expected == sorted(shown[[*PLACE, "value"]].itertuples(index=False, name=None))
    account = next(account for account in cut.result.sources if account.name == "waits")
    assert account.read == account.written + sum(account.dropped.values()) and account.written >= 0


def test_nothing_is_derived_unasked(tmp_path: Path) -> None:
    reports = sorted(SAMPLES.glob("ddp-2x2.*.sqlite"))
    plain = make(tmp_path, reports, derived=False)
    assert not set(range(63000410, 63000440)) & set(plain.trace.types)
    assert 55005 not in set(plain.trace.communications["tag"])
    assert (
        not plain.trace.states["state"]
        .eq(SYNCHRONIZATION)
        .where(plain.trace.states["row"].map(lambda row: plain.trace.names["THREAD"][row].startswith("CUDA")), False)
        .any()
    )
    names = [account.name for account in plain.result.sources]
    assert not {"waits", "wait_lines", "gpu_waits"} & set(names)


def test_the_shortest_wait_with_a_line(tmp_path: Path) -> None:
    made = make(tmp_path, sorted(SAMPLES.glob("ddp-2x2.*.sqlite")), wait_lines=0)
    waits = made.intervals(WAITED_FOR)
    assert len(made.trace.communications.query("tag == 55005")) == len(waits) > 0
