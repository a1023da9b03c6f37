"""Samples of the CPU against plain SQL on the reports, and reports in which something of them is odd."""

from __future__ import annotations

import re
import sqlite3
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from nsys2prv_ng.api import translate
from nsys2prv_ng.errors import UsageError
from nsys2prv_ng.inspection.inspect import inspect
from nsys2prv_ng.runtime.progress import Progress
from nsys2prv_ng.sources.host.operating_system import NO_CHAIN
from nsys2prv_ng.sources.shared.source_options import SourceOptions
from tests.sources.host.host_reports import (
    UTC,
    copy_without_other_calls,
    get_account,
    make_tid,
    number_thread_rows,
    translate_sources,
    write_small_report,
)
from tests.spans import list_reports_with
from tests.trace_reader import Trace

FUNCTION, MODULE, OF_PROGRAM = 30000000, 30000200, 30000201
NO_CALL, NO_TASK = "its thread made no traced call", "its process made no traced call"
SAMPLES = ("COMPOSITE_EVENTS", "id start cpu threadState globalTid cpuCycles")
CHAINS = ("SAMPLING_CALLCHAINS", "id symbol module unresolved stackDepth")
OSRT = ("OSRT_API", "start end eventClass globalTid nameId")

ShownLabels = dict[int, str]
"""Label by event type."""


def shown(symbol: str, module: str, unresolved: int | None) -> str:
    """The label that a frame must have."""
    file = module.split("/")[-1]
    if unresolved == 1 or symbol.startswith("0x") or not symbol:
        return f"({file.strip('[]')})"
    return f"({symbol[1:-1]})" if symbol[0] == "[" and symbol[-1] == "]" else symbol


def is_of_program(symbol: str, module: str, unresolved: int | None) -> bool:
    """Whether a frame is a function of the program: not of a library, of Python, or of CUDA's runtime within it."""
    file = module.split("/")[-1]
    is_file = not (set("[]()") & set(file) or ".so" in file or ".ko" in file or file.startswith("python"))
    is_cuda = symbol.startswith(("cudart::", "__cudart")) or re.match("cu(da)?[A-Z]", symbol) is not None
    return is_file and not is_cuda and unresolved != 1 and symbol != "" and not symbol.startswith("0x")


def points(trace: Trace, utc: int, start: int) -> list[tuple[int, int, ShownLabels]]:
    """Return row, time on a report's clock (0 is `utc`) and labels of each line that has a sampled function."""
    events = trace.events
    lines = set(events.loc[events["type"] == FUNCTION, "line"])
    samples_by_line: dict[int, tuple[int, int, ShownLabels]] = {}
    for event in events[events["line"].isin(lines)].itertuples():
        _, _, labels = samples_by_line.setdefault(event.line, (event.row, event.time + start - utc, {}))
        assert event.type not in labels
        labels[event.type] = trace.values[event.type][event.value]
    return list(samples_by_line.values())


def comparable(samples: Sequence[tuple[int, int, ShownLabels]]) -> Counter[object]:
    """Labels up to where the .pcf cuts long ones."""
    return Counter(
        (row, time, tuple(sorted((t, label[:400]) for t, label in labels.items()))) for row, time, labels in samples
    )


