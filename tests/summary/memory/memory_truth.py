"""Made reports of programs that allocate, a caching allocator as PyTorch's, and what plain loops find in them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from tests.sources.small_reports import PROCESS, export

MIB = 1 << 20
STEP = 1_000_000
"""Length of a step of a made program (ns)."""
_STRINGS = [
    "kernel",
    "step",
    "forward",
    "cudaMalloc_v3020",
    "cudaFree_v3020",
    "cudaMallocAsync_v11020",
    "cudaLaunchKernel",
]
MALLOC, FREE, ASYNC, LAUNCH = 3, 4, 5, 6
NAMES = {MALLOC: "cudaMalloc", FREE: "cudaFree", ASYNC: "cudaMallocAsync"}
_PLACE = ("start", "globalPid", "deviceId", "contextId")


@dataclass
class Change:
    """An allocation or free by the main thread of a process: time (ns), its call, address, bytes and kind of memory."""

    time: int
    call: int
    address: int
    bytes: int
    is_free: bool = False
    device: int = 0
    kind: int = 2


@dataclass
class Program:
    """A program of steps, each with a range `step` and in it, in its later half, a range `forward`."""

    steps: int
    changes: list[Change] = field(default_factory=list)
    kernel_ns: Callable[[int], int] = lambda step: 1000
    devices: int = 1
    process: int = PROCESS

    def begin(self, step: int) -> int:
        """Return when a step begins (ns)."""
        return (step + 1) * STEP

    def end(self, step: int) -> int:
        """Return when its range ends (ns); the next one begins a little later."""
        return (step + 2) * STEP - 1000

    def write(self, path: Path) -> Path:
        """Write a report; each change happens in the middle of a call of 200 ns."""
        thread = self.process | self.process >> 24 & 0xFFFFFF
        ranges, calls, kernels = [], [], []
        for step in range(self.steps):
            begin, end = self.begin(step), self.end(step)
            ranges.append((59, begin, end, f"step {step}", thread))
            ranges.append((59, (begin + end) // 2, end, "forward", thread))
            for device in range(self.devices):
                launch = begin + 10 + 100 * device
                calls.append((launch, launch + 20, thread, LAUNCH, 10_000 * device + step + 1))
                times = launch + 30, launch + 30 + self.kernel_ns(step)
                kernels.append(
                    (*reversed(times), self.process, device, 1 + device, 7, 0, 0, 10_000 * device + step + 1)
                )
        rows = []
        for n, change in enumerate(self.changes, 100_000):
            if change.time:
                calls.append((change.time - 100, change.time + 100, thread, change.call, n))
            place = self.process, change.device, 1 + change.device
            rows.append((change.time, *place, change.address, change.bytes, change.kind, int(change.is_free), n))
        memory = ((*_PLACE, "address", "bytes", "memKind", "memoryOperationType", "correlationId"), rows)
        launched = (("end", *_PLACE, "streamId", "shortName", "demangledName", "correlationId"), kernels)
        gpus = [(n, "GPU", f"uuid {n}") for n in range(self.devices)]
        tables = {
            "NVTX_EVENTS": (("eventType", "start", "end", "text", "globalTid"), ranges),
            "CUPTI_ACTIVITY_KIND_RUNTIME": (("start", "end", "globalTid", "nameId", "correlationId"), sorted(calls)),
            "CUPTI_ACTIVITY_KIND_KERNEL": launched,
            "CUDA_GPU_MEMORY_USAGE_EVENTS": memory,
            "TARGET_INFO_GPU": (("id", "name", "uuid"), gpus),
        }
        return export(path, _STRINGS, tables)


@dataclass
class Truth:
    """What plain loops find on one GPU from the first counted step to the last."""

    begin: int
    end: int
    peak: int
    least: list[int] = field(default_factory=list)
    kept: Counter[tuple[str, str]] = field(default_factory=Counter)


def find_truth(program: Program, device: int, first: int) -> Truth:
    """Return the truth of a GPU in the steps from a number on, by walking through all changes in order of time."""
    known: dict[int, Change] = {}
    real: list[tuple[int, int, Change]] = []  # time, change of the level, what changed
    for change in sorted(program.changes, key=lambda change: change.time):
        if change.is_free and change.address not in known:
            continue
        made = known.pop(change.address) if change.is_free else known.setdefault(change.address, change)
        if made.kind in (2, 3) and made.device == device:
            real.append((change.time, -made.bytes if change.is_free else change.bytes, made))
    low = program.end(first - 1) if first else program.begin(0) - 1
    ends = [program.end(step) for step in range(first, program.steps)]
    level = sum(size for time, size, _ in real if time <= low)
    truth = Truth(begin=level, end=level, peak=level)
    since, alive = low, {}
    for end in ends:
        least, kept = level, dict(alive)
        for time, size, made in real:
            if since < time <= end:
                level += size
                if size > 0:
                    alive[made.address] = made
                else:
                    alive.pop(made.address, None)
                truth.peak = max(truth.peak, level)
                if level < least:
                    least, kept = level, dict(alive)
        truth.least.append(least)
        since = end
    truth.end = level
    for made in kept.values():
        inside = [step for step in range(program.steps) if program.begin(step) <= made.time < program.end(step)]
        late = any(made.time >= (program.begin(step) + program.end(step)) // 2 for step in inside)
        truth.kept["forward" if late else "step" if inside else "", NAMES[made.call]] += made.bytes
    return truth


# ---- programs --------------------------------------------------------------------------------------------------------


def make_random_program(seed: int, steps: int = 8, devices: int = 1, process: int = PROCESS) -> Program:
    """Return a program that allocates and frees at random: also before the capture, and what is not known."""
    random = Random(seed)
    program = Program(steps, devices=devices, process=process)
    live: list[Change] = []
    times = sorted(random.sample(range(STEP // 500, (steps + 2) * STEP // 500), 20 * steps))
    for address, time in enumerate([0] * 5 + [500 * time + 250 for time in times], 1):
        if live and random.random() < 0.45:
            made = live.pop(random.randrange(len(live)))
            program.changes.append(Change(time, FREE, made.address, made.bytes, True, made.device, made.kind))
        elif time and random.random() < 0.05:
            program.changes.append(Change(time, FREE, 10**6 + address, 64, is_free=True))
        else:
            device, kind = random.randrange(devices), random.choice([2, 2, 2, 2, 3, 4])
            size = random.randint(1, 50 * MIB)
            live.append(Change(time, random.choice([MALLOC, ASYNC]), address, size, False, device, kind))
            program.changes.append(live[-1])
    return program


class CachingAllocator:
    """PyTorch's allocator in short: segments of 2 MiB for small blocks, of 20 MiB for blocks below 10 MiB.

    `grown`: the size of each segment that it allocated. A freed block is merged with free ones beside it.
    """

    def __init__(self) -> None:
        self.grown: list[int] = []
        self._free: dict[bool, list[tuple[int, int, int]]] = {True: [], False: []}  # segment, offset, size
        self._live: dict[int, tuple[bool, tuple[int, int, int]]] = {}
        self._next = 0

    @property
    def reserved(self) -> int:
        return sum(self.grown)

    def allocate(self, size: int) -> int:
        """Return the handle of a new block."""
        size = max(512, -(-size // 512) * 512)
        is_small = size <= MIB
        free = self._free[is_small]
        fits = [block for block in free if block[2] >= size]
        if fits:
            segment, offset, length = min(fits, key=lambda block: block[2])
            free.remove((segment, offset, length))
        else:
            length = 2 * MIB if is_small else 20 * MIB if size < 10 * MIB else -(-size // (2 * MIB)) * 2 * MIB
            segment, offset = len(self.grown), 0
            self.grown.append(length)
        if length - size >= (512 if is_small else MIB):
            free.append((segment, offset + size, length - size))
            length = size
        self._next += 1
        self._live[self._next] = is_small, (segment, offset, length)
        return self._next

    def free(self, handle: int) -> None:
        is_small, (segment, offset, length) = self._live.pop(handle)
        free = self._free[is_small]
        for block in [block for block in free if block[0] == segment]:
            if block[1] + block[2] == offset or offset + length == block[1]:
                free.remove(block)
                offset, length = min(offset, block[1]), length + block[2]
        free.append((segment, offset, length))


def train(random: Random, steps: int, *, leak: int = 0, spread: float = 0.0, tensors: int = 12) -> Iterator[int]:
    """Yield what a caching allocator has reserved after each step of a training that leaks so many bytes a step.

    `spread`: by how much the size of activations differs from step to step, as a part of it.
    """
    allocator = CachingAllocator()
    sizes = [random.choice([200_000, MIB // 2, 3 * MIB, 7 * MIB, 30 * MIB]) for _ in range(tensors)]
    for size in sizes:  # parameters
        allocator.allocate(size)
    for _ in range(steps):
        length = 1 + spread * random.uniform(-1, 1)
        live = []
        for size in sizes:
            live.append(allocator.allocate(int(size * length)))
        if leak:
            allocator.allocate(leak)
        random.shuffle(live)
        for handle in live:
            allocator.free(handle)
        yield allocator.reserved
