"""Writes the records of a trace: merges the runs of a store and formats them as the text of the .prv."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from nsys2prv_ng.arrays.types import IntArray
from nsys2prv_ng.paraver.encode import RowNumbers, encode
from nsys2prv_ng.paraver.output import TraceOutput
from nsys2prv_ng.records import columns as rec
from nsys2prv_ng.records.columns import Records
from nsys2prv_ng.records.merge import merge_blocks
from nsys2prv_ng.records.runs import Run, load_chunks
from nsys2prv_ng.records.store import Store
from nsys2prv_ng.runtime.parallel import run_in_threads
from nsys2prv_ng.runtime.progress import Progress


class PlacedRun(NamedTuple):
    """A run that goes into the trace, with the maps from the report's ids and times to those of the trace."""

    run: Run
    offset: int = 0
    """ns to add to times."""
    resolved_by: tuple[IntArray, IntArray, IntArray, IntArray] | None = None
    """Rows by place, and the maps of `Numbering`; None where rows and numbers are those of the trace."""


def write_records(
    trace: TraceOutput,
    runs: Sequence[PlacedRun],
    rows: RowNumbers,
    origin: int,
    store: Store,
    progress: Progress,
    *,
    threads: int,
) -> int:
    """Merge, format and write all records, `threads` blocks at a time; return the number of bytes of text.

    Records of equal time and tie keep the order of the runs, whatever the blocks are.
    """

    def format_block(parts: Sequence[Records]) -> tuple[npt.NDArray[np.uint8], int]:
        block = rec.merge_parts(parts)
        return encode(block, rows, origin), len(block)

    size = 0
    with progress.step(f"writing {trace.path}", sum(len(placed.run) for placed in runs), "record") as step:
        blocks = merge_blocks([_load_placed(placed, store) for placed in runs])
        for lines, count in run_in_threads(format_block, blocks, threads):
            trace.write_prv(lines.data)
            size += lines.size
            step.update(count)
    return size


def _load_placed(placed: PlacedRun, store: Store) -> Iterator[Records]:
    """Yield the records of a run in blocks, with the rows, numbers and times of the trace."""
    for records in load_chunks(placed.run, store):
        rec.shift_times(records, placed.offset)
        if placed.resolved_by is not None:
            rec.resolve_maps(records, *placed.resolved_by)
        yield records