@pytest.mark.parametrize("depth", [1, 100])
@pytest.mark.parametrize("path", list_reports_with("COMPOSITE_EVENTS", "OSRT_API"))
def test_samples_of_a_report_are_all_there(path: Path, depth: int, tmp_path: Path) -> None:
    connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True)
    connection.text_factory = lambda text: text.decode(errors="replace")
    utc = connection.execute("SELECT utcEpochNs FROM TARGET_INFO_SESSION_START_TIME").fetchone()[0]
    callers = {t for (t,) in connection.execute("SELECT DISTINCT globalTid FROM OSRT_API WHERE eventClass = 27")}
    samples = connection.execute("SELECT id, start, globalTid FROM COMPOSITE_EVENTS").fetchall()
    has_chains = connection.execute("SELECT COUNT(*) FROM sqlite_master WHERE name = 'SAMPLING_CALLCHAINS'").fetchone()
    labels: dict[int, ShownLabels] = {sample: {FUNCTION: NO_CHAIN} for sample, _, _ in samples}
    if has_chains[0]:
        for sample, level, symbol, module, unresolved in connection.execute(
            """SELECT c.id, stackDepth, s.value, m.value, unresolved FROM SAMPLING_CALLCHAINS c
            JOIN StringIds s ON s.id = symbol JOIN StringIds m ON m.id = module WHERE stackDepth < ?""",
            (depth,),
        ):
            labels[sample][FUNCTION + level] = shown(symbol, module, unresolved)
            if level == 0:
                labels[sample][MODULE] = module.split("/")[-1].strip("[]")
        for sample, symbol, module, unresolved in connection.execute(
            """SELECT c.id, s.value, m.value, unresolved FROM SAMPLING_CALLCHAINS c
            JOIN StringIds s ON s.id = symbol JOIN StringIds m ON m.id = module ORDER BY c.id, stackDepth DESC"""
        ):
            if is_of_program(symbol, module, unresolved):  # the innermost one is the last
                labels[sample][OF_PROGRAM] = symbol
    connection.close()

    options = SourceOptions(osrt_min=0, stack_depth=depth)
    summary, trace = translate_sources(
        [copy_without_other_calls(path, tmp_path)], tmp_path, "os_runtime,cpu_samples", options
    )
    with_caller = [(sample, time, thread) for sample, time, thread in samples if thread in callers]
    processes = {thread >> 24 for thread in callers}
    no_task = sum(thread >> 24 not in processes for _, _, thread in samples)
    account = get_account(summary, "cpu_samples")
    assert (account.read, account.written) == (len(samples), len(with_caller))
    dropped = {NO_CALL: len(samples) - len(with_caller) - no_task, NO_TASK: no_task}
    assert account.dropped == {reason: count for reason, count in dropped.items() if count}
    rows = number_thread_rows(callers)
    expected = [(rows[thread], time, labels[sample]) for sample, time, thread in with_caller]
    assert comparable(points(trace, utc, summary.start_utc_ns)) == comparable(expected)
    assert {t for _, _, s in expected for t in s} <= set(trace.types)
    deepest = max((t - FUNCTION for _, _, s in expected for t in s if t < MODULE), default=0)
    assert trace.types[FUNCTION] == "Sampled functions"
    assert all(trace.types[FUNCTION + n] == f"Sampled functions (depth {n})" for n in range(1, deepest + 1))


STRINGS = [
    "poll",  # 0
    "work",
    "main",
    "0x7f1200",
    "/usr/lib/libcuda.so.1",
    "/home/u/prog",
    "[vdso]",
    "[Broken backtraces]",
    "[Unknown]",  # 8
    "0x0",
    "[kernel.kallsyms]",
    "/lib/libc.so.6 (deleted)",
    "",
]
WORK, MAIN, ADDRESS, CUDA, PROG, VDSO, BROKEN, UNKNOWN, ZERO, KERNEL, LIBC, EMPTY = range(1, 13)
CALLS = [(0, 500_000, 27, make_tid(7), 0)]


def translate_chains(
    chains: Sequence[Sequence[object]],
    folder: Path,
    depth: int = 100,
    samples: Sequence[Sequence[object]] = (),
    columns: str = CHAINS[1],
) -> dict[int, ShownLabels]:
    """Return the labels by time of the samples: one at 100 * id for each chain, unless samples are given."""
    ids = sorted({row[0] for row in chains if isinstance(row[0], int)})
    samples = samples or [(i, 100 * i, 0, 1, make_tid(7), 1) for i in ids]
    tables = {SAMPLES: samples, OSRT: CALLS, (CHAINS[0], columns): chains}
    report = write_small_report(folder / "r.sqlite", tables, STRINGS)
    summary, trace = translate_sources([report], folder, "os_runtime,cpu_samples", SourceOptions(stack_depth=depth))
    assert get_account(summary, "cpu_samples").written == len(samples)
    return {time: labels for _, time, labels in points(trace, UTC, summary.start_utc_ns)}


def test_functions_without_a_name_are_their_modules(tmp_path: Path) -> None:
    chains = [
        (1, WORK, PROG, None, 0),
        (1, ADDRESS, CUDA, 1, 1),
        (1, ADDRESS, CUDA, None, 2),  # is one, whatever the column says
        (1, WORK, CUDA, 1, 3),
        (1, ZERO, UNKNOWN, 1, 4),
        (1, BROKEN, BROKEN, 0, 5),
        (1, EMPTY, PROG, 0, 6),
        (2, ADDRESS, VDSO, 1, 0),
        (3, ADDRESS, KERNEL, 1, 0),
        (4, ADDRESS, LIBC, 1, 0),
        (5, None, PROG, 0, 0),
        (6, None, None, 0, 0),
        (7, MAIN, None, 0, 0),
        (8, 99, 98, 0, 0),
    ]
    labels = translate_chains(chains, tmp_path)
    functions = ["work", "(libcuda.so.1)", "(libcuda.so.1)", "(libcuda.so.1)", "(Unknown)", "(Broken backtraces)"]
    functions.append("(prog)")
    of_program = {MODULE: "prog", OF_PROGRAM: "work"}
    assert labels[100] == of_program | {FUNCTION + n: label for n, label in enumerate(functions)}
    assert [labels[i * 100] for i in range(2, 9)] == [
        {FUNCTION: "(vdso)", MODULE: "vdso"},
        {FUNCTION: "(kernel.kallsyms)", MODULE: "kernel.kallsyms"},
        {FUNCTION: "(libc.so.6 (deleted))", MODULE: "libc.so.6 (deleted)"},
        {FUNCTION: "(prog)", MODULE: "prog"},
        {FUNCTION: "(no name)", MODULE: "no name"},
        {FUNCTION: "main", MODULE: "no name"},
        {FUNCTION: "name 99", MODULE: "name 98"},
    ]


