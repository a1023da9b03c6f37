"""Keeps what tables of one job share: facts about rows of the trace, and what is found over all ranks, once."""

from __future__ import annotations

from copy import copy
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from nsys2prv_ng.analysis.gpus.activity import Devices, list_devices
from nsys2prv_ng.analysis.waits.waits import Waits, find_waits
from nsys2prv_ng.arrays.types import IntArray
from nsys2prv_ng.job.open_job import Job
from nsys2prv_ng.objects.places import Stream, Thread
from nsys2prv_ng.report.metadata import PID_MASK


class RowFacts(NamedTuple):
    """Facts about each row of the trace, -1 where they do not apply; `nodes` has the names of nodes."""

    rank: IntArray
    node: IntArray
    gpu: IntArray
    process: IntArray
    thread: IntArray
    context: IntArray
    stream: IntArray
    nodes: list[str]


def list_row_facts(job: Job) -> RowFacts:
    """Return the facts about the rows of the trace of a job."""
    tree, count = job.tree, job.tree.model.row_count
    task = tree.task_of_row
    nodes = np.array([each.node for each in tree.model.tasks], np.int64)
    process, thread, context, stream = np.full((4, count), -1, np.int64)
    for report, rows in zip(job.reports, tree.rows, strict=True):
        for place, row in zip(report.places.all, rows.tolist(), strict=True):
            if row >= 0 and isinstance(place, Thread):
                process[row], thread[row] = place.process & PID_MASK, place.global_tid & PID_MASK
            elif row >= 0 and isinstance(place, Stream):
                process[row], context[row], stream[row] = place.process & PID_MASK, place.context, place.stream
    return RowFacts(
        tree.belongs_to[task], nodes[task], tree.gpu_of_row, process, thread, context, stream, tree.model.nodes
    )


class JobTables:
    """A job, and what its tables share.

    `reports`: what tables of a report share, by its index, while several are read one after the other; else None.
    """

    def __init__(self, job: Job) -> None:
        self.job, self.facts = job, list_row_facts(job)
        self.reports: dict[int, Any] | None = None

    def keep_reports(self) -> JobTables:
        """Return a copy that keeps what tables of a report share."""
        kept = copy(self)
        kept.reports = {}
        return kept

    @cached_property
    def waits(self) -> Waits:
        return find_waits(self.job)

    @cached_property
    def devices(self) -> Devices:
        return list_devices(self.job)
