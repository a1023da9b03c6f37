"""Executes small programs as a simulation of discrete events, in plain Python: nothing of the package computes here.

A program has the threads of a few ranks. What each does, and how long it takes, is fixed; when it does so follows:

- A call begins after the host code that follows the call before it. It returns when its own work is done, counted from
  when all that it waits for has ended.
- An operation begins a fixed latency after its launch call has begun, its stream has ended what came before, and the
  events have come for which its stream was made to wait.
- A collective moves data once all ranks that it needs have entered, a message once both sides are there.

A replay knows no more than what was observed. So it must agree only for programs in which nothing else is possible:
each latency of a GPU is the same; calls of one name that wait for their GPU have one length; the threads of a process
have streams of their own, so that no change alters the order in which a stream is given its work; a wait for another
thread was observed as a wait; and threads begin with a launch at the same time, since nothing shows what they followed.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

Thread = tuple[int, int]
"""Rank, and number of the thread in its process."""
UNIT = 16
"""All times are multiples of this (ns), so that those of changes are exact."""
GEMM, ELEMENTWISE, OWN, NCCL = (
    *("ampere_sgemm_128x64_nn", "vectorized_elementwise_kernel", "my_kernel"),
    "ncclDevKernel_AllReduce_Sum_f32_RING_LL",
)
CLASSES = {GEMM: "GEMM FP32", ELEMENTWISE: "Elementwise"}
CALLS = {
    "launch": "cudaLaunchKernel",
    "nccl": "cuLaunchKernelEx",
    "copy": "cudaMemcpy",
    "record": "cudaEventRecord",
    "stream wait": "cudaStreamWaitEvent",
    "event": "cudaEventSynchronize",
    "stream": "cudaStreamSynchronize",
    "device": "cudaDeviceSynchronize",
    "plain": "cudaMalloc",
    "signal": "pthread_cond_signal",
    "wait": "pthread_cond_*wait",
    "allreduce": "MPI_Allreduce",
    "bcast": "MPI_Bcast",
    "reduce": "MPI_Reduce",
    "send": "MPI_Send",
    "receive": "MPI_Recv",
}
MPI = ("allreduce", "bcast", "reduce", "send", "receive")
LAUNCHES = ("launch", "nccl", "copy")
_WAITING = ("copy", "event", "stream", "device")
SHORTEST_SYSTEM_CALL = 10_000
"""A replay reads no OS runtime call that is shorter (ns)."""


@dataclass(frozen=True)
class SimulatedChange:
    """What takes `factor` times as long: a target as in the language of changes."""

    target: str
    name: str = ""
    factor: float = 0.0
    rank: int | None = None

    def __str__(self) -> str:
        value = "= 0" if not self.factor else f"* {self.factor:g}"
        if self.target == "network":
            value = "= ideal" if not self.factor else f"* {1 / self.factor:g}"
        if self.target == "host" and not self.factor:
            value = "= ideal"
        where = "" if self.rank is None else f" on rank {self.rank}"
        return f"{self.target}{f' {self.name!r}' if self.name else ''} {value}{where}"


@dataclass(eq=False)
class Action:
    """What a thread does next: host code, then a call, or the start or end of a range (`push`, `pop`)."""

    do: str
    code: int
    """Time of the host code before it (ns)."""
    length: int = 0
    """Time of the call's own work; of MPI, how long data move (ns)."""
    ranges: tuple[str, ...] = ()
    """The ranges in which it happens."""
    name: str = ""
    """Name of the range or kernel."""
    stream: int = 0
    event: object = None
    """The event that it records or waits for."""
    run: int = 0
    """How long its operation runs, or moves data (ns)."""
    group: int = -1
    """Number of the collective, message or hand-over that it belongs to."""
    root: int = -1
    """Rank of the root, or of the partner of a message."""
    is_needed: bool = True
    """Whether others wait for it."""
    waits: bool = True
    """Whether it waits for others."""


@dataclass
class Program:
    """The actions of the threads of some ranks. `start`: when all threads make their first call (ns)."""

    ranks: list[int]
    latency: int
    start: int
    threads: dict[Thread, list[Action]] = field(default_factory=dict)

    def get_group(self, number: int) -> list[tuple[Thread, Action]]:
        """Return the actions of a collective, message or hand-over."""
        return [(thread, a) for thread, actions in self.threads.items() for a in actions if a.group == number]


@dataclass(eq=False)
class _Operation:
    action: Action
    rank: int
    launched: int
    causes: list[_Operation]
    begin: int | None = None
    end: int | None = None


