"""Reads what befell host threads: OS runtime and system calls, time on cores, CPU samples, and the profiler's overhead.

Calls of pthreads have a separate event type. The system calls are those of nsys's syscall trace. No capture of them was
available: their table follows NVIDIA's documentation of the export.

Context switches and samples only observe a thread: they are shown if the thread also made calls, because a process has
dozens of threads that never do.

The cost of tracing is shown as nsys and CUPTI report it. Overhead has the state Profiling, which hides all other states
of a thread, so that nobody takes it for time of the program. CUPTI also reports time that the driver takes with or
without a profiler, for example when it waits for room to queue a launch or loads a module. That is an event of the same
type, but without the state.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from nsys2prv_ng import source_names
from nsys2prv_ng.objects.tree import ObjectTree
from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.paraver.labels import MAX_TYPE, Value
from nsys2prv_ng.paraver.load_cost import LoadCost
from nsys2prv_ng.paraver.value_tables import PTHREAD_CALLS
from nsys2prv_ng.records.columns import Pair, make_events, make_intervals
from nsys2prv_ng.report.database import NULL, Table
from nsys2prv_ng.sources.shared import host_calls, reasons
from nsys2prv_ng.sources.shared.report_reader import ReportReader, make_name_pair
from nsys2prv_ng.sources.shared.source import EventRows, JoinInput, JoinResult, Result, Source, pair_switches

_CALL = 27
_COLUMNS = ("start", "end", "globalTid", "nameId")
OSRT = Table("OSRT_API", _COLUMNS, {"eventClass": _CALL, "callchainId": NULL})
SYSCALL = Table("SYSCALL", _COLUMNS, {"callchainId": NULL})

# ENUM_NSYS_EVENT_CLASS: rows for the start and the end of tracing calls in a process.
_NO_CALLS = (31, 32)

_JOIN = 3
_PTHREAD_VALUE = {label: value for value, label in PTHREAD_CALLS.items()} | dict.fromkeys(
    ("pthread_tryjoin_np", "pthread_timedjoin_np", "pthread_clockjoin_np"), _JOIN
)
_VARIANT = re.compile("(?<=_)(try|timed|clock)?(?=(wrlock|rdlock|lock|wait)$)")
"""What distinguishes the variants of a call."""

_BLOCKED = """
    poll ppoll select pselect epoll_wait epoll_pwait epoll_pwait2 futex
    accept accept4 connect recv recvfrom recvmsg recvmmsg msgrcv mq_receive mq_timedreceive
    sem_wait sem_timedwait sem_clockwait semop semtimedop flock lockf
    sleep usleep nanosleep clock_nanosleep pause sigpause sigsuspend sigwait sigwaitinfo sigtimedwait
    wait wait3 wait4 waitid waitpid system
    pthread_join pthread_timedjoin_np pthread_clockjoin_np pthread_barrier_wait
    pthread_cond_wait pthread_cond_timedwait pthread_cond_clockwait
    pthread_mutex_lock pthread_mutex_timedlock pthread_mutex_clocklock
    pthread_rwlock_rdlock pthread_rwlock_timedrdlock pthread_rwlock_clockrdlock
    pthread_rwlock_wrlock pthread_rwlock_timedwrlock pthread_rwlock_clockwrlock
"""
_INPUT_OUTPUT = """
    read readv pread pread64 preadv preadv2 preadv64 write writev pwrite pwrite64 pwritev pwritev2 pwritev64
    fread fread_unlocked fgets fgetc getc getline getdelim getw fgetwc fgetws fscanf
    fwrite fwrite_unlocked fputs fputc putc putw fputwc fputws fprintf vfprintf dprintf fflush
    fsync fdatasync sync syncfs sync_file_range sendfile splice copy_file_range
