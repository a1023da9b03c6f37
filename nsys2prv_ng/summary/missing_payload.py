"""Calls of NCCL without payload: which reports have them, and what is not known then."""

from __future__ import annotations

import numpy as np

from nsys2prv_ng.arrays.types import BoolArray
from nsys2prv_ng.job.open_job import Job
from nsys2prv_ng.sources.nccl import nccl
from nsys2prv_ng.sources.nccl.calls import WITHOUT_PAYLOAD
from nsys2prv_ng.text.formatting import count_noun

NO_PAYLOAD = "its NCCL call has no payload"
"""Why kernels are not split, beside the reasons of analysis/wait_rules.py."""


def mark_without_payload(job: Job) -> BoolArray:
    """Mark the reports in which calls of NCCL have no payload."""
    results = (report.results.get(nccl.SOURCE.name) for report in job.reports)
    return np.array(
        [result is not None and not WITHOUT_PAYLOAD.isdisjoint(result.dropped) for result in results], np.bool_
    )


def describe_missing_payload(count: int, reports: int) -> list[str]:
    """Return what is not known if some of the reports lack payload, and the remedy; nothing if none does."""
    if not count:
        return []
    return [
        f"no payload of NCCL's calls in {count:,} of {count_noun(reports, 'report')}: "
        "collectives are matched by order alone, sends and receives not at all, and sizes are not known; "
        "export with --include-blobs=true, or with --include-json=true before schema 3.24"
    ]
