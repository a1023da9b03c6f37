"""Folded threads against SQL on the reports, and plain loops over the text of the trace with a row for each thread."""

from __future__ import annotations

import sqlite3
from collections import Counter
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import pandas as pd
import pytest

from nsys2prv_ng import TranslationResult, translate
from nsys2prv_ng.errors import TranslationError
from nsys2prv_ng.objects import tree
from tests.analysis.path.path_reports import Capture
from tests.conftest import SAMPLES
from tests.trace_reader import Trace, compare_tables, pair_intervals, read_trace

pytestmark = pytest.mark.slow

MPI_4 = sorted(SAMPLES.glob("mpi-4.*.sqlite"))[:2]
SHORTEST = 10_000
RUNNING = 1


def find_threads(report: Path) -> tuple[list[int], set[int]]:
    """Return the tids of all threads with calls in the order of their rows, and of those with calls of the OS alone."""
    with closing(sqlite3.connect(f"file:{report}?mode=ro", uri=True)) as database:
        tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        studied: set[int] = set()
        for table in tables:
            columns = [row[1] for row in database.execute(f'PRAGMA table_info("{table}")')]
            if "globalTid" in columns and table.startswith(("CUPTI_", "MPI_", "NVTX_EVENTS")):
                studied |= {tid for (tid,) in database.execute(f'SELECT DISTINCT globalTid FROM "{table}"') if tid}
        calls = database.execute('SELECT DISTINCT globalTid FROM OSRT_API WHERE "end" - start >= ?', (SHORTEST,))
        system = {tid for (tid,) in calls}
    assert len({tid >> 24 for tid in system | studied}) == 1
    mask = (1 << 24) - 1
    main = next(iter(system)) >> 24 & mask
    tids = sorted((tid & mask for tid in system | studied), key=lambda tid: (tid != main, tid))
    return tids, {tid & mask for tid in system - studied} - {main}


def translate_into(folder: Path, reports: list[Path], **options: object) -> tuple[Trace, TranslationResult]:
    folder.mkdir()
    result = translate(reports, folder / "trace.prv", **options)  # type: ignore[arg-type]
    return read_trace(folder / "trace.prv"), result


def unite(states: pd.DataFrame) -> list[tuple[int, int, int]]:
    """Return begin, end and state of the lowest state that any thread has, by looking at each piece of time."""
    times = sorted({*states["begin"], *states["end"]})
    found: list[tuple[int, int, int]] = []
    columns = [states[name].tolist() for name in ("begin", "end", "state")]
    for low, high in pairwise(times):
        held = [state for begin, end, state in zip(*columns, strict=True) if begin <= low and high <= end]
        if not held:
            continue
        if found and found[-1][1:] == (low, min(held)):
            found[-1] = (found[-1][0], high, min(held))
        else:
            found.append((low, high, min(held)))
    return found


