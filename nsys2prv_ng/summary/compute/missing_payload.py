"""Finds the reports whose NCCL calls have no payload, and what to do about it."""

from __future__ import annotations

import numpy as np

from nsys2prv_ng import source_names
from nsys2prv_ng.arrays.types import BoolArray
from nsys2prv_ng.job.open_job import Job
from nsys2prv_ng.report.schema_version import describe_payload_remedy
from nsys2prv_ng.sources.shared.reasons import PAYLOAD_NOT_EXPORTED

NO_PAYLOAD = "its NCCL call has no payload"
"""A reason why kernels are not split, in addition to the reasons in analysis/waits/rules.py."""


def mark_without_payload(job: Job) -> BoolArray:
    """Mark the reports in which NCCL calls have no payload."""
    results = (report.results.get(source_names.NCCL) for report in job.reports)
    return np.array(
        [
            result is not None and any(reason in result.dropped for reason in PAYLOAD_NOT_EXPORTED.values())
            for result in results
        ],
        np.bool_,
    )


def find_payload_remedy(job: Job) -> str:
    """Return how to export reports with payload, for the reports that lack it; an empty text if no report does."""
    lacking = mark_without_payload(job)
    versions = [report.metadata.schema_version for report, lacks in zip(job.reports, lacking, strict=True) if lacks]
    return describe_payload_remedy(versions) if versions else ""
