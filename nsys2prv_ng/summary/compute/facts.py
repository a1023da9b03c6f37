"""Collects the facts about the reports of a job."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator

from nsys2prv_ng.job.open_job import Job
from nsys2prv_ng.job.traced_graphs import list_traced_graphs
from nsys2prv_ng.objects.places import Stream, Thread
from nsys2prv_ng.report.diagnostics import KINDS
from nsys2prv_ng.report.metadata import Metadata
from nsys2prv_ng.summary.numbers.facts import JobFacts

_DIGEST_BYTES = 8


def collect_facts(job: Job) -> JobFacts:
    """Return the facts about the reports of a job."""
    metadata = [report.metadata for report in job.reports]
    sources = Counter(name for report in job.reports for name, result in report.results.items() if result.read)
    return JobFacts(
        nsys_versions=sorted({report.nsys_version for report in metadata}),
        schema_versions=sorted({report.schema_version for report in metadata}),
        programs=sorted(set(_list_programs(job))),
        sources=dict(sorted(sources.items())),
        graphs=sorted({kind for report in job.reports for kind in list_traced_graphs(report)}, key=KINDS.index),
        lost_data_messages=sum(
            message.count for report in job.reports for message in report.diagnostics.messages if message.is_certain
        ),
        lacks_ranks=job.lacks_ranks,
        captures=sorted(map(_make_fingerprint, metadata)),
        begin_utc_ns=_find_begin(job),
    )


def _find_begin(job: Job) -> int | None:
    """Return the UTC of the first event of all time, whatever time the user chose; None without events."""
    begins = [int(first[first <= last].min()) for first, last in job.spans if (first <= last).any()]
    return min(begins) + job.alignment.utc_base if begins else None


def _list_programs(job: Job) -> Iterator[str]:
    """Yield the names of the tasks' executables, if the reports name them; pids and threads differ in each run."""
    for report, rows in zip(job.reports, job.tree.rows, strict=True):
        for place, row in zip(report.places.all, rows.tolist(), strict=True):
            if row >= 0 and isinstance(place, Thread | Stream) and place.process in report.metadata.processes:
                yield report.metadata.get_process_name(place.process)


def _make_fingerprint(metadata: Metadata) -> str:
    """Return a fingerprint that identifies a capture: a hash of its start, host, length and processes."""
    start = None if metadata.utc_of_zero is None else metadata.utc_of_zero + metadata.begin
    what = start, metadata.host, metadata.duration, sorted(metadata.processes)
    return hashlib.blake2b(repr(what).encode("utf-8", "backslashreplace"), digest_size=_DIGEST_BYTES).hexdigest()
