"""Tables against the records of the trace of the same reports: the same times, from the same time 0."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pytest

import nsys2prv_ng
from nsys2prv_ng import JobSummary, OpenJob
from tests.report_sets import find_set, sets
from tests.trace_reader import Trace, pair_intervals, read_trace

pytestmark = pytest.mark.slow

SETS = ("samples/ddp-2x2", "samples/mpi-4", "samples/single-graph", "exercises/ex3a-pp2")
OF_EVENTS = {
    "kernels": (63000006, 63000007),
    "copies": (63000001,),
    "cuda_calls": (63000000,),
    "mpi_calls": range(50000001, 50000006),
    "os_calls": (66400000, 61000000, 66410000),
}
PART, STEP, HOST_STEP, IDLE, PATH, WAITED_FOR = 63000410, 63000430, 63000431, 63000403, 63000420, 63000411
NCCL, ON_GPU = 55004, range(20, 36)


@dataclass
class Made:
    """A job, its trace and its summary, of all time."""

    job: OpenJob
    trace: Trace
    summary: JobSummary

    def intervals(self, *types: int) -> pd.DataFrame:
        found = pair_intervals(self.trace, *types)
        tables = [self.trace.values.get(each, {}) for each in found["type"]]
        return found.assign(name=[table.get(value, "") for table, value in zip(tables, found["value"], strict=True)])


@pytest.fixture(scope="module", params=sets(SETS, push=SETS))
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Made:
    reports = find_set(request.param)
    output = tmp_path_factory.mktemp("traces") / "trace.prv"
    nsys2prv_ng.translate(reports, output)
    with nsys2prv_ng.open(reports) as job:
        yield Made(job, read_trace(output), nsys2prv_ng.summarize(reports))


def count(frame: pd.DataFrame, *columns: str) -> Counter[tuple[object, ...]]:
    return Counter(zip(*(frame[column].tolist() for column in columns), strict=True))


def test_events(made: Made) -> None:
    for table, types in OF_EVENTS.items():
        found = made.intervals(*types)
        shown = getattr(made.job, table)
        assert count(shown, "start_ns", "end_ns", "name") == count(found, "begin", "end", "name"), table


def test_ranges_and_their_projections(made: Made) -> None:
    types = [kind for kind, label in made.trace.types.items() if label.startswith("NVTX")]
    ranges = made.intervals(*(kind for kind in types if kind % 100 == 0 or kind % 100 >= 60))
    own = made.job.nvtx[made.job.nvtx["class"] != "mark"]
    assert count(own, "start_ns", "end_ns", "name") == count(ranges, "begin", "end", "name")
    projected = made.intervals(*(kind for kind in types if kind % 100 in ON_GPU))
    assert count(made.job.nvtx_on_gpu, "start_ns", "end_ns", "name") == count(projected, "begin", "end", "name")


def test_waits(made: Made) -> None:
    parts = made.intervals(PART)
    waits = made.job.waits
    lengths = parts["end"] - parts["begin"]
    assert waits["wait_ns"].sum() == lengths[parts["name"] == "Wait"].sum()
    assert waits["transfer_ns"].sum() == lengths[parts["name"] == "Transfer"].sum()
    blamed = waits[waits["last_rank"].notna()]
    released = made.intervals(WAITED_FOR)
    assert sorted(blamed["start_ns"]) == sorted(released["begin"])
    named = released["name"].astype(str).str.extract(r"ank (\d+)")[0].astype("int64")
    assert Counter(blamed["last_rank"].tolist()) == Counter(named.tolist())


def test_collectives(made: Made) -> None:
    """Each rank has one part; the last to arrive waits for nobody, and all others wait for it."""
    collectives = made.job.collectives
    kernels_and_calls = count(pd.concat([made.job.kernels, made.job.mpi_calls]), "rank", "start_ns", "end_ns")
    assert not [key for key in count(collectives, "rank", "start_ns", "end_ns") if key not in kernels_and_calls]
    calls = made.job.mpi_calls.merge(collectives, on=["rank", "thread", "start_ns", "end_ns"], suffixes=("", "_of_all"))
    assert calls["communicator"].astype(str).equals(calls["communicator_of_all"].astype(str))
    checked = 0
    for _, parts in collectives.groupby("collective"):
        assert parts["rank"].is_unique
        assert parts["name"].nunique() == parts["communicator"].nunique() == 1
        is_all = parts["name"].isin(["ncclAllReduce", "ncclAllGather", "ncclReduceScatter", "MPI_Allreduce"]).all()
        if is_all and parts["last_rank"].notna().all() and parts["wait_ns"].notna().all():
            last = parts["start_ns"].max()
            assert parts.loc[parts["start_ns"].idxmax(), "rank"] == parts["last_rank"].iloc[0]
            expected = np.minimum(last, parts["end_ns"]) - parts["start_ns"]
            several = collectives.duplicated(["rank", "start_ns"], keep=False)[parts.index]
            assert (parts["wait_ns"][~several] == expected[~several]).all()
            checked += 1
    assert checked or not len(collectives)
    known = collectives["wait_ns"].notna()
    lengths = collectives["end_ns"] - collectives["start_ns"]
    assert (collectives["wait_ns"] + collectives["transfer_ns"])[known].eq(lengths[known]).all()


def test_messages(made: Made) -> None:
    lines = made.trace.communications
    lines = lines[~lines["tag"].isin([55001, 55002, 55005, 55006])]
    messages = made.job.messages
    nccl = messages[messages["class"] == "NCCL"]
    of_nccl = lines[lines["tag"] == NCCL]
    assert count(nccl, "start_ns", "bytes") == count(of_nccl, "send_logical", "size")
    of_mpi = lines[lines["tag"] != NCCL]
    own = messages[messages["class"] == "MPI"]
    assert count(own, "start_ns", "end_ns", "bytes") == count(of_mpi, "send_logical", "receive_logical", "size")


def test_steps(made: Made) -> None:
    hosts = made.intervals(HOST_STEP)
    steps = made.job.steps
    assert count(steps, "host_start_ns", "host_end_ns") == count(hosts, "begin", "end")
    if len(steps):
        of_job = made.intervals(STEP)
        assert steps.groupby("step")["end_ns"].max().tolist() == sorted(of_job["end"].unique())
        assert steps["is_warmup"].sum() == made.summary.start_up.warmup * steps["rank"].nunique()
        launched = made.job.kernels.merge(steps, on=["rank", "step"], suffixes=("", "_of_step"))
        assert (launched["launch_ns"] <= launched["host_end_ns"]).all()
        assert len(launched) == made.job.kernels["step"].notna().sum()


def test_gaps(made: Made) -> None:
    """The pieces of a gap follow each other, and the gaps are those of the trace."""
    events = made.trace.events[made.trace.events["type"] == IDLE]
    gaps = made.job.gaps
    each = gaps.drop_duplicates(["node", "gpu", "gap_start_ns"])
    lengths = each["gap_end_ns"] - each["gap_start_ns"]
    assert Counter(zip(each["gap_end_ns"], lengths, strict=True)) == count(events, "time", "value")
    for (_, _, start), pieces in gaps.groupby(["node", "gpu", "gap_start_ns"], observed=True):
        pieces = pieces.sort_values("start_ns")
        assert pieces["start_ns"].tolist() == [start, *pieces["end_ns"][:-1]]
        assert pieces["end_ns"].iloc[-1] == pieces["gap_end_ns"].iloc[0]


def test_critical_path(made: Made) -> None:
    """Its segments follow each other through the steps, and take as long by kind as in the summary."""
    path = made.job.critical_path
    lengths = path["end_ns"] - path["start_ns"]
    assert (path["start_ns"].iloc[1:].to_numpy() == path["end_ns"].iloc[:-1].to_numpy()).all()
    numbers = made.summary.critical_path
    by_kind = lengths.groupby(path["class"], observed=True).sum()
    assert sorted(by_kind[by_kind > 0]) == sorted(ns for ns in numbers.classes.values() if ns)
    assert lengths.sum() == numbers.length_ns
    by_rank = lengths[path["rank"] >= 0].groupby(path["rank"]).sum().to_dict()
    assert by_rank == {each.rank: each.ns for each in numbers.ranks if each.rank is not None}
