"""Finds from the records of a report how its CUDA graphs were traced."""

from __future__ import annotations

from collections.abc import Sequence

from nsys2prv_ng import source_names
from nsys2prv_ng.job.read_reports import ReportRecords
from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.paraver.event_type import EventType
from nsys2prv_ng.report.diagnostics import AS_WHOLE, BY_NODE

_SHOWN = {
    BY_NODE: ((source_names.KERNELS, source_names.MEMORY_OPERATIONS), types.GRAPH_NODE_ID),
    AS_WHOLE: ((source_names.CUDA_GRAPHS,), types.GRAPH_LAUNCH),
}


def list_traced_graphs(report: ReportRecords) -> list[str]:
    """Return BY_NODE and AS_WHOLE if the chosen sources and time show such graphs."""
    return [kind for kind, (sources, event_type) in _SHOWN.items() if _has_events(report, sources, event_type)]


def _has_events(report: ReportRecords, sources: Sequence[str], event_type: EventType) -> bool:
    """Return whether any record of some sources has an event type."""
    handle = report.labels.find_handle(event_type)
    return handle is not None and any(bool((run.facts.handles == handle).any()) for run in report.runs(sources))