"""
_STATES = dict.fromkeys(_BLOCKED.split(), types.BLOCKED) | dict.fromkeys(_INPUT_OUTPUT.split(), types.INPUT_OUTPUT)


def _find_pthread_value(name: str) -> int:
    """Return the value of a call of pthreads; 0 for other calls, which are shown by name.

    As in Extrae, the variants of a call (try, timed) share a value.
    """
    return _PTHREAD_VALUE.get(name) or _PTHREAD_VALUE.get(_VARIANT.sub("*", name), 0)


def choose_call_state(name: str) -> int:
    """Return the state of a thread within a call, or -1 if the call implies none.

    The state is blocked in calls that wait for another thread, process or machine, or for time to pass. Calls that only
    try, and spin locks, do not wait. The state is I/O in calls that read and write, as in Extrae's traces.
    """
    return _STATES.get(name.removeprefix("__").removesuffix("_chk"), -1)


def read_os_runtime(reader: ReportReader) -> Result:
    """Return an interval for each call that is long enough, with its callers if nsys took a backtrace."""
    return host_calls.read_calls(
        reader,
        {OSRT.name: types.OS_RUNTIME},
        find_rows=lambda columns: np.flatnonzero(~np.isin(columns["eventClass"], _NO_CALLS)),
        numbered=host_calls.NumberedCalls(types.PTHREAD, _find_pthread_value),
        system=True,
        read_chains=lambda reader, _: host_calls.read_chains(reader, host_calls.OS_CALL_CHAINS),
        choose_state=choose_call_state,
    )


def read_system_calls(reader: ReportReader) -> Result:
    """Return an interval for each system call that is long enough, with its callers if nsys took a backtrace."""
    return host_calls.read_calls(
        reader,
        {SYSCALL.name: types.SYSTEM_CALL},
        system=True,
        read_chains=lambda reader, _: host_calls.read_chains(reader, host_calls.SYSTEM_CALL_CHAINS),
        choose_state=choose_call_state,
    )


OS_RUNTIME = Source(
    source_names.OS_RUNTIME,
    "OS runtime calls",
    (OSRT, host_calls.OS_CALL_CHAINS),
    read_os_runtime,
    counted_tables=(
        EventRows(OSRT.name, "globalTid", application=False, system_calls=True, no_task=("eventClass", _NO_CALLS)),
    ),
    noun="calls",
    needed_by=(),
    load=LoadCost(states=0.5, events=0.7, pairs=0.7),  # most calls are shorter than --osrt-min
)
SYSTEM_CALLS = Source(
    source_names.SYSTEM_CALLS,
    "System calls",
    (SYSCALL, host_calls.SYSTEM_CALL_CHAINS),
    read_system_calls,
    counted_tables=(EventRows(SYSCALL.name, "globalTid", application=False, system_calls=True),),
    noun="calls",
    needed_by=(),
)


# ---- time on cores ---------------------------------------------------------------------------------------------------


SWITCHES = Table("SCHED_EVENTS", ("start", "cpu", "isSchedIn", "globalTid"))


def read_scheduling(reader: ReportReader) -> Result:
    """Return an interval for each time that a thread was on a core; its value is the core's number plus one."""
    columns = reader.columns(SWITCHES.name)
    time, core, thread, is_in = (columns[name] for name in ("start", "cpu", "globalTid", "isSchedIn"))
    result = Result()
    rows = result.drop_rows(
        {
            reasons.NO_THREAD: thread == NULL,
            **reasons.find_unsound_points(time),
            reasons.NO_CORE: (core < 0) | (core >= MAX_TYPE),
            reasons.NO_DIRECTION: is_in == NULL,
        }
    )
    # Switches at the same time happened in the order of the table.
    rows = rows[np.lexsort((time[rows], thread[rows]))]
    time, core, thread = time[rows], core[rows], thread[rows]
    shown, end = pair_switches(result, thread, is_in[rows] != 0, time, reasons.NO_CORE_END, reasons.NO_CORE_START)
    handle = reader.labels.handle(types.ON_CPU)
    distinct, index = np.unique(core, return_inverse=True)
    names = [f"core {number}" for number in distinct]
    ids = reader.labels.name_ids(types.ON_CPU.names, names)[index]
    place = reader.places.observed_threads(thread)
    result.add_intervals(place[shown], time[shown], end, [Pair(handle, ids[shown])], [handle])
    values = zip(names, distinct.tolist(), strict=True)
    result.join_data = {name: Value(number + 1, name) for name, number in values}
    return result


def join_scheduling(parts: Sequence[JoinInput], tree: ObjectTree) -> JoinResult:
    """Return the value of each core: its number plus one, whatever cores the reports contain."""
    return JoinResult({types.ON_CPU.names: dict(item for part in parts for item in (part.data or {}).items())})


SCHEDULING = Source(
    source_names.SCHEDULING,
    "Threads on cores",
    (SWITCHES,),
    read_scheduling,
    join_scheduling,
    dict[str, Value],
    counted_tables=(EventRows(SWITCHES.name),),
    noun="switches",
    needed_by=(),
    load=LoadCost(events=0.25, pairs=0.25),
)


# ---- CPU samples: the function that a thread was in, and its callers -------------------------------------------------


SAMPLES = Table("COMPOSITE_EVENTS", ("start", "globalTid"), {"id": NULL})

NO_CHAIN = "(no call chain)"
"""Label for samples without a call chain, because nsys took none or lost it. These samples still count."""


