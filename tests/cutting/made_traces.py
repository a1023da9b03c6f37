"""Traces made of intervals, points, states and lines, and what a window must leave of them, by loops over these."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import numpy as np

RANGE, KERNEL, CLASS, COPY, BYTES, NCCL_BYTES, MARK, METRIC, MEMORY = (
    9600, 63000006, 63000200, 63000001, 63000002, 9502, 9650, 9400, 66500011,
)  # fmt: skip
PCF = f"""STATES
0 Idle
1 Running

STATES_COLOR
0 {{117,195,255}}
1 {{0,0,255}}

EVENT_TYPE
0 {RANGE} NVTX range
0 {KERNEL} CUDA kernel
0 {CLASS} Kernel class
0 {COPY} Memory operation
VALUES
0 End
1 one
2 two
3 three

EVENT_TYPE
0 {BYTES} Memory operation size
0 {NCCL_BYTES} NCCL collective size
0 {MARK} NVTX mark
0 {METRIC} GPU metric
0 {MEMORY} CUDA memory in use
0 9101 Grid X
0 9200 Correlation id
0 9501 NCCL communicator
0 9651 NVTX category
"""
THREADS = ((2, 1), (1, 1), (2, 2))
"""Threads and node of each task."""
OBJECTS = "2(3,2):1:3(2:1,1:1,2:2)"
NAMES = ["0 main", "0 stream", "1 main", "2 main", "2 stream"]
ROW_TEXTS = ("1:1:1:1", "2:1:1:2", "3:1:2:1", "4:1:3:1", "5:1:3:2")
ROW = "\n".join(
    f"LEVEL {level} SIZE {len(names)}\n" + "".join(f"{name}\n" for name in names)
    for level, names in {
        "WORKLOAD": ["job"],
        "APPL": ["job"],
        "TASK": ["rank 0", "rank 1", "rank 2"],
        "THREAD": NAMES,
        "SYSTEM": ["system"],
        "NODE": ["alpha", "beta"],
        "CPU": [f"1.{i} {name}" for i, name in enumerate(NAMES[:3], 1)]
        + [f"2.{i} {name}" for i, name in enumerate(NAMES[3:], 1)],
    }.items()
)


@dataclass
class Interval:
    """An interval with the pairs of its first line, and the types that its last line sets to 0."""

    row: int
    begin: int
    end: int
    pairs: str
    ends: tuple[int, ...]


@dataclass
class Made:
    """The content of a trace. Points: row, time, pairs. States: row, begin, end. Lines: rows, times, size."""

    duration: int
    intervals: list[Interval] = field(default_factory=list)
    points: list[tuple[int, int, str]] = field(default_factory=list)
    states: list[tuple[int, int, int]] = field(default_factory=list)
    lines: list[tuple[int, int, int, int, int]] = field(default_factory=list)

    def list_records(self, origin: int = 0) -> list[str]:
        """Lines of the .prv in Paraver's order: ends, lines of one time, begins, states, communications."""
        keyed = []
        for i, part in enumerate(self.intervals):
            zeros = "".join(f":{number}:0" for number in part.ends)
            place, begin, end = ROW_TEXTS[part.row], part.begin - origin, part.end - origin
            if begin == end:
                keyed.append((begin, 1, i, f"2:{place}:{begin}{part.pairs}{zeros}"))
                continue
            length = end - begin
            keyed.append((begin, 2, (-length, i), f"2:{place}:{begin}{part.pairs}"))
            keyed.append((end, 0, (length, -i), f"2:{place}:{end}{zeros}"))
        for i, (row, time, pairs) in enumerate(self.points):
            keyed.append((time - origin, 1, len(self.intervals) + i, f"2:{ROW_TEXTS[row]}:{time - origin}{pairs}"))
        for i, (row, begin, end) in enumerate(self.states):
            keyed.append((begin - origin, 3, i, f"1:{ROW_TEXTS[row]}:{begin - origin}:{end - origin}:1"))
        for i, (sender, send, receiver, receive, size) in enumerate(self.lines):
            send, receive = send - origin, receive - origin
            text = f"3:{ROW_TEXTS[sender]}:{send}:{send}:{ROW_TEXTS[receiver]}:{receive}:{receive}:{size}:-1"
            keyed.append((send, 4, i, text))
        # Numbers and pairs of numbers are only compared within their class.
        return [text for *_, text in sorted(keyed, key=lambda key: key[:3])]

    def cut(self, low: int, high: int) -> Made:
        """What a window [low, high] leaves, without the values that hold at its begin."""
        left = Made(high - low + 1)
        for part in self.intervals:
            begin, end = max(part.begin, low), min(part.end, high)
            if begin < end or (part.begin == part.end and low <= part.begin <= high):
                left.intervals.append(Interval(part.row, begin, end, part.pairs, part.ends))
        left.points = [point for point in self.points if low <= point[1] <= high]
        left.states = [(row, max(b, low), min(e, high)) for row, b, e in self.states if max(b, low) < min(e, high)]
        for sender, send, receiver, receive, size in self.lines:
            if max(send, receive) >= low and min(send, receive) <= high:
                left.lines.append((sender, min(max(send, low), high), receiver, min(max(receive, low), high), size))
        return left

    def list_held(self, low: int) -> list[str]:
        """The lines of values that hold at `low`: the last before it, if none is at this very time."""
        held = []
        for number in (METRIC, MEMORY):
            for row in range(len(ROW_TEXTS)):
                before = [
                    (t, i, p) for i, (r, t, p) in enumerate(self.points) if r == row and p.startswith(f":{number}:")
                ]
                earlier = [point for point in before if point[0] <= low]
                if earlier and max(earlier)[0] < low:
                    pairs = max(earlier)[2]
                    held += [f"2:{ROW_TEXTS[row]}:1{pairs}"] if number == MEMORY or not pairs.endswith(":0") else []
        return held

    def write(self, path: Path) -> Path:
        """Write the three files of the trace."""
        text = f"#Paraver (08/10/2024 at 12:34):{self.duration}_ns:{OBJECTS}\n" + "\n".join(self.list_records()) + "\n"
        path.write_text(text)
        path.with_suffix(".pcf").write_text(PCF)
        path.with_suffix(".row").write_text(ROW)
        return path


