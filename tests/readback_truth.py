"""Where a program of one GPU, without NCCL and MPI, waits for it: by plain SQL, and a loop over waits and gaps."""

from __future__ import annotations

import sqlite3
from collections import Counter, defaultdict
from pathlib import Path
from typing import NamedTuple

from tests.conftest import DATA, unpack

COPIES = {1: "Memcpy host to device", 2: "Memcpy device to host"}
_MEMORY = {0: "Pageable", 1: "Pinned"}
_SYNCHRONISING = (
    *("cudaDeviceSynchronize", "cudaStreamSynchronize", "cudaEventSynchronize", "cudaThreadSynchronize"),
    *("cuCtxSynchronize", "cuStreamSynchronize", "cuEventSynchronize"),
)


class Wait(NamedTuple):
    """A call that waits, and what for."""

    thread: int
    begin: int
    end: int
    call: str
    operation: str
    memory: str
    bytes: int


class Idle(NamedTuple):
    """Idle time of the GPU that began during a wait."""

    begin: int
    end: int
    wait: Wait


def find_program(name: str) -> Path:
    """Return the report of a program: solver-a."""
    return unpack(DATA / f"programs/{name}.rank0.sqlite.xz")


def list_waits(report: Path) -> tuple[list[Wait], list[Idle]]:
    """Return all waits, and all idle times after them."""
    with sqlite3.connect(f"file:{report}?mode=ro", uri=True) as database:
        tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master")}
        calls = {
            row[0]: (row[1], row[2], row[3], row[4].split("_v")[0])
            for row in database.execute(
                """SELECT correlationId, start, "end", globalTid, value FROM CUPTI_ACTIVITY_KIND_RUNTIME
                JOIN StringIds ON id = nameId"""
            )
        }
        operations = []
        for kind in ("KERNEL", "MEMSET", "GRAPH_TRACE"):
            if f"CUPTI_ACTIVITY_KIND_{kind}" in tables:
                query = f'SELECT start, "end", correlationId, "", "", 0 FROM CUPTI_ACTIVITY_KIND_{kind}'
                operations += database.execute(query).fetchall()
        query = 'SELECT start, "end", correlationId, copyKind, srcKind, dstKind, bytes FROM CUPTI_ACTIVITY_KIND_MEMCPY'
        for begin, end, number, kind, source, target, size in database.execute(query):
            memory = _MEMORY.get(target if kind == 2 else source, "") if kind in COPIES else ""
            operations.append((begin, end, number, COPIES.get(kind, ""), memory, size))
    operations.sort()
    first_of_call = {}
    for operation in operations:
        first_of_call.setdefault(operation[2], operation)
    events = defaultdict(list)
    for number, (begin, end, thread, name) in calls.items():
        operation = first_of_call.get(number)
        copies = operation is not None and operation[3] != ""
        may_block = copies and (operation[4] == "Pageable" or "Async" not in name)
        waits = name in _SYNCHRONISING or (may_block and end >= operation[1])
        events[thread].append((begin, end, name, operation, waits))
    waits_of = {}
    for thread, made in events.items():
        latest, waits = None, []
        for begin, end, name, operation, is_wait in sorted(made, key=lambda each: each[:2]):
            latest = operation or latest
            if is_wait and latest:
                waits.append(Wait(thread, begin, end, name, latest[3], latest[4], latest[5] if latest[3] else 0))
                latest = None
        waits_of[thread] = waits
    idles, until = [], operations[0][1]
    for begin, end, number, *_ in operations:
        if begin > until and number in calls:
            sent, returned, thread, _ = calls[number]
            inside = [wait for wait in waits_of[thread] if wait.begin <= until < wait.end and wait.begin < sent]
            if inside and returned > until:
                idles.append(Idle(until, min(returned, begin), inside[-1]))
        until = max(until, end)
    return [wait for waits in waits_of.values() for wait in waits], idles


def sum_waits(report: Path) -> dict[tuple[str, str, str], tuple[int, int, int, int]]:
    """Return count, bytes, time of waits and idle time (ns) by call, operation and kind of memory."""
    waits, idles = list_waits(report)
    sums: dict[tuple[str, str, str], Counter[str]] = defaultdict(Counter)
    for wait in waits:
        sums[wait[3:6]].update(count=1, bytes=wait.bytes, wait=wait.end - wait.begin)
    for idle in idles:
        sums[idle.wait[3:6]].update(idle=idle.end - idle.begin)
    return {key: (each["count"], each["bytes"], each["wait"], each["idle"]) for key, each in sums.items()}
