"""Reads OS runtime calls on host threads and, apart from them, the system calls that nsys traced (its syscall trace).

Calls of pthreads have a separate event type. No capture of system calls was available: their table follows NVIDIA's
documentation of the export.
"""

from __future__ import annotations

import re

import numpy as np

from nsys2prv_ng import source_names
from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.paraver.load_cost import LoadCost
from nsys2prv_ng.paraver.value_tables import PTHREAD_CALLS
from nsys2prv_ng.report.database import NULL, Table
from nsys2prv_ng.sources.shared import call_chains
from nsys2prv_ng.sources.shared.host_calls import NumberedCalls, read_calls
from nsys2prv_ng.sources.shared.report_reader import ReportReader
from nsys2prv_ng.sources.shared.source import EventRows, Result, Source

OSRT = "OSRT_API"
_CALL = 27
_COLUMNS = ("start", "end", "globalTid", "nameId")
TABLE = Table(OSRT, _COLUMNS, {"eventClass": _CALL, "callchainId": NULL})
SYSTEM_CALL_TABLE = Table("SYSCALL", _COLUMNS, {"callchainId": NULL})

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


def find_pthread_value(name: str) -> int:
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


def read(reader: ReportReader) -> Result:
    """Return an interval for each call that is long enough, with its callers if nsys took a backtrace."""
    return read_calls(
        reader,
        {OSRT: types.OS_RUNTIME},
        find_rows=lambda columns: np.flatnonzero(~np.isin(columns["eventClass"], _NO_CALLS)),
        numbered=NumberedCalls(types.PTHREAD, find_pthread_value),
        system=True,
        read_chains=lambda reader, _: call_chains.read_chains(reader, call_chains.OS_CALL_CHAINS),
        choose_state=choose_call_state,
    )


def read_system_calls(reader: ReportReader) -> Result:
    """Return an interval for each system call that is long enough, with its callers if nsys took a backtrace."""
    return read_calls(
        reader,
        {SYSTEM_CALL_TABLE.name: types.SYSTEM_CALL},
        system=True,
        read_chains=lambda reader, _: call_chains.read_chains(reader, call_chains.SYSTEM_CALL_CHAINS),
        choose_state=choose_call_state,
    )


SOURCE = Source(
    source_names.OS_RUNTIME,
    "OS runtime calls",
    (TABLE, call_chains.OS_CALL_CHAINS),
    read,
    counted_tables=(
        EventRows(OSRT, "globalTid", application=False, system_calls=True, no_task=("eventClass", _NO_CALLS)),
    ),
    noun="calls",
    needed_by=(),
    load=LoadCost(states=0.5, events=0.7, pairs=0.7),  # most calls are shorter than --osrt-min
)
SYSTEM_CALLS = Source(
    source_names.SYSTEM_CALLS,
    "System calls",
    (SYSTEM_CALL_TABLE, call_chains.SYSTEM_CALL_CHAINS),
    read_system_calls,
    counted_tables=(EventRows(SYSTEM_CALL_TABLE.name, "globalTid", application=False, system_calls=True),),
    noun="calls",
    needed_by=(),
)
