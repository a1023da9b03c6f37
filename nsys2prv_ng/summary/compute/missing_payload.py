"""Calls of NCCL without payload: which reports have them, and what is not known then."""

from __future__ import annotations

import numpy as np

from nsys2prv_ng.arrays.types import BoolArray
from nsys2prv_ng.job.open_job import Job
from nsys2prv_ng.report.schema_version import describe_payload_remedy
from nsys2prv_ng.sources.nccl import nccl
from nsys2prv_ng.sources.nccl.calls import WITHOUT_PAYLOAD
from nsys2prv_ng.summary.numbers.waits import WaitNumbers
from nsys2prv_ng.text.formatting import count_noun

NO_PAYLOAD = "its NCCL call has no payload"
"""Why kernels are not split, beside the reasons of analysis/waits/rules.py."""


def mark_without_payload(job: Job) -> BoolArray:
    """Mark the reports in which calls of NCCL have no payload."""
    results = (report.results.get(nccl.SOURCE.name) for report in job.reports)
    return np.array(
        [result is not None and not WITHOUT_PAYLOAD.isdisjoint(result.dropped) for result in results], np.bool_
    )


def find_payload_remedy(job: Job) -> str:
    """Return how to export the reports that lack payload with it; an empty text if none lacks it."""
    lacking = mark_without_payload(job)
    versions = [report.metadata.schema_version for report, lacks in zip(job.reports, lacking, strict=True) if lacks]
    return describe_payload_remedy(versions) if versions else ""


def describe_missing_payload(waits: WaitNumbers | None, reports: int) -> list[str]:
    """Return what is not known if some of the reports lack payload, and the remedy; nothing if none does."""
    if waits is None or not waits.reports_without_payload:
        return []
    remedy = waits.payload_remedy or describe_payload_remedy([])
    return [
        f"no payload of NCCL's calls in {waits.reports_without_payload:,} of {count_noun(reports, 'report')}: "
        f"collectives are matched by order alone, sends and receives not at all, and sizes are not known; {remedy}"
    ]
