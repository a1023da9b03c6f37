"""The table of where hosts wait for GPUs, and a sentence on it."""

from __future__ import annotations

from collections.abc import Sequence

from nsys2prv_ng.summary.readbacks.numbers import ReadbackNumbers
from nsys2prv_ng.summary.sums import sum_by_key
from nsys2prv_ng.text import grid
from nsys2prv_ng.text.formatting import format_bytes, format_number, format_percent, format_time
from nsys2prv_ng.text.grid import Bytes, Column, Count, Grid, Name, Ns
from nsys2prv_ng.text.names import NO_RANGE, describe_place, quote_name


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


def describe_readbacks(readbacks: Sequence[ReadbackNumbers], steps: int, gpu_ns: int) -> str:
    """Return what GPUs are idle after longest: how many, which call and copy, from which range; "" without any.

    `gpu_ns`: the time of all GPUs. Calls in a range that causes most of it are described alone.
    """
    idle = sum_by_key(((row.call, row.operation, row.memory), row.idle_ns) for row in readbacks)
    if not idle.total():
        return ""
    (call, operation, memory), whole = idle.most_common(1)[0]
    rows = [row for row in readbacks if (row.call, row.operation, row.memory) == (call, operation, memory)]
    place = ""
    if 2 * rows[0].idle_ns > whole:
        rows, place = rows[:1], f" {describe_place(rows[0].range)}"
    count, idle_ns = sum(row.count for row in rows), sum(row.idle_ns for row in rows)
    parts, step = (steps, " a step") if steps else (1, "")
    noun, of = ("read-back", "") if rows[0].reads else ("wait", " for copies from the host")
    each = f" of {format_bytes(sum(row.bytes for row in rows) / count)}" if operation else ""
    text = (
        f"{format_number(count / parts, 3)} {noun}{'' if count == parts else 's'}{step}{of if operation else ''}{each}"
    )
    text += f" ({', '.join(filter(None, [quote_name(call), memory.lower()]))}){place}: the host waits"
    text += f" {format_time(sum(row.wait_ns for row in rows) / parts)}{step}, then GPUs idle"
    more = sum(row.count for row in readbacks if row.reads) - count
    others = f"; {format_number(more / parts, 3)} other reads{step}" if rows[0].reads and more > 0 else ""
    return f"{text} {format_time(idle_ns / parts)} ({format_percent(idle_ns, gpu_ns)}){others}"