def test_levels_are_counted_from_the_function_that_ran(tmp_path: Path) -> None:
    chains = [(1, WORK, PROG, 0, 0), (1, MAIN, PROG, 0, 1), (2, MAIN, PROG, 0, 0)]
    work, main = ({FUNCTION: name, MODULE: "prog", OF_PROGRAM: name} for name in ("work", "main"))
    assert translate_chains(chains, tmp_path, 2)[100] == work | {FUNCTION + 1: "main"}
    (tmp_path / "r.sqlite").unlink()
    labels = translate_chains(chains, tmp_path, 1)
    assert labels == {100: work, 200: main}


def test_odd_chains(tmp_path: Path) -> None:
    chains = [
        (9, WORK, PROG, 0, 0),  # of no sample
        (4, MAIN, PROG, 0, 1),  # no innermost frame
        (3, MAIN, PROG, 0, 2),  # not in order, and nothing at level 1
        (3, WORK, PROG, 0, 0),
        (2, WORK, PROG, 0, 0),
        (2, MAIN, PROG, 0, 0),  # a second one at a level
        (1, MAIN, PROG, 0, 100),  # deeper than there are numbers
        (1, MAIN, PROG, 0, 99),
        (1, MAIN, PROG, 0, 2**62),
        (1, MAIN, PROG, 0, -1),
        (1, MAIN, PROG, 0, None),
        (1, WORK, PROG, 0, 0),
        (None, MAIN, PROG, 0, 0),
        ("x", MAIN, PROG, 0, 0),
    ]
    samples = [(i, 100 * i, 0, 1, make_tid(7), 1) for i in (3, 1, 2, 4, 5)]
    samples += [
        (None, 600, 0, 1, make_tid(7), 1),
        (1, 700, 0, 1, make_tid(7), 1),
        (-(2**63) + 1, 800, 0, 1, make_tid(7), 1),
    ]
    labels = translate_chains(chains, tmp_path, samples=samples)
    work = {FUNCTION: "work", MODULE: "prog", OF_PROGRAM: "work"}
    assert labels == {
        100: work | {FUNCTION + 99: "main"},
        200: work,
        300: work | {FUNCTION + 2: "main"},
        400: {FUNCTION: NO_CHAIN, FUNCTION + 1: "main", OF_PROGRAM: "main"},
        500: {FUNCTION: NO_CHAIN},
        600: {FUNCTION: NO_CHAIN},
        700: work | {FUNCTION + 99: "main"},
        800: {FUNCTION: NO_CHAIN},
    }


def test_columns_that_some_versions_lack(tmp_path: Path) -> None:
    chains = [(1, WORK, 0), (1, ADDRESS, 1)]
    labels = translate_chains(chains, tmp_path, columns="id symbol stackDepth")
    assert labels == {100: {FUNCTION: "work", FUNCTION + 1: "(no name)", MODULE: "no name"}}


