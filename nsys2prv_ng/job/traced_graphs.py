"""Finds from the records of a report how its CUDA graphs were traced."""

from __future__ import annotations

from nsys2prv_ng import source_names
from nsys2prv_ng.job.read_reports import ReportRecords
from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.paraver.event_type import EventType
from nsys2prv_ng.report.graph_tracing import AS_WHOLE, BY_NODE

_SHOWN = {
    BY_NODE: ((source_names.KERNELS, source_names.MEMORY_OPERATIONS), types.GRAPH_NODE_ID),
    AS_WHOLE: ((source_names.CUDA_GRAPHS,), types.GRAPH_LAUNCH),
}


def list_traced_graphs(report: ReportRecords) -> list[str]:
    """Return BY_NODE and AS_WHOLE if the chosen sources and time show such graphs."""
    return [
        kind
        for kind, (sources, event_type) in _SHOWN.items()
        if any(_has_events(report, source, event_type) for source in sources)
    ]


def _has_events(report: ReportRecords, source: str, event_type: EventType) -> bool:
    """Return whether any record of a source has an event type."""
    if source not in report.results or event_type not in report.labels.types:
        return False
    handle = report.labels.types.index(event_type)
    return any(bool((run.facts.handles == handle).any()) for run in report.results[source].runs)