def read_samples(reader: ReportReader) -> Result:
    """Return a point for each sample, with its function, module, and as many callers as the user chose."""
    columns = reader.columns(SAMPLES.name)
    result = Result(read=columns.rows)
    time, thread = columns["start"], columns["globalTid"]
    # A sample at time 0 is sound: start and end at 0 mean a missing time only for intervals.
    rows = host_calls.select_sound_intervals(result, time, np.where(time == 0, 1, time), thread)
    chain = columns["id"][rows]
    chains = host_calls.read_chains(reader, host_calls.SAMPLE_CHAINS)
    pairs = host_calls.find_functions(reader, chains, chain, types.SAMPLED_FUNCTIONS)
    missing = ~host_calls.find_frames(chains, 0, chain)[1]
    if missing.any():
        no_name = np.zeros(chain.size, np.int64)
        pairs.append(make_name_pair(reader.labels, types.SAMPLED_FUNCTIONS[0], no_name, [NO_CHAIN], missing))
    pairs += host_calls.find_modules(reader, chains, chain, types.SAMPLED_MODULE)
    pairs += host_calls.find_functions(reader, host_calls.read_program_frames(reader), chain, (types.SAMPLED_PROGRAM,))
    result.records.append(make_events(reader.places.observed_threads(thread[rows]), time[rows], pairs))
    return result


CPU_SAMPLES = Source(
    source_names.CPU_SAMPLES,
    "CPU samples",
    (SAMPLES, host_calls.SAMPLE_CHAINS),
    read_samples,
    counted_tables=(EventRows(SAMPLES.name),),
    noun="samples",
    needed_by=(),
    load=LoadCost(events=0.6, pairs=1),
)


# ---- overhead of the profiler ----------------------------------------------------------------------------------------


_OVERHEAD = tuple(
    Table(name, ("start", "end", "globalTid"), {"nameId": NULL, "overheadType": NULL})
    for name in ("PROFILER_OVERHEAD", "CUPTI_ACTIVITY_KIND_OVERHEAD")
)

# ENUM_CUPTI_OVERHEAD_TYPE: the label of a row without a name.
_CUPTI_NAMES = {
    2: "Driver compiler", 3: "CUPTI Buffer flush", 4: "CUPTI Instrumentation", 5: "CUPTI Resource Management",
    6: "Runtime triggered module loading", 7: "Lazy function loading", 8: "Command Buffer Full",
}  # fmt: skip
_DRIVER_TYPES = (2, 6, 7, 8)
_DRIVER_NAMES = re.compile(
    r"(Driver (JIT )?compiler|Runtime (triggered )?module loading|Lazy function loading|Command buffer full)",
    re.IGNORECASE,
)


def is_profiling(name: str) -> bool:
    """Return whether the profiler, and not the CUDA driver, causes the overhead with this name."""
    return not _DRIVER_NAMES.match(name)


def read_overhead(reader: ReportReader) -> Result:
    """Return an interval for each row, nested as the rows are; the two tables report different things."""
    stacked = reader.stack([table.name for table in _OVERHEAD], (*_OVERHEAD[0].required, *_OVERHEAD[0].optional))
    begin, end, thread, name_id, kind = stacked.values()
    result = Result(read=int(begin.size))
    rows = host_calls.select_sound_calls(result, begin, end, thread)
    begin, end, thread, name_id, kind = (column[rows] for column in (begin, end, thread, name_id, kind))
    place = reader.places.observed_threads(thread)
    # A row without a name has the name of its type: negative keys stand for types, since no id or known type is one.
    keys, index = np.unique(np.where(name_id == NULL, -1 - np.maximum(kind, 0), name_id), return_inverse=True)
    names = [
        _CUPTI_NAMES.get(-1 - int(key), "Unknown") if key < 0 else name
        for key, name in zip(keys, reader.strings(keys), strict=True)
    ]
    pair = make_name_pair(reader.labels, types.PROFILER_OVERHEAD, index, names)
    result.records.append(make_intervals(place, begin, end, [pair], [pair.handle]))
    profiling = np.array([is_profiling(name) for name in names], np.bool_)[index] & ~np.isin(kind, _DRIVER_TYPES)
    result.add_states(place, begin, end, np.where(profiling, types.PROFILING, -1))
    return result


PROFILER_OVERHEAD = Source(
    source_names.PROFILER_OVERHEAD,
    "Profiler overhead",
    _OVERHEAD,
    read_overhead,
    counted_tables=tuple(EventRows(table.name) for table in _OVERHEAD),
    noun="stretches",
)
