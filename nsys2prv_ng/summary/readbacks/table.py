"""The table of where hosts wait for GPUs, and a sentence on it."""

from __future__ import annotations

from collections.abc import Sequence

from nsys2prv_ng.summary.readbacks.numbers import ReadbackNumbers
from nsys2prv_ng.summary.sums import sum_by_key
from nsys2prv_ng.text import grid
from nsys2prv_ng.text.formatting import format_bytes, format_number, format_percent, format_time
from nsys2prv_ng.text.grid import Bytes, Column, Count, Grid, Name, Ns
from nsys2prv_ng.text.names import NO_RANGE, describe_place, quote_name

_LEAST_IDLE = 0.01
"""Least share of idle time that is worth a word. A choice: less is not what limits a job."""


def tabulate_readbacks(readbacks: Sequence[ReadbackNumbers], steps: int) -> Grid:
    """Return for each call and range with read-backs what was copied, and times: per step if there are any."""
    parts = max(steps, 1)

    def count(row: ReadbackNumbers) -> float:
        return row.count // parts if row.count % parts == 0 else round(row.count / parts, 1)

    return grid.tabulate(
        readbacks,
        [
            ("call", lambda row: Name(row.call)),
            ("NVTX range", lambda row: Name(row.range or NO_RANGE)),
            (Column("function", optional=True), lambda row: Name(row.function)),
            (Column("copy", minor=True, optional=True), lambda row: Name(row.operation.removeprefix("Memcpy "))),
            (Column("memory", minor=True, optional=True), lambda row: row.memory.lower()),
            ("count", lambda row: Count(count(row))),
            (
                Column("each", minor=True, optional=True),
                lambda row: Bytes(row.bytes / row.count if row.operation else None),
            ),
            ("waits", lambda row: Ns(row.wait_ns / parts)),
            ("GPU idle after", lambda row: Ns(row.idle_ns / parts)),
        ],
        caption=f"Where the host waits for the GPU{', per step' if steps else ''}",
        names=2,
        more="calls",
        weights=[(row.idle_ns, row.wait_ns) for row in readbacks],
    )


def describe_readbacks(readbacks: Sequence[ReadbackNumbers], parts: int, step: str, gpu_ns: int) -> str:
    """Return what GPUs are idle after longest: how many, which call and copy, from which range; "" without any.

    `parts`: what counts are divided by, the steps of all ranks; `step`: what these are, as " a step"; `gpu_ns`: the
    time of all GPUs, or 0 if it is known what they would gain. Calls in a range that causes most of it are described
    alone, and their times with those of all others.
    """
    idle = sum_by_key(((row.call, row.operation, row.memory), row.idle_ns) for row in readbacks)
    if not idle.total():
        return ""
    (call, operation, memory), whole = idle.most_common(1)[0]
    rows = [row for row in readbacks if (row.call, row.operation, row.memory) == (call, operation, memory)]
    place = ""
    if 2 * rows[0].idle_ns > whole:
        rows, place = rows[:1], f" {describe_place(rows[0].range or rows[0].function)}"
    count = sum(row.count for row in rows)
    many, size = "" if count == parts else "s", format_bytes(sum(row.bytes for row in rows) / count)
    noun = f"read-back{many}{step} of {size}" if rows[0].reads else f"wait{many}{step}"
    noun += f" for copies of {size} from the host" if operation and not rows[0].reads else ""
    how = ", ".join(filter(None, [quote_name(call), memory.lower()]))
    more = sum(row.count for row in readbacks) - count
    others = f", and {format_number(more / parts, 3)} other{'' if more == parts else 's'}" if more >= parts else ""
    wait_ns, lost_ns = sum(row.wait_ns for row in readbacks), sum(row.lost_ns for row in readbacks)
    text = f"{format_number(count / parts, 3)} {noun} ({how}){place}{others}"
    text += f": the host waits {format_time(wait_ns / parts)}{step}"
    is_known = lost_ns >= _LEAST_IDLE * gpu_ns > 0
    return text + (f", for which GPUs idle {format_percent(lost_ns, gpu_ns)}" if is_known else "")
