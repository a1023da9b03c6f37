"""MPI in traces of real reports, compared with SQL and with MPI's queues walked by plain loops."""

from __future__ import annotations

import csv
import sqlite3
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pytest

from nsys2prv_ng.translation.result import SourceAccount, TranslationResult
from tests.sources.mpi import mpi_truth
from tests.sources.mpi.mpi_truth import Call, Truth
from tests.sources.small_reports import get_account, translate_reports
from tests.tiers import cases
from tests.trace_reader import Trace, pair_intervals

SENT, RECEIVED, ROOT, COLLECTIVE_COMMUNICATOR = 50100001, 50100002, 50100003, 50100004
PARTNER, TAG, BYTES, COMMUNICATOR, SOURCE, SOURCE_TAG, SOURCE_BYTES = range(50100011, 50100018)
CALLS = (50000001, 50000002, 50000003, 50000004, 50000005)
NCCL_KERNEL = 63000007
SETS = {
    "samples": "mpi-4.rank?.sqlite",
    "one report": "gpu/mpi-one-report.sqlite",
    "two nodes": "cpu/2024.2.3-2node_rank?.sqlite",
    "Open MPI": "cpu/2024.2.3-ompi_rank?.sqlite",
    "Open MPI in one report": "cpu/2024.2.3-ompi_all.sqlite",
    "MPICH in one report": "cpu/2024.2.3-mpich_all.sqlite",
    "MPICH of 2023": "cpu/2023.4.4-mpich_all.sqlite",
}
MATCHED = {"samples": 80, "one report": 60}
"""All messages of each set meet; there are 57 in the others."""


@dataclass(frozen=True)
class Translated:
    truth: Truth
    trace: Trace
    summary: TranslationResult

    @property
    def intervals(self) -> pd.DataFrame:
        in_trace = pair_intervals(self.trace, *CALLS)
        labels = [self.trace.values[t][v] for t, v in zip(in_trace["type"], in_trace["value"], strict=True)]
        start = self.summary.start_utc_ns
        return in_trace.assign(
            name=labels, begin=in_trace["begin"] + start, end=in_trace["end"] + start, rank=self.rank(in_trace)
        )

    def rank(self, in_trace: pd.DataFrame, column: str = "row") -> list[int]:
        """Ranks are the first tasks."""
        return [self.trace.task_of_row[row] - 1 for row in in_trace[column]]

    def account(self, name: str) -> SourceAccount:
        return get_account(self.summary, name)