@pytest.mark.parametrize("options", [{}, {"time": (10**9, 3 * 10**9)}], ids=["whole", "window"])
def test_idle_threads_share_a_row(options: dict[str, object], tmp_path: Path) -> None:
    whole, whole_result = translate_into(tmp_path / "whole", MPI_4, **options)
    folded, result = translate_into(tmp_path / "folded", MPI_4, fold_threads=True, **options)
    assert (folded.date, folded.duration) == (whole.date, whole.duration)
    assert folded.threads != whole.threads

    new_row: dict[int, int] = {}  # of the rows that are the same in both
    idle_rows: list[int] = []
    first, first_folded = 0, 0
    for task, report in enumerate(MPI_4):
        tids, idle = find_threads(report)
        names = whole.names["THREAD"][first : first + whole.threads[task]]
        own = folded.names["THREAD"][first_folded : first_folded + folded.threads[task]]
        is_host = [not name.startswith(("CUDA-", "Metrics ")) for name in names]
        assert sum(is_host) == len(tids) and len(idle) > 1
        kept = [number for number in range(len(names)) if number >= len(tids) or tids[number] not in idle]
        shared = sum(number < len(tids) for number in kept)
        assert own[shared] == f"r{task} other threads ({len(idle)})" and len(set(own)) == len(own)
        assert own[:shared] + own[shared + 1 :] == [names[number] for number in kept]
        for at, number in enumerate(kept):
            new_row[first + number] = first_folded + at + (at >= shared)
        of_idle = [first + number for number in range(len(tids)) if tids[number] in idle]
        idle_rows += of_idle
        expected = unite(whole.states[whole.states["row"].isin(of_idle)])
        found = folded.states[folded.states["row"] == first_folded + shared].sort_values("begin")
        assert list(zip(found["begin"], found["end"], found["state"], strict=True)) == expected and len(expected) > 2
        assert len({state for *_, state in expected}) > 1 and min(state for *_, state in expected) == RUNNING
        first, first_folded = first + len(names), first_folded + len(own)

    on_idle = whole.events["row"].isin(idle_rows)
    events = whole.events[~on_idle].assign(row=whole.events["row"].map(new_row))
    assert compare_tables(folded.events, events, ["row", "time", "type", "value"]) == ""
    states = whole.states[~whole.states["row"].isin(idle_rows)]
    others = folded.states[folded.states["row"].isin(set(new_row.values()))]
    columns = ["row", "begin", "end", "state"]
    assert compare_tables(others, states.assign(row=states["row"].map(new_row)), columns) == ""
    assert len(folded.communications) == len(whole.communications)

    calls = pair_intervals(whole, *whole.find_types("OS runtime call"), *whole.find_types("pthread call"))
    overhead = pair_intervals(whole, *whole.find_types("Profiler overhead"))
    for account, before in zip(result.sources, whole_result.sources, strict=True):
        assert account.read == account.written + sum(account.dropped.values())
        dropped = account.dropped.get("on a folded thread", 0)
        assert before.written == account.written + dropped
        table = {"os_runtime": calls, "profiler_overhead": overhead}.get(account.name)
        assert dropped == (0 if table is None else int(table["row"].isin(idle_rows).sum())), account.name
    assert sum("on a folded thread" in account.dropped for account in result.sources) == 2


def make_report(path: Path) -> Path:
    """Write a report of a main thread that calls CUDA, one that does, and three that only call the OS."""
    capture = Capture()
    for thread in (0, 1):
        capture.kernel(capture.call("cudaLaunchKernel", 1_000, 2_000, thread), 3_000, 4_000)
    for thread in range(5):
        capture.system_call("poll", 100_000 * thread, 100_000 * thread + 50_000, thread)
        capture.system_call("poll", 1_000_000, 1_000_000 + 10_000 * (thread + 1), thread)
    return capture.write(path)


def list_host_rows(trace: Trace) -> list[str]:
    return [name for name in trace.names["THREAD"] if not name.startswith(("CUDA-", "Metrics "))]


def test_calls_that_are_not_chosen_keep_a_row(tmp_path: Path) -> None:
    """A thread that calls CUDA is not idle, also where the trace shows no call of CUDA."""
    report = make_report(tmp_path / "x.sqlite")
    rows = {}
    for sources in (None, ["os_runtime"], ["os_runtime", "cuda_api"]):
        trace, result = translate_into(
            tmp_path / "-".join(sources or ["all"]), [report], sources=sources, fold_threads=True
        )
        rows[tuple(sources or ())] = list_host_rows(trace)
        dropped = Counter({reason: n for own in result.sources for reason, n in own.dropped.items()})
        assert dropped["on a folded thread"] == 6
    assert [len(own) for own in rows.values()] == [3, 3, 3]
    assert all(own[-1] == "r0 other threads (3)" for own in rows.values())