@pytest.mark.slow
def test_samples_that_cannot_be_shown(tmp_path: Path) -> None:
    samples = [
        (1, -400, 0, 1, make_tid(7), 1),
        (2, 0, 0, 1, make_tid(7), 1),  # the begin of the capture is a time
        (2, 0, 0, 1, make_tid(7), 1),
        (3, 10, 0, 1, None, 1),
        (4, None, 0, 1, make_tid(7), 1),
        (5, None, 0, 1, None, 1),
        (6, 2**62, 0, 1, make_tid(7), 1),
        (7, "soon", 0, 1, make_tid(7), 1),
        (8, 10, 0, 1, make_tid(7, 8), 1),  # a thread without calls
        (9, 10, 0, 1, make_tid(8), 1),  # and a process
    ]
    report = write_small_report(tmp_path / "r.sqlite", {SAMPLES: samples, OSRT: CALLS}, STRINGS)
    for sources in ("os_runtime,cpu_samples", "cpu_samples,os_runtime"):
        summary, trace = translate_sources([report], tmp_path, sources)
        account = get_account(summary, "cpu_samples")
        assert (account.read, account.written) == (10, 3)
        assert account.dropped == {
            "no thread": 2,
            "no start or end": 2,
            "longer than Paraver can show": 1,
            NO_CALL: 1,
            NO_TASK: 1,
        }
        assert points(trace, UTC, summary.start_utc_ns) == [(0, time, {FUNCTION: NO_CHAIN}) for time in (-400, 0, 0)]
        assert trace.threads == [1]


def test_a_report_without_samples_has_none_of_it(tmp_path: Path) -> None:
    report = write_small_report(tmp_path / "r.sqlite", {OSRT: CALLS, CHAINS: [(1, WORK, PROG, 0, 0)]}, STRINGS)
    summary, trace = translate_sources([report], tmp_path, "os_runtime,cpu_samples")
    assert get_account(summary, "cpu_samples").read == 0
    assert not any(FUNCTION <= number <= MODULE for number in trace.types)


@pytest.mark.slow
def test_ranks_share_the_numbers_of_functions_but_not_of_addresses(tmp_path: Path) -> None:
    reports = []
    for rank, address in enumerate(("0x7f0000000010", "0x550000000020")):
        strings = ["poll", "work", address, "/usr/lib/libcuda.so.1", f"/home/{rank}/prog"]
        tables = {
            SAMPLES: [(1, 100, 0, 1, make_tid(7), 1), (2, 200, 0, 1, make_tid(7), 1)],
            CHAINS: [(1, 1, 4, 0, 0), (2, 2, 3, 1, 0)],
            OSRT: CALLS,
        }
        reports.append(write_small_report(tmp_path / f"{rank}.sqlite", tables, strings))
    _, trace = translate_sources(reports, tmp_path, "os_runtime,cpu_samples")
    assert trace.values[FUNCTION] == {1: "(libcuda.so.1)", 2: "work"}
    assert trace.values[MODULE] == {1: "libcuda.so.1", 2: "prog"}


@pytest.mark.slow
def test_a_large_table_is_read_in_blocks(tmp_path: Path) -> None:
    """Frames of a chain are in two blocks, and rows are in no order."""
    count, levels = 40_000, 6
    chain, level = (column.ravel() for column in np.mgrid[0:count, 0:levels])
    order = np.random.default_rng(7).permutation(chain.size)
    shuffled = zip(chain[order].tolist(), level[order].tolist(), strict=True)
    rows = [(c + 1, WORK if (c + d) % 2 else MAIN, PROG, 0, d) for c, d in shuffled]
    samples = [(i + 1, 10 * i, 0, 1, make_tid(7), 1) for i in range(count)]
    tables = {SAMPLES: samples, CHAINS: rows, OSRT: CALLS}
    report = write_small_report(tmp_path / "r.sqlite", tables, STRINGS)
    _, trace = translate_sources([report], tmp_path, "os_runtime,cpu_samples", SourceOptions(stack_depth=3))
    events = trace.events
    for depth in range(3):
        on_level = events[events["type"] == FUNCTION + depth]
        numbers = (on_level["time"] // 10).to_numpy()
        expected = np.where((numbers + depth) % 2, 2, 1)  # main is 1
        assert len(on_level) == count
        assert (on_level["value"].to_numpy() == expected).all()
    assert FUNCTION + 3 not in trace.types


def test_inspect_counts_samples_and_no_task_of_them(tmp_path: Path) -> None:
    samples = [(1, 100, 0, 1, make_tid(7), 1), (2, 200, 0, 1, make_tid(9), 1)]
    report = write_small_report(tmp_path / "r.sqlite", {SAMPLES: samples, OSRT: CALLS}, STRINGS)
    inspection = inspect([report], Progress(), 1)
    assert (inspection.reports[0].sources["cpu_samples"], inspection.tasks) == (2, 1)
    assert inspection.reports[0].not_translated == []


@pytest.mark.parametrize(("depth", "limit"), [(0, "at least 1"), (-1, "at least 1"), (101, "at most 100")])
def test_a_depth_out_of_range_is_refused(depth: int, limit: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=f"stack_depth={depth}: must be {limit}$"):
        translate(tmp_path / "r.sqlite", tmp_path / "t.prv", stack_depth=depth)
