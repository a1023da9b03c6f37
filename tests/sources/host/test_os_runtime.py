"""Calls of the operating system against plain SQL on the reports."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pandas as pd
import pytest

from nsys2prv_ng.sources.host.operating_system import choose_call_state
from nsys2prv_ng.sources.shared.reasons import AFTER_ALL_ELSE
from nsys2prv_ng.sources.shared.source_options import SourceOptions
from tests.sources.host.host_reports import (
    UTC,
    collect_in_report_time,
    cut_idle_calls,
    find_idle_threads,
    get_account,
    make_tid,
    number_thread_rows,
    sum_painted,
    translate_sources,
    write_small_report,
)
from tests.spans import list_reports_with
from tests.trace_reader import compare_tables

OS_RUNTIME, PTHREAD = 66400000, 61000000
RUNNING, BLOCKED, INPUT_OUTPUT = 1, 9, 12
COLUMNS = "start end eventClass globalTid nameId"
# What Extrae calls the variants of a call.
EXTRAE = {
    "pthread_mutex_lock": (8, "pthread_mutex_*lock"),
    "pthread_mutex_trylock": (8, "pthread_mutex_*lock"),
    "pthread_cond_wait": (12, "pthread_cond_*wait"),
    "pthread_cond_timedwait": (12, "pthread_cond_*wait"),
    "pthread_rwlock_wrlock": (5, "pthread_rwlock_*wrlock"),
    "pthread_rwlock_trywrlock": (5, "pthread_rwlock_*wrlock"),
    "pthread_rwlock_rdlock": (6, "pthread_rwlock_*rdlock"),
    "pthread_create": (2, "pthread_create"),
    "pthread_join": (3, "pthread_join"),
    "pthread_cond_signal": (10, "pthread_cond_signal"),
    "pthread_cond_broadcast": (11, "pthread_cond_broadcast"),
    "pthread_barrier_wait": (13, "pthread_barrier_wait"),
    "pthread_spin_trylock": (106, "pthread_spin_trylock"),
}

# Those of the calls in the reports that wait, and those that read and write.
BLOCKING = """poll select epoll_wait epoll_pwait futex accept connect recv recvmsg recvfrom sem_wait sem_timedwait
    sem_clockwait sleep usleep nanosleep clock_nanosleep waitid waitpid system pthread_join pthread_barrier_wait
    pthread_cond_wait pthread_cond_timedwait pthread_mutex_lock pthread_rwlock_rdlock pthread_rwlock_wrlock"""
READING_OR_WRITING = "read pread write pwrite writev fread fwrite fgets getc putc getdelim fflush fsync"
STATES = dict.fromkeys(BLOCKING.split(), BLOCKED) | dict.fromkeys(READING_OR_WRITING.split(), INPUT_OUTPUT)


def _expected(path: Path) -> tuple[int, pd.DataFrame]:
    connection = sqlite3.connect(path)
    utc = connection.execute("SELECT utcEpochNs FROM TARGET_INFO_SESSION_START_TIME").fetchone()[0]
    frame = pd.read_sql_query(
        """SELECT o.start AS begin, o."end", o.globalTid AS tid, s.value AS name FROM OSRT_API o
        JOIN StringIds s ON s.id = o.nameId WHERE o.eventClass = 27""",
        connection,
    )
    connection.close()
    return utc, frame


@pytest.mark.parametrize(
    "path",
    list_reports_with(
        "OSRT_API",
        push=(
            *("samples/single-graph", "gpu/um-1", "gpu/mpi-one-report", "public/mapf_report1"),
            *("cpu/2022.4.2-nvtx_py", "cpu/2023.4.4-mpich_all"),
        ),
    ),
)
@pytest.mark.parametrize("shortest", [pytest.param(10_000, marks=pytest.mark.all_sets), 0])
def test_calls_of_a_report_are_all_there(path: Path, shortest: int, tmp_path: Path) -> None:
    utc, calls = _expected(path)
    long = calls[calls["end"] - calls["begin"] >= shortest]
    kept, late = cut_idle_calls(long, find_idle_threads(path))
    summary, trace = translate_sources([path], tmp_path, "os_runtime", SourceOptions(osrt_min=shortest))
    osrt = get_account(summary, "os_runtime")
    assert osrt.read == len(calls)
    assert osrt.written == len(kept)
    dropped = {"shorter than the minimum of 10us": len(calls) - len(long), AFTER_ALL_ELSE: late}
    assert osrt.dropped == {reason: count for reason, count in dropped.items() if count}
    assert osrt.cut_at_end == (kept["end"] != long.loc[kept.index, "end"]).sum()
    if kept.empty:
        return
    rows = number_thread_rows(long["tid"])  # a thread whose calls all come too late keeps its row
    assert sum(trace.threads) == len(rows)
    is_pthread = kept["name"].str.startswith("pthread_")
    expected = kept.assign(
        row=kept["tid"].map(rows),
        called=kept["name"],
        type=is_pthread.map({True: PTHREAD, False: OS_RUNTIME}),
        name=[EXTRAE[name][1] if name.startswith("pthread_") else name for name in kept["name"]],
    )
    got = collect_in_report_time(trace, summary, utc, OS_RUNTIME, PTHREAD)
    assert compare_tables(got, expected, ["type", "row", "begin", "end", "name"]) == ""
    for value, label in {EXTRAE[name] for name in kept.loc[is_pthread, "name"]}:
        assert trace.values[PTHREAD][value] == label
    if shortest == 0:
        _check_states(trace, expected)


def _check_states(trace, expected: pd.DataFrame) -> None:
    """A thread is in the state of the outermost call that has one, else running from its first call to its last."""
    stated = expected.assign(state=[STATES.get(name, 0) for name in expected["called"]])
    asked = stated[stated["state"] > 0].sort_values(["row", "begin", "end"], ascending=[True, True, False])
    outer, until = [], (-1, 0)
    for call in asked.itertuples():
        if call.row != until[0] or call.begin >= until[1]:
            outer.append((call.row, call.begin, call.end, call.state))
            until = (call.row, call.end)
    frame = pd.DataFrame(outer, columns=["row", "begin", "end", "state"])
    lengths = sum_painted(frame)
    spans = expected.groupby("row").agg(begin=("begin", "min"), end=("end", "max"))
    for row, begin, end in spans.itertuples():
        busy = sum(length for (state_row, _), length in lengths.items() if state_row == row)
        if end - begin > busy:
            lengths[row, RUNNING] = end - begin - busy
    got = trace.states.groupby(["row", "state"]).apply(lambda g: int((g["end"] - g["begin"]).sum()))
    assert got.to_dict() == lengths


def test_states_of_calls() -> None:
    assert (
        choose_call_state("epoll_wait")
        == choose_call_state("pthread_mutex_lock")
        == choose_call_state("nanosleep")
        == BLOCKED
    )
    assert choose_call_state("waitpid") == choose_call_state("__poll_chk") == choose_call_state("sem_wait") == BLOCKED
    assert choose_call_state("read") == choose_call_state("fwrite") == choose_call_state("__read_chk") == INPUT_OUTPUT
    for name in ("pthread_mutex_trylock", "pthread_spin_lock", "pthread_cond_signal", "ioctl", "mmap", "fork"):
        assert choose_call_state(name) == -1


def test_rows_that_are_no_calls_or_cannot_be_shown(tmp_path: Path) -> None:
    names = ["poll", "pthread_mutex_trylock", "pthread_getname_np", "read"]
    main, other = make_tid(7), make_tid(7, 8)
    rows = [
        (100_000, 200_000, 27, main, 0),
        (110_000, 120_000, 27, main, 1),  # within, and exactly as long as the limit
        (130_000, 139_999, 27, main, 3),  # shorter
        (150_000, 250_000, 27, main, 3),  # crosses
        (300_000, 400_000, 27, other, 2),
        (300_000, 400_000, None, other, 3),  # no class: a call, within the one before
        (0, 0, 31, main - 7, 0),
        (900_000, 900_000, 32, main, 0),
        (500_000, 600_000, 27, None, 0),
        (None, 600_000, 27, main, 0),
        (500_000, "later", 27, main, 0),
        (600_000, 500_000, 27, main, 0),
        (700_000, 800_000, 27, main, 99),
    ]
    report = write_small_report(tmp_path / "r.sqlite", {("OSRT_API", COLUMNS): rows}, names)
    summary, trace = translate_sources([report], tmp_path, "os_runtime")
    osrt = get_account(summary, "os_runtime")
    assert osrt.read == 11
    assert osrt.dropped == {
        "no thread": 1,
        "no start or end": 2,
        "ends before it starts": 1,
        "partly overlaps another call on its thread": 1,
        "shorter than the minimum of 10us": 1,
    }
    got = collect_in_report_time(trace, summary, UTC, OS_RUNTIME, PTHREAD)
    assert sorted(got[["row", "begin", "end", "name"]].itertuples(index=False, name=None)) == [
        (0, 100_000, 200_000, "poll"),
        (0, 110_000, 120_000, "pthread_mutex_*lock"),
        (0, 700_000, 800_000, "name 99"),
        (1, 300_000, 400_000, "pthread_getname_np"),
        (1, 300_000, 400_000, "read"),
    ]
    # A call of pthreads that has no value of its own is shown with the others.
    assert set(got.loc[got["type"] == PTHREAD, "name"]) == {"pthread_mutex_*lock"}
    states = trace.states.groupby(["row", "state"]).apply(lambda g: int((g["end"] - g["begin"]).sum())).to_dict()
    assert states == {(0, BLOCKED): 100_000, (0, RUNNING): 600_000, (1, INPUT_OUTPUT): 100_000}


def test_a_process_of_short_calls_only_is_no_task(tmp_path: Path) -> None:
    rows = [(100_000, 100_500, 27, make_tid(5), 0), (100_000, 200_000, 27, make_tid(6), 0)]
    report = write_small_report(tmp_path / "r.sqlite", {("OSRT_API", COLUMNS): rows}, ["poll"])
    _, trace = translate_sources([report], tmp_path, "os_runtime")
    assert trace.threads == [1]
    summary, trace = translate_sources([report], tmp_path, "os_runtime", SourceOptions(osrt_min=0))
    assert trace.threads == [1, 1]
    assert get_account(summary, "os_runtime").dropped == {}


NVTX = ("NVTX_EVENTS", "start end eventType globalTid text textId domainId")


@pytest.mark.slow
@pytest.mark.parametrize("launcher_calls", [False, True])
def test_calls_of_a_launcher_do_not_take_the_rank_from_the_program(launcher_calls: bool, tmp_path: Path) -> None:
    """The launcher becomes a task, but only an instrumented process can be the rank of the environment."""
    calls = [(100_000, 200_000, 27, make_tid(6), 0)] + [(100_000, 900_000, 27, make_tid(5), 0)] * launcher_calls
    ranges = [(10_000, 800_000, 59, make_tid(6), "step", None, 0)]
    report = write_small_report(
        tmp_path / "r.sqlite", {("OSRT_API", COLUMNS): calls, NVTX: ranges}, ["poll"], environment='RANK="3"'
    )
    _, trace = translate_sources([report], tmp_path, "os_runtime,nvtx")
    assert trace.names["TASK"] == ["rank 3", "rank 3: process 5"][: 1 + launcher_calls]
