"""Small jobs made by chance: threads, streams, events, synchronizations, copies that block, collectives, hand-overs.

Nothing of the package computes here. Each operation begins, and each call returns, as soon as the last of its causes
has happened, plus a latency.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Generator
from dataclasses import dataclass, field

from nsys2prv_ng.analysis.path import columns as path

_COLLECTIVES = 4
_ACTIONS = (
    ("launch",) * 4 + ("join",) * 2 + ("record", "stream wait", "event", "poll", "stream", "device", "copy", "code")
)
Program = list[tuple[str, int]]
"""Actions with the stream, the event (numbered as the stream that records it), or the number of the collective."""


@dataclass(eq=False)
class Op:
    """An operation of a stream; its times (ns) are None as long as a cause is not known."""

    stream: int
    launched: int
    thread: int
    causes: list[Op]
    """Those that it waits for: the operation before it, and those of CUDA events."""
    duration: int
    latency: int
    collective: list[Op | None] | None = None
    producer: list[Op] = field(default_factory=list)
    number: int = -1
    _begin: int | None = None
    _end: int | None = None

    @property
    def begin(self) -> int | None:
        if self._begin is None:
            ends = [cause.end for cause in self.causes]
            if None not in ends:
                self._begin = max([self.launched, *(end for end in ends if end is not None)]) + self.latency
        return self._begin

    @property
    def end(self) -> int | None:
        if self._end is None:
            begins = [None if op is None else op.begin for op in self.collective or [self]]
            if None not in begins:
                self._end = max(begin for begin in begins if begin is not None) + self.duration
        return self._end


@dataclass(eq=False)
class Call:
    """A call of a thread, with what it waits for."""

    thread: int
    begin: int
    end: int | None = None
    sync: int = path.NO_SYNC
    target: int = path.NONE
    waited: list[Op] = field(default_factory=list)
    since: int | None = None
    group: list[Call | None] | None = None
    """The calls of all ranks in a collective of MPI, whose duration after the last has begun is `length`."""
    signal: Call | None = None
    """The call of another thread whose end this one waits for."""
    launched: Op | None = None
    length: int = 0
    action: str = ""
    number: int = -1
    """Stream, event, or index of the collective."""
    event: int = -1
    """The event that a stream is made to wait for."""


class SmallJob:
    """A job of one to four ranks with one to three streams and one or two threads each."""

    def __init__(self, seed: int, *, latency: int) -> None:
        self._random = random.Random(seed)
        self._latency = latency
        self.ranks = self._random.randint(1, 4)
        self.ops: list[Op] = []
        self.calls: list[Call] = []
        self.streams: list[tuple[int, int]] = []
        """(rank, device) of each stream."""
        self.threads: list[int] = []
        """Rank of each thread."""
        self._last: dict[int, Op] = {}
        self._pending: dict[int, list[Op]] = {}
        self._events: dict[tuple[int, int], list[Op]] = {}
        self._nccl: list[list[Op | None]] = [[None] * self.ranks for _ in range(_COLLECTIVES)]
        self._mpi: list[list[Call | None]] = [[None] * self.ranks for _ in range(_COLLECTIVES)]
        self._moving = [[self._time(5, 60_000) for _ in range(2)] for _ in range(_COLLECTIVES)]
        self._signals: dict[object, Call] = {}
        self._run([program for rank in range(self.ranks) for program in self._make_programs(rank)])

    def _time(self, low: int, high: int) -> int:
        return self._random.randint(low, high)

    # ---- programs ----------------------------------------------------------------------------------------------------

    def _make_programs(self, rank: int) -> list[Program]:
        """Return the actions of the threads of a rank: names and numbers of streams, events or collectives."""
        first = len(self.streams)
        count = self._random.randint(1, 3)
        devices = [self._random.randint(0, 1) for _ in range(count)]
        self.streams += [(rank, device) for device in devices]
        programs: list[Program] = [[] for _ in range(self._random.randint(1, 2))]
        self.threads += [rank] * len(programs)
        actions = [(self._random.choice(_ACTIONS), -1) for _ in range(self._random.randint(5, 25))]
        if self.ranks > 1:
            # All ranks have them in one order, or they wait for each other.
            collectives = [(kind, number) for number in range(_COLLECTIVES) for kind in ("nccl", "mpi")]
            places = sorted(self._random.randint(0, len(actions)) for _ in collectives)
            for place, collective in reversed(list(zip(places, collectives, strict=True))):
                actions.insert(place, collective)
        for action, number in actions:
            owner = 0 if number >= 0 else self._random.randrange(len(programs))
            stream = first + self._random.randrange(count)
            same = [number for number in range(first, first + count) if self.streams[number] == self.streams[stream]]
            other = self._random.choice(same)
            if action == "join":
                programs[owner] += [("launch", other), ("record", other), ("stream wait", stream << 8 | other)]
                action = self._random.choice(("launch", "stream", "device", "record"))
            number = stream << 8 | other if action == "stream wait" else number
            programs[owner].append((action, number if number >= 0 else stream))
            if len(programs) == 2 and self._random.random() < 0.15:
                programs[owner].append(("signal", len(programs[0]) << 20 | len(programs[1])))
                programs[1 - owner].append(("wait", programs[owner][-1][1]))
        for program in programs:
            program.insert(0, ("launch", first))
        return programs

    # ---- execution ---------------------------------------------------------------------------------------------------

    def _run(self, programs: list[Program]) -> None:
        """Carry out the programs, always the thread that is first in time."""
        running = [self._execute(thread, program) for thread, program in enumerate(programs)]
        waiting: dict[int, Callable[[], int | None]] = {}
        now: dict[int, int] = {}
        for thread, generator in enumerate(running):
            waiting[thread] = next(generator)
        while waiting:
            ready = {thread: time for thread, ask in waiting.items() if (time := ask()) is not None}
            assert ready, "a deadlock of the simulated job"
            thread = min(ready, key=lambda number: (ready[number], number))
            assert ready[thread] >= now.get(thread, 0)
            now[thread] = ready[thread]
            try:
                waiting[thread] = running[thread].send(ready[thread])
            except StopIteration:
                del waiting[thread]

    def _execute(self, thread: int, program: Program) -> Generator[Callable[[], int | None], int, None]:
        """Yield, before each action and at the end of what blocks, a function that returns the time when it goes on."""
        now = 0
        for action, number in program:
            now += self._time(100, 15_000)
            now = yield lambda at=now: at
            if action == "code":
                now += self._time(0, 200_000)
                continue
            if action == "poll":
                now = yield from self._poll(thread, number, now)
                continue
            call = Call(thread, now, length=self._time(50, 5_000), action=action, number=number)
            self.calls.append(call)
            ask = self._start(call, action, number)
            now = yield ask
            call.end = now

    def _start(self, call: Call, action: str, number: int) -> Callable[[], int | None]:
        """Begin a call; return a function that returns its end, None as long as that is not known."""
        rank = self.threads[call.thread]
        if action in ("launch", "copy", "nccl"):
            op = self._launch(call, self._find_nccl_stream(rank) if action == "nccl" else number)
            if action == "nccl":
                self._nccl[number][rank] = op
                op.collective, op.duration = self._nccl[number], self._moving[number][0]
            if action == "copy":
                call.sync, call.waited = path.SYNC_OPERATION, [op]
        elif action == "record":
            self._events[rank, number] = self._find_last(number)
        elif action == "stream wait":
            call.number, call.event = number >> 8, number & 0xFF
            self._pending.setdefault(call.number, []).extend(self._events.get((rank, call.event), []))
        elif action == "event":
            call.sync, call.waited = path.SYNC_OPERATION, self._events.get((rank, number), [])
        elif action in ("stream", "device"):
            device = self.streams[number][1]
            of_device = [other for other, where in enumerate(self.streams) if where == (rank, device)]
            call.sync = path.SYNC_STREAM if action == "stream" else path.SYNC_DEVICE
            call.target = number if action == "stream" else rank * 2 + device
            call.waited = [
                op for other in ([number] if action == "stream" else of_device) for op in self._find_last(other)
            ]
        elif action == "mpi":
            call.group, call.length = self._mpi[number], self._moving[number][1]
            call.group[rank] = call
            return lambda: self._end_of_group(call)
        elif action == "signal":
            call.length += 1_000  # nsys records none that is shorter
            self._signals[rank, number] = call
        elif action == "wait":
            return lambda: self._end_of_wait(call, (rank, number))
        return lambda: self._end_of_sync(call)

    def _find_nccl_stream(self, rank: int) -> int:
        return max(number for number, (of, _) in enumerate(self.streams) if of == rank)

    def _find_last(self, stream: int) -> list[Op]:
        """Return what all that was given to a stream so far has ended with."""
        return [*([self._last[stream]] if stream in self._last else []), *self._pending.get(stream, [])]

    def _launch(self, call: Call, stream: int) -> Op:
        producer = self._pending.pop(stream, [])
        before = [self._last[stream]] if stream in self._last else []
        latency = self._time(0, self._latency)
        op = Op(stream, call.begin, call.thread, before + producer, self._time(1, 40_000), latency)
        op.producer, op.number = producer, len(self.ops)
        self.ops.append(op)
        self._last[stream] = op
        call.launched = op
        return op

    def _end_of_sync(self, call: Call) -> int | None:
        ends = [op.end for op in call.waited]
        return None if None in ends else max([call.begin, *(end for end in ends if end is not None)]) + call.length

    def _end_of_group(self, call: Call) -> int | None:
        begins = [other.begin for other in call.group or [] if other is not None]
        return max(begins) + call.length if len(begins) == self.ranks else None

    def _end_of_wait(self, call: Call, key: object) -> int | None:
        signal = self._signals.get(key)
        if signal is None or signal.end is None:
            return None
        if signal.end <= call.begin:
            return call.begin + call.length
        call.sync, call.signal = path.SYNC_THREAD, signal
        return signal.end

    def _poll(self, thread: int, event: int, now: int) -> Generator[Callable[[], int | None], int, None]:
        """Ask for an event every few us until it has come; return when the last query returns."""
        waited = self._events.get((self.threads[thread], event), [])
        between, length = self._time(100, 3_000), self._time(100, 2_000)
        since = None
        while True:
            call = Call(thread, now, length=length, since=since, action="query", number=event)
            self.calls.append(call)
            now = yield lambda at=now: at + length
            call.end = now
            if since is not None:
                call.sync, call.waited = path.SYNC_OPERATION, waited
            ends = [op.end for op in waited]
            if all(end is not None and end <= call.begin for end in ends):
                return now
            since = call.begin
            now = yield lambda at=now: at + between
