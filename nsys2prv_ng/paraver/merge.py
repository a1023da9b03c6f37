"""Several sorted runs of records as one sorted sequence of blocks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from nsys2prv_ng.paraver.records import Records, concatenate

BLOCK_RECORDS = 1 << 19


def merged_blocks(runs: Sequence[Records], block: int = BLOCK_RECORDS) -> Iterator[Records]:
    """Blocks of about `block` records, sorted within and among each other by time and tie; ties keep the order of runs.

    Records of one time are always in one block.
    """
    runs = [run for run in runs if len(run)]
    step = max(1, block // max(1, len(runs)))
    at = [0] * len(runs)
    while True:
        left = [i for i, run in enumerate(runs) if at[i] < len(run)]
        if not left:
            return
        # Up to the earliest time at which any run has given its share, no later record of a run can be due.
        limit = min(runs[i].time[min(at[i] + step, len(runs[i])) - 1] for i in left)
        parts = []
        for i in left:
            to = int(np.searchsorted(runs[i].time, limit, "right"))
            parts.append(runs[i].part(at[i], to))
            at[i] = to
        yield concatenate(parts).sorted() if len(parts) > 1 else parts[0]