KINDS = (
    (f":{RANGE}:1:9651:7", (RANGE,)),
    (f":{RANGE}:2", (RANGE,)),
    (f":{KERNEL}:3:{CLASS}:1:9101:64", (KERNEL, CLASS)),
    (f":{COPY}:1:{BYTES}:0:9200:-9223372036854775808", (COPY, BYTES)),
    (f":9501:1:{NCCL_BYTES}:4096", (NCCL_BYTES,)),
    (f":9501:2:{NCCL_BYTES}:0", (NCCL_BYTES,)),
)


def make_random(seed: int, events: int = 60, duration: int = 400) -> Made:
    """Make a trace at random: intervals of one type and row nest, states of a row follow each other."""
    random = np.random.default_rng(seed)
    # The first and the last record; the outer of equal intervals comes first.
    made = Made(duration, [Interval(0, 0, duration, *KINDS[0])])

    def nest(row: int, kinds: list[int], low: int, high: int, depth: int) -> None:
        at = low
        for _ in range(random.integers(0, 4)):
            begin = int(random.integers(at, high + 1))
            end = int(random.integers(begin, high + 1))
            pairs, ends = KINDS[int(random.choice(kinds))]
            made.intervals.append(Interval(row, begin, end, pairs, ends))
            if depth and end > begin:
                nest(row, kinds, begin, end, depth - 1)
            at = max(end, begin + 1)
            if at > high:
                break

    for row in range(len(ROW_TEXTS)):
        for kinds in ([0, 1], [2], [3], [4, 5]):
            nest(row, kinds, 0, duration, 3)
        limits = np.unique(random.integers(0, duration + 1, 12)).tolist()
        made.states += [(row, b, e) for b, e in pairwise(limits) if random.random() < 0.7]
    for _ in range(events):
        row, time, value = int(random.integers(5)), int(random.integers(duration + 1)), int(random.integers(-3, 4))
        made.points.append((row, time, f":{random.choice([MARK, METRIC, MEMORY])}:{value}"))
        send, receive = sorted(random.integers(0, duration + 1, 2).tolist())
        made.lines.append((row, send, int(random.integers(5)), receive, int(random.integers(1000))))
    return made
