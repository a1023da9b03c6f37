"""Describes what is not known if NCCL calls lack payload."""

from __future__ import annotations

from nsys2prv_ng.report.export_settings import describe_payload_remedy
from nsys2prv_ng.summary.numbers.waits import WaitNumbers
from nsys2prv_ng.text.formatting import count_noun


def describe_missing_payload(waits: WaitNumbers | None, reports: int) -> list[str]:
    """Return what is not known if some of the reports lack payload, and the remedy; [] if no report does."""
    if waits is None or not waits.reports_without_payload:
        return []
    remedy = waits.payload_remedy or describe_payload_remedy([])
    return [
        f"no payload of NCCL's calls in {waits.reports_without_payload:,} of {count_noun(reports, 'report')}: "
        f"collectives are matched by order alone, sends and receives not at all, and sizes are not known; {remedy}"
    ]
