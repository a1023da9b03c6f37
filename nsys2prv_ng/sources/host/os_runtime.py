"""Calls of the operating system's runtime libraries on host threads; those of pthreads under a type of their own."""

from __future__ import annotations

import numpy as np

from nsys2prv_ng.arrays.types import IntArray
from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.paraver.value_tables import PTHREAD_CALLS
from nsys2prv_ng.records.columns import Pair, make_intervals, select
from nsys2prv_ng.report.database import NULL, Columns, Table
from nsys2prv_ng.sources.shared import call_chains
from nsys2prv_ng.sources.shared.host_calls import add_states, select_sound_calls
from nsys2prv_ng.sources.shared.report_reader import ReportReader
from nsys2prv_ng.sources.shared.result import Result
from nsys2prv_ng.sources.shared.source import EventRows, Source

OSRT = "OSRT_API"
_CALL = 27
TABLE = Table(OSRT, ("start", "end", "globalTid", "nameId"), {"eventClass": _CALL, "callchainId": NULL})

# ENUM_NSYS_EVENT_CLASS: rows that say when the tracing of calls began and ended in a process.
_NO_CALLS = (31, 32)

_PTHREAD_VALUE = {label: value for value, label in PTHREAD_CALLS.items() if "*" not in label} | {
    "pthread_tryjoin_np": 3,
    "pthread_timedjoin_np": 3,
    "pthread_clockjoin_np": 3,
    "pthread_rwlock_wrlock": 5,
    "pthread_rwlock_trywrlock": 5,
    "pthread_rwlock_timedwrlock": 5,
    "pthread_rwlock_clockwrlock": 5,
    "pthread_rwlock_rdlock": 6,
    "pthread_rwlock_tryrdlock": 6,
    "pthread_rwlock_timedrdlock": 6,
    "pthread_rwlock_clockrdlock": 6,
    "pthread_mutex_lock": 8,
    "pthread_mutex_trylock": 8,
    "pthread_mutex_timedlock": 8,
    "pthread_mutex_clocklock": 8,
    "pthread_cond_wait": 12,
    "pthread_cond_timedwait": 12,
    "pthread_cond_clockwait": 12,
}
"""Value of each call of pthreads. Like Extrae, the variants of a call (try, timed) share one. What is not here is shown
with the other calls, under its name."""

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


def choose_call_state(name: str) -> int:
    """State of a thread within a call, or -1 if the call says nothing of it.

    Blocked in calls that wait for another thread, process or machine, or for time to pass (those that only try, and
    spin locks, do not); I/O in calls that read and write, as in Extrae's traces.
    """
    return _STATES.get(name.removeprefix("__").removesuffix("_chk"), -1)


def format_duration(ns: int) -> str:
    """A duration as it is written on the command line: 10us, 1ms, 1500ns."""
    for unit, length in (("s", 10**9), ("ms", 10**6), ("us", 10**3)):
        if ns >= length and ns % length == 0:
            return f"{ns // length}{unit}"
    return f"{ns}ns"


def drop_short_calls(result: Result, shortest: int, rows: IntArray, columns: Columns) -> IntArray:
    """Those of some rows that last `shortest` ns at least. What is left of nested calls nests as well."""
    long = columns["end"][rows] - columns["start"][rows] >= shortest
    result.drop(f"shorter than --osrt-min {format_duration(shortest)}", int((~long).sum()))
    return rows[long]


def read(reader: ReportReader) -> Result:
    """An interval for each call that is long enough, nested as the calls were; at its begin who called, where known."""
    columns = reader.columns(OSRT)
    calls = np.flatnonzero(~np.isin(columns["eventClass"], _NO_CALLS))
    result = Result(read=int(calls.size))
    rows = calls[select_sound_calls(result, *(columns[name][calls] for name in ("start", "end", "globalTid")))]
    rows = drop_short_calls(result, reader.options.osrt_min, rows, columns)
    if not rows.size:
        return result

    begin, end = columns["start"][rows], columns["end"][rows]
    place = reader.places.threads(columns["globalTid"][rows], application=False, system_calls=True)
    index, names = reader.names(columns["nameId"][rows])
    labels = reader.labels
    pthread_value = np.array([_PTHREAD_VALUE.get(name, 0) for name in names], np.int64)
    values = pthread_value.copy()
    others = np.flatnonzero(pthread_value == 0)
    values[others] = labels.name_ids(types.OS_RUNTIME.names, [names[i] for i in others])
    chain = columns["callchainId"][rows]
    callers = call_chains.find_functions(reader, call_chains.read_os_chains(reader), chain, types.CALLERS)
    for event_type, chosen in ((types.PTHREAD, pthread_value > 0), (types.OS_RUNTIME, pthread_value == 0)):
        of_type = np.flatnonzero(chosen[index])
        if of_type.size:
            handle = labels.handle(event_type)
            opening = [Pair(handle, values[index[of_type]]), *select(callers, of_type)]
            result.records.append(make_intervals(place[of_type], begin[of_type], end[of_type], opening, [handle]))

    add_states(result, place, begin, end, index, map(choose_call_state, names))
    return result


SOURCE = Source(
    "os_runtime",
    "OS runtime calls",
    (TABLE, call_chains.OF_OS_CALLS),
    read,
    rows=(EventRows(OSRT, "globalTid", application=False, system_calls=True, no_task=("eventClass", _NO_CALLS)),),
    row="calls",
)