def test_too_many_rows_name_the_option(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = make_report(tmp_path / "x.sqlite")
    whole, _ = translate_into(tmp_path / "whole", [report])
    folded, _ = translate_into(tmp_path / "folded", [report], fold_threads=True)
    rows = [sum(trace.threads) for trace in (whole, folded)]
    assert rows[0] - rows[1] == 2
    monkeypatch.setattr(tree, "MAX_ROWS", rows[1])
    with pytest.raises(TranslationError) as error:
        translate([report], tmp_path / "x.prv")
    assert f"would have {rows[0]} rows and Paraver takes {rows[1]}; with idle threads folded it has {rows[1]}:" in str(
        error.value
    )
    assert error.value.see[0] == "fold_threads"
    translate([report], tmp_path / "x.prv", fold_threads=True)


def test_one_idle_thread_keeps_its_row(tmp_path: Path) -> None:
    """Nothing is gained by folding it, and its calls would be lost."""
    capture = Capture()
    capture.call("cudaFree", 1_000, 2_000)
    capture.system_call("poll", 10_000, 90_000, 1)
    report = capture.write(tmp_path / "x.sqlite")
    made = []
    for fold in (False, True):
        translate([report], tmp_path / "x.prv", fold_threads=fold, force=True)
        made.append([(tmp_path / f"x{suffix}").read_bytes() for suffix in (".prv", ".pcf", ".row")])
    assert made[0] == made[1] and b"poll" in made[0][1]


def test_a_thread_named_like_the_row(tmp_path: Path) -> None:
    """Both get an id, the row that of the process: names of host threads are unique."""
    report = make_report(tmp_path / "x.sqlite")
    with closing(sqlite3.connect(report)) as database, database:
        database.execute("CREATE TABLE IF NOT EXISTS ThreadNames (nameId INTEGER, priority INTEGER, globalTid INTEGER)")
        database.execute("INSERT INTO StringIds SELECT MAX(id) + 1, 'other threads (3)' FROM StringIds")
        tid = Capture().get_tid(1)
        database.execute("INSERT INTO ThreadNames SELECT MAX(id), 0, ? FROM StringIds", (tid,))
    trace, _ = translate_into(tmp_path / "folded", [report], fold_threads=True)
    names = list_host_rows(trace)
    process = tid >> 24 & 0xFFFFFF
    assert names[1:] == [f"r0 other threads (3) {tid & 0xFFFFFF}", f"r0 other threads (3) {process}"]


def test_capture_ranges_of_one_process(tmp_path: Path) -> None:
    """A thread that calls CUDA in one of two reports is idle in neither."""
    reports = []
    for number in range(2):
        capture = Capture()
        start = 10_000_000 * number
        capture.call("cudaFree", start + 1_000, start + 2_000)
        for thread in (1, 2, 3):
            capture.system_call("poll", start + 10_000, start + 60_000, thread)
        if number:
            capture.call("cudaFree", start + 70_000, start + 80_000, 1)
        reports.append(capture.write(tmp_path / f"{number}.sqlite"))
    trace, result = translate_into(tmp_path / "folded", reports, fold_threads=True, align="none")
    assert len(trace.threads) == 1 and list_host_rows(trace)[2:] == ["r0 other threads (2)"]
    account = next(account for account in result.sources if account.name == "os_runtime")
    assert (account.written, account.dropped) == (2, {"on a folded thread": 4})
    states = trace.states[trace.states["row"] == 2]
    assert states["begin"].min() == 9_000 and states["end"].max() == 10_059_000


def test_calls_in_several_windows_are_counted_once(tmp_path: Path) -> None:
    """Each ends on the idle threads in the second of two windows, and begins in the first, or before both."""
    capture = Capture()
    capture.call("cudaFree", 1_000, 2_000)
    for begin in (100_000, 300_000):
        capture.range("shown", begin, begin + 100_000)
    for thread in (1, 2, 3):
        capture.system_call("poll", 150_000, 350_000, thread)
        capture.system_call("read", 210_000, 290_000, thread)
    capture.system_call("poll", 50_000, 350_000, 4)
    report = capture.write(tmp_path / "x.sqlite")
    _, result = translate_into(tmp_path / "folded", [report], fold_threads=True, nvtx_range="shown")
    account = next(account for account in result.sources if account.name == "os_runtime")
    assert (account.read, account.written) == (7, 0)
    assert account.dropped == {"outside the chosen time": 3, "on a folded thread": 4}
