"""The records of a trace: from the runs of a store to the text of the .prv."""

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
    """A run that goes into the trace, with what makes a report's own ids and times those of the trace."""

    run: Run
    offset: int = 0
    """ns, added to times."""
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
    """Merge, format and write all records, `threads` blocks of them at once; returns the number of bytes.

    Records of equal time and tie keep the order of runs, whatever the blocks are.
    """

    def text(parts: Sequence[Records]) -> tuple[npt.NDArray[np.uint8], int]:
        block = rec.merge_parts(parts)
        return encode(block, rows, origin), len(block)

    size = 0
    with progress.step(f"writing {trace.path}", sum(len(each.run) for each in runs), "record") as step:
        blocks = merge_blocks([_chunks(each, store) for each in runs])
        for lines, count in run_in_threads(text, blocks, threads):
            trace.write_prv(lines.data)
            size += lines.size
            step.update(count)
    return size


def _chunks(written: PlacedRun, store: Store) -> Iterator[Records]:
    for records in load_chunks(written.run, store):
        rec.shift_times(records, written.offset)
        if written.resolved_by is not None:
            rec.resolve_maps(records, *written.resolved_by)
        yield records