@pytest.fixture(scope="module", params=cases(SETS, quick=["samples"]))
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def translated(
    name: str, samples: Path, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Translated:
    folder = samples if name == "samples" else request.getfixturevalue("shared_reports")
    reports = sorted(folder.glob(SETS[name]))
    assert reports
    trace, summary = translate_reports(reports, tmp_path_factory.mktemp("mpi") / "trace.prv", "mpi")
    return Translated(mpi_truth.read(reports), trace, summary)


def test_every_call_is_an_interval(translated: Translated) -> None:
    in_trace = translated.intervals[["rank", "begin", "end", "name"]].itertuples(index=False, name=None)
    expected = [call.key for call in translated.truth.calls]
    assert sorted(in_trace) == sorted(expected)


def test_rows_are_shown_or_merged(translated: Translated) -> None:
    counts, calls = translated.account("mpi"), translated.truth.calls
    merged = sum(len(call.rows) - 1 for call in calls)
    assert (counts.read, counts.written) == (len(translated.truth.rows), len(calls))
    assert counts.dropped == {"merged into another row of the same call": merged}
    assert merged > 0


def test_calls_are_classified_by_name(translated: Translated) -> None:
    types = {name: set(group["type"]) for name, group in translated.intervals.groupby("name")}
    assert types["MPI_Allreduce"] == types["MPI_Barrier"] == {50000002}
    assert types["MPI_Init_thread"] == types["MPI_Finalize"] == {50000003}
    assert types["MPI_Send"] == types["MPI_Waitall"] == types["MPI_Sendrecv"] == {50000001}
    assert types["MPI_File_open"] == types["MPI_File_write_at_all"] == types["MPI_File_close"] == {50000005}
    assert all(numbers == {50000004} for name, numbers in types.items() if name.startswith(("MPI_Win_", "MPI_Put")))
    values = dict(translated.intervals[["name", "value"]].itertuples(index=False, name=None))
    assert values["MPI_Send"] == 1 and values["MPI_Sendrecv"] == 41 and values["MPI_Init_thread"] == 31
    assert values["MPI_Allreduce"] == 10 and values["MPI_File_open"] == 141


def call_parameters(translated: Translated) -> dict[tuple[int, int, int, str], dict[int, int]]:
    """Return the other events on the line that starts each call: value by event type."""
    events = translated.trace.events
    by_line = {line: dict(zip(of["type"], of["value"], strict=True)) for line, of in events.groupby("line")}
    return {
        (rank, begin, end, name): {t: v for t, v in by_line[line].items() if t not in CALLS}
        for rank, begin, end, name, line in translated.intervals[["rank", "begin", "end", "name", "line"]].itertuples(
            index=False, name=None
        )
    }


def expected_parameters(translated: Translated, call: Call) -> dict[int, object]:
    """Parameters of a call, with labels for ranks and communicators."""
    truth, first, last = translated.truth, call.rows[0], call.rows[-1]

    def rank(row: mpi_truth.Row, column: str) -> str | None:
        local = row[column]
        if local is None:
            return None
        return f"rank {truth.map_members(truth.find_communicator(row))[local]}" if local >= 0 else "any source"

    communicator = None if first["commHandle"] is None else truth.find_communicator(first)
    if first.name.startswith("MPI_Sendrecv"):
        expected = {
            PARTNER: rank(first, "remoteRank"),
            TAG: first["tag"],
            BYTES: first["size"],
            COMMUNICATOR: communicator,
            SOURCE: rank(last, "remoteRank"),
            SOURCE_TAG: last["tag"],
            SOURCE_BYTES: last["size"],
        }
    elif first.table == "MPI_COLLECTIVES_EVENTS" and not first.name.startswith("MPI_File"):
        expected = {
            SENT: first["size"],
            RECEIVED: first["recvSize"],
            ROOT: rank(first, "rootRank"),
            COLLECTIVE_COMMUNICATOR: communicator,
        }
    else:
        expected = {
            PARTNER: rank(first, "remoteRank"),
            TAG: first["tag"],
            BYTES: first["size"],
            COMMUNICATOR: communicator,
        }
    return {event_type: value for event_type, value in expected.items() if value is not None}


def test_parameters_of_calls(translated: Translated) -> None:
    in_trace = call_parameters(translated)
    communicators: dict[int, set[object]] = {}
    for call in translated.truth.calls:
        expected, shown = expected_parameters(translated, call), dict(in_trace[call.key])
        for event_type in (ROOT, PARTNER, SOURCE):
            if event_type in shown:
                value = shown[event_type]
                label = translated.trace.values[event_type][value]
                assert label == expected.pop(event_type), call.key
                assert label == "any source" or value == int(label.split()[1]) + 1
                del shown[event_type]
        for event_type in (COMMUNICATOR, COLLECTIVE_COMMUNICATOR):
            assert (event_type in shown) == (event_type in expected), call.key
            if event_type in shown:
                communicators.setdefault(shown.pop(event_type), set()).add(expected.pop(event_type))
        assert shown == expected, call.key
    identities = [identity for of in communicators.values() for identity in of]
    assert len(identities) == len(set(identities)) == len(communicators)
    assert communicators[1] == {("world",)}


def test_amounts_end_with_their_call(translated: Translated) -> None:
    begins = {
        (row, begin): end
        for row, begin, end in zip(
            *(pair_intervals(translated.trace, *CALLS)[c] for c in ("row", "begin", "end")), strict=True
        )
    }
    checked = 0
    for event_type in (BYTES, SOURCE_BYTES, SENT, RECEIVED):
        in_trace = translated.trace.events[translated.trace.events["type"] == event_type]
        closed = {
            (row, time) for row, time in in_trace[in_trace["value"] == 0][["row", "time"]].itertuples(index=False)
        }
        for row, begin in in_trace[in_trace["value"] > 0][["row", "time"]].itertuples(index=False):
            assert (row, begins[row, begin]) in closed
            checked += 1
    assert checked > 50


def list_messages(trace: Trace) -> pd.DataFrame:
    """Return the messages of a trace, without the lines of waits."""
    return trace.communications[trace.communications["tag"] != 55005]


def test_every_message_meets_its_receive(translated: Translated, name: str) -> None:
    lines, start = list_messages(translated.trace), translated.summary.start_utc_ns
    assert (lines["send_logical"] == lines["send_physical"]).all()
    assert (lines["receive_logical"] == lines["receive_physical"]).all()
    in_trace = zip(
        translated.rank(lines, "send_row"),
        lines["send_logical"] + start,
        translated.rank(lines, "receive_row"),
        lines["receive_logical"] + start,
        lines["size"],
        lines["tag"],
        strict=True,
    )
    expected = mpi_truth.match_messages(translated.truth)
    assert sorted(in_trace) == expected
    sends, receives = mpi_truth.list_ends(translated.truth)
    assert len(expected) == len(sends) == len(receives) == MATCHED.get(name, 57)
    counts = translated.account("mpi_messages")
    assert (counts.read, counts.written, counts.dropped) == (len(expected), len(expected), {})


def test_communicators_of_the_header(translated: Translated) -> None:
    truth = translated.truth
    identities = {identity for *_, identity in truth.communicators}
    expected = Counter(
        ":".join(str(truth.map_members(identity)[local] + 1) for local in sorted(truth.map_members(identity)))
        for identity in identities
    )
    in_trace: Counter[str] = Counter()
    for number, line in enumerate(translated.trace.communicators, 1):
        kind, application, communicator, count, members = line.split(":", 4)
        assert (kind, application, communicator) == ("c", "1", str(number))
        assert int(count) == len(members.split(":"))
        in_trace[members] += 1
    assert in_trace == expected


def test_states_of_calls(translated: Translated) -> None:
    """Each call has the state of its kind for all its time, and outside of calls threads are running."""
    wanted = {
        "MPI_Send": 4,
        "MPI_Ssend": 4,
        "MPI_Recv": 3,
        "MPI_Isend": 10,
        "MPI_Irecv": 11,
        "MPI_Wait": 8,
        "MPI_Waitall": 8,
        "MPI_Test": 8,
        "MPI_Sendrecv": 16,
        "MPI_Barrier": 5,
        "MPI_Allreduce": 13,
        "MPI_Bcast": 13,
        "MPI_Iallreduce": 13,
        "MPI_File_open": 12,
        "MPI_File_write_at": 12,
        "MPI_Put": 25,
        "MPI_Win_fence": 25,
        "MPI_Init_thread": 15,
        "MPI_Finalize": 15,
    }
    calls, start = translated.intervals, translated.summary.start_utc_ns
    states = {
        (row, begin + start): (end + start, state)
        for row, begin, end, state in translated.trace.states[["row", "begin", "end", "state"]].itertuples(index=False)
    }
    checked: Counter[str] = Counter()
    for row, begin, end, call in calls[["row", "begin", "end", "name"]].itertuples(index=False):
        if call in wanted and end > begin:
            assert states[row, begin] == (end, wanted[call]), call
            checked[call] += 1
    assert {"MPI_Send", "MPI_Isend", "MPI_Sendrecv", "MPI_Waitall", "MPI_Barrier", "MPI_File_open"} <= set(checked)
    per_row = calls.assign(length=calls["end"] - calls["begin"]).groupby("row")["length"].sum()
    running = translated.trace.states[translated.trace.states["state"] == 1]
    outside = (running["end"] - running["begin"]).groupby(running["row"]).sum()
    limits = calls.groupby("row").agg(first=("begin", "min"), last=("end", "max"))
    assert (per_row + outside == limits["last"] - limits["first"]).all()


def test_calls_that_nsys_counts(samples: Path, shared_reports: Path, tmp_path: Path) -> None:
    """`nsys stats` counts rows; those that were merged are what the trace has less."""
    report = samples / "mpi-4.rank0.sqlite"
    trace, summary = translate_reports([report], tmp_path / "trace.prv", "mpi")
    in_trace = pair_intervals(trace, *CALLS)
    names = Counter(trace.values[t][v] for t, v in zip(in_trace["type"], in_trace["value"], strict=True))
    times = in_trace.assign(name=[trace.values[t][v] for t, v in zip(in_trace["type"], in_trace["value"], strict=True)])
    total = (times["end"] - times["begin"]).groupby(times["name"]).sum()
    merged = 0
    with (shared_reports / "gold/mpi-4.rank0_mpi_event_sum.csv").open() as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        instances, name = int(row["Instances"]), row["Name"]
        if name in ("MPI_Sendrecv", "MPI_Waitall"):
            assert instances == 2 * names[name]
            merged += names[name]
        else:
            assert instances == names[name]
        if name != "MPI_Waitall":
            assert int(row["Total Time (ns)"]) == total[name]
        else:
            assert int(row["Total Time (ns)"]) == 2 * total[name]
    assert {row["Name"] for row in rows} == set(names)
    assert get_account(summary, "mpi").dropped == {"merged into another row of the same call": merged}


@pytest.mark.slow
def test_reports_of_some_ranks_only(shared_reports: Path, tmp_path: Path) -> None:
    """Ranks 0 and 1 of four: what went to and fro between them is known, and the rest is counted."""
    reports = sorted((shared_reports / "cpu").glob("2023.4.4-2node_rank?.sqlite"))
    trace, summary = translate_reports(reports, tmp_path / "trace.prv", "mpi")
    counts = get_account(summary, "mpi_messages")
    truth = mpi_truth.read(reports)
    # Ranks of communicators that only the missing reports record are unknown; only those of the world are needed here.
    world = {("world",): {rank: rank for rank in range(4)}}
    truth.map_members = lambda identity: world.get(identity) or Truth.map_members(truth, identity)  # type: ignore[method-assign]
    between = [0, 0]
    for row in truth.rows:
        if row.name in ("MPI_Send", "MPI_Ssend", "MPI_Isend") and truth.find_communicator(row) == ("world",):
            between[row.rank] += row["remoteRank"] == 1 - row.rank
    sendrecv, persistent = 3, 2
    assert between == [3 + 1 + 6, 0]
    messages = list_messages(trace)
    assert len(messages) == counts.written == between[0] + sendrecv + persistent == 15
    assert set(messages["send_row"]) == {0} and set(messages["receive_row"]) == {1}
    assert counts.dropped == {"its partner is a rank without a report": 27, "received, and no send was recorded": 3}
    assert counts.read == counts.written + 30


@pytest.mark.slow
def test_reports_before_2023_show_calls(shared_reports: Path, tmp_path: Path) -> None:
    """They hold MPI as ranges of the NVTX domain MPI, which are calls then, and no NVTX beside them."""
    reports = sorted((shared_reports / "cpu").glob("2022.4.2-ompi_rank?.sqlite"))
    assert len(reports) == 2
    trace, summary = translate_reports(reports, tmp_path / "trace.prv", "mpi,nvtx")
    expected: Counter[tuple[int, str, int]] = Counter()
    for rank, report in enumerate(reports):
        connection = sqlite3.connect(f"{report.as_uri()}?mode=ro&immutable=1", uri=True)
        query = """SELECT COALESCE(n.text, s.value), n.end - n.start FROM NVTX_EVENTS n
                   LEFT JOIN StringIds s ON s.id = n.textId WHERE n.eventType = 59"""
        expected.update((rank, *row) for row in connection.execute(query))
        connection.close()
    in_trace = pair_intervals(trace, *CALLS)
    labels = [trace.values[t][v] for t, v in zip(in_trace["type"], in_trace["value"], strict=True)]
    lengths = in_trace["end"] - in_trace["begin"]
    ranks = [int(trace.names["THREAD"][row].rpartition("MPI Rank ")[2]) for row in in_trace["row"]]
    assert Counter(zip(ranks, labels, lengths, strict=True)) == expected
    assert sum(expected.values()) == get_account(summary, "mpi").written == get_account(summary, "mpi").read == 158
    assert get_account(summary, "nvtx").read == 0
    assert set(trace.types) <= {*CALLS, NCCL_KERNEL}  # every .pcf declares the type of NCCL's kernels
    assert trace.communications.empty
    counts = get_account(summary, "mpi_messages")
    assert set(counts.dropped) == {"its partner is not recorded"}

    without, summary = translate_reports(reports, tmp_path / "nvtx.prv", "nvtx")
    assert get_account(summary, "nvtx").written == 158
    assert 50000001 not in without.types


@pytest.mark.slow
def test_another_order_of_reports_gives_the_same_trace(samples: Path, tmp_path: Path) -> None:
    reports = sorted(samples.glob("mpi-4.rank?.sqlite"))
    for folder in ("one", "other"):
        (tmp_path / folder).mkdir()
    one, _ = translate_reports(reports, tmp_path / "one/trace.prv", "mpi")
    other, _ = translate_reports(reports[::-1], tmp_path / "other/trace.prv", "mpi")
    for suffix in (".prv", ".pcf", ".row"):
        assert one.path.with_suffix(suffix).read_bytes() == other.path.with_suffix(suffix).read_bytes()
