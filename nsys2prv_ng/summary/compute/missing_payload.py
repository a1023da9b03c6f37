"""Finds the reports whose NCCL calls have no payload, and what to do about it."""

from __future__ import annotations

import numpy as np

from nsys2prv_ng import source_names
from nsys2prv_ng.arrays.types import BoolArray
from nsys2prv_ng.job.open_job import Job
from nsys2prv_ng.report.export_settings import JSON_OPTION, describe_payload_remedy
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
    lacking = [report for report, lacks in zip(job.reports, mark_without_payload(job), strict=True) if lacks]
    for_json = PAYLOAD_NOT_EXPORTED[JSON_OPTION]  # whatever the version, the advanced NCCL trace has payloads as JSON
    if lacking and all(for_json in report.results[source_names.NCCL].dropped for report in lacking):
        return f"export with {JSON_OPTION}"
    return describe_payload_remedy(report.metadata.schema_version for report in lacking) if lacking else ""
