"""Writes simulated programs as a report, and finds what a model has of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from nsys2prv_ng.objects.places import Thread as ThreadPlace
from nsys2prv_ng.replay.model import Model
from tests.analysis.path.path_reports import CONTEXT_SYNC, EVENT_SYNC, STREAM_SYNC, STREAM_WAIT, Capture, write_captures
from tests.replay.simulator import CALLS, LAUNCHES, MPI, Action, Program, Times


def write_programs(programs: Sequence[Program], times: Sequence[Times], path: Path) -> Path:
    """Write one report of all ranks of programs, which have nothing to do with each other."""
    captures = []
    for program, observed in zip(programs, times, strict=True):
        own = {rank: Capture(rank, len(program.ranks), program.ranks[0]) for rank in program.ranks}
        numbers: dict[object, int] = {}
        for (rank, number), actions in program.threads.items():
            for action in actions:
                if action in observed.calls:
                    event = numbers.setdefault(action.event, len(numbers))
                    _add_call(own[rank], number, action, observed, event)
        for (rank, number), name, begin, end in observed.ranges:
            own[rank].range(name, begin, end, number)
        captures += own.values()
    return write_captures(captures, path, len(captures))


def _add_call(capture: Capture, thread: int, action: Action, times: Times, event: int) -> None:
    begin, end = times.calls[action]
    name = CALLS[action.do].replace("*", "")
    match action.do:
        case "launch" | "nccl" | "copy":
            launch = capture.call(name, begin, end, thread)
            if action.do == "copy":
                capture.copy(launch, *times.operations[action], action.stream)
            else:
                capture.kernel(launch, *times.operations[action], action.stream, action.name)
            if action.do == "nccl":
                capture.nccl_call(begin - 50, end + 20, thread)
        case "record":
            capture.record(event, begin, end, action.stream, thread)
        case "stream wait":
            capture.sync(name, begin, end, STREAM_WAIT, stream=action.stream, event=event, thread=thread)
        case "event":
            capture.sync(name, begin, end, EVENT_SYNC, event=event, thread=thread)
        case "stream":
            capture.sync(name, begin, end, STREAM_SYNC, stream=action.stream, thread=thread)
        case "device":
            capture.sync(name, begin, end, CONTEXT_SYNC, thread=thread)
        case "plain":
            capture.call(name, begin, end, thread)
        case "signal" | "wait":
            capture.system_call(name, begin, end, thread)
        case "send" | "receive":
            capture.mpi_message(name, begin, end, action.root)
        case _:
            assert action.do in MPI
            capture.mpi_call(begin, end, thread, name, None if action.do == "allreduce" else action.root)


def find_nodes(model: Model, programs: Sequence[Program], times: Sequence[Times]) -> dict[Action, tuple[int, int]]:
    """Return the numbers of each action's call and operation in a model; of the operation -1 if there is none."""
    places = model.job.reports[0].places.all
    threads = {}
    for number, place in enumerate(model.lanes.thread_place.tolist()):
        thread = places[place]
        assert isinstance(thread, ThreadPlace)
        threads[number] = thread.global_tid & 0xFFFFFF
    calls = model.lanes.calls
    call_of = {
        (threads[thread], begin): call
        for call, (thread, begin) in enumerate(zip(calls.thread.tolist(), calls.begin.tolist(), strict=True))
    }
    operation_of = {call: operation for operation, call in enumerate(model.launching.tolist())}
    zero = int(np.min(calls.begin)) - min(program.start for program in programs)
    found = {}
    for program, observed in zip(programs, times, strict=True):
        for (rank, number), actions in program.threads.items():
            for action in actions:
                if action not in observed.calls:
                    continue
                call = call_of[100 + rank + 1_000 * number, zero + observed.calls[action][0]]
                found[action] = call, operation_of[call] if action.do in LAUNCHES else -1
    return found