@dataclass
class Times:
    """When each call began and ended, each operation, and each range (thread, name, ns)."""

    calls: dict[Action, tuple[int, int]]
    operations: dict[Action, tuple[int, int]]
    ranges: list[tuple[Thread, str, int, int]]


# ---- programs --------------------------------------------------------------------------------------------------------


class _Writer:
    """Writes a program by chance. Actions of several threads are added to all at once: nothing can wait forever."""

    def __init__(self, seed: int, first_rank: int, latency: int, lengths: dict[str, int]) -> None:
        self._random = random.Random(seed)
        # Rank 0 has others to wait for, since there are changes of it alone.
        ranks = list(range(first_rank, first_rank + self._random.randint(1, 3) if first_rank else 3))
        self.program = Program(ranks, latency, UNIT * self._random.randint(100, 1_000))
        self._lengths = lengths
        self._open: dict[Thread, list[str]] = {}
        self._streams: dict[Thread, list[int]] = {}
        self._groups = 0
        for rank in ranks:
            for number in range(self._random.randint(1, 2)):
                thread = rank, number
                self._open[thread] = ["side"] if number else []
                self._streams[thread] = [10 * (number + 1) + n for n in range(self._random.randint(1, 2))]
                self.program.threads[thread] = []
                self._launch(thread)
        for _ in range(self._random.randint(10, 60) if first_rank else 60):
            self._add_some()
        for thread, names in self._open.items():
            while names and names != ["side"]:
                self._add(thread, "pop", name=names.pop())

    def _time(self, low: int, high: int) -> int:
        return UNIT * self._random.randint(low // UNIT, high // UNIT)

    def _add(self, thread: Thread, do: str, **fields: object) -> Action:
        length = self._lengths[do] if do in _WAITING else self._time(100, 5_000)
        length = {"wait": 0, "push": 0, "pop": 0, "signal": SHORTEST_SYSTEM_CALL + length}.get(do, length)
        action = Action(do, self._time(100, 20_000), length, tuple(self._open[thread]), **fields)  # type: ignore[arg-type]
        self.program.threads[thread].append(action)
        return action

    def _pick_stream(self, thread: Thread) -> int:
        return self._random.choice(self._streams[thread])

    def _launch(self, thread: Thread) -> None:
        name, run = self._random.choice((GEMM, ELEMENTWISE, OWN)), self._time(500, 60_000)
        self._add(thread, "launch", name=name, stream=self._pick_stream(thread), run=run)

    def _add_some(self) -> None:
        thread = self._random.choice(list(self.program.threads))
        alone = (thread[0], 1) not in self.program.threads
        several = len(self.program.ranks) > 1
        kinds = ["launch"] * 4 + ["copy", "record", "stream wait", "event", "stream", "plain", "range", "range"]
        kinds += ["device"] if alone else ["hand over"] * 2
        kinds += ["collective", "collective", "message", "nccl", "nccl"] if several else []
        kind = self._random.choice(kinds)
        if kind == "launch":
            self._launch(thread)
        elif kind == "copy":
            self._add(thread, "copy", name="copy", stream=self._pick_stream(thread), run=self._time(500, 60_000))
        elif kind in ("record", "stream wait", "event"):
            event = (*thread, self._random.randint(0, 1))
            self._add(thread, kind, stream=self._pick_stream(thread), event=event)
        elif kind in ("stream", "device", "plain"):
            self._add(thread, kind, stream=self._pick_stream(thread))
        elif kind == "range":
            self._add_range(thread)
        elif kind == "hand over":
            self._hand_over(thread)
        elif kind == "message":
            self._send()
        else:
            self._meet(self._random.choice(("allreduce", "bcast", "reduce")) if kind == "collective" else kind)

    def _add_range(self, thread: Thread) -> None:
        names = self._open[thread]
        closed = [name for name in ("alpha", "beta") if name not in names]
        if closed and (not names or names == ["side"] or self._random.random() < 0.3):
            name = self._random.choice(closed)
            self._add(thread, "push", name=name)
            names.append(name)
        elif names and names != ["side"]:
            self._add(thread, "pop", name=names[-1])
            names.pop()

    def _number_group(self) -> int:
        self._groups += 1
        return self._groups

    def _hand_over(self, thread: Thread) -> None:
        """Let the process's other thread wait for this one, and perhaps make a stream wait for an event of it."""
        number, other = self._number_group(), (thread[0], 1 - thread[1])
        event = (*thread, f"hand over {number}")
        self._add(thread, "record", stream=self._pick_stream(thread), event=event)
        self._add(thread, "signal", group=number, waits=False)
        self._add(other, "wait", group=number, is_needed=False)
        self._add(other, "stream wait", group=number, stream=self._pick_stream(other), event=event)

    def _send(self) -> None:
        number, (sender, receiver) = self._number_group(), self._random.sample(self.program.ranks, 2)
        self._add((sender, 0), "send", group=number, root=receiver)
        self._add((receiver, 0), "receive", group=number, root=sender)

    def _meet(self, do: str) -> None:
        number, root = self._number_group(), self._random.choice(self.program.ranks)
        run = self._time(500, 60_000)
        for rank in self.program.ranks:
            thread = rank, 0
            if do == "nccl":
                self._add(thread, do, group=number, name=NCCL, stream=self._streams[thread][0], run=run)
                continue
            is_needed, waits = do != "bcast" or rank == root, do != "reduce" or rank == root
            self._add(thread, do, group=number, root=root, is_needed=is_needed, waits=waits)


def write_program(seed: int, first_rank: int, latency: int, lengths: dict[str, int]) -> Program:
    """Return a program by chance, whose waits for other threads all happen. `lengths`: of calls that wait (ns)."""
    program = _Writer(seed, first_rank, latency, lengths).program
    while True:
        times = simulate(program)
        waits = [a for actions in program.threads.values() for a in actions if a.do == "wait"]
        idle = {a.group for a in waits if times.calls[a][1] - times.calls[a][0] < SHORTEST_SYSTEM_CALL}
        if not idle:
            return program
        for thread, actions in program.threads.items():
            program.threads[thread] = [a for a in actions if a.do == "signal" or a.group not in idle]


def draw_lengths(seed: int) -> dict[str, int]:
    """Return the length (ns) of calls that wait for their GPU, by what they do."""
    chance = random.Random(seed)
    return {do: UNIT * chance.randint(10, 400) for do in _WAITING}


# ---- execution -------------------------------------------------------------------------------------------------------


def simulate(program: Program, changes: Sequence[SimulatedChange] = ()) -> Times:
    """Return when everything happens, with changes."""
    return _Run(program, changes).times


class _Run:
    """Executes the threads one after the other, each until it must wait, again and again."""

    def __init__(self, program: Program, changes: Sequence[SimulatedChange]) -> None:
        self._program, self._changes = program, changes
        self._nobody_waits = any(change.target == "waits" for change in changes)
        self._at = dict.fromkeys(program.threads, 0)
        self._now = dict.fromkeys(program.threads, program.start)
        self._begun: dict[Action, int] = {}
        self._waited: dict[Action, list[_Operation]] = {}
        self._operations: dict[Action, _Operation] = {}
        self._tail: dict[tuple[int, int], list[_Operation]] = {}
        self._events: dict[tuple[int, object], list[_Operation]] = {}
        self._pushed: dict[Thread, list[int]] = {thread: [] for thread in program.threads}
        self._groups = {
            (thread[0], a): program.get_group(a.group)
            for thread, actions in program.threads.items()
            for a in actions
            if a.group >= 0
        }
        self.times = Times({}, {}, [])
        while any(at < len(program.threads[thread]) for thread, at in self._at.items()):
            moved = [self._finish(operation) for operation in self._operations.values()]
            for thread in program.threads:
                while self._advance(thread):
                    moved.append(True)
            assert any(moved), "all threads wait"
        while any(self._finish(operation) for operation in self._operations.values()):
            pass
        for action, operation in self._operations.items():
            assert operation.begin is not None and operation.end is not None
            self.times.operations[action] = operation.begin, operation.end
        for rank, number in program.threads:
            if number:
                self.times.ranges.append(((rank, number), "side", 1, self._now[rank, number] + UNIT))

    # ---- changes ----

    def _applying(self, rank: int) -> list[SimulatedChange]:
        return [change for change in self._changes if change.rank in (None, rank)]

    def _scale_code(self, rank: int, action: Action) -> int:
        time = float(action.code)
        for change in self._applying(rank):
            if change.target == "host" or (change.target == "range" and change.name in action.ranges):
                time *= change.factor
        assert time == int(time)
        return int(time)

    def _scale_call(self, rank: int, action: Action) -> tuple[int, bool]:
        """Return (how long its own work takes, whether it is made at all)."""
        time, is_made = float(action.length), True
        moves_data = action.do in MPI and action.waits
        for change in self._applying(rank):
            if change.target == "call" and change.name == CALLS[action.do]:
                time, is_made = time * change.factor, is_made and change.factor > 0
            elif change.target == ("network" if moves_data else "host"):
                time *= change.factor
            elif change.target == "range" and change.name in action.ranges and not (change.factor and moves_data):
                time, is_made = time * change.factor, is_made and change.factor > 0
        assert time == int(time)
        return int(time), is_made

    def _scale_operation(self, operation: _Operation) -> tuple[int, int, bool]:
        """Return (how long it runs, its latency, whether it waits for other ranks)."""
        action = operation.action
        run, latency, waits = float(action.run), self._program.latency, action.do == "nccl"
        for change in self._applying(operation.rank):
            own = {
                "kernel": action.name == change.name and action.do != "copy",
                "class": CLASSES.get(action.name) == change.name,
                "copies": action.do == "copy",
                "range": change.name in action.ranges,
                "network": action.do == "nccl",
            }.get(change.target, False)
            if not own:
                continue
            if change.target != "range" or action.do != "nccl" or not change.factor:
                run *= change.factor
            if not change.factor and change.target != "network":
                latency, waits = 0, False
        assert run == int(run)
        return int(run), latency, waits

    # ---- operations ----

    def _finish(self, operation: _Operation) -> bool:
        """Let an operation begin or end if that can be known now; return whether it was."""
        if operation.end is not None:
            return False
        run, latency, waits = self._scale_operation(operation)
        if operation.begin is None:
            ends = [cause.end for cause in operation.causes]
            if None in ends:
                return False
            operation.begin = max([operation.launched, *(end for end in ends if end is not None)]) + latency
        begins: list[int | None] = [operation.begin]
        if waits and not self._nobody_waits:
            for _, other in self._groups[operation.rank, operation.action]:
                begins.append(self._operations[other].begin if other in self._operations else None)
        if None not in begins:
            operation.end = max(begin for begin in begins if begin is not None) + run
        return operation.end is not None

    def _launch(self, rank: int, action: Action, begin: int) -> _Operation:
        tail = rank, action.stream
        operation = _Operation(action, rank, begin, self._tail.get(tail, []))
        self._operations[action] = operation
        self._tail[tail] = [operation]
        return operation

    # ---- threads ----

    def _advance(self, thread: Thread) -> bool:
        """Carry out what a thread does next; return whether that is done."""
        actions, rank = self._program.threads[thread], thread[0]
        if self._at[thread] == len(actions):
            return False
        action = actions[self._at[thread]]
        if action.do == "stream wait" and action.group >= 0 and (rank, action.event) not in self._events:
            return False  # what a stream waits for stays, even if its thread no longer waits for the other one
        if action not in self._begun:
            is_first = self._at[thread] == 0
            self._now[thread] += 0 if is_first else self._scale_code(rank, action)
            self._begun[action] = self._now[thread]
            self._begin(thread, action)
        end = self._find_end(rank, action)
        if end is None:
            return False
        if action.do not in ("push", "pop"):
            self.times.calls[action] = self._begun[action], end
        self._now[thread] = end
        self._at[thread] += 1
        return True

    def _begin(self, thread: Thread, action: Action) -> None:
        rank, now = thread[0], self._begun[action]
        waited: list[_Operation] = []
        if action.do in LAUNCHES:
            operation = self._launch(rank, action, now)
            waited = [operation] if action.do == "copy" else []
        elif action.do == "record":
            self._events[rank, action.event] = self._tail.get((rank, action.stream), [])
        elif action.do == "stream wait":
            self._tail[rank, action.stream] = [
                *self._tail.get((rank, action.stream), []),
                *self._events.get((rank, action.event), []),
            ]
        elif action.do == "event":
            waited = self._events.get((rank, action.event), [])
        elif action.do == "stream":
            waited = self._tail.get((rank, action.stream), [])
        elif action.do == "device":
            waited = [operation for (owner, _), tail in self._tail.items() if owner == rank for operation in tail]
        elif action.do == "push":
            self._pushed[thread].append(now)
        elif action.do == "pop":
            self.times.ranges.append((thread, action.name, self._pushed[thread].pop(), now))
        self._waited[action] = waited

    def _find_end(self, rank: int, action: Action) -> int | None:
        """Return when a call returns; None as long as that is not known."""
        begin = self._begun[action]
        if action.do in ("push", "pop"):
            return begin
        length, is_made = self._scale_call(rank, action)
        if not is_made:
            return begin + length
        if action.do == "wait":
            signal = next(a for _, a in self._groups[rank, action] if a.do == "signal")
            return None if signal not in self.times.calls else max(begin, self.times.calls[signal][1])
        reasons: list[int | None] = [begin, *(operation.end for operation in self._waited[action])]
        if action.do in MPI and action.waits and not self._nobody_waits:
            reasons += [self._begun.get(other) for _, other in self._groups[rank, action] if other.is_needed]
        if None in reasons:
            return None
        return max(reason for reason in reasons if reason is not None) + length
